"""Learners: rows of an episode → sums → coefficients.

:class:`Learner` is what all of them share. SBUCB, PUIR, SPUIR and their variants are one :class:`RidgeLearner`, given a
feature map, a way to sum rows (exact or sketched), a link and an imputation rate. How a policy acts on the
coefficients is the business of its acting rule.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.random import Generator

from spuir.base.pairs import Pairs
from spuir.base.records import Batch, Codes, Floats, Info, State, require_finite
from spuir.core.fit_errors import FitErrors
from spuir.core.imputing import LINKS, Link
from spuir.core.quiet import quietly
from spuir.core.screening import Bound, squared_widths
from spuir.core.solving import Solved, solve
from spuir.core.statistics import Statistics, add_scaled, by_action, dense_rows
from spuir.core.ties import check_finite
from spuir.errors import InputError, ParameterError, ShardError
from spuir.features import FeatureMap, FeatureRows, MapState, enough_rows
from spuir.policies.exact import ExactSummation, ImputedRewards
from spuir.policies.rates import Rate
from spuir.policies.sketched import SketchedSummation


@dataclass(frozen=True, kw_only=True, eq=False)
class RidgeState(State):
    """Sums of a ridge policy over feature rows of p columns.

    ``features`` the drawn feature map; ``observed`` Φ, b of (3) or G, p of (7); ``imputed`` Φ̂, b̂ of (4) or
    Ĝ, p̂ of (8), None before the first imputation; ``shared`` (p, p) the discounted Gram of all rows, T; ``waiting``
    the first episodes, until there are enough rows to fix the feature map on.
    """

    features: MapState
    observed: Statistics
    imputed: Statistics | None = None
    shared: Floats | None = None
    waiting: tuple[Batch, ...] = ()


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
class Learner(ABC):
    """What every learner on feature rows shares.

    Parameters
    ----------
    feature_map
        The map from contexts to feature rows.
    forgetting
        Discount of observed sums per episode.
    """

    feature_map: FeatureMap
    forgetting: float

    @property
    @abstractmethod
    def traits(self) -> frozenset[str]:
        """What follows from how it learns."""

    @property
    def link(self) -> Link:
        """Expected reward as a function of ⟨θ,s⟩."""
        return LINKS["linear"]

    # ---- the feature map ------------------------------------------------------------------------------------

    def fixed(self, state: Any) -> bool:
        """Return whether the feature map is fixed."""
        return self.feature_map.fixed(state.features)

    def fix(self, state: Any, batches: Sequence[Batch]) -> Any:
        """Return the state with its feature map fixed on the rows of some batches, if they are enough."""
        contexts, weights = batches[0].contexts, batches[0].weights
        actions, rewards = batches[0].actions, batches[0].rewards
        if len(batches) > 1:
            contexts = np.concatenate([dense_rows(batch.contexts, slice(None)) for batch in batches])
            weights = np.concatenate([batch.given_weights for batch in batches])
            actions = np.concatenate([batch.actions for batch in batches])
            rewards = np.concatenate([batch.rewards for batch in batches])
        if self.feature_map.scale and not enough_rows(len(actions), weights):
            return state
        return replace(state, features=self.feature_map.fix(state.features, contexts, actions, rewards, weights))

    def rows(self, state: Any, contexts: Any) -> Floats:
        """Return the feature rows (n, p) of contexts that the state acts on."""
        return self.feature_map.apply(state.features, contexts)

    def mapped(self, state: Any, batch: Batch) -> Batch:
        """Return the batch with feature rows in place of contexts; refuse one before the map is fixed."""
        if not self.fixed(state):
            rule = "its feature map is fixed by the first episode"
            remedy = "call fix with a sample of contexts, or learn one episode whole"
            raise ShardError("collect", "a feature map not fixed yet", rule, remedy)
        if batch.revealed is not None and batch.revealed.shape[1] != state.n_actions:
            rule = f"it must be ({len(batch)}, {state.n_actions})"
            raise InputError("revealed", f"shape {batch.revealed.shape}", rule, "give one column per action")
        if self.feature_map.unchanged:
            return batch
        return replace(batch, contexts=FeatureRows(self.feature_map, state.features, batch.contexts))

    # ---- what a learner writes ------------------------------------------------------------------------------

    @abstractmethod
    def init(self, n_actions: int, dim: int, rng: Generator) -> Any:
        """Return zero sums and the drawn feature map."""

    @abstractmethod
    def grow(self, state: Any, like: int | None) -> Any:
        """Return the state with one action more."""

    @abstractmethod
    def check_state(self, state: Any) -> None:
        """Refuse a state that this learner could not have made."""

    @abstractmethod
    def collect(self, state: Any, batch: Batch, rng: Generator) -> Any:
        """Return a shard's sums."""

    @abstractmethod
    def absorb(self, state: Any, sums: Any) -> tuple[Any, Info]:
        """Fold an episode's sums into the state and solve. It may overwrite the sums."""

    @abstractmethod
    def solve(self, state: Any) -> "Readout":
        """Return what acting needs of a state."""

    @abstractmethod
    def standard_errors(self, state: Any) -> Floats:
        """Return the standard error of each coefficient and, where there is one, of the constant."""

    @abstractmethod
    def mean_errors(self, state: Any, contexts: Floats) -> Floats:
        """Return the standard error of each context's estimate (n, M)."""

    # ---- what was learned -----------------------------------------------------------------------------------

    def readout(self, state: Any) -> "Readout":
        """Return rates, factors and coefficients of a state, computed once."""
        return state.derived.get(self, self.solve, state)

    @quietly
    def means(self, readout: "Readout", rows: Floats) -> Floats:
        """Return T(θ_j,s) (M, n), the same linearised reward that is imputed; ⟨θ_j,s⟩ for the linear link."""
        return self.link.score(readout.solved.theta @ rows.T)

    def estimates(self, state: Any, contexts: Floats) -> tuple[Floats, Floats]:
        """Return T(θ_j,s) and ‖s‖ in the inverse of Ψ_j, each (n, M); before a map is fixed, 0 and 1."""
        if not self.fixed(state):
            check_finite(contexts, contexts)
            return np.zeros((len(contexts), state.n_actions)), np.ones((len(contexts), state.n_actions))
        readout = self.readout(state)
        rows = self.rows(state, contexts)
        means = self.means(readout, rows)
        check_finite(means, contexts)
        widths = np.sqrt(squared_widths(readout.solved, rows))
        return np.ascontiguousarray(means.T), np.ascontiguousarray(widths.T)

    @quietly
    def pair_estimates(self, state: Any, contexts: Floats, pairs: Pairs) -> tuple[Floats, Floats]:
        """Return T(θ_j,s) and ‖s‖ in the inverse of Ψ_j of each eligible pair (k,); before a map is fixed, 0 and 1."""
        if not self.fixed(state):
            check_finite(contexts, contexts)
            return np.zeros(len(pairs.codes)), np.ones(len(pairs.codes))
        solved, rows = self.readout(state).solved, self.rows(state, contexts)
        means, widths = np.empty(len(pairs.codes)), np.empty(len(pairs.codes))
        order = by_action(pairs.codes, pairs.n_actions)
        codes, starts = np.unique(pairs.codes[order], return_index=True)
        for code, own in zip(codes, np.split(order, starts[1:]), strict=True):
            chosen = rows[pairs.rows[own]]
            projected = chosen @ solved.roots[code]
            means[own] = self.link.score(chosen @ solved.theta[code])
            widths[own] = np.sqrt(np.vecdot(projected, projected))
        check_finite(means + widths, contexts)
        return means, widths

    def observed_weights(self, state: Any) -> Floats:
        """Return the weight of the observed rows of each action (M,)."""
        return state.observed.weight.copy()

    def contributions(self, state: Any, contexts: Floats, codes: Codes) -> Floats:
        """Return what each source adds to the estimate of the action ``codes`` (n,) of each context, (n, G)."""
        parts = self.readout(state).solved.theta[codes] * self.rows(state, contexts)
        return self.feature_map.by_source(parts, int(state.dim))

    def imputed_shares(self, state: Any) -> Floats:
        """Return the share of imputed rows in the weight of all rows that each action was fitted on (M,)."""
        return np.zeros(int(state.n_actions))

    def offset(self, state: Any) -> float:
        """Return what is to be added to means: the reward that they are relative to."""
        return 0.0

    def noise(self, state: Any) -> float:
        """Return the unit of widths in rewards: an estimated standard deviation, or 1."""
        return 1.0

    def coefficients(self, state: Any) -> tuple[Floats, Floats]:
        """Return the coefficients (M, k), per unit of the context where they have one, and the constants (M,)."""
        return self.feature_map.in_user_units(state.features, self.readout(state).solved.theta)


def widened(batch: Batch) -> Batch:
    """Return the batch for one action more, which was neither eligible nor revealed."""
    tables = {name: getattr(batch, name) for name in ("eligible", "revealed", "revealed_rewards")}
    given = {name: table for name, table in tables.items() if table is not None}
    return replace(batch, **{name: np.pad(table, ((0, 0), (0, 1))) for name, table in given.items()})


@dataclass(frozen=True, kw_only=True)
class RidgeLearner(Learner):
    """Ridge regression per action with imputed rewards.

    Parameters
    ----------
    ridge
        λ.
    summation
        How the rows of an episode become sums, and sums its statistics.
    rate, discount, imputed
        The rule for γ, η, and what is imputed.
    estimates_imputed, widths_imputed
        Whether imputed sums change estimates and widths. What they do not change comes from the observed sums, λI + Φ_j
        instead of Ψ_j.
    """

    ridge: float
    summation: ExactSummation | SketchedSummation
    rate: Rate
    discount: float
    imputed: ImputedRewards
    estimates_imputed: bool = True
    widths_imputed: bool = True

    @property
    def link(self) -> Link:
        """Expected reward as a function of ⟨θ,s⟩."""
        return self.imputed.link

    @property
    def traits(self) -> frozenset[str]:
        """What follows from how it learns."""
        return self._traits

    @cached_property
    def _traits(self) -> frozenset[str]:
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
            waiting=tuple(widened(batch) for batch in state.waiting),
        )

    def check_state(self, state: RidgeState) -> None:
        """Refuse sums of another width: the feature map or its parameters were changed."""
        m, p = state.n_actions, self.feature_map.width(state.dim)
        size = (m, p * p + p + 2)
        tables = [(part.width, part.table.shape) for part in (state.observed, state.imputed) if part is not None]
        shared = None if state.shared is None else state.shared.shape
        if any(table != (p, size) for table in tables) or shared not in (None, (p, p)):
            got, rule = f"sums of shape {tables[0][1]}", f"this policy needs {size} for {p} features"
            raise ParameterError("policy", got, rule, "call fit to start again with changed features")
        imputed = None if state.imputed is None else state.imputed.table
        require_finite(observed=state.observed.table, imputed=imputed, shared=state.shared)
        self.feature_map.check_state(state.features, state.dim)

    # ---- learning: prepare, collect, absorb -----------------------------------------------------------------

    @quietly
    def collect(self, state: RidgeState, batch: Batch, rng: Generator) -> Any:
        """Return a shard's sums."""
        rows = self.mapped(state, batch)
        return self.summation.collect(rows, self.readout(state).solved.theta, self.imputed, rng)

    @quietly
    def absorb(self, state: RidgeState, sums: Any) -> tuple[RidgeState, Info]:
        """Fold an episode's sums into the state and solve: (2) to (4), or (6) to (8), Algorithm 1.

        It may overwrite the sums.
        """
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

    # ---- what was learned -----------------------------------------------------------------------------------

    def solve(self, state: RidgeState) -> Readout:
        """Return rates, factors and coefficients of a state."""
        rates = self.rate.at(state.episode, state.observed, state.imputed)
        # λI + Φ_j + γΦ̂_j and b_j + γb̂_j of (2), or of (6), side by side as in the sums.
        total = state.observed.copied()
        if state.imputed is not None and self.imputed.on:
            if self.rate.per_action:
                total.table[:] += rates[:, None] * state.imputed.table
            else:
                add_scaled(total.table, float(rates[0]), state.imputed.table)
        solved = solve(total.gram, total.moment, self.ridge)  # (2), (6)
        if self.estimates_imputed and self.widths_imputed:
            return Readout(rates, solved, self.ridge, state.shared)
        observed = solve(state.observed.gram.copy(), state.observed.moment, self.ridge)
        if self.widths_imputed:
            return Readout(rates, replace(solved, theta=observed.theta), self.ridge, state.shared)
        # The shared bound of identity 4 holds for Ψ_j only.
        return Readout(rates, replace(observed, theta=solved.theta), self.ridge, shared=None)

    def standard_errors(self, state: RidgeState) -> Floats:
        """Return the standard errors of the ridge fit on the observed rows alone: imputed ones add no information."""
        per_unit, constant = self.feature_map.in_user_units(state.features, np.eye(state.observed.width))
        combined = np.column_stack([per_unit, constant]) if self.feature_map.intercept else per_unit
        return FitErrors.of(state.observed, self.ridge).of_sums(combined)

    def mean_errors(self, state: RidgeState, contexts: Floats) -> Floats:
        """Return the standard error of ⟨θ_j,s⟩ of the fit on the observed rows alone (n, M)."""
        return FitErrors.of(state.observed, self.ridge).of_sums(self.rows(state, contexts).T).T

    def imputed_shares(self, state: RidgeState) -> Floats:
        """Return the share of imputed rows in the weight of all rows that each action was fitted on (M,)."""
        if state.imputed is None or not self.imputed.on:
            return super().imputed_shares(state)
        imputed = self.readout(state).rates * state.imputed.weight
        total = state.observed.weight + imputed
        return np.divide(imputed, total, out=np.zeros(len(total)), where=total > 0)
