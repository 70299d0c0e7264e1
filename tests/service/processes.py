"""The service as a process of its own on a free port of this machine, which tests can kill and start again."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx

COLD = 20
"""Every so many starts of a warm server are those of the command itself."""


def free_port() -> int:
    """Return a port of this machine on which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class ServerProcess:
    """``spuir serve`` on a store and a port that stay the same when it is started again."""

    def __init__(self, folder: Path, *options: str, python: tuple[str, ...] = (sys.executable,)) -> None:
        self.folder, self.python = folder, python
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.arguments = ["--port", str(self.port), "--store", "log.db", *options]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, and return when it can record decisions."""
        self._launch()
        until = time.monotonic() + 60
        with httpx.Client(base_url=self.url, timeout=5) as client:
            while time.monotonic() < until:
                assert self._process is None or self._process.poll() is None, (self.folder / "server.log").read_text()
                try:
                    if client.get("/ready").status_code == 200:
                        return
                except httpx.TransportError:
                    time.sleep(0.02)
        raise AssertionError("the server does not answer")

    def _launch(self) -> None:
        """Start the process."""
        command = [*self.python, "-m", "spuir", "serve", *self.arguments]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)

    @property
    def pid(self) -> int | None:
        """The number of the process; None while it does not run."""
        return None if self._process is None else self._process.pid

    def kill(self) -> None:
        """End the process as a power switch would, from the point of view of the process."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def stop(self) -> int:
        """Ask the server to stop, and return its exit code."""
        assert self._process is not None
        self._process.terminate()
        code = self._process.wait(timeout=60)
        self._process = None
        return code

    def end(self) -> None:
        """Kill the process if it runs."""
        if self._process is not None:
            self.kill()


class WarmServerProcess(ServerProcess):
    """A server that starts in a fraction of the time, as a copy of a process that has loaded everything."""

    def __init__(self, folder: Path, *options: str) -> None:
        super().__init__(folder, *options)
        command = [sys.executable, str(Path(__file__).with_name("warm_start.py"))]
        self._warm = subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._copy: int | None = None
        self._starts = 0

    def _ask(self, line: str) -> int:
        assert self._warm.stdin is not None and self._warm.stdout is not None
        self._warm.stdin.write(line + "\n")
        self._warm.stdin.flush()
        return int(self._warm.stdout.readline())

    def _launch(self) -> None:
        self._starts += 1
        if self._starts % COLD:
            self._copy = self._ask(json.dumps(self.arguments))
        else:
            super()._launch()

    def kill(self) -> None:
        """End the process as a power switch would."""
        if self._copy is None:
            super().kill()
        else:
            os.kill(self._copy, signal.SIGKILL)
            self._ask("")
            self._copy = None

    def end(self) -> None:
        """Kill what runs."""
        if self._copy is not None or self._process is not None:
            self.kill()
        assert self._warm.stdin is not None and self._warm.stdout is not None
        self._warm.stdin.close()
        self._warm.stdout.close()
        self._warm.wait(timeout=30)


@contextmanager
def server_process(
    folder: Path, *options: str, python: tuple[str, ...] = (sys.executable,)
) -> Generator[ServerProcess]:
    """Run a server that is killed at the end; ``python`` is the beginning of its command."""
    with ended(ServerProcess(folder, *options, python=python)) as server:
        yield server


@contextmanager
def ended(server: ServerProcess) -> Generator[ServerProcess]:
    """Start a server, and kill it at the end."""
    try:
        server.start()
        yield server
    finally:
        server.end()
