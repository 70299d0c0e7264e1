"""From numbers to verdicts: samples over seeds, contrasts of samples with intervals, and one rule for every claim.

A sample is one number per seed. A contrast is a weighted sum of samples, taken within each seed: a difference of two
methods, a ratio of times (a difference of logarithms) or a fitted exponent (weights of a slope). Runs with the same
seed share their environment, contexts and noise, so contrasts are paired. Everything can be computed again from the
samples: reports store these as CSV, and each verdict names its contrasts with their weights.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from scipy.special import stdtrit

from spuir.reproduction.tasks import Result

CONFIDENCE = 0.95
ENOUGH_SEEDS = 3
"""With fewer seeds nothing is decided: an interval over two seeds carries almost no information."""
MARGIN = 1.0
"""Two rewards are alike if they differ by less than this many per cent; a smaller lead is a lead of no interest."""

HOLDS, CONTRADICTED, UNDECIDED, CODE_ONLY, NOT_TESTED = (
    "holds",
    "contradicted",
    "undecided",
    "only at the settings of the authors' code",
    "not a test",
)
Source = Literal["paper", "authors' code", "ours"]


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval, and the number of seeds behind it; infinite for a single seed."""

    estimate: float
    low: float
    high: float
    seeds: int = ENOUGH_SEEDS

    def __neg__(self) -> "Interval":
        """Return the interval of the negated quantity."""
        return Interval(-self.estimate, -self.high, -self.low, self.seeds)

    def through(self, rising: Callable[[float], float]) -> "Interval":
        """Return the interval of a rising function of the quantity."""
        return Interval(rising(self.estimate), rising(self.low), rising(self.high), self.seeds)


def summary(values: Iterable[float]) -> tuple[float, float]:
    """Return the mean and its standard error. The error of a single value is NaN; without values both are NaN."""
    array = np.asarray(list(values), dtype=np.float64)
    mean = float(array.mean()) if len(array) else math.nan
    return mean, float(array.std(ddof=1) / math.sqrt(len(array))) if len(array) > 1 else math.nan


def with_error(title: str, values: Iterable[float]) -> dict[str, float]:
    """Return the mean and its standard error as two columns of a table: ``title`` and ``title ±``."""
    mean, error = summary(values)
    return {title: mean, f"{title} ±": error}


def interval(values: Iterable[float], level: float = CONFIDENCE) -> Interval:
    """Return the mean of values, one for each seed, with its t-interval."""
    array = list(values)
    mean, error = summary(array)
    if not math.isfinite(error):
        return Interval(mean, -math.inf, math.inf, len(array))
    reach = float(stdtrit(len(array) - 1, 0.5 + level / 2)) * error
    return Interval(mean, mean - reach, mean + reach, len(array))


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One number per seed, with the key of the task that measured it."""

    name: str
    values: Mapping[int, float]
    runs: Mapping[int, str] = field(default_factory=dict[int, str])

    def __iter__(self) -> Iterator[float]:
        return iter(self.values.values())

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return summary(self)[0]


Picker = Callable[[Sequence[Mapping[str, Any]]], float]


def sample(name: str, results: Iterable[Result], column: str | Picker) -> Sample:
    """Return a column of each result's last row, or what a function picks of its rows, by seed."""
    pick: Picker = (lambda rows: rows[-1][column]) if isinstance(column, str) else column
    seeds = {int(result.arguments["seed"]): result for result in results}
    return Sample(
        name=name,
        values={seed: float(pick(result.rows)) for seed, result in seeds.items()},
        runs={seed: result.task.key for seed, result in seeds.items()},
    )


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """A weighted sum of samples within seeds.

    Parameters
    ----------
    name
        What is compared, e.g. "PUIR − SBUCB, synthetic".
    terms
        Weights and samples.
    log
        Whether the logarithm of every value is taken first.
    percent_of
        A sample whose mean is 100 %; None leaves the unit of the values.
    """

    name: str
    terms: tuple[tuple[float, Sample], ...]
    log: bool = False
    percent_of: Sample | None = None

    def by_seed(self) -> dict[int, float]:
        """Return the value of every seed that all samples have."""
        if not self.terms:
            return {}
        common = set.intersection(*(set(one.values) for _, one in self.terms))
        unit = 1.0 if self.percent_of is None else 100.0 / self.percent_of.mean
        values: dict[int, float] = {}
        for seed in sorted(common):
            parts = [(weight, one.values[seed]) for weight, one in self.terms]
            if self.log and any(value <= 0 for _, value in parts):
                return {}  # without a logarithm there is no value, and leaving out seeds would choose among them
            values[seed] = unit * sum(weight * (math.log(value) if self.log else value) for weight, value in parts)
        return values

    def __iter__(self) -> Iterator[float]:
        return iter(self.by_seed().values())

    def interval(self, level: float = CONFIDENCE) -> Interval:
        """Return the mean over the seeds with its interval."""
        return interval(self, level)

    def minus(self, other: "Contrast", name: str) -> "Contrast":
        """Return the difference to another contrast of the same kind."""
        return replace(self, name=name, terms=(*self.terms, *((-weight, one) for weight, one in other.terms)))


def difference(name: str, ours: Sample, theirs: Sample, percent_of: Sample | None = None) -> Contrast:
    """Return ours − theirs, in per cent of a third sample if one is given."""
    return Contrast(name=name, terms=((1.0, ours), (-1.0, theirs)), percent_of=percent_of)


def ratio(name: str, over: Sample, under: Sample) -> Contrast:
    """Return the logarithm of over / under."""
    return Contrast(name=name, terms=((1.0, over), (-1.0, under)), log=True)


def level(name: str, one: Sample) -> Contrast:
    """Return a sample itself, to be compared with a margin."""
    return Contrast(name=name, terms=((1.0, one),))


def mean_ratio(name: str, over: Sequence[Sample], under: Sequence[Sample]) -> Contrast:
    """Return the mean logarithm of over / under over several pairs of samples."""
    terms = [(weight / len(some), one) for weight, some in ((1.0, over), (-1.0, under)) for one in some]
    return Contrast(name=name, terms=tuple(terms), log=True)


def exponent(name: str, at: Sequence[float], samples: Sequence[Sample]) -> Contrast:
    """Return the least-squares exponent k of values ∝ at^k, fitted within each seed."""
    if len(at) < 2:
        return Contrast(name=name, terms=(), log=True)
    x = np.log(np.asarray(at, dtype=np.float64))
    weights = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
    return Contrast(name=name, terms=tuple(zip(weights.tolist(), samples, strict=True)), log=True)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim and what decides it.

    Parameters
    ----------
    id
        Stable name, unique in its experiment. Reports put the experiment's name before it:
        ``"figure3a/imputation-helps"``. The wording may change; the id must not.
    place
        Where the paper says it: "Section 6, Figure 3(a)".
    wording
        The claim, close to the paper's words.
    source
        Who makes the claim.
    kind
        ``"more"``: every contrast exceeds ``margin``. ``"less"``: every one lies below it. ``"alike"``: every one lies
        within ± ``margin``.
    coded, tuned
        The contrasts at the settings of the authors' code (or the only ones), and with each method at its own best.
    fair
        Whether the claim needs the tuned contrasts; until they are there, it is undecided.
    unit
        Unit of the contrasts, for readers.
    untested
        Why this is not a test of the claim; "" if it is one.
    """

    id: str
    place: str
    wording: str
    source: Source = "paper"
    kind: Literal["more", "less", "alike"] = "more"
    coded: Sequence[Contrast] = ()
    tuned: Sequence[Contrast] = ()
    margin: float = 0.0
    fair: bool = False
    unit: str = "%"
    untested: str = ""

    @property
    def contrasts(self) -> list[Contrast]:
        """All contrasts."""
        return [*self.coded, *self.tuned]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A judged claim: its outcome, and the intervals that decided it at their common level."""

    claim: Claim
    outcome: str
    level: float
    coded: Sequence[Interval]
    tuned: Sequence[Interval]

    def record(self, experiment: str) -> dict[str, Any]:
        """Return the verdict as JSON data, from which it can be computed again."""
        claim = self.claim
        names = ("place", "wording", "source", "kind", "margin", "fair", "unit", "untested")
        judged = [*zip(claim.coded, self.coded, strict=True), *zip(claim.tuned, self.tuned, strict=True)]
        return (
            {"id": f"{experiment}/{claim.id}", "outcome": self.outcome, "level": self.level}
            | {name: getattr(claim, name) for name in names}
            | {
                "estimates": [
                    {
                        "settings": "authors-code" if place < len(claim.coded) else "tuned",
                        "name": contrast.name,
                        "estimate": one.estimate,
                        "low": one.low,
                        "high": one.high,
                        "n": one.seeds,
                        "log": contrast.log,
                        "percent_of": None if contrast.percent_of is None else contrast.percent_of.name,
                        "terms": [[weight, part.name] for weight, part in contrast.terms],
                    }
                    for place, (contrast, one) in enumerate(judged)
                ]
            }
        )


def samples_of(claims: Iterable[Claim]) -> dict[str, Sample]:
    """Return all samples behind some claims, by name."""
    found: dict[str, Sample] = {}
    for contrast in (one for claim in claims for one in claim.contrasts):
        for one in (*(part for _, part in contrast.terms), contrast.percent_of):
            if one is not None:
                found[one.name] = one
    return found


def state(claim: Claim, intervals: Sequence[Interval]) -> str:
    """Return whether a claim holds at one kind of settings: holds, contradicted or undecided."""
    if not intervals or any(one.seeds < ENOUGH_SEEDS or math.isnan(one.estimate) for one in intervals):
        return UNDECIDED
    margin = claim.margin
    if claim.kind == "alike":
        held = [-margin < one.low and one.high < margin for one in intervals]
        refuted = [one.low > margin or one.high < -margin for one in intervals]
    else:
        if claim.kind == "less":
            margin, intervals = -margin, [-one for one in intervals]
        held = [one.low > margin for one in intervals]
        # A difference that is the same for every seed has an interval without length; 0 is then no lead.
        refuted = [one.high < margin or one.low == one.high <= margin for one in intervals]
    return HOLDS if all(held) else CONTRADICTED if any(refuted) else UNDECIDED


def judge(claim: Claim, level: float) -> Verdict:
    """Return the verdict on a claim from intervals at ``level``.

    The fair comparison decides, with each method at its own best. Where the claim does not hold there but holds at the
    settings of the authors' code, it holds only there, provided that the fair comparison excludes a lead of 1 % or
    more; otherwise it is undecided.
    """
    coded, tuned = ([one.interval(level) for one in some] for some in (claim.coded, claim.tuned))
    outcome = state(claim, coded)
    if claim.untested:
        outcome = NOT_TESTED
    elif claim.fair:
        at_code, outcome = outcome, state(claim, tuned)
        no_lead = bool(tuned) and claim.kind == "more" and all(one.high < claim.margin + MARGIN for one in tuned)
        if at_code == HOLDS and (outcome == CONTRADICTED or (no_lead and outcome == UNDECIDED)):
            outcome = CODE_ONLY
    return Verdict(claim=claim, outcome=outcome, level=level, coded=coded, tuned=tuned)


def judge_all(claims: Sequence[Claim]) -> list[Verdict]:
    """Judge the claims of one experiment, at a level that holds for all its contrasts at once.

    The paper's claims are one family and all others another. In a family of k contrasts each interval has the
    confidence 1 − 0.05/k, so that with 95 % confidence all of them are right together (Bonferroni).
    """
    sizes = {True: 0, False: 0}
    for claim in claims:
        sizes[claim.source == "paper"] += 0 if claim.untested else len(claim.contrasts)
    levels = {own: 1 - (1 - CONFIDENCE) / max(size, 1) for own, size in sizes.items()}
    return [judge(claim, levels[claim.source == "paper"]) for claim in claims]
