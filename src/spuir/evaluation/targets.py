"""Policies to evaluate: bandits, saved models, tables and rules, each with probabilities for logged rows."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from spuir.bandit import Bandit, load
from spuir.base.records import Codes, Floats, Mask
from spuir.errors import InputError, ParameterError, UnknownNameError, did_you_mean, quoted
from spuir.evaluation.evaluation_report import ALWAYS
from spuir.evaluation.logged_rows import EvaluationLog, LoggedRows
from spuir.logs import Log
from spuir.logs.action_columns import columns_to_read, offered_features
from spuir.policies import Policy, list_policies

LOGGED, UNIFORM = "logged", "uniform"
TOLERANCE = 1e-6
"""Probabilities of an evaluated policy may miss a sum of one by this much."""

SCORED_ROWS = 8192
"""Rows that a bandit scores at a time: its tables of this length stay in the cache and in memory that is used again."""


class TargetView(NamedTuple):
    """A policy on n rows: π of the executed action and v̂ under the policy, both (n,), and the probabilities of all.

    ``expected`` v̂ is None where there is no reward model.
    ``probabilities`` is (n, M), or (M,) where all rows have the same. With ``places`` (k,), ``target`` is (k,) and has
    these rows only, and π is 0 in all others.
    """

    target: Floats
    expected: Floats | None
    probabilities: Floats
    places: Codes | None = None


class Target(ABC):
    """A policy to evaluate, by name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def prepare(self, log: EvaluationLog) -> list[str]:
        """Take the labels of the log, which are complete now; return what the user should know."""
        self.log = log
        return []

    @abstractmethod
    def probabilities(self, rows: LoggedRows) -> Floats:
        """Return the probability of every action (n, M), in the order of the log's labels."""

    def view(self, rows: LoggedRows, predicted: Floats | None) -> TargetView:
        """Return what estimators need, given predicted rewards (n, M) or None."""
        chances = self.probabilities(rows)
        expected = None if predicted is None else np.einsum("ij,ij->i", chances, predicted)
        return TargetView(rows.executed(chances), expected, chances)


class LoggedTarget(Target):
    """The policy that wrote the log; its value is the mean reward, and it has no probabilities."""

    def probabilities(self, rows: LoggedRows) -> Floats:
        """Raise: a log says what was done, not what could have been."""
        raise NotImplementedError


class UniformTarget(Target):
    """Every eligible action with the same probability; without eligibility, every action that was ever logged."""

    def prepare(self, log: EvaluationLog) -> list[str]:
        """Take the actions that were logged."""
        super().prepare(log)
        self._shares = np.isin(np.arange(len(log.actions)), list(log.logged)) / len(log.logged)
        return []

    def probabilities(self, rows: LoggedRows) -> Floats:
        """Return 1/m for each of the m eligible actions."""
        if rows.eligible is None:
            return np.tile(self._shares, (len(rows), 1))
        return rows.eligible / rows.eligible.sum(axis=1, keepdims=True)

    def view(self, rows: LoggedRows, predicted: Floats | None) -> TargetView:
        """Return what estimators need, without sums over equal numbers where every action is eligible."""
        if rows.eligible is not None:
            return super().view(rows, predicted)
        expected = None if predicted is None else predicted @ self._shares
        return TargetView(np.full(len(rows), 1 / len(self.log.logged)), expected, self._shares)


class FixedTarget(Target):
    """Always the same action, wherever it is eligible; elsewhere the other eligible ones evenly."""

    def __init__(self, name: str, label: Hashable) -> None:
        super().__init__(name)
        self.label = label

    def prepare(self, log: EvaluationLog) -> list[str]:
        """Find the action among the labels of the log."""
        super().prepare(log)
        code = log.code(self.label)
        if code is None:
            names = sorted(str(name) for name in log.actions)
            rule = "no action of the log has that label"
            raise UnknownNameError(self.name, repr(self.label), rule, did_you_mean(self.label, names, "actions"))
        self.code = code
        return []

    def probabilities(self, rows: LoggedRows) -> Floats:
        """Return 1 for the action."""
        chances = np.zeros((len(rows), len(self.log.actions)))
        chances[:, self.code] = 1.0
        return chances if rows.eligible is None else _or_others(chances, rows.eligible)

    def view(self, rows: LoggedRows, predicted: Floats | None) -> TargetView:
        """Return what estimators need, without a table of zeros where the action is always eligible."""
        if rows.eligible is not None:
            return super().view(rows, predicted)
        places = np.flatnonzero(rows.actions == self.code)
        expected = None if predicted is None else np.ascontiguousarray(predicted[:, self.code])
        return TargetView(np.ones(len(places)), expected, np.eye(len(self.log.actions))[self.code], places)


class LabelledTarget(Target):
    """A policy with labels of its own, whose columns are put into the order of the log's labels."""

    @abstractmethod
    def own_labels(self) -> Sequence[Hashable]:
        """Return the labels in the order of the policy's own columns."""

    def prepare(self, log: EvaluationLog) -> list[str]:
        """Match labels. Labels of the policy that no row of the log has were never logged, which support will show."""
        super().prepare(log)
        own = list(self.own_labels())
        self._columns = np.array([-1 if (code := log.code(label)) is None else code for label in own], np.intp)
        logged = [log.actions[code] for code in sorted(log.logged)]
        missing = [log.actions[code] for code in sorted(log.logged - set(self._columns.tolist()))]
        if len(missing) == len(logged):
            rule = f"the log has {quoted(logged)}, and none of them is the same"
            raise InputError(f"actions of {self.name}", quoted(own), rule, "evaluate on a log of the same actions")
        return [f"{self.name} does not know {quoted(missing)} of the log, and never chooses it."] if missing else []

    def ordered(self, own: Floats) -> Floats:
        """Return the policy's columns (n, m) in the order of the log's labels (n, M)."""
        if np.array_equal(self._columns, np.arange(len(self.log.actions))):
            return own
        known = self._columns >= 0
        for at in np.flatnonzero(~known & own.any(axis=0)).tolist():
            rule, remedy = f"the log has {quoted(self.log.actions)}", "name all labels in actions=[…]"
            raise UnknownNameError(self.name, f"a probability for {self.own_labels()[at]!r}", rule, remedy)
        chances = np.zeros((len(own), len(self.log.actions)))
        chances[:, self._columns[known]] = own[:, known]
        return chances

    def own_mask(self, rows: LoggedRows) -> Mask | None:
        """Return the eligible actions in the order of the policy's own columns (n, m)."""
        return None if rows.eligible is None else np.ascontiguousarray(rows.eligible[:, self._columns])


class BanditTarget(LabelledTarget):
    """A bandit, with the probabilities that it would decide by in its present state."""

    def __init__(self, name: str, bandit: Bandit) -> None:
        super().__init__(name)
        self.bandit = bandit

    def own_labels(self) -> Sequence[Hashable]:
        """Return the bandit's labels."""
        return self.bandit.actions_.tolist()

    def columns(self, log_columns: Sequence[str]) -> list[str]:
        """Return which context columns of a log the bandit reads."""
        encoder = self.bandit.encoder
        if encoder is not None:
            named: Sequence[str] = encoder.columns
        else:
            try:
                named = [str(name) for name in self.bandit.feature_names_in_]
            except AttributeError:
                return list(log_columns)
        missing = next((name for name in named if name not in log_columns), None)
        if missing is not None:
            rule = f"{self.name} was trained on it"
            remedy = "rename the column of the log (--rename), or evaluate on a log with the columns of the training"
            raise InputError("log", f"no column {missing!r}", rule, remedy)
        return list(named)

    def feature_columns(self, log: Log) -> list[str]:
        """Return the columns of a log with the features of actions at each decision, which the bandit reads."""
        return columns_to_read(self.bandit._model.varying, log, self.name)

    def probabilities(self, rows: LoggedRows) -> Floats:
        """Return what ``predict_proba`` says, action by action of the log."""
        table, mask, found = self.table(rows), self.own_mask(rows), list[Floats]()
        if self.bandit._model.varying:
            return self.ordered(self.bandit.predict_proba(table, action_features=self._offered(rows)))
        if mask is not None and self.bandit.policy_.takes_features:
            mask = sparse.csr_matrix(mask)  # so that a row costs only its eligible actions
        for start in range(0, len(rows), SCORED_ROWS):
            some = slice(start, start + SCORED_ROWS)
            contexts = table[some] if isinstance(table, np.ndarray) else table.slice(start, SCORED_ROWS)
            found.append(self.bandit.predict_proba(contexts, None if mask is None else mask[some]))
        return self.ordered(np.concatenate(found))

    def _offered(self, rows: LoggedRows) -> dict[str, Any]:
        """Return a long table of the features of the eligible actions that the bandit knows."""
        own = self.own_labels()
        table = offered_features(rows.offered, self.bandit._model.varying, self.log.mask_labels)
        places = np.full(len(self.log.actions) + 1, -1)
        places[self._columns] = np.arange(len(own))
        places[-1] = -1  # of a label that the log does not have
        at = places[self.log.codes_of(table["action"])]
        found = {name: column[at >= 0] for name, column in table.items() if name != "action"}
        return found | {"action": [own[one] for one in at[at >= 0]]}

    def table(self, rows: LoggedRows) -> Any:
        """Return the contexts of rows as the bandit takes them."""
        if self.bandit.encoder is not None:
            return rows.table
        table = rows.table.select(self.columns(rows.table.schema.names))
        if hasattr(self.bandit, "feature_names_in_"):
            return table
        return np.column_stack([one.to_numpy(zero_copy_only=False) for one in table.columns])


class TableTarget(LabelledTarget):
    """A table of probabilities, one row per row of the log: (n, M), obp's (n, M, 1), or a DataFrame by label."""

    def __init__(self, name: str, table: Any, actions: Sequence[Hashable] | None) -> None:
        super().__init__(name)
        frame = hasattr(table, "columns") and hasattr(table, "to_numpy")
        self._labels = [str(one) if not isinstance(one, int) else one for one in table.columns] if frame else actions
        try:
            values = np.asarray(table.to_numpy() if frame else table, dtype=np.float64)
        except (TypeError, ValueError):
            remedy = "give one probability per row and action, or a function of the contexts that returns labels"
            raise InputError(name, "a table with other values", "a table has numbers", remedy) from None
        values = values[:, :, 0] if values.ndim == 3 and values.shape[2] == 1 else values
        if values.ndim != 2:
            rule = "probabilities are (rows, actions), or (rows, actions, 1) as in obp"
            raise InputError(name, f"shape {values.shape}", rule, "pass one row per row of the log")
        self._values = values

    def own_labels(self) -> Sequence[Hashable]:
        """Return the labels of the columns: given, or those of the log in order."""
        if self._labels is not None:
            return self._labels
        known, width = self.log.actions, self._values.shape[1]
        numbered = all(isinstance(label, int) and 0 <= label < width for label in known)
        labels: list[Any] = list(range(width)) if numbered else sorted(known, key=str)
        return labels

    def prepare(self, log: EvaluationLog) -> list[str]:
        """Check the table against the labels."""
        self.log = log
        labels = self.own_labels()
        if len(labels) != self._values.shape[1]:
            rule = f"the actions are {quoted(list(labels))}"
            raise InputError(self.name, f"{self._values.shape[1]} columns", rule, "give one column per action")
        return super().prepare(log)

    def probabilities(self, rows: LoggedRows) -> Floats:
        """Return the table's rows for these rows of the log."""
        if int(rows.numbers[-1]) >= len(self._values):
            rule = "it has one row for each row of the log"
            raise InputError(self.name, f"{len(self._values):,} rows", rule, "pass the probabilities of the whole log")
        return self.at(rows.numbers, rows)

    def at(self, places: Any, rows: LoggedRows) -> Floats:
        """Return some rows of the table, which belong to these rows of the log; only eligible actions may have any."""
        own = self._values[places]
        check_chances(self.name, own, rows.numbers)
        chances = self.ordered(own)
        if rows.eligible is not None and (barred := (chances > TOLERANCE) & ~rows.eligible).any():
            at, code = np.argwhere(barred)[0].tolist()
            got = f"a probability for {self.log.actions[code]!r} at row {rows.numbers[at]}"
            raise InputError(self.name, got, "it was not eligible there", "give its probability to eligible actions")
        return chances


class RuleTarget(LabelledTarget):
    """A function of the contexts (a DataFrame) that returns labels (n,) or probabilities (n, M)."""

    def __init__(self, name: str, rule: Callable[[Any], Any], actions: Sequence[Hashable] | None) -> None:
        super().__init__(name)
        self._rule, self._labels = rule, actions

    def own_labels(self) -> Sequence[Hashable]:
        """Return the labels of its columns: given, or those of the log, sorted as for tables."""
        return sorted(self.log.actions, key=str) if self._labels is None else self._labels

    def probabilities(self, rows: LoggedRows) -> Floats:
        """Call the function."""
        frame = rows.table.to_pandas()
        try:
            answer = self._rule(frame)
        except Exception as error:
            got = f"{type(error).__name__} ({error}) at rows {rows.numbers[0]} to {rows.numbers[-1]}"
            rule = f"it is called with a DataFrame of the columns {quoted(rows.table.schema.names)}"
            raise InputError(self.name, got, rule, "correct the function") from error
        values = answer.to_numpy() if hasattr(answer, "to_numpy") else np.asarray(answer)
        if len(values) != len(rows):
            got = f"{len(values)} answers for {len(rows)} rows"
            raise InputError(self.name, got, "a rule answers for every row", "return one label or row of them")
        if values.ndim == 2:
            given = TableTarget(self.name, answer, self.own_labels())
            given.prepare(self.log)
            return given.at(slice(None), rows)
        codes = self._codes(values.tolist(), rows.numbers)
        chances = np.zeros((len(rows), len(self.log.actions)))
        chances[np.arange(len(rows)), codes] = 1.0
        return chances if rows.eligible is None else _or_others(chances, rows.eligible)

    def _codes(self, labels: list[Any], numbers: Codes) -> Codes:
        """Return the labels of rows with these numbers as codes of the log."""
        known = {label: code for code, label in enumerate(self.log.actions)}
        for row, label in zip(numbers.tolist(), labels, strict=True):
            if label not in known:
                rule = f"the log has {quoted(self.log.actions)}"
                remedy = "name all labels in actions=[…] if the log need not have them all"
                raise UnknownNameError(self.name, f"{label!r} at row {row}", rule, remedy)
        return np.array([known[label] for label in labels], np.intp)


def _or_others(chances: Floats, eligible: Mask) -> Floats:
    """Return the choice of one action per row (n, M); where it is not eligible, the eligible ones evenly."""
    barred = ~(eligible & (chances > 0)).any(axis=1)
    others = eligible[barred]
    chances[barred] = others / others.sum(axis=1, keepdims=True)
    return chances


def check_chances(name: str, values: Floats, numbers: Codes) -> None:
    """Refuse rows (n, M), with these numbers in the log, that are not a distribution."""
    bad = ~((np.abs(values.sum(axis=1) - 1) <= TOLERANCE) & (values.min(axis=1) >= -TOLERANCE))  # NaN is bad too
    if bad.any():
        row = int(np.argmax(bad))
        got = f"a sum of {values[row].sum():.6g} at row {numbers[row]}"
        raise InputError(name, got, "the probabilities of a row are at least 0 and sum to one", "correct that row")


def named_policies(given: Any) -> dict[str, Any]:
    """Return what a user passes as policies by name: one, a list, or a dict."""
    if isinstance(given, Mapping):
        return {str(name): one for name, one in given.items()}
    several = given if isinstance(given, (list, tuple)) else [given]
    names = [_name(one, at) for at, one in enumerate(several)]
    if len(set(names)) < len(names):
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise ParameterError("policies", f"{twice!r} twice", "each has its own name", "pass a dict by name")
    return dict(zip(names, several, strict=True))


def _name(one: Any, at: int) -> str:
    if isinstance(one, (str, PathLike)):
        return fspath(one)
    if isinstance(one, (Bandit, Policy)):
        return (one if isinstance(one, Policy) else one.policy_).name or "bandit"
    return getattr(one, "__name__", f"policy {at + 1}")


def make_target(name: str, one: Any, actions: Sequence[Hashable] | None) -> Target:
    """Return one policy to evaluate."""
    if isinstance(one, str) and one in (LOGGED, UNIFORM):
        return LoggedTarget(name) if one == LOGGED else UniformTarget(name)
    if isinstance(one, str) and one.startswith(ALWAYS):
        return FixedTarget(name, one.removeprefix(ALWAYS))
    if isinstance(one, (str, PathLike, Bandit)):
        return BanditTarget(name, one if isinstance(one, Bandit) else _load(one))
    if isinstance(one, Target):
        return one
    if callable(one):
        return RuleTarget(name, one, actions)
    if np.ndim(one) == 0:
        rule = "a policy is a bandit, a saved model, a name, a function of contexts or a table of probabilities"
        raise ParameterError("policies", f"{one!r} for {name}", rule, "pass one of these")
    return TableTarget(name, one, actions)


def _load(path: str | PathLike[str]) -> Bandit:
    """Return a saved model; a word that names neither a file nor a policy is refused."""
    if isinstance(path, str) and path.isidentifier() and not Path(path).exists():
        rule = "no saved model and no policy has that name"
        raise UnknownNameError("policies", repr(path), rule, did_you_mean(path, list_policies(), "policies"))
    return load(path)
