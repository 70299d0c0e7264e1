"""Columns of any library in the few forms that an encoder reads.

Arrow, pandas and NumPy columns are read as a whole; only Python lists and dict rows are read value by value. Arrow and
pandas objects are recognised by their attributes, so that neither library has to be installed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from numbers import Real
from typing import Any, Literal, NamedTuple, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from spuir.errors import InputError
from spuir.tables.arrow import pa, pc

Kind = Literal["number", "flag", "category", "time", "list", "empty"]
NOUNS: Mapping[str, str] = {
    "number": "numbers",
    "flag": "booleans",
    "category": "text",
    "time": "dates or times",
    "list": "lists",
    "object": "objects",
}
"""The words for the values of each kind of column in error messages."""

_NO_COLUMNS = ("objects inside lists have no columns", "flatten or drop the column")
_UNITS = {"D": 86_400.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


class Location(NamedTuple):
    """Where values come from: the column, and the number of the first row in the caller's table."""

    column: str
    first: int = 0

    def refuse(self, row: int, shown: str, rule: str, remedy: str) -> NoReturn:
        """Refuse the value in ``row`` of this block, with ``shown`` as its text."""
        raise InputError(f"column {self.column!r}", f"{shown} at row {self.first + row}", rule, remedy)


def brief(value: object) -> str:
    """Return the ``repr`` of a value, shortened to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


@dataclass(frozen=True, eq=False)
class RawColumn:
    """The values of one raw column.

    What ``values`` (n,) holds depends on the kind: "number" real numbers of any dtype, NaN where missing; "flag" the
    same, but only 0 and 1; "time" seconds since 1970 (UTC), NaN where missing; "category" codes into ``levels``, −1
    where missing; "list" the lengths of consecutive parts of ``items``, −1 where missing; "empty" only NaN: every
    value is missing.
    """

    kind: Kind
    values: NDArray[Any]
    levels: Sequence[str] = ()
    items: "RawColumn | None" = None

    def __len__(self) -> int:
        """Return n."""
        return len(self.values)

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Which values are missing (n,)."""
        if self.kind in ("category", "list"):
            return self.values < 0
        return np.isnan(self.values) if self.values.dtype.kind == "f" else np.zeros(len(self), np.bool_)

    def show(self, row: int) -> str:
        """Return one value as text for an error message."""
        value = self.values[row]
        if self.kind == "category":
            return brief(self.levels[int(value)])
        if self.kind == "time":
            return time_text(float(value))
        return f"a list of {value}" if self.kind == "list" else as_text(value)


def empty(length: int) -> RawColumn:
    """Return a column without a value."""
    return RawColumn("empty", np.full(length, np.nan))


def as_text(value: object) -> str:
    """Return a value as the text of a level: 7, 7.0 and "7" are the same, booleans become true and false."""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (float, np.floating)):
        number = float(cast(float, value))
        return str(int(number)) if number.is_integer() else repr(number)
    if isinstance(value, (date, time)):
        return value.isoformat()
    return str(value)


def time_text(seconds: float) -> str:
    """Return seconds since 1970 as ISO 8601."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (ValueError, OverflowError, OSError):  # beyond the year 9999
        return f"{np.datetime64(int(seconds), 's')}+00:00"


def seconds_of(value: date) -> float:
    """Return the seconds since 1970 of a date or a time, in UTC unless it has another time zone."""
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()


# ---- one column ---------------------------------------------------------------------------------------------


def plain(source: Any) -> Any:
    """Return the values of a column as an Arrow array, a NumPy array without objects, a list, or a RawColumn."""
    if isinstance(source, np.ndarray):
        array = cast("NDArray[Any]", source)
        if array.dtype.kind in "fiubMm" and array.ndim <= 2 and not isinstance(array, np.ma.MaskedArray):
            return array
        return array.tolist()
    if hasattr(source, "array") and hasattr(source, "to_numpy"):
        return _plain_series(source)
    if hasattr(source, "type") and hasattr(source, "null_count"):
        return source.combine_chunks() if hasattr(source, "chunks") else source
    return list(source)


def _plain_series(series: Any) -> Any:
    if isinstance(series.dtype, np.dtype):
        return plain(series.to_numpy())
    if hasattr(series, "cat"):
        levels = [as_text(level) for level in series.cat.categories.tolist()]
        return RawColumn("category", series.cat.codes.to_numpy().astype(np.intp), levels)
    if getattr(series.dtype, "tz", None) is not None:
        return series.to_numpy(dtype="datetime64[us]")
    try:
        return plain(series.array.__arrow_array__())
    except (AttributeError, ImportError):
        return series.to_numpy(dtype=object, na_value=None).tolist()


def members(source: Any, place: Location) -> dict[str, Any] | None:
    """Return the columns inside a column of objects; None if it holds no objects."""
    if hasattr(source, "null_count"):
        if not _is_struct(source):
            return None
        return {item.name: values for item, values in zip(source.type, source.flatten(), strict=True)}
    if not isinstance(source, list):
        return None
    values = cast("list[Any]", source)
    if not any(isinstance(value, Mapping) for value in values):
        return None
    objects: list[Mapping[Any, Any]] = []
    for row, value in enumerate(values):
        if not isinstance(value, Mapping) and not _is_missing(value):
            place.refuse(row, brief(value), "this column holds objects", "pass an object, or None where it is unknown")
        objects.append(cast("Mapping[Any, Any]", value) if isinstance(value, Mapping) else {})
    keys = dict.fromkeys(key for value in objects for key in value)
    return {str(key): [value.get(key) for value in objects] for key in keys}


def _is_struct(array: Any) -> bool:
    return hasattr(array.type, "get_field_index")


def read(source: Any, place: Location, wanted: str | None = None) -> RawColumn:
    """Return a plain column in the form of its kind.

    Parameters
    ----------
    source
        What :func:`plain` returned.
    place
        Column and first row, for error messages.
    wanted
        The kind that is needed, if known: "category" takes any values as levels; for other kinds the error names the
        value that does not fit.
    """
    if isinstance(source, RawColumn):
        return source
    if hasattr(source, "null_count"):
        return _of_arrow(_exact(source) if wanted == "category" else source, place)
    if isinstance(source, np.ndarray):
        return _of_array(cast("NDArray[Any]", source))
    return _of_values(source, place, wanted)


def _of_array(array: NDArray[Any]) -> RawColumn:
    if array.ndim == 2:
        lengths = np.full(len(array), array.shape[1], np.intp)
        return RawColumn("list", lengths, items=_of_array(np.ascontiguousarray(array).reshape(-1)))
    if array.dtype.kind == "b":
        return RawColumn("flag", array)
    if array.dtype.kind in "Mm":
        unit, count = np.datetime_data(array.dtype)
        if unit not in _UNITS:
            array, unit, count = array.astype(array.dtype.kind + "8[s]"), "s", 1
        seconds = array.view(np.int64) * (_UNITS[unit] * count)
        seconds[np.isnat(array)] = np.nan
        return _number_column("time" if array.dtype.kind == "M" else "number", seconds)
    return _number_column("number", array)


def _number_column(kind: Kind, values: NDArray[Any]) -> RawColumn:
    """Return numbers or times as a column, of kind "empty" if all are missing."""
    if len(values) and values.dtype.kind == "f" and np.isnan(values[0]) and np.isnan(values).all():
        return empty(len(values))
    return RawColumn(kind, values)


def _exact(array: Any) -> Any:
    """Return integers as text if some are missing, because Arrow would turn them into floats and round large ones."""
    return array.cast("string") if pa.types.is_integer(array.type) and array.null_count else array


def _of_arrow(array: Any, place: Location) -> RawColumn:
    types: Any = pa.types
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.null_count == len(array):
        return empty(len(array))
    families: Iterable[tuple[tuple[str, ...], Callable[[Any, Location], RawColumn]]] = (
        (("is_floating", "is_integer"), lambda array, _: _number_column("number", _numbers(array))),
        (("is_boolean",), lambda array, _: RawColumn("flag", _numbers(array.cast("uint8")))),
        (("is_decimal",), lambda array, _: _number_column("number", _numbers(array.cast("float64")))),
        (("is_timestamp", "is_date", "is_time", "is_duration"), _of_arrow_time),
        (("is_string", "is_large_string"), lambda array, _: _of_arrow_text(array)),
        (("is_string_view",), lambda array, _: _of_arrow_text(array.cast("string"))),
        (("is_list", "is_large_list", "is_fixed_size_list"), _of_arrow_lists),
    )
    if _is_struct(array):
        row = int(np.argmin(_numbers(array.is_null())))
        place.refuse(row, "an object", "the encoder learned this column without objects", "pass its value alone")
    for tests, reader in families:
        if any(getattr(types, test)(array.type) for test in tests):
            return reader(array, place)
    rule = "raw columns hold numbers, booleans, text, dates, lists or objects"
    raise InputError(f"column {place.column!r}", f"Arrow type {array.type}", rule, "convert or drop the column")


def _numbers(array: Any) -> NDArray[Any]:
    return array.to_numpy(zero_copy_only=False)


def _of_arrow_text(array: Any) -> RawColumn:
    coded = array.dictionary_encode()
    codes = _numbers(coded.indices.fill_null(-1)).astype(np.intp, copy=False)
    return RawColumn("category", codes, coded.dictionary.to_pylist())


def _of_arrow_lists(array: Any, place: Location) -> RawColumn:
    lengths = _numbers(pc.list_value_length(array).fill_null(-1))
    items = array.flatten()
    if _is_struct(items):
        place.refuse(int(np.argmax(lengths > 0)), "a list of objects", *_NO_COLUMNS)
    if items.null_count and pa.types.is_integer(items.type):
        extremes: dict[str, int] = pc.min_max(items).as_py()
        items = _exact(items) if max(abs(extreme) for extreme in extremes.values()) > 2**53 else items
    return RawColumn("list", lengths.astype(np.intp), items=_of_arrow(items, Location(f"{place.column}[]")))


def _of_arrow_time(array: Any, _: Location) -> RawColumn:
    """Return dates and times as seconds since 1970, times of day and durations as numbers of seconds."""
    name = str(array.type)
    unit = {"date32[day]": "D", "date64[ms]": "ms"}.get(name) or array.type.unit
    seconds = _numbers(array.cast("int32" if name.startswith(("date32", "time32")) else "int64")) * _UNITS[unit]
    return _number_column("time" if name.startswith(("date", "timestamp")) else "number", seconds)


# ---- Python values ------------------------------------------------------------------------------------------


@cache
def kind_of(kind: Any) -> str:
    """Return the kind of the values of a Python type; "missing" for None and the missing values of pandas."""
    if kind is type(None) or kind.__name__ in ("NAType", "NaTType"):
        return "missing"
    families: Iterable[tuple[Any, str]] = (
        (str, "category"),
        ((bool, np.bool_), "flag"),
        ((timedelta, np.timedelta64, time), "number"),
        ((Real, np.number), "number"),
        ((date, np.datetime64), "time"),
        (Mapping, "object"),
        ((list, tuple, set, frozenset, np.ndarray), "list"),
    )
    name = next((name for family, name in families if issubclass(kind, family)), None)
    # A Decimal is a number but not a Real, so it is recognised by its method.
    return name or ("number" if hasattr(kind, "as_integer_ratio") else "unknown")


def _of_values(values: list[Any], place: Location, wanted: str | None) -> RawColumn:
    """Return a list of Python values as a column; all values must have one kind."""
    values, kinds = _with_none(values)
    if not kinds:
        return empty(len(values))
    if wanted == "category" and not kinds & {"object", "list"}:
        return _coded([None if value is None else as_text(value) for value in values])
    kind = _one_kind(values, kinds, place, wanted)
    if kind == "category":
        return _coded(values)
    return _listed(values, place) if kind == "list" else RawColumn(cast(Kind, kind), _reals(values, place))


def _reals(values: list[Any], place: Location) -> NDArray[Any]:
    """Return numbers, booleans or times as floats, or as integers if all are integers."""
    if all(type(value) is int and -(2**63) <= value < 2**63 for value in values):
        return np.array(values, np.int64)
    reals = np.full(len(values), np.nan)
    for row, value in enumerate(values):
        try:
            reals[row] = np.nan if value is None else _real(value)
        except (OverflowError, ArithmeticError, ValueError):
            place.refuse(row, brief(value), "a number must be finite", "correct the value, or pass None for unknown")
    return reals


def _with_none(values: list[Any]) -> tuple[list[Any], set[str]]:
    """Return the values with None in place of missing ones, and the kinds of the others."""
    kinds = {kind_of(kind) for kind in set(map(type, values))}
    if "number" in kinds or "missing" in kinds:
        values = [None if _is_missing(value) else value for value in values]
        kinds = {kind_of(kind) for kind in set(map(type, values))}
    return values, kinds - {"missing"}


def _is_missing(value: Any) -> bool:
    # NaN marks a missing value in columns of any kind; it is the only number that differs from itself.
    kind = "missing" if value is None else kind_of(cast(Any, type(value)))
    return kind == "missing" or (kind == "number" and value != value)  # noqa: PLR0124


def _one_kind(values: list[Any], kinds: set[str], place: Location, wanted: str | None) -> str:
    """Return the one kind of the values; mixed and unknown kinds are refused with the first row that differs."""
    kind = "number" if kinds == {"number", "flag"} else next(iter(kinds)) if len(kinds) == 1 else ""
    if kind in NOUNS and kind != "object":
        return kind
    each = [kind_of(kind) for kind in map(type, values)]
    expected = wanted if wanted in NOUNS else next((one for one in each if one in NOUNS), "category")
    allowed = {"missing", str(expected), "flag" if expected == "number" else ""}
    row = next(row for row, one in enumerate(each) if one not in allowed or one == "object")
    remedy = f"correct it, pass None where it is unknown, or learn with kinds={{{place.column!r}: 'category'}}"
    if each[row] not in NOUNS:
        place.refuse(
            row, brief(values[row]), "raw columns hold numbers, booleans, text, dates, lists or objects", remedy
        )
    place.refuse(row, brief(values[row]), f"this column holds {NOUNS[str(expected)]}", remedy)


def _real(value: Any) -> float:
    """Return a value as a float: durations in seconds, times in seconds since 1970."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, time):
        return value.hour * 3600.0 + value.minute * 60 + value.second + value.microsecond / 1e6
    if isinstance(value, date):
        return seconds_of(value)
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return float(_of_array(np.array(cast("list[Any]", [value]))).values[0])
    return float(value)


def _coded(values: list[str | None]) -> RawColumn:
    """Return texts as codes, numbered in order of first appearance."""
    index: dict[str | None, int] = {None: -1}
    codes = [index.setdefault(value, len(index) - 1) for value in values]
    return RawColumn("category", np.array(codes, np.intp), cast("list[str]", list(index)[1:]))


def _listed(values: list[Any], place: Location) -> RawColumn:
    lists: list[list[Any] | None] = [None if value is None else list(value) for value in values]
    lengths = np.array([-1 if one is None else len(one) for one in lists], np.intp)
    items = [item for one in lists if one is not None for item in one]
    if any(isinstance(item, Mapping) for item in items):
        row = next(row for row, one in enumerate(lists) if any(isinstance(item, Mapping) for item in one or ()))
        place.refuse(row, brief(values[row]), *_NO_COLUMNS)
    return RawColumn("list", lengths, items=_of_values(items, Location(f"{place.column}[]"), None))
