"""What an experiment is: a grid of tasks, and findings from their results.

An experiment is frozen data with a name. Its grid is a list of :class:`~spuir.reproduction.tasks.Task`, made from a
:class:`Scope` and from the results so far; the scheduler runs the tasks that are not done yet. Its findings are
tables, figures with captions, and claims, which :mod:`spuir.reproduction.claims` judges. Nothing here writes prose:
pages are written by hand around the numbers.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from spuir.reproduction.claims import Claim
from spuir.reproduction.tasks import Result, Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Value = TypeVar("Value")
Row = Mapping[str, Any]

QUICK_SEEDS = 3
FIRST_TUNING_SEED = 100_000
"""Seeds from here on choose settings; reported seeds are smaller."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """How much to run, and with which files.

    Parameters
    ----------
    repeats, first_seed
        The seeds of each cell are ``first_seed`` … ``first_seed + repeats − 1``.
    quick
        Run a subset only: the first seeds, and the values that each axis names for it. Every quick cell is also a
        cell of the full grid, so a full run after a quick one resumes from it.
    data
        Folder with the user's files (docs/howto/reproduce.md has their names), or None.
    policies
        The user's own policies, each as "module:name", which join the methods in the comparisons.
    """

    repeats: int = 20
    first_seed: int = 0
    quick: bool = False
    data: Path | None = None
    policies: tuple[str, ...] = ()

    @property
    def seeds(self) -> range:
        """The seeds of each cell."""
        count = min(self.repeats, QUICK_SEEDS) if self.quick else self.repeats
        return range(self.first_seed, self.first_seed + count)

    @property
    def tuning_seeds(self) -> range:
        """The seeds that choose settings; no reported number uses them."""
        return range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + 24)

    def axis(self, values: Sequence[Value], quick: Sequence[Value]) -> Sequence[Value]:
        """Return the values of one axis of the grid: all of them, or the subset for a quick run."""
        strange = [value for value in quick if value not in values]
        assert not strange, f"the quick values {strange} are not on the axis"
        return quick if self.quick else values


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """A table of the report: CSV with all digits; HTML, Markdown and LaTeX with rounded numbers.

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
class Drawing:
    """A figure in the style of :mod:`spuir.results.figures`, with a caption that says what is drawn and on what."""

    figure: "Figure"
    caption: str


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Everything that an experiment shows.

    Parameters
    ----------
    tables, claims
        In the order of the report.
    drawings
        Name (``""`` for the main one) → figure with its caption.
    """

    tables: Sequence[ReportTable]
    claims: Sequence[Claim] = ()
    drawings: Mapping[str, Drawing] = field(default_factory=dict[str, Drawing])

    def __post_init__(self) -> None:
        repeated = [name for name, count in Counter(claim.id for claim in self.claims).items() if count > 1]
        assert not repeated, f"the claim ids {repeated} are used twice"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One figure, table or theorem, or a question of our own.

    Parameters
    ----------
    name
        Name in the registry.
    title
        Title of its page.
    source
        Where it is in the paper ("Figure 3(a)", "Theorem 3", "Table 2"), or "beyond the paper".
    grid
        (scope, results so far) → tasks. The scheduler calls it again after its tasks are done, until it returns nothing
        new: a grid that chooses settings first returns the tuning tasks, then the tasks of the chosen settings.
    report
        (scope, results of exactly these tasks) → findings.
    """

    name: str
    title: str
    source: str
    grid: Callable[[Scope, Sequence[Result]], Sequence[Task]]
    report: Callable[[Scope, Sequence[Result]], Findings]

    @property
    def summary(self) -> str:
        """Title and source in one line."""
        return f"{self.title} ({self.source})"
