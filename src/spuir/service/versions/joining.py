"""From decisions and their rewards to rows: which rewards count, how they combine, and what a decision's status is.

Pure functions of records. Learning, the status of a decision, the exported log and a replay all use them, so that they
cannot disagree.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import fsum
from statistics import median
from typing import NamedTuple

from spuir.service.log_records import (
    ACTIVATION,
    DECISION,
    DecisionFact,
    Record,
    check_record,
    decision_fact,
    reward_fact,
)
from spuir.service.settings import ExperimentSettings
from spuir.service.stores.base import LogReader, in_pieces

PENDING, JOINED, DEFAULTED, LATE = "pending", "joined", "defaulted", "late"
NOT_ACTIVATED, FORGOTTEN = "not activated", "forgotten"


class Edges(NamedTuple):
    """What an episode holds: decisions that settle after ``start`` until ``end``, log times in microseconds.

    Decisions without a window belong to it by their place: after ``first`` and before ``last``.
    """

    first: int
    start: int
    last: int
    end: int


class JoinRules(NamedTuple):
    """How rewards are joined and combined: the settings in force where an episode is closed."""

    aggregation: str
    default: float | None
    early: int | None

    @classmethod
    def of(cls, settings: ExperimentSettings) -> "JoinRules":
        """Return the rules of an experiment."""
        return cls(settings.aggregation, settings.default_reward, settings.span("early"))


class JoinedRow(NamedTuple):
    """A decision with what became of it.

    ``reward`` is None while it is pending and where there is none; ``rewards`` counts those in time, ``late`` the
    others. ``time`` is the log time of the last reward in time.
    """

    record: Record
    fact: DecisionFact | None
    status: str
    reward: float | None
    rewards: int = 0
    late: int = 0
    time: int | None = None

    @property
    def learned(self) -> bool:
        """Whether it is a row to learn from, once it has settled."""
        return self.reward is not None and self.status in (JOINED, DEFAULTED, LATE)


def combine(aggregation: str, rewards: Sequence[tuple[int, str, float]]) -> float:
    """Return one reward of several (time, id, value), whatever order they came in.

    Ties in time are broken by the id. Sums are exact before they are rounded once.
    """
    values = [value for _, _, value in sorted(rewards)]
    if aggregation == "earliest":
        return values[0]
    if aggregation == "median":
        return float(median(values))
    if aggregation in ("min", "max"):
        return min(values) if aggregation == "min" else max(values)
    total = fsum(values)
    return total / len(values) if aggregation == "average" else total


def in_time(decision: Record, other: Record, closed_at: int | None, early: int | None) -> bool:
    """Return whether a reward or an activation came in time for its decision.

    ``closed_at`` is the place of the close that learned the decision; it matters for decisions without a window.
    """
    if other.seq < decision.seq:
        return early is not None and other.time >= decision.time - early
    if decision.due is None:
        return closed_at is None or other.seq < closed_at
    return other.time < decision.due


def join(
    decisions: Iterable[Record], owned: Iterable[Record], rules: JoinRules, now: int, closed_at: int | None
) -> Iterator[JoinedRow]:
    """Yield each decision with what became of it.

    Parameters
    ----------
    decisions
        Records of decisions.
    owned
        Rewards and activations of these decisions, in the order of the log.
    rules
        How rewards are combined.
    now
        Log time: a decision with a window has settled when it ended until then.
    closed_at
        The place of the close that holds these decisions; None if none does yet.
    """
    by_decision: dict[str | None, list[Record]] = defaultdict(list)
    for record in owned:
        by_decision[record.owner].append(record)
    for decision in decisions:
        yield _joined(decision, by_decision.get(decision.key, ()), rules, now, closed_at)


def _joined(decision: Record, owned: Sequence[Record], rules: JoinRules, now: int, closed_at: int | None) -> JoinedRow:
    if decision.payload is None:
        return JoinedRow(decision, None, FORGOTTEN, None)
    fact = decision_fact(decision)
    settled = closed_at is not None or (decision.due is not None and decision.due <= now)
    activated, late, last, rewards = not fact.defer, 0, None, list[tuple[int, str, float]]()
    for record in owned:
        timely = in_time(decision, record, closed_at, rules.early)
        if record.kind == ACTIVATION:
            activated = activated or timely
        elif not timely:
            late += 1
        elif record.payload is not None:
            reward = reward_fact(record.payload)
            rewards.append((record.time if reward.time is None else reward.time, record.key, reward.reward))
            last = record.time
    value = combine(rules.aggregation, rewards) if rewards else rules.default if settled else None
    return JoinedRow(decision, fact, _status(settled, activated, len(rewards), late), value, len(rewards), late, last)


def _status(settled: bool, activated: bool, rewards: int, late: int) -> str:
    """Return the status of a decision that has so many rewards in time and late ones."""
    if not activated:
        return NOT_ACTIVATED if settled else PENDING
    if rewards:
        return JOINED
    if not settled:
        return PENDING
    return LATE if late else DEFAULTED


def episode_rows(
    store: LogReader, name: str, edges: Edges, rules: JoinRules, now: int | None = None
) -> Iterator[JoinedRow]:
    """Yield the decisions that an episode holds, in their order, with what became of them.

    ``now`` is the log time if the episode is not closed yet.
    """
    settled_until, closed_at = (edges.end, edges.last) if now is None else (now, None)
    count, settling, _ = store.settling(name, edges.start, edges.end)
    first = min(settling, edges.first + 1) if count else edges.first + 1
    for piece in in_pieces(store, name, first, edges.last - 1, (DECISION,)):
        inside = [one for one in piece if holds(edges, one)]
        owned = store.owned(name, [one.key for one in inside])
        for one in (*inside, *owned):
            if not one.row:  # decisions of one record share their payload
                check_record(name, one)
        yield from join(inside, owned, rules, settled_until, closed_at)


def holds(edges: Edges, decision: Record) -> bool:
    """Return whether an episode holds a decision."""
    if decision.due is None:
        return edges.first < decision.seq < edges.last
    return edges.start < decision.due <= edges.end
