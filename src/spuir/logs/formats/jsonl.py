"""JSON lines, plain or compressed: one object per line; types are inferred once over the beginning."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from math import isnan
from typing import Any, NoReturn

from spuir.errors import InputError
from spuir.logs.columns import declaring
from spuir.logs.formats.base import FileSection, FileSurvey, Format, Request, ending, head, open_output
from spuir.logs.formats.text_files import PREFIX_BYTES, line_blocks, line_ends, lines_before, split
from spuir.tables.arrow import pa

_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')
"""A text, or a bracket outside of texts."""

DEEPEST = 2048
"""Levels of objects and lists in a line; with some tens of thousands Arrow's parser ends the whole process."""


def _check_depth(path: str, before: Callable[[], int], lines: bytes) -> None:
    """Refuse a line that is nested too deeply; ``before`` returns the number of lines before these."""
    for start, stop in _long_lines(lines):
        brackets = lines.count(b"[", start, stop) + lines.count(b"{", start, stop)
        if brackets > DEEPEST and _depth(lines[start:stop]) > DEEPEST:
            line = before() + lines.count(b"\n", 0, start) + 1
            rule = f"objects and lists are nested at most {DEEPEST:,} levels deep"
            got, remedy = f"{brackets:,} opening brackets", "correct or drop that line"
            raise InputError(f"file {path!r}, line {line}", got, rule, remedy)


def _long_lines(lines: bytes) -> Iterator[tuple[int, int]]:
    """Yield where the lines that are long enough to be nested too deeply begin and end; others are skipped."""
    start = 0
    while start + DEEPEST < len(lines):
        stop = lines.rfind(b"\n", start, start + DEEPEST + 1)
        if stop < 0:
            stop = lines.find(b"\n", start)
            stop = len(lines) if stop < 0 else stop
            yield start, stop
        start = stop + 1


def _depth(text: bytes) -> int:
    """Return the levels of objects and lists in a line; brackets within texts do not count."""
    steps = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}
    return max(accumulate(steps.get(found, 0) for found in _BRACKETS.findall(text)), default=0)


def _parse(lines: bytes, schema: "pa.Schema | None") -> "pa.Table":
    from pyarrow import json as arrow_json

    return arrow_json.read_json(
        pa.BufferReader(lines),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else "error"
        ),
    )


def _refuse(path: str, line: int, lines: bytes, schema: "pa.Schema | None") -> NoReturn:
    """Refuse the first line that cannot be parsed; a prefix fails if and only if it holds one."""
    every = lines.split(b"\n")
    low, high = 0, len(every)
    while high - low > 1:
        middle = (low + high) // 2
        # With the line before it, which an inferred type has to agree with.
        block = b"\n".join(every[(low if schema is not None else 0) : middle])
        try:
            if block.strip():
                _parse(block, schema)
            low = middle
        except pa.ArrowInvalid:
            high = middle
    _refuse_line(f"file {path!r}, line {line + low}", every[low].decode("utf-8", "replace"), schema)


def _refuse_line(subject: str, text: str, schema: "pa.Schema | None") -> NoReturn:
    """Say what is wrong with a line: no object, a key that the log did not begin with, or a value of another type."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        rule = "every line is one JSON object"
        raise InputError(subject, repr(text[:60]), rule, "correct or drop that line") from None
    for name, value in found.items():
        if schema is not None and name not in schema.names:
            rule, remedy = (
                "the log does not begin with such a key",
                f"declare it: {declaring(name, 'float64')}, or string",
            )
            raise InputError(subject, f"key {name!r}", rule, remedy) from None
        kind = None if schema is None else pa.schema([schema.field(name)])
        try:
            _parse(json.dumps({name: value}).encode(), kind)
        except pa.ArrowInvalid:
            rule = f"column {name!r} is read as {kind.field(0).type if kind else 'one type'}, as the log begins"
            remedy = f"correct that line, or declare another type: {declaring(name, 'float64')}, or string"
            raise InputError(subject, repr(value)[:60], rule, remedy) from None
    rule = "a key has one type in all lines, and occurs once per line"
    raise InputError(subject, repr(text[:60]), rule, "correct that line") from None


def survey(path: str, options: Mapping[str, Any]) -> FileSurvey:
    """Return the keys of a file as columns, their types inferred from its beginning, and its sections."""
    first = head(path, PREFIX_BYTES)
    lines = first if len(first) < PREFIX_BYTES else first[: first.rfind(b"\n") + 1]
    if not first.strip():
        return FileSurvey(pa.schema([]), ())
    if not lines:
        rule = f"a line has less than {PREFIX_BYTES >> 20} MiB"
        raise InputError(f"file {path!r}, line 1", "no end of it", rule, "put each object on its own line")
    types: Mapping[str, Any] = options.get("types") or {}
    _check_depth(path, lambda: 0, lines)
    try:
        schema = _parse(lines, None).schema
    except pa.ArrowInvalid:
        _refuse(path, 1, lines, None)
    for name, kind in types.items():
        at = schema.get_field_index(name)
        schema = schema.append(pa.field(name, kind)) if at < 0 else schema.set(at, pa.field(name, kind))
    return FileSurvey(schema, split(path, line_ends))


def read(path: str, request: Request) -> "Iterator[pa.RecordBatch]":
    """Yield the batches of a section, types as the request has them."""
    for line, text, _ in line_blocks(path, request.section):
        lines = bytes(text)
        if not lines.strip():
            continue
        _check_depth(path, lambda line=line: lines_before(path, request.section) + line - 1, lines)
        try:
            table = _parse(lines, request.schema)
        except pa.ArrowInvalid:
            _refuse(path, lines_before(path, request.section) + line, lines, request.schema)
        yield from table.select(list(request.columns)).to_batches(request.batch_rows)


def locate(path: str, section: FileSection, row: int) -> str:
    """Return the line of a row of a section, as an editor numbers it."""
    seen, last = 0, 1
    for block in line_blocks(path, section):
        for last, text in enumerate(block.lines(), block.first):
            seen += bool(text.strip())
            if seen > row:
                return f"line {lines_before(path, section) + last}"
    return f"line {lines_before(path, section) + last}"


def write(batches: "Iterable[pa.RecordBatch]", path: str) -> None:
    """Write batches as JSON lines, compressed by the ending of the path; missing values are null, times ISO text."""
    with open_output(path) as stream:
        for batch in batches:
            stream.write("".join(_line(row) for row in batch.to_pylist()).encode())


def _line(row: dict[str, Any]) -> str:
    """Return one object as a line; JSON has no word for NaN, which is missing, nor for infinity, which is refused."""
    cells = {name: None if isinstance(cell, float) and isnan(cell) else cell for name, cell in row.items()}
    try:
        return json.dumps(cells, ensure_ascii=False, allow_nan=False, default=_text) + "\n"
    except ValueError:
        found = next((name for name, cell in cells.items() if not _sayable(cell)), "a value")
        got, rule = f"{found} = {str(cells.get(found))[:60]}", "JSON has no infinite numbers, nor NaN within a list"
        raise InputError("row", got, rule, "write Parquet or CSV, or correct that number") from None


def _sayable(cell: Any) -> bool:
    try:
        json.dumps(cell, allow_nan=False, default=_text)
    except ValueError:
        return False
    return True


def _text(value: Any) -> str:
    """Return a date or an instant as ISO text, and anything else as it prints."""
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _sniff(path: str, first: bytes) -> bool:
    return ending(path) in (".jsonl", ".ndjson") or (ending(path) == ".json" and first.lstrip()[:1] == b"{")


FORMAT = Format(
    name="jsonl",
    summary="JSON lines: one object per line, plain, gzip or zstd",
    endings=(".jsonl", ".ndjson", ".json"),
    sniff=_sniff,
    survey=survey,
    read=read,
    write=write,
    options=("types",),
    typed=False,
    locate=locate,
)
