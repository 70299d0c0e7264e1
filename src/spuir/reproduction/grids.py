"""Grids of cells: every cell has a name and its tasks, one per seed; a report finds the results by cell.

:class:`CellGrid` has the tasks of each cell, and :class:`Measured` its results as samples, leads and rows of tables.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Generic, TypeVar

from spuir.reproduction.base import Scope
from spuir.reproduction.claims import Contrast, Interval, Sample, difference, sample, with_error
from spuir.reproduction.policy_runs import REGRET, REWARD
from spuir.reproduction.tasks import Result, Task

Name = TypeVar("Name", bound=Hashable)
Cells = Mapping[Name, Sequence[Task]]
FORMATS: Mapping[str, str] = {"average reward": ".4f", "regret per decision": ".5f"}


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


class Measured(Generic[Name]):
    """Results by cell; cells without results are left out. ``label`` names a cell in samples and contrasts."""

    def __init__(self, groups: Mapping[Name, Sequence[Result]], label: Callable[[Name], str] = str) -> None:
        self.groups = {cell: group for cell, group in groups.items() if group}
        self.label = label

    def __contains__(self, cell: object) -> bool:
        return cell in self.groups

    def __iter__(self) -> Iterator[Name]:
        return iter(self.groups)

    def __getitem__(self, cell: Name) -> Sequence[Result]:
        return self.groups.get(cell, ())

    @property
    def seeds(self) -> int:
        """The largest number of seeds of a cell."""
        return max((len(group) for group in self.groups.values()), default=0)

    def sample(self, cell: Name, column: str = REGRET, **where: Any) -> Sample:
        """Return a column by seed: of the last row of each result, or the mean of the rows with the given values.

        A cell without results has none.
        """
        name = "".join([self.label(cell), *(f", {key} {value}" for key, value in where.items()), f"/{column}"])

        def pick(rows: Sequence[Mapping[str, Any]]) -> float:
            return fmean(row[column] for row in rows if where.items() <= row.items())

        return sample(name, self[cell], pick if where else column)

    def values(self, cells: Iterable[Name], column: str = REGRET) -> list[Iterable[float]]:
        """Return a column of several cells, for a line of a figure."""
        return [self.sample(cell, column) for cell in cells]

    def lead(self, ours: Name, theirs: Name) -> Contrast:
        """Return by how much a cell's expected reward exceeds that of another, in per cent of the other's reward.

        The difference of expected rewards is that of the regrets, with the sign changed; unlike that of the rewards
        themselves it is free of their noise.
        """
        name = f"{self.label(ours)} − {self.label(theirs)}"
        return difference(name, self.sample(theirs), self.sample(ours), percent_of=self.sample(theirs, REWARD))

    def row(self, cell: Name) -> dict[str, Any]:
        """Return reward and regret of a cell with their standard errors, as columns of a table."""
        row: dict[str, Any] = {}
        for title, column in (("average reward", REWARD), ("regret per decision", REGRET)):
            row |= with_error(title, self.sample(cell, column))
        return row


def text_of(one: Interval, spec: str = "+.2f") -> str:
    """Return "estimate [low, high]"."""
    return f"{one.estimate:{spec}} [{one.low:{spec}}, {one.high:{spec}}]"
