"""Figure 3(e): the batch size, for a fixed total number of decisions."""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

from spuir.reproduction import plots
from spuir.reproduction.base import Experiment, Findings, ReportTable, Scope, Verdict
from spuir.reproduction.experiments.figure3b import criteo_world
from spuir.reproduction.grids import CellGrid, measured
from spuir.reproduction.method_comparison import REWARD
from spuir.reproduction.policy_runs import Setup
from spuir.reproduction.tasks import Result, Task
from spuir.reproduction.verdicts import Interval, judge, last, mean_of, paired, say, weakest, with_error

ENVIRONMENT, COLUMNS = "criteo-recent", 50
STEPS = 80_000
SIZES = (250, 500, 1000, 2000, 4000)
QUICK_SIZES = (500, 1000, 4000)
CONSTANT = 25
RULE = round(CONSTANT * sqrt(STEPS / COLUMNS))
"""The paper's choice, B = C_B·√(T/d)."""

PAPER, OURS, EXACT, PLAIN = "spuir", "spuir (ours)", "puir", "sbucb"
POLICIES: Mapping[str, tuple[str, str | None]] = {
    PAPER: ("spuir", "paper"),
    OURS: ("spuir", None),
    EXACT: ("puir", "paper"),
    PLAIN: ("sbucb", "paper"),
}
"""Label → policy and preset."""
LEVELS = "levels"

Name = tuple[str, int]
"""Label and batch size."""
Values = Mapping[Name, Mapping[int, float]]


def cells(scope: Scope) -> dict[Name, list[Task]]:
    """Return each policy at each batch size with T/B episodes, and the reference levels on the same contexts."""
    made: dict[Name, list[Task]] = {}
    for size in scope.axis(SIZES, QUICK_SIZES):
        world = criteo_world(scope)
        setup = Setup(environment=ENVIRONMENT, episodes=STEPS // size, batch_size=size, world=world)
        for label, (policy, preset) in POLICIES.items():
            made[label, size] = setup.runs(scope.seeds, policy, preset=preset)
        made[LEVELS, size] = setup.levels(scope.seeds)
    return made


grid = CellGrid(cells)


def report(scope: Scope, results: Sequence[Result]) -> Findings:
    """Return reward against batch size, as the paper counts it and with the first, random episode counted."""
    groups = grid.fill(scope, results)
    chance = {size: last(group, "uniform") for (label, size), group in groups.items() if label == LEVELS}
    plain = {cell: last(group, REWARD) for cell, group in groups.items() if cell[0] != LEVELS}
    whole = {cell: with_first(cell[1], values, chance[cell[1]]) for cell, values in plain.items()}
    sizes = scope.axis(SIZES, QUICK_SIZES)
    generated = any(row["generated"] for size in sizes for result in groups[LEVELS, size] for row in result.rows)
    return Findings(
        tables=[table(groups, whole, generated)],
        verdicts=[verdict(plain, sizes), middle_verdict(whole, sizes)],
        figures={
            "": plots.side_by_side([_panel(plain, sizes, "average reward")]),
            "all": plots.side_by_side([_panel(whole, sizes, "average reward, first episode too")]),
        },
        lesson=lesson(plain, whole, sizes),
    )


def with_first(size: int, values: Mapping[int, float], chance: Mapping[int, float]) -> dict[int, float]:
    """Return the mean reward of all N + 1 episodes; the first acts at random and is not in ``values``."""
    episodes = STEPS // size
    return {
        seed: (episodes * value + chance[seed]) / (episodes + 1) for seed, value in values.items() if seed in chance
    }


def table(groups: Mapping[Name, Sequence[Result]], whole: Values, generated: bool) -> ReportTable:
    """Return every cell."""
    rows: list[dict[str, Any]] = [
        {"policy": label, "B": size, "N": STEPS // size, "C_B": size / sqrt(STEPS / COLUMNS)}
        | measured(groups[label, size], {"average reward": REWARD})
        | with_error("with the first episode", values.values())
        for (label, size), values in whole.items()
    ]
    return ReportTable(
        name="",
        title=f"Average reward by batch size, T = {STEPS:,}" + (" (generated rows)" if generated else ""),
        rows=rows,
        formats={"average reward": ".4f", "with the first episode": ".4f", "C_B": ".1f"},
    )


def _panel(values: Values, sizes: Sequence[int], ylabel: str) -> plots.Panel:
    lines = [plots.line(label, sizes, [values[label, size].values() for size in sizes]) for label in POLICIES]
    return plots.Panel(xlabel="batch size B", ylabel=ylabel, lines=lines, log_x=True)


def best_size(values: Values, label: str, sizes: Sequence[int]) -> int:
    """Return the batch size with the highest mean."""
    return max(sizes, key=lambda size: mean_of(values[label, size]))


def _gap(values: Values, one: int, other: int) -> Interval:
    return paired(values[PAPER, one], values[PAPER, other])


def verdict(values: Values, sizes: Sequence[int]) -> Verdict:
    """Judge the rule as the paper counts."""
    rival = best_size(values, PAPER, [size for size in sizes if size != RULE])
    gap = _gap(values, RULE, rival)
    return Verdict(
        "rule-is-best",
        f"B = C_B·√(T/d) with C_B = {CONSTANT}, here {RULE:,}, earns the most for a given T.",
        judge(gap),
        f"SPUIR at the authors' setting, B = {RULE:,} minus the best other size, B = {rival:,}: {say(gap)}. It holds "
        "if the interval is above 0.",
    )


def middle_verdict(values: Values, sizes: Sequence[int]) -> Verdict:
    """Judge the weaker statement that a middle size is better than both ends."""
    low, high = sizes[0], sizes[-1]
    below, above = (_gap(values, RULE, end) for end in (low, high))
    return Verdict(
        "ends-lose",
        "Both too small and too large a batch lose reward.",
        judge(weakest((below, above))),
        f"SPUIR with the first, random episode counted: B = {RULE:,} minus B = {low:,}: {say(below)}, minus "
        f"B = {high:,}: {say(above)}. It holds if both intervals are above 0.",
    )


def lesson(plain: Values, whole: Values, sizes: Sequence[int]) -> str:
    """Return what a reader learns, in numbers."""
    low, high = sizes[0], sizes[-1]
    tops = {label: best_size(whole, label, sizes) for label in POLICIES}
    changes = ", ".join(f"{label} {say(paired(plain[label, high], plain[label, low]))}" for label in POLICIES)
    return (
        f"With a fixed sketch of 150 rows, a larger batch keeps fewer rows in total: {150 * STEPS // low:,} at "
        f"B = {low:,} and {150 * STEPS // high:,} at B = {high:,}. From the smallest batch to the largest, reward "
        f"changes by {changes}; PUIR and SBUCB keep every row. The paper does not count the first episode, which acts "
        "at random for B steps. If it is counted, the best sizes are "
        + ", ".join(f"{size:,} ({label})" for label, size in tops.items())
        + f"; as the paper counts, SPUIR's is {best_size(plain, PAPER, sizes):,}."
    )


EXPERIMENT = Experiment(
    name="figure3e",
    title="Batch size",
    source="Figure 3(e)",
    shown="SPUIR on Criteo-recent with several batch sizes: B = 1,000, which is C_B = 25, earns the most.",
    setting=f"Environment criteo-recent (M = 5, d = 50; generated rows without the file), T = B·N = {STEPS:,} "
    "decisions at every B. SPUIR at the authors' setting and with our moments, and PUIR and SBUCB. Beyond the "
    "paper: rewards with the first, random episode counted, which the paper leaves out though it grows with B.",
    grid=grid,
    report=report,
)
