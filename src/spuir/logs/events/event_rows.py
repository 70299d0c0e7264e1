"""Events of one line each, with features of their own, as rows, and rows as columns.

A format of this kind brings a :class:`LineParser`. Broken lines are counted and skipped, never fatal until they
are too many; lines that are fine but hold nothing to learn from are skipped and counted separately.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from spuir.logs.columns import is_action_column
from spuir.logs.events.event_values import (
    BrokenLineError,
    as_list,
    as_text,
    list_array,
    offered_columns,
    quick_array,
    wanted_features,
)
from spuir.logs.events.offered_actions import OfferedActions
from spuir.logs.formats.base import Faults, Request
from spuir.logs.formats.text_files import LineBlock
from spuir.logs.times import iso_datetime
from spuir.tables.arrow import OptionalModule, pa

msgspec: Any = OptionalModule("msgspec", "JSON of other tools is parsed with it")
Row = Mapping[str, Any]
"""Values by column: text, number, boolean or list; None is no value."""
OFFERED = ""
"""What a row has for the features of its actions, one mapping per action; those that vary become columns.

In a group, it is a function that returns columns, given the names of some features.
"""


def json_parser() -> Callable[[bytes], dict[str, Any]]:
    """Return a function that parses a line with one JSON object."""
    decode = msgspec.json.Decoder().decode

    def parse(line: bytes) -> dict[str, Any]:
        try:
            found = decode(line)
        except (ValueError, RecursionError) as error:
            raise BrokenLineError(f"no valid JSON: {error}") from None
        if type(found) is not dict:
            raise BrokenLineError(f"{str(found)[:40]!r} is not a JSON object")
        return found

    return parse


class LineParser(ABC):
    """Turns lines into rows; ``offered`` records the actions of the events and their features."""

    def __init__(self, offered: OfferedActions | None = None) -> None:
        self.offered = offered or OfferedActions()

    @abstractmethod
    def feed(self, number: int, line: bytes) -> Iterable[Row]:
        """Return the rows that this line completes; raise :class:`BrokenLineError` where it makes no sense."""

    def finish(self) -> Iterable[Row]:
        """Return the rows that the end of the file completes: none where an event ends with its line."""
        return ()

    def feed_block(self, block: LineBlock, rows: "EventRows", faults: Faults, path: str) -> None:
        """Add the rows of a block of lines."""
        self.feed_lines(block.first, block.lines(), rows, faults, path)

    def feed_lines(self, first: int, lines: Sequence[bytes], rows: "EventRows", faults: Faults, path: str) -> None:
        """Add the rows of some lines, one by one."""
        for number, line in enumerate(lines, first):
            try:
                rows.add(number, self.feed(number, line))
            except BrokenLineError as error:
                faults.add(path, number, str(error))

    def end(self, last: int, rows: "EventRows", faults: Faults, path: str) -> None:
        """Add the rows that the end of the file completes, after its last line."""
        try:
            rows.add(last, self.finish())
        except BrokenLineError as error:
            faults.add(path, last, str(error))


class EventRows:
    """Rows that may each have other columns, and the lines on which they ended.

    ``rows`` has None for the rows of ``groups``, whose columns are known together: the places of a group's rows, and
    their values by column, a list or an Arrow array.
    """

    def __init__(self) -> None:
        self.rows: list[Row | None] = []
        self.lines: list[int] = []
        self.groups: list[tuple[list[int], Mapping[str, Any]]] = []

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def add(self, number: int, rows: Iterable[Row]) -> None:
        """Add the rows that end on a line."""
        for row in rows:
            self.rows.append(row)
            self.lines.append(number)

    def hold(self, lines: Sequence[int]) -> range:
        """Add places for rows of a group, which end on these lines; return them."""
        start = len(self.rows)
        self.rows += [None] * len(lines)
        self.lines += lines
        return range(start, len(self.rows))

    def columns(self, features: Sequence[str] = ()) -> Mapping[str, Any]:
        """Return the values of every column that some row has, and these features of the offered actions."""
        if len(self.groups) == 1 and len(self.groups[0][0]) == len(self.rows):
            return _with_features(self.groups[0][1], features)
        found: dict[str, Any] = {}
        for place, row in enumerate(self.rows):
            for name, value in (row or {}).items():
                column = found.get(name)
                if column is None:
                    column = found[name] = [None] * len(self.rows)
                column[place] = value
        if OFFERED in found:
            made = offered_columns(found.pop(OFFERED), features)
            found |= {name: list(as_list(values)) for name, values in made.items()}
        for places, columns in self.groups:
            for name, values in _with_features(columns, features).items():
                self._place(found, name, places, values)
        return found

    def _place(self, found: dict[str, Any], name: str, places: Sequence[int], values: Any) -> None:
        column = found.setdefault(name, [None] * len(self.rows))
        for place, value in zip(places, as_list(values), strict=True):
            column[place] = value

    def inferred(
        self, fixed: Mapping[str, "pa.DataType | None"], features: Sequence[str] = ()
    ) -> "tuple[dict[str, pa.Array], bool]":
        """Return the columns that have a value, in the narrowest types, and whether every value fits; clear the rows.

        ``fixed`` are the types of some columns, None where all whole numbers are to stay whole; ``features`` of the
        offered actions become columns too.
        """
        bad: dict[int, str] = {}
        arrays: dict[str, Any] = {}
        for name, values in self.columns(features).items():
            kind = fixed.get(name)
            if is_action_column(name):
                array = _action_lists(values, None)
            elif kind is None:
                array = _inferred_array(name, values, name in fixed, bad)
            else:
                array = _array(pa.field(name, kind), values, bad)
            if array.null_count < len(array):
                arrays[name] = array
        self.__init__()
        return arrays, not bad

    def take(self, path: str, request: Request, blank: float | None, faults: Faults) -> "pa.RecordBatch":
        """Return the rows as a batch of the wanted columns, and clear them; rows that do not fit are faults."""
        bad: dict[int, str] = {}
        fields = [request.schema.field(name) for name in request.columns]
        columns, nothing, arrays = self.columns(wanted_features(request.columns)), [None] * len(self.rows), []
        for one in fields:
            if is_action_column(one.name):
                arrays.append(_action_lists(columns.get(one.name, nothing), one.type))
                continue
            array = _array(one, columns.get(one.name, nothing), bad)
            arrays.append(array if blank is None or not pa.types.is_floating(one.type) else array.fill_null(blank))
        batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
        for row in sorted(bad):
            faults.add(path, self.lines[row], bad[row])
        keep = [row not in bad for row in range(len(self.rows))]
        self.__init__()
        return batch.filter(pa.array(keep)) if bad else batch


def _with_features(columns: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return columns with some features of the offered actions in place of all of them."""
    found = dict(columns)
    offered = found.pop(OFFERED, None)
    return found if offered is None else found | offered(names)


def _inferred_array(name: str, values: Any, whole: bool, bad: dict[int, str]) -> "pa.Array":
    """Return a column in the narrowest type that takes every value; ``whole`` keeps whole numbers, up to 64 bits."""
    try:
        array = values if isinstance(values, pa.Array) else pa.array(values) if whole else quick_array(values)
        if not pa.types.is_integer(array.type):
            return array
        return array if whole else array.cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        kinds = {type(value) for value in values} - {type(None)}
        kind = pa.float64() if kinds <= {bool, int, float} else pa.string()
        field = pa.field(name, pa.int64() if whole and kinds == {int} else kind)
        return pa.array([_fitted(field, value, row, bad) for row, value in enumerate(values)], field.type)


def _array(field: "pa.Field", values: Any, bad: dict[int, str]) -> "pa.Array":
    """Return a column in its type; rows whose value does not fit it go to ``bad``, with the reason."""
    types, kind = pa.types, field.type
    if isinstance(values, pa.Array) and values.type.equals(kind):
        return values
    values = as_list(values)
    try:
        if types.is_timestamp(kind):
            return pa.array(values, pa.string()).cast(pa.timestamp("ns", "UTC")).cast(kind, safe=False)
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return pa.array([_fitted(field, value, row, bad) for row, value in enumerate(values)], kind)


def _fitted(field: "pa.Field", value: Any, row: int, bad: dict[int, str]) -> Any:
    """Return one value as its column's type wants it, or None with an entry in ``bad``."""
    kind = field.type
    try:
        if value is None:
            return None
        if pa.types.is_string(kind):
            return as_text(value)
        if pa.types.is_floating(kind):
            return float(value)
        if pa.types.is_timestamp(kind):
            return iso_datetime(value)
        return pa.scalar(value, kind).as_py()
    except (ValueError, TypeError, AttributeError, OverflowError, pa.ArrowException):
        bad[row] = f"{field.name} is {str(value)[:40]!r}, not {kind}"
        return None


def _action_lists(values: Any, kind: "pa.DataType | None") -> "pa.Array":
    """Return a column of values of actions in its type; only now is it known whether a missing value is a number."""
    if not isinstance(values, pa.Array) or not values.type.equals(kind or values.type):
        return list_array(as_list(values), kind)
    if not values.values.null_count or pa.types.is_string(values.type.value_type):
        return values
    return pa.ListArray.from_arrays(values.offsets, values.values.fill_null(0.0))
