"""A bandit to and from the header and arrays of a snapshot."""

import math
from collections.abc import Hashable, Mapping
from typing import Any

from numpy.typing import NDArray

from spuir import __version__
from spuir.base.parameters import parameters_of
from spuir.errors import SnapshotError, SpuirError, UnknownNameError
from spuir.policies import POLICIES, Policy, make_policy
from spuir.storage import snapshot
from spuir.tables.encoder import Encoder
from spuir.tables.inputs import Labels
from spuir.tables.model import Model

KIND, ENCODING_KIND = "spuir bandit", "spuir bandit with an encoder"
"""Two kinds, so that a version without encoders refuses a file with one, and does not take raw rows as they are."""


def describe(
    policy: Policy, model: Model, seed: int, rows: Mapping[int, int]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return everything that a bandit needs to continue, as JSON data and arrays.

    ``rows`` says how many rows were decided in an episode.
    """
    if policy.name not in POLICIES:
        raise SnapshotError("policy", repr(policy.name), "a saved policy is registered", "register it under its name")
    header: dict[str, Any] = {
        "kind": KIND if model.encoder is None else ENCODING_KIND,
        "spuir": __version__,
        "policy": {"name": policy.name, "parameters": parameters_of(policy)},
        "actions": [_json_label(label) for label in model.labels.names],
        "active": list(model.labels.active),
        "columns": None if model.names is None else list(model.names),
        "seed": str(seed),
        "rows": [[episode, used] for episode, used in sorted(rows.items())],
    }
    if model.encoder is not None:
        header["encoder"] = model.encoder.to_dict()
    header["state"], arrays = (None, {}) if model.state is None else snapshot.pack(model.state)
    return header, arrays


def _json_label(label: Hashable) -> Any:
    if label is None or isinstance(label, (str, int)) or (isinstance(label, float) and math.isfinite(label)):
        return label
    rule = "a saved label is text, a finite number or None"
    raise SnapshotError("action label", repr(label), rule, "rename the action")


def restore(
    source: str, header: dict[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> tuple[Policy, Model, int, dict[int, int]]:
    """Return policy, model, seed and rows decided from what :func:`describe` made; anything else is refused."""
    try:
        if header.get("kind") not in (KIND, ENCODING_KIND):
            raise SnapshotError(source, f"kind {header.get('kind')!r}", "a saved bandit is needed", "pass its path")
        policy = make_policy(header["policy"]["name"], **header["policy"]["parameters"])
        active, columns, state = header["active"], header["columns"], None
        if [type(one) for one in active] != [bool] * len(header["actions"]) or not any(active):
            rule = "one is True or False for each action, and one of them True"
            raise SnapshotError(source, f"active {active!r}", rule, "save it again")
        labels = Labels.of(header["actions"], active)
        encoder = Encoder.from_dict(header["encoder"]) if header["kind"] == ENCODING_KIND else None
        if header["state"] is not None:
            state = _state(source, policy, header["state"], arrays)
            if state.n_actions != len(labels.names):
                rule = f"its {len(labels.names)} labels must have one state each"
                raise SnapshotError(source, f"{state.n_actions} actions", rule, "save it again")
            if encoder is not None and state.dim != encoder.width:
                rule = f"its state is one of {state.dim} columns"
                raise SnapshotError(source, f"an encoder of {encoder.width} features", rule, "save it again")
        names = None if columns is None else tuple(columns)
        width = None if state is None else state.dim if encoder is None else len(encoder.columns)
        if names is not None and (
            isinstance(columns, str) or {type(one) for one in names} - {str} or width not in (None, len(names))
        ):
            rule = "a saved bandit has one name for each context column"
            raise SnapshotError(source, f"columns {columns!r}", rule, "save it again")
        model = Model(labels=labels, names=names, state=state, encoder=encoder)
        # Version 0.1 saved the position of a generator instead: its decisions cannot be repeated.
        return policy, model, int(header["seed"]), _rows(source, header.get("rows", []))
    except (SnapshotError, UnknownNameError):
        raise
    except SpuirError as wrong:
        got, remedy = f"{wrong.subject} {wrong.got}", "restore the file from a copy, or save it again"
        raise SnapshotError(source, got, wrong.rule, remedy) from wrong
    except (KeyError, TypeError, ValueError, AttributeError) as broken:
        rule = "the header of a saved bandit is complete"
        raise SnapshotError(source, repr(broken), rule, "save it again") from broken


def _rows(source: str, saved: Any) -> dict[int, int]:
    """Return how many rows were decided, by episode."""
    rows = {episode: used for episode, used in saved}
    if any(type(number) is not int or number < 0 for pair in rows.items() for number in pair):
        raise SnapshotError(source, f"rows {saved!r}", "episodes and rows count from 0", "save it again")
    return rows


def _state(source: str, policy: Policy, tree: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Return the state of a policy, if it can be one."""
    state = snapshot.unpack(policy.state_type, tree, arrays)
    if state.episode < 0:
        raise SnapshotError(source, f"episode {state.episode}", "episodes count from 0", "save it again")
    policy.check_state(state)
    return state
