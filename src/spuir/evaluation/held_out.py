"""Held-out rows: doubly robust values of policies that learned from earlier rows, paired row by row."""

from dataclasses import dataclass
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

    No row is predicted by a model that saw it, so that the values are unbiased whatever the model is.
    """

    rows: EncodedRows
    predicted: Floats

    @classmethod
    def after(cls, earlier: EncodedRows, rows: EncodedRows, seed: int) -> "HeldOut":
        """Return rows with the predictions of a model that is fitted to the earlier ones."""
        return cls(rows, rows.predicted_by(earlier.taught(make_policy("sbucb", intercept=True), seed)))

    @cached_property
    def _blocks(self) -> Any:
        by = "row" if self.rows.units is None else "unit"
        blocks = Blocks.of(by, len(self.rows))
        # The rows have the columns by which blocks are numbered: units and episodes.
        numbers = blocks.numbers(self.rows, 0)  # pyright: ignore[reportArgumentType]
        weight = np.bincount(numbers, self.rows.weights, blocks.count)
        return by, numbers, weight, np.bincount(numbers, minlength=blocks.count)

    def _ratios(self, probabilities: Floats) -> tuple[Floats, Floats]:
        target = probabilities[np.arange(len(self.rows)), self.rows.actions]
        return target, target / self.rows.propensities

    def estimate(self, probabilities: Floats | None) -> Estimate:
        """Return the value of a policy with these probabilities (n, M); None stands for the policy that logged."""
        by, numbers, weight, counts = self._blocks
        adder = BlockAdder(numbers, len(weight), self.rows.weights)
        terms, model = Terms(self.rows.rewards), None
        if probabilities is not None:
            model = ModelSums(len(weight))
            model.add(adder, np.vecdot(probabilities, self.predicted))
            terms = self._residual_terms(probabilities)
        sums = TermSums.zero(len(weight), terms, model)
        sums.add(adder, terms)
        return Estimate(parts=((1.0, sums),), weight=weight, rows=counts, by=by)

    def _residual_terms(self, probabilities: Floats) -> Terms:
        """Return ρ(r − q̂) of each row (n,)."""
        rows, (target, ratios) = self.rows, self._ratios(probabilities)
        given = TargetRows(
            rewards=rows.rewards,
            target=target,
            propensities=rows.propensities,
            predicted=self.predicted[np.arange(len(rows)), rows.actions],
        )
        return DoublyRobust().terms(given, ratios)

    def support(self, probabilities: Floats) -> Support:
        """Return whether these rows can tell what a policy with these probabilities (n, M) earns."""
        rows, m = self.rows, len(self.rows.labels)
        target, ratios = self._ratios(probabilities)
        weights = WeightSums()
        weights.add(ratios, target, len(rows))
        counts, inverse, squares = (per_action(rows.actions, rows.propensities**-power, m) for power in (0.0, 1.0, 2.0))
        trusted = calibrate(rows.labels, counts, inverse, squares, len(rows)).trusted
        return judge(weights, probabilities.mean(axis=0), counts, rows.labels, trusted)


def relative(value: Estimate, base: Estimate) -> tuple[float, Estimate] | None:
    """Return the relative gain g = value/base − 1, and an estimate of 0 with the error of g; None if base may be 0.

    To first order g moves as (value − (1 + g)·base)/base does, which holds where base is many errors above 0.
    """
    if not base.value > CLEARLY_ABOVE * base.standard_error:
        return None
    ratio = value.value / base.value
    parts = [(sign / base.value, sums) for sign, sums in value.parts]
    parts += [(-ratio * sign / base.value, sums) for sign, sums in base.parts]
    return ratio - 1, Estimate(parts=tuple(parts), weight=value.weight, rows=value.rows, by=value.by)
