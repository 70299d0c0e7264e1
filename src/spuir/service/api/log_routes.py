"""Routes that move logs and models out of the service and into it."""

import asyncio
import re
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from spuir.errors import ServiceError, SpuirError
from spuir.logs.columns import COLUMNS
from spuir.service.api import shapes
from spuir.service.api.bodies import BINARY, JSON_LINES, at_line, decode, decode_lines
from spuir.service.api.experiment_routes import number_in
from spuir.service.api.operations import Call, Operation, Query, Reply
from spuir.service.api.refusals import wrong_shape
from spuir.service.commands import ExperimentAnswer, ImportAnswer, ImportLog, ImportModel, LogRow
from spuir.service.settings import NumberContext
from spuir.tables.raw_columns import as_text

PARQUET = "application/vnd.apache.parquet"
PART = 10_000
"""Rows of an import that are recorded at once."""
PIECE = 1 << 20
"""Bytes of a file that are sent at once."""
_LABELS = ("action", "eligible")
"""Columns that hold labels, which have one type in both."""
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
    """Record rows from elsewhere, in parts, so that decisions are taken in between."""
    body = await call.body(JSON_LINES, call.service.config.max_import)
    about = await call.read(call.service.engine.experiment, call.experiment)
    context = about.settings.context
    numbers = None if context is None else isinstance(context, NumberContext)
    rows, lines = await call.read(decode_lines, body, lambda line: _log_row(decode(line, shapes.log_line), numbers))
    total = ImportAnswer(recorded=0, duplicates=0)
    for first in range(0, len(rows), PART):
        part = ImportLog(experiment=call.experiment, rows=rows[first : first + PART])
        try:
            done: ImportAnswer = await call.execute(part)
        except ServiceError as refused:
            raise _placed(refused, first, lines) from None
        total.recorded += done.recorded
        total.duplicates += done.duplicates
    return total


def _placed(refused: ServiceError, first: int, lines: list[int]) -> ServiceError:
    """Return the refusal of a part of an import with its line, and say what became of the parts before."""
    found = re.match(r"rows\[(\d+)\]", refused.where or "")
    placed = at_line(refused, lines[first + int(found[1])]) if found else refused
    if not first:
        return placed
    remedy = f"{refused.remedy}, and send all again: the first {first:,} rows are recorded, and will be known"
    return ServiceError(placed.code, placed.subject, placed.got, placed.rule, remedy, placed.where)


def _log_row(row: dict[str, Any], numbers: bool | None) -> LogRow:
    """Return a row as the engine takes it; the columns of an exported log are gathered into its context.

    ``numbers`` says whether contexts of the experiment are lists of numbers; None if nobody has said so yet.
    """
    if "context" not in row:
        if any(name.startswith("action.") and type(value) is list for name, value in row.items()):
            rule, remedy = "only contexts can be imported", "drop the columns action.*"
            raise ServiceError("unsupported", "row", "features of actions per decision", rule, remedy)
        context = {name.removeprefix("context_"): row[name] for name in row if name not in COLUMNS}
        names = [f"x{at}" for at in range(len(context))]
        listed = numbers is not False and list(context) == names and bool(names)
        kept = {name: row[name] for name in row if name in LogRow.__struct_fields__}
        row = {**kept, "context": list(context.values()) if listed else context}
    try:
        return msgspec.convert(row, shapes.LogLine)
    except msgspec.ValidationError as wrong:
        raise wrong_shape(wrong, row) from None


async def export_model(call: Call) -> Reply:
    """Return a version as a model file."""
    given = call.options().get("version")
    version = None if given is None else number_in(given)
    return Reply(await call.read(call.service.engine.model, call.experiment, version), media=BINARY[0].encode())


async def import_model(call: Call) -> ExperimentAnswer:
    """Take a model file as the next version."""
    content = await call.body(BINARY, call.service.config.max_import)
    return await call.execute(ImportModel(experiment=call.experiment, model=content))


def _lines(blocks: Iterator[list[dict[str, Any]]]) -> Iterator[bytes]:
    for rows in blocks:
        yield _encode.encode_lines(rows)


def _parquet(blocks: Iterator[list[dict[str, Any]]]) -> Iterator[bytes]:
    """Yield a Parquet file; its types fit all values of the log.

    A column of a Parquet file has one type. Texts among other values make all of them texts, as levels are; flags among
    numbers are 0 and 1.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        rule, remedy = "Parquet needs it", "download JSON lines, or install spuir[data] where the service runs"
        raise ServiceError("unsupported", "format", "no pyarrow", rule, remedy, "format") from None
    from spuir.logs import open_log
    from spuir.logs.write import write_log

    with tempfile.TemporaryDirectory(prefix="spuir-export-") as folder:
        lines, target = Path(folder) / "log.jsonl", Path(folder) / "log.parquet"
        seen: dict[str, set[type]] = {}
        with lines.open("wb") as file:
            for rows in blocks:
                file.write(_encode.encode_lines(rows))
                _look_at_types(rows, seen)
        labels = set[type]().union(*(seen.get(name, set()) - {list} for name in _LABELS))
        seen |= {name: seen[name] | labels for name in _LABELS if name in seen}
        changes = {name: change for name, kinds in seen.items() if (change := _to_one_type(kinds)) is not None}
        if changes:
            lines = _changed(lines, changes)
        types = {name: _parquet_type(kinds) for name, kinds in seen.items() if name not in COLUMNS or name in changes}
        try:
            if lines.stat().st_size:
                write_log(open_log(lines, types={name: kind for name, kind in types.items() if kind}), target)
            else:
                _write_empty(target)
        except SpuirError as wrong:
            got = str(wrong).replace(f"file {str(lines)!r}, ", "")[:200].rstrip(".")
            rule, remedy = "a Parquet file cannot hold it", "download the log as JSON lines"
            raise ServiceError("unsupported", "format", got, rule, remedy, "format") from None
        lines.unlink()
        with target.open("rb") as file:
            while piece := file.read(PIECE):
                yield piece


def _look_at_types(rows: list[dict[str, Any]], seen: dict[str, set[type]]) -> None:
    """Note the types of values, which may be missing for long before the first one, and those in lists."""
    for row in rows:
        for name, value in row.items():
            if value is not None:
                kinds = seen.setdefault(name, set())
                kinds.add(type(value))
                if type(value) is list:
                    kinds.update(map(type, value))


def _to_one_type(kinds: set[type]) -> Callable[[Any], Any] | None:
    """Return what gives values of several types one, as an encoder reads them; None if they need no change."""
    values = kinds - {list}
    if str in values and len(values) > 1:
        return as_text
    return float if bool in values and len(values) > 1 else None


def _changed(lines: Path, changes: dict[str, Callable[[Any], Any]]) -> Path:
    """Return a file whose values of some columns are changed."""
    target = lines.with_name("changed.jsonl")
    with lines.open("rb") as source, target.open("wb") as file:
        for line in source:
            row = msgspec.json.decode(line)
            for name, change in changes.items():
                value = row.get(name)
                if value is not None:
                    row[name] = [change(one) for one in value] if type(value) is list else change(value)
            file.write(_encode.encode(row) + b"\n")
    lines.unlink()
    return target


def _parquet_type(kinds: set[type]) -> str | None:
    """Return the type of a column with values of these types; None if it is left to the library."""
    if list in kinds:
        return None
    if str in kinds:
        return "string"
    return "float64" if len(kinds) > 1 or float in kinds else "bool" if bool in kinds else "int64"


def _write_empty(path: Path) -> None:
    """Write a Parquet file without rows; a log without rows has no types that could be found."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ("decision_id", "time", "action", "reward", "propensity")
    pq.write_table(pa.table({name: pa.nulls(0, pa.string()) for name in names}), path)


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
        doc="One row per line, decided and rewarded elsewhere: one with `context`, or a line of a downloaded log. "
        "They are learned with the episode that is open. An import can be sent again: rows whose `decision_id` is "
        "known are counted and left alone.",
        handler=import_log,
        media=JSON_LINES,
        example='{"decision_id": "i1", "context": [0.5, -1.0, 2.0], "action": "red", "reward": 1.0}\n',
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
        answers={200: ExperimentAnswer},
        errors=(409,),
    ),
)
