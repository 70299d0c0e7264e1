"""The block sparser Johnson–Lindenstrauss transform (Kane & Nelson 2014), the paper's sketch.

Each row of the batch is added, with a random sign and scaled by 1/√D, to one random row in each of D blocks
of c/D sketch rows. Applying it costs O(D·B·d) for any c.
"""

from typing import final

import numpy as np
from numpy.typing import NDArray

from spuir.base.records import Codes, Floats
from spuir.sketches.base import Sketch, Spread, random_words, row_sums


@final
class SJLT(Sketch):
    """Hash every row into one bucket per block, with a sign."""

    def spread(self, groups: Codes, n_groups: int, ids: NDArray[np.int64], key: int) -> Spread:
        """Return the map of rows (B, k) to hashed sums (n_groups, c, k)."""
        buckets, signs = self.columns(ids, key)
        hashed = row_sums(signs, groups[:, None] * self.size + buckets, n_groups * self.size)
        return lambda values: (hashed @ values).reshape(n_groups, self.size, -1)

    def columns(self, ids: NDArray[np.int64], key: int) -> tuple[Codes, Floats]:
        """Return the bucket and the signed scale of each id in each block, both (B, D)."""
        per_block = self.size // self.blocks
        buckets = np.empty((len(ids), self.blocks), np.intp)
        signs = np.empty((len(ids), self.blocks))
        for block in range(self.blocks):
            words = random_words(ids, key, block)
            # The high half picks the bucket by multiplication, the lowest bit the sign.
            signs[:, block] = words & np.uint64(1)
            words >>= np.uint64(32)
            words *= np.uint64(per_block)
            words >>= np.uint64(32)
            buckets[:, block] = words
            buckets[:, block] += block * per_block
        scale = 1.0 / np.sqrt(self.blocks)
        signs *= -2.0 * scale
        signs += scale
        return buckets, signs
