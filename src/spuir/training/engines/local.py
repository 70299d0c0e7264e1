"""Threads of one machine, one a core. Reading and the large products run outside the interpreter's lock."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from spuir.base.parameters import COUNT, check_value
from spuir.training.engines.base import Done, Item, in_order


class Local:
    """Threads of this process; results are handed over, not copied."""

    name = "local"

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None:
            check_value("workers", workers, COUNT, "give a whole number of at least 1")
        self.workers = workers or os.cpu_count() or 1

    def map(self, work: Callable[[Item], Done], items: Iterable[Item]) -> Iterator[Done]:
        """Yield the results in order; one item more than threads is under way."""
        with ThreadPoolExecutor(self.workers) as pool:
            yield from in_order(lambda item: pool.submit(work, item), items, self.workers + 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        """End nothing: threads last as long as a map."""
