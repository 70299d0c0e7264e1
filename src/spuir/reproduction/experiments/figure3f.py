"""Figure 3(f): the sketch size, with the paper's moments and with ours."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from spuir.reproduction import plots
from spuir.reproduction.base import Drawing, Experiment, Findings, ReportTable, Scope
from spuir.reproduction.claims import MARGIN, Claim
from spuir.reproduction.grids import FORMATS, CellGrid, Measured, text_of
from spuir.reproduction.policy_runs import AUTHORS
from spuir.reproduction.sets import synthetic
from spuir.reproduction.tasks import Result, Task
from spuir.results.figures import Curve

BATCH = 1400
SIZES = (10, 25, 50, 100, 150, 300, 600, 1400)
QUICK_SIZES = (50, 150, 1400)
MOMENTS = {"sketched": "", "anchored": " (ours)"}
METHODS = ("spuir", "spuir-rs")
GOAL = "puir"

SizeCell = tuple[str, int]
"""Label and sketch size."""


def methods(scope: Scope) -> Sequence[str]:
    """Return the sketched methods."""
    return scope.axis(METHODS, METHODS[:1])


def cells(scope: Scope) -> dict[SizeCell, list[Task]]:
    """Return both methods with both kinds of moments at every sketch size, and PUIR, which has no sketch.

    A sketch as large as the batch does nothing: the rows are used unchanged.
    """
    setup = synthetic(scope)
    made: dict[SizeCell, list[Task]] = {(GOAL, BATCH): setup.runs(scope.seeds, GOAL, preset=AUTHORS)}
    for method in methods(scope):
        for moments, suffix in MOMENTS.items():
            for size in scope.axis(SIZES, QUICK_SIZES):
                changed: dict[str, Any] = {"moments": moments if size < BATCH else "sketched", "sketch_size": size}
                made[method + suffix, size] = setup.runs(scope.seeds, method, preset=AUTHORS, parameters=changed)
    return made


grid = CellGrid(cells)

CLAIMED, BELOW = 150, 50
"""The paper's choice, about a tenth of the batch, and a size clearly below it."""
Sizes = Measured[SizeCell]


def report(scope: Scope, results: Sequence[Result]) -> Findings:
    """Return reward and regret against the sketch size."""
    cells = Measured(grid.fill(scope, results), lambda cell: f"{cell[0]}, c = {cell[1]:,}, synthetic")
    rows: list[dict[str, Any]] = []
    for label, size in cells:
        row: dict[str, Any] = {"policy": label, "c": size, "share of B": size / BATCH} | cells.row((label, size))
        if size < BATCH:
            row["difference to no sketch, %"] = text_of(cells.lead((label, size), (label, BATCH)).interval())
        rows.append(row)
    formats = {**FORMATS, "share of B": ".1%"}
    table = ReportTable(name="", title="Reward and regret by sketch size", rows=rows, formats=formats)
    return Findings(
        tables=[table],
        claims=[claim for method in methods(scope) for claim in claims(cells, method)],
        drawings={"": draw(cells)},
    )


def claims(cells: Sizes, method: str) -> list[Claim]:
    """Return what the paper says about the sketch size, for one method."""
    place, ours = "Section 6, Figure 3(f)", method + MOMENTS["anchored"]
    return [
        Claim(
            id=f"{method}/gains-to-a-tenth",
            place=place,
            wording=f"The performance of {method.upper()} significantly increases when c reaches 10 % of B "
            "(≈ d log d).",
            coded=[cells.lead((method, CLAIMED), (method, BELOW))],
        ),
        Claim(
            id=f"{method}/tenth-is-enough",
            place=place,
            wording=f"Only c of order d polylog d is needed for satisfactory performance: {method.upper()} with c = "
            f"{CLAIMED} performs like without a sketch.",
            kind="alike",
            margin=MARGIN,
            coded=[cells.lead((method, CLAIMED), (method, BATCH))],
        ),
        Claim(
            id=f"{method}/tenth-is-enough-anchored",
            place="beyond Figure 3(f)",
            wording=f"With anchored moments {method.upper()} with c = {CLAIMED} performs like without a sketch.",
            source="ours",
            kind="alike",
            margin=MARGIN,
            coded=[cells.lead((ours, CLAIMED), (ours, BATCH))],
        ),
    ]


def draw(cells: Sizes) -> Drawing:
    """Draw the difference to no sketch, and the regret, over the sketch size."""
    labels = [method + suffix for method in METHODS for suffix in MOMENTS.values()]
    differences, regrets = list[Curve](), list[Curve]()
    for label in labels:
        sizes = sorted(size for other, size in cells if other == label)
        if sizes:
            leads = [cells.lead((label, size), (label, BATCH)) for size in sizes]
            differences.append(plots.curve(label, sizes, leads))
            regrets.append(plots.curve(label, sizes, cells.values((label, size) for size in sizes)))
    goal = cells.sample((GOAL, BATCH)).mean
    regrets.append(plots.guide("puir", [min(SIZES), BATCH], [goal, goal]))
    marks = {"c = d·log d": 40 * float(np.log(40))}
    left = plots.Lines(
        title="difference to no sketch",
        xlabel="sketch size c",
        ylabel="difference of reward, %",
        lines=differences,
        log_x=True,
        marks=marks,
    )
    right = plots.Lines(
        title="regret after the last episode",
        xlabel="sketch size c",
        ylabel="regret per decision",
        lines=regrets,
        log_x=True,
        log_y=True,
        marks=marks,
    )
    caption = (
        "Left: difference of the reward to that without a sketch, in per cent, over the sketch size c. Right: regret "
        f"per decision after the last episode. Settings of the authors' code except c; c = {BATCH:,} is the whole "
        "batch. “(ours)”, the upper lines on the left and the lower ones on the right, keeps anchored moments in place "
        f"of the paper's sketched ones. Mean of {cells.seeds} seeds ± standard error."
    )
    return Drawing(
        plots.compose("Sketch size, synthetic data: M = 5, d = 40, N = 90, B = 1,400", [left, right]), caption
    )


EXPERIMENT = Experiment(name="figure3f", title="Sketch size", source="Figure 3(f)", grid=grid, report=report)
