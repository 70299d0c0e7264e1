"""Logs of one event per line, each with its own features: read in blocks, gathered into columns.

A format of this kind brings a :class:`LineParser`. Broken lines are counted and skipped, never fatal until they
are too many; lines that are fine but hold nothing to learn from are skipped and counted separately.
"""

import gc
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from spuir.errors import InputError, MissingExtraError, ParameterError
from spuir.logs.formats.base import Faults, FileSurvey, Request, whole
from spuir.logs.formats.text_files import line_blocks
from spuir.tables.arrow import arrow

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_BYTES = 1 << 18
"""Bytes that are split into lines at once."""
SURVEY_BYTES = 1 << 22
"""Bytes from whose lines the columns are learned; features first seen later are left out."""
LONGEST_LINE = 1 << 26
MOST_COLUMNS = 10_000
BROKEN_SHARE = 0.01
"""The share of broken lines above which a file is refused, unless the option ``broken_share`` says otherwise."""

Row = tuple[Sequence[str | None], Sequence[Any]]
"""Columns and their values: text, number, boolean or list; None is no value, and a column None is no column.

Rows that share the very object of their columns are turned together, and much faster.
"""


class BrokenLineError(ValueError):
    """A line that cannot be read; the reader counts it with its number and continues."""


def msgspec_library() -> Any:
    """Return msgspec, or say how to get it."""
    try:
        import msgspec
    except ImportError:
        rule, remedy = "JSON of other tools is parsed with it", 'run pip install "spuir[data]"'
        raise MissingExtraError("logs", "no msgspec", rule, remedy) from None
    return msgspec


def json_parser() -> Callable[[bytes], dict[str, Any]]:
    """Return a function that parses a line with one JSON object."""
    decode = msgspec_library().json.Decoder().decode

    def parse(line: bytes) -> dict[str, Any]:
        try:
            found = decode(line)
        except (ValueError, RecursionError) as error:
            raise BrokenLineError(f"no valid JSON: {error}") from None
        if type(found) is not dict:
            raise BrokenLineError(f"{str(found)[:40]!r} is no JSON object")
        return found

    return parse


class LineParser(Protocol):
    """Turns lines into rows."""

    def feed(self, number: int, line: bytes) -> Iterable[Row]:
        """Return the rows that this line completes; raise :class:`BrokenLineError` where it makes no sense."""
        ...

    def finish(self) -> Iterable[Row]:
        """Return the rows that the end of the file completes."""
        ...


def row_of(values: Mapping[str, Any]) -> Row:
    """Return a row from values by column."""
    return tuple(values), list(values.values())


class EventRows:
    """Rows that may each have other columns, and the lines on which they ended."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.lines: list[int] = []

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def columns(self) -> dict[str, Sequence[Any]]:
        """Return the values of every column that some row has; where a row names one twice, the last counts."""
        shapes: dict[int, list[int]] = {}
        for place, (names, _) in enumerate(self.rows):
            shapes.setdefault(id(names), []).append(place)
        found: dict[str, Any] = {}
        for places in shapes.values():
            names = self.rows[places[0]][0]
            for name, values in zip(names, zip(*[self.rows[place][1] for place in places], strict=True), strict=True):
                if name is None:
                    continue
                if len(shapes) == 1:
                    found[name] = values
                    continue
                column = found.setdefault(name, [None] * len(self.rows))
                for place, value in zip(places, values, strict=True):
                    column[place] = value
        return found

    def take(self, path: str, request: Request, blank: float | None) -> "pa.RecordBatch":
        """Return the rows as a batch of the wanted columns, and clear them; rows that do not fit are faults."""
        pa = arrow()
        bad: dict[int, str] = {}
        fields = [request.schema.field(name) for name in request.columns]
        columns, nothing, arrays = self.columns(), [None] * len(self.rows), []
        for one in fields:
            values = columns.get(one.name, nothing)
            if blank is not None and pa.types.is_floating(one.type):
                values = [blank if value is None else value for value in values]
            arrays.append(_array(one, values, bad))
        batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
        for row in sorted(bad):
            request.faults.add(path, self.lines[row], bad[row])
        keep = [row not in bad for row in range(len(self.rows))]
        self.rows, self.lines = [], []
        return batch.filter(pa.array(keep)) if bad else batch


def _array(field: "pa.Field", values: Sequence[Any], bad: dict[int, str]) -> "pa.Array":
    """Return a column in its type; rows whose value does not fit it go to ``bad``, with the reason."""
    pa = arrow()
    types, kind = pa.types, field.type
    try:
        if types.is_timestamp(kind):
            return pa.array(values, pa.string()).cast(pa.timestamp("ns", "UTC")).cast(kind, safe=False)
        return _repeated(values, kind) if types.is_list(kind) else pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return pa.array([_fitted(field, value, row, bad) for row, value in enumerate(values)], kind)


def _repeated(values: Sequence[Any], kind: "pa.DataType") -> "pa.Array":
    """Return a column of lists; one that many rows share is converted once."""
    pa = arrow()
    shared = {id(value): value for value in values}
    if 2 * len(shared) > len(values):
        return pa.array(values, kind)
    places = dict(zip(shared, range(len(shared)), strict=True))
    return pa.array(list(shared.values()), kind).take(pa.array([places[id(value)] for value in values], pa.int32()))


def _fitted(field: "pa.Field", value: Any, row: int, bad: dict[int, str]) -> Any:
    """Return one value as its column's type wants it, or None with an entry in ``bad``."""
    pa = arrow()
    kind = field.type
    try:
        if value is None:
            return None
        if pa.types.is_string(kind):
            return as_text(value)
        if pa.types.is_floating(kind):
            return float(value)
        if pa.types.is_timestamp(kind):
            return _instant(value)
        return pa.scalar(value, kind).as_py()
    except (ValueError, TypeError, OverflowError, pa.ArrowException):
        bad[row] = f"{field.name} is {str(value)[:40]!r}, not {kind}"
        return None


def _instant(text: str) -> datetime:
    """Return an ISO time to the microsecond; without a zone it is UTC."""
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def as_text(value: Any) -> str:
    """Return a value as text: numbers without a needless point, booleans as in JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else str(value)


def as_number(value: Any, name: str) -> float:
    """Return a finite number, or say that ``name`` is none."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise BrokenLineError(f"{name} is {str(value)[:40]!r}, not a finite number")
    return float(value)


def as_probability(value: Any, name: str) -> float:
    """Return a probability in (0, 1]; what single precision put just above 1 is 1."""
    number = as_number(value, name)
    if not 0 < number <= 1 + 1e-6:
        raise BrokenLineError(f"{name} is {number}, not in (0, 1]")
    return min(number, 1.0)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the garbage collector out: parsed lines hold no cycles, and looking for some takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _gathered(path: str, parser: LineParser, rows: EventRows, faults: Faults) -> Iterator[int]:
    """Parse a file into ``rows``; yield the bytes done after each block."""
    done = size = 0
    for first, block in line_blocks(path, size=BLOCK_BYTES, longest=LONGEST_LINE):
        lines = block.removesuffix(b"\n").split(b"\n")
        with _uncollected():
            for number, line in enumerate(lines, first):
                try:
                    for row in parser.feed(number, line):
                        rows.rows.append(row)
                        rows.lines.append(number)
                except BrokenLineError as error:
                    faults.add(path, number, str(error))
        done, size = first + len(lines) - 1, size + sum(map(len, lines))
        yield size
    try:
        for row in parser.finish():
            rows.rows.append(row)
            rows.lines.append(done)
    except BrokenLineError as error:
        faults.add(path, done, str(error))
    yield size


def _share(options: Mapping[str, Any]) -> float:
    """Return the share of lines that may be broken."""
    share = options.get("broken_share", BROKEN_SHARE)
    if not isinstance(share, int | float) or not 0 <= share <= 1:
        rule = "it is a share of the lines, from 0 to 1"
        raise ParameterError("broken_share", repr(share), rule, f"leave it out for {BROKEN_SHARE}")
    return float(share)


def _inferred(values: Sequence[Any], whole: "pa.DataType | None" = None) -> "pa.DataType":
    """Return the narrowest type that takes every value: boolean, number or text; ``whole`` if all are whole numbers."""
    pa = arrow()
    kinds = {type(value) for value in values} - {type(None)}
    if kinds <= {bool}:
        return pa.bool_()
    if whole is not None and kinds == {int}:
        return whole
    return pa.float64() if kinds <= {bool, int, float} else pa.string()


def line_survey(
    path: str,
    options: Mapping[str, Any],
    parser: Callable[[Faults], LineParser],
    known: Mapping[str, "pa.DataType | None"],
) -> FileSurvey:
    """Return the columns that the first lines of a file have; ``known`` names those of a fixed type.

    ``action`` and ``reward`` are always there, the other known ones where some row has a value.
    """
    pa = arrow()
    rows, faults, ended = EventRows(), Faults(), True
    for size in _gathered(path, parser(faults), rows, faults):
        if size > SURVEY_BYTES:
            ended = False
            break
    faults.check(path, _events(len(rows), faults), _share(options) if ended else max(0.5, _share(options)))
    columns = rows.columns()
    if len(columns) > MOST_COLUMNS:
        rule = f"a log has at most {MOST_COLUMNS:,} columns"
        raise InputError(f"file {path!r}", f"{len(columns):,} features", rule, "hash or drop rare features")
    given = {name for name, values in columns.items() if any(value is not None for value in values)}
    fields = [
        pa.field(name, kind or _inferred(columns[name], pa.int64()))
        for name, kind in known.items()
        if name in given or name in ("action", "reward")
    ]
    fields += [pa.field(name, _inferred(columns[name])) for name in columns if name in given and name not in known]
    if not _events(len(rows), faults):
        return FileSurvey(pa.schema([]), ())
    declared = options.get("types") or {}
    fields = [pa.field(one.name, declared.get(one.name, one.type)) for one in fields]
    return FileSurvey(pa.schema(fields), (whole(path),))


def line_read(
    path: str, request: Request, parser: Callable[[Faults], LineParser], blank: float | None = None
) -> "Iterator[pa.RecordBatch]":
    """Yield the batches of a file; ``blank`` is what a row has in a column of numbers that it does not name."""
    faults, share = request.faults, _share(request.options)
    before, taken, rows = _events(0, faults), 0, EventRows()
    batches: list[Any] = []
    for _ in _gathered(path, parser(faults), rows, faults):
        if len(rows):
            # Block by block: what waits as dicts stays in the processor's cache.
            taken += len(rows)
            batches.append(rows.take(path, request, blank))
        if sum(batch.num_rows for batch in batches) >= request.batch_rows:
            yield _together(batches)
            batches = []
    if batches:
        yield _together(batches)
    faults.check(path, _events(taken, faults) - before, share)


def _together(batches: list[Any]) -> "pa.RecordBatch":
    """Return batches as one."""
    table = arrow().Table.from_batches(batches).combine_chunks()
    return next(iter(table.to_batches()), batches[0])


def _events(rows: int, faults: Faults) -> int:
    """Return how many events there were: read, broken and skipped."""
    return rows + faults.count + sum(faults.skipped.values())
