"""Routes for machines that watch the service: health, readiness, metrics, and the description of all routes."""

from spuir.errors import ServiceError
from spuir.service.api.operations import Call, Operation, Reply
from spuir.service.api.shapes import ProbeAnswer


async def health(call: Call) -> ProbeAnswer:
    """Say that the process lives."""
    return ProbeAnswer("ok")


async def ready(call: Call) -> ProbeAnswer:
    """Say whether decisions can be recorded now."""
    problem = await call.read(call.service.problem)
    if problem:
        raise ServiceError("not_ready", "service", problem, "it cannot record decisions", "wait, or look into its log")
    return ProbeAnswer("ok")


async def metrics(call: Call) -> Reply:
    """Return the metrics; a key that is limited to experiments sees only theirs."""
    visible = None if call.key.experiments is None else call.key.covers
    text = await call.read(call.service.metrics.text, visible)
    return Reply(text, media=b"text/plain; version=0.0.4; charset=utf-8")


async def description(call: Call) -> Reply:
    """Return the OpenAPI description."""
    return Reply(call.service.description)


OPERATIONS = (
    Operation(
        method="GET",
        path="/health",
        role=None,
        summary="Check that the process is alive",
        handler=health,
        answers={200: ProbeAnswer},
    ),
    Operation(
        method="GET",
        path="/ready",
        role=None,
        summary="Check that decisions can be recorded",
        handler=ready,
        answers={200: ProbeAnswer},
        errors=(503,),
    ),
    Operation(
        method="GET",
        path="/metrics",
        role="read",
        summary="Read the metrics in the text format of Prometheus",
        handler=metrics,
        answers={200: ("text/plain",)},
    ),
    Operation(
        method="GET",
        path="/openapi.json",
        role="any",
        summary="Read this description",
        doc="An OpenAPI 3.1 document, made from the code of the service.",
        handler=description,
        answers={200: dict},
    ),
)
