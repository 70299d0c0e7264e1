"""A setting in which the best action depends on the context, and no action is best on average."""

from dataclasses import dataclass
from typing import ClassVar

from numpy.random import Generator

from spuir.base.parameters import NUMBER, POSITIVE, parameter
from spuir.environments.base import PLURAL, LinearEnvironment, varied_weights


@dataclass(frozen=True, kw_only=True)
class Heterogeneous(LinearEnvironment):
    """Linear rewards whose best action depends on the context: each is best for its fair share.

    Notes
    -----
    Contexts are those of the paper's setting (mean 0.1, standard deviation 0.04). The weights are
    θ_j = level/(0.1·d)·1 + (spread/0.04)·z_j with directions z_j of length 1 that sum to zero: every action
    earns ``level`` on average and varies by ``spread`` with the context. Up to d − 1 actions the z_j are
    orthonormal and each action is best for a share 1/M of the contexts.
    """

    dim: int = parameter(40, "number of context columns (d)", PLURAL)
    level: float = parameter(0.5, "expected reward of every action, on average over contexts", NUMBER)
    spread: float = parameter(0.2, "standard deviation of one action's expected reward over contexts", POSITIVE)

    name: ClassVar[str] = "heterogeneous"

    def _settle(self, rng: Generator) -> None:
        self._put(coefficients=varied_weights(self.n_actions, self.dim, self.level, self.spread, rng))

    @property
    def signal(self) -> float:
        """Standard deviation of one action's expected reward over contexts, without the shared level."""
        return self.spread
