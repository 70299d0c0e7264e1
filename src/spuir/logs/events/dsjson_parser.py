"""One line of dsjson as rows: labels in all their spellings, actions by name, features by namespace."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from spuir.errors import InputError
from spuir.logs.events.dsjson_actions import ActionReader, ActionRecords, ActionTexts
from spuir.logs.events.dsjson_decoder import EventDecoder
from spuir.logs.events.dsjson_features import Features, KeyTree, OfferedAction, context_column, flatten, offered_actions
from spuir.logs.events.dsjson_records import UnusualBlockError
from spuir.logs.events.event_rows import OFFERED, EventRows, LineParser, Row, json_parser
from spuir.logs.events.event_values import BrokenLineError, as_number, as_probability
from spuir.logs.formats.base import Faults
from spuir.logs.formats.text_files import LineBlock

EXTRAS = ("episode", "position", "unit_id", "reward_time")
"""Canonical columns without a place in dsjson; kept under a key of our own, which Vowpal Wabbit ignores."""
OURS = "spuir"
_LEAST, _SAMPLE, _MOSTLY_OTHERS = 10, 50, 1000
"""Events from which the usual shape is learned, at least and at most; how many more others than usual ones end its use.
"""
_MOST_SHAPES = 5
"""Shapes that are learned of one file section; where they do not last, looking at each event twice does not pay."""
_LABELS = ("_label_cost", "_label_probability", "_label_Action", "_labelIndex", "_label_ca")


class DsjsonParser(LineParser):
    """Turns lines of dsjson into rows."""

    def __init__(self, path: str, faults: Faults) -> None:
        super().__init__()
        self.path, self.skip, self._parse = path, faults.skip, json_parser()
        self._node, self._action = KeyTree(), KeyTree()
        self._shape: EventDecoder | None = None
        self._shapes, self._others = 0, 0

    def feed_block(self, block: LineBlock, rows: EventRows, faults: Faults, path: str) -> None:
        """Add the rows of some lines: those of usual events together, and the others one by one."""
        if self._shape is None and self._shapes < _MOST_SHAPES:
            self._learn(block)
        columns: dict[str, Any] = {}
        usual, known = None, len(self.offered.features)
        if self._shape is not None:
            try:
                usual = self._shape.decode(block)
                columns = self._shape.columns(usual) if usual.places else {}
            except UnusualBlockError:
                usual = None
            self._count(0 if usual is None else len(usual.places), block.lines_held)
        if usual is None or not usual.places:
            super().feed_block(block, rows, faults, path)
            return
        start, held, before = 0, list[int](), len(rows)
        lines = block.lines() if len(usual.places) < block.lines_held else []
        for run in usual.runs():
            self.feed_lines(block.first + start, lines[start : run.start], rows, faults, path)
            held += rows.hold(range(block.first + run.start, block.first + run.stop))
            start = run.stop
        self.feed_lines(block.first + start, lines[start:], rows, faults, path)
        rows.groups.append((held, columns))
        if lines and len(self.offered.features) > known:
            actions = iter(usual.actions)
            offered = [
                [one.label for one in next(actions)] if row is None else row["eligible"] for row in rows.rows[before:]
            ]
            self.offered.arrange(known, chain.from_iterable(offered))

    def feed(self, number: int, line: bytes) -> Iterable[Row]:
        """Return the row of an event, or a row for each of its slots."""
        if line[:1] != b"{":
            return self._other(number, line)
        event = self._parse(line)
        try:
            idle = _idle(event)
            if idle is not None:
                self.skip(idle)
                return ()
            return self._general(number, event)
        except RecursionError:
            raise BrokenLineError("the context is nested too deeply") from None
        except (TypeError, AttributeError, LookupError, OverflowError) as odd:
            raise BrokenLineError(f"a member is of another kind than in an event ({odd})") from None

    def _general(self, number: int, event: dict[str, Any]) -> Iterable[Row]:
        """Return the rows of any event."""
        context, labels = event["c"], _labels(event)
        if "_label_ca" in labels:
            self._refuse(number, "a continuous action (`_label_ca`)", "actions are chosen from a list")
        actions = offered_actions(context)
        if "_outcomes" in event or "_slots" in context:
            if "_label_cost" in labels:
                self._refuse(number, "a slate (one cost for all slots)", "every slot has its own cost")
            rows = self._slots(event, context, actions)
        else:
            row = _decision(event, context, labels, [action.label for action in actions])
            rows = [{**row, OFFERED: [action.features for action in actions]}]
        for action in actions:
            self.offered.see(action.label, action.features)
        return rows

    def _learn(self, block: LineBlock) -> None:
        """Make a decoder of the usual event from the keys of the first events of a block, if they are enough."""
        contexts = [found for line in block.lines()[:_SAMPLE] if (found := self._context(line)) is not None]
        if len(contexts) < _LEAST:
            return
        try:
            for context in contexts:
                self._node.learn({key: value for key, value in context.items() if key != "_multi"})
            self._shape = EventDecoder(self._node, self._reader([one for found in contexts for one in found["_multi"]]))
        except (UnusualBlockError, RecursionError):
            self._shapes = _MOST_SHAPES

    def _context(self, line: bytes) -> dict[str, Any] | None:
        """Return the context of an event with a choice among actions; None for other lines."""
        with suppress(BrokenLineError):
            event = self._parse(line)
            context = event.get("c")
            if type(context) is dict and "_outcomes" not in event and "_slots" not in context:
                multi = context.get("_multi")
                return context if type(multi) is list and {*map(type, multi)} == {dict} else None
        return None

    def _reader(self, actions: Sequence[dict[str, Any]]) -> ActionReader:
        """Return the faster way to read actions: records if their features vary, and if a shape of them may last."""
        last: dict[str, Any] = {}
        if not self._shapes and any(last.setdefault(str(one.get("_tag")), one) != one for one in actions):
            for action in actions:
                self._action.learn({key: value for key, value in action.items() if key != "_tag"})
            with suppress(UnusualBlockError):
                return ActionRecords(self._action, self.offered, frozenset(last))
        return ActionTexts(self.offered)

    def _count(self, usual: int, lines: int) -> None:
        """Count usual events and others; where most are others, learn the keys of these too, a few times."""
        self._others = max(self._others + lines - 2 * usual, 0)
        if self._others > _MOSTLY_OTHERS:
            self._shape = None
            self._shapes += 1
            self._others = 0

    def _other(self, number: int, line: bytes) -> Iterable[Row]:
        """Handle a line that does not begin with a brace: a checkpoint or an empty one is not an event."""
        bare = line.lstrip(b"\xef\xbb\xbf \t\r\n")
        if bare[:1] == b"{":
            return self.feed(number, bare)
        if bare:
            self.skip("no event")
        return ()

    def _refuse(self, number: int, got: str, rule: str) -> None:
        remedy = "leave these events out, or keep them with Vowpal Wabbit"
        raise InputError(f"file {self.path!r}, line {number}", got, rule, remedy)

    def _slots(self, event: Any, context: Any, actions: list[OfferedAction]) -> list[Row]:
        """Return a row for each slot of a conditional contextual bandit."""
        names = [action.label for action in actions]
        outcomes, slots = event.get("_outcomes"), context.get("_slots") or []
        if not outcomes:
            self.skip("slots without outcomes")
            return []
        rows, taken = [], set()
        for place, outcome in enumerate(outcomes):
            slot = slots[place] if place < len(slots) else {}
            chosen, shares = _numbers(outcome.get("_a"), "_a", 0, len(names)), outcome.get("_p") or []
            if not chosen or len(chosen) != len(shares):
                raise BrokenLineError(f"slot {place} has {len(chosen)} actions and {len(shares)} probabilities")
            offered = [at for at in slot.get("_inc") or range(len(names)) if at not in taken or at == chosen[0]]
            taken.add(chosen[0])
            found = _common(event)
            found["decision_id"] = _slot_id(found["decision_id"], slot, outcome, place)
            found |= {"action": names[chosen[0]], "reward": _reward(outcome, _labels(outcome))}
            found |= {"propensity": as_probability(shares[0], "_p"), "eligible": [names[at] for at in offered]}
            full = set(chosen) == set(offered)
            found["probabilities"] = _aligned([offered.index(at) for at in chosen], 0, shares) if full else None
            found |= {"position": place, OFFERED: [actions[at].features for at in offered]}
            rows.append(found | _features({**context, "slot": slot}))
        return rows


def _idle(event: dict[str, Any]) -> str | None:
    """Return why there is nothing to learn from a line, None if there is."""
    if type(event.get("c")) is not dict:
        if "a" in event or "_label_cost" in event:
            raise BrokenLineError("an event without a context `c`")
        return "no event"
    if event.get("_skipLearn"):
        return "_skipLearn"
    activated = any(type(seen) is dict and seen.get("ActionTaken") for seen in event.get("o") or ())
    deferred = event.get("_deferred") or event.get("DeferredAction")
    return "deferred and never activated" if deferred and not activated else None


def _labels(event: Any) -> dict[str, Any]:
    """Return the labels under the usual names; both cases are in use, and so is one object for all."""
    if "_label_cost" in event and "_labelIndex" in event:
        return event
    found = {key.lower(): value for key, value in event.items() if key[:6] == "_label"}
    nested = found.get("_label")
    if type(nested) is dict:
        found |= {"_label_" + key.lower(): value for key, value in nested.items()}
    return {name: found[name.lower()] for name in _LABELS if name.lower() in found}


def _common(event: Any) -> dict[str, Any]:
    """Return what does not depend on a slot: id, time, version of the policy, weight."""
    state, weight = event.get("VWState"), 1.0
    if event.get("pdrop"):
        kept = 1 - as_number(event["pdrop"], "pdrop")
        if not 0 < kept <= 1:
            raise BrokenLineError(f"pdrop is {event['pdrop']}, not in [0, 1)")
        weight = 1 / kept
    version = state.get("m") if type(state) is dict else None
    name, time = event.get("EventId") or event.get("event_id"), event.get("Timestamp")
    return {"decision_id": name, "time": time, "policy_version": version, "weight": weight}


def _decision(event: Any, context: Any, labels: Any, names: list[str]) -> Row:
    """Return the row of a contextual bandit's event."""
    order, shares = _numbers(event.get("a"), "a", 1, len(names)), event.get("p") or []
    if order and shares and len(order) != len(shares):
        raise BrokenLineError(f"{len(order)} actions in `a`, {len(shares)} probabilities in `p`")
    chosen = _chosen(labels, order, len(names))
    if order and chosen + 1 not in order:
        raise BrokenLineError(f"the chosen action {chosen + 1} is not in `a`")
    probability = labels.get("_label_probability")
    if probability is None and shares and order:
        probability = shares[order.index(chosen + 1)]
    if type(probability) is not float or not 0 < probability <= 1:
        probability = None if probability is None else as_probability(probability, "_label_probability")
    found = _common(event) | {"action": names[chosen], "reward": _reward(event, labels), "propensity": probability}
    found["eligible"] = names
    found["probabilities"] = _aligned(order, 1, shares) if len(shares) == len(names) == len(order) else None
    ours = event.get(OURS)
    extras = {name: value for name, value in ours.items() if name in EXTRAS} if type(ours) is dict else {}
    return found | extras | _features(context)


def _numbers(values: Any, key: str, base: int, count: int) -> list[int]:
    """Return a list of distinct action numbers, which start at ``base``."""
    if not values:
        return []
    try:
        if len(set(values)) == len(values) and base <= min(values) and max(values) < base + count:
            return values
    except TypeError:
        pass
    raise BrokenLineError(f"`{key}` is {str(values)[:40]}, not distinct numbers of the {count} actions")


def _aligned(order: list[int], base: int, values: list[Any]) -> list[float]:
    """Return the probabilities of all actions, given in ``order``, by action."""
    found = [0.0] * len(values)
    try:
        for number, value in zip(order, values, strict=True):
            found[number - base] = value
        if min(values) >= 0 and max(values) <= 1 + 1e-6:
            return found
    except TypeError:
        pass
    raise BrokenLineError(f"`p` is {str(values)[:60]}, not probabilities")


def _chosen(labels: Any, order: list[int], count: int) -> int:
    """Return the index of the executed action: `_labelIndex` counts from 0, `_label_Action` and `a` from 1."""
    index, number = labels.get("_labelIndex"), labels.get("_label_Action")
    if type(index) is int and index + 1 == number and 0 <= index < count:
        return index
    for name, value in (("_labelIndex", index), ("_label_Action", number)):
        if value is not None and type(value) is not int:
            raise BrokenLineError(f"{name} is {str(value)[:40]!r}, not a whole number")
    if index is None:
        if number is None:
            if not order:
                raise BrokenLineError("no chosen action: neither `_labelIndex`, `_label_Action` nor `a`")
            return order[0] - 1
        index = number - 1
    elif number is not None and number != index + 1:
        raise BrokenLineError(f"_labelIndex {index} and _label_Action {number} are not the same action")
    if not 0 <= index < count:
        raise BrokenLineError(f"the chosen action is number {index + 1} of {count}")
    return index


def _reward(event: Any, labels: Any) -> float | None:
    """Return minus the cost, before any rewriting; without a cost the first observed value; None = not known."""
    original = event.get("_original_label_cost")
    cost = labels.get("_label_cost") if original is None else original
    if cost is not None:
        return 0.0 - as_number(cost, "_label_cost")
    for seen in event.get("o") or event.get("_o") or ():
        if type(seen) is dict and "v" in seen:
            return as_number(seen["v"], "v in `o`")
    return None


def _slot_id(event: str | None, slot: Any, outcome: Any, place: int) -> str:
    """Return an id of the slot's own."""
    name = slot.get("_id") or outcome.get("_id") or place
    return str(name) if event is None else f"{event}/{name}"


def _features(context: Any) -> dict[str, Any]:
    """Return the features of a context by column; of those that are there twice, the last counts."""
    found: Features = []
    flatten(context, "", context_column, found)
    return dict(found)
