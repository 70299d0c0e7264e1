"""Jobs over processes: each process does one job at a time, and a job that brings its process down fails alone.

Each process is spawned with its own pipe. When a process dies, we know which job it was doing and its exit code. When
this process dies, the others see the end of their pipes and stop. A ``ProcessPoolExecutor`` can do neither: a dead
process fails every waiting job, a running job cannot be stopped, and the processes outlive a killed parent.
"""

import itertools
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
from time import process_time
from typing import Any, Protocol

from spuir.base.processors import cores
from spuir.errors import SpuirError

Watcher = Callable[[int], object]


class WorkerJob(Protocol):
    """Something that can be sent to a process and run there; it calls ``step`` after each of its steps."""

    def run(self, step: Watcher) -> Any:
        """Run the job."""
        ...


@dataclass(frozen=True, kw_only=True)
class Done:
    """How one job ended: its place among the jobs, its value or its failure, and the processor seconds it took."""

    place: int = 0
    value: Any = None
    failure: Exception | None = None
    seconds: float = 0.0


class WorkerError(SpuirError):
    """A job that brought its process down."""


def run_jobs(
    jobs: Sequence[WorkerJob], workers: int | None = None, watch: Watcher | None = None, *, apart: bool = False
) -> Generator[Done]:
    """Run all jobs and yield how each ended, as soon as it does. Closing the iterator stops the running jobs.

    Parameters
    ----------
    jobs
        What to run, started in this order.
    workers
        Number of processes; None starts one per core.
    watch
        Called now and then with the number of steps over all jobs.
    apart
        Whether a single worker is a process too. By default a single worker is this process.
    """
    count = min(workers or cores(), len(jobs))
    steps = itertools.count(1)

    def step(_: int = 0) -> None:
        if watch is not None:
            watch(next(steps))

    return _in_processes(jobs, count, step) if count > 1 or (apart and jobs) else _in_this_process(jobs, step)


def _in_this_process(jobs: Sequence[WorkerJob], step: Watcher) -> Generator[Done]:
    for place, job in enumerate(jobs):
        yield replace(_attempt(lambda job=job: job, step), place=place)


def _attempt(unpack: Callable[[], WorkerJob], step: Watcher) -> Done:
    started = process_time()
    try:
        value, failure = unpack().run(step), None
    except Exception as caught:  # what one job raises must not stop the others
        value, failure = None, caught
    return Done(value=value, failure=failure, seconds=process_time() - started)


def _in_processes(jobs: Sequence[WorkerJob], count: int, step: Watcher) -> Generator[Done]:
    waiting = deque(enumerate(jobs))
    busy: dict[Connection, tuple[BaseProcess, int]] = {}
    processes: list[BaseProcess] = []

    def give_next_job(pipe: Connection, process: BaseProcess) -> None:
        place, job = waiting.popleft()
        busy[pipe] = process, place
        with suppress(BrokenPipeError):  # a process that died already is noticed when we read its answer
            pipe.send_bytes(pickle.dumps(job))

    def start() -> tuple[Connection, BaseProcess]:
        pipe, process = _start_process()
        processes.append(process)
        return pipe, process

    with _ended(processes):
        for _ in range(count):
            give_next_job(*start())
        while busy:
            for pipe in wait(list(busy)):
                assert isinstance(pipe, Connection)
                process, place = busy[pipe]
                answer = _answer(pipe, process)
                if answer is None:
                    step(1)
                    continue
                del busy[pipe]
                if waiting:
                    give_next_job(*start() if isinstance(answer.failure, WorkerError) else (pipe, process))
                else:
                    pipe.close()
                yield replace(answer, place=place)


@contextmanager
def _ended(processes: Sequence[BaseProcess]) -> Iterator[None]:
    """Wait for processes, which end with their pipes; end them before that if an interrupt or a failure comes."""
    try:
        yield
    except BaseException:
        for process in processes:  # also those that wait for their first job, or for the next one
            process.terminate()
        raise
    finally:
        for process in processes:
            process.join()


def _answer(pipe: Connection, process: BaseProcess) -> Done | None:
    """Return how the job ended, or None if the message was one of its steps."""
    try:
        return pipe.recv()
    except (EOFError, ConnectionError):
        pipe.close()
        process.join()
        died = WorkerError(
            "worker",
            f"exit code {process.exitcode} during a job",
            "a process has to outlive its jobs",
            "try fewer workers or smaller runs: too little memory is the usual cause",
        )
        return Done(failure=died)


def _start_process() -> tuple[Connection, BaseProcess]:
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
    """Ignore interrupts while a process starts: a child inherits this, and leaves interrupts to its parent."""
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
    """Run jobs until the pipe ends; the main function of a worker process."""
    with suppress(EOFError, ConnectionError):
        while True:
            data = pipe.recv_bytes()
            pipe.send_bytes(_packed(_attempt(lambda data=data: pickle.loads(data), lambda _=0: pipe.send(None))))


def _packed(done: Done) -> bytes:
    """Return ``done`` pickled; a value or an exception that cannot be pickled becomes a failure that says so."""
    try:
        data = pickle.dumps(done)
        if done.failure is not None:
            pickle.loads(data)  # some exceptions can be pickled and not unpickled
    except Exception as caught:
        cause = done.failure or caught
        refusal = SpuirError(
            "job", f"{type(cause).__name__}: {cause}", "it failed with that", "look at the function that it calls"
        )
        return pickle.dumps(replace(done, value=None, failure=refusal))
    return data
