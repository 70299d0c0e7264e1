"""The usual event of a dsjson file, decoded straight into records instead of dicts, which is much faster.

After some events the shape of their contexts is known, and a decoder is made for it. An event that differs from that (a
further key, another type, another spelling of a label, a slot, a flag) is left to the general way, so that both
always give the same rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from spuir.logs.formats.feature_names import context_name, unescape
from spuir.logs.formats.line_events import msgspec_library

_LABELS = {
    "cost": "_label_cost",
    "index": "_labelIndex",
    "probability": "_label_probability",
    "event": "EventId",
    "number": "_label_Action",
    "original": "_original_label_cost",
    "time": "Timestamp",
    "state": "VWState",
    "dropped": "pdrop",
    "skipped": "_skipLearn",
    "deferred": "_deferred",
    "deferred_action": "DeferredAction",
    "ours": "spuir",
}


class KeyTree:
    """An object of features: its keys, and those that hold objects; ``listed`` where it is the only one of a list."""

    def __init__(self, listed: bool = False) -> None:
        self.listed = listed
        self.keys: dict[str, KeyTree | None] = {}

    def learn(self, space: Mapping[str, Any]) -> bool:
        """Take the keys of an object; return False where it has a list that no record can hold."""
        for key, value in space.items():
            listed = type(value) is list
            if listed and not is_ignored(key) and (len(value) != 1 or type(value[0]) is not dict):
                return False
            found = value[0] if listed and value else value
            if type(found) is not dict or is_ignored(key):
                self.keys.setdefault(key, None)
                continue
            node = self.keys.setdefault(key, KeyTree(listed))
            if node is not None and not node.learn(found):
                return False
        return True


def is_ignored(key: str) -> bool:
    """Return whether a key is no feature: it begins with ``_``, and holds no text to be split."""
    return key[:1] == "_" and key != "_text"


@dataclass(frozen=True)
class RecordPlan:
    """How a record becomes values: its type, the columns of its values, and its fields that are records themselves."""

    record: Any
    names: list[str | None]
    inner: "list[tuple[int, bool, RecordPlan]]"

    def gather(self, values: Callable[[Any], tuple[Any, ...]], record: Any, found: list[Any]) -> None:
        """Add the values of a record; ``values`` gives those of its fields."""
        own = values(record)
        found += own
        for place, listed, plan in self.inner:
            part = own[place]
            if part is None:
                found += [None] * len(plan.names)
            else:
                plan.gather(values, part[0] if listed else part, found)


def plan_record(node: KeyTree, prefix: str, lead: tuple[tuple[str, str, Any], ...] = ()) -> RecordPlan:
    """Return the plan of an object.

    Parameters
    ----------
    node
        Its keys.
    prefix
        What its features are led by.
    lead
        Fields that it must have in addition, each with its key and type; they give no columns.
    """
    library = msgspec_library()
    fields: list[Any] = [(name, kind) for name, _, kind in lead]
    keys = {name: key for name, key, _ in lead}
    names: list[str | None] = [None] * len(lead)
    inner: list[tuple[int, bool, RecordPlan]] = []
    for place, (key, below) in enumerate(node.keys.items(), len(lead)):
        keys[f"field_{place}"], kind = key, library.Raw if is_ignored(key) else str | int | float | bool | None
        name = prefix + unescape(key)
        if below is not None:
            plan = plan_record(below, name + ".")
            inner.append((place, below.listed, plan))
            kind = (tuple[plan.record] if below.listed else plan.record) | None
        fields.append((f"field_{place}", kind, None))
        names.append(None if below is not None or is_ignored(key) else name if prefix else context_name(name))
    for _, _, plan in inner:
        names += plan.names
    record = library.defstruct("Features", fields, rename=keys, forbid_unknown_fields=True, gc=False)
    return RecordPlan(record, names, inner)


class EventDecoder:
    """A decoder of the usual event, made for contexts with certain keys."""

    def __init__(self, node: KeyTree) -> None:
        library = msgspec_library()
        action = library.defstruct("Action", [("tag", str)], rename={"tag": "_tag"}, gc=False)
        state = library.defstruct("State", [("m", str | None, None)], gc=False)
        self._plan = plan_record(node, "", (("actions", "_multi", list[action]),))
        fields = [("cost", float), ("index", int), ("probability", float), ("event", str)]
        fields += [("a", list[int]), ("p", list[float]), ("c", self._plan.record)]
        fields += [("number", int | None, None), ("original", float | None, None), ("time", str | None, None)]
        fields += [("state", state | None, None), ("dropped", float | None, None), ("ours", None, None)]
        fields += [(name, bool | None, None) for name in ("skipped", "deferred", "deferred_action")]
        event = library.defstruct("Event", fields, rename=_LABELS, gc=False)
        self._decode, self._values = library.json.Decoder(event).decode, library.structs.astuple
        self.names = self._plan.names

    def decode(self, line: bytes) -> Any:
        """Return a line as a record, None where it is another than the usual event."""
        try:
            event = self._decode(line)
        except (ValueError, RecursionError):
            return None
        flagged = event.dropped or event.skipped or event.deferred or event.deferred_action
        count = len(event.c.actions)
        fits = 0 <= event.index < count == len(event.a) == len(event.p) and 0 < event.probability <= 1
        usual = fits and not flagged and event.event and event.number in (None, event.index + 1)
        return event if usual and all([action.tag for action in event.c.actions]) else None

    def add_features(self, event: Any, found: list[Any]) -> None:
        """Add the values of the features, in the order of ``names``."""
        self._plan.gather(self._values, event.c, found)
