"""From what a user names as a log to its files, in a stable order."""

import glob
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from spuir.errors import InputError, ParameterError
from spuir.logs.formats import FORMATS, Format, detect

_WILD = "*?["


class LogFile(NamedTuple):
    """A file of a log, and what the names of its folders say (``day=2024-05-01``)."""

    path: str
    says: dict[str, str]


def is_path(source: Any) -> bool:
    """Tell whether a source names files: a path, or a list of paths."""
    if isinstance(source, (list, tuple)):
        return bool(source) and all(isinstance(one, (str, os.PathLike)) for one in source)
    return isinstance(source, (str, os.PathLike))


def find(source: Any) -> list[LogFile]:
    """Return the files of a path, a folder, a pattern or a list of these; folders and patterns sorted by path."""
    if isinstance(source, (list, tuple)):
        return [found for one in source for found in find(one)]
    text = os.fspath(source)
    if not isinstance(text, str):
        raise ParameterError("source", repr(source), "a path is a text", "decode it")
    if os.path.isdir(text):
        return _in_folder(text)
    if os.path.exists(text):
        return [LogFile(text, {})]
    if any(mark in text for mark in _WILD):
        matching = sorted(one for one in glob.glob(text, recursive=True) if _shown(Path(one).name))
        if matching:
            return [found for one in matching for found in find(one)]
        raise InputError("source", repr(text), "no file matches it", "check the pattern")
    raise InputError("source", repr(text), "there is no such file or folder", "check the path")


def _shown(name: str) -> bool:
    """Tell whether a name is one of the data, as hidden files and marks such as _SUCCESS are not."""
    return not name.startswith((".", "_"))


def _in_folder(folder: str) -> list[LogFile]:
    found: list[str] = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if _shown(name)]
        found += [os.path.join(place, name) for name in files if _shown(name)]
    if not found:
        raise InputError(f"folder {folder!r}", "no files", "a log has at least one", "check the path")
    return [LogFile(path, _said(os.path.relpath(path, folder))) for path in sorted(found)]


def _said(path: str) -> dict[str, str]:
    """Return the columns that the names of folders give: ``day=2024-05-01/part-0.parquet``."""
    return dict(part.split("=", 1) for part in Path(path).parent.parts if "=" in part)


def agree(files: Iterable[LogFile], format: str | None) -> tuple[Format, list[LogFile], list[str]]:
    """Return the one format of some files, those that are of it, and notices about the others.

    Parameters
    ----------
    files
        What was found.
    format
        The format's name; None = told by endings and first bytes. Files of no known format are left out as long as
        there are others.
    """
    files = list(files)
    if format is not None:
        chosen: Format = FORMATS.get(format)
        if chosen.read is None:
            rule = f"the format {format!r} lives in memory"
            raise ParameterError("source", repr(files[0].path), rule, "pass its object, not a path")
        return chosen, files, []
    by_format: dict[str, list[LogFile]] = {}
    unknown: list[InputError] = []
    for found in files:
        try:
            by_format.setdefault(detect(found.path).name, []).append(found)
        except InputError as error:
            unknown.append(error)
    if not by_format:
        raise unknown[0]
    if len(by_format) > 1:
        got = " and ".join(f"{name} ({some[0].path!r})" for name, some in by_format.items())
        raise InputError("source", got, "a log has one format", "name the files of one, or say format= (--format)")
    (name, kept), *_ = by_format.items()
    notices = [f"{error.subject} is left out: it is of no known format." for error in unknown]
    return FORMATS.get(name), kept, notices
