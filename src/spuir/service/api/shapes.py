"""Bodies of requests that are not commands' own rows: their types, and their decoders."""

from typing import Annotated, Any

import msgspec

from spuir.service.commands import DecisionRow, LogRow, RewardRow
from spuir.service.settings import CHANGEABLE, LONGEST_ID, ExperimentSettings, Features, Label, Number, Whole

_FIELDS = {item.name: item for item in msgspec.structs.fields(ExperimentSettings)}


def _setting(name: str) -> tuple[str, Any, Any]:
    """Return a setting as a field of another type, with its default."""
    item = _FIELDS[name]
    if item.default_factory is not msgspec.NODEFAULT:
        return name, item.type, msgspec.field(default_factory=item.default_factory)
    return name, item.type, msgspec.field() if item.required else msgspec.field(default=item.default)


NewExperiment = msgspec.defstruct(
    "NewExperiment",
    [("name", str), *map(_setting, _FIELDS)],
    kw_only=True,
    forbid_unknown_fields=True,
    namespace={"__doc__": "An experiment to create: its name and its settings."},
)
SettingsChange = msgspec.defstruct(
    "SettingsChange",
    [(name, _FIELDS[name].type | msgspec.UnsetType, msgspec.UNSET) for name in _FIELDS if name in CHANGEABLE],
    kw_only=True,
    forbid_unknown_fields=True,
    namespace={"__doc__": "Settings to change; those that are left out stay."},
)


Name = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_ID)]
Context = list[Number] | dict[Name, str | Whole | Number | bool | None]
"""Numbers, or raw columns: texts, numbers, true, false and null by name."""


class DecisionBody(DecisionRow, kw_only=True, forbid_unknown_fields=True):
    """One decision to take.

    ``id`` makes it idempotent; ``eligible`` lists the labels that may be chosen, null = all active; ``defer`` leaves
    it out of learning unless it is activated; ``unit`` is the person or device, by which it can be forgotten.
    """

    context: Context


class LogLine(LogRow, kw_only=True, forbid_unknown_fields=True):
    """A decision with its reward from elsewhere."""

    context: Context


class _Body(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a request."""


class DecisionsBody(_Body):
    """Several decisions to take, all of them or none."""

    decisions: list[DecisionBody]


class _Sent(msgspec.Struct, gc=False):
    """The context of a decision as the client wrote it."""

    context: msgspec.Raw


class _SeveralSent(msgspec.Struct, gc=False):
    decisions: list[_Sent]


class RewardsBody(_Body):
    """Several rewards to record."""

    rewards: list[RewardRow]


class NewAction(_Body):
    """An action to add; its probability is at most ``ramp`` in its first ``ramp_episodes``."""

    label: Label
    like: Label | None = None
    ramp: float | None = 0.1
    ramp_episodes: Whole = 5
    features: Features | None = None


class ActionChange(_Body):
    """New features of an action."""

    features: Features | None


class ProbeAnswer(msgspec.Struct):
    """``status``: ok, or what is missing."""

    status: str


one_decision = msgspec.json.Decoder(DecisionBody)
several_decisions = msgspec.json.Decoder(DecisionsBody)
one_sent = msgspec.json.Decoder(_Sent)
several_sent = msgspec.json.Decoder(_SeveralSent)
one_reward = msgspec.json.Decoder(RewardRow)
several_rewards = msgspec.json.Decoder(RewardsBody)
new_experiment = msgspec.json.Decoder(NewExperiment)
settings_change = msgspec.json.Decoder(SettingsChange)
new_action = msgspec.json.Decoder(NewAction)
action_change = msgspec.json.Decoder(ActionChange)
log_line = msgspec.json.Decoder(dict[str, Any])
