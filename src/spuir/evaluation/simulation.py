"""Simulation: what a policy would earn while it learns, in a world that is fitted to a log.

Contexts are drawn from those of the log. The expected reward of an action is what a ridge model, fitted to the log,
predicts; rewards of 0 and 1 are drawn with that probability, others are the prediction plus a residual of the log.
The answer is as good as that model. Unlike a replay it has as many decisions as one likes.
"""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from spuir.base.records import Codes, Feedback, Floats, Rounds
from spuir.environments.base import Environment
from spuir.errors import InputError
from spuir.evaluation.encoded_rows import EncodedRows
from spuir.loop import run
from spuir.policies import Policy, make_policy
from spuir.results.history import History


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedWorld(Environment):
    """An environment fitted to logged rows; made by :func:`fit_world`.

    Parameters
    ----------
    rows
        (n, d) contexts to draw from, each with its probability ``shares`` (n,).
    means
        (n, M) expected reward of each context and action.
    residuals
        Residuals of the log, one array for all actions; None where rewards are 0 or 1.
    """

    rows: Floats
    shares: Floats
    means: Floats
    residuals: Floats | None = None

    name = "fitted"
    what = "policy, exploration and batch size together, simulated on a reward model that is fitted to the log"

    def _settle(self, rng: Generator) -> None:
        """Everything is given."""

    @property
    def random_reward(self) -> float:
        """Expected reward of a decision at random."""
        return float(self.shares @ self.means.mean(axis=1))

    def draw(self, n: int, rng: Generator) -> Rounds:
        """Draw n contexts of the log."""
        chosen = rng.choice(len(self.rows), n, p=self.shares)
        return Rounds(contexts=self.rows[chosen], payload=chosen)

    def expected_rewards(self, rounds: Rounds) -> Floats:
        """Return what the fitted model predicts (n, M)."""
        return self.means[rounds.payload]

    def feedback(self, rounds: Rounds, actions: Codes, rng: Generator) -> Feedback:
        """Return rewards of the executed actions, drawn about the predictions."""
        executed = self._executed(rounds, actions)
        rewards = self.expected_rewards(rounds)
        if self.residuals is None:
            drawn = (rng.random(rewards.shape) < rewards).astype(np.float64)
        else:
            drawn = rewards + rng.choice(self.residuals, rewards.shape)
        return Feedback(rewards=drawn[executed], all_rewards=drawn)


def fit_world(rows: EncodedRows, seed: int = 0, model: Policy | None = None) -> FittedWorld:
    """Fit a reward model to logged rows, and return the world that it describes.

    Parameters
    ----------
    rows
        Logged rows.
    seed
        Seed of the feature map, where the model draws one.
    model
        A policy whose estimates are the model; None = "auto", ridge regression with a kernel beside the contexts, so
        that the world is not linear where the log is not.

    Notes
    -----
    Residuals are those of the fitted rows, stretched by the degrees of freedom that the fit took from them: one per
    coefficient, and at most one per ten rows, since ridges take less than their number of columns.
    """
    bandit = rows.taught(model or make_policy("auto"), seed)
    policy = bandit.policy_
    if not policy.fixed(bandit.state_):
        rule = "a simulation draws rewards from a model that is fitted to at least 256 rows"
        raise InputError("log", f"{len(rows)} rows to learn from", rule, "use a longer log, or spuir train")
    means = rows.predicted_by(bandit)
    binary = bool(np.isin(rows.rewards, (0.0, 1.0)).all())
    residuals = None
    if binary:
        means = np.clip(means, 0.0, 1.0)
    else:
        left = rows.rewards - means[np.arange(len(rows)), rows.actions]
        left -= np.average(left, weights=rows.weights)
        used = min(policy.width(rows.contexts.shape[1]) * len(rows.labels), len(rows) // 10)
        residuals = left * np.sqrt(len(rows) / (len(rows) - used))
    return FittedWorld(
        n_actions=len(rows.labels),
        dim=rows.contexts.shape[1],
        rows=rows.contexts,
        shares=rows.weights / rows.weights.sum(),
        means=means,
        residuals=residuals,
    )


def simulate(world: FittedWorld, policy: Policy | str, *, episodes: int, batch_size: int, seed: int = 0) -> History:
    """Let a policy act and learn in a fitted world, as :func:`spuir.run` does in other environments.

    All actions are eligible in the world. Policies see the same contexts and the same noise for the same seed.
    """
    return run(policy, world, episodes=episodes, batch_size=batch_size, seed=seed)
