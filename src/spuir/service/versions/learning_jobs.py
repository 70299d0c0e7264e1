"""What the learner is asked, what it has finished, and what is tried again later."""

import logging
import time
from collections.abc import Iterable
from typing import NamedTuple

from spuir.service.commands import FinishLearning
from spuir.service.experiment_view import ExperimentView, settings_at
from spuir.service.log_records import encode
from spuir.service.stores.base import LogStore
from spuir.service.versions.learner import LearnerProcess, LearningJob

log = logging.getLogger("spuir.service")

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds until an episode whose rows could not be read is tried again: each pause is twice the one before."""

PIECE = 1 << 16
"""Bytes of a model that are saved in one transaction: so few that it takes hardly longer than one without them."""


class ModelPiece(NamedTuple):
    """A part of a model to save: the arguments of ``put_model``."""

    name: str
    version: int
    content: bytes
    piece: int


class LearningJobs:
    """The oldest close of each experiment that waits, on its way through a learner.

    Parameters
    ----------
    learner
        Where learning happens.
    """

    def __init__(self, learner: LearnerProcess) -> None:
        self.learner = learner
        self.finished: dict[str, FinishLearning] = {}
        """What was learned and is to be recorded, by experiment."""
        self.problems: dict[str, str] = {}
        """Why an experiment could not be learned."""
        self._asked: dict[str, int] = {}
        self._pauses: dict[str, tuple[float, float]] = {}
        self._saved: dict[str, int] = {}
        self._not_before = 0.0

    @property
    def active(self) -> list[str]:
        """The experiments that are being learned."""
        return sorted(set(self._asked) - set(self.problems))

    def start(self, store: LogStore, views: Iterable[ExperimentView]) -> None:
        """Hand the oldest close of each experiment that waits to the learner, unless it failed a moment ago."""
        for view in views:
            name, next_version = view.name, view.learned.number + 1
            if name in self.problems:
                elsewhere = self._asked.get(name, next_version) < next_version
                if elsewhere or time.monotonic() >= self._pauses.get(name, (float("inf"), 0.0))[0]:
                    del self._asked[name], self.problems[name]
            if view.waiting and name not in self._asked:
                close, parent = view.waiting[0], view.learned
                job = LearningJob(
                    name=name,
                    version=next_version,
                    parent=parent.number,
                    close=close,
                    settings=settings_at(store, view, close.seq),
                    changes=[one for one in view.changes if parent.actions_at < one[0] <= close.seq],
                )
                self.learner.submit(store, job)
                self._asked[name] = next_version

    def collect(self) -> None:
        """Take in what the learner has finished."""
        for one in self.learner.collect():
            if one.version != self._asked.get(one.name):
                continue  # a process that was taken for dead had finished after all
            if one.error is None:
                about = encode(one.about)
                made = FinishLearning(experiment=one.name, version=one.version, model=one.model, about=about)
                self.finished[one.name] = made
                continue
            log.error("experiment %s cannot be learned: %s", one.name, one.error)
            self.problems[one.name] = one.error  # it counts as asked, so that it is not tried again at once
            if one.again:
                pause = self._pauses.get(one.name, (0.0, FIRST_PAUSE / 2))[1] * 2
                self._pauses[one.name] = (time.monotonic() + min(pause, LONGEST_PAUSE), min(pause, LONGEST_PAUSE))

    @property
    def ready(self) -> list[FinishLearning]:
        """What can be recorded: its model is small, or saved."""
        return [one for one in self.finished.values() if not self._has_pieces(one)]

    def _has_pieces(self, one: FinishLearning) -> bool:
        return self.learner.beside and one.model is not None and len(one.model) > PIECE

    def next_piece(self) -> ModelPiece | None:
        """Return the next part of a large model that is to be saved beside what serving records."""
        for name, one in self.finished.items():
            if one.model is not None and self._has_pieces(one) and time.monotonic() >= self._not_before:
                at = self._saved.get(name, 0)
                return ModelPiece(name, one.version, one.model[at * PIECE : (at + 1) * PIECE], at)
        return None

    def saved(self, piece: ModelPiece) -> None:
        """Count a part as saved."""
        self._saved[piece.name] = piece.piece + 1
        one = self.finished.get(piece.name)
        if one is not None and (one.model is None or (piece.piece + 1) * PIECE >= len(one.model)):
            one.model = None

    def put_off(self) -> None:
        """Save nothing for a while, because the store could not write a part."""
        self._not_before = time.monotonic() + FIRST_PAUSE

    def recorded(self, done: Iterable[FinishLearning]) -> None:
        """Forget what was finished, after it was recorded here or by another process."""
        for one in done:
            for held in (self._asked, self._pauses, self._saved, self.finished):
                held.pop(one.experiment, None)
