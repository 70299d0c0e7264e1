"""The engine of the decision service: commands in, records in one durable transaction, answers out."""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from spuir.errors import ServiceError
from spuir.service import decisions, reading, rewarding
from spuir.service.commands import (
    Activate,
    Answer,
    CloseEpisode,
    Command,
    CreateExperiment,
    Decide,
    DecideMany,
    DecisionStatus,
    EraseOld,
    ExperimentAnswer,
    Reward,
    RewardMany,
    VersionAnswer,
)
from spuir.service.control import CHANGED, carry_out, old_records
from spuir.service.drafting import Draft, unknown_experiment
from spuir.service.experiment_view import ExperimentView, read_view
from spuir.service.serving import Serving
from spuir.service.settings import MADE
from spuir.service.stores.base import Head, LogReader, LogStore, LogWriter, store_failed
from spuir.service.versions.learner import InProcess, LearnerProcess
from spuir.service.versions.learning_jobs import LearningJobs, ModelPiece
from spuir.service.versions.model_steps import change_actions, under
from spuir.service.versions.rebuild import Lineup, old_models

log = logging.getLogger("spuir.service")

Outcome = Answer | ServiceError
_TRAFFIC = (Decide, DecideMany, Reward, RewardMany, Activate)
IDLE = 1.0
"""Seconds until :meth:`Engine.tick` is due when nothing is known to happen before."""
QUIET = 0.02
"""Seconds without commands after which pieces of a model have commits of their own."""


class Engine:
    """A decision service without HTTP.

    Parameters
    ----------
    store
        Where the logs are: what :func:`spuir.service.stores.open_store` returned.
    clock
        Returns seconds since 1970.
    learner
        :class:`spuir.service.versions.learner.InProcess` (the default) learns before ``execute`` returns,
        :class:`spuir.service.versions.learner_process.ChildProcess` beside serving.
    ids
        Returns random hexadecimal digits for the id of a decision that has none; None = 12 from the system.

    Notes
    -----
    One thread at a time calls ``execute`` and ``tick``; reads are safe in any thread meanwhile. What ``execute``
    returned is durable.
    """

    def __init__(
        self,
        store: LogStore,
        *,
        clock: Callable[[], float] = time.time,
        learner: LearnerProcess | None = None,
        ids: Callable[[], str] | None = None,
    ) -> None:
        self.store, self._clock, self._ids = store, clock, ids or _random_ids().__next__
        self._jobs = LearningJobs(InProcess() if learner is None else learner)
        self._views: dict[str, ExperimentView] = {}
        self._servings: dict[str, tuple[ExperimentView, Serving]] = {}
        self._damaged: dict[str, str] = {}
        self._reachable, self._unscrubbed = True, False
        self._looked, self._carried_out = -IDLE, -QUIET
        self._lock = threading.RLock()
        self._elected = store.elect()
        self._refresh(starting=True)
        self._advance()

    # ---- writing --------------------------------------------------------------------------------------------

    def execute(self, commands: Sequence[Command]) -> list[Outcome]:
        """Carry out commands in one transaction, and return an answer or an error for each.

        Commands on one experiment are carried out in order, except that decisions may come before rewards and
        activations beside them. What is refused writes nothing and does not affect its neighbours. If the store fails,
        every command has the error ``storage_unavailable`` or ``storage_full``, and nothing is recorded.
        """
        with self._lock:
            outcomes = self._transact(commands)
            try:
                self._advance()
            except Exception as failure:  # what was recorded is answered; tick meets the failure again
                log.warning("learning could not continue: %s", failure)
            self._carried_out = time.monotonic()
        return outcomes

    def _transact(self, commands: Sequence[Command]) -> list[Outcome]:
        """Record what commands ask for, and beside it a piece of a model that waits to be saved."""
        saving = self._jobs.next_piece()
        try:
            outcomes = self._recorded(commands, saving)
        except ServiceError as failure:
            if saving is not None:
                self._jobs.put_off()
                if failure.code == "storage_full":  # without a piece of a model there may be space
                    return self._transact(commands)
            return [failure] * len(commands)
        if saving is not None:
            self._jobs.saved(saving)
        return outcomes

    def _recorded(self, commands: Sequence[Command], saving: ModelPiece | None) -> list[Outcome]:
        outcomes: list[Any] = [None] * len(commands)
        drafts: dict[str, Draft] = {}
        try:
            with self.store.transaction() as writer:
                self._carry_out(writer, commands, drafts, outcomes)
                for draft in drafts.values():
                    draft.flush()
                if saving is not None:
                    self._save(writer, saving)
        except BaseException:
            for name in drafts:  # what was changed in memory is read from the log again
                self._views.pop(name, None)
                self._servings.pop(name, None)
            raise
        for name, draft in drafts.items():
            if draft.exists:
                self._views[name] = draft.view
        self._unscrubbed = self._unscrubbed or any(draft.scrub for draft in drafts.values())
        for at, outcome in enumerate(outcomes):
            if outcome is CHANGED:
                command = commands[at]
                made = drafts[command.experiment]
                outcomes[at] = reading.describe(made.view, made.head)
                outcomes[at].created_now = (
                    isinstance(command, CreateExperiment) and made.view.read <= 2 and made.touched
                )
        return outcomes

    def _save(self, writer: LogWriter, saving: ModelPiece) -> None:
        """Save a piece of a model, and delete one of those that it replaces: all of one at once would take long."""
        writer.put_model(*saving)
        view = self._views.get(saving.name)
        if view is not None:
            writer.drop_models(saving.name, old_models(writer, view, saving.version), saving.piece)

    def _carry_out(
        self, writer: LogWriter, commands: Sequence[Command], drafts: dict[str, Draft], outcomes: list[Any]
    ) -> None:
        """Carry out commands: traffic of one experiment together, up to the next command that changes how it is run."""
        now = round(self._clock() * 1e6)
        damaged: dict[str, ServiceError] = {}
        for name in sorted({command.experiment for command in commands}):  # one order, so that none waits for another
            try:
                drafts[name] = self._draft(writer, name, now)
            except ServiceError as refused:
                if store_failed(refused):
                    raise
                damaged[name] = refused
        waiting: dict[str, list[int]] = {}
        for at, command in enumerate(commands):
            name = command.experiment
            try:
                if name in damaged:
                    raise damaged[name]
                draft = drafts[name]
                if isinstance(command, _TRAFFIC):
                    waiting.setdefault(name, []).append(at)
                    continue
                self._traffic(draft, commands, waiting.pop(name, []), outcomes)
                outcomes[at] = carry_out(draft, command)
            except ServiceError as refused:
                if store_failed(refused):
                    raise
                outcomes[at] = refused
        for name, places in waiting.items():
            self._traffic(drafts[name], commands, places, outcomes)

    def _draft(self, writer: LogWriter, name: str, now: int) -> Draft:
        head = writer.lock(name)
        view = None if head is None else self._view(writer, head)
        return Draft(writer, Head(name) if head is None else head, view, now, self._serving)

    def _traffic(self, draft: Draft, commands: Sequence[Any], places: list[int], outcomes: list[Any]) -> None:
        """Carry out decisions, then rewards, then activations, of one experiment."""
        steps: tuple[tuple[Any, Callable[[list[Any]], list[Any]]], ...] = (
            ((Decide, DecideMany), lambda chosen: decisions.decide(draft, chosen, self._make_id)),
            ((Reward, RewardMany), lambda chosen: rewarding.reward(draft, chosen)),
            (Activate, lambda chosen: rewarding.activate(draft, chosen)),
        )
        for kind, work in steps:
            mine = [at for at in places if isinstance(commands[at], kind)]
            if not mine:
                continue
            try:
                done = work([commands[at] for at in mine])
            except ServiceError as refused:
                if store_failed(refused):
                    raise
                done = [refused] * len(mine)
            for at, outcome in zip(mine, done, strict=True):
                outcomes[at] = outcome

    def _make_id(self, at: int, seq: int) -> str:
        """Return the id of a decision: ordered in time, so that the index of ids grows at its end."""
        return f"{MADE}{at:014x}{seq:x}.{self._ids()}"

    def _refresh(self, starting: bool = False) -> dict[str, Head]:
        """Take in what other processes changed, and return the ends of the logs by name; damage stops the start."""
        heads = {head.name: head for head in self.store.heads()}
        for head in heads.values():
            try:
                self._view(self.store, head)
                self._damaged.pop(head.name, None)
            except ServiceError as wrong:
                if starting or store_failed(wrong):
                    raise
                if head.name not in self._damaged:
                    log.error("experiment %s cannot be read: %s", head.name, wrong)
                self._damaged[head.name] = str(wrong)
        return heads

    # ---- what is served -------------------------------------------------------------------------------------

    def _view(self, store: LogReader, head: Head) -> ExperimentView | None:
        """Return an experiment as the log has it, also where another process changed it."""
        known = self._views.get(head.name)
        if known is not None and head.facts.get("control", 0) == known.read:
            return known
        view = read_view(store, head.name, head.seq, known)
        if view is not None:
            self._views[head.name] = view
        return view

    def _serving(self, store: LogReader, view: ExperimentView) -> Serving:
        """Return the version that an experiment serves, under its settings and with its actions."""
        held = self._servings.get(view.name)
        if held is not None:
            before = held[0]
            same = before.published == view.published and before.settings is view.settings
            if same and before.changes is view.changes:
                return held[1]
        lineup = Lineup(store, view.name)
        fact = lineup.fact(view.published)
        bandit = self._jobs.learner.take(view.name, fact.digest) or lineup.model(view.published)
        bandit = change_actions(bandit, [change for change in view.changes if change[0] > fact.actions_at])
        made = Serving(under(bandit, view.settings), view.published)
        if held is not None:
            made.drift = held[1].drift
        self._servings[view.name] = (view, made)
        return made

    # ---- learning -------------------------------------------------------------------------------------------

    def tick(self) -> float:
        """Close episodes that are due and record what was learned; return the seconds until the next call is due."""
        with self._lock:
            try:
                wait = self._tick()
            except ServiceError as failure:
                if not store_failed(failure):
                    raise
                self._reachable = False
                return IDLE
            self._reachable = True
            return wait

    def _tick(self) -> float:
        moment = round(self._clock() * 1e6)
        if self._jobs.next_piece() is not None and time.monotonic() < self._looked + IDLE:
            busy = self._carried_out + QUIET - time.monotonic()
            if busy > 0:  # the next command would wait for that commit; it takes the piece along instead
                return busy
            self._transact([])  # a turn of its own, so that a request which comes meanwhile waits for nothing else
            return 0.0
        self._looked = time.monotonic()
        self._elected = self.store.elect()
        if not self.store.available():  # nobody may send a request before it is, so it is tried here
            with self.store.transaction():
                pass
        heads = self._refresh()
        self._advance()
        if not self._elected:
            return IDLE
        views = [(view, heads[view.name]) for view in self._views.values() if view.name in heads]
        due, soonest = reading.due_closes(self.store, views, moment)
        commands: list[Command] = [CloseEpisode(experiment=name, after=after) for name, after in due]
        old = [view.name for view, head in views if old_records(self.store, view, head, moment)]
        commands += [EraseOld(experiment=name) for name in old]
        if commands:
            self.execute(commands)
        if self._jobs.active:
            return 0.02 if self._jobs.next_piece() is None else 0.0
        return IDLE if soonest is None else min(IDLE, max(0.0, (soonest - moment) / 1e6))

    def _advance(self) -> None:
        """Record what was learned, and start what waits, until nothing is left to do now."""
        if self._unscrubbed:
            self._unscrubbed = not self.store.scrub()
        jobs = self._jobs
        while True:
            if self._elected:
                jobs.start(self.store, list(self._views.values()))
            jobs.collect()
            ready = jobs.ready
            if not ready:
                return
            outcomes = self._transact(ready)
            if any(store_failed(one) for one in outcomes):
                return  # recorded by a later call, when the store can write
            jobs.recorded(ready)

    # ---- reading --------------------------------------------------------------------------------------------

    def _known(self, name: str) -> tuple[ExperimentView, Head]:
        head = self.store.head(name)
        if head is None:
            raise unknown_experiment(name)
        return self._read(head), head

    def _read(self, head: Head) -> ExperimentView:
        known = self._views.get(head.name)
        if known is not None and known.read >= head.facts.get("control", 0):
            return known
        view = read_view(self.store, head.name, head.seq, known)
        if view is None:
            raise unknown_experiment(head.name)
        return view

    def _described(self, head: Head) -> ExperimentAnswer:
        answer = reading.describe(self._read(head), head)
        held = self._servings.get(head.name)
        answer.drift = {} if held is None else dict(held[1].drift)
        return answer

    def experiments(self) -> list[ExperimentAnswer]:
        """Return all experiments, by name."""
        return [self._described(head) for head in self.store.heads()]

    def experiment(self, name: str) -> ExperimentAnswer:
        """Return one experiment."""
        return self._described(self._known(name)[1])

    def decision(self, name: str, decision_id: str) -> DecisionStatus:
        """Return what became of a decision."""
        return reading.decision_status(self.store, *self._known(name), decision_id)

    def versions(self, name: str) -> list[VersionAnswer]:
        """Return the versions of an experiment, the cold one first."""
        return reading.versions(self.store, *self._known(name))

    def model(self, name: str, version: int | None = None) -> bytes:
        """Return a version as a model file for :func:`spuir.load`; None = the published one."""
        view, _ = self._known(name)
        lineup = Lineup(self.store, name)
        return lineup.model(view.published if version is None else version).to_bytes()

    def log(self, name: str, settled: bool = False) -> Iterator[list[dict[str, Any]]]:
        """Yield blocks of canonical log rows, episode by episode and in the order of decisions.

        ``settled`` leaves out decisions that no closed episode holds yet.
        """
        view, head = self._known(name)
        return reading.log_rows(self.store, view, head, settled)

    def status(self) -> dict[str, Any]:
        """Return whether the store can write, what was mended, and totals of all experiments."""
        try:
            heads, reachable = self.store.heads(), self._reachable
        except ServiceError:
            heads, reachable = [], False
        return {
            "writable": reachable and self.store.available(),
            "notes": list(self.store.notes),
            "elected": self._elected,
            "learning": self._jobs.active,
            "problems": self._damaged | self._jobs.problems,
            "learner_failures": self._jobs.learner.failures,
            "experiments": {head.name: {"records": head.seq, **head.facts.get("counts", {})} for head in heads},
        }

    def close(self) -> None:
        """Stop learning and close the store; what was acknowledged is in the log, and learning resumes from there."""
        with self._lock:
            self._jobs.learner.close()
            self.store.close()


def _random_ids() -> Iterator[str]:
    """Yield 12 random hexadecimal digits at a time; the system is asked for those of many ids at once."""
    while True:
        digits = secrets.token_hex(6 * 256)
        for start in range(0, len(digits), 12):
            yield digits[start : start + 12]
