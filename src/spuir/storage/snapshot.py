"""Snapshots: files of arrays and a JSON header, checked by a digest and written atomically.

Layout, all integers little-endian::

    magic (8) · format version (8) · header length (8)
    header   JSON {"header": …, "arrays": [[name, dtype, shape], …]}, padded with spaces
    arrays   raw C-order bytes, each padded with zeros to 64 bytes
    digest   BLAKE2b (32) over every byte before it

Nothing in a file is run or imported: the header is data, dtypes come from a short list, and classes from the type hints
of a class that the caller names. Every size that a file claims is compared with its real size before any memory is
allocated.
"""

import json
import math
import os
import re
import stat
import struct
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from io import BufferedReader, BytesIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spuir.base.packing import Arrays, pack, unpack
from spuir.errors import MissingSnapshotError, SnapshotError, SnapshotFileError
from spuir.storage.atomic import write_atomically

__all__ = ["FORMAT_VERSION", "from_bytes", "pack", "read", "to_bytes", "unpack", "write"]

FORMAT_VERSION = 1
Path = str | os.PathLike[str]

_MAGIC = b"\x89SPUIR\r\n"  # a high bit and a line end: transfers that mangle either are noticed at once
_PREAMBLE = struct.Struct("<8sQQ")
_DIGEST, _ALIGN, _CHUNK = 32, 64, 1 << 20
_MAX_HEADER, _MAX_ARRAYS, _MAX_RANK = 1 << 24, 10_000, 32
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}")
# Booleans travel as bytes and are converted on reading, so that no file can make one that is neither 0 nor 1.
_NUMBERS = ("uint8", "int8", "int32", "int64", "uint32", "uint64", "float32", "float64")
_DTYPES = {"bool": "|u1", **{name: np.dtype(name).newbyteorder("<").str for name in _NUMBERS}}


class _BrokenError(Exception):
    """A broken rule; the public functions add the subject, and a remedy if there is none."""

    def __init__(self, got: str, rule: str, remedy: str | None = None) -> None:
        super().__init__(got, rule)
        self.got, self.rule, self.remedy = got, rule, remedy


class _Entry(NamedTuple):
    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int


def _require(holds: bool, got: object, rule: str, remedy: str | None = None) -> None:
    if not holds:
        raise _BrokenError(str(got)[:120], rule, remedy)


def _is(value: object, *kinds: type) -> bool:
    return type(value) in kinds


@contextmanager
def _refusals(subject: str, remedy: str) -> Generator[None]:
    """Turn every failure with a file or a record into a spuir error about ``subject``."""
    try:
        yield
    except _BrokenError as broken:
        raise SnapshotError(subject, broken.got, broken.rule, broken.remedy or remedy) from broken.__cause__
    except RecursionError:
        raise SnapshotError(subject, "very deep nesting", "data nest a few levels deep", remedy) from None
    except MemoryError:
        raise SnapshotError(subject, "arrays beyond memory", "a snapshot must fit in memory", "free memory") from None
    except FileNotFoundError:
        raise MissingSnapshotError(subject, "no such file", "the file must exist", "check the path") from None
    except OSError as error:
        rule, remedy = "the file system must allow it", "check the path, its permissions and the free space"
        raise SnapshotFileError(subject, error.strerror or error, rule, remedy) from error


def write(path: Path, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Save ``header`` (JSON data) and ``arrays`` at exactly ``path``, completely or not at all.

    A failure before the renaming leaves an old file untouched; a failure after it (when the folder is flushed) leaves
    the complete new file.
    """
    target = _place(path)
    if os.path.isdir(target):
        rule, remedy = "a saved model is one file", "name a file in it, such as model.spuir"
        raise SnapshotFileError(f"path {target!r}", "a folder", rule, remedy)
    with _refusals(f"file {target!r}", "save finite JSON data and plain arrays"):
        write_atomically(target, _content(header, arrays))


def to_bytes(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the bytes that :func:`write` would save."""
    with _refusals("snapshot", "save finite JSON data and plain arrays"):
        return b"".join(_content(header, arrays))


def _content(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Iterator[Any]:
    """Return the bytes of a snapshot in order, after refusing what could not be read back."""
    plain = {name: _plain(array) for name, array in arrays.items()}
    directory = [[name, array.dtype.name, array.shape] for name, array in plain.items()]
    try:
        text = json.dumps({"header": header, "arrays": directory}, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise _BrokenError(str(error), "a header is finite JSON data") from error
    _parse(text)  # refuses now what could not be read back later
    return _sealed(_chunks(text, plain.values()))


def read(path: Path) -> tuple[dict[str, Any], Arrays]:
    """Return the header and the arrays saved at ``path``, as fresh writable copies.

    Raises
    ------
    SnapshotError
        The file is missing, damaged, malicious, of another kind or of a newer format.
    """
    where = _place(path)
    with _refusals(f"file {where!r}", "restore the file from a copy, or save it again"):
        _require(stat.S_ISREG(os.stat(where).st_mode), "a folder or a device", "it must be a regular file")
        with open(where, "rb") as file:
            return _contents(file, os.fstat(file.fileno()).st_size)


def from_bytes(content: bytes, source: str) -> tuple[dict[str, Any], Arrays]:
    """Return the header and the arrays that :func:`to_bytes` gave; ``source`` is what refusals call the bytes."""
    with _refusals(source, "restore it from a copy, or save it again"), BytesIO(content) as file:
        return _contents(file, len(content))


def _contents(file: BufferedReader | BytesIO, size: int) -> tuple[dict[str, Any], Arrays]:
    """Return the header and the arrays of an open snapshot of ``size`` bytes."""
    length = _preamble(file.read(_PREAMBLE.size), size)
    header, entries = _parse(file.read(length))
    data = _PREAMBLE.size + length
    need = data + sum(entry.nbytes + -entry.nbytes % _ALIGN for entry in entries) + _DIGEST
    _require(need == size, f"{size} bytes", f"its directory describes a file of {need} bytes")
    _verify(file, size)
    file.seek(data)
    return header, {entry.name: _load(file, entry) for entry in entries}


def is_snapshot(path: Path) -> bool:
    """Return whether a file begins like a snapshot."""
    if not os.path.isfile(_place(path)):
        return False
    with open(_place(path), "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def is_replaceable(path: Path) -> bool:
    """Return whether nothing but a snapshot or an empty file would be lost by writing there."""
    where = _place(path)
    return not os.path.isfile(where) or not os.path.getsize(where) or is_snapshot(path)


def _place(path: Path) -> str:
    """Return a path as text."""
    try:
        text = os.fsdecode(path)
    except TypeError:
        text = "\0"
    if "\0" in text:
        raise SnapshotError("path", repr(path), "a path is text or a path object", "pass the path of the file")
    return text


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """Return ``array`` in C order and little-endian, copied only if necessary."""
    fine = type(array) is np.ndarray and array.dtype.name in _DTYPES
    _require(fine, f"a {type(array).__name__} of {getattr(array, 'dtype', '?')}", f"dtypes are {', '.join(_DTYPES)}")
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _chunks(text: bytes, arrays: Iterable[NDArray[Any]]) -> Iterator[Any]:
    """Yield the bytes of a file in order, without the digest."""
    text += b" " * (-(_PREAMBLE.size + len(text)) % _ALIGN)
    yield _PREAMBLE.pack(_MAGIC, FORMAT_VERSION, len(text)) + text
    for array in arrays:
        yield array.reshape(-1).view(np.uint8)
        yield bytes(-array.nbytes % _ALIGN)


def _sealed(chunks: Iterable[Any]) -> Iterator[Any]:
    """Yield ``chunks``, then their digest."""
    digest = blake2b(digest_size=_DIGEST)
    for chunk in chunks:
        digest.update(chunk)
        yield chunk
    yield digest.digest()


def _preamble(raw: bytes, size: int) -> int:
    """Return the header length that a file of ``size`` bytes claims, if it is possible."""
    least = _PREAMBLE.size + _DIGEST
    _require(size >= least and len(raw) == _PREAMBLE.size, f"{size} bytes", f"a saved file has at least {least}")
    magic, version, length = _PREAMBLE.unpack(raw)
    rule = f"a file that spuir saved begins with {_MAGIC}"
    _require(magic == _MAGIC, f"a file that begins with {magic}", rule, "check the path")
    readable = f"this version of spuir reads formats 1 to {FORMAT_VERSION}"
    newer = "upgrade spuir, or save it with this version" if version > FORMAT_VERSION else None
    _require(1 <= version <= FORMAT_VERSION, f"format version {version}", readable, newer)
    most = min(_MAX_HEADER, size - least)
    _require(length <= most, f"a header of {length} bytes", f"it has at most {most} bytes in a file of this size")
    return length


def _parse(text: bytes) -> tuple[dict[str, Any], list[_Entry]]:
    """Return the caller's header and the directory of arrays, with all claims checked except the total size."""
    _require(len(text) <= _MAX_HEADER, f"a header of {len(text)} bytes", f"a header has at most {_MAX_HEADER} bytes")
    try:
        tree: Any = json.loads(text.decode(), object_pairs_hook=_object, parse_float=_finite, parse_constant=_finite)
    except ValueError as error:
        raise _BrokenError(str(error), "the header is JSON in UTF-8") from None
    _require(_is(tree, dict) and set(tree) == {"header", "arrays"}, "another layout", "header and arrays are its keys")
    header, claims = tree["header"], tree["arrays"]
    _require(_is(header, dict) and _is(claims, list), "another layout", "header is an object, arrays a list")
    _require(len(claims) <= _MAX_ARRAYS, f"{len(claims)} arrays", f"a snapshot has at most {_MAX_ARRAYS}")
    entries = [_entry(claim) for claim in claims]
    _require(len({entry.name for entry in entries}) == len(entries), "a name twice", "array names are unique")
    return header, entries


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _require(len(dict(pairs)) == len(pairs), "a key twice", "the keys of an object are unique")
    return dict(pairs)


def _finite(text: str) -> float:
    _require(math.isfinite(float(text)), text, "every number in the header is finite")
    return float(text)


def _entry(claim: Any) -> _Entry:
    """Return one line of the directory, or refuse it."""
    _require(_is(claim, list) and len(claim) == 3, "another layout", "an array has a name, a dtype and a shape")
    name, dtype, shape = claim
    _require(_is(name, str) and bool(_NAME.fullmatch(name)), f"array name {name!r}", f"names match {_NAME.pattern}")
    _require(_is(dtype, str) and dtype in _DTYPES, f"dtype {dtype!r} of {name}", f"dtypes are {', '.join(_DTYPES)}")
    fine = _is(shape, list) and len(shape) <= _MAX_RANK and all(_is(n, int) and n >= 0 for n in shape)
    _require(fine, f"shape {shape!r} of {name}", f"a shape is a list of at most {_MAX_RANK} integers ≥ 0")
    item = np.dtype(_DTYPES[dtype]).itemsize
    widest = math.prod(max(n, 1) for n in shape) * item  # NumPy refuses these even where another size is 0
    _require(widest < 2**63, f"shape {shape!r} of {name}", "an array has less than 2**63 bytes")
    return _Entry(name, dtype, tuple(shape), math.prod(shape) * item)


def _verify(file: BufferedReader | BytesIO, size: int) -> None:
    """Compare the last 32 bytes with the digest of all bytes before them, in constant memory."""
    digest, left = blake2b(digest_size=_DIGEST), size - _DIGEST
    file.seek(0)
    while left and (chunk := file.read(min(left, _CHUNK))):
        digest.update(chunk)
        left -= len(chunk)
    same = not left and digest.digest() == file.read(_DIGEST)
    _require(same, "bytes that do not match its digest", "a snapshot is read exactly as it was written")


def _load(file: BufferedReader | BytesIO, entry: _Entry) -> NDArray[Any]:
    raw = np.empty(entry.nbytes, np.uint8)
    _require(
        file.readinto(raw.data) == entry.nbytes, "a file that shrank while it was read", "a snapshot does not change"
    )
    file.seek(-entry.nbytes % _ALIGN, os.SEEK_CUR)
    return raw.view(_DTYPES[entry.dtype]).astype(entry.dtype, copy=False).reshape(entry.shape)
