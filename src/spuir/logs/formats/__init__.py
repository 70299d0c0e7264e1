"""Log formats by name. To add one: its file, and one line here, above the general ones."""

from spuir.base.registry import Registry
from spuir.errors import InputError
from spuir.logs.formats.base import Fault, Faults, FileSection, FileSurvey, Format, Request, ending, head

__all__ = ["FORMATS", "Fault", "Faults", "FileSection", "FileSurvey", "Format", "Request", "detect", "list_formats"]

FORMATS = Registry(
    "log format",
    {
        # Text files are tried in this order: special formats first, since many are also CSV or JSON lines.
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

_JSON = ("dsjson", "banditdb", "jsonl")
_TEXT_ENDINGS = {".csv": ("obd", "csv"), ".tsv": ("csv",), ".json": _JSON, ".jsonl": _JSON, ".ndjson": _JSON}
"""Formats that are tried first for a text file, by its ending, so that no other format is imported for it."""
_BANDITDB_COLUMNS = {"interaction_id", "arm_id"}
"""Columns by which a Parquet file is known as an export of BanditDB."""


def list_formats() -> list[str]:
    """Return the names of the registered log formats."""
    return FORMATS.names()


def detect(path: str) -> Format:
    """Return the format of a file, detected by its first bytes and its ending."""
    first = head(path)
    if first.startswith(b"PAR1"):
        columns = set(FORMATS.get("parquet").survey(path, {}).schema.names)
        return FORMATS.get("banditdb" if columns >= _BANDITDB_COLUMNS else "parquet")
    if first.startswith(b"ARROW1"):
        return FORMATS.get("arrow")
    likely = _TEXT_ENDINGS.get(ending(path), ())
    for name in dict.fromkeys((*likely, *FORMATS.names())):
        format: Format = FORMATS.get(name)
        if format.read is not None and format.sniff(path, first):
            return format
    got = f"first bytes {first[:20]!r}" if first else "an empty file"
    known = [name for name in FORMATS.names() if FORMATS.get(name).read is not None]
    raise InputError(
        f"file {path!r}", got, f"it must be one of {', '.join(known)}", "say which with format= (--format)"
    )
