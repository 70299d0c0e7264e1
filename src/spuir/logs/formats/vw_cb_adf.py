"""Vowpal Wabbit's text for actions that come with each event (``--cb_adf``): a shared line, then a line per action."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from spuir.logs.events.event_rows import OFFERED, LineParser, Row
from spuir.logs.events.event_values import BrokenLineError
from spuir.logs.events.event_writing import Event, write_events
from spuir.logs.events.feature_names import context_name, escape
from spuir.logs.events.line_reader import LineReader
from spuir.logs.events.offered_actions import OfferedActions, distinct, feature_name, label_of
from spuir.logs.events.vw_text import BLANK, VwCost, VwLine, cost, outcome, parse, tagged, triple, written
from spuir.logs.formats.base import Faults, Format
from spuir.tables.arrow import pa

_TRIPLE = re.compile(rb"\d*:[-+.\deE]+:[-+.\deE]+[ \t|]")
SPACE = "action"
"""The namespace that holds the name of each action, so that Vowpal Wabbit can tell them apart."""


class AdfParser(LineParser):
    """Gathers the lines of an event up to an empty line, and turns them into one row."""

    def __init__(self, options: Mapping[str, Any], faults: Faults) -> None:
        super().__init__(OfferedActions(BLANK))
        self.skip = faults.skip
        self._categories = bool(options.get("categories", True))
        self._lines: list[VwLine] = []
        self._broken: str | None = None

    def feed(self, number: int, line: bytes) -> Iterable[Row]:
        """Return the row of the event that an empty line ends."""
        if not line.strip():
            return self.finish()
        try:
            self._lines.append(parse(line, categories=self._categories))
        except BrokenLineError as error:
            # The whole event is broken, and counted once, where it ends.
            self._broken = self._broken or f"{error} (line {number})"
        return ()

    def finish(self) -> Iterable[Row]:
        """Return the row of the event so far."""
        lines, broken = self._lines, self._broken
        self._lines, self._broken = [], None
        if broken is not None:
            raise BrokenLineError(broken)
        return self._event(lines) if lines else ()

    def _event(self, lines: list[VwLine]) -> Iterable[Row]:
        shared = lines.pop(0) if lines[0].label[:1] == ["shared"] else VwLine([], None, {})
        observed = [(at, found) for at, line in enumerate(lines) if (found := _observed(line)) is not None]
        if not lines or len(observed) > 1:
            raise BrokenLineError(f"{len(lines)} actions, {len(observed)} of them with a cost")
        if not observed:
            self.skip("no observed cost, for prediction only")
            return ()
        names, features = _names(lines)
        place, found = observed[0]
        row = {"decision_id": shared.tag, "action": names[place], **outcome(found), "eligible": names}
        row[OFFERED] = features
        for label, own in zip(names, features, strict=True):
            self.offered.see(label, own)
        return (row | {context_name(name): value for name, value in shared.features.items()},)


def _observed(line: VwLine) -> VwCost | None:
    """Return the cost on an action's line; the number before it has no meaning."""
    if line.label[:1] == ["shared"]:
        raise BrokenLineError("a shared line within an event")
    if len(line.label) > 1:
        raise BrokenLineError(f"{len(line.label)} labels on one action's line")
    found = cost(line.label[0]) if line.label else None
    return None if found is None or found.cost is None else found


def _names(lines: list[VwLine]) -> tuple[list[str], list[dict[str, Any]]]:
    """Return what the actions are called, and their features.

    They are called by their tags, if all have one of their own; else by a hash of their features, or by number from 1.
    """
    tags = [line.tag for line in lines]
    names = [tag for tag in tags if tag is not None]
    if len(set(names)) != len(tags):
        names = distinct([label_of(line.features) or str(number) for number, line in enumerate(lines, 1)])
    # The name of the action as a feature, which we write for Vowpal Wabbit to tell actions apart, says nothing here.
    features = [
        {feature_name(name): value for name, value in line.features.items() if name != f"{SPACE}.{label}"}
        for label, line in zip(names, lines, strict=True)
    ]
    return names, features


def sniff(path: str, first: bytes) -> bool:
    """Return whether a file begins with an event of several lines, one of which has a cost."""
    lines = first.lstrip().split(b"\n")
    event = list(takewhile(bytes.strip, lines))
    if not event or b"|" not in event[0]:
        return False
    costs = [line for line in event if _TRIPLE.match(line)]
    ended = len(event) < len(lines) - 1
    return event[0].startswith(b"shared") or (len(costs) == 1 and (costs[0][:2] == b"0:" or (ended and len(event) > 1)))


LINES = LineReader(parser=lambda path, options, faults: AdfParser(options, faults), blank=BLANK)


def write(
    batches: "Iterable[pa.RecordBatch]",
    path: str,
    *,
    actions: Sequence[Any] | None = None,
    catalogue: "pa.Table | None" = None,
) -> None:
    """Write canonical rows for ``vw --cb_adf`` and ``vw --cb_explore_adf``; the options are those of dsjson."""
    write_events(batches, path, _written, actions, "vw-cb-adf", catalogue)


def _written(event: Event) -> bytes:
    lines = [tagged(["shared"], event.id) + written(event.context)]
    for label, features in zip(event.offered or (), event.features, strict=bool(event.offered)):
        words = [triple(0, event)] if label == event.chosen else []
        described = f" {written(features)}" if features else ""
        lines.append(f"{tagged(words, str(label))}|{SPACE} {escape(str(label))}{described}")
    return ("\n".join(lines) + "\n\n").encode()


FORMAT = Format(
    name="vw-cb-adf",
    summary="Vowpal Wabbit's text for actions that come with each event",
    sniff=sniff,
    survey=LINES.survey,
    read=LINES.read,
    parser=LINES,
    write=write,
    write_options=("actions", "catalogue"),
    sparse=True,
    options=("categories", "types", "broken_share"),
)
