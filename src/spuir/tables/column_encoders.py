"""How single columns become numbers: one class per kind of column.

Each object is a frozen record of what the encoder learned about one column. It names its features and writes them;
later rows do not change it. Writing returns what was unlike most values, from which drift is counted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from spuir.base.hashing import hash64
from spuir.base.records import Codes, Floats
from spuir.tables.coercion import categories, flags, lists, matrix, numbers, occurrences, times
from spuir.tables.raw_columns import Location, RawColumn

DAY, WEEK = 86_400.0, 7 * 86_400.0
MONDAY = 4 * DAY
"""The first Monday of 1970, in seconds."""
SPAN_BYTES = 1 << 20
"""Size of a block of rows in which numbers are written."""


class Settings(NamedTuple):
    """The arguments of :meth:`Encoder.fit` that column encoders need."""

    scale: bool
    max_levels: int


class Seen(NamedTuple):
    """What a column encoder noticed in some rows: missing values, values without a feature, and numbers.

    ``missing`` and ``unseen`` count rows; ``numbers`` (n,) or (n, L) can be compared with a range, NaN where missing.
    """

    missing: int
    unseen: int = 0
    numbers: NDArray[Any] | None = None


def count(mask: Any) -> int:
    """Return how many are true."""
    return int(np.count_nonzero(mask))


def moments(values: NDArray[Any], scale: bool, place: Location) -> tuple[float, float | None]:
    """Return the mean of the values that are not missing and, with ``scale``, their standard deviation."""
    check_finite(values, place)
    known = values[~np.isnan(values)].astype(np.float64) if values.dtype.kind == "f" else values.astype(np.float64)
    if not len(known):
        return 0.0, 0.0 if scale else None
    largest = float(np.abs(known).max()) or 1.0
    # Dividing by the largest value keeps sums finite. A constant column must have a deviation of exactly 0.
    low, high = float(known.min()), float(known.max())
    mean = low if low == high else min(max(float((known / largest).mean()) * largest, low), high)
    spread = 0.0 if low == high else float((known / largest).std()) * largest
    return mean, spread if scale else None


def check_finite(values: NDArray[Any], place: Location) -> None:
    """Refuse infinities (n,); NaN is a missing value."""
    infinite = np.isinf(values)
    if infinite.any():
        row = int(np.argmax(infinite))
        place.refuse(row, str(values[row]), "a number must be finite", "correct the value, or pass None for unknown")


def standardised(values: Floats, mean: Any, deviation: Any) -> Floats:
    """Return (x − mean) / deviation, 0 if the deviation is 0; the values themselves if it is None."""
    if deviation is None:
        return values
    divisor = np.where(np.asarray(deviation) > 0, deviation, np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled: Floats = (values - mean) / divisor
    lost = ~np.isfinite(scaled) & ~np.isnan(values)
    # Values beyond the largest float become that float; NaN is a missing value.
    scaled[lost] = np.nan_to_num(scaled[lost])
    return scaled


@dataclass(frozen=True, kw_only=True)
class NumberEncoder:
    """A number, unchanged or standardised; a missing one becomes ``mean``.

    In all column encoders, ``missing`` means that a value was missing when the encoder learned; then one feature
    marks missing values. ``values`` returns what to write, NaN where missing.
    """

    column: str
    mean: float
    deviation: float | None
    missing: bool

    wanted: ClassVar[str] = "number"
    values: ClassVar[Any] = staticmethod(numbers)

    @classmethod
    def learn(cls, name: str, column: RawColumn, settings: Settings) -> Self:
        """Learn from the first rows."""
        values = numbers(column, Location(name))
        mean, deviation = moments(values, settings.scale, Location(name))
        return cls(column=name, mean=mean, deviation=deviation, missing=bool(column.missing.any()))

    @property
    def names(self) -> list[str]:
        """Names of the features."""
        return [self.column] + [f"{self.column} is missing"] * self.missing


@dataclass(frozen=True, kw_only=True)
class FlagEncoder:
    """A boolean as 0 or 1, never standardised; a missing one becomes the share of true values."""

    column: str
    mean: float
    missing: bool

    deviation: ClassVar[None] = None
    wanted: ClassVar[str] = "flag"
    values: ClassVar[Any] = staticmethod(flags)

    @classmethod
    def learn(cls, name: str, column: RawColumn, _: Settings) -> Self:
        """Learn from the first rows."""
        values = flags(column, Location(name))
        return cls(column=name, mean=moments(values, False, Location(name))[0], missing=bool(column.missing.any()))

    @property
    def names(self) -> list[str]:
        """Names of the features."""
        return [self.column] + [f"{self.column} is missing"] * self.missing


def mend(part: NumberEncoder | FlagEncoder, values: NDArray[Any], out: Floats, at: int) -> None:
    """Replace missing numbers in column ``at`` of ``out`` by the mean, and mark them."""
    missing = np.isnan(values)
    if missing.any():
        out[:, at] = np.where(missing, part.mean, values)
        if part.missing:
            out[:, at + 1] = missing


def write_numbers(target: Floats, given: list[tuple[int, NDArray[Any]]], scales: tuple[Floats, Floats] | None) -> None:
    """Write values to their columns, scaled: (values − shift)/divisor."""
    if scales is None:
        for at, values in given:
            target[:, at] = values
        return
    centred = np.empty(len(target))
    with np.errstate(over="ignore", invalid="ignore"):
        for at, values in given:
            np.subtract(values, scales[0][at], out=centred)
            np.divide(centred, scales[1][at], out=target[:, at])


def spans(out: Floats) -> Iterator[slice]:
    """Yield the rows of a table in blocks that stay in cache while their columns are written one by one."""
    n, width = out.shape
    size = n if out.flags.f_contiguous else max(256, SPAN_BYTES // (8 * width))
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def frequent(codes: Codes, levels: Sequence[str], most: int) -> tuple[str, ...]:
    """Return the most frequent levels, most frequent first, ties in alphabetical order."""
    counts = np.bincount(codes[codes >= 0], minlength=len(levels))
    ranked = sorted(((-int(count), level) for level, count in zip(levels, counts, strict=True) if count))
    return tuple(level for _, level in ranked[:most])


def targets(levels: Sequence[str], index: Mapping[str, int], missing: int) -> Codes:
    """Return the feature of each level, with unknown levels after the last one, then ``missing``."""
    other = len(index)
    return np.array([*(index.get(level, other) for level in levels), missing], np.intp)


@dataclass(frozen=True, kw_only=True)
class CategoryEncoder:
    """One feature for each of the most frequent levels, and one for all others; exactly one of them is 1."""

    column: str
    levels: tuple[str, ...]
    missing: bool

    wanted: ClassVar[str] = "category"

    @classmethod
    def learn(cls, name: str, column: RawColumn, settings: Settings) -> Self:
        """Learn from the first rows."""
        coded = categories(column, Location(name))
        levels = frequent(coded.values, coded.levels, settings.max_levels)
        return cls(column=name, levels=levels, missing=bool(coded.missing.any()))

    @property
    def names(self) -> list[str]:
        """Names of the features."""
        kept = [f"{self.column}={level}" for level in self.levels]
        return [*kept, f"{self.column} is other"] + [f"{self.column} is missing"] * self.missing

    @cached_property
    def _index(self) -> dict[str, int]:
        return {level: at for at, level in enumerate(self.levels)}

    def write(self, column: RawColumn, out: Floats, place: Location) -> Seen:
        """Write the features (n, width) over zeros."""
        coded, other = categories(column, place), len(self.levels)
        at = targets(coded.levels, self._index, other + self.missing)[coded.values]
        out[np.arange(len(out)), at] = 1.0
        missing = count(coded.values < 0)
        return Seen(missing, count(at == other) - (0 if self.missing else missing))


@dataclass(frozen=True, kw_only=True)
class ListEncoder:
    """How often a list has each of the most frequent items, and other items; a missing list counts as empty."""

    column: str
    levels: tuple[str, ...]

    wanted: ClassVar[str] = "list"

    @classmethod
    def learn(cls, name: str, column: RawColumn, settings: Settings) -> Self:
        """Learn from the first rows."""
        coded = categories(lists(column, Location(name))[1], Location(name))
        return cls(column=name, levels=frequent(coded.values, coded.levels, settings.max_levels))

    @property
    def names(self) -> list[str]:
        """Names of the features."""
        return [*(f"{self.column} has {level}" for level in self.levels), f"{self.column} has other"]

    @cached_property
    def _index(self) -> dict[str, int]:
        return {level: at for at, level in enumerate(self.levels)}

    def write(self, column: RawColumn, out: Floats, place: Location) -> Seen:
        """Write the features (n, width) over zeros."""
        lengths, _ = lists(column, place)
        rows, coded = occurrences(column, place)
        np.add.at(out, (rows, targets(coded.levels, self._index, 0)[coded.values]), 1.0)
        return Seen(count(lengths < 0), count(out[:, -1] > 0))


@dataclass(frozen=True, kw_only=True)
class VectorEncoder:
    """Lists of numbers of one length, with one feature per number; missing numbers become their means."""

    column: str
    means: tuple[float, ...]
    deviations: tuple[float, ...] | None
    missing: bool

    wanted: ClassVar[str] = "list"

    @classmethod
    def learn(cls, name: str, column: RawColumn, settings: Settings) -> Self:
        """Learn from the first rows."""
        lengths, _ = lists(column, Location(name))
        length = int(np.bincount(lengths[lengths >= 0]).argmax())
        table = matrix(column, length, Location(name))
        statistics = [moments(table[:, at], settings.scale, Location(f"{name}.{at}")) for at in range(length)]
        deviations = tuple(float(spread or 0.0) for _, spread in statistics) if settings.scale else None
        missing = bool(np.isnan(table).any())
        return cls(column=name, means=tuple(mean for mean, _ in statistics), deviations=deviations, missing=missing)

    @property
    def names(self) -> list[str]:
        """Names of the features."""
        return [f"{self.column}.{at}" for at in range(len(self.means))] + [f"{self.column} is missing"] * self.missing

    def write(self, column: RawColumn, out: Floats, place: Location) -> Seen:
        """Write the features (n, width) over zeros."""
        table = matrix(column, len(self.means), place)
        for at in range(table.shape[1]):
            check_finite(table[:, at], Location(f"{place.column}.{at}", place.first))
        missing = np.isnan(table)
        table = np.where(missing, self.means, table)
        out[:, : len(self.means)] = standardised(table, self.means, self.deviations)
        if self.missing:
            out[:, -1] = missing.any(axis=1)
        return Seen(count(missing.any(axis=1)), numbers=np.where(missing, np.nan, table))


@dataclass(frozen=True, kw_only=True)
class TimeEncoder:
    """A date or time: days since ``start``, time of the week and, with ``clock``, time of the day.

    Both cycles have a sine and a cosine, in UTC; weeks begin on Monday. A missing time has the mean of the days, and 0
    for the cycles.
    """

    column: str
    start: float
    clock: bool
    mean: float
    deviation: float | None
    missing: bool

    wanted: ClassVar[str] = "time"

    @classmethod
    def learn(cls, name: str, column: RawColumn, settings: Settings) -> Self:
        """Learn from the first rows."""
        seconds = times(column, Location(name))
        known = seconds[~np.isnan(seconds)]
        start = float(np.floor(known.min(initial=np.inf) / DAY) * DAY) if len(known) else 0.0
        mean, deviation = moments((seconds - start) / DAY, settings.scale, Location(name))
        clock, missing = bool((known % DAY).any()), len(known) < len(seconds)
        return cls(column=name, start=start, clock=clock, mean=mean, deviation=deviation, missing=missing)

    @property
    def names(self) -> list[str]:
        """Names of the features."""
        cycles = ["week sine", "week cosine"] + ["day sine", "day cosine"] * self.clock
        endings = ["days", *cycles] + ["is missing"] * self.missing
        return [f"{self.column} {ending}" for ending in endings]

    def write(self, column: RawColumn, out: Floats, place: Location) -> Seen:
        """Write the features (n, width) over zeros."""
        seconds = times(column, place)
        check_finite(seconds, place)
        missing = np.isnan(seconds)
        days = np.where(missing, self.mean, (seconds - self.start) / DAY)
        out[:, 0] = standardised(days, self.mean, self.deviation)
        phases = [(seconds - MONDAY) % WEEK / WEEK] + [seconds % DAY / DAY] * self.clock
        for at, phase in enumerate(phases):
            angle = 2 * np.pi * phase
            out[:, 1 + 2 * at] = np.where(missing, 0.0, np.sin(angle))
            out[:, 2 + 2 * at] = np.where(missing, 0.0, np.cos(angle))
        if self.missing:
            out[:, -1] = missing
        return Seen(count(missing), numbers=seconds)


@dataclass(frozen=True, kw_only=True)
class HashEncoder:
    """Texts or lists of texts, added as ±1 to features that all hashed columns share; missing values add nothing."""

    column: str

    wanted: ClassVar[str] = "category"
    names: ClassVar[tuple[str, ...]] = ("shared",)

    def write(self, column: RawColumn, out: Floats, place: Location) -> Seen:
        """Add to the shared features (n, H)."""
        rows, coded = occurrences(column, place)
        hashes = np.array([hash_of(self.column, level) for level in coded.levels], np.uint64)[coded.values]
        signs = np.where(hashes >> np.uint64(63), -1.0, 1.0)
        np.add.at(out, (rows, (hashes % np.uint64(2**63) % np.uint64(out.shape[1])).astype(np.intp)), signs)
        return Seen(count(column.missing))


def hash_of(column: str, level: str) -> int:
    """Return the 64-bit hash of a level: BLAKE2b of ``column=level`` in UTF-8, eight bytes, little-endian.

    The highest bit is the sign; the rest modulo the number of features is the feature. Saved models depend on it: it
    must stay the same on all machines and in all versions.
    """
    # A lone surrogate, e.g. from a text that was cut, is not valid UTF-8; it is hashed as its own three bytes.
    text = f"{column}={level}".encode(errors="surrogatepass")
    return hash64(text)


def natural_kind(column: RawColumn, hashing: int | None) -> str:
    """Return the kind of a column that its values suggest."""
    if column.items is not None:
        items, known = column.items.values, column.values[column.values >= 0]
        if column.items.kind == "number" and items.dtype.kind == "f":
            fractions = bool((items[np.isfinite(items)] % 1).any())
            if fractions or known.min() == known.max():
                return "vector"
        return "list" if hashing is None else "hash"
    return "hash" if column.kind == "category" and hashing is not None else column.kind
