"""What all policies with estimates share, and the parameters of the ridge learner. Subclasses add an acting rule."""

from abc import ABC, abstractmethod
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.random import Generator

from spuir.base.pairs import Pairs
from spuir.base.parameters import COUNT, FLAG, POSITIVE, UNIT, either, one_of, optional, parameter
from spuir.base.records import Batch, Codes, Floats, Info, require_finite
from spuir.core.imputing import LINKS
from spuir.core.statistics import dense_rows, refuse_non_finite
from spuir.features import FeatureMap, make_features
from spuir.policies.base import Policy
from spuir.policies.exact import ExactSummation, ImputedRewards
from spuir.policies.learner import Learner, Readout, RidgeLearner, RidgeState
from spuir.policies.rates import BalancedRate, ConstantRate, Rate, ScheduledRate
from spuir.policies.sketched import MOMENTS, SketchedSummation
from spuir.sketches import list_sketches, make_sketch

ADVICE_ROWS, NEAR_ZERO = 30, 4.0
"""Rows that are enough to see an average reward, and how many standard errors it may be from 0 by chance."""


@dataclass(frozen=True, kw_only=True)
class Estimating(Policy, ABC):
    """A policy that acts on the estimates of a learner."""

    state_type = RidgeState

    @cached_property
    def learner(self) -> Learner:
        """What learns: rows → sums → coefficients."""
        return self.make_learner()

    @abstractmethod
    def make_learner(self) -> Learner:
        """Build the learner from the parameters."""

    # ---- what the learner does for the policy ---------------------------------------------------------------

    @property
    def traits(self) -> frozenset[str]:
        """Return the traits that the learner determines."""
        return self.learner.traits

    @property
    def draws_to_learn(self) -> bool:
        """Whether a sketch is drawn."""
        return "sketched" in self.learner.traits

    @property
    def feature_map(self) -> FeatureMap:
        """The map from contexts to feature rows."""
        return self.learner.feature_map

    def width(self, dim: int) -> int:
        """Return the number of feature columns p."""
        return self.feature_map.width(dim)

    def fixed(self, state: Any) -> bool:
        """Return whether the feature map is fixed."""
        return self.learner.fixed(state)

    def init(self, n_actions: int, dim: int, rng: Generator) -> Any:
        """Return zero sums and the drawn feature map."""
        return self.learner.init(n_actions, dim, rng)

    def grow(self, state: Any, like: int | None) -> Any:
        """Return the state with one action more."""
        return self.learner.grow(state, like)

    def basis(self, state: Any) -> Any:
        """Return what collected sums depend on: the feature map, and the acting state unless histories fold."""
        return state.features if "foldable" in self.traits else state

    def check_state(self, state: Any) -> None:
        """Refuse a state of another policy, or of other features."""
        super().check_state(state)
        for batch in state.waiting:
            require_finite(waiting=batch.contexts)
        self.learner.check_state(state)

    def fix(self, state: Any, contexts: Any, weights: Floats | None = None) -> Any:
        """Fix the feature map on a sample of contexts, as far as it needs no rewards."""
        features = self.feature_map.fix(state.features, contexts, weights=weights)
        return replace(state, features=features)

    def prepare(self, state: Any, batch: Batch) -> tuple[Any, tuple[Batch, ...]]:
        """Fix the feature map on the first episodes; until they have enough rows, they wait in the state."""
        if self.fixed(state):
            return state, (batch,)
        batches = (*state.waiting, batch)
        ready = self.learner.fix(state, batches)
        if self.fixed(ready):
            return replace(ready, episode=state.episode - len(state.waiting), waiting=()), batches
        refuse_non_finite(batch.contexts)
        eligible = batch.eligible.mask if isinstance(batch.eligible, Pairs) else batch.eligible
        kept = deepcopy(replace(batch, contexts=dense_rows(batch.contexts, slice(None)), eligible=eligible))
        return replace(state, episode=state.episode + 1, waiting=(*state.waiting, kept)), ()

    def collect(self, state: Any, batch: Batch, rng: Generator) -> Any:
        """Return a shard's sums."""
        return self.learner.collect(state, self.weighted(state, batch, rng), rng)

    def absorb(self, state: Any, sums: Any) -> tuple[Any, Info]:
        """Fold an episode's sums into the state and solve."""
        return self.learner.absorb(state, sums)

    def weighted(self, state: Any, batch: Batch, rng: Generator) -> Batch:
        """Return the batch with the weights that observed rows carry in learning; a hook for balancing."""
        return batch

    # ---- what the policy learned ----------------------------------------------------------------------------

    def readout(self, state: Any) -> Readout:
        """Return rates, factors and coefficients of a state."""
        return self.learner.readout(state)

    def estimates(self, state: Any, contexts: Floats) -> tuple[Floats, Floats]:
        """Return the estimated reward and the width of each context and action, each (n, M)."""
        return self.learner.estimates(state, contexts)

    def coefficients(self, state: Any) -> Floats:
        """Return the coefficients θ (M, k), per unit of the context columns where they have one."""
        return self.learner.coefficients(state)[0]

    def intercepts(self, state: Any) -> Floats:
        """Return the constant of each action (M,), 0 without an intercept."""
        return self.learner.coefficients(state)[1]

    def standard_errors(self, state: Any) -> Floats:
        """Return the standard error of each coefficient (M, k)."""
        return self.learner.standard_errors(state)

    def mean_errors(self, state: Any, contexts: Floats) -> Floats:
        """Return the standard error of each context's estimate (n, M)."""
        return self.learner.mean_errors(state, contexts)

    def contributions(self, state: Any, contexts: Floats, codes: Codes) -> Floats:
        """Return what each source adds to the estimate of the action ``codes`` (n,) of each context, (n, G)."""
        return self.learner.contributions(state, contexts, codes)

    def source_names(self, state: Any, inputs: list[str]) -> list[str]:
        """Return the names of the sources (G,): columns of features, and a kernel as a whole."""
        return self.feature_map.sources(state.features, inputs)

    def observed_weights(self, state: Any) -> Floats:
        """Return the weight of the observed rows of each action (M,)."""
        return self.learner.observed_weights(state)

    def imputed_shares(self, state: Any) -> Floats:
        """Return the share of imputed rows in the weight that each action was fitted on (M,)."""
        return self.learner.imputed_shares(state)

    def feature_names(self, state: Any, inputs: list[str]) -> list[str]:
        """Return the names of the coefficients (k,), given the names of the context columns."""
        return self.feature_map.names(state.features, inputs)


@dataclass(frozen=True, kw_only=True)
class Ridge(Estimating, ABC):
    """A policy that acts on a ridge learner; parameters are words, with the paper's letters in brackets."""

    ridge: float = parameter(1.0, "regularisation (λ)", POSITIVE)
    imputation_rate: float | str = parameter(
        0.0,
        'imputation rate (γ): a number, "paper-schedule" (⌈10 n/N⌉/10) or "balanced"',
        either(UNIT, one_of("paper-schedule", "balanced")),
    )
    discount: float = parameter(0.9, "discount of imputed sums per episode (η)", UNIT)
    balance: float = parameter(0.1, 'with "balanced": imputed weight per observed weight (κ)', POSITIVE)
    bonus: str = parameter(
        "imputed",
        'what imputed rewards change: estimates and widths ("imputed", the paper\'s), estimates with widths from the '
        'observed sums ("observed"), or widths alone ("only")',
        one_of("imputed", "observed", "only"),
    )
    forgetting: float = parameter(1.0, "discount of observed sums per episode; 1 keeps everything", UNIT)
    link: str = parameter("linear", "expected reward as a function of ⟨θ,s⟩", one_of(*LINKS))
    imputed_cap: float | None = parameter(None, "largest imputed reward of a nonlinear link", optional(POSITIVE))
    features: str = parameter("identity", "feature map of the contexts", one_of("identity", "fourier"))
    n_features: int = parameter(100, "number of random Fourier features", COUNT)
    bandwidth: float | str = parameter(
        "auto", "kernel bandwidth, or chosen on the first batch", either(POSITIVE, one_of("auto"))
    )
    raw: bool = parameter(False, "append the raw context to the random features", FLAG)
    intercept: bool = parameter(False, "append a constant 1 to the features", FLAG)
    scale: bool | float = parameter(False, "standardise the contexts, by a sample of them", FLAG)
    sketch: str = parameter("identity", "row map of each batch", one_of(*list_sketches()))
    sketch_size: int = parameter(150, "rows of the sketch (c)", COUNT)
    sketch_blocks: int = parameter(1, "blocks of the sketch (D), a divisor of c", COUNT)
    moments: str = parameter("anchored", "how the sketch keeps moments", one_of(*MOMENTS))
    episodes: int | None = parameter(None, "horizon of the schedule (N); 90 if None", optional(COUNT))
    batch_size: int | None = parameter(
        None, "steps of an episode (B), for rules that need the horizon", optional(COUNT)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        make_sketch(self.sketch, size=self.sketch_size, blocks=self.sketch_blocks)
        _ = self.learner  # made at once: the module of its map has the record that a saved state is read into

    # ---- the learner, from the parameters -------------------------------------------------------------------

    def make_learner(self) -> RidgeLearner:
        """Build the learner from the parameters."""
        return RidgeLearner(
            ridge=self.ridge,
            feature_map=self._map(),
            summation=self._summation(),
            rate=self._rate(),
            discount=self.discount,
            imputed=ImputedRewards(LINKS[self.link], self.imputed_cap, on=self.imputation_rate != 0),
            forgetting=self.forgetting,
            estimates_imputed=self.bonus != "only",
            widths_imputed=self.bonus != "observed",
        )

    @property
    def scales_contexts(self) -> bool:
        """Whether contexts are standardised."""
        return bool(self.scale)

    def _map(self) -> FeatureMap:
        given: dict[str, Any] = {"intercept": self.intercept, "scale": self.scales_contexts}
        if self.features == "fourier":
            given |= {"n_features": self.n_features, "bandwidth": self.bandwidth, "raw": self.raw, "ridge": self.ridge}
        return make_features(self.features, **given)

    def _summation(self) -> ExactSummation | SketchedSummation:
        if self.sketch == "identity":
            return ExactSummation()
        sketch = make_sketch(self.sketch, size=self.sketch_size, blocks=self.sketch_blocks)
        return SketchedSummation(sketch, MOMENTS[self.moments], self.ridge)

    def _rate(self) -> Rate:
        if self.imputation_rate == "paper-schedule":
            return ScheduledRate(self.episodes)
        if self.imputation_rate == "balanced":
            return BalancedRate(self.balance)
        return ConstantRate(float(self.imputation_rate))

    def advice(self, batch: Batch) -> str | None:
        """Say so where nothing can stand for the average reward: no intercept, no constant column."""
        contexts: Any = batch.contexts
        if self.intercept or self.features != "identity" or hasattr(contexts, "tocsr"):
            return None
        n, mean = len(batch), float(batch.rewards.mean())
        near_zero = n < ADVICE_ROWS or abs(mean) * np.sqrt(n) <= NEAR_ZERO * float(batch.rewards.std())
        if near_zero or (contexts == contexts[:1]).all(axis=0).any():
            return None
        return (
            f"policy {self.name!r} has no intercept and no context column is constant, but rewards average {mean:.3g}: "
            "it cannot learn which action is better on average; pass intercept=True, or use policy='auto'"
        )

    def rates(self, state: RidgeState) -> Floats:
        """Return the current imputation rate γ_j (M,)."""
        return self.readout(state).rates
