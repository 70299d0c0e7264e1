"""The learner of the ridge policies: rows of an episode → sums → coefficients, with imputed rewards.

SBUCB, PUIR, SPUIR and their variants are one learner, given a feature map, a way to sum rows (exact or sketched), a
link and an imputation rate. How a policy acts on the coefficients is the business of its acting rule.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.random import Generator

from spuir.base.records import Batch, Codes, Floats, Info, State, require_finite
from spuir.core.fit_errors import FitErrors
from spuir.core.imputing import Link
from spuir.core.quiet import quietly
from spuir.core.screening import Bound, squared_widths
from spuir.core.solving import Solved, solve
from spuir.core.statistics import Statistics, add_scaled, dense_rows
from spuir.core.ties import check_finite
from spuir.errors import InputError, ParameterError, ShardError
from spuir.features import FeatureMap, FeatureRows, MapState
from spuir.policies.exact import ExactSummation, ImputedRewards
from spuir.policies.rates import Rate
from spuir.policies.sketched import SketchedSummation


@dataclass(frozen=True, kw_only=True, eq=False)
class RidgeState(State):
    """Sums of a ridge policy over feature rows of p columns.

    ``features`` the drawn feature map; ``observed`` Φ, b of (3) or G, p of (7); ``imputed`` Φ̂, b̂ of (4) or
    Ĝ, p̂ of (8), None before the first imputation; ``shared`` (p, p) the discounted Gram of all rows, T.
    """

    features: MapState
    observed: Statistics
    imputed: Statistics | None = None
    shared: Floats | None = None


@dataclass(frozen=True, eq=False)
class Readout:
    """What acting needs of a state: rates γ (M,), the factored matrices and coefficients, the shared bound."""

    rates: Floats
    solved: Solved
    ridge: float
    shared: Floats | None

    @cached_property
    def bound(self) -> Bound | None:
        """The bound of identity 4: P = λI + γT ⪯ Ψ_j, with the smallest positive rate; None where there is none."""
        positive = self.rates[self.rates > 0]
        if self.shared is None or not len(positive):
            return None
        return Bound.of(positive.min() * self.shared, self.ridge, self.solved, np.flatnonzero(self.rates == 0))


@dataclass(frozen=True, kw_only=True)
class Learner:
    """Ridge regression per action with imputed rewards.

    Parameters
    ----------
    ridge
        λ.
    feature_map
        The map from contexts to feature rows.
    summation
        How the rows of an episode become sums, and sums its statistics.
    rate, discount, imputed
        The rule for γ, η, and what is imputed.
    forgetting
        Discount of observed sums per episode.
    """

    ridge: float
    feature_map: FeatureMap
    summation: ExactSummation | SketchedSummation
    rate: Rate
    discount: float
    imputed: ImputedRewards
    forgetting: float

    @property
    def link(self) -> Link:
        """Expected reward as a function of ⟨θ,s⟩."""
        return self.imputed.link

    @cached_property
    def traits(self) -> frozenset[str]:
        """What follows from how it learns."""
        linear = self.link.linear or not self.imputed.on
        summation = self.summation
        holds = {
            "ridge": True,
            "imputing": self.imputed.on,
            "sketched": summation.sketched,
            "additive": summation.additive,
            "foldable": summation.foldable and linear,
        }
        return frozenset(name for name, true in holds.items() if true)

    # ---- state ----------------------------------------------------------------------------------------------

    def init(self, n_actions: int, dim: int, rng: Generator) -> RidgeState:
        """Return zero sums and the drawn feature map."""
        zero = Statistics.zero(n_actions, self.feature_map.width(dim))
        return RidgeState(n_actions=n_actions, dim=dim, features=self.feature_map.init(dim, rng), observed=zero)

    def fixed(self, state: RidgeState) -> bool:
        """Return whether the feature map is fixed."""
        return self.feature_map.fixed(state.features)

    def grow(self, state: RidgeState, like: int | None) -> RidgeState:
        """Return the state with one action more; the shared bound restarts, since it knows nothing of that action."""
        imputed = None if state.imputed is None else state.imputed.grown(like)
        shared = None if state.shared is None else np.zeros_like(state.shared)
        return replace(
            state,
            n_actions=state.n_actions + 1,
            observed=state.observed.grown(like),
            imputed=imputed,
            shared=shared,
        )

    def check_state(self, state: RidgeState) -> None:
        """Refuse sums of another width: the feature map or its parameters were changed."""
        m, p = state.n_actions, self.feature_map.width(state.dim)
        size = (m, p * p + p + 2)
        tables = [(part.width, part.table.shape) for part in (state.observed, state.imputed) if part is not None]
        shared = None if state.shared is None else state.shared.shape
        if any(table != (p, size) for table in tables) or shared not in (None, (p, p)):
            got, rule = f"sums of shape {tables[0][1]}", f"this policy needs {size} for {p} features"
            raise ParameterError("policy", got, rule, "call fit to start anew with changed features")
        imputed = None if state.imputed is None else state.imputed.table
        require_finite(observed=state.observed.table, imputed=imputed, shared=state.shared)
        self.feature_map.check_state(state.features, state.dim)

    # ---- learning: prepare, collect, absorb -----------------------------------------------------------------

    def prepare(self, state: RidgeState, batch: Batch) -> RidgeState:
        """Fix what the feature map chooses on the first batch."""
        if self.fixed(state):
            return state
        contexts = dense_rows(batch.contexts, slice(None))
        fixed = self.feature_map.fix(state.features, contexts, batch.actions, batch.rewards, batch.weights)
        return replace(state, features=fixed)

    @quietly
    def collect(self, state: RidgeState, batch: Batch, rng: Generator) -> Any:
        """Return a shard's sums."""
        if not self.fixed(state):
            rule, remedy = "its bandwidth comes from the first episode", "learn one episode whole, or give a bandwidth"
            raise ShardError("collect", "a feature map not fixed yet", rule, remedy)
        rows = self._mapped(state, batch)
        return self.summation.collect(rows, self.readout(state).solved.theta, self.imputed, rng)

    @quietly
    def absorb(self, state: RidgeState, sums: Any) -> tuple[RidgeState, Info]:
        """Fold an episode's sums into the state and solve: (2) to (4), or (6) to (8). It may overwrite the sums."""
        episode = self.summation.episode(sums, self.readout(state).solved.theta, self.imputed.on)
        imputed, shared, seen = state.imputed, state.shared, episode.seen
        if episode.hidden is not None and episode.total is not None:
            imputed = episode.hidden if imputed is None else imputed.then(self.discount, episode.hidden)  # (4), (8)
            kept = min(self.discount, self.forgetting)
            if shared is not None:
                add_scaled(episode.total, kept, shared)
            shared = episode.total
        elif shared is not None:
            shared = self.forgetting * shared  # imputation was switched off: what is observed still fades
        counts = seen.weight.copy()
        after = RidgeState(
            n_actions=state.n_actions,
            dim=state.dim,
            episode=state.episode + 1,
            features=state.features,
            observed=state.observed.then(self.forgetting, seen),  # (3), (7)
            imputed=imputed,
            shared=shared,
        )
        readout = self.readout(after)
        return after, Info(sums.rows, counts, readout.rates, readout.solved.worst)

    def _mapped(self, state: RidgeState, batch: Batch) -> Batch:
        """Return the batch with feature rows in place of contexts."""
        if batch.revealed is not None and batch.revealed.shape[1] != state.n_actions:
            rule = f"it must be ({len(batch)}, {state.n_actions})"
            raise InputError("revealed", f"shape {batch.revealed.shape}", rule, "give one column per action")
        if self.feature_map.unchanged:
            return batch
        return replace(batch, contexts=FeatureRows(self.feature_map, state.features, batch.contexts))

    # ---- what was learned -----------------------------------------------------------------------------------

    def readout(self, state: RidgeState) -> Readout:
        """Return rates, factors and coefficients of a state, computed once."""
        return state.derived.get(self, self._solve, state)

    def _solve(self, state: RidgeState) -> Readout:
        rates = self.rate.at(state.episode, state.observed, state.imputed)
        # λI + Φ_j + γΦ̂_j and b_j + γb̂_j of (2), or of (6), side by side as in the sums.
        total = state.observed.copied()
        if state.imputed is not None and self.imputed.on:
            if self.rate.per_action:
                total.table[:] += rates[:, None] * state.imputed.table
            else:
                add_scaled(total.table, float(rates[0]), state.imputed.table)
        solved = solve(total.gram, total.moment, self.ridge)  # (2), (6)
        return Readout(rates, solved, self.ridge, state.shared)

    @quietly
    def means(self, readout: Readout, rows: Floats) -> Floats:
        """Return T(θ_j,s) (M, n), the same linearised reward that is imputed; ⟨θ_j,s⟩ for the linear link."""
        return self.link.score(readout.solved.theta @ rows.T)

    def estimates(self, state: RidgeState, contexts: Floats) -> tuple[Floats, Floats]:
        """Return T(θ_j,s) and ‖s‖ in the inverse of Ψ_j, each (n, M); before a map is fixed, 0 and 1."""
        if not self.fixed(state):
            check_finite(contexts, contexts)
            return np.zeros((len(contexts), state.n_actions)), np.ones((len(contexts), state.n_actions))
        readout = self.readout(state)
        rows = self.feature_map.apply(state.features, contexts)
        means = self.means(readout, rows)
        check_finite(means, contexts)
        widths = np.sqrt(squared_widths(readout.solved, rows))
        return np.ascontiguousarray(means.T), np.ascontiguousarray(widths.T)

    def errors(self, state: RidgeState) -> FitErrors:
        """Return the standard errors of the ridge fits on the observed rows alone: imputed rows add no information."""
        return FitErrors.of(state.observed, self.ridge)

    def contributions(self, state: RidgeState, contexts: Floats, codes: Codes) -> Floats:
        """Return what each source of features adds to ⟨θ_j,s⟩ of the action ``codes`` (n,) of each context, (n, G)."""
        rows = self.feature_map.apply(state.features, contexts)
        return self.feature_map.by_source(self.readout(state).solved.theta[codes] * rows, state.dim)

    def imputed_shares(self, state: RidgeState) -> Floats:
        """Return the share of imputed rows in the weight of all rows that each action was fitted on (M,)."""
        observed = state.observed.weight
        if state.imputed is None or not self.imputed.on:
            return np.zeros(len(observed))
        imputed = self.readout(state).rates * state.imputed.weight
        total = observed + imputed
        return np.divide(imputed, total, out=np.zeros(len(total)), where=total > 0)
