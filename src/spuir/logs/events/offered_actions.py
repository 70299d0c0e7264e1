"""The actions that events offer, with their features: those that stay form a catalogue, the others vary per decision.

A feature varies if some label has two values of it. Only such features are kept with each event; of the others one
value per label is enough.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spuir.base.hashing import digest
from spuir.errors import InputError
from spuir.logs.columns import ACTION_PREFIX, is_action_column
from spuir.logs.events.event_rows import as_list, inner_type, inner_values, list_array
from spuir.tables.arrow import pa

LABEL_DIGITS = 12
"""Hexadecimal digits of a label that is made of features."""
MOST_FEATURES = 10_000
Features = Mapping[str, Any]


@dataclass
class OfferedActions:
    """What some events say about their actions: the last features of each label, and which features vary.

    ``blank`` is the value of a number that an action does not name; None = no value.
    """

    blank: float | None = None
    features: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    varying: set[str] = field(default_factory=set[str])

    def see(self, label: str, features: Features) -> None:
        """Take the features of an action at one event."""
        known = self.features.get(label)
        if known is None:
            self.features[label] = dict(features)
        elif known != features:
            names = known.keys() | features.keys()
            self.varying.update(name for name in names if self._of(known, name) != self._of(features, name))
            self.features[label] = {**known, **features}

    def _of(self, features: Features, name: str) -> Any:
        value = features.get(name)
        return self.blank if value is None else value

    def merge(self, other: "OfferedActions") -> None:
        """Add what later events say."""
        self.blank = other.blank if self.blank is None else self.blank
        self.varying |= other.varying
        for label, features in other.features.items():
            self.see(label, features)

    def only(self, names: Iterable[str]) -> "OfferedActions":
        """Return what is known of some features; nothing where none of them is known."""
        wanted = set(names)
        if not wanted:
            return OfferedActions(self.blank)
        kept = {label: {n: v for n, v in have.items() if n in wanted} for label, have in self.features.items()}
        return OfferedActions(self.blank, kept)

    def lists(self, name: str, eligible: "pa.Array", kind: "pa.DataType") -> "pa.Array":
        """Return a feature of the offered actions (n lists), whose labels are given, in an Arrow type of lists."""
        known = {label: features.get(name) for label, features in self.features.items()}
        return list_array([[known.get(label) for label in one or ()] for one in as_list(eligible)], kind)

    def column_types(self) -> "dict[str, pa.DataType]":
        """Return the types of the columns of the features that vary."""
        return {
            f"{ACTION_PREFIX}{name}": pa.list_(inner_type(have.get(name) for have in self.features.values()))
            for name in sorted(self.varying)
        }

    def catalogue(self) -> "pa.Table | None":
        """Return the labels in a column ``action`` with their features that do not vary; None if there are none."""
        names = list(dict.fromkeys(name for have in self.features.values() for name in have))
        names = [name for name in names if name not in self.varying]
        if not names:
            return None
        if len(names) > MOST_FEATURES:
            rule = f"a catalogue has at most {MOST_FEATURES:,} features"
            raise InputError("actions", f"{len(names):,} features", rule, "hash or drop rare features")
        columns: dict[str, Any] = {"action": pa.array(list(self.features), pa.string())}
        for name in names:
            values = [have.get(name) for have in self.features.values()]
            columns[name] = inner_values(values, inner_type(values), self.blank)
        return pa.table(columns)


def wanted_features(columns: Iterable[str]) -> tuple[str, ...]:
    """Return the features of actions among some columns, without the prefix, sorted."""
    return tuple(sorted(name.removeprefix(ACTION_PREFIX) for name in columns if is_action_column(name)))


def feature_name(name: str) -> str:
    """Return the name of a feature in a catalogue, where "action" is the label."""
    return "action_" if name == "action" else name


def label_of(features: Features) -> str | None:
    """Return a label for an action without a name: a hash of its features, None if it has none.

    Texts and flags identify an action where it has some; numbers may change from decision to decision.
    """
    fixed = {name: value for name, value in features.items() if isinstance(value, str | bool)}
    if not features:
        return None
    return digest(*(f"{name}={value}".encode() for name, value in sorted((fixed or features).items())))[:LABEL_DIGITS]


def distinct(labels: Sequence[str]) -> list[str]:
    """Return labels that were made of features with a number behind those that another action of the event has."""
    seen: dict[str, int] = {}
    found: list[str] = []
    for label in labels:
        seen[label] = seen.get(label, 0) + 1
        found.append(label if seen[label] == 1 else f"{label}#{seen[label]}")
    return found
