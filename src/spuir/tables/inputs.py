"""What users pass, turned into what policies read: tables of contexts, and labels as codes."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spuir.base.records import Codes, as_array, only_numbers
from spuir.errors import InputError, ParameterError, UnknownNameError

_CODE, _UNSIGNED = np.dtype(np.intp), np.dtype(np.uintp)


def column_names(X: Any) -> list[str] | None:
    """Return the column names of a data frame or an Arrow table, None for anything else."""
    if isinstance(X, np.ndarray):
        return None
    if _is_arrow(X):
        return list(X.schema.names)
    columns = getattr(X, "columns", None)
    return None if columns is None or not hasattr(X, "to_numpy") else [str(name) for name in columns]


def _is_arrow(X: Any) -> bool:
    """Tell whether a table is Arrow's, whose ``columns`` are the columns themselves."""
    return type(X).__module__.startswith("pyarrow") and hasattr(X, "schema")


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
        one = table.ndim == 1 and table.size and table.dtype.kind in "fiub"
        remedy = (
            "use X.reshape(1, -1) for one row" if one else "pass an array or a DataFrame, or raw rows to an encoder"
        )
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
            raise InputError("X", got, f"the columns are {_short(names)}", "select exactly these")
        X = X.iloc[:, [given.index(name) for name in names]] if hasattr(X, "iloc") else X.select(list(names))
    if not _is_arrow(X):
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


def hashable(label: Any) -> bool:
    """Tell whether a label can be looked up; a tuple that holds a list cannot."""
    try:
        hash(label)
    except TypeError:
        return False
    return True


def _equals_itself(label: Any) -> bool:
    """Tell whether a label is found again: NaN is not, and a missing value of pandas does not even say."""
    try:
        return bool(label == label)  # noqa: PLR0124 - false of NaN alone
    except (TypeError, ValueError):
        return False


def _short(names: Sequence[Any]) -> str:
    return ", ".join(repr(name) for name in names[:8]) + (" …" if len(names) > 8 else "")


@dataclass(frozen=True)
class Labels:
    """The actions by label, in code order; labels and codes are never reused.

    ``active`` marks those that may be chosen; a retired action keeps its code.
    """

    names: tuple[Hashable, ...]
    active: tuple[bool, ...]
    codes: dict[Hashable, int] = field(repr=False, compare=False)
    array: NDArray[Any] = field(repr=False, compare=False)

    @classmethod
    def of(cls, names: Iterable[Hashable], active: Iterable[bool] | None = None) -> "Labels":
        """Build from labels in order; None = all active."""
        listed = tuple(name.item() if isinstance(name, np.generic) else name for name in names)
        codes: dict[Hashable, int] = {}
        for code, name in enumerate(listed):
            if not hashable(name):
                raise ParameterError("actions", repr(name), "a label is hashable", "use text or numbers")
            if name in codes:
                raise ParameterError("actions", repr(name) + " twice", "labels are unique", "drop the second")
            if not _equals_itself(name):
                raise ParameterError("actions", repr(name), "a label equals itself", "use text or numbers")
            codes[name] = code
        return cls(listed, tuple(active) if active is not None else (True,) * len(listed), codes, _array(listed))

    @classmethod
    def parse(cls, actions: Any) -> "Labels":
        """Build from what a constructor was given: a number M, or labels."""
        if isinstance(actions, (int, np.integer)) and not isinstance(actions, bool):
            if actions < 1:
                raise ParameterError("actions", actions, "at least one action is needed", "pass M ≥ 1 or labels")
            return cls.of(range(int(actions)))
        single = isinstance(actions, np.ndarray) and not actions.ndim
        if single or isinstance(actions, (str, set, frozenset, Iterator)) or not isinstance(actions, Iterable):
            # A set has no order of its own, so that codes would differ from run to run; an iterator is read once.
            raise ParameterError("actions", repr(actions), "actions are a number M or a list of labels", "pass a list")
        labels = cls.of(actions)
        if not labels.names:
            raise ParameterError("actions", "an empty list", "at least one action is needed", "pass labels")
        return labels

    @cached_property
    def plain(self) -> bool:
        """Whether the labels are the codes 0…M−1 themselves."""
        return self.array.dtype.kind == "i" and self.names == tuple(range(len(self.names)))

    @cached_property
    def all_active(self) -> bool:
        """Whether no label is retired."""
        return all(self.active)

    def encode(self, actions: Any) -> Codes:
        """Return labels (n,) as codes."""
        if isinstance(actions, np.ndarray):
            return self._encode_array(as_array("actions", actions))
        if hasattr(actions, "dictionary") and hasattr(actions, "indices"):
            # An Arrow dictionary: each distinct label is looked up once, and is known if a row has it.
            levels = [*actions.dictionary.to_pylist(), None]
            at = actions.indices.cast("int64").fill_null(len(levels) - 1).to_numpy()
            codes = np.array([self.codes.get(level, -1) for level in levels])[at]
            if len(codes) and codes.min() < 0:
                row = int(codes.argmin())
                self._unknown(levels[at[row]], row)
            return codes
        # As an array, text and numbers together would all become text.
        return self._look_up(actions) if isinstance(actions, (list, tuple)) else self._encode_array(np.asarray(actions))

    def _encode_array(self, values: NDArray[Any]) -> Codes:
        if values.ndim != 1:
            raise InputError("actions", f"shape {values.shape}", "actions are one label per row", "pass a flat list")
        if not self.plain or values.dtype.kind not in "iu":
            return self._look_up(values.tolist())
        codes = values if values.dtype == _CODE else values.astype(_CODE)
        # Read as unsigned, a negative code is a huge one: one look at the largest tells.
        if len(codes) and not 0 <= codes.item(codes.view(_UNSIGNED).argmax()) < len(self.names):
            row = int(np.argmax((values < 0) | (values >= len(self.names))))
            self._unknown(values[row].item(), row)
        return codes

    def _look_up(self, values: Sequence[Any]) -> Codes:
        out = np.empty(len(values), np.intp)
        for row, label in enumerate(values):
            code = self.codes.get(label) if hashable(label) else None
            if code is None:
                self._unknown(label, row)
            else:
                out[row] = code
        return out

    def table(self, name: str, given: Any) -> Any:
        """Return a table with one column per action in code order.

        The columns of a data frame or an Arrow table, and the entries of a series, go by their labels.
        """
        arrow = _is_arrow(given)
        named: Any = given.schema.names if arrow else getattr(given, "columns", getattr(given, "index", None))
        if named is None or not (arrow or hasattr(given, "to_numpy")):
            return given
        labels = {str(label): label for label in self.names} if arrow else {}  # Arrow's names are texts
        columns: list[Any] = [labels.get(one, one) for one in named]
        order = list(range(len(self.names)))
        if len(columns) == len(order) and set(columns) == set(self.names):
            order = [columns.index(label) for label in self.names]
        elif columns != order:  # neither named nor numbered
            rule = f"its columns are the actions {_short(self.names)}"
            raise InputError(name, f"columns {_short(columns)}", rule, "name them as in actions_, or pass an array")
        values = np.column_stack([np.asarray(one) for one in given.columns]) if arrow else given.to_numpy()
        return values[..., order]

    def code(self, label: Hashable) -> int:
        """Return one label's code."""
        if not hashable(label) or label not in self.codes:
            self._unknown(label, None)
        return self.codes[label]

    def _unknown(self, label: Any, row: int | None) -> None:
        named = {str(name): name for name in self.names}
        near = get_close_matches(str(label), list(named), n=1, cutoff=0.6)
        missing = label is None or not _equals_itself(label)
        remedy = "pass one of them" if row is None else "drop or fill that row" if missing else "add it with add_action"
        hint = f"did you mean {named[near[0]]!r}" if near and not missing else remedy
        place = "" if row is None else f" at row {row}"
        rule = f"the actions are {_short(self.names)}"
        raise UnknownNameError("actions", f"{label!r}{place}", rule, hint)

    def added(self, label: Hashable) -> "Labels":
        """Return the labels with one more; a label once used, retired or not, is refused."""
        if hashable(label) and label in self.codes:
            raise ParameterError("label", repr(label), "a label is never reused", "choose another label")
        return Labels.of((*self.names, label), (*self.active, True))

    def retired(self, label: Hashable) -> "Labels":
        """Return the labels with one that is never chosen again."""
        code = self.code(label)
        left = [on and at != code for at, on in enumerate(self.active)]
        if not any(left):
            raise ParameterError("label", repr(label), "one action must remain", "add another before removing it")
        return Labels.of(self.names, left)


def _array(names: tuple[Hashable, ...]) -> NDArray[Any]:
    """Return labels as an integer or text array where they are all of that kind, else as objects."""
    if {type(name) for name in names} in ({int}, {str}):
        typed = np.array(names)
        if typed.tolist() == list(names):  # not so for integers beyond 64 bits and text that ends in a nought
            return typed
    array = np.empty(len(names), dtype=object)
    array[:] = names
    return array
