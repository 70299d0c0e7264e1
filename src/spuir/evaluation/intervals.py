"""Intervals for values and paired differences.

==================  ==============================================================================================
name                what it promises
==================  ==============================================================================================
normal              the level for one look at large logs: a t interval with a correction for skewness (the default)
bootstrap           the same, from draws of the blocks: 2,000 Poisson bootstraps, studentised
empirical-bernstein the level for one look at any number of rows, if the log shows the span of the terms; wide
sequence            the level at all times together, so that one may look every day and stop when one likes
==================  ==============================================================================================
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from spuir.base.records import Floats
from spuir.base.streams import generator
from spuir.errors import UnknownNameError, did_you_mean
from spuir.evaluation.block_sums import Estimate
from spuir.evaluation.support import NONE, WEAK, Support

BETTER, WORSE, OPEN, REFUSED = "better", "worse", "not distinguishable", "refused"
"""Verdicts on a paired difference."""
DRAWS = 2000
"""Bootstrap draws."""
DRAW_CELLS = 1 << 22
"""Poisson numbers that are weighed at a time."""
LOOK = 10_000
"""A confidence sequence is tightest after about this many pieces."""


class ValueInterval(NamedTuple):
    """The ends of an interval."""

    low: float
    high: float


def check_kind(kind: str) -> None:
    """Refuse a name that no kind of interval has."""
    if kind not in INTERVALS:
        rule = "no kind of interval has that name"
        raise UnknownNameError("interval", repr(kind), rule, did_you_mean(kind, INTERVALS, "intervals"))


def interval(estimate: Estimate, level: float = 0.95, kind: str = "normal", seed: int = 0) -> ValueInterval:
    """Return the two-sided interval of an estimate, infinite where the log has fewer than two blocks.

    Where one more row would move an estimate by more than its error, rewards may be too rare to have been seen: n rows
    show none of probability q with probability (1 − q)ⁿ, so that any q up to log(2/risk)/n is possible.
    """
    check_kind(kind)
    if len(estimate.influence) < 2:
        return ValueInterval(-np.inf, np.inf)
    low = high = estimate.value
    if estimate.variance > 0:
        low, high = INTERVALS[kind](estimate, 1 - level, seed)
    down, up = np.log(2 / (1 - level)) * np.array(estimate.one_more)
    if down:
        low = estimate.value - np.hypot(estimate.value - low, down)
    if up:
        high = estimate.value + np.hypot(high - estimate.value, up)
    return ValueInterval(float(low), float(high))


def verdict(
    paired: Estimate, supports: Sequence[Support | None], level: float, kind: str = "normal", seed: int = 0
) -> str:
    """Return which of two policies is better by their paired difference; refused if one of them has no support.

    ``supports`` are those of the two, None for a policy whose value was observed. Where one is weak, an empirical
    Bernstein interval has to agree.
    """
    found = {one.verdict for one in supports if one is not None}
    if NONE in found:
        return REFUSED
    kinds = (kind, *(["empirical-bernstein"] if WEAK in found else []))
    ends = [interval(paired, level, one, seed) for one in kinds]
    if all(low > 0 for low, _ in ends):
        return BETTER
    return WORSE if all(high < 0 for _, high in ends) else OPEN


def _normal(estimate: Estimate, risk: float, seed: int) -> tuple[float, float]:
    """Invert Hall's transformation of the t statistic, which removes the effect of skewness to first order.

    The quantile is that of t with as many degrees of freedom as the error s has by the kurtosis of the blocks.
    With t = (estimate − truth)/s and γ the skewness of the sum of blocks, g(t) = t + γt²/3 + γ²t³/27 + γ/6 is
    nearly symmetric. g increases, and its inverse is 3·((1 + γ(x − γ/6))^(1/3) − 1)/γ.
    """
    effects, error = estimate.influence, estimate.standard_error
    powers = np.square(effects)
    squares, count = powers.sum(), len(effects)
    # The variance of a variance: rare large effects leave fewer degrees of freedom than there are blocks.
    kurtosis = max(float(count * (powers @ powers) / squares**2), 3.0)
    quantile = float(stdtrit(min(count - 1, 2 * count / (kurtosis - 1)), 1 - risk / 2))
    skewness = float((powers @ effects) / squares**1.5)
    bounds = quantile * np.array([1.0, -1.0])
    if abs(skewness) > 1e-6:
        bounds = 3 * (np.cbrt(1 + skewness * (bounds - skewness / 6)) - 1) / skewness
    low, high = estimate.value - error * bounds
    return low, high


@lru_cache(maxsize=1)
def _poisson(seed: int, blocks: int) -> NDArray[np.uint8]:
    """Return how often each block counts in each draw (k, B): the same for all estimates of an evaluation."""
    rng = generator(seed, "evaluation", "bootstrap")
    return rng.poisson(1.0, (DRAWS, blocks)).astype(np.uint8)


def _bootstrap(estimate: Estimate, risk: float, seed: int) -> tuple[float, float]:
    """Draw every block Poisson(1) times, and compare each draw with the estimate in units of its own error."""
    blocks = len(estimate.rows)
    counts = _poisson(seed, blocks)
    shifts: list[Floats] = []
    step = max(1, DRAW_CELLS // blocks)
    for start in range(0, DRAWS, step):
        moved, errors = estimate.redrawn(counts[start : start + step].astype(np.float64))
        shifts.append(moved[errors > 0] / errors[errors > 0])  # of few blocks a draw may have none
    low, high = np.quantile(np.concatenate(shifts), [1 - risk / 2, risk / 2])
    error = estimate.standard_error
    return estimate.value - low * error, estimate.value - high * error


def _empirical_bernstein(estimate: Estimate, risk: float, seed: int) -> tuple[float, float]:
    """Apply the inequality of Maurer and Pontil to both sides, with the span that the log shows."""
    n, log = estimate.pieces, np.log(4 / risk)
    half = np.sqrt(2 * estimate.variance * log) + 7 * estimate.span * log / (3 * max(n - 1, 1))
    return estimate.value - half, estimate.value + half


def _sequence(estimate: Estimate, risk: float, seed: int) -> tuple[float, float]:
    """Return the asymptotic confidence sequence of Waudby-Smith et al. at the present number of pieces."""
    n = estimate.pieces
    rho = (-2 * np.log(risk) + np.log(-2 * np.log(risk)) + 1) / LOOK
    half = np.sqrt(estimate.variance * 2 * (n * rho + 1) / (n * rho) * np.log(np.sqrt(n * rho + 1) / risk))
    return estimate.value - half, estimate.value + half


INTERVALS: dict[str, Callable[[Estimate, float, int], tuple[float, float]]] = {
    "normal": _normal,
    "bootstrap": _bootstrap,
    "empirical-bernstein": _empirical_bernstein,
    "sequence": _sequence,
}
"""The kinds of intervals by name."""
