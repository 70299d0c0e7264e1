"""From rewards that arrive when they like to one reward for each decision: one piece for episodes and for tables.

Pure functions on arrays. Rewards name their decision by its position; what has no decision is an orphan, what comes
after the window is late, and a decision that hears nothing is silent.
"""

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spuir.base.parameters import NUMBER, check, one_of, optional, parameter
from spuir.base.records import Codes, Floats, Mask
from spuir.errors import InputError
from spuir.logs.times import UNKNOWN, Instants, microseconds

AGGREGATIONS = ("earliest", "sum", "average", "median", "min", "max")
LATE = ("drop", "accept", "refuse")


@dataclass(frozen=True, kw_only=True)
class RewardRules:
    """How the rewards of one decision become one.

    Parameters
    ----------
    default
        The reward of a decision that hears nothing; None = its reward is not known.
    aggregation
        What several rewards of one decision give: "earliest" by time (by arrival where times are equal or unknown),
        "sum", "average", "median", "min" or "max".
    window
        How long after its decision a reward is in time: a number of seconds, or a text like "15m", "6h", "1d"; the
        end belongs to it. None = always.
    late
        What a reward after the window is: "drop" leaves it out, "accept" takes it, "refuse" raises. All are counted.
    """

    default: float | None = parameter(0.0, "reward of a decision that hears nothing", optional(NUMBER))
    aggregation: str = parameter("earliest", "what several rewards of one decision give", one_of(*AGGREGATIONS))
    window: Any = None
    late: str = parameter("drop", "what happens to a reward after the window", one_of(*LATE))

    def __post_init__(self) -> None:
        check(self, "reward rules")
        if self.window is not None:
            microseconds(self.window, "window")

    @property
    def reach(self) -> int | None:
        """The window in microseconds."""
        return None if self.window is None else microseconds(self.window, "window")


@dataclass(frozen=True)
class Report:
    """What was counted when rewards met their decisions.

    Parameters
    ----------
    decisions
        Decisions that count, each id once.
    duplicates
        Decisions whose id had been there before; the first one stays.
    rewards
        Rewards that came.
    repeated
        Rewards of a decision beyond its first, which were aggregated.
    orphans
        Rewards without a decision.
    late
        Rewards after the window.
    early
        Rewards from before their decision, as clocks that differ give; they were used.
    missing
        Rewards without a value, left out.
    silent
        Decisions that no reward was used for; they have the default, or none.
    """

    decisions: int = 0
    duplicates: int = 0
    rewards: int = 0
    repeated: int = 0
    orphans: int = 0
    late: int = 0
    early: int = 0
    missing: int = 0
    silent: int = 0

    def __add__(self, other: "Report") -> "Report":
        """Return the counts of both."""
        return Report(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))

    def __str__(self) -> str:
        """Say it in a sentence, without what did not happen."""
        extras = [
            (self.repeated, "repeated"),
            (self.orphans, "without a decision"),
            (self.late, "late"),
            (self.early, "before their decision"),
            (self.missing, "without a value"),
        ]
        told = ", ".join(f"{count:,} {word}" for count, word in extras if count)
        twice = f" ({self.duplicates:,} duplicates left out)" if self.duplicates else ""
        rewards = f"{self.rewards:,} rewards" + (f" ({told})" if told else "")
        return f"{self.decisions:,} decisions{twice}, {rewards}; {self.silent:,} decisions silent."


class Settled(NamedTuple):
    """One reward for each decision: rewards (n,), NaN where unknown; when (n,), UNKNOWN where there is none."""

    rewards: Floats
    times: Instants
    report: Report


def settle(
    rules: RewardRules, decided: Instants, owners: Codes, rewards: Floats, times: Instants, ids: Any = None
) -> Settled:
    """Return the reward of each of n decisions, from m rewards in the order of their arrival.

    Parameters
    ----------
    rules
        Default, aggregation, window and what happens to late rewards.
    decided
        (n,) when each decision was taken.
    owners
        (m,) the position of each reward's decision, −1 for an orphan.
    rewards
        (m,) values, NaN = missing.
    times
        (m,) when each reward came.
    ids
        (m,) ids of the rewards, for refusals.
    """
    n = len(decided)
    check_finite(rewards, ids)
    missing = np.isnan(rewards)
    orphans = owners < 0
    late, early = _timing(rules, decided, owners, times, ids)
    used = ~orphans & ~missing
    if rules.late == "drop":
        used &= ~late
    rows = np.flatnonzero(used)
    order = rows[_order(rules.aggregation, owners[rows], rewards[rows], times[rows])]
    groups, starts, counts = np.unique(owners[order], return_index=True, return_counts=True)
    values, instants = np.full(n, np.nan), np.full(n, UNKNOWN, np.int64)
    if len(order):
        values[groups] = _aggregate(rules.aggregation, rewards[order], starts, counts)
        instants[groups] = _known(rules.aggregation, times[order], starts)
    silent = np.ones(n, np.bool_)
    silent[groups] = False
    if rules.default is not None:
        values[silent] = rules.default
    report = Report(
        decisions=n,
        rewards=len(rewards),
        repeated=int(counts.sum() - len(groups)),
        orphans=int(orphans.sum()),
        late=int(late.sum()),
        early=int(early.sum()),
        missing=int((missing & ~orphans).sum()),
        silent=int(silent.sum()),
    )
    return Settled(values, instants, report)


def check_finite(rewards: Floats, ids: Any) -> None:
    """Refuse an infinite reward, and name its decision."""
    endless = np.isinf(rewards)
    if endless.any():
        row = int(np.argmax(endless))
        got = f"{rewards[row]}{_called(ids, row)}"
        raise InputError("rewards", got, "every reward must be finite", "correct or drop it")


def _timing(rules: RewardRules, decided: Instants, owners: Codes, times: Instants, ids: Any) -> tuple[Mask, Mask]:
    """Return which rewards (m,) come after the window, and which before their decision."""
    owned = owners >= 0
    taken = np.full(len(owners), UNKNOWN, np.int64)
    taken[owned] = decided[owners[owned]]
    timed = owned & (taken != UNKNOWN) & (times != UNKNOWN)
    if rules.reach is not None and (owned & ~timed).any():
        row = int(np.argmax(owned & ~timed))
        whose = "its decision" if times[row] != UNKNOWN else "the reward"
        rule = "a window needs the times of decisions and rewards"
        got = f"no time of {whose}{_called(ids, row)}"
        raise InputError("time", got, rule, "give every row its time, or leave the window out")
    elapsed = np.where(timed, times - taken, 0)
    late = timed & (elapsed > rules.reach) if rules.reach is not None else np.zeros(len(owners), np.bool_)
    if rules.late == "refuse" and late.any():
        row = int(np.argmax(late))
        got = f"a reward {elapsed[row] / 1e6:g} s after its decision{_called(ids, row)}"
        raise InputError("reward", got, f"the window is {rules.window!r}", 'drop it, or say late="drop" or "accept"')
    return late, timed & (elapsed < 0)


def _called(ids: Any, row: int) -> str:
    return "" if ids is None else f" {ids[row]!r}"


def _order(aggregation: str, owners: Codes, rewards: Floats, times: Instants) -> NDArray[np.intp]:
    """Return the rewards (k,) grouped by decision; within one by arrival, by time or by value, as the rule needs."""
    if aggregation == "earliest":
        return np.lexsort((np.where(times == UNKNOWN, np.iinfo(np.int64).max, times), owners))
    return np.lexsort((rewards, owners)) if aggregation == "median" else np.argsort(owners, kind="stable")


def _aggregate(aggregation: str, rewards: Floats, starts: NDArray[np.intp], counts: NDArray[np.intp]) -> Floats:
    """Return the reward of each group (g,) of ordered rewards."""
    if aggregation == "earliest":
        return rewards[starts]
    if aggregation == "median":
        return (rewards[starts + (counts - 1) // 2] + rewards[starts + counts // 2]) / 2
    if aggregation in ("min", "max"):
        return (np.minimum if aggregation == "min" else np.maximum).reduceat(rewards, starts)
    total = np.add.reduceat(rewards, starts)
    return total / counts if aggregation == "average" else total


def _known(aggregation: str, times: Instants, starts: NDArray[np.intp]) -> Instants:
    """Return when the reward of each group (g,) was known: with the earliest, or with the last that it is made of."""
    return times[starts] if aggregation == "earliest" else np.maximum.reduceat(times, starts)
