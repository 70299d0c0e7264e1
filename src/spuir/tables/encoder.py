"""Columns of any type to numbers: learned once from the first rows, then fixed, and saved with the model.

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

A missing value (None, null, NaN, NaT) becomes the learned mean of a number or boolean, the level "other" of a text, or
an empty list. If values of a column were missing at learning, one more feature, e.g. ``age is missing``, marks them.
The result never has NaN.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from spuir.base.column_drift import Drift
from spuir.base.hashing import digest
from spuir.base.packing import pack, unpack
from spuir.base.parameters import COUNT, FLAG, check_names, check_value, optional
from spuir.base.records import Floats, all_finite
from spuir.errors import InputError, ParameterError, did_you_mean
from spuir.tables.column_encoders import (
    CategoryEncoder,
    FlagEncoder,
    HashEncoder,
    ListEncoder,
    NumberEncoder,
    Seen,
    Settings,
    TimeEncoder,
    VectorEncoder,
    check_finite,
    count,
    mend,
    natural_kind,
    spans,
    write_numbers,
)
from spuir.tables.column_samples import ColumnSample
from spuir.tables.raw_columns import Location, RawColumn
from spuir.tables.raw_tables import Block, blocks

__all__ = ["COLUMN_ENCODERS", "LEARNING_ROWS", "EncodedColumn", "Encoder"]

LEARNING_ROWS = 100_000
"""An encoder learns from at most this many rows."""

COLUMN_ENCODERS: Mapping[str, Any] = {
    "number": NumberEncoder,
    "flag": FlagEncoder,
    "category": CategoryEncoder,
    "hash": HashEncoder,
    "time": TimeEncoder,
    "list": ListEncoder,
    "vector": VectorEncoder,
}
"""The kinds of columns, and the class that encodes each."""

ColumnEncoder = NumberEncoder | FlagEncoder | CategoryEncoder | HashEncoder | TimeEncoder | ListEncoder | VectorEncoder
Counts = list[tuple[int, int, int]]
"""Missing, unseen and outside values of each column; a list, which is faster than an array for a single row."""


@dataclass(frozen=True, kw_only=True)
class EncodedColumn:
    """A top-level column and its encoders: several for a column of objects, none if it had no value."""

    name: str
    parts: tuple[ColumnEncoder, ...]


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """A fixed map from rows of a table to rows of numbers; made by :meth:`fit`.

    ``sources`` are the columns, ``hashing`` is the number of features that hashed columns share, ``intercept`` whether
    the last feature is a constant 1, and ``rows`` the number of rows that the encoder learned from. ``samples`` has
    what it saw of each column there; encoders that were saved by version 0.1 have none, and count no drift.
    """

    sources: tuple[EncodedColumn, ...] = ()
    hashing: int | None = None
    intercept: bool = False
    rows: int = 0
    samples: tuple[ColumnSample, ...] = ()

    def __post_init__(self) -> None:
        if not self.sources:
            rule, remedy = "an encoder is learned from rows", "call spuir.Encoder.fit(table), which returns it"
            raise InputError("encoder", "no columns", rule, remedy)
        check_value("hashing", self.hashing, optional(COUNT), "give the number of features, such as 64")
        check_value("intercept", self.intercept, FLAG, "give True or False")
        if any(type(part) is HashEncoder for source in self.sources for part in source.parts) and self.hashing is None:
            rule = "hashed columns share a number of features"
            raise ParameterError("hashing", None, rule, "give it, such as hashing=64")
        if self.samples and len(self.samples) != len(self._parts):
            rule = f"there are {len(self._parts)} columns"
            raise InputError("samples", f"{len(self.samples)} of them", rule, "learn the encoder again")
        if len(set(self.names)) < len(self.names):
            twice = next(name for at, name in enumerate(self.names) if name in self.names[:at])
            raise InputError(
                "columns", f"two features named {twice!r}", "names are unique", "rename one of the columns"
            )

    @classmethod
    def fit(
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
        """Return an encoder that has learned from the first rows of a table, at most 100,000.

        Parameters
        ----------
        table
            A DataFrame, an Arrow table or record batch, a dict of columns, or a list of dict rows.
        columns
            The columns to use; None means all.
        kinds
            Kinds of columns that are detected wrongly otherwise, e.g. "category" for numbers that are codes. One of
            "number", "flag", "category", "hash", "time", "list", "vector"; members of objects by dotted name.
        scale
            Standardise numbers, vectors and days by their mean and standard deviation; a constant becomes 0.
        intercept
            Append a feature that is always 1.
        max_levels
            How many levels of a text column, or items of a list column, have a feature of their own.
        hashing
            None gives texts and lists one feature per level. A number H hashes them, with signs, into H features that
            they share, which also works for new levels.

        Examples
        --------
        >>> encoder = spuir.Encoder.fit([{"age": 31, "device": "phone"}, {"age": 58, "device": "tablet"}])
        >>> encoder.names
        ('age', 'device=phone', 'device=tablet', 'device is other')
        """
        check_value("scale", scale, FLAG, "give True or False")
        check_value("max_levels", max_levels, COUNT, "give a whole number of at least 1")
        check_value("hashing", hashing, optional(COUNT), "give the number of features, such as 64")
        first = blocks(table, LEARNING_ROWS)
        if not first or not first[0].rows:
            raise InputError(
                "table", "no rows", "an encoder learns from at least one row", "pass the first rows of the log"
            )
        block, given = first[0], dict(kinds or {})
        taken = block.names if columns is None else list(columns)
        missing = next((name for name in taken if name not in block.names), None)
        if missing is not None:
            remedy = did_you_mean(missing, block.names, "columns")
            raise InputError("columns", repr(missing), "the table has no such column", remedy)
        sources: list[EncodedColumn] = []
        for name in taken:
            parts = [
                _learned(block, one, name, given.pop(one, None), hashing, Settings(scale, max_levels))
                for one in block.flatten(name)
            ]
            sources.append(EncodedColumn(name=name, parts=tuple(part for part in parts if part is not None)))
        check_names(given, [one for name in taken for one in block.flatten(name)], "table", "kinds")
        if not any(source.parts for source in sources):
            raise InputError("table", "no value", "an encoder needs a column with a value", "check the columns")
        samples = tuple(
            ColumnSample.learn(part, block.column(part.column, source.name, part.wanted))
            for source in sources
            for part in source.parts
        )
        return cls(sources=tuple(sources), hashing=hashing, intercept=intercept, rows=block.rows, samples=samples)

    learn = fit  # its name before there was ``fit``

    # ---- what it is -----------------------------------------------------------------------------------------

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that rows must have."""
        return tuple(source.name for source in self.sources if source.parts)

    @property
    def empty(self) -> tuple[str, ...]:
        """Names of the columns that had no value at learning, and have no feature."""
        return tuple(source.name for source in self.sources if not source.parts)

    @property
    def constant(self) -> tuple[str, ...]:
        """Names of the columns (dotted inside objects) that had one value in all rows at learning."""
        known = zip(self._parts, self.samples, strict=False)
        return tuple(part.column for (_, part), sample in known if sample.constant)

    @property
    def scaled(self) -> bool:
        """Whether numbers, vectors or days are standardised, so that their features count in standard deviations."""
        spreads = (getattr(part, name, None) for _, part in self._parts for name in ("deviation", "deviations"))
        return any(one is not None for one in spreads)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the features (d,), in their order: columns, then hashed, then the intercept."""
        own = [name for _, part in self._parts if not isinstance(part, HashEncoder) for name in part.names]
        shared = [f"hash {at}" for at in range(self.hashing or 0)] if self._hashed else []
        return (*own, *shared, *["intercept"] * bool(self.intercept))

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the encoder: equal for encoders that give the same features."""
        features = {name: part for name, part in self.to_dict().items() if name != "samples"}
        return digest(json.dumps(features, sort_keys=True))

    @property
    def width(self) -> int:
        """The number of features d."""
        return len(self.names)

    @cached_property
    def _parts(self) -> list[tuple[str, ColumnEncoder]]:
        return [(source.name, part) for source in self.sources for part in source.parts]

    @cached_property
    def _hashed(self) -> list[tuple[str, HashEncoder, int]]:
        """Hashed columns, with their number among all."""
        parts = enumerate(self._parts)
        return [(owner, part, number) for number, (owner, part) in parts if isinstance(part, HashEncoder)]

    @cached_property
    def _plain(self) -> list[tuple[str, NumberEncoder | FlagEncoder, int, int]]:
        """Numbers and booleans, with the position of their feature and their number among all columns."""
        return [line for line in self._placed if isinstance(line[1], (NumberEncoder, FlagEncoder))]

    @cached_property
    def _placed(self) -> list[tuple[str, Any, int, int]]:
        own = [(owner, part, at) for at, (owner, part) in enumerate(self._parts) if not isinstance(part, HashEncoder)]
        starts = np.cumsum([0, *(len(part.names) for _, part, _ in own)]).tolist()
        return [(owner, part, start, at) for (owner, part, at), start in zip(own, starts, strict=False)]

    @cached_property
    def _undrifted(self) -> tuple[tuple[str, ...], Floats]:
        """The columns (C,), and the shares (C, 3) of drifted values that are usual in the sample."""
        usual = np.array([(sample.missing, sample.unseen, 0.0) for sample in self.samples], np.float64)
        return tuple(part.column for _, part in self._parts), usual

    @cached_property
    def _scales(self) -> tuple[Floats, Floats] | None:
        """What to subtract from all features, and what to divide them by; None if numbers are not scaled."""
        if all(part.deviation is None for _, part, _, _ in self._plain):
            return None
        shift, divisor = np.zeros(self.width), np.ones(self.width)
        for _, part, at, _ in self._plain:
            if part.deviation is not None:
                shift[at], divisor[at] = part.mean, part.deviation or np.inf
        return shift, divisor

    def describe(self) -> list[dict[str, Any]]:
        """Return a record for each column (dotted names inside objects) with its kind and its features."""
        kinds: dict[Any, str] = {part: kind for kind, part in COLUMN_ENCODERS.items()}
        lines: list[dict[str, Any]] = []
        for _, part in self._parts:
            names = [] if isinstance(part, HashEncoder) else part.names
            lines.append({"column": part.column, "kind": kinds[type(part)], "features": names})
        return lines + [{"column": name, "kind": "empty", "features": []} for name in self.empty]

    def __repr__(self) -> str:
        """Show the sizes."""
        return f"Encoder({len(self.columns)} columns → {self.width} features, learned from {self.rows:,} rows)"

    # ---- what it does ---------------------------------------------------------------------------------------

    def transform(self, raw: Any, out: NDArray[np.float64] | None = None) -> Floats:
        """Return the features (n, d) of rows.

        Parameters
        ----------
        raw
            As in :meth:`fit`. Columns may have any order, and others are ignored. A dict of single values is one row.
        out
            Array (n, d) of float64 to write to, in any memory layout.
        """
        return self.transform_and_count(raw, out)[0]

    encode = transform  # its name before there was ``transform``

    def drift(self, raw: Any) -> Drift | None:
        """Return how many values of rows are unlike the sample; None if the encoder was saved by version 0.1."""
        return self.transform_and_count(raw)[1]

    def transform_and_count(self, raw: Any, out: NDArray[np.float64] | None = None) -> tuple[Floats, Drift | None]:
        """Return what :meth:`transform` and :meth:`drift` return, of one pass over the rows."""
        parts = blocks(raw)
        shape = (sum(block.rows for block in parts), self.width)
        if out is None:
            out = np.empty(shape)
        elif out.shape != shape or out.dtype != np.float64:
            rule = f"these rows give float64 of shape {shape}"
            raise InputError("out", f"{out.dtype} of shape {out.shape}", rule, "allocate such an array")
        if len(self._plain) + bool(self.intercept) < self.width:
            out[...] = 0.0
        counts = [(0, 0, 0)] * len(self._parts)
        for block in parts:
            if block.rows:
                self._write(block, out[block.first : block.first + block.rows], counts)
        if not self.samples:
            return out, None
        columns, usual = self._undrifted
        found = np.array(counts, np.int64)
        return out, Drift(rows=shape[0], columns=columns, counts=found, usual=usual, sample=self.rows)

    def _write(self, block: Block, out: Floats, counts: Counts) -> None:
        """Write one block of rows over zeros, and add its missing, unseen and outside values to ``counts`` (C)."""
        block.require(self.columns)
        self._write_plain(block, out, counts)
        for owner, part, at, number in self._placed:
            if not isinstance(part, (NumberEncoder, FlagEncoder)):
                column = block.column(part.column, owner, part.wanted)
                seen = part.write(column, out[:, at : at + len(part.names)], Location(part.column, block.first))
                self._count(seen, number, counts)
        shared = out[:, self.width - bool(self.intercept) - (self.hashing or 0) :][:, : self.hashing]
        for owner, part, number in self._hashed:
            column = block.column(part.column, owner, part.wanted)
            self._count(part.write(column, shared, Location(part.column, block.first)), number, counts)

    def _count(self, seen: Seen, number: int, counts: Counts, extremes: Any = None) -> None:
        """Add what was seen in a column to its counts."""
        if self.samples:
            outside = 0 if seen.numbers is None else self.samples[number].outside(seen.numbers, extremes)
            missing, unseen, before = counts[number]
            counts[number] = (missing + seen.missing, unseen + seen.unseen, before + outside)

    def _write_plain(self, block: Block, out: Floats, counts: Counts) -> None:
        """Write numbers, booleans and the constant column, a span of rows at a time."""
        given: list[tuple[int, NDArray[Any]]] = []
        mended: list[tuple[NumberEncoder | FlagEncoder, int, NDArray[Any]]] = []
        for owner, part, at, number in self._plain:
            column: RawColumn = block.column(part.column, owner, part.wanted)
            values = part.values(column, Location(part.column, block.first))
            # The extremes show missing and infinite values too, much faster than a test of each value.
            low, high, missing = np.minimum.reduce(values), np.fmax.reduce(values), 0
            if not (math.isfinite(low) and math.isfinite(high)):
                low, missing = np.fmin.reduce(values), count(np.isnan(values))
                if math.isinf(low) or math.isinf(high):
                    check_finite(values, Location(part.column, block.first))
                mended.append((part, at, values))
            self._count(Seen(missing, numbers=values), number, counts, (low, high))
            given.append((at, values))
        for rows in spans(out) if given or self.intercept else ():
            target = out[rows]
            if self.intercept:
                target[:, -1] = 1.0
            write_numbers(target, [(at, values[rows]) for at, values in given], self._scales)
            for part, at, values in mended:
                mend(part, values[rows], target, at)
                write_numbers(target, [(at, target[:, at])], self._scales)
            if self._scales is not None and not all_finite(target):
                np.nan_to_num(target, copy=False)  # values beyond the largest float become that float

    # ---- saving ---------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return everything that was learned as JSON data."""
        return pack(self)[0]

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Return the encoder that :meth:`to_dict` described."""
        return unpack(cls, dict(saved), {})


def _learned(
    block: Block, name: str, owner: str, kind: str | None, hashing: int | None, settings: Settings
) -> ColumnEncoder | None:
    """Return the encoder of one column, at the top or inside an object; None if it has no value."""
    if kind is not None and kind not in COLUMN_ENCODERS:
        rule = f"the kinds are {', '.join(COLUMN_ENCODERS)}"
        raise ParameterError(f"kinds[{name!r}]", repr(kind), rule, "choose one of these")
    target = None if kind is None else COLUMN_ENCODERS[kind]
    column = block.column(name, owner, None if target is None else target.wanted)
    if column.kind == "empty":
        return None
    kind = kind or natural_kind(column, hashing)
    return HashEncoder(column=name) if kind == "hash" else COLUMN_ENCODERS[kind].learn(name, column, settings)


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that :meth:`Encoder.fit` does not have."""
    check_names(options, [name for name in signature(Encoder.fit).parameters if name != "table"], "encoder", "encoding")
