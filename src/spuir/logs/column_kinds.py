"""How the cells of a canonical column are read: which Arrow types are taken, and what they become.

A kind describes what it accepts, gives the type that a raw type becomes, and converts an array to it. A cell
that does not fit is a :class:`CellError`, which the reader turns into a refusal with file and row.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from spuir.logs.times import LAST_SECOND, PER_SECOND, SECOND, written_date
from spuir.tables.arrow import is_date, is_number, pa, pc, plain_type

NO_COMMAS = "write numbers with a decimal point and without thousands separators, such as 1250.5"
"""The remedy for numbers with a comma, of which nothing says whether it is a decimal comma."""
_EXACT = 2.0**53
"""Above this a float does not hold every whole number."""


class CellError(Exception):
    """A cell that is not what its column holds: its row in the array, and what it is."""

    def __init__(self, row: int, got: str) -> None:
        super().__init__(row, got)
        self.row, self.got = row, got


@dataclass(frozen=True)
class ColumnKind:
    """What a column may hold.

    Parameters
    ----------
    clause
        What is accepted, as messages say it.
    becomes
        Returns the type in memory for a raw type, None where that is refused.
    convert
        Converts an array of a raw type to the type in memory; takes the array, the type and the unit of times.
    remedy
        What to do about a cell that does not fit.
    """

    clause: str
    becomes: "Callable[[pa.DataType], pa.DataType | None]"
    convert: "Callable[[pa.Array, pa.DataType, str], pa.Array]"
    remedy: str


def cast(array: "pa.Array", target: "pa.DataType") -> "pa.Array":
    """Return the array as another type; a cell that cannot be is a :class:`CellError`."""
    if array.type.equals(target):
        return array
    refused = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError)
    try:
        return array.cast(target)
    except refused:
        # A prefix fails if and only if it holds a cell that does, so that halving finds the first.
        low, high = 0, len(array)
        while high - low > 1:
            middle = (low + high) // 2
            try:
                array.slice(low, middle - low).cast(target)
                low = middle
            except refused:
                high = middle
        raise CellError(low, repr(array[low].as_py())) from None


def _misfit(array: "pa.Array", bad: Any) -> None:
    """Refuse the first cell that ``bad`` (n,) marks."""
    if bad.any():
        row = int(np.argmax(bad))
        raise CellError(row, repr(array[row].as_py()))


def _floats(array: "pa.Array") -> Any:
    """Return numbers (n,) as float64, NaN where there is none."""
    return array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def _whole(array: "pa.Array", target: "pa.DataType", unit: str) -> "pa.Array":
    """Return labels or counts: floats have to be whole, and a NaN is missing."""
    if pa.types.is_floating(array.type) or pa.types.is_decimal(array.type):
        values = _floats(array)
        known = ~np.isnan(values)
        with np.errstate(invalid="ignore"):
            _misfit(array, known & ((values != np.floor(values)) | (np.abs(values) > _EXACT)))
        return pa.array(np.where(known, values, 0.0).astype(np.int64), mask=~known).cast(target)
    if is_date(array.type):
        return _iso(array)
    return cast(array, target)


def _iso(array: "pa.Array") -> "pa.Array":
    """Return days and instants as ISO text, which sorts as they do."""
    if pa.types.is_date(array.type):
        return array.cast(pa.date32()).cast(pa.string())
    instants = _time(array, pa.timestamp("us", "UTC"), "s")
    return pa.array([None if one is None else one.isoformat() for one in instants.to_pylist()], pa.string())


def _number(array: "pa.Array", target: "pa.DataType", unit: str) -> "pa.Array":
    numbers = cast(array, target)
    if pa.types.is_floating(array.type) and np.isnan(_floats(numbers)).any():
        return pc.if_else(pc.is_nan(numbers), pa.scalar(None, target), numbers)
    return numbers


def _time(array: "pa.Array", target: "pa.DataType", unit: str) -> "pa.Array":
    """Return instants in UTC; a time without a zone is in UTC."""
    types = pa.types
    if types.is_string(array.type):
        return _parsed(array, target)
    if types.is_timestamp(array.type):
        counted = array.cast(pa.int64()).fill_null(0).to_numpy()
        late = np.abs(counted.astype(np.float64)) >= LAST_SECOND * PER_SECOND[array.type.unit]
        if late.any():
            row = int(np.argmax(late))
            raise CellError(row, f"{counted[row]} {array.type.unit} from 1970")
        return array.cast(pa.timestamp("us", array.type.tz), safe=False).cast(pa.int64()).cast(target)
    if types.is_date(array.type):
        return array.cast(pa.date32()).cast(pa.timestamp("us")).cast(pa.int64()).cast(target)
    seconds = _floats(array) / PER_SECOND[unit]
    known = ~np.isnan(seconds)
    with np.errstate(invalid="ignore"):
        _misfit(array, known & ~(np.abs(seconds) < LAST_SECOND))
    if unit == "s":
        _refuse_dates(seconds)
    if types.is_integer(array.type) and PER_SECOND[unit] <= SECOND:
        counts = array.cast(pa.int64()).fill_null(0).to_numpy() * (SECOND // PER_SECOND[unit])
    else:
        counts = np.round(np.where(known, seconds, 0.0) * SECOND).astype(np.int64)
    return pa.array(counts, pa.int64(), mask=~known).cast(target)


def _refuse_dates(seconds: Any) -> None:
    """Refuse numbers (n,) such as 20240330: read as seconds they are in the summer of 1970, where no log begins."""
    for row in np.flatnonzero((seconds >= 19_000_101) & (seconds <= 21_001_231)).tolist():
        day = written_date(seconds[row])
        if day is not None:
            raise CellError(row, f"{seconds[row]:.0f} (the date {day}, or in seconds a time in 1970)")


def _parsed(array: "pa.Array", target: "pa.DataType") -> "pa.Array":
    """Return ISO texts as instants: with a zone or without, with as many digits after the second as they have."""
    for kind in (pa.timestamp("us"), target):
        # The usual cases, all texts alike, take one pass.
        try:
            return array.cast(kind).cast(pa.int64()).cast(target)
        except pa.ArrowInvalid:
            continue
    texts = pc.replace_substring_regex(pc.utf8_trim_whitespace(array), r"(\.\d{6})\d+", r"\1")
    texts = pc.replace_substring_regex(texts, r"\s*(UTC|GMT)$", "Z")
    texts = pc.replace_substring_regex(texts, r"^(\d{4})(\d{2})(\d{2})$", r"\1-\2-\3")
    day = pc.equal(pc.utf8_length(texts), 10)
    texts = pc.if_else(day, pc.binary_join_element_wise(texts, "T00:00Z", ""), texts)
    zoned = pc.match_substring_regex(texts, r"(Z|[+-]\d{2}(:?\d{2})?)$")
    texts = pc.if_else(zoned, texts, pc.binary_join_element_wise(texts, "Z", ""))
    try:
        return cast(texts, target)
    except CellError as misfit:
        raise CellError(misfit.row, repr(array[misfit.row].as_py())) from None


def _lists(array: "pa.Array", target: "pa.DataType", unit: str) -> "pa.Array":
    """Return lists, also where a file without lists holds them as JSON text or as ``a|b|c``."""
    if not pa.types.is_string(array.type):
        return cast(array, target)
    rows: list[Any] = []
    for row, text in enumerate(array.to_pylist()):
        try:
            rows.append(None if text is None else _fitting(_cells(text), target.value_type))
            pa.array(rows[-1:], target)
        except (ValueError, TypeError, pa.ArrowInvalid, pa.ArrowTypeError):
            raise CellError(row, repr(text)) from None
    return pa.array(rows, target)


def _cells(text: str) -> list[Any]:
    """Return the list that a text holds: as JSON, or its parts between bars."""
    if text.lstrip()[:1] == "[":
        return json.loads(text)
    return [_cell(part.strip()) for part in text.split("|")] if text.strip() else []


def _cell(part: str) -> Any:
    """Return a part between bars: true, false, a whole number, a number, or text."""
    if part in ("true", "false"):
        return part == "true"
    for kind in (int, float):
        with suppress(ValueError):
            number = kind(part)
            return number if str(number) == part else part
    return part


def _fitting(cells: list[Any], kind: "pa.DataType") -> list[Any]:
    """Return cells for a list of this type: labels are texts where others are, and numbers are fractions."""
    if pa.types.is_string(kind):
        return [str(cell) if type(cell) in (int, float) else cell for cell in cells]
    return cells


def is_list_text(text: str | None) -> bool:
    """Return whether a text is a list: JSON, parts between bars, or a number, which would not be text otherwise."""
    return text is not None and (text.lstrip()[:1] == "[" or "|" in text or type(_cell(text.strip())) is not str)


def list_type(text: str | None) -> Any:
    """Return the type of the list that a text holds; a list of texts where it is empty or no list."""
    try:
        cells: Any = _cells(text) if text is not None else []
    except ValueError:
        cells = []
    first = cells[0] if isinstance(cells, list) and cells else ""
    kinds = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
    return pa.list_(kinds.get(type(first), pa.string()))


def _as_label(raw: Any) -> Any:
    if is_number(raw) or pa.types.is_boolean(raw):
        return pa.int64()
    return pa.string() if pa.types.is_string(raw) or pa.types.is_null(raw) else None


def _as_episode(raw: Any) -> Any:
    return pa.string() if is_date(raw) else _as_label(raw)


def _as_number(raw: Any) -> Any:
    return pa.float64() if is_number(raw) or pa.types.is_boolean(raw) or pa.types.is_null(raw) else None


def _as_time(raw: Any) -> Any:
    fits = is_number(raw) or is_date(raw) or pa.types.is_string(raw) or pa.types.is_null(raw)
    return pa.timestamp("us", "UTC") if fits else None


def _as_whole(raw: Any) -> Any:
    return pa.int64() if is_number(raw) or pa.types.is_null(raw) else None


def _as_text(raw: Any) -> Any:
    fits = pa.types.is_integer(raw) or pa.types.is_string(raw) or pa.types.is_null(raw)
    return pa.string() if fits else None


def _as_numbers(raw: Any) -> Any:
    if pa.types.is_list(raw):
        return pa.list_(pa.float64()) if _as_number(raw.value_type) else None
    return pa.list_(pa.float64()) if pa.types.is_string(raw) or pa.types.is_null(raw) else None


def _as_choices(raw: Any) -> Any:
    if pa.types.is_list(raw):
        inner = raw.value_type
        found = pa.bool_() if pa.types.is_boolean(inner) else _as_label(inner)
        return None if found is None else pa.list_(found)
    return pa.list_(pa.string()) if pa.types.is_string(raw) or pa.types.is_null(raw) else None


def _as_action_feature(raw: Any) -> Any:
    if pa.types.is_list(raw):
        inner = _as_action_feature(raw.value_type)
        return None if inner is None or pa.types.is_list(inner) else pa.list_(inner)
    number = _as_number(raw)
    return number if number is not None else pa.string() if pa.types.is_string(raw) else None


def _action_feature(array: "pa.Array", target: "pa.DataType", unit: str) -> "pa.Array":
    """Return one value per row, or a list; a NaN is missing."""
    if pa.types.is_list(target):
        return _lists(array, target, unit)
    return _number(array, target, unit) if pa.types.is_floating(target) else cast(array, target)


def _plainly(array: "pa.Array", target: "pa.DataType", unit: str) -> "pa.Array":
    return cast(array, target)


COLUMN_KINDS = {
    "label": ColumnKind("whole numbers or texts", _as_label, _whole, "write every label as text"),
    "episode": ColumnKind("whole numbers, texts or dates", _as_episode, _whole, "number the episodes"),
    "number": ColumnKind("numbers", _as_number, _number, "write a number, or nothing where it is not known"),
    "time": ColumnKind(
        "numbers of seconds since 1970, timestamps, dates or ISO texts, before the year 10000",
        _as_time,
        _time,
        'write times such as 2026-01-31T09:30:00, say time_unit="ms" (--time-unit ms) if it counts milliseconds, read '
        "dates like 20240330 as text (--type NAME=string), or, if it is no time of a decision, give it another name "
        "(--rename NAME=OTHER)",
    ),
    "whole": ColumnKind("whole numbers", _as_whole, _whole, "correct that cell"),
    "text": ColumnKind("texts or whole numbers", _as_text, _plainly, "write it as text"),
    "numbers": ColumnKind(
        "lists of numbers, or such a list as JSON text or as 0.2|0.8", _as_numbers, _lists, "correct that list"
    ),
    "choices": ColumnKind(
        "lists of booleans or of labels, or such a list as JSON text or as a|b|c",
        _as_choices,
        _lists,
        "correct that list",
    ),
    "action feature": ColumnKind(
        "a number or a text for the executed action, or a list of these for the actions that `eligible` lists",
        _as_action_feature,
        _action_feature,
        "correct that cell",
    ),
    "context": ColumnKind("anything", plain_type, _plainly, "declare another type with types= (--type)"),
}
"""The kinds by name; a plan that is sent to workers names its kinds."""


def reads_as_number(text: str) -> bool:
    """Return whether a text is a number with a decimal point."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def has_decimal_comma(text: str) -> bool:
    """Return whether a text is a number with a decimal comma, or with one between thousands."""
    return text.count(",") == 1 and reads_as_number(text.replace(",", "."))
