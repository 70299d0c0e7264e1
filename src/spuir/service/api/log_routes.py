"""Routes that move logs and models out of the service and into it."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from spuir.service.api import shapes
from spuir.service.api.bodies import BINARY, JSON_LINES, decode_lines
from spuir.service.api.experiment_routes import number_in
from spuir.service.api.operations import Call, Operation, Query, Reply
from spuir.service.commands import ImportAnswer, ImportLog, ImportModel, VersionAnswer

PARQUET = "application/vnd.apache.parquet"
PIECE = 1 << 20
"""Bytes of a file that are sent at once."""
_encode = msgspec.json.Encoder()


async def export_log(call: Call) -> Reply:
    """Stream the log."""
    engine, name = call.service.engine, call.experiment
    settled = call.option("settled", {"true": True, "false": False}, False)
    form = call.option("format", {"jsonl": "jsonl", "parquet": "parquet"}, "jsonl")
    await call.read(engine.experiment, name)  # an unknown one is refused before anything is sent
    make = _parquet if form == "parquet" else _lines
    media = PARQUET if form == "parquet" else JSON_LINES[0]
    pieces = _beside(lambda: make(engine.log(name, settled)))
    # The first piece is made before the status is sent, so that what is refused has its own status.
    first = await anext(pieces, b"")
    return Reply(_with_first(first, pieces), media=media.encode())


async def import_log(call: Call) -> ImportAnswer:
    """Record rows from elsewhere."""
    body = await call.body(JSON_LINES, call.service.config.max_import)
    rows = await call.read(decode_lines, body, shapes.log_row)
    size = call.service.config.max_rows
    total = ImportAnswer(recorded=0, duplicates=0)
    for first in range(0, len(rows), size):
        part = ImportLog(experiment=call.experiment, rows=rows[first : first + size])
        done: ImportAnswer = await call.execute(part)
        total = ImportAnswer(recorded=total.recorded + done.recorded, duplicates=total.duplicates + done.duplicates)
    return total


async def export_model(call: Call) -> Reply:
    """Return a version as a model file."""
    given = call.options().get("version")
    version = None if given is None else number_in(given)
    return Reply(await call.read(call.service.engine.model, call.experiment, version), media=BINARY[0].encode())


async def import_model(call: Call) -> VersionAnswer:
    """Take a model file as the next version."""
    content = await call.body(BINARY, call.service.config.max_import)
    return await call.execute(ImportModel(experiment=call.experiment, model=content))


def _lines(blocks: Iterator[list[dict[str, Any]]]) -> Iterator[bytes]:
    for rows in blocks:
        yield _encode.encode_lines(rows)


def _parquet(blocks: Iterator[list[dict[str, Any]]]) -> Iterator[bytes]:
    """Yield a Parquet file; its types are those that the library finds in the log."""
    from spuir.logs import open_log
    from spuir.logs.write import write_log

    with tempfile.TemporaryDirectory(prefix="spuir-export-") as folder:
        lines, target = Path(folder) / "log.jsonl", Path(folder) / "log.parquet"
        with lines.open("wb") as file:
            for rows in blocks:
                file.write(_encode.encode_lines(rows))
        write_log(open_log(lines), target)
        lines.unlink()
        with target.open("rb") as file:
            while piece := file.read(PIECE):
                yield piece


async def _beside(make: Callable[[], Iterator[bytes]]) -> AsyncGenerator[bytes]:
    """Iterate in a thread of its own, beside the event loop; the next piece is made when the last one was sent."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1, "spuir-export") as thread:
        pieces = await loop.run_in_executor(thread, make)
        try:
            while (piece := await loop.run_in_executor(thread, next, pieces, None)) is not None:
                yield piece
        finally:
            await loop.run_in_executor(thread, getattr(pieces, "close", lambda: None))


async def _with_first(first: bytes, rest: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    try:
        yield first
        async for piece in rest:
            yield piece
    finally:
        await rest.aclose()


_ONE = "/v1/experiments/{name}"
OPERATIONS = (
    Operation(
        method="GET",
        path=f"{_ONE}/log",
        role="read",
        summary="Download the log",
        doc="Decisions with their rewards, in the order of decisions, as the library's log formats have them.",
        handler=export_log,
        query=(
            Query(
                name="format",
                doc="JSON lines, or a Parquet file.",
                schema={"enum": ["jsonl", "parquet"], "default": "jsonl"},
            ),
            Query(
                name="settled",
                doc="Whether to leave out decisions that can still change.",
                schema={"enum": ["true", "false"], "default": "false"},
            ),
        ),
        answers={200: (JSON_LINES[0], PARQUET)},
        errors=(400,),
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/log",
        role="admin",
        summary="Import rows of a log",
        doc="One row per line, decided and rewarded elsewhere. They are learned with the episode that is open. "
        "Rows with a `decision_id` can be sent again: those that are known are counted and left alone.",
        handler=import_log,
        media=JSON_LINES,
        answers={200: ImportAnswer},
        errors=(409,),
    ),
    Operation(
        method="GET",
        path=f"{_ONE}/model",
        role="read",
        summary="Download a model",
        doc="A file for `spuir.load`.",
        handler=export_model,
        query=(
            Query(
                name="version",
                doc="Number of the version; the one that is served if it is left out.",
                schema={"type": "integer", "minimum": 0},
            ),
        ),
        answers={200: BINARY},
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/model",
        role="admin",
        summary="Import a model",
        doc="A file that `Bandit.save` wrote becomes the next version.",
        handler=import_model,
        media=BINARY,
        answers={200: VersionAnswer},
        errors=(409,),
    ),
)
