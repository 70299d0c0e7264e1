"""Temporary files: a folder that lasts as long as the object that needs it, and an error for full disks."""

import fcntl
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from spuir.errors import InputError, SpuirError

PREFIX = "spuir-scratch-"
"""How the names of temporary folders begin."""
SETTLED_SECONDS = 60
"""A younger folder may not be locked yet by the process that made it."""


class Folder:
    """A temporary folder that is removed with this object; one that a killed process left is removed by the next."""

    def __init__(self, within: str | os.PathLike[str] | None = None) -> None:
        place = os.path.abspath(tempfile.gettempdir() if within is None else within)
        try:
            _remove_stale(place)
            self.path = tempfile.mkdtemp(prefix=PREFIX, dir=place)
            lock = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            got, rule = error.strerror or str(error), "the folder for temporary files must be writable"
            raise InputError(f"folder {str(within or place)!r}", got, rule, "name another (--scratch)") from error
        with suppress(OSError):  # a file system without locks: nobody can lock it, and so nobody removes it
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        self.remove = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Become None in another process, which finds the files as long as the folder lives here."""
        return type(None), ()


def _remove(path: str, lock: int, owner: int) -> None:
    if os.getpid() == owner:  # a fork of the process that made it has a copy of the object
        shutil.rmtree(path, ignore_errors=True)
    os.close(lock)


def _remove_stale(place: str) -> None:
    """Remove the folders of processes that are gone: the lock of a folder ends with its process."""
    for entry in os.scandir(place):
        if not entry.name.startswith(PREFIX):
            continue
        with suppress(OSError):
            if time.time() - entry.stat().st_mtime > SETTLED_SECONDS:
                lock = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(entry.path, ignore_errors=True)
                finally:
                    os.close(lock)


@contextmanager
def full_disk(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Turn a failure to write temporary files, such as a full disk, into one sentence."""
    try:
        yield
    except OSError as error:
        if isinstance(error, SpuirError):
            raise
        got, rule = error.strerror or str(error), "temporary files must be written there"
        remedy = "free some space, or name another folder (--scratch)"
        raise InputError(f"folder {os.fspath(folder)!r}", got, rule, remedy) from error
