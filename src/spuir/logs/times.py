"""Instants as microseconds since 1970 in UTC, and durations as people write them."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spuir.errors import InputError, ParameterError

Instants = NDArray[np.int64]

SECOND = 1_000_000
UNKNOWN = np.iinfo(np.int64).min
"""Stands for an instant that is not known."""
PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""The units in which a log may count its time, and how many make a second."""
LAST_SECOND = 253_402_300_800
"""The end of the year 9999: later than any log, and earlier than any time in milliseconds that is read as seconds."""

_UNITS = {"ms": 1_000, "s": SECOND, "m": 60 * SECOND, "h": 3_600 * SECOND, "d": 86_400 * SECOND, "w": 604_800 * SECOND}
_WORDS = {"second": "1s", "minute": "1m", "hour": "1h", "day": "1d", "week": "1w"}
_UTC = re.compile(r"\s*(UTC|GMT)$")
"""The zone as BigQuery and others write it, where ISO 8601 has a Z."""
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")


def is_single(value: Any) -> bool:
    """Return whether a value is one cell, not a column of them."""
    return isinstance(value, (str, bytes)) or not hasattr(value, "__len__") or getattr(value, "ndim", 1) == 0


def microseconds(value: Any, subject: str) -> int:
    """Return a duration: a number of seconds, a timedelta, "hour", "day", or a text like "15m", "6h", "1d"."""
    amount: float | None = None
    if isinstance(value, (timedelta, np.timedelta64)):
        amount = value / timedelta(microseconds=1) if isinstance(value, timedelta) else value / np.timedelta64(1, "us")
    elif isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        amount = float(value) * SECOND
    elif isinstance(value, str):
        found = _WRITTEN.fullmatch(_WORDS.get(value.strip().lower(), value.strip().lower()))
        amount = float(found[1]) * _UNITS[found[2]] if found else None
    if amount is None or not 1 <= amount < 2**62:
        rule = "a duration is a number of seconds > 0, or a text like 'day', '6h' or '15m'"
        raise ParameterError(subject, repr(value), rule, "write it in one of these ways")
    return round(amount)


def iso_datetime(text: str) -> datetime:
    """Return an ISO text as a datetime, in UTC where no zone is given; "2024-05-01 12:00:00 UTC" is one too."""
    found = datetime.fromisoformat(_UTC.sub("Z", text.strip()))
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def written_date(number: float) -> date | None:
    """Return the date that a whole number such as 20240330 spells; None if it is no date from 1900 to 2100."""
    if not 19_000_101 <= number <= 21_001_231 or number != int(number):
        return None
    try:
        return date(int(number) // 10_000, int(number) // 100 % 100, int(number) % 100)
    except ValueError:
        return None


def instants(values: Any, length: int, subject: str) -> Instants:
    """Return instants (n,) as microseconds: epoch seconds, datetimes or ISO texts, one for each row or one for all.

    What has no zone is in UTC. None, NaN and NaT are :data:`UNKNOWN`.
    """
    cells = [values[()] if isinstance(values, np.ndarray) else values] if is_single(values) else values
    rows = np.asarray([_instant(one, subject) for one in cells], np.int64)
    if is_single(values):
        return np.full(length, rows[0], np.int64)
    if len(rows) != length:
        rule = f"one time for each row is needed, {length} here"
        raise InputError(subject, f"{len(rows)} times", rule, "match the lengths, or pass one time for all rows")
    return rows


def _instant(value: Any, subject: str) -> int:
    try:
        if value is None or value != value:  # noqa: PLR0124 - true of NaN and NaT
            return UNKNOWN
        if isinstance(value, str):
            value = iso_datetime(value)
        if isinstance(value, np.datetime64):
            return int(value.astype("datetime64[us]").astype(np.int64))
        if isinstance(value, datetime):
            zoned = value.replace(tzinfo=UTC) if value.tzinfo is None else value
            return (zoned - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        if isinstance(value, date):
            return (value - date(1970, 1, 1)).days * 86_400 * SECOND
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = np.inf
    if not -LAST_SECOND < seconds < LAST_SECOND:
        rule = "a time is a number of seconds since 1970, a datetime or an ISO text, before the year 10000"
        raise InputError(subject, repr(value), rule, "convert it, from milliseconds too")
    return round(seconds * SECOND)
