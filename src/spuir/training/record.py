"""The result of a training, and the record in the saved model of where it came from and how the new policy acts."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from spuir.bandit import Bandit
from spuir.base.column_drift import Drift
from spuir.base.counting import counted
from spuir.errors import InputError
from spuir.logs import Cut, Log
from spuir.training import memory
from spuir.training.fold import EpisodeSummary

MIX_ROWS = 2_000
"""Rows of the log on which the action mix of the new policy is computed."""
NAMED_FILES = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class Training:
    """The result of :func:`train`.

    Parameters
    ----------
    bandit
        Ready to decide, on raw rows.
    episodes
        A summary of each episode.
    notices
        Sentences about how the training was done and what was left out.
    needed
        The memory forecast.
    seconds, resumed
        Time spent, and how many episodes come from an earlier run.
    drift
        How many values are unlike the sample that the encoder was learned on, in the rows read by this run.
    """

    bandit: Bandit
    episodes: tuple[EpisodeSummary, ...]
    notices: tuple[str, ...]
    needed: memory.Forecast
    seconds: float
    resumed: int
    drift: Drift | None = None

    @property
    def rows(self) -> int:
        """Rows of all episodes."""
        return sum(summary.rows for summary in self.episodes)


def training_record(bandit: Bandit, log: Log, cut: Cut, rows: int, start: Bandit | None) -> dict[str, Any]:
    """Return how a model was made as JSON data.

    ``bandit`` takes raw rows; ``rows`` is their number in the log, and ``start`` the model that was continued.
    """
    places = dict.fromkeys(part.source.removeprefix("file ").strip("'") for part in log.parts)
    sources = [Path(place).name for place in places]
    more = [f"… {len(sources):,} in all"] if len(sources) > NAMED_FILES else []
    mix, seen = _mix(bandit, log)
    return {
        "log": [*sources[:NAMED_FILES], *more],
        "rows": rows,
        "episodes by": _length(cut),
        "from": None if start is None else start.version_,
        "mix": mix,
        "mix rows": seen,
    }


def _length(cut: Cut) -> str:
    """Return how long an episode is, as people say it."""
    if cut.kind != "time":
        return "the column episode" if cut.batch_size is None else counted(cut.batch_size, "row")
    for unit, seconds in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if cut.amount % (seconds * 1_000_000) == 0:
            return counted(cut.amount // (seconds * 1_000_000), unit)
    return f"{cut.amount / 1e6:g} seconds"


def _mix(bandit: Bandit, log: Log) -> tuple[list[tuple[str, float]], int]:
    """Return the mean probability of each action on some rows of the last part, and their number."""
    batch = next(islice(log.parts[-1].read(log.context), 1), None)
    if batch is None or not batch.num_rows:
        return [], 0
    try:
        shares = bandit.predict_proba(batch.slice(0, MIX_ROWS)).mean(axis=0)
    except InputError:  # a floor that is too high where all actions are eligible, as they need not be in use
        return [], 0
    labels = [str(label) for label in bandit.actions_.tolist()]
    return list(zip(labels, shares.tolist(), strict=True)), min(batch.num_rows, MIX_ROWS)
