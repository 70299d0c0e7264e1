"""The actions of usual dsjson events: their labels, and columns of their features.

Where features change from event to event, actions are decoded into records, as contexts are. Where they are
constant, an action is decoded once, and recognised by its text afterwards.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import ne
from typing import Annotated, Any, Literal

from spuir.logs.events.dsjson_features import KeyTree, OfferedAction, action_column, named_action, says_nothing
from spuir.logs.events.dsjson_records import Columns, UnusualBlockError, plan_record
from spuir.logs.events.event_rows import msgspec
from spuir.logs.events.event_values import BrokenLineError, as_list, feature_columns, offered_columns
from spuir.logs.events.offered_actions import OfferedActions

FeatureColumns = Callable[[Sequence[str]], Columns]
"""Returns columns of features of actions, given their names."""
_MOST_KNOWN = 1 << 16
"""Actions that are remembered by their text; beyond that, all are forgotten."""
_MOST_LABELS = 1000
"""Labels that a decoder may know in advance."""


class ActionReader(ABC):
    """Reads the actions of usual events, and records their features; ``kind`` is what one is decoded as."""

    kind: Any

    def __init__(self, offered: OfferedActions) -> None:
        self._offered = offered

    @abstractmethod
    def read(self, events: list[Any]) -> list[Any]:
        """Return the actions of events, each with a ``label``, given what was decoded; none where one is unusual."""

    @abstractmethod
    def features(self, events: Sequence[Sequence[Any]], labels: Sequence[str]) -> FeatureColumns:
        """Take note of the actions of some events, whose labels are given; return what makes columns of features."""

    def loosened(self) -> "ActionReader | None":
        """Return a reader that takes more actions, None if there is none."""
        return None


class ActionRecords(ActionReader):
    """Actions that are decoded into records, made for certain keys.

    ``labels`` are the only ones that it takes, which is faster; None = any.
    """

    def __init__(self, node: KeyTree, offered: OfferedActions, labels: frozenset[str] | None = None) -> None:
        super().__init__(offered)
        names = [action_column(name, "") for name in node.names()]
        if len(set(names)) < len(names) or node.has_lists_of_several():
            raise UnusualBlockError("a feature may be there twice, and its value depends on the order")
        self._node, self._strict = node, labels is not None and 0 < len(labels) <= _MOST_LABELS
        known: dict[str, Any] = {}
        kind: Any = Annotated[str, msgspec.Meta(min_length=1)]
        if self._strict:
            kind = Literal[tuple(labels or ())]
            known = {"i.constant": Literal[1], "i.id": kind}
        self._plan = plan_record(node, "", None, (("label", "_tag", kind),), str, known)
        self.kind = self._plan.record

    def read(self, events: list[Any]) -> list[Any]:
        """Return the actions of events as they are."""
        return events

    def loosened(self) -> ActionReader | None:
        """Return a reader that takes any label."""
        return ActionRecords(self._node, self._offered) if self._strict else None

    def features(self, events: Sequence[Sequence[Any]], labels: Sequence[str]) -> FeatureColumns:
        """Take note of the actions of some events; return what makes columns of their features."""
        found, made = dict[str, Sequence[Any]](), Columns()
        self._plan.gather(list(chain.from_iterable(events)), made)
        for column, values in made.items():
            name = action_column(column, "")
            if name in found:
                raise UnusualBlockError(name)
            found[name] = _telling(name, as_list(values), labels)
        found = {name: values for name, values in found.items() if values}
        self._note(labels, found)
        return partial(feature_columns, list(map(len, events)), found)

    def _note(self, labels: Sequence[str], features: Mapping[str, Sequence[Any]]) -> None:
        """Take note of the features of some actions: which vary, and the last value of each label."""
        fixed = {name: values for name, values in features.items() if name not in self._offered.varying}
        if not fixed and self._offered.features.keys() >= set(labels):
            return
        last = dict(zip(labels, range(len(labels)), strict=True))
        for name, values in fixed.items():
            known = {label: values[place] for label, place in last.items()}
            if any(map(ne, values, map(known.__getitem__, labels))):
                self._offered.vary(name)
        for label, place in last.items():
            new = label not in self._offered.features
            here = {name: values[place] for name, values in (features if new else fixed).items()}
            self._offered.see(label, {name: value for name, value in here.items() if value is not None})


def _telling(name: str, values: Sequence[Any], labels: Sequence[str]) -> Sequence[Any]:
    """Return the values of a feature, None where it says nothing; no values if it says nothing at all."""
    if name not in ("i.constant", "i.id"):
        return values
    if values == labels or (name == "i.constant" and values.count(1) == len(values)):
        return ()
    pairs = zip(values, labels, strict=True)
    return [None if value is None or says_nothing(name, value, label) else value for value, label in pairs]


class ActionTexts(ActionReader):
    """Actions that are known again by their text."""

    def __init__(self, offered: OfferedActions) -> None:
        super().__init__(offered)
        self.kind = msgspec.Raw
        self._decode = msgspec.json.Decoder().decode
        self._known: dict[bytes, OfferedAction | None] = {}
        self._new: set[int] = set()

    def read(self, events: list[Any]) -> list[Any]:
        """Return the actions of events, none where one of them is unusual."""
        known, found = self._known, list[Any]()
        for texts in ([bytes(one) for one in event] for event in events):
            for text in texts:
                if text not in known:
                    known[text] = self._action(text)
            actions = [known[text] for text in texts]
            found.append(() if None in actions else actions)
        return found

    def _action(self, text: bytes) -> OfferedAction | None:
        """Return an action that has a tag; None for others."""
        try:
            content = self._decode(text)
            tag = content.get("_tag") if type(content) is dict else None
            if type(tag) is str and tag:
                action = OfferedAction(tag, named_action(content, 1)[1])
                self._new.add(id(action))
                return action
        except (ValueError, RecursionError, TypeError, AttributeError, OverflowError, BrokenLineError):
            pass  # the general way says what is wrong
        return None

    def features(self, events: Sequence[Sequence[OfferedAction]], labels: Sequence[str]) -> FeatureColumns:
        """Take note of the actions of some events; return what makes columns of their features."""
        for action in chain.from_iterable(events if self._new else ()):
            if id(action) in self._new:
                self._new.remove(id(action))
                self._offered.see(action.label, action.features)
        if len(self._known) > _MOST_KNOWN:
            self._known, self._new = {}, set()
        return partial(offered_columns, [[action.features for action in actions] for actions in events])
