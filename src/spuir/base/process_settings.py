"""Settings of the whole process that blocks of code change for a while, in any number of threads."""

from collections.abc import Callable
from threading import RLock
from typing import Any

import threadpoolctl  # pyright: ignore[reportMissingTypeStubs]

_pools: Any = threadpoolctl


class ProcessSetting:
    """A context manager that changes a setting of the process; blocks in several threads may overlap.

    Each block calls ``change``, which returns what restores the setting, or None if there is nothing to change. The
    last block to end restores it: any other would take the setting away from blocks that are still open.
    """

    def __init__(self, change: Callable[[], Callable[[], object] | None]) -> None:
        self._change, self._lock, self._blocks = change, RLock(), 0
        self._restore = list[Callable[[], object]]()

    def __enter__(self) -> None:
        with self._lock:
            restore = self._change()
            if restore is not None:
                self._restore.append(restore)
            self._blocks += 1

    def __exit__(self, *failure: object) -> None:
        with self._lock:
            self._blocks -= 1
            while self._restore and not self._blocks:
                self._restore.pop()()


def _limit_blas() -> Callable[[], object] | None:
    """Give BLAS one thread, also a library that was loaded since the last block began."""
    if all(library["num_threads"] == 1 for library in _pools.threadpool_info()):
        return None
    _take_control()
    limits = _pools.threadpool_limits(limits=1)

    def restore() -> None:
        _take_control()
        limits.restore_original_limits()
        _take_control()

    return restore


def _take_control() -> None:
    """Let any thread change the limit next: threadpoolctl 3.8 and later let only the thread do so that set it."""
    openblas: Any = getattr(_pools, "OpenBLASController", None)
    if hasattr(openblas, "clear_controlling_thread"):
        openblas.clear_controlling_thread(force=True)


one_blas_thread = ProcessSetting(_limit_blas)
"""Within it BLAS has one thread, so that the last bit does not depend on their number."""
