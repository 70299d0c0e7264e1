"""Scan: one look at every part of a log, to see which episodes, actions and rows it has."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spuir.errors import InputError, SpuirError
from spuir.logs import Cut, Log, Part
from spuir.tables.arrow import pa, pc
from spuir.training.engines.base import WorkEngine

YEAR = 365.25 * 86_400e6
"""Microseconds."""
MISTAKEN_SHARE, FEWEST_ROWS = 0.01, 10
"""Rows that are long before all others are mistakes if they are at most this share of a log of at least so many."""
SAMPLE_LEAST, SAMPLE_MOST = 10_000, 100_000
"""Rows of the sample on which encoder, scales and landmarks are fixed: whole episodes up to the first, then cut off."""
Counts = NDArray[np.int64]
Watcher = Callable[[str, int, int], object]
"""Is called with (stage, rows or tasks done, those in total)."""


def ignore(*_: object) -> None:
    """Ignore progress or notices."""


class PartScan(NamedTuple):
    """What a worker saw in one part: its rows, the rows of each episode by key, and the actions.

    ``fragments`` counts the episodes of every batch: what collecting would handle one by one.
    """

    rows: int
    episodes: Mapping[Any, int]
    actions: frozenset[Any]
    fragments: int = 0


class PartEpisode(NamedTuple):
    """One episode in one part.

    ``number`` is its place in the log, ``rows`` its rows in this part and ``size`` those in the whole log. ``before``
    are its rows in earlier parts and ``place`` the episodes before it; once :func:`count_learned` has looked, only
    those that are learned from.
    """

    number: int
    rows: int
    size: int
    before: int
    place: int


class ScannedPart(NamedTuple):
    """A part, the number of rows of the log before it, and the episodes in it by key."""

    part: Part
    start: int
    episodes: Mapping[Any, PartEpisode]


@dataclass(frozen=True, kw_only=True, eq=False)
class LogScan:
    """The parts of a log and the episodes in them, as ``cut`` cuts them.

    ``keys`` are the keys of the episodes in order and ``sizes`` their rows. Each episode begins in the part ``first``
    and ends in the part ``last``. ``actions`` are the actions of the log, sorted, and ``fragments`` counts the episodes
    of every batch.
    """

    cut: Cut
    parts: Sequence[ScannedPart]
    keys: Sequence[Any]
    sizes: Counts
    first: Counts
    last: Counts
    actions: Sequence[Any]
    fragments: int = 0

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


def scan_log(log: Log, cut: Cut, engine: WorkEngine, watch: Watcher, *, actions: bool) -> LogScan:
    """Scan every part on the engine; with ``actions``, read their column too."""
    scans, rows = list[PartScan](), 0
    for scan in engine.map(partial(scan_part, cut=cut, actions=actions), log.parts):
        scans.append(scan)
        rows += scan.rows
        watch("scan", rows, rows if log.rows is None else log.rows)
    refuse_empty(rows)
    starts = np.cumsum([0, *(scan.rows for scan in scans)]).tolist()
    found = [scan.episodes for scan in scans]
    if cut.kind == "size":
        found = [_cut_by_size(scan.rows, start, cut.amount) for scan, start in zip(scans, starts, strict=False)]
    keys = cut.in_order(set().union(*found))
    numbers = {key: number for number, key in enumerate(keys)}
    sizes, last = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
    first = np.full(len(keys), len(scans))
    for at, episodes in enumerate(found):
        for key, count in episodes.items():
            number = numbers[key]
            sizes[number] += count
            first[number], last[number] = min(first[number], at), at
    before = np.zeros(len(keys), np.int64)
    parts = list[ScannedPart]()
    for part, start, episodes in zip(log.parts, starts, found, strict=False):
        here = {
            key: PartEpisode(at := numbers[key], count, int(sizes[at]), int(before[at]), at)
            for key, count in episodes.items()
        }
        before[[one.number for one in here.values()]] += np.array(list(episodes.values()), np.int64)
        parts.append(ScannedPart(part, start, here))
    seen = sorted(set().union(*(scan.actions for scan in scans)))
    fragments = sum(scan.fragments for scan in scans)
    scan = LogScan(
        cut=cut, parts=parts, keys=keys, sizes=sizes, first=first, last=last, actions=seen, fragments=fragments
    )
    check_first_time(scan)
    return scan


def refuse_empty(rows: int) -> None:
    """Refuse a log without rows."""
    if not rows:
        raise InputError("log", "no rows", "training needs at least one decision", "check the path and the files")


def scan_part(part: Part, cut: Cut, *, actions: bool) -> PartScan:
    """Read the columns of a part that say which episode and which action a row has, and no others."""
    columns = (*cut.columns, *(("action",) if actions else ()))
    if not columns and part.rows is not None:
        return PartScan(part.rows, {}, frozenset())
    rows, episodes, seen, fragments = 0, Counter[Any](), set[Any](), 0
    for batch in part.read(columns or ("action",)):
        with part.locating(rows):
            if cut.columns:
                counted = cut.keys(batch, 0).value_counts().to_pylist()
                fragments += len(counted)
                for entry in counted:
                    episodes[entry["values"]] += entry["counts"]
            if actions:
                seen.update(_actions_of(batch.column("action")))
        rows += batch.num_rows
    return PartScan(rows, episodes, frozenset(seen), fragments)


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


def check_first_time(scan: LogScan) -> None:
    """Raise if the first episode is a mistaken time: in 1970 or long before the rest, with hardly a row."""
    cut = scan.cut
    if cut.kind != "time" or len(scan.keys) < 2:
        return
    times = np.asarray(scan.keys, np.float64) * cut.amount / YEAR
    gaps = np.diff(times)
    at = int(np.argmax(gaps))
    early = int(scan.sizes[: at + 1].sum())
    rare = early <= max(1, MISTAKEN_SHARE * scan.rows) and scan.rows >= FEWEST_ROWS
    if not rare or gaps[at] < 1 or (abs(times[at]) > 1 and gaps[at] < 3 * (times[-1] - times[at + 1])):
        return
    part, start, _ = next(one for one in scan.parts if scan.keys[0] in one.episodes)
    row = 0
    for batch in part.read(("time",)):
        mistaken = np.flatnonzero(cut.keys(batch, start).to_numpy() == scan.keys[0])
        if len(mistaken):
            row += int(mistaken[0])
            break
        row += batch.num_rows
    got = f"{cut.named(scan.keys[0])} at row {part.source_row(row)}"
    whose = "it comes" if early == 1 else f"it and {early - 1:,} others come"
    rule = f"{whose} {gaps[at]:.0f} years before the rest, which begin on {cut.named(scan.keys[at + 1])}"
    remedy = "correct or drop that row, or give the unit of times (--time-unit)"
    raise InputError(f"column 'time' in {part.source}", got, rule, remedy)


def count_learned(scan: LogScan, engine: WorkEngine) -> LogScan:
    """Return the scan with rows and episodes numbered as ``partial_fit`` would, which never sees those without reward.

    A sketch hashes rows by their number in the episode, with a key drawn for the number of the episode.
    """
    counted = list(engine.map(partial(_learned_in, cut=scan.cut), scan.parts))
    numbers = {key: number for number, key in enumerate(scan.keys)}
    before, totals = np.zeros(len(numbers), np.int64), np.zeros(len(numbers), np.int64)
    for counts in counted:
        for key, count in counts.items():
            totals[numbers[key]] += count
    places = np.cumsum(totals > 0) - (totals > 0)
    parts = list[ScannedPart]()
    for part, counts in zip(scan.parts, counted, strict=True):
        here = {
            key: one._replace(before=int(before[one.number]), place=int(places[one.number]))
            for key, one in part.episodes.items()
        }
        for key, count in counts.items():
            before[numbers[key]] += count
        parts.append(part._replace(episodes=here))
    return replace(scan, parts=parts)


def _learned_in(scanned: ScannedPart, cut: Cut) -> Counter[Any]:
    """Return the rows of each episode in a part that are learned from: with a reward, and of weight above 0."""
    names = [one.name for one in scanned.part.plan.fields]
    weight = ["weight"] if "weight" in names else []
    counts, row = Counter[Any](), scanned.start
    for batch in scanned.part.read(("reward", *weight, *cut.columns)):
        keys = cut.keys(batch, row).filter(pa.array(learned_rows(batch)))
        row += batch.num_rows
        for entry in keys.value_counts().to_pylist():
            counts[entry["values"]] += entry["counts"]
    return counts


def learned_rows(batch: Any) -> NDArray[np.bool_]:
    """Return which rows (n,) of a batch are learned from: with a reward, and of weight above 0."""
    known = ~np.isnan(batch.column("reward").to_numpy(zero_copy_only=False))
    if "weight" in batch.schema.names:
        known &= batch.column("weight").to_numpy(zero_copy_only=False) != 0
    return known


@dataclass(frozen=True, eq=False)
class LogSample:
    """The first rows of a log, as a table, and where they come from: parts and the numbers of their rows, in order."""

    table: Any
    places: Sequence[tuple[Part, Counts]]

    def located(self, error: SpuirError) -> SpuirError:
        """Return an error about a row of the table as one that names its source and the row there."""
        found = re.search(r"\bat row (\d+)", error.got)
        row = int(found[1]) if found else -1
        for part, numbers in self.places:
            if 0 <= row < len(numbers):
                return part.located(error, int(numbers[row]) - int(found[1]) if found else 0)
            row -= len(numbers)
        return error


def first_rows(scan: LogScan, columns: Sequence[str]) -> LogSample:
    """Return these columns of the first episodes: as many whole ones as have at least :data:`SAMPLE_LEAST` rows.

    They are cut off after :data:`SAMPLE_MOST` rows.
    """
    cut, enough = scan.cut, int(np.searchsorted(np.cumsum(scan.sizes), SAMPLE_LEAST)) + 1
    chosen, batches, places, found = set(scan.keys[:enough]), list[Any](), list[tuple[Part, Counts]](), 0
    for part, start, episodes in scan.parts:
        if chosen.isdisjoint(episodes) or found >= SAMPLE_MOST:
            continue
        rows = 0
        for batch in part.read(tuple(dict.fromkeys([*cut.columns, *columns]))):
            keys = cut.keys(batch, start + rows)
            own = pc.is_in(keys, pa.array(list(chosen), keys.type))
            batches.append(batch.filter(own).select(list(columns)))
            places.append((part, np.flatnonzero(own.to_numpy(zero_copy_only=False)) + rows))
            rows += batch.num_rows
            found += len(places[-1][1])
            if found >= SAMPLE_MOST:
                break
    return LogSample(pa.Table.from_batches(batches).slice(0, SAMPLE_MOST), places)
