"""Files of one event per line: surveyed by parsing them once, and read from the parsed copy or from the text."""

import gc
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spuir.base.process_settings import ProcessSetting
from spuir.errors import InputError, ParameterError
from spuir.logs.events.event_rows import EventRows, LineParser
from spuir.logs.events.parsed_copies import CopyWriter, ParsedSection, add_types
from spuir.logs.formats.base import BATCH_ROWS, Faults, FileSection, FileSurvey, Request, whole
from spuir.logs.formats.text_files import line_blocks, lines_before, split
from spuir.tables.arrow import pa

BLOCK_BYTES = 3 << 18
"""Bytes that are split into lines at once: what waits as Python objects stays in the processor's cache."""
LONGEST_LINE = 1 << 26
BROKEN_SHARE = 0.01
"""The share of broken lines above which a file is refused, unless the option ``broken_share`` says otherwise."""


def canonical_types() -> "dict[str, pa.DataType | None]":
    """Return the types of the canonical columns; None = by what they hold."""
    text, number, instant = pa.string(), pa.float64(), pa.timestamp("us", "UTC")
    kinds = {"decision_id": text, "time": instant, "episode": None, "action": text, "reward": number}
    kinds |= {"propensity": number, "probabilities": pa.list_(number), "eligible": pa.list_(text)}
    kinds |= {"reward_time": instant, "policy_version": text, "weight": number, "position": pa.int64()}
    return kinds | {"unit_id": None}


@dataclass(frozen=True, kw_only=True)
class LineReader:
    """Reads the files of a format of events.

    Parameters
    ----------
    parser
        Makes the parser of a section, given the path, the options, and what takes broken and skipped lines.
    types
        Returns the types of canonical columns that differ from :func:`canonical_types`, given the options.
    cuts
        Returns the offsets at which a file can be cut; None = its events depend on each other.
    blank
        What a row has in a column of numbers that it does not name; None = nothing.
    """

    parser: Callable[[str, Mapping[str, Any], Faults], LineParser]
    types: "Callable[[Mapping[str, Any]], dict[str, pa.DataType]]" = lambda options: {}
    cuts: Callable[[str], list[int]] | None = None
    blank: float | None = None

    def sections(self, path: str) -> tuple[FileSection, ...]:
        """Return the sections of a file."""
        return (whole(path),) if self.cuts is None else split(path, self.cuts)

    def survey(self, path: str, options: Mapping[str, Any]) -> FileSurvey:
        """Return the columns that the events of a file have, and its sections; every line is parsed."""
        copies = options.get("copies")
        faults, types, sections = Faults(), dict[str, Any](), list[FileSection]()
        rows, lines, first_row = 0, 0, 0
        for section in self.sections(path):
            found: ParsedSection | None = copies.find(path, section) if copies else None
            if found is None:
                found = self.parse(path, section, options, copies.folder.path if copies else None)
            found = found._replace(faults=found.faults.moved(lines))
            if copies:
                copies.add(path, section, found)
            sections.append(section._replace(rows=found.rows, first_row=first_row))
            first_row = None if first_row is None or found.rows is None else first_row + found.rows
            rows, lines = rows + (found.rows or 0), lines + found.lines
            add_types(types, found.types, path)
            faults.merge(found.faults)
        events = rows + faults.events
        faults.check(path, events, _share(options))
        if not events and all(section.rows is not None for section in sections):
            return FileSurvey(pa.schema([]), ())
        known = self._known(options)
        # An action and a reward are always there, other canonical columns where some row has a value.
        always = {name: known[name] for name in ("action", "reward")}
        names = [name for name in known if name in types or name in always]
        names += [name for name in types if name not in known]
        fields = [pa.field(name, types[name] if name in types else always[name]) for name in names]
        return FileSurvey(pa.schema(fields), tuple(sections))

    def _known(self, options: Mapping[str, Any]) -> "dict[str, pa.DataType | None]":
        return canonical_types() | self.types(options)

    def parse(self, path: str, section: FileSection, options: Mapping[str, Any], folder: str | None) -> ParsedSection:
        """Parse a section, and write a copy of it to a folder."""
        fixed = {**self._known(options), **(options.get("types") or {})}
        faults, rows, lines, fits = Faults(), EventRows(), 0, True
        parser = self.parser(path, options, faults)
        offered = parser.offered
        writer = CopyWriter(path, folder, offered)
        for done in _gather(path, section, parser, rows, faults):
            count, lines = len(rows), done
            offered.settle(rows=writer.rows > 0)
            if count:
                arrays, fitting = rows.inferred(fixed, sorted(offered.varying))
                fits = fits and fitting
                writer.add(arrays, count, fits=fits)
        chunks = writer.finish()
        return ParsedSection(writer.types, writer.rows if fits else None, lines, faults, chunks, offered)

    def read(self, path: str, request: Request) -> "Iterator[pa.RecordBatch]":
        """Yield the batches of a section, from its copy if there is one."""
        copies = request.options.get("copies")
        found: ParsedSection | None = copies.readable(path, request) if copies else None
        if found is None:
            yield from self._parsed(path, request)
        else:
            yield from found.read(request, self.blank)
            request.faults.merge(found.faults)

    def _parsed(self, path: str, request: Request) -> "Iterator[pa.RecordBatch]":
        """Yield the batches of a section by parsing it.

        The survey has judged how many lines are broken; here it is judged how many rows do not fit their columns.
        """
        faults, misfits, rows, taken = Faults(), Faults(), EventRows(), 0
        batches: list[Any] = []
        parser = self.parser(path, request.options, faults)
        for _ in _gather(path, request.section, parser, rows, faults):
            if len(rows):
                taken += len(rows)
                batches.append(rows.take(path, request, self.blank, misfits))
            if sum(batch.num_rows for batch in batches) >= min(request.batch_rows, BATCH_ROWS):
                yield _together(batches)
                batches = []
        if batches:
            yield _together(batches)
        shown = faults.first or misfits.first
        before = lines_before(path, request.section) if shown else 0
        for found in (faults.moved(before), misfits.moved(before)):
            request.faults.merge(found)
        misfits.moved(before).check(path, taken, _share(request.options))


def _stop_collecting() -> Callable[[], object] | None:
    """Turn the garbage collector off; return what turns it on again."""
    if not gc.isenabled():
        return None
    gc.disable()
    return gc.enable


uncollected = ProcessSetting(_stop_collecting)
"""Within it no garbage is collected: parsed lines hold no cycles, and looking for some takes a third of the time."""


def _gather(path: str, section: FileSection, parser: LineParser, rows: EventRows, faults: Faults) -> Iterator[int]:
    """Parse a section into ``rows``; yield the lines done after each block. Lines are numbered from 1 in it."""
    done = 0
    try:
        for block in line_blocks(path, section, size=BLOCK_BYTES, longest=LONGEST_LINE):
            with uncollected:
                parser.feed_block(block, rows, faults, path)
            done = block.last
            yield done
        parser.end(done, rows, faults, path)
        yield done
    except InputError as error:
        # An editor numbers the lines from the beginning of the file.
        before = lines_before(path, section)
        subject = re.sub(r"\bline (\d+)$", lambda found: f"line {before + int(found[1])}", error.subject)
        raise InputError(subject, error.got, error.rule, error.remedy) from None


def _share(options: Mapping[str, Any]) -> float:
    """Return the share of lines that may be broken."""
    share = options.get("broken_share", BROKEN_SHARE)
    if not isinstance(share, int | float) or not 0 <= share <= 1:
        rule = "it is a share of the lines, from 0 to 1"
        raise ParameterError("broken_share", repr(share), rule, f"leave it out for {BROKEN_SHARE}")
    return float(share)


def _together(batches: list[Any]) -> "pa.RecordBatch":
    """Return batches as one."""
    table = pa.Table.from_batches(batches).combine_chunks()
    return next(iter(table.to_batches()), batches[0])
