"""Fair clocks: methods alternate in one process, on one BLAS thread, with the collector off.

What is counted is processor time, of all threads and of the kernel on their behalf. On one thread it equals
the time on the wall of an idle machine, and other programs do not disturb it.
"""

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

import numpy as np
from threadpoolctl import threadpool_limits

Task = Callable[[], object]

TURN_SECONDS, MOST_CALLS = 0.005, 20
"""Target length of a turn, and its largest number of calls."""
SLOW = 5
"""A task that takes this many times the median task's time is slow."""


@dataclass(frozen=True)
class Clock:
    """Mean processor seconds per call, one entry per round; ``scale`` multiplies a run on fewer rows."""

    seconds: tuple[float, ...]
    scale: float = 1.0

    @property
    def median(self) -> float:
        """Median milliseconds."""
        return 1e3 * self.scale * median(self.seconds)

    @property
    def best(self) -> float:
        """Least milliseconds."""
        return 1e3 * self.scale * min(self.seconds)


def ratio(slow: Clock, fast: Clock) -> float:
    """Return how many times ``slow`` takes ``fast``'s time: the median over the rounds they shared.

    Within a round the two ran next to each other, so that a load which comes and goes hits both.
    """
    pairs = zip(slow.seconds, fast.seconds, strict=False)
    return slow.scale / fast.scale * median(a / b for a, b in pairs)


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """Return the least-squares slope of log time over log size."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS and OpenMP to one thread and keep the garbage collector out."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        with threadpool_limits(1):
            yield
    finally:
        if enabled:
            gc.enable()


def _turn(task: Task, calls: int) -> float:
    """Return the mean seconds of ``calls`` calls, after one more that refills the caches if they are short."""
    if calls > 1:
        task()
    begin = time.process_time()
    for _ in range(calls):
        task()
    return (time.process_time() - begin) / calls


def race(
    tasks: Mapping[str, Task], *, rounds: int, seconds: float, scales: Mapping[str, float] | None = None
) -> dict[str, Clock]:
    """Let every task take one turn per round, for ``rounds`` rounds and then for about ``seconds`` more.

    A turn is one call, or several if they are short. Each round has an order of its own, the same in every run, so
    that no task always profits or suffers from the one before it. After the first ``rounds`` rounds a task
    much slower than the rest stops, so that it does not use up the others' time.
    """
    scales = scales or {}
    with one_thread():
        warm = {name: min(_turn(task, 1), _turn(task, 1)) for name, task in tasks.items()}
        calls = {name: min(MOST_CALLS, 1 + int(TURN_SECONDS / spent)) for name, spent in warm.items()}
        slow = SLOW * median(warm.values())
        taken: dict[str, list[float]] = {name: [] for name in tasks}
        turn, end, order = 0, float("inf"), np.random.default_rng(0)
        while turn < rounds or time.perf_counter() < end:
            names = [name for name in tasks if turn < rounds or warm[name] <= slow]
            for place in order.permutation(len(names)):
                name = names[place]
                taken[name].append(_turn(tasks[name], calls[name]))
            turn += 1
            if turn == rounds:
                end = time.perf_counter() + seconds
    return {name: Clock(tuple(values), scales.get(name, 1.0)) for name, values in taken.items()}
