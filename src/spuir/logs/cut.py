"""Episodes cut out of a log: by its ``episode`` column, by size, or by time."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np

from spuir.base.parameters import COUNT, check_value
from spuir.errors import InputError, ParameterError
from spuir.logs.columns import renaming
from spuir.logs.log import Log
from spuir.logs.times import microseconds
from spuir.tables.arrow import pa

_NUMBERS = re.compile("([0-9]+)")


@dataclass(frozen=True)
class Cut:
    """A way to cut a log into episodes; made by :func:`cut_episodes`.

    Parameters
    ----------
    kind
        "column", "size" or "time".
    amount
        Rows of an episode for "size", microseconds for "time", 0 for "column".
    notice
        What the user should know, in a sentence; None = nothing.
    """

    kind: str
    amount: int = 0
    notice: str | None = None

    @property
    def batch_size(self) -> int | None:
        """Rows of an episode; None where it is not cut by size."""
        return self.amount if self.kind == "size" else None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that it reads."""
        return {"column": ("episode",), "time": ("time",), "size": ()}[self.kind]

    def keys(self, batch: "pa.RecordBatch", start: int = 0) -> "pa.Array":
        """Return the episode (n,) of each row of a batch; keys sort as episodes follow each other.

        Parameters
        ----------
        batch
            Rows of the log with at least :attr:`columns`.
        start
            How many rows of the log come before it: what cutting by size carries from batch to batch.

        Notes
        -----
        By size, rows belong together in the order of the log, and the last episode has what is left. By time, an
        episode lasts from one multiple of the duration since 1970 (UTC) to the next: a row belongs to the episode of
        its time, wherever it is in the log, and hours or days without rows give no episode.
        """
        if self.kind == "size":
            return pa.array((start + np.arange(batch.num_rows, dtype=np.int64)) // self.amount)
        column = batch[self.columns[0]]
        if column.null_count:
            row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            rule = f"every row needs it when episodes are cut by {self.columns[0]!r}"
            raise InputError(f"column {self.columns[0]!r}", f"nothing at row {row}", rule, "fill or drop that row")
        if self.kind == "column":
            return column
        return pa.array(column.cast(pa.int64()).to_numpy() // self.amount)

    def in_order(self, keys: Iterable[Any]) -> list[Any]:
        """Return keys as their episodes follow each other; numbers within texts count as numbers: e1, e2, e10."""
        listed = list(keys)
        if not any(isinstance(key, str) for key in listed):
            return sorted(listed)
        ordered = sorted(listed, key=_natural)
        for one, two in pairwise(ordered):
            if _natural(one) == _natural(two):
                rule = "their numbers are equal, so that nothing says which comes first"
                raise InputError("column 'episode'", f"{one!r} and {two!r}", rule, "number the episodes")
        return ordered

    def named(self, key: Any) -> Any:
        """Return a key as people read it: the beginning of an episode that was cut by time, else the key itself."""
        if self.kind != "time":
            return key
        return written(key * self.amount)

    def pairs(self, log: Log, columns: Any = None) -> "Iterator[tuple[pa.Array, pa.RecordBatch]]":
        """Yield the batches of a log in order, each with the episodes of its rows.

        ``columns`` are those to read; None = all.
        """
        names = None if columns is None else list(dict.fromkeys([*columns, *self.columns]))
        start = 0
        for part in log.parts:
            row = 0
            for batch in part.read(names):
                with part.locating(row):
                    keys = self.keys(batch, start + row)
                yield keys, batch if columns is None else batch.select(list(columns))
                row += batch.num_rows
            start += row


def _natural(text: str) -> list[str | int]:
    """Return a text as alternating texts and numbers, so that e10 sorts after e2."""
    return [int(part) if at % 2 else part for at, part in enumerate(_NUMBERS.split(text))]


def written(instant: int) -> str:
    """Return a time in microseconds since 1970 as people read it."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=instant)).isoformat()


def cut_episodes(log: Log, batch_size: int | None = None, every: Any = None) -> Cut:
    """Return how a log is cut into episodes: its column ``episode`` takes precedence, then size or time.

    Parameters
    ----------
    log
        What ``open_log`` returned.
    batch_size
        B, the rows of an episode in the order of the log.
    every
        How long an episode lasts: "hour", "day", a text like "15m", "6h", "1d", or seconds. Needs a ``time`` column.
    """
    if batch_size is not None:
        check_value("batch_size", batch_size, COUNT, "choose another value")
    amount = 0 if every is None else microseconds(every, "every")
    if batch_size is not None and every is not None:
        rule = "episodes are cut by size or by time"
        raise ParameterError("episodes", f"batch_size={batch_size} and every={every!r}", rule, "give one of the two")
    names = log.schema.names
    if "episode" in names:
        given = f"batch_size={batch_size}" if batch_size is not None else f"every={every!r}"
        notice = f"the log has a column 'episode', which takes precedence over {given}."
        return Cut("column", notice=None if batch_size is None and every is None else notice)
    if batch_size is not None:
        return Cut("size", min(int(batch_size), 2**62))  # beyond, an episode has all rows there can be
    if every is None:
        rule = "it has no column 'episode', and nothing says where one ends"
        raise InputError("log", "no episodes", rule, "give batch_size or every (--batch-size, --every)")
    if "time" not in names:
        rule = "cutting by time needs a column 'time'"
        raise InputError(
            "log", "no column 'time'", rule, f"rename it, {renaming('…', 'time')}, or give batch_size (--batch-size)"
        )
    return Cut("time", amount)
