"""Learning: from a version and the rows of a closed episode to the next version, in this process or beside it.

What is learned is a pure function of the log. The process that learns reads the rows itself, so that serving only
hands over which episode to learn and receives a model.
"""

from typing import Any, Protocol

import msgspec

from spuir.bandit import Bandit
from spuir.errors import ServiceError, SpuirError
from spuir.service.experiment_view import Closed
from spuir.service.log_records import ActionFact, VersionFact
from spuir.service.settings import ExperimentSettings
from spuir.service.stores.base import LogReader, store_failed
from spuir.service.versions.joining import DEFAULTED, FORGOTTEN, LATE, NOT_ACTIVATED, JoinRules, episode_rows
from spuir.service.versions.model_steps import change_actions, estimated_value, finite, learn, opened, under
from spuir.service.versions.rebuild import Lineup


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


def run_job(store: LogReader, job: LearningJob) -> Learned:
    """Return what a job learned, or why nothing could be: a damaged record, say."""
    try:
        return _run_job(store, job)
    except SpuirError as wrong:
        return failed_job(job, wrong)


def failed_job(job: LearningJob, wrong: SpuirError) -> Learned:
    """Return why a job learned nothing, and whether it may succeed later."""
    return Learned(job.name, job.version, error=str(wrong), again=store_failed(wrong))


def _run_job(store: LogReader, job: LearningJob) -> Learned:
    """Return what a job learned; rows that cannot be learned leave the parent as it was, and the version says why."""
    head = store.head(job.name)
    read_at = head.seq if head is not None else 0
    lineup, close = Lineup(store, job.name), job.close
    rows = list(episode_rows(store, job.name, close.edges, JoinRules.of(job.settings)))
    used = [row for row in rows if row.learned]
    refused = value = anew = None
    if close.fact.relearn:
        try:
            anew = lineup.relearned(job.settings, close.seq)
        except ServiceError:  # of the store, which may be read later
            raise
        except SpuirError as wrong:
            refused = f"the episodes before could not be learned by the policy {job.settings.policy!r}: {wrong}"
    bandit, history = anew or (under(change_actions(lineup.model(job.parent), job.changes), job.settings), 0)
    before = bandit.to_bytes()
    try:
        if used and refused is None:
            bandit = learn(bandit, job.settings, used)
        if bandit.n_episodes_ and not finite(bandit):
            refused, bandit = "numbers that are not finite were learned", opened(before, "the parent")
        elif used and refused is None and job.settings.least_value is not None:
            value = estimated_value(bandit, used)
            if value is not None and value < job.settings.least_value:
                refused = f"its estimated value {value:.6g} is below the guard {job.settings.least_value:g}"
    except SpuirError as wrong:
        refused, bandit = f"the rows could not be learned: {wrong}", opened(before, "the parent")
    status = [row.status for row in rows]
    about = VersionFact(
        number=job.version,
        parent=job.parent if anew is None else None,
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
    """Where learning happens; ``beside`` says that serving continues meanwhile, ``failures`` how often it died."""

    beside: bool
    failures: int

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

    beside, failures = False, 0

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
