"""Estimators of a policy's value: small objects that turn rows into terms to be summed.

Every estimate has the form Σωv̂/Σω + Σωa/Σω + Σωb/Σωd over rows with weights ω, so that one pass over a log gives the
estimate, and the sums per block of rows give its error. With ρ = π(a|x)/p the weight of a row, q̂
the predicted reward of the executed action and v̂ = Σ_a π(a|x) q̂(x, a):

=============  ============================================  ===================================================
name           estimate                                      what it is
=============  ============================================  ===================================================
dm             mean of v̂                                    direct method: as good as the reward model
ips            mean of ρr                                    inverse propensity scores: unbiased, may vary much
clipped-ips    mean of min(ρ, c)r                            bounded weights: biased towards 0
snips          Σρr / Σρ                                      self-normalised: little bias, less variance
dr             mean of v̂ + ρ(r − q̂)                        doubly robust: unbiased, the reward model cuts variance
sndr           mean of v̂ + Σρ(r − q̂) / Σρ                  self-normalised doubly robust
switch-dr      mean of v̂ + 1[ρ ≤ τ]ρ(r − q̂)                trusts the model where weights are large
dros           mean of v̂ + λρ/(ρ² + λ)·(r − q̂)             doubly robust with optimistic shrinkage of the weights
balanced-ips   Σρ̂r / Σρ̂                                    snips with estimated propensities, balanced per action
=============  ============================================  ===================================================

The terms of dm, switch-dr and dros leave out the error of the reward model itself, which is most of their error: they
are reported with the error of dr, which is at least as large where weights are moderate.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from spuir.base.records import Floats
from spuir.errors import ParameterError, UnknownNameError, did_you_mean

GRID = (3.0, 10.0, 30.0, 100.0)
"""Bounds on weights to choose from where none is given."""
SHRINKAGES = (1.0, 10.0, 100.0, 1000.0)
"""Values of λ to choose from where none is given."""


@dataclass(frozen=True, eq=False)
class TargetRows:
    """One policy on n logged rows, each (n,).

    ``rewards`` r; ``target`` π(a|x), the probability of the executed action under the policy; ``propensities`` p;
    ``predicted`` q̂ of the executed action, 0 where there is no reward model. ``estimated`` are propensities of the
    propensity model, None where none was fitted. What several estimators use is computed once.
    """

    rewards: Floats
    target: Floats
    propensities: Floats
    predicted: Floats
    estimated: Floats | None = None

    @cached_property
    def ratios(self) -> Floats:
        """ρ = π(a|x)/p (n,)."""
        return self.target / self.propensities

    @cached_property
    def largest(self) -> float:
        """The largest ρ."""
        return float(self.ratios.max(initial=0.0))

    @cached_property
    def weighted_rewards(self) -> Floats:
        """ρr (n,)."""
        return self.ratios * self.rewards

    @cached_property
    def weighted_gaps(self) -> Floats:
        """ρ(r − q̂) (n,)."""
        return self.ratios * (self.rewards - self.predicted)

    @cached_property
    def squares(self) -> Floats:
        """ρ² (n,)."""
        return np.square(self.ratios)


class Terms(NamedTuple):
    """What an estimator adds up in addition to v̂, each (n,): a, and b and d of a ratio; None where there is none.

    All are 0 where the policy never chooses the executed action, so that such rows need not be looked at.
    """

    plain: Floats | None = None
    numerator: Floats | None = None
    denominator: Floats | None = None


@dataclass(frozen=True)
class ValueEstimator(ABC):
    """An estimator by name; ``terms`` says what it adds to v̂, which those that need a reward model add."""

    name: ClassVar[str]
    needs_model: ClassVar[bool] = False
    unbiased: ClassVar[bool] = False
    error_of: ClassVar[str | None] = None
    """The estimator whose error is reported, because the terms leave out the reward model's error; None = its own."""

    @abstractmethod
    def terms(self, rows: TargetRows) -> Terms:
        """Return the terms of rows; terms that equal those of another estimator are the same array, summed once."""

    @property
    def setting(self) -> float | None:
        """The bound or shrinkage in force; None where there is none."""
        return None

    def reach(self, largest: float) -> float:
        """Return the largest factor of a reward, or of its distance to q̂, where no ratio exceeds ``largest``."""
        return largest if self.setting is None else min(largest, self.setting)


@dataclass(frozen=True)
class DirectMethod(ValueEstimator):
    """The mean of v̂."""

    name = "dm"
    needs_model = True
    error_of = "dr"

    def terms(self, rows: TargetRows) -> Terms:
        """Return nothing in addition to v̂."""
        return Terms()

    def reach(self, largest: float) -> float:
        """Return 0."""
        return 0.0


@dataclass(frozen=True)
class InversePropensity(ValueEstimator):
    """The mean of ρr."""

    name = "ips"
    unbiased = True

    def terms(self, rows: TargetRows) -> Terms:
        """Return ρr."""
        return Terms(rows.weighted_rewards)


@dataclass(frozen=True)
class ClippedInversePropensity(ValueEstimator):
    """The mean of min(ρ, bound)·r."""

    name = "clipped-ips"
    bound: float = 100.0

    def terms(self, rows: TargetRows) -> Terms:
        """Return min(ρ, bound)·r."""
        if rows.largest <= self.bound:
            return Terms(rows.weighted_rewards)
        return Terms(np.minimum(rows.ratios, self.bound) * rows.rewards)

    @property
    def setting(self) -> float:
        """The bound."""
        return self.bound


@dataclass(frozen=True)
class SelfNormalised(ValueEstimator):
    """Σρr / Σρ."""

    name = "snips"

    def terms(self, rows: TargetRows) -> Terms:
        """Return ρr over ρ."""
        return Terms(None, rows.weighted_rewards, rows.ratios)


@dataclass(frozen=True)
class DoublyRobust(ValueEstimator):
    """The mean of v̂ + ρ(r − q̂)."""

    name = "dr"
    needs_model = True
    unbiased = True

    def terms(self, rows: TargetRows) -> Terms:
        """Return ρ(r − q̂)."""
        return Terms(rows.weighted_gaps)


@dataclass(frozen=True)
class SelfNormalisedDoublyRobust(ValueEstimator):
    """The mean of v̂, plus Σρ(r − q̂) / Σρ."""

    name = "sndr"
    needs_model = True

    def terms(self, rows: TargetRows) -> Terms:
        """Return ρ(r − q̂) over ρ."""
        return Terms(None, rows.weighted_gaps, rows.ratios)


@dataclass(frozen=True)
class SwitchDoublyRobust(ValueEstimator):
    """The mean of v̂ + 1[ρ ≤ bound]·ρ(r − q̂)."""

    name = "switch-dr"
    needs_model = True
    error_of = "dr"
    bound: float = 100.0

    def terms(self, rows: TargetRows) -> Terms:
        """Return 1[ρ ≤ bound]·ρ(r − q̂)."""
        if rows.largest <= self.bound:
            return Terms(rows.weighted_gaps)
        return Terms(np.where(rows.ratios <= self.bound, rows.weighted_gaps, 0.0))

    @property
    def setting(self) -> float:
        """The bound."""
        return self.bound


@dataclass(frozen=True)
class ShrunkDoublyRobust(ValueEstimator):
    """The mean of v̂ + λρ/(ρ² + λ)·(r − q̂): optimistic shrinkage of the weights."""

    name = "dros"
    needs_model = True
    error_of = "dr"
    shrinkage: float = 100.0

    def terms(self, rows: TargetRows) -> Terms:
        """Return λρ/(ρ² + λ)·(r − q̂)."""
        shrunk = rows.squares + self.shrinkage
        np.divide(rows.weighted_gaps, shrunk, out=shrunk)
        shrunk *= self.shrinkage
        return Terms(shrunk)

    @property
    def setting(self) -> float:
        """The shrinkage λ."""
        return self.shrinkage

    def reach(self, largest: float) -> float:
        """Return λρ/(ρ² + λ) at its largest, which is at ρ = √λ."""
        ratio = min(largest, self.shrinkage**0.5)
        return self.shrinkage * ratio / (ratio**2 + self.shrinkage)


@dataclass(frozen=True)
class BalancedInversePropensity(ValueEstimator):
    """Σρ̂r / Σρ̂, where ρ̂ has estimated propensities whose weights are balanced per action."""

    name = "balanced-ips"

    def terms(self, rows: TargetRows) -> Terms:
        """Return ρ̂r over ρ̂."""
        estimated = rows.propensities if rows.estimated is None else rows.estimated
        weights = rows.target / estimated
        return Terms(None, weights * rows.rewards, weights)


class Chosen(NamedTuple):
    """An estimator whose setting the data choose: the candidate with the least estimated mean squared error.

    The squared error of a candidate is its variance plus its squared distance to ``reference``, which is unbiased, and
    a candidate itself: no bound, no shrinkage.
    """

    name: str
    candidates: tuple[ValueEstimator, ...]
    reference: ValueEstimator

    @property
    def needs_model(self) -> bool:
        """Whether the candidates need a reward model."""
        return self.reference.needs_model


FAMILY: dict[str, type[ValueEstimator]] = {
    kind.name: kind
    for kind in (
        DirectMethod,
        InversePropensity,
        ClippedInversePropensity,
        SelfNormalised,
        DoublyRobust,
        SelfNormalisedDoublyRobust,
        SwitchDoublyRobust,
        ShrunkDoublyRobust,
        BalancedInversePropensity,
    )
}
"""The estimators by name."""

_CHOICES: dict[str, Chosen] = {
    "clipped-ips": Chosen("clipped-ips", tuple(ClippedInversePropensity(bound) for bound in GRID), InversePropensity()),
    "switch-dr": Chosen("switch-dr", tuple(SwitchDoublyRobust(bound) for bound in GRID), DoublyRobust()),
    "dros": Chosen("dros", tuple(ShrunkDoublyRobust(value) for value in SHRINKAGES), DoublyRobust()),
}


def make_estimators(given: Sequence[Any]) -> list[ValueEstimator | Chosen]:
    """Return estimators from names and objects; a name with a setting to choose lets the data choose it."""
    made: list[ValueEstimator | Chosen] = []
    for one in given:
        if isinstance(one, ValueEstimator):
            made.append(one)
        elif one in FAMILY:
            made.append(_CHOICES.get(one) or FAMILY[one]())
        else:
            rule = "no estimator has that name"
            raise UnknownNameError("estimators", repr(one), rule, did_you_mean(one, FAMILY, "estimators"))
    names = [one.name for one in made]
    if len(set(names)) < len(names):
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise ParameterError("estimators", f"{twice!r} twice", "each has one column of the report", "drop the second")
    return made
