"""Decisions as rows, with contexts as arrays, data frames or sparse matrices."""

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spuir.base.checked_arrays import FINITE_REWARDS, OPTIONAL_COLUMNS, check_column, check_table_of_actions
from spuir.base.pairs import Pairs
from spuir.base.records import Floats, Mask
from spuir.errors import InputError
from spuir.logs.times import Instants, is_single
from spuir.tables.contexts import column_names

_RULES = {"rewards": (FINITE_REWARDS, None)} | {name: (rule, good) for name, rule, good in OPTIONAL_COLUMNS}


class DecisionRows(NamedTuple):
    """Decisions row by row: contexts (n, d) of any form, labels, instants (n,), and columns or None.

    ``eligible`` is a mask (n, M), or (n,) lists of labels; ``features`` (n, y) describe the executed actions.
    """

    contexts: Any
    actions: list[Hashable]
    times: Instants
    propensities: Floats | None
    weights: Floats | None
    eligible: Mask | NDArray[np.object_] | None
    features: Floats | None = None

    def take(self, at: NDArray[np.intp]) -> "DecisionRows":
        """Return the rows at some positions."""
        frame = column_names(self.contexts) is not None
        columns: list[Any] = [None if column is None else column[at] for column in self[2:]]
        return DecisionRows(
            self.contexts.iloc[at] if frame else self.contexts[at], [self.actions[one] for one in at], *columns
        )

    def shape(self) -> dict[str, str]:
        """Return in words what rows of one episode share."""
        names = column_names(self.contexts)
        form = f"columns {', '.join(names[:8])}" if names is not None else f"{self.contexts.shape[1]} columns"
        form += " (sparse)" if hasattr(self.contexts, "tocsr") else ""
        return {
            "contexts": form + (f" … {len(names)}" if names is not None and len(names) > 8 else ""),
            "propensities": "none" if self.propensities is None else "one per row",
            "weights": "none" if self.weights is None else "one per row",
            "eligible": _form(self.eligible),
            "action_features": "none" if self.features is None else f"{self.features.shape[1]} columns",
        }


def _form(eligible: Any) -> str:
    """Return in words how decisions say what could be chosen."""
    if eligible is None:
        return "none"
    return "lists of labels" if eligible.ndim == 1 else f"{eligible.shape[1]} actions"


def make_rows(
    contexts: Any,
    actions: Any,
    times: Instants,
    propensities: Any,
    weights: Any,
    eligible: Any,
    features: ArrayLike | None = None,
) -> DecisionRows:
    """Return checked rows, one for each of ``times`` (n,); contexts are copied, single values apply to all rows."""
    length = len(times)
    labels = as_list("actions", actions)
    if len(labels) != length:
        rule = f"one action for each id is needed, {length} here"
        raise InputError("actions", f"{len(labels)} actions", rule, "match the lengths")
    chances = None if propensities is None else check_values("propensities", propensities, length)
    weighted = None if weights is None else check_values("weights", weights, length)
    known = _eligible(eligible, labels)
    own = None if features is None else np.array(features, dtype=np.float64).reshape(length, -1)
    return DecisionRows(_copied(contexts, length), labels, times, chances, weighted, known, own)


def _eligible(eligible: Any, executed: list[Hashable]) -> Mask | NDArray[np.object_] | None:
    """Return a checked mask (n, M), or lists of labels (n,), each of which has the executed action."""
    if eligible is None:
        return None
    if isinstance(eligible, Pairs):
        eligible = eligible.mask
    length, lists = len(executed), _lists(eligible)
    if lists is None:
        mask = np.asarray(eligible)
        mask = np.broadcast_to(mask, (length, len(mask))) if mask.ndim == 1 else mask
        return check_table_of_actions("eligible", mask, length, np.bool_)
    if len(lists) != length:
        rule = f"one list for each id is needed, {length} here"
        raise InputError("eligible", f"{len(lists)} lists", rule, "match the lengths")
    for row, (one, action) in enumerate(zip(lists, executed, strict=True)):
        if action not in one:
            got = f"{action!r} executed but not eligible at row {row}"
            raise InputError("eligible", got, "an executed action was eligible", "correct the list")
    made = np.empty(length, np.object_)
    made[:] = lists
    return made


def _lists(eligible: Any) -> list[list[Hashable]] | None:
    """Return lists of labels, one per row; None for a mask: truth values, or as many 0 and 1 in every row."""
    if isinstance(eligible, np.ndarray) and eligible.dtype != object:
        return None
    given = eligible.tolist() if hasattr(eligible, "tolist") else eligible
    if not isinstance(given, (list, tuple)) or not all(isinstance(one, (list, tuple)) for one in given):
        return None
    rows: list[list[Hashable]] = [list(one) for one in given]
    labels = {label for one in rows for label in one}
    if any(isinstance(label, (bool, np.bool_)) for label in labels):
        return None
    return None if labels <= {0, 1} and len({len(one) for one in rows}) == 1 else rows


def check_values(name: str, values: Any, length: int) -> Floats:
    """Return a column (n,) of numbers, checked by the rule that a batch has for it; a single value is repeated."""
    rule, good = _RULES[name]
    return check_column(name, np.full(length, values) if is_single(values) else values, length, rule, good)


def as_list(what: str, values: Any) -> list[Hashable]:
    """Return ids or labels as a list, a single one as a list of one."""
    if values is None:
        raise InputError(what, None, "every decision has its own", "pass one for each row")
    if is_single(values):
        values = [values[()] if isinstance(values, np.ndarray) else values]
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    plain = [one.item() if isinstance(one, np.generic) else one for one in listed]
    for row, one in enumerate(plain):
        if one is None or not isinstance(one, Hashable) or one != one:  # noqa: PLR0124 - true of NaN
            raise InputError(what, f"{one!r} at row {row}", "it is a text or a number", "pass one for each row")
    return plain


def _copied(contexts: Any, length: int) -> Any:
    """Return contexts (n, d) that no caller can change any more."""
    if column_names(contexts) is not None or hasattr(contexts, "tocsr"):
        table = contexts.tocsr().copy() if hasattr(contexts, "tocsr") else contexts.copy()
    else:
        try:
            table = np.array(contexts)
        except ValueError:
            rule = "every row has as many columns"
            raise InputError("contexts", "rows of different lengths", rule, "fill the short rows") from None
        table = table.reshape(1, -1) if table.ndim == 1 and length == 1 else table
    if table.ndim != 2 or table.shape[0] != length:
        rule = f"contexts have one row for each id, {length} here"
        raise InputError("contexts", f"shape {table.shape}", rule, "match the lengths")
    return table


def joined(parts: list[DecisionRows]) -> DecisionRows:
    """Return the rows of all parts, which are alike, as one."""
    if not parts:
        return DecisionRows(np.empty((0, 0)), [], np.empty(0, np.int64), None, None, None)
    first = parts[0].contexts
    tables = [part.contexts for part in parts]
    if column_names(first) is not None:
        import pandas

        contexts = pandas.concat(tables, ignore_index=True)
    elif hasattr(first, "tocsr"):
        from scipy import sparse

        contexts = sparse.vstack(tables, format="csr")
    else:
        contexts = np.concatenate(tables)
    actions = [action for part in parts for action in part.actions]
    columns = zip(*(part[2:] for part in parts), strict=True)
    whole: list[Any] = [None if some[0] is None else np.concatenate(some) for some in columns]
    return DecisionRows(contexts, actions, *whole)


def context_columns(contexts: Any) -> dict[str, Any]:
    """Return contexts (n, d) column by column: by their names, or as x0…x(d−1) where they have none."""
    names = column_names(contexts)
    if names is not None:
        return {name: contexts.iloc[:, at].to_numpy() for at, name in enumerate(names)}
    table = contexts.toarray() if hasattr(contexts, "toarray") else contexts
    return {f"x{at}": table[:, at] for at in range(table.shape[1])}
