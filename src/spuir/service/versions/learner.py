"""Learning: from a version and the rows of a closed episode to the next version, in this process or beside it.

What is learned is a pure function of the log. The process that learns reads the rows itself, so that serving only
hands over which episode to learn and receives a model.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec
import numpy as np
from threadpoolctl import threadpool_limits

from spuir.bandit import Bandit, from_bytes
from spuir.base.records import all_finite
from spuir.errors import ServiceError, SpuirError
from spuir.service.experiment_view import Closed
from spuir.service.log_records import ActionFact, VersionFact
from spuir.service.settings import ColumnContext, ExperimentSettings, Label
from spuir.service.stores.base import LogReader
from spuir.service.versions.joining import (
    DEFAULTED,
    FORGOTTEN,
    LATE,
    NOT_ACTIVATED,
    JoinedRow,
    JoinRules,
    episode_rows,
)
from spuir.storage import snapshot
from spuir.tables.encoder import Encoder


class LearningJob(msgspec.Struct):
    """What to learn: the version to make, from which parent, of which close, under which settings.

    ``changes`` are the changes of actions that the parent does not have.
    """

    name: str
    version: int
    parent: int
    close: Closed
    settings: ExperimentSettings
    changes: list[tuple[int, ActionFact]]


class Learned(msgspec.Struct):
    """What was learned, the model file and what its version record says, or the ``error`` why nothing was.

    ``again`` says that the store could not be read, and that the same job may succeed later.
    """

    name: str
    version: int
    model: bytes = b""
    about: VersionFact | None = None
    error: str | None = None
    again: bool = False


def cold(settings: ExperimentSettings) -> Bandit:
    """Return the bandit of version 0."""
    actions: Any = settings.labels if settings.catalogue is None else settings.catalogue
    made = Bandit(settings.make_policy(), actions, random_state=settings.seed)
    made._advises = False  # a service counts drift, and nobody reads its warnings
    return made


def opened(content: bytes, source: str) -> Bandit:
    """Return the bandit of a saved model."""
    made = from_bytes(content, source)
    made._advises = False
    return made


def solve_ahead(bandit: Bandit) -> None:
    """Compute what a model decides by, of one row and of several, so that its first decision does not wait for it."""
    state = bandit.state_
    with suppress(SpuirError):  # of a model that needs more than a context to decide
        for rows in (1, 2):
            bandit.policy_.predict(state, np.zeros((rows, state.dim)))


def change_actions(bandit: Bandit, changes: Iterable[tuple[int, ActionFact]]) -> Bandit:
    """Apply changes of actions in order; return the bandit."""
    for _, fact in changes:
        if fact.change == "add":
            bandit.add_action(fact.label, fact.like, fact.ramp, fact.ramp_episodes, fact.features)
        elif fact.change == "update":
            bandit.update_action(fact.label, fact.features or {})
        elif fact.change == "remove":
            bandit.remove_action(fact.label)
    return bandit


def under(bandit: Bandit, settings: ExperimentSettings) -> Bandit:
    """Let a bandit act by the policy of the settings if that can read what was learned; return the bandit."""
    policy = settings.make_policy()
    if policy != bandit.policy_ and can_continue(bandit, settings):
        bandit.set_params(policy=policy)
    return bandit


def can_continue(bandit: Bandit, settings: ExperimentSettings) -> bool:
    """Return whether the policy of the settings can continue from what a bandit has learned."""
    if not bandit.n_episodes_:
        return True
    try:
        settings.make_policy().check_state(bandit.state_)
    except SpuirError:
        return False
    return True


def raw_columns(rows: Sequence[Mapping[str, Any]], names: Sequence[str] | None = None) -> dict[str, list[Any]]:
    """Return raw rows as columns: ``names``, or all in the order in which they first appear; None = missing."""
    chosen = list(dict.fromkeys(name for row in rows for name in row)) if names is None else names
    return {name: [row.get(name) for row in rows] for name in chosen}


def offered(rows: Sequence[Any], names: Sequence[Label], active: Iterable[Label] | None = None) -> dict[str, Any]:
    """Return who was eligible and the features per decision of rows, as arguments of a bandit's methods.

    ``active`` are the actions of a row that lists none; None = all.
    """
    if any(row.action_features is not None for row in rows):
        by_text = {str(name): name for name in names}
        pairs = [
            (at, text, given) for at, row in enumerate(rows) for text, given in (row.action_features or {}).items()
        ]
        columns = {name: [given.get(name) for _, _, given in pairs] for name in sorted(pairs[0][2])}
        who = {"row": [at for at, _, _ in pairs], "action": [by_text[text] for _, text, _ in pairs]}
        return {"action_features": who | columns}
    if all(row.eligible is None for row in rows):
        return {}
    every = set(names if active is None else active)
    sets = [every if row.eligible is None else set(row.eligible) for row in rows]
    return {"eligible": np.array([[name in one for name in names] for one in sets])}


def _kinds(table: Mapping[str, Sequence[Any]], options: ColumnContext) -> dict[str, str]:
    """Return the kinds of columns that are not left to the encoder: those that the settings name, and mixed ones.

    A column with texts and other values is of levels: one careless client does not keep an episode from being learned.
    """
    mixed = [
        name for name, column in table.items() if len({isinstance(one, str) for one in column if one is not None}) > 1
    ]
    levels = "category" if options.hashing is None else "hash"
    return dict.fromkeys(mixed, levels) | {name: kind for name, kind in options.kinds.items() if name in table}


def learn(bandit: Bandit, settings: ExperimentSettings, rows: Sequence[JoinedRow]) -> Bandit:
    """Return the bandit after it has learned one episode; the rows are in the order of decisions."""
    facts = [row.fact for row in rows if row.fact is not None]
    contexts: list[Any] = [fact.context for fact in facts]
    under_columns = isinstance(contexts[0], dict)
    if under_columns and bandit.encoder is None:
        options = settings.context if isinstance(settings.context, ColumnContext) else ColumnContext()
        table = raw_columns(contexts, options.names)
        given = {name: getattr(options, name) for name in ("scale", "intercept", "max_levels", "hashing")}
        bandit = bandit.with_encoder(Encoder.fit(table, kinds=_kinds(table, options), **given))
        bandit._advises = False
    if bandit.encoder is not None:
        X: Any = raw_columns(contexts, bandit.encoder.columns)
    else:
        X = np.array(contexts, dtype=np.float64)
    chances = [fact.propensity for fact in facts]
    propensities = None if None in chances else np.array(chances, np.float64)
    with threadpool_limits(limits=1):  # so that the last bit does not depend on the number of threads
        bandit.partial_fit(
            X,
            actions=np.array([fact.action for fact in facts], dtype=bandit.actions_.dtype),
            rewards=np.array([row.reward for row in rows], np.float64),
            propensities=propensities,
            **offered(facts, bandit.actions_.tolist()),
            ids=[row.record.key for row in rows],
            allow_repeat=True,  # the log says what is learned once
        )
    return bandit


def estimated_value(bandit: Bandit, rows: Sequence[JoinedRow]) -> float | None:
    """Return the self-normalised estimate of what a bandit would earn on rows that another version decided."""
    facts = [row.fact for row in rows if row.fact is not None]
    if any(fact.propensity is None for fact in facts):
        return None
    contexts: list[Any] = [fact.context for fact in facts]
    X = np.array(contexts, np.float64) if bandit.encoder is None else raw_columns(contexts, bandit.encoder.columns)
    codes = {label: code for code, label in enumerate(bandit.actions_.tolist())}
    chosen = bandit.predict_proba(X, **offered(facts, bandit.actions_.tolist()))[
        np.arange(len(facts)), [codes[fact.action] for fact in facts]
    ]
    weights = chosen / np.array([fact.propensity for fact in facts], np.float64)
    total = float(weights.sum())
    return float(weights @ np.array([row.reward for row in rows], np.float64)) / total if total else None


def finite(bandit: Bandit) -> bool:
    """Return whether every number that was learned is finite."""
    _, arrays = snapshot.pack(bandit.state_)
    return all(all_finite(array) for array in arrays.values() if array.dtype.kind == "f")


def run_job(store: LogReader, job: LearningJob) -> Learned:
    """Return what a job learned, or why nothing could be: a damaged record, say."""
    try:
        return _run_job(store, job)
    except SpuirError as wrong:
        return failed_job(job, wrong)


def failed_job(job: LearningJob, wrong: SpuirError) -> Learned:
    """Return why a job learned nothing, and whether it may succeed later."""
    again = isinstance(wrong, ServiceError) and wrong.code.startswith("storage")
    return Learned(job.name, job.version, error=str(wrong), again=again)


def _run_job(store: LogReader, job: LearningJob) -> Learned:
    """Return what a job learned; rows that cannot be learned leave the parent as it was, and the version says why."""
    from spuir.service.versions.rebuild import Lineup  # which learns, too

    head = store.head(job.name)
    read_at = head.seq if head is not None else 0
    lineup, close = Lineup(store, job.name), job.close
    rows = list(episode_rows(store, job.name, close.edges, JoinRules.of(job.settings)))
    used = [row for row in rows if row.learned]
    refused = value = None
    if close.fact.relearn:
        bandit, history = lineup.relearned(job.settings, close.seq)
    else:
        bandit, history = under(change_actions(lineup.model(job.parent), job.changes), job.settings), 0
    before = bandit.to_bytes()
    try:
        if used:
            bandit = learn(bandit, job.settings, used)
        if bandit.n_episodes_ and not finite(bandit):
            refused, bandit = "numbers that are not finite were learned", opened(before, "the parent")
        elif used and job.settings.least_value is not None:
            value = estimated_value(bandit, used)
            if value is not None and value < job.settings.least_value:
                refused = f"its estimated value {value:.6g} is below the guard {job.settings.least_value:g}"
    except SpuirError as wrong:
        refused, bandit = f"the rows could not be learned: {wrong}", opened(before, "the parent")
    status = [row.status for row in rows]
    about = VersionFact(
        number=job.version,
        parent=None if close.fact.relearn else job.parent,
        close=close.fact.number,
        episode=bandit.n_episodes_,
        rows=len(used) + history,
        digest=bandit.digest(),
        actions_at=close.seq,
        read_at=read_at,
        refused=refused,
        value=value,
        defaulted=status.count(DEFAULTED) + status.count(LATE),
        not_activated=status.count(NOT_ACTIVATED),
        erased=status.count(FORGOTTEN),
    )
    return Learned(job.name, job.version, bandit.to_bytes(), about)


class LearnerProcess(Protocol):
    """Where learning happens; ``beside`` says that serving continues meanwhile."""

    beside: bool

    def submit(self, store: Any, job: LearningJob) -> None:
        """Start to learn."""
        ...

    def collect(self) -> list[Learned]:
        """Return what was learned since the last call."""
        ...

    def take(self, name: str, digest: str) -> Bandit | None:
        """Return the newest model that was learned for an experiment, if it has this digest and is at hand."""
        ...

    def close(self) -> None:
        """Stop."""
        ...


class InProcess:
    """Learns when asked, before anything else happens: for tests, replays and tools."""

    beside = False

    def __init__(self) -> None:
        self._done: list[Learned] = []

    def submit(self, store: LogReader, job: LearningJob) -> None:
        """Learn now."""
        self._done.append(run_job(store, job))

    def collect(self) -> list[Learned]:
        """Return what was learned."""
        done, self._done = self._done, []
        return done

    def take(self, name: str, digest: str) -> Bandit | None:
        """Return None: models are read from the store."""
        return None

    def close(self) -> None:
        """Have nothing to stop."""
