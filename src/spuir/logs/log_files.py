"""The files of a log: found in a stable order, all of one format, with one set of columns."""

import glob
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from spuir.errors import InputError, ParameterError
from spuir.logs.column_plan import ColumnPlan
from spuir.logs.columns import ACTION_FEATURE, COLUMNS, declaring, is_action_column, renaming
from spuir.logs.formats import FORMATS, FileSection, Format, detect
from spuir.tables.arrow import pa, plain_type

_WILDCARDS = "*?["
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows whose value is missing, as Hive and Spark call it."""


class LogFile(NamedTuple):
    """A file of a log, and the columns that the names of its folders give (``day=2024-05-01``).

    Once it is surveyed, ``schema`` has its columns, as they are called there, and ``sections`` can be read alone.
    """

    path: str
    folder_values: dict[str, str]
    schema: Any = None
    sections: tuple[FileSection, ...] = ()

    def has(self, name: str) -> bool:
        """Return whether the file or the names of its folders give a column."""
        return name in self.schema.names or name in self.folder_values


def is_path(source: Any) -> bool:
    """Return whether a source names files: a path, or a list of paths."""
    if isinstance(source, (list, tuple)):
        return bool(source) and all(isinstance(one, (str, os.PathLike)) for one in source)
    return isinstance(source, (str, os.PathLike))


def find_files(source: Any) -> list[LogFile]:
    """Return the files of a path, a folder, a pattern or a list of these; folders and patterns sorted by path."""
    if isinstance(source, (list, tuple)):
        files = [file for one in source for file in find_files(one)]
        once = _once(files)
        if len(once) < len(files):
            twice = next(file.path for at, file in enumerate(files) if at >= len(once) or once[at] is not file)
            raise InputError("source", f"{twice!r} twice", "a log has every file once", "name it once")
        return files
    text = os.fspath(source)
    if not isinstance(text, str):
        raise ParameterError("source", repr(source), "a path is a text", "decode it")
    if os.path.isdir(text):
        return _in_folder(text)
    if os.path.exists(text):
        return [LogFile(text, {})]
    if any(mark in text for mark in _WILDCARDS):
        matching = sorted(one for one in glob.glob(text, recursive=True) if _is_data(Path(one).name))
        if matching:
            # ** matches a folder and the files in it.
            return _once([file for one in matching for file in find_files(one)])
        raise InputError("source", repr(text), "no file matches it", "check the pattern")
    raise InputError("source", repr(text), "there is no such file or folder", "check the path")


def _once(files: list[LogFile]) -> list[LogFile]:
    """Return files without repetitions, each at its first place."""
    first: dict[str, LogFile] = {}
    for file in files:
        first.setdefault(os.path.realpath(file.path), file)
    return list(first.values())


def _is_data(name: str) -> bool:
    """Return whether a file holds data, unlike hidden files and marks such as _SUCCESS."""
    return not name.startswith((".", "_"))


def _in_folder(folder: str) -> list[LogFile]:
    paths: list[str] = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if _is_data(name)]
        paths += [os.path.join(place, name) for name in files if _is_data(name)]
    if not paths:
        raise InputError(f"folder {folder!r}", "no files", "a log has at least one", "check the path")
    return [LogFile(path, _folder_values(os.path.relpath(path, folder))) for path in sorted(paths)]


def _folder_values(path: str) -> dict[str, str]:
    return dict(name.split("=", 1) for name in Path(path).parent.parts if "=" in name)


def choose_format(files: list[LogFile], format: str | None) -> tuple[Format, list[LogFile], list[str]]:
    """Return the one format of some files, the files that are of it, and notices about the others.

    Parameters
    ----------
    files
        What :func:`find_files` returned.
    format
        The name of the format; None = detected by endings and first bytes. Files of no known format are left out as
        long as there are others.
    """
    if format is not None:
        chosen: Format = FORMATS.get(format)
        if chosen.read is None:
            rule = f"the format {format!r} is one of objects in memory"
            raise ParameterError("source", repr(files[0].path), rule, "pass its object, not a path")
        return chosen, files, []
    by_format: dict[str, list[LogFile]] = {}
    unknown: list[InputError] = []
    for file in files:
        try:
            by_format.setdefault(detect(file.path).name, []).append(file)
        except InputError as error:
            unknown.append(error)
    if not by_format:
        raise unknown[0]
    if len(by_format) > 1:
        got = " and ".join(f"{name} ({some[0].path!r})" for name, some in by_format.items())
        raise InputError("source", got, "a log has one format", "name the files of one, or say format= (--format)")
    (name, kept), *_ = by_format.items()
    notices = [f"{error.subject} is left out: its format is unknown." for error in unknown]
    return FORMATS.get(name), kept, notices


def survey_files(files: list[LogFile], format: Format, options: Mapping[str, Any]) -> tuple[list[LogFile], list[str]]:
    """Return what each file holds, and notices about those that are empty and left out."""
    if format.survey is None:
        raise ParameterError("format", repr(format.name), "it is one of objects in memory", "pass its object")
    surveyed: list[LogFile] = []
    notices: list[str] = []
    for file in files:
        survey = format.survey(file.path, options)
        if survey.schema.names:
            surveyed.append(file._replace(schema=survey.schema, sections=survey.sections))
        else:
            notices.append(f"file {file.path!r} is left out: it is empty.")
    if not surveyed:
        rule, remedy = "a log has columns", "check that the file is complete"
        raise InputError(f"file {files[0].path!r}", "an empty file", rule, remedy)
    return surveyed, notices


def unify(files: list[LogFile]) -> "pa.Schema":
    """Return the columns of all files, types widened where no value is lost (whole numbers to floats)."""
    types: dict[str, Any] = {}
    first: dict[str, str] = {}
    for file in files:
        for one in file.schema:
            kind = plain_type(one.type)
            if one.name not in types:
                types[one.name], first[one.name] = kind, file.path
            elif not kind.equals(types[one.name]):
                types[one.name] = _wider(one.name, types[one.name], kind, first[one.name], file.path)
    return pa.schema(list(types.items()))


def _wider(name: str, one: "pa.DataType", other: "pa.DataType", first: str, second: str) -> "pa.DataType":
    try:
        both = [pa.schema([(name, one)]), pa.schema([(name, other)])]
        return pa.unify_schemas(both, promote_options="permissive").field(0).type
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        got = f"{one} in {first!r} and {other} in {second!r}"
        remedy = f"write it in the same way in all files, or, if it is context, say {declaring(name, 'string')}"
        raise InputError(f"column {name!r}", got, "a column has one type in all files", remedy) from None


def check_gaps(files: list[LogFile], plan: ColumnPlan, table: str) -> list[str]:
    """Refuse a column that only some files have; return notices about optional canonical columns instead."""
    notices: list[str] = []
    for one in plan.fields:
        lacking = [file.path for file in files if not file.has(one.raw)]
        if not lacking:
            continue
        column = ACTION_FEATURE if is_action_column(one.name) else COLUMNS.get(one.name)
        if column is None or table in column.needed_in:
            having = next(file.path for file in files if file.has(one.raw))
            rule = f"{having!r} has it, and every file must"
            remedy = "add it" if column else f"add it, leave it out with {renaming(one.raw, None)}, or list the context"
            raise InputError(f"file {lacking[0]!r}", f"no column {one.raw!r}", rule, remedy)
        notices.append(f"column {one.raw!r} is missing in {len(lacking)} of {len(files)} files and is empty there.")
    return notices


def folder_columns(files: list[LogFile]) -> "dict[str, tuple[pa.DataType, list[Any]]]":
    """Return the columns that the names of folders give: type, and one value per file, None where it has none."""
    columns: dict[str, tuple[Any, list[Any]]] = {}
    for name in dict.fromkeys(name for file in files for name in file.folder_values):
        texts = [file.folder_values.get(name, _NO_VALUE) for file in files]
        known = [None if text == _NO_VALUE else unquote(text) for text in texts]
        numbers = all(text is None or (text.isascii() and text.lstrip("-").isdigit()) for text in known)
        values = [int(text) if numbers and text is not None else text for text in known]
        columns[name] = (pa.int64() if numbers else pa.string(), values)
    return columns
