"""Parquet: row groups are the sections, and the footer knows their rows."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from spuir.logs.formats.base import FileSection, FileSurvey, Format, Request, grouped, opened, whole_file
from spuir.tables.arrow import pa

if TYPE_CHECKING:
    import pyarrow.parquet as pq

GROUP_ROWS = 1 << 17
"""Least rows of a row group; the last one may have fewer."""
_BUFFER = 1 << 20
"""Bytes read ahead of each column, so that a row group of any size is read in bounded memory."""


@lru_cache(maxsize=8)
def _footer(path: str, stamp: tuple[int, int]) -> "pq.FileMetaData":
    """Return a file's footer, kept for its other row groups as long as the file is the same."""
    import pyarrow.parquet as pq

    return pq.read_metadata(path)


@contextmanager
def _file(path: str) -> "Iterator[pq.ParquetFile]":
    import pyarrow.parquet as pq

    with whole_file(path, "a Parquet"):
        found = os.stat(path)
        with pq.ParquetFile(
            path, metadata=_footer(path, (found.st_mtime_ns, found.st_size)), buffer_size=_BUFFER, pre_buffer=False
        ) as file:
            yield file


def survey(path: str, options: Mapping[str, Any]) -> FileSurvey:
    """Return the columns of a file and its row groups."""
    with _file(path) as file:
        sections: list[FileSection] = []
        start = 0
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            size = sum(group.column(at).total_compressed_size for at in range(group.num_columns))
            sections.append(FileSection(number, group.num_rows, size, start))
            start += group.num_rows
        return FileSurvey(file.schema_arrow, tuple(sections))


def read(path: str, request: Request) -> "Iterator[pa.RecordBatch]":
    """Yield the batches of one row group."""
    with _file(path) as file:
        yield from file.iter_batches(
            request.batch_rows, row_groups=[request.section.number], columns=list(request.columns), use_threads=False
        )


def write(batches: "Iterable[pa.RecordBatch]", path: str) -> None:
    """Write batches to a file, many to a row group, compressed with zstd."""
    import pyarrow.parquet as pq

    first, rest = opened(batches)
    with pq.ParquetWriter(path, first.schema, compression="zstd") as writer:
        for group in grouped(rest, GROUP_ROWS):
            writer.write_table(pa.Table.from_batches(group))


FORMAT = Format(
    name="parquet",
    summary="Parquet, one file or many; row groups are read in parallel",
    endings=(".parquet", ".pq"),
    survey=survey,
    read=read,
    write=write,
)
