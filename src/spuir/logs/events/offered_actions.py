"""The actions that events offer, with their features: constant features form a catalogue, the others vary per decision.

A feature varies if some label has two values of it. Only such features are kept with each event; of the others one
value per label is enough.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from spuir.base.hashing import digest
from spuir.errors import InputError
from spuir.logs.columns import ACTION_PREFIX
from spuir.logs.events.event_values import as_list, inner_type, inner_values, list_array
from spuir.tables.arrow import pa

LABEL_DIGITS = 12
"""Hexadecimal digits of a label that is made of features."""
MOST_FEATURES = 10_000
Features = Mapping[str, Any]


@dataclass
class OfferedActions:
    """What some events say about their actions: the last features of each label, and which features vary.

    ``blank`` is the value of a number that an action does not name; None = no value. ``earlier`` has the features that
    began to vary after some rows, each with the value that every label had until then.
    """

    blank: float | None = None
    features: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    varying: set[str] = field(default_factory=set[str])
    earlier: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    _began: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]], repr=False, compare=False)
    _fixed: dict[str, set[str]] = field(default_factory=dict[str, set[str]], repr=False, compare=False)

    def see(self, label: str, features: Features) -> None:
        """Take the features of an action at one event."""
        known = self.features.get(label)
        if known is None:
            self.features[label], self._fixed[label] = dict(features), set(features)
        elif known != features:
            for name, value in features.items():
                self._compare(label, name, known.get(name), value)
            # Only what did not vary so far can begin to vary by being absent: features that come and go are many.
            absent = self._fixed[label] - features.keys()
            self._fixed[label] -= absent
            for name in absent:
                self._compare(label, name, known[name], None)
            known.update(features)

    def _compare(self, label: str, name: str, old: Any, new: Any) -> None:
        if old != new and (self.blank if old is None else old) != (self.blank if new is None else new):
            self.vary(name)
            if name in self._began:
                self._began[name].setdefault(label, old)

    def vary(self, name: str) -> None:
        """Record that a feature varies."""
        if name not in self.varying:
            self.varying.add(name)
            self._began[name] = {}

    def arrange(self, count: int, labels: Iterable[str]) -> None:
        """Put the labels after the first ``count`` in the order of these ones."""
        order = dict.fromkeys(chain(islice(self.features, count), labels, self.features))
        self.features = {label: self.features[label] for label in order}

    def settle(self, *, rows: bool) -> None:
        """Keep the values that features had until they began to vary just now; all rows so far, if any, have them.

        From here on, these features are kept with each event.
        """
        for name, changed in self._began.items() if rows else ():
            self.earlier[name] = {label: changed.get(label, have.get(name)) for label, have in self.features.items()}
        self._began = {}

    def merge(self, other: "OfferedActions") -> None:
        """Add what later events say."""
        self.blank = other.blank if self.blank is None else self.blank
        self.varying |= other.varying
        for label, features in other.features.items():
            self.see(label, features)

    def only(self, names: Iterable[str]) -> "OfferedActions":
        """Return what is needed to make columns of some features."""
        wanted = set(names)
        fixed = wanted - self.varying
        kept = {label: {n: v for n, v in have.items() if n in fixed} for label, have in self.features.items()}
        earlier = {name: values for name, values in self.earlier.items() if name in wanted}
        return OfferedActions(self.blank, kept if fixed else {}, earlier=earlier)

    def lists(self, name: str, eligible: "pa.Array", kind: "pa.DataType") -> "pa.Array":
        """Return a feature of the actions that were offered (n lists of labels) while it did not vary, as lists."""
        known = self.earlier.get(name) or {label: features.get(name) for label, features in self.features.items()}
        return list_array([[known.get(label) for label in one or ()] for one in as_list(eligible)], kind)

    def earlier_types(self) -> "dict[str, pa.DataType]":
        """Return the types of the columns of features that began to vary later, by the values until then."""
        known = {name: [value for value in had.values() if value is not None] for name, had in self.earlier.items()}
        return {f"{ACTION_PREFIX}{name}": pa.list_(inner_type(values)) for name, values in known.items() if values}

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
