"""The protocol of an engine: apply a function to many items, and return the results in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, Self, TypeVar

Item = TypeVar("Item")
Done = TypeVar("Done")


class WorkEngine(Protocol):
    """Runs work on items; a context manager that ends what it has started itself."""

    name: str
    workers: int

    def map(self, work: Callable[[Item], Done], items: Iterable[Item]) -> Iterator[Done]:
        """Yield ``work(item)`` for every item, in their order, with a bounded number of items in progress.

        Items and results are pickled where workers are other processes. Work of a lost worker is done again.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *failure: object) -> None: ...


def on_every_worker(engine: WorkEngine, work: Callable[[Item], Done], item: Item) -> list[Done]:
    """Return ``work(item)`` of every worker, or of as many as an engine reaches that has no method of this name."""
    own = getattr(engine, "on_every_worker", None)
    return list(engine.map(work, [item] * engine.workers)) if own is None else own(work, item)


def in_order(submit: Callable[[Item], Any], items: Iterable[Item], ahead: int) -> Iterator[Any]:
    """Yield results in the order of the items, with at most ``ahead`` items in progress; ``submit`` returns futures."""
    waiting: deque[Any] = deque()
    try:
        for item in items:
            waiting.append(submit(item))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
