"""Rewards and activations: the commands of one transaction for one experiment, carried out together."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

from spuir.base.hashing import digest
from spuir.errors import ServiceError, SpuirError
from spuir.logs.times import instants
from spuir.service.commands import (
    Activate,
    ActivateAnswer,
    Reward,
    RewardAnswer,
    RewardMany,
    RewardRow,
    RewardsAnswer,
)
from spuir.service.drafting import Draft, archived, conflict, forgotten, unknown_decision
from spuir.service.log_records import (
    ACTIVATION,
    DECISION,
    REWARD,
    Record,
    RewardFact,
    check_record,
    decision_fact,
    encode,
    payload_digest,
)
from spuir.service.settings import MADE, as_refusal, check_id, refuse

Outcome = Any
"""An answer, or the error that takes its place."""


def reward(draft: Draft, commands: Sequence[Reward | RewardMany]) -> list[Outcome]:
    """Take the rewards of several commands."""
    if draft.view.archived:
        return [archived(draft.name)] * len(commands)
    asked = [[one.row] if isinstance(one, Reward) else one.rows for one in commands]
    facts: list[list[tuple[str, RewardFact]] | ServiceError] = []
    for one, rows in zip(commands, asked, strict=True):
        try:
            many = isinstance(one, RewardMany)
            facts.append([_fact(row, f"rewards[{at}]" if many else None) for at, row in enumerate(rows)])
        except ServiceError as wrong:
            facts.append(wrong)
    good = [pair for pairs in facts if not isinstance(pairs, ServiceError) for pair in pairs]
    decisions = draft.find(DECISION, list({fact.decision_id for _, fact in good}))
    known = draft.find(REWARD, list({key for key, _ in good}))
    outcomes: list[Outcome] = []
    for one, pairs in zip(commands, facts, strict=True):
        if isinstance(pairs, ServiceError):
            outcomes.append(pairs)
            continue
        answers = [_rewarded(draft, key, fact, decisions, known) for key, fact in pairs]
        if isinstance(one, RewardMany):
            outcomes.append(RewardsAnswer(rewards=answers))
        elif answers[0].status == "conflict":
            outcomes.append(conflict("reward", answers[0].id, None))
        else:
            outcomes.append(answers[0])
    return outcomes


def _fact(row: RewardRow, where: str | None) -> tuple[str, RewardFact]:
    """Return the key and the payload of a reward, after refusing what is malformed."""
    check_id("decision_id", row.decision_id, where, made=True)
    if not isfinite(row.reward):
        raise refuse("reward", row.reward, "every reward must be finite", "correct or drop it", where)
    time = None
    if row.time is not None:
        try:
            time = int(instants(row.time, 1, "time")[0])
        except SpuirError as wrong:
            raise as_refusal(wrong, where) from None
    if row.id is not None:
        check_id("id", row.id, where)
        key = row.id
    else:
        key = MADE + digest(row.decision_id, repr(row.reward), repr(time), size=12)
    return key, RewardFact(row.decision_id, float(row.reward), time)


def _rewarded(
    draft: Draft, key: str, fact: RewardFact, decisions: dict[str, Record], known: dict[str, Record]
) -> RewardAnswer:
    """Append a reward unless it is known, and say what became of it."""
    before = known.get(key)
    if before is not None:
        same = before.payload is None or before.digest == payload_digest(encode(fact))
        return RewardAnswer(decision_id=fact.decision_id, id=key, status="duplicate" if same else "conflict")
    status = _status(draft, decisions.get(fact.decision_id), fact)
    if status != "forgotten":
        known[key] = draft.add(REWARD, key, fact, fact.decision_id)
        draft.count("rewards")
        draft.count(f"rewards {status}")
    return RewardAnswer(decision_id=fact.decision_id, id=key, status=status)


def _status(draft: Draft, decision: Record | None, fact: RewardFact) -> str:
    """Return what becomes of a reward that is recorded now."""
    if decision is None:
        possible = draft.view.settings.early is not None and not fact.decision_id.startswith(MADE)
        return "early" if possible else "unknown"
    if decision.payload is None:
        return "forgotten"
    return "late" if settled(draft, decision) else "joined"


def settled(draft: Draft, decision: Record) -> bool:
    """Return whether a decision has settled at this place of the log."""
    if decision.due is not None:
        return draft.time >= decision.due
    close = draft.view.last_close
    return close is not None and decision.seq < close.seq


def activate(draft: Draft, commands: Sequence[Activate]) -> list[Outcome]:
    """Activate deferred decisions."""
    if draft.view.archived:
        return [archived(draft.name)] * len(commands)
    ids = [one.decision_id for one in commands]
    decisions, known = draft.find(DECISION, ids), draft.find(ACTIVATION, ids)
    outcomes: list[Outcome] = []
    for key in ids:
        try:
            outcomes.append(_activated(draft, key, decisions.get(key), known))
        except ServiceError as refused:
            outcomes.append(refused)
    return outcomes


def _activated(draft: Draft, key: str, decision: Record | None, known: dict[str, Record]) -> ActivateAnswer:
    """Append an activation unless it is known."""
    if decision is None:
        raise unknown_decision(key)
    if decision.payload is None:
        raise forgotten("decision", key)
    check_record(draft.name, decision)
    if key in known or not decision_fact(decision).defer:
        return ActivateAnswer(decision_id=key, status="duplicate")
    if settled(draft, decision):
        rule = "it has settled without being activated"
        raise ServiceError("too_late", "decision", repr(key), rule, "activate before the window ends")
    known[key] = draft.add(ACTIVATION, key, {}, key)
    draft.count("activations")
    return ActivateAnswer(decision_id=key, status="activated")
