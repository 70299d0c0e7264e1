"""From numbers to verdicts: intervals over seeds, fitted exponents, and the one rule that all verdicts follow.

Runs with the same seed share their environment, contexts and noise, so methods are compared by differences within
seeds.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from spuir.reproduction.base import AUTHORS_ONLY, FAILS, HOLDS, OPEN, Outcome, Verdict
from spuir.reproduction.tasks import Result

CONFIDENCE = 0.95
ENOUGH_SEEDS = 3
"""With fewer seeds nothing is decided: an interval over two seeds carries almost no information."""


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval, and the number of seeds behind it.

    One seed gives an infinite interval. An estimate that does not exist is NaN in an infinite interval.
    """

    estimate: float
    low: float
    high: float
    seeds: int = ENOUGH_SEEDS

    def __neg__(self) -> "Interval":
        """Return the interval of the negated quantity, for a claim that something is smaller."""
        return Interval(-self.estimate, -self.high, -self.low, self.seeds)

    def minus(self, value: float) -> "Interval":
        """Return the interval of the quantity minus a constant, for a claim that it exceeds the constant."""
        return Interval(self.estimate - value, self.low - value, self.high - value, self.seeds)

    def times(self, factor: float) -> "Interval":
        """Return the interval of the quantity times a positive constant, for a change of unit."""
        return Interval(self.estimate * factor, self.low * factor, self.high * factor, self.seeds)


def summary(values: Iterable[float]) -> tuple[float, float]:
    """Return the mean and its standard error. The error of a single value is NaN; without values both are NaN."""
    array = np.asarray(list(values), dtype=np.float64)
    mean = float(array.mean()) if len(array) else math.nan
    return mean, float(array.std(ddof=1) / math.sqrt(len(array))) if len(array) > 1 else math.nan


def mean_of(values: Mapping[int, float]) -> float:
    """Return the mean of values by seed; NaN without any."""
    return summary(values.values())[0]


def with_error(title: str, values: Iterable[float]) -> dict[str, float]:
    """Return the mean and its standard error as two columns of a table: ``title`` and ``title ±``."""
    mean, error = summary(values)
    return {title: mean, f"{title} ±": error}


def estimate(values: Iterable[float]) -> Interval:
    """Return the mean of values, one for each seed, with its 95 % t-interval."""
    array = list(values)
    mean, error = summary(array)
    if not math.isfinite(error):
        return Interval(mean, -math.inf, math.inf, len(array))
    reach = float(stdtrit(len(array) - 1, 0.5 + CONFIDENCE / 2)) * error
    return Interval(mean, mean - reach, mean + reach, len(array))


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Interval:
    """Return the mean of ours − theirs over the seeds that both have, with its 95 % t-interval."""
    return estimate(ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys()))


def relative_gains(ours: Mapping[int, float], theirs: Mapping[int, float]) -> dict[int, float]:
    """Return ours / theirs − 1 for each seed that both have."""
    return {seed: ours[seed] / theirs[seed] - 1.0 for seed in sorted(ours.keys() & theirs.keys())}


def slope(x: ArrayLike, y: ArrayLike) -> float:
    """Return the least-squares slope of log y over log x; NaN where a value is not positive or x is one point."""
    at, value = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if len(np.unique(at)) < 2 or not (np.all(at > 0) and np.all(value > 0)):
        return math.nan
    return float(np.polyfit(np.log(at), np.log(value), 1)[0])


def power_law(x: Sequence[float], y_by_seed: Mapping[int, Sequence[float]]) -> Interval:
    """Return the exponent of y ∝ x^k: the mean over seeds of each seed's log-log slope, with its 95 % t-interval.

    ``y_by_seed`` holds, for each seed, the values at ``x`` in its order. A value that is not positive has no
    logarithm: the exponent is then NaN, for a fit on the seeds without such a value would be of chosen ones.
    """
    return estimate(slope(x, values) for values in y_by_seed.values())


def last(results: Iterable[Result], column: str) -> dict[int, float]:
    """Return the value of each result's last checkpoint, by its seed."""
    return {int(result.arguments["seed"]): float(result.rows[-1][column]) for result in results}


def weakest(intervals: Iterable[Interval]) -> Interval:
    """Return the interval with the lowest lower end: it decides a claim about all of them."""
    return min(intervals, key=lambda interval: interval.low)


def judge(claimed: Interval, tuned: Interval | None = None, margin: float = 0.0) -> Outcome:
    """Return the outcome of a claim that a difference is positive.

    Parameters
    ----------
    claimed
        The difference at the authors' settings. The claim holds there if the whole interval exceeds ``margin``.
    tuned
        The difference with each method at its own best setting, where there is one. It has to exceed ``margin`` too.
    margin
        Negative for "at most this much worse", positive for "better by at least this much".
    """
    asked = [claimed] if tuned is None else [claimed, tuned]
    if any(one.seeds < ENOUGH_SEEDS or math.isnan(one.estimate) for one in asked):
        return OPEN
    if not claimed.low > margin:
        return FAILS
    return HOLDS if tuned is None or tuned.low > margin else AUTHORS_ONLY


def say(interval: Interval, spec: str = ".4f") -> str:
    """Return "estimate [low, high]"."""
    return f"{interval.estimate:{spec}} [{interval.low:{spec}}, {interval.high:{spec}}]"


def say_all(intervals: Mapping[str, Interval], spec: str = ".4f") -> str:
    """Return "name: estimate [low, high]" of each, separated by semicolons."""
    return "; ".join(f"{name}: {say(interval, spec)}" for name, interval in intervals.items())


def all_above(
    id: str,
    claim: str,
    what: str,
    intervals: Mapping[str, Interval],
    *,
    spec: str = ".4f",
    margin: float = 0.0,
    also: str = "",
) -> Verdict:
    """Return the verdict on a claim that every one of the named intervals lies above ``margin``.

    ``what`` says what the intervals measure; ``also`` is a sentence to end with.
    """
    rule = f"Rule: every 95 % t-interval over seeds above {margin:g}."
    evidence = f"{what}: {say_all(intervals, spec)}. {rule} {also}".rstrip()
    return Verdict(id, claim, judge(weakest(intervals.values()), margin=margin), evidence)
