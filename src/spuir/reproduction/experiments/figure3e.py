"""Figure 3(e): the batch size, for one number of decisions in all."""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

from spuir.reproduction import drawing
from spuir.reproduction.base import Experiment, Findings, Plan, Table, Verdict
from spuir.reproduction.cells import fill, measured, over_seeds, tasks_of
from spuir.reproduction.experiments.figure3b import criteo_world
from spuir.reproduction.levels import levelling
from spuir.reproduction.runner import Result, Task
from spuir.reproduction.trials import playing
from spuir.reproduction.verdicts import judge, last, paired, say, summary

ENVIRONMENT, COLUMNS = "criteo-recent", 50
STEPS = 80_000
SIZES = (250, 500, 1000, 2000, 4000)
QUICK_SIZES = (500, 1000, 4000)
CONSTANT = 25
RULE = round(CONSTANT * sqrt(STEPS / COLUMNS))
"""The paper's choice, B = C_B·√(T/d)."""

PAPER, OURS, EXACT, PLAIN = "spuir", "spuir (ours)", "puir", "sbucb"
POLICIES: Mapping[str, Mapping[str, Any]] = {
    PAPER: {"policy": "spuir", "preset": "paper"},
    OURS: {"policy": "spuir", "preset": None},
    EXACT: {"policy": "puir", "preset": "paper"},
    PLAIN: {"policy": "sbucb", "preset": "paper"},
}
LEVELS = "levels"

Cell = tuple[str, int]
Values = Mapping[Cell, Mapping[int, float]]


def cells(plan: Plan) -> dict[Cell, list[Task]]:
    """Return each policy at each batch size with T/B episodes, and what chance earns on the same contexts."""
    made: dict[Cell, list[Task]] = {}
    for size in plan.axis(SIZES, QUICK_SIZES):
        place = {"episodes": STEPS // size, "batch_size": size, "world": criteo_world(plan)}
        for label, how in POLICIES.items():
            made[label, size] = over_seeds(
                plan.seeds,
                lambda seed, how=how, place=place: playing(environment=ENVIRONMENT, seed=seed, **how, **place),
            )
        made[LEVELS, size] = over_seeds(
            plan.seeds, lambda seed, place=place: levelling(ENVIRONMENT, seed=seed, **place)
        )
    return made


def grid(plan: Plan, results: Sequence[Result]) -> list[Task]:
    """Return the runs of all cells."""
    return tasks_of(cells(plan))


def report(plan: Plan, results: Sequence[Result]) -> Findings:
    """Return reward against batch size, as the paper counts it and with the first, random episode counted."""
    found = fill(cells(plan), results)
    chance = {size: last(group, "uniform") for (label, size), group in found.items() if label == LEVELS}
    plain = {cell: last(group, "average_reward") for cell, group in found.items() if cell[0] != LEVELS}
    whole = {cell: with_first(cell[1], values, chance[cell[1]]) for cell, values in plain.items()}
    sizes = plan.axis(SIZES, QUICK_SIZES)
    generated = any(row["generated"] for size in sizes for result in found[LEVELS, size] for row in result.rows)
    return Findings(
        tables=[table(found, whole, generated)],
        verdicts=[verdict(plain, sizes), middle_verdict(whole, sizes)],
        figures={
            "": drawing.lines(
                sizes, _lines(plain, sizes), "batch size B", "average reward", True, seeds=len(plan.seeds)
            ),
            "all": drawing.lines(
                sizes,
                _lines(whole, sizes),
                "batch size B",
                "average reward, first episode too",
                True,
                seeds=len(plan.seeds),
            ),
        },
        lesson=lesson(plain, whole, sizes),
    )


def with_first(size: int, values: Mapping[int, float], chance: Mapping[int, float]) -> dict[int, float]:
    """Return the mean reward of all N + 1 episodes, the first of which acts at random and is not in ``values``."""
    episodes = STEPS // size
    return {
        seed: (episodes * value + chance[seed]) / (episodes + 1) for seed, value in values.items() if seed in chance
    }


def table(found: Mapping[Cell, Sequence[Result]], whole: Values, generated: bool) -> Table:
    """Return every cell."""
    rows: list[dict[str, Any]] = []
    for (label, size), values in whole.items():
        row: dict[str, Any] = {"policy": label, "B": size, "N": STEPS // size, "C_B": size / sqrt(STEPS / COLUMNS)}
        row |= measured(found[label, size], {"average reward": "average_reward"})
        row["with the first episode"], row["with the first episode ±"] = summary(values.values())
        rows.append(row)
    return Table(
        name="",
        title=f"Average reward by batch size, T = {STEPS:,}" + (" (generated rows)" if generated else ""),
        rows=rows,
        formats={"average reward": ".4f", "with the first episode": ".4f", "C_B": ".1f"},
    )


def _lines(values: Values, sizes: Sequence[int]) -> dict[str, tuple[list[float], list[float]]]:
    pairs = {label: [summary(values[label, size].values()) for size in sizes] for label in POLICIES}
    return {label: ([mean for mean, _ in some], [error for _, error in some]) for label, some in pairs.items()}


def best_size(values: Values, label: str, sizes: Sequence[int]) -> int:
    """Return the batch size with the highest mean."""
    return max(sizes, key=lambda size: summary(values[label, size].values())[0])


def _against(values: Values, label: str, sizes: Sequence[int]) -> tuple[int, str, Any]:
    """Return the best other size, the difference of the rule's size to it in words, and that difference."""
    rival = best_size(values, label, [size for size in sizes if size != RULE])
    gap = paired(values[label, RULE], values[label, rival])
    return rival, f"B = {RULE:,} minus the best other size, B = {rival:,}: {say(gap)}", gap


def verdict(values: Values, sizes: Sequence[int]) -> Verdict:
    """Judge the rule as the paper counts."""
    _, words, gap = _against(values, PAPER, sizes)
    return Verdict(
        claim=f"B = C_B·√(T/d) with C_B = {CONSTANT}, here {RULE:,}, earns the most for a given T.",
        outcome=judge(gap),
        evidence=f"SPUIR at the authors' setting, {words}. It holds if the interval is above 0.",
    )


def middle_verdict(values: Values, sizes: Sequence[int]) -> Verdict:
    """Judge the weaker statement that a middle size is better than both ends."""
    low, high = sizes[0], sizes[-1]
    below, above = (paired(values[PAPER, RULE], values[PAPER, end]) for end in (low, high))
    worst = min(below, above, key=lambda gap: gap.low)
    return Verdict(
        claim="Both too small and too large a batch lose reward.",
        outcome=judge(worst),
        evidence=f"SPUIR with the first, random episode counted: B = {RULE:,} minus B = {low:,}: {say(below)}, minus "
        f"B = {high:,}: {say(above)}. It holds if both intervals are above 0.",
    )


def lesson(plain: Values, whole: Values, sizes: Sequence[int]) -> str:
    """Return what a reader learns, in numbers."""
    low, high = sizes[0], sizes[-1]
    tops = {label: best_size(whole, label, sizes) for label in POLICIES}
    moved = {label: paired(plain[label, high], plain[label, low]) for label in POLICIES}
    said = ", ".join(f"{label} {say(gap)}" for label, gap in moved.items())
    return (
        f"At a fixed sketch of 150 rows a larger batch keeps fewer rows in all, {150 * STEPS // low:,} at B = {low:,} "
        f"and {150 * STEPS // high:,} at B = {high:,}. The change of reward from the smallest batch to the largest is "
        f"{said}; PUIR and SBUCB keep every row. As the paper counts, the first episode is free though it acts at "
        "random for B steps; counted, the best sizes are "
        + ", ".join(f"{size:,} ({label})" for label, size in tops.items())
        + f", and as the paper counts SPUIR's is {best_size(plain, PAPER, sizes):,}."
    )


EXPERIMENT = Experiment(
    name="figure3e",
    title="Batch size",
    source="Figure 3(e)",
    shown="SPUIR on Criteo-recent with several batch sizes: B = 1,000, which is C_B = 25, earns the most.",
    setting=f"Environment criteo-recent (M = 5, d = 50; generated rows without the file), T = B·N = {STEPS:,} "
    "decisions at every B. SPUIR at the authors' setting and with our moments, PUIR and SBUCB beside. Beyond the "
    "paper: rewards with the first, random episode counted, which the paper leaves out though it grows with B.",
    grid=grid,
    report=report,
)
