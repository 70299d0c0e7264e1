"""Figure 3(f): the sketch size, with the paper's moments and with ours."""

from collections.abc import Mapping, Sequence
from typing import Any

from spuir.reproduction import drawing
from spuir.reproduction.base import Experiment, Findings, Plan, Table, Verdict
from spuir.reproduction.cells import fill, measured, over_seeds, tasks_of
from spuir.reproduction.runner import Result, Task
from spuir.reproduction.trials import playing
from spuir.reproduction.verdicts import Interval, judge, last, paired, say, summary

BATCH = 1400
SIZES = (10, 25, 50, 100, 150, 300, 1400)
QUICK_SIZES = (50, 150, 1400)
CLAIMED, BELOW = 150, 50
"""The paper's choice, about a tenth of the batch, and a size clearly below it."""
ENOUGH = 0.01
"""A sketch is enough if the interval of what it loses stays within this share of the reward without a sketch."""

MOMENTS = {"sketched": "", "anchored": " (ours)"}
METHODS = ("spuir", "spuir-rs")
GOAL = "puir"

Cell = tuple[str, int]


def cells(plan: Plan) -> dict[Cell, list[Task]]:
    """Return both methods with both kinds of moments at every sketch size, and PUIR without any.

    A sketch as large as the batch is none: the rows are taken as they are.
    """

    def cell(method: str, changed: Mapping[str, Any]) -> list[Task]:
        return over_seeds(
            plan.seeds,
            lambda seed: playing(
                method, "synthetic", episodes=90, batch_size=BATCH, seed=seed, preset="paper", parameters=changed
            ),
        )

    made: dict[Cell, list[Task]] = {(GOAL, BATCH): cell(GOAL, {})}
    for method in _methods(plan):
        for moments, suffix in MOMENTS.items():
            for size in plan.axis(SIZES, QUICK_SIZES):
                changed = {"moments": moments if size < BATCH else "sketched", "sketch_size": size}
                made[method + suffix, size] = cell(method, changed)
    return made


def _methods(plan: Plan) -> Sequence[str]:
    return plan.axis(METHODS, METHODS[:1])


def grid(plan: Plan, results: Sequence[Result]) -> list[Task]:
    """Return the runs of all cells."""
    return tasks_of(cells(plan))


def report(plan: Plan, results: Sequence[Result]) -> Findings:
    """Return reward and regret against the sketch size."""
    found = fill(cells(plan), results)
    rewards = {cell: last(group, "average_reward") for cell, group in found.items()}
    sizes = plan.axis(SIZES, QUICK_SIZES)
    table = Table(
        name="",
        title="Reward and regret by sketch size; 1,400 is the whole batch",
        rows=[
            {"policy": label, "c": size, "share of B": size / BATCH}
            | measured(group, {"average reward": "average_reward", "regret per context": "regret_per_step"})
            | {"minus no sketch": say(paired(rewards[label, size], rewards[label, BATCH]))}
            for (label, size), group in found.items()
        ],
        formats={"average reward": ".4f", "regret per context": ".5f", "share of B": ".1%"},
    )
    drawn = {
        column: {
            label: _line(found, label, column, sizes)
            for label in (GOAL, *(method + suffix for method in _methods(plan) for suffix in MOMENTS.values()))
        }
        for column in ("average_reward", "regret_per_step")
    }
    about: dict[str, Any] = {"xlabel": "sketch size c (B = 1,400)", "log_x": True, "seeds": len(plan.seeds)}
    return Findings(
        tables=[table],
        verdicts=[verdict for method in _methods(plan) for verdict in verdicts(rewards, method, sizes)],
        figures={
            "": drawing.lines(sizes, drawn["average_reward"], ylabel="average reward", **about),
            "regret": drawing.lines(sizes, drawn["regret_per_step"], ylabel="regret per context", log_y=True, **about),
        },
        lesson=lesson(found, sizes),
    )


def _line(
    found: Mapping[Cell, Sequence[Result]], label: str, column: str, sizes: Sequence[int]
) -> tuple[list[float], list[float]]:
    whole = (label, BATCH)
    pairs = [summary(last(found.get((label, size), found[whole]), column).values()) for size in sizes]
    return [mean for mean, _ in pairs], [error for _, error in pairs]


def verdicts(rewards: Mapping[Cell, Mapping[int, float]], method: str, sizes: Sequence[int]) -> list[Verdict]:
    """Judge, for one method with the paper's moments, that reward rises up to a tenth of B, and that this suffices."""
    below = max(size for size in sizes if size <= BELOW)
    rise = paired(rewards[method, CLAIMED], rewards[method, below])
    exact = summary(rewards[method, BATCH].values())[0]
    margin = -ENOUGH * exact

    def lost(label: str) -> Interval:
        return paired(rewards[label, CLAIMED], rewards[label, BATCH])

    ours = lost(method + MOMENTS["anchored"])
    return [
        Verdict(
            claim=f"{method.upper()} gains much until the sketch has about a tenth of the batch.",
            outcome=judge(rise),
            evidence=f"c = {CLAIMED} minus c = {below}, the paper's moments: {say(rise)}. It holds if the interval is "
            "above 0.",
        ),
        Verdict(
            claim=f"A sketch of about a tenth of the batch is enough for {method.upper()}.",
            outcome=judge(lost(method), margin=margin),
            evidence=f"c = {CLAIMED} minus no sketch, the paper's moments: {say(lost(method))}. It holds if the "
            f"interval is above {margin:.4f}, {ENOUGH:.0%} of the reward without a sketch. With our moments: "
            f"{say(ours, '.5f')}.",
        ),
    ]


def lesson(found: Mapping[Cell, Sequence[Result]], sizes: Sequence[int]) -> str:
    """Return what a reader learns, in numbers."""

    def regret(label: str, size: int) -> float:
        return summary(last(found[label, size], "regret_per_step").values())[0]

    exact, paper, ours = regret("spuir", BATCH), regret("spuir", CLAIMED), regret("spuir (ours)", CLAIMED)
    enough = [size for size in sizes if regret("spuir (ours)", size) <= paper]
    return (
        f"Without a sketch SPUIR's regret per context is {exact:.5f}. A sketch of {CLAIMED} rows multiplies it by "
        f"{paper / exact:.1f} with the paper's moments, which are sketched like the contexts, and by "
        f"{ours / exact:.1f} with ours, which keep the residuals of the last estimate unsketched. Ours reach what the "
        f"paper's reach with {CLAIMED} rows at c = {min(enough, default=BATCH):,} already."
    )


EXPERIMENT = Experiment(
    name="figure3f",
    title="Sketch size",
    source="Figure 3(f)",
    shown="SPUIR and SPUIR-RS on synthetic data with several sketch sizes: reward rises steeply until c is about 10 "
    "% of B (close to d·log d) and little after.",
    setting="Environment synthetic, 90 episodes of 1,400 decisions, the authors' settings but for c. Beyond the "
    "paper: the same with our moments, which are called anchored. c = B takes the batch as it is; PUIR at the "
    "authors' setting is the line to reach.",
    grid=grid,
    report=report,
)
