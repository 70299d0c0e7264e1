"""The service as a process of its own on a free port of this machine, which tests can kill and start again."""

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


def free_port() -> int:
    """Return a port of this machine on which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class ServerProcess:
    """``spuir serve`` on a store and a port that stay the same when it is started again."""

    def __init__(self, folder: Path, *options: str, python: tuple[str, ...] = (sys.executable,)) -> None:
        self.folder, self.options, self.python = folder, options, python
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, and return when it can record decisions."""
        command = [*self.python, "-m", "spuir", "serve", "--port", str(self.port), "--store", "log.db", *self.options]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            assert self._process.poll() is None, (self.folder / "server.log").read_text()
            try:
                if httpx.get(f"{self.url}/ready", timeout=5).status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.02)
        raise AssertionError("the server does not answer")

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


@contextmanager
def server_process(
    folder: Path, *options: str, python: tuple[str, ...] = (sys.executable,)
) -> Generator[ServerProcess]:
    """Run a server that is killed at the end; ``python`` is the beginning of its command."""
    server = ServerProcess(folder, *options, python=python)
    server.start()
    try:
        yield server
    finally:
        server.end()
