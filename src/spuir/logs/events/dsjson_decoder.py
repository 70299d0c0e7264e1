"""The usual events of a dsjson file, decoded straight into records and turned into columns, which is much faster.

After some events the shape of their contexts is known, and a decoder is made for it. An event that differs from that (a
further key, another type, another spelling of a label, a slot, a flag) is left to the general way, so that both
always give the same rows.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, compress
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spuir.logs.events.dsjson_actions import ActionReader
from spuir.logs.events.dsjson_features import KeyTree
from spuir.logs.events.dsjson_records import Columns, UnusualBlockError, plan_record
from spuir.logs.events.event_rows import msgspec
from spuir.tables.arrow import pa

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


class UsualEvents(NamedTuple):
    """The usual events among some lines: their places, their actions, and probabilities by action."""

    places: list[int]
    events: list[Any]
    actions: list[Sequence[Any]]
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
    """A decoder of the usual event, made for contexts with certain keys, and a way to read their actions."""

    def __init__(self, node: KeyTree, actions: ActionReader) -> None:
        names = list(node.names())
        if len(set(names)) < len(names):
            raise UnusualBlockError("two keys give one column, whose value depends on their order")
        # What msgspec checks while it decodes need not be checked for each event.
        text = Annotated[str, msgspec.Meta(min_length=1)]
        chance = Annotated[float, msgspec.Meta(gt=0, le=1)]
        place: Any = Annotated[int, msgspec.Meta(ge=0)]
        state = msgspec.defstruct("State", [("m", str | None, None)], gc=False)
        self._plan = plan_record(node, "", None, (("actions", "_multi", list[actions.kind]),))
        fields = [("cost", float), ("index", place), ("probability", chance), ("event", text)]
        fields += [("a", list[int]), ("p", list[float]), ("c", self._plan.record)]
        fields += [("number", place | None, None), ("original", float | None, None), ("time", str | None, None)]
        fields += [("state", state | None, None), ("dropped", float | None, None), ("ours", None, None)]
        fields += [(name, bool | None, None) for name in ("skipped", "deferred", "deferred_action")]
        event = msgspec.defstruct("Event", fields, rename=_LABELS, gc=False)
        self._decode = msgspec.json.Decoder(event).decode
        self._actions = actions

    def decode(self, lines: Sequence[bytes]) -> UsualEvents:
        """Return the usual events among some lines."""
        events: list[Any] = []
        places: list[int] = []
        decode = self._decode
        for place, line in enumerate(lines):
            try:
                events.append(decode(line))
            except (ValueError, RecursionError, OverflowError):
                continue
            places.append(place)
        actions = [self._actions.read(event.c.actions) for event in events]
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

    def columns(self, usual: UsualEvents) -> Columns:
        """Return the columns of usual events."""
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
        self._plan.gather([event.c for event in events], found)
        return found | self._actions.columns(usual.actions)


def _offered(usual: UsualEvents) -> tuple[Any, Any]:
    """Return the executed and the offered actions (n,); the same actions are offered often, and converted once."""
    known: dict[tuple[str, ...], int] = {}
    labels = [tuple([action.label for action in actions]) for actions in usual.actions]
    codes = np.array([known.setdefault(one, len(known)) for one in labels], np.int64)
    if any(len(set(one)) < len(one) for one in known):
        raise UnusualBlockError("two actions have one name")
    starts = np.cumsum([0, *map(len, known)])[codes]
    chosen = starts + np.fromiter((event.index for event in usual.events), np.int64, len(codes))
    names = pa.array(list(chain.from_iterable(known)), pa.string())
    return names.take(pa.array(chosen)), pa.array(list(known), pa.list_(pa.string())).take(pa.array(codes))


def _are_usual(events: Sequence[Any], actions: Sequence[Sequence[Any]]) -> NDArray[np.bool_]:
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
