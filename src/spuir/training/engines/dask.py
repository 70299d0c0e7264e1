"""A Dask cluster: a running one by its address, or a local one that starts and ends with the engine."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from spuir.errors import InputError, MissingExtraError
from spuir.training.engines.base import Done, Item, in_order

RETRIES = 3
CONNECT_SECONDS = 20


class Dask:
    """Workers of ``distributed``; another worker repeats the work of one that dies."""

    name = "dask"

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        try:
            from distributed import Client, LocalCluster
        except ImportError:
            raise MissingExtraError(
                "engine dask", "no distributed", "it is an extra", 'run pip install "spuir[distributed]"'
            ) from None
        # It would print the traceback of a lost connection, which the engine reports in a sentence.
        self.logger = logging.getLogger("distributed.client")
        self.level = self.logger.level
        self.logger.setLevel(logging.CRITICAL)
        self.cluster: Any = None
        if address is None:
            self.cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                silence_logs=50,
            )
        try:
            self.client: Any = Client(self.cluster or address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as failure:
            rule = f"no scheduler answered there ({failure})"
            raise InputError("address", repr(address), rule, "start a scheduler, or omit --address") from None
        try:
            self.client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError:
            scheduler = self.client.scheduler.address
            self.client.close()
            rule = f"the scheduler has no workers after {CONNECT_SECONDS} seconds"
            raise InputError("address", repr(address), rule, f"start some: dask worker {scheduler}") from None

    @property
    def workers(self) -> int:
        """Number of threads of the cluster now."""
        return max(1, sum(self.client.nthreads().values()))

    def map(self, work: Callable[[Item], Done], items: Iterable[Item]) -> Iterator[Done]:
        """Yield the results in order; twice as many items as threads are in progress."""
        with self._connected():
            yield from in_order(
                lambda item: self.client.submit(work, item, pure=False, retries=RETRIES), items, 2 * self.workers
            )

    def on_every_worker(self, work: Callable[[Item], Done], item: Item) -> list[Done]:
        """Return ``work(item)`` of every worker."""
        with self._connected():
            return list(self.client.run(work, item).values())

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Turn the loss of the scheduler, or of worker after worker, into one sentence."""
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError
        from distributed.comm.core import CommClosedError

        lost = (CommClosedError, FutureCancelledError, KilledWorker, asyncio.CancelledError, TimeoutError)
        try:
            yield
        except lost as failure:
            died = isinstance(failure, KilledWorker)
            rule = "every worker that took this work died" if died else "the connection to it was lost"
            remedy = "look at the logs of the workers" if died else "start the cluster again"
            address = self.client.scheduler.address if self.client.scheduler else "unknown"
            resume = f"{remedy}, and run the same command again to resume"
            raise InputError("Dask scheduler", repr(address), rule, resume) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        """Disconnect, and end the cluster if this engine started it."""
        self.client.close()
        if self.cluster is not None:
            self.cluster.close()
        self.logger.setLevel(self.level)
