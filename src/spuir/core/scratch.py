"""Memory for intermediate products that a thread keeps from call to call.

The allocator returns blocks of a few hundred kilobytes to the system when they are freed, and new ones cost a page
fault per four kilobytes, often more than the arithmetic done in them. Without this module deciding can take twice as
long (design record 19).
"""

import math
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

CACHE_BYTES = 2**19
"""Size of an intermediate product that is read again at once, and should still be in the cache then."""
KEPT_BYTES = 16 * 2**20
"""Largest workspace that is kept; only sketches and stacks of factors are ever larger."""

_local = threading.local()


def workspace(use: str, shape: tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
    """Return an uninitialised array for one ``use``; the next call of this thread for that use overwrites it.

    A use always has the same dtype.
    """
    size = math.prod(shape)
    kept: NDArray[Any] | None = getattr(_local, use, None)
    if kept is None or kept.size < size:
        kept = np.empty(size, dtype)
        if kept.nbytes <= KEPT_BYTES:
            setattr(_local, use, kept)
    return kept[:size].reshape(shape)
