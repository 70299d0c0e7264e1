"""Raw columns to numbers: learnt once from the first rows, then fixed, and saved inside the model.

==========  ================================================================================================
column      features
==========  ================================================================================================
number      itself, or standardised with ``scale``
boolean     0 or 1
text        one feature for each of the ``max_levels`` most frequent levels and one for all others, or hashed
date, time  days since the first one, sine and cosine of its place in the week and in the day (UTC)
list        how often each of the most frequent items occurs, and others; lists of floats of one length are vectors
object      the features of its members, named ``user.age``
==========  ================================================================================================

A missing value (None, null, NaN, NaT) is the learnt mean of a number or boolean, the other level of a text, an empty
list. Where a value was missing at learning, one more feature, ``age is missing``, tells where; a missing value that
comes only later has no feature of its own. NaN never comes out.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from spuir.base.hashing import digest
from spuir.base.packing import pack, unpack
from spuir.base.parameters import COUNT, FLAG, check_names, check_value, optional
from spuir.base.records import Floats, all_finite
from spuir.errors import InputError, ParameterError
from spuir.tables.column_encoders import Category, Counts, Flag, Hashed, Moment, Number, Settings, Vector, check_finite
from spuir.tables.raw_columns import Column, Place
from spuir.tables.raw_tables import Block, blocks, listed

__all__ = ["KINDS", "LEARNING_ROWS", "Encoder", "Source"]

LEARNING_ROWS = 100_000
"""The most rows that an encoder looks at."""

KINDS: Mapping[str, Any] = {
    "number": Number,
    "flag": Flag,
    "category": Category,
    "hash": Hashed,
    "time": Moment,
    "list": Counts,
    "vector": Vector,
}
"""What a column can be learnt as."""

_SPAN_BYTES = 1 << 20
"""Rows are written in spans that stay in cache, since the columns of a span are written one after the other."""

Part = Number | Flag | Category | Hashed | Moment | Counts | Vector


@dataclass(frozen=True, kw_only=True)
class Source:
    """A raw column by name with what was learnt of it: several parts for objects, none where it had no value."""

    name: str
    parts: tuple[Number | Flag | Category | Hashed | Moment | Counts | Vector, ...]


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """A fixed map from rows of raw columns to rows of numbers; made by :meth:`learn`.

    ``sources`` are the raw columns, ``hashing`` the number of features that hashed columns share, ``intercept`` whether
    a feature of ones stands last, ``rows`` how many rows were learnt from.
    """

    sources: tuple[Source, ...]
    hashing: int | None = None
    intercept: bool = False
    rows: int = 0

    def __post_init__(self) -> None:
        check_value("hashing", self.hashing, optional(COUNT), "give the number of features, such as 64")
        check_value("intercept", self.intercept, FLAG, "give True or False")
        if any(type(part) is Hashed for source in self.sources for part in source.parts) and self.hashing is None:
            rule = "hashed columns share a number of features"
            raise ParameterError("hashing", None, rule, "give it, such as hashing=64")
        if len(set(self.names)) < len(self.names):
            twice = next(name for at, name in enumerate(self.names) if name in self.names[:at])
            raise InputError(
                "columns", f"two features named {twice!r}", "names are unique", "rename one of the columns"
            )

    @classmethod
    def learn(
        cls,
        table: Any,
        *,
        columns: Sequence[str] | None = None,
        kinds: Mapping[str, str] | None = None,
        scale: bool = False,
        intercept: bool = False,
        max_levels: int = 32,
        hashing: int | None = None,
    ) -> Self:
        """Learn from the first rows of a table, at most 100,000, and be fixed from then on.

        Parameters
        ----------
        table
            A DataFrame, an Arrow table or record batch, a dict of columns, or a list of dict rows.
        columns
            The columns to take; None = all.
        kinds
            What single columns are, where their values do not tell: a number that is a code is a "category". One of
            "number", "flag", "category", "hash", "time", "list", "vector"; members of objects by dotted name.
        scale
            Standardise numbers, vectors and days by their mean and standard deviation; a constant becomes 0.
        intercept
            Append a feature of ones.
        max_levels
            The most levels of a text column, or items of a list column, that have a feature of their own.
        hashing
            None gives text and lists a feature for each level; a number H hashes them, signed, into H features that
            they share, whatever levels come.
        """
        check_value("scale", scale, FLAG, "give True or False")
        check_value("max_levels", max_levels, COUNT, "give a whole number of at least 1")
        check_value("hashing", hashing, optional(COUNT), "give the number of features, such as 64")
        found = blocks(table, LEARNING_ROWS)
        if not found or not found[0].rows:
            raise InputError(
                "table", "no rows", "an encoder learns from at least one", "pass the first rows of the log"
            )
        block, given = found[0], dict(kinds or {})
        taken = block.names if columns is None else list(columns)
        missing = next((name for name in taken if name not in block.names), None)
        if missing is not None:
            rule = f"the table has {listed(block.names)}"
            raise InputError("columns", repr(missing), rule, "name columns of the table")
        sources: list[Source] = []
        for name in taken:
            parts = [
                _learnt(block, one, name, given.pop(one, None), hashing, Settings(scale, max_levels))
                for one in block.flatten(name)
            ]
            sources.append(Source(name=name, parts=tuple(part for part in parts if part is not None)))
        check_names(given, [one for name in taken for one in block.flatten(name)], "table", "kinds")
        if not any(source.parts for source in sources):
            raise InputError("table", "no value", "an encoder needs a column with a value", "check the columns")
        return cls(sources=tuple(sources), hashing=hashing, intercept=intercept, rows=block.rows)

    # ---- what it is -----------------------------------------------------------------------------------------

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the raw columns that rows must have."""
        return tuple(source.name for source in self.sources if source.parts)

    @property
    def empty(self) -> tuple[str, ...]:
        """Names of the raw columns that had no value at learning, and give no feature."""
        return tuple(source.name for source in self.sources if not source.parts)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the features (d,), in their order: columns, then hashed, then the intercept."""
        own = [name for _, part in self._parts if not isinstance(part, Hashed) for name in part.names]
        shared = [f"hash {at}" for at in range(self.hashing or 0)] if self._hashed else []
        return (*own, *shared, *["intercept"] * bool(self.intercept))

    @cached_property
    def fingerprint(self) -> str:
        """A mark that two encoders share only if they encode alike."""
        return digest(json.dumps(self.to_dict(), sort_keys=True))

    @property
    def width(self) -> int:
        """The number of features d."""
        return len(self.names)

    @cached_property
    def _parts(self) -> list[tuple[str, Part]]:
        return [(source.name, part) for source in self.sources for part in source.parts]

    @cached_property
    def _hashed(self) -> list[tuple[str, Hashed]]:
        return [(owner, part) for owner, part in self._parts if isinstance(part, Hashed)]

    @cached_property
    def _plain(self) -> list[tuple[str, Number | Flag, int]]:
        """Parts that are written as they come, with the place of their feature."""
        return [(owner, part, at) for owner, part, at in self._placed if isinstance(part, (Number, Flag))]

    @cached_property
    def _placed(self) -> list[tuple[str, Any, int]]:
        own = [(owner, part) for owner, part in self._parts if not isinstance(part, Hashed)]
        starts = np.cumsum([0, *(len(part.names) for _, part in own)]).tolist()
        return [(owner, part, start) for (owner, part), start in zip(own, starts, strict=False)]

    @cached_property
    def _scales(self) -> tuple[Floats, Floats] | None:
        """What to subtract from and to divide by all features, None where numbers stay as they are."""
        if all(part.deviation is None for _, part, _ in self._plain):
            return None
        shift, divisor = np.zeros(self.width), np.ones(self.width)
        for _, part, at in self._plain:
            if part.deviation is not None:
                shift[at], divisor[at] = part.mean, part.deviation or np.inf
        return shift, divisor

    def describe(self) -> list[dict[str, Any]]:
        """Return a line for each raw column, those inside objects by dotted name: its kind and its features."""
        kinds: dict[Any, str] = {part: kind for kind, part in KINDS.items()}
        lines: list[dict[str, Any]] = []
        for _, part in self._parts:
            names = [] if isinstance(part, Hashed) else part.names
            lines.append({"column": part.column, "kind": kinds[type(part)], "features": names})
        return lines + [{"column": name, "kind": "empty", "features": []} for name in self.empty]

    def __repr__(self) -> str:
        """Show the sizes."""
        return f"Encoder({len(self.columns)} columns → {self.width} features, learnt from {self.rows:,} rows)"

    # ---- what it does ---------------------------------------------------------------------------------------

    def encode(self, raw: Any, out: NDArray[np.float64] | None = None) -> Floats:
        """Return the features (n, d) of raw rows.

        Parameters
        ----------
        raw
            As in :meth:`learn`, in any order of columns and with any further ones; a dict of single values is one row.
        out
            (n, d) float64 to write to, of any layout: columns written to Fortran order are copied as they are.
        """
        found = blocks(raw)
        shape = (sum(block.rows for block in found), self.width)
        if out is None:
            out = np.empty(shape)
        elif out.shape != shape or out.dtype != np.float64:
            rule = f"these rows give float64 of shape {shape}"
            raise InputError("out", f"{out.dtype} of shape {out.shape}", rule, "allocate it so")
        if len(self._plain) < self.width:
            out[...] = 0.0
        for block in found:
            if block.rows:
                self._write(block, out[block.first : block.first + block.rows])
        return out

    def _write(self, block: Block, out: Floats) -> None:
        """Write one block of rows over zeros."""
        block.require(self.columns)
        self._write_plain(block, out)
        for owner, part, at in self._placed:
            if not isinstance(part, (Number, Flag)):
                column = block.column(part.column, owner, part.wanted)
                part.write(column, out[:, at : at + len(part.names)], Place(part.column, block.first))
        shared = out[:, self.width - bool(self.intercept) - (self.hashing or 0) :][:, : self.hashing]
        for owner, part in self._hashed:
            part.write(block.column(part.column, owner, part.wanted), shared, Place(part.column, block.first))
        if self.intercept:
            out[:, -1] = 1.0

    def _write_plain(self, block: Block, out: Floats) -> None:
        """Write numbers and booleans, a span of rows at a time."""
        given: list[tuple[Number | Flag, int, NDArray[Any]]] = []
        for owner, part, at in self._plain:
            column: Column = block.column(part.column, owner, part.wanted)
            given.append((part, at, part.values(column, Place(part.column, block.first))))
        if not given:
            return
        for rows in _spans(out):
            target = out[rows]
            for _, at, values in given:
                target[:, at] = values[rows]
            # One product tells whether anything in the span is not finite, far cheaper than a look at every column.
            flat = target.ravel(order="K")
            with np.errstate(over="ignore", invalid="ignore"):
                total = np.dot(flat, flat)
            if not np.isfinite(total):
                for part, at, values in given:
                    _mend(part, values[rows], target, at, Place(part.column, block.first + cast(int, rows.start)))
            if self._scales is not None:
                with np.errstate(over="ignore", invalid="ignore"):
                    target -= self._scales[0]
                    target /= self._scales[1]
                if not all_finite(target):
                    np.nan_to_num(target, copy=False)  # what lies beyond the largest number is that number

    # ---- saving ---------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return everything that was learnt as JSON-ready data."""
        return pack(self)[0]

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Return the encoder that :meth:`to_dict` described."""
        return unpack(cls, dict(saved), {})


def _spans(out: Floats) -> Iterator[slice]:
    n, width = out.shape
    size = n if out.flags.f_contiguous else max(256, _SPAN_BYTES // (8 * width))
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def _mend(part: Number | Flag, values: NDArray[Any], out: Floats, at: int, place: Place) -> None:
    """Put the mean in place of missing numbers and tell where, and refuse infinities."""
    check_finite(values, place)
    missing = np.isnan(values)
    if missing.any():
        out[:, at] = np.where(missing, part.mean, values)
        if part.missing:
            out[:, at + 1] = missing


def _learnt(
    block: Block, name: str, owner: str, kind: str | None, hashing: int | None, settings: Settings
) -> Part | None:
    """Return what one column, at the top or inside an object, is learnt as; None where it has no value."""
    if kind is not None and kind not in KINDS:
        rule = f"the kinds are {', '.join(KINDS)}"
        raise ParameterError(f"kinds[{name!r}]", repr(kind), rule, "choose one of these")
    target = None if kind is None else KINDS[kind]
    column = block.column(name, owner, None if target is None else target.wanted)
    if column.kind == "empty":
        return None
    kind = kind or _natural(column, hashing)
    return Hashed(column=name) if kind == "hash" else KINDS[kind].learn(name, column, settings)


def _natural(column: Column, hashing: int | None) -> str:
    """Return what the values of a column say that it is."""
    if column.items is not None:
        items, known = column.items.values, column.values[column.values >= 0]
        if column.items.kind == "number" and items.dtype.kind == "f":
            fractions = bool((items[np.isfinite(items)] % 1).any())
            if fractions or known.min() == known.max():
                return "vector"
        return "list" if hashing is None else "hash"
    return "hash" if column.kind == "category" and hashing is not None else column.kind


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that :meth:`Encoder.learn` does not have."""
    check_names(
        options, [name for name in signature(Encoder.learn).parameters if name != "table"], "encoder", "encoding"
    )
