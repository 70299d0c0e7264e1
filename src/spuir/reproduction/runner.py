"""Many runs at once: one process per core, one BLAS thread each, the same numbers for any number of workers."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from spuir.environments.base import Environment
from spuir.loop import run
from spuir.policies.base import Policy
from spuir.reproduction.claims import summary
from spuir.reproduction.workers import Watcher, run_jobs
from spuir.results.history import History


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run to do: the arguments of :func:`spuir.run`."""

    policy: Policy
    environment: Environment
    episodes: int
    batch_size: int
    seed: int

    def run(self, step: Watcher | None = None) -> History:
        """Run the policy."""
        return run(self.policy, self.environment, self.episodes, self.batch_size, self.seed, progress=step)


def run_all(tasks: Sequence[Run], workers: int | None = None, watch: Watcher | None = None) -> list[History]:
    """Return the history of every run, in order.

    Parameters
    ----------
    tasks
        What to run. The first failure stops the rest and is raised.
    workers
        Number of processes; None starts one per core. With one, everything runs in this process.
    watch
        Called now and then with the number of episodes finished over all runs.
    """
    histories: dict[int, History] = {}
    with closing(run_jobs(tasks, workers, watch)) as ended:
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
            mean, error = summary(one[name] for one in summaries)
            record[name] = {"mean": _known(mean), "standard_error": _known(error)}
        records.append(record)
    return sorted(records, key=lambda record: -record["average_reward"]["mean"])


def _known(value: float) -> float | None:
    """Return a number as JSON can hold it: None for what is not a number."""
    return float(value) if np.isfinite(value) else None
