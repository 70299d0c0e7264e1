"""Reads a column of one kind as another, or refuses it with row and value."""

from datetime import datetime
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from spuir.base.records import Codes, Floats
from spuir.tables.raw_columns import NOUNS, Location, RawColumn, as_text, brief, empty, seconds_of, time_text


def _refuse(column: RawColumn, place: Location, wanted: str) -> NoReturn:
    row = int(np.argmin(column.missing))
    rule = f"the encoder learned this column as {NOUNS[wanted]}"
    place.refuse(row, column.show(row), rule, "correct the value, or pass None where it is unknown")


def numbers(column: RawColumn, place: Location) -> NDArray[Any]:
    """Return numbers (n,) of any real dtype, NaN where missing."""
    if column.kind not in ("number", "flag", "empty"):
        _refuse(column, place, "number")
    return column.values


def flags(column: RawColumn, place: Location) -> NDArray[Any]:
    """Return 0 and 1 (n,), NaN where missing."""
    if column.kind not in ("number", "flag", "empty"):
        _refuse(column, place, "flag")
    if column.kind == "number":
        good = (column.values == 0) | (column.values == 1) | column.missing
        if not good.all():
            row = int(np.argmin(good))
            remedy = "pass True, False, 1, 0 or None"
            place.refuse(row, column.show(row), "the encoder learned this column as booleans", remedy)
    return column.values


def times(column: RawColumn, place: Location) -> Floats:
    """Return seconds since 1970 (n,), NaN where missing; text is read as ISO 8601."""
    if column.kind == "category":
        seconds = np.full(len(column.levels) + 1, np.nan)
        for code, level in enumerate(column.levels):
            try:
                seconds[code] = seconds_of(datetime.fromisoformat(level))
            except ValueError:
                row = int(np.argmax(column.values == code))
                place.refuse(row, brief(level), "a date or time as text follows ISO 8601", "write 2026-01-31T09:30:00")
        return seconds[column.values]
    if column.kind not in ("time", "empty"):
        _refuse(column, place, "time")
    return column.values


def categories(column: RawColumn, place: Location) -> RawColumn:
    """Return codes and levels; all kinds but lists can be read as text."""
    if column.kind == "category":
        return column
    if column.kind == "list":
        _refuse(column, place, "category")
    missing = column.missing
    distinct, codes = np.unique(column.values[~missing], return_inverse=True)
    out = np.full(len(column), -1, np.intp)
    out[~missing] = codes
    if column.kind == "flag":
        distinct = distinct.astype(np.bool_)
    text = time_text if column.kind == "time" else as_text
    return RawColumn("category", out, [text(value) for value in distinct.tolist()])


def lists(column: RawColumn, place: Location) -> tuple[Codes, RawColumn]:
    """Return the lengths (n,) of lists, −1 where missing, and their items."""
    if column.kind == "empty":
        return np.full(len(column), -1, np.intp), empty(0)
    if column.items is None:
        _refuse(column, place, "list")
    return column.values, column.items


def occurrences(column: RawColumn, place: Location) -> tuple[Codes, RawColumn]:
    """Return the row and the level of each known value in a column of lists or single values."""
    if column.items is None:
        rows, coded = np.arange(len(column)), categories(column, place)
    else:
        rows = np.repeat(np.arange(len(column)), np.maximum(column.values, 0))
        coded = categories(column.items, place)
    known = coded.values >= 0
    return rows[known], RawColumn("category", coded.values[known], coded.levels)


def matrix(column: RawColumn, length: int, place: Location) -> Floats:
    """Return lists of ``length`` numbers as a table (n, length), NaN where missing."""
    lengths, items = lists(column, place)
    wrong = (lengths >= 0) & (lengths != length)
    if wrong.any():
        row = int(np.argmax(wrong))
        rule = f"the vectors of this column have {length} numbers"
        place.refuse(row, f"a list of {lengths[row]}", rule, "pass vectors of one length")
    out = np.full((len(column), length), np.nan)
    out[lengths >= 0] = np.asarray(numbers(items, place), np.float64).reshape(-1, length)
    return out
