"""DuckDB sorts tables that are larger than memory: what does not fit goes to a temporary folder."""

import fcntl
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from spuir.errors import InputError, SpuirError
from spuir.tables.arrow import OptionalModule, pa

duckdb: Any = OptionalModule("duckdb", "DuckDB sorts the tables of a join")

MIN_MEMORY = 64 << 20
THREAD_MEMORY = 32 << 20
"""Bytes that DuckDB needs to sort a table that does not fit into memory: in all, and per thread."""
RESULT_ROWS = 131_072
"""Rows of a batch of a result."""
PREFIX = "spuir-scratch-"
"""How the names of temporary folders begin."""
SETTLED_SECONDS = 60
"""A younger folder may not be locked yet by the process that made it."""


class Folder:
    """A temporary folder that is removed with this object; one that a killed process left is removed by the next."""

    def __init__(self, within: str | os.PathLike[str] | None = None) -> None:
        place = os.path.abspath(tempfile.gettempdir() if within is None else within)
        try:
            _remove_stale(place)
            self.path = tempfile.mkdtemp(prefix=PREFIX, dir=place)
            lock = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            got, rule = error.strerror or str(error), "the folder for temporary files must be writable"
            raise InputError(f"folder {str(within or place)!r}", got, rule, "name another (--scratch)") from error
        with suppress(OSError):  # a file system without locks: nobody can lock it, and so nobody removes it
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        self.remove = weakref.finalize(self, _remove, self.path, lock)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Become None in another process, which finds the files as long as the folder lives here."""
        return type(None), ()


def _remove(path: str, lock: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    os.close(lock)


def _remove_stale(place: str) -> None:
    """Remove the folders of processes that are gone: the lock of a folder ends with its process."""
    for entry in os.scandir(place):
        if not entry.name.startswith(PREFIX):
            continue
        with suppress(OSError):
            if time.time() - entry.stat().st_mtime > SETTLED_SECONDS:
                lock = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(entry.path, ignore_errors=True)
                finally:
                    os.close(lock)


@contextmanager
def full_disk(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Turn a failure to write temporary files, such as a full disk, into one sentence."""
    try:
        yield
    except OSError as error:
        if isinstance(error, SpuirError):
            raise
        got, rule = error.strerror or str(error), "temporary files must be written there"
        remedy = "free some space, or name another folder (--scratch)"
        raise InputError(f"folder {os.fspath(folder)!r}", got, rule, remedy) from error


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
        "threads": min(os.cpu_count() or 1, max(allowed // THREAD_MEMORY, 1)),
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
    """Keep an error of the reader, of which DuckDB would pass on only the message."""
    try:
        yield from batches
    except (Exception, KeyboardInterrupt) as failure:
        failures.append(failure)
        raise
