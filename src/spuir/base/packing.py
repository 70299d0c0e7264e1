"""Records to and from JSON data and arrays, by type hints alone.

A record is a frozen dataclass whose fields are arrays, numbers, texts, None, tuples or other records. Arrays are kept
under their dotted paths (``"observed.gram"``, ``"maps.0"``) and everything else becomes a JSON tree. No class names are
saved, so no file can choose which class is built.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from itertools import groupby
from types import UnionType
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from spuir.errors import SnapshotError, SpuirError

Arrays = dict[str, NDArray[Any]]
Options = tuple[Any, ...]
Record = TypeVar("Record")


def pack(record: Any) -> tuple[dict[str, Any], Arrays]:
    """Return a record as a JSON tree and its arrays by dotted path; the arrays are not copied.

    Fields with metadata ``{"saved": False}`` are left out. A record that :func:`unpack` could not rebuild from the
    type hints of its class is refused here, while the caller still has it. Each kind of record (its class, and the
    types inside) is tested once per process.
    """
    arrays: Arrays = {}
    cls = _type(record)
    if not is_dataclass(record):
        _refuse("", f"a {cls.__name__}", "a record is a dataclass with saved fields")
    meta = _encode(record, "", arrays)
    kinds = _kinds(record)
    if kinds not in _rebuilt:
        if _kinds(unpack(cls, meta, arrays)) != kinds:
            _refuse("", f"a {cls.__name__} with parts of another class", "type hints must determine every class")
        _rebuilt.add(kinds)
    return meta, arrays


_rebuilt: set[Any] = set()
"""The kinds of records that :func:`unpack` is known to rebuild."""


def unpack(cls: type[Record], meta: Any, arrays: Mapping[str, NDArray[Any]]) -> Record:
    """Rebuild a ``cls`` from what :func:`pack` returned.

    A nested record becomes the hinted class, a member of the hinted union, or a subclass: the one that has exactly
    the saved fields. A field that was not saved takes its default, so that records saved before the field existed
    still load.
    """
    try:
        return _decode(cls, meta, "", arrays)
    except RecursionError:
        _refuse("", "very deep nesting", "records nest a few levels deep")


def _refuse(path: str, got: object, rule: str, cause: Exception | None = None) -> NoReturn:
    subject = f"field {path!r} of a saved record" if path else "a saved record"
    remedy = "load with the policy and version that saved it, or correct the type hints of the record"
    raise SnapshotError(subject, str(got)[:120], rule, remedy) from cause


def _saved(record: Any) -> dict[str, Field[Any]]:
    return {item.name: item for item in fields(record) if item.init and item.metadata.get("saved", True)}


def _is(value: object, kind: Any) -> bool:
    return isinstance(value, kind)  # returns a plain bool, so that pyright does not narrow JSON data


def _type(value: object) -> Any:
    return type(value)


def _join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _encode(value: Any, path: str, arrays: Arrays) -> Any:
    """Return ``value`` as JSON data, and put its arrays into ``arrays`` under their paths."""
    value = _plain(value)
    if _is(value, float) and not math.isfinite(value):
        value = np.array(value)  # JSON has no infinity; an array of rank 0 does
    kind = _type(value)
    if kind is np.ndarray:
        arrays[path] = value
        return path
    if _is(value, tuple):
        return [_encode(item, _join(path, i), arrays) for i, item in enumerate(value)]
    if is_dataclass(kind):
        return {name: _encode(getattr(value, name), _join(path, name), arrays) for name in _saved(kind)}
    if value is None or _is(value, (bool, int, float, str)):
        return value
    _refuse(path, f"a {kind.__name__}", "fields are arrays, numbers, texts, None, tuples and records")


def _plain(value: Any) -> Any:
    return value.item() if _is(value, np.generic) else value


def _kinds(value: Any) -> Any:
    """Return what decides whether type hints can rebuild a record.

    These are the types of the record and of its parts, the dtypes of arrays, texts that a hint may list
    (``Literal``), and whether numbers are finite. Equal neighbours in a tuple count once, so that the result stays
    small.
    """
    value = _plain(value)
    kind = _type(value)
    if _is(value, tuple):
        return kind, len(value), tuple(one for one, _ in groupby(value, _kinds))
    if is_dataclass(kind):
        parts = (getattr(value, name) for name in _saved(kind))
        return kind, tuple(part if _is(part, str) else _kinds(part) for part in parts)
    if _is(value, np.ndarray):
        return kind, value.dtype
    return (kind, math.isfinite(value)) if _is(value, float) else kind


def _decode(hint: Any, meta: Any, path: str, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Return what ``meta`` and the arrays under ``path`` describe, as one of the hinted types."""
    hint = _expanded(hint)
    options: Options = tuple(map(_expanded, get_args(hint))) if get_origin(hint) in (Union, UnionType) else (hint,)
    if path in arrays and meta == path:
        return _array(options, arrays[path], path)
    if _is(meta, dict):
        return _record(options, meta, path, arrays)
    if _is(meta, list):
        items = enumerate(zip(_items(options, len(meta), path), meta, strict=True))
        return tuple(_decode(kind, item, _join(path, i), arrays) for i, (kind, item) in items)
    kind = _type(meta)
    kinds: Options = (int, float, Any) if kind is int else (kind, Any)
    if not any(option in kinds or meta in _choices(option) for option in options):
        _refuse(path, repr(meta), f"the hint is {hint}")
    return meta


def _expanded(hint: Any) -> Any:
    """Return what a ``type`` alias stands for; NDArray is one since NumPy 2.5."""
    alias: Any = get_origin(hint) or hint
    if not hasattr(alias, "__value__"):
        return hint
    return _expanded(alias.__value__[get_args(hint)] if get_args(hint) else alias.__value__)


def _choices(option: Any) -> Options:
    return get_args(option) if get_origin(option) is Literal else ()


def _array(options: Options, array: NDArray[Any], path: str) -> Any:
    """Return ``array`` if an option allows its dtype, or the float that JSON could not hold."""
    for option in options:
        if option in (np.ndarray, Any) or (get_origin(option) is np.ndarray and _holds(array, get_args(option)[1])):
            return array
    if float in options and array.shape == () and array.dtype == np.float64:
        return float(array)
    _refuse(path, f"an array of {array.dtype}", f"the hint is {' | '.join(map(str, options))}")


def _holds(array: NDArray[Any], dtype: Any) -> bool:
    """Return whether the hint ``dtype`` (e.g. ``np.dtype[np.float64]``) allows ``array``."""
    scalar: Any = next(iter(get_args(dtype)), None)
    return not _is(scalar, type) or issubclass(array.dtype.type, scalar)


def _items(options: Options, length: int, path: str) -> Options:
    """Return one hint for each item of a tuple of ``length``."""
    for option in options:
        hints = get_args(option)
        if get_origin(option) is tuple and hints[1:] == (...,):
            return hints[:1] * length
        if get_origin(option) is tuple and len(hints) == length:
            return hints
    _refuse(path, f"a tuple of {length}", f"the hint is {' | '.join(map(str, options))}")


def _record(options: Options, meta: dict[str, Any], path: str, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Build the record whose saved fields are ``meta``."""
    cls = _chosen([option for option in options if isinstance(option, type) and is_dataclass(option)], set(meta), path)
    try:
        hints = _hints(cls)
    except (NameError, TypeError) as error:
        _refuse(path, error, f"the type hints of {cls.__name__} must be known in its module", error)
    values = {name: _decode(hints[name], item, _join(path, name), arrays) for name, item in meta.items()}
    try:
        return cls(**values)
    except (SpuirError, TypeError, ValueError) as error:
        _refuse(path, error, f"{cls.__name__} must accept its saved fields", error)


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _chosen(hinted: list[type], names: set[str], path: str) -> type:
    """Return the class with exactly the fields ``names``: hinted, else derived; else such a one with new fields."""

    def extended(cls: type) -> bool:
        return names < set(_saved(cls)) and not _needed(cls) - names

    derived = _descendants(hinted)
    groups = (
        [cls for cls in hinted if names == set(_saved(cls))],
        [cls for cls in derived if names == set(_saved(cls))],
        [cls for cls in hinted if extended(cls)],
        [cls for cls in derived if extended(cls)],
    )
    group = next(filter(None, groups), groups[0])
    if len(group) == 1:
        return group[0]
    classes = ", ".join(cls.__name__ for cls in group or hinted) or "no record"
    rule = "only one hinted class may have these fields" if group else "a hinted class must have these fields"
    _refuse(path, f"fields {', '.join(sorted(names))}, where {classes} is hinted", rule)


def _needed(cls: type) -> set[str]:
    return {name for name, item in _saved(cls).items() if item.default is MISSING and item.default_factory is MISSING}


def _descendants(classes: Iterable[type]) -> list[type]:
    """Return the record classes derived from ``classes``, each once, even if ``slots=True`` created it twice."""

    def below(cls: type) -> Iterator[type]:
        for child in cls.__subclasses__():
            yield child
            yield from below(child)

    derived = {(cls.__module__, cls.__qualname__): cls for parent in classes for cls in below(parent)}
    return [cls for cls in derived.values() if is_dataclass(cls)]
