"""Logs whose episodes are scattered: their rows are first copied to disk, grouped by episode."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spuir.errors import InputError
from spuir.logs import Cut, Log, open_log
from spuir.logs.formats import Faults
from spuir.logs.formats.base import BATCH_ROWS
from spuir.tables.arrow import arrow
from spuir.training.collect import check_numbers, rows_by_key
from spuir.training.scan import LogScan, Watcher, with_source

MAX_FILES = 256
BUFFER_BYTES = 64 * 2**20
"""Bytes of rows that are sorted by episode at a time."""
MAX_SORT_BYTES = 2**30
"""Files up to this size are sorted; larger ones, of logs beyond 256 GiB, would take too much memory."""


def group_by_episode(
    log: Log, cut: Cut, scan: LogScan, columns: tuple[str, ...], folder: Path, watch: Watcher
) -> tuple[Log, Faults]:
    """Write the rows of a log to files of ``folder``, each for a range of episodes, and return the log of these files.

    The rows of one episode keep their order. Memory is bounded: rows are sorted by episode one buffer at a time, and
    then one file at a time. Also returns the broken rows that were left out.
    """
    pa = arrow()
    folder.mkdir(parents=True)
    numbers = {key: number for number, key in enumerate(scan.keys)}
    faults, rows, file_of = Faults(), 0, np.empty(0, np.int64)
    writers: dict[int, Any] = {}
    with ExitStack() as stack:
        for batches in _buffers(_checked(scan, columns, faults)):
            table, episodes = _sorted(pa.Table.from_batches(batches), cut, numbers)
            if not writers:
                count = min(MAX_FILES, 1 + table.nbytes * scan.rows // table.num_rows // BUFFER_BYTES)
                file_of = count * (np.cumsum(scan.sizes) - 1) // scan.rows
            files, starts = np.unique(file_of[episodes], return_index=True)
            for file, start, stop in zip(files, starts, [*starts[1:], len(episodes)], strict=True):
                if file not in writers:
                    path = os.fspath(folder / f"part-{file:04d}.arrow")
                    writers[file] = stack.enter_context(pa.ipc.new_file(path, table.schema))
                writers[file].write_table(table.slice(start, stop - start))
            rows += table.num_rows
            watch("group", rows, scan.rows)
    paths = sorted(folder.iterdir())
    for path in paths:
        if path.stat().st_size <= MAX_SORT_BYTES:
            with pa.OSFile(os.fspath(path)) as file, pa.ipc.open_file(file) as reader:
                table, _ = _sorted(reader.read_all(), cut, numbers)
            with pa.ipc.new_file(os.fspath(path), table.schema) as writer:
                writer.write_table(table, max_chunksize=BATCH_ROWS)
    return open_log([os.fspath(path) for path in paths], context=list(log.context)), faults


def _checked(scan: LogScan, columns: tuple[str, ...], faults: Faults) -> Iterator[Any]:
    """Yield every batch after a check of its numbers, while an error can still name the file of the user."""
    for part, _, _ in scan.parts:
        rows = 0
        for batch in part.read(columns, faults=faults):
            try:
                check_numbers(batch)
            except InputError as error:
                raise with_source(error, part, part.first_row + rows) from None
            rows += batch.num_rows
            if batch.num_rows:
                yield batch


def _buffers(batches: Iterator[Any]) -> Iterator[list[Any]]:
    """Yield as many batches at a time as fit into the buffer."""
    waiting: list[Any] = []
    for batch in batches:
        waiting.append(batch)
        if sum(batch.nbytes for batch in waiting) >= BUFFER_BYTES:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _sorted(table: Any, cut: Cut, numbers: Mapping[Any, int]) -> tuple[Any, NDArray[np.int64]]:
    """Return rows sorted by episode, in their order within each, and the number (n,) of the episode of each row."""
    whole = table.combine_chunks().to_batches()[0]
    episodes = np.empty(whole.num_rows, np.int64)
    for key, rows in rows_by_key(cut.keys(whole)):
        episodes[rows] = numbers[key]
    order = np.argsort(episodes, kind="stable")
    return arrow().Table.from_batches([whole.take(arrow().array(order))]), episodes[order]
