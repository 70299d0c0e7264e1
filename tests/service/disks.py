"""Disks that fail on purpose, below SQLite: virtual file systems through which a store opens its file.

``RecordingDisk`` keeps every storage call of a scenario as a trace. From the trace follow the files as they would be
found after a kill or a power cut at any call, without running the scenario again. ``FailingDisk`` refuses chosen calls.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import numpy as np

SECTOR = 512
"""What a disk writes whole or not at all."""


@dataclass
class Call:
    """One storage call: a write, sync, truncate or delete; an ack is no call, but an answer to a client."""

    kind: str
    file: str = ""
    offset: int = 0
    data: bytes = b""
    note: Any = None


@dataclass
class Trace:
    """The storage calls of a scenario, with the answers that were given between them."""

    calls: list[Call] = field(default_factory=list)

    def acknowledge(self, note: Any) -> None:
        """Remember that a client has its answer."""
        self.calls.append(Call("ack", note=note))

    def acknowledged(self, until: int) -> list[Any]:
        """Return the answers that were given before a call."""
        return [call.note for call in self.calls[:until] if call.kind == "ack"]

    def syncs(self) -> list[int]:
        """Return the places right before and right after each synchronisation."""
        found = [at for at, call in enumerate(self.calls) if call.kind == "sync"]
        return sorted({place for at in found for place in (at, at + 1)})

    def after_kill(self, until: int) -> dict[str, bytes]:
        """Return the files after the process was killed before a call: the system keeps all that was written."""
        files: dict[str, bytearray] = {}
        for call in self.calls[:until]:
            _apply(files, call)
        return {name: bytes(content) for name, content in files.items()}

    def after_power_cut(self, until: int, keep: Callable[[int], np.ndarray]) -> dict[str, bytes]:
        """Return the files after the power failed before a call.

        What was synchronised is there. Of what was written since, ``keep(n)`` says which of the n sectors or
        truncations reached the disk. A file that was never synchronised is not there: neither is its folder's entry.
        """
        durable: dict[str, bytearray] = {}
        pending: dict[str, list[Call]] = {}
        for call in self.calls[:until]:
            if call.kind == "sync":
                durable.setdefault(call.file, bytearray())
                for one in pending.pop(call.file, []):
                    _apply(durable, one)
            elif call.kind == "delete":
                durable.pop(call.file, None)
                pending.pop(call.file, None)
            elif call.kind in ("write", "truncate"):
                pending.setdefault(call.file, []).append(call)
        for name, calls in pending.items():
            if name in durable:
                pieces = [piece for call in calls for piece in _sectors(call)]
                for piece, kept in zip(pieces, keep(len(pieces)), strict=True):
                    if kept:
                        _apply(durable, piece)
        return {name: bytes(content) for name, content in durable.items()}


def _apply(files: dict[str, bytearray], call: Call) -> None:
    if call.kind == "delete":
        files.pop(call.file, None)
    elif call.kind in ("write", "truncate"):
        content = files.setdefault(call.file, bytearray())
        end = call.offset + len(call.data)
        if call.kind == "truncate":
            del content[call.offset :]
        if len(content) < end:
            content.extend(bytes(end - len(content)))
        content[call.offset : end] = call.data


def _sectors(call: Call) -> Iterator[Call]:
    """Yield a write as its sectors, in the order of the file."""
    if call.kind == "truncate" or not call.data:
        yield call
        return
    first = call.offset
    last = first + len(call.data)
    edges = [first, *range((first // SECTOR + 1) * SECTOR, last, SECTOR), last]
    for left, right in pairwise(edges):
        yield Call("write", call.file, left, call.data[left - first : right - first])


def put(files: dict[str, bytes], folder: Path) -> None:
    """Write files into a folder that is emptied first."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _name(path: Any) -> str:
    return os.path.basename(path.filename() if isinstance(path, apsw.URIFilename) else str(path or "temporary"))


class _File(apsw.VFSFile):
    def __init__(self, disk: Any, path: Any, flags: list[int]) -> None:
        self._disk, self._file = disk, _name(path)
        super().__init__("", path, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - the name is SQLite's
        self._disk.before(Call("write", self._file, offset, bytes(data)))
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.before(Call("sync", self._file))
        super().xSync(flags)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._disk.before(Call("truncate", self._file, size))
        super().xTruncate(size)


class _Disk(apsw.VFS):
    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(name, "")

    def before(self, call: Call) -> None:
        """See a call before it is carried out; an error stands for the disk's."""
        raise NotImplementedError

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        self.before(Call("delete", _name(filename)))
        super().xDelete(filename, syncdir)


class RecordingDisk(_Disk):
    """Keeps every storage call."""

    def __init__(self, name: str = "recording") -> None:
        self.trace = Trace()
        super().__init__(name)

    def before(self, call: Call) -> None:
        self.trace.calls.append(call)


class FailingDisk(_Disk):
    """Counts storage calls and fails those that ``fails(number, call)`` names: "io", "full" or None."""

    def __init__(self, name: str = "failing") -> None:
        self.count = 0
        self.fails: Callable[[int, Call], str | None] = lambda number, call: None
        super().__init__(name)

    def before(self, call: Call) -> None:
        self.count += 1
        how = self.fails(self.count, call)
        if how == "full":
            raise apsw.FullError("the disk is full")
        if how == "io":
            raise apsw.IOError("the disk failed")
