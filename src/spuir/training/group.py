"""Scattered episodes: workers sort their parts by episode on disk, and each range of episodes becomes a part."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spuir.logs import Cut, Log, Part
from spuir.logs.formats import Faults
from spuir.logs.formats.base import BATCH_ROWS, grouped
from spuir.logs.temporary import Folder, full_disk
from spuir.tables.arrow import pa
from spuir.tables.encoder import Encoder
from spuir.training.collect import check_rows
from spuir.training.engines.base import WorkEngine
from spuir.training.scan import LogScan, PartEpisode, ScannedPart, Watcher

SORT_BYTES = 16 * 2**20
"""Bytes of rows that a worker sorts at a time; a range of episodes has about as many."""
MAX_RANGES = 1_024
FRAGMENT_ROWS, MIN_FRAGMENTS = 400, 2_000
"""A few rows of an episode in a batch cost as much time as sorting this many rows; so few of them do not matter."""
NUMBER = "number of the episode"
"""The column by which rows are sorted."""

Starts = NDArray[np.int64]


class SortedPart(NamedTuple):
    """What a worker wrote: a file of sorted batches, and in each the first row of every range of episodes (b, r+1)."""

    path: str
    rows: int
    starts: Sequence[Starts]
    faults: Faults


@dataclass(frozen=True, kw_only=True, eq=False)
class SortPart:
    """The work on one part: sort its rows by episode, a buffer at a time, and write them to a file.

    ``keys`` are the keys of all episodes in order, and ``edges`` (r+1,) the numbers of the episodes that begin ranges.
    ``encoder`` and ``actions`` check rows while an error can name the file that they come from.
    """

    cut: Cut
    encoder: Encoder
    actions: Sequence[Any]
    columns: tuple[str, ...]
    keys: Sequence[Any]
    folder: str
    edges: Starts = field(default_factory=lambda: np.zeros(1, np.int64))

    def __call__(self, scanned: ScannedPart) -> SortedPart:
        """Read the part, check its rows, and write it sorted."""
        path = os.path.join(self.folder, f"{scanned.part.number:06d}.arrow")
        unfinished = f"{path}.{os.getpid()}"  # a worker that was taken for dead may still be writing
        numbers = {key: number for number, key in enumerate(self.keys)}
        faults, starts, rows, writer = Faults(), list[Starts](), 0, None
        with full_disk(self.folder):
            try:
                for batches in grouped(self._checked(scanned.part, faults), SORT_BYTES, lambda batch: batch.nbytes):
                    batch, episodes = self._sorted(batches, numbers)
                    writer = writer or pa.ipc.new_file(unfinished, batch.schema)
                    writer.write_batch(batch)
                    starts.append(np.searchsorted(episodes, self.edges))
                    rows += batch.num_rows
            finally:
                if writer is not None:
                    writer.close()
            if writer is not None:
                os.replace(unfinished, path)
        return SortedPart(path, rows, starts, faults)

    def _checked(self, part: Part, faults: Faults) -> Iterator[Any]:
        """Yield every batch after a check of its rows."""
        rows = 0
        for batch in part.read(self.columns, faults=faults):
            with part.locating(rows):
                check_rows(batch, self.actions)
                self.encoder.transform(batch)
            rows += batch.num_rows
            if batch.num_rows:
                yield batch

    def _sorted(self, batches: Sequence[Any], numbers: Mapping[Any, int]) -> tuple[Any, Starts]:
        """Return rows sorted by episode, in their order within each, and the number (n,) of the episode of each."""
        whole = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
        keys = self.cut.keys(whole).dictionary_encode()
        episodes = np.array([numbers[key] for key in keys.dictionary.to_pylist()])[keys.indices.to_numpy()]
        order = np.argsort(episodes, kind="stable")
        arrays = [*whole.take(pa.array(order)).columns, pa.array(episodes[order])]
        return pa.RecordBatch.from_arrays(arrays, [*whole.schema.names, NUMBER]), episodes[order]


class SortedRows(NamedTuple):
    """Rows of one range of episodes in one batch of a file of sorted rows."""

    path: str
    batch: int
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True)
class EpisodeRange(Part):
    """The rows of a range of episodes, from the files of all sorted parts.

    A range of a single episode is not sorted again, whatever its size. ``folder`` keeps the files.
    """

    runs: tuple[SortedRows, ...] = field(repr=False)
    single: bool
    folder: Folder | None = field(repr=False, compare=False)

    @property
    def first_row(self) -> int:
        """The number of its first row, for messages."""
        return 0

    def read(
        self, columns: Sequence[str] | None = None, *, batch_rows: int = BATCH_ROWS, faults: Faults | None = None
    ) -> Iterator[Any]:
        """Yield its rows, episode after episode."""
        names = [one.name for one in self.plan.select(columns)]
        pieces = self._pieces(names if self.single else [*names, NUMBER])
        if not self.single:
            table = pa.Table.from_batches(pieces)
            # Each run is sorted: a stable sort of the numbers merges them, and keeps the order within an episode.
            order = np.argsort(table[NUMBER].to_numpy(), kind="stable")
            pieces = table.select(names).combine_chunks().take(pa.array(order)).to_batches()
        for piece in pieces:
            for start in range(0, piece.num_rows, batch_rows):
                yield piece.slice(start, batch_rows)

    def _pieces(self, names: list[str]) -> Iterator[Any]:
        """Yield the rows of each run."""
        open_path, reader = "", None
        for run in self.runs:
            if run.path != open_path or reader is None:
                open_path, reader = run.path, pa.ipc.open_file(pa.memory_map(run.path))
            yield reader.get_batch(run.batch).select(names).slice(run.start, run.stop - run.start)


def group_by_episode(
    log: Log, scan: LogScan, sort: SortPart, folder: Folder, row_bytes: int, engine: WorkEngine, watch: Watcher
) -> tuple[LogScan, list[Faults]]:
    """Sort the rows of a log by episode in ``folder``; return the scan of the result, and each part's broken rows.

    Rows are written once and read once. The rows of one episode keep their order. ``row_bytes`` are those of a row as
    it is learned, which bounds a range.
    """
    edges = _ranges(scan, max(row_bytes, _row_bytes(log, sort.columns)))
    faults, runs, rows = list[Faults](), [list[SortedRows]() for _ in edges[1:]], 0
    for part in engine.map(replace(sort, edges=edges), scan.parts):
        for number, starts in enumerate(part.starts):
            for at in np.flatnonzero(np.diff(starts)):
                runs[at].append(SortedRows(part.path, number, int(starts[at]), int(starts[at + 1])))
        faults.append(part.faults)
        rows += part.rows
        watch("group", rows, scan.rows)
    return _scan_of(log, scan, edges, runs, folder), faults


def pays(scan: LogScan) -> bool:
    """Return whether sorting takes less time than collecting the episodes where they lie."""
    extra = scan.fragments - len(scan.keys)
    return extra > MIN_FRAGMENTS and extra * FRAGMENT_ROWS > scan.rows


def _ranges(scan: LogScan, row_bytes: int) -> Starts:
    """Return the numbers of the episodes that begin ranges of about ``SORT_BYTES``, and the number of episodes."""
    count = int(min(MAX_RANGES, 1 + scan.rows * row_bytes // SORT_BYTES))
    range_of = count * (np.cumsum(scan.sizes) - 1) // scan.rows
    return np.append(np.unique(range_of, return_index=True)[1], len(scan.keys))


def _row_bytes(log: Log, columns: tuple[str, ...]) -> int:
    """Return about how many bytes a row takes; a text as much as two numbers."""
    kinds = [log.schema.field(name).type for name in columns]
    return sum(-(-kind.bit_width // 8) if pa.types.is_primitive(kind) else 16 for kind in kinds)


def _scan_of(log: Log, scan: LogScan, edges: Starts, runs: list[list[SortedRows]], folder: Folder) -> LogScan:
    """Return the scan of the grouped log, in which every episode lies in one part."""
    parts, start = list[ScannedPart](), 0
    place = np.repeat(np.arange(len(runs)), np.diff(edges))
    for number, (first, stop) in enumerate(pairwise(edges.tolist())):
        sizes = scan.sizes[first:stop].tolist()
        part = EpisodeRange(
            number=number,
            source="the rows grouped by episode",
            rows=sum(sizes),
            bytes=0,
            plan=log.plan,
            runs=tuple(runs[number]),
            single=stop - first == 1,
            folder=folder,
        )
        here = {
            scan.keys[at]: PartEpisode(at, size, size, 0, at)
            for at, size in zip(range(first, stop), sizes, strict=True)
        }
        parts.append(ScannedPart(part, start, here))
        start += sum(sizes)
    return replace(scan, parts=parts, first=place, last=place)
