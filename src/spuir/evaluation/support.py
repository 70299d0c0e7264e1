"""Support: can this log tell what a policy would earn? A verdict, with the numbers behind it.

A log supports a policy if the actions that the policy would choose were tried, often enough, in such contexts. The
numbers are those of the weights ρ = π(a|x)/p of the rows.
"""

from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from spuir.base.counting import counted
from spuir.base.records import Floats
from spuir.evaluation.estimators import TargetRows

GOOD, WEAK, NONE = "good", "weak", "none"
LARGEST = 4096
"""How many of the largest weights are kept, for the tail of their distribution."""
LEAST_PIECES, FEW_PIECES = 30, 300
"""Effective rows below which there is no support, and below which it is weak."""
MOST_UNSEEN, SOME_UNSEEN = 0.05, 0.001
"""Share of a policy's choices on actions that were never logged."""
MOST_OF_ONE = 0.02
"""Share of the whole weight that a single row may have."""
HEAVY_TAIL, HOPELESS_TAIL = 0.7, 1.0
"""Tail index of the weights above which their variance is not to be trusted, and their mean neither."""
MISSING = 5.0
"""Expected number of weights above the largest one beyond which a fitted tail is refuted: none comes with 1 in 150."""
LEAST_MEAN = 0.8
"""Mean weight below which the policy too often chooses actions that were never tried in the context."""
SURE = 4.0
"""Standard errors beyond which a deviation is not chance."""
PRECISION = 0.16
"""Precision of a value that is worth logging for, in standard deviations of the reward."""


class WeightSums:
    """What one pass keeps of the weights of a policy."""

    def __init__(self) -> None:
        self.rows, self.total, self.squares, self.matched = 0, 0.0, 0.0, 0.0
        self.weight, self.spread, self.earned = 0.0, 0.0, 0.0  # Σω and Σω² of the row weights ω, and Σωρr
        self.largest: Floats = np.zeros(0)
        self.same = True
        self.histogram = np.zeros(len(EDGES) + 1)

    def add(self, part: TargetRows, rows: int, weights: Floats | None = None, every: Floats | None = None) -> None:
        """Take the weights ρ of a policy's rows (k,); the others of ``rows`` have 0.

        ``weights`` (k,) are the row weights ω of these, and ``every`` (n,) those of all rows; None = ones.
        """
        ratios = part.ratios
        self.rows += rows
        self.weight += rows if every is None else float(every.sum())
        self.spread += rows if every is None else float(every @ every)
        carried = ratios if weights is None else weights * ratios
        self.total += float(carried.sum())
        self.squares += float(carried @ carried)
        self.earned += float(carried @ part.rewards)
        self.matched += float(part.target.sum() if weights is None else weights @ part.target)
        top = carried if len(self.largest) < LARGEST else carried[carried > self.largest.min()]
        if len(top):
            joined = np.concatenate([self.largest, top])
            self.largest = joined if len(joined) <= LARGEST else np.partition(joined, -LARGEST)[-LARGEST:]
        self.same = self.same and len(ratios) == rows and bool(np.abs(ratios - 1).max(initial=0.0) < 1e-9)
        # Of few edges, counting what lies above each is faster than a search for every ratio.
        above = np.array([rows, *(np.count_nonzero(ratios >= edge) for edge in EDGES[part.largest >= EDGES])])
        self.histogram[: len(above)] += above - np.append(above[1:], 0)

    def one_more(self, reward_range: tuple[float, float], error: float) -> tuple[float, float]:
        """Return how far one more effective row with the least or the largest reward moves a value beyond its error."""
        if not self.total:
            return 0.0, 0.0
        (least, most), mean = reward_range, self.earned / self.total
        down, up = (mean - least) / self.effective, (most - mean) / self.effective
        return down if down > error else 0.0, up if up > error else 0.0

    @property
    def mean(self) -> float:
        """Mean weight, which is 1 where the log supports the policy."""
        return self.total / self.weight

    @property
    def error(self) -> float:
        """Standard error of the mean weight."""
        return float(np.sqrt(max(self.squares - self.mean**2 * self.spread, 0.0)) / self.weight)

    @property
    def effective(self) -> float:
        """Effective sample size (Σωρ)²/Σ(ωρ)²."""
        return self.total**2 / self.squares if self.squares else 0.0


EDGES = np.array([1e-9, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000])
"""Edges of the histogram of weights; the first bin holds the zeros."""


@dataclass(frozen=True, kw_only=True)
class Support:
    """Whether the log can tell what one policy would earn.

    Parameters
    ----------
    verdict
        "good", "weak" or "none".
    reasons
        Why it is not good, in sentences.
    effective_rows, share
        Effective sample size, and its share of the rows.
    largest, mean_weight
        The largest weight, and the mean one, which is 1 where the log supports the policy.
    tail
        Pareto index of the largest weights; above 0.7, do not trust the errors. None for few weights.
    match
        Mean probability of the executed actions under the policy.
    unseen
        Share of the policy's choices on actions that were never logged.
    """

    verdict: str
    reasons: tuple[str, ...] = ()
    effective_rows: float
    share: float
    largest: float
    mean_weight: float
    tail: float | None
    match: float
    unseen: float
    same_policy: bool = False
    histogram: tuple[float, ...] = field(default=(), repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the support as JSON-ready data."""
        return asdict(self) | {"reasons": list(self.reasons), "histogram": list(self.histogram)}


def judge(sums: WeightSums, mass: Floats, counts: Floats, actions: Sequence[Hashable], trusted: bool) -> Support:
    """Return the support of a policy.

    Parameters
    ----------
    sums
        Its weights.
    mass
        (M,) mean probability of each action under the policy.
    counts
        (M,) how often each action was logged.
    actions
        Labels of the actions.
    trusted
        Whether the logged propensities agree with the shares of the actions.
    """
    unseen = float(mass[counts == 0].sum())
    tail = pareto_tail(sums.largest, sums.rows)
    short = sums.mean + SURE * sums.error
    largest = float(sums.largest.max(initial=0.0)) * sums.rows / sums.weight
    bad, doubts = list[str](), list[str]()
    if unseen > SOME_UNSEEN:
        never = [str(actions[code]) for code in np.flatnonzero((counts == 0) & (mass > 0)).tolist()][:5]
        sentence = f"{unseen:.1%} of its choices are actions that were never logged ({', '.join(never)})"
        (bad if unseen > MOST_UNSEEN else doubts).append(sentence)
    if sums.effective < FEW_PIECES:
        sentence = f"it rests on only {counted(round(sums.effective), 'effective row')} of {sums.rows:,}"
        (bad if sums.effective < LEAST_PIECES else doubts).append(sentence)
    if short < 1 - 0.02 and unseen <= SOME_UNSEEN:
        sentence = f"the mean weight is {sums.mean:.2f} instead of 1: some of its choices were never tried in context"
        (bad if short < LEAST_MEAN else doubts).append(sentence)
    elif sums.mean < LEAST_MEAN and unseen <= SOME_UNSEEN:
        doubts.append(f"the mean weight is {sums.mean:.2f}, far from 1, on few rows")
    elif sums.mean - SURE * sums.error > 1 + 0.02:
        doubts.append(f"the mean weight is {sums.mean:.2f} instead of 1: the logged propensities are too small")
    if sums.effective >= FEW_PIECES and sums.largest.max() > MOST_OF_ONE * sums.total:
        doubts.append(f"a single row has {sums.largest.max() / sums.total:.1%} of the whole weight")
    if tail is not None and tail > HEAVY_TAIL:
        sentence = f"a few rows dominate (Pareto index {tail:.2f}, largest weight {largest:,.0f})"
        (bad if tail > HOPELESS_TAIL and sums.effective < FEW_PIECES else doubts).append(sentence)
    if not trusted and not any("too small" in doubt for doubt in doubts):
        doubts.append("the logged propensities do not agree with the shares of the actions")
    return Support(
        verdict=NONE if bad else WEAK if doubts else GOOD,
        reasons=tuple(bad + doubts),
        effective_rows=sums.effective,
        share=sums.effective / sums.rows,
        largest=largest,
        mean_weight=sums.mean,
        tail=tail,
        match=sums.matched / sums.weight,
        unseen=unseen,
        same_policy=sums.same,
        histogram=tuple(sums.histogram.tolist()),
    )


def pareto_tail(largest: Floats, rows: int) -> float | None:
    """Return the index k of a generalised Pareto distribution fitted to the largest weights (Zhang and Stephens).

    Weights that are bounded, as with propensities above a floor, have k < 0.5. None where too few differ, and where
    the largest weights are no tail: with a few kinds of contexts and propensities they lie in groups, to which a heavy
    tail is fitted that would have given far larger weights.
    """
    count = int(min(0.2 * rows, 3 * np.sqrt(rows), LARGEST - 1))
    ordered = np.sort(largest)
    if count < 20 or len(ordered) <= count:
        return None
    tail = ordered[-count:] - ordered[-count - 1]
    if tail[-1] <= 0 or tail[count // 4] <= 0:
        return None  # many equal weights: the tail is an edge, not a slope
    grid = 30 + int(np.sqrt(count))
    steps = np.arange(1, grid + 1)
    b = (1 - np.sqrt(grid / (steps - 0.5))) / (3 * tail[int(count / 4 + 0.5) - 1]) + 1 / tail[-1]
    b = b[b != 0.0]  # there the profile is 0/0, and its neighbours say the same
    k = np.log1p(-b[:, None] * tail).mean(axis=1)
    profile = count * (np.log(-b / k) - k - 1)
    weights = np.exp(profile - profile.max())  # at most 1: differences may be too large for exp
    best = float((b * weights).sum() / weights.sum())
    index = float(np.log1p(-best * tail).mean())
    if index > 0 and count * (1 - best * tail[-1]) ** (-1 / index) > MISSING:
        return None
    return (count * index + 10 * 0.5) / (count + 10)


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Whether logged propensities agree with the shares of the actions.

    ``rows`` are (label, rows, mean of 1[a]/p, its standard error): the mean is 1 where the propensities are right and
    the action could always be chosen. ``wrong`` are the labels whose mean is clearly above 1, or below it.
    """

    rows: tuple[tuple[Hashable, int, float, float], ...]
    wrong: tuple[Hashable, ...]

    @property
    def trusted(self) -> bool:
        """Whether no action has too small propensities."""
        return not self.wrong


def calibrate(
    actions: Sequence[Hashable],
    counts: Floats,
    inverse: Floats,
    squares: Floats,
    weight: float,
    spread: float | None = None,
) -> Calibration:
    """Compare Σ ω1[a]/p (M,), with the sums of squares of its terms, with the weight Σω of the rows.

    ``spread`` is Σω²; None where every weight ω is 1.
    """
    mean = inverse / weight
    error = np.sqrt(np.maximum(squares - mean**2 * (weight if spread is None else spread), 0.0)) / weight
    lines = tuple(
        (label, int(counts[code]), float(mean[code]), float(error[code])) for code, label in enumerate(actions)
    )
    wrong = tuple(label for label, _, at, sd in lines if at - SURE * sd > 1.02)
    return Calibration(rows=lines, wrong=wrong)


def advice(actions: int) -> str:
    """Return which data would help: a floor and a number of decisions.

    With a floor f, the variance of a value is at most about that of the reward over f, so that (1.96/h)²/f decisions
    give it within h standard deviations of the reward.
    """
    floor = min(0.05, float(f"{0.5 / max(actions, 2):.1g}"))
    needed = float(f"{(1.96 / PRECISION) ** 2 / floor:.1g}")
    return f"log with floor {floor:g} for about {needed:,.0f} decisions"
