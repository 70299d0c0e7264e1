"""Text files: large ones are cut at line ends into sections, and every section is read in blocks of whole lines."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spuir.errors import InputError
from spuir.logs.formats.base import FileSection, compression, open_input, refusals, whole

PREFIX_BYTES = 1 << 22
"""Bytes at the beginning of a file from which columns and types are inferred."""
BLOCK_BYTES = 1 << 20
"""Bytes parsed at a time."""
SPLIT_BYTES = 1 << 25
"""A larger file is cut into sections, unless it is compressed."""
SECTION_BYTES = 1 << 24
"""Bytes of a section, about. Constant, so that the parts of a log do not depend on the machine."""
_NEWLINE = ord("\n")


def split(path: str, cuts: Callable[[str], list[int]]) -> tuple[FileSection, ...]:
    """Return the sections of a file.

    Parameters
    ----------
    path
        The file.
    cuts
        Returns the offsets at which the file can be cut, in ascending order; only called for large files.
    """
    one = whole(path)
    if one.bytes <= SPLIT_BYTES or compression(path) is not None:
        return (one,)
    with refusals(path):
        edges = [0, *cuts(path), one.bytes]
    return tuple(
        FileSection(number, None, stop - start, None if start else 0, start)
        for number, (start, stop) in enumerate(pairwise(edges))
        if stop > start
    )


def line_ends(path: str) -> list[int]:
    """Return the offset of a line end about every :data:`SECTION_BYTES`, without reading what lies between."""
    found: list[int] = []
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        while (found[-1] if found else 0) + SECTION_BYTES < size:
            file.seek((found[-1] if found else 0) + SECTION_BYTES)
            file.readline()
            found.append(file.tell())
    return found


class LineBlock(NamedTuple):
    """Some whole lines of a file: the number of the first, their text, and the places of the line ends in it."""

    first: int
    text: memoryview
    ends: NDArray[np.intp]

    @property
    def lines_held(self) -> int:
        """How many lines there are."""
        return len(self.ends) + (self.text[-1] != _NEWLINE)

    @property
    def last(self) -> int:
        """The number of the last line."""
        return self.first + self.lines_held - 1

    def lines(self) -> list[bytes]:
        """Return the lines without their ends."""
        return bytes(self.text).removesuffix(b"\n").split(b"\n")


def line_block(first: int, text: "bytes | memoryview") -> LineBlock:
    """Return a block of lines, given its text."""
    return LineBlock(first, memoryview(text), np.flatnonzero(np.frombuffer(text, np.uint8) == _NEWLINE))


def line_blocks(
    path: str, section: FileSection | None = None, size: int | None = None, longest: int | None = None
) -> Iterator[LineBlock]:
    """Yield whole lines of a section, numbered from 1 within it.

    A block is a view of a buffer that takes the next one, so that no byte is copied: it must be used before that.

    Parameters
    ----------
    path, section
        The file, and which section of it; None = all of it.
    size
        Bytes of a block, about; None = :data:`BLOCK_BYTES`.
    longest
        A line with more bytes is refused; None = no limit.
    """
    buffer, kept, line = bytearray(size or BLOCK_BYTES), 0, 1
    with refusals(path), open_input(path, section) as stream:
        while taken := stream.readinto(memoryview(buffer)[kept:]):
            filled = kept + taken
            end = buffer.rfind(b"\n", kept, filled) + 1
            if end:
                block = line_block(line, memoryview(buffer)[:end])
                yield block
                line = block.last + 1
            rest = buffer[end:filled]
            kept = len(rest)
            if longest is not None and kept > longest:
                rule = f"a line has at most {longest:,} bytes"
                raise InputError(f"file {path!r}, line {line}", "a longer line", rule, "check the format")
            if 2 * kept > len(buffer):
                buffer = bytearray(2 * len(buffer))
            buffer[:kept] = rest
    if kept:
        yield line_block(line, memoryview(buffer)[:kept])


def lines_before(path: str, section: FileSection) -> int:
    """Return the number of lines before a section; counted only when an error has to name a line."""
    if not section.start:
        return 0
    before = FileSection(0, None, section.start)
    with refusals(path), open_input(path, before) as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(SECTION_BYTES), b""))
