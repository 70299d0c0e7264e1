"""The lock that lets one process at a time write a database in a file."""

import os
import sys

from spuir.errors import ServiceError


def take(path: str) -> int:
    """Return the open file beside a database whose lock says that this process writes; the system ends it with us.

    It is a file of its own, because closing any file of SQLite's would end the locks of SQLite.
    """
    try:
        held = os.open(f"{path}-lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as failure:
        rule, remedy = "the folder of a store must exist and take files", "choose another folder, or correct its rights"
        raise ServiceError("storage_unavailable", f"store {path!r}", failure.strerror, rule, remedy) from failure
    try:
        _lock(held)
    except OSError as taken:
        os.close(held)
        got, rule = "a second process", "one process at a time writes a SQLite file"
        remedy = "stop the other process, or let both use PostgreSQL"
        raise ServiceError("storage_unavailable", f"store {path!r}", got, rule, remedy) from taken
    return held


def _lock(held: int) -> None:
    """Lock an open file, or raise an OSError if another process has the lock."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(held, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
