"""The block sparser Johnson–Lindenstrauss transform (Kane & Nelson 2014), the paper's sketch.

Each row of the batch is added, with a random sign and scaled by 1/√D, to one random row in each of D blocks
of c/D sketch rows. Applying it costs O(D·B·d), whatever c is.
"""

from typing import final

import numpy as np
from numpy.typing import NDArray

from spuir.records import Codes, Floats
from spuir.sketches.base import Sketch, random_words, sum_rows


@final
class SJLT(Sketch):
    """Hash every row into one bucket per block, with a sign."""

    def sums(self, values: Floats, groups: Codes, n_groups: int, ids: NDArray[np.int64], key: int) -> Floats:
        """Return the hashed sums (n_groups, c, k) of values (B, k)."""
        buckets, signs = self.columns(ids, key)
        rows = groups[:, None] * self.size + buckets
        hashed = sum_rows(values, signs, rows, n_groups * self.size)
        return hashed.reshape(n_groups, self.size, values.shape[1])

    def columns(self, ids: NDArray[np.int64], key: int) -> tuple[Codes, Floats]:
        """Return the bucket and the signed scale of each id in each block, both (B, D)."""
        per_block = self.size // self.blocks
        buckets = np.empty((len(ids), self.blocks), np.intp)
        signs = np.empty((len(ids), self.blocks))
        for block in range(self.blocks):
            words = random_words(ids, key, block)
            # The high half picks the bucket by multiplication, the lowest bit the sign.
            high = words >> np.uint64(32)
            buckets[:, block] = ((high * np.uint64(per_block)) >> np.uint64(32)).astype(np.intp) + block * per_block
            signs[:, block] = 1.0 - 2.0 * (words & np.uint64(1)).astype(np.float64)
        return buckets, signs / np.sqrt(self.blocks)
