"""Figure 3(d): nonlinear rewards, in the paper's environment and where the truth is nonlinear."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from spuir.reproduction import plots
from spuir.reproduction.base import Drawing, Experiment, Findings, ReportTable, Scope
from spuir.reproduction.claims import MARGIN, Claim
from spuir.reproduction.grids import FORMATS, CellGrid, Measured, text_of
from spuir.reproduction.policy_runs import AUTHORS, LEVELS, Setup
from spuir.reproduction.tasks import Result, Task

INTERCEPT = "{} + intercept"
FORMS = ("spuir", "spuir-exp", "spuir-poly", "spuir-kernel")
LABELS = (*FORMS, INTERCEPT.format("spuir"), INTERCEPT.format("puir"))
QUICK = ("spuir", "spuir-kernel", INTERCEPT.format("spuir"))


class NonlinearWorld(NamedTuple):
    """Where the forms are compared; ``right`` is the form made for the truth."""

    setup: Setup
    right: str = ""


def _world(environment: str, truth: str | None = None) -> Setup:
    return Setup(environment=environment, episodes=40, batch_size=600, world={"truth": truth} if truth else {})


MAIN = "synthetic"
WORLDS: Mapping[str, NonlinearWorld] = {
    MAIN: NonlinearWorld(Setup(environment="synthetic", episodes=90, batch_size=1400)),
    "heterogeneous": NonlinearWorld(_world("heterogeneous")),
    "rbf": NonlinearWorld(_world("nonlinear", "rbf"), "spuir-kernel"),
    "exp": NonlinearWorld(_world("nonlinear", "exp"), "spuir-exp"),
    "poly": NonlinearWorld(_world("nonlinear", "poly"), "spuir-poly"),
}

NonlinearCell = tuple[str, str]
"""World and label."""


def cells(scope: Scope) -> dict[NonlinearCell, list[Task]]:
    """Return every form of SPUIR in every world, with an intercept too, and the reference levels."""
    made: dict[NonlinearCell, list[Task]] = {}
    for name in scope.axis(list(WORLDS), (MAIN, "rbf")):
        setup = WORLDS[name].setup
        for label in scope.axis(LABELS, QUICK):
            policy, _, added = label.partition(" + ")
            parameters = {"intercept": True} if added else {}
            made[name, label] = setup.runs(scope.seeds, policy, preset=AUTHORS, parameters=parameters)
        made[name, LEVELS] = setup.levels(scope.seeds)
    return made


grid = CellGrid(cells)

Nonlinear = Measured[NonlinearCell]


def report(scope: Scope, results: Sequence[Result]) -> Findings:
    """Return the paper's panel, paired differences in every world, and one table."""
    cells = Measured(grid.fill(scope, results), lambda cell: f"{cell[1]}, {cell[0]}")
    names = [name for name in WORLDS if (name, "spuir") in cells]
    rows: list[dict[str, Any]] = []
    for name, label in cells:
        if label != LEVELS:
            row: dict[str, Any] = {"truth": name, "policy": label} | cells.row((name, label))
            if label != "spuir":
                row["lead over SPUIR, %"] = text_of(cells.lead((name, label), (name, "spuir")).interval())
            rows.append(row)
    table = ReportTable(name="", title="Forms of SPUIR by the form of the truth", rows=rows, formats=FORMATS)
    return Findings(tables=[table], claims=claims(cells, names), drawings={"": draw(cells, names)})


def claims(cells: Nonlinear, names: Sequence[str]) -> list[Claim]:
    """Return what the paper says about nonlinear forms, and what an intercept does."""
    kernel, place = (MAIN, "spuir-kernel"), "Section 6, Figure 3(d)"
    others = [(MAIN, form) for form in FORMS if form != "spuir-kernel" and (MAIN, form) in cells]
    suited = [(name, WORLDS[name].right) for name in names if WORLDS[name].right]
    return [
        Claim(
            id="kernel-is-highest",
            place=place,
            wording="SPUIR-Kernel achieves the highest rewards of SPUIR and its nonlinear variants on synthetic data.",
            coded=[cells.lead(kernel, other) for other in others],
        ),
        Claim(
            id="suitable-form-wins",
            place=place,
            wording="A suitable nonlinear reward model needs to be selected: where the truth is nonlinear, the form "
            "made for it earns more than the linear one.",
            coded=[cells.lead(cell, (cell[0], "spuir")) for cell in suited],
        ),
        Claim(
            id="intercept-explains-kernel",
            place="beyond Figure 3(d)",
            wording="On synthetic data a linear SPUIR with an intercept earns as much as SPUIR-Kernel.",
            source="ours",
            kind="alike",
            margin=MARGIN,
            coded=[cells.lead((MAIN, INTERCEPT.format("spuir")), kernel)],
        ),
    ]


def draw(cells: Nonlinear, names: Sequence[str]) -> Drawing:
    """Draw the paper's curves, and what every form earns more than SPUIR in every world."""
    labels = [label for label in LABELS if (MAIN, label) in cells]
    curves = [plots.running(label, cells[MAIN, label]) for label in labels]
    curves.append(plots.running("oracle", cells[MAIN, LEVELS]))
    left = plots.episodes("synthetic data", curves)
    rows: dict[str, plots.Pair] = {}
    styles: dict[str, str] = {}
    for name in names:
        for label in labels:
            if label != "spuir":
                row = f"{name}: {label}"
                rows[row] = None, cells.lead((name, label), (name, "spuir")).interval()
                styles[row] = label
    right = plots.Dots(
        title="all forms of the truth", xlabel="lead over SPUIR, %", rows=rows, styles=styles, band=MARGIN, reach=12.0
    )
    caption = (
        "Left: running average reward at the settings of the authors' code, synthetic data (N = 90, B = 1,400). Right: "
        f"lead over linear SPUIR in every world (the others: N = 40, B = 600), 95 % intervals over {cells.seeds} seeds "
        "(not corrected); the band is ± 1 %."
    )
    return Drawing(plots.compose("Nonlinear forms of SPUIR: M = 5, d = 40", [left, right]), caption)


EXPERIMENT = Experiment(name="figure3d", title="Nonlinear rewards", source="Figure 3(d)", grid=grid, report=report)
