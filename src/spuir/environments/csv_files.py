"""Comma-separated files of users, plain or gzip; errors name file and row."""

import csv
import gzip
import io
import os
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite

import numpy as np

from spuir.base.parameters import Rule
from spuir.base.records import Floats
from spuir.errors import InputError, listed

PATH = Rule("a path", lambda v: isinstance(v, str) or (isinstance(v, os.PathLike) and isinstance(os.fspath(v), str)))
GZIP = b"\x1f\x8b"
LONGEST = 40
"""Characters of a cell that an error shows."""


def shown(cell: str) -> str:
    """Return a cell as an error shows it."""
    return repr(cell if len(cell) <= LONGEST else cell[:LONGEST] + "…")


def at(path: str, row: int) -> str:
    """Return the subject of an error: the file and the row, numbered like the lines in an editor."""
    return f"file {path!r}, row {row}"


def file_stamp(path: str) -> tuple[int, int] | None:
    """Return time and size of a file, which change when the file does; None if it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


@contextmanager
def opened(path: str) -> Iterator[io.BufferedReader | gzip.GzipFile]:
    """Open a file for reading bytes, decompressed if its first bytes are those of gzip; refuse unreadable files."""
    subject = f"file {path!r}"
    try:
        with open(path, "rb") as raw:
            packed = raw.read(len(GZIP)) == GZIP
            raw.seek(0)
            yield gzip.GzipFile(fileobj=raw) if packed else raw
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        rule = "a gzip file must be complete"
        raise InputError(subject, str(error), rule, "get the file again") from error
    except OSError as error:
        rule, remedy = "the file must be readable", "check the path"
        raise InputError(subject, error.strerror or str(error), rule, remedy) from error
    except UnicodeDecodeError as error:
        rule, remedy = "the file must be text in UTF-8", "save it in that encoding, plain or gzip"
        raise InputError(subject, f"byte {error.object[error.start]:#04x}", rule, remedy) from error


def read_rows(path: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each row and its cells, with spaces around them, and skip blank lines.

    Parameters
    ----------
    path
        A comma-separated file in UTF-8, plain or gzip (detected from its first bytes), with any line ends. All rows
        must have as many cells as the first.
    """
    with opened(path) as raw, io.TextIOWrapper(raw, "utf-8-sig", newline="") as text:
        reader = csv.reader(text, strict=True)
        width = 0
        try:
            for cells in reader:
                if not cells:
                    continue
                if width and len(cells) != width:
                    rule = f"every row has {width} cells, like the first"
                    remedy = "complete or drop that row, and quote cells that hold commas"
                    raise InputError(at(path, reader.line_num), f"{len(cells)} cells", rule, remedy)
                width = len(cells)
                yield reader.line_num, cells
        except csv.Error as error:
            rule, remedy = "rows are cells between commas", "close the quotes of that row"
            raise InputError(at(path, reader.line_num), str(error), rule, remedy) from error
    if not width:
        raise InputError(f"file {path!r}", "no rows", "a table needs rows", "check that the file was saved completely")


def read_names(path: str, rows: Iterator[tuple[int, list[str]]]) -> list[str]:
    """Return the names of the columns from the first row."""
    number, names = next(rows)
    if all(map(is_number, names)):
        rule = "the first row must hold the names of the columns"
        raise InputError(
            at(path, number), "numbers only", rule, "add names, or pass header=False if the environment has it"
        )
    return [name.strip() for name in names]


def place_of(path: str, names: Sequence[str], wanted: str) -> int:
    """Return the position of the column called ``wanted``."""
    if wanted not in names:
        rule = f"there is no column {wanted!r}"
        remedy = f"the columns are {listed(names)}: name the right one"
        if len(set(names)) < 2:
            remedy = "separate the cells by commas and put their names in the first row"
        raise InputError(at(path, 1), f"{len(names)} names", rule, remedy)
    return list(names).index(wanted)


def is_number(cell: str) -> bool:
    """Return whether a cell is a finite number."""
    try:
        return isfinite(float(cell))
    except ValueError:
        return False


class Numbers:
    """A growing table of numbers, eight bytes each."""

    def __init__(self, path: str) -> None:
        self.path, self._values, self._rows = path, array("d"), 0

    def add(self, row: int, cells: Sequence[str]) -> None:
        """Add the cells of a row, which must all be finite numbers."""
        try:
            numbers = [float(cell) for cell in cells]
        except ValueError:
            numbers = [np.nan]
        # A finite sum proves that all cells are finite; only after an overflow each cell has to be tested.
        if not isfinite(sum(numbers)) and not all(map(isfinite, numbers)):
            wrong = next(cell for cell in cells if not is_number(cell))
            remedy = "encode texts as numbers and fill gaps, or name the label column"
            raise InputError(at(self.path, row), shown(wrong), "every cell but the label is a finite number", remedy)
        self._values.extend(numbers)
        self._rows += 1

    def table(self) -> Floats:
        """Return all rows (n, columns)."""
        return np.frombuffer(self._values, dtype=np.float64).reshape(self._rows, -1)
