"""Hashes of decision ids, the same in every process."""

import numpy as np
from numpy.typing import NDArray

from spuir.base.hashing import splitmix64
from spuir.tables.arrow import pa

Hashes = NDArray[np.uint64]


def hash_ids(ids: "pa.Array") -> Hashes:
    """Return a hash (n,) of each id, integer or text; a missing one counts as 0 or ""."""
    if pa.types.is_integer(ids.type):
        return splitmix64(ids.cast(pa.int64()).fill_null(0).to_numpy().view(np.uint64))
    texts = ids.cast(pa.large_binary()).fill_null(b"")
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    if not len(texts) or offsets[-1] == offsets[0]:
        return splitmix64(np.zeros(len(texts), np.uint64))
    letters = np.frombuffer(texts.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    places = np.arange(len(letters), dtype=np.uint64) - np.repeat(starts, lengths).astype(np.uint64)
    # Every position in a text has a random odd weight, so that sums of different texts differ. Adding 1 to every letter
    # separates "a" from "a\0".
    terms = (letters.astype(np.uint64) + np.uint64(1)) * (splitmix64(places) | np.uint64(1))
    sums = np.zeros(len(texts), np.uint64)
    filled = lengths > 0
    sums[filled] = np.add.reduceat(terms, starts[filled])
    return splitmix64(sums)
