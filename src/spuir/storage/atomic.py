"""Text files that are written whole or not at all."""

import csv
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

from spuir.errors import SpuirError


def write_bytes(path: Path, data: bytes) -> Path:
    """Write a whole file or none of it: under another name first, and on the disk before it takes its own."""
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except BaseException:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
    except OSError as failure:
        raise _unwritable(path, failure.strerror) from None
    return path


def check_folder(folder: Path) -> None:
    """Make the folder of results, or refuse it before any work is done for it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise _unwritable(folder, failure.strerror) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unwritable(folder, "no permission")


def _unwritable(path: Path, why: str | None) -> SpuirError:
    return SpuirError("results", path, f"it cannot be written ({why})", "choose another folder with --out")


def write_text(path: Path, text: str) -> Path:
    """Write ``text`` in UTF-8."""
    return write_bytes(path, text.encode())


def write_json(path: Path, data: Mapping[str, Any] | Sequence[Any]) -> Path:
    """Write ``data`` as JSON; what is not a finite number becomes null."""
    return write_text(path, json.dumps(finite(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_csv(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write records as CSV, columns in the order of first appearance; what a record lacks stays empty."""
    records = list(rows)
    names = list(dict.fromkeys(name for record in records for name in record))
    text = StringIO(newline="")
    table = csv.DictWriter(text, names, lineterminator="\n")
    table.writeheader()
    table.writerows(records)
    return write_text(path, text.getvalue())


def finite(data: Any, figures: int | None = None) -> Any:
    """Return data as JSON can hold it: lists for tuples, None for what is not a finite number.

    With ``figures`` given, numbers keep so many significant ones, so that a stored file stays small.
    """
    if isinstance(data, Mapping):
        return {name: finite(value, figures) for name, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [finite(value, figures) for value in data]
    if not isinstance(data, float):
        return data
    if not math.isfinite(data):
        return None
    return data if figures is None else float(f"{data:.{figures}g}")
