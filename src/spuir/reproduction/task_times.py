"""How long the remaining tasks will take, estimated from the times of similar tasks."""

import json
from collections.abc import Iterable

from spuir.reproduction.tasks import Result, Task

UNKNOWN_SECONDS = 1.0


class TaskTimes:
    """Mean seconds of tasks: by cell (all arguments but the seed), else by policy, by function, or over all tasks."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, ...], tuple[float, int]] = {}
        self._groups: dict[str, list[tuple[str, ...]]] = {}

    def add(self, result: Result) -> None:
        """Count the time of a finished task."""
        for group in self._groups_of(result.task):
            seconds, count = self._sums.get(group, (0.0, 0))
            self._sums[group] = seconds + result.seconds, count + 1

    def estimate(self, task: Task) -> float:
        """Return the seconds that a task may take."""
        for group in self._groups_of(task):
            if group in self._sums:
                seconds, count = self._sums[group]
                return seconds / count
        return UNKNOWN_SECONDS

    def remaining(self, tasks: Iterable[Task], workers: int) -> float:
        """Return the seconds that tasks may take together. Tasks that measure time run one at a time."""
        return sum(self.estimate(task) / (1 if task.alone else workers) for task in tasks)

    def _groups_of(self, task: Task) -> list[tuple[str, ...]]:
        """Return the groups that a task belongs to, the narrowest first."""
        if task.key not in self._groups:
            cell = {name: value for name, value in task.arguments.items() if name != "seed"}
            names = (task.function, str(task.arguments.get("policy", "")), json.dumps(cell, sort_keys=True))
            self._groups[task.key] = [names[:length] for length in range(len(names), -1, -1)]
        return self._groups[task.key]
