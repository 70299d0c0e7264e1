"""Part of a log → what its rows contribute to each episode: sums, or the rows themselves where they are smaller."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from spuir.bandit import Bandit
from spuir.errors import InputError, SpuirError, UnknownNameError
from spuir.logs import Cut, Part
from spuir.logs.decision_rows import checked
from spuir.logs.formats import Faults
from spuir.storage.shards import Shard
from spuir.tables.encoder import Encoder
from spuir.training.memory import block_rows
from spuir.training.scan import Place, located, runs

ROW_COLUMNS = {"weight": "sample_weight", "propensity": "propensities"}
"""Columns of a log that a row brings along, and the arguments of a bandit that they become."""

CHECKED = {"reward": "rewards", "weight": "weights", "propensity": "propensities"}
"""Columns of numbers, and the names under which a batch checks them."""

Chosen = slice | NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows kept as they are: arguments of ``partial_fit`` and ``collect``, in pieces that are joined when needed."""

    pieces: tuple[Mapping[str, NDArray[Any]], ...]

    def __add__(self, other: "Rows") -> "Rows":
        """Return the rows of both, these first."""
        return Rows(self.pieces + other.pieces)

    def joined(self) -> dict[str, NDArray[Any]]:
        """Return every column in one piece."""
        if len(self.pieces) == 1:
            return dict(self.pieces[0])
        return {name: np.concatenate([piece[name] for piece in self.pieces]) for name in self.pieces[0]}


class Tally(NamedTuple):
    """What was logged in some rows: their number, how many had no reward yet, and the sum of the other rewards."""

    rows: int = 0
    silent: int = 0
    rewards: float = 0.0


class Share(NamedTuple):
    """What some rows contribute to their episode (None where no reward is known), and their tally."""

    given: Rows | Shard | None = None
    tally: Tally = Tally()

    def plus(self, other: "Share") -> "Share":
        """Return the share of both, these first."""
        one, two = self.tally, other.tally
        tally = Tally(one.rows + two.rows, one.silent + two.silent, one.rewards + two.rewards)
        if self.given is None or other.given is None:
            return Share(other.given if self.given is None else self.given, tally)
        return Share(self.given + other.given, tally)  # pyright: ignore[reportOperatorIssue] - one kind an episode


class Portion(NamedTuple):
    """One item of work: a part, the rows of the log before it, and the episodes in it by key."""

    part: Part
    start: int
    places: Mapping[Any, Place]


class Harvest(NamedTuple):
    """What a part gave: its rows, its share of each episode, and the broken rows that were left out."""

    rows: int
    shares: dict[int, Share]
    faults: Faults


@dataclass(frozen=True, kw_only=True, eq=False)
class Collect:
    """The work on one part, as it is sent to the workers.

    Parameters
    ----------
    bandit
        Takes encoded contexts; its state fixes the feature map, nothing else of it is read.
    encoder
        Turns raw context columns into numbers.
    cut, columns
        How episodes are cut, and the columns of the log to read.
    keep_rows
        Episodes of up to so many rows are kept as rows; every episode, with None.
    episodes
        The numbers of the episodes that are wanted.
    """

    bandit: Bandit
    encoder: Encoder
    cut: Cut
    columns: tuple[str, ...]
    keep_rows: int | None
    episodes: range

    def __call__(self, portion: Portion) -> Harvest:
        """Read the part and return its share of every episode in it."""
        shares: dict[int, Share] = {}
        rows, faults = 0, Faults()
        part = portion.part
        with threadpool_limits(limits=1):
            for batch in part.read(self.columns, batch_rows=block_rows(self.encoder.width), faults=faults):
                try:
                    self._add(shares, batch, portion, rows)
                except SpuirError as refusal:
                    raise located(self._explained(refusal, batch), part, part.first_row + rows) from None
                rows += batch.num_rows
        return Harvest(rows, shares, faults)

    def _check(self, batch: Any) -> None:
        """Refuse rows that no episode can take, by their number in the batch."""
        column = batch.column("action")
        labels: Any = self.bandit.actions
        strange = set(column.unique().to_pylist()) - set(labels)
        if strange:
            row = next(row for row, label in enumerate(column.to_pylist()) if label in strange)
            rule, remedy = "it is none of the actions", "add it to these (--actions), or drop that row"
            raise UnknownNameError("action", f"{column[row].as_py()!r} at row {row}", rule, remedy)
        check_numbers(batch)

    def _add(self, shares: dict[int, Share], batch: Any, portion: Portion, rows: int) -> None:
        """Add a batch, which comes ``rows`` rows after the start of the part."""
        contexts, kept = None, False
        for key, chosen in runs(self.cut.keys(batch, portion.start + rows)):
            place = portion.places.get(key)
            if place is None:
                rule = "a log does not change while it is read"
                raise InputError("log", f"a new episode {key!r}", rule, "train on files that are finished")
            if place.episode not in self.episodes:
                continue
            if contexts is None:
                contexts = self.encoder.encode(batch)
            held = shares.get(place.episode, Share())
            shares[place.episode] = held.plus(self._share(batch, contexts, chosen, place, held.tally.rows))
            kept = kept or self._keeps(place)
        if kept:
            # Sums check what they are made of; rows would be refused only when they are learnt, far from their file.
            self._check(batch)

    def _explained(self, refusal: SpuirError, batch: Any) -> SpuirError:
        """Return a refusal of some rows of a batch as one that counts them within the batch."""
        try:
            self._check(batch)
        except SpuirError as same:
            return same
        return refusal

    def _keeps(self, place: Place) -> bool:
        """Tell whether an episode is kept as rows."""
        return self.keep_rows is None or place.size <= self.keep_rows

    def _share(self, batch: Any, contexts: NDArray[np.float64], chosen: Chosen, place: Place, earlier: int) -> Share:
        """Return the share of the chosen rows of a batch; ``earlier`` rows of the part came before them."""
        rewards = batch.column("reward").to_numpy(zero_copy_only=False)[chosen]
        known = np.isfinite(rewards) | np.isinf(rewards)
        silent = len(rewards) - int(np.count_nonzero(known))
        kept: Chosen = slice(None) if not silent else np.flatnonzero(known)
        first = place.before + earlier
        given: dict[str, Any] = {
            "X": contexts[chosen][kept],
            "actions": self._actions(batch, chosen)[kept],
            "rewards": rewards[kept],
            "row_ids": np.arange(first, first + len(rewards))[kept],
        }
        for name, argument in ROW_COLUMNS.items():
            if name in self.columns:
                given[argument] = batch.column(name).to_numpy(zero_copy_only=False)[chosen][kept]
        tally = Tally(len(rewards), silent, float(given["rewards"].sum()))
        if silent == len(rewards):
            return Share(None, tally)
        if self._keeps(place):
            return Share(Rows(({name: np.array(column) for name, column in given.items()},)), tally)
        return Share(self.bandit.collect(episode=place.episode, **given), tally)

    def _actions(self, batch: Any, chosen: Chosen) -> NDArray[Any]:
        """Return the executed actions of the chosen rows: integers as they are, other labels as an object array."""
        return batch.column("action").to_numpy(zero_copy_only=False)[chosen]


def check_numbers(batch: Any) -> None:
    """Refuse rows of a batch with a reward whose numbers are impossible."""
    silent = np.isnan(batch.column("reward").to_numpy(zero_copy_only=False))
    given = {CHECKED[name]: batch.column(name) for name in batch.schema.names if name in CHECKED}
    numbers = {name: np.where(silent, 1.0, column.to_numpy(zero_copy_only=False)) for name, column in given.items()}
    checked(batch.num_rows, **numbers)
