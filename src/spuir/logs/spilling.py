"""Rows apart by a hash of their ids, on disk: tables of any size as parts that fit into memory."""

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from spuir.base.hashing import splitmix64
from spuir.base.records import Codes
from spuir.errors import InputError
from spuir.tables.arrow import arrow

if TYPE_CHECKING:
    import pyarrow as pa

Hashes = NDArray[np.uint64]


def hash_ids(ids: "pa.Array") -> Hashes:
    """Return a hash (n,) of each id, whole number or text, the same everywhere; a missing one has that of 0 or ""."""
    pa = arrow()
    if pa.types.is_integer(ids.type):
        return splitmix64(ids.cast(pa.int64()).fill_null(0).to_numpy().view(np.uint64))
    texts = ids.cast(pa.large_binary()).fill_null(b"")
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    if not len(texts) or offsets[-1] == offsets[0]:
        return splitmix64(np.zeros(len(texts), np.uint64))
    letters = np.frombuffer(texts.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    places = np.arange(len(letters), dtype=np.uint64) - np.repeat(starts, lengths).astype(np.uint64)
    # Every place in a text has a random odd weight, so that the sum tells texts apart; lengths tell "a" from "a\0".
    terms = (letters.astype(np.uint64) + np.uint64(1)) * (splitmix64(places) | np.uint64(1))
    sums = np.zeros(len(texts), np.uint64)
    filled = lengths > 0
    sums[filled] = np.add.reduceat(terms, starts[filled])
    return splitmix64(sums)


class Folder:
    """A temporary folder that lasts as long as this object."""

    def __init__(self, within: str | os.PathLike[str] | None = None) -> None:
        try:
            self.path = tempfile.mkdtemp(prefix="spuir-", dir=within)
        except OSError as error:
            got, rule = error.strerror or str(error), "the folder for temporary files must be writable"
            raise InputError(f"folder {str(within)!r}", got, rule, "name another") from error
        self.remove = weakref.finalize(self, shutil.rmtree, self.path, True)


class Spill:
    """A table apart in ``count`` files by the hash of its ids; rows keep their order, and no rows make no file."""

    def __init__(self, folder: str, name: str, count: int, schema: "pa.Schema") -> None:
        self.paths = [os.path.join(folder, f"{name}-{at}.arrows") for at in range(count)]
        self._schema, self._stack = schema, ExitStack()
        self._writers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Be ready to write."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the files."""
        self._stack.close()

    def write(self, batch: "pa.RecordBatch", parts: Codes) -> NDArray[np.intp]:
        """Write rows to the files that ``parts`` (n,) says, and return how many each file (count,) got."""
        pa = arrow()
        counts = np.bincount(parts, minlength=len(self.paths))
        ordered = batch if len(self.paths) == 1 else batch.take(pa.array(np.argsort(parts, kind="stable")))
        start = 0
        for part in np.flatnonzero(counts):
            self._writer(int(part)).write_batch(ordered.slice(start, counts[part]))
            start += counts[part]
        return counts

    def _writer(self, part: int) -> Any:
        if part not in self._writers:
            pa = arrow()
            sink = self._stack.enter_context(pa.OSFile(self.paths[part], "wb"))
            self._writers[part] = self._stack.enter_context(pa.ipc.new_stream(sink, self._schema))
        return self._writers[part]


def spilled_bytes(path: str) -> int:
    """Return the size of one file, 0 where no rows made none."""
    return os.path.getsize(path) if os.path.exists(path) else 0


def read_spilled(path: str) -> "Iterator[pa.RecordBatch]":
    """Yield the rows of one file, in their order."""
    pa = arrow()
    if os.path.exists(path):
        with pa.OSFile(path, "rb") as source, pa.ipc.open_stream(source) as reader:
            yield from reader
