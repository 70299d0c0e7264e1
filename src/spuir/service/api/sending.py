"""Answers on their way out: JSON, bytes, streams and errors, with their headers."""

import asyncio
import logging
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.types import Send

from spuir.errors import ServiceError
from spuir.service.api.operations import Reply
from spuir.service.api.refusals import error_answer
from spuir.service.writer import RetryLaterError

log = logging.getLogger("spuir.service")

JSON_TYPE = (b"content-type", b"application/json")
GONE = 499
"""The status of a request in the metrics if its client did not wait for the answer."""

_encode = msgspec.json.Encoder(decimal_format="number").encode


async def send_reply(reply: Any, headers: list[tuple[bytes, bytes]], receive: Any, send: Send) -> int:
    """Send a reply and return its status."""
    if type(reply) is not Reply:
        await _send_bytes(200, JSON_TYPE, _encode(reply), headers, send)
        return 200
    kind = (b"content-type", reply.media)
    if not reply.streamed:
        content = reply.content if isinstance(reply.content, bytes) else _encode(reply.content)
        await _send_bytes(reply.status, kind, content, headers, send)
        return reply.status
    await send({"type": "http.response.start", "status": reply.status, "headers": [kind, *headers]})
    return await _send_stream(reply, receive, send)


async def _send_stream(reply: Reply, receive: Any, send: Send) -> int:
    """Send a body in pieces, and return the status for the metrics.

    After a failure the body is left without its end, and the server closes the connection: the client notices.
    """
    await receive()  # the end of the request; what comes next is the end of the connection
    gone = asyncio.ensure_future(receive())
    try:
        async with aclosing(reply.content) as pieces:
            async for piece in pieces:
                if gone.done():
                    return GONE
                await send({"type": "http.response.body", "body": piece, "more_body": True})
    except Exception:
        log.exception("a download broke off")
        return 500
    finally:
        gone.cancel()
    await send({"type": "http.response.body", "body": b""})
    return reply.status


async def send_error(error: ServiceError, headers: list[tuple[bytes, bytes]], send: Send) -> int:
    """Send an error with the headers that belong to it, and return its status."""
    status, content = error_answer(error)
    if isinstance(error, RetryLaterError):
        headers = [*headers, (b"retry-after", str(error.seconds).encode())]
    elif status in (503, 507):
        headers = [*headers, (b"retry-after", b"5")]
    elif status == 401:
        headers = [*headers, (b"www-authenticate", b"Bearer")]
    if status in (413, 415):
        headers = [*headers, (b"connection", b"close")]  # the body is not read
    await _send_bytes(status, JSON_TYPE, _encode(content), headers, send)
    return status


async def _send_bytes(
    status: int, kind: tuple[bytes, bytes], content: bytes, headers: list[tuple[bytes, bytes]], send: Send
) -> None:
    length = (b"content-length", str(len(content)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [kind, length, *headers]})
    await send({"type": "http.response.body", "body": content})
