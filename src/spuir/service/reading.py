"""Reads of the decision service: experiments, decisions, versions and the canonical log."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from spuir.logs.columns import COLUMNS
from spuir.service.commands import ActionInfo, DecisionStatus, ExperimentAnswer, VersionAnswer
from spuir.service.drafting import unknown_decision
from spuir.service.experiment_view import Closed, ExperimentView, settings_at
from spuir.service.log_records import DECISION, Record, check_record, version_fact
from spuir.service.stores.base import CHUNK, Head, LogReader, each_record
from spuir.service.versions.joining import Edges, JoinedRow, JoinRules, episode_rows, holds, join
from spuir.service.versions.rebuild import Lineup

_SECOND = 1e6


def describe(view: ExperimentView, head: Head) -> ExperimentAnswer:
    """Return an experiment as it is."""
    retired, features = view.retired, view.features()
    return ExperimentAnswer(
        name=view.name,
        settings=view.settings,
        actions=[
            ActionInfo(label=label, active=label not in retired, features=features.get(label)) for label in view.labels
        ],
        version=view.published,
        newest=view.learned.number,
        episode=view.learned.episode,
        records=head.seq,
        digest=head.chain.hex(),
        created=view.created / _SECOND,
        time=head.time / _SECOND,
        archived=view.archived,
        learning=bool(view.waiting),
        counts=dict(head.facts.get("counts", {})),
    )


def due_closes(
    store: LogReader, views: Sequence[tuple[ExperimentView, Head]], moment: int
) -> tuple[list[tuple[str, int]], int | None]:
    """Return the experiments whose episode is to be closed, each with how many were closed, and when the next one is.

    Times are in microseconds.
    """
    due: list[tuple[str, int]] = []
    soonest: int | None = None
    for view, head in views:
        if view.archived or view.waiting:
            continue
        for when in _close_times(store, view, head):
            if when <= moment:
                due.append((view.name, view.closed))
                break
            soonest = when if soonest is None else min(soonest, when)
    return due, soonest


def _close_times(store: LogReader, view: ExperimentView, head: Head) -> Iterator[int]:
    """Yield when an episode is to be closed, by number and by time."""
    settings, last = view.settings, view.last_close
    start = 0 if last is None else last.time
    decided = head.facts.get("counts", {}).get("decisions", 0) - head.facts.get("closed", 0)
    if settings.batch_size is not None and decided >= settings.batch_size:
        when = store.settles(view.name, start, settings.batch_size)
        if when is not None:
            yield when
    period = settings.span("period")
    if period is not None and decided:
        end = (view.created if last is None else last.time) + period
        first = end if head.facts.get("open", 0) else store.settles(view.name, start, 1)
        if first is not None:
            yield max(first, end)


def decision_status(store: LogReader, view: ExperimentView, head: Head, decision_id: str) -> DecisionStatus:
    """Return what became of a decision."""
    record = store.find(view.name, DECISION, [decision_id]).get(decision_id)
    if record is None:
        raise unknown_decision(decision_id)
    owned = store.owned(view.name, [decision_id])
    for one in (record, *owned):
        check_record(view.name, one)
    close = _close_of(store, view, record)
    settings = view.settings if close is None else settings_at(store, view, close.seq)
    closed_at, now = (None, head.time) if close is None else (close.seq, max(head.time, close.time))
    (row,) = join([record], owned, JoinRules.of(settings), now, closed_at)
    fact = row.fact
    return DecisionStatus(
        id=decision_id,
        status=row.status,
        action=None if fact is None else fact.action,
        propensity=None if fact is None else fact.propensity,
        version=0 if fact is None else fact.version,
        time=record.time / _SECOND,
        settles=None if record.due is None else record.due / _SECOND,
        reward=row.reward,
        rewards=row.rewards,
        used_in=_used_in(store, view, close, row),
    )


def _close_of(store: LogReader, view: ExperimentView, decision: Record) -> Closed | None:
    """Return the close that holds a decision."""
    last = view.last_close
    if last is None or last.seq < decision.seq or (decision.due is not None and decision.due > last.time):
        return None
    for one in each_record(store, view.name, decision.seq, last.seq, ("close",)):
        close = Closed.of(one)
        if holds(close.edges, decision):
            return close
    return None


def _used_in(store: LogReader, view: ExperimentView, close: Closed | None, row: JoinedRow) -> int | None:
    """Return the version that learned a decision."""
    if close is None or not row.learned:
        return None
    for one in each_record(store, view.name, close.seq, view.read, ("version",)):
        fact = version_fact(one)
        if fact.close == close.fact.number:
            return fact.number
    return None


def versions(store: LogReader, view: ExperimentView, head: Head) -> list[VersionAnswer]:
    """Return all versions, the cold one first."""
    answers: list[VersionAnswer] = []
    for one in each_record(store, view.name, 1, head.seq, ("version",)):
        fact = version_fact(one)
        answers.append(
            VersionAnswer(
                version=fact.number,
                parent=fact.parent,
                episode=fact.episode,
                rows=fact.rows,
                digest=fact.digest,
                time=one.time / _SECOND,
                published=fact.number == view.published,
                refused=fact.refused,
                value=fact.value,
            )
        )
    return answers


# ---- the canonical log --------------------------------------------------------------------------------------


def log_rows(store: LogReader, view: ExperimentView, head: Head, settled: bool) -> Iterator[list[dict[str, Any]]]:
    """Yield blocks of rows with canonical columns, episode by episode, then what no episode holds yet."""
    block: list[dict[str, Any]] = []
    columns: set[str] = set(head.facts.get("columns", ()))
    if view.changes:
        columns.add("eligible")  # it says which actions there were
    for number, row in _all_rows(store, view, head, settled):
        if row.fact is not None and (row.learned or number is None):
            block.append(canonical(row, number, view, columns))
            if len(block) >= CHUNK:
                yield block
                block = []
    if block:
        yield block


def _all_rows(
    store: LogReader, view: ExperimentView, head: Head, settled: bool
) -> Iterator[tuple[int | None, JoinedRow]]:
    lineup = Lineup(store, view.name)
    for close, settings in lineup.closes(head.seq):
        for row in episode_rows(store, view.name, close.edges, JoinRules.of(settings)):
            yield close.fact.number - 1, row
    if settled:
        return
    last = view.last_close
    first, start = (0, 0) if last is None else (last.seq, last.time)
    edges = Edges(first, start, head.seq + 1, 2**62)
    for row in episode_rows(store, view.name, edges, JoinRules.of(view.settings), head.time):
        yield None, row


def canonical(row: JoinedRow, episode: int | None, view: ExperimentView, columns: set[str]) -> dict[str, Any]:
    """Return one row of a canonical log; the reward of a row that is not learned yet is missing.

    ``columns`` are those of ``unit_id`` and ``eligible`` that any row of the log uses.
    """
    fact, record = row.fact, row.record
    if fact is None:
        return {}
    found: dict[str, Any] = {
        "decision_id": record.key,
        "time": _iso(record.time if fact.time is None else fact.time),
        "episode": episode,
        "action": fact.action,
        "reward": row.reward if episode is not None else None,
        "propensity": fact.propensity,
        "reward_time": None if row.time is None else _iso(row.time),
        "policy_version": str(fact.version),
    }
    if "eligible" in columns:
        found["eligible"] = view.active_at(record.seq) if fact.eligible is None else fact.eligible
    if fact.action_features is not None:
        texts, given = list(fact.action_features), list(fact.action_features.values())
        by_text = {str(label): label for label in view.labels}
        found["eligible"] = [by_text[text] for text in texts]
        found |= {f"action.{name}": [one[name] for one in given] for name in given[0]}
    if "unit_id" in columns:
        found["unit_id"] = fact.unit
    return found | context_columns(fact.context)


def context_columns(context: Any) -> dict[str, Any]:
    """Return a context as columns: x0, x1, … of numbers, or its own, renamed where a canonical column has the name."""
    if isinstance(context, list):
        return {f"x{at}": value for at, value in enumerate(context)}
    return {f"context_{name}" if name in COLUMNS else name: value for name, value in context.items()}


def _iso(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / _SECOND, UTC).isoformat()
