"""The paper's own form, action by action, in plain NumPy: what the four identities save.

Both classes learn the same episode as the library does. The exact one forms Ŝ_jᵀŜ_j from the rows of
every other action, for each action anew; the sketched one draws a map of its own for S_j and for Ŝ_j.
"""

from typing import Any

import numpy as np
from numpy.random import Generator
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csc_array

from benchmarks.shapes import Floats, Rows, Shape
from spuir.base.streams import generator


class NaivePuir:
    """Exact imputation by per-action products, O(M·B·d²) a batch."""

    def __init__(self, shape: Shape, *, rate: float = 0.1, discount: float = 0.9, ridge: float = 1.0) -> None:
        m, d = shape.actions, shape.dim
        self.rate, self.discount, self.ridge = rate, discount, ridge
        self.gram, self.moment = np.zeros((m, d, d)), np.zeros((m, d))
        self.imputed_gram, self.imputed_moment = np.zeros((m, d, d)), np.zeros((m, d))
        self.theta = np.zeros((m, d))

    def pieces(self, contexts: Floats, rewards: Floats) -> tuple[Floats, Floats]:
        """Return what enters the products for these rows: the rows themselves."""
        return contexts, rewards

    def learn(self, rows: Rows) -> None:
        """Learn one episode."""
        for j in range(len(self.theta)):
            mine = rows.actions == j
            seen, rewards = self.pieces(rows.contexts[mine], rows.rewards[mine])
            self.gram[j] += seen.T @ seen
            self.moment[j] += seen.T @ rewards
            others = rows.contexts[~mine]
            unseen, guesses = self.pieces(others, others @ self.theta[j])
            self.imputed_gram[j] = self.discount * self.imputed_gram[j] + unseen.T @ unseen
            self.imputed_moment[j] = self.discount * self.imputed_moment[j] + unseen.T @ guesses
            psi = self.ridge * np.eye(len(self.gram[j])) + self.gram[j] + self.rate * self.imputed_gram[j]
            self.theta[j] = cho_solve(cho_factor(psi), self.moment[j] + self.rate * self.imputed_moment[j])


class NaiveSpuir(NaivePuir):
    """Sketched imputation with two hashed maps an action, O(M·B·d + M·c·d²) a batch."""

    def __init__(
        self, shape: Shape, *, size: int, rate: float = 0.1, discount: float = 0.9, ridge: float = 1.0
    ) -> None:
        super().__init__(shape, rate=rate, discount=discount, ridge=ridge)
        self.size, self.rng = size, generator(0, "benchmarks", "naive")

    def pieces(self, contexts: Floats, rewards: Floats) -> tuple[Floats, Floats]:
        """Return the sketched rows and rewards (c, …)."""
        return sjlt(contexts, rewards, self.size, self.rng)


def sjlt(contexts: Floats, rewards: Floats, size: int, rng: Generator) -> tuple[Floats, Floats]:
    """Hash each row with a random sign into one of ``size`` buckets, by one sparse product."""
    count = len(contexts)
    signs = rng.integers(2, size=count) * 2.0 - 1.0
    buckets = rng.integers(size, size=count)
    # Compressed by columns, one entry a row, as the library does it: nothing is sorted.
    hashed: Any = csc_array((signs, buckets, np.arange(count + 1)), shape=(size, count))
    return hashed @ contexts, hashed @ rewards
