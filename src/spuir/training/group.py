"""Logs whose episodes lie scattered: rows are first written to disk again, grouped by episode."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from spuir.errors import InputError
from spuir.logs import Cut, Log, open_log
from spuir.logs.formats import Faults
from spuir.tables.arrow import arrow
from spuir.training.collect import check_numbers
from spuir.training.scan import Layout, Place, Watcher, located, runs

BUCKETS = 64
"""Files that the rows are spread over, each for a range of episodes."""
BUFFER_BYTES = 128 * 2**20
"""Rows are written out when so many bytes wait."""


def partition(
    log: Log, cut: Cut, layout: Layout, columns: tuple[str, ...], folder: Path, watch: Watcher, faults: Faults
) -> Log:
    """Write the rows of ``log`` into files of ``folder``, one for each range of episodes, and return the log of these.

    Rows of one episode keep their order. Memory is bounded: rows wait in buffers that are written out when full.
    ``faults`` takes the broken rows that are left out.
    """
    pa = arrow()
    from pyarrow import parquet

    bucket_of = np.minimum(BUCKETS * (np.cumsum(layout.sizes) - 1) // layout.rows, BUCKETS - 1)
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob("part-*.parquet"):
        left.unlink()  # of a run that was killed
    waiting: dict[int, list[Any]] = {}
    writers: dict[int, Any] = {}
    held = rows = 0

    def flush() -> None:
        for bucket, batches in sorted(waiting.items()):
            table = pa.Table.from_batches(batches)
            if bucket not in writers:
                path = folder / f"part-{bucket:04d}.parquet"
                writers[bucket] = parquet.ParquetWriter(path, table.schema, compression="lz4")
            writers[bucket].write_table(table)
        waiting.clear()

    try:
        for batch, places in _checked(layout, columns, faults):
            for key, chosen in runs(cut.keys(batch, 0)):
                bucket = int(bucket_of[places[key].episode])
                waiting.setdefault(bucket, []).append(_rows(batch, chosen))
            held += batch.nbytes
            rows += batch.num_rows
            watch("group", rows, layout.rows)
            if held > BUFFER_BYTES:
                flush()
                held = 0
        flush()
    finally:
        for writer in writers.values():
            writer.close()
    return open_log(sorted(os.fspath(path) for path in folder.glob("part-*.parquet")), context=list(log.context))


def _checked(layout: Layout, columns: tuple[str, ...], faults: Faults) -> Iterator[tuple[Any, Mapping[Any, Place]]]:
    """Yield every batch with the episodes of its part; later a bad row would be in a file that no user knows."""
    for part, places in zip(layout.parts, layout.places, strict=True):
        first = part.first_row
        for batch in part.read(columns, faults=faults):
            try:
                check_numbers(batch)
            except InputError as refusal:
                raise located(refusal, part, first) from None
            first += batch.num_rows
            yield batch, places


def _rows(batch: Any, chosen: Any) -> Any:
    """Return the chosen rows of a batch."""
    if isinstance(chosen, slice):
        return batch.slice(chosen.start, chosen.stop - chosen.start)
    return batch.take(arrow().array(chosen))
