"""Vowpal Wabbit's decision-service JSON (dsjson), as Azure Personalizer and the reinforcement-learning client wrote it.

One JSON object per line. Costs become rewards with the sign turned. A conditional bandit's event gives one row for
each slot. Slates and continuous actions are refused, since they are other problems.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spuir.errors import InputError
from spuir.logs.events.dsjson_parser import EXTRAS, OURS, DsjsonParser
from spuir.logs.events.event_rows import msgspec
from spuir.logs.events.event_writing import Event, iso, write_events
from spuir.logs.events.feature_names import by_namespace, escape_key
from spuir.logs.events.line_reader import LineReader
from spuir.logs.formats.base import Format
from spuir.logs.formats.text_files import line_ends
from spuir.tables.arrow import pa

_EVENT = re.compile(rb'^\s*\{.*"c"\s*:\s*\{.*"_multi"|^\s*\{.*"_label_ca"', re.MULTILINE)


LINES = LineReader(parser=lambda path, options, faults: DsjsonParser(path, faults), cuts=line_ends)


def write(
    batches: "Iterable[pa.RecordBatch]",
    path: str,
    *,
    actions: Sequence[Any] | None = None,
    catalogue: "pa.Table | None" = None,
) -> None:
    """Write canonical rows as events that ``vw --dsjson --cb_explore_adf`` learns from.

    ``actions`` are all labels; None = those that a column ``eligible`` lists, else all that occur. ``catalogue`` has
    their features, which every event repeats.
    """
    encode = msgspec.json.encode
    write_events(batches, path, lambda event: encode(_written(event)) + b"\n", actions, "dsjson", catalogue)


def _written(event: Event) -> dict[str, Any]:
    """Return an event as dsjson has it; the executed action leads `a` and `p`."""
    names, place = [str(label) for label in event.offered or [event.chosen]], event.place
    order = [place, *(at for at in range(len(names)) if at != place)] if event.probabilities else [place]
    cost, rest = 0.0 - event.reward, event.rest
    found: dict[str, Any] = {"_label_cost": cost, "_label_probability": event.propensity}
    found |= {"_label_Action": place + 1, "_labelIndex": place}
    found["o"] = [{"v": event.reward, "EventId": event.id, "ActionTaken": False}]
    if "time" in rest:
        found["Timestamp"] = iso(rest["time"])
    found["Version"] = "1"
    if event.id is not None:
        found["EventId"] = event.id
    found["a"] = [at + 1 for at in order]
    multi = [_action(name, features) for name, features in zip(names, event.features, strict=True)]
    found["c"] = {**_spaces(event.context), "_multi": multi}
    found["p"] = [event.probabilities[at] for at in order] if event.probabilities else [event.propensity]
    if "policy_version" in rest:
        found["VWState"] = {"m": rest["policy_version"]}
    found["_original_label_cost"] = cost
    if event.weight != 1:
        found["pdrop"] = _dropped(event)
    extras = {name: iso(rest[name]) if name == "reward_time" else rest[name] for name in EXTRAS if name in rest}
    return found | ({OURS: extras} if extras else {})


def _action(name: str, features: Mapping[str, Any]) -> dict[str, Any]:
    """Return an action as Personalizer writes it, with its features by namespace."""
    spaces = _spaces(features)
    inner = spaces.pop("i", {})  # a feature may be called so too
    return {"_tag": name, "i": {"constant": 1, "id": name} | inner if isinstance(inner, dict) else inner, **spaces}


def _dropped(event: Event) -> float:
    """Return the share of dropped events that the weight of this one makes up for."""
    if event.weight < 1:
        rule = "dsjson holds weights as 1/(1 − pdrop), which is at least 1"
        raise InputError("weight", f"{event.weight:g} at row {event.row}", rule, "divide all weights by the smallest")
    return 1 - 1 / event.weight


def _spaces(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return features by namespace; those without one, and those whose namespace is also a feature, stand alone."""
    spaces = by_namespace(context)
    found: dict[str, Any] = {escape_key(name): value for name, value in spaces.pop("", {}).items()}
    for space, features in spaces.items():
        key = escape_key(space)
        if key in found:
            found |= {escape_key(f"{space}.{name}"): value for name, value in features.items()}
        else:
            found[key] = {escape_key(name): value for name, value in features.items()}
    return found


FORMAT = Format(
    name="dsjson",
    summary="Vowpal Wabbit's decision-service JSON lines, as Azure Personalizer logged",
    sniff=lambda path, first: bool(_EVENT.search(first)),
    survey=LINES.survey,
    read=LINES.read,
    parser=LINES,
    write=write,
    write_options=("actions", "catalogue"),
    sparse=True,
    options=("types", "broken_share"),
    endings=(".dsjson",),
)
