"""Checks of the rewards of a log: whether they are there, what they are worth, and whether that changes on the way."""

from typing import ClassVar

import numpy as np

from spuir.base.records import Floats
from spuir.logs.doctor.checks import Check, CheckedBatch
from spuir.logs.doctor.findings import Finding, finding
from spuir.logs.doctor.number_profiles import EXPONENTS, NumberProfile, exponents

SEGMENTS = 64
"""Rewards are counted in this many stretches of rows; stretches double as the log turns out longer."""
EVIDENCE = 10.0
"""Natural logarithm of the odds beyond which a run of zeros is not by chance."""
CHANGED_SHARE, CHANGED_EXPONENT = 0.6, 3
"""The unit changed where the sizes before and after overlap by less than 40 %, and differ by a factor of 8 or more."""


class RewardCheck(Check):
    """Rewards that are missing, not finite, all the same, far too large, in another unit, or 0 from some row on."""

    columns = ("reward",)
    problems: ClassVar = {
        "missing reward": ("reward", "there are rows without a reward."),
        "impossible reward": ("reward", "there are rewards that are not finite."),
    }

    def __init__(self) -> None:
        super().__init__()
        self._profile, self._segments = NumberProfile(), RewardSegments()
        self._sums, self._nonzero, self._trailing = np.zeros(2), 0, 0

    def look(self, view: CheckedBatch) -> None:
        """Count, and keep the spread."""
        values = view.rewards
        self.rows["missing reward"].add(np.isnan(values), view.where)
        self.rows["impossible reward"].add(np.isinf(values), view.where, values)
        finite = np.isfinite(values)
        known = values[finite]
        self._profile.look(values, finite, view.where)
        self._segments.look(values, view.where.start)
        self._sums += (known.sum(), known @ known)
        there = np.flatnonzero(known)
        self._nonzero += len(there)
        self._trailing = len(known) - 1 - int(there[-1]) if len(there) else self._trailing + len(known)

    def findings(self) -> list[Finding]:
        """Report missing, impossible and implausible rewards."""
        found = super().findings()
        profile = self._profile
        if not profile.count:
            return [*found, finding("no reward", "reward", "no reward is known.")]
        if profile.low == profile.high:
            return [*found, finding("constant reward", "reward", f"every reward is {profile.low:g}.")]
        problem = "there are rewards more than 10,000 times as large as nearly all others."
        found += profile.outliers().finding("extreme reward", "reward", problem)
        return found + self._changes() + self._mean()

    def _changes(self) -> list[Finding]:
        found: list[Finding] = []
        change = self._segments.change()
        if change is not None and not self._profile.outliers().count:
            row, factor = change
            size = f"{factor:.3g} times as large as" if factor > 1 else f"{1 / factor:.3g} times smaller than"
            found.append(finding("reward unit", "reward", f"from about row {row:,} on rewards are {size} before."))
        before = self._profile.count - self._trailing
        share = self._nonzero / before if before else 0.0
        if 0 < share and self._trailing >= 30 and -self._trailing * np.log1p(-min(share, 1 - 1e-12)) > EVIDENCE:
            problem = f"the last {self._trailing:,} rewards are all 0, while {share:.1%} of those before are not."
            found.append(finding("rewards end", "reward", problem))
        return found

    def _mean(self) -> list[Finding]:
        total, squares = self._sums
        mean = total / self._profile.count
        deviation = np.sqrt(max(squares / self._profile.count - mean**2, 0.0))
        if self._profile.count < 100 or abs(mean) < 0.2 * deviation:
            return []
        return [finding("intercept", "reward", f"the mean reward is {mean:.3g}, not 0.")]


class RewardSegments:
    """The sizes of rewards by stretch of the log."""

    def __init__(self) -> None:
        self._rows = 16
        self._counts = np.zeros((SEGMENTS, EXPONENTS), np.int64)
        self._totals = np.zeros(SEGMENTS)

    def look(self, rewards: Floats, start: int) -> None:
        """Count the rewards of a batch; ``start`` is the number of its first row."""
        while start + len(rewards) > SEGMENTS * self._rows:
            self._rows *= 2
            empty = np.zeros((SEGMENTS // 2, EXPONENTS), np.int64)
            self._counts = np.concatenate([self._counts[::2] + self._counts[1::2], empty])
            self._totals = np.concatenate([self._totals[::2] + self._totals[1::2], np.zeros(SEGMENTS // 2)])
        rows = np.flatnonzero(np.isfinite(rewards) & (rewards != 0))
        at = (start + rows) // self._rows
        cells = at * EXPONENTS + exponents(rewards[rows])
        self._counts += np.bincount(cells, minlength=SEGMENTS * EXPONENTS).reshape(SEGMENTS, EXPONENTS)
        self._totals += np.bincount(at, np.abs(rewards[rows]), SEGMENTS)

    def change(self) -> tuple[int, float] | None:
        """Return the row from which rewards have another size, and the factor; None where they have not."""
        before = np.cumsum(self._counts, axis=0)[:-1]
        after = before[-1] + self._counts[-1] - before
        counts = np.stack([before.sum(axis=1), after.sum(axis=1)])
        enough = counts.min(axis=0) >= 20
        if not enough.any():
            return None
        shares = [
            np.cumsum(one, axis=1) / np.maximum(n, 1)[:, None] for one, n in zip((before, after), counts, strict=True)
        ]
        distance = np.where(enough, np.abs(shares[0] - shares[1]).max(axis=1), 0.0)
        cut = int(np.argmax(distance))
        middles = [int(np.searchsorted(one[cut], 0.5)) for one in shares]
        if distance[cut] < CHANGED_SHARE or abs(middles[1] - middles[0]) < CHANGED_EXPONENT:
            return None
        totals = self._totals[: cut + 1].sum(), self._totals[cut + 1 :].sum()
        return (cut + 1) * self._rows, float(totals[1] / counts[1][cut] / (totals[0] / counts[0][cut]))
