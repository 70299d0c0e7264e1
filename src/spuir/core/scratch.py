"""Workspaces that a thread keeps: memory for intermediate products, not asked of the system anew each call.

Fresh memory of a few hundred kilobytes is handed back to the system when freed and costs a page fault every
four kilobytes when asked for again, often more than the arithmetic done in it.
"""

import math
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

CACHE_BYTES = 2**19
"""Size of pieces that are used again at once and should still be in the cache then."""
KEPT_BYTES = 16 * 2**20
"""Larger workspaces are not kept; only sketches and stacks of factors are ever this large."""

_local = threading.local()


def workspace(use: str, shape: tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
    """Return an uninitialised array of this thread for one ``use``, which the next call for that use overwrites.

    A use has one dtype.
    """
    size = math.prod(shape)
    kept: NDArray[Any] | None = getattr(_local, use, None)
    if kept is None or kept.size < size:
        kept = np.empty(size, dtype)
        if kept.nbytes <= KEPT_BYTES:
            setattr(_local, use, kept)
    return kept[:size].reshape(shape)


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, which many will share, so that nobody can write to it."""
    array.flags.writeable = False
    return array
