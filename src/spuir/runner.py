"""Many runs at once: one process for each core, one BLAS thread in each, the same numbers for any number of workers."""

import csv
import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from io import StringIO
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from spuir.environments.base import Environment
from spuir.errors import SpuirError
from spuir.history import History
from spuir.loop import run
from spuir.policies.base import Policy

Watcher = Callable[[int], object]

POLL_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Task:
    """One run to be done: arguments of :func:`spuir.run`."""

    policy: Policy
    environment: Environment
    episodes: int
    batch_size: int
    seed: int

    def run(self, progress: Watcher | None = None) -> History:
        """Do it."""
        return run(self.policy, self.environment, self.episodes, self.batch_size, self.seed, progress=progress)


def run_all(tasks: Sequence[Task], workers: int | None = None, watch: Watcher | None = None) -> list[History]:
    """Return the history of every task, in their order.

    Parameters
    ----------
    tasks
        What to run. The first failure ends the rest and is raised.
    workers
        Number of processes; None takes one for each core. With one, everything runs in this process.
    watch
        Called now and then with the number of episodes finished over all tasks.
    """
    count = min(workers or os.cpu_count() or 1, len(tasks))
    if count <= 1:
        return _run_here(tasks, watch)
    context = get_context("spawn")
    finished: Any = context.Value("q", 0)
    with ProcessPoolExecutor(count, mp_context=context, initializer=_share, initargs=(finished,)) as pool:
        futures = [pool.submit(_run_there, task) for task in tasks]
        try:
            _await(futures, finished, watch)
            return [future.result() for future in futures]
        except BrokenProcessPool:
            raise SpuirError(
                "workers", f"{count} processes", "one of them died", "try fewer workers or smaller runs"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _run_here(tasks: Sequence[Task], watch: Watcher | None) -> list[History]:
    done, histories = 0, list[History]()
    for task in tasks:
        histories.append(task.run(None if watch is None else lambda n, before=done: watch(before + n)))
        done += task.episodes
    return histories


def _await(futures: Sequence[Future[History]], finished: Any, watch: Watcher | None) -> None:
    """Wait until all are done or one has failed, and tell the watcher how far they are."""
    while True:
        done, pending = wait(futures, timeout=POLL_SECONDS, return_when=FIRST_EXCEPTION)
        if watch is not None:
            watch(finished.value)
        for future in done:
            future.result()
        if not pending:
            return


_shared: dict[str, Any] = {}


def _share(finished: Any) -> None:
    """Keep, in a worker, the counter of finished episodes that all workers have in common."""
    _shared["finished"] = finished


def _run_there(task: Task) -> History:
    finished = _shared["finished"]

    def count(_: int) -> None:
        with finished.get_lock():
            finished.value += 1

    return task.run(count)


def summarise(histories: Iterable[History]) -> list[dict[str, Any]]:
    """Return a record per policy: mean and standard error over seeds of each number of its summary, best first."""
    groups: dict[str, list[dict[str, float]]] = {}
    for history in histories:
        groups.setdefault(history.policy, []).append(history.summary())
    records: list[dict[str, Any]] = []
    for policy, summaries in groups.items():
        record: dict[str, Any] = {"policy": policy, "seeds": len(summaries)}
        for name in summaries[0]:
            values = np.array([summary[name] for summary in summaries])
            error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
            record[name] = {"mean": _known(values.mean()), "standard_error": _known(error)}
        records.append(record)
    return sorted(records, key=lambda record: -record["average_reward"]["mean"])


def _known(value: float) -> float | None:
    """Return a number as JSON can hold it: None for what is not a number."""
    return float(value) if np.isfinite(value) else None


def versions() -> dict[str, str]:
    """Return the versions of everything that the numbers depend on."""
    from spuir import __version__

    return {
        "spuir": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def write_rows(path: Path, histories: Iterable[History]) -> Path:
    """Write one line per policy, seed and episode as CSV; columns that a run lacks stay empty."""
    rows = [row for history in histories for row in history.rows()]
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = StringIO(newline="")
    table = csv.DictWriter(text, names, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return _write(path, text.getvalue())


def write_json(path: Path, data: Mapping[str, Any]) -> Path:
    """Write ``data`` as JSON."""
    return _write(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def _write(path: Path, text: str) -> Path:
    """Write a whole file or none of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".partial")
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except OSError as failure:
        raise SpuirError(
            "results", path, f"it cannot be written ({failure.strerror})", "choose another folder with --out"
        ) from None
    return path
