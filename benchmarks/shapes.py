"""The shapes that are measured, and one source of rows for every method."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spuir.base.streams import generator

Floats = NDArray[np.float64]
SEED = 20


@dataclass(frozen=True)
class Shape:
    """A batch size B, a context dimension d and a number of actions M."""

    name: str
    rows: int
    dim: int
    actions: int

    def __str__(self) -> str:
        """Show the name with (B, d, M)."""
        return f"{self.name} ({self.rows:,}, {self.dim}, {self.actions})"


PAPER = Shape("paper", 1_400, 40, 5)
WIDE = Shape("wide", 1_400, 40, 50)
LARGE = Shape("large", 100_000, 100, 20)
DEEP = Shape("deep", 100_000, 200, 5)
SHAPES = {shape.name: shape for shape in (PAPER, WIDE, LARGE, DEEP)}


@dataclass(frozen=True)
class Rows:
    """One episode as every method receives it: contexts (B, d), actions (B,), rewards (B,)."""

    contexts: Floats
    actions: NDArray[np.int64]
    rewards: Floats

    def head(self, count: int) -> "Rows":
        """Return the first ``count`` rows."""
        return Rows(self.contexts[:count], self.actions[:count], self.rewards[:count])


def draw_rows(shape: Shape, episode: int = 0) -> Rows:
    """Draw an episode: normal contexts of length about 1, uniform actions, a linear reward with noise."""
    rng = generator(SEED, "benchmarks", shape.name, shape.rows, shape.dim, shape.actions, episode)
    truth = generator(SEED, "benchmarks", shape.name, "truth").standard_normal((shape.actions, shape.dim))
    contexts = rng.standard_normal((shape.rows, shape.dim)) / np.sqrt(shape.dim)
    actions = rng.integers(shape.actions, size=shape.rows)
    means = np.einsum("bd,bd->b", contexts, truth[actions])
    return Rows(contexts, actions, means + 0.1 * rng.standard_normal(shape.rows))
