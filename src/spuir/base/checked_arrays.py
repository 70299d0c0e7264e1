"""Arrays as callers pass them, checked and turned into columns of a batch; a refusal names the row and the value."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spuir.errors import InputError, NumericalError

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]
Mask = NDArray[np.bool_]


FLOAT = np.dtype(np.float64)


def all_finite(values: Floats) -> bool:
    """Return whether no value is infinite or NaN."""
    # A finite sum of squares settles it in one fast pass. It may overflow, and only then is each value looked at.
    return math.isfinite(np.vdot(values, values)) or bool(np.isfinite(values).all())


def require_finite(**parts: Floats | None) -> None:
    """Refuse named parts of a state that are not finite, which no episode can leave behind."""
    for name, part in parts.items():
        if part is not None and not all_finite(part):
            rule = "the numbers that a policy has learned are finite"
            raise NumericalError(f"{name} of the state", "a non-finite value", rule, "load a copy, or learn again")


def as_array(name: str, values: Any) -> NDArray[Any]:
    """Return ``values`` as an array of NumPy's own class; rows of different lengths and masked values are refused."""
    if type(values) is np.ndarray:
        return values
    if np.ma.is_masked(values):
        rule = "a masked value has no number"
        raise InputError(name, "masked values", rule, "fill them or drop their rows")
    try:
        return np.asarray(values)
    except ValueError:
        rule = "every row has as many columns"
        raise InputError(name, "rows of different lengths", rule, "fill the short rows") from None


def check_contexts(values: Any) -> Any:
    """Return ``values`` as a table of numbers (B, d), dense or CSR, not copied where it is one."""
    if hasattr(values, "tocsr"):
        values = values.tocsr()
    elif not hasattr(values, "toarray"):
        values = as_array("contexts", values)
        if values.dtype.kind not in "fiub":
            rule = "contexts must be numbers"
            raise InputError("contexts", f"dtype {values.dtype}", rule, "encode other columns first")
    if values.ndim != 2:
        rule = "contexts are a table (rows, columns)"
        raise InputError("contexts", f"shape {values.shape}", rule, "reshape to two dimensions")
    return values


def check_one_each(actions: NDArray[Any], length: int) -> None:
    """Refuse a column that does not have one action per row."""
    if actions.shape != (length,):
        rule = f"one action per context row is needed, {length} here"
        raise InputError("actions", f"shape {actions.shape}", rule, "match the lengths")


def check_codes(values: Any, length: int) -> Codes:
    """Return executed actions as codes (B,)."""
    actions = as_array("actions", values)
    check_one_each(actions, length)
    if actions.dtype.kind not in "iu" and length:
        rule = "a Batch holds integer action codes"
        raise InputError("actions", f"dtype {actions.dtype}", rule, "use Bandit for labels")
    codes = actions.astype(np.intp, copy=False)
    row = int(codes.argmin()) if length else 0
    if length and codes[row] < 0:
        raise InputError("actions", f"{codes[row]} at row {row}", "codes are 0…M−1", "correct or drop that row")
    return codes


def types_in(values: NDArray[Any]) -> set[type]:
    """Return the types of the values in an array of objects."""
    return set(map(type, values.ravel().tolist()))


NO_NUMBERS = (str, bytes, complex, np.complexfloating)
"""Types that Python or NumPy would convert to real numbers although they are none."""


def only_numbers(values: NDArray[Any]) -> Floats:
    """Return an array of objects as float64; raise TypeError or ValueError if some are not real numbers."""
    if values.dtype.kind != "O" or any(issubclass(kind, NO_NUMBERS) for kind in types_in(values)):
        raise TypeError
    return values.astype(np.float64)


def _is_number(value: Any) -> bool:
    """Return whether a value belongs in a column of numbers; text that looks like a number does not."""
    if isinstance(value, NO_NUMBERS):
        return False
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _is_written_number(text: str | bytes) -> bool:
    """Return whether a text reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numbers(name: str, values: NDArray[Any], rule: str) -> Floats:
    """Return an array as float64; text, dates and complex numbers are refused, objects too unless all are numbers."""
    if values.dtype == FLOAT:
        return values
    if values.dtype.kind in "fiub":
        with np.errstate(over="ignore"):  # a wider kind of number may become infinite, which is refused as such
            return values.astype(np.float64)
    try:
        return only_numbers(values)
    except (TypeError, ValueError, OverflowError):
        # Python may convert dates to numbers; then the first value is reported.
        wrong = next((at for at, value in enumerate(values.flat) if not _is_number(value)), 0)
        if values.dtype.kind in "US":  # one text among numbers makes texts of all of them
            wrong = next((at for at, value in enumerate(values.flat) if not _is_written_number(value)), wrong)
        place = f" at row {wrong * len(values) // values.size}" if values.ndim else ""
        raise InputError(name, f"{str(values.flat[wrong])[:40]!r}{place}", rule, "pass numbers") from None


def check_column(
    name: str, values: ArrayLike, length: int, rule: str, ok: Callable[[Floats], Any] | None = None
) -> Floats:
    """Return ``values`` as a float column (B,), finite and, if given, valid by ``ok``."""
    column = _numbers(name, as_array(name, values), rule)
    if column.shape != (length,):
        needed = f"one value per context row is needed, {length} here"
        raise InputError(name, f"shape {column.shape}", needed, "match the lengths")
    if not all_finite(column) or (ok is not None and not ok(column).all()):
        good = np.isfinite(column) if ok is None else np.isfinite(column) & ok(column)
        row = int(np.argmin(good))
        raise InputError(name, f"{column[row]} at row {row}", rule, "correct or drop that row")
    return column


def check_table_of_actions(name: str, values: ArrayLike, length: int, dtype: Any) -> NDArray[Any]:
    """Return ``values`` as a (B, M) array."""
    rule = f"it must be ({length}, number of actions)"
    table = as_array(name, values)
    table = as_mask(name, table) if dtype is np.bool_ else _numbers(name, table, "rewards are numbers")
    if table.ndim != 2 or len(table) != length:
        raise InputError(name, f"shape {table.shape}", rule, "give one row per context")
    return table


def check_revealed(mask: Mask | None, rewards: Floats | None) -> None:
    """Refuse a mask without its rewards (B, M), or the reverse."""
    if mask is None or rewards is None:
        if mask is not rewards:
            rule = "revealed and revealed_rewards come together"
            raise InputError("revealed", "one of the pair", rule, "pass both or neither")
        return
    if mask.shape != rewards.shape:
        rule = f"it must have the shape of revealed_rewards, {rewards.shape}"
        raise InputError("revealed", f"shape {mask.shape}", rule, "give one column per action")
    bad = mask & ~np.isfinite(rewards)
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        got, rule = f"{rewards[row, column]} at row {row}, column {column}", "every revealed reward must be finite"
        raise InputError("revealed_rewards", got, rule, "clear its mask entry")


def as_mask(name: str, values: NDArray[Any]) -> Mask:
    """Return an array of True and False, or of 1 and 0, as a mask; any other value is refused."""
    if values.dtype == np.bool_:
        return values
    if values.dtype.kind == "O" and types_in(values) <= {bool, np.bool_}:
        return values.astype(np.bool_)
    if values.dtype.kind not in "iuf":
        raise InputError(name, f"dtype {values.dtype}", "it is True or False", "pass a boolean mask")
    other = (values != 0) & (values != 1)
    if other.any():
        place = tuple(int(i) for i in np.argwhere(other)[0])
        raise InputError(name, f"{values[place]} at row {place[0]}", "it is True or False", "pass a boolean mask")
    return values.astype(np.bool_)


def as_ids(values: Any) -> NDArray[np.int64]:
    """Return row ids (B,)."""
    ids = as_array("row_ids", values)
    if ids.ndim != 1 or (ids.dtype.kind not in "iu" and ids.size):
        rule = "row ids are one integer per row"
        raise InputError("row_ids", f"{ids.dtype} of shape {ids.shape}", rule, "number the rows of the episode")
    return ids.astype(np.int64, copy=False)


FINITE_REWARDS = "every reward must be finite"
OPTIONAL_COLUMNS: tuple[tuple[str, str, Callable[[Floats], Any] | None], ...] = (
    ("propensities", "a propensity lies in (0, 1]", lambda p: (p > 0) & (p <= 1 + 1e-9)),
    ("weights", "a weight is finite and ≥ 0", lambda w: w >= 0),
    ("click", "clicks must be finite", None),
    ("conversion", "conversions must be finite", None),
    ("elapsed", "elapsed times must be finite", None),
)
OPTIONAL_TABLES: tuple[tuple[str, type], ...] = (
    ("eligible", np.bool_),
    ("revealed", np.bool_),
    ("revealed_rewards", np.float64),
)
