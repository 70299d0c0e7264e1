"""A small trained bandit, and the episode that it learned from."""

from typing import Any

import numpy as np

import spuir

B, D, M = 60, 3, 3
_rng = np.random.default_rng(0)
X, ACTIONS, REWARDS = _rng.normal(size=(B, D)), _rng.integers(M, size=B), _rng.normal(size=B)


def taught(policy: Any = "puir", **given: Any) -> spuir.Bandit:
    """Return a bandit that has learned the episode."""
    return spuir.Bandit(policy, M, random_state=0).partial_fit(X, ACTIONS, REWARDS, **given)
