"""A log: rows of decisions in canonical columns, in parts that can be read alone."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from spuir.base.hashing import digest
from spuir.logs.action_table import ActionTable
from spuir.logs.column_plan import ColumnPlan
from spuir.logs.columns import is_action_column
from spuir.logs.parts import Part, packed
from spuir.tables.arrow import arrow

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Log:
    """Rows of decisions in canonical columns; made by :func:`spuir.logs.open_log`.

    Parameters
    ----------
    parts
        Its parts in order, each of which can be sent to a worker and read alone.
    plan
        How the columns of the source become those of the log.
    context
        Names of the context columns, in order.
    format
        The registered name of its format, "table" for one in memory.
    notices
        What was noticed while opening, in sentences for the user.
    catalogue
        The actions with their features; None where nothing describes them.
    """

    parts: tuple[Part, ...] = field(repr=False)
    plan: ColumnPlan = field(repr=False)
    context: tuple[str, ...]
    format: str
    notices: tuple[str, ...] = ()
    catalogue: ActionTable | None = field(default=None, repr=False)

    @property
    def action_columns(self) -> tuple[str, ...]:
        """The columns with features of actions that differ from decision to decision."""
        return tuple(name for name in self.schema.names if is_action_column(name) and name not in self.context)

    @property
    def schema(self) -> "pa.Schema":
        """The columns that reading yields: canonical ones in their order, then context."""
        return self.plan.schema

    @property
    def rows(self) -> int | None:
        """How many rows there are; None if it is known only after reading."""
        known = [part.rows for part in self.parts if part.rows is not None]
        return sum(known) if len(known) == len(self.parts) else None

    @property
    def bytes(self) -> int:
        """The size where it is stored."""
        return sum(part.bytes for part in self.parts)

    def batches(self, columns: Sequence[str] | None = None) -> "Iterator[pa.RecordBatch]":
        """Yield all rows in order as record batches, in bounded memory."""
        return chain.from_iterable(part.read(columns) for part in self.parts)

    def table(self, columns: Sequence[str] | None = None) -> "pa.Table":
        """Return all rows as one table in memory."""
        return self._table(self.batches(columns), columns)

    def head(self, rows: int = 10, columns: Sequence[str] | None = None) -> "pa.Table":
        """Return the first rows as a table, reading no more than these need."""
        return self._table(self._first(rows, columns), columns)

    def _first(self, rows: int, columns: Sequence[str] | None) -> "Iterator[pa.RecordBatch]":
        for batch in self.batches(columns):
            if rows <= 0:
                return
            yield batch.slice(0, rows)
            rows -= batch.num_rows

    def _table(self, batches: "Iterable[pa.RecordBatch]", columns: Sequence[str] | None) -> "pa.Table":
        return arrow().Table.from_batches(list(batches), self.plan.schema_of(columns))

    def with_catalogue(self, actions: ActionTable) -> "Log":
        """Return the same decisions with another catalogue, whose labels become of the type of the log's actions."""
        kind = self.schema.field("action").type if "action" in self.schema.names else actions.table.schema.field(0).type
        return replace(self, catalogue=actions.labelled_like(kind))

    def fingerprint(self) -> str:
        """Return a text that changes when a file, a row of a table, the catalogue, a column or a renaming does."""
        described = () if self.catalogue is None else (packed(self.catalogue.table),)
        return digest(*(digest(*part.identity()) for part in self.parts), *described)
