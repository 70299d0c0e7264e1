"""Each method at the authors' setting and at its own best one, and the effect of its bonus."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spuir.reproduction.base import Experiment, Findings, ReportTable, Scope, Verdict
from spuir.reproduction.experiments import figure3a, figure3c
from spuir.reproduction.grids import fill, tasks_of
from spuir.reproduction.method_comparison import REWARD, Compared, ahead_in
from spuir.reproduction.plots import Panel, line, side_by_side
from spuir.reproduction.policy_runs import Setup, mean_levels
from spuir.reproduction.tasks import Result, Task
from spuir.reproduction.tuning import ALPHAS, METHODS, at_alpha, both, setting_tasks, tuned
from spuir.reproduction.verdicts import judge, last, mean_of, paired, say, with_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SYNTHETIC, COUPON = figure3a.setup(Scope()), figure3c.setup(Scope())
HETEROGENEOUS = Setup(environment="heterogeneous", episodes=30, batch_size=1400)
SETUPS = (SYNTHETIC, HETEROGENEOUS, COUPON)
QUICK_SETUPS = (COUPON,)
OVER_ALPHA = ("sbucb", "puir", "spuir")
"""Methods that are run at every α."""
RIVAL = "sbucb"
AUTHORS, BEST = "reward, authors'", "reward, best"
RANKED = {AUTHORS: ".4f", BEST: ".4f"}
"""Formats of the columns of :func:`rows_of`."""


@dataclass(frozen=True)
class Flatness:
    """Rewards in one place by method and α, then by seed; every other parameter is the authors'."""

    name: str
    rewards: Mapping[tuple[str, float], Mapping[int, float]]

    def methods(self) -> list[str]:
        """Return the methods that were run over α."""
        return list(dict.fromkeys(method for method, _ in self.rewards))

    def alphas(self, method: str) -> list[float]:
        """Return the α at which a method was run."""
        return [alpha for name, alpha in self.rewards if name == method]

    def ends(self, method: str) -> tuple[float, float]:
        """Return the α with the highest and the one with the lowest mean reward."""
        ranked = sorted(self.alphas(method), key=lambda alpha: -mean_of(self.rewards[method, alpha]))
        return ranked[0], ranked[-1]

    def lost(self, method: str) -> dict[int, float]:
        """Return, for each seed, the share of reward lost from the best α to the worst."""
        top, low = (self.rewards[method, alpha] for alpha in self.ends(method))
        return {seed: 1.0 - low[seed] / top[seed] for seed in sorted(low.keys() & top.keys())}


def methods_of(setup: Setup) -> tuple[str, ...]:
    """Return the methods that make sense in a place: DFM-S needs conversions."""
    return tuple(method for method in METHODS if setup.environment != HETEROGENEOUS.environment or method != "dfm-s")


def over_alpha(scope: Scope, setup: Setup) -> dict[tuple[str, float], list[Task]]:
    """Return the cells of each method at each α, everything else at the authors' values."""
    return {
        (method, alpha): setting_tasks(scope.seeds, method, at_alpha(method, alpha), setup)
        for method in scope.axis(OVER_ALPHA, OVER_ALPHA[:2])
        for alpha in scope.axis(ALPHAS, (0.1, 1.0))
    }


def grid(scope: Scope, results: Sequence[Result]) -> list[Task]:
    """Return the runs at the authors' settings, the tuning runs, those of the chosen settings, and those over α."""
    tasks: list[Task] = []
    for setup in scope.axis(SETUPS, QUICK_SETUPS):
        tasks += both(scope, results, methods_of(setup), setup)
        tasks += [*tasks_of(over_alpha(scope, setup)), *setup.levels(scope.seeds)]
    return tasks


def report(scope: Scope, results: Sequence[Result]) -> Findings:
    """Return the ranking in each place, before and after tuning, and how much each method depends on α."""
    places: list[Compared] = []
    flat: list[Flatness] = []
    for setup in scope.axis(SETUPS, QUICK_SETUPS):
        place = Compared.of(scope, results, setup, methods_of(setup))
        if RIVAL in place.groups:
            groups = fill(over_alpha(scope, setup), results)
            places.append(place)
            flat.append(Flatness(place.name, {cell: last(group, REWARD) for cell, group in groups.items() if group}))
    tables = [
        ReportTable(
            name="",
            title="Average reward at the authors' setting and at the best",
            rows=rows_of(places),
            formats=RANKED,
        ),
        ReportTable(
            name="flatness",
            title="Reward lost at the worst α of the grid",
            rows=flat_rows(flat),
            formats={"lost, %": ".2f"},
        ),
        ReportTable(name="alpha", title="Average reward over α", rows=alpha_rows(flat), formats={"reward": ".4f"}),
    ]
    figures = {f"ranking-{place.name}": draw_ranking(place) for place in places}
    return Findings(
        tables=tables,
        verdicts=[verdict for pair in zip(places, flat, strict=True) for verdict in verdicts(*pair)],
        figures=({"": draw_flatness(flat)} if places else {}) | figures,
        lesson=lesson(places),
    )


def rows_of(places: Sequence[Compared]) -> list[dict[str, Any]]:
    """Return a row for each place and method: reward at both settings, ranks, and the lead over SBUCB."""
    return [
        {"environment": place.name, "method": method}
        | with_error(AUTHORS, place.values(method).values())
        | with_error(BEST, place.values(tuned(method)).values())
        | {"chosen": place.chosen[method], "rank, authors'": 1 + plain.index(method), "rank, best": rank}
        | {"lead on SBUCB, authors'": say(place.difference(method, RIVAL))}
        | {"lead on SBUCB, best": say(place.difference(tuned(method), tuned(RIVAL)))}
        for place in places
        for plain in [place.ranked(place.methods())]
        for rank, method in enumerate(place.ranked(place.methods(), tuned), start=1)
    ]


def flat_rows(flat: Sequence[Flatness]) -> list[dict[str, Any]]:
    """Return a row for each place and method: its best and its worst α, and the reward lost between them."""
    return [
        {"environment": one.name, "method": method, "best α": top, "worst α": low}
        | with_error("lost, %", (100 * share for share in one.lost(method).values()))
        for one in flat
        for method in one.methods()
        for top, low in [one.ends(method)]
    ]


def alpha_rows(flat: Sequence[Flatness]) -> list[dict[str, Any]]:
    """Return a row for each place, method and α."""
    return [
        {"environment": one.name, "method": method, "α": alpha} | with_error("reward", rewards.values())
        for one in flat
        for (method, alpha), rewards in one.rewards.items()
    ]


def verdicts(place: Compared, flat: Flatness) -> list[Verdict]:
    """Judge imputation, exact and sketched, and its dependence on α, in one place."""
    given = [ahead_in(place, method, RIVAL, "Imputation gets a higher reward") for method in ("puir", "spuir")]
    if {RIVAL, "puir"} <= set(flat.methods()):
        gap = paired(flat.lost(RIVAL), flat.lost("puir"))
        lost = {method: mean_of(flat.lost(method)) for method in (RIVAL, "puir")}
        given.append(
            Verdict(
                f"{place.name}/alpha-matters-less",
                f"With imputation the choice of α matters less: PUIR beside SBUCB on {place.name}.",
                judge(gap),
                f"Share of reward lost from the best to the worst α of {min(ALPHAS):g} to {max(ALPHAS):g}: "
                f"SBUCB {lost[RIVAL]:.4f}, PUIR {lost['puir']:.4f}; difference {say(gap)}, which has to lie above 0.",
            )
        )
    return given


def lesson(places: Sequence[Compared]) -> str:
    """Return what a reader learns, in numbers."""
    opening = (
        "SBUCB ran with α = 1 and PUIR with 0.1, so the paper's comparison cannot tell imputation from less "
        "exploration; comparing each method at its own best setting can."
    )
    return " ".join([opening, *(_in_numbers(place) for place in places)])


def _in_numbers(place: Compared) -> str:
    plain, fair = place.difference("puir", RIVAL), place.difference(tuned("puir"), tuned(RIVAL))
    first, level = place.ranked(place.methods(), tuned)[0], mean_levels(place.levels)
    alike = ", because both then act alike" if fair.low == fair.high == 0 else ""
    text = (
        f"On {place.name} PUIR's lead on SBUCB is {plain.estimate:+.4f} at the authors' settings and "
        f"{fair.estimate:+.4f} when both are tuned{alike}; {first} is then first with "
        f"{place.mean(tuned(first)):.4f}. SBUCB chose {place.chosen[RIVAL]}"
    )
    if level:
        text += f"; the best fixed action earns {level['best fixed']:.4f} and the best one for each context "
        text += f"{level['oracle']:.4f} in expectation"
    return text + "."


def draw_ranking(place: Compared) -> "Figure":
    """Draw the methods of one place by regret."""
    return place.draw_ranking(f"regret per decision on {place.name}")


def draw_flatness(flat: Sequence[Flatness]) -> "Figure":
    """Draw the reward over α in per cent of the best of all, a panel for each place."""
    panels: list[Panel] = []
    for one in flat:
        top = max(mean_of(rewards) for rewards in one.rewards.values())
        lines = []
        for method in one.methods():
            alphas = sorted(one.alphas(method))
            shares = [[100 * reward / top for reward in one.rewards[method, alpha].values()] for alpha in alphas]
            lines.append(line(method, [ALPHAS.index(alpha) for alpha in alphas], shares))
        ticks = [f"{alpha:g}" for alpha in ALPHAS]
        ylabel = "" if panels else "reward, % of the best"
        panels.append(Panel(title=one.name, xlabel="α", ylabel=ylabel, lines=lines, ticks=ticks))
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
    "scales and ridges; DFM-S among three ridges; the authors' setting is always one of them. The chosen settings are "
    "reported on other seeds.",
    grid=grid,
    report=report,
)
