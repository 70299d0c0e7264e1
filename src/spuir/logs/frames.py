"""Tables in memory as Arrow tables: data frames, dicts of arrays, rows as dicts, and anything that exports Arrow."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from spuir.errors import InputError
from spuir.logs.columns import COLUMNS, is_action_column
from spuir.logs.times import is_single
from spuir.tables.arrow import pa

_LISTS = [name for name, column in COLUMNS.items() if column.holds in ("numbers", "choices")]


def to_table(source: Any) -> "pa.Table":
    """Return a source in memory as an Arrow table.

    Parameters
    ----------
    source
        A DataFrame (its index is left out), an Arrow table, batch or reader (which is read to its end), anything else
        that exports an Arrow stream, a dict of arrays, or a list of rows as dicts. In a dict, an array (n, k) under a
        name x becomes the columns x_0…x_(k−1).
    """
    if isinstance(source, pa.Table):
        return source
    if isinstance(source, pa.RecordBatch):
        return pa.Table.from_batches([source])
    if isinstance(source, Mapping):
        return _from_columns(source.items())
    if _is_rows(source):
        names = list(dict.fromkeys(name for row in source for name in row))
        return _from_columns((name, [row.get(name) for row in source]) for name in names)
    if type(source).__module__.partition(".")[0] == "pandas" and hasattr(source, "columns"):
        return _from_columns((name, source.iloc[:, at]) for at, name in enumerate(source.columns))
    if hasattr(source, "__arrow_c_stream__"):
        return pa.table(source)
    rule = "a log is a path, a folder, a list of paths, a DataFrame, an Arrow table or a dict of arrays"
    raise InputError("source", type(source).__name__, rule, "pass one of these")


def _is_rows(source: Any) -> bool:
    return isinstance(source, (list, tuple)) and bool(source) and all(isinstance(row, Mapping) for row in source)


def _from_columns(columns: Iterable[tuple[Any, Any]]) -> "pa.Table":
    arrays: dict[str, Any] = {}
    for name, values in _flat(columns):
        if name in arrays:
            raise InputError("source", f"column {name!r} twice", "every name is used once", "rename one of them")
        try:
            arrays[name] = (
                values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values, from_pandas=True)
            )
        except (pa.ArrowException, OverflowError, UnicodeError) as error:
            why = str(error).splitlines()[0][:120]
            rule = "a column holds one type"
            raise InputError(f"column {name!r}", why, rule, "convert it to numbers or to text") from None
    lengths = {name: len(values) for name, values in arrays.items()}
    if len(set(lengths.values())) > 1:
        first, other = next((a, b) for a in lengths for b in lengths if lengths[a] != lengths[b])
        got = f"{lengths[first]} values in {first!r} and {lengths[other]} in {other!r}"
        raise InputError("source", got, "every column has as many rows", "match the lengths")
    return pa.table(arrays)


def _flat(columns: Iterable[tuple[Any, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield named columns; a table is split into columns, or becomes lists if its canonical column holds lists."""
    for name, values in columns:
        if isinstance(values, np.ndarray) and values.ndim == 2:
            if str(name) in _LISTS or is_action_column(str(name)):
                yield str(name), values.tolist()
            else:
                yield from ((f"{name}_{at}", values[:, at]) for at in range(values.shape[1]))
        elif is_single(values):
            rule = "a column is an array of values"
            raise InputError(f"column {str(name)!r}", repr(values)[:60], rule, "repeat the value in every row")
        else:
            yield str(name), values
