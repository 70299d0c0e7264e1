"""Checks of the canonical columns of a log, each of which sees one batch after the other, in bounded memory."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spuir.base.records import Codes, Floats
from spuir.errors import InputError
from spuir.logs.cut import Cut
from spuir.logs.doctor.findings import (
    SHOWN_ROWS,
    BatchLocation,
    Finding,
    ProblemRow,
    ProblemRows,
    finding,
    missing,
    numbers,
)
from spuir.logs.id_hashes import hash_ids

ID_LIMIT = 4_000_000
"""Ids held at a time; of more ids a sample by hash is held, which has all rows of an id or none."""

ACTION_LIMIT = 100_000
EPISODE_LIMIT = 1_000_000
PLAUSIBLE = (315_532_800_000_000, 4_102_444_800_000_000)
"""Microseconds from 1970 to the years 1980 and 2100; a log of simulated times may lie outside, but not in part."""


class CheckedBatch(NamedTuple):
    """A batch with what several checks need: codes of the actions (n,), −1 where missing, and rewards (n,)."""

    batch: Any
    where: BatchLocation
    actions: Codes
    rewards: Floats

    def has(self, name: str) -> bool:
        """Return whether the batch has a column."""
        return name in self.batch.schema.names


class Check(ABC):
    """A check of the whole log: :meth:`look` at every batch, then report the :meth:`findings`."""

    columns: tuple[str, ...] = ()
    """What a log must have for it."""
    problems: Mapping[str, tuple[str | None, str]] = {}
    """What single rows may have: the column and the problem in a sentence, by the name of the check."""

    def __init__(self) -> None:
        self.rows: dict[str, ProblemRows] = {name: ProblemRows() for name in self.problems}

    @abstractmethod
    def look(self, view: CheckedBatch) -> None:
        """Take one batch into account."""

    def findings(self) -> list[Finding]:
        """Return what was found in single rows, in the order of ``problems``."""
        return [
            one
            for name, (column, problem) in self.problems.items()
            for one in self.rows[name].finding(name, column, problem)
        ]


class ActionCheck(Check):
    """Actions that are missing, taken only once, spelt in two ways, or new. Numbers the labels for all checks.

    Of actions with features (``described``), those taken only once are no problem: similar actions inform about them.
    """

    columns = ("action",)
    problems: ClassVar = {"missing action": ("action", "there are rows without an action.")}

    def __init__(self, described: bool = False) -> None:
        super().__init__()
        self._described = described
        self.codes: dict[Any, int] = {}
        self.counts = np.zeros(0, np.int64)
        self._firsts: list[ProblemRow] = []
        self._starts: list[int] = []
        self._rows, self._overflow = 0, False

    def encode(self, batch: Any, where: BatchLocation) -> Codes:
        """Return the codes (n,) of a batch's actions, new labels numbered on, −1 where missing or beyond the limit."""
        column = batch["action"]
        coded = column.dictionary_encode()
        local = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        labels = coded.dictionary.to_pylist()
        for at, label in enumerate(labels):
            if label not in self.codes and len(self.codes) < ACTION_LIMIT:
                self.codes[label] = len(self.codes)
                first = int(np.argmax(local == at))
                self._firsts.append(where.row(first, str(label)))
                self._starts.append(where.start + first)
        table = np.array([*(self.codes.get(label, -1) for label in labels), -1], np.intp)
        self._overflow |= bool((table[:-1] < 0).any())
        return table[local]

    def look(self, view: CheckedBatch) -> None:
        """Count."""
        self.rows["missing action"].add(missing(view.batch["action"]), view.where)
        self._rows = view.where.start + len(view.actions)
        counts = np.bincount(view.actions[view.actions >= 0], minlength=len(self.codes))
        counts[: len(self.counts)] += self.counts
        self.counts = counts

    def findings(self) -> list[Finding]:
        """Report missing, rare, similar and new actions."""
        found = super().findings()
        once = np.flatnonzero(self.counts == 1)
        if not self._described:
            problem = f"{len(once)} of {len(self.codes)} actions were taken only once."
            found += self._at(once).finding("rare action", "action", problem)
        if len(self.codes) == 1:
            found.append(finding("one action", "action", "there is only one action."))
        if self._overflow:
            problem = f"there are more than {ACTION_LIMIT:,} actions; the others were not looked at."
            found.append(finding("many actions", "action", problem))
        return found + self._similar() + self._late()

    def _at(self, codes: Codes) -> ProblemRows:
        """Return the first rows of some actions."""
        return ProblemRows(len(codes), [self._firsts[code] for code in codes[:SHOWN_ROWS].tolist()])

    def _similar(self) -> list[Finding]:
        spellings: dict[str, list[int]] = {}
        for label, code in self.codes.items():
            spellings.setdefault(" ".join(str(label).casefold().split()), []).append(code)
        groups = [codes for codes in spellings.values() if len(codes) > 1]
        if not groups:
            return []
        labels = list(self.codes)
        shown = "; ".join(" and ".join(repr(labels[code]) for code in codes) for codes in groups[:3])
        rows = self._at(np.array([code for codes in groups for code in codes]))
        return rows.finding(
            "similar actions", "action", f"there are labels that differ in case or blanks only: {shown}."
        )

    def _late(self) -> list[Finding]:
        """Report actions that were never taken before some row, if that is not by chance."""
        starts = np.array(self._starts, np.float64)
        if not len(starts) or len(starts) != len(self.counts):
            return []
        expected = starts * self.counts / np.maximum(self._rows - starts, 1)
        late = np.flatnonzero((starts > 0.05 * self._rows) & (expected > 25) & (self.counts > 1))
        problem = f"{len(late)} of {len(self.codes)} actions were never taken before these rows, and often after."
        return self._at(late).finding("late action", "action", problem)


class IdCheck(Check):
    """Decision ids that are missing or used twice."""

    columns = ("decision_id",)
    problems: ClassVar = {"missing id": ("decision_id", "there are rows without an id.")}

    def __init__(self) -> None:
        super().__init__()
        self._held: list[tuple[NDArray[np.uint64], NDArray[np.int64]]] = []
        self._count, self._bits, self._sources = 0, 0, []

    def look(self, view: CheckedBatch) -> None:
        """Keep the hashes of a batch with their rows, thinned where they become too many."""
        gone = missing(view.batch["decision_id"])
        self.rows["missing id"].add(gone, view.where)
        hashes = hash_ids(view.batch["decision_id"])
        self._sources.append((view.where, len(hashes)))
        kept = np.flatnonzero(~gone & self._sampled(hashes))
        self._held.append((hashes[kept], view.where.start + kept))
        self._count += len(kept)
        while self._count > ID_LIMIT:
            self._bits += 1
            self._held = [(one[chosen], at[chosen]) for one, at in self._held for chosen in [self._sampled(one)]]
            self._count = sum(len(one) for one, _ in self._held)

    def _sampled(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        return (hashes & np.uint64(2**self._bits - 1)) == 0

    def findings(self) -> list[Finding]:
        """Report missing ids, and of those that came again."""
        found = super().findings()
        hashes = np.concatenate([one for one, _ in self._held] or [np.zeros(0, np.uint64)])
        rows = np.concatenate([at for _, at in self._held] or [np.zeros(0, np.int64)])
        order = np.lexsort((rows, hashes))
        again = np.sort(rows[order][1:][hashes[order][1:] == hashes[order][:-1]])
        if len(again):
            seen = ProblemRows(len(again), [self._place(int(row)) for row in again[:5]])
            note = f" (found in a sample of one id in {2**self._bits:,})" if self._bits else ""
            found += seen.finding("repeated id", "decision_id", f"there are repeated ids{note}.")
        return found

    def _place(self, row: int) -> ProblemRow:
        where = next(where for where, length in self._sources if where.start <= row < where.start + length)
        return ProblemRow(where.source, where.first + row - where.start, "")


class TimeCheck(Check):
    """Times that are missing, implausible or go backwards, and rewards that were known before their decision."""

    columns = ("time",)
    problems: ClassVar = {
        "missing time": ("time", "there are rows without a time."),
        "implausible time": ("time", "there are times before 1980 or after 2100, far from all others."),
        "unsorted": ("time", "the time goes backwards."),
        "early reward": ("reward_time", "there are rewards that were known before their decision."),
    }

    def __init__(self) -> None:
        super().__init__()
        self._known, self._last = 0, -(2**62)

    def look(self, view: CheckedBatch) -> None:
        """Compare each time with the one before it."""
        column = view.batch["time"]
        gone = missing(column)
        self.rows["missing time"].add(gone, view.where)
        instants = column.cast("int64").fill_null(0).to_numpy(zero_copy_only=False)
        odd = ~gone & ((instants < PLAUSIBLE[0]) | (instants > PLAUSIBLE[1]))
        self.rows["implausible time"].add(odd, view.where, column)
        self._known += int(np.count_nonzero(~gone))
        back = np.zeros(len(gone), np.bool_)
        back[~gone] = np.diff(instants[~gone], prepend=self._last) < 0
        self.rows["unsorted"].add(back, view.where, column)
        self._last = int(instants[~gone][-1]) if not gone.all() else self._last
        if view.has("reward_time"):
            after = view.batch["reward_time"]
            known = ~gone & ~missing(after)
            early = after.cast("int64").fill_null(0).to_numpy(zero_copy_only=False) < instants
            self.rows["early reward"].add(known & early, view.where, after)

    def findings(self) -> list[Finding]:
        """Report times out of order, or far from all others if most are not."""
        usual = self.rows["implausible time"].count <= 0.5 * self._known
        return [one for one in super().findings() if usual or one.check != "implausible time"]


class WeightCheck(Check):
    """Weights that are missing, negative or not finite."""

    columns = ("weight",)
    problems: ClassVar = {"impossible weight": ("weight", "there are weights that are not finite numbers ≥ 0.")}

    def look(self, view: CheckedBatch) -> None:
        """Count."""
        values = numbers(view.batch["weight"])
        self.rows["impossible weight"].add(~(np.isfinite(values) & (values >= 0)), view.where, values)


class EpisodeCheck(Check):
    """How large the episodes are, and whether the rows of one are next to each other."""

    def __init__(self, cut: Cut) -> None:
        name = cut.columns[0] if cut.columns else None
        self.problems = {
            "missing episode": (name, "there are rows without an episode."),
            "scattered episodes": (name, "there are episodes whose rows are not next to each other."),
        }
        super().__init__()
        self.cut, self.sizes = cut, dict[Any, int]()
        self._last: Any = None
        self._overflow = False

    def look(self, view: CheckedBatch) -> None:
        """Count the rows of each episode."""
        gone = missing(view.batch[self.cut.columns[0]]) if self.cut.columns else np.zeros(len(view.rewards), np.bool_)
        self.rows["missing episode"].add(gone, view.where)
        if gone.any():
            return
        keys = self.cut.keys(view.batch, view.where.start)
        coded = keys.dictionary_encode()
        codes = coded.indices.to_numpy(zero_copy_only=False)
        labels = coded.dictionary.to_pylist()
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        again = np.zeros(len(codes), np.bool_)
        for start, length in zip(starts.tolist(), np.diff(starts, append=len(codes)).tolist(), strict=True):
            key = labels[codes[start]]
            again[start] = key != self._last and key in self.sizes
            self._last = key
            if key in self.sizes or len(self.sizes) < EPISODE_LIMIT:
                self.sizes[key] = self.sizes.get(key, 0) + length
            else:
                self._overflow = True
        self.rows["scattered episodes"].add(again, view.where, keys)

    def findings(self) -> list[Finding]:
        """Report episodes that are missing, scattered, out of order or too small to begin with."""
        name = self.cut.columns[0] if self.cut.columns else None
        found = super().findings()
        if len(self.sizes) == 1 and not self._overflow:
            found.append(finding("one episode", name, "there is only one episode."))
        if self._overflow:
            problem = f"there are more than {EPISODE_LIMIT:,} episodes; the others were not counted."
            found.append(finding("many episodes", name, problem))
        return found + self._order(name) if self.sizes else found

    def _order(self, name: str | None) -> list[Finding]:
        """Report a first episode that is too small, and names that do not sort as the episodes follow each other."""
        try:
            # Training learns the episodes in this order.
            order = self.cut.in_order(self.sizes)
        except InputError as refusal:
            return [finding("episode order", name, f"got {refusal.got}, but {refusal.rule}.", f"{refusal.remedy}.")]
        found: list[Finding] = []
        first, median = self.sizes[order[0]], float(np.median(list(self.sizes.values())))
        if len(order) > 2 and first < min(0.05 * median, 100):
            problem = (
                f"the first episode, {self.cut.named(order[0])}, has {first:,} rows, and others about {median:,.0f}."
            )
            found.append(finding("small first episode", name, problem))
        if isinstance(order[0], str) and order != list(self.sizes):
            listed = [", ".join(map(str, one[:4])) for one in (order, list(self.sizes))]
            problem = f"episodes would be learned in the order {listed[0]}, …, but the log has {listed[1]}, …."
            found.append(finding("episode order", name, problem))
        return found
