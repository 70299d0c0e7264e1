"""The base of all environments: true rewards drawn once from the seed, then contexts and feedback.

An environment has no state: contexts come from the generator passed to ``draw``, noise from the one passed to
``feedback``. Noise is drawn for all M actions, whatever was executed, so that all policies see the same contexts and
the same noise. The payload of the rounds, an array with one entry per row, holds what the environment needs to know
about a row in addition to its context.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from spuir.base import streams
from spuir.base.parameters import COUNT, NON_NEGATIVE, SEED, Rule, check, parameter
from spuir.base.records import Codes, Feedback, Floats, Rounds
from spuir.errors import InputError

CONTEXT_MEAN, CONTEXT_SD = 0.1, 0.04
"""Mean and standard deviation of each context coordinate in the paper's synthetic setting."""

PLURAL = Rule("an integer ≥ 2", lambda v: COUNT.test(v) and v >= 2)
"""Rule for ``dim`` in environments whose actions differ in directions with entries that sum to 0."""


def derived(doc: str) -> Any:
    """Declare a field that ``_settle`` computes at construction, e.g. ``n_actions`` of a table."""
    return field(init=False, metadata={"doc": doc})


@dataclass(frozen=True, kw_only=True)
class Environment(ABC):
    """Where contexts and rewards come from; equal parameters give equal truths."""

    n_actions: int = parameter(5, "number of actions (M)", COUNT)
    dim: int = parameter(40, "number of context columns (d)", COUNT)
    seed: int = parameter(0, "seed of the true parameters; contexts and noise come from the caller's generators", SEED)

    name: ClassVar[str]
    has_clicks: ClassVar[bool] = False
    needs_file: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check(self, "environment", self.name)
        self._settle(streams.generator(self.seed, "environment", "truth", self.name))

    @abstractmethod
    def _settle(self, rng: Generator) -> None:
        """Draw the true parameters and set the derived fields; called once, at construction."""

    def _put(self, **fields: Any) -> None:
        """Set fields of this frozen instance; only ``_settle`` may."""
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def draw(self, n: int, rng: Generator) -> Rounds:
        """Draw n contexts (n, d): independent normal coordinates, mean 0.1 and standard deviation 0.04."""
        return Rounds(contexts=rng.normal(CONTEXT_MEAN, CONTEXT_SD, (n, self.dim)))

    @abstractmethod
    def feedback(self, rounds: Rounds, actions: Codes, rng: Generator) -> Feedback:
        """Return what follows from executing ``actions`` (n,) on ``rounds``; ``all_rewards`` is (n, M)."""

    @abstractmethod
    def expected_rewards(self, rounds: Rounds) -> Floats:
        """Return the expected reward (n, M) of every action."""

    def _executed(self, rounds: Rounds, actions: Codes) -> tuple[Codes, Codes]:
        """Return row numbers and checked action codes: the index of the executed cells of an (n, M) table."""
        codes = np.asarray(actions)
        if codes.shape != (len(rounds),) or (codes.size and codes.dtype.kind not in "iu"):
            raise InputError(
                "actions",
                f"{codes.dtype} of shape {codes.shape}",
                f"{len(rounds)} integer codes are needed",
                "give one per context",
            )
        if codes.size and not 0 <= codes.min() <= codes.max() < self.n_actions:
            wrong = codes[(codes < 0) | (codes >= self.n_actions)][0]
            raise InputError(
                "actions", wrong, f"codes run from 0 to {self.n_actions - 1}", "draw actions for this environment"
            )
        return np.arange(len(codes)), codes.astype(np.intp, copy=False)


@dataclass(frozen=True, kw_only=True)
class GaussianEnvironment(Environment):
    """An environment whose reward is its expectation plus Gaussian noise."""

    noise: float = parameter(
        1.0, "noise to signal: standard deviation of the noise over that of the expected rewards", NON_NEGATIVE
    )

    @property
    @abstractmethod
    def signal(self) -> float:
        """Standard deviation of one action's expected reward over contexts."""

    def feedback(self, rounds: Rounds, actions: Codes, rng: Generator) -> Feedback:
        """Return expected rewards plus noise, drawn for all actions."""
        executed = self._executed(rounds, actions)
        rewards = self.expected_rewards(rounds)
        rewards += self.noise * self.signal * rng.standard_normal(rewards.shape)
        return Feedback(rewards=rewards[executed], all_rewards=rewards)


@dataclass(frozen=True, kw_only=True)
class LinearEnvironment(GaussianEnvironment):
    """A Gaussian environment with linear rewards, whose coefficients θ (M, d) its subclasses draw."""

    coefficients: Floats = field(init=False, repr=False, compare=False)

    def expected_rewards(self, rounds: Rounds) -> Floats:
        """Return ⟨θ_j, s⟩ (n, M)."""
        return rounds.contexts @ self.coefficients.T


def varied_weights(n_actions: int, dim: int, level: float, spread: float, rng: Generator) -> Floats:
    """Draw weights (M, d) under which every action has the same mean and each is best for some contexts.

    On contexts of this module's distribution, ⟨θ_j, s⟩ has mean ``level`` and, without a part that all actions share,
    standard deviation ``spread``: θ_j = level/(0.1·d)·1 + (spread/0.04)·z_j, with directions z_j of length 1
    whose entries sum to zero. Up to d − 1 actions the z_j are orthonormal: the projections are then
    independent and identically distributed, so each is the largest with probability 1/M. Beyond that they are
    independent; for d ≥ 3 each is still the largest somewhere, because all lie on one sphere.
    """
    directions = rng.standard_normal((n_actions, dim))
    directions -= directions.mean(axis=1, keepdims=True)
    if n_actions < dim:
        base, triangle = np.linalg.qr(directions.T)
        directions = (base * np.sign(np.diag(triangle))).T
    else:
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return level / (CONTEXT_MEAN * dim) + spread / CONTEXT_SD * directions
