"""Logged rows whose truth is known: contexts, expected rewards, and the policy that logged."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from spuir.base.streams import generator
from spuir.evaluation.encoded_rows import EncodedRows

ACTIONS, DIM = 3, 2
TRUTH = np.array([[0.5, 0.2, 0.0], [0.3, -0.2, 0.3], [0.4, 0.0, -0.3]])
"""Intercept and slopes of the expected reward of each action."""


class LoggedWorld(NamedTuple):
    """Rows, their true expected rewards (n, M) and the true probabilities of the logging policy (n, M)."""

    rows: EncodedRows
    means: Any
    chances: Any


def logged(n: int, seed: int = 0, *, batch: int = 100, tilt: float = 1.0, binary: bool = False) -> LoggedWorld:
    """Return n logged rows; ``tilt`` says how far the logging policy is from uniform."""
    rng = generator(seed, "tests", "worlds")
    contexts = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, DIM))])
    means = contexts @ TRUTH.T
    logits = tilt * contexts @ generator(7, "tests", "logging").normal(size=(DIM + 1, ACTIONS))
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    actions = (chances.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=ACTIONS - 1)
    every = np.arange(n)
    noise = rng.random(n)
    executed = means[every, actions]
    rewards = (noise < executed.clip(0, 1)).astype(float) if binary else executed + 0.3 * (noise - 0.5)
    rows = EncodedRows(
        contexts=contexts,
        actions=actions,
        rewards=rewards,
        propensities=chances[every, actions],
        weights=np.ones(n),
        episodes=every // batch,
        labels=("a", "b", "c"),
    )
    return LoggedWorld(rows, means, chances)


def as_table(n: int = 1_500, seed: int = 0, *, tilt: float = 1.0, **columns: Any) -> pa.Table:
    """Return n logged rows as a table with the columns of a log."""
    rows = logged(n, seed, tilt=tilt).rows
    made = {"x": rows.contexts[:, 1], "y": rows.contexts[:, 2], "action": [rows.labels[code] for code in rows.actions]}
    return pa.table(made | {"reward": rows.rewards, "propensity": rows.propensities} | columns)
