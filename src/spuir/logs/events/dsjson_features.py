"""Features in dsjson: the objects of contexts and of actions as flat names, and actions by their labels."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from spuir.logs.events.event_values import BrokenLineError, as_text
from spuir.logs.events.feature_names import context_name, space_name, unescape
from spuir.logs.events.offered_actions import distinct, feature_name, label_of

Naming = Callable[[str, str], str]
"""Returns the name of a feature, given the prefix of its object and its key."""
Features = list[tuple[str, Any]]
_SCALARS = frozenset((str, int, float, bool, type(None)))
_UNCLASHED = re.compile(f"^{re.escape(space_name('action'))}[.]")
"""What a namespace called "action" leads in a context; among the features of actions there is no other meaning."""


def is_ignored(key: str) -> bool:
    """Return whether a key is not a feature: it begins with ``_``, and holds no text to be split."""
    return key[:1] == "_" and key != "_text"


class KeyTree:
    """What a key held in some contexts: a scalar, an object, a list of objects or of scalars; and the keys inside."""

    def __init__(self) -> None:
        self.kind, self.many = "unknown", False
        self.keys: dict[str, KeyTree] = {}

    def learn(self, value: Any) -> None:
        """Take one value; the first kind counts, and nulls and empty lists fit every kind."""
        kind = _kind(value)
        if self.kind == "unknown":
            self.kind = kind
        if kind != self.kind or kind not in ("object", "objects"):
            return
        spaces = value if kind == "objects" else (value,)
        self.many |= len(spaces) > 1
        for space in spaces:
            for key, inner in space.items():
                if key not in self.keys:
                    self.keys[key] = KeyTree()
                self.keys[key].learn(inner)

    def has_lists_of_several(self) -> bool:
        """Return whether a list inside had several objects."""
        return self.many or any(below.has_lists_of_several() for below in self.keys.values())

    def names(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of the columns of single values inside, in full; what was always null may be one."""
        for key, below in self.keys.items():
            if not is_ignored(key):
                name = prefix + unescape(key)
                yield from [name] if below.kind in ("scalar", "unknown") else below.names(f"{name}.")


def _kind(value: Any) -> str:
    if value is None or value == []:
        return "unknown"
    if type(value) is dict:
        return "object"
    if type(value) is not list:
        return "scalar"
    kinds = set(map(type, value))
    return "objects" if kinds == {dict} else "other" if kinds & {dict, list} else "items"


@lru_cache(maxsize=1 << 12)
def _inner(prefix: str, key: str) -> str:
    """Return the prefix of the features of an inner object."""
    return f"{prefix}{unescape(key)}." if prefix else f"{space_name(unescape(key))}."


@lru_cache(maxsize=1 << 12)
def context_column(prefix: str, key: str) -> str:
    """Return the column of a feature of the context."""
    return prefix + unescape(key) if prefix else context_name(unescape(key))


@lru_cache(maxsize=1 << 12)
def action_column(prefix: str, key: str) -> str:
    """Return the name of a feature of an action."""
    return feature_name(_UNCLASHED.sub("action.", prefix + unescape(key)))


def flatten(space: Mapping[str, Any], prefix: str, name: Naming, found: Features) -> None:
    """Add the features of a namespace, inner levels joined with points; one that is there twice is added twice."""
    for key, value in space.items():
        kind = type(value)
        if is_ignored(key):
            continue
        if kind in _SCALARS:
            found.append((name(prefix, key), value))
        elif kind is dict:
            flatten(value, _inner(prefix, key), name, found)
        elif kind is list:
            _flatten_list(value, _inner(prefix, key), name, found)


def _flatten_list(values: list[Any], prefix: str, name: Naming, found: Features) -> None:
    """Add a list: objects share its name, numbers are numbered from 0, texts are indicators."""
    for place, value in enumerate(values):
        kind = type(value)
        if kind is dict:
            flatten(value, prefix, name, found)
        elif kind is list:
            _flatten_list(value, f"{prefix}{place}.", name, found)
        elif kind is str:
            found.append((name(prefix + value, ""), 1.0))
        elif value is not None:
            found.append((name(f"{prefix}{place}", ""), value))


class OfferedAction(NamedTuple):
    """One action of an event: what it is called, and its features."""

    label: str
    features: Mapping[str, Any]


def offered_actions(context: Any) -> list[OfferedAction]:
    """Return the actions of an event: called by tag, by id, by a hash of their features, or by number from 1."""
    multi = context.get("_multi")
    if type(multi) is not list or not multi:
        raise BrokenLineError("no actions: `_multi` is missing or empty")
    named = [named_action(action, number) for number, action in enumerate(multi, 1)]
    if all(label is not None for label, _ in named):
        labels = [str(label) for label, _ in named]
    else:
        made = distinct([label_of(features) or str(at) for at, (_, features) in enumerate(named, 1)])
        labels = [label or one for (label, _), one in zip(named, made, strict=True)]
    if len(set(labels)) != len(labels):
        raise BrokenLineError(f"two actions are called {max(labels, key=labels.count)!r}")
    return [OfferedAction(label, features) for label, (_, features) in zip(labels, named, strict=True)]


def named_action(action: Any, number: int) -> tuple[str | None, dict[str, Any]]:
    """Return the name of an action, None if it has none, and its features; ``number`` is its place, for messages."""
    if type(action) is not dict:
        raise BrokenLineError(f"action {number} is {str(action)[:40]!r}, not an object")
    inner = action.get("i")
    found = action.get("_tag") or (inner.get("id") if type(inner) is dict else None)
    label = None if found is None else as_text(found)
    pairs: Features = []
    flatten(action, "", action_column, pairs)
    return label, {name: value for name, value in pairs if value is not None and not says_nothing(name, value, label)}


def says_nothing(name: str, value: Any, label: str | None) -> bool:
    """Return whether a feature is what Personalizer adds to every action: the label once more, and a constant."""
    return (name == "i.constant" and value == 1) or (name == "i.id" and as_text(value) == label)
