"""Figure 3(f): the sketch size, with the paper's moments and with ours."""

from collections.abc import Mapping, Sequence
from typing import Any

from spuir.reproduction import plots
from spuir.reproduction.base import Experiment, Findings, ReportTable, Scope, Verdict
from spuir.reproduction.grids import CellGrid, measured
from spuir.reproduction.method_comparison import REGRET, REWARD, SHOWN, SHOWN_FORMATS
from spuir.reproduction.policy_runs import Setup
from spuir.reproduction.tasks import Result, Task
from spuir.reproduction.verdicts import Interval, judge, last, mean_of, paired, say

BATCH = 1400
SETUP = Setup(environment="synthetic", episodes=90, batch_size=BATCH)
SIZES = (10, 25, 50, 100, 150, 300, 1400)
QUICK_SIZES = (50, 150, 1400)
CLAIMED, BELOW = 150, 50
"""The paper's choice, about a tenth of the batch, and a size clearly below it."""
ENOUGH = 0.01
"""A sketch is enough if the interval of what it loses stays within this share of the reward without a sketch."""

MOMENTS = {"sketched": "", "anchored": " (ours)"}
METHODS = ("spuir", "spuir-rs")
GOAL = "puir"

Name = tuple[str, int]
"""Label and sketch size."""


def cells(scope: Scope) -> dict[Name, list[Task]]:
    """Return both methods with both kinds of moments at every sketch size, and PUIR, which has no sketch.

    A sketch as large as the batch is no sketch: the rows are used as they are.
    """
    made: dict[Name, list[Task]] = {(GOAL, BATCH): SETUP.runs(scope.seeds, GOAL, preset="paper")}
    for method in _methods(scope):
        for moments, suffix in MOMENTS.items():
            for size in scope.axis(SIZES, QUICK_SIZES):
                changed: dict[str, Any] = {"moments": moments if size < BATCH else "sketched", "sketch_size": size}
                made[method + suffix, size] = SETUP.runs(scope.seeds, method, preset="paper", parameters=changed)
    return made


def _methods(scope: Scope) -> Sequence[str]:
    return scope.axis(METHODS, METHODS[:1])


grid = CellGrid(cells)


def report(scope: Scope, results: Sequence[Result]) -> Findings:
    """Return reward and regret against the sketch size."""
    groups = grid.fill(scope, results)
    rewards = {cell: last(group, REWARD) for cell, group in groups.items()}
    sizes, methods = scope.axis(SIZES, QUICK_SIZES), _methods(scope)
    table = ReportTable(
        name="",
        title="Reward and regret by sketch size; 1,400 is the whole batch",
        rows=[
            {"policy": label, "c": size, "share of B": size / BATCH}
            | measured(group, SHOWN)
            | {"minus no sketch": say(paired(rewards[label, size], rewards[label, BATCH]))}
            for (label, size), group in groups.items()
        ],
        formats=SHOWN_FORMATS | {"share of B": ".1%"},
    )
    labels = (GOAL, *(method + suffix for method in methods for suffix in MOMENTS.values()))

    def panel(column: str, ylabel: str, log_y: bool) -> plots.Panel:
        lines = [
            plots.line(
                label,
                sizes,
                [last(groups.get((label, size), groups[label, BATCH]), column).values() for size in sizes],
            )
            for label in labels
        ]
        return plots.Panel(xlabel="sketch size c (B = 1,400)", ylabel=ylabel, lines=lines, log_x=True, log_y=log_y)

    return Findings(
        tables=[table],
        verdicts=[verdict for method in methods for verdict in verdicts(rewards, method, sizes)],
        figures={
            "": plots.side_by_side([panel(REWARD, "average reward", False)]),
            "regret": plots.side_by_side([panel(REGRET, "regret per context", True)]),
        },
        lesson=lesson(groups, sizes),
    )


def verdicts(rewards: Mapping[Name, Mapping[int, float]], method: str, sizes: Sequence[int]) -> list[Verdict]:
    """Judge, for one method with the paper's moments, that reward rises up to a tenth of B, and that this suffices."""
    below = max(size for size in sizes if size <= BELOW)
    rise = paired(rewards[method, CLAIMED], rewards[method, below])
    margin = -ENOUGH * mean_of(rewards[method, BATCH])

    def lost(label: str) -> Interval:
        return paired(rewards[label, CLAIMED], rewards[label, BATCH])

    ours = lost(method + MOMENTS["anchored"])
    return [
        Verdict(
            f"{method}-gains-to-a-tenth",
            f"{method.upper()} gains much until the sketch has about a tenth of the batch.",
            judge(rise),
            f"c = {CLAIMED} minus c = {below}, the paper's moments: {say(rise)}. It holds if the interval is above 0.",
        ),
        Verdict(
            f"{method}-tenth-is-enough",
            f"A sketch of about a tenth of the batch is enough for {method.upper()}.",
            judge(lost(method), margin=margin),
            f"c = {CLAIMED} minus no sketch, the paper's moments: {say(lost(method))}. It holds if the "
            f"interval is above {margin:.4f}, {ENOUGH:.0%} of the reward without a sketch. With our moments: "
            f"{say(ours, '.5f')}.",
        ),
    ]


def lesson(groups: Mapping[Name, Sequence[Result]], sizes: Sequence[int]) -> str:
    """Return what a reader learns, in numbers."""

    def regret(label: str, size: int) -> float:
        return mean_of(last(groups[label, size], REGRET))

    exact, paper, ours = regret("spuir", BATCH), regret("spuir", CLAIMED), regret("spuir (ours)", CLAIMED)
    enough = [size for size in sizes if regret("spuir (ours)", size) <= paper]
    unit = exact or float("nan")
    return (
        f"Without a sketch SPUIR's regret per context is {exact:.5f}. A sketch of {CLAIMED} rows multiplies it by "
        f"{paper / unit:.1f} with the paper's moments, which are sketched like the contexts, and by "
        f"{ours / unit:.1f} with ours, which keep the residuals of the last estimate unsketched. Ours need only "
        f"c = {min(enough, default=BATCH):,} to match the paper's with {CLAIMED} rows."
    )


EXPERIMENT = Experiment(
    name="figure3f",
    title="Sketch size",
    source="Figure 3(f)",
    shown="SPUIR and SPUIR-RS on synthetic data with several sketch sizes: reward rises steeply until c is about 10 "
    "% of B (close to d·log d) and little after.",
    setting="Environment synthetic, 90 episodes of 1,400 decisions, the authors' settings except for c. Beyond the "
    "paper: the same with our moments, which are called anchored. c = B uses the batch as it is; PUIR at the "
    "authors' setting is the line to reach.",
    grid=grid,
    report=report,
)
