"""A plain linear environment, for measuring quality against noise."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from spuir.base.records import Rounds
from spuir.environments.base import LinearEnvironment


@dataclass(frozen=True, kw_only=True)
class Linear(LinearEnvironment):
    """Linear rewards ⟨θ_j, s⟩ of unit variance on centred contexts, plus Gaussian noise.

    Notes
    -----
    Context coordinates are independent normal with mean 0 and variance 1/d, so that contexts have length
    about 1; θ_j is uniform on the sphere of radius √d. Each action's expected reward is then standard
    normal over contexts, and ``noise`` is the noise's standard deviation itself: 0.01 is almost exact, 10
    buries the signal.
    """

    name: ClassVar[str] = "linear"

    def _settle(self, rng: Generator) -> None:
        drawn = rng.standard_normal((self.n_actions, self.dim))
        self._put(coefficients=drawn * np.sqrt(self.dim) / np.linalg.norm(drawn, axis=1, keepdims=True))

    @property
    def signal(self) -> float:
        """Standard deviation of one action's expected reward over contexts: 1."""
        return 1.0

    def draw(self, n: int, rng: Generator) -> Rounds:
        """Draw n contexts (n, d): independent normal coordinates, mean 0 and variance 1/d."""
        return Rounds(contexts=rng.normal(0.0, self.dim**-0.5, (n, self.dim)))
