"""Exponential weights in batches: choose by a softmax of summed reward estimates, mixed with uniform.

π(a|s) = (1−δ)·softmax_a(ρ⟨Θ_a,s⟩) + δ/M, where Θ_a sums, over the steps so far, an estimate of action a's
coefficients; Θ = 0 at first, so that a cold policy is exactly uniform. BEXP3 and BEXP3-IPW differ in that
estimate alone. Softmax and mixing run over the eligible actions of a row.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.random import Generator

from spuir.base.parameters import COUNT, NON_NEGATIVE, POSITIVE, UNIT, Rule, one_of, optional, parameter
from spuir.base.records import Batch, Floats, Info, Mask, Scores, State, require_finite
from spuir.core import ties
from spuir.core.solving import solve
from spuir.core.statistics import Statistics, blocks, dense_rows, grow, summarise
from spuir.errors import NumericalError, ParameterError
from spuir.policies.base import Policy, Recipe
from spuir.policies.uniform import executed_weight


@dataclass(frozen=True, kw_only=True, eq=False)
class ExponentialState(State):
    """Summed estimates of exponential weights.

    ``totals`` (M, d) is Θ; ``counts`` (M,) the weight of the rows on which each action was executed;
    ``history`` the sums of all rows so far, kept with ``accumulate="episodes"`` only.
    """

    totals: Floats
    counts: Floats
    history: Statistics | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class ExponentialSums:
    """What a shard contributes, given the state that acted.

    ``counts`` (M,) the weight of its rows by executed action; ``fit`` the sums from which Θ is estimated.
    """

    rows: int
    counts: Floats
    fit: Statistics

    def __add__(self, other: "ExponentialSums") -> "ExponentialSums":
        """Return the sums of both shards."""
        return ExponentialSums(rows=self.rows + other.rows, counts=self.counts + other.counts, fit=self.fit + other.fit)


@dataclass(frozen=True, kw_only=True)
class Exponential(Policy, ABC):
    """What BEXP3 and BEXP3-IPW share.

    With ``accumulate="steps"`` an episode of total row weight B adds Θ_a += B·θ̂_a, θ̂_a estimated from that
    episode alone. With ``"episodes"``, which is what the authors ran and therefore part of the ``paper``
    preset, Θ_a += θ̂_a from a ridge fit on all rows so far: the rate, made for sums over steps, is then applied
    to a sum over episodes, and the policy stays almost uniform.

    The rate is ρ = √(2(1−δ)·ln M/(M·N·B)). Where ``episodes`` (N) is not given, the episodes so far stand in
    for it, and for ``batch_size`` (B) their mean size; without both, N·B is the steps so far, at least 1.
    """

    mixing: float = parameter(0.001, "share of uniform exploration (δ)", UNIT)
    rate: float | None = parameter(None, "learning rate (ρ); None = from the horizon", optional(NON_NEGATIVE))
    ridge: float = parameter(1.0, "regularisation of the estimates (λ)", POSITIVE)
    accumulate: str = parameter(
        "steps", 'what Θ sums over: "steps", or "episodes" as the authors do', one_of("steps", "episodes")
    )
    episodes: int | None = parameter(None, "horizon in episodes (N); None = those so far", optional(COUNT))
    batch_size: int | None = parameter(None, "steps of an episode (B); None = the mean so far", optional(COUNT))

    state_type = ExponentialState

    @property
    def traits(self) -> frozenset[str]:
        """Return its capabilities: shards add up, given the acting state, on which the sums depend."""
        return frozenset({"additive", "sampling"})

    @abstractmethod
    def fitted(self, state: ExponentialState, batch: Batch) -> Statistics:
        """Return the sums from which Θ is estimated, of rows already checked."""

    def init(self, n_actions: int, dim: int, rng: Generator) -> ExponentialState:
        """Return Θ = 0."""
        return ExponentialState(
            n_actions=n_actions,
            dim=dim,
            totals=np.zeros((n_actions, dim)),
            counts=np.zeros(n_actions),
            history=Statistics.zero(n_actions, dim) if self.accumulate == "episodes" else None,
        )

    def check_state(self, state: ExponentialState) -> None:
        """Refuse a state of another kind or shape, or one that lacks the sums this way of accumulating needs."""
        super().check_state(state)
        m, d = state.n_actions, state.dim
        shapes = (state.totals.shape, state.counts.shape, None if state.history is None else state.history.gram.shape)
        expected = ((m, d), (m,), None if self.accumulate == "steps" else (m, d, d))
        if shapes != expected:
            rule = f"accumulate={self.accumulate!r} needs {expected}"
            raise ParameterError("policy", f"sums of shapes {shapes}", rule, "call fit to start again")
        history = None if state.history is None else state.history.table
        require_finite(totals=state.totals, counts=state.counts, history=history)

    def rate_at(self, state: ExponentialState) -> float:
        """Return the current learning rate ρ."""
        if self.rate is not None:
            return self.rate
        past, steps = max(1, state.episode), max(1.0, float(state.counts.sum()))
        horizon = (self.episodes or past) * (self.batch_size or steps / past)
        m = state.n_actions
        return float(np.sqrt(2.0 * (1.0 - self.mixing) * np.log(m) / (m * horizon)))

    def table(self, state: ExponentialState, contexts: Floats, eligible: Mask) -> Scores:
        """Return, each (n, M), mean rewards, zero widths, the logits ρ⟨Θ_a,s⟩ as scores, and probabilities.

        The mean is ⟨Θ_a,s⟩ over the number of terms in Θ (steps, or episodes): the average of the estimates.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            products = contexts @ state.totals.T
            scores = self.rate_at(state) * products
        ties.check_finite(scores, contexts)
        logits = np.where(eligible, scores, -np.inf)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        rule = (1.0 - self.mixing) * odds / odds.sum(axis=1, keepdims=True)
        rule += self.mixing * (eligible / eligible.sum(axis=1, keepdims=True))
        terms = float(state.counts.sum()) if state.history is None else state.episode
        return Scores(
            means=products / terms if terms else np.zeros_like(products),
            widths=np.zeros_like(products),
            scores=scores,
            probabilities=ties.with_floor(rule, eligible, self.floor),
        )

    def collect(self, state: ExponentialState, batch: Batch, rng: Generator) -> ExponentialSums:
        """Return a shard's sums under the state that acted."""
        counts = executed_weight(state, batch)
        with np.errstate(over="ignore", invalid="ignore"):
            return ExponentialSums(rows=len(batch), counts=counts, fit=self.fitted(state, batch))

    def absorb(self, state: ExponentialState, sums: ExponentialSums) -> tuple[ExponentialState, Info]:
        """Add an episode's estimates to Θ."""
        with np.errstate(over="ignore", invalid="ignore"):
            fit = sums.fit if state.history is None else state.history + sums.fit
            solved = solve(fit.gram.copy(), fit.moment, self.ridge)
            terms = float(sums.counts.sum()) if state.history is None else 1.0
            totals = state.totals + terms * solved.theta
        if not np.all(np.isfinite(totals)):
            raise NumericalError(
                f"summed estimates of policy {self.name!r}",
                "a non-finite value",
                "sums over steps must stay finite",
                "scale rewards and contexts down, or raise ridge",
            )
        after = replace(
            state,
            episode=state.episode + 1,
            totals=totals,
            counts=state.counts + sums.counts,
            history=None if state.history is None else fit,
        )
        return after, Info(rows=sums.rows, counts=sums.counts, code=solved.worst)

    def grow(self, state: ExponentialState, like: int | None) -> ExponentialState:
        """Return the state with one more action; it may copy the estimates of ``like``, but not its steps."""
        return replace(
            state,
            n_actions=state.n_actions + 1,
            totals=grow(state.totals, like),
            counts=grow(state.counts, None),
            history=None if state.history is None else state.history.grown(like),
        )


@final
@dataclass(frozen=True, kw_only=True)
class BatchedExp3(Exponential):
    """BEXP3: θ̂_a = (λI + Σ_b π(a|s_b) s_b s_bᵀ)⁻¹ Σ_{a_b=a} s_b r_b, the first sum over all rows.

    π is that of the state that acted. With ``accumulate="episodes"`` the fit is the plain ridge regression of
    the rows on which a was executed.
    """

    def fitted(self, state: ExponentialState, batch: Batch) -> Statistics:
        """Return the expected Gram Σ_b π(a|s_b) s_b s_bᵀ beside the moment of the executed rows."""
        own = summarise(batch.contexts, batch.actions, batch.rewards, batch.weights, state.n_actions)
        if state.history is not None:  # which adds up episodes
            return own
        gram = np.zeros_like(own.gram)
        mask = ties.eligible_mask(batch.eligible, len(batch), state.n_actions)
        for rows in blocks(len(batch), 8 * (2 * state.dim + 4 * state.n_actions)):
            S = dense_rows(batch.contexts, rows)
            chance = self.acting(state, S, mask[rows], batch.caps).probabilities
            if batch.weights is not None:
                chance *= batch.weights[rows, None]
            for action, root in enumerate(np.sqrt(chance.T)):
                scaled = S * root[:, None]
                gram[action] += scaled.T @ scaled
        return Statistics.of(gram=gram, moment=own.moment, weight=own.weight, energy=own.energy)


CAP = Rule("a finite number ≥ 1", lambda value: POSITIVE.test(value) and value >= 1)


@final
@dataclass(frozen=True, kw_only=True)
class WeightedExp3(Exponential):
    """BEXP3-IPW: θ̂_a = (λI + Σ w_b s_b s_bᵀ)⁻¹ Σ w_b s_b r_b over a_b = a, w_b = min(cap, 1/π(a_b|s_b)).

    π is given with the rows, or else that of the state that acted.
    """

    weight_cap: float = parameter(100.0, "largest inverse propensity", CAP)

    @property
    def traits(self) -> frozenset[str]:
        """Return its capabilities: it weighs rows by their propensities."""
        return super().traits | {"weighting"}

    def fitted(self, state: ExponentialState, batch: Batch) -> Statistics:
        """Return the sums of the executed rows, weighted by their capped inverse propensities."""
        chosen = batch.propensities if batch.propensities is not None else self._own_propensities(state, batch)
        inverse = 1.0 / np.maximum(chosen, 1.0 / self.weight_cap)
        weights = inverse if batch.weights is None else inverse * batch.weights
        return summarise(batch.contexts, batch.actions, batch.rewards, weights, state.n_actions)

    def _own_propensities(self, state: ExponentialState, batch: Batch) -> Floats:
        mask = ties.eligible_mask(batch.eligible, len(batch), state.n_actions)
        chosen = np.empty(len(batch))
        for rows in blocks(len(batch), 8 * (state.dim + 4 * state.n_actions)):
            table = self.acting(state, dense_rows(batch.contexts, rows), mask[rows], batch.caps)
            chosen[rows] = table.probabilities[np.arange(len(table.probabilities)), batch.actions[rows]]
        return chosen


BEXP3 = Recipe(
    target=BatchedExp3,
    defaults={},
    paper={"mixing": 0.001, "ridge": 1.0, "accumulate": "episodes"},
    summary="exponential weights in batches (Neu and Olkhovskaya 2020)",
)
BEXP3_IPW = Recipe(
    target=WeightedExp3,
    defaults={},
    paper={"mixing": 0.001, "ridge": 1.0, "weight_cap": 100.0, "accumulate": "episodes"},
    summary="exponential weights in batches on inversely weighted rows (Bistritz et al. 2019)",
)
