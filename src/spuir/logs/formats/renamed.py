"""Files of a general format whose columns have other names: read by that format, called canonically."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from spuir.logs.formats.base import FileSurvey, Request
from spuir.tables.arrow import arrow

if TYPE_CHECKING:
    import pyarrow as pa


def canonical(seen: FileSurvey, names: Mapping[str, str], left_out: tuple[str, ...] = ()) -> FileSurvey:
    """Return a survey with canonical names; ``left_out`` columns have no place in the log."""
    pa = arrow()
    fields = [one.with_name(names.get(one.name, one.name)) for one in seen.schema if one.name not in left_out]
    return replace(seen, schema=pa.schema(fields))


def read_as(
    read: "Callable[[str, Request], Iterator[pa.RecordBatch]]", path: str, request: Request, names: Mapping[str, str]
) -> "Iterator[pa.RecordBatch]":
    """Yield what a general format reads, under canonical names; ``names`` gives these for the file's own."""
    pa = arrow()
    own = {new: old for old, new in names.items()}
    schema = pa.schema([one.with_name(own.get(one.name, one.name)) for one in request.schema])
    columns = tuple(own.get(name, name) for name in request.columns)
    for batch in read(path, replace(request, schema=schema, columns=columns)):
        yield batch.rename_columns([names.get(name, name) for name in batch.schema.names])
