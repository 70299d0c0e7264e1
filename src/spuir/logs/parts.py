"""Parts of a log: small records that can be sent to a worker, and that read themselves there in bounded memory."""

import os
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spuir.base.records import Mask
from spuir.errors import InputError, SpuirError
from spuir.logs.column_kinds import COLUMN_KINDS, CellError
from spuir.logs.column_plan import ColumnPlan, PlannedColumn
from spuir.logs.formats import FORMATS, Faults, FileSection, Format, Request
from spuir.logs.formats.base import BATCH_ROWS
from spuir.tables.arrow import pa

Stamp = tuple[int, int]
Bytes = bytes
"""The type, where a field of that name hides it."""


@dataclass(frozen=True, kw_only=True)
class Part(ABC):
    """A part of a log that can be read alone.

    Parameters
    ----------
    number
        Its place in the log.
    source
        What messages call the place it comes from: a path, or "table".
    rows, bytes
        Its rows, None if it is known only after reading, and its size where it is stored.
    """

    number: int
    source: str
    rows: int | None
    bytes: int
    plan: ColumnPlan = field(repr=False)

    @property
    @abstractmethod
    def first_row(self) -> int:
        """The number of its first row in its source, from 0. It may have to be counted: ask for it in messages only."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that it is read from."""
        return ()

    def read(
        self, columns: Sequence[str] | None = None, *, batch_rows: int = BATCH_ROWS, faults: Faults | None = None
    ) -> "Iterator[pa.RecordBatch]":
        """Yield its rows as record batches in canonical names and types, in order and in bounded memory.

        Parameters
        ----------
        columns
            Names of the wanted columns, in the wanted order; None = all that the log has.
        batch_rows
            Rows of a batch, about.
        faults
            Takes the broken rows that a reader of a lenient format skips.
        """
        wanted = self.plan.select(columns)
        names = [one.name for one in wanted]
        start = 0
        for raw in self._raw(wanted, batch_rows, Faults() if faults is None else faults):
            arrays = [self._column(one, raw, start) for one in wanted]
            start += raw.num_rows
            if arrays:
                yield pa.RecordBatch.from_arrays(arrays, names)
            else:
                # A batch without columns still has its number of rows, in the only way that Arrow has for it.
                yield raw.select([])

    def _raw(self, wanted: tuple[PlannedColumn, ...], batch_rows: int, faults: Faults) -> "Iterator[pa.RecordBatch]":
        """Yield batches with at least the wanted columns of the source, named as there."""
        raise NotImplementedError

    def _column(self, one: PlannedColumn, raw: "pa.RecordBatch", start: int) -> "pa.Array":
        if one.raw not in raw.schema.names:
            return pa.nulls(raw.num_rows, one.type)
        try:
            return self.plan.convert(one, raw[one.raw])
        except CellError as misfit:
            kind = COLUMN_KINDS["context" if one.raw in self.plan.casts else one.kind]
            subject = f"{self.source}, {self._place(start + misfit.row)}, column {one.raw!r}"
            rule = f"{one.name!r} holds {kind.clause}" if kind.clause != "anything" else f"it is read as {one.type}"
            raise InputError(subject, misfit.got, rule, kind.remedy.replace("NAME", shlex.quote(one.raw))) from None

    def _place(self, row: int) -> str:
        """Return what messages call a row of this part."""
        return f"row {self.source_row(row)}"

    def source_row(self, row: int) -> int:
        """Return the number in its source of one of its rows; as with the first row, ask for it in messages only."""
        return self.first_row + row

    @contextmanager
    def locating(self, first: int) -> Iterator[None]:
        """Name the source and the row there in an error about a batch that begins with row ``first`` of this part."""
        try:
            yield
        except SpuirError as error:
            raise self.located(error, first) from None

    def located(self, error: SpuirError, first: int) -> SpuirError:
        """Return an error about a batch that begins with row ``first``, with its source and the row there."""
        got = re.sub(r"\bat row (\d+)", lambda found: f"at row {self.source_row(first + int(found[1]))}", error.got)
        return type(error)(f"{error.subject} in {self.source}", got, error.rule, error.remedy)

    def identity(self) -> Iterator[Bytes]:
        """Yield bytes that differ when the part does."""
        yield repr((self.number, self.source, self.rows, self.bytes, self.plan.fields)).encode()


@dataclass(frozen=True, kw_only=True)
class DerivedPart(Part):
    """A part that is made from some rows of another one, ``base``."""

    base: Part

    @property
    def first_row(self) -> int:
        """The number of its first row in its source."""
        return self.source_row(0)

    def source_row(self, row: int) -> int:
        """Return the number in its source of one of its rows, which takes reading the rows before it."""
        before = 0
        for batch, own in self._chosen(("action",), BATCH_ROWS, None):
            here = np.flatnonzero(own)
            if row < len(here):
                return self.base.source_row(before + int(here[row]))
            row, before = row - len(here), before + batch.num_rows
        raise IndexError(row)

    def read(
        self, columns: Sequence[str] | None = None, *, batch_rows: int = BATCH_ROWS, faults: Faults | None = None
    ) -> "Iterator[pa.RecordBatch]":
        """Yield its rows."""
        for batch, own in self._chosen(columns, batch_rows, faults):
            if own.any():
                yield batch if own.all() else batch.filter(pa.array(own))

    @abstractmethod
    def _chosen(
        self, columns: Sequence[str] | None, batch_rows: int, faults: Faults | None
    ) -> "Iterator[tuple[pa.RecordBatch, Mask]]":
        """Yield the batches of the other part, with these columns, and which of their rows (n,) are in this one."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The files of the other part."""
        return self.base.paths


def stamp_of(path: str) -> Stamp:
    """Return the time of a file's last change and its size, which together show whether it has changed."""
    found = os.stat(path)
    return found.st_mtime_ns, found.st_size


@dataclass(frozen=True, kw_only=True)
class FilePart(Part):
    """A section of a file: a row group, a record batch, some lines, or all of a file that is read from its beginning.

    ``schema`` has this file's columns as it names them, with the types to read them as; ``constants`` are columns
    that the names of its folders give (``day=2024-05-01``).
    """

    path: str
    format: str
    section: FileSection
    schema: "pa.Schema" = field(repr=False)
    stamp: Stamp
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    def __post_init__(self) -> None:
        """Make the path absolute: a worker may have been started in another folder."""
        object.__setattr__(self, "path", os.path.abspath(self.path))

    @property
    def paths(self) -> tuple[str, ...]:
        """Its file."""
        return (self.path,)

    def _raw(self, wanted: tuple[PlannedColumn, ...], batch_rows: int, faults: Faults) -> "Iterator[pa.RecordBatch]":
        format: Format = FORMATS.get(self.format)
        # Which rows are broken must not depend on the columns asked for, since rows are counted and joined by place.
        asked = self.plan.fields if format.lenient else wanted
        here = list(dict.fromkeys(one.raw for one in asked if one.raw in self.schema.names))
        # A format cannot be asked for no columns at all, since only a column tells how many rows there are.
        columns = tuple(here or self.schema.names[:1])
        self._check_unchanged()
        request = Request(
            schema=self.schema,
            columns=columns,
            section=self.section,
            batch_rows=batch_rows,
            options=self.options,
            faults=faults,
        )
        constants = [(one.raw, self.constants[one.raw]) for one in wanted if one.raw in self.constants]
        for batch in format.read(self.path, request) if format.read else ():
            arrays, names = list(batch.columns), list(batch.schema.names)
            for name, value in constants:
                arrays.append(pa.repeat(pa.scalar(value), batch.num_rows))
                names.append(name)
            yield pa.RecordBatch.from_arrays(arrays, names) if constants else batch

    def _check_unchanged(self) -> None:
        try:
            now = stamp_of(self.path)
        except OSError:
            now = None
        if now != self.stamp:
            got = "another file" if now else "no file"
            rule = "a log stays as it was when it was opened"
            raise InputError(self.source, got, rule, "open the log again")

    def _place(self, row: int) -> str:
        locate = FORMATS.get(self.format).locate
        return locate(self.path, self.section, row) if locate else super()._place(row)

    @property
    def first_row(self) -> int:
        """The number of its first row within the file; for a later section of text, the rows before it are counted."""
        if self.section.first_row is not None:
            return self.section.first_row
        before = FileSection(0, None, self.section.start)
        request = Request(schema=self.schema, columns=(self.schema.names[0],), section=before, options=self.options)
        format: Format = FORMATS.get(self.format)
        return sum(batch.num_rows for batch in format.read(self.path, request)) if format.read else 0

    def identity(self) -> Iterator[Bytes]:
        """Yield bytes that differ when the file has changed."""
        yield from super().identity()
        yield repr((self.path, self.section, self.stamp)).encode()


@dataclass(frozen=True, kw_only=True)
class TablePart(Part):
    """Rows of a table in memory, from row ``start`` on."""

    start: int
    table: "pa.Table" = field(repr=False)

    @property
    def first_row(self) -> int:
        """The number of its first row within the table."""
        return self.start

    def _raw(self, wanted: tuple[PlannedColumn, ...], batch_rows: int, faults: Faults) -> "Iterator[pa.RecordBatch]":
        here = list(dict.fromkeys(one.raw for one in wanted))
        yield from self.table.select(here).to_batches(max_chunksize=batch_rows)

    def __getstate__(self) -> dict[str, Any]:
        """Send its own rows only; a slice would take along the whole table that it was cut from."""
        return self.__dict__ | {"table": packed(self.table)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpack the rows."""
        vars(self).update(state | {"table": pa.ipc.open_stream(state["table"]).read_all()})

    def identity(self) -> Iterator[Bytes]:
        """Yield bytes that differ when the rows do."""
        yield from super().identity()
        yield packed(self.table)


def packed(table: "pa.Table") -> bytes:
    """Return a table as an Arrow stream, without the rows around a slice."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
