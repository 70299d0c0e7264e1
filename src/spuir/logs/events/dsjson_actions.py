"""The actions of usual dsjson events: their labels, and columns of their features.

Where features change from event to event, actions are decoded into records, as contexts are. Where they stay, an action
is decoded once, and known again by its text.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from operator import ne
from typing import Annotated, Any

from spuir.logs.columns import ACTION_PREFIX
from spuir.logs.events.dsjson_features import KeyTree, OfferedAction, action_column, named_action, says_nothing
from spuir.logs.events.dsjson_records import Columns, UnusualBlockError, plan_record
from spuir.logs.events.event_rows import BrokenLineError, as_list, msgspec, split_lists
from spuir.logs.events.offered_actions import OfferedActions
from spuir.tables.arrow import pa

_MOST_KNOWN = 1 << 16
"""Actions that are known by their text; more begin anew."""


class ActionReader(ABC):
    """Reads the actions of usual events; ``kind`` is what one of them is decoded as.

    It takes note of their features in ``offered``, and gives columns of the ``wanted`` ones.
    """

    kind: Any

    def __init__(self, offered: OfferedActions, wanted: tuple[str, ...]) -> None:
        self._offered, self._wanted = offered, wanted

    @abstractmethod
    def read(self, found: Sequence[Any]) -> Sequence[Any]:
        """Return the actions of an event, each with a ``label``, given what was decoded; none if one is unusual."""

    @abstractmethod
    def columns(self, events: Sequence[Sequence[Any]]) -> Columns:
        """Return the wanted features of the actions of some events, and take note of these actions."""


class ActionRecords(ActionReader):
    """Actions that are decoded into records, made for certain keys."""

    def __init__(self, node: KeyTree, offered: OfferedActions, wanted: tuple[str, ...]) -> None:
        super().__init__(offered, wanted)
        names = [action_column(name, "") for name in node.names()]
        if len(set(names)) < len(names) or node.has_lists_of_several():
            raise UnusualBlockError("a feature may be there twice, and its value depends on the order")
        label = ("label", "_tag", Annotated[str, msgspec.Meta(min_length=1)])
        self._plan = plan_record(node, "", None, (label,), str)
        self.kind = self._plan.record

    def read(self, found: Sequence[Any]) -> Sequence[Any]:
        """Return the actions of an event as they are."""
        return found

    def columns(self, events: Sequence[Sequence[Any]]) -> Columns:
        """Return the wanted features of the actions of some events, and take note of these actions."""
        records = list(chain.from_iterable(events))
        labels = [record.label for record in records]
        features, made = dict[str, Sequence[Any]](), Columns()
        self._plan.gather(records, made)
        for column, values in made.items():
            name = action_column(column, "")
            if name in features:
                raise UnusualBlockError(name)
            features[name] = _telling(name, as_list(values), labels)
        features = {name: values for name, values in features.items() if values}
        self._note(labels, features)
        nothing = [None] * len(records)
        return {f"{ACTION_PREFIX}{name}": _lists(events, features.get(name, nothing)) for name in self._wanted}

    def _note(self, labels: Sequence[str], features: Mapping[str, Sequence[Any]]) -> None:
        """Take note of the features of some actions: which vary, and the last value of each label."""
        last = dict(zip(labels, range(len(labels)), strict=True))
        for name, values in features.items():
            if name not in self._offered.varying:
                known = {label: values[place] for label, place in last.items()}
                if any(map(ne, values, map(known.__getitem__, labels))):
                    self._offered.varying.add(name)
        for label, place in last.items():
            here = {name: values[place] for name, values in features.items()}
            self._offered.see(label, {name: value for name, value in here.items() if value is not None})


def _telling(name: str, values: Sequence[Any], labels: Sequence[str]) -> Sequence[Any]:
    """Return the values of a feature, None where it says nothing; no values if it says nothing at all."""
    if name not in ("i.constant", "i.id"):
        return values
    if values == labels or (name == "i.constant" and values.count(1) == len(values)):
        return ()
    pairs = zip(values, labels, strict=True)
    return [None if value is None or says_nothing(name, value, label) else value for value, label in pairs]


def _lists(events: Sequence[Sequence[Any]], values: Sequence[Any]) -> Any:
    """Return a column of the values of actions: an Arrow array, or lists where that would change some of them.

    Flags and large whole numbers would become numbers, which read otherwise if the column turns out to be text.
    """
    kinds = set(map(type, values))
    if bool not in kinds:
        with suppress(pa.ArrowInvalid, pa.ArrowTypeError):
            return split_lists(events, pa.array(values, pa.string() if str in kinds else pa.float64()))
    every = iter(values)
    return [list(islice(every, len(actions))) for actions in events]


class ActionTexts(ActionReader):
    """Actions that are known again by their text."""

    def __init__(self, offered: OfferedActions, wanted: tuple[str, ...]) -> None:
        super().__init__(offered, wanted)
        self.kind = msgspec.Raw
        self._decode = msgspec.json.Decoder().decode
        self._known: dict[bytes, OfferedAction | None] = {}
        self._new: set[int] = set()

    def read(self, found: Sequence[Any]) -> Sequence[OfferedAction]:
        """Return the actions of an event, none if one of them is unusual."""
        known = self._known
        texts = list(map(bytes, found))
        for text in texts:
            if text not in known:
                known[text] = self._action(text)
        actions = [known[text] for text in texts]
        return () if None in actions else [action for action in actions if action is not None]

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

    def columns(self, events: Sequence[Sequence[OfferedAction]]) -> Columns:
        """Return the wanted features of the actions of some events, and take note of these actions."""
        made: Columns = {}
        for name in self._wanted:
            values = [action.features.get(name) for action in chain.from_iterable(events)]
            made[f"{ACTION_PREFIX}{name}"] = _lists(events, values)
        for action in chain.from_iterable(events if self._new else ()):
            if id(action) in self._new:
                self._new.remove(id(action))
                self._offered.see(action.label, action.features)
        if len(self._known) > _MOST_KNOWN:
            self._known, self._new = {}, set()
        return made
