"""Threads of this machine, by default one per core. Reading and large products release the interpreter lock."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Self

from spuir.base.parameters import COUNT, check_value
from spuir.base.processors import cores
from spuir.training.engines.base import Done, Item, in_order


class Local:
    """Threads of this process; results are not copied."""

    name = "local"

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None:
            check_value("workers", workers, COUNT, "pass an integer of at least 1")
        self.workers = workers or cores()
        self._pool: ThreadPoolExecutor | None = None

    def map(self, work: Callable[[Item], Done], items: Iterable[Item]) -> Iterator[Done]:
        """Yield the results in order; one item more than threads is in progress."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.workers)
        return in_order(partial(self._pool.submit, work), items, self.workers + 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        """Wait for the threads, which may still work on results that nobody will read.

        The iterator of ``map`` cannot wait for them: the garbage collector may close it in any thread and at any
        time, e.g. while a thread that starts holds the lock that others need to end.
        """
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
