"""Decisions, rewards and activations: what many commands of one transaction ask of one experiment, done together."""

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

import msgspec

from spuir.base.hashing import digest
from spuir.errors import ServiceError, SpuirError
from spuir.logs.times import instants
from spuir.service.commands import (
    Activate,
    ActivateAnswer,
    Decide,
    DecideMany,
    DecisionAnswer,
    DecisionRow,
    DecisionsAnswer,
    Reward,
    RewardAnswer,
    RewardMany,
    RewardRow,
    RewardsAnswer,
)
from spuir.service.drafting import Draft, archived, forgotten
from spuir.service.log_records import (
    ACTIVATION,
    DECISION,
    REWARD,
    DecisionFact,
    Record,
    RewardFact,
    check_record,
    decision_fact,
    encode,
    payload_digest,
)
from spuir.service.serving import Drawn, Serving, form_of
from spuir.service.settings import MADE, check_id, refuse

Outcome = Any
"""An answer, or the error that takes its place."""


class _Asked:
    """One command that asks for decisions: its rows, and what is known of each."""

    __slots__ = ("answers", "copies", "drawn", "error", "many", "rows", "sent")

    def __init__(self, command: Decide | DecideMany) -> None:
        self.many = isinstance(command, DecideMany)
        self.rows = command.rows if isinstance(command, DecideMany) else [command.row]
        self.sent: Sequence[Any] = command.sent or [row.context for row in self.rows]
        self.error: ServiceError | None = None
        self.answers: list[DecisionAnswer | None] = [None] * len(self.rows)
        self.copies: dict[int, str] = {}
        """Rows whose id another row of this transaction has, with the same body."""
        self.drawn: list[tuple[Drawn, int, int | None] | None] = [None] * len(self.rows)
        """What was drawn for each row: the call, the row's place in it, and its number within the episode."""


def where_of(asked: _Asked, row: int) -> str | None:
    """Return the place of a row in its request."""
    return f"decisions[{row}]" if asked.many else None


def decide(draft: Draft, commands: Sequence[Decide | DecideMany], make_id: Any) -> list[Outcome]:
    """Take the decisions of several commands; single ones share one call of ``Bandit.decide``."""
    if draft.view.archived:
        return [archived(draft.name)] * len(commands)
    asked = [_Asked(one) for one in commands]
    serving = draft.serving
    given = [row.id for one in asked for row in one.rows if row.id is not None]
    known = draft.find(DECISION, given) if given else {}
    first: dict[str, DecisionRow] = {}
    for one in asked:
        _sort_out(draft, serving, one, known, first)
    _draw_all(draft, serving, asked)
    made: dict[str, DecisionAnswer] = {}
    add = _appending(draft, serving, make_id)
    return [_record(one, made, add) for one in asked]


def _sort_out(
    draft: Draft, serving: Serving, one: _Asked, known: dict[str, Record], first: dict[str, DecisionRow]
) -> None:
    """Find rows that were decided before and those that are refused; the others are to be drawn."""
    mine, form = list[str](), draft.form
    try:
        if not one.rows:
            raise refuse("decisions", "none", "a request has at least one", "send some", "decisions")
        for at, row in enumerate(one.rows):
            if row.id is None:
                if draft.head.facts.get("varying") != [] or not serving.plain(row, draft.form):
                    _check(draft, serving, row, where_of(one, at))
                continue
            where = where_of(one, at)
            check_id("id", row.id, where)
            if row.id in known:
                one.answers[at] = _replayed(draft.name, serving, row, known[row.id], where)
            elif row.id in first:
                if not _same(row, first[row.id]):
                    raise _conflict("id", row.id, where)
                one.copies[at] = row.id
            else:
                _check(draft, serving, row, where)
                first[row.id] = row
                mine.append(row.id)
    except ServiceError as wrong:
        one.error = wrong
        draft.head.facts["form"] = form
        for key in mine:
            del first[key]


def _check(draft: Draft, serving: Serving, row: DecisionRow, where: str | None) -> None:
    if row.unit is not None:
        check_id("unit", row.unit, where, made=True)
    serving.check(row, draft.form, where)
    check_varying(draft, row.action_features, where)
    if draft.form is None:
        draft.head.facts["form"] = form_of(row.context)


def check_varying(draft: Draft, given: dict[str, dict[str, float]] | None, where: str | None) -> None:
    """Refuse features per decision that are not those of the first decision, which settles their names."""
    facts = draft.head.facts
    names = sorted(next(iter(given.values()))) if given else []
    known = facts.get("varying", names)
    reserved = [name for name in names if name in ("row", "action")]
    if reserved:
        raise refuse("action_features", repr(reserved[0]), "'row' and 'action' are reserved", "rename it", where)
    if names != known or (given and any(sorted(one) != known for one in given.values())):
        wanted = ", ".join(known) or "none"
        rule = f"the features per decision of this experiment are {wanted}, for every action that is offered"
        raise refuse("action_features", ", ".join(names) or "none", rule, "send these", where)
    facts["varying"] = known


def _same(row: DecisionRow, other: DecisionRow | DecisionFact) -> bool:
    """Return whether a request repeats another one."""
    return (
        row.context == other.context
        and row.eligible == other.eligible
        and row.action_features == other.action_features
        and row.defer == other.defer
        and row.unit == other.unit
    )


def _replayed(name: str, serving: Serving, row: DecisionRow, record: Record, where: str | None) -> DecisionAnswer:
    """Return the answer to a decision that was taken before."""
    if record.payload is None:
        raise forgotten("id", record.key, where)
    check_record(name, record)
    fact = decision_fact(record.payload)
    if not _same(row, fact):
        raise _conflict("id", record.key, where)
    return DecisionAnswer(
        id=record.key,
        action=fact.action,
        propensity=1.0 if fact.propensity is None else fact.propensity,
        probabilities=serving.shown(fact.probabilities or []),
        version=fact.version,
        replayed=True,
        shadow=fact.shadow,
    )


def _conflict(subject: str, key: str, where: str | None) -> ServiceError:
    rule = "this id was used before with another body"
    return ServiceError("conflict", subject, repr(key), rule, "use a new id, or send the same body", where)


def _draw_all(draft: Draft, serving: Serving, asked: Sequence[_Asked]) -> None:
    """Draw for all rows that need it: single ones together, each request of several by itself."""
    singles = [one for one in asked if not one.many and one.error is None and one.answers == [None] and not one.copies]
    calls = [[(one, 0) for one in singles]]
    for one in asked:
        if one.many and one.error is None:
            calls.append([(one, at) for at, found in enumerate(one.answers) if found is None and at not in one.copies])
    for rows in calls:
        for keyed in (False, True):
            chosen = [(one, at) for one, at in rows if (one.rows[at].id is not None) is keyed]
            if chosen:
                _draw(draft, serving, chosen, keyed)


def _draw(draft: Draft, serving: Serving, chosen: list[tuple[_Asked, int]], keyed: bool) -> None:
    """Draw for some rows in one call; if that is refused, for each request by itself."""
    rows = [one.rows[at] for one, at in chosen]
    ids = [str(row.id) for row in rows] if keyed else None
    first = 0 if keyed else draft.take_rows(serving.episode, len(rows))
    try:
        drawn = serving.decide(rows, ids, first)
    except SpuirError as wrong:
        if not keyed:
            draft.give_back(serving.episode, first)
        if len({id(one) for one, _ in chosen}) > 1:
            for alone in chosen:
                _draw(draft, serving, [alone], keyed)
            return
        one, at = chosen[0]
        one.error = serving.refusal(wrong, where_of(one, at) if len(chosen) == 1 else None)
        return
    for place, (one, at) in enumerate(chosen):
        one.drawn[at] = (drawn, place, None if keyed else first + place)


def _record(one: _Asked, made: dict[str, DecisionAnswer], add: Callable[..., DecisionAnswer]) -> Outcome:
    """Append the decisions of one command, and return its answer."""
    if one.error is not None:
        return one.error
    answers = one.answers
    for at, row in enumerate(one.rows):
        drawn = one.drawn[at]
        if drawn is not None:
            answer = answers[at] = add(row, one.sent[at], *drawn)
            if row.id is not None:
                made[row.id] = answer
        elif at in one.copies:
            first = made.get(one.copies[at])
            if first is None:  # the row that it repeats was refused while drawing
                return refuse("id", repr(one.copies[at]), "the decision that it repeats was refused", "send it again")
            answers[at] = msgspec.structs.replace(first, replayed=True)
    found: Any = answers
    return DecisionsAnswer(decisions=found) if one.many else found[0]


def _appending(draft: Draft, serving: Serving, make_id: Any) -> Callable[..., DecisionAnswer]:
    """Return the function that appends one decision and returns its answer; what all have in common is read once."""
    settings, head, time = draft.view.settings, draft.head, draft.time
    version, episode, window = serving.version, serving.episode, draft.window
    due = None if window is None else time + window
    calls: dict[int, int] = {}
    counts: dict[str, int] = head.facts.setdefault("counts", {})
    counts.setdefault("decisions", 0)

    def add(row: DecisionRow, context: Any, result: Drawn, place: int, number: int | None) -> DecisionAnswer:
        action, propensity, shadow, unit = result.actions[place], result.propensities[place], None, row.unit
        shares, seq = result.shares[place], head.seq + 1
        if settings.shadow:
            shadow, propensity = action, 1.0
            action = serving.baseline(settings.baseline, row)
            shares = serving.shares([float(name == action) for name in serving.names])
            draft.count("shadow matches", int(shadow == action))
        key = make_id(time, seq) if row.id is None else row.id
        call = calls.setdefault(id(result), seq)
        recorded: Any = shares.recorded
        eligible, features = row.eligible, row.action_features
        fact = DecisionFact(
            context,
            action,
            propensity,
            version,
            episode,
            call,
            number,
            recorded,
            eligible,
            features,
            row.defer,
            unit,
            shadow,
        )
        draft.add(DECISION, key, fact, None, due, unit)
        counts["decisions"] += 1
        if unit is not None:
            draft.note("unit_id")
        if eligible is not None:
            draft.note("eligible")
        if due is None:
            head.facts["open"] = head.facts.get("open", 0) + 1
        return DecisionAnswer(
            id=key, action=action, propensity=propensity, probabilities=shares.shown, version=version, shadow=shadow
        )

    return add


# ---- rewards and activations --------------------------------------------------------------------------------


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
            outcomes.append(_conflict("reward", answers[0].id, None))
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
            raise refuse(wrong.subject, wrong.got, wrong.rule, wrong.remedy, where) from None
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
        rule = "there is no decision of this id"
        raise ServiceError("unknown_decision", "decision", repr(key[:80]), rule, "check the id")
    if decision.payload is None:
        raise forgotten("decision", key)
    check_record(draft.name, decision)
    if key in known or not decision_fact(decision.payload).defer:
        return ActivateAnswer(decision_id=key, status="duplicate")
    if settled(draft, decision):
        rule = "it has settled without being activated"
        raise ServiceError("too_late", "decision", repr(key), rule, "activate before the window ends")
    known[key] = draft.add(ACTIVATION, key, {}, key)
    draft.count("activations")
    return ActivateAnswer(decision_id=key, status="activated")
