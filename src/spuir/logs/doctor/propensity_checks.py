"""Checks of what a log says about the probabilities with which its actions were chosen, and what could be chosen."""

from typing import Any, ClassVar

import numpy as np

from spuir.base.records import Codes, Mask
from spuir.logs.doctor.checks import ActionCheck, Check, CheckedBatch
from spuir.logs.doctor.findings import Finding, ProblemRows, finding, numbers
from spuir.logs.eligible_masks import holds_masks, listed_items
from spuir.tables.arrow import pa, pc

SLACK = 0.01
"""The mean of 1/propensity may exceed the number of actions by this part before it is reported."""
CENT = 0.01
"""Propensities that are all multiples of this were rounded, and may be half of it too small: 0.33 for 1/3."""
TOLERANCE = 1e-6
"""Probabilities that differ by less are taken as equal: logs often round them."""


class PropensityCheck(Check):
    """Propensities that are missing, impossible, or too small to be true."""

    columns = ("propensity",)
    problems: ClassVar = {
        "missing propensity": ("propensity", "there are rows without a propensity."),
        "impossible propensity": ("propensity", "there are propensities outside (0, 1]."),
    }

    def __init__(self, actions: ActionCheck) -> None:
        super().__init__()
        self._actions = actions
        self._sums, self._ones = np.zeros(3), 0

    def look(self, view: CheckedBatch) -> None:
        """Count, and sum 1/p, with the largest p that rounding allows."""
        values = numbers(view.batch["propensity"])
        gone = np.isnan(values)
        good = (values > 0) & (values <= 1 + 1e-9)
        self.rows["missing propensity"].add(gone, view.where)
        self.rows["impossible propensity"].add(~gone & ~good, view.where, values)
        cents = values[good] / CENT
        rounded = np.allclose(cents, np.rint(cents), rtol=0.0, atol=1e-6)
        inverse = 1 / (values[good] + CENT / 2 * rounded)
        self._sums += (len(inverse), inverse.sum(), (inverse**2).sum())
        self._ones += int(np.count_nonzero(values[good] == 1))

    def findings(self) -> list[Finding]:
        """Report missing, impossible and implausible propensities."""
        found = super().findings()
        count, total, squares = self._sums
        actions = len(self._actions.codes)
        if count and self._ones == count and actions > 1:
            problem = f"every propensity is 1, yet {actions} actions were taken: the decisions were deterministic."
            found.append(finding("deterministic", "propensity", problem))
        if count > 30:
            mean = total / count
            error = np.sqrt(max(squares / count - mean**2, 0.0) / count)
            # 1/p of the executed action has the number of possible actions as its mean, whatever the policy.
            if mean > actions * (1 + SLACK) + 6 * error:
                limit = f"with {actions} actions it cannot exceed {actions}"
                problem = f"the mean of 1/propensity is at least {mean:.3g}, but {limit}."
                found.append(finding("implausible propensity", "propensity", problem))
        return found


class EligibleCheck(Check):
    """Executed actions that could not be chosen, and rows in which none could."""

    columns = ("eligible",)
    problems: ClassVar = {
        "ineligible action": ("action", "the executed action was not eligible."),
        "nothing eligible": ("eligible", "there are rows in which no action was eligible."),
    }

    def __init__(self, actions: ActionCheck) -> None:
        super().__init__()
        self._actions = actions
        self._barred: dict[tuple[int, int], ProblemRows] = {}
        """Rows of masks by executed action and by entry of the mask that is false."""

    def look(self, view: CheckedBatch) -> None:
        """Look for the executed action of each row among what could be chosen."""
        column = view.batch["eligible"]
        lengths, owners, items = listed_items(column)
        known = view.actions >= 0
        if holds_masks(column):
            chosen = items.fill_null(False).to_numpy(zero_copy_only=False)
            empty = (lengths >= 0) & (np.bincount(owners[chosen], minlength=len(lengths)) == 0)
            self._look_at_masks(view, lengths, owners, chosen, known & ~empty)
        else:
            empty = lengths == 0
            same = np.bincount(owners[executed_items(view, owners, items)], minlength=len(lengths)) > 0
            barred = (lengths > 0) & known & ~same
            self.rows["ineligible action"].add(barred, view.where, view.batch["action"])
        self.rows["nothing eligible"].add(empty, view.where)

    def _look_at_masks(self, view: CheckedBatch, lengths: Codes, owners: Codes, chosen: Mask, checked: Mask) -> None:
        """Keep the rows of each action in which an entry of the mask is false, by entry: their order is known later."""
        starts = np.cumsum(np.maximum(lengths, 0)) - np.maximum(lengths, 0)
        entries = np.arange(len(owners)) - starts[owners]
        closed = np.flatnonzero(~chosen & checked[owners])
        pairs = np.stack([view.actions[owners[closed]], entries[closed]], axis=1)
        for code, entry in np.unique(pairs, axis=0).tolist():
            seen = np.zeros(len(lengths), np.bool_)
            seen[owners[closed[(pairs == (code, entry)).all(axis=1)]]] = True
            self._barred.setdefault((code, entry), ProblemRows()).add(seen, view.where, view.batch["action"])

    def findings(self) -> list[Finding]:
        """Report rows by lists, and rows by masks, whose entries are in the order of the sorted labels."""
        codes = self._actions.codes
        for entry, label in enumerate(sorted(codes)):
            if rows := self._barred.get((codes[label], entry)):
                self.rows["ineligible action"] += rows
        return super().findings()


class ProbabilityCheck(Check):
    """Rows of probabilities that are none, or that disagree with the propensity."""

    columns = ("probabilities",)
    problems: ClassVar = {
        "impossible probabilities": ("probabilities", "there are rows whose probabilities are not a distribution."),
        "unequal lists": ("eligible", "eligible and probabilities have different lengths."),
        "disagreeing propensity": ("propensity", "the propensity is not the probability of the executed action."),
    }

    def look(self, view: CheckedBatch) -> None:
        """Compare the lists of a batch with its other columns."""
        lengths, owners, items = listed_items(view.batch["probabilities"])
        values = numbers(items)
        n = len(lengths)
        totals = np.bincount(owners, values, n)
        lowest = np.full(n, np.inf)
        np.minimum.at(lowest, owners, values)
        wrong = (lengths > 0) & ~((np.abs(totals - 1) <= 1e-4) & (lowest >= 0))
        self.rows["impossible probabilities"].add(wrong, view.where, totals)
        labelled = view.has("eligible") and not holds_masks(view.batch["eligible"])
        same = self._executed(view, lengths) if labelled else np.ones(len(values), np.bool_)
        if same is None:
            return
        if view.has("propensity"):
            propensities = numbers(view.batch["propensity"])
            agree = np.bincount(owners[same & (np.abs(values - propensities[owners]) <= TOLERANCE)], minlength=n) > 0
            differ = (lengths > 0) & ~np.isnan(propensities) & ~agree
            self.rows["disagreeing propensity"].add(differ, view.where, propensities)

    def _executed(self, view: CheckedBatch, lengths: Codes) -> Mask | None:
        """Return which items of the eligible labels are the executed action; None where the lists do not match."""
        given, owners, labels = listed_items(view.batch["eligible"])
        differ = (given >= 0) & (lengths >= 0) & (given != lengths)
        self.rows["unequal lists"].add(differ, view.where, given)
        return None if (given != lengths).any() else executed_items(view, owners, labels)


def executed_items(view: CheckedBatch, owners: Codes, labels: Any) -> Mask:
    """Return which of the labels (k,) that rows ``owners`` (k,) list are their executed action."""
    executed = view.batch["action"].take(pa.array(owners))
    both = (
        [labels, executed]
        if labels.type == executed.type
        else [pc.cast(one, pa.string()) for one in (labels, executed)]
    )
    return pc.equal(*both).fill_null(False).to_numpy(zero_copy_only=False)
