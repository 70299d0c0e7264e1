"""What the routes are made of: an operation for each method and address, the call it answers, and the reply."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from spuir.errors import ServiceError, did_you_mean
from spuir.service.api.bodies import JSON, Receive, decode, read_body
from spuir.service.commands import Command
from spuir.service.keys import ApiKey

if TYPE_CHECKING:
    from spuir.service.api.app import Service

T = TypeVar("T")


class Call:
    """One request: who calls, the parts of the address, and the body when it is asked for."""

    __slots__ = ("headers", "key", "params", "query", "receive", "service")

    def __init__(
        self,
        service: "Service",
        key: ApiKey,
        params: Mapping[str, str],
        query: bytes,
        headers: Mapping[bytes, bytes],
        receive: Receive,
    ) -> None:
        self.service, self.key, self.params, self.query = service, key, params, query
        self.headers, self.receive = headers, receive

    @property
    def experiment(self) -> str:
        """The experiment that the address names."""
        return self.params["name"]

    async def body(self, media: tuple[str, ...] = JSON, limit: int | None = None) -> bytes:
        """Return the body; ``limit`` replaces the server's limit on its bytes."""
        return await read_body(self.headers, self.receive, media, limit or self.service.config.max_body)

    async def json(self, decoder: "msgspec.json.Decoder[T]") -> T:
        """Return the decoded body."""
        return decode(await self.body(), decoder)

    async def execute(self, command: Command) -> Any:
        """Carry out a command and return its answer once it is durable; raise it if it is an error."""
        answer = await self.service.writer.submit(command)
        if isinstance(answer, ServiceError):
            raise answer
        return answer

    async def read(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function that reads from the store, beside the event loop."""
        return await self.service.read(function, *args)

    def option(self, name: str, allowed: Mapping[str, T], default: T) -> T:
        """Return the value that a parameter of the query stands for."""
        given = self.options().get(name)
        if given is None:
            return default
        if given not in allowed:
            remedy = did_you_mean(given, allowed, "values")
            raise ServiceError("wrong_shape", name, repr(given[:80]), "it is one of a few values", remedy, name)
        return allowed[given]

    def options(self) -> dict[str, str]:
        """Return the parameters of the query."""
        return dict(self.pairs())

    def pairs(self) -> list[tuple[str, str]]:
        """Return the names and values in the query, in order."""
        return parse_qsl(self.query.decode("latin-1"), keep_blank_values=True) if self.query else []


@dataclass(frozen=True)
class Reply:
    """An answer other than JSON with status 200; ``content`` is a value for JSON, bytes or a stream of bytes."""

    content: Any
    status: int = 200
    media: bytes = b"application/json"

    @property
    def streamed(self) -> bool:
        """Whether the content comes in pieces."""
        return isinstance(self.content, AsyncGenerator)


@dataclass(frozen=True, kw_only=True)
class Query:
    """A parameter of the query of an address."""

    name: str
    doc: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One method of one address.

    Parameters
    ----------
    role
        What a key has to have: a role, or "any"; None for addresses that anybody may read without a key.
    handler
        Returns the answer: a value for JSON, or a :class:`Reply`.
    body
        The types of JSON that it takes; or ``media``, the types of other bodies.
    example
        A body to try.
    answers
        The types of the answers by status; a text is the media type of an answer that is not JSON.
    errors
        Error statuses besides those that every operation of its kind can have.
    """

    method: str
    path: str
    role: str | None
    summary: str
    handler: Callable[[Call], Awaitable[Any]]
    answers: Mapping[int, Any]
    doc: str = ""
    body: tuple[Any, ...] = ()
    example: Any = None
    media: tuple[str, ...] = ()
    query: tuple[Query, ...] = ()
    errors: tuple[int, ...] = ()

    @property
    def statuses(self) -> list[int]:
        """Every status that it can answer with, except an unexpected failure."""
        errors = set(self.errors)
        if self.role is not None:
            errors |= {401, 403, 429}
        if "{" in self.path:
            errors |= {404}
        if self.body or self.media:
            errors |= {400, 413, 415, 422}
        if self.query:
            errors |= {422}
        if self.path.startswith("/v1"):
            errors |= {503} if self.method == "GET" else {503, 507}  # the store cannot be read, or not be written
        return sorted({*self.answers, *errors})


def check_query(call: Call, operation: Operation) -> None:
    """Refuse a misspelt or repeated parameter of the query, which would be ignored; other operations take any."""
    if not operation.query:
        return
    known, seen = [one.name for one in operation.query], set[str]()
    for name, _ in call.pairs():
        if name not in known:
            remedy = did_you_mean(name, known, "parameters")
            raise ServiceError("wrong_shape", "query", repr(name[:80]), "there is no such parameter", remedy, name[:80])
        if name in seen:
            raise ServiceError("wrong_shape", "query", f"{name!r} twice", "it is given once", "drop one", name)
        seen.add(name)
