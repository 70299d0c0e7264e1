"""A small world with known values, policies to evaluate in it, and the estimators written row by row."""

from typing import Any

import numpy as np
import pandas as pd

ACTIONS = ["a", "b", "c"]


class World:
    """Contexts x ~ N(0, I) of two columns, three actions, rewards Bernoulli with a mean that is linear in x."""

    slopes = np.array([[0.0, 0.0], [0.15, 0.0], [0.0, 0.1]])
    levels = np.array([0.3, 0.3, 0.25])

    def means(self, contexts: np.ndarray) -> np.ndarray:
        """Return the expected reward of every action (n, 3)."""
        return np.clip(self.levels + contexts @ self.slopes.T, 0.0, 1.0)

    def logging(self, contexts: np.ndarray) -> np.ndarray:
        """Return the probabilities (n, 3) of the policy that writes logs."""
        scores = np.column_stack([np.zeros(len(contexts)), 0.7 * contexts[:, 1], -0.5 * contexts[:, 0]])
        chances = np.exp(scores)
        return 0.1 + 0.7 * chances / chances.sum(axis=1, keepdims=True)

    def draw(self, n: int, rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
        """Return a log, and the contexts that it holds."""
        contexts = rng.normal(size=(n, 2))
        chances = self.logging(contexts)
        actions = (chances.cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1)
        rows = np.arange(n)
        rewards = (rng.random(n) < self.means(contexts)[rows, actions]).astype(float)
        frame = pd.DataFrame({"x": contexts[:, 0], "y": contexts[:, 1], "action": np.array(ACTIONS)[actions]})
        return frame.assign(reward=rewards, propensity=chances[rows, actions]), contexts


def values(rows: int = 1_000_000) -> dict[str, float]:
    """Return the true values of the policies, from so many contexts; their error is below 0.0002."""
    contexts = np.random.default_rng(2**20).normal(size=(rows, 2))
    world = World()
    means, positive = world.means(contexts), contexts[:, 0] > 0
    return {
        "rule": float(np.where(positive, means[:, 1], means[:, 0]).mean()),
        "reversed": float(np.where(positive, means[:, 0], means[:, 1]).mean()),
        "soft": float((soft(contexts) * means).sum(axis=1).mean()),
        "logged": float((world.logging(contexts) * means).sum(axis=1).mean()),
        **{f"always:{name}": float(means[:, code].mean()) for code, name in enumerate(ACTIONS)},
    }


def blind_log(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return a log in which b is never tried where x is positive, which is where the rule chooses it."""
    x, coin = rng.normal(size=n), rng.random(n) < 0.5
    actions = np.where(coin, "a", np.where(x > 0, "c", "b"))
    return pd.DataFrame({"x": x, "action": actions, "reward": rng.random(n) < 0.3, "propensity": 0.5})


def threshold(frame: Any) -> np.ndarray:
    """Return the choices of a good rule: b where x is positive, else a."""
    return np.where(frame.x > 0, "b", "a")


def turned(frame: Any) -> np.ndarray:
    """Return the choices of the opposite rule, which is worse than the log."""
    return np.where(frame.x > 0, "a", "b")


def soft(contexts: np.ndarray) -> np.ndarray:
    """Return the probabilities (n, 3) of a policy that mixes."""
    high = 1 / (1 + np.exp(-2 * contexts[:, 0]))
    return np.column_stack([0.8 * (1 - high), 0.8 * high, np.full(len(high), 0.2)])


def row_by_row(
    name: str, rows: list[dict[str, Any]], setting: float | None = None, weights: list[float] | None = None
) -> float:
    """Return an estimate from rows with r, p, pi (of all actions), a, q (of all actions), one row after the other."""
    total = plain = above = below = 0.0
    for row, weight in zip(rows, weights or [1.0] * len(rows), strict=True):
        ratio = row["pi"][row["a"]] / row["p"]
        value = sum(chance * reward for chance, reward in zip(row["pi"], row["q"], strict=True))
        gap = row["r"] - row["q"][row["a"]]
        total += weight
        if name == "dm":
            plain += weight * value
        elif name == "ips":
            plain += weight * ratio * row["r"]
        elif name == "clipped-ips":
            plain += weight * min(ratio, setting or 0.0) * row["r"]
        elif name in ("snips", "balanced-ips"):
            above, below = above + weight * ratio * row["r"], below + weight * ratio
        elif name == "dr":
            plain += weight * (value + ratio * gap)
        elif name == "sndr":
            plain, above, below = plain + weight * value, above + weight * ratio * gap, below + weight * ratio
        elif name == "switch-dr":
            plain += weight * (value + (ratio * gap if ratio <= (setting or 0.0) else 0.0))
        elif name == "dros":
            shrinkage = setting or 0.0
            plain += weight * (value + shrinkage * ratio / (ratio**2 + shrinkage) * gap)
    return plain / total + (above / below if below else 0.0)
