"""SplitMix64, once for everybody."""

import numpy as np
from numpy.typing import NDArray

GOLDEN = 0x9E3779B97F4A7C15


def splitmix64(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the output of SplitMix64 for each state: a one-to-one scramble of 64-bit words."""
    words = values + np.uint64(GOLDEN)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
