"""Methods compared on one set: each at the settings of the authors' code, and at the best that its search found.

A :class:`MethodComparison` is the grid; :class:`Compared` has its results: leads in per cent, the paper's claims, a
table and a figure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from spuir.reproduction import plots
from spuir.reproduction.base import Drawing, Findings, ReportTable, Scope
from spuir.reproduction.claims import MARGIN, Claim, Contrast, Interval
from spuir.reproduction.grids import FORMATS, Measured, by_key, fill, tasks_of, text_of
from spuir.reproduction.policy_runs import AUTHORS, LEVEL_NAMES, LEVELS, Setup, by_world
from spuir.reproduction.tasks import Result, Task
from spuir.reproduction.tuning import METHODS, Search, SearchedMethod, Setting, own_method, words
from spuir.results.figures import TUNED

PROPOSED = ("puir", "spuir", "puir-rs", "spuir-rs")
BASELINES = tuple(name for name in METHODS if name not in PROPOSED)
QUICK_METHODS = ("sbucb", "puir", "spuir", "bexp3")

AS_CODED: Mapping[str, tuple[str, Setting]] = {
    "bexp3 (as coded)": ("bexp3", {}),
    "bexp3-ipw (as coded)": ("bexp3-ipw", {}),
    "dfm-s (window)": ("dfm-s", {"horizon": None}),
    "dfm-s (window, censored)": ("dfm-s", {}),
}
"""Label → policy and changes of the authors' preset: what their code does in place of the methods above. Its BEXP3 sums
over episodes and stays almost uniform; its DFM-S keeps the last 10,000 clicks and sees conversions up to a horizon."""

RIVAL = "sbucb"
SETTINGS = {"": "○ authors' code", TUNED: "● each at its best"}
LEAD = "lead over SBUCB, % of its reward"


@dataclass(frozen=True, kw_only=True)
class MethodComparison:
    """Methods on one set.

    Parameters
    ----------
    name
        Name of the set in tables, figures and ids.
    setup
        Where the methods run.
    methods
        The methods beside the user's own.
    coded
        Whether the forms of the authors' code run too.
    """

    name: str
    setup: Callable[[Scope], Setup]
    methods: Mapping[str, SearchedMethod] = field(default_factory=lambda: METHODS)
    quick: Sequence[str] = QUICK_METHODS
    coded: bool = True

    def cast(self, scope: Scope) -> dict[str, SearchedMethod]:
        """Return the methods that run: the methods of the set and the user's own."""
        own = {path.rpartition(":")[2]: own_method(path) for path in scope.policies}
        return {name: self.methods[name] for name in scope.axis(tuple(self.methods), self.quick)} | own

    def cells(self, scope: Scope, known: Mapping[str, Result]) -> tuple[dict[str, list[Task]], list[Task]]:
        """Return the cells whose settings are known so far, and the tasks of the searches."""
        setup, cells, searching = self.setup(scope), dict[str, list[Task]](), list[Task]()
        for name, method in self.cast(scope).items():
            cells[name] = method.tasks(scope.seeds, setup, {})
            search = Search(scope, method, setup, known)
            searching += search.tasks
            if search.chosen is not None:
                cells[name + TUNED] = method.tasks(scope.seeds, setup, search.chosen)
        for label, (policy, changes) in AS_CODED.items() if self.coded and not scope.quick else ():
            cells[label] = setup.runs(scope.seeds, policy, preset=AUTHORS, parameters=changes)
        cells[LEVELS] = setup.levels(scope.seeds)
        return cells, searching

    def grid(self, scope: Scope, results: Sequence[Result]) -> list[Task]:
        """Return the tasks that are known so far, grouped by world."""
        cells, searching = self.cells(scope, by_key(results))
        return by_world([*tasks_of(cells), *searching])

    def filled(self, scope: Scope, results: Sequence[Result]) -> dict[str, list[Result]]:
        """Return the results of each label."""
        return fill(self.cells(scope, by_key(results))[0], results)

    def chosen(self, scope: Scope, results: Sequence[Result]) -> dict[str, Setting | None]:
        """Return the setting that each method's search has chosen."""
        setup, known = self.setup(scope), by_key(results)
        return {name: Search(scope, method, setup, known).chosen for name, method in self.cast(scope).items()}


class Compared(Measured[str]):
    """The results of one comparison by label: "puir" as in the authors' code, "puir (tuned)" at its own best."""

    def __init__(self, comparison: MethodComparison, scope: Scope, results: Sequence[Result]) -> None:
        super().__init__(comparison.filled(scope, results), lambda label: f"{label}, {comparison.name}")
        self.name = comparison.name
        self.chosen = comparison.chosen(scope, results)

    @property
    def methods(self) -> list[str]:
        """The methods that have run."""
        return [method for method in self.chosen if method in self]

    def leads(self, pairs: Sequence[tuple[str, str]], suffix: str) -> list[Contrast]:
        """Return the leads of pairs of methods at one kind of settings, as far as both have run."""
        labels = [(ours + suffix, theirs + suffix) for ours, theirs in pairs]
        return [self.lead(*pair) for pair in labels if all(label in self for label in pair)]

    def claim(self, id: str, pairs: Sequence[tuple[str, str]], **about: Any) -> Claim:
        """Return a claim about pairs of methods, at both kinds of settings."""
        return Claim(id=id, coded=self.leads(pairs, ""), tuned=self.leads(pairs, TUNED), fair=True, **about)

    def pair(self, ours: str, theirs: str = RIVAL) -> plots.Pair:
        """Return one method's lead over another at both kinds of settings, for a figure."""
        found: list[Interval | None] = []
        for suffix in SETTINGS:
            leads = self.leads([(ours, theirs)], suffix)
            found.append(leads[0].interval() if leads else None)
        return found[0], found[1]

    @cached_property
    def levels(self) -> dict[str, float]:
        """The mean of each reference level."""
        return {name: self.sample(LEVELS, name).mean for name in LEVEL_NAMES} if LEVELS in self else {}

    def facts(self, column: str) -> Any:
        """Return a fact about the set: ``actions``, ``columns`` or ``generated``."""
        return self[LEVELS][0].rows[-1][column] if LEVELS in self else "?"

    def table(self) -> ReportTable:
        """Return reward, regret and lead of every label, best first, then the reference levels."""
        rows: list[dict[str, Any]] = []
        for label in self:
            if label == LEVELS:
                continue
            method, tuned = label.removesuffix(TUNED), label.endswith(TUNED)
            setting = f"best: {words(self.chosen.get(method))}" if tuned else "code"
            row: dict[str, Any] = {"method": method, "setting": setting}
            row |= self.row(label)
            rival = RIVAL + (TUNED if tuned else "")
            if rival in self and label != rival:
                row[LEAD] = text_of(self.lead(label, rival).interval())
            rows.append(row)
        rows.sort(key=lambda row: -row["average reward"])
        rows += [{"method": name, "average reward": value} for name, value in self.levels.items()]
        return ReportTable(name="", title=f"Average reward on {self.name}", rows=rows, formats=FORMATS)

    def drawing(self, title: str) -> Drawing:
        """Return the paper's curves, and the paired differences to SBUCB at both kinds of settings."""
        curves = [plots.running(label, self[label]) for label in self.methods]
        if LEVELS in self:
            curves.append(plots.running("oracle", self[LEVELS]))
        seeds = max(one.seeds for one in curves)
        lines = plots.episodes("settings of the authors' code", curves)
        rows = {method: self.pair(method) for method in self.methods if method != RIVAL}
        dots = plots.Dots(title="   ".join(SETTINGS.values()), xlabel=LEAD, rows=rows, band=MARGIN, reach=8.0)
        caption = (
            f"Left: running average reward, mean of {seeds} seeds ± standard error; lines that end more than 5 % below "
            "the best are left out, as in the paper. The oracle, shown where it is near, is what the best action for "
            "each context really earned. Right: difference of the expected reward to SBUCB in the same runs, with 95 % "
            "intervals over seeds (not corrected); the band is ± 1 %."
        )
        return Drawing(plots.compose(title, [lines, dots]), caption)


def performance_claims(compared: Compared, place: str) -> list[Claim]:
    """Return what Section 6 says about average rewards."""
    proposed = [method for method in PROPOSED if method in compared]
    pairs = [(ours, theirs) for ours in proposed for theirs in BASELINES]
    return [
        compared.claim(
            "imputation-helps",
            [("puir", RIVAL)],
            place=place,
            wording="Higher average rewards demonstrate the effectiveness of reward imputation: PUIR earns more than "
            "SBUCB, the same policy without it.",
        ),
        compared.claim(
            "higher-than-baselines",
            pairs,
            place=place,
            wording="SPUIR and its variants achieve higher average rewards than the baselines.",
        ),
        compared.claim(
            "like-puir",
            [(method, "puir") for method in ("spuir", "spuir-rs")],
            place=place,
            wording="SPUIR and SPUIR-RS have similar performances compared with the original PUIR.",
            kind="alike",
            margin=MARGIN,
        ),
    ]


def findings(
    comparison: MethodComparison, scope: Scope, results: Sequence[Result], *, place: str, title: str
) -> Findings:
    """Return the findings of one of the paper's comparisons."""
    compared = Compared(comparison, scope, results)
    setup = comparison.setup(scope)
    shape = f"M = {compared.facts('actions')}, d = {compared.facts('columns')}"
    made = " (generated rows)" if compared.facts("generated") is True else ""
    head = f"{title}{made}: {shape}, N = {setup.episodes}, B = {setup.batch_size:,}"
    return Findings(
        tables=[compared.table()],
        claims=performance_claims(compared, place),
        drawings={"": compared.drawing(head)},
    )
