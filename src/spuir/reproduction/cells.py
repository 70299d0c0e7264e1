"""A grid as cells: every cell has a name and its tasks, one for each seed; a report finds its results by them."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from spuir.reproduction.runner import Result, Task
from spuir.reproduction.verdicts import last, summary

Name = TypeVar("Name", bound=Hashable)


def over_seeds(seeds: Iterable[int], task: Callable[[int], Task]) -> list[Task]:
    """Return the tasks of one cell: ``task`` of each seed."""
    return [task(seed) for seed in seeds]


def tasks_of(cells: Mapping[Name, Sequence[Task]]) -> list[Task]:
    """Return the tasks of all cells, in their order."""
    return [task for tasks in cells.values() for task in tasks]


def fill(cells: Mapping[Name, Sequence[Task]], results: Iterable[Result]) -> dict[Name, list[Result]]:
    """Return the results of each cell in the order of its tasks; those that are missing are left out."""
    known = {result.task.key: result for result in results}
    return {name: [known[task.key] for task in tasks if task.key in known] for name, tasks in cells.items()}


def measured(results: Sequence[Result], columns: Mapping[str, str]) -> dict[str, Any]:
    """Return what a table shows of one cell: mean and standard error of the last values, by title → column."""
    record: dict[str, Any] = {}
    for title, column in columns.items():
        record[title], record[f"{title} ±"] = summary(last(results, column).values())
    return record
