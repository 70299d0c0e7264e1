"""Contexts as users pass them, turned into a table of numbers: arrays, lists, data frames, Arrow and CSR."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spuir.base.records import as_array, only_numbers
from spuir.errors import InputError, quoted

NO_SERIES = "pass a DataFrame: X.iloc[[0]] for one row, X[[name]] for one column"
"""The remedy where contexts are a Series."""


def column_names(X: Any) -> list[str] | None:
    """Return the column names of a data frame or an Arrow table, None for anything else."""
    if isinstance(X, np.ndarray):
        return None
    if is_arrow(X):
        return list(X.schema.names)
    columns = getattr(X, "columns", None)
    return None if columns is None or not hasattr(X, "to_numpy") else [str(name) for name in columns]


def is_arrow(X: Any) -> bool:
    """Tell whether a table is Arrow's, whose ``columns`` are the columns themselves."""
    return type(X).__module__.startswith("pyarrow") and hasattr(X, "schema")


def is_series(X: Any) -> bool:
    """Tell whether contexts are one row or one column of a pandas DataFrame."""
    return hasattr(X, "iloc") and X.ndim == 1


def as_table(X: Any, names: Sequence[str] | None) -> Any:
    """Return contexts as a two-dimensional numeric array or a CSR matrix, without copying where possible.

    DataFrame columns are matched by name with ``names`` where these are known.
    """
    if isinstance(X, np.ndarray):
        table = as_array("X", X)
    elif (given := column_names(X)) is not None:
        table = _ordered(X, given, names)
    elif hasattr(X, "tocsr"):
        table = X.tocsr()
    else:
        table = as_array("X", X)
    if table.ndim != 2:
        remedy = "pass an array or a DataFrame, or raw rows to an encoder"
        if is_series(X):
            remedy = NO_SERIES
        elif table.ndim == 1 and table.size and table.dtype.kind in "fiub":
            remedy = "use X.reshape(1, -1) for one row"
        raise InputError("X", f"shape {table.shape}", "contexts are a table (rows, columns)", remedy)
    if table.dtype.kind not in "fiub":
        table = _numeric(table)
    if table.shape[1] == 0:
        raise InputError("X", "no columns", "a context has at least one column", "add a constant column")
    return table


def _ordered(X: Any, given: list[str], names: Sequence[str] | None) -> NDArray[Any]:
    if len(set(given)) < len(given):
        twice = next(name for name in given if given.count(name) > 1)
        raise InputError("X", f"column {twice!r} twice", "columns are matched by name", "rename one of them")
    if names is not None and given != list(names):
        missing = [name for name in names if name not in given]
        extra = [name for name in given if name not in names]
        if missing or extra or len(given) != len(names):
            got = f"columns without {missing[0]!r}" if missing else f"column {(extra or given)[0]!r}"
            raise InputError("X", got, f"the columns are {quoted(names)}", "select exactly these")
        X = X.iloc[:, [given.index(name) for name in names]] if hasattr(X, "iloc") else X.select(list(names))
    if not is_arrow(X):
        return _from_frame(X) if hasattr(X, "iloc") else X.to_numpy()
    table = [column.to_numpy(zero_copy_only=False) for column in X.columns]
    return np.column_stack(table) if table else np.empty((X.num_rows, 0))


def _from_frame(X: Any) -> NDArray[Any]:
    """Return a pandas DataFrame as numbers, what is missing as NaN; a column of anything else is named."""
    if all(dtype.kind in "fiub" for dtype in X.dtypes):
        same = len(set(X.dtypes)) == 1 and isinstance(X.dtypes.iloc[0], np.dtype)
        return X.to_numpy() if same else X.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.column_stack([_from_series(X.iloc[:, at], name) for at, name in enumerate(X.columns)])


def _from_series(column: Any, name: Any) -> NDArray[Any]:
    if column.dtype.kind in "fiub":
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    return _numeric(column.to_numpy(dtype=object), f"column {name!r} of dtype {column.dtype}")


def _numeric(table: Any, named: str | None = None) -> NDArray[Any]:
    """Return a table of objects, as a mixed DataFrame gives, as numbers; refuse text, dates and complex numbers."""
    try:
        return only_numbers(table)
    except (TypeError, ValueError, OverflowError):
        got, remedy = named or f"dtype {table.dtype}", "leave it out, or encode raw columns with spuir.Encoder"
        raise InputError("X", got, "contexts must be numbers", remedy) from None
