"""How the numbers of a column are spread, gathered in bounded memory: for outliers, sentinels, ids and epoch times."""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spuir.base.records import Floats, Mask
from spuir.logs.doctor.findings import SHOWN_ROWS, BatchLocation, ProblemRow, ProblemRows

EXPONENTS = 256
"""Numbers are counted by their binary exponent, from −128 to 127; others count with the nearest."""
OUTLIER_EXPONENT = 14
"""A number that is 2¹⁴ times as large as 99 % of the others is an outlier: no usual distribution has one."""
SENTINELS = np.array(
    [sign * (10.0**digits - 1) for sign in (-1, 1) for digits in range(2, 11)] + [-32768.0, -(2.0**31), 2.0**31 - 1]
)
"""What people write where a number is missing: −99, −999, 9999 and so on."""
LEAST_SENTINELS = 5
SAMPLE_ROWS = 2048
"""First values that are kept to see whether they repeat."""
ID_NAMES = {"id", "ids", "uid", "uuid", "guid", "key", "user", "customer", "client", "visitor", "session", "account"}
"""How the names of numeric ids end."""
_EPOCH = (1e9, 2.2e9)
"""Seconds from 1970 to the years 2001 and 2039."""


def exponents(values: Floats) -> NDArray[np.intp]:
    """Return the binary exponents of numbers (n,) other than 0, from 0 for 2⁻¹²⁸ on."""
    return np.clip(np.frexp(values)[1] + EXPONENTS // 2, 0, EXPONENTS - 1)


class NumberProfile:
    """The spread of some numbers: range, exponents, the largest ones with their rows, and possible sentinels."""

    def __init__(self) -> None:
        self.count, self.whole = 0, True
        self.low, self.high = np.inf, -np.inf
        self._exponents = np.zeros(EXPONENTS, np.int64)
        self._largest: list[tuple[float, ProblemRow]] = []
        self._sentinels: dict[float, ProblemRows] = {}
        self._rest, self._others = (np.inf, -np.inf), 0
        self._sample = np.empty(0)

    def look(self, values: Floats, known: Mask, where: BatchLocation) -> None:
        """Take the finite numbers of a batch into account."""
        finite = values[known]
        if not len(finite):
            return
        self.count += len(finite)
        self.low, self.high = min(self.low, finite.min()), max(self.high, finite.max())
        self.whole = self.whole and bool((finite == np.floor(finite)).all())
        if not self.whole:
            self._sample = np.empty(0)
        elif len(self._sample) < SAMPLE_ROWS:
            self._sample = np.concatenate([self._sample, finite[: SAMPLE_ROWS - len(self._sample)]])
        self._exponents += np.bincount(exponents(finite[finite != 0]), minlength=EXPONENTS)
        self._keep_largest(values, known, where)
        self._find_sentinels(values, known, where)

    def _keep_largest(self, values: Floats, known: Mask, where: BatchLocation) -> None:
        sizes = np.where(known, np.abs(values), -1.0)
        least = self._largest[-1][0] if len(self._largest) == SHOWN_ROWS else 0.0
        if sizes.max() <= least:
            return
        top = np.argsort(-sizes, kind="stable")[:SHOWN_ROWS].tolist()
        found = [(float(sizes[row]), where.row(row, f"{values[row]:g}")) for row in top if sizes[row] > least]
        self._largest = sorted([*self._largest, *found], key=lambda one: -one[0])[:SHOWN_ROWS]

    def _find_sentinels(self, values: Floats, known: Mask, where: BatchLocation) -> None:
        marks = known & (np.abs(values) >= np.abs(SENTINELS).min())
        marks[marks] = np.isin(values[marks], SENTINELS)
        for value in np.unique(values[marks]).tolist():
            self._sentinels.setdefault(value, ProblemRows()).add(marks & (values == value), where, values)
        rest = values[known & ~marks]
        self._others += len(rest)
        self._rest = (min(self._rest[0], rest.min(initial=np.inf)), max(self._rest[1], rest.max(initial=-np.inf)))

    def outliers(self) -> ProblemRows:
        """Return the rows whose numbers are far larger than all others."""
        total = int(self._exponents.sum())
        if total < 20:
            return ProblemRows()
        usual = int(np.searchsorted(np.cumsum(self._exponents), min(0.99 * total, total - 1)))
        count = int(self._exponents[usual + OUTLIER_EXPONENT :].sum())
        rows = [
            row for size, row in self._largest if size and exponents(np.array([size]))[0] >= usual + OUTLIER_EXPONENT
        ]
        return ProblemRows(count, sorted(rows, key=lambda row: (row.source, row.row)))

    def sentinels(self) -> dict[float, ProblemRows]:
        """Return the rows of numbers that stand for missing ones: often there, and far from all others."""
        low, high = self._rest
        if self._others < 30 or low == high:
            return {}
        return {
            value: rows
            for value, rows in self._sentinels.items()
            if rows.count >= LEAST_SENTINELS and (max(low - value, value - high) > (high - low) / 2 or value < 0 <= low)
        }

    def epoch(self) -> str | None:
        """Return the unit in which the numbers would count from 1970, if all fall into the years 2001 to 2039."""
        if self.count < 30 or self.low == self.high:
            return None
        units = {"seconds": 1.0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
        return next((u for u, by in units.items() if _EPOCH[0] * by <= self.low <= self.high <= _EPOCH[1] * by), None)

    def looks_like_id(self, name: str) -> bool:
        """Return whether the numbers name something: they are whole and many, and do not repeat or are called an id."""
        sample: Any = self._sample
        if not self.whole or len(sample) < 100:
            return False
        distinct = len(np.unique(sample)) / len(sample)
        counts_rows = distinct == 1 and bool((np.diff(sample) > 0).all())
        large = distinct > 0.5 and np.median(np.abs(sample)) >= 1e6 and len(np.unique(sample % 10)) == 10
        last = re.sub("([a-z])([A-Z])", r"\1 \2", name).lower()
        return counts_rows or large or (distinct > 0.2 and re.split("[^a-z]+", last)[-1] in ID_NAMES)
