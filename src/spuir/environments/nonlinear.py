"""Settings whose expected reward is not linear in the context."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
from numpy.random import Generator

from spuir.base.parameters import one_of, parameter
from spuir.base.records import Floats, Rounds
from spuir.base.streams import generator
from spuir.environments.base import CONTEXT_MEAN, CONTEXT_SD, PLURAL, GaussianEnvironment, varied_weights

REFERENCE_ROWS = 4096


RewardFunction = Callable[[Floats], Floats]
"""Expected rewards (n, M) of contexts (n, d)."""


@dataclass(frozen=True)
class LinkedReward:
    """g⟨θ_j, s⟩ for a function g and weights θ (M, d)."""

    link: Callable[[Floats], Floats]
    weights: Floats

    def __call__(self, contexts: Floats) -> Floats:
        """Return expected rewards (n, M)."""
        return self.link(contexts @ self.weights.T)


def exponential(n_actions: int, dim: int, rng: Generator) -> LinkedReward:
    """Draw exp⟨θ_j, s⟩ with ⟨θ_j, s⟩ of mean −1 and standard deviation 0.5."""
    return LinkedReward(np.exp, varied_weights(n_actions, dim, -1.0, 0.5, rng))


def polynomial(n_actions: int, dim: int, rng: Generator) -> LinkedReward:
    """Draw ⟨θ_j, s⟩² with ⟨θ_j, s⟩ of mean 0.15 and deviation 0.5: large where it is far from 0 on either side."""
    return LinkedReward(np.square, varied_weights(n_actions, dim, 0.15, 0.5, rng))


@dataclass(frozen=True)
class RadialReward:
    """½ + Σ_k a_jk·(k(s, c_k) − k̄_k) with a Gaussian kernel k, scaled to a standard deviation of 0.2."""

    centres: Floats
    weights: Floats
    averages: Floats

    level: ClassVar[float] = 0.5
    spread: ClassVar[float] = 0.2
    n_centres: ClassVar[int] = 50
    reach: ClassVar[float] = 0.4

    @classmethod
    def settle(cls, n_actions: int, dim: int, rng: Generator) -> Self:
        """Draw centres c (K, d) like contexts, and weights a (M, K)."""
        centres = rng.normal(CONTEXT_MEAN, CONTEXT_SD, (cls.n_centres, dim))
        weights = rng.standard_normal((n_actions, cls.n_centres))
        kernel = cls._kernel(rng.normal(CONTEXT_MEAN, CONTEXT_SD, (REFERENCE_ROWS, dim)), centres)
        scale = cls.spread / (kernel @ weights.T).std(axis=0)
        return cls(centres, weights * scale[:, None], kernel.mean(axis=0))

    @classmethod
    def _kernel(cls, contexts: Floats, centres: Floats) -> Floats:
        """Return k(s, c) (n, K); the bandwidth is 0.4 of the root mean square distance of two contexts."""
        gap = np.square(contexts).sum(axis=1)[:, None] - 2 * contexts @ centres.T + np.square(centres).sum(axis=1)
        return np.exp(-0.5 * gap / (cls.reach**2 * 2 * CONTEXT_SD**2 * centres.shape[1]))

    def __call__(self, contexts: Floats) -> Floats:
        """Return expected rewards (n, M)."""
        return self.level + (self._kernel(contexts, self.centres) - self.averages) @ self.weights.T


REWARD_FUNCTIONS: Mapping[str, Callable[[int, int, Generator], RewardFunction]] = {
    "exp": exponential,
    "poly": polynomial,
    "rbf": RadialReward.settle,
}


@dataclass(frozen=True, kw_only=True)
class Nonlinear(GaussianEnvironment):
    """Nonlinear rewards (truth = exp, poly or rbf) whose best action depends on the context.

    Notes
    -----
    Contexts are those of the paper's setting, in ten columns by default: with many more, distances between
    contexts hardly differ and every smooth function looks linear. ``exp`` and ``poly`` are the paper's G_E and
    G_P, ``rbf`` a function in a Gaussian reproducing-kernel space. The signal, to which ``noise`` refers, is
    the root mean square over actions of the expected reward's standard deviation over reference contexts.
    """

    dim: int = parameter(10, "number of context columns (d)", PLURAL)
    truth: str = parameter("rbf", "form of the expected reward", one_of(*REWARD_FUNCTIONS))

    function: RewardFunction = field(init=False, repr=False, compare=False)
    deviation: float = field(init=False, repr=False, compare=False)

    name: ClassVar[str] = "nonlinear"

    def _settle(self, rng: Generator) -> None:
        self._put(function=REWARD_FUNCTIONS[self.truth](self.n_actions, self.dim, rng))
        reference = self.draw(REFERENCE_ROWS, generator(self.seed, "environment", "reference", self.name))
        self._put(deviation=float(np.sqrt(self.function(reference.contexts).var(axis=0).mean())))

    @property
    def signal(self) -> float:
        """Standard deviation of one action's expected reward over contexts, on average over actions."""
        return self.deviation

    def expected_rewards(self, rounds: Rounds) -> Floats:
        """Return the true function of the contexts (n, M)."""
        return self.function(rounds.contexts)
