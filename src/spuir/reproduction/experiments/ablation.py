"""What imputation does: to the estimates, to the bonus, and to both, over α, γ and η."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from spuir.reproduction import plots
from spuir.reproduction.base import Drawing, Experiment, Findings, ReportTable, Scope
from spuir.reproduction.claims import Claim, Contrast, with_error
from spuir.reproduction.grids import CellGrid, Measured, text_of
from spuir.reproduction.policy_runs import REWARD, Setup
from spuir.reproduction.tasks import Result, Task

WORLDS: Mapping[str, Setup] = {
    "synthetic": Setup(environment="synthetic", episodes=30, batch_size=1400),
    "coupon": Setup(environment="coupon", episodes=20, batch_size=625),
    "heterogeneous": Setup(environment="heterogeneous", episodes=30, batch_size=1400),
    "digits": Setup(environment="classification", episodes=20, batch_size=500, world={"intercept": True}),
}
ALPHAS = (0.0, 0.1, 0.3, 1.0)
RATES, DISCOUNTS = (0.01, 0.1, 1.0), (0.1, 0.9)
NONE, BOTH, ESTIMATE, BONUS = "none", "both", "estimate", "bonus"
FORMS: Mapping[str, str] = {BOTH: "imputed", ESTIMATE: "observed", BONUS: "only"}
"""What imputed rewards change → value of the parameter ``bonus``."""


class AblationCell(NamedTuple):
    """One cell of the grid; without imputation γ and η are 0."""

    world: str
    alpha: float
    form: str
    rate: float = 0.0
    discount: float = 0.0


def cells(scope: Scope) -> dict[AblationCell, list[Task]]:
    """Return SBUCB and the three forms of PUIR; without a bonus (α = 0) only the estimates can differ."""
    made: dict[AblationCell, list[Task]] = {}
    for world in scope.axis(tuple(WORLDS), ("synthetic", "heterogeneous")):
        for alpha in scope.axis(ALPHAS, (0.1, 1.0)):
            plain = AblationCell(world, alpha, NONE)
            made[plain] = WORLDS[world].runs(scope.seeds, "sbucb", parameters={"alpha": alpha}, tuning=True)
            settings = product(FORMS if alpha else (BOTH,), scope.axis(RATES, (0.1,)), scope.axis(DISCOUNTS, (0.9,)))
            for form, rate, discount in settings:
                given = {"alpha": alpha, "imputation_rate": rate, "discount": discount, "bonus": FORMS[form]}
                runs = WORLDS[world].runs(scope.seeds, "puir", parameters=given, tuning=True)
                made[AblationCell(world, alpha, form, rate, discount)] = runs
    return made


grid = CellGrid(cells)

Ablated = Measured[AblationCell]
COLOURS = {ESTIMATE: "bexp3", BONUS: "puir-rs", BOTH: "puir"}
"""What imputed rewards change → the policy whose colour it borrows."""
SHOWN_RATE = 0.1


def lead(cells: Ablated, cell: AblationCell, discounts: Sequence[float]) -> Contrast:
    """Return what a form earns more than SBUCB at the same α, in per cent, averaged over some values of η."""
    plain = cell._replace(form=NONE, rate=0.0, discount=0.0)
    ours = [cells.sample(cell._replace(discount=discount)) for discount in discounts]
    terms = ((1.0, cells.sample(plain)), *((-1.0 / len(ours), one) for one in ours))
    name = f"{cell.form}, {cell.world}, α = {cell.alpha:g}"
    return Contrast(name=name, terms=terms, percent_of=cells.sample(plain, REWARD))


def _label(cell: AblationCell) -> str:
    return f"{cell.world}, α {cell.alpha:g}, {cell.form}, γ {cell.rate:g}, η {cell.discount:g}"


def report(scope: Scope, results: Sequence[Result]) -> Findings:
    """Return the effect of imputed rewards on estimates, on the bonus and on both."""
    cells = Measured(grid.fill(scope, results), _label)
    worlds = [world for world in WORLDS if any(cell.world == world for cell in cells)]
    return Findings(
        tables=[
            ReportTable(
                name="", title="Lead over SBUCB at the same α, in per cent of its reward", rows=lead_rows(cells)
            ),
            ReportTable(
                name="alpha", title="Regret × 1,000 of SBUCB over α", rows=alpha_rows(cells), formats={"regret": ".2f"}
            ),
        ],
        claims=claims(cells, worlds),
        drawings={"": draw_forms(cells, worlds), "rates": draw_rates(cells, worlds)},
    )


def lead_rows(cells: Ablated) -> list[dict[str, Any]]:
    """Return a row for each world, α, γ and η: the lead of each form."""
    settings = dict.fromkeys((cell.world, cell.alpha, cell.rate, cell.discount) for cell in cells if cell.rate)
    rows: list[dict[str, Any]] = []
    for world, alpha, rate, discount in settings:
        row: dict[str, Any] = {"world": world, "α": alpha, "γ": rate, "η": discount}
        for form in (ESTIMATE, BONUS, BOTH):
            cell = AblationCell(world, alpha, form, rate, discount)
            row[form] = text_of(lead(cells, cell, [discount]).interval()) if cell in cells else None
        rows.append(row)
    return rows


def alpha_rows(cells: Ablated) -> list[dict[str, Any]]:
    """Return the regret without imputation over α."""
    return [
        {"world": cell.world, "α": cell.alpha} | with_error("regret", (1000 * value for value in cells.sample(cell)))
        for cell in cells
        if cell.form == NONE
    ]


def _discounts(cells: Ablated) -> list[float]:
    return sorted({cell.discount for cell in cells if cell.rate == SHOWN_RATE})


def claims(cells: Ablated, worlds: Sequence[str]) -> list[Claim]:
    """Return the two factors to which the paper attributes the effect of imputation, and the comparison of both."""

    def contrasts(form: str) -> list[Contrast]:
        places = [AblationCell(world, alpha, form, SHOWN_RATE) for world in worlds for alpha in _alphas(cells)]
        return [lead(cells, place, _discounts(cells)) for place in places]

    section = "Section 4, the two key factors"
    return [
        Claim(
            id="estimates-improve",
            place=section,
            wording="Imputing missing rewards reduces the impact of missing data for a more accurate reward "
            "estimation: with imputed estimates and the bonus of SBUCB, the policy earns more than SBUCB.",
            coded=contrasts(ESTIMATE),
        ),
        Claim(
            id="bonus-improves",
            place=section,
            wording="Imputation's effectiveness arises from its impact on the exploration-exploitation trade-off: with "
            "the estimates of SBUCB and the smaller bonus of imputation, the policy earns more than SBUCB.",
            coded=contrasts(BONUS),
        ),
    ]


def _alphas(cells: Ablated) -> list[float]:
    return sorted({cell.alpha for cell in cells if cell.alpha})


def draw_forms(cells: Ablated, worlds: Sequence[str]) -> Drawing:
    """Draw the lead of each form over SBUCB, a panel for each world."""
    panels: list[plots.Dots] = []
    for world in worlds:
        rows: dict[str, plots.Pair] = {}
        styles: dict[str, str] = {}
        for alpha in _alphas(cells):
            for form in (ESTIMATE, BONUS, BOTH):
                label = f"α = {alpha:g}: {form}"
                cell = AblationCell(world, alpha, form, SHOWN_RATE)
                rows[label] = None, lead(cells, cell, _discounts(cells)).interval()
                styles[label] = COLOURS[form]
        panels.append(plots.Dots(title=world, xlabel="lead over SBUCB, %", rows=rows, styles=styles, named=not panels))
    discounts = " and ".join(f"{one:g}" for one in _discounts(cells))
    caption = (
        "What PUIR earns more than SBUCB at the same α if imputed rewards change only the estimates, only the bonus, "
        f"or both (note the scales); γ = {SHOWN_RATE:g}, mean over η = {discounts}; 95 % intervals over {cells.seeds} "
        "seeds (not corrected)."
    )
    return Drawing(plots.compose("What imputed rewards change", panels, width=2.2), caption)


def draw_rates(cells: Ablated, worlds: Sequence[str]) -> Drawing:
    """Draw the lead of the estimates alone over γ and η, a panel for each world."""
    alphas, discounts = _alphas(cells), _discounts(cells)
    rates = sorted({cell.rate for cell in cells if cell.rate})
    panels: list[plots.Shaded] = []
    for world in worlds:
        values = [
            [lead(cells, AblationCell(world, alpha, ESTIMATE, rate), [discount]).interval().estimate for rate in rates]
            for alpha in alphas
            for discount in discounts
        ]
        rows = [f"α {alpha:g}, η {discount:g}" for alpha in alphas for discount in discounts]
        panel = plots.Shaded(
            title=world,
            xlabel="imputation rate γ",
            ylabel="",
            columns=[f"{rate:g}" for rate in rates],
            rows=rows if not panels else [""] * len(rows),
            values=np.array(values),
            spec="+.2f",
            reach=4.0,
        )
        panels.append(panel)
    caption = (
        "Lead over SBUCB in per cent if imputed rewards change the estimates alone: blue where imputation improves "
        "the estimates, orange where it harms them."
    )
    return Drawing(plots.compose("Imputed estimates, SBUCB's bonus", panels, width=1.9), caption)


EXPERIMENT = Experiment(
    name="ablation",
    title="What imputation does: estimates, bonus, or both",
    source="Section 4, and beyond the paper",
    grid=grid,
    report=report,
)
