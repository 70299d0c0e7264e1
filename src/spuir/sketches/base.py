"""What a sketch is: a random linear map from the rows of a batch to c rows, drawn afresh each episode.

One column is drawn per row of the batch, from the row's id and the episode's key alone. Shards of an episode
thus hash the same row alike, and the sketch of any set of rows is the sum of its parts: identity 3.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from spuir.errors import ParameterError
from spuir.records import Codes, Floats

Words = NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True)
class Sketch(ABC):
    """A random map Π with E[ΠᵀΠ] = I; ``size`` is c and ``blocks`` is D."""

    size: int
    blocks: int = 1

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ParameterError("sketch_size", self.size, "a sketch has at least one row", "use c between d and B")
        if self.blocks < 1 or self.size % self.blocks:
            raise ParameterError(
                "sketch_blocks",
                self.blocks,
                f"the sketch size {self.size} must be divisible by the number of blocks",
                "choose a divisor",
            )

    def keeps(self, rows: int) -> bool:
        """Tell whether a batch of that many rows is taken as it is."""
        return rows <= self.size

    @abstractmethod
    def sums(self, values: Floats, groups: Codes, n_groups: int, ids: NDArray[np.int64], key: int) -> Floats:
        """Return Σ over the rows of each group of column(id) ⊗ values, (n_groups, c, k) for values (B, k)."""


def sum_rows(values: Floats, factors: Floats, targets: Codes, n_targets: int) -> Floats:
    """Return Σ factor·row by target, (n_targets, k), for values (B, k) and factors and targets (B,) or (B, D)."""
    n = len(values)
    times = factors.size // n if n else 1
    # Compressed by columns, one a row of the values: nothing needs sorting, and the values are read once in order.
    pointers = np.arange(0, n * times + 1, times, dtype=np.int32)
    spread = csc_array((factors.ravel(), targets.ravel().astype(np.int32), pointers), shape=(n_targets, n))
    return np.asarray(spread @ values)


_GOLDEN, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def random_words(ids: NDArray[np.int64], key: int, salt: int) -> Words:
    """Return one pseudo-random 64-bit word per id: a finaliser with full avalanche over id, key and salt."""
    start = np.uint64((key * 0x9E3779B97F4A7C15 + salt * 0xD1B54A32D192ED03 + 0x632BE59BD9B4E019) % 2**64)
    words = _mix(ids.astype(np.uint64) * _GOLDEN + start)
    # A second round, keyed again, keeps ids that differ by a constant apart under related keys.
    return _mix(words ^ np.uint64((key ^ (salt << 32)) % 2**64))


def _mix(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))
