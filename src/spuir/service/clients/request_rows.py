"""What the clients send for decisions and rewards: contexts and values of any kind as JSON-ready rows."""

import math
import secrets
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec
import numpy as np

from spuir.errors import InputError
from spuir.service.commands import DecisionRow, RewardRow
from spuir.tables.action_catalogue import labels_and_features
from spuir.tables.labels import Labels


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that say something."""
    return {name: value for name, value in fields.items() if value is not None and value is not False}


def decision_bodies(rows: Any, ids: Iterable[str] | None, numbered: bool) -> list[dict[str, Any]]:
    """Return the JSON of decisions about the rows of a matrix, a data frame or a list, with their ids."""
    if isinstance(rows, (str, Mapping)):
        rule = "decide_many takes several contexts"
        raise InputError("rows", f"one {type(rows).__name__}", rule, "call decide for a single one, or pass a list")
    if hasattr(rows, "columns"):
        rows = rows.to_dicts() if hasattr(rows, "to_dicts") else rows.to_dict("records")
    bodies = [given(msgspec.structs.asdict(row)) if isinstance(row, DecisionRow) else {"context": row} for row in rows]
    if ids is None:
        return bodies if numbered else [{"id": secrets.token_hex(12), **body} for body in bodies]
    listed = list(ids)
    if len(listed) != len(bodies):
        raise InputError("ids", f"{len(listed)} of them", f"there are {len(bodies)} rows", "give one id per row")
    return [{**body, "id": one} for body, one in zip(bodies, listed, strict=True)]


def actions_body(actions: Any) -> Any:
    """Return the actions of a new experiment as JSON has them; a catalogue may be a data frame or an Arrow table."""
    if hasattr(actions, "columns"):
        labels, table = labels_and_features(actions)
        names = Labels.parse(labels).names
        if table is None:
            return list(names)
        rows = table.to_pylist() if hasattr(table, "to_pylist") else table.to_dict("records")
        actions = dict(zip(names, rows, strict=True))
    if not isinstance(actions, Mapping):
        return actions
    found: Mapping[Any, Any] = actions
    return {label: features_body(label, features) for label, features in found.items()}


def features_body(label: Any, features: Any) -> Any:
    """Return the features of an action; infinite ones are refused, which JSON would send as unknown."""
    for name, value in features.items() if hasattr(features, "items") else ():
        if isinstance(value, (float, np.floating)) and np.isinf(value):
            got, remedy = f"{value} for action {label!r}", "correct the value, or pass None for unknown"
            raise InputError(f"column {name!r}", got, "a number must be finite", remedy)
    return features


def reward_body(row: Any) -> dict[str, Any]:
    """Return the JSON of a reward, given as a row or as a tuple of its fields."""
    if isinstance(row, RewardRow):
        row = (row.decision_id, row.reward, row.id, row.time)
    decision_id, reward, *rest = row
    id, time = (*rest, None, None)[:2]
    moment = time.isoformat() if isinstance(time, datetime) else time
    try:
        value = float(reward)  # a sale is often True or False, and an element of an array
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        got, rule = f"{reward!r} for decision {decision_id!r}", "a reward is a finite number"
        raise InputError("reward", got, rule, "send a number such as 1.0, or nothing while it is not known")
    return given({"decision_id": decision_id, "reward": value, "id": id, "time": moment})
