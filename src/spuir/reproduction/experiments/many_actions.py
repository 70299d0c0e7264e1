"""How much imputation is too much: constant, scheduled and balanced rates against none, for 5 to 50 actions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.random import Generator

from spuir.environments.classification import Classification, Labelled
from spuir.loop import run
from spuir.policies import make_policy
from spuir.reproduction import plots
from spuir.reproduction.base import Drawing, Experiment, Findings, ReportTable, Scope
from spuir.reproduction.claims import Claim, Contrast
from spuir.reproduction.grids import CellGrid, Measured, text_of
from spuir.reproduction.policy_runs import Setup, checkpoints
from spuir.reproduction.sets import COVERTYPE, DIGITS, further
from spuir.reproduction.tasks import Result, Task

ALPHAS = (0.1, 0.3, 1.0)
EPISODES, BATCH = 30, 1000
CLASSES, COLUMNS, ROWS, CLUSTERS = 26, 16, 20_000, 2

NONE, CONSTANT, AUTHORS, SCHEDULE = "none", "γ 0.1, η 0.9", "γ 0.1, η 0.1", "schedule"
BALANCED, HEAVY = "balanced, κ 0.1", "balanced, κ 1"
RATES: Mapping[str, Mapping[str, Any]] = {
    NONE: {"imputation_rate": 0.0},
    CONSTANT: {"imputation_rate": 0.1, "discount": 0.9},
    AUTHORS: {"imputation_rate": 0.1, "discount": 0.1},
    SCHEDULE: {"imputation_rate": "paper-schedule", "discount": 0.1},
    HEAVY: {"imputation_rate": "balanced", "discount": 0.9, "balance": 1.0},
    BALANCED: {"imputation_rate": "balanced", "discount": 0.9, "balance": 0.1},
}
"""No imputation, which is SBUCB, and five rates: SPUIR's and PUIR's constants, the paper's schedule, and ours with as
much imputed as observed weight and with a tenth of it, the default."""


@dataclass(frozen=True, kw_only=True)
class ClusteredClasses(Classification):
    """A generated table of 26 labels, each two Gaussian clusters in 16 columns: one with more labels than digits has.

    A linear policy cannot tell all labels apart, as on many real tables.
    """

    table: Labelled = field(init=False, repr=False, compare=False)

    name: ClassVar[str] = "clustered-classes"

    def _settle(self, rng: Generator) -> None:
        centres = 1.5 * rng.standard_normal((CLASSES, CLUSTERS, COLUMNS))
        codes, cluster = rng.integers(CLASSES, size=ROWS), rng.integers(CLUSTERS, size=ROWS)
        columns = centres[codes, cluster] + rng.standard_normal((ROWS, COLUMNS))
        columns = (columns - columns.mean(axis=0)) / columns.std(axis=0)
        labels = tuple(str(code) for code in range(CLASSES))
        table = Labelled(np.column_stack([columns, np.ones(ROWS)]), codes, labels)
        self._put(table=table, n_actions=CLASSES, dim=COLUMNS + 1)


def classify(*, parameters: Mapping[str, Any], episodes: int, batch_size: int, seed: int) -> list[dict[str, Any]]:
    """Run PUIR on the generated table of many labels; return its last row."""
    history = run(make_policy("puir", **parameters), ClusteredClasses(seed=seed), episodes, batch_size, seed)
    return checkpoints(history)[-1:]


class RateCell(NamedTuple):
    """One cell of the grid."""

    world: str
    alpha: float
    rate: str


def worlds(scope: Scope) -> dict[str, Setup | None]:
    """Return where rates are compared; None stands for the generated table."""
    made: dict[str, Setup | None] = {
        f"{name}, M = {actions}": Setup(
            environment=name, episodes=EPISODES, batch_size=BATCH, world={"n_actions": actions}
        )
        for name in ("heterogeneous", "linear")
        for actions in (5, 10, 50)
    }
    made["clusters, M = 26"] = None
    for name, label in ((DIGITS, "digits, M = 10"), (COVERTYPE, "covertype, M = 7")):
        setup = further(scope, name)
        if isinstance(setup, Setup):
            made[label] = setup
    return made


def cells(scope: Scope) -> dict[RateCell, list[Task]]:
    """Return every rate in every world at every α."""
    places = worlds(scope)
    names = scope.axis(tuple(places), ("heterogeneous, M = 5", "clusters, M = 26"))
    made: dict[RateCell, list[Task]] = {}
    for cell in map(RateCell._make, product(names, scope.axis(ALPHAS, (0.3,)), RATES)):
        setup, seeds = places[cell.world], scope.seeds
        given = dict(RATES[cell.rate]) | {"alpha": cell.alpha}
        if setup is None:
            made[cell] = Task.each(classify, seeds, parameters=given, episodes=EPISODES, batch_size=BATCH)
        else:
            made[cell] = setup.runs(seeds, "puir", parameters=given, tuning=True)
    return made


grid = CellGrid(cells)

ALLOWED = 3.0
"""Per cent of reward that a rate may cost before it counts as harm."""
Rates = Measured[RateCell]


def lead(cells: Rates, cell: RateCell) -> Contrast:
    """Return what a rate earns more than no imputation at the same α, in per cent."""
    return cells.lead(cell, cell._replace(rate=NONE))


def report(scope: Scope, results: Sequence[Result]) -> Findings:
    """Return the lead of each rate over SBUCB in every world."""
    cells = Measured(grid.fill(scope, results), lambda cell: f"{cell.rate}, α {cell.alpha:g}, {cell.world}")
    places = list(dict.fromkeys((cell.world, cell.alpha) for cell in cells))
    rows: list[dict[str, Any]] = []
    for world, alpha in places:
        row: dict[str, Any] = {"world": world, "α": alpha}
        for rate in RATES:
            if rate != NONE:
                row[rate] = text_of(lead(cells, RateCell(world, alpha, rate)).interval())
        rows.append(row)
    table = ReportTable(name="", title="Lead over SBUCB at the same α, in per cent of its reward", rows=rows)
    return Findings(tables=[table], claims=claims(cells, places), drawings={"": draw(cells)})


def claims(cells: Rates, places: Sequence[tuple[str, float]]) -> list[Claim]:
    """Return our claims about rates."""
    many = [place for place in places if place[0].endswith(("26", "50"))]
    ours: dict[str, Any] = {"source": "ours", "place": "beyond the paper"}
    return [
        Claim(
            id="constant-rate-harms",
            wording=f"With 26 actions or more a constant rate (γ = 0.1, η = 0.9) loses more than {ALLOWED:g} % of "
            "SBUCB's reward, in every world and at every α.",
            kind="less",
            margin=-ALLOWED,
            coded=[lead(cells, RateCell(*place, CONSTANT)) for place in many],
            **ours,
        ),
        Claim(
            id="balanced-rate-is-safe",
            wording=f"The balanced rate at its default (κ = 0.1) never loses more than {ALLOWED:g} % of SBUCB's "
            "reward.",
            margin=-ALLOWED,
            coded=[lead(cells, RateCell(*place, BALANCED)) for place in places],
            **ours,
        ),
        Claim(
            id="heavy-balanced-rate-is-safe",
            wording=f"The balanced rate with κ = 1 never loses more than {ALLOWED:g} % of SBUCB's reward.",
            margin=-ALLOWED,
            coded=[lead(cells, RateCell(*place, HEAVY)) for place in places],
            **ours,
        ),
    ]


def draw(cells: Rates) -> Drawing:
    """Draw the lead of each rate over SBUCB, a panel for each α."""
    colours = {CONSTANT: "spuir", AUTHORS: "puir", SCHEDULE: "puir-rs", HEAVY: "bexp3-ipw", BALANCED: "bexp3"}
    worlds = list(dict.fromkeys(cell.world for cell in cells))
    panels: list[plots.Shaded] = []
    for alpha in sorted({cell.alpha for cell in cells}):
        values = [
            [lead(cells, RateCell(world, alpha, rate)).interval().estimate for rate in colours] for world in worlds
        ]
        panel = plots.Shaded(
            title=f"α = {alpha:g}",
            xlabel="",
            ylabel="",
            columns=[rate.replace(", ", "\n") for rate in colours],
            rows=worlds if not panels else [""] * len(worlds),
            values=np.array(values),
            spec="+.1f",
            reach=8.0,
        )
        panels.append(panel)
    caption = (
        "Lead over SBUCB at the same α in per cent of its reward: constant rates, the paper's schedule, and balanced "
        f"rates; mean of {cells.seeds} seeds."
    )
    return Drawing(plots.compose("Imputation with many actions", panels, width=3.3), caption)


EXPERIMENT = Experiment(
    name="many-actions",
    title="Many actions: how much imputation is too much",
    source="beyond the paper",
    grid=grid,
    report=report,
)
