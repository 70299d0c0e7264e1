"""Scan: one look at every part of a log, to see which episodes, actions and rows it has."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spuir.errors import InputError, SpuirError
from spuir.logs import Cut, Log, Part
from spuir.tables.arrow import arrow, compute
from spuir.training.engines.base import Engine

Counts = NDArray[np.int64]
Watcher = Callable[[str, int, int], object]


class PartScan(NamedTuple):
    """What a worker saw in one part: its rows, the rows of each episode by key, and the actions."""

    rows: int
    episodes: Mapping[Any, int]
    actions: frozenset[Any]


class PartEpisode(NamedTuple):
    """One episode in one part: its number, its rows in earlier parts, and its rows in the whole log."""

    number: int
    before: int
    size: int


class ScannedPart(NamedTuple):
    """A part, the number of rows of the log before it, and the episodes in it by key."""

    part: Part
    start: int
    episodes: Mapping[Any, PartEpisode]


@dataclass(frozen=True, kw_only=True, eq=False)
class LogScan:
    """The parts of a log and the episodes in them.

    ``keys`` are the keys of the episodes in order and ``sizes`` their rows. Each episode begins in the part ``first``
    and ends in the part ``last``. ``actions`` are the actions of the log, sorted.
    """

    parts: Sequence[ScannedPart]
    keys: Sequence[Any]
    sizes: Counts
    first: Counts
    last: Counts
    actions: Sequence[Any]

    @property
    def rows(self) -> int:
        """Rows of the log."""
        return int(self.sizes.sum())

    @property
    def open_episodes(self) -> int:
        """The largest number of episodes that have begun and cannot be learned yet."""
        parts = np.arange(len(self.parts))
        begun = np.searchsorted(np.sort(self.first), parts, side="right")
        learned = np.searchsorted(np.maximum.accumulate(self.last), parts, side="right")
        return int((begun - np.concatenate([[0], learned[:-1]])).max(initial=0))


def scan_log(log: Log, cut: Cut, engine: Engine, watch: Watcher, *, actions: bool) -> LogScan:
    """Scan every part on the engine; with ``actions``, read their column too."""
    scans, rows = list[PartScan](), 0
    for scan in engine.map(partial(scan_part, cut=cut, actions=actions), log.parts):
        scans.append(scan)
        rows += scan.rows
        watch("scan", rows, rows if log.rows is None else log.rows)
    if not rows:
        raise InputError("log", "no rows", "training needs at least one decision", "check the path and the files")
    starts = np.cumsum([0, *(scan.rows for scan in scans)]).tolist()
    found = [scan.episodes for scan in scans]
    if cut.kind == "size":
        found = [_cut_by_size(scan.rows, start, cut.amount) for scan, start in zip(scans, starts, strict=False)]
    keys = sorted(set().union(*found))
    numbers = {key: number for number, key in enumerate(keys)}
    sizes, last = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
    first = np.full(len(keys), len(scans))
    before: list[dict[Any, int]] = []
    for at, episodes in enumerate(found):
        before.append({key: int(sizes[numbers[key]]) for key in episodes})
        for key, count in episodes.items():
            number = numbers[key]
            sizes[number] += count
            first[number], last[number] = min(first[number], at), at
    parts = [
        ScannedPart(part, start, {key: PartEpisode(numbers[key], rows, int(sizes[numbers[key]])) for key, rows in here})
        for part, start, here in zip(log.parts, starts, (rows.items() for rows in before), strict=False)
    ]
    seen = sorted(set().union(*(scan.actions for scan in scans)))
    return LogScan(parts=parts, keys=keys, sizes=sizes, first=first, last=last, actions=seen)


def scan_part(part: Part, cut: Cut, *, actions: bool) -> PartScan:
    """Read the columns of a part that say which episode and which action a row has, and no others."""
    columns = (*cut.columns, *(("action",) if actions else ()))
    if not columns and part.rows is not None:
        return PartScan(part.rows, {}, frozenset())
    rows, episodes, seen = 0, Counter[Any](), set[Any]()
    for batch in part.read(columns or ("action",)):
        try:
            if cut.columns:
                for entry in cut.keys(batch, 0).value_counts().to_pylist():
                    episodes[entry["values"]] += entry["counts"]
            if actions:
                seen.update(_actions_of(batch.column("action")))
        except InputError as error:
            raise with_source(error, part, part.first_row + rows) from None
        rows += batch.num_rows
    return PartScan(rows, episodes, frozenset(seen))


def _actions_of(column: Any) -> list[Any]:
    """Return the different actions of a column; every row must have one."""
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise InputError("action", f"nothing at row {row}", "every decision has an action", "fill or drop that row")
    return column.unique().to_pylist()


def _cut_by_size(rows: int, start: int, size: int) -> dict[int, int]:
    """Return the rows of each episode in a part, when every ``size`` rows of the log are an episode."""
    stop = start + rows
    keys = range(start // size, -(-stop // size))
    return {key: min((key + 1) * size, stop) - max(key * size, start) for key in keys}


def first_episode(scan: LogScan, cut: Cut, columns: Sequence[str]) -> Iterator[Any]:
    """Yield the rows of the first episode in batches with at least these columns."""
    key = scan.keys[0]
    for part, start, episodes in scan.parts:
        if key in episodes:
            rows = start
            for batch in part.read(tuple(dict.fromkeys([*cut.columns, *columns]))):
                keys = cut.keys(batch, rows)
                rows += batch.num_rows
                yield batch.filter(compute().equal(keys, arrow().scalar(key, keys.type)))


def with_source(error: SpuirError, part: Part, first: int) -> SpuirError:
    """Return the error of a batch that begins with row ``first`` of its source, with the source and the row there."""
    got = re.sub(r"\bat row (\d+)", lambda match: f"at row {first + int(match[1])}", error.got)
    return type(error)(f"{error.subject} in {part.source}", got, error.rule, error.remedy)
