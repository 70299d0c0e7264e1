"""A log as the object in memory that another library learns from."""

from typing import TYPE_CHECKING, Any

from spuir.base.parameters import check_names
from spuir.errors import ParameterError
from spuir.logs.formats import FORMATS, Format
from spuir.logs.log import Log

if TYPE_CHECKING:
    import pyarrow as pa


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
