"""The probability that each of M independent normals is the largest: what a Thompson rule chooses by.

With F = Π_j Φ_j the distribution of the largest, action j wins with probability ∫ F(z)·φ_j(z)/Φ_j(z) dz,
one-dimensional for any M. The integrand is smooth, so that the trapezoidal rule converges exponentially,
if its nodes are as close as the narrowest normal *there* asks. One fact makes this cheap: F vanishes below
``low`` = max_j (mean_j − 9·sd_j), hence a normal that still matters lies within 18 of its own sds above
``low``, and a normal far above ``low`` is wide. Nodes at ``low`` + a·sinh(t), t equidistant, therefore
resolve sds of any ratio with a number of nodes that grows with its logarithm: about 20 for equal sds, 80
for 1:1000.

**Tolerance.** Absolute error below 1e-5 in every entry (below 1e-6 for up to a hundred actions); rows sum to
one to rounding. An action whose probability is below 1e-18 may be given exactly 0, and then costs nothing.
"""

from collections.abc import Iterator

import numpy as np
from numpy.random import Generator
from scipy.special import erfcx, ndtr

from spuir.core.statistics import blocks
from spuir.records import Codes, Floats, Mask

REACH = 9.0
"""Sds within which a normal is taken to lie: what is beyond has probability 1.1e-19."""
TIE = 1e-12
"""Relative to the row's largest |mean|: certain values this close are tied, and sds this small are zero."""
SLOPE, DEGREE = 0.32, 9
NODES = 8.0
INVERSE_ROOT = 1.0 / np.sqrt(2.0 * np.pi)
SCREEN_BYTES = 4 * 2**20
WORK_BYTES = 2**18
"""Rows are screened and integrated in pieces of about these sizes: bounded memory, and the inner one in cache."""


def win_probabilities(means: Floats, sds: Floats, eligible: Mask) -> Floats:
    """Return the probability that each of M independent normals is the largest of its row's eligible ones.

    Parameters
    ----------
    means, sds
        (n, M) finite means and sds ≥ 0, at any scale and offset. An sd of at most 1e-12 of the row's largest
        |mean| counts as 0: a certain value; the highest certain values share their probability equally, those
        within 1e-12 relative counting as tied.
    eligible
        (n, M) mask; an ineligible action has probability 0. A row without eligible actions is all 0.

    Returns
    -------
    (n, M) probabilities, within the module's tolerance; each row sums to one.
    """
    out = np.zeros(means.shape)
    for rows in blocks(len(means), 8 * means.shape[1], SCREEN_BYTES):
        out[rows] = _block_probabilities(*(np.ascontiguousarray(part[rows].T) for part in (means, sds, eligible))).T
    return out


def monte_carlo_probabilities(
    means: Floats, sds: Floats, eligible: Mask, draws: int, rng: Generator, executed: Codes
) -> Floats:
    """Estimate the probability of each row's executed action by joint draws, as the authors do.

    Parameters
    ----------
    means, sds, eligible
        (n, M), as for :func:`win_probabilities`.
    draws
        Joint draws of all M scores per row; the standard error is at most ½/√draws.
    executed
        (n,) codes of the executed actions.

    Returns
    -------
    (n,) estimates (hits + 1)/(draws + 1): never 0, even where the action did not win once.
    """
    n, m = means.shape
    hits = np.zeros(n)
    for rows in blocks(n, 8 * m * draws, SCREEN_BYTES):
        scores = rng.standard_normal((draws, rows.stop - rows.start, m))
        scores *= sds[rows]
        scores += means[rows]
        scores[:, ~eligible[rows]] = -np.inf
        best = scores.max(axis=2, keepdims=True)
        winners = scores >= best - TIE * np.abs(best)
        own = winners[:, np.arange(winners.shape[1]), executed[rows]]
        hits[rows] = np.sum(own / winners.sum(axis=2), axis=0)
    return (hits + 1.0) / (draws + 1.0)


def _block_probabilities(means: Floats, sds: Floats, eligible: Mask) -> Floats:
    """Return the probabilities (M, r) of rows given as columns: certain ones and pairs at once, others by quadrature."""
    means, sds, kept = _screen(means, sds, eligible)
    count = np.count_nonzero(kept, axis=0)
    doubtful = (count > 1) & np.any(kept & (sds > 0.0), axis=0)
    out = kept / np.maximum(count, 1)
    pairs = np.flatnonzero(doubtful & (count == 2))
    if len(pairs):
        first = np.argmax(kept[:, pairs], axis=0)
        last = len(kept) - 1 - np.argmax(kept[::-1, pairs], axis=0)
        z = (means[first, pairs] - means[last, pairs]) / np.hypot(sds[first, pairs], sds[last, pairs])
        out[first, pairs], out[last, pairs] = ndtr(z), ndtr(-z)
    rest = np.flatnonzero(doubtful & (count > 2))
    if len(rest):
        out[:, rest] = _integrated(means[:, rest], sds[:, rest], kept[:, rest], count[rest])
    return out


def _screen(means: Floats, sds: Floats, eligible: Mask) -> tuple[Floats, Floats, Mask]:
    """Return means and sds (M, r) with each best mean at 0 and largest sd at 1, and the actions that can win.

    Certain values keep sd 0; only the highest of them, with its ties set equal to it, can win.
    """
    size = np.max(np.where(eligible, np.abs(means), 0.0), axis=0)
    means = np.where(eligible, means, -np.inf)
    sds = np.where(eligible & (sds > TIE * size), sds, 0.0)
    scale = np.max(sds, axis=0)
    scale[scale == 0.0] = 1.0
    top = np.max(means, axis=0)
    with np.errstate(over="ignore"):
        means = (means - np.where(np.isfinite(top), top, 0.0)) / scale
    sds /= scale
    kept = eligible
    certain = eligible & (sds == 0.0)
    if np.any(certain):
        highest = np.max(np.where(certain, means, -np.inf), axis=0)
        tied = certain & (means >= highest - TIE * size / scale)
        means = np.where(tied, highest, means)
        kept = tied | (eligible & ~certain)
    low = np.max(np.where(kept, means - REACH * sds, -np.inf), axis=0)
    leader = np.argmax(means, axis=0)
    beaten = -means > REACH * np.hypot(sds, sds[leader, np.arange(len(leader))])
    # P(j wins) is at most the probability that j exceeds any one other action, here either of two.
    return means, sds, kept & ~beaten & (means + REACH * sds >= low)


def _integrated(means: Floats, sds: Floats, kept: Mask, count: Codes) -> Floats:
    """Return the probabilities (M, r) of rows in which three or more actions can win."""
    width = int(count.max())
    order = np.argsort(~kept, axis=0, kind="stable")[:width]
    there = np.take_along_axis(kept, order, axis=0)
    # A slot without an action holds a normal at −∞: cdf 1, density 0, so that it needs no mask below.
    m = np.where(there, np.take_along_axis(means, order, axis=0), -np.inf)
    s = np.where(there, np.take_along_axis(sds, order, axis=0), 1.0)
    if np.any(s == 0.0):
        # A certain value acts as a normal that is far narrower than every other one.
        s = np.where(s == 0.0, 1e-6 * np.min(np.where(s > 0.0, s, 1.0), axis=0), s)
    low, unit, span, nodes = _grid(m, s)
    won = np.zeros_like(m)
    for rows, size, slots in _groups(nodes, count):
        for piece in blocks(len(rows), 8 * size * slots, WORK_BYTES):
            some = rows[piece]
            won[:slots, some] = _trapezoid(m[:slots, some], s[:slots, some], low[some], unit[some], span[some], size)
    out = np.zeros(means.shape)
    np.put_along_axis(out, order, won, axis=0)
    return out


def _grid(m: Floats, s: Floats) -> tuple[Floats, Floats, Floats, Codes]:
    """Return where each row's grid starts, its unit, its length in t, and its number of nodes, each (r,)."""
    low = np.max(m - REACH * s, axis=0)
    # log F is concave: Newton's steps towards F = 1e-18 from below never pass it.
    for _ in range(2 + len(m).bit_length() // 2):
        cdf, hazard = _normal((low - m) / s)
        missing = np.log(1e-18) - np.sum(np.log(cdf), axis=0)
        low = low + np.maximum(missing, 0.0) / np.sum(hazard / s, axis=0)
    # The largest of many normals varies less than each of them: closer nodes for more actions.
    unit = 6.0 / (1.0 + 0.25 * np.log2(len(m))) * np.min(s, axis=0)
    span = np.arcsinh((np.max(m + REACH * s, axis=0) - low) / unit)
    nodes = np.ceil(NODES * span).astype(np.intp) + 1
    return low, unit, span, nodes


def _groups(nodes: Codes, count: Codes) -> Iterator[tuple[Codes, int, int]]:
    """Return the rows in groups of about equal work, each with its numbers of nodes and of slots."""
    key = 64 * np.ceil(np.log(nodes) / np.log(1.25)) + np.ceil(np.log2(count))
    for one in np.unique(key):
        rows = np.flatnonzero(key == one)
        yield rows, int(nodes[rows].max()), int(count[rows].max())


def _trapezoid(m: Floats, s: Floats, low: Floats, unit: Floats, span: Floats, nodes: int) -> Floats:
    """Return the probabilities (m, r) of rows given as columns, from ``nodes`` values of the integrand."""
    grow = np.exp(np.linspace(0.0, 1.0, nodes)[:, None] * span)
    shrink = 1.0 / grow
    z = low + (0.5 * unit) * (grow - shrink)
    inverse = 1.0 / s
    x = z[None] - m[:, None]
    x *= inverse[:, None]
    cdf, hazard = _normal(x)
    hazard *= np.prod(cdf, axis=0) * (grow + shrink)
    won = np.sum(hazard, axis=1) * inverse
    return won / np.sum(won, axis=0)


def _normal(x: Floats) -> tuple[Floats, Floats]:
    """Return Φ(x) and φ(x)/Φ(x), with relative error below 2e-8, for x ≥ −35.

    One exponential serves both, and a polynomial in 1/(1 + c|x|) the rest: three times as fast as ``ndtr``.
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
    density *= INVERSE_ROOT
    density /= cdf
    return cdf, density


def _mills() -> list[float]:
    """Return p_k with Φ(−y)·exp(y²/2) = t·Σ_k p_k tᵏ, t = 1/(1 + SLOPE·y): an interpolation of ``erfcx``."""
    def ratio(t: Floats) -> Floats:
        return 0.5 * erfcx((1.0 / t - 1.0) / (SLOPE * np.sqrt(2.0))) / t
    series = np.polynomial.Chebyshev.interpolate(ratio, DEGREE, domain=[0.0, 1.0])
    return [float(c) for c in series.convert(kind=np.polynomial.Polynomial).coef]


MILLS = _mills()
