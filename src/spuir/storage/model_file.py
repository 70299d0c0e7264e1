"""A bandit as the header and the arrays of a snapshot, and back."""

import math
from collections.abc import Hashable, Mapping
from typing import Any

from numpy.typing import NDArray

from spuir import __version__
from spuir.base.parameters import parameters_of
from spuir.errors import SnapshotError, SpuirError, UnknownNameError
from spuir.policies import POLICIES, Policy, make_policy
from spuir.storage import snapshot
from spuir.storage.migration import migrate
from spuir.tables.encoder import Encoder
from spuir.tables.labels import Labels, Ramp
from spuir.tables.model import Model

KIND, ENCODING_KIND = "spuir bandit", "spuir bandit with an encoder"
"""Two kinds, so that a version without encoders refuses a file with an encoder instead of ignoring it."""


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
    if model.labels.ramps:
        header["ramps"] = [list(ramp) for ramp in model.labels.ramps]
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
    """Return the policy, model, seed and rows decided that :func:`describe` saved; anything else is refused.

    Parameters
    ----------
    source
        The name of the file, for errors.
    header, arrays
        What the file holds. Names of older versions are replaced by today's.
    """
    if header.get("kind") not in (KIND, ENCODING_KIND):
        raise SnapshotError(source, f"kind {header.get('kind')!r}", "a saved bandit is needed", "pass its path")
    try:
        header, arrays = migrate(header, arrays)
        policy = make_policy(header["policy"]["name"], **header["policy"]["parameters"])
        model = _model(source, policy, header, arrays)
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


def _model(source: str, policy: Policy, header: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Model:
    """Return labels, state, encoder and column names, if they fit together."""

    def require(holds: bool, got: str, rule: str) -> None:
        if not holds:
            raise SnapshotError(source, got, rule, "save it again")

    actions, active, columns = header["actions"], header["active"], header["columns"]
    flags = [type(one) for one in active] == [bool] * len(actions) and any(active)
    require(flags, f"active {active!r}", "each action is active (True) or not (False), and at least one is active")
    ramps = [Ramp(*ramp) for ramp in header.get("ramps", [])]
    for ramp in ramps:
        fine = [type(part) for part in ramp] == [int, float, int] and 0 <= ramp.code < len(actions)
        require(
            fine and 0 < ramp.share <= 1, f"ramp {list(ramp)!r}", "a ramp has an action, a share in (0, 1] and an end"
        )
    labels = Labels.of(actions, active, ramps)
    encoder = Encoder.from_dict(header["encoder"]) if header["kind"] == ENCODING_KIND else None
    state, width = None, None
    if header["state"] is not None:
        state = snapshot.unpack(policy.state_type, header["state"], arrays)
        require(state.episode >= 0, f"episode {state.episode}", "episodes count from 0")
        policy.check_state(state)
        count = len(labels.names)
        require(state.n_actions == count, f"{state.n_actions} actions", f"its {count} labels must have one state each")
        if encoder is not None:
            rule = f"its state has {state.dim} columns"
            require(encoder.width == state.dim, f"an encoder of {encoder.width} features", rule)
        width = state.dim if encoder is None else len(encoder.columns)
    names = None if columns is None else tuple(columns)
    if names is not None:
        texts = not isinstance(columns, str) and all(type(name) is str for name in names)
        rule = "a saved bandit has one name for each context column"
        require(texts and width in (None, len(names)), f"columns {columns!r}", rule)
    return Model(labels=labels, names=names, state=state, encoder=encoder)
