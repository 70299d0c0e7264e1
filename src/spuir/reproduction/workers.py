"""Work over processes: one job at a time in each, and a job that brings its process down fails alone.

Processes are spawned, each with a pipe of its own: when one dies it is known which job it was doing, and when this
process dies the others see the end of their pipes and stop.
"""

import os
import pickle
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from threading import current_thread, main_thread
from time import perf_counter
from typing import Any, Protocol

from spuir.errors import SpuirError

Watcher = Callable[[int], object]


class Job(Protocol):
    """Something that can be sent to a process and done there; it calls ``step`` after each of its steps."""

    def run(self, step: Watcher) -> Any:
        """Do it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Done:
    """How one job ended: its place among the jobs, its value or its failure, and the seconds that it took."""

    place: int = 0
    value: Any = None
    failure: Exception | None = None
    seconds: float = 0.0


class WorkerError(SpuirError):
    """A job that brought its process down."""


def spread(
    jobs: Sequence[Job], workers: int | None = None, watch: Watcher | None = None, *, apart: bool = False
) -> Generator[Done]:
    """Do all jobs and yield how each ended, as soon as it did. Closing the iterator stops what is running.

    Parameters
    ----------
    jobs
        What to do, started in this order.
    workers
        Number of processes; None takes one for each core.
    watch
        Called now and then with the number of steps that all jobs have taken together.
    apart
        Whether a single worker is a process too. Otherwise a single one is this process.
    """
    count = min(workers or os.cpu_count() or 1, len(jobs))
    steps = _Steps(watch)
    return _there(jobs, count, steps) if count > 1 or (apart and jobs) else _here(jobs, steps)


class _Steps:
    """Counts the steps of all jobs."""

    def __init__(self, watch: Watcher | None) -> None:
        self._count, self._watch = 0, watch

    def __call__(self, _: int = 0) -> None:
        self._count += 1
        if self._watch is not None:
            self._watch(self._count)


def _here(jobs: Sequence[Job], steps: _Steps) -> Generator[Done]:
    for place, job in enumerate(jobs):
        yield replace(_attempt(lambda job=job: job, steps), place=place)


def _attempt(unpack: Callable[[], Job], step: Watcher) -> Done:
    started = perf_counter()
    try:
        value, failure = unpack().run(step), None
    except Exception as caught:  # whatever a job raises is how that job ended, never how the others do
        value, failure = None, caught
    return Done(value=value, failure=failure, seconds=perf_counter() - started)


@dataclass(frozen=True)
class _Hand:
    """A process at work on the job at ``place``."""

    process: BaseProcess
    place: int


def _there(jobs: Sequence[Job], count: int, steps: _Steps) -> Generator[Done]:
    waiting = deque(enumerate(jobs))
    hands: dict[Connection, _Hand] = {}
    leaving: list[BaseProcess] = []

    def give(pipe: Connection, process: BaseProcess) -> None:
        place, job = waiting.popleft()
        hands[pipe] = _Hand(process, place)
        with suppress(BrokenPipeError):  # a process that died already is noticed when its answer is awaited
            pipe.send_bytes(pickle.dumps(job))

    try:
        for _ in range(count):
            give(*_hire())
        while hands:
            for pipe in wait(list(hands)):
                assert isinstance(pipe, Connection)
                answer = _answer(pipe, hands[pipe])
                if answer is None:
                    steps()
                    continue
                hand = hands.pop(pipe)
                if not waiting:
                    pipe.close()
                    leaving.append(hand.process)
                else:
                    give(*_hire() if isinstance(answer.failure, WorkerError) else (pipe, hand.process))
                yield replace(answer, place=hand.place)
    finally:
        for pipe, hand in hands.items():
            hand.process.terminate()
            leaving.append(hand.process)
            pipe.close()
        for process in leaving:
            process.join()


def _answer(pipe: Connection, hand: _Hand) -> Done | None:
    """Return how the job ended, None where the message was a step of it."""
    try:
        return pipe.recv()
    except (EOFError, ConnectionError):
        pipe.close()
        hand.process.join()
        died = WorkerError(
            "worker",
            f"exit code {hand.process.exitcode} during a job",
            "a process has to outlive its jobs",
            "try fewer workers or smaller runs, as a lack of memory is the usual cause",
        )
        return Done(failure=died)


def _hire() -> tuple[Connection, BaseProcess]:
    """Start a process and return this end of its pipe."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    with _uninterrupted():
        process.start()
    theirs.close()
    return ours, process


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Start processes that leave interrupts to this one: a child inherits what is ignored."""
    before = signal.getsignal(signal.SIGINT)
    if current_thread() is not main_thread() or before is None:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _serve(pipe: Connection) -> None:
    """Do jobs, in a process of its own, until the pipe ends."""
    with suppress(EOFError, ConnectionError):
        while True:
            data = pipe.recv_bytes()
            pipe.send_bytes(_packed(_attempt(lambda data=data: pickle.loads(data), lambda _=0: pipe.send(None))))


def _packed(done: Done) -> bytes:
    """Return ``done`` as it crosses the pipe; what cannot cross becomes a failure that says so."""
    try:
        data = pickle.dumps(done)
        if done.failure is not None:
            pickle.loads(data)  # some exceptions can be pickled and not unpickled
    except Exception as caught:
        told = done.failure or caught
        refusal = SpuirError(
            "job", f"{type(told).__name__}: {told}", "it failed with that", "look at the function that it calls"
        )
        return pickle.dumps(replace(done, value=None, failure=refusal))
    return data
