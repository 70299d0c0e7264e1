"""Has a model learned from rows of this log? Its lineage says so: marks of its episodes, and sums per action."""

import re
from collections.abc import Iterable, Iterator
from itertools import accumulate

import numpy as np

from spuir.base.counting import counted
from spuir.base.records import Batch, Codes, Floats
from spuir.errors import InputError
from spuir.evaluation.logged_rows import EvaluationLog, LoggedRows
from spuir.evaluation.targets import BanditTarget
from spuir.tables.lineage import Contents, contents_of

MOST_EPISODES = 10_000
"""The most episodes of a log that are compared with the episodes of a model."""
MARK = re.compile(r"rows (\d+) ")


def _by_episode(numbers: Codes) -> Iterator[tuple[int, Codes]]:
    """Yield each episode of some rows, with the places of its rows, in their order."""
    order = np.argsort(numbers, kind="stable")
    values, starts = np.unique(numbers[order], return_index=True)
    yield from zip(values.tolist(), np.split(order, starts[1:]), strict=True)


class LearnedRows:
    """Compares the rows of a log, while it is first read, with what one model learned from.

    Episodes are those of the log; where it has none, they are cut by the sizes of the model's own.
    """

    def __init__(self, target: BanditTarget, log: EvaluationLog) -> None:
        self.target, self._log = target, log
        self._model = target.bandit._model
        lineage = self._model.lineage
        self._marks = {mark for mark in lineage.marks if mark}
        sizes = [int(found[1]) for mark in lineage.marks if (found := MARK.match(mark))]
        whole = len(sizes) == target.bandit.n_episodes_
        self._size = sizes[0] if len(set(sizes[:-1])) == 1 and sizes[-1] <= sizes[0] else None
        self._bounds = list(accumulate(sizes)) if whole else []
        self._episodes: dict[int, Contents] = {}
        self._rows: dict[int, int] = {}
        self.unknown = False
        self.tally: Floats = np.zeros((len(self._model.labels.names), 3))

    @property
    def useful(self) -> bool:
        """Whether the model says what it learned from."""
        return self._model.lineage.tally is not None

    def add(self, rows: LoggedRows) -> None:
        """Take rows of the log."""
        labels = self._model.labels
        codes = np.array([labels.codes.get(label, -1) for label in self._log.actions])
        totals = [np.bincount(rows.actions, part, len(codes)) for part in self._moments(rows)]
        if (np.bincount(rows.actions, minlength=len(codes))[codes < 0] > 0).any():
            self.unknown = True
            return
        self.tally[codes[codes >= 0]] += np.column_stack(totals)[codes >= 0]
        beyond = rows.episodes is None and self._size is None and int(rows.numbers[0]) >= max(self._bounds, default=0)
        if beyond or len(self._episodes) >= MOST_EPISODES:
            return
        numbers, places = self._numbered(rows)
        contexts = self._model.contexts(self.target.table(rows), False)
        weights = None if (rows.weights == 1).all() else rows.weights
        batch = Batch(
            contexts=contexts, actions=codes[rows.actions], rewards=rows.rewards, weights=weights, row_ids=places
        )
        for number, own in _by_episode(numbers):
            if number < 0:
                continue
            found = contents_of(batch.at(own), len(labels.names))
            self._episodes[number] = self._episodes[number] + found if number in self._episodes else found

    @staticmethod
    def _moments(rows: LoggedRows) -> tuple[Floats, Floats, Floats]:
        """Return ω, ωr and ωr² (n,) of rows."""
        weighted = rows.weights * rows.rewards
        return rows.weights, weighted, weighted * rows.rewards

    def _numbered(self, rows: LoggedRows) -> tuple[Codes, Codes]:
        """Return the episode of each row, −1 where it cannot be one of the model's, and the row's place in it."""
        if rows.episodes is not None:
            places = np.empty(len(rows), np.int64)
            for number, own in _by_episode(rows.episodes):
                places[own] = self._rows.get(number, 0) + np.arange(len(own))
                self._rows[number] = self._rows.get(number, 0) + len(own)
            return rows.episodes, places
        if self._size is not None:
            return rows.numbers // self._size, rows.numbers % self._size
        ends = np.array([0, *self._bounds])
        numbers = np.searchsorted(ends, rows.numbers, side="right") - 1
        return np.where(numbers < len(self._bounds), numbers, -1), rows.numbers - ends[numbers]

    def found(self) -> str | None:
        """Return what of the log the model learned from, in words; None for nothing."""
        known = self._model.lineage.tally
        if known is not None and known.shape == self.tally.shape and not self.unknown:
            if np.allclose(known, self.tally, rtol=1e-9):
                return "the log that it learned from"
        count = sum(one.distinct and one.mark in self._marks for one in self._episodes.values())
        if not count:
            return None
        return counted(count, "episode", "that it learned from")


def check_learned(models: Iterable[LearnedRows], allowed: bool) -> list[str]:
    """Refuse a log that a model learned from or, if that is allowed, return a notice about it."""
    notices: list[str] = []
    for one in models:
        what, name = one.found(), one.target.name
        if what is not None and not allowed:
            rule = "a model looks better on rows that it has learned from than it is"
            remedy = (
                "evaluate on later rows (--after), let --policy with --holdout train on the earlier ones, or say "
                "on_training_rows=True (--on-training-rows) to do it anyway"
            )
            raise InputError(name, what, rule, remedy)
        if what is not None:
            notices.append(f"{name} learned from rows of this log: its value is too high.")
    return notices
