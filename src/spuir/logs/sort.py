"""DuckDB sorts tables that are larger than memory: what does not fit goes to a temporary folder."""

import os
import shutil
from collections.abc import Iterable, Iterator
from typing import Any

from spuir.base.processors import cores
from spuir.errors import InputError
from spuir.tables.arrow import OptionalModule, pa

duckdb: Any = OptionalModule("duckdb", "DuckDB sorts the tables of a join")
MIN_MEMORY = 64 << 20
THREAD_MEMORY = 32 << 20
"""Bytes that DuckDB needs to sort a table that does not fit into memory: in all, and per thread."""
RESULT_ROWS = 131_072
"""Rows of a batch of a result."""


def sort_rows(
    schema: "pa.Schema", batches: "Iterable[pa.RecordBatch]", by: str, folder: str, memory: int
) -> "Iterator[pa.RecordBatch]":
    """Yield the rows of some batches, sorted by the columns ``by``, which must tell every two rows apart.

    DuckDB uses about ``memory`` bytes, and writes what does not fit to ``folder``. It reads all batches before the
    first row is returned.
    """
    scratch = os.path.join(folder, "duckdb")
    allowed = max(memory, MIN_MEMORY)
    settings = {
        "memory_limit": f"{allowed}B",
        "threads": min(cores(), max(allowed // THREAD_MEMORY, 1)),
        "temp_directory": scratch,
        "preserve_insertion_order": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    failures: list[BaseException] = []
    try:
        with duckdb.connect(config=settings) as connection:
            connection.register("unsorted", pa.RecordBatchReader.from_batches(schema, _watched(batches, failures)))
            yield from connection.sql(f"SELECT * FROM unsorted ORDER BY {by}").to_arrow_reader(RESULT_ROWS)
    except (duckdb.Error, pa.ArrowException) as error:
        if failures:
            raise failures[0] from None
        rule = "DuckDB sorts in the given memory and a temporary folder"
        remedy = "free disk space, name another folder, or allow more memory"
        raise InputError("sort", str(error).splitlines()[0], rule, remedy) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _watched(batches: "Iterable[pa.RecordBatch]", failures: list[BaseException]) -> "Iterator[pa.RecordBatch]":
    """Keep an error of the reader, because DuckDB would pass on its message only."""
    try:
        yield from batches
    except (Exception, KeyboardInterrupt) as failure:
        failures.append(failure)
        raise
