"""Collect: from a part of a log to a shard of each of its episodes."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spuir.bandit import Bandit
from spuir.base.column_drift import Drift
from spuir.base.process_settings import one_blas_thread
from spuir.base.records import Codes, Mask
from spuir.errors import InputError, SpuirError, UnknownNameError
from spuir.logs import Cut
from spuir.logs.action_columns import executed_features
from spuir.logs.columns import renaming
from spuir.logs.decision_rows import check_values
from spuir.logs.eligible_masks import read_mask
from spuir.logs.formats import Faults
from spuir.policies import Policy
from spuir.storage.shards import Shard
from spuir.tables.encoder import Encoder
from spuir.training.memory import block_rows
from spuir.training.scan import PartEpisode, ScannedPart, learned_rows

ROW_COLUMNS = {"weight": "sample_weight", "propensity": "propensities"}
"""Optional columns of a log, and the arguments of a bandit that they become."""

ID_COLUMNS = ("episode", "decision_id")
"""Columns by which an episode is recognised that was learned before, together."""

ELIGIBLE = "eligible"
"""The column that says what could be chosen, and the argument of a bandit that it becomes."""

FEATURES = "features of the executed action"
"""What the arranged rows call the features per decision."""

CHECKED = {"reward": "rewards", "propensity": "propensities", "weight": "weights"}
"""Columns of numbers, and their names in a batch, whose rules they must fulfil."""

Selection = slice | NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, eq=False)
class EpisodeShard:
    """Some rows of one episode: their sums, or the rows themselves where these take less memory.

    ``rows`` counts all rows, ``silent`` those without a reward, and ``learned`` those in ``sums`` or ``kept``: with a
    reward and a weight above 0. ``rewards`` is the sum of all rewards and ``lowest`` the lowest propensity, infinite
    without any. ``kept`` has arguments of ``partial_fit`` and ``collect``, batch after batch.
    """

    rows: int = 0
    silent: int = 0
    learned: int = 0
    rewards: float = 0.0
    lowest: float = np.inf
    sums: Shard | None = None
    kept: tuple[Mapping[str, NDArray[Any]], ...] = ()

    def __add__(self, other: "EpisodeShard") -> "EpisodeShard":
        """Return the shard of the rows of both, these first."""
        return EpisodeShard(
            rows=self.rows + other.rows,
            silent=self.silent + other.silent,
            learned=self.learned + other.learned,
            rewards=self.rewards + other.rewards,
            lowest=min(self.lowest, other.lowest),
            sums=self.sums + other.sums if self.sums and other.sums else self.sums or other.sums,
            kept=self.kept + other.kept,
        )

    def arguments(self) -> dict[str, NDArray[Any]]:
        """Return the kept rows, each argument as one array."""
        if len(self.kept) == 1:
            return dict(self.kept[0])
        return {name: np.concatenate([batch[name] for batch in self.kept]) for name in self.kept[0]}


class PartShards(NamedTuple):
    """What a worker collected from one part: its rows, its shards by episode number, and the broken rows.

    ``drift`` counts the values that are unlike the sample, by the row of the log that a batch begins with.
    """

    rows: int
    shards: dict[int, EpisodeShard]
    faults: Faults
    drift: dict[int, Drift]


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
    propensity
        The propensity of every row where the log has none; None = there is none.
    learned
        How many episodes the model had learned before this log.
    varying
        The features of actions that come with each decision.
    """

    bandit: Bandit
    encoder: Encoder
    cut: Cut
    columns: tuple[str, ...]
    keep_rows: int | None
    episodes: range
    propensity: float | None = None
    learned: int = 0
    varying: tuple[str, ...] = ()

    def __call__(self, scanned: ScannedPart) -> PartShards:
        """Read the part and return its shards."""
        shards: dict[int, EpisodeShard] = {}
        drift: dict[int, Drift] = {}
        rows, faults, part = 0, Faults(), scanned.part
        with one_blas_thread:
            most = block_rows(self.encoder.width)
            for block in part.read(self.columns, batch_rows=most, faults=faults):
                for batch in (block.slice(start, most) for start in range(0, block.num_rows, most)):
                    try:
                        counted = self._add_batch(shards, batch, scanned, rows)
                    except SpuirError as error:
                        raise part.located(self._within_batch(error, batch), rows) from None
                    drift |= {} if counted is None else {scanned.start + rows: counted}
                    rows += batch.num_rows
        return PartShards(rows, shards, faults, drift)

    def _add_batch(
        self, shards: dict[int, EpisodeShard], batch: Any, scanned: ScannedPart, earlier: int
    ) -> Drift | None:
        """Add the rows of a batch to their shards; ``earlier`` rows of the part came before it."""
        runs = list(self._runs(batch, scanned, earlier))
        if not runs:
            return None
        rows = self._arranged(batch, runs)
        start = 0
        for episode, selection in runs:
            stop = start + _length(selection)
            shard = shards.get(episode.number, EpisodeShard())
            shards[episode.number] = shard + self._shard(rows, slice(start, stop), episode, shard.learned)
            start = stop
        if any(self._keeps(episode) for episode, _ in runs):
            # Sums check their rows at once; kept rows would be checked only when they are learned, far from their file.
            check_rows(batch, self.bandit.actions_.tolist())
        return rows.drift

    def _runs(self, batch: Any, scanned: ScannedPart, earlier: int) -> Iterator[tuple[PartEpisode, Selection]]:
        """Yield each episode to collect with its rows in the batch."""
        for key, selection in rows_by_key(self.cut.keys(batch, scanned.start + earlier)):
            episode = scanned.episodes.get(key)
            if episode is None:
                rule = "a log must not change while it is read"
                raise InputError("log", f"a new episode {key!r}", rule, "train on files that are finished")
            if episode.number in self.episodes:
                yield episode, selection

    def _arranged(self, batch: Any, runs: Sequence[tuple[PartEpisode, Selection]]) -> "_Rows":
        """Return the rows of some episodes, one episode after the other, as arrays."""
        contexts, drift = self.encoder.transform_and_count(batch)
        read = ("action", "reward", *ROW_COLUMNS, *ID_COLUMNS)
        columns = {name: _numbers(batch, name) for name in read if name in self.columns}
        if self.varying:
            columns[FEATURES] = executed_features(batch, self.varying, self.bandit.actions_.tolist())
        if ELIGIBLE in self.columns and needs_eligible(self.bandit.policy_):
            columns[ELIGIBLE] = self._eligible(batch)
        learned = learned_rows(batch)
        whole = sum(_length(selection) for _, selection in runs) == len(learned)
        if whole and all(isinstance(selection, slice) for _, selection in runs):
            return _Rows(contexts, columns, learned, np.arange(len(learned)), drift)
        # One gather for all episodes: one per episode and batch would dominate where episodes are scattered.
        every = np.arange(len(learned))
        order = np.concatenate([every[selection] for _, selection in runs])
        columns = {name: column[order] for name, column in columns.items()}
        return _Rows(contexts[order], columns, learned[order], order, drift)

    def _eligible(self, batch: Any) -> Mask:
        """Return which actions of the bandit could be chosen (n, M); labels that it does not know are left out."""
        codes, labels = self.bandit._model.labels.codes, self.bandit.actions_.tolist()

        def encode(column: Any) -> Codes:
            coded = column.dictionary_encode()
            known = [codes.get(label, -1) for label in coded.dictionary.to_pylist()]
            return np.array([*known, -1], np.intp)[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]

        return read_mask(batch[ELIGIBLE], encode(batch["action"]), labels, encode, labels)

    def _shard(self, rows: "_Rows", here: slice, episode: PartEpisode, earlier: int) -> EpisodeShard:
        """Return the shard of some rows of a batch; ``earlier`` learned rows of the episode are before them."""
        rewards, learned = rows.columns["reward"][here], rows.learned[here]
        count = int(np.count_nonzero(learned))
        used: Selection = slice(None) if count == len(learned) else np.flatnonzero(learned)
        given: dict[str, Any] = {
            "X": rows.contexts[here][used],
            "actions": rows.columns["action"][here][used],
            "rewards": rewards[used],
        }
        for name, argument in ROW_COLUMNS.items():
            if name in rows.columns:
                given[argument] = rows.columns[name][here][used]
        if ELIGIBLE in rows.columns:
            given[ELIGIBLE] = rows.columns[ELIGIBLE][here][used]
        if FEATURES in rows.columns:
            given["action_features"] = rows.columns[FEATURES][here][used]
        if all(name in rows.columns for name in ID_COLUMNS):
            parts = (rows.columns[name][here][used].tolist() for name in ID_COLUMNS)
            given["ids"] = np.array([f"{number}:{one}" for number, one in zip(*parts, strict=True)], dtype=object)
        lowest = float(given["propensities"].min(initial=np.inf)) if "propensities" in given else np.inf
        if self.propensity is not None:
            given["propensities"] = np.full(count, self.propensity)
        silent = int(np.count_nonzero(np.isnan(rewards)))
        counts: dict[str, Any] = {
            "rows": len(rewards),
            "silent": silent,
            "learned": count,
            "rewards": float(rewards.sum() if not silent else np.nansum(rewards)),
            "lowest": lowest,
        }
        if not count:
            return EpisodeShard(**counts)
        if self._keeps(episode):
            return EpisodeShard(**counts, kept=({name: np.array(column) for name, column in given.items()},))
        first = episode.before + earlier
        if "sketched" in self.bandit.policy_.traits:
            given["row_ids"] = np.arange(first, first + count)
        with _counted_in_batch(rows.places[here][used]):
            sums = self.bandit.collect(**given, episode=self.learned + episode.place, first_row=first)
        return EpisodeShard(**counts, sums=sums)

    def _keeps(self, episode: PartEpisode) -> bool:
        """Return whether an episode is kept as rows."""
        return self.keep_rows is None or episode.size <= self.keep_rows

    def _within_batch(self, error: SpuirError, batch: Any) -> SpuirError:
        """Return an error about some rows of a batch as one that counts them within the batch."""
        try:
            check_rows(batch, self.bandit.actions_.tolist())
        except SpuirError as same:
            return same
        return error


class _Rows(NamedTuple):
    """Rows of a batch as arrays: encoded contexts (n, d), columns (n,) by name, and which are learned from (n,).

    ``places`` (n,) are their numbers in the batch, and ``drift`` counts its values that are unlike the sample.
    """

    contexts: NDArray[np.float64]
    columns: Mapping[str, NDArray[Any]]
    learned: NDArray[np.bool_]
    places: Codes
    drift: Drift | None


@contextmanager
def _counted_in_batch(places: Codes) -> Iterator[None]:
    """Name a row of an error about rows with these numbers (n,) in their batch by its number there."""
    try:
        yield
    except SpuirError as error:
        got = re.sub(r"\bat row (\d+)", lambda found: f"at row {places[int(found[1])]}", error.got)
        raise type(error)(error.subject, got, error.rule, error.remedy) from None


def needs_eligible(policy: Policy) -> bool:
    """Return whether it matters to what a policy learns which actions could be chosen.

    What could be chosen matters for the probabilities with which a policy would have acted itself: those enter what it
    learns only if its sums depend on the acting state.
    """
    return "foldable" not in policy.traits


def _length(selection: Selection) -> int:
    """Return the number of rows of a selection."""
    return selection.stop - selection.start if isinstance(selection, slice) else len(selection)


def check_rows(batch: Any, labels: Any) -> None:
    """Raise if a row of a batch has an unknown action, or with a reward an impossible number; name its row."""
    column = batch.column("action")
    unknown = set(column.unique().to_pylist()) - set(labels)
    if unknown:
        row = next(row for row, label in enumerate(column.to_pylist()) if label in unknown)
        rule, remedy = "it is not one of the actions", "add it to these (--actions), or drop that row"
        raise UnknownNameError("action", f"{column[row].as_py()!r} at row {row}", rule, remedy)
    check_numbers(batch)


def check_numbers(batch: Any) -> None:
    """Raise if a row with a reward has an impossible reward or weight, or a missing or impossible propensity."""
    silent = np.isnan(_numbers(batch, "reward"))
    if "propensity" in batch.schema.names:
        gone = ~silent & batch["propensity"].is_null().to_numpy(zero_copy_only=False)
        if gone.any():
            rule = "a log has the propensity of every row, or no column of them"
            remedy = f"fill it in, drop such rows, or leave the column out: {renaming('propensity', None)}"
            raise InputError("propensity", f"nothing at row {int(np.argmax(gone))}", rule, remedy)
    for name, argument in CHECKED.items():
        if name in batch.schema.names:
            check_values(argument, np.where(silent, 1.0, _numbers(batch, name)), batch.num_rows)


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
