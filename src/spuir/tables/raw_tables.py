"""Tables of any library as blocks of named columns."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from spuir.errors import InputError, quoted
from spuir.tables.contexts import NO_SERIES, is_series
from spuir.tables.raw_columns import Location, RawColumn, empty, members, plain, read


class Block:
    """Rows of a table: columns by name, dotted names for those inside objects. Each column is read on request."""

    def __init__(self, rows: int, names: Sequence[Any], take: Callable[[int], Any], first: int = 0) -> None:
        self.rows, self.first, self._take = rows, first, take
        self.names = [str(name) for name in names]
        self._positions = {name: at for at, name in enumerate(self.names)}
        # By top-level column and dotted name, since two top-level columns may give the same dotted name.
        self._flat: dict[tuple[str, str], Any] = {}

    def require(self, names: Sequence[str]) -> None:
        """Refuse a block without one of these top-level columns."""
        absent = [name for name in names if name not in self._positions]
        if absent:
            got, rule = f"the columns {quoted(self.names)}", f"the encoder also learned from {quoted(absent)}"
            raise InputError("X", got, rule, "add these columns, with None where a value is unknown")

    def flatten(self, name: str) -> list[str]:
        """Return the names of the columns inside a top-level column; its own name if it holds no objects."""
        return self._open(name, name, self._plain(name))

    def _plain(self, name: str) -> Any:
        if len(self._positions) < len(self.names) and self.names.count(name) > 1:
            raise InputError("X", f"column {name!r} twice", "columns are matched by name", "rename one of them")
        return plain(self._take(self._positions[name]))

    def _open(self, owner: str, name: str, source: Any) -> list[str]:
        inside = members(source, Location(name, self.first))
        if inside is None:
            self._flat[owner, name] = source
            return [name]
        return [one for key, values in inside.items() for one in self._open(owner, f"{name}.{key}", values)]

    def column(self, name: str, owner: str, wanted: str | None = None) -> RawColumn:
        """Return the column called ``name``: the top-level column ``owner``, or one inside it."""
        place = (owner, name)
        if place not in self._flat:
            if name == owner:
                self._flat[place] = self._plain(name)
            elif self.flatten(owner) == [owner]:
                return self._all_missing(owner, name)
        if place not in self._flat:
            return empty(self.rows)
        return read(self._flat[place], Location(name, self.first), wanted)

    def _all_missing(self, owner: str, name: str) -> RawColumn:
        """Refuse a column of values if the encoder learned from objects, unless all values are missing."""
        values = read(self._flat[owner, owner], Location(owner, self.first))
        if values.kind != "empty":
            row = int(np.argmin(values.missing))
            rule = f"the encoder learned from objects with {name!r} in this column"
            Location(owner, self.first).refuse(row, values.show(row), rule, "pass objects")
        return values


def blocks(raw: Any, limit: int | None = None) -> list[Block]:
    """Return a table as blocks of rows; with a ``limit``, its first rows in one block."""
    if hasattr(raw, "to_arrow"):
        raw = raw.to_arrow()
    if hasattr(raw, "to_batches"):
        batches = (raw if limit is None else raw.slice(0, limit).combine_chunks()).to_batches()
    elif hasattr(raw, "schema") and hasattr(raw, "num_rows"):
        batches = [raw if limit is None else raw.slice(0, limit)]
    else:
        return [_block(raw, limit)]
    starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
    return [
        Block(batch.num_rows, batch.schema.names, batch.column, int(start))
        for batch, start in zip(batches, starts, strict=False)
    ]


def _block(raw: Any, limit: int | None) -> Block:
    if hasattr(raw, "iloc") and hasattr(raw, "columns"):
        return _of_frame(raw if limit is None else raw.iloc[:limit])
    fields = list(getattr(getattr(raw, "dtype", None), "names", None) or ())
    if fields:
        table = cast("NDArray[Any]", raw).reshape(-1)[:limit]
        return Block(len(table), fields, lambda at: table[fields[at]])
    if isinstance(raw, Mapping):
        return _of_mapping(cast("Mapping[Any, Any]", raw), limit)
    if isinstance(raw, (list, tuple)):
        rows = cast("Sequence[Any]", raw)[:limit]
        if all(isinstance(row, Mapping) for row in rows):
            keys = list(dict.fromkeys(key for row in rows for key in row))
            return Block(len(rows), keys, lambda at: [row.get(keys[at]) for row in rows])
    rule = "with an encoder X is a table of named columns"
    remedy = (
        NO_SERIES if is_series(raw) else "pass a DataFrame, an Arrow table, a dict of columns or a list of dict rows"
    )
    raise InputError("X", "no column names", rule, remedy)


def _of_frame(frame: Any) -> Block:
    names, kinds = list(frame.columns), set(frame.dtypes)
    if len(kinds) == 1 and str(next(iter(kinds))) in ("float64", "float32", "int64", "bool"):
        # Taking columns from one array is much faster than from a frame.
        table = frame.to_numpy()
        return Block(len(frame), names, lambda at: table[:, at])
    return Block(len(frame), names, lambda at: frame[names[at]])


def _is_one_value(value: Any) -> bool:
    """Return whether a value is an array of rank 0, which holds one value."""
    return isinstance(value, np.ndarray) and value.ndim == 0


def _of_mapping(table: Mapping[Any, Any], limit: int | None) -> Block:
    """Return a dict of columns as a block; a dict with a single value anywhere is one row."""
    values = list(table.values())
    if any(
        isinstance(value, (str, bytes, Mapping)) or _is_one_value(value) or not hasattr(value, "__len__")
        for value in values
    ):
        return Block(1, list(table), lambda at: [values[at].item() if _is_one_value(values[at]) else values[at]])
    lengths = [len(value) for value in values]
    if len(set(lengths)) > 1:
        odd = next(at for at, length in enumerate(lengths) if length != lengths[0])
        names = [repr(str(name)) for name in table]
        got = f"{lengths[odd]} values in {names[odd]} and {lengths[0]} in {names[0]}"
        raise InputError(
            "X", got, "all columns have the same length", "pass one value per row, or a dict of single values"
        )
    rows = lengths[0] if lengths else 0
    return Block(rows if limit is None else min(rows, limit), list(table), lambda at: values[at][:limit])
