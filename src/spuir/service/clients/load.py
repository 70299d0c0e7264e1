"""A load generator: sends decisions and rewards to a service, and measures rates and latencies.

It speaks HTTP over plain sockets, because a full client would spend more time on a request than the service does.
Requests either follow each other as fast as the answers come, or arrive at a fixed rate; then the time of a request
counts from when it was due, so that a stall of the service is not hidden by requests that were never sent.
"""

import asyncio
import secrets
import time
from typing import Any
from urllib.parse import urlsplit

import msgspec

from spuir.base.streams import generator
from spuir.errors import ServiceError
from spuir.service.clients.client import AsyncClient
from spuir.service.clients.load_plan import LoadPlan, LoadReport

CONTEXTS = 256
"""Different contexts that are sent."""
LONGEST_ANSWER = 30.0
"""Seconds after which a request has failed."""


async def put_load(plan: LoadPlan, key: str | None = None) -> LoadReport:
    """Send what a plan says, and return what happened; the experiment is created if it does not exist."""
    async with AsyncClient(plan.url, key, patience=0) as client:
        try:
            await client.experiment(plan.experiment)
        except ServiceError as unknown:
            if unknown.code != "unknown_experiment":
                raise
            context = {"kind": "numbers", "dimension": plan.columns}
            how = {"context": context, "seed": plan.seed, "batch_size": 1000, "window": "5s"}
            await client.create(plan.experiment, plan.actions, **how)
    return await _Load(plan, key).run()


class _Load:
    """The state of one load: the next request, and what was counted."""

    def __init__(self, plan: LoadPlan, key: str | None) -> None:
        self.plan, self.key, self.report = plan, key, LoadReport()
        rng = generator(plan.seed, "load")
        self.contexts = [
            msgspec.json.encode(row) for row in rng.normal(size=(CONTEXTS, plan.columns)).round(4).tolist()
        ]
        self.rng, self.run_id, self.taken = rng, secrets.token_hex(6), 0
        self.path = f"/v1/experiments/{plan.experiment}"
        self.start = time.perf_counter()

    async def run(self) -> LoadReport:
        self.start = time.perf_counter()
        await asyncio.gather(*(self._work() for _ in range(self.plan.connections)))
        self.report.seconds = time.perf_counter() - self.start
        return self.report

    async def _work(self) -> None:
        """Send requests on one connection until there are enough."""
        connection = HttpConnection(self.plan.url, self.key)
        try:
            while (number := self._next()) is not None:
                since = await self._due(number)
                if since is None:
                    return
                await self._round(connection, number, since)
        finally:
            connection.close()

    def _next(self) -> int | None:
        if self.taken >= self.plan.requests or time.perf_counter() - self.start >= self.plan.seconds:
            return None
        self.taken += 1
        return self.taken - 1

    async def _due(self, number: int) -> float | None:
        """Wait until a request is due, and return that time; None if it is after the end."""
        if self.plan.rate is None:
            return time.perf_counter()
        due = self.start + number / self.plan.rate
        if due - self.start >= self.plan.seconds:
            return None
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        return due

    async def _round(self, connection: "HttpConnection", number: int, since: float) -> None:
        """Ask for decisions, and report rewards for some of them."""
        ids = [f"{self.run_id}-{number}-{row}" for row in range(self.plan.batch)]
        rows = [
            b'{"id":"%s","context":%s}' % (one.encode(), self.contexts[(number + row) % CONTEXTS])
            for row, one in enumerate(ids)
        ]
        body = rows[0] if len(rows) == 1 else b'{"decisions":[%s]}' % b",".join(rows)
        for _ in range(1 + int(self.rng.random() < self.plan.repeats)):
            answer = await self._send(connection, "decisions", body, since)
            if answer is None:
                return
            for one in answer.get("decisions", [answer]):
                self.report.statuses["replayed" if one["replayed"] else "recorded"] += 1
            since = time.perf_counter()
        rewarded = [one for one, draw in zip(ids, self.rng.random(len(ids)), strict=True) if draw < self.plan.rewards]
        if rewarded:
            rewards = [{"decision_id": one, "reward": float(self.rng.random() < 0.1)} for one in rewarded]
            answer = await self._send(connection, "rewards", msgspec.json.encode({"rewards": rewards}), since)
            self.report.statuses.update(one["status"] for one in (answer or {}).get("rewards", []))

    async def _send(self, connection: "HttpConnection", kind: str, body: bytes, since: float) -> dict[str, Any] | None:
        """Send one request; count it, and return the answer, None if it failed."""
        try:
            async with asyncio.timeout(LONGEST_ANSWER):
                status, content = await connection.send("POST", f"{self.path}/{kind}", body)
            answer = msgspec.json.decode(content)
            if status < 300:
                self.report.latencies[kind].append(time.perf_counter() - since)
                return answer
            self.report.failures[answer["error"]["code"]] += 1
        except (OSError, EOFError, ValueError) as failure:
            connection.close()
            self.report.failures[type(failure).__name__] += 1
            await asyncio.sleep(0.05)
        return None


class HttpConnection:
    """One HTTP connection that is kept open, and opened again after a failure."""

    def __init__(self, url: str, key: str | None) -> None:
        parts = urlsplit(url)
        self.host, self.tls = parts.hostname or "127.0.0.1", parts.scheme == "https"
        self.port = parts.port or (443 if self.tls else 80)
        self.head = f"Host: {self.host}:{self.port}\r\nContent-Type: application/json\r\n"
        self.head += f"Authorization: Bearer {key}\r\n" if key else ""
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Send a request, and return the status and the content of the answer."""
        if self.streams is None:
            self.streams = await asyncio.open_connection(self.host, self.port, ssl=self.tls or None)
        reader, writer = self.streams
        writer.write(f"{method} {path} HTTP/1.1\r\n{self.head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        headers = dict(line.lower().split(b": ", 1) for line in head[1:-2])
        content = await reader.readexactly(int(headers[b"content-length"]))
        if headers.get(b"connection") == b"close":
            self.close()
        return int(head[0].split(b" ")[1]), content

    def close(self) -> None:
        """Close the connection."""
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None
