"""From the columns of a source to those of a log: what each is called, what it holds, how it is read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from spuir.errors import InputError, ParameterError, UnknownNameError, did_you_mean, listed, nearest
from spuir.logs.column_kinds import COLUMN_KINDS, NO_COMMAS, has_decimal_comma, is_list_text, list_type, reads_as_number
from spuir.logs.columns import (
    ACTION_FEATURE,
    COLUMNS,
    canonical_names,
    check_needed,
    declaring,
    is_action_column,
)
from spuir.tables.arrow import is_date, is_number, pa, plain_type

_OUTCOMES = ("action", "reward", "reward_time")
"""Columns that no context may hold, since they are not known when the decision is taken."""
MISSING_NUMBERS = ("", "na", "n/a", "#na", "#n/a", "null")
"""Words for a missing number, in lower case: NaN reads as one."""


class PeekedCell(NamedTuple):
    """A cell of a column of text: what it holds, and the line or row that it is in."""

    text: str
    place: str


Peek = Callable[[str, Callable[[str], bool]], PeekedCell | None]
"""Returns the first cell of a column of text for which a test is true; None if there is none."""


class SourceColumns(NamedTuple):
    """The columns of a source, what refusals call it, and what finds a cell in a column of text.

    A ``typed`` source has types of its own, so that texts that look like dates are texts.
    """

    schema: "pa.Schema"
    name: str
    typed: bool
    peek: Peek


class PlannedColumn(NamedTuple):
    """One column of a log: its name there, its name in the source, the kind that converts it, and its type."""

    name: str
    raw: str
    kind: str
    type: "pa.DataType"


@dataclass(frozen=True)
class ColumnPlan:
    """How the columns of a source become those of the log.

    ``fields`` are the log's columns in order; ``casts`` the types that the caller declared, by names in the source;
    ``unit`` what times are counted in.
    """

    fields: tuple[PlannedColumn, ...]
    casts: "Mapping[str, pa.DataType]" = field(default_factory=dict[str, Any])
    unit: str = "s"

    @property
    def schema(self) -> "pa.Schema":
        """The log's columns."""
        return self.schema_of(None)

    def schema_of(self, columns: Sequence[str] | None) -> "pa.Schema":
        """Return some of the log's columns; None = all."""
        return pa.schema([(one.name, one.type) for one in self.select(columns)])

    def select(self, columns: Sequence[str] | None) -> tuple[PlannedColumn, ...]:
        """Return the wanted columns in the wanted order; None = all."""
        if columns is None:
            return self.fields
        known = {one.name: one for one in self.fields}
        for name in columns:
            if name not in known:
                raise UnknownNameError("columns", repr(name), f"the log has {listed(list(known))}", "name one of these")
        return tuple(known[name] for name in columns)

    def convert(self, one: PlannedColumn, array: "pa.Array") -> "pa.Array":
        """Return a raw array as the log's column; a cell that does not fit is a CellError."""
        plainly = COLUMN_KINDS["context"].convert
        array = plainly(array, self.casts.get(one.raw, array.type), self.unit)
        return COLUMN_KINDS[one.kind].convert(plainly(array, plain_type(array.type), self.unit), one.type, self.unit)


@dataclass(frozen=True)
class ColumnChoices:
    """What the caller of ``open_log`` chose for the columns."""

    rename: Mapping[str, str | None] | None
    context: Sequence[str] | None
    table: str
    types: "Mapping[str, pa.DataType]"
    unit: str

    def is_context(self, name: str) -> bool:
        """Return whether a column without another role has this name; in a catalogue, all but the label do."""
        if self.table == "actions":
            return name != "action"
        return name not in COLUMNS and not is_action_column(name)

    def is_action_feature(self, name: str) -> bool:
        """Return whether a column has a feature of actions at a decision."""
        return is_action_column(name) and self.table not in ("actions", "rewards")


def plan_columns(source: SourceColumns, wanted: ColumnChoices) -> tuple[ColumnPlan, tuple[str, ...]]:
    """Return the plan of a source, and the names of its context columns."""
    for name in wanted.types:
        if name not in source.schema.names:
            rule = f"the columns of {source.name} are {listed(source.schema.names)}"
            raise ParameterError("types", f"column {name!r}", rule, "name one of these, as the source does")
    named = canonical_names(source.schema.names, wanted.rename, source.name)
    new_names = list(named.values())
    check_needed(new_names, wanted.table, source.name)
    context = _context(new_names, wanted, source.name)
    raw_of = {new: raw for raw, new in named.items()}
    order = [name for name in COLUMNS if name in raw_of and not wanted.is_context(name)]
    order += [name for name in new_names if wanted.is_action_feature(name)]
    order += [name for name in context if name not in order]
    fields = [_with_list(_field(name, raw_of[name], source, wanted), source, wanted) for name in order]
    return ColumnPlan(tuple(fields), dict(wanted.types), wanted.unit), context


def _context(names: list[str], wanted: ColumnChoices, source: str) -> tuple[str, ...]:
    if wanted.context is None:
        return () if wanted.table == "rewards" else tuple(name for name in names if wanted.is_context(name))
    if isinstance(wanted.context, str):
        raise ParameterError("context", repr(wanted.context), "it is a list of names", f"write [{wanted.context!r}]")
    for name in wanted.context:
        if name not in names:
            remedy = did_you_mean(name, names) if nearest(name, names) else "name one of these"
            raise UnknownNameError("context", repr(name), f"{source} has {listed(names)}", remedy)
        if name in _OUTCOMES or wanted.is_action_feature(name):
            rule = "a context is known before the decision, and this is not"
            if wanted.is_action_feature(name):
                rule = "it describes an action, and a context is the same for all actions"
            raise ParameterError("context", repr(name), rule, "leave it out of the list")
    return tuple(dict.fromkeys(wanted.context))


def _declared(raw: str, source: SourceColumns, wanted: ColumnChoices) -> "pa.DataType":
    return plain_type(wanted.types.get(raw, source.schema.field(raw).type))


def _field(name: str, raw: str, source: SourceColumns, wanted: ColumnChoices) -> PlannedColumn:
    kind = _declared(raw, source, wanted)
    if wanted.is_context(name):
        if not source.typed and is_date(kind) and raw not in wanted.types:
            return PlannedColumn(name, raw, "time", COLUMN_KINDS["time"].becomes(kind))
        return PlannedColumn(name, raw, "context", kind if source.typed else _settled(kind))
    column = COLUMNS.get(name, ACTION_FEATURE)
    becomes = column.kind.becomes(kind)
    if becomes is None:
        got, rule = f"type {kind}", f"{name!r} holds {column.kind.clause}"
        remedy = f"convert it, declare its type with {declaring(raw, '…')}, or rename it"
        if column.holds == "number" and pa.types.is_string(kind):
            got, remedy = _text_for_number(raw, source.peek)
        raise InputError(f"{source.name}, column {raw!r}", got, rule, remedy)
    return PlannedColumn(name, raw, column.holds, becomes)


def _text_for_number(raw: str, peek: Peek) -> tuple[str, str]:
    """Return what a column of text has where numbers are expected, and what to do about it."""
    cell = peek(raw, _is_word) or peek(raw, lambda text: not reads_as_number(text))
    if cell is None:
        return "type string", f"say {declaring(raw, 'float64')} to read these texts as numbers, or rename the column"
    remedy = "write a number, such as 1 for yes and 0 for no, or rename the column"
    if has_decimal_comma(cell.text):
        remedy = f"{NO_COMMAS}, or rename the column"
    return f"the text {cell.text[:60]!r} at {cell.place}", remedy


def _is_word(text: str) -> bool:
    """Return whether a text is neither a number nor a word for a missing one."""
    return not reads_as_number(text) and text.strip().casefold() not in MISSING_NUMBERS


def _with_list(one: PlannedColumn, source: SourceColumns, wanted: ColumnChoices) -> PlannedColumn:
    """Return a column of lists that are texts with the type of the first; other columns as they are."""
    if one.kind not in ("choices", "action feature") or not pa.types.is_string(_declared(one.raw, source, wanted)):
        return one
    cell = source.peek(one.raw, lambda text: True)
    first = None if cell is None else cell.text
    if one.kind == "action feature" and not is_list_text(first):
        return one
    return one._replace(type=COLUMN_KINDS[one.kind].becomes(list_type(first)))


def _with_leaves(kind: "pa.DataType", change: "Callable[[pa.DataType], pa.DataType]") -> "pa.DataType":
    """Return a type whose innermost types, inside lists and objects, are changed."""
    if pa.types.is_list(kind):
        return pa.list_(_with_leaves(kind.value_type, change))
    if pa.types.is_struct(kind):
        inner = [kind.field(at) for at in range(kind.num_fields)]
        return pa.struct([(one.name, _with_leaves(one.type, change)) for one in inner])
    return change(kind)


def _settled(kind: "pa.DataType") -> "pa.DataType":
    """Return a type without nulls, which a column without values at the beginning of a file has; it becomes numbers."""
    return _with_leaves(kind, lambda leaf: pa.float64() if pa.types.is_null(leaf) else leaf)


def reading_types(schema: "pa.Schema", plan: ColumnPlan, typed: bool) -> "pa.Schema":
    """Return the types to read a source as: its own, or wide enough for every later row where they were inferred."""
    if typed:
        return schema
    fields = {one.raw: one for one in plan.fields}
    return pa.schema(
        [(one.name, one.type if one.name in plan.casts else _reading(one.type, fields.get(one.name))) for one in schema]
    )


def _reading(kind: "pa.DataType", one: PlannedColumn | None) -> "pa.DataType":
    plain = _with_leaves(kind, lambda leaf: pa.string() if is_date(leaf) else leaf)
    if not plain.equals(kind):
        return plain
    if one is None or one.kind == "context":
        return _settled(kind)
    if pa.types.is_null(kind) or (pa.types.is_list(kind) and pa.types.is_null(kind.value_type)):
        return pa.string() if one.kind == "time" else one.type
    if one.kind == "action feature" and not pa.types.is_string(kind):
        return one.type
    # A reward of 0 and 1 may be 0.5 further down, and a time may have a fraction.
    return pa.float64() if one.kind in ("number", "time") and is_number(kind) else kind
