"""Checks of the canonical columns of a log, each fed with one batch after the other in bounded memory."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spuir.base.records import Codes, Floats
from spuir.logs.cut import Cut
from spuir.logs.findings import BatchLocation, Finding, ProblemRow, ProblemRows, missing, numbers
from spuir.logs.id_hashes import hash_ids

ID_LIMIT = 4_000_000
"""Ids held at a time; of more ids a sample by hash is held, which has all rows of an id or none."""

ACTION_LIMIT = 100_000
EPISODE_LIMIT = 1_000_000


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

    @abstractmethod
    def look(self, view: CheckedBatch) -> None:
        """Take one batch into account."""

    @abstractmethod
    def findings(self) -> list[Finding]:
        """Return what was found."""


class ActionCheck(Check):
    """Decisions without an action, and actions taken only once. Numbers the labels for all checks."""

    columns = ("action",)

    def __init__(self) -> None:
        self.codes: dict[Any, int] = {}
        self.counts = np.zeros(0, np.int64)
        self._firsts: list[ProblemRow] = []
        self._missing = ProblemRows()
        self._overflow = False

    def encode(self, batch: Any, where: BatchLocation) -> Codes:
        """Return the codes (n,) of a batch's actions, new labels numbered on, −1 where missing or beyond the limit."""
        column = batch["action"]
        coded = column.dictionary_encode()
        local = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        labels = coded.dictionary.to_pylist()
        for at, label in enumerate(labels):
            if label not in self.codes and len(self.codes) < ACTION_LIMIT:
                self.codes[label] = len(self.codes)
                self._firsts.append(ProblemRow(where.source, where.first + int(np.argmax(local == at)), str(label)))
        table = np.array([*(self.codes.get(label, -1) for label in labels), -1], np.intp)
        self._overflow |= bool((table[:-1] < 0).any())
        return table[local]

    def look(self, view: CheckedBatch) -> None:
        """Count."""
        self._missing.add(missing(view.batch["action"]), view.where)
        counts = np.bincount(view.actions[view.actions >= 0], minlength=len(self.codes))
        counts[: len(self.counts)] += self.counts
        self.counts = counts

    def findings(self) -> list[Finding]:
        """Report missing and rare actions."""
        remedy = "drop these rows, or fill in what was done."
        found = self._missing.finding("missing action", "error", "action", "there are rows without an action.", remedy)
        once = np.flatnonzero(self.counts == 1)
        if len(once):
            rows = ProblemRows(len(once), [self._firsts[at] for at in once[:5].tolist()])
            problem = f"{len(once)} of {len(self.codes)} actions were taken only once."
            remedy = "check for misspelt labels; drop such rows, or merge rare actions."
            found += rows.finding("rare action", "warning", "action", problem, remedy)
        if len(self.codes) == 1:
            problem, remedy = "there is only one action.", "check that the column holds what was chosen."
            found.append(Finding("one action", "warning", "action", problem, remedy))
        if self._overflow:
            problem = f"there are more than {ACTION_LIMIT:,} actions; the others were not looked at."
            remedy = "check that the column holds actions, not ids; group them."
            found.append(Finding("many actions", "error", "action", problem, remedy))
        return found


class RewardCheck(Check):
    """Rewards that are missing, not finite, or all the same."""

    columns = ("reward",)

    def __init__(self) -> None:
        self._missing, self._infinite = ProblemRows(), ProblemRows()
        self._low, self._high, self._known = np.inf, -np.inf, 0

    def look(self, view: CheckedBatch) -> None:
        """Count, and keep the range."""
        values = view.rewards
        self._missing.add(np.isnan(values), view.where)
        self._infinite.add(np.isinf(values), view.where, values)
        known = values[np.isfinite(values)]
        self._known += len(known)
        self._low = min(self._low, known.min(initial=np.inf))
        self._high = max(self._high, known.max(initial=-np.inf))

    def findings(self) -> list[Finding]:
        """Report missing and impossible rewards."""
        problem = "there are rows without a reward; training leaves them out."
        remedy = "set a default reward if none means one (e.g. 0), or wait until the rewards are known."
        found = self._missing.finding("missing reward", "warning", "reward", problem, remedy)
        problem, remedy = "there are rewards that are not finite.", "correct or drop these rows."
        found += self._infinite.finding("impossible reward", "error", "reward", problem, remedy)
        if self._known and self._low == self._high:
            problem, remedy = f"every reward is {self._low:g}.", "check that the column holds the outcome."
            found.append(Finding("constant reward", "warning", "reward", problem, remedy))
        if not self._known:
            problem, remedy = "no reward is known.", "check that the column holds the outcome."
            found.append(Finding("no reward", "error", "reward", problem, remedy))
        return found


class IdCheck(Check):
    """Decision ids that are missing or used twice."""

    columns = ("decision_id",)

    def __init__(self) -> None:
        self._missing = ProblemRows()
        self._held: list[tuple[NDArray[np.uint64], NDArray[np.int64]]] = []
        self._count, self._bits, self._sources = 0, 0, []

    def look(self, view: CheckedBatch) -> None:
        """Keep the hashes of a batch with their rows, thinned where they become too many."""
        gone = missing(view.batch["decision_id"])
        self._missing.add(gone, view.where)
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
        remedy = "rewards cannot be joined to them; log an id with every decision."
        found = self._missing.finding("missing id", "warning", "decision_id", "there are rows without an id.", remedy)
        hashes = np.concatenate([one for one, _ in self._held] or [np.zeros(0, np.uint64)])
        rows = np.concatenate([at for _, at in self._held] or [np.zeros(0, np.int64)])
        order = np.lexsort((rows, hashes))
        again = np.sort(rows[order][1:][hashes[order][1:] == hashes[order][:-1]])
        if len(again):
            seen = ProblemRows(len(again), [self._place(int(row)) for row in again[:5]])
            note = f" (found in a sample of one id in {2**self._bits:,})" if self._bits else ""
            problem = f"there are ids that came before{note}."
            remedy = "drop the repetitions, or give every decision its own id."
            found += seen.finding("repeated id", "error", "decision_id", problem, remedy)
        return found

    def _place(self, row: int) -> ProblemRow:
        where = next(where for where, length in self._sources if where.start <= row < where.start + length)
        return ProblemRow(where.source, where.first + row - where.start, "")


class TimeCheck(Check):
    """Times that are missing or go backwards, and rewards that were known before their decision."""

    columns = ("time",)

    def __init__(self) -> None:
        self._missing, self._back, self._early = ProblemRows(), ProblemRows(), ProblemRows()
        self._last = -(2**62)

    def look(self, view: CheckedBatch) -> None:
        """Compare each time with the one before it."""
        column = view.batch["time"]
        gone = missing(column)
        self._missing.add(gone, view.where)
        instants = column.cast("int64").fill_null(0).to_numpy(zero_copy_only=False)
        back = np.zeros(len(gone), np.bool_)
        back[~gone] = np.diff(instants[~gone], prepend=self._last) < 0
        self._back.add(back, view.where, column)
        self._last = int(instants[~gone][-1]) if not gone.all() else self._last
        if view.has("reward_time"):
            after = view.batch["reward_time"]
            known = ~gone & ~missing(after)
            early = after.cast("int64").fill_null(0).to_numpy(zero_copy_only=False) < instants
            self._early.add(known & early, view.where, after)

    def findings(self) -> list[Finding]:
        """Report times out of order."""
        remedy = "fill them in; episodes cannot be cut by time without."
        found = self._missing.finding("missing time", "warning", "time", "there are rows without a time.", remedy)
        problem = "the time goes backwards."
        remedy = "sort the log by time before cutting it by size, or cut by time (--every) or by an episode column."
        found += self._back.finding("unsorted", "warning", "time", problem, remedy)
        problem, remedy = "there are rewards that were known before their decision.", "check clocks and time zones."
        return found + self._early.finding("early reward", "warning", "reward_time", problem, remedy)


class WeightCheck(Check):
    """Weights that are missing, negative or not finite."""

    columns = ("weight",)

    def __init__(self) -> None:
        self._wrong = ProblemRows()

    def look(self, view: CheckedBatch) -> None:
        """Count."""
        values = numbers(view.batch["weight"])
        self._wrong.add(~(np.isfinite(values) & (values >= 0)), view.where, values)

    def findings(self) -> list[Finding]:
        """Report impossible weights."""
        problem, remedy = "there are weights that are no finite numbers ≥ 0.", "correct or drop these rows."
        return self._wrong.finding("impossible weight", "error", "weight", problem, remedy)


class EpisodeCheck(Check):
    """How large the episodes are, and whether the rows of one are next to each other."""

    def __init__(self, cut: Cut) -> None:
        self.cut, self.sizes = cut, dict[Any, int]()
        self._last: Any = None
        self._missing, self._again = ProblemRows(), ProblemRows()
        self._overflow = False

    def look(self, view: CheckedBatch) -> None:
        """Count the rows of each episode."""
        gone = missing(view.batch[self.cut.columns[0]]) if self.cut.columns else np.zeros(len(view.rewards), np.bool_)
        self._missing.add(gone, view.where)
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
        self._again.add(again, view.where, keys)

    def findings(self) -> list[Finding]:
        """Report episodes that are missing or scattered."""
        name = self.cut.columns[0] if self.cut.columns else None
        problem, remedy = "there are rows without an episode.", "fill it in, or leave the column out and give a size."
        found = self._missing.finding("missing episode", "error", name, problem, remedy)
        problem = "there are episodes whose rows are not next to each other."
        remedy = (
            "nothing has to be done, but training first sorts them on disk; a log in order of episodes trains faster."
        )
        found += self._again.finding("scattered episodes", "note", name, problem, remedy)
        if len(self.sizes) == 1 and not self._overflow:
            problem = "there is only one episode: the policy learns once, and imputes before it has learned anything."
            found.append(Finding("one episode", "warning", name, problem, "cut the log into more episodes."))
        if self._overflow:
            problem = f"there are more than {EPISODE_LIMIT:,} episodes; the others were not counted."
            found.append(Finding("many episodes", "warning", name, problem, "cut the log into larger episodes."))
        return found
