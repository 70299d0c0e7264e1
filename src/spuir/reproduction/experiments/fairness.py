"""Each method at the authors' setting and at its own best one, and what its bonus costs or brings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from spuir.reproduction import drawing
from spuir.reproduction.base import Experiment, Findings, Plan, Table, Verdict
from spuir.reproduction.cells import fill, over_seeds, tasks_of
from spuir.reproduction.comparison import Setup, tuned
from spuir.reproduction.experiments import figure3a, figure3c
from spuir.reproduction.levels import levelling, mean_levels
from spuir.reproduction.panels import Line, Panel, side_by_side
from spuir.reproduction.runner import Result, Task
from spuir.reproduction.tuning import ALPHAS, METHODS, at_alpha, best, both, labelled, setting_tasks, words
from spuir.reproduction.verdicts import Interval, estimate, judge, last, paired, say, summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SYNTHETIC, COUPON = figure3a.setup(Plan()), figure3c.setup(Plan())
HETEROGENEOUS = Setup(environment="heterogeneous", episodes=30, batch_size=1400)
SETUPS = (SYNTHETIC, HETEROGENEOUS, COUPON)
QUICK_SETUPS = (COUPON,)
FLAT = ("sbucb", "puir", "spuir")
"""Methods whose reward is drawn over α."""
RIVAL = "sbucb"
REWARD, REGRET = "average_reward", "regret_per_step"
AUTHORS, BEST = "reward, authors'", "reward, best"
RANKED = {AUTHORS: ".4f", BEST: ".4f"}
"""Formats of the columns of :func:`rows_of`."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """Rewards in one place, by seed.

    ``rewards`` and ``regrets`` (per decision) by label ("puir", "puir (tuned)", …), ``chosen`` the best setting of each
    method in words, ``levels`` the results of what needs no learning, ``over`` the rewards by method and α with
    everything else the authors'.
    """

    name: str
    rewards: Mapping[str, Mapping[int, float]]
    regrets: Mapping[str, Mapping[int, float]]
    chosen: Mapping[str, str]
    levels: Sequence[Result] = ()
    over: Mapping[tuple[str, float], Mapping[int, float]] = field(default_factory=dict[tuple[str, float], Any])

    @classmethod
    def of(cls, plan: Plan, results: Sequence[Result], name: str, setup: Setup, methods: Sequence[str]) -> "Found":
        """Return what the results say of some methods in one place."""
        groups = labelled(plan, results, methods, setup.environment, **setup.place)
        (levels,) = fill({name: level_tasks(plan, setup)}, results).values()
        chosen = {method: best(plan, results, method, setup.environment, **setup.place) for method in methods}
        return cls(
            name=name,
            rewards={label: last(group, REWARD) for label, group in groups.items()},
            regrets={label: last(group, REGRET) for label, group in groups.items()},
            chosen={method: words(setting) for method, setting in chosen.items()},
            levels=levels,
        )

    def methods(self) -> list[str]:
        """Return the methods that have results at the authors' setting."""
        return [method for method in self.chosen if method in self.rewards]

    def mean(self, label: str) -> float:
        """Return the mean reward of a label."""
        return summary(self.rewards.get(label, {}).values())[0]

    def ranked(self, methods: Sequence[str], label: Callable[[str], str] = str) -> list[str]:
        """Return methods by their mean reward, the highest first and those without one last."""
        return sorted(methods, key=lambda method: -np.nan_to_num(self.mean(label(method)), nan=-np.inf))

    def lead(self, ours: str, theirs: str) -> Interval:
        """Return the difference of two labels over the seeds."""
        return paired(self.rewards.get(ours, {}), self.rewards.get(theirs, {}))

    def average(self, method: str, alpha: float) -> float:
        """Return the mean reward of a method at one α."""
        return summary(self.over[method, alpha].values())[0]

    def drawn(self) -> list[str]:
        """Return the methods that were run over α."""
        return list(dict.fromkeys(method for method, _ in self.over))

    def alphas(self, method: str) -> list[float]:
        """Return the α at which a method was run."""
        return [alpha for name, alpha in self.over if name == method]

    def ends(self, method: str) -> tuple[float, float]:
        """Return the α with the highest and the one with the lowest mean reward."""
        ranked = sorted(self.alphas(method), key=lambda alpha: -self.average(method, alpha))
        return ranked[0], ranked[-1]

    def lost(self, method: str) -> dict[int, float]:
        """Return, for each seed, the share of reward lost from the best α to the worst."""
        top, low = (self.over[method, alpha] for alpha in self.ends(method))
        return {seed: 1.0 - low[seed] / top[seed] for seed in sorted(low.keys() & top.keys())}


def level_tasks(plan: Plan, setup: Setup) -> list[Task]:
    """Return what needs no learning, on every seed."""
    return over_seeds(plan.seeds, lambda seed: levelling(setup.environment, seed=seed, **setup.place))


def methods_of(setup: Setup) -> tuple[str, ...]:
    """Return the methods that make sense in a place: DFM-S needs conversions."""
    return tuple(method for method in METHODS if setup.environment != HETEROGENEOUS.environment or method != "dfm-s")


def over_alpha(plan: Plan, setup: Setup) -> dict[tuple[str, float], list[Task]]:
    """Return the cells of each method at each α, everything else at the authors' values."""
    return {
        (method, alpha): setting_tasks(plan.seeds, method, at_alpha(method, alpha), setup.environment, **setup.place)
        for method in plan.axis(FLAT, FLAT[:2])
        for alpha in plan.axis(ALPHAS, (0.1, 1.0))
    }


def grid(plan: Plan, results: Sequence[Result]) -> list[Task]:
    """Return the runs at the authors' settings, those that tune, those of what was chosen, and those over α."""
    tasks: list[Task] = []
    for setup in plan.axis(SETUPS, QUICK_SETUPS):
        tasks += both(plan, results, methods_of(setup), setup.environment, **setup.place)
        tasks += [*tasks_of(over_alpha(plan, setup)), *level_tasks(plan, setup)]
    return tasks


def found_in(plan: Plan, results: Sequence[Result], setup: Setup) -> Found:
    """Return what the results say of one place, over α too."""
    over = {cell: last(group, REWARD) for cell, group in fill(over_alpha(plan, setup), results).items() if group}
    return replace(Found.of(plan, results, setup.environment, setup, methods_of(setup)), over=over)


def report(plan: Plan, results: Sequence[Result]) -> Findings:
    """Return the ranking in each place, before and after tuning, and how flat each method is in α."""
    places = [found_in(plan, results, setup) for setup in plan.axis(SETUPS, QUICK_SETUPS)]
    places = [place for place in places if RIVAL in place.rewards]
    tables = [
        Table(
            name="",
            title="Average reward at the authors' setting and at the best",
            rows=rows_of(places),
            formats=RANKED,
        ),
        Table(
            name="flatness",
            title="Reward lost at the worst α of the grid",
            rows=flat_rows(places),
            formats={"lost, %": ".2f"},
        ),
        Table(name="alpha", title="Average reward over α", rows=alpha_rows(places), formats={"reward": ".4f"}),
    ]
    figures = {f"ranking-{place.name}": draw_ranking(place) for place in places}
    return Findings(
        tables=tables,
        verdicts=[verdict for place in places for verdict in verdicts(place)],
        figures=({"": draw_flatness(places)} if places else {}) | figures,
        lesson=lesson(places),
    )


def rows_of(places: Sequence[Found]) -> list[dict[str, Any]]:
    """Return a row for each place and method: reward at both settings, ranks, and the lead over SBUCB."""
    return [
        _row(place, method, {"rank, authors'": 1 + plain.index(method), "rank, best": rank})
        for place in places
        for plain in [place.ranked(place.methods())]
        for rank, method in enumerate(place.ranked(place.methods(), tuned), start=1)
    ]


def _row(place: Found, method: str, ranks: Mapping[str, int]) -> dict[str, Any]:
    row: dict[str, Any] = {"environment": place.name, "method": method}
    for title, label in ((AUTHORS, method), (BEST, tuned(method))):
        row[title], row[f"{title} ±"] = summary(place.rewards.get(label, {}).values())
    row |= {"chosen": place.chosen[method]} | dict(ranks)
    row["lead on SBUCB, authors'"] = say(place.lead(method, RIVAL))
    row["lead on SBUCB, best"] = say(place.lead(tuned(method), tuned(RIVAL)))
    return row


def flat_rows(places: Sequence[Found]) -> list[dict[str, Any]]:
    """Return a row for each place and method: its best and its worst α, and what lies between them."""
    rows: list[dict[str, Any]] = []
    for place in places:
        for method in place.drawn():
            top, low = place.ends(method)
            lost, error = summary(100 * share for share in place.lost(method).values())
            row = {"environment": place.name, "method": method, "best α": top, "worst α": low}
            rows.append(row | {"lost, %": lost, "lost, % ±": error})
    return rows


def alpha_rows(places: Sequence[Found]) -> list[dict[str, Any]]:
    """Return a row for each place, method and α."""
    return [
        {"environment": place.name, "method": method, "α": alpha, "reward": mean, "reward ±": error}
        for place in places
        for (method, alpha), rewards in place.over.items()
        for mean, error in [summary(rewards.values())]
    ]


def verdicts(place: Found) -> list[Verdict]:
    """Judge imputation, exact and sketched, and its flatness in α, in one place."""
    given = [judged_lead(place, method, RIVAL, "Imputation gets a higher reward") for method in ("puir", "spuir")]
    if {RIVAL, "puir"} <= set(place.drawn()):
        gap = paired(place.lost(RIVAL), place.lost("puir"))
        lost = {method: summary(place.lost(method).values())[0] for method in (RIVAL, "puir")}
        given.append(
            Verdict(
                claim=f"With imputation the choice of α matters less: PUIR beside SBUCB on {place.name}.",
                outcome=judge(gap),
                evidence=f"Share of reward lost from the best to the worst α of {min(ALPHAS):g} to {max(ALPHAS):g}: "
                f"SBUCB {lost[RIVAL]:.4f}, PUIR {lost['puir']:.4f}; difference {say(gap)}, which has to lie above 0.",
            )
        )
    return given


def judged_lead(place: Found, ours: str, theirs: str, claim: str) -> Verdict:
    """Judge whether one method earns more than another, at the authors' settings and each at its own best."""
    plain, fair = place.lead(ours, theirs), place.lead(tuned(ours), tuned(theirs))
    return Verdict(
        claim=f"{claim}: {ours.upper()} beside {theirs.upper()} on {place.name}.",
        outcome=judge(plain, fair),
        evidence=f"Difference of reward at the authors' settings {say(plain)}, each at its own best {say(fair)}; it "
        "holds if both intervals lie above 0.",
    )


def lesson(places: Sequence[Found]) -> str:
    """Say what the numbers teach."""
    opening = (
        "SBUCB ran with α = 1 and PUIR with 0.1, so that the paper's comparison cannot tell imputation from less "
        "exploration; each method's own best setting can."
    )
    return " ".join([opening, *(_learnt(place) for place in places)])


def _learnt(place: Found) -> str:
    plain, fair = place.lead("puir", RIVAL), place.lead(tuned("puir"), tuned(RIVAL))
    first, level = place.ranked(place.methods(), tuned)[0], mean_levels(place.levels)
    alike = ", for the two then act alike" if fair.low == fair.high == 0 else ""
    said = (
        f"On {place.name} PUIR's lead on SBUCB is {plain.estimate:+.4f} at the authors' settings and "
        f"{fair.estimate:+.4f} when both are tuned{alike}; {first} is then first with "
        f"{place.mean(tuned(first)):.4f}. SBUCB chose {place.chosen[RIVAL]}"
    )
    if level:
        said += f", where the best fixed action earns {level['best fixed']:.4f} and the best one for each context "
        said += f"{level['oracle']:.4f} in expectation"
    return said + "."


def draw_ranking(place: Found) -> "Figure":
    """Draw the methods of one place by regret, the authors' setting open and the best one filled."""
    spots = {label: estimate(values.values()) for label, values in place.regrets.items()}
    return drawing.dots(spots, xlabel=f"regret per decision on {place.name}", log_x=True, smaller_is_better=True)


def draw_flatness(places: Sequence[Found]) -> "Figure":
    """Draw the reward over α in per cent of the best of all, a panel for each place."""
    panels: list[Panel] = []
    for place in places:
        top = max(place.average(*cell) for cell in place.over)
        lines: list[Line] = []
        for method in place.drawn():
            alphas = sorted(place.alphas(method))
            points = [summary(100 * reward / top for reward in place.over[method, a].values()) for a in alphas]
            where = [float(ALPHAS.index(alpha)) for alpha in alphas]
            lines.append(Line(method, where, [m for m, _ in points], [error for _, error in points], policy=method))
        ticks = [f"{alpha:g}" for alpha in ALPHAS]
        ylabel = "" if panels else "reward, % of the best"
        panels.append(Panel(title=place.name, xlabel="α", ylabel=ylabel, lines=lines, ticks=ticks))
    return side_by_side(panels)


EXPERIMENT = Experiment(
    name="fairness",
    title="Each method at its best",
    source="beyond the paper",
    shown="The paper compares methods at one setting each: SBUCB with α = 1, PUIR with 0.1, SPUIR with 0.2, BEXP3 with "
    "a rate that leaves it almost uniform.",
    setting="Nine methods on synthetic (N = 90, B = 1,400), heterogeneous (N = 30, B = 1,400; without DFM-S, which "
    "needs conversions) and coupon (N = 20, B = 625). Each chooses among at most twelve settings on seeds 1000 to "
    "1004: the optimistic ones among the same twelve pairs of α (0 to 1) and λ (1 and 10), with the authors' "
    "imputation and sketch; exponential weights among ten rates and ridges, summed over steps; BLTS-B among six "
    "scales and ridges; DFM-S among three ridges; the authors' setting always with them. What is chosen is reported on "
    "other seeds.",
    grid=grid,
    report=report,
)
