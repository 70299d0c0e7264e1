"""Arrow IPC files (Feather): record batches are the sections."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from spuir.logs.formats.base import FileSection, FileSurvey, Format, Request, opened, whole, whole_file
from spuir.tables.arrow import pa


@contextmanager
def _file(path: str) -> "Iterator[pa.RecordBatchFileReader]":
    with whole_file(path, "an Arrow"), pa.memory_map(path) as source, pa.ipc.open_file(source) as file:
        yield file


def survey(path: str, options: Mapping[str, Any]) -> FileSurvey:
    """Return the columns of a file and its record batches, whose rows are known without their data."""
    sections: list[FileSection] = []
    start = 0
    with _file(path) as file:
        size = whole(path).bytes // max(file.num_record_batches, 1)
        for number in range(file.num_record_batches):
            rows = file.get_batch(number).num_rows
            sections.append(FileSection(number, rows, size, start))
            start += rows
        return FileSurvey(file.schema, tuple(sections))


def read(path: str, request: Request) -> "Iterator[pa.RecordBatch]":
    """Yield one record batch in slices."""
    with _file(path) as file:
        batch = file.get_batch(request.section.number).select(list(request.columns))
        for start in range(0, batch.num_rows, request.batch_rows):
            yield batch.slice(start, request.batch_rows)


def write(batches: "Iterable[pa.RecordBatch]", path: str) -> None:
    """Write batches to a file, compressed with zstd."""
    first, rest = opened(batches)
    packing = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(path, first.schema, options=packing) as writer:
        for batch in rest:
            writer.write_batch(batch)


FORMAT = Format(
    name="arrow",
    summary="Arrow IPC files (Feather); record batches are read in parallel",
    endings=(".arrow", ".feather"),
    survey=survey,
    read=read,
    write=write,
)
