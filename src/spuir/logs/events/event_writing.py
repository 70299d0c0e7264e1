"""Canonical rows as events that other tools read: the offered actions named, every number checked."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from spuir.base.counting import counted
from spuir.errors import InputError, quoted
from spuir.logs.columns import ACTION_PREFIX, COLUMNS, is_action_column
from spuir.logs.formats.base import open_output, opened
from spuir.tables.arrow import pa

_REMEDY = "correct or drop that row"


@dataclass(frozen=True)
class Event:
    """One decision with its outcome.

    Parameters
    ----------
    row
        Its number in the log, from 0.
    offered
        The labels of the actions that could be chosen, None where that is not known.
    chosen
        The label of the executed action; ``offered`` holds it.
    reward, propensity, weight
        Finite; the propensity in (0, 1], the weight 1 where the log has none.
    probabilities
        Of the offered actions, or None.
    context
        The context columns that have a value.
    rest
        The other canonical columns that have a value.
    features
        The features of each offered action.
    """

    row: int
    offered: list[Any] | None
    chosen: Any
    reward: float
    propensity: float
    weight: float = 1.0
    probabilities: list[float] | None = None
    context: Mapping[str, Any] = field(default_factory=dict[str, Any])
    rest: Mapping[str, Any] = field(default_factory=dict[str, Any])
    features: Sequence[Mapping[str, Any]] = ()

    @property
    def id(self) -> str | None:
        """The id of the decision as text, None where the log has none."""
        found = self.rest.get("decision_id")
        return None if found is None else str(found)

    @property
    def place(self) -> int:
        """The place of the executed action among the offered ones."""
        return self.offered.index(self.chosen) if self.offered else 0


def events(
    batches: "Iterable[pa.RecordBatch]",
    actions: Sequence[Any] | None,
    form: str | None = None,
    catalogue: "pa.Table | None" = None,
) -> Iterator[Event]:
    """Yield the rows of canonical batches as events.

    A row without action, reward or propensity is refused: a reader of the file would silently learn nothing from it.

    Parameters
    ----------
    batches
        Canonical columns.
    actions
        All labels, in the order of masks and probabilities that no column ``eligible`` names; None = not known.
    form
        The format, if it lists all actions with each event; without ``actions`` they are then looked for in the
        rows.
    catalogue
        The features of the actions, with their labels in a column ``action``; None = none.
    """
    known = {} if catalogue is None else {line["action"]: line for line in catalogue.to_pylist()}
    if form is not None and actions is None:
        first, again = opened(batches)
        if _lists_labels(first.schema):
            batches = again
        else:
            actions = _distinct(batches, form)
    start = 0
    for batch in batches:
        for row, values in enumerate(batch.to_pylist(), start):
            yield _event(row, values, actions, known)
        start += batch.num_rows


def _lists_labels(schema: "pa.Schema") -> bool:
    """Return whether the rows list the labels of their eligible actions."""
    at = schema.get_field_index("eligible")
    return at >= 0 and not pa.types.is_boolean(schema.field(at).type.value_type)


def _distinct(batches: "Iterable[pa.RecordBatch]", form: str) -> list[Any]:
    """Return the labels of all actions in the order of their first rows; this reads all batches once."""
    if isinstance(batches, Iterator):
        rule = f"{form} lists all actions with each event, and a stream is read only once"
        raise InputError("actions", "none", rule, "pass actions=[…], a list of batches, or a column `eligible`")
    found: dict[Any, None] = {}
    for batch in batches:
        found.update(dict.fromkeys(batch.column("action").unique().to_pylist()))
    found.pop(None, None)
    return list(found)


def _event(row: int, values: dict[str, Any], actions: Sequence[Any] | None, known: Mapping[Any, Any]) -> Event:
    own = {name: values.pop(name) for name in [name for name in values if is_action_column(name)]}
    context = {name: values.pop(name) for name in [name for name in values if name not in COLUMNS]}
    rest = {name: value for name, value in values.items() if value is not None}
    chosen = rest.pop("action", None)
    if chosen is None:
        raise InputError("action", f"none at row {row}", "an event has an executed action", _REMEDY)
    reward = _checked("reward", rest.pop("reward", None), row, -math.inf, math.inf)
    propensity = rest.pop("propensity", None)
    if propensity is None:
        rule = "Vowpal Wabbit learns nothing from an event without its probability"
        remedy = "fill the column, with 1/number of actions where they were drawn evenly"
        raise InputError("propensity", f"none at row {row}", rule, remedy)
    probabilities = rest.pop("probabilities", None)
    offered = _offered(row, chosen, rest.pop("eligible", None), actions)
    if probabilities is not None and offered is not None and len(probabilities) != len(offered):
        probabilities = _picked(row, probabilities, offered, actions)
    return Event(
        row=row,
        offered=offered,
        chosen=chosen,
        reward=reward,
        propensity=_checked("propensity", propensity, row, 0.0, 1.0 + 1e-9),
        weight=_checked("weight", rest.pop("weight", 1.0), row, 0.0, math.inf),
        probabilities=probabilities if offered else None,
        context=_parts(context, "", row),
        rest=rest,
        features=_features(row, chosen, offered or [chosen], own, known),
    )


def _features(
    row: int, chosen: Any, offered: list[Any], own: Mapping[str, Any], known: Mapping[Any, Any]
) -> list[dict[str, Any]]:
    """Return the features of the offered actions, from the catalogue and from this decision."""
    found = [{n: v for n, v in known.get(label, {}).items() if n != "action"} for label in offered]
    for column, given in own.items():
        name = column.removeprefix(ACTION_PREFIX)
        values: list[Any] = given if isinstance(given, list) else [given if one == chosen else None for one in offered]
        if len(values) != len(offered):
            rule = f"there is one for each of the {len(offered)} eligible actions"
            raise InputError(f"column {column!r}", f"{counted(len(values), 'value')} at row {row}", rule, _REMEDY)
        for features, value in zip(found, values, strict=True):
            if _given(value):
                features[name] = value
    return [_parts(one, ACTION_PREFIX, row) for one in found]


def _parts(features: Mapping[str, Any], column: str, row: int) -> dict[str, Any]:
    """Return what is known of features, with objects and lists taken apart as reading dsjson does.

    ``column`` is what their columns begin with, for messages.
    """
    found: dict[str, Any] = {}
    for name, value in features.items():
        for part, one in _leaves(name, value) if isinstance(value, (dict, list)) else ((name, value),):
            if _given(one):
                found[part] = _feature(column + part, one, row)
    return found


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values within an object or a list, each with its name."""
    if isinstance(value, dict):
        for key, one in cast("dict[str, Any]", value).items():
            yield from _leaves(f"{name}.{key}", one)
    elif isinstance(value, list):
        for place, one in enumerate(cast("list[Any]", value)):
            if isinstance(one, str):
                yield f"{name}.{one}", 1.0
            else:
                yield from _leaves(name if isinstance(one, dict) else f"{name}.{place}", one)
    else:
        yield name, value


def _checked(name: str, value: Any, row: int, low: float, high: float) -> float:
    """Return a finite number above ``low`` and up to ``high``."""
    if value is None or not low < value <= high or math.isinf(value):
        limits = "must be finite" if math.isinf(low) else f"lies in ({low:g}, {high:g}]"
        got = f"{'none' if value is None else value} at row {row}"
        raise InputError(name, got, f"every {name} {limits}", _REMEDY)
    return float(value)


def _given(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and math.isnan(value))


def _feature(name: str, value: Any, row: int) -> Any:
    """Return a context value as text, number or boolean."""
    if isinstance(value, float) and math.isinf(value):
        raise InputError(f"column {name!r}", f"{value} at row {row}", "a feature is finite", _REMEDY)
    return value if isinstance(value, str | bool | int | float) else str(value)


def _offered(row: int, chosen: Any, eligible: list[Any] | None, actions: Sequence[Any] | None) -> list[Any] | None:
    """Return the labels of the offered actions."""
    if eligible and isinstance(eligible[0], bool):
        if actions is None or len(actions) != len(eligible):
            rule = "a mask needs the labels of all actions in its order"
            raise InputError("eligible", f"a mask of {len(eligible)} at row {row}", rule, "pass actions=[…]")
        eligible = [label for label, here in zip(actions, eligible, strict=True) if here]
    offered = list(eligible) if eligible else list(actions) if actions is not None else None
    if offered is not None and chosen not in offered:
        raise InputError("action", f"{chosen!r} at row {row}", f"the offered actions are {quoted(offered)}", _REMEDY)
    return offered


def _picked(row: int, values: list[float], offered: list[Any], actions: Sequence[Any] | None) -> list[float]:
    """Return the probabilities of the offered ones among all actions."""
    if actions is None or len(values) != len(actions):
        rule = "there is one for each eligible action"
        raise InputError("probabilities", f"{len(values)} at row {row}", rule, "pass actions=[…] in their order")
    known = dict(zip(actions, values, strict=True))
    return [known[label] for label in offered]


def iso(time: Any) -> str:
    """Return an instant as the decision service writes it: UTC, seven digits."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "0Z" if isinstance(time, datetime) else str(time)


def write_events(
    batches: "Iterable[pa.RecordBatch]",
    path: str,
    line: Callable[[Event], bytes],
    actions: Sequence[Any] | None,
    form: str | None = None,
    catalogue: "pa.Table | None" = None,
) -> None:
    """Write canonical rows to a file, compressed as its ending says.

    Parameters
    ----------
    batches, actions, form, catalogue
        What :func:`events` takes.
    path
        The file.
    line
        Returns an event as the bytes that stand for it.
    """
    with open_output(path) as stream:
        for event in events(batches, actions, form, catalogue):
            stream.write(line(event))
