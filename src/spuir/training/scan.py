"""Which episodes each part of a log holds, and in which order they can be learnt."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spuir.errors import InputError, SpuirError
from spuir.logs import Cut, Log, Part
from spuir.training.engines.base import Engine

Counts = NDArray[np.int64]
Watcher = Callable[[str, int, int], object]


class Place(NamedTuple):
    """The rows of one episode in a part: the episode's number, its rows in earlier parts and in all parts."""

    episode: int
    before: int
    size: int


class Scan(NamedTuple):
    """What a first look at a part found: its rows, the episode keys in it with their counts, its action labels."""

    rows: int
    keys: list[Any]
    counts: list[int]
    labels: list[Any]


@dataclass(frozen=True, kw_only=True)
class Look:
    """The first look: reads the columns that say which episode and which action a row has, and no others."""

    cut: Cut
    labels: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return (*self.cut.columns, *(("action",) if self.labels else ()))

    def __call__(self, part: Part) -> Scan:
        """Scan one part."""
        if not self.columns and part.rows is not None:
            return Scan(part.rows, [], [], [])
        rows, found, labels = 0, dict[Any, int](), dict[Any, None]()
        for batch in part.read(self.columns or ("action",)):
            try:
                if self.cut.columns:
                    for entry in self.cut.keys(batch, 0).value_counts().to_pylist():
                        found[entry["values"]] = found.get(entry["values"], 0) + entry["counts"]
                if self.labels:
                    labels |= dict.fromkeys(_labels(batch.column("action")))
            except InputError as refusal:
                raise located(refusal, part, part.first_row + rows) from None
            rows += batch.num_rows
        return Scan(rows, list(found), list(found.values()), list(labels))


def _labels(column: Any) -> list[Any]:
    """Return the different labels of a column of actions; an empty one is refused."""
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise InputError("action", f"nothing at row {row}", "every decision has an action", "fill or drop that row")
    return column.unique().to_pylist()


def located(refusal: SpuirError, part: Part, first: int) -> SpuirError:
    """Return a refusal of a batch that begins with row ``first`` of its source, with the source and the row there."""
    got = re.sub(r"\bat row (\d+)", lambda found: f"at row {first + int(found[1])}", refusal.got)
    return type(refusal)(f"{refusal.subject} in {part.source}", got, refusal.rule, refusal.remedy)


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """The parts of a log and the episodes in them.

    ``keys`` the episodes' keys in order and ``sizes`` their rows; ``starts`` rows of the log before each part;
    ``places`` the episodes of each part by key; ``first`` and ``last`` the part in which each episode begins and
    ends; ``labels`` the actions seen, in order.
    """

    parts: Sequence[Part]
    keys: Sequence[Any]
    sizes: Counts
    starts: Sequence[int]
    places: Sequence[dict[Any, Place]]
    first: Counts
    last: Counts
    labels: Sequence[Any]

    @property
    def rows(self) -> int:
        """Rows of the log."""
        return int(self.sizes.sum())

    @property
    def window(self) -> int:
        """The most episodes that are begun and not learnt at once, when each is learnt as soon as it can be."""
        parts = np.arange(len(self.parts))
        begun = np.searchsorted(np.sort(self.first), parts, side="right")
        learnt = np.searchsorted(np.maximum.accumulate(self.last), parts, side="right")
        return int((begun - np.concatenate([[0], learnt[:-1]])).max(initial=0))


def lay_out(log: Log, cut: Cut, engine: Engine, watch: Watcher, *, labels: bool) -> Layout:
    """Look at every part once, on the engine, and return the layout."""
    scans, rows = list[Scan](), 0
    for scan in engine.map(Look(cut=cut, labels=labels), log.parts):
        scans.append(scan)
        rows += scan.rows
        watch("look", rows, rows if log.rows is None else log.rows)
    if not any(scan.rows for scan in scans):
        raise InputError("log", "no rows", "training needs at least one decision", "check the path and the files")
    starts = np.concatenate([[0], np.cumsum([scan.rows for scan in scans])]).tolist()
    if cut.kind == "size":
        scans = [_cut_by_size(scan, start, cut.amount) for scan, start in zip(scans, starts, strict=False)]
    keys = sorted({key for scan in scans for key in scan.keys})
    numbers = {key: number for number, key in enumerate(keys)}
    sizes, first, last = (np.zeros(len(keys), np.int64) for _ in range(3))
    first[:] = len(scans)
    before: list[dict[Any, int]] = []
    for at, scan in enumerate(scans):
        before.append({key: int(sizes[numbers[key]]) for key in scan.keys})
        for key, count in zip(scan.keys, scan.counts, strict=True):
            number = numbers[key]
            sizes[number] += count
            first[number], last[number] = min(first[number], at), at
    places = [
        {key: Place(numbers[key], rows, int(sizes[numbers[key]])) for key, rows in here.items()} for here in before
    ]
    seen = sorted({label for scan in scans for label in scan.labels})
    return Layout(
        parts=log.parts,
        keys=keys,
        sizes=sizes,
        starts=starts[:-1],
        places=places,
        first=first,
        last=last,
        labels=seen,
    )


def _cut_by_size(scan: Scan, start: int, size: int) -> Scan:
    """Return the scan with the episodes that a cut every ``size`` rows of the log makes of its rows."""
    stop = start + scan.rows
    keys = list(range(start // size, -(-stop // size)))
    counts = [min((key + 1) * size, stop) - max(key * size, start) for key in keys]
    return scan._replace(keys=keys, counts=counts)


def runs(keys: Any) -> Iterator[tuple[Any, slice | NDArray[np.intp]]]:
    """Yield each episode key of a batch with its rows: a slice each where keys come in runs, else row numbers."""
    encoded = keys.dictionary_encode()
    codes, names = encoded.indices.to_numpy(), encoded.dictionary.to_pylist()
    edges = np.flatnonzero(np.diff(codes)) + 1
    if len(edges) + 1 == len(names):
        bounds = np.concatenate([[0], edges, [len(codes)]])
        for name, start, stop in zip(names, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            yield name, slice(start, stop)
    else:
        order = np.argsort(codes, kind="stable")
        for name, rows in zip(names, np.split(order, np.cumsum(np.bincount(codes))[:-1]), strict=True):
            yield name, rows
