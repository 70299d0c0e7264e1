"""Which actions may be chosen in each row, as users say it: masks, lists of labels, tables of features per decision."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from spuir.base.pairs import Pairs
from spuir.base.records import Codes, Floats, Mask, as_array, only_numbers
from spuir.core.ties import eligible_mask
from spuir.errors import InputError
from spuir.tables.contexts import column_names, is_arrow
from spuir.tables.labels import Labels, hashable

ROW, ACTION = "row", "action"
"""The first columns of a long table of features per decision."""


def read_eligible(labels: Labels, given: Any, n: int) -> Mask | Pairs | None:
    """Return which active actions may be chosen in n rows, None for all: as a mask, or as pairs where lists are given.

    ``given`` is None, a mask (n, M) or (M,), a sparse mask (n, M), one list of labels per row (also a column of lists
    of pandas or Arrow, or a list of arrays or indexes), or one list of text labels for all rows.
    """
    if given is None:
        return None if labels.all_active else eligible_mask(np.array(labels.active), n, len(labels.names))
    pairs = as_pairs(labels, given, n)
    if pairs is None:
        mask = eligible_mask(labels.table("eligible", given), n, len(labels.names))
        return mask if labels.all_active else eligible_mask(mask & np.array(labels.active), n, len(labels.names))
    return active_pairs(labels, pairs)


def active_pairs(labels: Labels, pairs: Pairs) -> Pairs:
    """Return the pairs of active actions; a row that has none left is refused."""
    if not labels.all_active:
        pairs = pairs.at(np.array(labels.active)[pairs.codes])
    _refuse_empty(pairs.counts, "no action that is active")
    return pairs


def _refuse_empty(counts: Codes, got: str = "no action") -> None:
    if not counts.all():
        row = int(np.argmin(counts))
        raise InputError("eligible", f"{got} at row {row}", "every row needs one", "allow an action there")


def as_pairs(labels: Labels, given: Any, n: int) -> Pairs | None:
    """Return lists of labels or a sparse mask as pairs, retired actions included; None for anything else."""
    if isinstance(given, Pairs):
        return replace(given, n_actions=len(labels.names))
    if hasattr(given, "tocsr"):
        return _of_sparse(labels, given, n)
    given = _one_list_per_row(labels, given, n)
    if given is None:
        return None
    lengths, flat = given
    if len(lengths) != n:
        raise InputError("eligible", f"length {len(lengths)}", f"there are {n} rows", "give one list of labels per row")
    _refuse_empty(lengths)
    codes = _codes(labels, flat, lengths)
    return sorted_pairs(labels, np.repeat(np.arange(n), lengths), codes, n)


def sorted_pairs(labels: Labels, rows: Codes, codes: Codes, n: int, features: Floats | None = None) -> Pairs:
    """Return pairs in any order as a record; a pair that comes twice is refused."""
    m = len(labels.names)
    keys = rows * m + codes
    order = None if (np.diff(keys) > 0).all() else np.argsort(keys, kind="stable")
    if order is not None:
        keys, codes = keys[order], codes[order]
        features = None if features is None else features[order]
        twice = np.flatnonzero(np.diff(keys) == 0)
        if len(twice):
            row, code = divmod(int(keys[twice[0]]), m)
            got = f"{labels.names[code]!r} twice at row {row}"
            raise InputError("eligible", got, "an action is listed once per row", "drop the second")
    starts = np.searchsorted(keys, np.arange(n + 1) * m)
    return Pairs(n_actions=m, starts=starts, codes=codes, features=features)


def _codes(labels: Labels, flat: Any, lengths: Codes, subject: str = "eligible") -> Codes:
    """Return flat labels as codes; an unknown one is refused with the row of its list."""
    try:
        return labels.encode(flat)
    except LookupError:
        values = flat.to_pylist() if hasattr(flat, "to_pylist") else list(flat)
        place = next(at for at, label in enumerate(values) if not hashable(label) or label not in labels.codes)
        row = int(np.searchsorted(np.cumsum(lengths), place, side="right"))
        labels.unknown(values[place], row, subject)
        raise


def _one_list_per_row(labels: Labels, given: Any, n: int) -> tuple[Codes, Any] | None:
    """Return the lengths (n,) and the labels of one list per row; None where a mask is given."""
    if hasattr(given, "combine_chunks"):
        given = given.combine_chunks()
    if hasattr(given, "value_lengths"):  # a column of lists of Arrow
        return np.asarray(given.value_lengths().fill_null(0)).astype(np.intp), given.flatten()
    kind = getattr(getattr(given, "dtype", None), "kind", None)
    if hasattr(given, "to_pylist") and not hasattr(given, "schema"):  # a column of labels of Arrow, no table
        given = given.to_pylist()
    elif kind == "U" or (kind == "O" and given.ndim == 1):  # an array, a Series or an Index
        given = given.tolist()
    if not isinstance(given, (list, tuple)):
        return None
    rows = [one.tolist() if hasattr(one, "tolist") else one for one in cast("Sequence[Any]", given)]
    if rows and all(isinstance(one, str) for one in rows):
        rows = [rows] * n
    lists = [isinstance(one, (list, tuple, set, frozenset)) for one in rows]
    if not any(lists):
        return None
    if not all(lists):
        row = lists.index(False)
        rule = "every row has a list of labels"
        raise InputError("eligible", f"{rows[row]!r} at row {row}", rule, "list the actions that can be chosen there")
    flat = [label for one in rows for label in one]
    if _is_mask(rows, flat, len(labels.names)):
        return None
    return np.array([len(one) for one in rows], np.intp), flat


def _is_mask(rows: Sequence[Any], values: Sequence[Any], m: int) -> bool:
    """Return whether nested lists are meant as a mask: they hold truth values, or M numbers that cannot be labels.

    Labels are distinct within a row; where they are 0 and 1, rows of two are read as a mask.
    """
    kinds = set(map(type, values))
    if kinds & {bool, np.bool_}:
        return True
    full = all(not isinstance(one, (set, frozenset)) and len(one) == m for one in rows)
    if not full or not all(issubclass(kind, (int, float, np.number)) for kind in kinds):
        return False
    return all(value in (0, 1) for value in values) or any(len(set(one)) < m for one in rows)


def _of_sparse(labels: Labels, given: Any, n: int) -> Pairs:
    """Return the entries of a sparse mask (n, M) that are not 0."""
    m = len(labels.names)
    if tuple(given.shape) != (n, m):
        raise InputError("eligible", f"shape {tuple(given.shape)}", f"it must be ({n}, {m})", "match the table")
    table = given.tocoo()
    kept = table.data != 0
    return sorted_pairs(labels, table.row[kept].astype(np.intp), table.col[kept].astype(np.intp), n)


# ---- features per decision ------------------------------------------------------------------------------------


def varying_names(given: Any) -> tuple[str, ...]:
    """Return the names of the given features: the names of a table's columns, else y0, y1 and so on."""
    names = _names(given)
    if names is not None:
        return tuple(name for name in names if name not in (ROW, ACTION))
    table = np.asarray(given)
    return tuple(f"y{at}" for at in range(table.shape[-1] if table.ndim > 1 else 1))


def _names(given: Any) -> list[str] | None:
    return [str(name) for name in given] if isinstance(given, Mapping) else column_names(given)


def is_long(given: Any) -> bool:
    """Return whether features per decision come as a long table (row, action, y…)."""
    names = _names(given)
    return names is not None and ROW in names and ACTION in names


def read_varying(labels: Labels, given: Any, eligible: Any, n: int, names: Sequence[str]) -> Pairs:
    """Return the eligible pairs with their features (k, y) of a table (n, M, y) or a long table (row, action, y…).

    A long table says who is eligible; ``eligible`` must then be None.
    """
    if is_long(given):
        if eligible is not None:
            rule = "a long table of action_features says who is eligible"
            raise InputError("eligible", "lists or a mask too", rule, "pass one of the two")
        rows = _whole(_column(given, ROW), n)
        features = _numbers(given, names, len(rows))
        codes = _long_codes(labels, given)
        if len(codes) != len(rows):
            raise InputError("action_features", f"{len(codes)} actions", f"there are {len(rows)} rows", "match them")
        pairs = sorted_pairs(labels, rows, codes, n, features)
        _refuse_empty(pairs.counts)
        return active_pairs(labels, pairs)
    if _names(given) is not None:
        got = f"a table without {' and '.join(repr(one) for one in (ROW, ACTION) if one not in (_names(given) or ()))}"
        rule = "a long table has the row of X and the label in the columns 'row' and 'action'"
        raise InputError("action_features", got, rule, "add what is missing, or pass an array (n, M, y)")
    table = as_array("action_features", given)
    shape = (n, len(labels.names), len(names))
    if table.shape != shape:
        remedy = "pass one row of features per row and action, or a long table (row, action, …)"
        raise InputError("action_features", f"shape {table.shape}", f"it must be {shape}", remedy)
    found = read_eligible(labels, eligible, n)
    if not isinstance(found, Pairs):
        found = Pairs.of_mask(eligible_mask(found, n, len(labels.names)))
    return replace(found, features=_finite(table[found.rows, found.codes], names, found.rows))


def long_pairs(labels: Labels, given: Any, n: int) -> Pairs:
    """Return the pairs of a long table, without its features."""
    return sorted_pairs(labels, _whole(_column(given, ROW), n), _long_codes(labels, given), n)


def _long_codes(labels: Labels, given: Any) -> Codes:
    """Return the actions of a long table as codes; an unknown one is refused with its line in the table."""
    column = _column(given, ACTION)
    return _codes(labels, column, np.ones(len(column), np.intp), "action_features")


def with_executed(labels: Labels, pairs: Pairs, codes: Codes) -> Pairs:
    """Return the pairs of active actions, and in each row the executed one, which must be among the pairs."""
    place = pairs.find(codes)
    if (place < 0).any():
        row = int(np.argmin(place))
        got = f"{labels.names[codes[row]]!r} executed but not eligible at row {row}"
        raise InputError("eligible", got, "an executed action was eligible", "correct the list")
    if labels.all_active:
        return pairs
    kept = np.array(labels.active)[pairs.codes]
    kept[place] = True
    return pairs.at(kept)


def read_executed(labels: Labels, given: Any, codes: Codes, names: Sequence[str]) -> Floats:
    """Return the features (B, y) of the executed actions, given as such or in a form of :func:`read_varying`."""
    n = len(codes)
    if is_long(given) or np.ndim(given) == 3:
        pairs = read_varying(replace(labels, active=(True,) * len(labels.names)), given, None, n, names)
        place = pairs.find(codes)
        if (place < 0).any():
            row = int(np.argmin(place))
            got = f"no features of {labels.names[codes[row]]!r} at row {row}"
            raise InputError("action_features", got, "the executed action needs them", "add a row for it")
        assert pairs.features is not None
        return pairs.features[place]
    return read_sample(given, n, names)


def read_sample(given: Any, n: int, names: Sequence[str]) -> Floats:
    """Return features per decision (n, y) of some action in each row."""
    if _names(given) is not None:
        return _numbers(given, names, n)
    table = as_array("action_features", given)
    if table.shape != (n, len(names)):
        rule = f"it must be {(n, len(names))}: one row per row of X"
        raise InputError("action_features", f"shape {table.shape}", rule, "pass the features of one action per row")
    return _finite(table, names)


def _column(given: Any, name: str) -> Any:
    if is_arrow(given):
        return given.column(name)
    return given[name]


def _whole(column: Any, n: int) -> Codes:
    rows = np.asarray(column)
    if not len(rows):
        return np.empty(0, np.intp)
    whole = rows.dtype.kind in "iu"
    if not whole or rows.min() < 0 or rows.max() >= n:
        rule = f"the column 'row' has row numbers of X, 0 to {n - 1}"
        got = f"row {rows.min() if rows.min() < 0 else rows.max()}" if whole else f"{rows.dtype} column"
        raise InputError("action_features", got, rule, "number the rows from 0")
    return rows.astype(np.intp)


def _numbers(given: Any, names: Sequence[str], length: int) -> Floats:
    """Return the named columns of a table as (k, y)."""
    known = _names(given) or []
    absent = [name for name in names if name not in known]
    if absent:
        rule = f"the features per decision are {', '.join(map(repr, names))}"
        raise InputError("action_features", f"no column {absent[0]!r}", rule, "add the column")
    columns = [np.asarray(_column(given, name)) for name in names]
    for name, column in zip(names, columns, strict=True):
        if column.shape != (length,):
            raise InputError("action_features", f"{len(column)} of {name!r}", f"there are {length} rows", "match them")
    return np.column_stack(
        [_finite(column[:, None], [name])[:, 0] for name, column in zip(names, columns, strict=True)]
    )


def _finite(table: Any, names: Sequence[str], rows: Codes | None = None) -> Floats:
    """Return numbers (k, y); text, NaN and infinity are refused with their column and row, one of ``rows`` (k,)."""
    try:
        numbers = only_numbers(table) if table.dtype == object else table.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        got = f"values of {table.dtype} in {', '.join(map(repr, names))}"
        remedy = "encode text beforehand, or put it into the catalogue"
        raise InputError("action_features", got, "features per decision are numbers", remedy) from None
    bad = np.argwhere(~np.isfinite(numbers))
    if len(bad):
        row, column = bad[0][0] if rows is None else rows[bad[0][0]], bad[0][-1]
        got = f"{numbers[tuple(bad[0])]} in {names[column]!r} at row {row}"
        raise InputError("action_features", got, "every feature must be finite", "drop or fill that value")
    return numbers
