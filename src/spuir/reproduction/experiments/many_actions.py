"""How much imputation is too much: constant, scheduled and balanced rates for 5 to 50 actions, against none."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from spuir.reproduction.base import Experiment, Findings, Plan, Table, Verdict
from spuir.reproduction.cells import fill, over_seeds, tasks_of
from spuir.reproduction.panels import Line, Panel, side_by_side
from spuir.reproduction.runner import Result, Task
from spuir.reproduction.trials import playing
from spuir.reproduction.verdicts import Interval, estimate, judge, last, say, summary

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
"""No imputation, which is SBUCB, and four rates: SPUIR's and PUIR's constants, the paper's schedule, ours."""


class Cell(NamedTuple):
    """One cell of the grid."""

    world: str
    actions: int
    alpha: float
    rate: str


def cells(plan: Plan) -> dict[Cell, list[Task]]:
    """Return the cells of a plan, each with a task for each seed."""
    found: dict[Cell, list[Task]] = {}
    for world in plan.axis(WORLDS, WORLDS[:1]):
        for actions in plan.axis(ACTIONS, (5, 50)):
            for alpha in plan.axis(ALPHAS, (0.3,)):
                for rate, parameters in RATES.items():
                    found[Cell(world, actions, alpha, rate)] = over_seeds(
                        plan.seeds,
                        lambda seed, at=(world, actions), given=dict(parameters) | {"alpha": alpha}: playing(
                            "puir",
                            at[0],
                            parameters=given,
                            world={"n_actions": at[1]},
                            episodes=EPISODES,
                            batch_size=BATCH,
                            seed=seed,
                        ),
                    )
    return found


def grid(plan: Plan, results: Sequence[Result]) -> list[Task]:
    """Return every rate on every world, number of actions and α."""
    return tasks_of(cells(plan))


def shares(rewards: Mapping[Cell, Mapping[int, float]]) -> dict[Cell, dict[int, float]]:
    """Return, by cell and seed, what a rate gains on no imputation at the same α, as a share of that reward."""
    found: dict[Cell, dict[int, float]] = {}
    for cell, own in rewards.items():
        base = rewards.get(cell._replace(rate=NONE), {})
        seeds = sorted(own.keys() & base.keys())
        if cell.rate != NONE and seeds:
            found[cell] = {seed: own[seed] / base[seed] - 1.0 for seed in seeds}
    return found


def report(plan: Plan, results: Sequence[Result]) -> Findings:
    """Return the gain of each rate on SBUCB, the worst of it, and what follows."""
    rewards = {cell: last(found, "average_reward") for cell, found in fill(cells(plan), results).items() if found}
    gained = shares(rewards)
    if not gained:
        return Findings(tables=[], verdicts=[], figures={}, lesson="No pair of runs is complete.")
    gains = {cell: estimate(by_seed.values()) for cell, by_seed in gained.items()}
    return Findings(
        tables=[
            Table(
                name="",
                title="Gain on SBUCB in per cent, in the world and at the α where each rate does worst",
                rows=worst_rows(gains),
                formats=dict.fromkeys(list(RATES)[1:], "+.2f"),
            ),
            Table(
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
    rewards: Mapping[Cell, Mapping[int, float]], gained: Mapping[Cell, Mapping[int, float]]
) -> list[dict[str, Any]]:
    """Return a row for each cell; SBUCB has no gain on itself."""
    rows: list[dict[str, Any]] = []
    for cell, by_seed in rewards.items():
        reward, error = summary(by_seed.values())
        row = {"environment": cell.world, "actions": cell.actions, "α": cell.alpha, "rate": cell.rate}
        row |= {"reward": reward, "reward ±": error}
        if cell in gained:
            row[GAIN], row[f"{GAIN} ±"] = summary(100 * value for value in gained[cell].values())
        rows.append(row)
    return rows


def at(gains: Mapping[Cell, Interval], rate: str, actions: int | None = None) -> dict[Cell, Interval]:
    """Return the gains of one rate, with one number of actions or with all."""
    return {cell: gain for cell, gain in gains.items() if cell.rate == rate and actions in (None, cell.actions)}


def least(gains: Mapping[Cell, Interval], rate: str, actions: int) -> float:
    """Return the gain of a rate where it does worst."""
    return min((gain.estimate for gain in at(gains, rate, actions).values()), default=math.nan)


def worst_rows(gains: Mapping[Cell, Interval]) -> list[dict[str, Any]]:
    """Return a row for each number of actions: the worst gain of each rate, in per cent."""
    numbers = sorted({cell.actions for cell in gains})
    rates = dict.fromkeys(cell.rate for cell in gains)
    return [{"actions": m} | {rate: 100 * least(gains, rate, m) for rate in rates} for m in numbers]


def _where(cell: Cell) -> str:
    return f"{cell.world}, M = {cell.actions}, α = {cell.alpha:g}"


def verdicts(gains: Mapping[Cell, Interval]) -> list[Verdict]:
    """Judge the two claims about rates, each where it is hardest to uphold."""
    most = max(cell.actions for cell in gains)
    constant, balanced = at(gains, CONSTANT, most), at(gains, BALANCED)
    if not (constant and balanced):
        return []
    mild = max(constant, key=lambda cell: constant[cell].high)
    harsh = min(balanced, key=lambda cell: balanced[cell].low)
    return [
        Verdict(
            claim=f"With {most} actions a constant rate (γ = 0.1, η = 0.9) loses more than {ALLOWED:.0%} of SBUCB's "
            "reward, in both worlds and at every α.",
            outcome=judge(-constant[mild], margin=ALLOWED),
            evidence=f"Of {len(constant)} cells the mildest relative loss is {say(-constant[mild], '.3f')} "
            f"({_where(mild)}); the claim holds if that interval lies above {ALLOWED:g}.",
        ),
        Verdict(
            claim=f"The balanced rate never loses more than {ALLOWED:.0%} of SBUCB's reward, with 5 to {most} actions.",
            outcome=judge(balanced[harsh], margin=-ALLOWED),
            evidence=f"Of {len(balanced)} cells the lowest relative gain is {say(balanced[harsh], '+.3f')} "
            f"({_where(harsh)}); the claim holds if that interval lies above −{ALLOWED:g}.",
        ),
    ]


def lesson(gains: Mapping[Cell, Interval]) -> str:
    """Say what the numbers teach."""
    few, most = min(cell.actions for cell in gains), max(cell.actions for cell in gains)
    balanced = at(gains, BALANCED)
    above, below = (sum(side) for side in zip(*((g.low > 0, g.high < 0) for g in balanced.values()), strict=True))
    return (
        "An action's imputed rows outnumber its observed ones about M − 1 to 1, and an imputed reward only repeats the "
        "last estimate. At γ = 0.1 and η = 0.9 the reward beside SBUCB's is, at worst, "
        f"{least(gains, CONSTANT, few):+.1%} with {few} actions and {least(gains, CONSTANT, most):+.1%} with {most}. "
        f"Forgetting imputed sums almost at once (η = 0.1) makes it {least(gains, AUTHORS, most):+.1%} with {most} "
        "actions, the paper's schedule "
        f"{least(gains, SCHEDULE, most):+.1%}, and the balanced rate, which ties imputed to observed weight, "
        f"{least(gains, BALANCED, most):+.1%}. Beyond noise the balanced rate is above SBUCB in {above} of "
        f"{len(balanced)} cells and below it in {below}. The paper's five actions show little of all this."
    )


def draw(gained: Mapping[Cell, Mapping[int, float]]) -> "Figure":
    """Draw the gain on SBUCB over the number of actions, each seed's mean over α: a panel for each world."""
    panels: list[Panel] = []
    for world in dict.fromkeys(cell.world for cell in gained):
        numbers = sorted({cell.actions for cell in gained})
        lines = [Line("SBUCB", numbers, [0.0] * len(numbers), policy="sbucb")]
        for rank, rate in enumerate(dict.fromkeys(cell.rate for cell in gained)):
            points = [summary(_mean_over_alpha(gained, world, m, rate)) for m in numbers]
            lines.append(Line(rate, numbers, [mean for mean, _ in points], [error for _, error in points], rank=rank))
        ylabel = "" if panels else "gain of reward on SBUCB, %"
        panels.append(Panel(title=world, xlabel="actions", ylabel=ylabel, lines=lines, log_x=True))
    return side_by_side(panels)


def _mean_over_alpha(gained: Mapping[Cell, Mapping[int, float]], world: str, actions: int, rate: str) -> list[float]:
    """Return one gain for each seed, in per cent."""
    some = [
        by_seed for cell, by_seed in gained.items() if (cell.world, cell.actions, cell.rate) == (world, actions, rate)
    ]
    seeds = set.intersection(*(set(by_seed) for by_seed in some)) if some else set[int]()
    return [100 * summary(by_seed[seed] for by_seed in some)[0] for seed in sorted(seeds)]


EXPERIMENT = Experiment(
    name="many-actions",
    title="Many actions: how much imputation is too much",
    source="beyond the paper",
    shown="The paper imputes at a constant or a scheduled rate and has five actions, or fifteen on Criteo-all.",
    setting="Environments heterogeneous and linear (d = 40, noise as large as the signal) with 5, 10, 20 and 50 "
    f"actions, N = {EPISODES}, B = {BATCH:,}. Exact imputation at a constant rate (γ = 0.1 with SPUIR's η = 0.9 and "
    "with PUIR's η = 0.1), by the paper's schedule, and balanced (γ_j = n_j/n̂_j, at most 1, η = 0.9), each beside "
    "SBUCB with the same α of 0.1, 0.3 and 1, on the same contexts and noise.",
    grid=grid,
    report=report,
)
