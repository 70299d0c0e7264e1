"""A policy of your own: choose by a softmax of the estimated rewards. Run this file to try it on the contract."""

from dataclasses import dataclass

import numpy as np

from spuir.base.parameters import POSITIVE, parameter
from spuir.base.records import Floats, Mask, Table
from spuir.core import scoring
from spuir.policies import POLICIES, make_policy
from spuir.policies.base import Recipe
from spuir.policies.learner import RidgeState
from spuir.policies.ridge import Ridge
from spuir.testing import check_policy


@dataclass(frozen=True, kw_only=True)
class Softmax(Ridge):
    """Choose each action with a probability proportional to exp(estimated reward / temperature)."""

    temperature: float = parameter(0.1, "how much worse an action may look and still be tried", POSITIVE)

    @property
    def traits(self) -> frozenset[str]:
        """Return what ridge learning brings, and sampling: these probabilities are no argmax."""
        return super().traits | {"sampling"}

    def table(self, state: RidgeState, contexts: Floats, eligible: Mask) -> Table:
        """Return means, widths, the means as scores, and softmax probabilities, each (n, M)."""
        means, widths = self.estimates(state, contexts)
        logits = np.where(eligible, means / self.temperature, -np.inf)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities = weights / weights.sum(axis=1, keepdims=True)
        return Table(
            means=means,
            widths=widths,
            scores=np.array(means),
            probabilities=scoring.with_floor(probabilities, eligible, self.floor),
        )


SOFTMAX = Recipe(
    target=Softmax,
    defaults={"imputation_rate": 0.1},
    paper={},
    summary="softmax of estimated rewards, with imputation",
)

if __name__ == "__main__":
    POLICIES.register("softmax", f"{__name__}:SOFTMAX")
    kept = check_policy(make_policy("softmax"))
    print(f"softmax keeps {len(kept)} laws:", *kept, sep="\n  ")
