"""How the clients of the service send requests: with one core for blocking calls and for asyncio.

What a method of a client does is written once, as a flow: a generator that yields requests and pauses, is sent the
responses, and returns the answer. The two clients differ only in how they carry out the steps of a flow.
"""

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator, Mapping
from functools import update_wrapper
from inspect import signature
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, get_args, overload
from urllib.parse import quote

import httpx
import msgspec

from spuir.errors import InputError, ServiceError

P = ParamSpec("P")
T = TypeVar("T")

Step = httpx.Request | float
"""What a flow asks for: the response to a request, or a pause of so many seconds."""
Flow = Generator[Step, "httpx.Response | httpx.TransportError | None", T]

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds before the first repetition of a request, and at most before any."""
NOT_ACCEPTED = {"rate_limited", "overloaded"}
"""Errors after which any request may be repeated, because the service did not take it."""
LASTING = {"damaged"}
"""Errors that somebody has to mend, so that nothing is repeated."""
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""Failures before a request left this machine."""


class Method(Generic[P, T]):
    """A flow as a method of both clients: it returns the answer of a blocking one, a coroutine of the other."""

    def __init__(self, flow: "Callable[Concatenate[Any, P], Flow[T]]") -> None:
        def method(client: Any, *args: P.args, **kwargs: P.kwargs) -> Any:
            return client.carry_out(flow(client, *args, **kwargs))

        update_wrapper(method, flow)
        # What help() and the reference show: the answer, not the flow that leads to it.
        shown = signature(flow)
        method.__signature__ = shown.replace(return_annotation=get_args(shown.return_annotation)[2])  # type: ignore[attr-defined]
        self._method = method

    @overload
    def __get__(self, client: None, kind: Any = None) -> Callable[..., T]: ...
    @overload
    def __get__(self, client: "Blocking", kind: Any = None) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: "Awaiting", kind: Any = None) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Any, kind: Any = None) -> Any:
        """Return the method of a client."""
        return self._method if client is None else MethodType(self._method, client)


class Sender(ABC):
    """Sends requests to a service, and repeats those that may be repeated.

    Parameters
    ----------
    url
        Where the service is, e.g. "http://127.0.0.1:8000".
    key
        An API key; None for a service without keys.
    timeout
        Seconds to wait for one response.
    patience
        Seconds during which a request is repeated, with growing pauses, while the service does not answer, is too
        busy or cannot write; 0 = never repeated.
    connections
        Most connections that are open at the same time. They are reused.
    """

    _http: Any

    def __init__(
        self, url: str, key: str | None = None, *, timeout: float = 10.0, patience: float = 30.0, connections: int = 100
    ) -> None:
        self.url, self.timeout, self.patience = url.rstrip("/"), timeout, patience
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        # Requests go to the service alone: no proxy of the environment, no redirection.
        self._http = self._open(base_url=self.url, headers=headers, timeout=timeout, limits=limits, trust_env=False)

    @abstractmethod
    def _open(self, **how: Any) -> Any:
        """Return the connections of HTTPX that requests go through."""

    def ask(
        self,
        answer: type[T],
        method: str,
        *path: object,
        body: Any = None,
        media: str = "application/json",
        query: Mapping[str, Any] | None = None,
        repeatable: bool = True,
    ) -> Flow[T]:
        """Send a request until it is answered; one that is not ``repeatable`` only while nothing came of it.

        ``path`` are the parts of the address after /v1/experiments. A ``body`` of bytes is sent as it is, with its
        ``media`` type, and any other as JSON.
        """
        # A part may be any text; written out, . and .. would mean another address.
        parts = [quote(str(part), safe="").replace(".", "%2E") for part in path]
        address = "/".join(["/v1/experiments", *parts])
        headers = {} if body is None else {"Content-Type": media}
        content = body if body is None or isinstance(body, bytes) else ENCODER.encode(body)
        give_up = time.monotonic() + self.patience
        pause = FIRST_PAUSE
        while True:
            got = yield self._http.build_request(method, address, content=content, headers=headers, params=query)
            if isinstance(got, httpx.Response):
                if got.is_success:
                    return _decoded(got, answer)
                error = _error_in(got)
                failed = got.status_code >= 500 and error.code not in LASTING
                again = error.code in NOT_ACCEPTED or (repeatable and failed)
                least = _seconds(got.headers.get("Retry-After"))
            else:
                error, again, least = self._unreachable(got), repeatable or isinstance(got, NEVER_SENT), 0.0
            # The random part keeps clients that failed together from coming back together.
            wait = max(least, pause * random.uniform(0.5, 1.0))
            if not again or time.monotonic() + wait > give_up:
                raise error
            yield wait
            pause = min(2 * pause, LONGEST_PAUSE)

    def _unreachable(self, failure: Exception | None) -> ServiceError:
        got = f"no answer from {self.url} ({str(failure) or type(failure).__name__})"
        rule = f"a service has to answer there within {self.timeout:g} s"
        return ServiceError("unreachable", "service", got, rule, "start it with spuir serve, or correct the address")


class Blocking:
    """Carries out flows while the caller waits."""

    _http: httpx.Client

    def _open(self, **how: Any) -> httpx.Client:
        return httpx.Client(**how)

    def carry_out(self, flow: Flow[T]) -> T:
        """Return what a flow returns."""
        try:
            step = next(flow)
            while True:
                if isinstance(step, httpx.Request):
                    try:
                        got = self._http.send(step)
                    except httpx.TransportError as failure:
                        got = failure
                    step = flow.send(got)
                else:
                    time.sleep(step)
                    step = next(flow)
        except StopIteration as end:
            return end.value


class Awaiting:
    """Carries out flows in an event loop."""

    _http: httpx.AsyncClient

    def _open(self, **how: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(**how)

    async def carry_out(self, flow: Flow[T]) -> T:
        """Return what a flow returns."""
        try:
            step = next(flow)
            while True:
                if isinstance(step, httpx.Request):
                    try:
                        got = await self._http.send(step)
                    except httpx.TransportError as failure:
                        got = failure
                    step = flow.send(got)
                else:
                    await asyncio.sleep(step)
                    step = next(flow)
        except StopIteration as end:
            return end.value


def _plain(value: Any) -> Any:
    """Return what NumPy and pandas hold as lists, objects, numbers and ISO texts; what is missing as null."""
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    for convert in ("isoformat", "to_dict", "tolist"):
        if hasattr(value, convert):
            return getattr(value, convert)()
    rule, remedy = "JSON cannot say what it is", "send numbers, texts, times, lists, or objects of these"
    raise InputError("request", f"a value of type {type(value).__name__}", rule, remedy)


ENCODER = msgspec.json.Encoder(enc_hook=_plain)
"""Writes JSON of requests, also of what NumPy and pandas hold."""


def _decoded(response: httpx.Response, answer: type[T]) -> T:
    """Return the content of a response as bytes, or what its JSON says."""
    content: Any = response.content
    if answer is bytes:
        return content
    try:
        return msgspec.json.decode(content, type=answer)
    except msgspec.DecodeError as wrong:
        got = f"{content[:60]!r} from {response.url}"
        remedy = "check that a service of this version is at this address"
        raise ServiceError("unexpected_answer", "service", got, f"it cannot be read ({wrong})", remedy) from None


def _error_in(response: httpx.Response) -> ServiceError:
    """Return the error that a response describes; its sentence is that of the service."""
    try:
        error = msgspec.json.decode(response.content)["error"]
        code, sentence, remedy, where = (error[name] for name in ("code", "message", "remedy", "where"))
    except (msgspec.DecodeError, KeyError, TypeError):
        got, rule = f"status {response.status_code} from {response.url}", "the service says what is wrong as JSON"
        remedy = "check the address, and any proxy between the client and the service"
        return ServiceError("unexpected_answer", "service", got, rule, remedy)
    subject, _, rest = sentence.removesuffix(".").removesuffix(f"; {remedy}").partition(": got ")
    got, _, rule = rest.partition(", but ")
    return ServiceError(code, subject, got, rule, remedy, where)


def _seconds(header: str | None) -> float:
    """Return the seconds in a ``Retry-After`` header, 0 if it has none."""
    try:
        return max(0.0, float(header or 0))
    except ValueError:
        return 0.0
