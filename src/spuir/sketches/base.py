"""What a sketch is: a random linear map from the rows of a batch to c rows, drawn afresh each episode.

One column is drawn per row of the batch, from the row's id and the episode's key alone. Shards of an episode
thus hash the same row alike, and the sketch of any set of rows is the sum of its parts: identity 3.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from spuir.base.hashing import GOLDEN_RATIO, mix64
from spuir.base.records import Codes, Floats
from spuir.errors import ParameterError

Words = NDArray[np.uint64]
Spread = Callable[[Floats], Floats]


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
    def spread(self, groups: Codes, n_groups: int, ids: NDArray[np.int64], key: int) -> Spread:
        """Return the map of rows (B, k) to Σ over the rows of each group of column(id) ⊗ row, (n_groups, c, k)."""

    def sums(self, values: Floats, groups: Codes, n_groups: int, ids: NDArray[np.int64], key: int) -> Floats:
        """Return the sums (n_groups, c, k) of one table of values (B, k)."""
        return self.spread(groups, n_groups, ids, key)(values)


def row_sums(factors: Floats, targets: Codes, n_targets: int) -> Any:
    """Return the matrix that takes rows (B, k) to Σ factor·row by target; factors and targets are (B,) or (B, D)."""
    n = len(factors)
    times = factors.size // n if n else 1
    # Compressed by columns, one a row of the values: nothing needs sorting, and the values are read once in order.
    pointers = np.arange(0, n * times + 1, times, dtype=np.int32)
    return csc_array((factors.ravel(), targets.ravel().astype(np.int32), pointers), shape=(n_targets, n))


def random_words(ids: NDArray[np.int64], key: int, salt: int) -> Words:
    """Return one pseudo-random 64-bit word per id: a finaliser with full avalanche over id, key and salt."""
    start = np.uint64((key * GOLDEN_RATIO + salt * 0xD1B54A32D192ED03 + 0x632BE59BD9B4E019) % 2**64)
    words = ids.astype(np.uint64)
    words *= np.uint64(GOLDEN_RATIO)
    words += start
    words = mix64(words)
    # A second round, keyed again, keeps ids that differ by a constant apart under related keys.
    words ^= np.uint64((key ^ (salt << 32)) % 2**64)
    return mix64(words)
