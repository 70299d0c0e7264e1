"""A real server on a free port of this machine, in a thread, for the tests of the HTTP interface."""

import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from spuir.service.api.app import Service
from spuir.service.config import ServerConfig
from spuir.service.engine import Engine
from spuir.service.keys import create_key
from spuir.service.server import make_server
from spuir.service.stores import open_store
from spuir.service.versions.learner import InProcess

NUMBERS = {"kind": "numbers", "dimension": 3}
CONTEXT = [0.5, -1.0, 2.0]
ACTIONS = ["red", "green", "blue"]


@dataclass
class RunningServer:
    """A server, the engine behind it, and how to reach it."""

    url: str
    port: int
    service: Service
    folder: Path

    def client(self, key: str | None = None, **options: Any) -> httpx.Client:
        """Return a client, with a key if one is given."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30.0, **options)

    def key(self, *roles: str, **rights: Any) -> str:
        """Make a key that the server knows at once."""
        assert self.service.keys is not None
        _, token = create_key(self.service.keys.path, roles, **rights)
        self.service.keys.refresh()
        return token

    def records(self, name: str = "shop") -> int:
        """Return the number of records in the log of an experiment."""
        return self.service.engine.experiment(name).records

    def connect(self) -> socket.socket:
        """Open a connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=30.0)


@contextmanager
def running_server(folder: Path, *, keys: bool = False, **limits: Any) -> Generator[RunningServer]:
    """Run a server on a new store; it is stopped as by SIGTERM at the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    key_file = str(folder / "keys.json") if keys else None
    config = ServerConfig(port=port, store=str(folder / "log.db"), key_file=key_file, **limits)
    service = Service(Engine(open_store(config.store), learner=InProcess()), config)
    server = make_server(service)
    thread = threading.Thread(target=server.run, name="server")
    thread.start()
    try:
        until = time.monotonic() + 30
        while not server.started and thread.is_alive() and time.monotonic() < until:
            time.sleep(0.01)
        assert server.started
        yield RunningServer(f"http://127.0.0.1:{port}", port, service, folder)
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


def create_shop(client: httpx.Client, name: str = "shop", **settings: Any) -> dict[str, Any]:
    """Create an experiment and return it."""
    body = {"name": name, "actions": ACTIONS, "context": NUMBERS, "window": None, "seed": 7, **settings}
    answer = client.post("/v1/experiments", json=body)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


def code(answer: httpx.Response) -> str:
    """Return the code of an error, after checking its shape."""
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "remedy", "where"}
    assert error["message"].endswith((".", "?"))
    assert error["remedy"]
    return error["code"]
