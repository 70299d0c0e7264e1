"""From any number of rewards to one reward per decision, for episodes and for tables.

Pure functions on arrays. Rewards name their decision by its position. A reward without a decision is an orphan, one
after the window is late, and a decision without a reward is silent. A decision whose window is still open when the
rewards end has no reward yet, even if one came: otherwise only quick rewards would be learned.
"""

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spuir.base.counting import counted
from spuir.base.parameters import NUMBER, check, one_of, optional, parameter
from spuir.base.records import Codes, Floats, Mask
from spuir.errors import InputError
from spuir.logs.times import UNKNOWN, Instants, microseconds

AGGREGATIONS = ("earliest", "sum", "average", "median", "min", "max")
LATE = ("drop", "accept", "refuse")


@dataclass(frozen=True, kw_only=True)
class RewardRules:
    """How to combine the rewards of one decision.

    Parameters
    ----------
    default
        The reward assumed when none arrives; None = the reward stays unknown.
    aggregation
        How to combine several rewards of one decision: "earliest" by time (by arrival where times are equal or
        unknown), "sum", "average", "median", "min" or "max".
    window
        How long after its decision a reward is in time, including the end: a number of seconds, or a text like "15m",
        "6h", "1d". None = always.
    late
        What to do with a reward after the window: "drop" ignores it, "accept" uses it, "refuse" raises. All are
        counted.
    """

    default: float | None = parameter(0.0, "reward assumed when none arrives", optional(NUMBER))
    aggregation: str = parameter("earliest", "how to combine several rewards of one decision", one_of(*AGGREGATIONS))
    window: Any = None
    late: str = parameter("drop", "what to do with a reward after the window", one_of(*LATE))

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
    """Counts of decisions and rewards from combining them.

    Parameters
    ----------
    decisions
        Decisions, each id once.
    duplicates
        Decisions with the id of an earlier one; the first one is kept.
    rewards
        All rewards.
    repeated
        Rewards of a decision beyond its first, which were combined.
    orphans
        Rewards without a decision.
    late
        Rewards after the window.
    early
        Rewards dated before their decision, e.g. by clocks that differ; they are used.
    missing
        Rewards without a value, which are ignored.
    silent
        Decisions without any reward in use; they have the default, or none.
    open
        Decisions whose window was still open when the rewards ended; they have no reward.
    default
        The reward of silent decisions; None = they have none.
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
    open: int = 0
    default: float | None = field(default=None, compare=False)

    def __add__(self, other: "Report") -> "Report":
        """Return the counts of both."""
        counts = (item.name for item in fields(self) if item.name != "default")
        summed = {name: getattr(self, name) + getattr(other, name) for name in counts}
        return Report(**summed, default=other.default if self.default is None else self.default)

    def __str__(self) -> str:
        """Return the counts above 0 in a sentence."""
        extras = [
            (self.repeated, "repeated"),
            (self.orphans, "without a decision"),
            (self.late, "late"),
            (self.early, "before their decision"),
            (self.missing, "without a value"),
        ]
        details = ", ".join(f"{count:,} {word}" for count, word in extras if count)
        duplicates = f" ({counted(self.duplicates, 'duplicate')} left out)" if self.duplicates else ""
        rewards = counted(self.rewards, "reward") + (f" ({details})" if details else "")
        still_open = f", {self.open:,} with a window still open" if self.open else ""
        silent = counted(self.silent, "decision", "without a reward")
        if self.silent and self.default is not None:
            silent += f" (counted as {self.default:g})"
        return f"{counted(self.decisions, 'decision')}{duplicates}, {rewards}; {silent}{still_open}."


class Settled(NamedTuple):
    """One reward per decision: rewards (n,), NaN where unknown; their times (n,), UNKNOWN where there is none."""

    rewards: Floats
    times: Instants
    report: Report


def settle(
    rules: RewardRules,
    decided: Instants,
    owners: Codes,
    rewards: Floats,
    times: Instants,
    ids: Any = None,
    as_of: int | None = None,
) -> Settled:
    """Return the reward of each of n decisions, from m rewards in the order of their arrival.

    Parameters
    ----------
    rules
        Default, aggregation, window and the rule for late rewards.
    decided
        (n,) time of each decision.
    owners
        (m,) the position of each reward's decision, −1 for an orphan.
    rewards
        (m,) values, NaN = missing.
    times
        (m,) time of each reward.
    ids
        (m,) ids of the rewards for error messages: a list, or an Arrow array.
    as_of
        The time until which rewards are complete: decisions whose window ends later have none. None = all are.
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
    still_open = _open(rules, decided, as_of)
    values[still_open], instants[still_open] = np.nan, UNKNOWN
    report = Report(
        decisions=n,
        rewards=len(rewards),
        repeated=int(counts.sum() - len(groups)),
        orphans=int(orphans.sum()),
        late=int(late.sum()),
        early=int(early.sum()),
        missing=int((missing & ~orphans).sum()),
        silent=int((silent & ~still_open).sum()),
        open=int(still_open.sum()),
        default=rules.default,
    )
    return Settled(values, instants, report)


def _open(rules: RewardRules, decided: Instants, as_of: int | None) -> Mask:
    """Return the decisions (n,) whose window is still open at ``as_of``; without a time, nothing says it is closed."""
    if rules.reach is None or as_of is None:
        return np.zeros(len(decided), np.bool_)
    return (decided == UNKNOWN) | (decided > as_of - rules.reach)


def check_finite(rewards: Floats, ids: Any) -> None:
    """Raise if a reward is infinite, and name its decision."""
    infinite = np.isinf(rewards)
    if infinite.any():
        row = int(np.argmax(infinite))
        got = f"{rewards[row]}{_of_id(ids, row)}"
        raise InputError("rewards", got, "every reward must be finite", "correct or drop it")


def _timing(rules: RewardRules, decided: Instants, owners: Codes, times: Instants, ids: Any) -> tuple[Mask, Mask]:
    """Return masks (m,) of the rewards after the window and of those before their decision."""
    owned = owners >= 0
    taken = np.full(len(owners), UNKNOWN, np.int64)
    taken[owned] = decided[owners[owned]]
    timed = owned & (taken != UNKNOWN) & (times != UNKNOWN)
    if rules.reach is not None and (owned & ~timed).any():
        row = int(np.argmax(owned & ~timed))
        whose = "its decision" if times[row] != UNKNOWN else "the reward"
        rule = "a window needs the times of decisions and rewards"
        got = f"no time of {whose}{_of_id(ids, row)}"
        raise InputError("time", got, rule, "give every row its time, or leave the window out")
    elapsed = np.where(timed, times - taken, 0)
    late = timed & (elapsed > rules.reach) if rules.reach is not None else np.zeros(len(owners), np.bool_)
    if rules.late == "refuse" and late.any():
        row = int(np.argmax(late))
        got = f"a reward {elapsed[row] / 1e6:g} s after its decision{_of_id(ids, row)}"
        raise InputError("reward", got, f"the window is {rules.window!r}", 'drop it, or pass late="drop" or "accept"')
    return late, timed & (elapsed < 0)


def _of_id(ids: Any, row: int) -> str:
    """Return the id of a reward as the end of a message."""
    if ids is None:
        return ""
    value = ids[row]
    return f" {value.as_py() if hasattr(value, 'as_py') else value!r}"


def _order(aggregation: str, owners: Codes, rewards: Floats, times: Instants) -> NDArray[np.intp]:
    """Return the rewards (k,) grouped by decision; within one by arrival, time or value."""
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
    """Return when the reward of each group (g,) was known: the time of the earliest or of the last one used."""
    return times[starts] if aggregation == "earliest" else np.maximum.reduceat(times, starts)
