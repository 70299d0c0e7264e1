"""Checks of a loaded model file: no size may be too large for any use, and its sums must be those of some rows."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np

from spuir.base.parameters import parameters_of
from spuir.base.records import Floats, State, require_finite
from spuir.core.solving import semi_definite
from spuir.core.statistics import Statistics
from spuir.errors import SnapshotError
from spuir.policies import Policy

LARGEST_SIZES = {
    "propensity_draws": 100_000,
    "n_features": 20_000,
    "landmarks": 20_000,
    "levels": 10_000,
    "sketch_size": 10_000_000,
    "sketch_blocks": 10_000_000,
}
"""Largest values of the parameters that set how much memory a decision or an update takes."""
LARGEST_SUMS = 2**38
"""Largest size in bytes of the sums of a model that has none yet."""
ROUNDING = 1e-7
"""What rounding may leave of sums, relative to the largest."""
MATRICES = ("shared", "information")
"""Fields of states that hold one matrix, or one per action, besides the sums."""


def check_sizes(source: str, policy: Policy, n_actions: int) -> None:
    """Refuse a policy whose first decision would take more memory than any machine has."""
    parameters = parameters_of(policy)
    for name, largest in LARGEST_SIZES.items():
        value = parameters.get(name)
        if value is not None and value > largest:
            rule, remedy = f"a saved policy has at most {largest:,}", "make the policy again, and fit it"
            raise SnapshotError(source, f"{name}={value:,}", rule, remedy)
    needed = 8 * n_actions * policy.width(1) ** 2
    if "ridge" in policy.traits and needed > LARGEST_SUMS:
        rule = f"the sums of a model have at most {LARGEST_SUMS:,} bytes"
        raise SnapshotError(source, f"{n_actions:,} actions with sums of {needed:,} bytes", rule, "use fewer features")


def check_sums(source: str, state: State) -> None:
    """Refuse sums that no rows have: matrices that are not positive semi-definite, weights below 0."""
    every = list(_matrices(state))
    # What rounding leaves is measured by the largest sums: imputed ones may be a small difference of large ones.
    rounding = ROUNDING * max((float(np.abs(stack).max(initial=0.0)) for _, stack, _ in every), default=0.0)
    lightest = -ROUNDING * max((float(np.abs(weights).max(initial=0.0)) for _, _, weights in every), default=0.0)
    for name, stack, weights in every:
        if (weights < lightest).any() or not semi_definite(stack, rounding):
            rule, remedy = "sums over rows are positive semi-definite", "restore the file from a copy, or learn again"
            raise SnapshotError(source, f"{name} sums that no rows have", rule, remedy)
    for batch in getattr(state, "waiting", ()):
        require_finite(**{"waiting rows": batch.contexts})


def _matrices(state: State) -> Iterator[tuple[str, Floats, Floats]]:
    """Yield the stacks of matrices (k, p, p) in a state, with their weights (k,), 0 where they have none."""
    for item in fields(state):
        part: Any = getattr(state, item.name)
        if isinstance(part, Statistics):
            yield item.name, part.gram, part.weight
        elif item.name in MATRICES and part is not None:
            yield item.name, part.reshape(-1, *part.shape[-2:]), np.zeros(1)
