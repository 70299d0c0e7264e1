"""Files that are written completely or not at all."""

import csv
import json
import math
import os
import secrets
import stat
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BufferedWriter, StringIO
from pathlib import Path
from typing import Any

from spuir.errors import SpuirError


def write_atomically(path: str | os.PathLike[str], chunks: bytes | Iterable[Any]) -> None:
    """Write ``chunks`` (bytes, or buffers in order) to ``path``, as :func:`atomic_file` does.

    Raises
    ------
    OSError
        The file cannot be written. Callers add what the file was for.
    """
    with atomic_file(path) as file:
        file.writelines([chunks] if isinstance(chunks, bytes) else chunks)


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Generator[BufferedWriter]:
    """Open a new file that replaces ``path`` at the end of the block.

    The bytes go to a new file in the same folder and reach the disk before the file takes the name ``path``; then the
    folder reaches the disk too. A failure before the renaming leaves what was at ``path`` untouched and no other file.
    A file that is replaced passes on its mode. A folder that is missing is made.

    Yields
    ------
    file
        The open file. Writers that need a path take ``file.name``, which ends as ``path`` does.
    """
    target = os.fspath(path)
    folder, name = os.path.split(target)
    # The ending stays, since writers choose a format and a compression by it.
    fresh = os.path.join(folder or os.curdir, f".spuir-{secrets.token_hex(8)}-{name[-40:]}")
    os.makedirs(folder or os.curdir, exist_ok=True)
    try:
        with open(fresh, "xb") as file:
            with suppress(FileNotFoundError):
                os.chmod(fresh, stat.S_IMODE(os.stat(target).st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(fresh)
        raise
    sync_folder(folder or os.curdir)


def sync_folder(folder: str) -> None:
    """Make what was renamed in a folder reach the disk, where the system can do so."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_folder(folder: Path) -> None:
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
    try:
        write_atomically(path, text.encode())
    except OSError as failure:
        raise _unwritable(path, failure.strerror) from None
    return path


def write_json(path: Path, data: Mapping[str, Any] | Sequence[Any]) -> Path:
    """Write ``data`` as JSON; what is not a finite number becomes null."""
    return write_text(path, json.dumps(finite(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_csv(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write records as CSV, columns in the order of first appearance; a value that a record lacks stays empty."""
    records = list(rows)
    names = list(dict.fromkeys(name for record in records for name in record))
    text = StringIO(newline="")
    table = csv.DictWriter(text, names, lineterminator="\n")
    table.writeheader()
    table.writerows(records)
    return write_text(path, text.getvalue())


def finite(data: Any, figures: int | None = None) -> Any:
    """Return data as JSON can hold it: lists for tuples, None for what is not a finite number.

    With ``figures`` given, numbers are rounded to that many significant digits, so that a stored file stays small.
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
