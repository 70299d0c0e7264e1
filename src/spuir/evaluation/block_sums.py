"""Sums of terms per block of rows: what one pass over a log keeps of every estimate, in memory that does not grow.

A block is a set of whole units (users, episodes, or rows), so that blocks are independent of each other. Estimates,
their errors, paired differences and bootstrap draws all follow from the blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import hypot
from typing import Any
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from spuir.base.records import Codes, Floats
from spuir.errors import InputError, ParameterError
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

    def adder(self, rows: LoggedRows, first: int, weights: Floats | None) -> "BlockAdder":
        """Return what adds up values of rows per block; ``first`` rows were read before."""
        if self.by == "row":
            return BlockAdder(np.arange(first, first + len(rows)) // self.size, self.count, weights)
        return BlockAdder(self.numbers(rows), self.count, weights)

    def numbers(self, rows: LoggedRows) -> Codes:
        """Return the block (n,) of each row where blocks are units or episodes."""
        if self.by == "unit" and rows.units is not None:
            return (rows.units % np.uint64(self.count)).astype(np.intp)
        if self.by == "episode" and rows.episodes is not None:
            return rows.episodes % self.count
        raise InputError("group_by", repr(self.by), "the log has none", "group by row")


class BlockAdder:
    """Adds up values of some rows per block; blocks of consecutive rows are summed at the speed of memory.

    An array that is added to several sums is reduced once, as long as it lives.
    """

    def __init__(self, blocks: Codes, count: int, weights: Floats | None) -> None:
        self.count, self._weights, self._rows = count, weights, len(blocks)
        self._blocks: Codes | None = None
        self._known: dict[int, tuple[ref[Floats], Floats]] = {}
        if (blocks[1:] >= blocks[:-1]).all():
            self._starts = np.flatnonzero(np.diff(blocks, prepend=-1))
            self._touched: Any = blocks[self._starts]
        else:
            self._blocks, self._touched = blocks, slice(None)

    @cached_property
    def heaviest(self) -> float:
        """The largest weight of a row."""
        return 1.0 if self._weights is None else float(self._weights.max(initial=0.0))

    def at(self, rows: Codes) -> "BlockAdder":
        """Return an adder for some of the rows, given by their places in order."""
        weights = None if self._weights is None else self._weights[rows]
        if self._blocks is not None:
            return BlockAdder(self._blocks[rows], self.count, weights)
        starts = np.searchsorted(rows, self._starts)
        some = np.diff(starts, append=len(rows)) > 0
        made = BlockAdder(self._touched[:0], self.count, weights)
        made._rows, made._starts, made._touched = len(rows), starts[some], self._touched[some]
        return made

    def add_rows(self, total: NDArray[Any]) -> None:
        """Add the number of rows to the sums (B,) of their blocks."""
        if self._blocks is not None:
            total += np.bincount(self._blocks, minlength=self.count)
        else:
            total[self._touched] += np.diff(self._starts, append=self._rows)

    def __call__(self, total: Floats, values: Floats) -> None:
        """Add weighted values (n,) to the sums (B,) of their blocks."""
        kept = self._known.get(id(values))
        if kept is None or kept[0]() is not values:
            kept = self._known[id(values)] = ref(values), self._reduced(values)
        total[self._touched] += kept[1]

    def _reduced(self, values: Floats) -> Floats:
        if self._weights is not None:
            values = values * self._weights
        if self._blocks is not None:
            return np.bincount(self._blocks, values, self.count).astype(np.float64, copy=False)
        return np.add.reduceat(values, self._starts) if len(self._starts) else np.zeros(0)


@dataclass(eq=False)
class TermSums:
    """Sums (B,) of one estimator's terms per block, and the span of its weighted terms over single rows.

    ``model`` is Σωv̂, None without a reward model; ``plain`` is Σωa, ``numerator`` Σωb and ``denominator`` Σωd of an
    estimator with a ratio.
    """

    model: "ModelSums | None"
    plain: Floats
    numerator: Floats | None = None
    denominator: Floats | None = None
    own_span: float = 0.0

    @classmethod
    def zero(cls, blocks: int, terms: Terms, model: "ModelSums | None" = None) -> "TermSums":
        """Return empty sums for terms of this form."""
        ratio = terms.numerator is not None
        return cls(model, np.zeros(blocks), np.zeros(blocks) if ratio else None, np.zeros(blocks) if ratio else None)

    def add(self, adder: BlockAdder, terms: Terms, span: float | None = None) -> None:
        """Add the terms of rows; ``span`` bounds the span of a row's terms, None = compute it."""
        if span is None:
            span = sum(span_of(values) for values in terms[:2] if values is not None)
        for total, values in zip((self.plain, self.numerator, self.denominator), terms, strict=True):
            if total is not None and values is not None:
                adder(total, values)
        self.own_span = max(self.own_span, span * adder.heaviest)

    @property
    def span(self) -> float:
        """The span of the terms of a single row."""
        return self.own_span + (0.0 if self.model is None else self.model.span)

    @property
    def plain_sums(self) -> Floats:
        """Σω(v̂ + a) per block (B,)."""
        return self.plain if self.model is None else self.plain + self.model.sums

    def ratios(self, weight: Floats) -> list[tuple[Floats, Floats]]:
        """Return the ratios that make up the estimate, each by what it sums (B,) above and below."""
        found = [(self.plain_sums, weight)]
        if self.numerator is not None and self.denominator is not None and self.denominator.any():
            found.append((self.numerator, self.denominator))
        return found

    def value(self, weight: Floats) -> float:
        """Return the estimate, given the weight (B,) of the blocks."""
        return float(sum(above.sum() / below.sum() for above, below in self.ratios(weight)))

    def influence(self, weight: Floats) -> Floats:
        """Return the first-order effect (B,) of each block on the estimate; the effects sum to 0."""
        found = np.zeros(len(weight))
        for above, below in self.ratios(weight):
            total = below.sum()
            found += (above - above.sum() / total * below) / total
        return found


class ModelSums:
    """Σωv̂ per block (B,) of one policy, which all estimators with a reward model share, and the span of v̂."""

    def __init__(self, blocks: int) -> None:
        self.sums, self.span = np.zeros(blocks), 0.0

    def add(self, adder: BlockAdder, expected: Floats) -> None:
        """Add v̂ (n,)."""
        adder(self.sums, expected)
        self.span = max(self.span, span_of(expected) * adder.heaviest)


def span_of(values: Floats) -> float:
    """Return the length of the shortest interval that holds 0 and all values."""
    return float(max(values.max(initial=0.0), 0.0) - min(values.min(initial=0.0), 0.0))


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimate:
    """A value, or a difference of values, with everything that its interval follows from.

    Parameters
    ----------
    parts
        Sums with their factors: one for a value, two for a paired difference.
    weight, rows
        (B,) weight and number of rows of each block.
    by
        What a block consists of: "row", "unit" or "episode".
    error_parts
        Sums that the error follows from, where it is not that of ``parts``.
    one_more
        By how much one more effective row with the least and with the largest reward of the log would lower and raise
        the estimate, where that is more than its error: rewards may be too rare to be among the rows of a policy.
    """

    parts: tuple[tuple[float, TermSums], ...]
    weight: Floats
    rows: NDArray[np.int64]
    by: str = "row"
    error_parts: tuple[tuple[float, TermSums], ...] | None = None
    one_more: tuple[float, float] = (0.0, 0.0)

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
        return sum(abs(sign) * sums.span for sign, sums in self._errors) * float(self.rows.sum() / self.weight.sum())

    def redrawn(self, draws: Floats) -> tuple[Floats, Floats]:
        """Return how the estimate moves (k,) if blocks count as often as each row of ``draws`` (k, B) says, and errors.

        The error is that of the moved estimate, from the effects of the blocks of the draw about its own values. It is
        0 where a draw has too few blocks for an estimate.
        """
        plain = np.sum([factor * sums.plain_sums for factor, sums in self._errors], axis=0)
        pairs = [(plain, self.weight)]
        for factor, sums in self._errors:
            pairs += [(factor * above, below) for above, below in sums.ratios(self.weight)[1:]]
        # The estimate is a sum of ratios. Each numerator, centred at its ratio, sums to 0 over all blocks.
        columns = np.column_stack([one for up, down in pairs for one in (up - up.sum() / down.sum() * down, down)])
        first, second = np.triu_indices(columns.shape[1])
        totals = draws @ np.column_stack([columns, columns[:, first] * columns[:, second]])
        sums, products = np.split(totals, [columns.shape[1]], axis=1)
        whole = (sums[:, 1::2] > 0).all(axis=1)
        below = np.where(sums[:, 1::2] > 0, sums[:, 1::2], 1.0)
        moves = sums[:, 0::2] / below
        # The effect of a block is Σ (centred − move·below)/Σbelow over the ratios; its square has all products.
        factors = np.stack([1 / below, -moves / below], axis=2).reshape(sums.shape)
        doubled = np.where(first == second, 1.0, 2.0) * factors[:, first] * factors[:, second]
        drawn = draws @ (self.rows > 0).astype(np.float64)
        inflation = np.where(drawn > 1, drawn / np.maximum(drawn - 1, 1), 0.0)
        variances = np.maximum(np.vecdot(doubled, products), 0.0) * inflation
        return moves.sum(axis=1), np.where(whole, np.sqrt(variances), 0.0)

    def times(self, factor: float) -> "Estimate":
        """Return the estimate in other units."""
        down, up = self.one_more if factor >= 0 else self.one_more[::-1]
        return replace(
            self,
            parts=_times(factor, self.parts),
            error_parts=_times(factor, self._errors),
            one_more=(abs(factor) * down, abs(factor) * up),
        )

    def minus(self, other: "Estimate") -> "Estimate":
        """Return the paired difference of two estimates over the same blocks; an estimate minus itself has no error."""
        apart = (hypot(self.one_more[0], other.one_more[1]), hypot(self.one_more[1], other.one_more[0]))
        return Estimate(
            parts=self.parts + _times(-1.0, other.parts),
            weight=self.weight,
            rows=self.rows,
            by=self.by,
            error_parts=self._errors + _times(-1.0, other._errors),
            one_more=(0.0, 0.0) if other is self else apart,
        )


def _times(factor: float, parts: tuple[tuple[float, TermSums], ...]) -> tuple[tuple[float, TermSums], ...]:
    return tuple((factor * sign, sums) for sign, sums in parts)


def least_error(candidates: Sequence[Estimate], reference: Estimate) -> int:
    """Return which candidate has the least estimated squared error: variance + squared distance to the reference.

    The reference is unbiased, so that the distance to it estimates the bias, and its square overestimates it.
    """
    errors = [one.variance + (one.value - reference.value) ** 2 for one in candidates]
    return int(np.argmin(errors))
