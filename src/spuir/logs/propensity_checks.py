"""Checks of what a log says about the probabilities with which its actions were chosen."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spuir.base.records import Codes
from spuir.logs.checks import ActionCheck, Check, CheckedBatch
from spuir.logs.findings import Finding, ProblemRows, finding, missing, numbers
from spuir.tables.arrow import arrow, compute

SLACK = 0.01
"""The mean of 1/propensity may exceed the number of actions by this part before it is reported."""
CENT = 0.01
"""Propensities that are all multiples of this were rounded, and may be half of it too small: 0.33 for 1/3."""
TOLERANCE = 1e-6
"""Probabilities that differ by less are taken as equal: logs often round them."""


class PropensityCheck(Check):
    """Propensities that are missing, impossible, or too small to be true."""

    columns = ("propensity",)

    def __init__(self, actions: ActionCheck) -> None:
        self._actions = actions
        self._missing, self._impossible = ProblemRows(), ProblemRows()
        self._sums, self._ones = np.zeros(3), 0

    def look(self, view: CheckedBatch) -> None:
        """Count, and sum 1/p, with the largest p that rounding allows."""
        values = numbers(view.batch["propensity"])
        gone = np.isnan(values)
        good = (values > 0) & (values <= 1 + 1e-9)
        self._missing.add(gone, view.where)
        self._impossible.add(~gone & ~good, view.where, values)
        cents = values[good] / CENT
        rounded = np.allclose(cents, np.rint(cents), rtol=0.0, atol=1e-6)
        inverse = 1 / (values[good] + CENT / 2 * rounded)
        self._sums += (len(inverse), inverse.sum(), (inverse**2).sum())
        self._ones += int(np.count_nonzero(values[good] == 1))

    def findings(self) -> list[Finding]:
        """Report missing, impossible and implausible propensities."""
        found = self._missing.finding("missing propensity", "propensity", "there are rows without a propensity.")
        problem = "there are propensities outside (0, 1]."
        found += self._impossible.finding("impossible propensity", "propensity", problem)
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


class ProbabilityCheck(Check):
    """Rows of probabilities that are none, or that disagree with the propensity and with what was eligible."""

    columns = ("probabilities",)

    def __init__(self) -> None:
        self._sums, self._lengths, self._differ, self._barred = (
            ProblemRows(),
            ProblemRows(),
            ProblemRows(),
            ProblemRows(),
        )

    def look(self, view: CheckedBatch) -> None:
        """Compare the lists of a batch with its other columns."""
        lengths, owners, values = _items(view.batch["probabilities"])
        n = len(lengths)
        totals = np.bincount(owners, values, n)
        lowest = np.full(n, np.inf)
        np.minimum.at(lowest, owners, values)
        self._sums.add((lengths > 0) & ~((np.abs(totals - 1) <= 1e-4) & (lowest >= 0)), view.where, totals)
        labelled = view.has("eligible") and not arrow().types.is_boolean(
            view.batch.schema.field("eligible").type.value_type
        )
        same = self._executed(view, lengths) if labelled else np.ones(len(values), np.bool_)
        if same is None:
            return
        if view.has("propensity"):
            propensities = numbers(view.batch["propensity"])
            agree = np.bincount(owners[same & (np.abs(values - propensities[owners]) <= TOLERANCE)], minlength=n) > 0
            self._differ.add((lengths > 0) & ~np.isnan(propensities) & ~agree, view.where, propensities)

    def _executed(self, view: CheckedBatch, lengths: Codes) -> NDArray[np.bool_] | None:
        """Return which items of the eligible labels are the executed action; None where the lists do not match."""
        pa = arrow()
        given, owners, labels = _items(view.batch["eligible"])
        differ = (given >= 0) & (lengths >= 0) & (given != lengths)
        self._lengths.add(differ, view.where, given)
        executed = view.batch["action"].take(pa.array(owners))
        texts = [compute().cast(one, pa.string()) for one in (labels, executed)]
        same = compute().equal(*texts).fill_null(False).to_numpy(zero_copy_only=False)
        barred = (given >= 0) & (np.bincount(owners[same], minlength=len(given)) == 0) & ~missing(view.batch["action"])
        self._barred.add(barred, view.where, view.batch["action"])
        return None if (given != lengths).any() else same

    def findings(self) -> list[Finding]:
        """Report disagreements."""
        problem = "there are rows whose probabilities are not a distribution."
        found = self._sums.finding("impossible probabilities", "probabilities", problem)
        problem = "eligible and probabilities have different lengths."
        found += self._lengths.finding("unequal lists", "eligible", problem)
        problem = "the propensity is not the probability of the executed action."
        found += self._differ.finding("disagreeing propensity", "propensity", problem)
        return found + self._barred.finding("ineligible action", "action", "the executed action was not eligible.")


def _items(column: Any) -> tuple[Codes, Codes, Any]:
    """Return the lengths (n,) of lists, −1 where missing, the row of each item, and the items: numbers as an array."""
    pa = arrow()
    lengths = compute().list_value_length(column).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.intp)
    items = column.flatten()
    owners = np.repeat(np.arange(len(lengths)), np.maximum(lengths, 0))
    return lengths, owners, numbers(items) if pa.types.is_floating(items.type) else items
