"""What an experiment is: a grid of tasks, and a report on their results.

An experiment is frozen data with a name. Its grid is a list of :class:`~spuir.reproduction.tasks.Task`, made from a
:class:`Scope` and from the results so far; the scheduler runs the tasks that are not done yet. Its report turns results
into tables, figures and verdicts. No number in a report is typed by hand.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from spuir.reproduction.tasks import Result, Task

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
class Scope:
    """How much to run, and with which files.

    Parameters
    ----------
    repeats
        Number of seeds per cell: 0…repeats − 1.
    quick
        Run a subset only: the first seeds, and the values that each axis names for it. Every quick cell is also a
        cell of the full grid, so a full run after a quick one resumes from it.
    data
        Folder with the user's files (docs/howto/reproduce.md has their names), or None.
    """

    repeats: int = 20
    quick: bool = False
    data: Path | None = None

    @property
    def seeds(self) -> range:
        """The seeds of each cell."""
        return range(min(self.repeats, QUICK_SEEDS) if self.quick else self.repeats)

    def axis(self, values: Sequence[Value], quick: Sequence[Value]) -> Sequence[Value]:
        """Return the values of one axis of the grid: all of them, or the subset for a quick run."""
        strange = [value for value in quick if value not in values]
        assert not strange, f"the quick values {strange} are not on the axis"
        return quick if self.quick else values


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """A table of the report: CSV with all digits, HTML and Markdown with rounded numbers.

    Parameters
    ----------
    name
        Name of the file, unique in the experiment; ``""`` for the main table.
    title
        Heading.
    rows
        Records in order. A number with a ``<column> ±`` in the same record is shown as "mean ± error".
    formats
        Format of each column's numbers (``".4f"``). The default is about four significant digits.
    """

    name: str
    title: str
    rows: Sequence[Row]
    formats: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Verdict:
    """The outcome of one claim.

    Parameters
    ----------
    id
        Stable name of the claim, unique in its experiment. Reports put the experiment's name before it:
        ``"figure3a/puir-over-sbucb"``. The wording of a claim may change; its id must not.
    claim
        What the paper (or its reader) says, in one sentence of our own.
    outcome
        One of the outcomes above, which follows from the numbers by a stated rule.
    evidence
        The numbers with their intervals, and the rule, in a sentence or two.
    """

    id: str
    claim: str
    outcome: Outcome
    evidence: str


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Everything that an experiment shows.

    Parameters
    ----------
    tables, verdicts
        In the order of the report.
    figures
        Name (``""`` for the main one) → figure in the style of :mod:`spuir.results.figures`.
    lesson
        Two to five plain sentences: what a reader learns here, with numbers from the results, including what the paper
        does not say.
    """

    tables: Sequence[ReportTable]
    verdicts: Sequence[Verdict]
    figures: "Mapping[str, Figure]"
    lesson: str

    def __post_init__(self) -> None:
        repeated = [name for name, count in Counter(verdict.id for verdict in self.verdicts).items() if count > 1]
        assert not repeated, f"the verdict ids {repeated} are used twice"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One figure, table or theorem.

    Parameters
    ----------
    name
        Name in the registry.
    title
        Title of its section in the report.
    source
        Where it is in the paper ("Figure 3(a)", "Theorem 3", "Table 2"), or "beyond the paper".
    shown
        What the paper shows there, in a sentence or two of our own, with its numbers where it prints any.
    setting
        What we run: environment, N, B, policies, and how it differs from the paper.
    grid
        (scope, results so far) → tasks. The scheduler calls it again after its tasks are done, until it returns nothing
        new: a grid that chooses settings first returns the tuning tasks, then the tasks of the chosen settings.
    report
        (scope, results of exactly these tasks) → findings.
    """

    name: str
    title: str
    source: str
    shown: str
    setting: str
    grid: Callable[[Scope, Sequence[Result]], Sequence[Task]]
    report: Callable[[Scope, Sequence[Result]], Findings]

    @property
    def summary(self) -> str:
        """Title and source in one line."""
        return f"{self.title} ({self.source})"
