"""Rows in an order given by their content, so that a choice made from a batch depends on nothing else.

A choice of some rows of a batch must not change when the rows come in another order, when the actions have other
codes, or when a row of weight w comes as w copies. So equal rows are merged, sorted by a hash of their content, and
every k-th row is chosen.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spuir.base.hashing import GOLDEN_RATIO, mix64
from spuir.base.records import Codes, Floats

Hashes = NDArray[np.uint64]

ROW_LIMIT = 4096
"""Rows that a choice looks at: beyond these its sampling error is small against the steps of its grid."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Distinct rows: contexts (n, d), actions (n,), rewards (n,) and their summed weights (n,), all > 0."""

    contexts: Floats
    actions: Codes
    rewards: Floats
    weights: Floats


def evenly_spaced(count: int, limit: int) -> Codes:
    """Return at most ``limit`` indices, evenly spread over ``count``."""
    return np.arange(count) if count <= limit else np.arange(limit) * count // limit


def canonical_rows(
    contexts: Floats, actions: Codes, rewards: Floats, weights: Floats | None, limit: int = ROW_LIMIT
) -> Rows:
    """Return the distinct rows of positive weight in an order given by their content, thinned to ``limit``.

    Parameters
    ----------
    contexts, actions, rewards
        (n, d), (n,) and (n,).
    weights
        (n,) or None for ones.
    limit
        The most rows to return.
    """
    mass = np.ones(len(contexts)) if weights is None else np.asarray(weights, dtype=np.float64)
    kept = np.flatnonzero(mass > 0)
    if not len(kept):
        return Rows(contexts=contexts[kept], actions=actions[kept], rewards=rewards[kept], weights=mass[kept])
    hashes = _hash([*contexts.T, rewards])[kept]
    codes = actions[kept]
    order = np.lexsort((hashes, codes))
    hashes, codes = hashes[order], codes[order]
    new_action = np.concatenate([[True], codes[1:] != codes[:-1]])
    new_row = new_action | np.concatenate([[True], hashes[1:] != hashes[:-1]])
    starts = np.flatnonzero(new_row)
    summed = np.add.reduceat(mass[kept][order], starts)
    # An action is known by the rows it has, not by its code: their summed hashes stand for it.
    action_of = np.cumsum(new_action[starts]) - 1
    fingerprints = np.add.reduceat(hashes[starts], np.flatnonzero(new_action[starts]))
    ranks = np.argsort(mix64(hashes[starts] + mix64(fingerprints)[action_of]), kind="stable")
    chosen = ranks[evenly_spaced(len(ranks), limit)]
    source = kept[order[starts[chosen]]]
    return Rows(contexts=contexts[source], actions=actions[source], rewards=rewards[source], weights=summed[chosen])


def distinct_contexts(contexts: Floats, weights: Floats | None) -> tuple[Floats, Floats]:
    """Return the distinct contexts (n, d) of positive weight in an order given by their content, and their weights."""
    mass = np.ones(len(contexts)) if weights is None else np.asarray(weights, dtype=np.float64)
    kept = np.flatnonzero(mass > 0)
    hashes, first, member = np.unique(_hash(list(contexts.T))[kept], return_index=True, return_inverse=True)
    summed = np.bincount(member, mass[kept], len(hashes)).astype(np.float64, copy=False)
    return contexts[kept[first]], summed


def _hash(columns: Sequence[Floats]) -> Hashes:
    """Return one hash per row (n,) of its values in all columns; adding 0 turns −0 into 0."""
    total = np.zeros(len(columns[0]), np.uint64)
    for place, column in enumerate(columns, start=1):
        bits = (column + 0.0).view(np.uint64)
        total += mix64(bits + np.uint64((place * GOLDEN_RATIO) % 2**64))
    return total
