"""How long the rest will take, judged by what similar tasks took, in this sitting or before."""

import json
from collections.abc import Iterable

from spuir.reproduction.runner import Result, Task

UNKNOWN_SECONDS = 1.0


class Pace:
    """Mean seconds of tasks, by cell first (all but the seed), then by policy, by function, and over all."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, ...], tuple[float, int]] = {}
        self._levels: dict[str, list[tuple[str, ...]]] = {}

    def learn(self, result: Result) -> None:
        """Take notice of a finished task."""
        for level in self._of(result.task):
            seconds, count = self._sums.get(level, (0.0, 0))
            self._sums[level] = seconds + result.seconds, count + 1

    def guess(self, task: Task) -> float:
        """Return the seconds that a task may take."""
        for level in self._of(task):
            if level in self._sums:
                seconds, count = self._sums[level]
                return seconds / count
        return UNKNOWN_SECONDS

    def left(self, tasks: Iterable[Task], workers: int) -> float:
        """Return the seconds that tasks may take together; those that run alone have no worker beside them."""
        return sum(self.guess(task) / (1 if task.alone else workers) for task in tasks)

    def _of(self, task: Task) -> list[tuple[str, ...]]:
        if task.key not in self._levels:
            cell = {name: value for name, value in task.arguments.items() if name != "seed"}
            whole = json.dumps(cell, sort_keys=True)
            names = (task.function, str(task.arguments.get("policy", "")), whole)
            self._levels[task.key] = [names[:length] for length in range(len(names), -1, -1)]
        return self._levels[task.key]
