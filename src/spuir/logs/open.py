"""Opening a log wherever it is: files, folders or tables in memory."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spuir.base.parameters import check_names
from spuir.errors import ParameterError
from spuir.logs.action_table import ActionTable, action_table
from spuir.logs.column_plan import ColumnChoices, ColumnPlan, PeekedCell, SourceColumns, plan_columns, reading_types
from spuir.logs.columns import check_table
from spuir.logs.formats import FORMATS, FileSection, Format, Request, left_out
from spuir.logs.formats.base import refusals
from spuir.logs.frames import to_table
from spuir.logs.log import Log
from spuir.logs.log_files import (
    LogFile,
    check_gaps,
    choose_format,
    find_files,
    folder_columns,
    is_path,
    survey_files,
    unify,
)
from spuir.logs.parts import FilePart, Part, TablePart, stamp_of
from spuir.logs.times import PER_SECOND
from spuir.tables.arrow import pa, plain_type

if TYPE_CHECKING:
    from spuir.logs.events.offered_actions import OfferedActions

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
    catalogue: Any = None,
    **options: Any,
) -> Log:
    """Open a log: look at its files or its table, and read no more than their beginnings.

    A CSV file above 32 MiB is scanned once for quotes, to find where it can be cut into parts. Logs of events with
    features of their own (dsjson, Vowpal Wabbit's text) are parsed once, on all cores, into temporary files that last
    as long as the log.

    Parameters
    ----------
    source
        A path, a folder, a pattern (``logs/*.csv``) or a list of these; or a DataFrame, an Arrow table or reader
        (which is read to its end), a dict of arrays, or what a format in memory takes. Folders and patterns are read
        in the order of their sorted paths, without hidden files; folders named ``column=value`` give that column.
    format
        A registered name; None = detected by endings, first bytes and types.
    rename
        Canonical (or other) names by the source's names; None as a name leaves the column out.
    context
        Names of the context columns, after renaming; None = all columns without a canonical name.
    kind
        What the table must hold: "log" decisions with rewards, "decisions", "rewards", "contexts" or "actions".
    types
        Types of columns, by the source's names, where the source or inference has them wrong: an Arrow type or its
        name, such as "string" or "float64".
    time_unit
        What numbers in ``time`` and ``reward_time`` count: "s", "ms", "us" or "ns" since 1970.
    catalogue
        The actions with their features: what :func:`spuir.logs.action_table` takes. None = what the
        log itself says about them (dsjson, Vowpal Wabbit's text), if anything.
    **options
        Options of the format.
    """
    check_table(kind)
    if time_unit not in PER_SECOND:
        raise ParameterError("time_unit", repr(time_unit), f"it is one of {', '.join(PER_SECOND)}", "choose one")
    wanted = ColumnChoices(rename, context, kind, _types(types), time_unit)
    log = (_open_files if is_path(source) else _open_table)(source, format, wanted, options)
    return log if catalogue is None else log.with_catalogue(action_table(catalogue))


def _types(types: Mapping[str, Any] | None) -> "dict[str, pa.DataType]":
    found: dict[str, Any] = {}
    for name, kind in (types or {}).items():
        try:
            found[name] = kind if isinstance(kind, pa.DataType) else pa.type_for_alias(kind)
        except (AttributeError, TypeError, ValueError):
            rule = "a type is an Arrow type or its name, such as string, int64, float64, bool or timestamp[us]"
            raise ParameterError(f"type of {name!r}", repr(kind), rule, "write one of these") from None
    return found


def _open_table(source: Any, format: str | None, wanted: ColumnChoices, options: Mapping[str, Any]) -> Log:
    converter = _converter(source, format)
    if converter is None or converter.convert is None:
        check_names(options, [], "source in memory", "open_log")
        table = to_table(source)
    else:
        check_names(options, converter.options, "log format", converter.name)
        table = converter.convert(source, options)

    def peek(name: str, test: Callable[[str], bool]) -> PeekedCell | None:
        texts = enumerate(table[name].to_pylist())
        return next((PeekedCell(text, f"row {row}") for row, text in texts if text is not None and test(text)), None)

    plan, context = plan_columns(SourceColumns(table.schema, "table", True, peek), wanted)
    parts: list[Part] = []
    for start in range(0, max(table.num_rows, 1), TABLE_ROWS):
        rows = table.slice(start, TABLE_ROWS)
        place: dict[str, Any] = {"number": len(parts), "source": "table", "start": start, "plan": plan}
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


def _open_files(source: Any, format: str | None, wanted: ColumnChoices, options: Mapping[str, Any]) -> Log:
    files = find_files(source)
    beside = {} if format not in (None, "obd") else left_out([file.path for file in files])
    chosen, found, notices = choose_format([file for file in files if file.path not in beside], format)
    notices += beside.values()
    check_names(options, [name for name in chosen.options if name != "types"], "log format", chosen.name)
    if "types" in chosen.options:
        options = {**options, "types": wanted.types}
    if chosen.parser is not None:
        from spuir.logs.events.parsed_copies import parse_files

        options = {**options, "copies": parse_files(chosen, [file.path for file in found], options)}
    files, empty = survey_files(found, chosen, options)
    notices += empty
    schema = unify(files)
    offered = options["copies"].offered() if "copies" in options else None
    for name, kind in {} if offered is None else offered.column_types().items():
        schema = schema if name in schema.names else schema.append(pa.field(name, kind))
    if chosen.sparse:
        files = [file._replace(schema=schema) for file in files]
    for name, (kind, _) in folder_columns(files).items():
        schema = schema if name in schema.names else schema.append(pa.field(name, kind))

    def peek(name: str, test: Callable[[str], bool]) -> PeekedCell | None:
        return _first_text(chosen, files, name, options, test)

    columns = SourceColumns(schema, f"file {files[0].path!r}", chosen.typed, peek)
    plan, context = plan_columns(columns, wanted)
    notices += check_gaps(files, plan, wanted.table)
    parts = _file_parts(files, chosen, plan, reading_types(schema, plan, chosen.typed), options)
    return Log(tuple(parts), plan, context, chosen.name, tuple(notices), _catalogue(offered, files))


def _catalogue(offered: "OfferedActions | None", files: list[LogFile]) -> ActionTable | None:
    """Return what the events of a log say about their actions."""
    table = None if offered is None else offered.catalogue()
    if offered is None or table is None:
        return None
    return ActionTable(table, f"the events of {files[0].path!r}", varying=tuple(sorted(offered.varying)), given=False)


def _first_text(
    chosen: Format, files: list[LogFile], name: str, options: Mapping[str, Any], test: Callable[[str], bool]
) -> PeekedCell | None:
    """Return the first cell of a column of text for which a test is true."""
    for file in files:
        if (
            name not in file.schema.names
            or chosen.read is None
            or not pa.types.is_string(plain_type(file.schema.field(name).type))
        ):
            continue
        row = 0
        for section in file.sections:
            request = Request(schema=file.schema, columns=(name,), section=section, options=options)
            first = row
            for batch in chosen.read(file.path, request):
                for at, text in enumerate(batch[name].to_pylist(), row):
                    if text is not None and test(text):
                        place = f"row {at}" if chosen.locate is None else chosen.locate(file.path, section, at - first)
                        return PeekedCell(text, place if file is files[0] else f"{place} of {file.path!r}")
                row += batch.num_rows
    return None


def _file_parts(
    files: list[LogFile], chosen: Format, plan: ColumnPlan, types: "pa.Schema", options: Mapping[str, Any]
) -> list[FilePart]:
    from_folders = folder_columns(files)
    parts: list[FilePart] = []
    for at, file in enumerate(files):
        own = file.schema if chosen.typed else pa.schema([types.field(name) for name in file.schema.names])
        constants = {name: values[at] for name, (_, values) in from_folders.items() if name not in own.names}
        with refusals(file.path):
            stamp = stamp_of(file.path)
        parts += [
            FilePart(
                number=len(parts) + number,
                source=f"file {file.path!r}",
                rows=section.rows,
                bytes=section.bytes,
                plan=plan,
                path=file.path,
                format=chosen.name,
                section=section,
                schema=own,
                stamp=stamp,
                constants=constants,
                options=_own_copies(options, file.path, section, own.names),
            )
            for number, section in enumerate(file.sections)
        ]
    return parts


def _own_copies(
    options: Mapping[str, Any], path: str, section: FileSection, columns: Sequence[str]
) -> Mapping[str, Any]:
    """Return the options of a part, with the parsed copy of its own section if there are copies."""
    return options if "copies" not in options else {**options, "copies": options["copies"].only(path, section, columns)}
