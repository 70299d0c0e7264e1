"""Thompson acting on ridge estimates: scores are independent normals, the largest wins.

A fresh coefficient vector for every step and action means independent scores z_a ~ N(⟨θ_a,s⟩, μ² sᵀΨ_a⁻¹s), so
no vector of d dimensions is ever drawn. The probability that an action's score is the largest is a
one-dimensional integral; actions are drawn from those probabilities, which makes the propensities exact.
"""

from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.random import Generator

from spuir.base.pairs import Pairs
from spuir.base.parameters import COUNT, FLAG, NON_NEGATIVE, UNIT, optional, parameter
from spuir.base.records import Batch, Codes, Decision, Floats, Mask, Scores
from spuir.base.streams import Draws
from spuir.core import ties
from spuir.core.normals import monte_carlo_probabilities, win_probabilities
from spuir.core.statistics import dense_rows, refuse_non_finite
from spuir.policies.base import Recipe
from spuir.policies.learner import RidgeState
from spuir.policies.ridge import Ridge

SCORES, PROPENSITIES = 1, 2
"""Lanes of the draws: sampled scores, and the joint draws that estimate propensities."""


@final
@dataclass(frozen=True, kw_only=True)
class Thompson(Ridge):
    """Choose each action with the probability that its sampled score is the largest.

    With ``propensity_floor`` f > 0 learning is balanced (Dimakopoulou et al. 2019): a row weighs
    1/max(f, p), p being the probability of its action. With ``propensity_draws`` the probabilities are
    estimated from that many joint draws, as the authors do, and marked as not exact.
    """

    scale: float = parameter(0.25, "standard deviation of a score per unit of width (μ)", NON_NEGATIVE)
    scale_contexts: bool = parameter(False, "standardise the contexts, by a sample of them", FLAG)
    propensity_floor: float = parameter(0.0, "least propensity used in balancing; 0 = no balancing", UNIT)
    propensity_draws: int | None = parameter(None, "Monte-Carlo draws; None = quadrature", optional(COUNT))

    @property
    def traits(self) -> frozenset[str]:
        """Return the learner's traits and sampling; balancing weighs by propensities, and reads the acting state."""
        held = super().traits | {"sampling"}
        return held - {"foldable"} | {"weighting"} if self.propensity_floor else held

    @property
    def scales_contexts(self) -> bool:
        """Whether contexts are standardised; the name ``scale`` has another meaning here."""
        return self.scale_contexts

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
            probabilities=ties.with_floor(rule, eligible, self.floor),
        )

    def decide(
        self, state: RidgeState, contexts: Floats, rng: Generator | Draws, eligible: Mask | Pairs | None = None
    ) -> Decision:
        """Draw actions from their win probabilities, or by sampled scores with Monte-Carlo propensities."""
        if self.propensity_draws is None:
            return super().decide(state, contexts, rng, eligible)
        draws = Draws.of(rng, len(contexts))
        mask = self._allowed(state, contexts, eligible)
        means, widths = self.estimates(state, contexts)
        scores = means + self.scale * widths * draws.normals(SCORES, state.n_actions)
        sampled = ties.Winners.of(np.where(mask, scores, -np.inf).T)
        actions, _ = sampled.draw(draws.uniforms_at, np.ascontiguousarray(mask.T), self.floor)
        propensities = self._estimated(means, widths, mask, draws, actions)
        return Decision(actions, propensities, lambda: self.table(state, contexts, mask), exact=False)

    def _estimated(self, means: Floats, widths: Floats, mask: Mask, draws: Draws, executed: Codes) -> Floats:
        count, m = self.propensity_draws or 1, means.shape[1]

        def normals(rows: slice) -> Floats:
            return draws.normals(PROPENSITIES, m * count, rows).reshape(-1, m, count)

        rule = monte_carlo_probabilities(means, self.scale * widths, mask, count, normals, executed)
        options = mask.sum(axis=1)
        lost = ties.explored_share(self.floor, options)
        return rule if self.floor == 0 else lost / options + (1.0 - lost) * rule

    def weighted(self, state: RidgeState, batch: Batch, rng: Generator) -> Batch:
        """Return the batch with each row weighing 1/max(f, p), p under the state before the update."""
        if not self.propensity_floor:
            return batch
        chosen = batch.propensities
        if chosen is None:
            chosen = self._own_propensities(state, batch, rng)
        balance = 1.0 / np.maximum(self.propensity_floor, chosen)
        with np.errstate(over="ignore"):  # an infinite weight is refused where rows are summed
            return replace(batch, weights=balance if batch.weights is None else balance * batch.weights)

    def _own_propensities(self, state: RidgeState, batch: Batch, rng: Generator) -> Floats:
        mask = ties.eligible_mask(batch.eligible, len(batch), state.n_actions)
        refuse_non_finite(batch.contexts)
        out = np.empty(len(batch))
        for rows in ties.row_blocks(len(batch), state.dim + state.n_actions):
            contexts, executed = dense_rows(batch.contexts, rows), batch.actions[rows]
            if self.propensity_draws is None or batch.caps is not None:
                table = self.acting(state, contexts, mask[rows], batch.caps)
                out[rows] = table.probabilities[np.arange(len(contexts)), executed]
            else:
                means, widths = self.estimates(state, contexts)
                out[rows] = self._estimated(means, widths, mask[rows], Draws.of(rng, len(contexts)), executed)
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
