"""What all ridge policies share: the parameters of their learner. An acting rule is added by each subclass."""

from abc import ABC
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from numpy.random import Generator

from spuir.base.parameters import COUNT, FLAG, POSITIVE, UNIT, either, one_of, optional, parameter
from spuir.base.records import Batch, Codes, Floats, Info
from spuir.core.imputing import LINKS
from spuir.features import FeatureMap, make_features
from spuir.policies.base import Policy
from spuir.policies.exact import ExactSummation, ImputedRewards
from spuir.policies.learner import Learner, Readout, RidgeState
from spuir.policies.rates import BalancedRate, ConstantRate, Rate, ScheduledRate
from spuir.policies.sketched import MOMENTS, SketchedSummation
from spuir.sketches import list_sketches, make_sketch


@dataclass(frozen=True, kw_only=True)
class Ridge(Policy, ABC):
    """A policy that acts on a ridge learner; parameters are words, with the paper's letters in brackets."""

    ridge: float = parameter(1.0, "regularisation (λ)", POSITIVE)
    imputation_rate: float | str = parameter(
        0.0,
        'imputation rate (γ): a number, "paper-schedule" (⌈10 n/N⌉/10) or "balanced"',
        either(UNIT, one_of("paper-schedule", "balanced")),
    )
    discount: float = parameter(0.9, "discount of imputed sums per episode (η)", UNIT)
    balance: float = parameter(1.0, 'with "balanced": imputed weight per observed weight (κ)', POSITIVE)
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
    sketch: str = parameter("identity", "row map of each batch", one_of(*list_sketches()))
    sketch_size: int = parameter(150, "rows of the sketch (c)", COUNT)
    sketch_blocks: int = parameter(1, "blocks of the sketch (D), a divisor of c", COUNT)
    moments: str = parameter("anchored", "how the sketch keeps moments", one_of(*MOMENTS))
    episodes: int | None = parameter(None, "horizon of the schedule (N); 90 if None", optional(COUNT))
    batch_size: int | None = parameter(
        None, "steps of an episode (B), for rules that need the horizon", optional(COUNT)
    )

    state_type = RidgeState

    def __post_init__(self) -> None:
        super().__post_init__()
        make_sketch(self.sketch, size=self.sketch_size, blocks=self.sketch_blocks)
        _ = self.feature_map  # made at once: its module has the record that a saved state is read into

    # ---- the learner, from the parameters -------------------------------------------------------------------

    @cached_property
    def learner(self) -> Learner:
        """What learns: rows → sums → coefficients."""
        return Learner(
            ridge=self.ridge,
            feature_map=self.feature_map,
            summation=self._summation(),
            rate=self._rate(),
            discount=self.discount,
            imputed=ImputedRewards(LINKS[self.link], self.imputed_cap, on=self.imputation_rate != 0),
            forgetting=self.forgetting,
        )

    @cached_property
    def feature_map(self) -> FeatureMap:
        """The map from contexts to feature rows."""
        given: dict[str, Any] = {"intercept": self.intercept}
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

    # ---- what the learner does for the policy ---------------------------------------------------------------

    @property
    def traits(self) -> frozenset[str]:
        """Return what the policy is, as far as its learner decides."""
        return self.learner.traits

    @property
    def draws_to_learn(self) -> bool:
        """Whether a sketch is drawn."""
        return self.learner.summation.sketched

    def width(self, dim: int) -> int:
        """Return the number of feature columns p."""
        return self.feature_map.width(dim)

    def fixed(self, state: RidgeState) -> bool:
        """Return whether the feature map is fixed."""
        return self.learner.fixed(state)

    def init(self, n_actions: int, dim: int, rng: Generator) -> RidgeState:
        """Return zero sums and the drawn feature map."""
        return self.learner.init(n_actions, dim, rng)

    def grow(self, state: RidgeState, like: int | None) -> RidgeState:
        """Return the state with one action more."""
        return self.learner.grow(state, like)

    def basis(self, state: RidgeState) -> Any:
        """Return what collected sums depend on: the feature map, and the acting state unless histories fold."""
        return state.features if "foldable" in self.traits else state

    def check_state(self, state: Any) -> None:
        """Refuse a state of another policy, or of other features."""
        super().check_state(state)
        self.learner.check_state(state)

    def prepare(self, state: RidgeState, batch: Batch) -> RidgeState:
        """Fix what the feature map chooses on the first batch."""
        return self.learner.prepare(state, batch)

    def collect(self, state: RidgeState, batch: Batch, rng: Generator) -> Any:
        """Return a shard's sums."""
        return self.learner.collect(state, self.weighted(state, batch, rng), rng)

    def absorb(self, state: RidgeState, sums: Any) -> tuple[RidgeState, Info]:
        """Fold an episode's sums into the state and solve."""
        return self.learner.absorb(state, sums)

    def weighted(self, state: RidgeState, batch: Batch, rng: Generator) -> Batch:
        """Return the batch with the weights that observed rows carry in learning; a hook for balancing."""
        return batch

    # ---- what the policy learned ----------------------------------------------------------------------------

    def readout(self, state: RidgeState) -> Readout:
        """Return rates, factors and coefficients of a state."""
        return self.learner.readout(state)

    def rates(self, state: RidgeState) -> Floats:
        """Return the imputation rate γ_j in force (M,)."""
        return self.learner.rate.at(state.episode, state.observed, state.imputed)

    def estimates(self, state: RidgeState, contexts: Floats) -> tuple[Floats, Floats]:
        """Return the estimated reward and the width of each context and action, each (n, M)."""
        return self.learner.estimates(state, contexts)

    def coefficients(self, state: RidgeState) -> Floats:
        """Return the coefficients θ (M, p)."""
        return self.readout(state).solved.theta

    def standard_errors(self, state: RidgeState) -> Floats:
        """Return the standard error of each coefficient (M, p)."""
        return self.learner.errors(state).coefficients()

    def mean_errors(self, state: RidgeState, contexts: Floats) -> Floats:
        """Return the standard error of ⟨θ_j,s⟩ of each context and action (n, M)."""
        return self.learner.errors(state).means(self.feature_map.apply(state.features, contexts))

    def contributions(self, state: RidgeState, contexts: Floats, codes: Codes) -> Floats:
        """Return what each source adds to ⟨θ_j,s⟩ of the action ``codes`` (n,) of each context, (n, G)."""
        return self.learner.contributions(state, contexts, codes)

    def source_names(self, state: RidgeState, inputs: list[str]) -> list[str]:
        """Return the names of the sources (G,): columns of features, and a kernel as a whole."""
        return self.feature_map.sources(state.features, inputs)

    def imputed_shares(self, state: RidgeState) -> Floats:
        """Return the share of imputed rows in the weight that each action was fitted on (M,)."""
        return self.learner.imputed_shares(state)

    def feature_names(self, state: RidgeState, inputs: list[str]) -> list[str]:
        """Return the names of the feature columns (p,), given those of the context columns."""
        return self.feature_map.names(state.features, inputs)
