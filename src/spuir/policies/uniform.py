"""Choose uniformly among the eligible actions: the baseline for every other policy."""

from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.random import Generator

from spuir.base.records import Batch, Floats, Info, Mask, Scores, State, require_finite
from spuir.core import ties
from spuir.core.statistics import count_codes, grow, refuse_non_finite
from spuir.errors import ParameterError
from spuir.policies.base import Policy, Recipe


@dataclass(frozen=True, kw_only=True, eq=False)
class UniformState(State):
    """``counts`` (M,): the weight of the rows on which each action was executed."""

    counts: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class UniformSums:
    """The executed rows of a shard: how many, and their weight per action ``counts`` (M,)."""

    rows: int
    counts: Floats

    def __add__(self, other: "UniformSums") -> "UniformSums":
        """Return the counts of both shards."""
        return UniformSums(rows=self.rows + other.rows, counts=self.counts + other.counts)


def executed_weight(state: State, batch: Batch) -> Floats:
    """Return the weight of the rows on which each action was executed (M,), after refusing unusable rows."""
    counts = count_codes(batch.actions, state.n_actions)
    refuse_non_finite(batch.contexts)
    if batch.weights is not None:
        counts = np.bincount(batch.actions, batch.weights, state.n_actions)
    return np.asarray(counts, dtype=np.float64)


@final
@dataclass(frozen=True, kw_only=True)
class Uniform(Policy):
    """Every eligible action with the same probability, whatever was learned. It has no reward model."""

    state_type = UniformState

    @property
    def traits(self) -> frozenset[str]:
        """Return what counting allows: shards add up, and a history folds."""
        return frozenset({"additive", "foldable"})

    def check_state(self, state: UniformState) -> None:
        """Refuse a state of another kind, or counts of other actions."""
        super().check_state(state)
        if state.counts.shape != (state.n_actions,):
            rule = f"{state.n_actions} actions have as many"
            raise ParameterError("policy", f"counts of shape {state.counts.shape}", rule, "call fit to start again")
        require_finite(counts=state.counts)

    def init(self, n_actions: int, dim: int, rng: Generator) -> UniformState:
        """Return zero counts."""
        return UniformState(n_actions=n_actions, dim=dim, counts=np.zeros(n_actions))

    def table(self, state: UniformState, contexts: Floats, eligible: Mask) -> Scores:
        """Return zeros for means, widths and scores, and equal probabilities (n, M)."""
        ties.check_finite(contexts, contexts)
        even = eligible / eligible.sum(axis=1, keepdims=True)
        return Scores(
            means=np.zeros(eligible.shape),
            widths=np.zeros(eligible.shape),
            scores=np.zeros(eligible.shape),
            probabilities=ties.with_floor(even, eligible, self.floor),
        )

    def collect(self, state: UniformState, batch: Batch, rng: Generator) -> UniformSums:
        """Return a shard's counts."""
        return UniformSums(rows=len(batch), counts=executed_weight(state, batch))

    def absorb(self, state: UniformState, sums: UniformSums) -> tuple[UniformState, Info]:
        """Add an episode's counts."""
        counts = state.counts + sums.counts
        after = replace(state, episode=state.episode + 1, counts=counts)
        return after, Info(rows=sums.rows, counts=sums.counts)

    def grow(self, state: UniformState, like: int | None) -> UniformState:
        """Return the state with one more action, which has not been executed yet, whatever ``like`` is."""
        counts = grow(state.counts, None)
        return replace(state, n_actions=state.n_actions + 1, counts=counts)


UNIFORM = Recipe(target=Uniform, defaults={}, paper={}, summary="uniform among the eligible actions")
