"""Held-out rows: doubly robust values of policies that learned from earlier rows, paired row by row."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from spuir.base.records import Floats
from spuir.core.statistics import per_action
from spuir.evaluation.block_sums import BlockAdder, Blocks, Estimate, ModelSums, TermSums
from spuir.evaluation.encoded_rows import EncodedRows
from spuir.evaluation.estimators import DoublyRobust, TargetRows, Terms
from spuir.evaluation.support import Support, WeightSums, calibrate, judge
from spuir.policies import make_policy

CLEARLY_ABOVE = 4.0
"""Standard errors above 0 from which on gains are given relative to a value."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Later rows, and the rewards (n, M) that a ridge model of the earlier rows predicts for them.

    No row is predicted by a model that saw it, so that the values are unbiased whatever the model is. ``reward_range``
    has the least and the largest reward, also of the earlier rows; None = those of the later ones.
    """

    rows: EncodedRows
    predicted: Floats
    reward_range: tuple[float, float] | None = None

    @classmethod
    def after(cls, earlier: EncodedRows, rows: EncodedRows, seed: int) -> "HeldOut":
        """Return rows with the predictions of a model that is fitted to the earlier ones."""
        rewards = np.concatenate([earlier.rewards, rows.rewards])
        predicted = rows.predicted_by(earlier.taught(make_policy("sbucb", intercept=True), seed))
        return cls(rows, predicted, (float(rewards.min()), float(rewards.max())))

    @cached_property
    def _blocks(self) -> tuple[BlockAdder, dict[str, Any]]:
        """What adds up values per block; and their weight and number of rows (B,), and what they consist of."""
        blocks = Blocks.of("row" if self.rows.units is None else "unit", len(self.rows))
        # The rows have the columns by which blocks are numbered: units and episodes.
        adder = blocks.adder(self.rows, 0, self.rows.weights)  # pyright: ignore[reportArgumentType]
        weight, counts = np.zeros(blocks.count), np.zeros(blocks.count, np.int64)
        adder(weight, np.ones(len(self.rows)))
        adder.add_rows(counts)
        return adder, {"weight": weight, "rows": counts, "by": blocks.by}

    def estimate(self, probabilities: Floats | None) -> Estimate:
        """Return the value of a policy with these probabilities (n, M); None stands for the policy that logged."""
        adder, sizes = self._blocks
        terms, model = Terms(self.rows.rewards), None
        if probabilities is not None:
            model = ModelSums(adder.count)
            model.add(adder, np.vecdot(probabilities, self.predicted))
            terms = DoublyRobust().terms(self._on_rows(probabilities))
        sums = TermSums.zero(adder.count, terms, model)
        sums.add(adder, terms)
        made = Estimate(parts=((1.0, sums),), **sizes)
        if probabilities is None:
            return made
        ends = self.reward_range or (float(self.rows.rewards.min()), float(self.rows.rewards.max()))
        return replace(made, one_more=self._weights(probabilities).one_more(ends, made.standard_error))

    def _on_rows(self, probabilities: Floats) -> TargetRows:
        """Return a policy on the logged rows, from its probabilities (n, M)."""
        rows, places = self.rows, np.arange(len(self.rows))
        return TargetRows(
            rewards=rows.rewards,
            target=probabilities[places, rows.actions],
            propensities=rows.propensities,
            predicted=self.predicted[places, rows.actions],
        )

    def _weights(self, probabilities: Floats) -> WeightSums:
        weights = WeightSums()
        weights.add(self._on_rows(probabilities), len(self.rows), self.rows.weights, self.rows.weights)
        return weights

    def support(self, probabilities: Floats) -> Support:
        """Return whether these rows can tell what a policy with these probabilities (n, M) earns."""
        rows, m, weights = self.rows, len(self.rows.labels), self._weights(probabilities)
        scaled = rows.weights / rows.propensities
        counts, inverse, squares = (
            per_action(rows.actions, part, m) for part in (np.ones(len(rows)), scaled, scaled**2)
        )
        trusted = calibrate(rows.labels, counts, inverse, squares, weights.weight, weights.spread).trusted
        return judge(weights, probabilities.mean(axis=0), counts, rows.labels, trusted)


def relative(value: Estimate, base: Estimate) -> tuple[float, Estimate] | None:
    """Return the relative gain g = value/base − 1, and an estimate of 0 with the error of g; None if base may be 0.

    To first order g moves as (value − (1 + g)·base)/base does, which holds where base is many errors above 0.
    """
    if not base.value > CLEARLY_ABOVE * base.standard_error:
        return None
    ratio = value.value / base.value
    return ratio - 1, value.times(1 / base.value).minus(base.times(ratio / base.value))
