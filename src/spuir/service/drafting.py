"""What one transaction adds to the log of one experiment."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

from spuir.errors import ServiceError
from spuir.service.experiment_view import ExperimentView, fold, read_view
from spuir.service.log_records import (
    CONTROL,
    DECISION,
    DECISIONS,
    Record,
    encode,
    held_in,
    next_chain,
    payload_digest,
)
from spuir.service.serving import Serving
from spuir.service.settings import ExperimentSettings
from spuir.service.stores.base import Head, LogWriter

_CONTROL = frozenset(CONTROL)
_EPISODES = 20
"""The row numbers of so many episodes are kept."""


class Draft:
    """Records to append to one experiment, and the experiment as it is with them.

    Parameters
    ----------
    writer
        The transaction.
    head
        The end of the log, which moves with every record.
    view
        The experiment before; None while it is created.
    now
        The clock in microseconds; log time is never before that of the last record.
    load
        Returns the version that an experiment serves.
    """

    def __init__(
        self,
        writer: LogWriter,
        head: Head,
        view: ExperimentView | None,
        now: int,
        load: Callable[[LogWriter, ExperimentView], Serving],
    ) -> None:
        self.writer, self.head, self._view, self._load = writer, head, view, load
        self.time = max(head.time, now)
        self.records: list[Record] = []
        self.scrub = self.touched = False
        self._windowed: tuple[ExperimentSettings, int | None] | None = None

    @classmethod
    def bare(cls, writer: LogWriter, head: Head) -> "Draft":
        """Return a draft for records that nothing is decided by."""

        def load(store: LogWriter, view: ExperimentView) -> Serving:
            raise unknown_experiment(view.name)

        return cls(writer, head, read_view(writer, head.name, head.seq), head.time, load)

    @property
    def name(self) -> str:
        """The name of the experiment."""
        return self.head.name

    @property
    def view(self) -> ExperimentView:
        """The experiment with what was added."""
        if self._view is None:
            raise unknown_experiment(self.name)
        return self._view

    @property
    def exists(self) -> bool:
        """Whether the experiment has been created."""
        return self._view is not None

    @property
    def serving(self) -> Serving:
        """The version that is served at this place of the log."""
        return self._load(self.writer, self.view)

    def add(
        self,
        kind: str,
        key: str,
        fact: Any,
        owner: str | None = None,
        due: int | None = None,
        unit: str | None = None,
        rows: int = 1,
    ) -> Record:
        """Append a record and return it."""
        head, payload = self.head, encode(fact)
        digest = payload_digest(payload)
        head.seq += 1
        head.time = self.time
        head.chain = next_chain(head.chain, head.seq, self.time, kind, key, digest, rows)
        record = Record(head.seq, self.time, kind, key, payload, digest, head.chain, owner, due, unit, rows)
        self.records.append(record)
        if kind in _CONTROL:
            self._view = fold(self._view, self.name, record)
            head.facts["control"] = record.seq
        return record

    def find(self, kind: str, keys: list[str]) -> dict[str, Record]:
        """Return records by key, those of this transaction included."""
        found = self.writer.find(self.name, kind, keys)
        if self.records:
            wanted = set(keys)
            found |= {one.key: one for one in self.records if one.kind == kind and one.key in wanted}
            if kind == DECISION:
                found |= held_in({one.key: one for one in self.records if one.kind == DECISIONS}, keys)
        return found

    def count(self, name: str, more: int = 1) -> None:
        """Add to a running count of the experiment."""
        counts = self.head.facts.setdefault("counts", {})
        counts[name] = counts.get(name, 0) + more

    def note(self, column: str, given: bool = True) -> None:
        """Remember that a column of the canonical log is in use."""
        if given and column not in self.head.facts.setdefault("columns", []):
            self.head.facts["columns"].append(column)

    def take_rows(self, episode: int, rows: int) -> int:
        """Return the number of the first of some rows in an episode, which are used up by that."""
        facts = self.head.facts
        used: dict[str, int] = facts.setdefault("rows", {})
        if str(episode) not in used:
            newest = max(map(int, used), default=-1)
            # Numbers of an old episode that were dropped below are not used again: more were never used.
            used[str(episode)] = 0 if episode > newest else facts.get("rows before", 0)
            for old in sorted({*map(int, used)} - {episode})[:-_EPISODES]:
                facts["rows before"] = max(facts.get("rows before", 0), used.pop(str(old)))
        first = used[str(episode)]
        used[str(episode)] = first + rows
        return first

    def give_back(self, episode: int, first: int) -> None:
        """Return the row numbers of an episode from ``first`` on."""
        self.head.facts["rows"][str(episode)] = first

    @property
    def window(self) -> int | None:
        """The window of rewards in microseconds."""
        settings = self.view.settings
        if self._windowed is None or self._windowed[0] is not settings:
            self._windowed = (settings, settings.span("window"))
        return self._windowed[1]

    @property
    def form(self) -> int | None:
        """The form of contexts; None while no decision has settled it."""
        return self.head.facts.get("form")

    def flush(self) -> None:
        """Hand the records over to the transaction."""
        if self.records:
            self.writer.append(self.head, self.records)
            self.records = []
            self.touched = True

    @contextmanager
    def whole(self) -> Generator[None]:
        """Take back everything that a block added if it ends with an error."""
        self.flush()
        head, view = deepcopy(self.head), self._view
        try:
            yield
        except BaseException:
            self.head, self._view, self.records = head, view, []
            raise


def unknown_experiment(name: str) -> ServiceError:
    """Return the error for a name that no experiment has."""
    rule = "there is no experiment of this name"
    return ServiceError("unknown_experiment", "experiment", repr(name[:80]), rule, "create it, or list the experiments")


def unknown_decision(decision_id: str) -> ServiceError:
    """Return the error for an id that no decision has."""
    rule = "there is no decision of this id"
    return ServiceError("unknown_decision", "decision", repr(decision_id[:80]), rule, "check the id")


def archived(name: str) -> ServiceError:
    """Return the error for a write to an archived experiment."""
    rule = "it is archived and takes nothing more"
    return ServiceError("archived", "experiment", repr(name), rule, "create another one")


def conflict(subject: str, key: str, where: str | None) -> ServiceError:
    """Return the error for an id that has been used for something else."""
    rule = "this id was used before with another body"
    return ServiceError("conflict", subject, repr(key), rule, "use a new id, or send the same body", where)


def forgotten(subject: str, key: str, where: str | None = None) -> ServiceError:
    """Return the error for a decision whose payload was erased."""
    rule = "the unit of this decision was forgotten, and what was asked is not known any more"
    return ServiceError("forgotten", subject, repr(key), rule, "use another id", where)
