"""Values of events as texts, numbers and Arrow arrays, and the features of the actions that events offer as columns."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any

from spuir.logs.columns import ACTION_PREFIX, is_action_column
from spuir.tables.arrow import pa


class BrokenLineError(ValueError):
    """A line that cannot be read; the reader counts it with its number and continues."""


def as_list(values: Any) -> Sequence[Any]:
    """Return the values of a column: an Arrow array as a list, others as they are."""
    return values.to_pylist() if hasattr(values, "to_pylist") else values


def as_text(value: Any) -> str:
    """Return a value as text: numbers without a needless point, booleans as in JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else str(value)


def as_number(value: Any, name: str) -> float:
    """Return a finite number, or say that ``name`` is none."""
    try:
        number = float(value) if type(value) in (int, float) else math.nan
    except OverflowError:  # a whole number of 309 digits or more
        number = math.inf
    if not math.isfinite(number):
        raise BrokenLineError(f"{name} is {str(value)[:40]!r}, not a finite number")
    return number


def as_probability(value: Any, name: str) -> float:
    """Return a probability in (0, 1]; what single precision put just above 1 is 1."""
    number = as_number(value, name)
    if not 0 < number <= 1 + 1e-6:
        raise BrokenLineError(f"{name} is {number}, not in (0, 1]")
    return min(number, 1.0)


def inner_type(values: Iterable[Any]) -> "pa.DataType":
    """Return the type of the values of a feature: numbers, or texts if one of them is text."""
    return pa.string() if str in set(map(type, values)) else pa.float64()


def inner_values(values: Sequence[Any], kind: "pa.DataType", blank: float | None) -> "pa.Array":
    """Return the values of a feature as an Arrow array of numbers or texts; a number that is not there is ``blank``."""
    text = pa.types.is_string(kind)
    try:
        array = pa.array(values, kind)
        return array if text or blank is None else array.fill_null(blank)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # some values are of another type
        pass
    if text:
        return pa.array([None if value is None else as_text(value) for value in values], kind)
    return pa.array([blank if value is None else float(value) for value in values], kind)


def list_array(lists: Sequence[Sequence[Any] | None], kind: "pa.DataType | None") -> "pa.Array":
    """Return values of actions (n lists) as an Arrow array of this type; None = lists of numbers or of texts.

    A number that an action does not name is 0, as Vowpal Wabbit reads it.
    """
    values = [value for one in lists for value in one or ()]
    inner = inner_type(values) if kind is None else kind.value_type
    offsets = [0, *accumulate([len(one or ()) for one in lists])]
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), inner_values(values, inner, 0.0))


def wanted_features(columns: Iterable[str]) -> tuple[str, ...]:
    """Return the features of actions among some columns, without the prefix, sorted."""
    return tuple(sorted(name.removeprefix(ACTION_PREFIX) for name in columns if is_action_column(name)))


def offered_columns(events: Sequence[Sequence[Mapping[str, Any]] | None], names: Sequence[str]) -> dict[str, Any]:
    """Return columns of some features of the actions that events offer, which are given as one mapping per action."""
    actions = list(chain.from_iterable(one or () for one in events)) if names else []
    values = {name: [None] * len(actions) for name in names}
    for place, features in enumerate(actions):
        for name in features.keys() & values.keys():
            values[name][place] = features[name]
    return feature_columns([len(one or ()) for one in events], values, names)


def feature_columns(
    lengths: Sequence[int], values: Mapping[str, Sequence[Any]], names: Sequence[str]
) -> dict[str, Any]:
    """Return columns of some features of actions, given how many actions each event offers, and one value per action.

    A column is an Arrow array, or lists where that would change some values: flags and large whole numbers would
    become numbers, which read otherwise if the column turns out to be text.
    """
    found: dict[str, Any] = {}
    offsets = [0, *accumulate(lengths)] if names else [0]
    edges, nothing = pa.array(offsets, pa.int32()), [None] * offsets[-1]
    for name in names:
        own = values.get(name, nothing)
        array = _exact_array(own)
        lists = [own[start:stop] for start, stop in pairwise(offsets)] if array is None else ()
        found[f"{ACTION_PREFIX}{name}"] = lists if array is None else pa.ListArray.from_arrays(edges, array)
    return found


def quick_array(values: Sequence[Any]) -> "pa.Array":
    """Return values as an Arrow array, in the type of the first: knowing it saves Arrow a look at each value."""
    first = type(next((value for value in values if value is not None), None))
    return pa.array(values, pa.string() if first is str else pa.float64() if first in (int, float) else None)


def _exact_array(values: Sequence[Any]) -> "pa.Array | None":
    """Return numbers or texts as an Arrow array; None for other values."""
    try:
        array = quick_array(values)
        if pa.types.is_string(array.type):
            return array
        array = array.cast(pa.float64())
        # Only 0 and 1 can be flags, so that most values need not be looked at one by one.
        numbers = array.to_numpy(zero_copy_only=False)
        flags = ((numbers == 0) | (numbers == 1)).any() and bool in set(map(type, values))
        return None if flags else array
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None
