"""The folder of results: every finished task adds a line, and later runs find it by its key.

The first line of ``results.jsonl`` says which version wrote it. Every other line is a finished task: its key, function,
arguments, rows and seconds. A line is on the disk before its task counts as done, so a kill loses only the running
tasks; a line that a kill cut short is removed. ``manifest.json`` says where and when the work was done. Only the
process that holds ``lock`` may write.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from spuir import __version__
from spuir.errors import SpuirError
from spuir.reproduction.manifest import blas, commit, machine, now, versions
from spuir.reproduction.tasks import Result, Task
from spuir.storage.atomic import write_json

LINES, MANIFEST, LOCK = "results.jsonl", "manifest.json", "lock"
LAYOUT = 1

_ANOTHER = "choose another folder with --out"


class Store:
    """The finished tasks of one folder, by key. :func:`open_store` makes it and holds the lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lines = folder / LINES
        self._results = {result.task.key: result for result in _read(self._lines)}

    def __len__(self) -> int:
        return len(self._results)

    def find(self, task: Task) -> Result | None:
        """Return the result of a task if it is done. A task that measures time must have run alone."""
        known = self._results.get(task.key)
        return known if known is not None and known.task.alone >= task.alone else None

    def add(self, result: Result) -> None:
        """Store a result. It is on the disk when this returns."""
        task, seconds = result.task, round(result.seconds, 6)
        line = {
            "key": task.key,
            "function": task.function,
            "alone": task.alone,
            "arguments": task.arguments,
            "rows": result.rows,
            "seconds": seconds,
        }
        with _written(self._lines), self._lines.open("ab") as file:
            if not file.tell():
                file.write(_line({"spuir": __version__, "layout": LAYOUT}))
            file.write(_line(line))
            file.flush()
            os.fsync(file.fileno())
        self._results[task.key] = Result(task, result.rows, seconds)

    @property
    def manifest(self) -> dict[str, Any]:
        """What ``manifest.json`` holds."""
        return read_manifest(self.folder)

    @contextmanager
    def sitting(self, workers: int, **facts: Any) -> Iterator[dict[str, Any]]:
        """Record one run of the command in the manifest when it begins, and again when it ends.

        Yields the record. Fields added to it are written at the end.
        """
        sitting: dict[str, Any] = {"started": now(), "finished": None, "workers": workers, **facts}
        sitting |= commit() | {"versions": versions(), "blas": blas(), "machine": machine()}
        sittings = [*self.manifest.get("sittings", []), sitting]
        before = len(self)
        self.note(sittings=sittings)
        try:
            yield sitting
        finally:
            sitting |= {"finished": now(), "tasks": len(self) - before}
            self.note(sittings=sittings)

    def note(self, **fields: Any) -> None:
        """Change fields of the manifest."""
        write_json(self.folder / MANIFEST, {"version": __version__, **self.manifest, **fields, "results": len(self)})


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder, empty where there is none."""
    path = folder / MANIFEST
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        raise SpuirError("manifest", path, "it is not JSON", "delete it: the results do not depend on it") from None


@contextmanager
def open_store(folder: Path) -> Iterator[Store]:
    """Open a folder of results for this process alone. A folder that does not exist is created."""
    with _written(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / LOCK):
        yield Store(folder)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock. The system releases it when its process ends, so no lock is ever left behind."""
    with _written(path):
        file = path.open("a+", encoding="utf-8")
    with file:
        if not _take(file.fileno()):
            file.seek(0)
            raise SpuirError(
                "folder", path.parent, f"process {file.read().strip() or '?'} is writing to it", f"wait, or {_ANOTHER}"
            )
        with _written(path):
            file.truncate(0)
            os.write(file.fileno(), f"{os.getpid()}\n".encode())  # unbuffered, so that closing has nothing to write
        try:
            yield
        finally:
            file.truncate(0)


def _take(handle: int) -> bool:
    """Lock an open file unless another process has; Windows has no such lock, and this returns True."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _written(path: Path) -> Iterator[None]:
    """Turn an error of the file system about ``path`` into one of ours."""
    try:
        yield
    except OSError as failure:
        raise SpuirError("results", path, f"it cannot be written ({failure.strerror})", _ANOTHER) from None


def _line(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _read(path: Path) -> Iterator[Result]:
    """Yield the results of a file. A last line without an end is cut off."""
    with suppress(FileNotFoundError), path.open("r+b") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                file.truncate(file.seek(-len(line), os.SEEK_END))
                return
            try:
                data = json.loads(line)
                if number > 1:
                    yield _result(data)
                    continue
            except (ValueError, KeyError, TypeError):
                rule, remedy = "its lines are finished tasks", "delete that line: its task will run again"
                raise SpuirError("results", f"line {number} of {path}", rule, remedy) from None
            _check_version(path, data)


def _result(data: Mapping[str, Any]) -> Result:
    task = Task(function=data["function"], arguments=data["arguments"], alone=data["alone"])
    if task.key != data["key"]:
        raise ValueError
    return Result(task, data["rows"], data["seconds"])


def _check_version(path: Path, data: Any) -> None:
    """Refuse the results of another version: its numbers may differ."""
    if data != {"spuir": __version__, "layout": LAYOUT}:
        raise SpuirError(
            "results",
            f"{path} of spuir {data.get('spuir', '?') if isinstance(data, dict) else '?'}",
            f"spuir {__version__} may give other numbers",
            f"{_ANOTHER}, or delete that file",
        )
