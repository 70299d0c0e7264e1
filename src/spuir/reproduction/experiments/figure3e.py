"""Figure 3(e): the batch size, for a fixed total number of decisions, on three sets."""

from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from typing import Any, NamedTuple

from spuir.reproduction import plots
from spuir.reproduction.base import Drawing, Experiment, Findings, ReportTable, Scope
from spuir.reproduction.claims import Claim, with_error
from spuir.reproduction.grids import FORMATS, CellGrid, Measured
from spuir.reproduction.policy_runs import AUTHORS, LEVELS, Setup, by_world
from spuir.reproduction.sets import HORIZON, criteo
from spuir.reproduction.tasks import Result, Task

CONSTANT = 25
POLICIES = ("spuir", "puir")


class BatchSizes(NamedTuple):
    """A set with a fixed number of decisions ``steps``, its columns, and the sizes that are tried."""

    steps: int
    columns: int
    sizes: tuple[int, ...]
    quick: tuple[int, ...]
    setup: Callable[[Scope, int, int], Setup]

    @property
    def rule(self) -> int:
        """The paper's choice, B = C_B·√(T/d), of the sizes that are tried."""
        return min(self.sizes, key=lambda size: abs(size - CONSTANT * sqrt(self.steps / self.columns)))


RECENT = "criteo-recent"
SETS: Mapping[str, BatchSizes] = {
    RECENT: BatchSizes(
        80_000,
        50,
        (250, 500, 1000, 2000, 4000),
        (500, 1000, 4000),
        lambda scope, episodes, size: criteo(scope, RECENT, episodes, size),
    ),
    "criteo-all": BatchSizes(
        45_000,
        50,
        (150, 375, 750, 1500, 3000),
        (375, 750, 3000),
        lambda scope, episodes, size: criteo(scope, "criteo-all", episodes, size, horizon=HORIZON),
    ),
    "coupon": BatchSizes(
        12_500,
        20,
        (125, 250, 625, 1250, 2500),
        (125, 625, 2500),
        lambda scope, episodes, size: Setup(environment="coupon", episodes=episodes, batch_size=size),
    ),
}

BatchCell = tuple[str, str, int]
"""Set, label and batch size."""


def cells(scope: Scope) -> dict[BatchCell, list[Task]]:
    """Return each policy at each batch size with T/B episodes, and the reference levels on the same contexts."""
    made: dict[BatchCell, list[Task]] = {}
    for name in scope.axis(tuple(SETS), (RECENT, "coupon")):
        some = SETS[name]
        for size in scope.axis(some.sizes, some.quick):
            setup = some.setup(scope, some.steps // size, size)
            for policy in scope.axis(POLICIES, POLICIES[:1]):
                made[name, policy, size] = setup.runs(scope.seeds, policy, preset=AUTHORS)
            made[name, LEVELS, size] = setup.levels(scope.seeds)
    return made


grid = CellGrid(cells, order=by_world)

Sizes = Measured[BatchCell]
WITH_FIRST = "average reward, first episode too"


def report(scope: Scope, results: Sequence[Result]) -> Findings:
    """Return reward against batch size on every set, as the paper counts it and with the first, random episode."""
    cells = Measured(grid.fill(scope, results), lambda cell: f"{cell[1]}, B = {cell[2]:,}, {cell[0]}")
    names = [name for name in SETS if any(cell[0] == name for cell in cells)]
    rows: list[dict[str, Any]] = []
    for name, policy, size in cells:
        if policy != LEVELS:
            some = SETS[name]
            row: dict[str, Any] = {"set": name, "policy": policy, "B": size, "N": some.steps // size}
            row |= {"C_B": size / sqrt(some.steps / some.columns)} | cells.row((name, policy, size))
            rows.append(row | with_error(WITH_FIRST, with_first(cells, (name, policy, size)).values()))
    formats = {**FORMATS, "C_B": ".1f", WITH_FIRST: ".4f"}
    return Findings(
        tables=[ReportTable(name="", title="Reward by batch size", rows=rows, formats=formats)],
        claims=[claim for name in names for claim in claims(cells, name)],
        drawings={"": draw(cells, names)},
    )


def with_first(cells: Sizes, cell: BatchCell) -> dict[int, float]:
    """Return the mean expected reward of all N + 1 episodes; the first acts at random and is not counted elsewhere."""
    name, _, size = cell
    episodes, levels = SETS[name].steps // size, (name, LEVELS, size)
    best, chance = (cells.sample(levels, column).values for column in ("oracle", "uniform"))
    return {
        seed: (episodes * (best[seed] - regret) + chance[seed]) / (episodes + 1)
        for seed, regret in cells.sample(cell).values.items()
        if seed in best
    }


def claims(cells: Sizes, name: str) -> list[Claim]:
    """Return what the paper says about the batch size, on one set."""
    some = SETS[name]
    sizes = sorted({cell[2] for cell in cells if cell[0] == name})
    others = [(name, "spuir", size) for size in sizes if size != some.rule]
    own = (name, "spuir", some.rule)
    where = "Figure 3(e)" if name == RECENT else "“similar phenomenon”"
    place = f"Section 6, {where}"
    return [
        Claim(
            id=f"{name}/rule-is-best",
            place=place,
            wording=f"B = {some.rule:,} (C_B ≈ 25) yields better performance than other batch sizes: {name}.",
            coded=[cells.lead(own, other) for other in others],
        ),
        Claim(
            id=f"{name}/both-ends-lose",
            place=place,
            wording=f"A suitable batch size needs to be set: both the smallest and the largest lose to it: {name}.",
            coded=[cells.lead(own, other) for other in (others[0], others[-1])],
        ),
    ]


def draw(cells: Sizes, names: Sequence[str]) -> Drawing:
    """Draw the difference to the reward at the paper's batch size, a panel for each set."""
    panels: list[plots.Lines] = []
    for name in names:
        some = SETS[name]
        lines = []
        for policy in POLICIES:
            sizes = sorted(cell[2] for cell in cells if cell[:2] == (name, policy))
            own = (name, policy, some.rule)
            if own in cells:
                leads = [cells.lead((name, policy, size), own) for size in sizes]
                lines.append(plots.curve(policy, sizes, leads))
        panels.append(
            plots.Lines(
                title=f"{name}, T = {some.steps:,}",
                xlabel="batch size B",
                ylabel="difference of reward, %",
                lines=lines,
                log_x=True,
                marks={"C_B = 25": CONSTANT * sqrt(some.steps / some.columns)},
            )
        )
    caption = (
        "Expected reward at every batch size minus that at the size nearest to the paper's rule, in per cent, for a "
        f"fixed number of decisions T; settings of the authors' code, mean of {cells.seeds} seeds ± standard error."
    )
    return Drawing(plots.compose("Batch size", panels, width=2.6), caption)


EXPERIMENT = Experiment(name="figure3e", title="Batch size", source="Figure 3(e)", grid=grid, report=report)
