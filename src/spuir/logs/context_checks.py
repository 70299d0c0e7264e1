"""Checks of the context columns of a log: constant ones, ones that cannot be encoded, ones that leak the outcome."""

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spuir.base.records import Codes, Floats
from spuir.errors import InputError
from spuir.logs.checks import ActionCheck, Check, CheckedBatch
from spuir.logs.findings import Finding, ProblemRows, missing
from spuir.tables.coercion import categories
from spuir.tables.column_encoders import CategoryEncoder as Category
from spuir.tables.column_encoders import VectorEncoder as Vector
from spuir.tables.encoder import Encoder
from spuir.tables.raw_columns import Location as Place
from spuir.tables.raw_columns import RawColumn as Column
from spuir.tables.raw_columns import as_text, time_text
from spuir.tables.raw_tables import Block, blocks

LEVEL_LIMIT = 256
"""Levels of a column that are followed through the log, to see whether they determine the reward or the action."""

LEAK_THRESHOLD = 0.999
"""A column with a higher correlation with the reward, or share of its variance, is reported as a leak."""

LEAST_ROWS = 30
NUMERIC_RATIO = 9
"""Where a column of text has this many times as many numbers as words, the words are reported as mistakes."""

OUTCOME_NAMES = {"reward", "rewards", "click", "clicks", "clicked", "conversion", "conversions", "converted", "outcome"}
OUTCOME_NAMES |= {"revenue", "purchase", "purchased", "label", "target", "response"}


@dataclass
class Levels:
    """Rows, rewards and actions by the level of a column; stops where there are too many levels."""

    actions: ActionCheck
    index: dict[str, int] = field(default_factory=dict[str, int])
    rows: Floats = field(default_factory=lambda: np.zeros(LEVEL_LIMIT))
    known: Floats = field(default_factory=lambda: np.zeros((3, LEVEL_LIMIT)))
    lowest: Codes = field(default_factory=lambda: np.full(LEVEL_LIMIT, np.iinfo(np.intp).max))
    highest: Codes = field(default_factory=lambda: np.full(LEVEL_LIMIT, -1))
    full: bool = False

    def look(self, column: Column, view: CheckedBatch, usable: NDArray[np.bool_]) -> None:
        """Add the known values of a batch."""
        if self.full:
            return
        if column.kind == "number" and len(np.unique(column.values[:2048])) > LEVEL_LIMIT:
            self.full = True
            return
        coded = categories(column, Place(""))
        for level in coded.levels:
            if len(self.index) == LEVEL_LIMIT and level not in self.index:
                self.full = True
                return
            self.index.setdefault(level, len(self.index))
        at = np.array([*(self.index[level] for level in coded.levels), 0], np.intp)[coded.values]
        there = coded.values >= 0
        self.rows += np.bincount(at[there], minlength=LEVEL_LIMIT)
        rewards = view.rewards[usable & there]
        for power in range(3):
            self.known[power] += np.bincount(at[usable & there], rewards**power, LEVEL_LIMIT)
        acted = there & (view.actions >= 0)
        np.minimum.at(self.lowest, at[acted], view.actions[acted])
        np.maximum.at(self.highest, at[acted], view.actions[acted])

    def explained(self) -> float:
        """Return the share of the variance of the reward between levels, 0 where there are too few rows."""
        count, total, squares = self.known[:, self.known[0] > 0]
        n = count.sum()
        if self.full or len(count) < 2 or n < max(LEAST_ROWS, 10 * len(count)):
            return 0.0
        whole = squares.sum() - total.sum() ** 2 / n
        within = (squares - total**2 / count).sum()
        return float(1 - within / whole) if whole > 1e-12 * max(squares.sum(), 1e-300) else 0.0

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


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class ContextColumn:
    """One context column, at the top or inside an object, through the whole log."""

    def __init__(self, name: str, actions: ActionCheck, part: Any) -> None:
        self.name, self._part = name, part
        self.kind, self.rows, self.absent, self.other = "empty", 0, 0, 0
        self._levels, self._moments = Levels(actions), RunningMoments()
        self._low, self._high = np.inf, -np.inf
        self._infinite, self._later, self._lengths = ProblemRows(), ProblemRows(), ProblemRows()
        self._own, self._numbers, self._words = 0.0, 0, ProblemRows()

    def look(self, column: Column, view: CheckedBatch) -> None:
        """Take one batch into account."""
        self.rows += len(column)
        gone = column.missing
        self.absent += int(np.count_nonzero(gone))
        if column.kind == "empty":
            return
        self.kind = column.kind
        usable = ~gone & np.isfinite(view.rewards)
        if column.kind in ("number", "flag"):
            self._look_at_numbers(np.asarray(column.values, np.float64), view, gone)
        if column.kind in ("number", "flag", "category"):
            self._levels.look(column, view, usable)
        if column.kind == "category":
            self._look_at_levels(column, view)
        if column.kind == "time":
            self._low = min(self._low, column.values[~gone].min(initial=np.inf))
            self._high = max(self._high, column.values[~gone].max(initial=-np.inf))
        if column.kind == "time" and view.has("time"):
            decided = view.batch["time"].cast("int64").fill_null(0).to_numpy(zero_copy_only=False) / 1e6
            later = ~gone & ~missing(view.batch["time"]) & (column.values > decided)
            self._later.add(later, view.where, lambda row: time_text(float(column.values[row])))
        if column.kind == "list" and isinstance(self._part, Vector):
            wrong = ~gone & (column.values != len(self._part.means))
            self._lengths.add(wrong, view.where, column.values)

    def _look_at_numbers(self, values: Floats, view: CheckedBatch, gone: NDArray[np.bool_]) -> None:
        self._infinite.add(np.isinf(values), view.where, values)
        finite = ~gone & np.isfinite(values)
        self._low = min(self._low, values[finite].min(initial=np.inf))
        self._high = max(self._high, values[finite].max(initial=-np.inf))
        both = finite & np.isfinite(view.rewards)
        self._moments.look(values[both], view.rewards[both])

    def _look_at_levels(self, column: Column, view: CheckedBatch) -> None:
        words = np.array([*(not _is_number(level) for level in column.levels), False], np.bool_)[column.values]
        self._words.add(words, view.where, lambda row: column.levels[int(column.values[row])])
        self._numbers += int(np.count_nonzero(~words & ~column.missing))
        known = max(len(column) - int(np.count_nonzero(column.missing)), 1)
        if known >= 100 and not self._own:
            self._own = len(column.levels) / known
        if isinstance(self._part, Category):
            kept = set(self._part.levels)
            counts = np.bincount(column.values[column.values >= 0], minlength=len(column.levels))
            self.other += int(counts[[level not in kept for level in column.levels]].sum())

    def findings(self) -> list[Finding]:
        """Tell what this column lacks, and what it knows too much of."""
        problem, remedy = "there are numbers that are not finite.", "write nothing (null) where the value is unknown."
        found = self._infinite.finding("not finite", "error", self.name, problem, remedy)
        if self._lengths.count:
            problem = f"there are vectors that have not {len(self._part.means)} numbers."
            found += self._lengths.finding("unequal vectors", "error", self.name, problem, "bring them to one length.")
        problem = "its times are later than those of the decisions."
        remedy = "leave it out: it is known only after the decision."
        found += self._later.finding("known afterwards", "warning", self.name, problem, remedy)
        return found + self._emptiness() + self._leaks()

    def _emptiness(self) -> list[Finding]:
        if self.absent == self.rows:
            return [self._finding("empty", "warning", "it has no value at all.", "leave it out.")]
        one_number = self.kind in ("number", "flag", "time") and self._low == self._high
        one_level = self.kind == "category" and len(self._levels.index) == 1 and not self._levels.full
        if not self.absent and (one_number or one_level):
            return [self._finding("constant", "warning", "it has the same value in all rows.", "leave it out.")]
        found: list[Finding] = []
        if self._words.count and self._numbers >= NUMERIC_RATIO * self._words.count:
            problem = f"it is read as text because of these cells; the other {self._numbers:,} are numbers."
            remedy = "correct them, or leave them empty where the value is unknown."
            found += self._words.finding("mixed", "warning", self.name, problem, remedy)
        elif self._own > 0.9 and self._levels.full:
            problem = "nearly every row has a value of its own: it looks like an id."
            found.append(
                self._finding("id-like", "warning", problem, "leave it out; what is needed of it, log as columns.")
            )
        elif self.other > 0.2 * self.rows:
            problem = (
                f"{self.other / self.rows:.0%} of the rows have none of the levels that get a feature of their own."
            )
            found.append(self._finding("many levels", "note", problem, "raise --max-levels, or hash (--hashing)."))
        if self.absent and self._part is not None and getattr(self._part, "missing", True) is False:
            problem = f"{self.absent:,} values are missing, but none in the rows that an encoder learns from."
            remedy = (
                "training takes the mean or the other level for them; shuffle within the first episode, or fill them."
            )
            found.append(self._finding("missing later", "note", problem, remedy))
        return found

    def _leaks(self) -> list[Finding]:
        """Report what is known only afterwards: the reward and the action, and names that sound like them."""
        out = "leave it out: it is not known when the decision is taken."
        correlation, explained = self._moments.correlation(), self._levels.explained()
        numeric = self.kind in ("number", "flag")
        if numeric and self._moments.equal and abs(correlation) > LEAK_THRESHOLD:
            return [self._finding("equals reward", "error", "it equals the reward in every row.", out)]
        if self._levels.names_action() == "equals":
            return [self._finding("equals action", "error", "it is the executed action in every row.", out)]
        if abs(correlation) >= LEAK_THRESHOLD or explained >= LEAK_THRESHOLD:
            how = (
                f"correlation {correlation:+.4f}"
                if abs(correlation) >= LEAK_THRESHOLD
                else f"{explained:.2%} of its variance"
            )
            problem = f"it tells the reward almost exactly ({how})."
            remedy = "leave it out if it is known only after the decision."
            return [self._finding("tells reward", "warning", problem, remedy)]
        if self._levels.names_action() == "determines":
            problem = "each of its values has only ever had one action."
            remedy = "leave it out if it was made from the action; if a rule chose by it, vary the actions from now on."
            return [self._finding("tells action", "warning", problem, remedy)]
        if OUTCOME_NAMES & set(re.split(r"[^a-z]+", self.name.lower())):
            problem = "its name sounds like something that is known only after the decision."
            return [self._finding("sounds late", "note", problem, "leave it out if it is.")]
        return []

    def _finding(self, check: str, severity: str, problem: str, remedy: str) -> Finding:
        return Finding(check, severity, self.name, problem, remedy)


class ContextCheck(Check):
    """All context columns of a log."""

    def __init__(self, names: tuple[str, ...], actions: ActionCheck, encoder: Encoder | None) -> None:
        self._names, self._actions = names, actions
        parts = [] if encoder is None else [part for source in encoder.sources for part in source.parts]
        self._parts = {part.column: part for part in parts}
        self.columns_seen: dict[str, ContextColumn] = {}
        self._unread: dict[str, Finding] = {}

    def look(self, view: CheckedBatch) -> None:
        """Take one batch into account."""
        for block in blocks(view.batch.select(list(self._names))):
            for owner in self._names:
                if owner not in self._unread:
                    self._look_at(block, owner, view)

    def _look_at(self, block: Block, owner: str, view: CheckedBatch) -> None:
        try:
            for name in block.flatten(owner):
                seen = self.columns_seen.get(name)
                if seen is None:
                    seen = self.columns_seen[name] = ContextColumn(name, self._actions, self._parts.get(name))
                seen.look(block.column(name, owner), view)
        except InputError as refusal:
            problem = f"an encoder cannot read it: got {refusal.got}, but {refusal.rule}."
            self._unread[owner] = Finding("unreadable", "error", owner, problem, f"{refusal.remedy}.")

    def findings(self) -> list[Finding]:
        """Report every column in turn."""
        found = [one for seen in self.columns_seen.values() for one in seen.findings()]
        return found + list(self._unread.values())
