"""Optimistic acting: argmax_j ⟨θ_j,s⟩ + α‖s‖ in the inverse of Ψ_j. SBUCB, PUIR, SPUIR and their variants.

They differ only in what is given to one class: an imputation rate, a sketch, a link, a feature map.
"""

from abc import ABC
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.random import Generator

from spuir.base.pairs import Pairs
from spuir.base.parameters import COUNT, FLAG, NON_NEGATIVE, parameter
from spuir.base.records import Codes, Decision, Floats, Mask, Scores
from spuir.base.streams import Draws
from spuir.core import choosing, screening, ties
from spuir.core.quiet import quietly
from spuir.errors import InputError
from spuir.policies.base import Recipe
from spuir.policies.learner import RidgeState
from spuir.policies.ridge import Estimating, Ridge

ONE_ROW = 2**21
"""With at most this many numbers in all factors, one context is scored without screening, which would not pay."""


@dataclass(frozen=True, kw_only=True)
class Optimism(Estimating, ABC):
    """Acts by the largest upper confidence bound, on the estimates of any learner.

    With ``levels`` k > 1 the bonus is randomised: each context draws one of the weights α·(2i + 1)/k, i = 0…k−1, which
    average α. The probability of an action is then the share of the levels at which it wins.
    """

    alpha: float = parameter(0.1, "weight of the width (ω of PUIR, α of SPUIR)", NON_NEGATIVE)
    levels: int = parameter(1, "weights of the width among which a context draws, spread evenly around alpha", COUNT)
    screen: bool = parameter(True, "skip widths that one bound for all actions makes unnecessary; same actions", FLAG)

    @property
    def traits(self) -> frozenset[str]:
        """Return the learner's traits, and sampling where the bonus is randomised."""
        return super().traits | ({"sampling"} if self.levels > 1 else frozenset[str]())

    @cached_property
    def _levels(self) -> tuple[float, ...]:
        return tuple((2 * level + 1) / self.levels for level in range(self.levels))

    @quietly
    def table(self, state: RidgeState, contexts: Floats, eligible: Mask) -> Scores:
        """Return means, widths, mean + α·width and probabilities (n, M)."""
        means, widths = self.estimates(state, contexts)
        bonuses = self._alpha(state) * widths
        ties.check_finite(means + self._levels[-1] * bonuses, contexts)
        # Before a map is fixed all scores of a context are equal, so that the same actions tie at every level.
        levels = self._levels if self.learner.fixed(state) else self._levels[:1]
        rule = np.zeros(means.shape)
        for level in levels:
            rule += ties.argmax_probabilities(means + level * bonuses, eligible)
        offset = self.learner.offset(state)
        return Scores(
            means=means + offset,
            widths=widths,
            scores=means + bonuses + offset,
            probabilities=ties.with_floor(rule / len(levels), eligible, self.floor),
        )

    def decide(
        self, state: RidgeState, contexts: Floats, rng: Generator | Draws, eligible: Mask | Pairs | None = None
    ) -> Decision:
        """Draw actions by ever closer widths; exact ones are computed only where scores are too close for others."""
        if isinstance(eligible, Pairs):
            return self.decide_pairs(state, contexts, rng, eligible)
        if not self.learner.fixed(state):
            return super().decide(state, contexts, rng, eligible)
        mask, winners = self._winners(state, contexts, eligible)
        allowed = None if mask is None else np.ascontiguousarray(mask.T)
        actions, propensities = winners.draw(
            lambda rows: Draws.of(rng, len(contexts)).uniforms_at(rows), allowed, self.floor
        )

        def table() -> Scores:
            return self.table(state, contexts, ties.eligible_mask(mask, len(contexts), state.n_actions))

        return Decision(actions, propensities, table, probabilities=lambda: winners.probabilities(mask, self.floor))

    def predict(self, state: RidgeState, contexts: Floats, eligible: Mask | Pairs | None = None) -> Codes:
        """Return the most probable action of each context (n,), the lowest code of equals."""
        if isinstance(eligible, Pairs):
            return self.predict_pairs(state, contexts, eligible)
        if not self.learner.fixed(state):
            return super().predict(state, contexts, eligible)
        return self._winners(state, contexts, eligible)[1].winner

    # ---- eligible pairs of rows and actions, so that a row costs only the actions that it may choose ---------

    @quietly
    def decide_pairs(
        self,
        state: RidgeState,
        contexts: Floats,
        rng: Generator | Draws,
        eligible: Mask | Pairs | None,
        caps: Floats | None = None,
    ) -> Decision:
        """Draw one action for each context from the probabilities of its eligible actions."""
        n = len(contexts)
        uniforms = Draws.of(rng, n).uniforms
        actions, propensities = np.empty(n, np.intp), np.empty(n)
        for rows, pairs, chances in self._pair_blocks(state, contexts, eligible, caps):
            place = choosing.draw(pairs, chances, uniforms[rows])
            actions[rows], propensities[rows] = pairs.codes[place], chances[place]

        def table() -> Scores:
            allowed = eligible if isinstance(eligible, Pairs) else ties.eligible_mask(eligible, n, state.n_actions)
            return self.acting(state, contexts, allowed, caps)

        return Decision(actions, propensities, table)

    @quietly
    def predict_pairs(self, state: RidgeState, contexts: Floats, eligible: Mask | Pairs | None) -> Codes:
        """Return the most probable of the eligible actions of each context (n,), the lowest code of equals."""
        best = np.empty(len(contexts), np.intp)
        for rows, pairs, chances in self._pair_blocks(state, contexts, eligible, None):
            best[rows] = choosing.most_probable(pairs, chances)
        return best

    def _pair_blocks(
        self, state: RidgeState, contexts: Floats, eligible: Mask | Pairs | None, caps: Floats | None
    ) -> Iterator[tuple[slice, Pairs, Floats]]:
        """Yield rows, their eligible pairs and the probabilities of these, block by block."""
        n = len(contexts)
        ties.check_finite(contexts, contexts)
        mask = (
            None
            if eligible is None or isinstance(eligible, Pairs)
            else ties.eligible_mask(eligible, n, state.n_actions)
        )
        every = np.arange(state.n_actions)
        width = 1 + len(eligible.codes) // max(n, 1) if isinstance(eligible, Pairs) else state.n_actions
        for rows in ties.row_blocks(n, width):
            if isinstance(eligible, Pairs):
                pairs = eligible[rows]
            else:
                size = rows.stop - rows.start
                pairs = Pairs.every(size, every, len(every)) if mask is None else Pairs.of_mask(mask[rows])
            means, widths = self.learner.pair_estimates(state, contexts[rows], pairs)
            bonuses = self._bonuses(state, widths, pairs.codes)
            yield rows, pairs, choosing.probabilities(pairs, means, bonuses, self._levels, self.floor, caps)

    def decide_by_table(
        self, state: Any, contexts: Floats, rng: Generator | Draws, eligible: Mask | Pairs | None, caps: Floats | None
    ) -> Decision:
        """Draw one action for each context from the probabilities of :meth:`acting`, which are exact."""
        if isinstance(eligible, Pairs):
            return self.decide_pairs(state, contexts, rng, eligible, caps)
        return super().decide_by_table(state, contexts, rng, eligible, caps)

    def _alpha(self, state: RidgeState) -> float:
        """Return the weight of widths in units of the reward."""
        return self.alpha * self.learner.noise(state)

    def _bonuses(self, state: Any, widths: Floats, codes: Codes) -> Floats:
        """Return α·width of pairs (k,) of rows and the actions ``codes``, in units of the reward."""
        return self._alpha(state) * widths

    def _winners(self, state: RidgeState, contexts: Floats, eligible: Mask | None) -> tuple[Mask | None, ties.Winners]:
        """Return eligibility (n, M), None for all, and who has the largest score."""
        n, m = len(contexts), state.n_actions
        mask = None if eligible is None else ties.eligible_mask(eligible, n, m)
        if self.floor:
            ties.check_floor(self.floor, ties.eligible_mask(None, 1, m) if mask is None else mask)
        learner, readout, alpha = self.learner, self.learner.readout(state), self._alpha(state)
        rule = screening.Acting(
            solved=readout.solved,
            alpha=alpha,
            bound=readout.bound if alpha and self.screen and n > 1 else None,
            levels=self._levels,
        )
        if n == 1 and readout.solved.upper.size <= ONE_ROW:
            return mask, self._row_winners(rule, learner.rows(state, contexts)[0], mask)
        try:
            return mask, screening.winners(
                n,
                lambda rows: learner.rows(state, contexts[rows]),
                lambda features: learner.means(readout, features),
                rule,
                None if mask is None else np.ascontiguousarray(mask.T),
            )
        except InputError:
            ties.check_finite(contexts, contexts)  # in the caller's rows and columns, not in a block's
            raise

    @quietly
    def _row_winners(self, rule: screening.Acting, row: Floats, mask: Mask | None) -> ties.Winners:
        """Return who has the largest score for one row of features (p,)."""
        means = self.learner.link.score(rule.solved.theta.dot(row))
        return screening.row_winners(means, rule, row, mask)


@final
@dataclass(frozen=True, kw_only=True)
class Optimistic(Ridge, Optimism):
    """Choose the action with the largest upper confidence bound (the paper's origin and sketched policy)."""


def _recipe(summary: str, paper: dict[str, Any], **defaults: Any) -> Recipe:
    return Recipe(target=Optimistic, defaults=defaults, paper=paper, summary=summary)


_IMPUTED = {"imputation_rate": 0.1, "discount": 0.9, "alpha": 0.2}
_SCHEDULED = {"imputation_rate": "paper-schedule", "discount": 0.1, "alpha": 0.1}
_HASHED = {"sketch": "sjlt", "sketch_size": 150, "sketch_blocks": 1}
_PAPER_HASHED = {"moments": "sketched", **_HASHED}
_PAPER_PUIR = {"imputation_rate": 0.1, "discount": 0.1, "alpha": 0.1}
_KERNEL = {"features": "fourier", "n_features": 100, "bandwidth": "auto"}
_CAP = {"imputed_cap": 1.0}

SBUCB = _recipe("batched linear UCB without imputation (Han et al. 2020)", {"alpha": 1.0}, alpha=0.2)
PUIR = _recipe("UCB with rewards imputed exactly for the actions not executed", _PAPER_PUIR, **_PAPER_PUIR)
SPUIR = _recipe("PUIR on sketched batches", _PAPER_HASHED, **_IMPUTED, **_HASHED)
PUIR_RS = _recipe("PUIR whose imputation rate grows by the paper's schedule", {}, **_SCHEDULED)
SPUIR_RS = _recipe("SPUIR whose imputation rate grows by the paper's schedule", _PAPER_HASHED, **_SCHEDULED, **_HASHED)
PUIR_EXP = _recipe("PUIR for rewards exp⟨θ,s⟩, linearised", _CAP, **_PAPER_PUIR, link="exp")
PUIR_POLY = _recipe("PUIR for rewards ⟨θ,s⟩², linearised", _CAP, **_PAPER_PUIR, link="poly")
PUIR_KERNEL = _recipe("PUIR on random Fourier features of the context", {}, **_PAPER_PUIR, **_KERNEL)
SPUIR_EXP = _recipe("SPUIR for rewards exp⟨θ,s⟩, linearised", _PAPER_HASHED | _CAP, **_IMPUTED, **_HASHED, link="exp")
SPUIR_POLY = _recipe("SPUIR for rewards ⟨θ,s⟩², linearised", _PAPER_HASHED | _CAP, **_IMPUTED, **_HASHED, link="poly")
SPUIR_KERNEL = _recipe(
    "SPUIR on random Fourier features of the context", _PAPER_HASHED, **_IMPUTED, **_HASHED, **_KERNEL
)
