"""Theorem 1: revealing all rewards tightens the bound on the estimation error; what it does to error and regret."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, cast

import numpy as np

from spuir.bandit import Bandit
from spuir.base.records import Codes, Floats, Rounds
from spuir.base.streams import generator
from spuir.environments import make_environment
from spuir.environments.base import Environment
from spuir.loop import columns_of, observe
from spuir.policies import make_policy
from spuir.policies.learner import RidgeState
from spuir.policies.optimistic import Optimistic
from spuir.reproduction import plots
from spuir.reproduction.base import Drawing, Experiment, Findings, ReportTable, Scope
from spuir.reproduction.claims import Claim, Contrast, difference, mean_ratio, with_error
from spuir.reproduction.grids import CellGrid, Measured
from spuir.reproduction.policy_runs import AUTHORS
from spuir.reproduction.tasks import Result, Task
from spuir.results.figures import Curve, style_of

ENVIRONMENTS = ("synthetic", "heterogeneous")
ALPHAS = (1.0, 0.1)
"""Of SBUCB: the authors' value, and one that suits it better."""
EPISODES, BATCH_SIZE = 30, 1400
CHECKPOINTS = (1, 2, 3, 5, 8, 12, 20, 30)
PROBES, FAILURE = 4000, 0.05
SETTINGS: Mapping[str, tuple[str, float]] = {
    "bandit feedback": ("sbucb", 0.0),
    "full information": ("sbucb", 1.0),
    "imputed": ("puir", 0.0),
}
"""Name → policy and share of the other actions' rewards that is revealed to it."""
BANDIT, FULL, IMPUTED = SETTINGS
SHARES = ("covered", "no wider", "closer")
"""Columns that are shares of the (context, action) cells."""
RIDGE = 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class ActingEpisode:
    """One episode of a run: the state that acts, the contexts it meets, and the actions it takes."""

    state: RidgeState
    rounds: Rounds
    actions: Codes


def acting_episodes(
    policy: Optimistic, world: Environment, *, batch_size: int, seed: int, feedback: float
) -> Iterator[ActingEpisode]:
    """Yield the episodes 1, 2, … of the same run as :func:`spuir.run`, with the states that act in them."""
    bandit = Bandit(policy, world.n_actions, random_state=seed)
    bandit._advises = False  # the paper's policies have no intercept
    for episode in count():
        rounds = world.draw(batch_size, generator(seed, "environment", "contexts", episode))
        decision = bandit.decide(rounds.contexts)
        if episode:
            yield ActingEpisode(state=cast(RidgeState, bandit.state_), rounds=rounds, actions=decision.actions)
        given = {"feedback": feedback, "place": (seed, episode)}
        batch = observe(world, rounds, decision.actions, decision.propensities, **given)
        bandit.partial_fit(**columns_of(batch))


def compare(*, environment: str, alpha: float, episodes: int, batch_size: int, seed: int) -> list[dict[str, Any]]:
    """Let the three settings learn from the same contexts; return errors, widths and bounds at the checkpoints."""
    world = make_environment(environment, seed=seed)
    factor, truth = bound_factor(world, batch_size, seed)
    policies = {
        name: cast(Optimistic, make_policy(policy, preset=AUTHORS, alpha=alpha, ridge=RIDGE))
        for name, (policy, _) in SETTINGS.items()
    }
    runs = [
        acting_episodes(policies[name], world, batch_size=batch_size, seed=seed, feedback=feedback)
        for name, (_, feedback) in SETTINGS.items()
    ]
    lost = dict.fromkeys(SETTINGS, 0.0)
    rows: list[dict[str, Any]] = []
    for episode, met in zip(range(1, episodes + 1), zip(*runs, strict=True), strict=False):
        expected = world.expected_rewards(met[0].rounds)
        for name, acting in zip(SETTINGS, met, strict=True):
            lost[name] += float((expected.max(axis=1) - _executed(expected, acting.actions)).sum())
        if episode not in CHECKPOINTS:
            continue
        seen = {name: measured(policies[name], acting, truth) for name, acting in zip(SETTINGS, met, strict=True)}
        for name, acting in zip(SETTINGS, met, strict=True):
            error, width = seen[name]
            rows.append(
                {
                    "episode": episode,
                    "setting": name,
                    "error": float(error.mean()),
                    "executed error": float(_executed(error, acting.actions).mean()),
                    "bound": float((factor * width).mean()),
                    "covered": float((error <= factor * width).mean()),
                    "no wider": float((width <= seen[BANDIT][1] * (1 + 1e-9)).mean()),
                    "closer": float((error <= seen[BANDIT][0]).mean()),
                    "regret per step": lost[name] / (episode * batch_size),
                }
            )
    return rows


def bound_factor(world: Environment, batch_size: int, seed: int) -> tuple[Floats, Floats]:
    """Return what multiplies the widths in the bound, λ‖θ*_j‖ + ν (M,), and the truth θ* (M, d).

    Where the expected reward is not linear, θ* is its least-squares fit on drawn contexts. C_R is the largest
    reward of all actions on them, for rewards with Gaussian noise have no bound.
    """
    rounds = world.draw(PROBES, generator(seed, "theorem1", "contexts"))
    truth: Floats = np.asarray(np.linalg.lstsq(rounds.contexts, world.expected_rewards(rounds))[0].T, np.float64)
    nothing = np.zeros(PROBES, np.intp)
    outcome = world.feedback(rounds, nothing, generator(seed, "theorem1", "noise"))
    rewards = outcome.rewards if outcome.all_rewards is None else outcome.all_rewards
    nu = np.abs(rewards).max() * math.sqrt(2 * math.log(2 * world.n_actions * batch_size / FAILURE))
    return RIDGE * np.linalg.norm(truth, axis=1) + nu, truth


def measured(policy: Optimistic, acting: ActingEpisode, truth: Floats) -> tuple[Floats, Floats]:
    """Return |⟨θ_j,s⟩ − ⟨θ*_j,s⟩| and the width of every context and action, both (B, M)."""
    means, widths = policy.estimates(acting.state, acting.rounds.contexts)
    return np.abs(means - acting.rounds.contexts @ truth.T), widths


def _executed(table: Floats, actions: Codes) -> Floats:
    return table[np.arange(len(actions)), actions]


def cells(scope: Scope) -> dict[tuple[str, float], list[Task]]:
    """Return the tasks of each environment and α."""
    given = {"episodes": EPISODES, "batch_size": BATCH_SIZE}
    return {
        (environment, alpha): Task.each(compare, scope.seeds, environment=environment, alpha=alpha, **given)
        for environment in ENVIRONMENTS
        for alpha in ALPHAS
    }


grid = CellGrid(cells)

Errors = Measured[tuple[str, float]]
"""Results by environment and α."""


def _label(cell: tuple[str, float]) -> str:
    return f"{cell[0]}, α = {cell[1]:g}"


def ratios(errors: Errors, ours: str, column: str) -> list[Contrast]:
    """Return the mean log ratio of one setting to bandit feedback over all checkpoints, for every cell."""
    return [
        mean_ratio(
            f"{ours} over {BANDIT}, {_label(cell)}",
            *(
                [errors.sample(cell, column, setting=name, episode=episode) for episode in CHECKPOINTS]
                for name in (ours, BANDIT)
            ),
        )
        for cell in errors
    ]


def report(scope: Scope, results: Sequence[Result]) -> Findings:
    """Return errors, bounds and regret with bandit feedback, full information and imputed rewards."""
    errors = Measured(grid.fill(scope, results), _label)
    rows: list[dict[str, Any]] = []
    for cell in errors:
        for name in SETTINGS:
            row: dict[str, Any] = {"environment": cell[0], "α": cell[1], "rewards": name}
            at_end = {
                column: errors.sample(cell, column, setting=name, episode=EPISODES)
                for column in ("error", "executed error", "bound", "regret per step", *SHARES)
            }
            for column, one in at_end.items():
                row |= {column: one.mean} if column in SHARES else with_error(column, one)
            rows.append(row)
    title = f"After episode {EPISODES}; covered: error within the bound; no wider, closer: than with bandit feedback"
    table = ReportTable(name="", title=title, rows=rows, formats=dict.fromkeys(SHARES, ".1%"))
    return Findings(tables=[table], claims=claims(errors), drawings={"": draw(errors)})


def claims(errors: Errors) -> list[Claim]:
    """Return what Section 2 says about full information, and what it expects of imputation."""
    about: dict[str, Any] = {"kind": "less", "unit": "log ratio"}
    regrets = [
        difference(
            f"regret, {BANDIT} − {FULL}, {_label(cell)}",
            *(errors.sample(cell, "regret per step", setting=name, episode=EPISODES) for name in (BANDIT, FULL)),
        )
        for cell in errors
    ]
    return [
        Claim(
            id="bound-is-tighter",
            place="Theorem 1",
            wording="The upper bound of |⟨θ,s⟩ − ⟨θ*,s⟩| with full information is tighter than with partial "
            "information.",
            coded=ratios(errors, FULL, "bound"),
            **about,
        ),
        Claim(
            id="partial-feedback-costs-regret",
            place="Section 2, after Theorem 1",
            wording="Partial-information feedback leads to a deterioration in the regret of the bandit policy.",
            coded=regrets,
            unit="regret per decision",
        ),
        Claim(
            id="imputed-error-is-smaller",
            place="Section 4, the first key factor",
            wording="Imputing missing rewards gives a more accurate reward estimation than bandit feedback.",
            coded=ratios(errors, IMPUTED, "error"),
            **about,
        ),
    ]


def draw(errors: Errors) -> Drawing:
    """Draw the error over the episodes, a panel for each environment."""
    styles = {BANDIT: style_of("sbucb"), FULL: style_of("auto"), IMPUTED: style_of("puir")}

    def line(cell: tuple[str, float], name: str) -> Curve:
        values = [errors.sample(cell, "error", setting=name, episode=n) for n in CHECKPOINTS]
        return plots.curve(name, CHECKPOINTS, values, styles[name])

    panels = [
        plots.Lines(
            title=_label(cell),
            xlabel="episode",
            ylabel="mean |⟨θ,s⟩ − ⟨θ*,s⟩|",
            lines=[line(cell, name) for name in SETTINGS],
            log_x=True,
            log_y=True,
        )
        for cell in errors
        if cell[1] == ALPHAS[0]
    ]
    caption = (
        "Estimation error, mean over contexts and actions, of SBUCB with bandit feedback and with all rewards "
        "revealed, and of PUIR at the same α; mean over seeds ± standard error."
    )
    return Drawing(plots.compose("Estimation error: M = 5, d = 40, B = 1,400", panels), caption)


EXPERIMENT = Experiment(
    name="theorem1", title="Full information has the tighter bound", source="Theorem 1", grid=grid, report=report
)
