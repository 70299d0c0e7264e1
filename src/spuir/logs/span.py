"""A stretch of a log: the rows after a time or before it, or some rows in the order of the log."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from spuir.base.parameters import UNIT, check_value
from spuir.base.records import Mask
from spuir.errors import InputError
from spuir.logs.columns import renaming
from spuir.logs.formats import Faults
from spuir.logs.log import Log
from spuir.logs.parts import DerivedPart, Part
from spuir.logs.times import Instants, instants
from spuir.tables.arrow import pa

LAST = np.iinfo(np.int64).max


@dataclass(frozen=True, kw_only=True)
class SpanPart(DerivedPart):
    """The rows of a part from ``first`` to before ``stop``, which are instants, or places in the log from ``start``."""

    first: int
    stop: int
    start: int | None

    def _chosen(
        self, columns: Sequence[str] | None, batch_rows: int, faults: Faults | None
    ) -> "Iterator[tuple[pa.RecordBatch, Mask]]":
        names = self.plan.schema_of(columns).names
        needed = names if self.start is not None else list(dict.fromkeys([*names, "time"]))
        start = self.start or 0
        for batch in self.base.read(needed, batch_rows=batch_rows, faults=faults):
            if self.start is None:
                places = _values(batch["time"])
            else:
                places = np.arange(start, start + batch.num_rows)
            start += batch.num_rows
            yield batch.select(names), (places >= self.first) & (places < self.stop)

    def identity(self) -> Iterator[bytes]:
        """Yield bytes that differ when the part or the span does."""
        yield from self.base.identity()
        yield repr((self.first, self.stop)).encode()


def log_after(log: Log, time: Any) -> Log:
    """Return the rows of a log at and after a time: epoch seconds, a datetime or an ISO text."""
    if "time" not in log.schema.names:
        remedy = f"rename one, {renaming('…', 'time')}"
        raise InputError("log", "no column 'time'", "choosing rows by time needs it", remedy)
    return _within(log, int(instants(time, 1, "after")[0]), LAST, None)


def split_log(log: Log, share: float) -> tuple[Log, Log]:
    """Return the earlier rows of a log and the last ``share`` of them: by time, or by order where it has no times.

    Rows without a reward do not count, so that rewards that are not known yet do not use up the last rows.
    """
    check_value("holdout", share, UNIT, "choose a share such as 0.3")
    times, known = _times_and_known(log)
    every = times[known & (times != LAST)]
    if len(every):  # without times, or with an empty column of them, the order counts
        cut = int(np.quantile(every, 1 - share))
        return _within(log, -LAST, cut, None), _within(log, cut, LAST, None)
    starts = np.cumsum([0, *(count_rows(part) for part in log.parts)]).tolist()
    places = np.flatnonzero(known)
    first = round(len(places) * (1 - share))
    cut = int(places[first]) if first < len(places) else starts[-1]
    return _within(log, 0, cut, starts), _within(log, cut, LAST, starts)


def _times_and_known(log: Log) -> tuple[Instants, Mask]:
    """Return the time of each row (n,), LAST where it has none, and whether its reward is known (n,).

    Where no reward is known, all rows count.
    """
    names = [name for name in ("time", "reward") if name in log.schema.names]
    times, known = [np.empty(0, np.int64)], [np.empty(0, np.bool_)]
    for batch in log.batches(names or ["action"]):
        times.append(_values(batch["time"]) if "time" in names else np.full(batch.num_rows, LAST))
        known.append(_known(batch["reward"]) if "reward" in names else np.ones(batch.num_rows, np.bool_))
    found = np.concatenate(known)
    return np.concatenate(times), found if found.any() else ~found


def _values(times: "pa.Array") -> Instants:
    return times.cast(pa.int64()).fill_null(LAST).to_numpy()


def _known(rewards: "pa.Array") -> Mask:
    return ~rewards.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)


def count_rows(part: Part) -> int:
    """Return how many rows a part has, which for a text file takes reading it."""
    return sum(batch.num_rows for batch in part.read(("action",))) if part.rows is None else part.rows


def _within(log: Log, first: int, stop: int, starts: Sequence[int] | None) -> Log:
    parts: list[Part] = []
    for at, part in enumerate(log.parts):
        start = None if starts is None else starts[at]
        if start is None or (start < stop and starts is not None and starts[at + 1] > first):
            place: dict[str, Any] = {"number": len(parts), "source": part.source, "rows": None, "bytes": part.bytes}
            parts.append(SpanPart(**place, plan=part.plan, base=part, first=first, stop=stop, start=start))
    return replace(log, parts=tuple(parts))
