"""The result of an evaluation: values, differences and support as tables, sentences, figures and one HTML page."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spuir.base.counting import counted
from spuir.base.data_frame import data_frame
from spuir.errors import UnknownNameError, did_you_mean
from spuir.evaluation.block_sums import Estimate
from spuir.evaluation.intervals import BETTER, OPEN, REFUSED, ValueInterval, interval, verdict
from spuir.evaluation.support import LEAST_PIECES, NONE, WEAK, Support

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALWAYS = "always:"
"""Begins the name of a policy that has only one action."""


@dataclass(frozen=True, kw_only=True)
class PolicyValue:
    """One policy's value by one estimator, per decision; None where the log does not support the policy."""

    policy: str
    estimator: str
    setting: float | None
    value: float | None
    low: float | None
    high: float | None
    standard_error: float | None


@dataclass(frozen=True, kw_only=True)
class PolicyDifference:
    """The paired difference of two policies' values on the same rows.

    ``low`` and ``high`` are at the level of the report. ``verdict`` is corrected for the number of candidates: better,
    worse, not distinguishable, or refused where one of the two has no support.
    """

    policy: str
    against: str
    difference: float | None
    low: float | None
    high: float | None
    relative: float | None
    verdict: str


@dataclass(frozen=True, kw_only=True, eq=False)
class EvaluationReport:
    """What :func:`spuir.evaluate` found.

    Parameters
    ----------
    evaluated, baselines
        Names of the policies in question, and of those they are compared with.
    estimator, interval, level, seed
        What the values, their intervals and the verdicts come from, and the seed of the bootstrap.
    candidates
        For how many candidates verdicts and the winner's interval are corrected.
    sums, settings
        Estimates by policy and estimator, from which values, differences and all intervals follow, and the setting of
        each estimator; None where it has none.
    supports, help_wanted
        The support of each policy, and which data would help where it is missing.
    facts
        The log: rows, actions, propensities and more.
    notices
        What the reader should know, in sentences.
    pictures
        Data of the figures.
    """

    evaluated: tuple[str, ...]
    baselines: tuple[str, ...]
    estimator: str
    interval: str
    level: float
    seed: int
    candidates: int
    sums: dict[tuple[str, str], Estimate] = field(repr=False)
    settings: dict[tuple[str, str], float | None]
    supports: dict[str, Support]
    help_wanted: str
    facts: dict[str, Any]
    notices: tuple[str, ...]
    pictures: dict[str, Any] = field(repr=False)

    # ---- records --------------------------------------------------------------------------------------------

    def __post_init__(self) -> None:
        # Bootstrap intervals take a moment, which is part of the evaluation.
        _ = self.values, self.differences_found, self.winner

    @cached_property
    def values(self) -> tuple[PolicyValue, ...]:
        """The value of every policy by every estimator."""
        return tuple(self._value(*key, self.level) for key in self.sums)

    def _value(self, policy: str, estimator: str, level: float) -> PolicyValue:
        key, found = (policy, estimator), dict.fromkeys(("value", "low", "high", "standard_error"))
        if policy not in self.refused:
            estimate = self.sums[key]
            low, high = interval(estimate, level, self.interval, self.seed)
            found = {"value": estimate.value, "low": low, "high": high, "standard_error": estimate.standard_error}
        return PolicyValue(policy=policy, estimator=estimator, setting=self.settings[key], **found)

    @cached_property
    def differences_found(self) -> tuple[PolicyDifference, ...]:
        """The difference of every evaluated policy to every other one."""
        every = (*self.evaluated, *self.baselines)
        return tuple(self._difference(one, two) for one in self.evaluated for two in every if one != two)

    def _difference(self, policy: str, against: str) -> PolicyDifference:
        if policy in self.refused or against in self.refused:
            blank = dict.fromkeys(("difference", "low", "high", "relative"))
            return PolicyDifference(policy=policy, against=against, **blank, verdict=REFUSED)
        supports = [self.supports.get(policy), self.supports.get(against)]
        other = self.sums[against, self.estimator]
        paired = self.sums[policy, self.estimator].minus(other)
        low, high = interval(paired, self.level, self.interval, self.seed)
        return PolicyDifference(
            policy=policy,
            against=against,
            difference=paired.value,
            low=low,
            high=high,
            relative=paired.value / other.value if other.value > 0 else None,
            verdict=verdict(paired, supports, self._corrected, self.interval, self.seed),
        )

    @cached_property
    def winner(self) -> PolicyValue | None:
        """The best policy with good support, or else weak support; its interval is corrected for the candidates.

        None if there is nothing to compare: only one action, or no other policy that the log supports.
        """
        names = [name for name in (*self.evaluated, *self.baselines) if name not in self.refused]
        if self._one_action or len(names) < min(2, len(self)):
            return None
        able = [name for name in names if name not in self._weak] or names
        best = max(able, key=lambda name: self.sums[name, self.estimator].value, default=None)
        return None if best is None else self._value(best, self.estimator, self._corrected)

    @property
    def _one_action(self) -> bool:
        return len(self.facts["actions"]) == 1

    @property
    def verdict_rule(self) -> str:
        """What the verdicts on differences take into account besides their intervals."""
        weak = ", and need a wider interval where support is weak" if self._weak else ""
        return f"verdicts are corrected for {counted(self.candidates, 'candidate')}{weak}"

    @property
    def _corrected(self) -> float:
        """The level of one interval at which the intervals of all candidates hold together."""
        return 1 - (1 - self.level) / self.candidates

    @property
    def _weak(self) -> set[str]:
        """Names of the policies with weak support."""
        return {name for name, one in self.supports.items() if one.verdict == WEAK}

    @property
    def refused(self) -> list[str]:
        """Names of the policies that the log does not support."""
        return [name for name, one in self.supports.items() if one.verdict == NONE]

    # ---- tables ---------------------------------------------------------------------------------------------

    @property
    def table(self) -> Any:
        """A DataFrame with a row per policy: value, interval and support."""
        return data_frame(self.lines(), "table")

    def lines(self) -> list[dict[str, Any]]:
        """Return the rows of :attr:`table` as records."""
        return [self._line(name) for name in (*self.evaluated, *self.baselines)]

    def _line(self, name: str) -> dict[str, Any]:
        one, support = self.value_of(name), self.supports.get(name)
        return {
            "policy": name,
            "value": one.value,
            "low": one.low,
            "high": one.high,
            "support": "observed" if support is None else support.verdict,
            "effective_rows": None if support is None else support.effective_rows,
        }

    @property
    def digits(self) -> int:
        """How many decimals of a value are worth printing: two digits of the smallest standard error."""
        errors = [one.standard_error for one in self.values if one.estimator == self.estimator and one.standard_error]
        least = min((error for error in errors if np.isfinite(error)), default=1e-4)
        return min(max(0, 1 - int(np.floor(np.log10(least)))), 12)

    @property
    def estimates(self) -> Any:
        """A DataFrame with a row per policy and estimator."""
        return data_frame([asdict(one) for one in self.values], "estimates")

    @property
    def differences(self) -> Any:
        """A DataFrame with a row per pair of policies."""
        return data_frame([asdict(one) for one in self.differences_found], "differences")

    @property
    def support(self) -> Any:
        """A DataFrame with the support of each policy."""
        hidden = ("histogram", "same_policy")
        lines = [{"policy": name} | one.to_dict() for name, one in self.supports.items()]
        return data_frame(
            [{key: value for key, value in line.items() if key not in hidden} for line in lines], "support"
        )

    def value_of(self, policy: str, estimator: str | None = None) -> PolicyValue:
        """Return one value; ``estimator`` None is the report's own."""
        wanted = self.estimator if estimator is None else estimator
        found = next((one for one in self.values if (one.policy, one.estimator) == (policy, wanted)), None)
        if found is None:
            names = list(dict.fromkeys(one.policy for one in self.values))
            raise UnknownNameError("policy", repr(policy), f"the report has {', '.join(names)}", "name one of these")
        return found

    def interval_of(
        self, policy: str, against: str | None = None, *, estimator: str | None = None, kind: str, level: float = 0.95
    ) -> ValueInterval | None:
        """Return another interval of a value, or of the difference to ``against``, without reading the log again.

        ``kind`` is as ``interval`` in :func:`spuir.evaluate`, with the same seed; None where the value is refused.
        """
        pair = [policy] if against is None else [policy, against]
        if any(self.value_of(name, estimator).value is None for name in pair):
            return None
        one, *other = (self.sums[name, estimator or self.estimator] for name in pair)
        return interval(one.minus(other[0]) if other else one, level, kind, self.seed)

    def is_better(self, policy: str, than: str) -> bool:
        """Return whether a policy is better than another, corrected for the candidates; ``always:*`` is all of them."""
        pairs = [one for one in self.differences_found if one.policy == policy and _names(than, one.against)]
        if not pairs:
            known = [*self.baselines, *self.evaluated]
            rule = f"the report does not compare {policy} with it"
            raise UnknownNameError("policy", repr(than), rule, did_you_mean(than, known, "policies"))
        return all(one.verdict == BETTER for one in pairs)

    def __len__(self) -> int:
        """Return the number of policies."""
        return len(self.evaluated) + len(self.baselines)

    # ---- sentences ------------------------------------------------------------------------------------------

    @property
    def sentences(self) -> list[str]:
        """What the report says, policy by policy, then who wins."""
        sentences = [self._sentence(name) for name in self.evaluated]
        if self.winner is None:
            sentences.append(self._nothing_to_compare())
        elif self.winner.value is not None and len(self) > 1:
            sentences.append(self._best(self.winner))
        return sentences

    def _best(self, winner: PolicyValue) -> str:
        low, value, high = (number(one, self.digits) for one in (winner.low, winner.value, winner.high))
        beside = self._weak and winner.policy not in self._weak
        best = "Best of those with good support" if beside else "Best of all"
        corrected = f"{self.level:.0%} corrected for {counted(self.candidates, 'candidate')}"
        return f"{best}: {winner.policy} with {value} ({low} to {high}, {corrected})."

    def _nothing_to_compare(self) -> str:
        rows = counted(self.facts["rows"], "decision")
        if self._one_action:
            return f"There is nothing to compare: {self.facts['actions'][0]!r} is the only action of {rows}."
        lead = "Too little data" if self.facts["rows"] < LEAST_PIECES else "There is nothing to compare"
        return f"{lead}: {rows} cannot tell what other policies earn. What would help: {self.help_wanted}."

    def _sentence(self, name: str) -> str:
        one, support = self.value_of(name), self.supports.get(name)
        if one.value is None or one.low is None or one.high is None:
            reasons = "; ".join(support.reasons) if support is not None else ""
            return f"{name}: the log cannot tell what it earns: {reasons}. What would help: {self.help_wanted}."
        parts = self._compared(self._shown(name))
        doubts = support.reasons if support is not None and support.verdict == WEAK else ()
        weak = f" The support is weak, and verdicts need a wider interval: {'; '.join(doubts)}." if doubts else ""
        compared = f": {', '.join(parts)}" if parts else ""
        return f"{name} earns {self._with_interval(one.value, one.low, one.high)} per decision{compared}.{weak}"

    def _with_interval(self, value: float, low: float, high: float) -> str:
        """Return "value ± half", or both ends where the interval is lopsided."""
        sides = sorted((value - low, high - value))
        if sides[1] > 1.3 * sides[0]:
            return f"{number(value, self.digits)} ({number(low, self.digits)} to {number(high, self.digits)})"
        return f"{number(value, self.digits)} ± {number((high - low) / 2, self.digits)}"

    def _shown(self, name: str) -> list[PolicyDifference]:
        """Return the differences worth a sentence: with the log, uniform, the best single action, other models."""
        pairs = [one for one in self.differences_found if one.policy == name and one.verdict != REFUSED]
        fixed = [one for one in pairs if one.against.startswith(ALWAYS)]
        best = min(fixed, key=lambda one: one.difference or 0.0, default=None)
        return [one for one in pairs if not one.against.startswith(ALWAYS) or one is best]

    def _compared(self, pairs: Sequence[PolicyDifference]) -> list[str]:
        """Return a phrase for each baseline that earns more or less, then one for all that cannot be distinguished."""
        phrases: list[str] = []
        alike: list[str] = []
        for pair in pairs:
            if pair.verdict == OPEN or pair.difference is None:
                alike.append(_in_words(pair.against))
                continue
            size = number(abs(pair.difference), self.digits) if pair.relative is None else f"{abs(pair.relative):.1%}"
            phrases.append(f"{size} {'more' if pair.difference > 0 else 'less'} than {_in_words(pair.against)}")
        if alike:
            some = [", ".join(alike[:-1]), alike[-1]] if len(alike) > 1 else alike
            phrases.append(f"not distinguishable from {' or '.join(some)}")
        return phrases

    # ---- figures and pages ----------------------------------------------------------------------------------

    def plot(self, path: str | PathLike[str] | None = None) -> "Figure":
        """Draw the values with their intervals; save the figure as PNG and SVG beside ``path`` if one is given."""
        from spuir.evaluation.evaluation_page import values_figure
        from spuir.results import figures

        figure = values_figure(self)
        if path is not None:
            figures.save(figure, str(path))
        return figure

    def to_html(self, path: str | PathLike[str]) -> None:
        """Write the report as one HTML page with figures, which needs no other file."""
        from spuir.evaluation.evaluation_page import html_report
        from spuir.storage.atomic import write_text

        write_text(Path(path), html_report(self))

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready data."""
        return {
            "facts": self.facts,
            "estimator": self.estimator,
            "interval": self.interval,
            "level": self.level,
            "candidates": self.candidates,
            "evaluated": list(self.evaluated),
            "baselines": list(self.baselines),
            "values": [asdict(one) for one in self.values],
            "differences": [asdict(one) for one in self.differences_found],
            "support": {name: one.to_dict() for name, one in self.supports.items()},
            "winner": None if self.winner is None else asdict(self.winner),
            "sentences": self.sentences,
            "notices": list(self.notices),
        }

    def __repr__(self) -> str:
        """Show the sentences."""
        return "\n".join(self.sentences)


def _in_words(policy: str) -> str:
    """Return what sentences call a baseline."""
    if policy.startswith(ALWAYS):
        return f"always choosing {policy.removeprefix(ALWAYS)!r}"
    return {"logged": "today's decisions", "uniform": "choosing at random"}.get(policy, policy)


def _names(than: str, against: str) -> bool:
    return against.startswith(ALWAYS) if than == ALWAYS + "*" else against == than


def number(value: float | None, digits: int | None = None) -> str:
    """Return a number with so many decimals; None for about four significant digits."""
    if value is None:
        return "–"
    if digits is not None:
        return f"{value:,.{digits}f}"
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
