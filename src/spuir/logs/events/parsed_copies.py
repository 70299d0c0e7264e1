"""Text logs whose lines are slow to parse: every section is parsed once, on all cores, and then read from a copy.

A copy is one or more Arrow files in a temporary folder, which is removed with the log. Where there is none (on another
machine, on a full disk, or where a column turned out to have a wider type), the text is parsed again.
"""

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

from spuir.base.processors import cores
from spuir.errors import InputError, SpuirError
from spuir.logs.columns import ACTION_PREFIX, is_action_column
from spuir.logs.events.event_values import wanted_features
from spuir.logs.events.offered_actions import OfferedActions
from spuir.logs.formats.base import BATCH_ROWS, Faults, FileSection, Format, Request
from spuir.logs.temporary import Folder
from spuir.tables.arrow import pa

CHUNK_BYTES = 1 << 25
"""Bytes of parsed rows that are held before they are written."""
PARALLEL_BYTES = 1 << 28
"""Below this, starting processes takes longer than they save."""
MOST_COLUMNS = 10_000
_WORK = "from spuir.logs.events.parsed_copies import work; work()"

SectionKey = tuple[str, int, int]
"""Path, start and bytes."""


def _key(path: str, section: FileSection) -> SectionKey:
    return path, section.start, section.bytes


class Chunk(NamedTuple):
    """A file with parsed rows, and the types of its columns, which are those that have a value."""

    path: str
    types: "dict[str, pa.DataType]"


class ParsedSection(NamedTuple):
    """What was found in a section: columns with the narrowest type that takes every value, rows, lines and faults.

    ``rows`` is None where some value does not fit the type of its column, so that the rows depend on the columns that
    are read. ``chunks`` is None where there is no copy. ``offered`` are the actions of the events with their features;
    columns of features that began to vary later, or in other sections only, are made of them.
    """

    types: "dict[str, pa.DataType]"
    rows: int | None
    lines: int
    faults: Faults
    chunks: tuple[Chunk, ...] | None
    offered: OfferedActions

    def serves(self, request: Request) -> bool:
        """Return whether the copy gives the wanted columns exactly as parsing would."""
        wanted = {name: request.schema.field(name).type for name in request.columns}
        return self.chunks is not None and all(
            _widens(chunk.types[name], kind)
            for chunk in self.chunks
            for name, kind in wanted.items()
            if name in chunk.types
        )

    def read(self, request: Request, blank: float | None) -> "Iterator[pa.RecordBatch]":
        """Yield the rows of the copy; ``blank`` is the value of numbers that a row does not name."""
        fields = [request.schema.field(name) for name in request.columns]
        for chunk in self.chunks or ():
            places = {name: at for at, name in enumerate(chunk.types)}
            needed = {*request.columns, "eligible"} if any(map(is_action_column, request.columns)) else request.columns
            here = [places[name] for name in needed if name in places]
            options = pa.ipc.IpcReadOptions(included_fields=sorted(here))
            with pa.memory_map(chunk.path) as source, pa.ipc.open_file(source, options=options) as reader:
                for batch in map(reader.get_batch, range(reader.num_record_batches)):
                    arrays = [self._wanted(batch, one, blank) for one in fields]
                    fitted = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
                    for start in range(0, fitted.num_rows, request.batch_rows):
                        yield fitted.slice(start, request.batch_rows)

    def _wanted(self, batch: "pa.RecordBatch", field: "pa.Field", blank: float | None) -> "pa.Array":
        known = field.name in batch.schema.names
        if not known and is_action_column(field.name):
            return self.offered.lists(field.name.removeprefix(ACTION_PREFIX), batch["eligible"], field.type)
        array = _cast(batch[field.name], field.type) if known else pa.nulls(batch.num_rows, field.type)
        return array.fill_null(blank) if blank is not None and pa.types.is_floating(field.type) else array


def _widens(narrow: "pa.DataType", wide: "pa.DataType") -> bool:
    """Return whether every value of one type is written the same way in the other."""
    types = pa.types
    if types.is_list(narrow) and types.is_list(wide):
        return _widens(narrow.value_type, wide.value_type)
    numeric = types.is_boolean(narrow) or types.is_integer(narrow)
    return narrow.equals(wide) or (numeric and types.is_floating(wide))


def wider(one: "pa.DataType", other: "pa.DataType") -> "pa.DataType":
    """Return the narrowest type for the values of two: boolean, whole number, number or text."""
    if one.equals(other):
        return one
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(wider(one.value_type, other.value_type))
    return pa.string() if pa.types.is_string(one) or pa.types.is_string(other) else pa.float64()


def add_types(types: "dict[str, pa.DataType]", more: "Mapping[str, pa.DataType]", path: str) -> None:
    """Widen types by those of further rows; refuse too many columns."""
    for name, kind in more.items():
        types[name] = wider(types[name], kind) if name in types else kind
    if len(types) > MOST_COLUMNS:
        rule = f"a log has at most {MOST_COLUMNS:,} columns"
        raise InputError(f"file {path!r}", f"{len(types):,} features", rule, "hash or drop rare features")


class CopyWriter:
    """Writes parsed rows to chunks in a folder; gives up where that cannot be done exactly, or the disk is full."""

    def __init__(self, path: str, folder: str | None, offered: OfferedActions) -> None:
        self.types: dict[str, Any] = {}
        self.rows = 0
        self._path, self._folder, self._chunks, self._offered = path, folder, list[Chunk](), offered
        self._held, self._kinds, self._bytes = list[Any](), dict[str, Any](), 0

    def add(self, arrays: "dict[str, pa.Array]", rows: int, *, fits: bool) -> None:
        """Add some rows, given by columns; with ``fits`` False there will be no copy."""
        self.rows += rows
        batch = pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))
        if not self._held or not batch.schema.equals(self._held[-1].schema):
            kinds = {one.name: one.type for one in batch.schema}
            add_types(self.types, kinds, self._path)
            if self._held and not _fit_together(self._kinds, kinds):
                self._flush()
            self._kinds |= kinds
        if not fits or not arrays:
            self.cancel()
        if self._folder is not None:
            self._held.append(batch)
            self._bytes += batch.nbytes
            if self._bytes >= CHUNK_BYTES:
                self._flush()

    def finish(self) -> tuple[Chunk, ...] | None:
        """Write what is held, and return the chunks; None where there is no copy."""
        self._flush()
        add_types(self.types, self._offered.earlier_types(), self._path)
        self.types = dict(sorted(self.types.items(), key=lambda one: one[0] if is_action_column(one[0]) else ""))
        exact = all(_widens(kind, self.types[name]) for one in self._chunks for name, kind in one.types.items())
        if not exact:
            self.cancel()
        return None if self._folder is None else tuple(self._chunks)

    def _flush(self) -> None:
        held, kinds, self._held, self._kinds, self._bytes = self._held, self._kinds, [], {}, 0
        if self._folder is not None and held:
            tables = [pa.Table.from_batches([batch]) for batch in held]
            self._write(pa.concat_tables(tables, promote_options="default").select(list(kinds)), kinds)

    def _write(self, table: "pa.Table", types: "dict[str, pa.DataType]") -> None:
        try:
            handle, path = tempfile.mkstemp(".arrow", dir=self._folder)
            os.close(handle)
            self._chunks.append(Chunk(path, types))
            with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table.combine_chunks(), max_chunksize=BATCH_ROWS)
        except OSError:
            self.cancel()

    def cancel(self) -> None:
        """Remove what was written, and write no more."""
        for chunk in self._chunks:
            with suppress(OSError):
                os.unlink(chunk.path)
        self._folder, self._chunks, self._held = None, [], []


def _fit_together(kinds: "Mapping[str, pa.DataType]", more: "Mapping[str, pa.DataType]") -> bool:
    """Return whether rows with these columns can be in one chunk: of the same types, and the same action features.

    Where a feature of actions is no column yet, it did not vary so far, and its values are those of the labels.
    """
    same = all(kinds.get(name, kind).equals(kind) for name, kind in more.items())
    return same and wanted_features(kinds) == wanted_features(more)


def _cast(array: "pa.Array", kind: "pa.DataType") -> "pa.Array":
    return array if array.type.equals(kind) else array.cast(kind)


class ParsedCopies:
    """The parsed sections of a log's files; their folder stays with this process."""

    def __init__(self, folder: Folder | None) -> None:
        self.folder = folder
        self.sections: dict[SectionKey, ParsedSection] = {}

    def find(self, path: str, section: FileSection) -> ParsedSection | None:
        """Return what was found in a section; None if it was not parsed."""
        return self.sections.get(_key(path, section))

    def add(self, path: str, section: FileSection, found: ParsedSection) -> None:
        """Keep what was found in a section; sections stay in the order in which they are added."""
        self.sections.pop(_key(path, section), None)
        self.sections[_key(path, section)] = found

    def only(self, path: str, section: FileSection, columns: Sequence[str]) -> "ParsedCopies":
        """Return what a worker needs to read these columns of one section."""
        copies, found = ParsedCopies(self.folder), self.find(path, section)
        if found is not None:
            copies.add(path, section, found._replace(offered=found.offered.only(wanted_features(columns))))
        return copies

    def offered(self) -> OfferedActions:
        """Return the actions of all sections with their features, in the order of the log."""
        every = OfferedActions()
        for found in self.sections.values():
            every.merge(found.offered)
        return every

    def readable(self, path: str, request: Request) -> ParsedSection | None:
        """Return a section whose copy can be read here; None if there is none."""
        found = self.find(path, request.section)
        if (
            found is None
            or not found.serves(request)
            or not all(os.path.exists(one.path) for one in found.chunks or ())
        ):
            return None
        return found


def parse_files(format: Format, paths: Sequence[str], options: Mapping[str, Any]) -> ParsedCopies:
    """Parse the sections of large files in one process per core, and return what was found.

    Small files, and sections whose process fails, are parsed later, by the survey of the file.
    """
    copies, parser = ParsedCopies(Folder()), format.parser
    jobs = [(path, section) for path in paths for section in parser.sections(path)] if parser else []
    workers = min(cores(), len(jobs))
    if workers < 2 or sum(section.bytes for _, section in jobs) < PARALLEL_BYTES or copies.folder is None:
        return copies
    shares = [(format.name, dict(options), copies.folder.path, jobs[at::workers]) for at in range(workers)]
    with ThreadPoolExecutor(workers) as waiting:
        for found in waiting.map(_parse_elsewhere, shares):
            copies.sections |= found
    return copies


def _parse_elsewhere(share: Any) -> dict[SectionKey, ParsedSection]:
    """Parse some sections in a process of our own: those of multiprocessing would run the caller's script again."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-P", "-c", _WORK]
    done = subprocess.run(command, input=pickle.dumps(share), capture_output=True, env=environment, check=False)
    with suppress(EOFError, pickle.UnpicklingError):
        return pickle.loads(done.stdout)
    return {}


def work() -> None:
    """Parse the sections that standard input names, and write what was found to standard output."""
    from spuir.logs.formats import FORMATS

    name, options, folder, jobs = pickle.load(sys.stdin.buffer)
    parser, done = FORMATS.get(name).parser, dict[SectionKey, ParsedSection]()
    for path, section in jobs:
        with suppress(SpuirError):
            done[_key(path, section)] = parser.parse(path, section, options, folder)
    pickle.dump(done, sys.stdout.buffer)
