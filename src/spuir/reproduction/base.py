"""What an experiment is: a grid of trials, and a report of what they gave.

An experiment is frozen data with a name. Its grid is a list of :class:`~spuir.reproduction.runner.Task`, made from a
:class:`Plan` and from what is known already; the runner does the tasks that are not done yet. Its report turns
results into tables, figures and verdicts, and types in no number by hand.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from spuir.reproduction.runner import Result, Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Value = TypeVar("Value")
Row = Mapping[str, Any]

HOLDS = "holds"
AUTHORS_ONLY = "holds only against the authors' settings"
FAILS = "does not hold here"
OPEN = "not decided"
Outcome = Literal["holds", "holds only against the authors' settings", "does not hold here", "not decided"]

QUICK_SEEDS = 2


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is to be done, and with which files.

    Parameters
    ----------
    repeats
        Seeds of each cell, 0…repeats − 1.
    quick
        Do a subset only: the first seeds, and the values that each axis names for it. Every quick cell is a
        cell of the full grid, so that a full run after a quick one goes on from it.
    data
        Folder with files that users bring (see docs/howto/reproduce.md for the names); None without.
    """

    repeats: int = 20
    quick: bool = False
    data: Path | None = None

    @property
    def seeds(self) -> range:
        """The seeds of each cell."""
        return range(min(self.repeats, QUICK_SEEDS) if self.quick else self.repeats)

    def axis(self, values: Sequence[Value], quick: Sequence[Value]) -> Sequence[Value]:
        """Return the values of one axis of the grid: all, or the subset that stands for them."""
        strange = [value for value in quick if value not in values]
        assert not strange, f"the quick values {strange} are not on the axis"
        return quick if self.quick else values


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of the report, written as CSV as it is, and as HTML and Markdown in rounded form.

    Parameters
    ----------
    name
        Of the file, unique in the experiment; ``""`` for its main table.
    title
        Heading.
    rows
        Records in order. A number beside a ``<column> ±`` of the same record is shown as "mean ± error".
    formats
        Format of each column's numbers (``".4f"``); ``".4g"`` where there is none.
    """

    name: str
    title: str
    rows: Sequence[Row]
    formats: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of one claim.

    Parameters
    ----------
    claim
        What the paper (or its reader) says, in one sentence of our own.
    outcome
        One of the outcomes above, found by a stated rule from the numbers.
    evidence
        The numbers with their intervals, and the rule, in a sentence or two.
    """

    claim: str
    outcome: Outcome
    evidence: str


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Everything that an experiment has to show.

    Parameters
    ----------
    tables, verdicts
        In the order of the report.
    figures
        Name (``""`` for the main one) → figure of :mod:`spuir.results.figures`, drawn in the house style.
    lesson
        Two to five plain sentences: what a reader learns here, with numbers from the results, also what the paper does
        not say.
    """

    tables: Sequence[Table]
    verdicts: Sequence[Verdict]
    figures: "Mapping[str, Figure]"
    lesson: str


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One figure or table.

    Parameters
    ----------
    name
        As registered.
    title
        Of its section in the report.
    source
        Where the paper has it ("Figure 3(a)", "Theorem 3", "Table 2"), or "beyond the paper".
    shown
        What the paper shows there, in a sentence or two of our own, with its numbers where it prints any.
    setting
        What is run here: environment, N, B, policies, and in what it differs from the paper.
    grid
        (plan, results so far) → tasks. It is asked again after its tasks are done, until it asks for nothing new: a
        grid that chooses settings first asks for the choice, then for what was chosen.
    report
        (plan, results of exactly these tasks) → findings.
    """

    name: str
    title: str
    source: str
    shown: str
    setting: str
    grid: Callable[[Plan, Sequence[Result]], Sequence[Task]]
    report: Callable[[Plan, Sequence[Result]], Findings]

    @property
    def summary(self) -> str:
        """Title and source in one line."""
        return f"{self.title} ({self.source})"
