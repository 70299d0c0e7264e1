"""The processors that this process may use."""

import os
from threading import RLock
from typing import Any

import threadpoolctl  # pyright: ignore[reportMissingTypeStubs]

_pools: Any = threadpoolctl


def cores() -> int:
    """Return how many cores this process may use: all, or those that it was restricted to."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _OneBlasThread:
    """A context manager in which BLAS has one thread, so that the last bit does not depend on their number.

    The limit is that of the process. Blocks in several threads may overlap: the last one to end lifts the limit.
    """

    def __init__(self) -> None:
        self._lock, self._blocks = RLock(), 0
        self._limits = list[Any]()

    def __enter__(self) -> None:
        with self._lock:
            if any(library["num_threads"] > 1 for library in _pools.threadpool_info()):
                _take_control()
                self._limits.append(_pools.threadpool_limits(limits=1))
            self._blocks += 1

    def __exit__(self, *failure: object) -> None:
        with self._lock:
            self._blocks -= 1
            if not self._blocks and self._limits:
                _take_control()
                while self._limits:  # several, where a library was loaded in a block
                    self._limits.pop().restore_original_limits()
                _take_control()


def _take_control() -> None:
    """Let any thread change the limit next: threadpoolctl 3.8 and later let only the thread do so that set it."""
    openblas: Any = getattr(_pools, "OpenBLASController", None)
    if hasattr(openblas, "clear_controlling_thread"):
        openblas.clear_controlling_thread(force=True)


one_blas_thread = _OneBlasThread()
