"""Logs that live in memory as parallel arrays: contexts as a table, actions and rewards beside it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spuir.errors import InputError, quoted
from spuir.logs.columns import COLUMNS, is_action_column
from spuir.logs.frames import to_table
from spuir.tables.arrow import is_number, pa

_PREFIX = "context_"
_MOST_CELLS = 1 << 28
"""Cells of a sparse table that is made dense."""


def has_keys(source: Any, needed: Sequence[str]) -> bool:
    """Return whether an object is a dict with these keys."""
    return isinstance(source, Mapping) and all(key in source for key in needed)


def keyed(source: Any, order: Sequence[str], needed: int, rule: str) -> Mapping[str, Any]:
    """Return a dict, or a tuple of its values in this order, as a dict; the first ``needed`` ones must be there."""
    fits = isinstance(source, tuple) and needed <= len(source) <= len(order)
    given: Any = dict(zip(order, source, strict=False)) if fits else source
    if not has_keys(given, order[:needed]):
        remedy = "pass a dict with these keys, or a tuple in this order"
        raise InputError("source", type(source).__name__, rule, remedy)
    return given


def table_of(columns: Mapping[str, Any], contexts: Any) -> "pa.Table":
    """Return canonical columns and contexts (n, d) as a table.

    Parameters
    ----------
    columns
        Arrays (n,) by canonical name; those that are None are left out.
    contexts
        A DataFrame, whose columns keep their names, or an array, a list of rows or a CSR matrix, whose columns are
        called context_0, context_1, …; None = no contexts.
    """
    given = {name: values for name, values in columns.items() if values is not None}
    return to_table({**given, **_named(contexts)})


def _named(contexts: Any) -> dict[str, Any]:
    if contexts is None:
        return {}
    if hasattr(contexts, "columns") and hasattr(contexts, "iloc"):
        return {str(name): contexts.iloc[:, at] for at, name in enumerate(contexts.columns)}
    if hasattr(contexts, "toarray"):
        if contexts.shape[0] * contexts.shape[1] > _MOST_CELLS:
            rule = f"a sparse table of at most {_MOST_CELLS:,} cells becomes columns"
            raise InputError("contexts", f"shape {contexts.shape}", rule, "pass it to Bandit.partial_fit as it is")
        contexts = contexts.toarray()
    try:
        values = np.asarray(contexts)
    except ValueError:
        rule = "every row has as many columns"
        raise InputError("contexts", "rows of different lengths", rule, "fill the short rows") from None
    if values.ndim != 2:
        rule = "contexts are a table (rows, columns)"
        raise InputError("contexts", f"shape {values.shape}", rule, "reshape to two dimensions")
    return {f"{_PREFIX}{at}": values[:, at] for at in range(values.shape[1])}


def numeric_contexts(schema: "pa.Schema") -> list[str]:
    """Return the names of the context columns, and refuse one that holds no numbers."""
    names = [name for name in schema.names if name not in COLUMNS and not is_action_column(name)]
    for name in names:
        kind = schema.field(name).type
        if not is_number(kind) and not pa.types.is_boolean(kind):
            rule = "contexts are numbers there"
            raise InputError(f"column {name!r}", f"type {kind}", rule, "encode it first, or drop it")
    return names


def column(table: "pa.Table", name: str, *, needed: bool = False) -> NDArray[Any] | None:
    """Return a canonical column (n,), None where the table has none; a missing value is refused."""
    if name not in table.column_names:
        if needed:
            raise InputError("table", f"no column {name!r}", "it is needed here", "add it, or rename one")
        return None
    found = table[name]
    if found.null_count:
        rule = "arrays have no missing values"
        raise InputError(
            f"column {name!r}", f"{found.null_count} missing values", rule, "fill them, or drop these rows"
        )
    return found.to_numpy()


def matrix(table: "pa.Table") -> NDArray[np.float64]:
    """Return the context columns as an array (n, d) of numbers."""
    columns = [table[name].cast(pa.float64()).to_numpy() for name in numeric_contexts(table.schema)]
    return np.column_stack(columns) if columns else np.empty((table.num_rows, 0))


def codes_of(table: "pa.Table", actions: Sequence[Any] | None) -> tuple[NDArray[np.int64], list[Any]]:
    """Return executed actions as codes (n,) from 0, and the labels in the order of the codes.

    Without ``actions``, labels that are whole numbers from 0 are codes already; others are sorted.
    """
    executed = column(table, "action", needed=True)
    values = [] if executed is None else executed.tolist()
    if actions is None:
        found = set(values)
        if all(isinstance(label, int) and label >= 0 for label in found):
            labels: list[Any] = list(range(max(found, default=-1) + 1))
        else:
            labels = sorted(found)
    else:
        labels = list(actions)
    places = {label: at for at, label in enumerate(labels)}
    for row, label in enumerate(values):
        if label not in places:
            rule = f"the actions are {quoted(labels)}"
            raise InputError("action", f"{label!r} at row {row}", rule, "add it to actions=[…]")
    return np.array([places[label] for label in values], dtype=np.int64), labels


def labelled(codes: Any, actions: Sequence[Any] | None) -> Any:
    """Return codes from 0 as labels; without ``actions`` they are labels already."""
    if actions is None:
        return codes
    values = np.asarray(codes)
    if values.dtype.kind not in "iu" or (len(values) and not 0 <= values.min() <= values.max() < len(actions)):
        got = f"{values.dtype}" if values.dtype.kind not in "iu" else f"{values.min()} to {values.max()}"
        rule = f"with actions=[…] it holds codes from 0 to {len(actions) - 1}"
        raise InputError("action", got, rule, "leave actions out, or correct the codes")
    return [actions[code] for code in values.tolist()]
