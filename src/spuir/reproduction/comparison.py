"""The nine methods side by side in one place, as three of the paper's panels and its second table have them.

Each is shown at the authors' setting and at its own best one; what needs no learning stands beside them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spuir.reproduction import drawing
from spuir.reproduction.base import Findings, Plan, Table, Verdict
from spuir.reproduction.cells import fill, measured, over_seeds, tasks_of
from spuir.reproduction.levels import level_rows, levelling, mean_levels
from spuir.reproduction.runner import Result, Task
from spuir.reproduction.trials import playing
from spuir.reproduction.tuning import METHODS, TUNED, Place, best, both, labelled, words
from spuir.reproduction.verdicts import Interval, estimate, judge, last, paired, say, summary

PROPOSED = ("puir", "spuir", "puir-rs", "spuir-rs")
BASELINES = tuple(method for method in METHODS if method not in PROPOSED)
EXPONENTIAL = ("bexp3", "bexp3-ipw")
CHEAP = ("sbucb", "puir", "spuir", "bexp3")
OVER_STEPS = "{} (over steps)"
LEVELS = "levels"
SIMILAR = 0.01
"""Two rewards are called similar if the interval of their difference stays within this share of the larger."""

SHOWN = {"average reward": "average_reward", "regret per context": "regret_per_step"}


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Where the methods are compared; ``quick`` are those that stand for all where time is short."""

    environment: str
    episodes: int
    batch_size: int
    world: Mapping[str, Any] = field(default_factory=dict[str, Any])
    quick: Sequence[str] = METHODS

    @property
    def place(self) -> Place:
        """The same as keywords of a task."""
        return {"episodes": self.episodes, "batch_size": self.batch_size, "world": self.world}


@dataclass(frozen=True)
class Lead:
    """The difference to the best baseline: at the authors' settings, and each at its own best."""

    rival: str
    plain: Interval
    rival_tuned: str
    fair: Interval

    def judged(self, claim: str, more: str) -> Verdict:
        """Return the verdict on a claim of being ahead, with ``more`` behind the evidence."""
        return Verdict(
            claim=claim,
            outcome=judge(self.plain, self.fair),
            evidence=f"Difference to {self.rival}, the best baseline at the authors' settings: {say(self.plain)}; "
            f"each at its own best setting, to {self.rival_tuned}: {say(self.fair)}. It holds if both intervals are "
            f"above 0; {more}.",
        )


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Results by label.

    ``groups`` holds "puir" (the authors' setting), "puir (tuned)", and so on for every method; ``extra`` exponential
    weights that sum over steps at the rate of their papers; ``levels`` what needs no learning.
    """

    groups: Mapping[str, Sequence[Result]]
    extra: Mapping[str, Sequence[Result]]
    levels: Sequence[Result]

    def values(self, label: str, column: str = "average_reward") -> dict[int, float]:
        """Return the last value of each seed; of the authors' setting where no other was chosen."""
        group = self.groups.get(label) or self.groups.get(label.removesuffix(" (tuned)")) or ()
        return last(group, column)

    def mean(self, label: str, column: str = "average_reward") -> float:
        """Return its mean over seeds."""
        return summary(self.values(label, column).values())[0]

    def difference(self, one: str, other: str, column: str = "average_reward") -> Interval:
        """Return one − other over the seeds."""
        return paired(self.values(one, column), self.values(other, column))

    def lead(self, method: str, column: str = "average_reward") -> "Lead":
        """Return a method's lead over the best baseline, at the authors' settings and each at its own best."""
        rival, strong = self.leader(BASELINES, column), self.leader([tuned(one) for one in BASELINES], column)
        return Lead(
            rival, self.difference(method, rival, column), strong, self.difference(tuned(method), strong, column)
        )

    def leader(self, labels: Sequence[str], column: str = "average_reward") -> str:
        """Return the label with the highest mean, of those that were run."""
        known = [label for label in labels if self.values(label, column)]
        return max(known or labels, key=lambda label: self.mean(label, column))

    @property
    def generated(self) -> bool:
        """Whether the environment's rows are generated."""
        return any(result.rows[-1]["generated"] for result in self.levels)


def tuned(method: str) -> str:
    """Return the label of a method at its own best setting."""
    return TUNED.format(method)


def _beside(plan: Plan, setup: Setup) -> dict[str, list[Task]]:
    """Return the cells beside the nine methods."""
    name, place = setup.environment, setup.place
    cells = {
        OVER_STEPS.format(method): over_seeds(
            plan.seeds, lambda seed, method=method: playing(method, name, seed=seed, **place)
        )
        for method in plan.axis(EXPONENTIAL, EXPONENTIAL[:1])
    }
    cells[LEVELS] = over_seeds(plan.seeds, lambda seed: levelling(name, seed=seed, **place))
    return cells


def comparison_tasks(plan: Plan, results: Sequence[Result], setup: Setup) -> list[Task]:
    """Return the tasks of a comparison; asked again with their results, those of the settings then chosen too."""
    tasks = both(plan, results, plan.axis(METHODS, setup.quick), setup.environment, **setup.place)
    return [*tasks, *tasks_of(_beside(plan, setup))]


def compared(plan: Plan, results: Sequence[Result], setup: Setup) -> Compared:
    """Return the results of a comparison by label."""
    beside = fill(_beside(plan, setup), results)
    levels = beside.pop(LEVELS)
    groups = labelled(plan, results, plan.axis(METHODS, setup.quick), setup.environment, **setup.place)
    return Compared(groups=groups, extra=beside, levels=levels)


def comparison_table(found: Compared, settings: Mapping[str, str], title: str) -> Table:
    """Return reward, regret and the differences to SBUCB of every label, best first, and the levels."""
    rows: list[dict[str, Any]] = []
    for label, results in {**found.groups, **found.extra}.items():
        values = last(results, "average_reward")
        differences = {
            f"minus {rival}": say(paired(values, found.values(rival))) for rival in ("sbucb", tuned("sbucb"))
        }
        setting = {"setting": settings.get(label, "the authors'")}
        rows.append({"method": label} | setting | measured(results, SHOWN) | differences)
    rows.sort(key=lambda row: -row["average reward"])
    return Table(
        name="",
        title=title,
        rows=[*rows, *level_rows(found.levels, "method", "average reward")],
        formats={"average reward": ".4f", "regret per context": ".5f"},
    )


def chosen_settings(plan: Plan, results: Sequence[Result], setup: Setup) -> dict[str, str]:
    """Return what was chosen for each tuned label, and how the extra ones differ, in words."""
    chosen = {tuned(method): words(best(plan, results, method, setup.environment, **setup.place)) for method in METHODS}
    return chosen | {OVER_STEPS.format(method): "accumulate = steps" for method in EXPONENTIAL}


def verdicts(found: Compared) -> list[Verdict]:
    """Return what became of the paper's claims about average reward."""
    return [*_higher(found), _imputation(found), *_similar(found)]


def _higher(found: Compared) -> list[Verdict]:
    """Judge each proposed method against the best baseline, at the authors' settings and each at its own best."""
    return [
        found.lead(method).judged(
            f"{method.upper()} earns a higher average reward than every baseline.",
            f"at the authors' settings it is against {_ahead(found, method)}",
        )
        for method in PROPOSED
        if found.values(method)
    ]


def _ahead(found: Compared, method: str) -> str:
    """Return the baselines that a method leaves behind at the authors' settings."""
    return ", ".join(rival for rival in BASELINES if found.difference(method, rival).low > 0) or "none"


def _imputation(found: Compared) -> Verdict:
    """Judge imputation by the pair that differs in nothing else."""
    plain, fair = found.difference("puir", "sbucb"), found.difference(tuned("puir"), tuned("sbucb"))
    return Verdict(
        claim="Imputed rewards help: PUIR earns more than SBUCB, the same policy without them.",
        outcome=judge(plain, fair),
        evidence=f"PUIR − SBUCB at the authors' settings: {say(plain)}; each at its own best setting: {say(fair)}. It "
        "holds if both intervals are above 0.",
    )


def _similar(found: Compared) -> list[Verdict]:
    """Judge whether the sketched forms keep up with the exact one."""
    given: list[Verdict] = []
    for method in [method for method in ("spuir", "spuir-rs") if found.values(method)]:
        plain, fair = found.difference(method, "puir"), found.difference(tuned(method), tuned("puir"))
        margin = -SIMILAR * found.mean("puir")
        given.append(
            Verdict(
                claim=f"{method.upper()} performs like PUIR.",
                outcome=judge(plain, fair, margin),
                evidence=f"Difference to PUIR at the authors' settings: {say(plain)}; each at its own best: "
                f"{say(fair)}. It holds if both intervals are above {margin:.4f}, {SIMILAR:.0%} of PUIR's reward.",
            )
        )
    return given


def comparison_figures(found: Compared) -> dict[str, Any]:
    """Return the paper's panel at the authors' settings, the same at the best ones, and both ranked by regret."""
    levels = mean_levels(found.levels)
    best_ones = {tuned(method): found.groups.get(tuned(method)) or found.groups.get(method, ()) for method in METHODS}
    regrets = {label: estimate(last(results, "regret_per_step").values()) for label, results in found.groups.items()}
    return {
        "": drawing.curves({method: found.groups.get(method, ()) for method in METHODS}, levels=levels),
        "tuned": drawing.curves({**best_ones, **found.extra}, levels=levels),
        "ranking": drawing.dots(regrets, xlabel="regret per context", log_x=True, smaller_is_better=True),
    }


def _leaders(found: Compared) -> list[str]:
    """Return the methods with the highest mean at their best settings: several, where they chose the same actions."""
    top = found.mean(found.leader([tuned(method) for method in METHODS]))
    return [method for method in METHODS if abs(found.mean(tuned(method)) - top) < 1e-9] or list(METHODS[:1])


def lesson(found: Compared) -> str:
    """Return what a reader learns, in numbers."""
    gap, fair = found.difference("puir", "sbucb"), found.difference(tuned("puir"), tuned("sbucb"))
    first, best_ones = found.leader(METHODS), _leaders(found)
    levels = mean_levels(found.levels)
    steps = {label: summary(last(results, "average_reward").values())[0] for label, results in found.extra.items()}
    said = [
        f"At the authors' settings {first} is first with {found.mean(first):.4f}; each at its own best setting, "
        f"{', '.join(best_ones)} with {found.mean(tuned(best_ones[0])):.4f}.",
        f"PUIR's lead over SBUCB is {say(gap)} at the authors' settings, where SBUCB explores with α = 1 and PUIR with "
        f"0.1, and {say(fair)} when both are tuned: SBUCB gains {found.mean(tuned('sbucb')) - found.mean('sbucb'):.4f} "
        "by its setting alone.",
        f"BEXP3 with the authors' sum over episodes earns {found.mean('bexp3'):.4f}, uniform choice "
        f"{levels.get('uniform', float('nan')):.4f}; summed over steps, as its paper has it, "
        f"{steps.get(OVER_STEPS.format('bexp3'), float('nan')):.4f}.",
        f"The best fixed action earns {levels.get('best fixed', float('nan')):.4f} in expectation, the best for each "
        f"context {levels.get('oracle', float('nan')):.4f}: that difference is all that contexts can bring here.",
    ]
    return " ".join(said)


@dataclass(frozen=True)
class Comparison:
    """Grid and report of one comparison, where ``setup`` says; ``heading`` is that of its table."""

    heading: str
    setup: Callable[[Plan], Setup]

    def grid(self, plan: Plan, results: Sequence[Result]) -> list[Task]:
        """Return the runs of every method."""
        return comparison_tasks(plan, results, self.setup(plan))

    def report(self, plan: Plan, results: Sequence[Result]) -> Findings:
        """Return curves, ranking, table and verdicts."""
        setup = self.setup(plan)
        found = compared(plan, results, setup)
        title = self.heading + (" (generated rows)" if found.generated else "")
        return Findings(
            tables=[comparison_table(found, chosen_settings(plan, results, setup), title)],
            verdicts=verdicts(found),
            figures=comparison_figures(found),
            lesson=lesson(found),
        )
