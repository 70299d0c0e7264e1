"""The decision service under load, measured with wrk: ``python -m benchmarks --only service --add``.

Servers are processes of their own on loopback; they alternate in short rounds, and ratios are medians over rounds of
runs next to each other. The empty route reads a body and answers, on the same HTTP server, and does nothing else.
Without durability, the same service keeps its log in memory (/dev/shm), where waiting for the disk costs nothing.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from spuir.base.streams import generator
from spuir.service import Client
from spuir.service.clients.load import put_load
from spuir.service.clients.load_plan import LoadPlan

ACTIONS, COLUMNS, BATCH = 20, 50, 100
CONNECTIONS = {1: 128, BATCH: 16}
"""Connections of wrk by decisions per request."""
AFTER_LEARNING = {1: "durable, after learning", BATCH: f"durable, after learning, {BATCH} per request"}
"""Rates of an experiment that has learned, by decisions per request."""
ROUNDS, QUICK_ROUNDS, SECONDS = 7, 2, 2.0
RATE = 200.0
"""Decisions per second of the load under which latencies are compared."""
LEARNED_ROWS, LEARNINGS = 10_000, 3
NAME = "shop"
MEMORY = Path("/dev/shm")


def measure(rounds: int, say: Callable[[str], None]) -> tuple[dict[str, Any], dict[str, float]]:
    """Return rates and latencies by server, and the ratios that are required; nothing where wrk is not installed."""
    if shutil.which("wrk") is None or not MEMORY.is_dir():
        say("the service is not measured: that needs wrk and /dev/shm")
        return {}, {}
    rates, latencies = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    with ExitStack() as stack:
        disk = stack.enter_context(tempfile.TemporaryDirectory())
        memory = stack.enter_context(tempfile.TemporaryDirectory(dir=MEMORY))
        urls = {
            "empty route": stack.enter_context(_server(["-m", "benchmarks.service"], "/openapi.json")),
            "durable": stack.enter_context(_service(Path(disk))),
            "without durability": stack.enter_context(_service(Path(memory))),
        }
        load = stack.enter_context(ProcessPoolExecutor(1, get_context("spawn")))
        for number in range(rounds):
            say(f"service, round {number + 1} of {rounds}")
            for name, url in urls.items():
                rates[name].append(_wrk(url, 1, Path(disk)))
            rates[f"durable, {BATCH} per request"].append(_wrk(urls["durable"], BATCH, Path(disk)))
            idle, busy, share = _latencies(urls["durable"], number, load)
            latencies["idle"].append(idle)
            latencies["during updates"].append(busy)
            latencies["share of the time with an update"].append(share)
            for rows, name in AFTER_LEARNING.items():
                rates[name].append(_wrk(urls["durable"], rows, Path(disk), _updated(number, 0)))
    table = {
        "rates": {name: statistics.median(some) for name, some in rates.items()},
        "p99 ms": {name: statistics.median(some) for name, some in latencies.items()},
        "rounds": rounds,
    }
    return table, {
        "service/rate/empty route": _ratio(rates["durable"], rates["empty route"]),
        "service/rate/without durability": _ratio(rates["durable"], rates["without durability"]),
        "service/batch/100 per request": _ratio(rates[f"durable, {BATCH} per request"], rates["durable"]),
        "service/learned/single": _ratio(rates[AFTER_LEARNING[1]], rates["durable"]),
        "service/learned/100 per request": _ratio(rates[AFTER_LEARNING[BATCH]], rates[f"durable, {BATCH} per request"]),
        "service/p99/during updates": _ratio(latencies["during updates"], latencies["idle"]),
    }


def _ratio(above: list[float], below: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(above, below, strict=True))


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def _server(command: list[str], probe: str) -> Iterator[str]:
    """Run a server as a process until the end of the block, and yield its address."""
    port = _free_port()
    environment = {**os.environ, "SPUIR_PORT": str(port), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, *command], env=environment)
    url, until = f"http://127.0.0.1:{port}", time.monotonic() + 60
    try:
        while time.monotonic() < until:
            try:
                httpx.get(url + probe, timeout=5)
                break
            except httpx.TransportError:
                time.sleep(0.05)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@contextmanager
def _service(folder: Path) -> Iterator[str]:
    """Run the service on a new store, with the experiment that is asked for decisions."""
    command = ["-m", "spuir", "serve", "--store", str(folder / "log.db"), "--log-level", "error"]
    with _server(command, "/ready") as url:
        with Client(url) as client:
            _create(client, NAME)
        yield url


def _create(client: Client, name: str) -> None:
    client.create(name, ACTIONS, context={"kind": "numbers", "dimension": COLUMNS}, window=None, seed=1)


def _script(folder: Path, rows: int) -> Path:
    """Write what wrk sends: a decision, or several in one request."""
    contexts = generator(0, "benchmarks", "service").normal(size=(rows, COLUMNS)).round(4).tolist()
    body = json.dumps({"context": contexts[0]} if rows == 1 else {"decisions": [{"context": row} for row in contexts]})
    path = folder / f"send-{rows}.lua"
    head = 'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\n'
    path.write_text(f"{head}wrk.body = '{body}'\n")
    return path


def _wrk(url: str, rows: int, folder: Path, name: str = NAME) -> float:
    """Return the decisions per second that wrk gets from an experiment, ``rows`` per request."""
    script = _script(folder, rows)
    address = f"{url}/v1/experiments/{name}/decisions"
    command = ["wrk", "-t1", f"-c{CONNECTIONS[rows]}", f"-d{SECONDS:g}", "-s", str(script), address]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in shown or "Socket errors" in shown:
        raise RuntimeError(shown)
    found = re.search(r"Requests/sec:\s+([\d.]+)", shown)
    assert found is not None, shown
    return rows * float(found[1])


def _latencies(url: str, number: int, load: Executor) -> tuple[float, float, float]:
    """Return the 99th percentile in milliseconds without and with updates, and the share of time with one.

    ``load`` is a process of its own, in which nothing but the load takes time.
    """
    names = [_updated(number, one) for one in range(LEARNINGS)]
    with Client(url, timeout=60.0) as client:
        for name in names:
            _fill(client, name)
        idle = load.submit(_percentile, url, 3.0).result()
        spent = [0.0]

        def learn() -> None:
            for name in names:
                begin = time.perf_counter()
                client.wait_for(name, client.close_episode(name).version)
                spent[0] += time.perf_counter() - begin

        learner = threading.Thread(target=learn)
        learner.start()
        seconds = 3.0
        busy = load.submit(_percentile, url, seconds).result()
        share = min(spent[0] / seconds, 1.0) if not learner.is_alive() else 1.0
        learner.join()
    return idle, busy, share


def _updated(number: int, one: int) -> str:
    """Return the name of one of the experiments that learn in a round."""
    return f"update-{number}-{one}"


def _fill(client: Client, name: str) -> None:
    """Make an experiment with an episode to learn."""
    _create(client, name)
    rng = generator(0, "benchmarks", "service", name)
    for _ in range(LEARNED_ROWS // 1000):
        given = client.decide_many(name, rng.normal(size=(1000, COLUMNS)).round(4).tolist())
        client.reward_many(name, [(one.id, float(rng.random() < 0.1)) for one in given])


def _percentile(url: str, seconds: float) -> float:
    plan = LoadPlan(url=url, experiment=NAME, requests=10**6, seconds=seconds, rate=RATE, rewards=0.0, columns=COLUMNS)
    report = asyncio.run(put_load(plan))
    if report.failures:
        raise RuntimeError(str(report))
    return 1000.0 * float(np.percentile(report.latencies["decisions"], 99))


def _empty_route() -> None:
    """Serve a route that decodes a context and answers, on the same HTTP server as the service."""
    import msgspec
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    class Asked(msgspec.Struct):
        context: list[float]

    decoder, encoder = msgspec.json.Decoder(Asked), msgspec.json.Encoder()

    async def answer(request: Request) -> Response:
        asked = decoder.decode(await request.body())
        return Response(encoder.encode({"id": "x", "action": len(asked.context)}), media_type="application/json")

    app = Starlette(routes=[Route("/v1/experiments/{name}/decisions", answer, methods=["POST"])])
    uvicorn.run(app, port=int(os.environ["SPUIR_PORT"]), log_level="error", access_log=False, ws="none")


if __name__ == "__main__":
    _empty_route()
