"""Grids of cells: every cell has a name and its tasks, one per seed; a report finds the results by cell."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from spuir.reproduction.base import Scope
from spuir.reproduction.tasks import Result, Task

Name = TypeVar("Name", bound=Hashable)
Cells = Mapping[Name, Sequence[Task]]


@dataclass(frozen=True)
class CellGrid(Generic[Name]):
    """The grid of an experiment whose cells depend on the scope alone; ``order`` arranges its tasks."""

    cells: Callable[[Scope], Cells[Name]]
    order: Callable[[Sequence[Task]], list[Task]] = list

    def __call__(self, scope: Scope, results: Sequence[Result] = ()) -> list[Task]:
        """Return the tasks of all cells, in order."""
        return self.order(tasks_of(self.cells(scope)))

    def fill(self, scope: Scope, results: Iterable[Result]) -> dict[Name, list[Result]]:
        """Return the results of each cell."""
        return fill(self.cells(scope), results)


def tasks_of(cells: Cells[Any]) -> list[Task]:
    """Return the tasks of all cells, in order."""
    return [task for tasks in cells.values() for task in tasks]


def by_key(results: Iterable[Result]) -> dict[str, Result]:
    """Return results by the key of their task."""
    return {result.task.key: result for result in results}


def fill(cells: Cells[Name], results: Iterable[Result]) -> dict[Name, list[Result]]:
    """Return the results of each cell in the order of its tasks, without those that are missing."""
    known = by_key(results)
    return {name: [known[task.key] for task in tasks if task.key in known] for name, tasks in cells.items()}
