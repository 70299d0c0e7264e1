"""What a log format is: how to recognise its files, survey them, read a section of one, and write one.

To add a format: its file with a :class:`Format` called ``FORMAT``, and one line in the registry.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spuir.errors import InputError
from spuir.tables.arrow import pa

if TYPE_CHECKING:
    from spuir.logs.events.line_reader import LineReader

HEAD_BYTES = 65_536
"""Bytes that a format is shown of a file when asked whether it is its own."""
BATCH_ROWS = 65_536
"""Rows of a record batch, about."""
SHOWN_FAULTS = 20
"""Broken rows that are kept to be shown; more are only counted."""
IN_UTF8 = (
    "a text file is in UTF-8 or UTF-16",
    "save it as UTF-8, in Excel as “CSV UTF-8”, or convert it: iconv -f latin1 -t utf-8 OLD > NEW",
)
"""The rule for the encoding of text files, and the remedy."""
UTF_16 = "utf-16"
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xff\xfe": UTF_16, b"\xfe\xff": UTF_16}
_ENDINGS = {".gz": "gzip", ".zst": "zstd"}


class FileSection(NamedTuple):
    """A section of a file that can be read alone: a row group, a record batch, or some lines.

    ``rows`` and ``first_row`` (the number of its first row in the file) are None if it is known only after reading.
    ``start`` is the offset of its first byte, for text files.
    """

    number: int
    rows: int | None
    bytes: int
    first_row: int | None = 0
    start: int = 0


@dataclass(frozen=True)
class FileSurvey:
    """What one file holds: its columns as they are called there, and the sections that can be read alone."""

    schema: "pa.Schema"
    sections: tuple[FileSection, ...]


class Fault(NamedTuple):
    """A broken row that was skipped: the file, the line as an editor numbers it, and what is wrong."""

    path: str
    line: int
    why: str


@dataclass
class Faults:
    """Broken rows that a reader skipped: all counted, the first few kept; ``skipped`` counts rows that are not used."""

    count: int = 0
    first: list[Fault] = field(default_factory=list[Fault])
    skipped: dict[str, int] = field(default_factory=dict[str, int])
    _by_path: dict[str, int] = field(default_factory=dict[str, int], repr=False)

    def add(self, path: str, line: int, why: str) -> None:
        """Count one broken row."""
        self.count += 1
        self._by_path[path] = self._by_path.get(path, 0) + 1
        if len(self.first) < SHOWN_FAULTS:
            self.first.append(Fault(path, line, why))

    @property
    def events(self) -> int:
        """How many rows were broken or skipped."""
        return self.count + sum(self.skipped.values())

    def merge(self, other: "Faults") -> None:
        """Add the rows that another reader skipped."""
        self.count += other.count
        self.first += other.first[: max(SHOWN_FAULTS - len(self.first), 0)]
        for own, more in ((self.skipped, other.skipped), (self._by_path, other._by_path)):
            for name, count in more.items():
                own[name] = own.get(name, 0) + count

    def moved(self, lines: int) -> "Faults":
        """Return the same faults, with their line numbers increased by ``lines``."""
        return replace(self, first=[one._replace(line=one.line + lines) for one in self.first])

    def skip(self, why: str) -> None:
        """Count one row that is fine but holds nothing to learn from, by reason."""
        self.skipped[why] = self.skipped.get(why, 0) + 1

    def check(self, path: str, rows: int, share: float = 0.01) -> None:
        """Refuse a file if more than ``share`` of its ``rows`` rows are broken."""
        broken = self._by_path.get(path, 0)
        if broken > share * rows:
            shown = [fault for fault in self.first if fault.path == path][:3]
            where = "; ".join(f"line {fault.line}: {fault.why}" for fault in shown)
            got = f"{broken} broken rows of {rows}" + (f" ({where})" if where else "")
            raise InputError(f"file {path!r}", got, f"at most {share:.0%} may be broken", "repair or drop these lines")


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a format is asked to read of a file.

    Parameters
    ----------
    schema
        The columns of the whole log, named as in the files, types made one over all of them.
    columns
        The wanted ones, in the order in which they are wanted.
    section
        The section of the file.
    batch_rows
        Rows of a batch, about.
    options
        What the caller gave beyond this, by names that the format lists in its ``options``; and ``copies``, the parsed
        sections of a format with a ``parser``.
    faults
        Takes the rows that are skipped because they are broken.
    """

    schema: "pa.Schema"
    columns: tuple[str, ...]
    section: FileSection
    batch_rows: int = BATCH_ROWS
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    faults: Faults = field(default_factory=Faults)


@dataclass(frozen=True, kw_only=True)
class Format:
    """How one kind of log is read and written.

    Parameters
    ----------
    name, summary
        The registered name, and one line for the documentation.
    sniff
        Decides from the path and the first bytes, uncompressed, whether a text file is of this format.
    survey
        Returns what a file holds, given its path and the options; None for a format that lives in memory only.
    read
        Yields the record batches of one section of a file, in order and in bounded memory.
    write
        Writes canonical record batches to a file, given its path and options; None where that makes no sense.
    claims, convert
        Returns whether an object in memory is of this format, and turns it (with options) into a table.
    export
        Turns a canonical table (with options) into the object in memory.
    options
        Names that ``open_log`` hands through to ``survey``, ``read`` and ``convert``.
    endings
        Endings of its files, without those of a packing; the first format with an ending writes it.
    typed
        Whether files carry the types of their columns; where they do not, types are inferred and may be widened.
    sparse
        Whether every row has only the columns that it names; a column that a file lacks is not reported as missing.
    write_options
        Names that ``write_log`` hands through to ``write``.
    locate
        Returns "line 17" for a file, a section of it and the number of a row in that section, from 0; None = rows are
        numbered.
    parser
        Parses sections of text that are slow to parse, so that this is done once, and on all cores; None = reading is
        fast.
    """

    name: str
    summary: str
    sniff: Callable[[str, bytes], bool] = lambda path, first: False
    survey: Callable[[str, Mapping[str, Any]], FileSurvey] | None = None
    read: "Callable[[str, Request], Iterator[pa.RecordBatch]] | None" = None
    write: "Callable[..., None] | None" = None
    claims: Callable[[Any], bool] = lambda source: False
    convert: "Callable[[Any, Mapping[str, Any]], pa.Table] | None" = None
    export: "Callable[[pa.Table, Mapping[str, Any]], Any] | None" = None
    options: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()
    typed: bool = True
    sparse: bool = False
    write_options: tuple[str, ...] = ()
    locate: Callable[[str, FileSection, int], str] | None = None
    parser: "LineReader | None" = None

    @property
    def lenient(self) -> bool:
        """Whether broken rows are left out, up to a share of them, where other formats refuse the file."""
        return "broken_share" in self.options


@contextmanager
def refusals(path: str) -> Iterator[None]:
    """Turn what the file system and the decompressors raise into refusals that name the file."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise InputError(f"file {path!r}", f"byte {error.object[error.start]:#04x}", *IN_UTF8) from error
    except OSError as error:
        packed = "compress" in str(error).lower() or "inflate" in str(error).lower()
        rule = "a compressed file must be complete" if packed else "the file must be readable"
        remedy = "get the file again" if packed else "check the path"
        raise InputError(f"file {path!r}", error.strerror or str(error), rule, remedy) from error


@contextmanager
def whole_file(path: str, kind: str) -> Iterator[None]:
    """Turn what a damaged file of a binary format ("a Parquet") raises into a refusal."""
    try:
        with refusals(path):
            yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        got = str(error).splitlines()[0][:120].rstrip(".")
        raise InputError(
            f"file {path!r}", got, f"it must be {kind} file, and whole", "write or get it again"
        ) from error


def compression(path: str) -> str | None:
    """Return how the text of a file is packed, by its first bytes: "gzip", "zstd", "utf-16" or None for UTF-8."""
    with refusals(path), open(path, "rb") as raw:
        first = raw.read(4)
    return next((name for magic, name in _MAGIC.items() if first.startswith(magic)), None)


def open_input(path: str, section: FileSection | None = None) -> "pa.NativeFile":
    """Open a text file, or one section of it, as uncompressed bytes in UTF-8; use it in a ``with``."""
    packing = compression(path)
    with refusals(path):
        if packing == UTF_16:  # what Excel calls Unicode text
            return pa.transcoding_input_stream(pa.OSFile(path), UTF_16, "utf-8")
        if section is None or packing is not None:
            return pa.input_stream(path, compression=packing)
        return pa.OSFile(path).get_stream(section.start, section.bytes)


def open_output(path: str) -> "pa.NativeFile":
    """Open a file to write bytes to, packed as its ending (.gz, .zst) says; use it in a ``with``."""
    return pa.output_stream(path, compression=_ENDINGS.get(Path(path).suffix.lower()))


def head(path: str, size: int = HEAD_BYTES) -> bytes:
    """Return the first bytes of a file, unpacked."""
    with refusals(path), open_input(path) as stream:
        return stream.read(size)


def opened(batches: "Iterable[pa.RecordBatch]") -> "tuple[pa.RecordBatch, Iterator[pa.RecordBatch]]":
    """Return the first batch, which has the columns, and all batches; refuse an empty stream."""
    every = iter(batches)
    first = next(every, None)
    if first is None:
        raise InputError("batches", "none", "the first batch has the columns", "pass an empty batch for an empty log")
    return first, chain([first], every)


def grouped(
    batches: "Iterable[pa.RecordBatch]", least: int, size: "Callable[[pa.RecordBatch], int]" = lambda one: one.num_rows
) -> "Iterator[list[pa.RecordBatch]]":
    """Yield the batches in groups of at least this size, except for the last; ``size`` counts rows by default."""
    group: list[pa.RecordBatch] = []
    total = 0
    for batch in batches:
        group.append(batch)
        total += size(batch)
        if total >= least:
            yield group
            group, total = [], 0
    if group:
        yield group


def ending(path: str) -> str:
    """Return the ending of a path in lower case, without the ending of a packing (.gz, .zst)."""
    name = Path(path)
    return (name.with_suffix("") if name.suffix.lower() in _ENDINGS else name).suffix.lower()


def whole(path: str) -> FileSection:
    """Return the one section of a file that cannot be read in sections."""
    with refusals(path):
        return FileSection(0, None, os.stat(path).st_size)


def with_names(seen: FileSurvey, names: Mapping[str, str], left_out: tuple[str, ...] = ()) -> FileSurvey:
    """Return a survey with canonical names; ``left_out`` columns have no place in the log."""
    fields = [one.with_name(names.get(one.name, one.name)) for one in seen.schema if one.name not in left_out]
    return replace(seen, schema=pa.schema(fields))


def read_with_names(
    read: "Callable[[str, Request], Iterator[pa.RecordBatch]]", path: str, request: Request, names: Mapping[str, str]
) -> "Iterator[pa.RecordBatch]":
    """Yield what a general format reads, under canonical names; ``names`` gives these for the file's own."""
    own = {new: old for old, new in names.items()}
    schema = pa.schema([one.with_name(own.get(one.name, one.name)) for one in request.schema])
    columns = tuple(own.get(name, name) for name in request.columns)
    for batch in read(path, replace(request, schema=schema, columns=columns)):
        yield batch.rename_columns([names.get(name, name) for name in batch.schema.names])
