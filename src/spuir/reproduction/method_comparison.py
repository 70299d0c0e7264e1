"""Methods compared in one environment, each at the authors' setting and at its own best one.

Figure 3(a) to (c) and Table 2 compare the nine methods of the paper; two further experiments compare in other places.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from spuir.reproduction import plots
from spuir.reproduction.base import Findings, ReportTable, Scope, Verdict
from spuir.reproduction.grids import fill, measured, tasks_of
from spuir.reproduction.policy_runs import Setup, level_rows, mean_levels
from spuir.reproduction.tasks import Result, Task
from spuir.reproduction.tuning import METHODS, best, both, labelled, tuned, words
from spuir.reproduction.verdicts import Interval, estimate, judge, last, mean_of, paired, say

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROPOSED = ("puir", "spuir", "puir-rs", "spuir-rs")
BASELINES = tuple(method for method in METHODS if method not in PROPOSED)
EXPONENTIAL = ("bexp3", "bexp3-ipw")
CHEAP = ("sbucb", "puir", "spuir", "bexp3")
OVER_STEPS = "{} (over steps)"
REWARD, REGRET = "average_reward", "regret_per_step"
SIMILAR = 0.01
"""Two rewards are similar if the interval of their difference stays within this share of the larger."""

SHOWN = {"average reward": REWARD, "regret per context": REGRET}
SHOWN_FORMATS = {"average reward": ".4f", "regret per context": ".5f"}


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The results of one comparison.

    ``groups`` holds the results by label: "puir" (the authors' setting), "puir (tuned)", and so on for every method;
    ``extra`` those of further labels, ``levels`` the reference levels, and ``chosen`` the best setting of each method
    in words.
    """

    name: str = ""
    groups: Mapping[str, Sequence[Result]]
    extra: Mapping[str, Sequence[Result]] = field(default_factory=dict[str, Sequence[Result]])
    levels: Sequence[Result] = ()
    chosen: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(
        cls,
        scope: Scope,
        results: Sequence[Result],
        setup: Setup,
        methods: Sequence[str],
        extra: Mapping[str, Sequence[Task]] | None = None,
        name: str = "",
    ) -> "Compared":
        """Return what the results say about some methods; ``extra`` are the tasks of further labels."""
        chosen = {method: best(scope, results, method, setup) for method in methods}
        more = fill(extra or {}, results)
        return cls(
            name=name or setup.environment,
            groups=labelled(scope, results, methods, setup),
            extra={label: group for label, group in more.items() if group},
            levels=fill({"": setup.levels(scope.seeds)}, results)[""],
            chosen={method: words(setting) for method, setting in chosen.items()},
        )

    def values(self, label: str, column: str = REWARD) -> dict[int, float]:
        """Return the last value of each seed."""
        return last(self.groups.get(label) or self.extra.get(label) or (), column)

    def mean(self, label: str, column: str = REWARD) -> float:
        """Return the mean of the last values over the seeds."""
        return mean_of(self.values(label, column))

    def difference(self, one: str, other: str, column: str = REWARD) -> Interval:
        """Return one − other over the seeds."""
        return paired(self.values(one, column), self.values(other, column))

    def methods(self) -> list[str]:
        """Return the methods that have results at the authors' setting."""
        return [method for method in self.chosen if method in self.groups]

    def ranked(self, methods: Sequence[str], label: Callable[[str], str] = str) -> list[str]:
        """Return methods by their mean reward, the highest first and those without one last."""
        return sorted(methods, key=lambda method: -np.nan_to_num(self.mean(label(method)), nan=-np.inf))

    def leader(self, labels: Sequence[str], column: str = REWARD) -> str:
        """Return the label with the highest mean, of those that were run."""
        known = [label for label in labels if self.values(label, column)]
        return max(known or labels, key=lambda label: self.mean(label, column))

    @property
    def generated(self) -> bool:
        """Whether the environment's rows are generated."""
        return any(result.rows[-1]["generated"] for result in self.levels)

    def over_best_baseline(self, method: str, id: str, claim: str, more: str, column: str = REWARD) -> Verdict:
        """Return the verdict on a claim that a method is ahead of every baseline; the evidence ends with ``more``."""
        rival, strong = self.leader(BASELINES, column), self.leader([tuned(one) for one in BASELINES], column)
        plain, fair = self.difference(method, rival, column), self.difference(tuned(method), strong, column)
        return Verdict(
            id,
            claim,
            judge(plain, fair),
            f"Difference to {rival}, the best baseline at the authors' settings: {say(plain)}; each at its own best "
            f"setting, to {strong}: {say(fair)}. It holds if both intervals are above 0; {more}.",
        )

    def draw_ranking(self, xlabel: str) -> "Figure":
        """Draw the labels by regret, the authors' setting hollow and the best one filled."""
        groups = {**self.groups, **self.extra}
        regrets = {label: estimate(last(group, REGRET).values()) for label, group in groups.items()}
        return plots.dots(regrets, xlabel=xlabel, log_x=True, smaller_is_better=True)


def ahead(compared: Compared, ours: str, theirs: str, id: str, claim: str) -> Verdict:
    """Judge whether one method earns more than another, at the authors' settings and each at its own best."""
    plain, fair = compared.difference(ours, theirs), compared.difference(tuned(ours), tuned(theirs))
    return Verdict(
        id,
        claim,
        judge(plain, fair),
        f"{ours.upper()} − {theirs.upper()} at the authors' settings: {say(plain)}; each at its own best setting: "
        f"{say(fair)}. It holds if both intervals are above 0.",
    )


def ahead_in(place: Compared, ours: str, theirs: str, claim: str) -> Verdict:
    """Judge the same in one of several places, which the claim and the id name."""
    named = f"{claim}: {ours.upper()} beside {theirs.upper()} on {place.name}."
    return ahead(place, ours, theirs, f"{place.name}/{ours}-over-{theirs}", named)


@dataclass(frozen=True)
class MethodComparison:
    """Grid and report of the nine methods in one environment.

    ``heading`` is the title of the table, ``setup`` says where the methods run, and ``quick`` are the methods of a
    quick run.
    """

    heading: str
    setup: Callable[[Scope], Setup]
    quick: Sequence[str] = METHODS

    def _extra(self, scope: Scope) -> dict[str, list[Task]]:
        """Return the runs of exponential weights that sum over steps, at the rate of their papers."""
        setup = self.setup(scope)
        return {
            OVER_STEPS.format(method): setup.runs(scope.seeds, method)
            for method in scope.axis(EXPONENTIAL, EXPONENTIAL[:1])
        }

    def grid(self, scope: Scope, results: Sequence[Result]) -> list[Task]:
        """Return the runs of every method; once the tuning results are known, those of the chosen settings too."""
        setup = self.setup(scope)
        tasks = both(scope, results, scope.axis(METHODS, self.quick), setup)
        return [*tasks, *tasks_of(self._extra(scope)), *setup.levels(scope.seeds)]

    def compared(self, scope: Scope, results: Sequence[Result]) -> Compared:
        """Return the results by label."""
        methods = scope.axis(METHODS, self.quick)
        return Compared.of(scope, results, self.setup(scope), methods, self._extra(scope))

    def report(self, scope: Scope, results: Sequence[Result]) -> Findings:
        """Return curves, ranking, table and verdicts."""
        compared = self.compared(scope, results)
        title = self.heading + (" (generated rows)" if compared.generated else "")
        return Findings(
            tables=[comparison_table(compared, title)],
            verdicts=verdicts(compared),
            figures=comparison_figures(compared),
            lesson=lesson(compared),
        )


def comparison_table(compared: Compared, title: str) -> ReportTable:
    """Return reward, regret and the differences to SBUCB of every label, best first, then the reference levels."""
    settings = {tuned(method): setting for method, setting in compared.chosen.items()}
    settings |= dict.fromkeys(compared.extra, "accumulate = steps")
    rows: list[dict[str, Any]] = []
    for label, results in {**compared.groups, **compared.extra}.items():
        differences = {f"minus {rival}": say(compared.difference(label, rival)) for rival in ("sbucb", tuned("sbucb"))}
        setting = {"setting": settings.get(label, "the authors'")}
        rows.append({"method": label} | setting | measured(results, SHOWN) | differences)
    rows.sort(key=lambda row: -row["average reward"])
    rows += level_rows(compared.levels, "method", "average reward")
    return ReportTable(name="", title=title, rows=rows, formats=SHOWN_FORMATS)


def verdicts(compared: Compared) -> list[Verdict]:
    """Judge the paper's claims about average reward."""
    higher = [
        compared.over_best_baseline(
            method,
            f"{method}-over-baselines",
            f"{method.upper()} earns a higher average reward than every baseline.",
            f"at the authors' settings it is ahead of {_left_behind(compared, method)}",
        )
        for method in PROPOSED
        if compared.values(method)
    ]
    claim = "Imputed rewards help: PUIR earns more than SBUCB, the same policy without them."
    imputation = ahead(compared, "puir", "sbucb", "puir-over-sbucb", claim)
    return [
        *higher,
        imputation,
        *(_similar(compared, method) for method in ("spuir", "spuir-rs") if compared.values(method)),
    ]


def _left_behind(compared: Compared, method: str) -> str:
    """Return the baselines that a method beats at the authors' settings."""
    return ", ".join(rival for rival in BASELINES if compared.difference(method, rival).low > 0) or "none"


def _similar(compared: Compared, method: str) -> Verdict:
    """Judge whether a sketched form earns about as much as the exact one."""
    plain, fair = compared.difference(method, "puir"), compared.difference(tuned(method), tuned("puir"))
    margin = -SIMILAR * compared.mean("puir")
    return Verdict(
        f"{method}-like-puir",
        f"{method.upper()} performs like PUIR.",
        judge(plain, fair, margin),
        f"Difference to PUIR at the authors' settings: {say(plain)}; each at its own best: {say(fair)}. It holds if "
        f"both intervals are above {margin:.4f}, {SIMILAR:.0%} of PUIR's reward.",
    )


def comparison_figures(compared: Compared) -> "dict[str, Figure]":
    """Return the paper's panel at the authors' settings, the same at the best ones, and both ranked by regret."""
    levels = mean_levels(compared.levels)
    best_ones = {
        tuned(method): compared.groups.get(tuned(method)) or compared.groups.get(method, ()) for method in METHODS
    }
    regrets = {label: estimate(last(results, REGRET).values()) for label, results in compared.groups.items()}
    return {
        "": plots.over_episodes({method: compared.groups.get(method, ()) for method in METHODS}, levels),
        "tuned": plots.over_episodes({**best_ones, **compared.extra}, levels),
        "ranking": plots.dots(regrets, xlabel="regret per context", log_x=True, smaller_is_better=True),
    }


def lesson(compared: Compared) -> str:
    """Return what a reader learns, in numbers."""
    gap, fair = compared.difference("puir", "sbucb"), compared.difference(tuned("puir"), tuned("sbucb"))
    first, levels = compared.leader(METHODS), mean_levels(compared.levels)
    gained = compared.mean(tuned("sbucb")) - compared.mean("sbucb")
    # Several methods lead together where they chose the same actions.
    top = compared.mean(compared.leader([tuned(method) for method in METHODS]))
    leaders = [method for method in METHODS if abs(compared.mean(tuned(method)) - top) < 1e-9] or list(METHODS[:1])
    return (
        f"At the authors' settings {first} is first with {compared.mean(first):.4f}; each at its own best setting, "
        f"{', '.join(leaders)} with {compared.mean(tuned(leaders[0])):.4f}. "
        f"PUIR's lead over SBUCB is {say(gap)} at the authors' settings, where SBUCB explores with α = 1 and PUIR with "
        f"0.1, and {say(fair)} when both are tuned: SBUCB gains {gained:.4f} by its setting alone. "
        f"BEXP3 with the authors' sum over episodes earns {compared.mean('bexp3'):.4f}, uniform choice "
        f"{levels.get('uniform', float('nan')):.4f}; summed over steps, as in its paper, it earns "
        f"{compared.mean(OVER_STEPS.format('bexp3')):.4f}. "
        f"The best fixed action earns {levels.get('best fixed', float('nan')):.4f} in expectation, the best for each "
        f"context {levels.get('oracle', float('nan')):.4f}: contexts cannot bring more than this difference."
    )
