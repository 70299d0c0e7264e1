"""Figure 1: how much a batched policy gains from the rewards of actions that it did not execute."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from spuir.reproduction import plots
from spuir.reproduction.base import Drawing, Experiment, Findings, ReportTable, Scope
from spuir.reproduction.claims import MARGIN, Claim
from spuir.reproduction.grids import FORMATS, CellGrid, Measured, text_of
from spuir.reproduction.policy_runs import AUTHORS
from spuir.reproduction.sets import synthetic
from spuir.reproduction.tasks import Result, Task

SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
PLAIN, CALM, IMPUTED = "sbucb", "sbucb (α = 0.1)", "puir (no feedback)"

FeedbackCell = tuple[str, float]
"""Label and share of feedback."""


def cells(scope: Scope) -> dict[FeedbackCell, list[Task]]:
    """Return SBUCB at every share of feedback, with the α of the authors' code and with PUIR's, and PUIR without."""
    setup = synthetic(scope)

    def cell(policy: str, parameters: Mapping[str, float], share: float) -> list[Task]:
        return setup.runs(scope.seeds, policy, preset=AUTHORS, parameters=parameters, feedback=share)

    plain = {(PLAIN, share): cell("sbucb", {}, share) for share in scope.axis(SHARES, (0.0, 0.8, 1.0))}
    calm = {(CALM, share): cell("sbucb", {"alpha": 0.1}, share) for share in scope.axis(SHARES, (0.0, 1.0))}
    return plain | calm | {(IMPUTED, 0.0): cell("puir", {}, 0.0)}


grid = CellGrid(cells)

Feedback = Measured[FeedbackCell]


def measured(scope: Scope, results: Sequence[Result]) -> Feedback:
    """Return the results by cell."""
    return Measured(grid.fill(scope, results), lambda cell: f"{cell[0]}, {100 * cell[1]:.0f} % feedback")


def report(scope: Scope, results: Sequence[Result]) -> Findings:
    """Return reward and regret against the share of feedback."""
    cells = measured(scope, results)
    rows: list[dict[str, Any]] = []
    for label, share in cells:
        row: dict[str, Any] = {"policy": label, "feedback, %": round(100 * share)} | cells.row((label, share))
        if (label, 0.0) in cells and share:
            row["gain on no feedback, %"] = text_of(cells.lead((label, share), (label, 0.0)).interval())
        rows.append(row)
    table = ReportTable(name="", title="Reward and regret by share of feedback", rows=rows, formats=FORMATS)
    return Findings(tables=[table], claims=claims(cells), drawings={"": draw(cells)})


def claims(cells: Feedback) -> list[Claim]:
    """Return the paper's observations on its Figure 1, and ours about PUIR."""
    shares = sorted(share for label, share in cells if label == PLAIN)
    steps = [cells.lead((PLAIN, more), (PLAIN, less)) for less, more in pairwise(shares)]
    place = "Section 2, Figure 1"
    return [
        Claim(
            id="feedback-helps",
            place=place,
            wording="Partial-information feedback hurts policy updating: with full information SBUCB earns more.",
            coded=[cells.lead((PLAIN, 1.0), (PLAIN, 0.0))],
        ),
        Claim(
            id="more-is-better",
            place=place,
            wording="The policy benefits from more reward feedback: every step from 0 to 100 % earns more.",
            coded=steps,
        ),
        Claim(
            id="most-is-enough",
            place=place,
            wording="The performance of 80 % feedback is very close to that of full information.",
            kind="alike",
            margin=MARGIN,
            coded=[cells.lead((PLAIN, 0.8), (PLAIN, 1.0))],
        ),
        Claim(
            id="less-exploration-replaces-feedback",
            place="beyond Figure 1",
            wording="SBUCB that explores less (α = 0.1) earns as much without feedback as SBUCB with α = 1 and all "
            "of it.",
            source="ours",
            kind="alike",
            margin=MARGIN,
            coded=[cells.lead((CALM, 0.0), (PLAIN, 1.0))],
        ),
        Claim(
            id="imputation-replaces-feedback",
            place="beyond Figure 1",
            wording="PUIR without feedback earns as much as SBUCB with α = 1 and all of it.",
            source="ours",
            kind="alike",
            margin=MARGIN,
            coded=[cells.lead((IMPUTED, 0.0), (PLAIN, 1.0))],
        ),
    ]


def draw(cells: Feedback) -> Drawing:
    """Draw the paper's curves over episodes, and the regret over the share of feedback."""
    shares = sorted(share for label, share in cells if label == PLAIN)
    curves = [
        plots.running(f"{100 * share:.0f} %", cells[PLAIN, share], style=shade)
        for share, shade in zip(shares, plots.shades(len(shares)), strict=True)
    ]
    left = plots.episodes("SBUCB, α = 1, by share of feedback", curves)
    lines = []
    for label in (PLAIN, CALM, IMPUTED):
        known = sorted(share for other, share in cells if other == label)
        values = cells.values((label, share) for share in known)
        lines.append(plots.curve(label, [100 * share for share in known], values))
    right = plots.Lines(
        title="regret after the last episode",
        xlabel="feedback on non-executed actions, %",
        ylabel="regret per decision",
        lines=lines,
        log_y=True,
    )
    caption = (
        "Left: the paper's Figure 1, running average reward of SBUCB when each non-executed action reveals its reward "
        f"with the probability named; mean of {curves[0].seeds} seeds ± standard error. Right: regret per decision "
        "after the last episode, also with α = 0.1 and for PUIR without feedback."
    )
    return Drawing(plots.compose("Synthetic data: M = 5, d = 40, N = 90, B = 1,400", [left, right]), caption)


EXPERIMENT = Experiment(name="figure1", title="More feedback, more reward", source="Figure 1", grid=grid, report=report)
