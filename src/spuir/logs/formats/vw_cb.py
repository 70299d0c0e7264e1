"""Vowpal Wabbit's text for a fixed set of actions (``--cb``): ``action:cost:probability 'tag |namespace features``."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spuir.errors import InputError
from spuir.logs.events.event_rows import LineParser, Row
from spuir.logs.events.event_values import BrokenLineError
from spuir.logs.events.event_writing import Event, write_events
from spuir.logs.events.feature_names import context_name
from spuir.logs.events.line_reader import LineReader
from spuir.logs.events.vw_text import BLANK, cost, outcome, parse, tagged, triple, written
from spuir.logs.formats.base import Faults, Format
from spuir.logs.formats.text_files import line_ends
from spuir.tables.arrow import pa

_MINE = re.compile(rb"\s*(?:[1-9]\d*[ \t]+)*[1-9]\d*:[-+.\deE]+:[-+.\deE]+[^|\n]*\|")


class CbParser(LineParser):
    """Turns lines into rows, one for each observed cost; a line without any is for prediction only."""

    def __init__(self, options: Mapping[str, Any], faults: Faults) -> None:
        super().__init__()
        self.skip = faults.skip
        self._categories = bool(options.get("categories", True))
        self._labels = labels(options.get("actions"))

    def feed(self, number: int, line: bytes) -> Iterable[Row]:
        """Return the rows of a line."""
        if not line.strip():
            return ()
        parsed = parse(line, categories=self._categories)
        costs = [cost(word) for word in parsed.label]
        observed = [found for found in costs if found.cost is not None]
        if not observed:
            self.skip("no observed cost, for prediction only")
            return ()
        features = {context_name(name): value for name, value in parsed.features.items()}
        row = {"decision_id": parsed.tag, **features}
        if len(costs) > 1:
            row["eligible"] = [self._label(found.action) for found in costs]
        return [{**row, "action": self._label(found.action), **outcome(found)} for found in observed]

    def _label(self, text: str) -> Any:
        """Return the label of an action that is given by its number, from 1."""
        if not text.isdecimal() or not int(text):
            raise BrokenLineError(f"the action is {text[:40]!r}, not a whole number from 1")
        if self._labels is None:
            return int(text)
        if int(text) > len(self._labels):
            raise BrokenLineError(f"the action is {text}, of {len(self._labels)} named ones")
        return self._labels[int(text) - 1]


def labels(actions: Any) -> list[str] | None:
    """Return the option ``actions``, the labels of the actions 1, 2, …, as texts."""
    if actions is None:
        return None
    found = [str(label) for label in actions]
    if len(set(found)) != len(found):
        raise InputError("actions", "a label twice", "every action has its own label", "rename one")
    return found


def _types(options: Mapping[str, Any]) -> "dict[str, pa.DataType]":
    """Return the types of labels: numbers, unless the actions have names."""
    label = pa.int64() if options.get("actions") is None else pa.string()
    return {"action": label, "eligible": pa.list_(label)}


LINES = LineReader(
    parser=lambda path, options, faults: CbParser(options, faults), types=_types, cuts=line_ends, blank=BLANK
)


def write(batches: "Iterable[pa.RecordBatch]", path: str, *, actions: Sequence[Any] | None = None) -> None:
    """Write canonical rows as lines that ``vw --cb`` learns from.

    ``actions`` are all labels, whose numbers count from 1 in this order; None = the labels are such numbers.
    """
    named = labels(actions)
    numbers = None if named is None else {label: at for at, label in enumerate(named, 1)}

    def line(event: Event) -> bytes:
        chosen = _number(event.chosen, numbers, event.row)
        # Where all actions are offered, the label lists only the chosen one.
        listed = event.offered and len(event.offered) != len(numbers or ())
        offered = [_number(label, numbers, event.row) for label in event.offered or ()] if listed else [chosen]
        words = [triple(at, event) if at == chosen else str(at) for at in offered]
        return f"{tagged(words, event.id)}{written(event.context)}\n".encode()

    write_events(batches, path, line, actions)


def _number(label: Any, numbers: Mapping[str, int] | None, row: int) -> int:
    """Return the number by which Vowpal Wabbit knows an action."""
    if numbers is not None and str(label) in numbers:
        return numbers[str(label)]
    if numbers is None and str(label).isdecimal() and int(label) > 0:
        return int(label)
    rule = "Vowpal Wabbit numbers these actions from 1"
    raise InputError("action", f"{label!r} at row {row}", rule, "pass actions=[…], all labels in order")


FORMAT = Format(
    name="vw-cb",
    summary="Vowpal Wabbit's text for a fixed set of actions",
    sniff=lambda path, first: bool(_MINE.match(first)),
    survey=LINES.survey,
    read=LINES.read,
    parser=LINES,
    write=write,
    write_options=("actions",),
    sparse=True,
    options=("actions", "categories", "types", "broken_share"),
    endings=(".vw",),
)
