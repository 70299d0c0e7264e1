"""The writer: one thread that carries out the commands of all requests, a group of them per durable commit.

Requests hand their commands over on the event loop. While a commit is under way, those of other requests gather, and
the next commit takes all of them: the more requests wait, the more of them share a commit.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from spuir.errors import ServiceError
from spuir.service.commands import (
    Answer,
    ChangeExperiment,
    CloseEpisode,
    Command,
    DecideMany,
    ImportLog,
    RewardMany,
)
from spuir.service.metrics import Metrics

if TYPE_CHECKING:
    from spuir.service.engine import Engine

log = logging.getLogger("spuir.service")

LONGEST_WAIT = 1.0
"""Seconds after which the writer looks around even if nothing is due."""


class RetryLaterError(ServiceError):
    """A request that the service does not take now; the same request can succeed after ``seconds``."""

    def __init__(self, code: str, subject: str, got: object, rule: str, remedy: str, seconds: int = 1) -> None:
        super().__init__(code, subject, got, rule, remedy)
        self.seconds = seconds


class _Waiting:
    """A command on its way to the writer, with the future of its answer."""

    __slots__ = ("command", "future", "since", "weight")

    def __init__(self, command: Command, future: "asyncio.Future[Any]", weight: int) -> None:
        self.command, self.future, self.weight, self.since = command, future, weight, time.monotonic()


class Writer:
    """Carries out commands in a thread of its own.

    Parameters
    ----------
    engine
        Only the writer calls its ``execute`` and ``tick``.
    capacity
        Most rows that may wait; more are refused with the code ``overloaded``.
    group
        Most rows of one commit, unless a single command has more.
    patience
        Seconds after which a waiting request is given up; its command may still be carried out.
    """

    def __init__(
        self, engine: "Engine", metrics: Metrics, *, capacity: int = 10_000, group: int = 2_000, patience: float = 30.0
    ) -> None:
        self.engine, self.metrics = engine, metrics
        self.capacity, self.group, self.patience = capacity, group, patience
        self.rows_waiting = 0
        self._gathered: list[_Waiting] = []
        self._pending: deque[_Waiting] = deque()
        self._queue: SimpleQueue[list[_Waiting] | None] = SimpleQueue()
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name="spuir-writer", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the writer can carry out commands."""
        return self._thread.is_alive() and not self._stopping

    def start(self) -> None:
        """Start the thread; the running event loop is where the answers go."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """Finish everything that was accepted, then end the thread."""
        self._stopping = True
        self._flush()
        self._queue.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
        await asyncio.sleep(0)  # the last answers are handed over by the event loop

    def submit(self, command: Command) -> "asyncio.Future[Answer | ServiceError]":
        """Hand over a command and return the future of its answer; call it on the event loop.

        Raises
        ------
        RetryLaterError
            Too many rows are waiting, or the service is shutting down.
        """
        if not self.alive:
            rule, remedy = "the service is shutting down", "send the request again to the restarted service"
            raise RetryLaterError("overloaded", "service", "a request", rule, remedy, 2)
        weight = max(len(command.rows), 1) if isinstance(command, (DecideMany, RewardMany, ImportLog)) else 1
        if self.rows_waiting and self.rows_waiting + weight > self.capacity:
            rule = f"at most {self.capacity:,} rows wait to be recorded"
            raise RetryLaterError("overloaded", "service", f"{weight} more rows", rule, "send the request again later")
        loop = self._loop
        assert loop is not None, "the writer is not started"
        waiting = _Waiting(command, loop.create_future(), weight)
        self.rows_waiting += weight
        # What arrives in one turn of the event loop wakes the thread once.
        if not self._gathered:
            loop.call_soon(self._flush)
        self._gathered.append(waiting)
        self._pending.append(waiting)
        return waiting.future

    def give_up_overdue(self) -> int:
        """Answer requests that have waited longer than ``patience``, and return their number."""
        overdue, limit = 0, time.monotonic() - self.patience
        while self._pending and (self._pending[0].future.done() or self._pending[0].since < limit):
            waiting = self._pending.popleft()
            if not waiting.future.done():
                rule = f"it could not be recorded within {self.patience:g} seconds"
                remedy = "send it again with the same id; the id keeps it from counting twice"
                waiting.future.set_result(RetryLaterError("timed_out", "request", "a command", rule, remedy))
                overdue += 1
        return overdue

    def _flush(self) -> None:
        if self._gathered:
            self._queue.put(self._gathered)
            self._gathered = []

    def _work(self) -> None:
        """Carry out groups of commands, and what is due in between, until the end."""
        due, open_end = 0.0, True
        while open_end:
            group: list[_Waiting] = []
            try:
                taken = self._queue.get(timeout=max(0.0, min(due - time.monotonic(), LONGEST_WAIT)))
                while True:
                    if taken is None:
                        open_end = False
                    else:
                        group += taken
                    taken = self._queue.get_nowait()
            except Empty:
                pass
            for part in _parts(group, self.group):
                self._hand_back(part, self._execute(part))
            if any(isinstance(waiting.command, (CloseEpisode, ChangeExperiment)) for waiting in group):
                due = 0.0  # what these leave to be learned is started now
            if open_end and time.monotonic() >= due:
                due = time.monotonic() + self._tick()

    def _execute(self, group: list[_Waiting]) -> list[Answer | ServiceError]:
        """Carry out a group; an unexpected failure refuses all of it, and the writer lives on."""
        start = time.perf_counter()
        try:
            answers = self.engine.execute([waiting.command for waiting in group])
        except Exception:
            self._failed("execute")
            return [_internal()] * len(group)
        self.metrics.commit_seconds.observe(time.perf_counter() - start)
        self.metrics.group_size.observe(len(group))
        return answers

    def _tick(self) -> float:
        try:
            return max(self.engine.tick(), 0.0)
        except Exception:
            self._failed("tick")
            return LONGEST_WAIT

    def _failed(self, place: str) -> None:
        self.metrics.failures.add(place)
        log.exception("the engine failed in %s", place)

    def _hand_back(self, group: list[_Waiting], answers: list[Answer | ServiceError]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._resolve, group, answers)
        except RuntimeError:  # the event loop is closed: nobody waits any more
            log.warning("%d answers came after the end of the server", len(group))

    def _resolve(self, group: list[_Waiting], answers: list[Answer | ServiceError]) -> None:
        for waiting, answer in zip(group, answers, strict=True):
            self.rows_waiting -= waiting.weight
            if not waiting.future.done():
                waiting.future.set_result(answer)
        while self._pending and self._pending[0].future.done():
            self._pending.popleft()


def _parts(group: list[_Waiting], limit: int) -> list[list[_Waiting]]:
    """Cut a group into parts of at most ``limit`` rows, or of one command."""
    parts: list[list[_Waiting]] = []
    rows = limit
    for waiting in group:
        if rows + waiting.weight > limit:
            parts.append([])
            rows = 0
        parts[-1].append(waiting)
        rows += waiting.weight
    return parts


def _internal() -> ServiceError:
    remedy = "look into the log of the service, and report it as an error of spuir"
    return ServiceError("internal", "service", "an unexpected failure", "nothing was answered", remedy)
