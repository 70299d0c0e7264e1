"""How much imputation is too much: constant, scheduled and balanced rates for 5 to 50 actions, against none."""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from spuir.reproduction.base import Experiment, Findings, ReportTable, Scope, Verdict
from spuir.reproduction.grids import CellGrid
from spuir.reproduction.method_comparison import REWARD
from spuir.reproduction.plots import Panel, line, side_by_side
from spuir.reproduction.policy_runs import Setup
from spuir.reproduction.tasks import Result, Task
from spuir.reproduction.verdicts import Interval, estimate, judge, last, mean_of, relative_gains, say, with_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORLDS = ("heterogeneous", "linear")
ACTIONS = (5, 10, 50)
ALPHAS = (0.1, 0.3, 1.0)
EPISODES, BATCH = 30, 1000
GAIN = "gain on SBUCB, %"
ALLOWED = 0.03
"""The share of reward that a rate may cost before it counts as harm."""

NONE, CONSTANT, AUTHORS, SCHEDULE, BALANCED = "none", "γ 0.1, η 0.9", "γ 0.1, η 0.1", "schedule", "balanced"
RATES: Mapping[str, Mapping[str, Any]] = {
    NONE: {"imputation_rate": 0.0},
    CONSTANT: {"imputation_rate": 0.1, "discount": 0.9},
    AUTHORS: {"imputation_rate": 0.1, "discount": 0.1},
    SCHEDULE: {"imputation_rate": "paper-schedule", "discount": 0.1},
    BALANCED: {"imputation_rate": "balanced", "discount": 0.9},
}
"""No imputation, which is SBUCB, and four rates: SPUIR's and PUIR's constants, the paper's schedule, and ours."""


class RateCell(NamedTuple):
    """One cell of the grid."""

    world: str
    actions: int
    alpha: float
    rate: str


def cells(scope: Scope) -> dict[RateCell, list[Task]]:
    """Return every rate in every environment, with every number of actions and every α."""
    names = product(
        scope.axis(WORLDS, WORLDS[:1]), scope.axis(ACTIONS, (5, 50)), scope.axis(ALPHAS, (0.3,)), list(RATES)
    )
    made: dict[RateCell, list[Task]] = {}
    for cell in map(RateCell._make, names):
        setup = Setup(environment=cell.world, episodes=EPISODES, batch_size=BATCH, world={"n_actions": cell.actions})
        given = dict(RATES[cell.rate]) | {"alpha": cell.alpha}
        made[cell] = setup.runs(scope.seeds, "puir", parameters=given)
    return made


grid = CellGrid(cells)


def shares(rewards: Mapping[RateCell, Mapping[int, float]]) -> dict[RateCell, dict[int, float]]:
    """Return, by cell and seed, what a rate gains on no imputation at the same α, as a share of that reward."""
    gained: dict[RateCell, dict[int, float]] = {}
    for cell, own in rewards.items():
        base = rewards.get(cell._replace(rate=NONE), {})
        share = relative_gains(own, base) if cell.rate != NONE else {}
        if share:
            gained[cell] = share
    return gained


def report(scope: Scope, results: Sequence[Result]) -> Findings:
    """Return the gain of each rate on SBUCB, and where each rate does worst."""
    rewards = {cell: last(group, REWARD) for cell, group in grid.fill(scope, results).items() if group}
    gained = shares(rewards)
    if not gained:
        return Findings(tables=[], verdicts=[], figures={}, lesson="No pair of runs is complete.")
    gains = {cell: estimate(by_seed.values()) for cell, by_seed in gained.items()}
    return Findings(
        tables=[
            ReportTable(
                name="",
                title="Gain on SBUCB in per cent, in the world and at the α where each rate does worst",
                rows=worst_rows(gains),
                formats=dict.fromkeys(list(RATES)[1:], "+.2f"),
            ),
            ReportTable(
                name="cells",
                title="Reward of each rate, and its gain on SBUCB at the same α",
                rows=cell_rows(rewards, gained),
                formats={"reward": ".4f", GAIN: "+.2f"},
            ),
        ],
        verdicts=verdicts(gains),
        figures={"": draw(gained)},
        lesson=lesson(gains),
    )


def cell_rows(
    rewards: Mapping[RateCell, Mapping[int, float]], gained: Mapping[RateCell, Mapping[int, float]]
) -> list[dict[str, Any]]:
    """Return a row for each cell; SBUCB has no gain on itself."""
    rows: list[dict[str, Any]] = []
    for cell, by_seed in rewards.items():
        row: dict[str, Any] = {"environment": cell.world, "actions": cell.actions, "α": cell.alpha, "rate": cell.rate}
        row |= with_error("reward", by_seed.values())
        if cell in gained:
            row |= with_error(GAIN, (100 * value for value in gained[cell].values()))
        rows.append(row)
    return rows


def at(gains: Mapping[RateCell, Interval], rate: str, actions: int | None = None) -> dict[RateCell, Interval]:
    """Return the gains of one rate, with one number of actions or with all."""
    return {cell: gain for cell, gain in gains.items() if cell.rate == rate and actions in (None, cell.actions)}


def least(gains: Mapping[RateCell, Interval], rate: str, actions: int) -> float:
    """Return the gain of a rate where it does worst."""
    return min((gain.estimate for gain in at(gains, rate, actions).values()), default=math.nan)


def worst_rows(gains: Mapping[RateCell, Interval]) -> list[dict[str, Any]]:
    """Return a row for each number of actions: the worst gain of each rate, in per cent."""
    numbers = sorted({cell.actions for cell in gains})
    rates = dict.fromkeys(cell.rate for cell in gains)
    return [{"actions": m} | {rate: 100 * least(gains, rate, m) for rate in rates} for m in numbers]


def _where(cell: RateCell) -> str:
    return f"{cell.world}, M = {cell.actions}, α = {cell.alpha:g}"


def verdicts(gains: Mapping[RateCell, Interval]) -> list[Verdict]:
    """Judge the two claims about rates, each in its least favourable cell."""
    most = max(cell.actions for cell in gains)
    constant, balanced = at(gains, CONSTANT, most), at(gains, BALANCED)
    if not (constant and balanced):
        return []
    mild = max(constant, key=lambda cell: constant[cell].high)
    harsh = min(balanced, key=lambda cell: balanced[cell].low)
    return [
        Verdict(
            "constant-rate-loses",
            f"With {most} actions a constant rate (γ = 0.1, η = 0.9) loses more than {ALLOWED:.0%} of SBUCB's "
            "reward, in both worlds and at every α.",
            judge(-constant[mild], margin=ALLOWED),
            f"Of {len(constant)} cells the mildest relative loss is {say(-constant[mild], '.3f')} "
            f"({_where(mild)}); the claim holds if that interval lies above {ALLOWED:g}.",
        ),
        Verdict(
            "balanced-rate-is-safe",
            f"The balanced rate never loses more than {ALLOWED:.0%} of SBUCB's reward, with 5 to {most} actions.",
            judge(balanced[harsh], margin=-ALLOWED),
            f"Of {len(balanced)} cells the lowest relative gain is {say(balanced[harsh], '+.3f')} "
            f"({_where(harsh)}); the claim holds if that interval lies above −{ALLOWED:g}.",
        ),
    ]


def lesson(gains: Mapping[RateCell, Interval]) -> str:
    """Return what a reader learns, in numbers."""
    few, most = min(cell.actions for cell in gains), max(cell.actions for cell in gains)
    balanced = at(gains, BALANCED)
    above, below = (sum(side) for side in zip(*((g.low > 0, g.high < 0) for g in balanced.values()), strict=True))
    return (
        "An action's imputed rows outnumber its observed ones about M − 1 to 1, and an imputed reward only repeats the "
        "last estimate. At γ = 0.1 and η = 0.9 the worst change of reward relative to SBUCB is "
        f"{least(gains, CONSTANT, few):+.1%} with {few} actions and {least(gains, CONSTANT, most):+.1%} with {most}. "
        f"With {most} actions it is {least(gains, AUTHORS, most):+.1%} if imputed sums are forgotten quickly "
        f"(η = 0.1), {least(gains, SCHEDULE, most):+.1%} with the paper's schedule, and "
        f"{least(gains, BALANCED, most):+.1%} with the balanced rate, which ties imputed to observed weight. The "
        f"balanced rate is significantly above SBUCB in {above} of {len(balanced)} cells and below it in {below}. "
        "The paper's five actions show little of this."
    )


def draw(gained: Mapping[RateCell, Mapping[int, float]]) -> "Figure":
    """Draw the gain on SBUCB over the number of actions, the mean over α: a panel for each environment."""
    panels: list[Panel] = []
    for world in dict.fromkeys(cell.world for cell in gained):
        numbers = sorted({cell.actions for cell in gained})
        lines = [line("SBUCB", numbers, [[0.0]] * len(numbers), policy="sbucb")]
        for rank, rate in enumerate(dict.fromkeys(cell.rate for cell in gained)):
            lines.append(line(rate, numbers, [_mean_over_alpha(gained, world, m, rate) for m in numbers], rank=rank))
        ylabel = "" if panels else "gain of reward on SBUCB, %"
        panels.append(Panel(title=world, xlabel="actions", ylabel=ylabel, lines=lines, log_x=True))
    return side_by_side(panels)


def _mean_over_alpha(
    gained: Mapping[RateCell, Mapping[int, float]], world: str, actions: int, rate: str
) -> list[float]:
    """Return one gain for each seed, in per cent."""
    some = [
        by_seed for cell, by_seed in gained.items() if (cell.world, cell.actions, cell.rate) == (world, actions, rate)
    ]
    seeds = set.intersection(*(set(by_seed) for by_seed in some)) if some else set[int]()
    return [100 * mean_of({n: by_seed[seed] for n, by_seed in enumerate(some)}) for seed in sorted(seeds)]


EXPERIMENT = Experiment(
    name="many-actions",
    title="Many actions: how much imputation is too much",
    source="beyond the paper",
    shown="The paper imputes at a constant or a scheduled rate and has five actions, or fifteen on Criteo-all.",
    setting="Environments heterogeneous and linear (d = 40, noise as large as the signal) with 5, 10, 20 and 50 "
    f"actions, N = {EPISODES}, B = {BATCH:,}. Exact imputation at a constant rate (γ = 0.1 with SPUIR's η = 0.9 and "
    "with PUIR's η = 0.1), by the paper's schedule, and balanced (γ_j = n_j/n̂_j, at most 1, η = 0.9), each compared "
    "with SBUCB at the same α of 0.1, 0.3 and 1, on the same contexts and noise.",
    grid=grid,
    report=report,
)
