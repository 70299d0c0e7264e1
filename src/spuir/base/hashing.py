"""Digests of content, and the 64-bit mixing function behind every hash of rows and ids."""

from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Word = TypeVar("Word", int, Words)
Content = str | bytes | bytearray | memoryview | NDArray[Any]

GOLDEN_RATIO = 0x9E3779B97F4A7C15
"""2⁶⁴ divided by the golden ratio: the step of SplitMix64."""
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_ALL_BITS = 2**64 - 1


def digest(*parts: Content, size: int = 16) -> str:
    """Return the BLAKE2b digest of ``parts`` in hexadecimal.

    Each part follows its own length, so ``digest("ab", "c")`` and ``digest("a", "bc")`` differ.

    Parameters
    ----------
    *parts
        Text (hashed as UTF-8), bytes or arrays. An array counts by its bytes in C order: pass its dtype and shape
        as parts of their own where they matter.
    size
        Bytes of the digest; the text has twice as many digits.
    """
    running = blake2b(digest_size=size)
    for part in parts:
        if isinstance(part, str):
            content = part.encode()
        elif isinstance(part, np.ndarray):
            content = np.ascontiguousarray(part).data
        else:
            content = part
        running.update(memoryview(content).nbytes.to_bytes(8, "little"))
        running.update(content)
    return running.hexdigest()


def hash64(content: bytes) -> int:
    """Return the first eight bytes of BLAKE2b of ``content``, little-endian; saved models and logs depend on it."""
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")


def mix64(words: Word) -> Word:
    """Return ``words``, an array or one integer, with their bits mixed, one to one: the last three steps of SplitMix64.

    0 stays 0; :func:`splitmix64` does not have that fixed point.
    """
    if isinstance(words, int):  # for a few words, much faster than arrays
        words = (words ^ words >> 30) * _FIRST & _ALL_BITS
        words = (words ^ words >> 27) * _SECOND & _ALL_BITS
        return words ^ words >> 31
    mixed = words ^ (words >> np.uint64(30))
    mixed *= np.uint64(_FIRST)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(_SECOND)
    mixed ^= mixed >> np.uint64(31)
    return mixed


@lru_cache(maxsize=64)
def odd_numbers(count: int) -> Words:
    """Return the first of a row of random odd numbers (count,): weights whose sums of different words differ."""
    return splitmix64(np.arange(count, dtype=np.uint64)) | np.uint64(1)


def splitmix64(values: Word) -> Word:
    """Return what the SplitMix64 generator draws first when each of ``values``, or one integer, is its state."""
    if isinstance(values, int):
        return mix64(values + GOLDEN_RATIO & _ALL_BITS)
    return mix64(values + np.uint64(GOLDEN_RATIO))
