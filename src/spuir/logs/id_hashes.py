"""Hashes of decision ids, the same in every process."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from spuir.tables.arrow import arrow

if TYPE_CHECKING:
    import pyarrow as pa

Hashes = NDArray[np.uint64]


def hash_ids(ids: "pa.Array") -> Hashes:
    """Return a hash (n,) of each id, whole number or text, the same everywhere; a missing one has that of 0 or ""."""
    pa = arrow()
    if pa.types.is_integer(ids.type):
        return _mixed(ids.cast(pa.int64()).fill_null(0).to_numpy().view(np.uint64))
    texts = ids.cast(pa.large_binary()).fill_null(b"")
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    if not len(texts) or offsets[-1] == offsets[0]:
        return _mixed(np.zeros(len(texts), np.uint64))
    letters = np.frombuffer(texts.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    places = np.arange(len(letters), dtype=np.uint64) - np.repeat(starts, lengths).astype(np.uint64)
    # Every place in a text has a random odd weight, so that the sum tells texts apart; lengths tell "a" from "a\0".
    terms = (letters.astype(np.uint64) + np.uint64(1)) * (_mixed(places) | np.uint64(1))
    sums = np.zeros(len(texts), np.uint64)
    filled = lengths > 0
    sums[filled] = np.add.reduceat(terms, starts[filled])
    return _mixed(sums)


def _mixed(values: Hashes) -> Hashes:
    """Return the finaliser of SplitMix64 of each value."""
    x = values + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
