"""Vowpal Wabbit's text for actions that come with each event (``--cb_adf``): a shared line, then a line per action."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from spuir.logs.formats.base import Faults, Format
from spuir.logs.formats.event_writing import Event, write_events
from spuir.logs.formats.feature_names import escape
from spuir.logs.formats.line_events import BrokenLineError, LineParser, Row, row_of
from spuir.logs.formats.line_reader import LineReader
from spuir.logs.formats.vw_text import BLANK, VwCost, VwLine, cost, outcome, parse, tagged, triple, written
from spuir.tables.arrow import arrow

if TYPE_CHECKING:
    import pyarrow as pa

_TRIPLE = re.compile(rb"\d*:[-+.\deE]+:[-+.\deE]+[ \t|]")
SPACE = "action"
"""The namespace that holds the name of each action, so that Vowpal Wabbit can tell them apart."""


class AdfParser(LineParser):
    """Gathers the lines of an event up to an empty line, and turns them into one row."""

    def __init__(self, options: Mapping[str, Any], faults: Faults) -> None:
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
        names = _names(lines)
        place, found = observed[0]
        row = {"decision_id": shared.tag, "action": names[place], **outcome(found), "eligible": names}
        return (row_of(row | shared.features),)


def _observed(line: VwLine) -> VwCost | None:
    """Return the cost on an action's line; the number before it has no meaning."""
    if line.label[:1] == ["shared"]:
        raise BrokenLineError("a shared line within an event")
    if len(line.label) > 1:
        raise BrokenLineError(f"{len(line.label)} labels on one action's line")
    found = cost(line.label[0]) if line.label else None
    return None if found is None or found.cost is None else found


def _names(lines: list[VwLine]) -> list[str]:
    """Return the tags of the actions, if all have one of their own; else their numbers from 1."""
    tags = [line.tag for line in lines]
    known = [tag for tag in tags if tag is not None]
    return known if len(set(known)) == len(tags) else [str(number) for number in range(1, len(tags) + 1)]


def sniff(path: str, first: bytes) -> bool:
    """Return whether a file begins with an event of several lines, one of which has a cost."""
    lines = first.lstrip().split(b"\n")
    event = list(takewhile(bytes.strip, lines))
    if not event or b"|" not in event[0]:
        return False
    costs = [line for line in event if _TRIPLE.match(line)]
    ended = len(event) < len(lines) - 1
    return event[0].startswith(b"shared") or (len(costs) == 1 and (costs[0][:2] == b"0:" or (ended and len(event) > 1)))


def _known(options: Mapping[str, Any]) -> "dict[str, pa.DataType | None]":
    """Return the types of the canonical columns."""
    pa = arrow()
    known = {"decision_id": pa.string(), "action": pa.string(), "reward": pa.float64(), "propensity": pa.float64()}
    return known | {"eligible": pa.list_(pa.string())}


LINES = LineReader(parser=lambda path, options, faults: AdfParser(options, faults), known=_known, blank=BLANK)


def write(batches: "Iterable[pa.RecordBatch]", path: str, *, actions: Sequence[Any] | None = None) -> None:
    """Write canonical rows for ``vw --cb_adf`` and ``vw --cb_explore_adf``; ``actions`` as for dsjson."""
    write_events(batches, path, _written, actions, form="vw-cb-adf")


def _written(event: Event) -> bytes:
    lines = [tagged(["shared"], event.id) + written(event.context)]
    for label in event.offered or ():
        words = [triple(0, event)] if label == event.chosen else []
        lines.append(f"{tagged(words, str(label))}|{SPACE} {escape(str(label))}")
    return ("\n".join(lines) + "\n\n").encode()


FORMAT = Format(
    name="vw-cb-adf",
    summary="Vowpal Wabbit's text for actions that come with each event",
    sniff=sniff,
    survey=LINES.survey,
    read=LINES.read,
    parser=LINES,
    write=write,
    write_options=("actions",),
    sparse=True,
    options=("categories", "types", "broken_share"),
)
