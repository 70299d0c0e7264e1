"""Greedy acting on ridge estimates, with a share ε of uniform exploration."""

from dataclasses import dataclass
from typing import final

import numpy as np

from spuir.base.parameters import UNIT, parameter
from spuir.base.records import Floats, Mask, Table
from spuir.core import scoring
from spuir.policies.base import Recipe
from spuir.policies.learner import RidgeState
from spuir.policies.ridge import Ridge


@final
@dataclass(frozen=True, kw_only=True)
class Greedy(Ridge):
    """Choose the largest estimated reward; with probability ε any eligible action."""

    epsilon: float = parameter(0.0, "share of uniform exploration (ε)", UNIT)

    @property
    def traits(self) -> frozenset[str]:
        """Return the learner's traits, and sampling where ε > 0."""
        return super().traits | ({"sampling"} if self.epsilon else frozenset[str]())

    def table(self, state: RidgeState, contexts: Floats, eligible: Mask) -> Table:
        """Return means, widths, the means as scores, and probabilities (n, M)."""
        means, widths = self.estimates(state, contexts)
        rule = scoring.argmax_probabilities(means, eligible)
        uniform = eligible / eligible.sum(axis=1, keepdims=True)
        probabilities = (1.0 - self.epsilon) * rule + self.epsilon * uniform
        return Table(
            means=means,
            widths=widths,
            scores=np.array(means),
            probabilities=scoring.with_floor(probabilities, eligible, self.floor),
        )


GREEDY = Recipe(target=Greedy, defaults={}, paper={}, summary="largest estimated reward, no exploration")
EPSILON_GREEDY = Recipe(
    target=Greedy,
    defaults={"epsilon": 0.1},
    paper={},
    summary="largest estimated reward, with a share of uniform exploration",
)
