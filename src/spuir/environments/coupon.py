"""A stand-in for the paper's commercial product, whose data are private."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from spuir.base.parameters import parameter
from spuir.base.records import Rounds
from spuir.environments.base import CONTEXT_MEAN, PLURAL
from spuir.environments.clicks import ClickEnvironment

CONTEXT_SD = 0.05
LEVEL, BEST_LEVEL, SPREAD = -0.5, 2.15, 0.6


@dataclass(frozen=True, kw_only=True)
class Coupon(ClickEnvironment):
    """Coupons as in the paper's private commercial product: one is best on average, not for everyone.

    Notes
    -----
    Context coordinates are independent normal with mean 0.1 and standard deviation 0.05. Conversion weights are
    w_j = level_j/(0.1·d)·1 + 0.6/(0.05·√d)·z_j, where z_j is Gaussian, centred and scaled to length √d: over
    contexts ⟨w_j, s⟩ has mean level_j, and deviation 0.6, apart from a part that follows the sum of the context. The
    level is 2.15 for the middle action, M // 2, and −0.5 for the others; delays have rate 1.

    These numbers do not come from data. They were *chosen, among many,* so that with 20 episodes of 625 decisions the
    conversion rates are close to those in the paper's table for its commercial product. This closeness is
    therefore no evidence for the paper; only what was not fitted could be, and the order of methods changes from
    draw to draw (``seed``).
    """

    dim: int = parameter(20, "number of context columns (d)", PLURAL)

    name: ClassVar[str] = "coupon"

    def _settle(self, rng: Generator) -> None:
        directions = rng.standard_normal((self.n_actions, self.dim))
        directions -= directions.mean(axis=1, keepdims=True)
        directions *= np.sqrt(self.dim) / np.linalg.norm(directions, axis=1, keepdims=True)
        levels = np.full((self.n_actions, 1), LEVEL)
        levels[self.n_actions // 2] = BEST_LEVEL
        weights = levels / (CONTEXT_MEAN * self.dim) + SPREAD / (CONTEXT_SD * np.sqrt(self.dim)) * directions
        self._keep(weights, np.zeros_like(weights))

    def draw(self, n: int, rng: Generator) -> Rounds:
        """Draw n contexts (n, d): independent normal coordinates, mean 0.1 and standard deviation 0.05."""
        return Rounds(contexts=rng.normal(CONTEXT_MEAN, CONTEXT_SD, (n, self.dim)))
