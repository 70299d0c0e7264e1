"""Learning in a process of its own, which is asked over pipes and reads the log by itself."""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import IO, Any

import msgspec

from spuir.bandit import Bandit
from spuir.errors import SpuirError
from spuir.service.versions.learner import Learned, LearningJob, failed_job, run_job
from spuir.service.versions.model_steps import opened, solve_ahead

log = logging.getLogger("spuir.service")

MOST_DEATHS = 3
"""After so many deaths with the same job the others come first, and it is tried again later."""
NICENESS = 10
"""Niceness of the process that learns, so that serving comes first."""


class _Ask(msgspec.Struct):
    """What the child process is asked: the address of the store, and the job."""

    url: str
    job: LearningJob


class ChildProcess:
    """Learns in a process of its own, which is started again if it dies; serving never waits for it.

    The process has a lower priority than the server (a niceness of 10), so that an update slows no request down while
    both want the same processor. ``failures`` counts how often it died. What it was asked is asked again.
    """

    beside = True

    def __init__(self) -> None:
        self.failures = 0
        self._deaths: Counter[str] = Counter()
        self._asked: dict[str, _Ask] = {}
        self._done: SimpleQueue[Learned] = SimpleQueue()
        self._ready: dict[str, tuple[str, Bandit]] = {}
        self._lock = threading.Lock()
        self._asks: SimpleQueue[_Ask | None] = SimpleQueue()
        self._child: subprocess.Popen[bytes] | None = self._start()

    def submit(self, store: Any, job: LearningJob) -> None:
        """Let a job be learned after those before it."""
        with self._lock:
            if self._child is None:
                self._child = self._start()
            self._asked[job.name] = _Ask(store.url, job)
            self._asks.put(self._asked[job.name])

    def _start(self) -> "subprocess.Popen[bytes]":
        """Start the process, which loads its libraries before there is something to learn."""
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "spuir.service.versions.learner_process"]
        # An interrupt at a terminal is for the server, which ends this process: it goes to all of a group.
        group = None if sys.platform == "win32" else 0
        pipe = subprocess.PIPE
        child = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, process_group=group)
        self._asks = SimpleQueue()
        threading.Thread(target=self._talk, args=(child, self._asks), daemon=True).start()
        return child

    def _talk(self, child: "subprocess.Popen[bytes]", asks: "SimpleQueue[_Ask | None]") -> None:
        """Ask one job after the other, in a thread, so that nobody else waits for a process that is busy."""
        try:
            while (ask := asks.get()) is not None:
                _write(child.stdin, msgspec.json.encode(ask))  # parameters may be integers of any size
                message = _read(child.stdout)
                if message is None:
                    return
                learned = msgspec.msgpack.decode(message, type=Learned)
                if learned.error is None:  # read here, so that serving does not wait for it
                    # The model is a message of its own: decoding it with the rest would copy it while others wait.
                    model = _read(child.stdout)
                    if model is None:
                        return
                    learned.model = model
                    made = opened(learned.model, f"version {learned.version}")
                    solve_ahead(made)
                    self._ready[learned.name] = (made.digest(), made)
                self._done.put(learned)
        except Exception:
            if child.poll() is None:  # otherwise its death is why nothing could be written or read
                log.exception("the answer of the process that learns cannot be used")
        finally:
            child.kill()  # nobody talks to it any more; what it was asked is asked again when it is collected

    def take(self, name: str, digest: str) -> Bandit | None:
        """Return the newest model of an experiment, once: it changes with its owner."""
        known = self._ready.get(name)
        if known is None or known[0] != digest:
            return None
        return self._ready.pop(name)[1]

    def collect(self) -> list[Learned]:
        """Return what was learned, and start the process again if it died."""
        found: list[Learned] = []
        with self._lock:
            dead = self._child is not None and self._child.poll() is not None
            try:
                while True:
                    found.append(self._done.get_nowait())
            except Empty:
                pass
            for one in found:
                self._asked.pop(one.name, None)
                self._deaths.pop(one.name, None)
            if dead and self._child is not None:
                self._release(self._child)
                self._child = None
                if self._asked:
                    found += self._after_death()
        return found

    def _after_death(self) -> list[Learned]:
        """Start the process again and ask what it was asked; return the job that it keeps dying with, as failed."""
        self.failures += 1
        name, ask = next(iter(self._asked.items()))  # jobs are done in order
        self._deaths[name] += 1
        given_up: list[Learned] = []
        if self._deaths[name] >= MOST_DEATHS:
            del self._asked[name], self._deaths[name]
            error = f"the process that learns died {MOST_DEATHS} times with it; is there enough memory?"
            given_up.append(Learned(ask.job.name, ask.job.version, error=error, again=True))
        self._child = self._start()
        for waiting in self._asked.values():
            self._asks.put(waiting)
        return given_up

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._asked.clear()
            if self._child is not None:
                self._child.kill()
                self._release(self._child)
            self._child = None

    def _release(self, child: "subprocess.Popen[bytes]") -> None:
        """Wait for a process that ends, and close the streams to it."""
        self._asks.put(None)
        child.wait()
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


def _write(stream: "IO[bytes] | None", message: bytes) -> None:
    if stream is not None:
        stream.write(len(message).to_bytes(8, "little"))
        stream.write(message)
        stream.flush()


def _read(stream: "IO[bytes] | None") -> bytes | None:
    """Return the next message; None at the end of a stream."""
    size = b"" if stream is None else stream.read(8)
    if stream is None or len(size) < 8:
        return None
    wanted = int.from_bytes(size, "little")
    message = stream.read(wanted)
    return message if len(message) == wanted else None


def main() -> None:
    """Answer jobs from standard input until it ends."""
    from spuir.service.stores import open_store

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted server ends this process itself
    if sys.platform != "win32":
        with suppress(OSError):  # a sandbox may forbid it, and learning works without it
            os.nice(NICENESS)
    stores: dict[str, Any] = {}
    while (message := _read(sys.stdin.buffer)) is not None:
        ask = msgspec.json.decode(message, type=_Ask)
        try:
            if ask.url not in stores:
                stores[ask.url] = open_store(ask.url, read_only=True)
            learned = run_job(stores[ask.url], ask.job)
        except SpuirError as wrong:  # the store cannot be opened
            learned = failed_job(ask.job, wrong)
        model, learned.model = learned.model, b""
        _write(sys.stdout.buffer, msgspec.msgpack.encode(learned))
        if learned.error is None:
            _write(sys.stdout.buffer, model)


if __name__ == "__main__":
    main()
