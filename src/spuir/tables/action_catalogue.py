"""The catalogue: features of actions as users pass them, encoded once and for all later actions alike."""

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from spuir.base.records import Floats
from spuir.core.quiet import quietly
from spuir.errors import InputError, ParameterError
from spuir.tables.contexts import is_arrow
from spuir.tables.encoder import Encoder

LABEL = "action"
"""The column of a catalogue that has the labels; of a pandas one the index has them, unless it just counts rows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Catalogue:
    """Features of actions.

    ``encoder`` turns raw columns of actions into numbers, and ``features`` (M, k) are those of all actions until a
    state keeps them; None afterwards. ``varying`` names the features that come with each decision.
    """

    encoder: Encoder | None = None
    features: Floats | None = None
    varying: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features (k,)."""
        return () if self.encoder is None else self.encoder.names

    def encode(self, label: Hashable, features: Any) -> Floats:
        """Return the features (k,) of one action, given by name."""
        if self.encoder is None:
            rule = "the actions of this bandit have no features"
            raise InputError("features", repr(features), rule, "make the bandit with a catalogue: actions=table")
        if features is None:
            rule = f"every action of the catalogue has {', '.join(map(repr, self.encoder.columns))}"
            raise InputError("features", f"none for action {label!r}", rule, "pass features={...}")
        row = dict(features) if hasattr(features, "items") and not hasattr(features, "columns") else None
        if row is None:
            got = f"a {type(features).__name__}"
            raise InputError("features", got, "features of an action go by name", "pass a dict: features={...}")
        absent = [name for name in self.encoder.columns if name not in row]
        if absent:
            rule = f"action {label!r} needs every column of the catalogue"
            raise InputError("features", f"no {absent[0]!r}", rule, "add it, with None where it is unknown")
        return _encoded(self.encoder, [row], [label])[0]

    def encode_table(self, labels: Sequence[Hashable], raw: Any) -> Floats:
        """Return the features (m, k) of actions in a raw table, a row for each of ``labels``."""
        assert self.encoder is not None
        return _encoded(self.encoder, raw, labels)

    def added(self, features: Floats | None) -> "Catalogue":
        """Return the catalogue with one action more, as long as it has the features itself."""
        if self.features is None or features is None:
            return self
        return replace(self, features=np.concatenate([self.features, features[None]]))

    def changed(self, code: int, features: Floats) -> "Catalogue":
        """Return the catalogue with the features of one action changed."""
        if self.features is None:
            return self
        table = self.features.copy()
        table[code] = features
        return replace(self, features=table)


def labels_and_features(actions: Any) -> tuple[Any, Any]:
    """Return the labels and the raw table of features in what a constructor was given; None without features."""
    if isinstance(actions, Mapping):
        if not actions:
            raise ParameterError("actions", "an empty dict", "at least one action is needed", "pass label → features")
        if all(row is None for row in actions.values()):
            return list(actions), None  # labels alone
        wrong = next((label for label, row in actions.items() if not isinstance(row, Mapping)), None)
        if wrong is not None:
            rule = "a catalogue as a dict has a dict of features for each label"
            raise ParameterError("actions", f"{actions[wrong]!r} for {wrong!r}", rule, "pass {label: {name: value}}")
        rows = [dict(row) for row in actions.values()]
        return list(actions), rows if any(rows) else None
    if hasattr(actions, "iloc") and hasattr(actions, "columns"):
        labels: Any = actions.index
        if LABEL in actions.columns and _counts_rows(labels):
            labels, actions = actions[LABEL], actions.drop(columns=LABEL)
        return list(labels), actions if len(actions.columns) else None
    if hasattr(actions, "to_arrow") and hasattr(actions, "columns"):
        actions = actions.to_arrow()
    if is_arrow(actions):
        names = list(actions.schema.names)
        if LABEL not in names:
            rule = f"a catalogue of Arrow has its labels in the column {LABEL!r}"
            raise ParameterError("actions", f"the columns {', '.join(names)}", rule, "rename the column of labels")
        rest = [name for name in names if name != LABEL]
        return actions.column(LABEL).to_pylist(), actions.select(rest) if rest else None
    return actions, None


def _counts_rows(index: Any) -> bool:
    """Return whether the index of a data frame is that of a file's rows, also sorted, selected or joined ones."""
    return hasattr(index, "step") or (index.name is None and index.dtype.kind == "i")


def read_catalogue(raw: Any, labels: Sequence[Hashable]) -> Catalogue | None:
    """Return the catalogue of a raw table of features, whose columns an encoder learns; None without one."""
    if raw is None:
        return None
    try:
        encoder = Encoder.fit(raw)
    except InputError as error:
        raise _of_an_action(error, labels) from None
    return Catalogue(encoder=encoder, features=_encoded(encoder, raw, labels))


@quietly
def _encoded(encoder: Encoder, raw: Any, labels: Sequence[Hashable]) -> Floats:
    """Return the features (m, k) of the actions ``labels``; refuse numbers whose squares have no finite sum."""
    try:
        table = encoder.transform(raw)
    except InputError as error:
        raise _of_an_action(error, labels) from None
    bad = np.argwhere(~np.isfinite(np.square(table) * len(table)))
    if len(bad):
        row, column = bad[0]
        got, rule = f"{table[row, column]:g} for action {labels[row]!r}", "a number must be finite and its square too"
        raise InputError(f"column {encoder.names[column]!r}", got, rule, "correct or rescale it, or pass None")
    return table


def _of_an_action(error: InputError, labels: Sequence[Hashable]) -> InputError:
    """Return what an encoder refused in words about an action: it knows a table of rows."""
    got = re.sub(r" at row (\d+)$", lambda found: f" for action {labels[int(found[1])]!r}", error.got)
    subject = "actions" if error.subject in ("X", "table") else error.subject
    # An encoder of a catalogue takes no kinds from its caller.
    remedy = "correct it, or pass None where it is unknown" if "kinds=" in error.remedy else error.remedy
    return type(error)(subject, got, error.rule, remedy)
