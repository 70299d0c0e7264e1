"""Collect: from a part of a log to a shard of each of its episodes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from spuir.bandit import Bandit
from spuir.errors import InputError, SpuirError, UnknownNameError
from spuir.logs import Cut
from spuir.logs.decision_rows import checked
from spuir.logs.formats import Faults
from spuir.storage.shards import Shard
from spuir.tables.encoder import Encoder
from spuir.training.memory import block_rows
from spuir.training.scan import PartEpisode, ScannedPart, with_source

ROW_COLUMNS = {"weight": "sample_weight", "propensity": "propensities"}
"""Optional columns of a log, and the arguments of a bandit that they become."""

CHECKED = {"reward": "rewards", "weight": "weights", "propensity": "propensities"}
"""Columns of numbers, and their names in a batch, which checks them."""

Selection = slice | NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, eq=False)
class EpisodeShard:
    """Some rows of one episode: their sums, or the rows themselves where these take less memory.

    ``rows`` counts all rows, ``silent`` those without a reward, which are not in ``sums`` or ``kept``; ``rewards`` is
    the sum of the other rewards. ``kept`` has arguments of ``partial_fit`` and ``collect``, batch after batch.
    """

    rows: int = 0
    silent: int = 0
    rewards: float = 0.0
    sums: Shard | None = None
    kept: tuple[Mapping[str, NDArray[Any]], ...] = ()

    def __add__(self, other: "EpisodeShard") -> "EpisodeShard":
        """Return the shard of the rows of both, these first."""
        return EpisodeShard(
            rows=self.rows + other.rows,
            silent=self.silent + other.silent,
            rewards=self.rewards + other.rewards,
            sums=self.sums + other.sums if self.sums and other.sums else self.sums or other.sums,
            kept=self.kept + other.kept,
        )

    def arguments(self) -> dict[str, NDArray[Any]]:
        """Return the kept rows, each argument as one array."""
        if len(self.kept) == 1:
            return dict(self.kept[0])
        return {name: np.concatenate([batch[name] for batch in self.kept]) for name in self.kept[0]}


class PartShards(NamedTuple):
    """What a worker collected from one part: its rows, its shards by episode number, and the broken rows."""

    rows: int
    shards: dict[int, EpisodeShard]
    faults: Faults


@dataclass(frozen=True, kw_only=True, eq=False)
class Collect:
    """The work on one part, as it is sent to the workers.

    Parameters
    ----------
    bandit
        Takes encoded contexts. Only the feature map of its state matters.
    encoder
        Turns raw context columns into numbers.
    cut, columns
        How episodes are cut, and the columns of the log to read.
    keep_rows
        Episodes of up to this many rows are kept as rows; None = every episode.
    episodes
        The numbers of the episodes to collect.
    """

    bandit: Bandit
    encoder: Encoder
    cut: Cut
    columns: tuple[str, ...]
    keep_rows: int | None
    episodes: range

    def __call__(self, scanned: ScannedPart) -> PartShards:
        """Read the part and return its shards."""
        shards: dict[int, EpisodeShard] = {}
        rows, faults, part = 0, Faults(), scanned.part
        with threadpool_limits(limits=1):
            for batch in part.read(self.columns, batch_rows=block_rows(self.encoder.width), faults=faults):
                try:
                    self._add_batch(shards, batch, scanned, rows)
                except SpuirError as error:
                    raise with_source(self._within_batch(error, batch), part, part.first_row + rows) from None
                rows += batch.num_rows
        return PartShards(rows, shards, faults)

    def _add_batch(self, shards: dict[int, EpisodeShard], batch: Any, scanned: ScannedPart, earlier: int) -> None:
        """Add the rows of a batch to their shards; ``earlier`` rows of the part came before it."""
        contexts, keeps = None, False
        for key, selection in rows_by_key(self.cut.keys(batch, scanned.start + earlier)):
            episode = scanned.episodes.get(key)
            if episode is None:
                rule = "a log must not change while it is read"
                raise InputError("log", f"a new episode {key!r}", rule, "train on files that are finished")
            if episode.number not in self.episodes:
                continue
            if contexts is None:
                contexts = self.encoder.encode(batch)
            shard = shards.get(episode.number, EpisodeShard())
            shards[episode.number] = shard + self._shard(batch, contexts, selection, episode, shard.rows)
            keeps = keeps or self._keeps(episode)
        if keeps:
            # Sums check their rows at once; kept rows would be checked only when they are learned, far from their file.
            self._check(batch)

    def _shard(
        self, batch: Any, contexts: NDArray[np.float64], selection: Selection, episode: PartEpisode, earlier: int
    ) -> EpisodeShard:
        """Return the shard of some rows of a batch; ``earlier`` rows of the episode in this part came before them."""
        rewards = _numbers(batch, "reward")[selection]
        known = np.flatnonzero(~np.isnan(rewards))
        silent = len(rewards) - len(known)
        used: Selection = known if silent else slice(None)
        first = episode.before + earlier
        given: dict[str, Any] = {
            "X": contexts[selection][used],
            "actions": _numbers(batch, "action")[selection][used],
            "rewards": rewards[used],
            "row_ids": np.arange(first, first + len(rewards))[used],
        }
        given |= {
            argument: _numbers(batch, name)[selection][used]
            for name, argument in ROW_COLUMNS.items()
            if name in self.columns
        }
        counts: dict[str, Any] = {"rows": len(rewards), "silent": silent, "rewards": float(given["rewards"].sum())}
        if not len(known):
            return EpisodeShard(**counts)
        if self._keeps(episode):
            return EpisodeShard(**counts, kept=({name: np.array(column) for name, column in given.items()},))
        return EpisodeShard(**counts, sums=self.bandit.collect(episode=episode.number, **given))

    def _keeps(self, episode: PartEpisode) -> bool:
        """Return whether an episode is kept as rows."""
        return self.keep_rows is None or episode.size <= self.keep_rows

    def _check(self, batch: Any) -> None:
        """Raise if a row of the batch has an unknown action or an impossible number; name its row in the batch."""
        column = batch.column("action")
        labels: Any = self.bandit.actions
        unknown = set(column.unique().to_pylist()) - set(labels)
        if unknown:
            row = next(row for row, label in enumerate(column.to_pylist()) if label in unknown)
            rule, remedy = "it is none of the actions", "add it to these (--actions), or drop that row"
            raise UnknownNameError("action", f"{column[row].as_py()!r} at row {row}", rule, remedy)
        check_numbers(batch)

    def _within_batch(self, error: SpuirError, batch: Any) -> SpuirError:
        """Return an error about some rows of a batch as one that counts them within the batch."""
        try:
            self._check(batch)
        except SpuirError as same:
            return same
        return error


def check_numbers(batch: Any) -> None:
    """Raise if a row with a reward has an impossible reward, weight or propensity."""
    silent = np.isnan(_numbers(batch, "reward"))
    given = {CHECKED[name]: _numbers(batch, name) for name in batch.schema.names if name in CHECKED}
    checked(batch.num_rows, **{name: np.where(silent, 1.0, numbers) for name, numbers in given.items()})


def rows_by_key(keys: Any) -> Iterator[tuple[Any, Selection]]:
    """Yield each key of a batch with its rows: as a slice where equal keys lie together, else as row numbers."""
    encoded = keys.dictionary_encode()
    codes, names = encoded.indices.to_numpy(), encoded.dictionary.to_pylist()
    edges = np.flatnonzero(np.diff(codes)) + 1
    if len(edges) + 1 == len(names):
        bounds = [0, *edges.tolist(), len(codes)]
        yield from zip(names, map(slice, bounds[:-1], bounds[1:]), strict=True)
    else:
        order = np.argsort(codes, kind="stable")
        yield from zip(names, np.split(order, np.cumsum(np.bincount(codes))[:-1]), strict=True)


def _numbers(batch: Any, name: str) -> NDArray[Any]:
    """Return a column as an array: numbers as they are, text as objects."""
    return batch.column(name).to_numpy(zero_copy_only=False)
