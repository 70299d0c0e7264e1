"""Threads of this machine, by default one per core. Reading and large products release the interpreter lock."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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

    def map(self, work: Callable[[Item], Done], items: Iterable[Item]) -> Iterator[Done]:
        """Yield the results in order; one item more than threads is in progress."""
        pool = ThreadPoolExecutor(self.workers)
        try:
            yield from in_order(lambda item: pool.submit(work, item), items, self.workers + 1)
        finally:
            # Unread results may be let go by a thread of the pool, which cannot wait for itself.
            with suppress(RuntimeError):
                pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        """Do nothing: threads end with each map."""
