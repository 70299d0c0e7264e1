"""Policies of other libraries as tasks: the same contexts, noise and first uniform episode as our own runs.

Rows are standardised by the first episode and clipped, as our default policy does, so that no library is judged by the
units of the columns. A library that is not installed is left out by :func:`installed`.
"""

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np

from spuir.base.records import Batch, Floats
from spuir.base.streams import generator
from spuir.environments import make_environment
from spuir.loop import observe

CLIP = 4.0
"""Standardised values are at most this far from 0."""


class LibraryPolicy(Protocol):
    """What a run needs of a library."""

    def probabilities(self, rows: Floats) -> Floats:
        """Return the probability of each action (n, M)."""
        ...

    def learn(self, rows: Floats, batch: Batch) -> None:
        """Learn from an episode."""
        ...


class VowpalWabbit:
    """``--cb_explore_adf`` with a weight per column and action, learned by importance-weighted regression."""

    def __init__(self, n_actions: int, seed: int, options: str) -> None:
        command = "--cb_explore_adf --cb_type mtr -q sa --ignore_linear s --quiet"
        library: Any = import_module("vowpalwabbit")
        self._model: Any = library.Workspace(f"{command} --random_seed {seed + 1} {options}")
        self._actions = [f"|a {code}" for code in range(n_actions)]

    @staticmethod
    def _lines(rows: Floats) -> list[str]:
        return [
            "shared |s" + "".join(f" {i}:{value:.4g}" for i, value in enumerate(row) if value) for row in rows.tolist()
        ]

    def probabilities(self, rows: Floats) -> Floats:
        """Return its probabilities."""
        return np.array([self._model.predict([line, *self._actions]) for line in self._lines(rows)], dtype=np.float64)

    def learn(self, rows: Floats, batch: Batch) -> None:
        """Learn from costs, which are negative rewards, one row after the other."""
        assert batch.propensities is not None
        columns = (batch.actions.tolist(), batch.rewards.tolist(), batch.propensities.tolist())
        for line, action, reward, propensity in zip(self._lines(rows), *columns, strict=True):
            example = [line, *self._actions]
            example[action + 1] = f"0:{-reward}:{propensity} {self._actions[action]}"
            self._model.learn(example)


class ContextualBandits:
    """``LinUCB`` by Cholesky factors, in double precision, with an intercept."""

    def __init__(self, n_actions: int, seed: int, alpha: float, ridge: float) -> None:
        library: Any = import_module("contextualbandits.online")
        given = {"fit_intercept": True, "use_float": False, "method": "chol", "ucb_from_empty": True, "njobs": 1}
        self._model: Any = library.LinUCB(n_actions, alpha=alpha, lambda_=ridge, random_state=seed + 1, **given)
        self._n_actions = n_actions

    def probabilities(self, rows: Floats) -> Floats:
        """Return 1 for the action that it chooses."""
        return np.eye(self._n_actions)[np.asarray(self._model.predict(rows), dtype=np.intp)]

    def learn(self, rows: Floats, batch: Batch) -> None:
        """Learn from an episode at once."""
        self._model.partial_fit(rows, batch.actions, batch.rewards)


LIBRARIES: Mapping[str, type[VowpalWabbit] | type[ContextualBandits]] = {
    "vowpalwabbit": VowpalWabbit,
    "contextualbandits": ContextualBandits,
}


def installed(library: str) -> bool:
    """Return whether a library can be run here."""
    return find_spec(library) is not None


def play_library(
    *,
    library: str,
    parameters: Mapping[str, Any],
    environment: str,
    world: Mapping[str, Any],
    episodes: int,
    batch_size: int,
    seed: int,
) -> list[dict[str, Any]]:
    """Run a library's policy in one environment; return its average reward and its regret per step."""
    place = make_environment(environment, **{"seed": seed} | dict(world))
    policy: LibraryPolicy = LIBRARIES[library](place.n_actions, seed, **parameters)
    reward, regret = 0.0, 0.0
    centre, spread = np.zeros(place.dim), np.ones(place.dim)
    for n in range(episodes + 1):
        rounds = place.draw(batch_size, generator(seed, "environment", "contexts", n))
        contexts = np.asarray(rounds.contexts, dtype=np.float64)
        if n == 0:
            centre, spread = contexts.mean(axis=0), contexts.std(axis=0)
            spread[spread <= 1e-15 * np.abs(contexts).max(axis=0)] = 1.0
        rows = np.clip((contexts - centre) / spread, -CLIP, CLIP)
        chances = policy.probabilities(rows) if n else np.ones((batch_size, place.n_actions))
        chances /= chances.sum(axis=1, keepdims=True)
        uniforms = generator(seed, "policy", "library", n).random((batch_size, 1))
        actions = np.minimum((chances.cumsum(axis=1) < uniforms).sum(axis=1), place.n_actions - 1)
        executed = np.arange(batch_size), actions
        batch = observe(place, rounds, actions, chances[executed], feedback=0.0, place=(seed, n))
        policy.learn(rows, batch)
        if n:
            expected = place.expected_rewards(rounds)
            reward += float(batch.rewards.mean())
            regret += float((expected.max(axis=1) - expected[executed]).mean())
    return [{"episode": episodes, "average_reward": reward / episodes, "regret_per_step": regret / episodes}]
