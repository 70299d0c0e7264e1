"""Rows in an order of their own, so that a choice made from a batch depends on nothing but its content.

Whatever picks a part of a batch must pick the same part when the rows come in another order, when the actions
carry other codes, and when a row of weight w comes as w copies. So equal rows are merged, the rest are sorted by
a hash of their content, and a part is every so-maniest of them.
"""

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


def spread(count: int, limit: int) -> Codes:
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
    hashes = _hash(contexts, rewards)[kept]
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
    chosen = ranks[spread(len(ranks), limit)]
    source = kept[order[starts[chosen]]]
    return Rows(contexts=contexts[source], actions=actions[source], rewards=rewards[source], weights=summed[chosen])


def _hash(contexts: Floats, rewards: Floats) -> Hashes:
    """Return one hash a row (n,) of its context and reward; adding 0 makes −0 and 0 one number."""
    total = np.zeros(len(contexts), np.uint64)
    for place, column in enumerate([*contexts.T, rewards], start=1):
        bits = (column + 0.0).view(np.uint64)
        total += mix64(bits + np.uint64((place * GOLDEN_RATIO) % 2**64))
    return total
