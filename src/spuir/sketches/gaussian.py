"""A dense Gaussian sketch: entries N(0, 1/c). The textbook map: slower than hashing, useful as a reference."""

from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from spuir.base.records import Codes, Floats
from spuir.core.statistics import blocks
from spuir.sketches.base import Sketch, Spread, random_words


@final
class Gaussian(Sketch):
    """Multiply every row by its own Gaussian column of c entries."""

    def spread(self, groups: Codes, n_groups: int, ids: NDArray[np.int64], key: int) -> Spread:
        """Return the map of rows (B, k) to projected sums (n_groups, c, k)."""

        def projected(values: Floats) -> Floats:
            out = np.zeros((n_groups, self.size, values.shape[1]))
            for group in np.unique(groups):
                members = np.flatnonzero(groups == group)
                for piece in blocks(len(members), 8 * self.size):
                    chosen = members[piece]
                    out[group] += self.columns(ids[chosen], key) @ values[chosen]
            return out

        return projected

    def columns(self, ids: NDArray[np.int64], key: int) -> Floats:
        """Return the columns (c, B) that belong to the ids."""
        out = np.empty((self.size, len(ids)))
        for row in range(self.size):
            # The upper 53 bits as a uniform inside (0, 1), then the normal quantile.
            uniform = ((random_words(ids, key, row) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
            out[row] = ndtri(uniform)
        out /= np.sqrt(self.size)
        return out
