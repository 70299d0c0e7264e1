"""Eligible pairs of rows and actions, for decisions that choose among a few of many actions."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from spuir.base.checked_arrays import Codes, Floats, Mask


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """Which of ``n_actions`` actions may be chosen in each of n rows: a list of codes per row, one after the other.

    ``starts`` (n + 1,) says where the list of each row begins, ``codes`` (k,) has the lists, in increasing order
    within a row and at least one in each. ``features`` (k, y) are columns that each pair has, None if there are none.
    """

    n_actions: int
    starts: Codes
    codes: Codes
    features: Floats | None = None

    @classmethod
    def of_mask(cls, mask: Mask) -> "Pairs":
        """Return the pairs of a mask (n, M)."""
        rows, codes = np.nonzero(mask)
        return cls(n_actions=mask.shape[1], starts=np.searchsorted(rows, np.arange(len(mask) + 1)), codes=codes)

    @classmethod
    def every(cls, n: int, codes: Codes, n_actions: int) -> "Pairs":
        """Return the pairs of n rows with the same codes."""
        starts = np.arange(n + 1) * len(codes)
        return cls(n_actions=n_actions, starts=starts, codes=np.tile(codes, n))

    def __len__(self) -> int:
        """Return n, the number of rows."""
        return len(self.starts) - 1

    @cached_property
    def counts(self) -> Codes:
        """How many actions each row has (n,)."""
        return np.diff(self.starts)

    @cached_property
    def rows(self) -> Codes:
        """The row of each pair (k,)."""
        return np.repeat(np.arange(len(self)), self.counts)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, M), like the shape of a mask."""
        return len(self), self.n_actions

    @property
    def mask(self) -> Mask:
        """The same as a mask (n, M)."""
        out = np.zeros(self.shape, np.bool_)
        out[self.rows, self.codes] = True
        return out

    def table(self, values: Floats, absent: float) -> Floats:
        """Return one value per pair as a table (n, M), with ``absent`` everywhere else."""
        out = np.full(self.shape, absent)
        out[self.rows, self.codes] = values
        return out

    def __getitem__(self, rows: slice | Codes) -> "Pairs":
        """Return the pairs of some rows."""
        if isinstance(rows, slice) and rows.step in (None, 1):
            first, last, _ = rows.indices(len(self))
            starts = self.starts[first : last + 1]
            return self._part(slice(int(starts[0]), int(starts[-1])), starts - starts[0])
        chosen = np.arange(len(self))[rows]
        counts = self.counts[chosen]
        starts: Codes = np.concatenate([np.zeros(1, np.intp), np.cumsum(counts)])
        shift = np.repeat(self.starts[:-1][chosen] - starts[:-1], counts)
        inside: Codes = np.arange(len(shift)) + shift
        return self._part(inside, starts)

    def _part(self, inside: slice | Codes, starts: Codes) -> "Pairs":
        features = None if self.features is None else self.features[inside]
        return replace(self, starts=starts, codes=self.codes[inside], features=features)

    def at(self, kept: Mask) -> "Pairs":
        """Return the chosen pairs (k,); a row may lose all of them."""
        starts = np.concatenate([[0], np.cumsum(kept)])[self.starts]
        features = None if self.features is None else self.features[kept]
        return replace(self, starts=starts, codes=self.codes[kept], features=features)

    def find(self, codes: Codes) -> Codes:
        """Return the place of one code per row (n,) among the pairs; −1 where a row does not have it."""
        keys = self.rows * self.n_actions + self.codes
        wanted = np.arange(len(self)) * self.n_actions + codes
        place = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        return np.where(keys[place] == wanted, place, -1) if len(keys) else np.full(len(self), -1)
