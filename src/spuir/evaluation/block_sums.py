"""Sums of terms per block of rows: what one pass over a log keeps of every estimate, in memory that does not grow.

A block is a set of whole units (users, episodes, or rows), so that blocks are independent of each other. Estimates,
their errors, paired differences and bootstrap draws all follow from the blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spuir.base.records import Codes, Floats
from spuir.errors import ParameterError
from spuir.evaluation.estimators import Terms
from spuir.evaluation.logged_rows import LoggedRows

BLOCKS = 8192
"""The most blocks; a log of at most as many rows has a block per row."""
GROUPINGS = ("row", "unit", "episode")


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Which block a row belongs to.

    ``by`` is "row" (``size`` consecutive rows are a block), "unit" or "episode" (whole ones, hashed to ``count``).
    """

    by: str
    count: int
    size: int = 1

    @classmethod
    def of(cls, by: str, rows: int) -> "Blocks":
        """Return the blocks for a log of so many rows."""
        if by not in GROUPINGS:
            rule = f"rows are grouped by {', '.join(GROUPINGS)}"
            raise ParameterError("group_by", repr(by), rule, "choose one of these")
        if by != "row":
            return cls(by=by, count=BLOCKS)
        size = -(-max(rows, 1) // BLOCKS)
        return cls(by=by, count=-(-max(rows, 1) // size), size=size)

    def numbers(self, rows: LoggedRows, first: int) -> Codes:
        """Return the block (n,) of each row; ``first`` rows were read before."""
        if self.by == "unit" and rows.units is not None:
            return (rows.units % np.uint64(self.count)).astype(np.intp)
        if self.by == "episode" and rows.episodes is not None:
            return rows.episodes % self.count
        return (first + np.arange(len(rows))) // self.size


@dataclass(eq=False)
class TermSums:
    """Sums (B,) of one estimator's terms per block: ωa, ωb and ωd; and the span of its terms over single rows.

    ``numerator`` and ``denominator`` are None for an estimator without a ratio.
    """

    plain: Floats
    numerator: Floats | None = None
    denominator: Floats | None = None
    span: float = 0.0

    @classmethod
    def zero(cls, blocks: int, terms: Terms) -> "TermSums":
        """Return empty sums for terms of this form."""
        ratio = terms.numerator is not None
        return cls(np.zeros(blocks), np.zeros(blocks) if ratio else None, np.zeros(blocks) if ratio else None)

    def add(self, blocks: Codes, weights: Floats | None, terms: Terms) -> None:
        """Add the terms of n rows, given their blocks (n,) and weights (n,), None for ones."""
        count, span = len(self.plain), 0.0
        if terms.plain is not None:
            self.plain += block_sums(blocks, _weighted(terms.plain, weights), count)
            span = _span(terms.plain)
        if self.numerator is not None and self.denominator is not None and terms.numerator is not None:
            below = np.ones(len(blocks)) if terms.denominator is None else terms.denominator
            self.numerator += block_sums(blocks, _weighted(terms.numerator, weights), count)
            self.denominator += block_sums(blocks, _weighted(below, weights), count)
            span += _span(terms.numerator)
        self.span = max(self.span, span)

    def value(self, weight: Floats, draws: Floats | None = None) -> Floats:
        """Return the estimate, given the weight (B,) of the blocks; one for each row of ``draws`` (k, B)."""
        total = _drawn(weight, draws)
        value = _drawn(self.plain, draws) / total
        if self.numerator is not None and self.denominator is not None:
            below = _drawn(self.denominator, draws)
            value = value + np.where(below > 0, _drawn(self.numerator, draws) / np.where(below > 0, below, 1.0), 0.0)
        return value

    def influence(self, weight: Floats) -> Floats:
        """Return the first-order effect (B,) of each block on the estimate; the effects sum to 0."""
        total = weight.sum()
        found = (self.plain - self.plain.sum() / total * weight) / total
        if self.numerator is not None and self.denominator is not None and self.denominator.sum() > 0:
            below = self.denominator.sum()
            found = found + (self.numerator - self.numerator.sum() / below * self.denominator) / below
        return found


def block_sums(blocks: Codes, values: Floats, count: int) -> Floats:
    """Return the sum of values (n,) per block (count,)."""
    return np.bincount(blocks, values, count).astype(np.float64, copy=False)


def _weighted(values: Floats, weights: Floats | None) -> Floats:
    return values if weights is None else values * weights


def _span(values: Floats) -> float:
    return float(max(values.max(initial=0.0), 0.0) - min(values.min(initial=0.0), 0.0))


def _drawn(values: Floats, draws: Floats | None) -> Floats:
    return values.sum() if draws is None else draws @ values


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimate:
    """A value, or a difference of values, with everything that its interval follows from.

    Parameters
    ----------
    parts
        Sums with their signs: one for a value, two for a paired difference.
    weight, rows
        (B,) weight and number of rows of each block.
    by
        What a block consists of: "row", "unit" or "episode".
    error_parts
        Sums that the error follows from, where it is not that of ``parts``.
    """

    parts: tuple[tuple[float, TermSums], ...]
    weight: Floats
    rows: NDArray[np.int64]
    by: str = "row"
    error_parts: tuple[tuple[float, TermSums], ...] | None = None

    @property
    def _errors(self) -> tuple[tuple[float, TermSums], ...]:
        return self.parts if self.error_parts is None else self.error_parts

    @cached_property
    def value(self) -> float:
        """The estimate."""
        return float(sum(sign * sums.value(self.weight) for sign, sums in self.parts))

    @cached_property
    def influence(self) -> Floats:
        """The first-order effect (k,) of each block that has rows."""
        used = self.rows > 0
        return np.sum([sign * sums.influence(self.weight)[used] for sign, sums in self._errors], axis=0)

    @property
    def pieces(self) -> int:
        """How many independent pieces there are: rows, or blocks of whole units or episodes."""
        return int(self.rows.sum()) if self.by == "row" else int((self.rows > 0).sum())

    @cached_property
    def variance(self) -> float:
        """The variance of the estimate."""
        count = len(self.influence)
        return float(np.square(self.influence).sum() * count / (count - 1)) if count > 1 else float("inf")

    @property
    def standard_error(self) -> float:
        """The standard error of the estimate."""
        return float(np.sqrt(self.variance))

    @property
    def span(self) -> float:
        """The span of the terms of a single piece, as far as the log shows it."""
        if self.by != "row":
            return float(len(self.influence) * (self.influence.max() - self.influence.min()))
        return sum(sums.span for _, sums in self._errors) * float(self.rows.sum() / self.weight.sum())

    def shifts(self, draws: Floats) -> Floats:
        """Return by how much the estimate moves (k,) if blocks count as often as each row of ``draws`` (k, B) says."""
        moved = [sign * (sums.value(self.weight, draws) - sums.value(self.weight)) for sign, sums in self._errors]
        return np.sum(moved, axis=0)

    def minus(self, other: "Estimate") -> "Estimate":
        """Return the paired difference of two estimates over the same blocks."""
        return Estimate(
            parts=self.parts + _negative(other.parts),
            weight=self.weight,
            rows=self.rows,
            by=self.by,
            error_parts=self._errors + _negative(other._errors),
        )


def _negative(parts: tuple[tuple[float, TermSums], ...]) -> tuple[tuple[float, TermSums], ...]:
    return tuple((-sign, sums) for sign, sums in parts)


def least_error(candidates: Sequence[Estimate], reference: Estimate) -> int:
    """Return which candidate has the least estimated squared error: variance + squared distance to the reference.

    The reference is unbiased, so that the distance to it estimates the bias, and its square overestimates it.
    """
    errors = [one.variance + (one.value - reference.value) ** 2 for one in candidates]
    return int(np.argmin(errors))
