"""The probability that each of M independent normals is the largest: what a Thompson rule chooses by.

With F = Π_j Φ_j the distribution of the largest, action j wins with probability ∫ F(z)·φ_j(z)/Φ_j(z) dz,
one-dimensional for any M. The integrand is smooth and dies out at both ends, so that the trapezoidal rule
converges exponentially once its nodes are as close as the narrowest normal *there* requires. One fact makes this
cheap: F vanishes below ``low`` = max_j (mean_j − 9·sd_j), so a normal that still matters lies within 18 of
its own sds above ``low``, and one far above ``low`` is wide. Nodes at low + unit·sinh(t), t equidistant,
therefore resolve sds of any ratio, their number growing with its logarithm: about 20 for equal sds, 80 for
1:1000.

**Tolerance.** The absolute error stays below 1e-4 in every entry; it is usually below 1e-6. Rows sum to one to
rounding. An action whose probability is below 1e-18 may be given exactly 0, and then costs nothing.
"""

from collections.abc import Callable, Iterator
from typing import cast

import numpy as np
from scipy.special import erfcx, ndtr

from spuir.base.records import Codes, Floats, Mask
from spuir.core.statistics import blocks
from spuir.core.ties import TIE, tied_actions

REACH = 9.0
"""Sds within which a normal is taken to lie: what is beyond on one side has probability 1.1e-19."""
NEGLIGIBLE = 1e-18
"""Probability of the largest lying below the first node."""
NODES = 8.0
"""Nodes per unit of t: a normal 9 sds above the first node then meets one every 1.1 sds."""
LEVEL = 1.2
"""Ratio of one number of nodes to the next smaller one in use."""
NARROWEST = 1e-100
"""A standard deviation below this share of the row's largest counts as zero, so that squares do not overflow."""
SCREEN_BYTES, WORK_BYTES = 4 * 2**20, 2**18
"""Rows are screened and integrated in pieces of these sizes: bounded memory, the inner one within the cache."""
SLOPE, DEGREE = 0.32, 9
"""Of the polynomial in :func:`_normal`; this slope is the best for this degree."""


def win_probabilities(means: Floats, sds: Floats, eligible: Mask) -> Floats:
    """Return the probability that each of M independent normals is the largest of its row's eligible ones.

    Parameters
    ----------
    means, sds
        (n, M) finite means and sds ≥ 0, at any scale and offset. An sd of at most 1e-12 of the row's best
        |mean| counts as 0: a certain value. The highest certain values, those within that distance of each
        other counting as tied, share their probability equally.
    eligible
        (n, M) mask; an ineligible action has probability 0. A row without eligible actions is all 0.

    Returns
    -------
    (n, M) probabilities, within the module's tolerance; each row sums to one.
    """
    out = np.zeros(means.shape)
    for rows in blocks(len(means), 8 * means.shape[1], SCREEN_BYTES):
        columns = np.ascontiguousarray(means[rows].T), np.ascontiguousarray(sds[rows].T)
        out[rows] = _block_probabilities(*columns, np.ascontiguousarray(eligible[rows].T)).T
    return out


def monte_carlo_probabilities(
    means: Floats, sds: Floats, eligible: Mask, draws: int, normals: Callable[[slice], Floats], executed: Codes
) -> Floats:
    """Estimate the probability of each row's executed action by joint draws, as the authors do.

    Parameters
    ----------
    means, sds, eligible
        (n, M), as for :func:`win_probabilities`.
    draws
        Joint draws of all M scores per row; the standard error is at most ½/√draws.
    normals
        Gives standard normals (k, M, draws) for a slice of k rows.
    executed
        (n,) codes of the executed actions.

    Returns
    -------
    (n,) estimates (hits + 1)/(draws + 1): never 0, even where the action did not win once.
    """
    n, m = means.shape
    hits = np.zeros(n)
    for rows in blocks(n, 8 * m * draws, SCREEN_BYTES):
        centre, spread = means[rows].T[:, :, None], sds[rows].T[:, :, None]
        scores = centre + spread * normals(rows).transpose(1, 0, 2)
        winners = tied_actions(np.where(eligible[rows].T[:, :, None], scores, -np.inf))
        own = winners[executed[rows], np.arange(winners.shape[1])]
        hits[rows] = np.sum(own / winners.sum(axis=0), axis=1)
    return (hits + 1.0) / (draws + 1.0)


# Below, tables are (M, r), one column per row of the caller: reductions over actions work on whole rows.


def _block_probabilities(means: Floats, sds: Floats, eligible: Mask) -> Floats:
    """Return the probabilities (M, r): certain columns and pairs at once, the others by quadrature."""
    means, sds, kept = _screen(means, sds, eligible)
    count = np.count_nonzero(kept, axis=0)
    out = kept / np.maximum(count, 1)
    first, everywhere = np.argmax(kept, axis=0), np.arange(len(count))
    unlike = (means != means[first, everywhere]) | (sds != sds[first, everywhere])
    # One action, or several with the same normal, need no more than the equal shares in ``out``.
    doubtful = np.any(kept & unlike, axis=0)
    pairs = np.flatnonzero(doubtful & (count == 2))
    if len(pairs):
        left, right = first[pairs], len(kept) - 1 - np.argmax(kept[::-1, pairs], axis=0)
        z = (means[left, pairs] - means[right, pairs]) / np.hypot(sds[left, pairs], sds[right, pairs])
        out[left, pairs], out[right, pairs] = ndtr(z), ndtr(-z)
    rest = np.flatnonzero(doubtful & (count > 2))
    if len(rest):
        out[:, rest] = _integrated(means[:, rest], sds[:, rest], kept[:, rest], count[rest])
    return out


def _screen(means: Floats, sds: Floats, eligible: Mask) -> tuple[Floats, Floats, Mask]:
    """Return means and sds (M, r) with each best mean at 0 and largest sd at 1, and the actions that can win.

    Certain values keep sd 0; only the highest of them, with its ties set equal to it, can win.
    """
    means = np.where(eligible, means, -np.inf)
    top = np.max(means, axis=0)
    top[top == -np.inf] = 0.0
    slack = TIE * np.abs(top)
    sds = np.where(eligible, sds, 0.0)
    sds[sds <= np.maximum(slack, NARROWEST * np.max(sds, axis=0))] = 0.0
    scale = np.max(sds, axis=0)
    scale[scale == 0.0] = 1.0
    with np.errstate(over="ignore"):
        means = (means - top) / scale
        slack = slack / scale
    sds /= scale
    kept = eligible
    certain = eligible & (sds == 0.0)
    if np.any(certain):
        highest = np.max(np.where(certain, means, -np.inf), axis=0)
        tied = certain & (means >= highest - slack)
        means = np.where(tied, highest, means)
        kept = tied | (eligible & ~certain)
    low = np.max(np.where(kept, means - REACH * sds, -np.inf), axis=0)
    leader = sds[np.argmax(means, axis=0), np.arange(len(top))]
    # P(j wins) is at most the probability that j exceeds any one other action, here either of two.
    return means, sds, kept & (-means <= REACH * np.hypot(sds, leader)) & (means + REACH * sds >= low)


def _integrated(means: Floats, sds: Floats, kept: Mask, count: Codes) -> Floats:
    """Return the probabilities (M, r) of columns in which three or more actions can win."""
    order = np.argsort(~kept, axis=0, kind="stable")[: int(count.max())]
    there = np.take_along_axis(kept, order, axis=0)
    # A slot without an action holds a normal at −∞: cdf 1, density 0, so that it needs no mask below.
    m = np.where(there, np.take_along_axis(means, order, axis=0), -np.inf)
    s = np.where(there, np.take_along_axis(sds, order, axis=0), 1.0)
    certain = s == 0.0
    if np.any(certain):
        # A certain value acts as a normal that is far narrower than every other one.
        s = np.where(certain, 1e-6 * np.min(np.where(certain, 1.0, s), axis=0), s)
    low, unit, span = _grid(m, s, count)
    won = np.zeros_like(m)
    for columns, slots, nodes in _groups(span, count):
        for piece in blocks(len(columns), 8 * slots * nodes, WORK_BYTES):
            at = columns[piece]
            won[:slots, at] = _trapezoid(m[:slots, at], s[:slots, at], low[at], unit[at], span[at], nodes)
    out = np.zeros(means.shape)
    np.put_along_axis(out, order, won, axis=0)
    return out


def _grid(m: Floats, s: Floats, count: Codes) -> tuple[Floats, Floats, Floats]:
    """Return where each column's nodes start, the unit of sinh, and the length in t, each (r,)."""
    low = np.max(m - REACH * s, axis=0)
    many = np.log2(count)
    steps = (2.0 + 0.5 * many).astype(np.intp)
    # log F is concave: Newton's steps from below towards F = NEGLIGIBLE never pass it.
    for step in range(int(steps.max())):
        cdf, hazard = _normal((low - m) / s)
        missing = np.log(NEGLIGIBLE) - np.sum(np.log(cdf), axis=0)
        missing[(missing < 0.0) | (step >= steps)] = 0.0
        low = low + missing / np.sum(hazard / s, axis=0)
    # The largest of many normals varies less than each of them: closer nodes for more actions.
    unit = 6.0 / (1.0 + 0.25 * many) * np.min(s, axis=0)
    return low, unit, np.arcsinh((np.max(m + REACH * s, axis=0) - low) / unit)


def _groups(span: Floats, count: Codes) -> Iterator[tuple[Codes, int, int]]:
    """Return the columns in groups of about equal work, each with its numbers of slots and of nodes.

    A column's nodes depend on itself alone: its probabilities do not depend on the other columns.
    """
    level = np.ceil(np.log(NODES * span + 1.0) / np.log(LEVEL))
    key = 64.0 * level + np.ceil(np.log2(count))
    for one in np.unique(key):
        columns = np.flatnonzero(key == one)
        yield columns, int(count[columns].max()), int(np.ceil(LEVEL ** level[columns[0]]))


def _trapezoid(m: Floats, s: Floats, low: Floats, unit: Floats, span: Floats, nodes: int) -> Floats:
    """Return the probabilities (slots, r) from the integrand at ``nodes`` values of t."""
    up = np.exp(np.linspace(0.0, 1.0, nodes)[:, None] * span)
    down = 1.0 / up
    z = low + 0.5 * unit * (up - down)  # low + unit·sinh(t)
    inverse = 1.0 / s
    x = z[None] - m[:, None]
    x *= inverse[:, None]
    cdf, hazard = _normal(x)
    hazard *= np.prod(cdf, axis=0) * (up + down)  # F·dz/dt, but for factors that the division removes
    won = np.sum(hazard, axis=1) * inverse
    return won / np.sum(won, axis=0)


def _normal(x: Floats) -> tuple[Floats, Floats]:
    """Return Φ(x) and φ(x)/Φ(x), relative error below 1e-7, for x ≥ −35.

    One exponential serves both, and a polynomial in 1/(1 + c|x|) does the rest: faster than ``ndtr`` and ``exp``.
    """
    t = np.abs(x)
    t *= SLOPE
    t += 1.0
    np.divide(1.0, t, out=t)
    cdf = t * MILLS[-1]
    for coefficient in MILLS[-2::-1]:
        cdf += coefficient
        cdf *= t
    np.multiply(x, x, out=t)
    t *= -0.5
    density = np.exp(t, out=t)
    cdf *= density
    np.subtract(1.0, cdf, out=cdf, where=x > 0.0)
    density *= 1.0 / np.sqrt(2.0 * np.pi)
    density /= cdf
    return cdf, density


def _mills() -> list[float]:
    """Return p with Φ(−y)·exp(y²/2) = t·Σ_k p_k tᵏ, t = 1/(1 + SLOPE·y), for y ≥ 0: an interpolation of ``erfcx``."""

    def ratio(t: Floats) -> Floats:
        return 0.5 * cast("Floats", erfcx((1.0 / t - 1.0) / (SLOPE * np.sqrt(2.0)))) / t

    series = np.polynomial.Chebyshev.interpolate(ratio, DEGREE, domain=[0.0, 1.0])
    return [float(c) for c in series.convert(kind=np.polynomial.Polynomial).coef]


MILLS = _mills()
