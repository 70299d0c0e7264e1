"""What is run, and over processes: single runs as they are asked for, and tasks whose results are kept.

One process for each core, one BLAS thread in each, the same numbers for any number of workers.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from spuir.base.hashing import digest
from spuir.environments.base import Environment
from spuir.loop import run
from spuir.policies.base import Policy
from spuir.reproduction.workers import Watcher, spread
from spuir.results.history import History


@dataclass(frozen=True, kw_only=True)
class Task:
    """One piece of work: a function by name, and the JSON data that it is called with.

    Parameters
    ----------
    function
        ``"module:name"``; called with the arguments as keywords, it returns tidy rows.
    arguments
        JSON data. Tasks of equal function and arguments are one task.
    alone
        Whether time is measured: such tasks run last, one at a time.
    """

    function: str
    arguments: Mapping[str, Any]
    alone: bool = False

    @cached_property
    def key(self) -> str:
        """Digest of the function and the arguments, by which finished work is found again."""
        text = json.dumps([self.function, self.arguments], sort_keys=True, allow_nan=False)
        return digest(text, size=10)

    @property
    def label(self) -> str:
        """The call as a reader would write it, without what is empty."""
        given = {name: value for name, value in self.arguments.items() if value not in (None, {}, [], "")}
        told = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in given.items())
        return f"{self.function.rpartition(':')[2]}({told})"

    def run(self, step: Watcher | None = None) -> list[dict[str, Any]]:
        """Do it, with one BLAS thread; return the rows exactly as they are read again from a file of results."""
        module, _, name = self.function.partition(":")
        with threadpool_limits(limits=1):
            rows = getattr(import_module(module), name)(**self.arguments)
        return json.loads(json.dumps(rows, default=_plain))


def _plain(value: Any) -> Any:
    """Return a NumPy number as Python's own."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a row holds a {type(value).__name__}, which is not JSON data")


@dataclass(frozen=True)
class Result:
    """What a finished task gave: its rows, and the seconds that it took."""

    task: Task
    rows: Sequence[Mapping[str, Any]]
    seconds: float

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The task's arguments."""
        return self.task.arguments


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run to be done: arguments of :func:`spuir.run`."""

    policy: Policy
    environment: Environment
    episodes: int
    batch_size: int
    seed: int

    def run(self, step: Watcher | None = None) -> History:
        """Do it."""
        return run(self.policy, self.environment, self.episodes, self.batch_size, self.seed, progress=step)


def run_all(tasks: Sequence[Run], workers: int | None = None, watch: Watcher | None = None) -> list[History]:
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
    histories: dict[int, History] = {}
    with closing(spread(tasks, workers, watch)) as ended:
        for done in ended:
            if done.failure is not None:
                raise done.failure
            histories[done.place] = done.value
    return [histories[place] for place in range(len(tasks))]


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
