"""Connections that cannot hold the server up: limits on the head of a request, and on the time that clients take."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from spuir.errors import ServiceError
from spuir.service.api.refusals import error_answer

log = logging.getLogger("spuir.service")

LARGEST_HEAD = 1 << 16
"""Most bytes of the address and the headers of a request."""
SLOWEST = 1 << 14
"""Bytes per second that a client has to send of a body, on average."""


class GuardedProtocol(HttpToolsProtocol):
    """An HTTP connection that remembers since when it waits for its client."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        self.since, self.received, self.in_head = self.loop.time(), 0, True
        self.stuck_since: float | None = None
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Take what the client sent; a head without end is refused."""
        if self.timeout_keep_alive_task is not None:  # the connection was idle
            self.since, self.received, self.in_head = self.loop.time(), 0, True
        self.received += len(data)
        super().data_received(data)
        if self.in_head and self.received > LARGEST_HEAD and not self.transport.is_closing():
            self.send_400_response(f"more than {LARGEST_HEAD:,} bytes of headers")

    def on_message_begin(self) -> None:
        """Begin a request."""
        self.in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Begin the body of a request."""
        self.since, self.received, self.in_head = self.loop.time(), 0, False
        super().on_headers_complete()

    def pause_writing(self) -> None:
        """Notice that the client does not read."""
        self.stuck_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Notice that the client reads again."""
        self.stuck_since = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP in the shape of all errors, and close the connection."""
        remedy = "send a request that follows HTTP/1.1"
        _, content = error_answer(ServiceError("malformed", "request", "something else", "it must be HTTP", remedy))
        content.error.message = f"request: got {msg[:1].lower()}{msg[1:].rstrip('.')}, but it must be HTTP; {remedy}."
        body = msgspec.json.encode(content)
        head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        self.transport.close()

    def overdue(self, now: float, head_seconds: float, idle_seconds: float) -> bool:
        """Tell whether the client has taken too long to send its request, or to read the answer."""
        if self.stuck_since is not None:
            return now - self.stuck_since > idle_seconds
        waited = now - self.since
        if self.cycle is None or self.cycle.response_complete:
            return self.timeout_keep_alive_task is None and waited > head_seconds
        return self.cycle.more_body and waited > head_seconds + self.received / SLOWEST


def close_overdue(connections: Iterable[Any], now: float, head_seconds: float, idle_seconds: float) -> int:
    """Close connections whose clients take too long, and return their number."""
    slow = [
        one for one in connections if isinstance(one, GuardedProtocol) and one.overdue(now, head_seconds, idle_seconds)
    ]
    for connection in slow:
        connection.transport.abort()
    if slow:
        log.info("%d connections of slow clients were closed", len(slow))
    return len(slow)
