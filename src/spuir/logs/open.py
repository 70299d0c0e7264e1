"""Opening a log wherever it is, and writing one: files, folders or tables in memory."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spuir.base.parameters import check_names
from spuir.errors import InputError, ParameterError
from spuir.logs.columns import check_table
from spuir.logs.formats import FORMATS, Format, Request, Survey
from spuir.logs.formats.base import ending, refusals
from spuir.logs.frames import to_table
from spuir.logs.log import Log
from spuir.logs.parts import FilePart, Part, TablePart, stamp_of
from spuir.logs.paths import Found, agree, find, is_path
from spuir.logs.plans import Plan, Wanted, make_plan, reading_types
from spuir.logs.times import PER_SECOND
from spuir.logs.unifying import check_gaps, said_columns, unify
from spuir.storage.atomic import atomic_file
from spuir.tables.arrow import arrow

if TYPE_CHECKING:
    import pyarrow as pa

TABLE_ROWS = 1 << 18
"""Rows of a part of a table in memory."""


def open_log(
    source: Any,
    format: str | None = None,
    rename: Mapping[str, str | None] | None = None,
    context: Sequence[str] | None = None,
    *,
    kind: str = "log",
    types: Mapping[str, Any] | None = None,
    time_unit: str = "s",
    **options: Any,
) -> Log:
    """Open a log: look at its files or its table, and read no more than their beginnings.

    Parameters
    ----------
    source
        A path, a folder, a pattern (``logs/*.csv``) or a list of these; or a DataFrame, an Arrow table or reader
        (which is read to its end), a dict of arrays, or what a format in memory takes. Folders and patterns are read
        in the order of their sorted paths, without hidden files; folders named ``column=value`` give that column.
    format
        A registered name; None = told by endings, first bytes and types.
    rename
        Canonical (or other) names by the source's names; None as a name leaves the column out.
    context
        Names of the context columns, after renaming; None = all columns without a canonical name.
    kind
        What the table must hold: "log" decisions with rewards, "decisions" or "rewards".
    types
        Types of columns, by the source's names, where the source or inference has them wrong: an Arrow type or its
        name, such as "string" or "float64".
    time_unit
        What numbers in ``time`` and ``reward_time`` count: "s", "ms", "us" or "ns" since 1970.
    **options
        Options of the format.
    """
    check_table(kind)
    if time_unit not in PER_SECOND:
        raise ParameterError("time_unit", repr(time_unit), f"it is one of {', '.join(PER_SECOND)}", "choose one")
    wanted = Wanted(rename, context, kind, _types(types), time_unit)
    if is_path(source):
        return _open_files(source, format, wanted, options)
    return _open_table(source, format, wanted, options)


def _types(types: Mapping[str, Any] | None) -> "dict[str, pa.DataType]":
    pa = arrow()
    found: dict[str, Any] = {}
    for name, kind in (types or {}).items():
        try:
            found[name] = kind if isinstance(kind, pa.DataType) else pa.type_for_alias(kind)
        except (AttributeError, TypeError, ValueError):
            rule = "a type is an Arrow type or its name, as string, int64, float64, bool or timestamp[us]"
            raise ParameterError(f"type of {name!r}", repr(kind), rule, "write one of these") from None
    return found


def _open_table(source: Any, format: str | None, wanted: Wanted, options: Mapping[str, Any]) -> Log:
    converter = _converter(source, format)
    if converter is None or converter.convert is None:
        check_names(options, [], "source in memory", "open_log")
        table = to_table(source)
    else:
        check_names(options, converter.options, "log format", converter.name)
        table = converter.convert(source, options)

    def peek(name: str) -> str | None:
        return next((text for text in table[name].to_pylist() if text is not None), None)

    plan, context = make_plan(table.schema, wanted, "table", True, peek)
    parts: list[Part] = []
    for start in range(0, max(table.num_rows, 1), TABLE_ROWS):
        rows = table.slice(start, TABLE_ROWS)
        place: dict[str, Any] = {"number": len(parts), "source": "table", "first_row": start, "plan": plan}
        parts.append(TablePart(**place, rows=rows.num_rows, bytes=rows.nbytes, table=rows))
    return Log(tuple(parts), plan, context, converter.name if converter else "table")


def _converter(source: Any, format: str | None) -> Format | None:
    """Return the format that takes this object, None for a plain table."""
    if format is not None:
        chosen: Format = FORMATS.get(format)
        if chosen.convert is None:
            rule = f"the format {format!r} is one of files"
            raise ParameterError("source", type(source).__name__, rule, "pass a path, or leave format out")
        return chosen
    every = (FORMATS.get(name) for name in FORMATS.names())
    return next((one for one in every if one.convert is not None and one.claims(source)), None)


def _open_files(source: Any, format: str | None, wanted: Wanted, options: Mapping[str, Any]) -> Log:
    pa = arrow()
    chosen, files, notices = agree(find(source), format)
    check_names(options, [name for name in chosen.options if name != "types"], "log format", chosen.name)
    if "types" in chosen.options:
        options = {**options, "types": wanted.types}
    surveys, empty = _surveys(chosen, files, options)
    notices += [f"file {path!r} is left out: it is empty." for path in empty]
    schema = unify(surveys)
    if chosen.sparse:
        surveys = [(found, Survey(schema, seen.sections)) for found, seen in surveys]
    for name, (kind, _) in said_columns(surveys).items():
        schema = schema if name in schema.names else schema.append(pa.field(name, kind))

    def peek(name: str) -> str | None:
        return _first_text(chosen, surveys, name, options)

    plan, context = make_plan(schema, wanted, f"file {surveys[0][0].path!r}", chosen.typed, peek)
    notices += check_gaps(surveys, plan, wanted.table)
    parts = _file_parts(surveys, chosen, plan, reading_types(schema, plan, chosen.typed), options)
    return Log(tuple(parts), plan, context, chosen.name, tuple(notices))


def _surveys(
    chosen: Format, files: list[Found], options: Mapping[str, Any]
) -> tuple[list[tuple[Found, Survey]], list[str]]:
    """Return what each file holds, and the paths of those that are empty."""
    if chosen.survey is None:
        raise ParameterError("format", repr(chosen.name), "it is one of objects in memory", "pass its object")
    seen = [(found, chosen.survey(found.path, options)) for found in files]
    filled = [(found, survey) for found, survey in seen if survey.schema.names]
    if not filled:
        rule, remedy = "a log has columns", "check that it was saved whole"
        raise InputError(f"file {files[0].path!r}", "an empty file", rule, remedy)
    return filled, [found.path for found, survey in seen if not survey.schema.names]


def _first_text(
    chosen: Format, surveys: list[tuple[Found, Survey]], name: str, options: Mapping[str, Any]
) -> str | None:
    """Return the first value of a column of text, from the first batch that has one."""
    for found, seen in surveys:
        if name not in seen.schema.names or chosen.read is None:
            continue
        for section in seen.sections[:1]:
            for batch in chosen.read(
                found.path, Request(schema=seen.schema, columns=(name,), section=section, options=options)
            ):
                for text in batch[name].drop_null().to_pylist():
                    return text
    return None


def _file_parts(
    surveys: list[tuple[Found, Survey]], chosen: Format, plan: Plan, types: "pa.Schema", options: Mapping[str, Any]
) -> list[FilePart]:
    pa = arrow()
    said = said_columns(surveys)
    parts: list[FilePart] = []
    for at, (found, seen) in enumerate(surveys):
        own = seen.schema if chosen.typed else pa.schema([types.field(name) for name in seen.schema.names])
        constants = {name: values[at] for name, (_, values) in said.items() if name not in own.names}
        with refusals(found.path):
            stamp = stamp_of(found.path)
        parts += [
            FilePart(
                number=len(parts) + more,
                source=f"file {found.path!r}",
                rows=section.rows,
                bytes=section.bytes,
                first_row=section.first_row,
                plan=plan,
                path=found.path,
                format=chosen.name,
                section=section,
                schema=own,
                stamp=stamp,
                constants=constants,
                options=options,
            )
            for more, section in enumerate(seen.sections)
        ]
    return parts


def write_log(
    log: "Log | Iterable[pa.RecordBatch]", path: str | os.PathLike[str], format: str | None = None, **options: Any
) -> None:
    """Write a log, or record batches, to one file: under another name first, so that a reader sees it whole or not.

    Parameters
    ----------
    log
        What :func:`open_log` returned, or batches with the same columns.
    path
        Where to; its ending says how to pack (.gz, .zst) and, without ``format``, in which format.
    format
        A registered name.
    **options
        Options of the format.
    """
    target = Path(path)
    chosen = _writer(str(target), format)
    check_names(options, chosen.write_options, "log format", chosen.name)
    batches = _Filled(log) if isinstance(log, Log) else log
    if not target.parent.is_dir():
        rule = f"there is no folder {str(target.parent)!r}"
        raise InputError("path", repr(str(target)), rule, "make it first, or write elsewhere")
    with refusals(str(target)), atomic_file(target) as file:
        if chosen.write is not None:
            chosen.write(batches, file.name, **options)


class _Filled:
    """The batches of a log, an empty one with its columns where it has no rows; each pass reads it anew."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def __iter__(self) -> "Iterator[pa.RecordBatch]":
        empty = True
        for batch in self._log.batches():
            empty = False
            yield batch
        if empty:
            yield arrow().RecordBatch.from_pylist([], schema=self._log.schema)


def _writer(path: str, format: str | None) -> Format:
    names = FORMATS.names() if format is None else [format]
    writers: list[Format] = [one for name in names if (one := FORMATS.get(name)).write is not None]
    fit = [one for one in writers if format is not None or ending(path) in one.endings]
    if not fit:
        got = repr(path) if format is None else f"format {format!r}"
        known = ", ".join(dict.fromkeys(end for one in writers for end in one.endings))
        rule = f"files are written as {known}" if format is None else "that format is only read"
        raise ParameterError("path", got, rule, "choose another ending, or say format=")
    return fit[0]
