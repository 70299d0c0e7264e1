"""The bandwidth that the first batch chooses: a multiple of the median distance, by leave-one-out error.

Candidates are :data:`MULTIPLES` of the median distance between different contexts: from fine structure to a width
at which the kernel acts as an intercept plus a linear part. For each, every action gets the ridge fit that the
policy would make, and every row is predicted by the fit without it, which needs no refit:
the residual of the full fit over one minus the row's leverage. The least sum of squares wins. There is no split, so
all rows are used and their order does not matter.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.spatial.distance import pdist

from spuir.base.records import Floats
from spuir.errors import NumericalError
from spuir.features.canonical import Rows, evenly_spaced

MULTIPLES = (1.0, 0.7, 1.4, 0.5, 2.0, 0.35, 2.8, 0.25, 4.0, 5.6, 0.125, 8.0)
"""Candidates in the order of preference among equals: near the median distance first.

Nothing wider than 8: such a map is a constant that a first batch with little signal may prefer and that the
episodes after it can hardly correct.
"""

MEDIAN_FACTOR = 0.7
"""Bandwidth per median distance where no rewards are used: what served best over many data sets."""

_DISTANCE_ROWS = 512
_TIE = 1e-9
_LEAST_RIDGE = 1e-11


def choose(rows: Rows, features: Callable[[float], Floats], ridge: float) -> float:
    """Return the bandwidth for ``rows``, at least one; 1 if all contexts are equal.

    Parameters
    ----------
    rows
        Distinct weighted rows of the first batch.
    features
        Bandwidth → columns (n, width) of those rows.
    ridge
        λ of the fits.
    """
    median = median_distance(rows.contexts, rows.weights)
    if median == 0.0:
        return 1.0
    best, least = 1.0, math.inf
    for multiple in MULTIPLES:
        error = leave_one_out(features(multiple * median), rows, ridge)
        if error < least * (1.0 - _TIE):
            best, least = multiple, error
    return best * median


def median_distance(contexts: Floats, weights: Floats) -> float:
    """Return the weighted median distance over pairs of different contexts (n, d); 0 if there are none."""
    some = evenly_spaced(len(contexts), _DISTANCE_ROWS)
    scale = float(np.abs(contexts[some]).max(initial=0.0))
    if len(some) < 2 or scale == 0.0:
        return 0.0
    distances = pdist(contexts[some] / scale)
    first, second = np.triu_indices(len(some), 1)
    mass = weights[some][first] * weights[some][second]
    order = np.argsort(distances, kind="stable")
    order = order[distances[order] > 0.0]
    if not len(order):
        return 0.0
    covered = np.cumsum(mass[order])
    return scale * float(distances[order[np.searchsorted(covered, covered[-1] / 2.0)]])


def kernel_width(z: Floats, factor: float = MEDIAN_FACTOR) -> float:
    """Return ``factor`` × the median of the positive distances between the first rows of z (n, d); 1 without any."""
    distances = pdist(z[:_DISTANCE_ROWS])
    apart = distances[distances > 0.0]
    return factor * float(np.median(apart)) if len(apart) else 1.0


def leave_one_out(columns: Floats, rows: Rows, ridge: float) -> float:
    """Return the weighted sum of squared leave-one-out errors of one ridge fit per action.

    A row of weight w is w copies, and one copy is left out, or the whole row where w < 1. An action with a single row
    is passed over: without that row nothing is left to compare bandwidths by. Rewards are scaled to at most 1.
    """
    scale = float(np.abs(rows.rewards).max(initial=0.0)) or 1.0
    order = np.argsort(rows.actions, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(rows.actions[order])) + 1)
    return math.fsum(
        _action_error(columns[own], rows.rewards[own] / scale, rows.weights[own], ridge)
        for own in groups
        if len(own) > 1
    )


def _action_error(columns: Floats, rewards: Floats, weights: Floats, ridge: float) -> float:
    """Return the leave-one-out error of one action, from whichever Gram matrix is smaller."""
    root = np.sqrt(weights)
    left = columns * root[:, None]
    right = rewards * root
    n, width = left.shape
    with np.errstate(over="ignore", invalid="ignore"):
        gram = left.T @ left if width <= n else left @ left.T
        trace = float(np.trace(gram))
    if not math.isfinite(trace):
        largest = float(np.abs(columns).max())
        got = f"columns up to {largest:.3g}" if math.isfinite(largest) else "values beyond the kernel's features"
        raise NumericalError("contexts", got, "the squares of columns must be finite", "rescale the contexts")
    # A ridge below rounding of the Gram matrix would leave it singular.
    ridge = max(ridge, _LEAST_RIDGE * trace)
    gram.flat[:: len(gram) + 1] += ridge
    if width <= n:
        solved = np.linalg.solve(gram, left.T)
        leverage = np.einsum("ij,ji->i", left, solved)
        residual = right - left @ (solved @ right)
    else:
        solved = np.linalg.solve(gram, np.eye(n))
        leverage = 1.0 - ridge * np.diag(solved)
        residual = ridge * (solved @ right)
    kept = 1.0 - leverage / np.maximum(weights, 1.0)
    return float(np.sum((residual / np.maximum(kept, 1e-12)) ** 2))
