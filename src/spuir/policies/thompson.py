"""Thompson acting on ridge estimates: scores are independent normals, the largest wins.

A fresh coefficient vector for every step and action means independent scores z_a ~ N(⟨θ_a,s⟩, μ² sᵀΨ_a⁻¹s), so
nothing of d dimensions is ever drawn. The probability that an action's score is the largest is a
one-dimensional integral; actions are drawn from those probabilities, which makes the propensities exact.
"""

from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.random import Generator

from spuir.base.parameters import COUNT, NON_NEGATIVE, UNIT, optional, parameter
from spuir.base.records import Batch, Codes, Decision, Floats, Mask, Scores
from spuir.core import ties as scoring
from spuir.core.normals import monte_carlo_probabilities, win_probabilities
from spuir.core.statistics import refuse_non_finite
from spuir.policies.base import Recipe
from spuir.policies.ridge import Ridge, RidgeState


@final
@dataclass(frozen=True, kw_only=True)
class Thompson(Ridge):
    """Choose each action with the probability that its sampled score is the largest.

    With ``propensity_floor`` f > 0 learning is balanced (Dimakopoulou et al. 2019): a row weighs
    1/max(f, p), p being the probability of its action. With ``propensity_draws`` the probabilities are
    estimated from that many joint draws, as the authors do, and marked as not exact.
    """

    scale: float = parameter(0.25, "standard deviation of a score per unit of width (μ)", NON_NEGATIVE)
    propensity_floor: float = parameter(0.0, "least propensity used in balancing; 0 = no balancing", UNIT)
    propensity_draws: int | None = parameter(None, "Monte-Carlo draws; None = quadrature", optional(COUNT))

    @property
    def traits(self) -> frozenset[str]:
        """Return the learning half's capabilities and sampling; balancing reads the acting state."""
        return (super().traits | {"sampling"}) - ({"foldable"} if self.propensity_floor else frozenset[str]())

    @property
    def draws_to_learn(self) -> bool:
        """Whether a sketch or Monte-Carlo propensities are drawn."""
        return super().draws_to_learn or self.propensity_draws is not None

    def table(self, state: RidgeState, contexts: Floats, eligible: Mask) -> Scores:
        """Return means, widths, the means as scores, and win probabilities (n, M)."""
        means, widths = self.estimates(state, contexts)
        rule = win_probabilities(means, self.scale * widths, eligible)
        return Scores(
            means=means,
            widths=widths,
            scores=np.array(means),
            probabilities=scoring.with_floor(rule, eligible, self.floor),
        )

    def decide(self, state: RidgeState, contexts: Floats, rng: Generator, eligible: Mask | None = None) -> Decision:
        """Draw actions from their win probabilities, or by sampled scores with Monte-Carlo propensities."""
        if self.propensity_draws is None:
            return super().decide(state, contexts, rng, eligible)
        mask = scoring.eligible_mask(eligible, len(contexts), state.n_actions)
        scoring.check_floor(self.floor, mask)
        means, widths = self.estimates(state, contexts)
        scores = means + self.scale * widths * rng.standard_normal(means.shape)
        sampled = scoring.Winners.of(np.where(mask, scores, -np.inf).T)
        actions, _ = sampled.draw(rng.random(len(means)), np.ascontiguousarray(mask.T), self.floor)
        propensities = self._estimated(means, widths, mask, rng, actions)
        return Decision(actions, propensities, lambda: self.table(state, contexts, mask), exact=False)

    def _estimated(self, means: Floats, widths: Floats, mask: Mask, rng: Generator, executed: Codes) -> Floats:
        draws = self.propensity_draws or 1
        rule = monte_carlo_probabilities(means, self.scale * widths, mask, draws, rng, executed)
        return self.floor + (1.0 - self.floor * mask.sum(axis=1)) * rule if self.floor else rule

    def weighted(self, state: RidgeState, batch: Batch, rng: Generator) -> Batch:
        """Return the batch with each row weighing 1/max(f, p), p under the state before the update."""
        if not self.propensity_floor:
            return batch
        chosen = batch.propensities
        if chosen is None:
            chosen = self._own_propensities(state, batch, rng)
        balance = 1.0 / np.maximum(self.propensity_floor, chosen)
        return replace(batch, weights=balance if batch.weights is None else balance * batch.weights)

    def _own_propensities(self, state: RidgeState, batch: Batch, rng: Generator) -> Floats:
        mask = scoring.eligible_mask(batch.eligible, len(batch), state.n_actions)
        refuse_non_finite(batch.contexts)
        out = np.empty(len(batch))
        for rows, contexts in self.context_blocks(state, batch):
            if self.propensity_draws is None:
                table = self.table(state, contexts, mask[rows])
                out[rows] = table.probabilities[np.arange(len(contexts)), batch.actions[rows]]
            else:
                means, widths = self.estimates(state, contexts)
                out[rows] = self._estimated(means, widths, mask[rows], rng, batch.actions[rows])
        return out


LINEAR_THOMPSON = Recipe(
    target=Thompson, defaults={"scale": 0.25}, paper={}, summary="linear Thompson sampling with exact propensities"
)
BLTS_B = Recipe(
    target=Thompson,
    defaults={"scale": 0.25, "propensity_floor": 0.2},
    paper={"propensity_draws": 100},
    summary="balanced linear Thompson sampling in batches (Dimakopoulou et al. 2019)",
)
