"""Log formats by name. To add one: its file, and one line here, above the general ones."""

from collections.abc import Sequence
from pathlib import Path

from spuir.base.registry import Registry
from spuir.errors import InputError
from spuir.logs.formats.base import Fault, Faults, FileSection, FileSurvey, Format, Request, ending, head

__all__ = [
    "FORMATS",
    "Fault",
    "Faults",
    "FileSection",
    "FileSurvey",
    "Format",
    "Request",
    "detect",
    "left_out",
    "list_formats",
]

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
_ITEM_TABLE = "item_context.csv"
"""The table of items that comes with the logs of the Open Bandit Dataset."""
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
    raise InputError(f"file {path!r}", got, f"it must be one of {', '.join(known)}", "name it with format= (--format)")


def left_out(paths: Sequence[str]) -> dict[str, str]:
    """Return the files that are next to a log but not part of it, each with a sentence about it."""
    tables = [path for path in paths if Path(path).name == _ITEM_TABLE]
    others = [path for path in paths if Path(path).name != _ITEM_TABLE and ending(path) == ".csv"]
    if not tables or not others or detect(others[0]).name != "obd":
        return {}
    return {path: f"file {path!r} is left out: it describes the items; item_context=True adds them." for path in tables}
