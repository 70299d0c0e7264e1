"""Whether a context column says more about the reward or the action than anything known before the decision can.

Rewards are noisy. What is known before a decision rarely explains nine tenths of their variance, and is rarely 0
exactly where the reward is. A column that does is reported, but never refused: it may be a very strong, honest
predictor.
"""

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spuir.base.records import Codes, Floats, Mask
from spuir.logs.doctor.checks import ActionCheck, CheckedBatch
from spuir.logs.doctor.findings import Finding, finding
from spuir.tables.coercion import categories
from spuir.tables.raw_columns import Location, RawColumn, as_text

LEVEL_LIMIT = 256
"""Levels of a column that are followed through the log, to see whether they determine the reward or the action."""
LEAK_SHARE = 0.9
"""A column that explains this share of the variance of the reward is reported as a leak."""
AGREEMENT = 0.985
"""So is one that tells so often whether the reward is 0, and a quarter as often wrongly as without it."""
FOLLOWING_SHARE, EVIDENCE = 0.99, 25.0
"""So is one whose rows with a value have a reward so often, if chance would not do it with odds of e⁻²⁵."""
LEAST_ROWS = 30

OUTCOME_NAMES = {"reward", "rewards", "click", "clicks", "clicked", "conversion", "conversions", "converted", "outcome"}
OUTCOME_NAMES |= {"revenue", "purchase", "purchased", "label", "target", "response"}


@dataclass
class Levels:
    """Rows, rewards and actions by the level of a column; stops where there are too many levels."""

    actions: ActionCheck
    index: dict[str, int] = field(default_factory=dict[str, int])
    rows: Floats = field(default_factory=lambda: np.zeros(LEVEL_LIMIT))
    known: Floats = field(default_factory=lambda: np.zeros((4, LEVEL_LIMIT)))
    lowest: Codes = field(default_factory=lambda: np.full(LEVEL_LIMIT, np.iinfo(np.intp).max))
    highest: Codes = field(default_factory=lambda: np.full(LEVEL_LIMIT, -1))
    full: bool = False

    def look(self, column: RawColumn, view: CheckedBatch, usable: NDArray[np.bool_]) -> None:
        """Add the known values of a batch."""
        if self.full:
            return
        if column.kind == "number" and len(np.unique(column.values[:2048])) > LEVEL_LIMIT:
            self.full = True
            return
        coded = categories(column, Location(""))
        for level in coded.levels:
            if len(self.index) == LEVEL_LIMIT and level not in self.index:
                self.full = True
                return
            self.index.setdefault(level, len(self.index))
        at = np.array([*(self.index[level] for level in coded.levels), 0], np.intp)[coded.values]
        there = coded.values >= 0
        self.rows += np.bincount(at[there], minlength=LEVEL_LIMIT)
        rewards = view.rewards[usable & there]
        for place, amounts in enumerate((np.ones(len(rewards)), rewards, rewards**2, rewards != 0)):
            self.known[place] += np.bincount(at[usable & there], amounts, LEVEL_LIMIT)
        acted = there & (view.actions >= 0)
        np.minimum.at(self.lowest, at[acted], view.actions[acted])
        np.maximum.at(self.highest, at[acted], view.actions[acted])

    def explained(self) -> float:
        """Return the share of the variance of the reward between levels, 0 where there are too few rows."""
        count, total, squares, _ = self.known[:, self.known[0] > 0]
        n = count.sum()
        if not self._enough(count):
            return 0.0
        whole = squares.sum() - total.sum() ** 2 / n
        within = (squares - total**2 / count).sum()
        return float(1 - within / whole) if whole > 1e-12 * max(squares.sum(), 1e-300) else 0.0

    def agreement(self) -> tuple[float, float]:
        """Return how often the level predicts whether the reward is 0, and how often the majority does."""
        count, _, _, nonzero = self.known[:, self.known[0] > 0]
        if not self._enough(count):
            return 0.0, 0.0
        n, rewarded = count.sum(), nonzero.sum()
        return float(np.maximum(nonzero, count - nonzero).sum() / n), float(max(rewarded, n - rewarded) / n)

    def _enough(self, count: Floats) -> bool:
        return not self.full and len(count) > 1 and count.sum() >= max(LEAST_ROWS, 10 * len(count))

    def certain(self) -> list[tuple[str, float, float]]:
        """Return each level with its rows and how many of these have a reward other than 0."""
        named = [] if self.full else [(level, at) for level, at in self.index.items()]
        return [(level, self.known[0][at], self.known[3][at]) for level, at in named]

    def names_action(self) -> str | None:
        """Return "equals" where levels are the labels of the actions, "determines" where each had only one action."""
        used = np.flatnonzero(self.highest >= 0)
        enough = self.rows.sum() >= max(LEAST_ROWS, 10 * len(used))
        if self.full or len(used) < 2 or len(set(self.highest[used])) < 2 or not enough:
            return None
        if (self.lowest[used] != self.highest[used]).any():
            return None
        labels = [as_text(label) for label in self.actions.codes]
        own = {at: level for level, at in self.index.items()}
        return "equals" if all(own[at] == labels[self.highest[at]] for at in used.tolist()) else "determines"


@dataclass
class RunningMoments:
    """Sums of two columns about their first values, for their correlation; and whether they were always equal."""

    origin: tuple[float, float] | None = None
    sums: Floats = field(default_factory=lambda: np.zeros(6))
    equal: bool = True

    def look(self, values: Floats, rewards: Floats) -> None:
        """Add pairs of known values."""
        if not len(values):
            return
        self.origin = self.origin or (float(values[0]), float(rewards[0]))
        x, y = values - self.origin[0], rewards - self.origin[1]
        self.sums += np.array([len(x), x.sum(), y.sum(), x @ x, y @ y, x @ y])
        self.equal = self.equal and bool((values == rewards).all())

    def correlation(self) -> float:
        """Return the correlation, 0 where one of the columns is constant or there are few rows."""
        n, x, y, xx, yy, xy = self.sums
        if n < LEAST_ROWS:
            return 0.0
        spreads = (xx - x * x / n) * (yy - y * y / n)
        return float((xy - x * y / n) / np.sqrt(spreads)) if spreads > 1e-18 * xx * yy and spreads > 0 else 0.0


@dataclass
class Following:
    """How many rows have a reward other than 0: of all, of those with a number other than 0, and of those with any."""

    rows: Floats = field(default_factory=lambda: np.zeros(3))
    rewarded: Floats = field(default_factory=lambda: np.zeros(3))

    def look(self, column: RawColumn, view: CheckedBatch, usable: NDArray[np.bool_]) -> None:
        """Add the rows of a batch whose reward is known."""
        known = np.isfinite(view.rewards)
        other = usable & (column.values != 0) if column.kind in ("number", "flag") else np.zeros(len(known), np.bool_)
        for place, mask in enumerate((known, other, usable)):
            self.rows[place] += np.count_nonzero(mask)
            self.rewarded[place] += np.count_nonzero(view.rewards[mask])

    def follows(self, rows: float, rewarded: float) -> bool:
        """Return whether some of the rows have a reward so often that the column must have been made from it."""
        base = self.rewarded[0] / self.rows[0] if self.rows[0] else 1.0
        sure = rewarded >= FOLLOWING_SHARE * rows and (rewarded == rows or rows >= 100)
        return rows < self.rows[0] and 0 < base <= 0.9 and sure and -rows * np.log(base) > EVIDENCE


class LeakWatch:
    """What one column says about rewards and actions."""

    def __init__(self, name: str, actions: ActionCheck) -> None:
        self.name = name
        self.levels, self.moments, self.following = Levels(actions), RunningMoments(), Following()

    def look(self, column: RawColumn, view: CheckedBatch, known: Mask) -> None:
        """Take one batch into account; ``known`` (n,) marks its values."""
        usable = known & np.isfinite(view.rewards)
        if column.kind in ("number", "flag"):
            values: Any = np.asarray(column.values, np.float64)
            both = usable & np.isfinite(values)
            self.moments.look(values[both], view.rewards[both])
        self.levels.look(column, view, usable)
        self.following.look(column, view, usable)

    def findings(self, *, numeric: bool) -> list[Finding]:
        """Report what is known only afterwards: the reward and the action, and names that sound like them."""
        correlation = self.moments.correlation()
        if numeric and self.moments.equal and abs(correlation) > 0.999:
            return [finding("equals reward", self.name, "it equals the reward in every row.")]
        if self.levels.names_action() == "equals":
            return [finding("equals action", self.name, "it is the executed action in every row.")]
        leak = self._predictor(correlation) or self._consequence()
        if leak is not None:
            return [leak]
        if self.levels.names_action() == "determines":
            return [finding("tells action", self.name, "each of its values occurs with one action only.")]
        if OUTCOME_NAMES & set(re.split(r"[^a-z]+", self.name.lower())):
            problem = "its name sounds like something that is known only after the decision."
            return [finding("sounds late", self.name, problem)]
        return []

    def _predictor(self, correlation: float) -> Finding | None:
        """Report a column that alone predicts the reward."""
        explained, (right, base) = self.levels.explained(), self.levels.agreement()
        if max(correlation**2, explained) >= LEAK_SHARE:
            how = (
                f"correlation {correlation:+.3f}" if correlation**2 >= explained else f"{explained:.0%} of its variance"
            )
            return finding("tells reward", self.name, f"it alone predicts the reward almost exactly ({how}).")
        spared = (right - base) * self.levels.known[0].sum()
        if right >= AGREEMENT and 1 - right <= 0.25 * (1 - base) and spared > LEAST_ROWS:
            problem = f"it alone predicts in {right:.1%} of the rows whether the reward is 0 (by chance: {base:.1%})."
            return finding("tells reward", self.name, problem)
        return None

    def _consequence(self) -> Finding | None:
        """Report a column that has a value, or a certain one, only where the reward is not 0."""
        seen = self.following
        _, other, present = zip(seen.rows, seen.rewarded, strict=True)
        groups = [("is other than 0", *other), ("has a value", *present)]
        groups += [(f"is {level!r}", *counts) for level, *counts in self.levels.certain()]
        for what, rows, rewarded in groups:
            if seen.follows(rows, rewarded):
                problem = f"where it {what}, the reward is not 0 ({rewarded / rows:.1%} of {rows:,.0f} rows)."
                return finding("follows reward", self.name, problem)
        return None
