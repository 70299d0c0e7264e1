"""A bandit as the header and the arrays of a snapshot, and back."""

import math
import os
from collections.abc import Hashable, Mapping
from datetime import UTC, datetime
from typing import Any

from numpy.typing import NDArray

from spuir import __version__
from spuir.base.parameters import parameters_of
from spuir.base.records import FLOAT, Info, all_finite
from spuir.errors import SnapshotError, SpuirError, UnknownNameError
from spuir.policies import POLICIES, Policy, make_policy
from spuir.storage import snapshot
from spuir.storage.migration import migrate
from spuir.storage.plausibility import check_sizes, check_sums
from spuir.tables.action_catalogue import Catalogue
from spuir.tables.encoder import Encoder
from spuir.tables.labels import Labels, Ramp
from spuir.tables.lineage import KEPT, LONGEST_MARK, Lineage, Notes
from spuir.tables.model import Model

KIND, ENCODING_KIND = "spuir bandit", "spuir bandit with an encoder"
"""Two kinds, so that a version without encoders refuses a file with an encoder instead of ignoring it."""
FEATURES = "catalogue/features"
"""The array of the features of actions, as long as no state has them."""


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
    header["lineage"] = {"data": model.lineage.data, "marks": list(model.lineage.marks)}
    if model.labels.ramps:
        header["ramps"] = [list(ramp) for ramp in model.labels.ramps]
    if model.encoder is not None:
        header["encoder"] = model.encoder.to_dict()
    header["state"], arrays = (None, {}) if model.state is None else snapshot.pack(model.state)
    if model.catalogue is not None:
        known = model.catalogue
        own = None if known.encoder is None else known.encoder.to_dict()
        header["catalogue"] = {"encoder": own, "varying": list(known.varying)}
        arrays = arrays if known.features is None else arrays | {FEATURES: known.features}
    # A slash cannot be in the name of a state's field, so that these are arrays of their own.
    return header, arrays if model.lineage.tally is None else arrays | {"lineage/tally": model.lineage.tally}


def annotated(
    header: dict[str, Any], arrays: dict[str, NDArray[Any]], notes: Notes, info: Info | None
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return a header and arrays with what is saved beside a model, in parts of their own."""
    about = {"created": notes.created, "metadata": dict(notes.metadata), "training": dict(notes.training)}
    if info is None:
        return header | {"about": about}, arrays
    saved, own = snapshot.pack(info)
    return header | {"about": about, "info": saved}, arrays | {f"info/{name}": array for name, array in own.items()}


def now() -> str:
    """Return the time in UTC; the environment variable SOURCE_DATE_EPOCH sets it, so that a file can be made again."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = datetime.fromtimestamp(int(seconds), UTC) if seconds.isdigit() else datetime.now(UTC)
    return moment.isoformat(timespec="seconds")


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
        check_sizes(source, policy, len(header["actions"]))
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


def notes_of(source: str, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> tuple[Notes, Info | None]:
    """Return what :func:`annotated` saved; files of version 0.1 have none of it."""
    about, info = header.get("about", {}), None
    if header.get("info") is not None:
        own = {name.removeprefix("info/"): array for name, array in arrays.items() if name.startswith("info/")}
        info = snapshot.unpack(Info, header["info"], own)
        if not all(all_finite(array) for array in own.values()):
            raise SnapshotError(
                source, "an info with a non-finite value", "what was counted is finite", "save it again"
            )
    kinds: dict[str, Any] = {"created": str, "metadata": dict, "training": dict}
    if not isinstance(about, dict) or any(not isinstance(one, kinds.get(name, ())) for name, one in about.items()):
        rule = "it has a time of creation, metadata and how it was trained"
        raise SnapshotError(source, f"about {about!r}"[:80], rule, "save it again")
    return Notes(**about), info


def _lineage(source: str, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], actions: int) -> Lineage:
    """Return what a model learned from; files of version 0.1 do not say."""
    saved, tally = header.get("lineage", {"data": "", "marks": []}), arrays.get("lineage/tally")
    texts = [saved["data"], *saved["marks"]]
    fine = all(type(text) is str and len(text) <= LONGEST_MARK for text in texts) and len(texts) <= KEPT + 1
    if tally is not None:
        fine = fine and tally.dtype == FLOAT and tally.ndim == 2 and tally.shape[1] == 3 and len(tally) <= actions
        fine = fine and all_finite(tally)
    if not fine:
        rule = f"it has at most {KEPT} marks, and finite sums per action"
        raise SnapshotError(source, "another lineage", rule, "save it again")
    return Lineage(saved["data"], tuple(saved["marks"]), tally)


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
    catalogue = _catalogue(source, header, arrays, len(labels.names))
    varying = 0 if catalogue is None else len(catalogue.varying)
    state, width = None, None
    if header["state"] is not None:
        state = snapshot.unpack(policy.state_type, header["state"], arrays)
        require(state.episode >= 0, f"episode {state.episode}", "episodes count from 0")
        policy.check_state(state)
        check_sums(source, state)
        count = len(labels.names)
        require(state.n_actions == count, f"{state.n_actions} actions", f"its {count} labels must have one state each")
        if encoder is not None:
            rule = f"its state has {state.dim - varying} columns"
            require(encoder.width == state.dim - varying, f"an encoder of {encoder.width} features", rule)
        width = state.dim - varying if encoder is None else len(encoder.columns)
        known = getattr(state, "varying", 0), getattr(getattr(state, "catalogue", None), "shape", (0, 0))[1]
        described = varying, 0 if catalogue is None else len(catalogue.names)
        require(known == described, f"features {known} of actions", f"its catalogue has {described}")
    names = None if columns is None else tuple(columns)
    if names is not None:
        texts = not isinstance(columns, str) and all(type(name) is str for name in names)
        rule = "a saved bandit has one name for each context column"
        require(texts and width in (None, len(names)), f"columns {columns!r}", rule)
    lineage = _lineage(source, header, arrays, len(labels.names))
    return Model(labels=labels, names=names, state=state, encoder=encoder, lineage=lineage, catalogue=catalogue)


def _catalogue(
    source: str, header: dict[str, Any], arrays: Mapping[str, NDArray[Any]], actions: int
) -> Catalogue | None:
    """Return what describes the actions; None if they have no features."""
    saved = header.get("catalogue")
    if saved is None:
        return None
    encoder = None if saved["encoder"] is None else Encoder.from_dict(saved["encoder"])
    features, varying = arrays.get(FEATURES), saved["varying"]
    fine = isinstance(varying, list) and all(type(name) is str for name in varying)
    if features is not None:
        width = 0 if encoder is None else encoder.width
        fine = fine and features.dtype == FLOAT and features.shape == (actions, width) and all_finite(features)
    if not fine:
        rule = "it has one row of finite features per action, and names"
        raise SnapshotError(source, "another catalogue", rule, "save it again")
    return Catalogue(encoder=encoder, features=features, varying=tuple(varying))
