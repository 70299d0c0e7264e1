"""CSV, plain or compressed: types are inferred once over the beginning, and hold for the rest of the log.

In columns of numbers an empty cell and words such as NA, NaN and null are missing values; in columns of text only an
empty cell is. Numbers may have a decimal comma where the cells are not separated by commas; the beginning of the file
shows which mark they have.
"""

import csv
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from spuir.errors import InputError
from spuir.logs.columns import declaring
from spuir.logs.formats.base import (
    IN_UTF8,
    FileSection,
    FileSurvey,
    Format,
    Request,
    compression,
    ending,
    head,
    open_input,
    open_output,
    opened,
    refusals,
    whole,
)
from spuir.logs.formats.text_files import PREFIX_BYTES, SECTION_BYTES, SPLIT_BYTES, lines_before, split
from spuir.tables.arrow import pa, pc

BLOCK_BYTES = 1 << 22
"""Bytes parsed at a time: cells are cheap to parse, so that the work per batch would keep two workers waiting."""
_DELIMITERS = ",;\t|"
_LONGEST = 131_072
"""Bytes of the header line that are looked at."""


class _Quotes(io.RawIOBase):
    """A stream that counts its quotes: an odd number means that one was never closed."""

    def __init__(self, stream: "pa.NativeFile") -> None:
        self._stream, self.count = stream, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        found = self._stream.read(None if size < 0 else size)
        self.count += found.count(b'"')
        return found


def delimiter_of(path: str, first: bytes) -> str:
    """Return what separates the cells: a tab in .tsv files, else whichever the first line has most of."""
    if ending(path) == ".tsv":
        return "\t"
    line = first[:_LONGEST].split(b"\n", 1)[0].decode("utf-8", "replace")
    outside = "".join(line.split('"')[::2])
    return max(_DELIMITERS, key=outside.count)


def _open(
    source: Any,
    block: int,
    delimiter: str,
    types: "Mapping[str, pa.DataType]",
    columns: list[str] | None = None,
    header: list[str] | None = None,
    decimal: str = ".",
) -> Any:
    """Open Arrow's reader; ``header`` has the names of the columns where the source does not begin with them."""
    from pyarrow import csv as arrow_csv

    return arrow_csv.open_csv(
        source,
        read_options=arrow_csv.ReadOptions(block_size=block, use_threads=False, column_names=header),
        parse_options=arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict(types), include_columns=columns, decimal_point=decimal
        ),
    )


@contextmanager
def _parsing(path: str, section: FileSection, delimiter: str) -> Iterator[None]:
    """Turn what the parser raises into a refusal with the line and, where there is one, the column."""
    try:
        with refusals(path):
            yield
    except pa.ArrowInvalid as error:
        # The last section may hold blank lines only, which the parser refuses to begin with.
        if not section.start or "Empty CSV file" not in str(error):
            _refuse(path, section, delimiter, str(error))


def _refuse(path: str, section: FileSection, delimiter: str, why: str) -> NoReturn:
    row = re.search(r"Row #(\d+)", why)
    place = f", line {_line(path, section, delimiter, int(row[1]))}" if row else ""
    subject = f"file {path!r}{place}"
    if cells := re.search(r"Expected (\d+) columns, got (\d+)", why):
        remedy = "complete or drop that row, and quote cells that hold the delimiter"
        raise InputError(subject, f"{cells[2]} cells", f"every row has {cells[1]}, like the header", remedy)
    if "UTF8" in why:
        raise InputError(subject, "bytes that are not UTF-8", *IN_UTF8)
    if cell := re.search(r"In CSV column #(\d+): .*conversion error to ([^:]*): invalid value '(.*)'", why, re.DOTALL):
        name = _names(path, delimiter)[int(cell[1])]
        rule = f"column {name!r} is read as {cell[2]}, as the log begins"
        remedy = f"correct that cell, or, if it belongs to the context, say {declaring(name, 'string')}"
        raise InputError(subject, repr(cell[3][:60]), rule, remedy)
    raise InputError(subject, why[:160], "it must be a table of cells", "correct that row") from None


def _records(
    path: str, section: FileSection | None, delimiter: str, strict: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Yield the line of a section on which each record begins, and its cells, without blank lines.

    Slow: for headers and refusals only. ``strict`` raises ``csv.Error`` where a quote is never closed.
    """
    with open_input(path, section) as stream, io.TextIOWrapper(stream, "utf-8-sig", "replace", newline="") as text:
        reader = csv.reader(text, delimiter=delimiter, strict=strict)
        line = 1
        for cells in reader:
            if cells:
                yield line, cells
            line = reader.line_num + 1


def _line(path: str, section: FileSection, delimiter: str, record: int) -> int:
    """Return the line in the file of a record of a section, from 1; the header of a file is a record too."""
    last = 1
    for number, (line, _) in enumerate(_records(path, section, delimiter), 1):
        last = line
        if number == record:
            break
    return lines_before(path, section) + last


def locate(path: str, section: FileSection, row: int) -> str:
    """Return the line of a row of a section, as an editor numbers it."""
    header = 0 if section.start else 1
    return f"line {_line(path, section, delimiter_of(path, head(path)), row + header + 1)}"


def _row_ends(path: str, delimiter: str) -> list[int]:
    """Return the offset of a line end outside quotes about every section, none where quotes are used loosely.

    A line end is outside quotes where an even number of quotes comes before it. That holds as long as quotes only open
    at the beginning of a cell; a file with a quote elsewhere (``5" pipe``) is not cut.
    """
    before_opening = np.frombuffer(f'{delimiter}\n\r"'.encode(), np.uint8)
    found: list[int] = []
    offset, quotes, previous = 0, 0, ord("\n")
    with open(path, "rb") as file:
        if file.read(3) == b"\xef\xbb\xbf":
            offset = 3
        file.seek(offset)
        while block := file.read(SECTION_BYTES):
            data = np.frombuffer(block, np.uint8)
            # Most files have no quotes at all, which is found out ten times as fast as where they are.
            marks = np.flatnonzero(data == ord('"')) if b'"' in block else np.empty(0, np.intp)
            opening = marks[quotes % 2 :: 2]
            if not np.isin(np.where(opening > 0, data[opening - 1], previous), before_opening).all():
                return []
            end = block.find(b"\n") if offset >= SECTION_BYTES else -1
            while end >= 0 and (quotes + np.searchsorted(marks, end)) % 2:
                end = block.find(b"\n", end + 1)
            if end >= 0:
                found.append(offset + end + 1)
            offset, quotes, previous = offset + len(block), quotes + len(marks), block[-1]
    return found


def _names(path: str, delimiter: str) -> list[str]:
    return next(_records(path, None, delimiter), (1, []))[1]


def survey(path: str, options: Mapping[str, Any]) -> FileSurvey:
    """Return the columns of a file, their types inferred from its beginning, and its sections."""
    types: Mapping[str, Any] = options.get("types") or {}
    first = head(path, PREFIX_BYTES)
    if not first.strip():
        return FileSurvey(pa.schema([]), ())
    if b"\0" in first:
        raise InputError(f"file {path!r}", "bytes that are not text", *IN_UTF8)
    if mark := re.match(rb"(?:\xef\xbb\xbf)?(sep=.)\r?\n", first, re.IGNORECASE):
        rule, remedy = "the first line names the columns", "remove that line: the delimiter is detected without it"
        raise InputError(f"file {path!r}, line 1", repr(mark[1].decode("utf-8", "replace")), rule, remedy)
    delimiter = options.get("delimiter") or delimiter_of(path, first)
    names = _names(path, delimiter)
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"file {path!r}, line 1", f"column {name!r} twice", "names differ", "rename one of them")
    with _parsing(path, whole(path), delimiter), open_input(path) as stream:
        schema = _open(stream, PREFIX_BYTES, delimiter, types, decimal=decimal_mark(path, delimiter)).schema
        # Names are decoded when asked for; here bytes that are not text become a refusal.
        long = [name for name in schema.names if pa.types.is_floating(schema.field(name).type) and name not in types]
        if long:
            schema = _without_long_numbers(schema, long, path, delimiter)
    for field in schema:
        if pa.types.is_binary(field.type):
            raise InputError(f"file {path!r}, column {field.name!r}", "bytes that are not UTF-8", *IN_UTF8)
    return FileSurvey(schema, split(path, lambda large: _row_ends(large, delimiter)))


def _without_long_numbers(schema: "pa.Schema", names: list[str], path: str, delimiter: str) -> "pa.Schema":
    """Return the schema with text for floats that are whole numbers too long for one, as hashed ids are."""
    with open_input(path) as stream:
        texts = _open(stream, PREFIX_BYTES, delimiter, dict.fromkeys(names, pa.string()), names).read_next_batch()
    for name in names:
        if pc.any(pc.match_substring_regex(texts[name], r"^[+-]?\d{17,}$")).as_py():
            schema = schema.set(schema.get_field_index(name), pa.field(name, pa.string()))
    return schema


def decimal_mark(path: str, delimiter: str) -> str:
    """Return what separates the fraction of a number: a comma where the file begins with such numbers, else a point."""
    if delimiter == ",":
        return "."
    seen = os.stat(path)
    return _decimal_mark(path, delimiter, (seen.st_mtime_ns, seen.st_size))


@lru_cache(maxsize=256)
def _decimal_mark(path: str, delimiter: str, stamp: tuple[int, int]) -> str:
    """Return the decimal mark of a file; ``stamp`` changes when the file does."""

    def types(mark: str) -> "dict[str, pa.DataType]":
        with open_input(path) as stream:
            schema = _open(stream, PREFIX_BYTES, delimiter, {}, decimal=mark).schema
        return dict(zip(schema.names, schema.types, strict=True))

    point, comma = types("."), types(",")
    if any(pa.types.is_floating(point[name]) and not pa.types.is_floating(comma[name]) for name in point):
        return "."
    gained = [name for name in point if pa.types.is_string(point[name]) and pa.types.is_floating(comma[name])]
    if not gained:
        return "."
    with open_input(path) as stream:
        texts = _open(stream, PREFIX_BYTES, delimiter, dict.fromkeys(gained, pa.string()), gained).read_next_batch()
    # Three digits after every comma may be thousands: 1,234.
    fractions = (pc.match_substring_regex(texts[name], r",(\d{1,2}|\d{4,})$") for name in gained)
    return "," if any(pc.any(some).as_py() for some in fractions) else "."


def read(path: str, request: Request) -> "Iterator[pa.RecordBatch]":
    """Yield the batches of a section, types as the request has them."""
    delimiter = request.options.get("delimiter") or delimiter_of(path, head(path))
    types = {name: request.schema.field(name).type for name in request.columns}
    # A cell holds no list; what is to become one is read as the text that it is.
    types = {name: pa.string() if pa.types.is_nested(kind) else kind for name, kind in types.items()}
    texts = [name for name, kind in types.items() if pa.types.is_string(kind)]
    section = request.section
    header = _names(path, delimiter) if section.start else None
    with _parsing(path, section, delimiter), open_input(path, section) as stream:
        source, counted = _counted(path, section, stream)
        decimal = decimal_mark(path, delimiter)
        for batch in _open(source, BLOCK_BYTES, delimiter, types, list(request.columns), header, decimal):
            yield _emptied(batch, texts)
        if counted.count % 2:
            _check_quotes(path, section, delimiter)


def _counted(path: str, section: FileSection, stream: "pa.NativeFile") -> "tuple[Any, _Quotes]":
    """Return a stream to parse, and the stream that counts the quotes in what is parsed."""
    counted = _Quotes(stream)
    if compression(path) is not None or section.bytes > SPLIT_BYTES:
        return counted, counted
    # A section at once: without quotes the parser reads it without calling back, so that workers do not wait in turn.
    data = stream.read()
    if b'"' not in data:
        return pa.BufferReader(data), counted
    counted = _Quotes(pa.BufferReader(data))
    return counted, counted


def _emptied(batch: "pa.RecordBatch", texts: list[str]) -> "pa.RecordBatch":
    """Return a batch whose empty texts are missing values."""
    for name in texts:
        empty = pc.equal(batch[name], "")
        if pc.any(empty).as_py():
            column = pc.if_else(empty, pa.scalar(None, pa.string()), batch[name])
            batch = batch.set_column(batch.schema.get_field_index(name), name, column)
    return batch


def _check_quotes(path: str, section: FileSection, delimiter: str) -> None:
    """Refuse a section whose last quote is never closed, which would swallow every row after it."""
    closed = 0
    try:
        for _ in _records(path, section, delimiter, strict=True):
            closed += 1
    except csv.Error as error:
        if "end of data" in str(error):
            rule, remedy = "every quote is closed", "close it, or double it inside a cell"
            subject = f"file {path!r}, line {_line(path, section, delimiter, closed + 1)}"
            raise InputError(subject, "a quote without end", rule, remedy) from None


def write(batches: "Iterable[pa.RecordBatch]", path: str) -> None:
    """Write batches as CSV, compressed as the ending of the path says; lists become JSON text."""
    from pyarrow import csv as arrow_csv

    first, rest = opened(batches)
    shape = _flat(first).schema
    delimiter = "\t" if ending(path) == ".tsv" else ","
    with (
        open_output(path) as stream,
        arrow_csv.CSVWriter(stream, shape, write_options=arrow_csv.WriteOptions(delimiter=delimiter)) as writer,
    ):
        for batch in rest:
            writer.write_batch(_flat(batch))


def _flat(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """Return a batch whose lists and records are JSON text, since a cell holds no more."""
    for at, field in enumerate(batch.schema):
        if pa.types.is_nested(field.type):
            write = json.JSONEncoder(ensure_ascii=False, default=str).encode
            texts = [None if cell is None else write(cell) for cell in batch[at].to_pylist()]
            batch = batch.set_column(at, field.name, pa.array(texts, pa.string()))
    return batch


def _sniff(path: str, first: bytes) -> bool:
    """Return whether a file is CSV by its ending, or a text file whose first line has tabs, as Excel writes them."""
    return ending(path) in (".csv", ".tsv") or (ending(path) == ".txt" and b"\t" in first.split(b"\n", 1)[0])


FORMAT = Format(
    name="csv",
    summary="comma-separated text with a header, plain, gzip or zstd; also with ;, | or tabs, and in UTF-16",
    endings=(".csv", ".tsv"),
    sniff=_sniff,
    survey=survey,
    read=read,
    write=write,
    options=("types", "delimiter"),
    typed=False,
    locate=locate,
)
