"""The usual events of a dsjson file, decoded straight into records and turned into columns, which is much faster.

After some events the shape of their contexts is known, and a decoder is made for it. An event that differs from that (a
further key, another type, another spelling of a label, a slot, a flag) is left to the general way, so that both
always give the same rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spuir.logs.columns import ACTION_PREFIX
from spuir.logs.formats.dsjson_features import KeyTree, OfferedAction, is_ignored, named_action
from spuir.logs.formats.feature_names import context_name, space_name, unescape
from spuir.logs.formats.line_events import BrokenLineError, as_list, msgspec_library
from spuir.logs.formats.offered_actions import OfferedActions, list_array
from spuir.tables.arrow import arrow

Columns = dict[str, Any]
"""Values by column: a list, or an Arrow array."""

_SCALAR = str | int | float | bool | None
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


_MOST_KNOWN = 1 << 16
"""Actions that are known by their text; more begin anew."""


class UnusualBlockError(Exception):
    """Some values of a block cannot be turned into columns; all its events take the general way."""


class FieldPlan(NamedTuple):
    """How a field of a record becomes columns: its kind, the name (or prefix) of these, and the record inside."""

    field: str
    kind: str
    name: str
    inner: "RecordPlan | None"


@dataclass(frozen=True)
class RecordPlan:
    """How records become columns: their type, and their fields; ``absent`` is the value of a key that is not there."""

    record: Any
    fields: list[FieldPlan]
    absent: Any

    def gather(self, records: Sequence[Any], found: Columns) -> None:
        """Add the columns of some records, one for each row; None means no record."""
        for field, kind, name, inner in self.fields:
            get = attrgetter(field)
            try:
                values = list(map(get, records))
            except AttributeError:  # some row has no record
                values = [self.absent if one is None else get(one) for one in records]
            if inner is None and kind == "scalar":
                _put(found, name, values)
            elif kind == "items":
                self._gather_items(name, values, found)
            elif inner is not None and kind == "object":
                inner.gather([None if value is self.absent else value for value in values], found)
            elif inner is not None:
                _put_objects(found, inner, [value or () for value in values])

    def _gather_items(self, prefix: str, lists: list[Any], found: Columns) -> None:
        if self.absent is None:
            _put_items(found, prefix, lists)
            return
        made: Columns = {}
        _put_items(made, prefix, [None if one is self.absent else one for one in lists])
        for name, values in made.items():
            _put(found, name, [self.absent if value is None else value for value in as_list(values)])


def _put(found: Columns, name: str, values: Any) -> None:
    if name in found:
        raise UnusualBlockError(name)
    found[name] = values


def _put_objects(found: Columns, inner: RecordPlan, lists: list[Any]) -> None:
    """Add lists of objects, which share the names of their features; the last object that has a key counts."""
    longest = max(map(len, lists), default=0)
    if inner.absent is None:
        inner.gather([one[0] if one else None for one in lists], found)
        return
    merged: Columns = {}
    for place in range(longest):
        part: Columns = {}
        inner.gather([one[place] if len(one) > place else None for one in lists], part)
        for name, values in part.items():
            old = merged.get(name)
            merged[name] = values if old is None else [_later(a, b, inner) for a, b in zip(old, values, strict=True)]
    for name, values in merged.items():
        _put(found, name, [None if value is inner.absent else value for value in values])


def _later(old: Any, new: Any, inner: RecordPlan) -> Any:
    return old if new is inner.absent else new


def _put_items(found: Columns, prefix: str, lists: list[Any]) -> None:
    """Add lists of scalars: numbers are numbered from 0, texts are indicators."""
    pa = arrow()
    items = list(chain.from_iterable(one for one in lists if one))
    kinds = set(map(type, items)) - {type(None)}
    lengths = {len(one) if one else 0 for one in lists}
    if kinds <= {int, float} and len(lengths) == 1 and None not in items:
        # Vectors of one length, which need no look at each number.
        table = np.array(items, np.float64).reshape(len(lists), -1).T
        for place, column in enumerate(np.ascontiguousarray(table)):
            _put(found, f"{prefix}{place}", pa.array(column))
        return
    if str not in kinds:
        for place in range(max((len(one) for one in lists if one), default=0)):
            _put(found, f"{prefix}{place}", [one[place] if one and len(one) > place else None for one in lists])
        return
    if kinds != {str}:
        raise UnusualBlockError(prefix)
    owners = np.repeat(np.arange(len(lists)), [len(one) if one else 0 for one in lists])
    coded = pa.array(items, pa.string()).dictionary_encode()
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    for code, text in enumerate(coded.dictionary.to_pylist()):
        there = np.zeros(len(lists), np.bool_)
        there[owners[codes == code]] = True
        _put(found, prefix + text, pa.array(np.ones(len(lists)), mask=~there))


def plan_record(node: KeyTree, prefix: str, absent: Any, lead: tuple[tuple[str, str, Any], ...] = ()) -> RecordPlan:
    """Return the plan of an object.

    Parameters
    ----------
    node
        Its keys.
    prefix
        What its features are led by.
    absent
        What stands for a key that is not there: None, or a mark that no JSON value equals.
    lead
        Fields that it must have in addition, each with its key and type; they give no columns.
    """
    library = msgspec_library()
    fields: list[Any] = [(name, kind) for name, _, kind in lead]
    keys = {name: key for name, key, _ in lead}
    plans: list[FieldPlan] = []
    for place, (key, below) in enumerate(node.keys.items(), len(lead)):
        field = f"field_{place}"
        keys[field] = key
        name = prefix + unescape(key)
        kind, inner = library.Raw, None
        if not is_ignored(key):
            named, name = (name, name) if prefix else (context_name(name), space_name(name))
            kind, inner = _typed(below, name, absent)
            plans.append(FieldPlan(field, below.kind, named if below.kind == "scalar" else f"{name}.", inner))
        fields.append((field, kind | None if absent is None else kind | None | library.UnsetType, absent))
    record = library.defstruct("Features", fields, rename=keys, forbid_unknown_fields=True, gc=False)
    return RecordPlan(record, [one for one in plans if one.kind not in ("unknown", "other")], absent)


def _typed(node: KeyTree, name: str, absent: Any) -> tuple[Any, RecordPlan | None]:
    """Return the type of a field, and the plan of the objects in it."""
    library = msgspec_library()
    if node.kind == "scalar":
        return _SCALAR, None
    if node.kind == "items":
        return list[_SCALAR], None
    if node.kind == "object":
        inner = plan_record(node, f"{name}.", absent)
        return inner.record, inner
    if node.kind == "objects":
        # Only where a list has several objects does it matter which keys are absent and which are null.
        inner = plan_record(node, f"{name}.", library.UNSET if node.many else absent)
        return list[inner.record] if node.many else Annotated[list[inner.record], library.Meta(max_length=1)], inner
    return Annotated[list[int], library.Meta(max_length=0)], None


class UsualEvents(NamedTuple):
    """The usual events among some lines: their places, their actions, and probabilities by action."""

    places: list[int]
    events: list[Any]
    actions: list[Sequence[OfferedAction]]
    probabilities: Any

    def filter(self, kept: list[bool]) -> "UsualEvents":
        """Return some of the events, without their probabilities."""
        places, events = list(compress(self.places, kept)), list(compress(self.events, kept))
        return UsualEvents(places, events, list(compress(self.actions, kept)), None)

    def runs(self) -> Iterator[range]:
        """Yield the runs of places that follow each other."""
        if self.places and self.places[-1] - self.places[0] == len(self.places) - 1:
            yield range(self.places[0], self.places[-1] + 1)
            return
        start = 0
        for at in range(1, len(self.places) + 1):
            if at == len(self.places) or self.places[at] != self.places[at - 1] + 1:
                yield range(self.places[start], self.places[at - 1] + 1)
                start = at


class EventDecoder:
    """A decoder of the usual event, made for contexts with certain keys.

    It takes note of the features of actions in ``offered``, and gives columns of the ``wanted`` ones. An action is
    decoded once, and known again by its text.
    """

    def __init__(self, node: KeyTree, offered: OfferedActions, wanted: tuple[str, ...]) -> None:
        library = msgspec_library()
        names = list(node.names())
        if len(set(names)) < len(names):
            raise UnusualBlockError("two keys give one column, whose value depends on their order")
        # What msgspec checks while it decodes need not be checked for each event.
        text = Annotated[str, library.Meta(min_length=1)]
        chance = Annotated[float, library.Meta(gt=0, le=1)]
        place: Any = Annotated[int, library.Meta(ge=0)]
        state = library.defstruct("State", [("m", str | None, None)], gc=False)
        self._plan = plan_record(node, "", None, (("actions", "_multi", list[library.Raw]),))
        fields = [("cost", float), ("index", place), ("probability", chance), ("event", text)]
        fields += [("a", list[int]), ("p", list[float]), ("c", self._plan.record)]
        fields += [("number", place | None, None), ("original", float | None, None), ("time", str | None, None)]
        fields += [("state", state | None, None), ("dropped", float | None, None), ("ours", None, None)]
        fields += [(name, bool | None, None) for name in ("skipped", "deferred", "deferred_action")]
        event = library.defstruct("Event", fields, rename=_LABELS, gc=False)
        self._decode = library.json.Decoder(event).decode
        self._decode_any = library.json.Decoder().decode
        self._offered, self._wanted = offered, wanted
        self._known: dict[bytes, OfferedAction | None] = {}
        self._noted: set[int] = set()

    def decode(self, lines: Sequence[bytes]) -> UsualEvents:
        """Return the usual events among some lines."""
        if len(self._known) > _MOST_KNOWN:
            self._known, self._noted = {}, set()
        events: list[Any] = []
        places: list[int] = []
        decode = self._decode
        for place, line in enumerate(lines):
            try:
                events.append(decode(line))
            except (ValueError, RecursionError, OverflowError):
                continue
            places.append(place)
        actions = [self._actions(event.c.actions) for event in events]
        try:
            kept, usual = UsualEvents(places, events, actions, None), _are_usual(events, actions)
            if not usual.all():
                kept = kept.filter(usual.tolist())
            aligned, good = _align(kept.events)
        except OverflowError:
            return UsualEvents([], [], [], None)
        if not good.all():
            kept = kept.filter(good.tolist())
            aligned, _ = _align(kept.events)
        return kept._replace(probabilities=aligned)

    def _actions(self, raw: Sequence[Any]) -> Sequence[OfferedAction]:
        """Return the actions of an event, none if one of them is unusual."""
        found: list[OfferedAction] = []
        for one in raw:
            text = bytes(one)
            action = self._known[text] if text in self._known else self._action(text)
            if action is None:
                return ()
            found.append(action)
        return found

    def _action(self, text: bytes) -> OfferedAction | None:
        """Return an action that has a tag; None for others."""
        action = None
        try:
            content = self._decode_any(text)
            tag = content.get("_tag") if type(content) is dict else None
            if type(tag) is str and tag:
                action = OfferedAction(tag, named_action(content, 1)[1])
        except (ValueError, RecursionError, TypeError, AttributeError, OverflowError, BrokenLineError):
            pass  # the general way says what is wrong
        self._known[text] = action
        return action

    def _note(self, usual: UsualEvents) -> None:
        """Take note of the features of actions that were not noted before."""
        for actions in usual.actions:
            for action in actions:
                if id(action) not in self._noted:
                    self._noted.add(id(action))
                    self._offered.see(action.label, action.features)

    def columns(self, usual: UsualEvents) -> Columns:
        """Return the columns of usual events."""
        pa = arrow()
        events = usual.events
        costs = [event.cost if event.original is None else event.original for event in events]
        actions, eligible = _offered(usual)
        found: Columns = {
            "decision_id": [event.event for event in events],
            "time": [event.time for event in events],
            "policy_version": [None if event.state is None else event.state.m for event in events],
            "weight": pa.array(np.ones(len(events))),
            "action": actions,
            "reward": pa.array(0.0 - np.array(costs, np.float64)),
            "propensity": [event.probability for event in events],
            "eligible": eligible,
            "probabilities": usual.probabilities,
        }
        for name in self._wanted:
            values = [[action.features.get(name) for action in actions] for actions in usual.actions]
            found[f"{ACTION_PREFIX}{name}"] = list_array(values, None)
        self._plan.gather([event.c for event in events], found)
        self._note(usual)
        return found


def _offered(usual: UsualEvents) -> tuple[Any, Any]:
    """Return the executed and the offered actions (n,); the same actions are offered often, and converted once."""
    pa = arrow()
    known: dict[tuple[str, ...], int] = {}
    labels = [tuple([action.label for action in actions]) for actions in usual.actions]
    codes = np.array([known.setdefault(one, len(known)) for one in labels], np.int64)
    if any(len(set(one)) < len(one) for one in known):
        raise UnusualBlockError("two actions have one name")
    starts = np.cumsum([0, *map(len, known)])[codes]
    chosen = starts + np.fromiter((event.index for event in usual.events), np.int64, len(codes))
    names = pa.array(list(chain.from_iterable(known)), pa.string())
    return names.take(pa.array(chosen)), pa.array(list(known), pa.list_(pa.string())).take(pa.array(codes))


def _are_usual(events: Sequence[Any], actions: Sequence[Sequence[OfferedAction]]) -> NDArray[np.bool_]:
    """Return which events (n,) have one choice of the actions that they offer, and no flag."""
    n = len(events)
    index = np.fromiter([event.index for event in events], np.int64, n)
    counts, ordered, shares = (
        np.fromiter(map(len, lists), np.int64, n)
        for lists in (actions, [event.a for event in events], [event.p for event in events])
    )
    numbers = [-1 if event.number is None else event.number for event in events]
    flagged = [event.dropped or event.skipped or event.deferred or event.deferred_action for event in events]
    number = np.fromiter(numbers, np.int64, n)
    fits = (index < counts) & (counts == ordered) & (counts == shares) & ((number == -1) | (number == index + 1))
    return fits & ~np.fromiter(map(bool, flagged), np.bool_, n)


def _align(events: Sequence[Any]) -> tuple[Any, NDArray[np.bool_]]:
    """Return the probabilities of events (n,) in the order of their actions, and which events have a distribution."""
    pa = arrow()
    lists = [event.a for event in events]
    counts = np.fromiter(map(len, lists), np.intp, len(lists))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    owners = np.repeat(np.arange(len(counts)), counts)
    numbers = np.fromiter(chain.from_iterable(lists), np.int64, len(owners)) - 1
    values = np.fromiter(chain.from_iterable([event.p for event in events]), np.float64, len(owners))
    inside = (numbers >= 0) & (numbers < counts[owners]) & (values >= 0) & (values <= 1 + 1e-6)
    places = offsets[owners] + np.where(inside, numbers, 0)
    inside &= np.bincount(places, minlength=len(owners))[places] == 1
    aligned = np.zeros(len(owners))
    aligned[places] = values
    good = np.bincount(owners[inside], minlength=len(counts)) == counts
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(aligned)), good
