"""Commands, which ask the service to change something, and answers: the shapes of the programming interface.

A command is carried out by :meth:`spuir.service.engine.Engine.execute`. The parts of a request that come from its
body (:class:`DecisionRow`, :class:`RewardRow`, …) are what the HTTP routes decode.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from spuir.service.settings import ExperimentSettings, Features, Label, Number

CODES: dict[str, tuple[int, str]] = {
    "invalid": (400, "the request breaks a rule"),
    "unsupported": (400, "the policy of this experiment cannot do it"),
    "unknown_experiment": (404, "there is no experiment of this name"),
    "unknown_decision": (404, "there is no decision of this id"),
    "unknown_version": (404, "there is no version of this number"),
    "unknown_action": (404, "there is no action of this label"),
    "unknown_unit": (404, "no decision names this unit"),
    "exists": (409, "something of this name exists already"),
    "conflict": (409, "the id was used before with another body"),
    "archived": (409, "the experiment is archived and takes nothing more"),
    "too_late": (409, "the decision has settled"),
    "refused_version": (409, "the version cannot be published"),
    "forgotten": (410, "the unit of this decision was forgotten"),
    "damaged": (503, "the log of this experiment is damaged, and nothing was recorded; other experiments continue"),
    "storage_unavailable": (503, "the store cannot write now; send it again with the same id"),
    "storage_full": (507, "the disk is full; nothing was recorded"),
}
"""Error codes, each with its HTTP status and what it means."""


class _Request(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    """A part of the body of a request."""


class _Command(msgspec.Struct, kw_only=True, gc=False):
    """What asks to change an experiment."""

    experiment: str


class _Answer(msgspec.Struct, kw_only=True, gc=False):
    """What a caller gets."""


# ---- decisions ----------------------------------------------------------------------------------------------


class DecisionRow(_Request):
    """One decision to take.

    ``id`` makes it idempotent; ``eligible`` lists the labels that may be chosen, None = all active; ``defer`` leaves
    it out of learning unless it is activated; ``unit`` is the person or device, by which it can be forgotten.
    """

    context: list[float] | dict[str, Any]
    id: str | None = None
    eligible: list[Label] | None = None
    action_features: dict[str, dict[str, Number]] | None = None
    defer: bool = False
    unit: str | None = None


class Decide(_Command):
    """Take one decision; ``sent`` and ``as_json`` as in :class:`DecideMany`."""

    row: DecisionRow
    sent: list[msgspec.Raw] | None = None
    as_json: bool = False


class DecideMany(_Command):
    """Take decisions in order, all of them or, if one is refused, none; they are one call of ``Bandit.decide``.

    ``sent`` is the JSON of all contexts as the client wrote it, which the log keeps; ``request`` in its place is the
    whole body, if rows have nothing but contexts. ``as_json`` asks for probabilities as JSON, to be sent on.
    """

    rows: Sequence[DecisionRow]
    sent: list[msgspec.Raw] | None = None
    request: msgspec.Raw | None = None
    as_json: bool = False


class DecisionAnswer(_Answer):
    """A decision that is recorded.

    ``probabilities`` has all active actions; ``replayed`` says that the id was known and nothing new was recorded.
    In shadow mode ``action`` is the baseline, and ``shadow`` what the policy would have chosen.
    """

    id: str
    action: Label
    propensity: float
    probabilities: dict[str, float]
    version: int
    replayed: bool = False
    shadow: Label | None = None


class DecisionsAnswer(_Answer):
    """The decisions of one request, in order."""

    decisions: list[DecisionAnswer]


class Activate(_Command):
    """Let a deferred decision be learned."""

    decision_id: str


class ActivateAnswer(_Answer):
    """``status``: activated, or duplicate if it was before (nothing new is recorded)."""

    decision_id: str
    status: str


# ---- rewards ------------------------------------------------------------------------------------------------


class RewardRow(_Request):
    """The reward of one decision.

    ``id`` makes it idempotent; without one, two rewards with the same decision, value and time are one. ``time``
    (ISO text or seconds since 1970) orders the rewards of a decision; windows go by the service's clock.
    """

    decision_id: str
    reward: Number
    id: str | None = None
    time: str | float | None = None


class Reward(_Command):
    """Report one reward."""

    row: RewardRow


class RewardMany(_Command):
    """Report rewards; each has a status of its own, and what is malformed refuses all of them."""

    rows: list[RewardRow]


class RewardAnswer(_Answer):
    """What became of a reward.

    ``status``: joined, early (recorded, waits for its decision), late (recorded, not learned), unknown (recorded, its
    decision cannot come any more), duplicate (known already, nothing new recorded); in the answer to several also
    conflict (the id was used with another body) and forgotten (the unit of its decision was), with nothing recorded.
    """

    decision_id: str
    id: str
    status: str


class RewardsAnswer(_Answer):
    """The rewards of one request, in order."""

    rewards: list[RewardAnswer]


# ---- experiments --------------------------------------------------------------------------------------------


class CreateExperiment(_Command):
    """Create an experiment; the same name with the same settings again is answered as the first time."""

    settings: ExperimentSettings


class ChangeExperiment(_Command):
    """Change some settings from here on, by name; see :data:`spuir.service.settings.CHANGEABLE`."""

    changes: dict[str, Any]


class ArchiveExperiment(_Command):
    """End an experiment: it can be read, and takes nothing more."""


class ActionInfo(_Answer):
    """An action of an experiment; one that is not active is never chosen again."""

    label: Label
    active: bool = True
    features: Features | None = None


class ExperimentAnswer(_Answer):
    """An experiment as it is now.

    Times are seconds since 1970. ``counts`` has decisions, rewards, joined, early, late, unknown, activations,
    learned, defaulted, and the like; ``learning`` says that a closed episode is being learned.
    """

    name: str
    settings: ExperimentSettings
    actions: list[ActionInfo]
    version: int
    newest: int
    episode: int
    records: int
    digest: str
    created: float
    time: float
    archived: bool
    learning: bool
    counts: dict[str, int]
    drift: dict[str, int] = {}
    created_now: bool = False


class AddAction(_Command):
    """Add an action; ``like``, ``ramp`` and ``ramp_episodes`` as in :meth:`spuir.Bandit.add_action`."""

    label: Label
    like: Label | None = None
    ramp: float | None = 0.1
    ramp_episodes: int = 5
    features: Features | None = None


class UpdateAction(_Command):
    """Change the features of an action."""

    label: Label
    features: Features | None = None


class RemoveAction(_Command):
    """Retire an action: it is never chosen again, and late rows of it are still learned."""

    label: Label


# ---- episodes and versions ----------------------------------------------------------------------------------


class CloseEpisode(_Command):
    """Learn from everything that has settled and was not learned yet; with ``after``, only after that many closes."""

    after: int | None = None


class CloseAnswer(_Answer):
    """``rows`` that will be learned and the ``version`` that they lead to; None if nothing had settled."""

    rows: int
    version: int | None = None


class Publish(_Command):
    """Serve a version from here on; an older one is a rollback."""

    version: int


class PublishAnswer(_Answer):
    """The version that is served, and the one before."""

    version: int
    previous: int


class VersionAnswer(_Answer):
    """A version of the model.

    ``refused`` says why it was not published by itself; ``value`` is its estimated value on its batch where a guard
    asked for it; ``digest`` is the digest of its state, which a replay of the log gives again.
    """

    version: int
    parent: int | None
    episode: int
    rows: int
    digest: str
    time: float
    published: bool
    refused: str | None = None
    value: float | None = None


class FinishLearning(_Command):
    """Record what was learned from a closed episode, the engine's own command; ``model`` None = it was saved before."""

    version: int
    model: bytes | None
    about: bytes


# ---- import, export, erasure --------------------------------------------------------------------------------


class LogRow(_Request):
    """A decision with its reward from elsewhere, to learn from: one row of a canonical log."""

    context: list[float] | dict[str, Any]
    action: Label
    reward: Number | None = None
    propensity: float | None = None
    decision_id: str | None = None
    eligible: list[Label] | None = None
    time: str | float | None = None
    unit_id: str | None = None


class ImportLog(_Command):
    """Record rows from elsewhere, decided and rewarded already; they are learned with the episode that is open."""

    rows: list[LogRow]


class ImportAnswer(_Answer):
    """How many rows were recorded and how many were known by their id."""

    recorded: int
    duplicates: int


class ImportModel(_Command):
    """Take a model file that :meth:`spuir.Bandit.save` wrote as the next version."""

    model: bytes


class Forget(_Command):
    """Erase contexts and rewards of a unit for good; what was learned stays."""

    unit: str


class ForgetAnswer(_Answer):
    """How many decisions and rewards were erased."""

    decisions: int
    rewards: int


class EraseOld(_Command):
    """Erase contexts and rewards that were learned and kept long enough; the engine's own command."""


class DecisionStatus(_Answer):
    """A decision as it is now.

    ``status``: pending, joined (it has a reward), defaulted (its window ended without one), late (its only rewards
    came after it had settled), not activated, forgotten. ``used_in`` is the version that learned it, None before.
    """

    id: str
    status: str
    action: Label | None
    propensity: float | None
    version: int
    time: float
    settles: float | None
    reward: float | None = None
    rewards: int = 0
    used_in: int | None = None


Command = (
    Decide
    | DecideMany
    | Reward
    | RewardMany
    | Activate
    | CreateExperiment
    | ChangeExperiment
    | ArchiveExperiment
    | AddAction
    | UpdateAction
    | RemoveAction
    | CloseEpisode
    | Publish
    | FinishLearning
    | ImportLog
    | ImportModel
    | Forget
    | EraseOld
)
Answer = (
    DecisionAnswer
    | DecisionsAnswer
    | RewardAnswer
    | RewardsAnswer
    | ActivateAnswer
    | ExperimentAnswer
    | CloseAnswer
    | PublishAnswer
    | VersionAnswer
    | ImportAnswer
    | ForgetAnswer
)
