"""Checks of the actions' features: the catalogue beside a log, and the columns that describe actions per decision."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from spuir.base.counting import counted
from spuir.logs.action_table import ActionTable
from spuir.logs.column_kinds import reads_as_number
from spuir.logs.doctor.checks import ActionCheck, Check, CheckedBatch
from spuir.logs.doctor.context_checks import NUMERIC_RATIO
from spuir.logs.doctor.findings import Finding, ProblemRows, finding
from spuir.tables.action_catalogue import LABEL
from spuir.tables.arrow import is_number, pa, pc

SHOWN_LABELS = 5
FEWEST_LABELS = 5
"""Below this, a feature that differs for every label is not taken for an id."""


class ActionFeatureCheck(Check):
    """Labels without features, features that say nothing, and lists that do not fit the eligible actions."""

    def __init__(self, actions: ActionCheck, catalogue: ActionTable | None, columns: Sequence[str]) -> None:
        super().__init__()
        self._actions, self._catalogue, self._names = actions, catalogue, tuple(columns)
        self._known = set[Any]() if catalogue is None else set(catalogue.labels)
        self._offered: set[Any] = set()
        self._unequal = {name: ProblemRows() for name in columns}
        self._values = {name: _Spread() for name in columns}

    def look(self, view: CheckedBatch) -> None:
        """Take one batch into account."""
        lengths = None
        if view.has("eligible"):
            eligible = view.batch["eligible"]
            lengths = pc.list_value_length(eligible).fill_null(-1).to_numpy(zero_copy_only=False)
            if not pa.types.is_boolean(eligible.type.value_type):
                self._offered.update(eligible.flatten().unique().to_pylist())
        for name in self._names:
            column = view.batch[name]
            self._values[name].add(column)
            if not pa.types.is_list(column.type):
                continue
            counts = pc.list_value_length(column).fill_null(-1).to_numpy(zero_copy_only=False)
            wrong = counts >= 0 if lengths is None else (counts >= 0) & (counts != lengths)
            self._unequal[name].add(wrong, view.where, lambda row, counts=counts: f"{counts[row]} values")

    def findings(self) -> list[Finding]:
        """Report what is wrong with the catalogue, and with the columns that describe actions."""
        found: list[Finding] = []
        for name, rows in self._unequal.items():
            found += rows.finding("unequal features", name, "there are lists that are not as long as `eligible`.")
        found += [one for name, values in self._values.items() for one in values.findings(name)]
        if self._catalogue is not None:
            found += self._labels(self._catalogue) + self._features(self._catalogue)
        return found

    def _labels(self, catalogue: ActionTable) -> list[Finding]:
        """Return what is wrong with the labels of the catalogue."""
        found: list[Finding] = []
        logged = [label for label in self._actions.codes if label not in self._known]
        only_offered = [
            label for label in self._offered - set(logged) if label is not None and label not in self._known
        ]
        if logged:
            problem = f"{counted(len(logged), 'executed action')} not in the catalogue: {_shown(logged)}."
            found.append(finding("no features", LABEL, problem))
        if only_offered:
            problem = f"{counted(len(only_offered), 'eligible action')} not in the catalogue: {_shown(only_offered)}."
            found.append(finding("eligible without features", "eligible", problem))
        if catalogue.unnamed:
            problem = f"the catalogue has {counted(catalogue.unnamed, 'row', 'without a label')}."
            found.append(finding("unnamed action", None, problem))
        if catalogue.repeated:
            problem = f"the catalogue has {counted(catalogue.repeated, 'row', 'with a label that a later row has')}"
            conflicts = catalogue.conflicts.items()
            parts = ", ".join(f"{name} differs for {counted(count, 'label')}" for name, count in conflicts)
            check = "conflicting features" if catalogue.conflicts else "repeated action"
            found.append(finding(check, None, f"{problem}{': ' + parts if parts else ', with the same features'}."))
        unused = len(self._known - set(self._actions.codes))
        if unused and not logged:
            problem = f"the log never takes {unused:,} of the {counted(len(self._known), 'action')} of the catalogue."
            found.append(finding("untried actions", None, problem))
        return found

    def _features(self, catalogue: ActionTable) -> list[Finding]:
        """Return which features of the catalogue say nothing, and which vary from decision to decision."""
        found: list[Finding] = []
        labels = catalogue.table.num_rows
        for name in catalogue.features:
            column = catalogue.table[name].combine_chunks()
            if pa.types.is_nested(column.type):
                continue
            different = len(column.drop_null().unique())
            if different == 0 or (different == 1 and column.null_count == 0 and labels > 1):
                problem = f"the feature {name!r} of the catalogue " + ("is empty." if not different else "is constant.")
                found.append(finding("constant feature", name, problem))
            elif is_number(column.type):
                infinite = int(np.isinf(column.drop_null().to_numpy(zero_copy_only=False)).sum())
                if infinite:
                    found.append(finding("not finite", name, f"{counted(infinite, 'value')} not finite."))
            elif words := _words_among_numbers(column):
                problem = f"the feature {name!r} of the catalogue is read as text because of {_shown(words)}."
                found.append(finding("mixed", name, problem))
            elif different == labels >= FEWEST_LABELS:
                found.append(finding("unique feature", name, f"the feature {name!r} differs for every action."))
        if catalogue.varying:
            names = _shown(catalogue.varying)
            problem = f"features that vary from decision to decision: {names}; the others form the catalogue."
            found.append(finding("varying features", None, problem))
        return found


class _Spread:
    """The smallest and the largest value of a feature per decision, and what cannot be learned from."""

    def __init__(self) -> None:
        self.low, self.high, self.texts, self.flags, self.infinite = np.inf, -np.inf, False, False, 0

    def add(self, column: Any) -> None:
        """Take the values of a batch into account."""
        values = column.flatten() if pa.types.is_list(column.type) else column
        if not is_number(values.type):
            known = values.null_count < len(values)
            self.texts |= known and pa.types.is_string(values.type)
            self.flags |= known
            return
        found = values.drop_null().to_numpy(zero_copy_only=False)
        finite = found[np.isfinite(found)]
        self.infinite += int(np.isinf(found).sum())
        self.low, self.high = min(self.low, finite.min(initial=np.inf)), max(self.high, finite.max(initial=-np.inf))

    def findings(self, name: str) -> list[Finding]:
        """Report a feature that is text, constant, empty or not finite."""
        if self.texts:
            return [finding("text feature", name, "the feature is text.")]
        if self.infinite:
            return [finding("not finite", name, f"{self.infinite:,} values are not finite.")]
        if self.flags or self.low < self.high:
            return []
        problem = "the feature is empty." if self.low > self.high else f"the feature is always {self.low:g}."
        return [finding("constant feature", name, problem)]


def _words_among_numbers(column: Any) -> list[str]:
    """Return the few texts of a column that are no numbers; nothing unless nearly all others are."""
    texts = column.drop_null().cast(pa.string()).to_pylist()
    words = [text for text in texts if not reads_as_number(text)]
    return words if len(texts) - len(words) >= NUMERIC_RATIO * len(words) else []


def _shown(labels: Sequence[Any]) -> str:
    first = sorted(map(str, labels))[:SHOWN_LABELS]
    return ", ".join(first) + (" …" if len(labels) > SHOWN_LABELS else "")
