"""What workers on other machines must see: the files of the log, and the folder for temporary files."""

import os
import socket
from collections.abc import Iterable, Sequence

from spuir.errors import InputError
from spuir.logs import Log
from spuir.logs.temporary import Folder
from spuir.training.engines.base import WorkEngine, on_every_worker

MAX_PATHS = 200
"""So many files of a log are looked for on every worker."""
SHARED = "name a folder that all workers share with --scratch (scratch=)"


def check_log(engine: WorkEngine, log: Log) -> None:
    """Raise if a worker does not see the files of the log."""
    paths = list(dict.fromkeys(path for part in log.parts for path in part.paths))
    step = -(-len(paths) // MAX_PATHS) or 1
    temporary = [path for part in log.parts[:1] for path in part.paths[1:]]
    _check(engine, temporary, "workers read the joined rewards there", f"{SHARED}, or folder= of join_logs")
    _check(
        engine, paths[::step], "workers read the log themselves", "put it where every worker sees it under that path"
    )


def check_scratch(engine: WorkEngine, scratch: str | os.PathLike[str] | None) -> None:
    """Raise if a worker does not see the folder for temporary files; None = the system's own folder."""
    if engine.name != "local":
        check_folder(engine, Folder(scratch))


def check_folder(engine: WorkEngine, folder: Folder) -> None:
    """Raise if a worker does not see a folder; its random name leaves no doubt that it is the same one."""
    _check(engine, [folder.path], "workers read temporary files there", SHARED)


def _check(engine: WorkEngine, paths: Sequence[str], rule: str, remedy: str) -> None:
    if engine.name == "local" or not paths:
        return
    for host, missing in on_every_worker(engine, missing_here, paths):
        if missing is not None:
            raise InputError(f"worker on {host}", f"no {missing!r}", rule, remedy)


def missing_here(paths: Iterable[str]) -> tuple[str, str | None]:
    """Return the name of this machine, and the first of some paths that is not there."""
    return socket.gethostname(), next((path for path in paths if not os.path.exists(path)), None)
