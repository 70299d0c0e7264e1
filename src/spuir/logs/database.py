"""DuckDB sorts tables that are larger than memory: what does not fit goes to a temporary folder."""

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Self

from spuir.errors import InputError, MissingExtraError
from spuir.tables.arrow import arrow

if TYPE_CHECKING:
    import pyarrow as pa

MIN_MEMORY = 64 << 20
THREAD_MEMORY = 32 << 20
"""Bytes that DuckDB needs to sort a table that does not fit into memory: in all, and per thread."""
RESULT_ROWS = 131_072
"""Rows of a batch of a result."""


def duckdb() -> ModuleType:
    """Return duckdb, or say how to get it."""
    try:
        import duckdb
    except ImportError:
        rule, remedy = "DuckDB sorts the tables of a join", 'run pip install "spuir[data]"'
        raise MissingExtraError("join", "no duckdb", rule, remedy) from None
    return duckdb


class Folder:
    """A temporary folder that is removed with this object."""

    def __init__(self, within: str | os.PathLike[str] | None = None) -> None:
        try:
            self.path = tempfile.mkdtemp(prefix="spuir-", dir=within)
        except OSError as error:
            got, rule = error.strerror or str(error), "the folder for temporary files must be writable"
            raise InputError(f"folder {str(within)!r}", got, rule, "name another") from error
        self.remove = weakref.finalize(self, shutil.rmtree, self.path, True)


class Database:
    """A DuckDB database that lasts as long as a ``with`` block.

    It uses about ``memory`` bytes, and writes what is more to ``folder``. Every query must say the order of its
    result: without one, DuckDB returns rows in an order that depends on its threads.
    """

    def __init__(self, folder: str, memory: int) -> None:
        self._folder = os.path.join(folder, "duckdb")
        allowed = max(memory, MIN_MEMORY)
        self._connection = duckdb().connect(
            config={
                "memory_limit": f"{allowed}B",
                "threads": min(os.cpu_count() or 1, allowed // THREAD_MEMORY),
                "temp_directory": self._folder,
                "preserve_insertion_order": "false",
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
            }
        )
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        """Close the database and remove its files."""
        self._connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, name: str, schema: "pa.Schema", batches: "Iterable[pa.RecordBatch]") -> None:
        """Offer batches as a table that one query can read once."""
        reader = arrow().RecordBatchReader.from_batches(schema, self._noting_failures(batches))
        self._connection.register(name, reader)

    def run(self, query: str) -> None:
        """Run a query without a result."""
        with self._plain_errors():
            self._connection.execute(query)

    def stream(self, query: str) -> "Iterator[pa.RecordBatch]":
        """Yield the result of a query in batches."""
        with self._plain_errors():
            yield from self._connection.sql(query).to_arrow_reader(RESULT_ROWS)

    def _noting_failures(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """Keep an error of a reader, of which DuckDB would only hand on the message."""
        try:
            yield from batches
        except BaseException as failure:
            self._failure = failure
            raise

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        """Raise an error of a reader as it was, and one of DuckDB as one of ours."""
        try:
            yield
        except (duckdb().Error, arrow().ArrowException) as error:
            if self._failure is not None:
                raise self._failure from None
            rule = "DuckDB sorts in the given memory and a temporary folder"
            remedy = "free disk space, name another folder, or allow more memory"
            raise InputError("join", str(error).splitlines()[0], rule, remedy) from None
