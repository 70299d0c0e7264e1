"""Checks of the context columns of a log: constant, empty or duplicated, hard to encode, or leaking the outcome."""

from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from spuir.base.hashing import mix64
from spuir.base.records import Floats, Mask
from spuir.errors import InputError
from spuir.logs.column_kinds import has_decimal_comma, reads_as_number
from spuir.logs.doctor.checks import ActionCheck, Check, CheckedBatch
from spuir.logs.doctor.findings import BatchLocation, Finding, ProblemRows, finding, merged, missing
from spuir.logs.doctor.leak_checks import LeakWatch
from spuir.logs.doctor.number_profiles import NumberProfile
from spuir.tables.column_encoders import CategoryEncoder, VectorEncoder
from spuir.tables.encoder import Encoder
from spuir.tables.raw_columns import RawColumn, time_text
from spuir.tables.raw_tables import Block, blocks

NUMERIC_RATIO = 9
"""Where a column of text has this many times as many numbers as words, the words are reported as mistakes."""
MISSING_TEXTS = {"nan", "null", "n/a", "#n/a", "nat", "<na>"}
"""Texts that stand for a missing value; "none" and "NA" may be honest levels."""
LEAST_VARIED = 20
"""Rows with another value than most, below which columns may be equal by chance."""
SCALES = 1e4
"""Standard deviations that differ by more than this are reported."""
COMMAS = 0.9
"""A column of text is reported if this part of its words are numbers with a decimal comma."""


class ContextColumn:
    """One context column, at the top or inside an object, through the whole log."""

    def __init__(self, name: str, actions: ActionCheck, part: Any) -> None:
        self.name, self._part = name, part
        self.kind, self.rows, self.absent, self.other = "empty", 0, 0, 0
        self.leaks, self._profile = LeakWatch(name, actions), NumberProfile()
        self._low, self._high = np.inf, -np.inf
        self._infinite, self._later, self._lengths = ProblemRows(), ProblemRows(), ProblemRows()
        self._own, self._numbers = 0.0, 0
        self._words, self._commas, self._blanks = ProblemRows(), ProblemRows(), ProblemRows()
        self._first, self._last, self._end = -1, -1, 0
        self._fingerprint: int | None = 0

    def look(self, column: RawColumn, view: CheckedBatch) -> None:
        """Take one batch into account."""
        self.rows += len(column)
        known = ~column.missing
        self.absent += int(np.count_nonzero(~known))
        self._end = view.where.start + len(column)
        if column.kind == "empty":
            return
        self.kind = column.kind
        self._look_at_places(known, view.where.start)
        if column.kind in ("number", "flag"):
            self._look_at_numbers(np.asarray(column.values, np.float64), view, known)
        if column.kind in ("number", "flag", "category"):
            self.leaks.look(column, view, known)
        if column.kind == "category":
            self._look_at_levels(column, view)
        if column.kind == "time":
            self._look_at_times(column, view, known)
        if column.kind == "list" and isinstance(self._part, VectorEncoder):
            wrong = known & (column.values != len(self._part.means))
            self._lengths.add(wrong, view.where, column.values)
        self._mark(column, view.where.start, known)

    def _look_at_places(self, known: Mask, start: int) -> None:
        there = np.flatnonzero(known)
        if len(there):
            self._first = start + int(there[0]) if self._first < 0 else self._first
            self._last = start + int(there[-1])

    def _look_at_numbers(self, values: Floats, view: CheckedBatch, known: Mask) -> None:
        self._infinite.add(np.isinf(values), view.where, values)
        self._profile.look(values, known & np.isfinite(values), view.where)
        self._low, self._high = self._profile.low, self._profile.high

    def _look_at_times(self, column: RawColumn, view: CheckedBatch, known: Mask) -> None:
        self._low = min(self._low, column.values[known].min(initial=np.inf))
        self._high = max(self._high, column.values[known].max(initial=-np.inf))
        if view.has("time"):
            decided = view.batch["time"].cast("int64").fill_null(0).to_numpy(zero_copy_only=False) / 1e6
            later = known & ~missing(view.batch["time"]) & (column.values > decided)
            self._later.add(later, view.where, lambda row: time_text(float(column.values[row])))

    def _look_at_levels(self, column: RawColumn, view: CheckedBatch) -> None:
        def shown(row: int) -> str:
            return column.levels[int(column.values[row])]

        words = np.array([*(not reads_as_number(level) for level in column.levels), False], np.bool_)[column.values]
        blank = np.array([*(level.strip().lower() in MISSING_TEXTS for level in column.levels), False], np.bool_)
        commas = np.array([*(has_decimal_comma(level) for level in column.levels), False], np.bool_)[column.values]
        self._words.add(words, view.where, shown)
        self._commas.add(commas, view.where, shown)
        self._blanks.add(blank[column.values], view.where, shown)
        self._numbers += int(np.count_nonzero(~words & ~column.missing))
        known = max(len(column) - int(np.count_nonzero(column.missing)), 1)
        if known >= 100 and not self._own:
            self._own = len(column.levels) / known
        if isinstance(self._part, CategoryEncoder):
            kept = set(self._part.levels)
            counts = np.bincount(column.values[column.values >= 0], minlength=len(column.levels))
            self.other += int(counts[[level not in kept for level in column.levels]].sum())

    def _mark(self, column: RawColumn, start: int, known: Mask) -> None:
        """Add the values of a batch, each with its row, to the fingerprint of the column."""
        if self._fingerprint is None or column.kind == "list" or (self.leaks.levels.full and column.kind == "category"):
            self._fingerprint = None
            return
        values: NDArray[Any] = np.asarray(column.values, np.float64) + 0.0
        if column.kind == "category":
            values = np.array([*(crc32(level.encode()) for level in column.levels), 0], np.float64)[column.values]
        bits = np.where(known, values, 0.5).view(np.uint64)
        rows = np.arange(start, start + len(values), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        added = int((mix64(bits) * rows).sum(dtype=np.uint64))
        self._fingerprint = (self._fingerprint + added) % 2**64

    @property
    def content(self) -> Any:
        """What is equal for columns with the same values in all rows; None for one of nearly the same value always."""
        levels = self.leaks.levels
        varied = levels.full or levels.rows.sum() - levels.rows.max() >= LEAST_VARIED or self.kind == "time"
        return (self.kind == "category", self._fingerprint) if varied and self._fingerprint is not None else None

    @property
    def deviation(self) -> float:
        """The standard deviation of a column of numbers, 0 of others."""
        n, x, _, xx, _, _ = self.leaks.moments.sums
        return float(np.sqrt(max(xx - x * x / n, 0.0) / n)) if self.kind == "number" and n else 0.0

    def findings(self) -> list[Finding]:
        """Report what this column lacks, and what it should not know."""
        found = self._infinite.finding("not finite", self.name, "there are numbers that are not finite.")
        if self._lengths.count:
            problem = f"there are vectors that do not have {len(self._part.means)} numbers."
            found += self._lengths.finding("unequal vectors", self.name, problem)
        problem = "its times are later than those of the decisions."
        found += self._later.finding("known afterwards", self.name, problem)
        if self.absent == self.rows:
            return [*found, finding("empty", self.name, "it has no value at all.")]
        levels = self.leaks.levels
        one_level = self.kind == "category" and len(levels.index) == 1 and not levels.full
        if not self.absent and (self._low == self._high or one_level):
            return [*found, finding("constant", self.name, "it has the same value in all rows.")]
        found += self._text() if self.kind == "category" else self._spread()
        return found + self._gaps() + self.leaks.findings(numeric=self.kind in ("number", "flag"))

    def _text(self) -> list[Finding]:
        problem = "there are cells with a text that means missing."
        found = self._blanks.finding("missing as text", self.name, problem)
        if self._commas.count >= COMMAS * max(self._words.count, 1):
            found += self._commas.finding("decimal comma", self.name, "its numbers are written with a comma.")
        elif self._words.count and self._numbers >= NUMERIC_RATIO * self._words.count:
            problem = f"it is read as text because of these cells; the other {self._numbers:,} are numbers."
            found += self._words.finding("mixed", self.name, problem)
        elif self._own > 0.9 and self.leaks.levels.full:
            found.append(finding("id-like", self.name, "nearly every row has a different value: it looks like an id."))
        elif self.other > 0.2 * self.rows:
            problem = f"{self.other / self.rows:.0%} of the rows have a level without its own feature."
            found.append(finding("many levels", self.name, problem))
        return found

    def _spread(self) -> list[Finding]:
        """Report numbers that are not measurements: sentinels, outliers, ids, times."""
        found: list[Finding] = []
        if self.kind != "number":
            return found
        for value, rows in self._profile.sentinels().items():
            problem = (
                f"{value:g} is far from all other values and occurs {rows.count:,} times: it seems to mean missing."
            )
            found += rows.finding("sentinel", self.name, problem)
        if not found:
            problem = "there are numbers more than 10,000 times as large as nearly all others."
            found += self._profile.outliers().finding("outlier", self.name, problem)
        unit = self._profile.epoch()
        if unit is not None:
            return [*found, finding("epoch time", self.name, f"it looks like a time in {unit} since 1970.")]
        if self._profile.looks_like_id(self.name):
            problem = "it looks like an id: whole numbers whose size means nothing."
            found.append(finding("id-like", self.name, problem))
        return found

    def _gaps(self) -> list[Finding]:
        """Report values that are missing at one end of the log, or beyond the rows that an encoder learns from."""
        found: list[Finding] = []
        filled = (self.rows - self.absent) / max(self._last + 1 - self._first, 1)
        tail = self._end - 1 - self._last
        for check, gap, where in (("empty at first", self._first, "first"), ("empty at last", tail, "last")):
            if gap >= 0.02 * self.rows and gap * filled > 25:
                found.append(
                    finding(check, self.name, f"it has no value in the {where} {gap:,} of {self.rows:,} rows.")
                )
        if not found and self.absent and self._part is not None and getattr(self._part, "missing", True) is False:
            problem = f"{self.absent:,} values are missing, but none in the rows that an encoder learns from."
            found.append(finding("missing later", self.name, problem))
        return found


class ContextCheck(Check):
    """All context columns of a log."""

    def __init__(
        self, names: tuple[str, ...], actions: ActionCheck, encoder: Encoder | None, *, scaled: bool = False
    ) -> None:
        super().__init__()
        self._names, self._actions, self._scaled = names, actions, scaled
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
            self._unread[owner] = finding("unreadable", owner, problem, f"{refusal.remedy}.")

    def findings(self) -> list[Finding]:
        """Report each column, then what concerns several columns."""
        found = [one for seen in self.columns_seen.values() for one in seen.findings()]
        return merged([*found, *self._copies(), *self._scales(), *self._unread.values()])

    def _copies(self) -> list[Finding]:
        """Report columns with the values of an earlier one in every row."""
        found: list[Finding] = []
        first: dict[Any, str] = {}
        for name, seen in self.columns_seen.items():
            same = first.setdefault(seen.content, name)
            if seen.content is not None and same != name:
                found.append(finding("duplicate column", name, f"it equals the column {same!r} in every row."))
        return found

    def _scales(self) -> list[Finding]:
        """Report columns whose scales are far from each other."""
        spreads = {name: seen.deviation for name, seen in self.columns_seen.items() if seen.deviation > 0}
        if self._scaled or not spreads:
            return []
        small, large = min(spreads, key=lambda name: spreads[name]), max(spreads, key=lambda name: spreads[name])
        if spreads[large] < SCALES * spreads[small]:
            return []
        problem = f"{large!r} varies by {spreads[large]:.2g} and {small!r} by {spreads[small]:.2g}."
        return [finding("scales", None, problem)]


def id_like(contexts: Any) -> list[Finding]:
    """Return what the doctor says of columns of ids in an Arrow table of context columns, such as the first rows."""
    check, row = ContextCheck(tuple(contexts.schema.names), ActionCheck(), None), 0
    for batch in contexts.combine_chunks().to_batches():
        unknown = np.full(batch.num_rows, -1), np.full(batch.num_rows, np.nan)
        check.look(CheckedBatch(batch, BatchLocation("", row, row), *unknown))
        row += batch.num_rows
    return [one for one in check.findings() if one.check == "id-like"]
