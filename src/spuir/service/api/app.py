"""The ASGI application: admits requests, calls the operation of their address, and answers in one shape."""

import asyncio
import itertools
import logging
import math
import re
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import unquote

from starlette.routing import Route, Router
from starlette.types import Scope, Send

from spuir.errors import ServiceError, SpuirError
from spuir.service.api import decision_routes, experiment_routes, log_routes, probe_routes
from spuir.service.api.bodies import Disconnected
from spuir.service.api.openapi import describe
from spuir.service.api.operations import Call, Operation, check_query
from spuir.service.api.sending import GONE, send_error, send_reply
from spuir.service.config import ServerConfig
from spuir.service.drafting import unknown_experiment
from spuir.service.engine import Engine
from spuir.service.keys import ANYBODY, ApiKey, KeyRing
from spuir.service.metrics import Gauge, Metrics
from spuir.service.settings import NAME
from spuir.service.writer import RetryLaterError, Writer

T = TypeVar("T")

log = logging.getLogger("spuir.service")

OPERATIONS: tuple[Operation, ...] = (
    *decision_routes.OPERATIONS,
    *experiment_routes.OPERATIONS,
    *log_routes.OPERATIONS,
    *probe_routes.OPERATIONS,
)
"""Every method of every address, the busiest first."""

REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}\Z")
TRACE = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}\Z")
LOCAL_HOSTS = re.compile(rb"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?\Z")
LOCAL_ORIGINS = re.compile(rb"https?://" + LOCAL_HOSTS.pattern)
READERS = 4
"""Threads that read from the store."""
MOST_ROUTED = 1_000
"""Addresses that are remembered, the first ones; others go through the router each time."""


class RateLimits:
    """How many requests each key may send: a bucket per key that fills evenly and holds one second's worth."""

    def __init__(self, rate: float | None) -> None:
        self.rate = rate
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, key: ApiKey, now: float) -> float:
        """Take one request out of the bucket of a key; return 0, or the seconds to wait if it is empty."""
        rate = key.rate or self.rate
        if rate is None:
            return 0.0
        size = max(rate, 1.0)
        left, since = self._buckets.get(key.id, (size, now))
        left = min(size, left + rate * (now - since))
        if left < 1.0:
            self._buckets[key.id] = (left, now)
            return (1.0 - left) / rate
        self._buckets[key.id] = (left - 1.0, now)
        return 0.0


class Service:
    """The service as an ASGI application.

    Parameters
    ----------
    engine
        Carries out commands and answers reads.
    config
        Limits, and where the keys are.
    """

    def __init__(self, engine: Engine, config: ServerConfig) -> None:
        self.engine, self.config = engine, config
        self.keys = None if config.key_file is None else KeyRing(config.key_file)
        self.metrics = Metrics()
        self.writer = Writer(engine, self.metrics, capacity=config.max_waiting, patience=config.request_seconds)
        self.rates = RateLimits(config.rate)
        self.description = describe(OPERATIONS, config)
        resources = [Route(path, _Resource(self, path, ways)) for path, ways in by_path(OPERATIONS).items()]
        self.router = Router(resources, redirect_slashes=False, default=self._unknown_route)
        self.routed: dict[str, tuple[_Resource, dict[str, str]]] = {}
        """Where the router found addresses before: a busy one is found once."""
        self._readers = ThreadPoolExecutor(READERS, "spuir-reader")
        self._prefix, self._numbers = secrets.token_hex(6), itertools.count(1)
        self.metrics.gauges += _gauges(self)

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Answer one request, or start and stop with the server."""
        if scope["type"] == "http":
            raw = scope.get("raw_path")
            if raw and b"%2f" in raw.lower():
                # A slash inside an id does not part the address: the router sees it as it was sent.
                scope["path"], scope["encoded"] = raw.decode("latin-1"), True
            known = self.routed.get(scope["path"])
            if known is None:
                await self.router(scope, receive, send)
            else:
                resource, scope["path_params"] = known
                await resource(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    async def read(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function that reads from the store, beside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, function, *args)

    def problem(self) -> str | None:
        """Return what keeps decisions from being recorded, or None."""
        if not self.writer.alive:
            return "the writer is not running"
        return None if self.engine.status().get("writable", True) else "the store cannot write"

    async def _live(self, receive: Any, send: Any) -> None:
        """Start with the server, and stop with it."""
        await receive()
        async with self.running():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run the writer and the watch, and finish what was accepted at the end."""
        self.writer.start()
        watch = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watch.cancel()
            await self.writer.stop()
            self._readers.shutdown()
            self.engine.close()

    async def _watch(self) -> None:
        """Every second: notice changed keys, and answer requests that wait too long."""
        while True:
            await asyncio.sleep(1.0)
            try:
                self.writer.give_up_overdue()
                if self.keys is not None and self.keys.refresh():
                    log.info("the keys were read again: %d", len(self.keys))
            except SpuirError as wrong:
                log.error("%s", wrong)

    def identify(self, operation: Operation, headers: Mapping[bytes, bytes]) -> ApiKey:
        """Return the key of a caller; refuse one who needs a key and has none."""
        if operation.role is None:
            return ANYBODY
        if self.keys is None:
            _check_local(headers)
            return ANYBODY
        key = self.keys.find(headers.get(b"authorization"))
        if key is None:
            got, rule = ("no valid key", "the service needs one")
            raise ServiceError("unauthorized", "API key", got, rule, "send the header Authorization: Bearer KEY")
        return key

    def admit(self, operation: Operation, key: ApiKey, params: Mapping[str, str]) -> None:
        """Refuse a caller who may not call an operation, or not so often, or not for this experiment."""
        if operation.role is None:
            return
        if operation.role != "any" and not key.may(operation.role):
            raise _forbidden(" and ".join(key.roles), f"this needs the role {operation.role}")
        wait = self.rates.take(key, time.monotonic())
        if wait:
            rule = f"it may send {key.rate or self.rates.rate:g} requests per second"
            raise RetryLaterError("rate_limited", "API key", "more requests", rule, "send them later", math.ceil(wait))
        name = params.get("name")
        if name is not None and not (NAME.fullmatch(name) and key.covers(name)):
            raise unknown_experiment(name)

    async def answer(
        self, operation: Operation, scope: Scope, receive: Any, send: Send, more: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        """Answer one request; ``more`` are headers that the answer has in any case."""
        start = time.perf_counter()
        headers = dict(scope["headers"])
        params: Mapping[str, str] = scope["path_params"]
        if scope.get("encoded"):
            params = {name: unquote(value) for name, value in params.items()}
        request_id = headers.get(b"x-request-id")
        if request_id is None or not REQUEST_ID.match(request_id):
            request_id = f"{self._prefix}-{next(self._numbers):x}".encode()
        extra = [(b"x-request-id", request_id), *more]
        trace = headers.get(b"traceparent")
        if trace is not None and TRACE.match(trace):
            extra.append((b"traceparent", trace))
        key = None
        try:
            key = self.identify(operation, headers)
            self.admit(operation, key, params)
            call = Call(self, key, params, scope["query_string"], headers, receive)
            if call.query:
                check_query(call, operation)
            reply = await operation.handler(call)
            status = await send_reply(reply, extra, receive, send)
        except ServiceError as wrong:
            status = await send_error(wrong, extra, send)
        except Disconnected:
            status = GONE
        except Exception:
            self.metrics.failures.add(operation.path)
            log.exception("a request failed", extra=_about(operation, request_id, trace, 500, start, key))
            rule, remedy = "it was not foreseen", f"look for request {request_id.decode()} in the log of the service"
            failure = ServiceError("internal", "service", "an unexpected failure", rule, remedy)
            status = await send_error(failure, extra, send)
        self.metrics.requests.add(operation.method, operation.path, str(status))
        self.metrics.request_seconds.observe(time.perf_counter() - start, operation.method, operation.path)
        if self.config.access_log:
            log.info("request", extra=_about(operation, request_id, trace, status, start, key))

    async def _unknown_route(self, scope: Scope, receive: Any, send: Send) -> None:
        path = repr(scope["path"][:80])
        remedy = "see /openapi.json for all addresses"
        scope.setdefault("path_params", {})
        wrong = ServiceError("unknown_route", "address", path, "there is nothing", remedy)
        await self.answer(_refusing("(none)", wrong), scope, receive, send)


def _gauges(service: Service) -> list[Gauge]:
    """Return the numbers that are asked for whenever the metrics are read."""
    status = service.engine.status
    return [
        Gauge("spuir_rows_waiting", "Rows that wait to be recorded.", lambda: {(): service.writer.rows_waiting}),
        Gauge("spuir_ready", "1 if decisions can be recorded.", lambda: {(): float(not service.problem())}),
        Gauge("spuir_elected", "1 if this process learns.", lambda: {(): float(status()["elected"])}),
        Gauge(
            "spuir_learner_failures",
            "How often the process that learns died and was started again.",
            lambda: {(): float(status()["learner_failures"])},
        ),
        Gauge(
            "spuir_problems",
            "Experiments that cannot be read or learned; the log of the service says why.",
            lambda: {(): float(len(status()["problems"]))},
        ),
        Gauge(
            "spuir_versions_refused",
            "Versions that were learned and not published, because of a guard or of rows that cannot be learned.",
            lambda: {
                (name,): float(counts.get("versions refused", 0)) for name, counts in status()["experiments"].items()
            },
            ("experiment",),
        ),
    ]


class _Resource:
    """An address with the operations of its methods."""

    def __init__(self, service: Service, path: str, operations: Mapping[str, Operation]) -> None:
        self.service, self.path, self.operations = service, path, operations
        self.common = path.count("{") < 2
        """Whether many requests have this address; addresses of one decision or one person are asked once."""

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:
        operation, routed = self.operations.get(scope["method"]), self.service.routed
        if operation is not None:
            if self.common and len(routed) < MOST_ROUTED:
                routed[scope["path"]] = (self, scope["path_params"])
            await self.service.answer(operation, scope, receive, send)
            return
        allowed = ", ".join(self.operations)
        rule = f"it takes {allowed}"
        wrong = ServiceError("method_not_allowed", "method", scope["method"][:80], rule, "use one of these")
        refusal = _refusing(self.path, wrong)
        await self.service.answer(refusal, scope, receive, send, ((b"allow", allowed.encode()),))


def by_path(operations: Iterable[Operation]) -> dict[str, dict[str, Operation]]:
    """Return operations by address and method."""
    paths: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = operation
    return paths


def _refusing(path: str, wrong: ServiceError) -> Operation:
    """Return the operation that refuses a request which no other one takes."""

    async def refuse(call: Call) -> None:
        raise wrong

    return Operation(method="other", path=path, role=None, summary="", handler=refuse, answers={})


def _check_local(headers: Mapping[bytes, bytes]) -> None:
    """Refuse a request that a page of another site made in a browser on this machine."""
    rule = "without keys only this machine is served"
    if not LOCAL_HOSTS.match(host := headers.get(b"host", b"localhost")):
        raise _forbidden(repr(host.decode("latin-1")[:80]), rule)
    origin = headers.get(b"origin")
    if origin is not None and not LOCAL_ORIGINS.match(origin):
        raise _forbidden(f"a page of {origin.decode('latin-1')[:80]!r}", rule)


def _forbidden(got: str, rule: str) -> ServiceError:
    return ServiceError("forbidden", "caller", got, rule, "use a key that may do this")


def _about(
    operation: Operation, request_id: bytes, trace: bytes | None, status: int, start: float, key: ApiKey | None
) -> dict[str, Any]:
    """Return what a log line says about a request."""
    found = TRACE.match(trace or b"")
    return {
        "request_id": request_id.decode(),
        "trace_id": found[1].decode() if found else None,
        "method": operation.method,
        "route": operation.path,
        "status": status,
        "seconds": round(time.perf_counter() - start, 6),
        "key": None if key is None else key.id,
    }
