"""An experiment as its control records make it: settings, actions, versions, closes, folded in the order of the log."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from spuir.errors import ServiceError
from spuir.service.log_records import (
    CONTROL,
    ActionFact,
    CloseFact,
    PublishFact,
    Record,
    VersionFact,
    check_record,
    version_fact,
)
from spuir.service.settings import ExperimentSettings, Label
from spuir.service.stores.base import LogReader, each_record
from spuir.service.versions.joining import Edges


@dataclass(frozen=True)
class Closed:
    """A close in the log: its place, time and content."""

    seq: int
    time: int
    fact: CloseFact

    @classmethod
    def of(cls, record: Record) -> "Closed":
        """Return the close that a record tells of."""
        return cls(record.seq, record.time, msgspec.json.decode(record.payload or b"{}", type=CloseFact))

    @property
    def edges(self) -> Edges:
        """Which decisions it holds."""
        return Edges(self.fact.previous_seq, self.fact.previous_time, self.seq, self.time)


@dataclass(frozen=True)
class ExperimentView:
    """What the control records up to place ``read`` say.

    ``changes`` are those of actions, each with its place; ``waiting`` are closes that no version has learned yet, the
    oldest first; ``published`` is the version that is served and ``newest`` the last one learned.
    """

    name: str
    settings: ExperimentSettings
    created: int
    read: int = 0
    changes: tuple[tuple[int, ActionFact], ...] = ()
    newest: VersionFact | None = None
    published: int = 0
    last_close: Closed | None = None
    waiting: tuple[Closed, ...] = ()
    archived: bool = False

    @property
    def learned(self) -> VersionFact:
        """The newest version."""
        if self.newest is None:
            rule, remedy = "an experiment has a version from its creation on", "restore a backup of the store"
            raise ServiceError("damaged", f"log {self.name!r}", "no version", rule, remedy)
        return self.newest

    @property
    def closed(self) -> int:
        """How many episodes were closed."""
        return 0 if self.last_close is None else self.last_close.fact.number

    @property
    def labels(self) -> list[Label]:
        """All labels in the order of their codes, retired ones included."""
        return self.settings.labels + [fact.label for _, fact in self.changes if fact.change == "add"]

    @property
    def retired(self) -> set[Label]:
        """The labels of retired actions."""
        return {fact.label for _, fact in self.changes if fact.change == "remove"}

    def active_at(self, place: int) -> list[Label]:
        """Return the labels that could be chosen at a place of the log."""
        retired = {fact.label for seq, fact in self.changes if fact.change == "remove" and seq < place}
        added = [fact.label for seq, fact in self.changes if fact.change == "add" and seq < place]
        return [label for label in self.settings.labels + added if label not in retired]

    def features(self) -> dict[Label, dict[str, Any] | None]:
        """Return the features of actions that have some."""
        first = self.settings.catalogue or {}
        return {**first, **{fact.label: fact.features for _, fact in self.changes if fact.change in ("add", "update")}}

    def after(self, record: Record) -> "ExperimentView":
        """Return the view after one more control record."""
        payload = record.payload or b"{}"
        found: dict[str, Any] = {}
        match record.kind:
            case "change":
                found = {"settings": changed(self.settings, msgspec.json.decode(payload))}
            case "action":
                fact = msgspec.json.decode(payload, type=ActionFact)
                found = {"changes": (*self.changes, (record.seq, fact))}
            case "close":
                closed = Closed.of(record)
                found = {"last_close": closed, "waiting": (*self.waiting, closed)}
            case "version":
                version = version_fact(record)
                waiting = tuple(one for one in self.waiting if one.fact.number != version.close)
                found = {"newest": version, "waiting": waiting}
            case "publish":
                found = {"published": msgspec.json.decode(payload, type=PublishFact).version}
            case "archive":
                found = {"archived": True}
        return replace(self, read=record.seq, **found)


def changed(settings: ExperimentSettings, changes: dict[str, Any]) -> ExperimentSettings:
    """Return settings with some changed by name."""
    given = msgspec.to_builtins(settings) | changes
    return msgspec.convert(given, ExperimentSettings)


def fold(view: ExperimentView | None, name: str, record: Record) -> ExperimentView:
    """Return the view after one more control record; the first of a log is ``create``."""
    check_record(name, record)
    if view is not None:
        return view.after(record)
    settings = msgspec.json.decode(record.payload or b"{}", type=ExperimentSettings)
    return ExperimentView(name, settings, record.time, record.seq)


def history(
    store: LogReader, name: str, until: int, view: ExperimentView | None = None
) -> Iterator[tuple[Record, ExperimentView]]:
    """Yield each control record up to a place, with the experiment after it; continued from an earlier ``view``."""
    for record in each_record(store, name, 1 if view is None else view.read + 1, until, CONTROL):
        view = fold(view, name, record)
        yield record, view


def read_view(store: LogReader, name: str, until: int, view: ExperimentView | None = None) -> ExperimentView | None:
    """Return an experiment as it was at a place of its log, continued from an earlier ``view``."""
    for _, after in history(store, name, until, view):
        view = after
    return view


def settings_at(store: LogReader, view: ExperimentView, place: int) -> ExperimentSettings:
    """Return the settings that were in force at a place of the log."""
    if not store.records(view.name, place + 1, view.read, ("change",), 1):
        return view.settings
    before = read_view(store, view.name, place)
    return view.settings if before is None else before.settings
