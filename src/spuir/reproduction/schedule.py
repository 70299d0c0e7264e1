"""From experiments to results: ask every grid which tasks it needs, run those that are not done, ask again.

Tasks that measure time run last, one at a time. A failure stops only its own task. It is reported at the end, and the
next run tries the task again.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol

from spuir.reproduction.base import Experiment, Scope
from spuir.reproduction.store import Store
from spuir.reproduction.tasks import Result, Task
from spuir.reproduction.workers import run_jobs

Follower = Callable[[int, int, float], object]
"""Called with the number of finished tasks, the number of known tasks, and the estimated seconds for the rest."""

Failures = dict[str, dict[str, str]]
"""Key of a task → the task as a call, and the error."""

FOLLOW_SECONDS = 0.5
UNKNOWN_SECONDS = 1.0


@dataclass(frozen=True)
class Asked:
    """An experiment with the tasks of its grid and their results so far, or why its grid failed.

    The results are in the order of the grid, whatever the order in which they finished.
    """

    experiment: Experiment
    tasks: Sequence[Task] = ()
    results: Sequence[Result] = ()
    failure: str | None = None

    @property
    def missing(self) -> list[Task]:
        """The tasks without a result."""
        done = {result.task.key for result in self.results}
        return [task for task in self.tasks if task.key not in done]


class Finder(Protocol):
    """Where results are looked up: a :class:`~spuir.reproduction.store.Store`, or a stand-in in tests."""

    def find(self, task: Task) -> Result | None:
        """Return the result of a task if it is done."""
        ...


def error_line(failure: BaseException) -> str:
    """Return a failure as one line."""
    return " ".join(f"{type(failure).__name__}: {failure}".split())


def ask(experiment: Experiment, scope: Scope, store: Finder) -> Asked:
    """Return the tasks an experiment needs, as far as its results determine them.

    Its grid sees the results of its own tasks and nothing of other experiments, so it does not depend on what else is
    in the folder.
    """
    known: dict[str, Result] = {}
    try:
        while True:
            tasks = unique(experiment.grid(scope, list(known.values())))
            done = {task.key: result for task in tasks if (result := store.find(task))}
            if done.keys() <= known.keys():
                return Asked(experiment, tasks, list(done.values()))
            known |= done
    except Exception as failure:  # a grid that fails must not stop the other experiments
        return Asked(experiment, failure=error_line(failure))


def unique(tasks: Iterable[Task]) -> list[Task]:
    """Return tasks without repeats. A task that is wanted both alone and not runs alone, which serves both."""
    kept: dict[str, Task] = {}
    for task in tasks:
        if task.key not in kept or task.alone:
            kept[task.key] = task
    return list(kept.values())


def carry_out(
    experiments: Sequence[Experiment],
    scope: Scope,
    store: Store,
    workers: int,
    follow: Follower | None = None,
    **facts: Any,
) -> tuple[list[Asked], Failures]:
    """Run all tasks of the experiments that are not done; return what each experiment has, and the failures.

    Parameters
    ----------
    experiments, scope, store
        What to run, how much of it, and where results are kept.
    workers
        Number of processes for tasks that do not measure time.
    follow
        Called now and then with the progress.
    facts
        Further fields for the manifest.
    """
    progress, failures = _Progress(follow, workers), Failures()
    with ExitStack() as stack:
        started = False
        while True:
            asked = [ask(experiment, scope, store) for experiment in experiments]
            wanted = [task for one in asked for task in one.missing if task.key not in failures]
            if not wanted:
                return asked, failures
            if not started:
                started = True
                stack.enter_context(store.sitting(workers, **facts, **_manifest_fields(scope), failures=failures))
                for result in (result for one in asked for result in one.results):
                    progress.times.add(result)
            progress.done = len({result.task.key for one in asked for result in one.results})
            _run_stage(unique(wanted), store, failures, progress)


def _manifest_fields(scope: Scope) -> dict[str, Any]:
    """Return a scope as the manifest holds it."""
    data = None if scope.data is None else str(scope.data)
    return {"plan": {"repeats": scope.repeats, "quick": scope.quick, "data": data}, "seeds": list(scope.seeds)}


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


class _Progress:
    """Reports the progress of all stages to a follower, at most twice per second."""

    def __init__(self, follow: Follower | None, workers: int) -> None:
        self.times, self.workers, self.done = TaskTimes(), workers, 0
        self._follow, self._last = follow, -FOLLOW_SECONDS

    def report(self, waiting: Sequence[Task]) -> None:
        """Report that these tasks are not done yet."""
        if self._follow is not None and monotonic() - self._last >= FOLLOW_SECONDS:
            self._last = monotonic()
            self._follow(self.done, self.done + len(waiting), self.times.remaining(waiting, self.workers))


def _run_stage(wanted: Sequence[Task], store: Store, failures: Failures, progress: _Progress) -> None:
    """Run the tasks that may share the machine or, if there are none, those that run alone."""
    together = [task for task in wanted if not task.alone]
    tasks = together or wanted
    waiting = {task.key: task for task in wanted}
    progress.report(list(waiting.values()))
    with closing(run_jobs(tasks, progress.workers if together else 1, apart=True)) as ended:
        for done in ended:
            task = tasks[done.place]
            if done.failure is None:
                result = Result(task, done.value, done.seconds)
                store.add(result)
                progress.times.add(result)
            else:
                failures[task.key] = {"task": task.label, "error": error_line(done.failure)}
            del waiting[task.key]
            progress.done += 1
            progress.report(list(waiting.values()))
