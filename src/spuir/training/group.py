"""Logs whose episodes are scattered: their rows are first copied to disk, grouped by episode."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from spuir.errors import InputError
from spuir.logs import Cut, Log, open_log
from spuir.logs.formats import Faults
from spuir.tables.arrow import arrow
from spuir.training.collect import check_numbers, rows_by_key
from spuir.training.scan import LogScan, Watcher, with_source

MAX_FILES = 64
BUFFER_BYTES = 64 * 2**20
"""Bytes of rows that are sorted by episode at a time."""


def group_by_episode(
    log: Log, cut: Cut, scan: LogScan, columns: tuple[str, ...], folder: Path, watch: Watcher
) -> tuple[Log, Faults]:
    """Write the rows of a log to files of ``folder``, each for a range of episodes, and return the log of these files.

    The rows of one episode keep their order. Memory is bounded: rows are sorted and written one buffer at a time.
    Also returns the broken rows that were left out.
    """
    pa = arrow()
    file_of = MAX_FILES * (np.cumsum(scan.sizes) - 1) // scan.rows
    folder.mkdir(parents=True)
    packing = pa.ipc.IpcWriteOptions(compression="lz4")
    faults, rows = Faults(), 0
    writers: dict[int, Any] = {}
    with ExitStack() as stack:
        for batches, episodes in _buffers(_numbered(scan, cut, columns, faults)):
            order = np.argsort(episodes, kind="stable")
            table = pa.Table.from_batches(batches).combine_chunks().take(pa.array(order))
            files, starts = np.unique(file_of[episodes[order]], return_index=True)
            for file, start, stop in zip(files, starts, [*starts[1:], len(order)], strict=True):
                if file not in writers:
                    path = os.fspath(folder / f"part-{file:04d}.arrow")
                    writers[file] = stack.enter_context(pa.ipc.new_file(path, table.schema, options=packing))
                writers[file].write_table(table.slice(start, stop - start))
            rows += len(order)
            watch("group", rows, scan.rows)
    return open_log(sorted(os.fspath(path) for path in folder.iterdir()), context=list(log.context)), faults


def _numbered(scan: LogScan, cut: Cut, columns: tuple[str, ...], faults: Faults) -> Iterator[tuple[Any, Any]]:
    """Yield every batch with the numbers (n,) of the episodes of its rows.

    Numbers are checked here, where an error can name the file of the user.
    """
    for part, _, episodes in scan.parts:
        first = part.first_row
        for batch in part.read(columns, faults=faults):
            try:
                check_numbers(batch)
            except InputError as error:
                raise with_source(error, part, first) from None
            first += batch.num_rows
            numbers = np.empty(batch.num_rows, np.int64)
            for key, rows in rows_by_key(cut.keys(batch)):
                numbers[rows] = episodes[key].number
            yield batch, numbers


def _buffers(batches: Iterator[tuple[Any, Any]]) -> Iterator[tuple[list[Any], Any]]:
    """Yield as many batches at a time as fit into the buffer, with their numbers (n,)."""
    waiting: list[Any] = []
    numbers: list[Any] = []
    for batch, episodes in batches:
        waiting.append(batch)
        numbers.append(episodes)
        if sum(batch.nbytes for batch in waiting) >= BUFFER_BYTES:
            yield waiting, np.concatenate(numbers)
            waiting, numbers = [], []
    if waiting:
        yield waiting, np.concatenate(numbers)
