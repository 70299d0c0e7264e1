"""The results of a grid by cell, as samples, leads and rows of tables."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, Generic, TypeVar

from spuir.reproduction.claims import Contrast, Interval, Sample, difference, sample, with_error
from spuir.reproduction.policy_runs import REGRET, REWARD
from spuir.reproduction.tasks import Result

Name = TypeVar("Name", bound=Hashable)
FORMATS: Mapping[str, str] = {"average reward": ".4f", "regret per decision": ".5f"}


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
