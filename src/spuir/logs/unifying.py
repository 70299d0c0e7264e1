"""The columns of many files as those of one log: equal, or safely widened, or refused with both files named."""

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from spuir.errors import InputError
from spuir.logs.column_plan import ColumnPlan
from spuir.logs.columns import COLUMNS, declaring, renaming
from spuir.logs.formats import FileSurvey
from spuir.logs.log_files import LogFile
from spuir.tables.arrow import arrow, plain_type

if TYPE_CHECKING:
    import pyarrow as pa

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows whose value is missing, as Hive and Spark call it."""


def unify(surveys: list[tuple[LogFile, FileSurvey]]) -> "pa.Schema":
    """Return the columns of all files, types widened where no value is lost (whole numbers to floats)."""
    pa = arrow()
    types: dict[str, Any] = {}
    first: dict[str, str] = {}
    for found, seen in surveys:
        for one in seen.schema:
            kind = plain_type(one.type)
            if one.name not in types:
                types[one.name], first[one.name] = kind, found.path
            elif not kind.equals(types[one.name]):
                types[one.name] = _wider(one.name, types[one.name], kind, first[one.name], found.path)
    return pa.schema(list(types.items()))


def _wider(name: str, one: "pa.DataType", other: "pa.DataType", first: str, second: str) -> "pa.DataType":
    pa = arrow()
    try:
        both = [pa.schema([(name, one)]), pa.schema([(name, other)])]
        return pa.unify_schemas(both, promote_options="permissive").field(0).type
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        got = f"{one} in {first!r} and {other} in {second!r}"
        rule, remedy = (
            "a column has one type in all files",
            f"declare it: {declaring(name, 'string')}, or another type",
        )
        raise InputError(f"column {name!r}", got, rule, remedy) from None


def check_gaps(surveys: list[tuple[LogFile, FileSurvey]], plan: ColumnPlan, table: str) -> list[str]:
    """Refuse a column that only some files have; one that is canonical and optional gives a notice instead."""
    notices: list[str] = []
    for one in plan.fields:
        column = COLUMNS.get(one.name)
        lacking = [f.path for f, seen in surveys if one.raw not in seen.schema.names and one.raw not in f.says]
        if not lacking:
            continue
        if column is None or table in column.needed_in:
            having = next(f.path for f, seen in surveys if one.raw in seen.schema.names or one.raw in f.says)
            rule = f"{having!r} has it, and every file must"
            remedy = "add it" if column else f"add it, leave it out with {renaming(one.raw, None)}, or list the context"
            raise InputError(f"file {lacking[0]!r}", f"no column {one.raw!r}", rule, remedy)
        notices.append(f"column {one.raw!r} is missing in {len(lacking)} of {len(surveys)} files and is empty there.")
    return notices


def said_columns(surveys: list[tuple[LogFile, FileSurvey]]) -> "dict[str, tuple[pa.DataType, list[Any]]]":
    """Return the columns that folders are named after: type, and a value for each file (None where it has none)."""
    pa = arrow()
    found: dict[str, tuple[Any, list[Any]]] = {}
    for name in dict.fromkeys(name for file, _ in surveys for name in file.says):
        texts = [None if (text := file.says.get(name)) in (None, _NO_VALUE) else unquote(text) for file, _ in surveys]
        numbers = all(text is None or (text.isascii() and text.lstrip("-").isdigit()) for text in texts)
        values = [int(text) if numbers and text is not None else text for text in texts]
        found[name] = (pa.int64() if numbers else pa.string(), values)
    return found
