"""Text files: large ones are cut at line ends into sections, and every section is read in blocks of whole lines."""

from collections.abc import Callable, Iterator
from itertools import pairwise

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


def line_blocks(
    path: str, section: FileSection | None = None, size: int | None = None, longest: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines of a section, each block with the number of its first line within the section, from 1.

    Parameters
    ----------
    path, section
        The file, and which section of it; None = all of it.
    size
        Bytes of a block, about; None = :data:`BLOCK_BYTES`.
    longest
        A line with more bytes is refused; None = no limit.
    """
    line, rest = 1, b""
    with refusals(path), open_input(path, section) as stream:
        while block := stream.read(size or BLOCK_BYTES):
            end = block.rfind(b"\n") + 1
            lines, rest = (rest + block[:end], block[end:]) if end else (b"", rest + block)
            if lines:
                yield line, lines
                line += lines.count(b"\n")
            if longest is not None and len(rest) > longest:
                rule = f"a line has at most {longest:,} bytes"
                raise InputError(f"file {path!r}, line {line}", "a longer line", rule, "check the format")
    if rest:
        yield line, rest


def lines_before(path: str, section: FileSection) -> int:
    """Return the number of lines before a section; counted only when an error has to name a line."""
    if not section.start:
        return 0
    before = FileSection(0, None, section.start)
    with refusals(path), open_input(path, before) as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(SECTION_BYTES), b""))
