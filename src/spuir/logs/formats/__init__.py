"""Log formats by name. To add one: its file, and one line here, above the general ones."""

from spuir.base.registry import Registry
from spuir.errors import InputError
from spuir.logs.formats.base import Fault, Faults, FileSection, FileSurvey, Format, Request, head

__all__ = ["FORMATS", "Fault", "Faults", "FileSection", "FileSurvey", "Format", "Request", "detect", "list_formats"]

FORMATS = Registry(
    "log format",
    {
        # Asked in this order whether a file is theirs: special formats first, since many are also CSV or JSON lines.
        "dsjson": "spuir.logs.formats.dsjson:FORMAT",
        "vw-cb-adf": "spuir.logs.formats.vw_cb_adf:FORMAT",
        "vw-cb": "spuir.logs.formats.vw_cb:FORMAT",
        "obp": "spuir.logs.formats.obp:FORMAT",
        "obd": "spuir.logs.formats.obd:FORMAT",
        "mabwiser": "spuir.logs.formats.mabwiser:FORMAT",
        "contextualbandits": "spuir.logs.formats.contextualbandits:FORMAT",
        "banditdb": "spuir.logs.formats.banditdb:FORMAT",
        "parquet": "spuir.logs.formats.parquet:FORMAT",
        "arrow": "spuir.logs.formats.ipc:FORMAT",
        "csv": "spuir.logs.formats.csv:FORMAT",
        "jsonl": "spuir.logs.formats.jsonl:FORMAT",
    },
)


def list_formats() -> list[str]:
    """Return the names of the registered log formats."""
    return FORMATS.names()


def detect(path: str) -> Format:
    """Return the format of a file, told by its ending and its first bytes."""
    first = head(path)
    of_files: list[Format] = [one for name in FORMATS.names() if (one := FORMATS.get(name)).read is not None]
    for format in of_files:
        if format.sniff(path, first):
            return format
    got = f"first bytes {first[:20]!r}" if first else "an empty file"
    rule = f"it must be one of {', '.join(format.name for format in of_files)}"
    raise InputError(f"file {path!r}", got, rule, "say which with format= (--format)")
