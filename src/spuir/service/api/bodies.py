"""Reading bodies: their limits, and JSON without the liberties that hostile or careless clients take with it."""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from spuir.errors import ServiceError
from spuir.service.api.refusals import malformed, wrong_shape
from spuir.service.commands import DecisionRow, RewardRow

T = TypeVar("T")
Receive = Callable[[], Awaitable[Any]]

JSON = ("application/json",)
JSON_LINES = ("application/x-ndjson", "application/jsonl")
BINARY = ("application/octet-stream",)

DEEPEST = 16
"""Most levels of arrays and objects in a body."""
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"')


class Disconnected(Exception):  # noqa: N818 - it is no error of the service
    """The client is gone before its request was complete."""


async def read_body(headers: Mapping[bytes, bytes], receive: Receive, media: tuple[str, ...], limit: int) -> bytes:
    """Return the body of a request of one of the ``media`` types; one above ``limit`` bytes is refused unread."""
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")
    if kind not in media:
        rule = f"the body must be {' or '.join(media)}"
        remedy = f"send the header Content-Type: {media[0]}"
        raise ServiceError("unsupported_media", "Content-Type", repr(kind), rule, remedy, "Content-Type")
    coding = headers.get(b"content-encoding", b"identity").strip().lower()
    if coding != b"identity":
        rule = "compressed bodies are not read"
        name = "Content-Encoding"
        raise ServiceError("unsupported_media", name, repr(coding.decode("latin-1")), rule, "send it as it is", name)
    length = headers.get(b"content-length")
    if length is not None and (not length.isdigit() or int(length) > limit):
        raise _too_large(length.decode("latin-1"), limit)
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False) and message["type"] == "http.request":
        if len(body) > limit:
            raise _too_large(str(len(body)), limit)
        return body
    return await _rest(message, receive, limit)


async def _rest(message: Mapping[str, Any], receive: Receive, limit: int) -> bytes:
    """Return a body that comes in several messages; this is the first one."""
    pieces: list[bytes] = []
    size = 0
    while True:
        if message["type"] != "http.request":
            raise Disconnected
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise _too_large(f"more than {limit:,}", limit)
        pieces.append(piece)
        if not message.get("more_body", False):
            return b"".join(pieces)
        message = await receive()


def _too_large(size: str, limit: int) -> ServiceError:
    remedy = "send less at once, or raise the limit of the server"
    return ServiceError("too_large", "body", f"{size} bytes", f"at most {limit:,} are read", remedy)


def decode(
    body: bytes, decoder: "msgspec.json.Decoder[T]", keys: Callable[[T], int] | None = None, colons: int | None = None
) -> T:
    """Return what a body says, of the type of ``decoder``.

    ``keys`` returns the number of keys that a decoded value was made of, for types that bound how deep a body is. If
    the body has as many ``colons``, no key was given twice; otherwise the body is read once more to look for one.
    """
    try:
        value = decoder.decode(body)
    except msgspec.ValidationError as wrong:
        raise wrong_shape(wrong, _as_sent(body)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise malformed(str(wrong).partition(":")[2].strip() or str(wrong)) from None
    except RecursionError:
        raise _too_deep() from None
    if keys is None:
        _check_depth(body)
    if keys is None or keys(value) != (body.count(b":") if colons is None else colons):
        _check_twice(body)
    return value


def _as_sent(body: bytes) -> Any:
    """Return what a body says, whatever it is, to show a part of it; None where its numbers are too large."""
    with suppress(msgspec.DecodeError, RecursionError):
        return msgspec.json.decode(body)
    return None


def decode_lines(body: bytes, read: Callable[[bytes], T]) -> tuple[list[T], list[int]]:
    """Return what ``read`` makes of each line that is not empty, and their numbers; errors name their line."""
    rows: list[T] = []
    numbers: list[int] = []
    for number, line in enumerate(body.split(b"\n"), start=1):
        if line.strip():
            try:
                rows.append(read(line))
            except ServiceError as wrong:
                raise at_line(wrong, number, wrong.where) from None
            numbers.append(number)
    return rows, numbers


def at_line(wrong: ServiceError, number: int, where: str | None = None) -> ServiceError:
    """Return an error with the number of its line, and the place in it."""
    place = f"line {number:,}" + (f", {where}" if where else "")
    return ServiceError(wrong.code, f"{place}: {wrong.subject}", wrong.got, wrong.rule, wrong.remedy, place)


def _check_depth(body: bytes) -> None:
    """Refuse a JSON text that is nested too deeply; brackets in strings count only if it looks like that."""
    if not _is_flat(body) and not _is_flat(_STRINGS.sub(b"", body)):
        raise _too_deep()


def _is_flat(text: bytes) -> bool:
    """Tell whether all brackets are gone after dropping the innermost pairs as often as levels are allowed."""
    brackets = text.translate(None, _NOT_BRACKETS)
    for _ in range(DEEPEST):
        if not brackets:
            return True
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    return not brackets


def _too_deep() -> ServiceError:
    return ServiceError("wrong_shape", "body", "a deeper one", f"it has at most {DEEPEST} levels", "flatten it")


def _check_twice(body: bytes) -> None:
    json.loads(body, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise ServiceError("malformed", "body", f"the key {twice[:80]!r} twice", "a key is given once", "drop one")
    return found


def decision_keys(row: DecisionRow) -> int:
    """Return the number of JSON keys that a decision was decoded from, as far as they are not defaults."""
    count = 1 + (row.id is not None) + (row.eligible is not None) + row.defer + (row.unit is not None)
    if type(row.context) is dict:
        count += len(row.context)
    return count if row.action_features is None else -1


def reward_keys(row: RewardRow) -> int:
    """Return the number of JSON keys that a reward was decoded from, as far as they are not defaults."""
    return 2 + (row.id is not None) + (row.time is not None)
