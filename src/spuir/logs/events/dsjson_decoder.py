"""The usual events of a dsjson file, decoded straight into records and turned into columns, which is much faster.

After some events the shape of their contexts is known, and a decoder is made for it. An event that differs from that (a
further key, another type, another spelling of a label, a slot, a flag) is left to the general way, so that both
always give the same rows.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, chain, compress, pairwise
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spuir.logs.events.dsjson_actions import ActionReader
from spuir.logs.events.dsjson_features import KeyTree
from spuir.logs.events.dsjson_records import Columns, UnusualBlockError, plan_record
from spuir.logs.events.event_rows import OFFERED, msgspec
from spuir.logs.formats.text_files import LineBlock
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

_UNDECODABLE = (ValueError, RecursionError, OverflowError)
_OPENING, _CLOSING = b"{}"


class UsualEvents(NamedTuple):
    """The usual events among some lines: their places, their actions, and probabilities by action."""

    places: Sequence[int]
    events: list[Any]
    actions: list[Sequence[Any]]
    probabilities: Any = None

    def filter(self, kept: NDArray[np.bool_]) -> "UsualEvents":
        """Return some of the events, without their probabilities."""
        if kept.all():
            return self
        chosen = kept.tolist()
        places, events = list(compress(self.places, chosen)), list(compress(self.events, chosen))
        return UsualEvents(places, events, list(compress(self.actions, chosen)))

    def runs(self) -> Iterator[range]:
        """Yield the runs of places that follow each other."""
        edges = np.flatnonzero(np.diff(self.places, prepend=-2, append=-1) != 1)
        for start, stop in pairwise(edges.tolist()):
            yield range(self.places[start], self.places[stop - 1] + 1)


class EventDecoder:
    """A decoder of the usual event, made for contexts with certain keys, and a way to read their actions."""

    def __init__(self, node: KeyTree, actions: ActionReader) -> None:
        names = list(node.names())
        if len(set(names)) < len(names):
            raise UnusualBlockError("two keys give one column, whose value depends on their order")
        self._node, self._even = node, True
        self._make(actions)

    def _make(self, actions: ActionReader) -> None:
        # What msgspec checks while it decodes need not be checked for each event.
        text = Annotated[str, msgspec.Meta(min_length=1)]
        chance = Annotated[float, msgspec.Meta(gt=0, le=1)]
        place: Any = Annotated[int, msgspec.Meta(ge=0)]
        state = msgspec.defstruct("State", [("m", str | None, None)], gc=False)
        self._plan = plan_record(self._node, "", None, (("actions", "_multi", list[actions.kind]),))
        fields = [("cost", float), ("index", place), ("probability", chance), ("event", text)]
        fields += [("a", list[int]), ("p", list[float]), ("c", self._plan.record)]
        fields += [("number", place | None, None), ("original", float | None, None), ("time", str | None, None)]
        fields += [("state", state | None, None), ("dropped", float | None, None), ("ours", None, None)]
        fields += [(name, bool | None, None) for name in ("skipped", "deferred", "deferred_action")]
        event = msgspec.defstruct("Event", fields, rename=_LABELS, gc=False)
        self._decoder, self._actions = msgspec.json.Decoder(event), actions

    def decode(self, block: LineBlock) -> UsualEvents:
        """Return the usual events of a block."""
        places, events = self._decode(block)
        found = UsualEvents(places, events, self._actions.read([event.c.actions for event in events]))
        try:
            found = found.filter(_are_usual(found))
            aligned, good = _align(found)
            if not good.all():
                found = found.filter(good)
                aligned, _ = _align(found)
        except OverflowError:
            return UsualEvents([], [], [])
        return found._replace(probabilities=aligned)

    def _decode(self, block: LineBlock) -> tuple[Sequence[int], list[Any]]:
        """Return the places of the lines that can be decoded, and their events."""
        if self._even and _has_objects(block):
            # Most blocks can be decoded at once, without cutting them into lines.
            with suppress(*_UNDECODABLE):
                events = self._decoder.decode_lines(block.text)
                if len(events) == block.lines_held:
                    return range(len(events)), events
            looser = self._actions.loosened()
            if looser is not None:
                self._make(looser)
                return self._decode(block)
        places, events = list[int](), list[Any]()
        for place, line in enumerate(block.lines()):
            with suppress(*_UNDECODABLE):
                events.append(self._decoder.decode(line))
                places.append(place)
        self._even = len(places) == block.lines_held
        return places, events

    def columns(self, usual: UsualEvents) -> Columns:
        """Return the columns of usual events."""
        events = usual.events
        costs = [event.cost if event.original is None else event.original for event in events]
        labels = [action.label for actions in usual.actions for action in actions]
        chosen, eligible = _offered(usual, labels)
        found: Columns = {
            "decision_id": [event.event for event in events],
            "time": [event.time for event in events],
            "policy_version": [None if event.state is None else event.state.m for event in events],
            "weight": pa.array(np.ones(len(events))),
            "action": chosen,
            "reward": pa.array(0.0 - np.array(costs, np.float64)),
            "propensity": [event.probability for event in events],
            "eligible": eligible,
            "probabilities": usual.probabilities,
        }
        self._plan.gather([event.c for event in events], found)
        return found | {OFFERED: self._actions.features(usual.actions, labels)}


def _has_objects(block: LineBlock) -> bool:
    """Return whether every line begins and ends with a brace, so that no object can go over the end of a line."""
    text = np.frombuffer(block.text, np.uint8)
    starts, stops = block.ends[: block.lines_held - 1] + 1, block.ends - 1
    return text[0] == _OPENING and bool((text[starts] == _OPENING).all() and (text[stops] == _CLOSING).all())


def _offered(usual: UsualEvents, labels: list[str]) -> tuple[Any, Any]:
    """Return the executed and the offered actions (n,); the same actions are offered often, and converted once."""
    counts = list(map(len, usual.actions))
    if counts.count(counts[0]) == len(counts) and labels == labels[: counts[0]] * len(counts):
        offered = [tuple(labels[: counts[0]])]
        codes = np.zeros(len(counts), np.int64)
    else:
        lists = [tuple(labels[start:stop]) for start, stop in pairwise(accumulate(counts, initial=0))]
        known = {one: code for code, one in enumerate(dict.fromkeys(lists))}
        offered, codes = list(known), np.array(list(map(known.__getitem__, lists)), np.int64)
    if any(len(set(one)) < len(one) for one in offered):
        raise UnusualBlockError("two actions have one name")
    starts = np.cumsum([0, *map(len, offered)])[codes]
    chosen = starts + np.fromiter([event.index for event in usual.events], np.int64, len(codes))
    names = pa.array(list(chain.from_iterable(offered)), pa.string())
    return names.take(pa.array(chosen)), pa.array(offered, pa.list_(pa.string())).take(pa.array(codes))


def _are_usual(found: UsualEvents) -> NDArray[np.bool_]:
    """Return which events (n,) have one choice of the actions that they offer, and no flag."""
    events = found.events
    index = np.array([event.index for event in events], np.int64)
    number = np.array([event.index + 1 if event.number is None else event.number for event in events], np.int64)
    counts = np.array(list(map(len, found.actions)), np.int64)
    ordered = np.array([len(event.a) for event in events], np.int64)
    shares = np.array([len(event.p) for event in events], np.int64)
    flags = [bool(event.dropped or event.skipped or event.deferred or event.deferred_action) for event in events]
    fits = (index < counts) & (counts == ordered) & (counts == shares) & (number == index + 1)
    return fits & ~np.array(flags, np.bool_)


def _align(found: UsualEvents) -> tuple[Any, NDArray[np.bool_]]:
    """Return the probabilities of events (n,) in the order of their actions, and which events have a distribution."""
    counts = np.fromiter(map(len, found.actions), np.intp, len(found.events))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    owners = np.repeat(np.arange(len(counts)), counts)
    numbers = np.fromiter(chain.from_iterable([event.a for event in found.events]), np.int64, len(owners)) - 1
    values = np.fromiter(chain.from_iterable([event.p for event in found.events]), np.float64, len(owners))
    inside = (numbers >= 0) & (numbers < counts[owners]) & (values >= 0) & (values <= 1 + 1e-6)
    places = offsets[owners] + np.where(inside, numbers, 0)
    inside &= np.bincount(places, minlength=len(owners))[places] == 1
    aligned = np.zeros(len(owners))
    aligned[places] = values
    good = np.bincount(owners[inside], minlength=len(counts)) == counts
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(aligned)), good
