"""What a model learned from: marks that identify its episodes, a fingerprint of all data, rewards per action."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import log2
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spuir.base.hashing import Words, digest, hash64, odd_numbers
from spuir.base.records import Batch, Floats, all_finite
from spuir.errors import InputError, RepeatedEpisodeError

KEPT = 100
"""A model recognises this many of its last episodes."""
LONGEST_MARK = 64
"""Longest text of a mark or a fingerprint."""
DISTINCT_BITS = 64.0
"""Rows without ids are recognised if they carry this much information; two quiet nights may well be equal."""
SAMPLED_COLUMNS, SAMPLED_ROWS = 2, 64
"""Hashing reads a few context columns of each row, and the information is estimated on a few rows, to be cheap."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Contents:
    """What some rows of an episode are recognised by; rows in other shards add up.

    ``rows`` counts them, ``words`` is a sum of their hashes modulo 2⁶⁴, ``bits`` how much information they carry, at
    least, ``by_ids`` whether ids were hashed rather than contents, and ``tally`` (M, 3) the weight, the rewards and
    the squared rewards of each action.
    """

    rows: int
    words: int
    bits: float
    by_ids: bool
    tally: Floats

    def __add__(self, other: "Contents") -> "Contents":
        """Return the contents of both sets of rows."""
        return Contents(
            rows=self.rows + other.rows,
            words=(self.words + other.words) % 2**64,
            bits=self.bits + other.bits,
            by_ids=self.by_ids and other.by_ids,
            tally=self.tally + other.tally,
        )

    @cached_property
    def mark(self) -> str:
        """A text that is equal for equal rows."""
        return f"{'ids' if self.by_ids else 'rows'} {self.rows} {self.words:016x}"

    @property
    def distinct(self) -> bool:
        """Whether other rows are unlikely to have the same mark."""
        return self.by_ids or self.bits >= DISTINCT_BITS


def contents_of(batch: Batch, n_actions: int, ids: Iterable[Any] | None = None, first: int = 0) -> Contents:
    """Return what the rows of a batch are recognised by: their ids or, without ids, what they hold and their order.

    Without row ids they are the rows ``first``, ``first`` + 1, … of their episode.
    """
    if ids is not None:
        hashes = np.fromiter((hash64(str(one).encode()) for one in ids), np.uint64)
        if len(hashes) != len(batch):
            raise InputError("ids", f"{len(hashes)} of them", f"there are {len(batch)} rows", "give one id per row")
        words = int(hashes.sum())
        return Contents(rows=len(batch), words=words, bits=0.0, by_ids=True, tally=_tally(batch, n_actions))
    hashes = _row_hashes(batch)
    if batch.row_ids is None:
        odd = np.arange(1, 2 * len(batch), 2, dtype=np.uint64)
    else:
        odd = 2 * batch.row_ids.view(np.uint64) + np.uint64(1)
    words = int(hashes.dot(odd))
    if first and batch.row_ids is None:
        words = (words + 2 * first * int(hashes.sum())) % 2**64
    return Contents(rows=len(batch), words=words, bits=_bits(hashes), by_ids=False, tally=_tally(batch, n_actions))


def _tally(batch: Batch, n_actions: int) -> Floats:
    """Return the weight, the rewards and the squared rewards of each action (M, 3)."""
    tally, actions, rewards = np.empty((n_actions, 3)), batch.actions, batch.rewards
    with np.errstate(over="ignore"):  # what overflows is refused where it is learned
        weighted = rewards if batch.weights is None else batch.weights * rewards
        tally[:, 0] = np.bincount(actions, batch.weights, n_actions)
        tally[:, 1] = np.bincount(actions, weighted, n_actions)
        tally[:, 2] = np.bincount(actions, weighted * rewards, n_actions)
    return tally


def _row_hashes(batch: Batch) -> Words:
    """Return a hash (B,) of each row's action and reward, and of some columns of its context."""
    dim, odd = int(batch.contexts.shape[1]), odd_numbers(SAMPLED_COLUMNS + 2)
    # Neighbours are read together; in the middle, because a constant is usually the first column or the last.
    columns = batch.contexts[:, dim // 2 : dim // 2 + SAMPLED_COLUMNS]
    numbers = columns if isinstance(columns, np.ndarray) else columns.toarray()
    hashes = batch.rewards.view(np.uint64) * odd[-1]
    hashes += batch.actions.view(np.uint64)
    for factor, column in zip(odd, numbers.astype(np.float64, copy=False).T, strict=False):
        hashes ^= column.view(np.uint64)
        hashes *= factor
    # Numbers such as 0, 1 and 0.5 differ in their upper bits only, which a product never carries down.
    hashes ^= hashes >> np.uint64(32)
    hashes *= odd[-2]
    return hashes


def _bits(hashes: Words) -> float:
    """Return the information in the order of the first rows: log₂ of how many orders of them are as likely."""
    some = hashes[:SAMPLED_ROWS].tolist()
    most = len(some) * log2(max(1, len(some)))
    if len(set(some)) == len(some):  # the usual case, which needs no counts
        return most
    return most - sum(count * log2(count) for count in Counter(some).values())


class LoggedReward(NamedTuple):
    """The rewards of one action in everything that a model learned from; NaN where they are not known."""

    action: Hashable
    rows: float
    mean: float
    standard_error: float


@dataclass(frozen=True)
class Notes:
    """What is saved beside a model and no decision depends on: the time, the user's notes, and how it was trained."""

    created: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    training: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, eq=False)
class Lineage:
    """What a model learned from.

    ``data`` is a fingerprint of all episodes in order, ``marks`` are those of the last ones, empty where one cannot be
    recognised, and ``tally`` (M, 3) is the sum over all episodes.
    """

    data: str = ""
    marks: tuple[str, ...] = ()
    tally: NDArray[np.float64] | None = None

    def check(self, contents: Contents) -> None:
        """Refuse rows that were learned before."""
        if contents.distinct and contents.mark in self.marks:
            ago = len(self.marks) - self.marks.index(contents.mark)
            episodes = "in the last episode" if ago == 1 else f"{ago} episodes ago"
            got = f"{contents.rows:,} rows that were learned {episodes}"
            remedy = "skip it, or pass allow_repeat=True (--allow-repeat) to learn it again"
            raise RepeatedEpisodeError("episode", got, "an episode is learned once", remedy)

    def after(self, contents: Contents) -> "Lineage":
        """Return the lineage after one more episode."""
        mark = contents.mark if contents.distinct else ""
        tally = contents.tally.copy()
        if self.tally is not None:
            tally[: len(self.tally)] += self.tally
        if not all_finite(tally):
            np.nan_to_num(tally, copy=False)  # beyond the range: a number that can be saved
        return Lineage(digest(self.data, contents.mark), (*self.marks, mark)[-KEPT:], tally)

    def rewards(self, labels: Sequence[Hashable]) -> list[LoggedReward]:
        """Return the mean reward of each action, with its standard error."""
        tally = np.zeros((len(labels), 3))
        if self.tally is not None:
            tally[: len(self.tally)] = self.tally
        weight, total, squares = tally.T
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = total / weight
            variance = np.maximum(squares - total * mean, 0.0) / (weight - 1)
            error = np.sqrt(np.where(weight > 1, variance / weight, np.nan))
        return [
            LoggedReward(*row) for row in zip(labels, *(part.tolist() for part in (weight, mean, error)), strict=True)
        ]
