"""Writing a log to a file, or as the object in memory that another library learns from."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from spuir.base.parameters import check_names
from spuir.errors import InputError, ParameterError, SpuirError
from spuir.logs.formats import FORMATS, Format
from spuir.logs.formats.base import ending
from spuir.logs.log import Log
from spuir.storage.atomic import atomic_file
from spuir.tables.arrow import pa


def write_log(
    log: "Log | Iterable[pa.RecordBatch]", path: str | os.PathLike[str], format: str | None = None, **options: Any
) -> None:
    """Write a log, or record batches, to one file: under another name first, so that no reader sees half a file.

    Parameters
    ----------
    log
        What :func:`open_log` returned, or batches with the same columns.
    path
        The file to write; its ending sets the compression (.gz, .zst) and, without ``format``, the format.
    format
        A registered name.
    **options
        Options of the format. Those that repeat the features of actions with each event (dsjson, vw-cb-adf) take them
        from the catalogue of the log, or from the Arrow table ``catalogue``; others write the decisions alone.
    """
    target = Path(path)
    chosen = _writer(str(target), format)
    check_names(options, chosen.write_options, "log format", chosen.name)
    if isinstance(log, Log) and log.catalogue is not None and "catalogue" in chosen.write_options:
        options = {"catalogue": log.catalogue.table, **options}
    batches = _Filled(log) if isinstance(log, Log) else log
    try:
        with atomic_file(target) as file:
            if chosen.write is not None:
                chosen.write(batches, file.name, **options)
    except OSError as error:
        if isinstance(error, SpuirError):
            raise
        got = os.strerror(error.errno) if error.errno else str(error)  # pyarrow says more than the reason
        rule, remedy = "the file must be writable", "check the folder and the free space"
        raise InputError(f"file {str(target)!r}", got, rule, remedy) from error


class _Filled:
    """The batches of a log, an empty one with its columns where it has no rows; each pass reads the log again."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def __iter__(self) -> "Iterator[pa.RecordBatch]":
        empty = True
        for batch in self._log.batches():
            empty = False
            yield batch
        if empty:
            yield pa.RecordBatch.from_pylist([], schema=self._log.schema)


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


def export_log(log: "Log | pa.Table", format: str, **options: Any) -> Any:
    """Return a log as another library takes it, all of it in memory.

    Parameters
    ----------
    log
        What :func:`spuir.logs.open_log` returned, or a table with canonical columns.
    format
        A registered format in memory, such as "obp".
    **options
        Options of the format, such as ``actions``, the labels in the order of their codes.
    """
    chosen: Format = FORMATS.get(format)
    if chosen.export is None:
        known = ", ".join(name for name in FORMATS.names() if FORMATS.get(name).export is not None)
        rule = f"objects in memory are those of {known}"
        raise ParameterError("format", repr(format), rule, "choose one, or write a file with write_log")
    check_names(options, chosen.options, "log format", chosen.name)
    return chosen.export(log.table() if isinstance(log, Log) else log, options)
