"""Theorem 3: how far the sketched solution is from the exact one, against the sketch size."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from spuir.base.records import Batch, Floats
from spuir.base.streams import generator
from spuir.environments import make_environment
from spuir.environments.linear import Linear
from spuir.policies import make_policy
from spuir.policies.learner import RidgeState
from spuir.policies.optimistic import Optimistic
from spuir.reproduction import plots
from spuir.reproduction.base import Drawing, Experiment, Findings, ReportTable, Scope
from spuir.reproduction.claims import Claim, Contrast, exponent, mean_ratio, with_error
from spuir.reproduction.grids import CellGrid, Measured, text_of
from spuir.reproduction.tasks import Result, Task
from spuir.results.figures import style_of

SIZES = (24, 40, 80, 160, 320, 640, 1280)
NOISES = (0.1, 1.0, 10.0)
MIDDLE = 1.0
ACTIONS, DIM, BATCH_SIZE, EPISODES = 3, 20, 2000, 2
RATE, RIDGE = 0.1, 1.0
FITTED = tuple(size for size in SIZES if size >= 4 * DIM)
"""Sizes for fitting the exponents: nearer to d the error also grows because the sketch is almost singular."""
MAPS: Mapping[str, tuple[str, int, str]] = {
    "SJLT, D = 1": ("sjlt", 1, "sketched"),
    "SJLT, D = 2": ("sjlt", 2, "sketched"),
    "SJLT, D = 4": ("sjlt", 4, "sketched"),
    "Gaussian": ("gaussian", 1, "sketched"),
    "SJLT, D = 1, anchored": ("sjlt", 1, "anchored"),
}
"""Label → sketch, blocks and how moments are kept; the last is our default, the others are the paper's form."""
ONE, ANCHORED = "SJLT, D = 1", "SJLT, D = 1, anchored"
PAPER = tuple(label for label in MAPS if label != ANCHORED)
OBJECTIVE, SOLUTION, STATISTICAL = "F ratio − 1", "‖θ̃ − θ̄‖/‖θ̄‖", "× statistical error"
STATED = {OBJECTIVE: -0.5, SOLUTION: -0.25}
"""Exponents in c that the theorem gives with c ∝ 1/ε²: the ratio of objectives is 1 + O(ε), the distance O(√ε)."""


def sketching(*, sketch: str, blocks: int, moments: str, noise: float, seed: int) -> list[dict[str, Any]]:
    """Return the distance of the sketched solution from the exact one for every size, as means over actions.

    Two episodes are learned with η = 1, so the problems are (1) and (5). Both have the same imputed rewards, those of
    the sketched policy.
    """
    world = cast(Linear, make_environment("linear", n_actions=ACTIONS, dim=DIM, noise=noise, seed=seed))
    batches = [_batch(world, seed, episode) for episode in range(EPISODES)]
    rows: list[dict[str, Any]] = []
    for size in SIZES:
        policy = cast(
            Optimistic,
            make_policy(
                "spuir",
                imputation_rate=RATE,
                discount=1.0,
                ridge=RIDGE,
                sketch=sketch,
                sketch_blocks=blocks,
                sketch_size=size,
                moments=moments,
            ),
        )
        state = policy.init(ACTIONS, DIM, generator(seed, "theorem3", "init"))
        acting = [policy.readout(state).solved.theta]
        for episode, batch in enumerate(batches):
            state, _ = policy.learn(state, batch, generator(seed, "theorem3", "sketch", size, episode))
            acting.append(policy.readout(cast(RidgeState, state)).solved.theta)
        each = [distances(*problem(batches, acting, j), acting[-1][j], world.coefficients[j]) for j in range(ACTIONS)]
        rows.append({"size": size} | {name: float(np.mean([one[name] for one in each])) for name in each[0]})
    return rows


def _batch(world: Linear, seed: int, episode: int) -> Batch:
    rng = generator(seed, "theorem3", "log", episode)
    rounds, actions = world.draw(BATCH_SIZE, rng), rng.integers(ACTIONS, size=BATCH_SIZE)
    return Batch(contexts=rounds.contexts, actions=actions, rewards=world.feedback(rounds, actions, rng).rewards)


def problem(batches: Sequence[Batch], acting: Sequence[Floats], action: int) -> tuple[Floats, Floats]:
    """Return the rows A and values y of one action for which F(θ) of (1) is ‖Aθ − y‖².

    ``acting`` holds the coefficients (M, d) that acted in each episode.
    """
    rows, values = [np.sqrt(RIDGE) * np.eye(DIM)], [np.zeros(DIM)]
    for batch, theta in zip(batches, acting, strict=False):
        own = batch.actions == action
        rows += [batch.contexts[own], np.sqrt(RATE) * batch.contexts[~own]]
        values += [batch.rewards[own], np.sqrt(RATE) * batch.contexts[~own] @ theta[action]]
    return np.concatenate(rows), np.concatenate(values)


def distances(A: Floats, y: Floats, sketched: Floats, truth: Floats) -> dict[str, float]:
    """Return how far the sketched solution is from the minimiser of ‖Aθ − y‖², in three units."""
    exact = np.linalg.lstsq(A, y)[0]
    excess, least = np.sum((A @ (sketched - exact)) ** 2), np.sum((A @ exact - y) ** 2)
    return {
        OBJECTIVE: float(excess / least),
        SOLUTION: float(np.linalg.norm(sketched - exact) / np.linalg.norm(exact)),
        STATISTICAL: float(excess / np.sum((A @ (exact - truth)) ** 2)),
    }


def cells(scope: Scope) -> dict[tuple[str, float], list[Task]]:
    """Return the tasks of each map and noise; the dense Gaussian map is slow and has one noise only."""
    return {
        (label, noise): Task.each(sketching, scope.seeds, sketch=sketch, blocks=blocks, moments=moments, noise=noise)
        for noise in scope.axis(NOISES, (MIDDLE,))
        for label, (sketch, blocks, moments) in MAPS.items()
        if sketch != "gaussian" or noise == MIDDLE
    }


grid = CellGrid(cells)

SketchErrors = Measured[tuple[str, float]]
"""Results by map and noise."""


def _label(cell: tuple[str, float]) -> str:
    return f"{cell[0]}, noise {cell[1]:g}"


def rate(errors: SketchErrors, cell: tuple[str, float], column: str) -> Contrast:
    """Return the exponent of a column in c."""
    return exponent(_label(cell), FITTED, [errors.sample(cell, column, size=size) for size in FITTED])


def report(scope: Scope, results: Sequence[Result]) -> Findings:
    """Return the errors over c with their exponents, measured and stated by the theorem."""
    errors = Measured(grid.fill(scope, results), _label)
    rows: list[dict[str, Any]] = []
    for cell in errors:
        row: dict[str, Any] = {"map": cell[0], "noise": cell[1]}
        for column, stated in STATED.items():
            row |= {column: text_of(rate(errors, cell, column).interval(), ".2f"), f"{column}, stated": stated}
        distance = errors.sample(cell, STATISTICAL, size=160)
        rows.append(row | with_error(f"{STATISTICAL}, c = 160", distance))
    table = ReportTable(name="", title=f"Exponents in c, fitted on c ≥ {FITTED[0]}", rows=rows)
    return Findings(tables=[table], claims=claims(errors), drawings={"": draw(errors)})


def claims(errors: SketchErrors) -> list[Claim]:
    """Return the rates that Theorem 3 gives, and what anchored moments change."""
    paper = [cell for cell in errors if cell[0] in PAPER]
    exponents: dict[str, Any] = {"place": "Theorem 3", "kind": "less", "unit": "exponent"}
    nearer = [
        mean_ratio(
            f"{ANCHORED} over {ONE}, noise {noise:g}",
            [errors.sample((ANCHORED, noise), STATISTICAL, size=size) for size in FITTED],
            [errors.sample((ONE, noise), STATISTICAL, size=size) for size in FITTED],
        )
        for label, noise in errors
        if label == ANCHORED
    ]
    return [
        Claim(
            id="objective-rate",
            wording="F(θ̃) ≤ (1 + ρε)·F(θ̄) with c ∝ 1/ε²: the excess falls at least as fast as c^-0.5.",
            coded=[rate(errors, cell, OBJECTIVE) for cell in paper],
            margin=STATED[OBJECTIVE],
            **exponents,
        ),
        Claim(
            id="solution-rate",
            wording="‖θ̃ − θ̄‖ = O(√(ρε)): the distance falls at least as fast as c^-0.25.",
            coded=[rate(errors, cell, SOLUTION) for cell in paper],
            margin=STATED[SOLUTION],
            **exponents,
        ),
        Claim(
            id="anchored-is-nearer",
            place="beyond Theorem 3",
            wording="Anchored moments bring the sketched solution nearer to the exact one than sketched moments do.",
            source="ours",
            kind="less",
            coded=nearer,
            unit="log ratio",
        ),
    ]


def draw(errors: SketchErrors) -> Drawing:
    """Draw the two errors over the sketch size."""
    panels: list[plots.Lines] = []
    shown = [label for label in MAPS if (label, MIDDLE) in errors]
    for column, stated in STATED.items():
        lines = [
            plots.curve(
                label,
                SIZES,
                [errors.sample((label, MIDDLE), column, size=size) for size in SIZES],
                style_of("spuir") if label == ANCHORED else shade,
            )
            for label, shade in zip(shown, plots.shades(len(shown)), strict=True)
        ]
        if lines:
            start = float(lines[0].mean[SIZES.index(FITTED[0])])
            order = [start * (size / FITTED[0]) ** stated for size in FITTED]
            lines.append(plots.guide(f"c^{stated:g}", FITTED, order))
        panels.append(
            plots.Lines(title=column, xlabel="sketch size c", ylabel=column, lines=lines, log_x=True, log_y=True)
        )
    caption = (
        "Excess of the objective and distance of the sketched solution from the exact one over the sketch size; "
        "dotted: the stated rate. Noise as large as the signal, mean over seeds ± standard error."
    )
    return Drawing(plots.compose(f"Sketched solution: M = {ACTIONS}, d = {DIM}, B = {BATCH_SIZE:,}", panels), caption)


EXPERIMENT = Experiment(
    name="theorem3",
    title="Error of the sketched solution against the sketch size",
    source="Theorem 3",
    grid=grid,
    report=report,
)
