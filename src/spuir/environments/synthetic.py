"""The paper's synthetic setting: clicks, conversions after a delay, and a reward that mixes both."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from spuir.environments.clicks import ClickEnvironment


@dataclass(frozen=True, kw_only=True)
class Synthetic(ClickEnvironment):
    """The paper's setting: clicks, delayed conversions, one action best almost everywhere.

    Notes
    -----
    Action j = 0…M−1 has conversion weights w_j with independent normal entries of mean −0.2·j and standard
    deviation (0.01·(j+1))², and delay weights of mean +0.2·j and the same deviation.
    :class:`spuir.environments.clicks.ClickEnvironment` describes what follows from them.
    """

    name: ClassVar[str] = "synthetic"

    def _settle(self, rng: Generator) -> None:
        order = np.arange(self.n_actions)[:, None]
        spread = (0.01 * (order + 1)) ** 2
        shape = (self.n_actions, self.dim)
        conversion = -0.2 * order + spread * rng.standard_normal(shape)
        self._keep(conversion, 0.2 * order + spread * rng.standard_normal(shape))
