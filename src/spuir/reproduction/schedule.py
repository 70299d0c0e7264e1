"""From experiments to results: ask every grid what it needs, do what is not done yet, ask again.

Tasks that measure time come last and alone. A failure stops nothing but its own task, is told at the end, and the
task is tried again the next time.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol

from spuir.reproduction.base import Experiment, Plan
from spuir.reproduction.pace import Pace
from spuir.reproduction.runner import Result, Task
from spuir.reproduction.store import Store
from spuir.reproduction.workers import spread

Follower = Callable[[int, int, float], object]
"""Called with the number of finished tasks, the number known so far, and the seconds that the rest may take."""

Failures = dict[str, dict[str, str]]
"""By the key of a task: the task as a call, and the error."""

FOLLOW_SECONDS = 0.5


@dataclass(frozen=True)
class Asked:
    """An experiment with the tasks that its grid asks for, their results so far, and why it could not be asked.

    The results are in the order of the grid, whatever the order in which they were found.
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
    """Where results are looked up: a :class:`~spuir.reproduction.store.Store`, or what stands in for it."""

    def find(self, task: Task) -> Result | None:
        """Return the result of a task if it is done."""
        ...


def told(failure: BaseException) -> str:
    """Return a failure as one line."""
    return " ".join(f"{type(failure).__name__}: {failure}".split())


def ask(experiment: Experiment, plan: Plan, store: Finder) -> Asked:
    """Return what an experiment asks for, as far as it can say by now.

    Its grid sees the results of all that it ever asked for, and nothing of other experiments: what it asks for does
    not depend on what else is in the folder.
    """
    known: dict[str, Result] = {}
    try:
        while True:
            tasks = unique(experiment.grid(plan, list(known.values())))
            found = {task.key: result for task in tasks if (result := store.find(task))}
            if found.keys() <= known.keys():
                return Asked(experiment, tasks, list(found.values()))
            known |= found
    except Exception as failure:  # a grid that cannot say what it wants stops no other experiment
        return Asked(experiment, failure=told(failure))


def unique(tasks: Iterable[Task]) -> list[Task]:
    """Return tasks without repeats; one that is asked for both ways runs alone, which serves either."""
    kept: dict[str, Task] = {}
    for task in tasks:
        if task.key not in kept or task.alone:
            kept[task.key] = task
    return list(kept.values())


def carry_out(
    experiments: Sequence[Experiment],
    plan: Plan,
    store: Store,
    workers: int,
    follow: Follower | None = None,
    **told_of: Any,
) -> tuple[list[Asked], Failures]:
    """Do all that the experiments ask for and that is not done; return what each has, and the failures by task.

    Parameters
    ----------
    experiments, plan, store
        What to do, how much of it, and where results are kept.
    workers
        Number of processes for tasks that do not measure time.
    follow
        Called now and then with how far it is.
    told_of
        Further fields of this sitting in the manifest.
    """
    pace, failures = Pace(), Failures()
    with ExitStack() as stack:
        sitting: dict[str, Any] | None = None
        while True:
            asked = [ask(experiment, plan, store) for experiment in experiments]
            wanted = [task for one in asked for task in one.missing if task.key not in failures]
            if not wanted:
                return asked, failures
            if sitting is None:
                sitting = stack.enter_context(store.sitting(workers, **told_of, **_plan(plan), failures=failures))
                for result in (result for one in asked for result in one.results):
                    pace.learn(result)
            done = len({result.task.key for one in asked for result in one.results})
            _stage(unique(wanted), store, workers, failures, _Following(follow, pace, workers, done))


def _plan(plan: Plan) -> dict[str, Any]:
    """Return a plan as a manifest holds it."""
    data = None if plan.data is None else str(plan.data)
    return {"plan": {"repeats": plan.repeats, "quick": plan.quick, "data": data}, "seeds": list(plan.seeds)}


class _Following:
    """Tells a follower, not too often, how far the tasks of a stage are."""

    def __init__(self, follow: Follower | None, pace: Pace, workers: int, done: int) -> None:
        self.pace = pace
        self._follow, self._workers, self._done, self._last = follow, workers, done, -FOLLOW_SECONDS

    def tell(self, waiting: Sequence[Task], ended: int) -> None:
        """Tell it, ``ended`` tasks of this stage being over and ``waiting`` not."""
        if self._follow is not None and monotonic() - self._last >= FOLLOW_SECONDS:
            self._last = monotonic()
            done = self._done + ended
            self._follow(done, done + len(waiting), self.pace.left(waiting, self._workers))


def _stage(wanted: Sequence[Task], store: Store, workers: int, failures: Failures, following: _Following) -> None:
    """Do the tasks that may run side by side; where there is none, those that run alone."""
    beside = [task for task in wanted if not task.alone]
    tasks = beside or wanted
    waiting = {task.key: task for task in wanted}
    following.tell(list(waiting.values()), 0)
    with closing(spread(tasks, workers if beside else 1, apart=True)) as ended:
        for done in ended:
            task = tasks[done.place]
            if done.failure is None:
                result = Result(task, done.value, done.seconds)
                store.add(result)
                following.pace.learn(result)
            else:
                failures[task.key] = {"task": task.label, "error": told(done.failure)}
            del waiting[task.key]
            following.tell(list(waiting.values()), len(wanted) - len(waiting))
