"""Growth of the regret with the horizon, with the number of actions and with the number of columns."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from spuir.reproduction import plots
from spuir.reproduction.base import Drawing, Experiment, Findings, ReportTable, Scope
from spuir.reproduction.claims import Claim, Contrast, Sample, exponent
from spuir.reproduction.grids import CellGrid, Measured, text_of
from spuir.reproduction.policy_runs import AUTHORS, Setup
from spuir.reproduction.tasks import Result, Task

HORIZONS = ((23, 350), (45, 700), (90, 1400), (180, 2800))
"""N and B with B = 25·√(T/d) for d = 40, rounded."""
STEPS = tuple(episodes * size for episodes, size in HORIZONS)
LINEAR = ("sbucb", "puir", "spuir")
RUN_IN: Mapping[str, tuple[str, Mapping[str, Any], tuple[str, ...]]] = {
    "synthetic": ("synthetic", {}, LINEAR),
    "heterogeneous": ("heterogeneous", {}, LINEAR),
    "exp": ("nonlinear", {"truth": "exp"}, ("spuir-exp",)),
    "poly": ("nonlinear", {"truth": "poly"}, ("spuir-poly",)),
    "rbf": ("nonlinear", {"truth": "rbf"}, ("spuir-kernel",)),
}
"""World → environment, its parameters, and the policies that run there; each nonlinear form where its truth is."""
ACTIONS, COLUMNS, SHAPE_STEPS = (3, 6, 12, 24), (10, 20, 40, 80), 63_000
BASE_ACTIONS, BASE_COLUMNS = 5, 40
SHAPE_POLICIES = ("puir", "spuir")


class GrowthCell(NamedTuple):
    """One cell: what grows ("T", "M" or "d") and to which value, the world, and the policy."""

    axis: str
    value: int
    world: str
    policy: str


def cells(scope: Scope) -> dict[GrowthCell, list[Task]]:
    """Return the runs over the horizons, and those over actions and columns at a fixed T."""
    made: dict[GrowthCell, list[Task]] = {}
    for world in scope.axis(tuple(RUN_IN), ("synthetic", "heterogeneous")):
        environment, parameters, policies = RUN_IN[world]
        for episodes, size in scope.axis(HORIZONS, HORIZONS[:2]):
            setup = Setup(environment=environment, episodes=episodes, batch_size=size, world=parameters)
            for policy in policies:
                made[GrowthCell("T", episodes * size, world, policy)] = setup.runs(scope.seeds, policy, preset=AUTHORS)
    for axis, values in (("M", ACTIONS), ("d", COLUMNS)):
        for value in scope.axis(values, ()):
            actions, columns = (value, BASE_COLUMNS) if axis == "M" else (BASE_ACTIONS, value)
            size = round(25 * sqrt(SHAPE_STEPS / columns))
            setup = Setup(
                environment="heterogeneous",
                episodes=round(SHAPE_STEPS / size),
                batch_size=size,
                world={"n_actions": actions, "dim": columns},
            )
            for policy in SHAPE_POLICIES:
                runs = setup.runs(scope.seeds, policy, preset=AUTHORS, tuning=True)
                made[GrowthCell(axis, value, "heterogeneous", policy)] = runs
    return made


grid = CellGrid(cells)

Growth = Measured[GrowthCell]
UNMET = (
    "The premises are not met: c = 150 and D = 1 are far below what the theorem asks for, α is not the theorem's, and "
    "a bound on the order cannot be refuted at finite T. The measured exponents are shown."
)
SAME_GROWTH = 0.1
"""The regret of one policy grows as that of another if the exponents differ by less than this."""


def _label(cell: GrowthCell) -> str:
    return f"{cell.policy}, {cell.world}, {cell.axis} = {cell.value:,}"


def report(scope: Scope, results: Sequence[Result]) -> Findings:
    """Return the regret over T, M and d with its exponents."""
    cells = Measured(grid.fill(scope, results), _label)
    lines = dict.fromkeys((cell.axis, cell.world, cell.policy) for cell in cells)
    rows = [
        {
            "grows": axis,
            "world": world,
            "policy": policy,
            "exponent of the regret": text_of(growth(cells, axis, world, policy).interval(), ".2f"),
            "exponent of the bound": bound_exponent(axis),
        }
        for axis, world, policy in lines
    ]
    table = ReportTable(name="", title="How the regret grows", rows=rows, formats={"exponent of the bound": ".2f"})
    return Findings(tables=[table], claims=claims(cells), drawings={"": draw(cells)})


def along(cells: Growth, axis: str, world: str, policy: str) -> list[GrowthCell]:
    """Return the cells of one line, in order."""
    return sorted(cell for cell in cells if (cell.axis, cell.world, cell.policy) == (axis, world, policy))


def total(cells: Growth, cell: GrowthCell) -> Sample:
    """Return the cumulative regret of a cell."""
    one = cells.sample(cell)
    steps = cell.value if cell.axis == "T" else SHAPE_STEPS
    return replace(one, name=f"{_label(cell)}/regret", values={seed: steps * v for seed, v in one.values.items()})


def growth(cells: Growth, axis: str, world: str, policy: str) -> Contrast:
    """Return the exponent of the cumulative regret along an axis."""
    line = along(cells, axis, world, policy)
    return exponent(
        f"{policy}, {world}, in {axis}", [cell.value for cell in line], [total(cells, cell) for cell in line]
    )


def bound_exponent(axis: str) -> float:
    """Return the exponent that the bound √(MdT)·log(T + 1) itself has over the values that are run."""
    if axis != "T":
        return 0.5
    logs = np.log(STEPS)
    return float(np.polyfit(logs, 0.5 * logs + np.log(np.log(np.array(STEPS) + 1)), 1)[0])


def claims(cells: Growth) -> list[Claim]:
    """Return what Theorem 4 and its remark say, and which of it this is a test of."""
    lines = dict.fromkeys((cell.axis, cell.world, cell.policy) for cell in cells)

    def growths(axis: str, policies: Sequence[str]) -> list[Contrast]:
        return [growth(cells, *line) for line in lines if line[0] == axis and line[2] in policies]

    nonlinear = ("spuir-exp", "spuir-poly", "spuir-kernel")
    ratios = [
        growth(cells, "T", world, "spuir").minus(growth(cells, "T", world, "puir"), f"spuir over puir, {world}, in T")
        for world in ("synthetic", "heterogeneous")
    ]
    exponents: dict[str, Any] = {"kind": "less", "unit": "exponent"}
    return [
        Claim(
            id="sublinear",
            place="Theorem 4, Remark 4",
            wording="SPUIR enjoys a sublinear regret against the optimal policy.",
            coded=growths("T", ("spuir",)),
            margin=1.0,
            **exponents,
        ),
        Claim(
            id="nonlinear-sublinear",
            place="Section 5, nonlinear rewards",
            wording="SPUIR-Exp, SPUIR-Poly and SPUIR-Kernel have regret bounds of the same order: sublinear too.",
            coded=growths("T", nonlinear),
            margin=1.0,
            **exponents,
        ),
        Claim(
            id="sketch-size-independent",
            place="Remark 4",
            wording="The sketch size that is needed is independent of T: at a fixed c the regret of SPUIR grows with T "
            "as that of PUIR.",
            coded=ratios,
            margin=SAME_GROWTH,
            **exponents,
        ),
        Claim(
            id="order-in-steps",
            place="Theorem 4, Remark 4",
            wording="With B = O(√(T/d)) the regret is of order √T up to logarithms.",
            coded=growths("T", ("spuir", "puir")),
            margin=bound_exponent("T"),
            untested=UNMET,
            **exponents,
        ),
        Claim(
            id="order-in-shape",
            place="Remark 4",
            wording="The regret is of order √(Md).",
            coded=[*growths("M", ("spuir",)), *growths("d", ("spuir",))],
            margin=0.5,
            untested=UNMET,
            **exponents,
        ),
        Claim(
            id="nonlinear-order",
            place="Section 5, nonlinear rewards",
            wording="SPUIR-Exp, SPUIR-Poly and SPUIR-Kernel have regret bounds of the same order √(MdT) as SPUIR.",
            coded=growths("T", nonlinear),
            margin=bound_exponent("T"),
            untested=UNMET,
            **exponents,
        ),
    ]


def draw(cells: Growth) -> Drawing:
    """Draw the cumulative regret over T in three panels, and over M and d."""
    worlds = (("synthetic",), ("heterogeneous",), ("exp", "poly", "rbf"))
    panels: list[plots.Lines] = []
    for some in worlds:
        lines = [
            plots.curve(policy, [cell.value for cell in line], [total(cells, cell) for cell in line])
            for world in some
            for policy in RUN_IN[world][2]
            if (line := along(cells, "T", world, policy))
        ]
        if lines:
            start = float(lines[0].mean[0])
            order = [start * sqrt(at / STEPS[0]) * float(np.log(at + 1) / np.log(STEPS[0] + 1)) for at in STEPS]
            title = some[0] if len(some) == 1 else "nonlinear, each where its truth is"
            panels.append(
                plots.Lines(
                    title=title,
                    xlabel="decisions T",
                    ylabel="cumulative regret",
                    lines=[*lines, plots.guide("√T·log T", STEPS, order)],
                    log_x=True,
                    log_y=True,
                )
            )
    caption = (
        "Cumulative regret against the best action for each context at B = 25·√(T/d), d = 40, M = 5, settings of the "
        f"authors' code; mean of {cells.seeds} seeds ± standard error. The dotted line has the order of the bound."
    )
    return Drawing(plots.compose("Growth of the regret", panels, width=3.0), caption)


EXPERIMENT = Experiment(
    name="regret", title="Growth of the regret", source="Theorem 4 and its remark", grid=grid, report=report
)
