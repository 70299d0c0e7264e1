"""What training asks of an engine: to apply a function to many items, and to hand the results back in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, Self, TypeVar

Item = TypeVar("Item")
Done = TypeVar("Done")


class Engine(Protocol):
    """A place where work is done; a context manager that ends what it started itself."""

    name: str
    workers: int

    def map(self, work: Callable[[Item], Done], items: Iterable[Item]) -> Iterator[Done]:
        """Yield ``work(item)`` for every item, in their order, with a bounded number of them under way.

        Items and results travel; what a lost worker had not handed back is done again elsewhere.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *failure: object) -> None: ...


class Future(Protocol):
    """A result that is awaited."""

    def result(self) -> Any:
        """Return it, when it is there."""
        ...

    def cancel(self) -> Any:
        """Give up on it."""
        ...


def in_order(submit: Callable[[Item], Future], items: Iterable[Item], ahead: int) -> Iterator[Any]:
    """Yield results in the order of the items, with at most ``ahead`` items handed in and not yet returned."""
    waiting: deque[Future] = deque()
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
