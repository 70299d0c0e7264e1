"""Decisions: what many commands of one transaction ask of one experiment, done together."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from spuir.errors import ServiceError, SpuirError
from spuir.service import bare_requests
from spuir.service.commands import (
    Decide,
    DecideMany,
    DecisionAnswer,
    DecisionRow,
    DecisionsAnswer,
)
from spuir.service.context_values import check_columns, kinds_of
from spuir.service.drafting import Draft, archived, conflict, forgotten
from spuir.service.log_records import (
    DECISION,
    DecisionFact,
    Record,
    check_record,
    decision_fact,
)
from spuir.service.serving import Drawn, Serving, form_of
from spuir.service.settings import MOST_COLUMNS, as_refusal, check_id, refuse

Outcome = Any
"""An answer, or the error that takes its place."""


class _Asked:
    """One command that asks for decisions: its rows, and what is known of each.

    ``bare`` is the command if its rows are drawn and recorded together (see :mod:`spuir.service.bare_requests`), and
    ``whole`` is then what was drawn.
    """

    __slots__ = ("answers", "as_json", "bare", "copies", "drawn", "error", "many", "rows", "sent", "whole")

    def __init__(self, command: Decide | DecideMany, shadow: bool) -> None:
        self.many = isinstance(command, DecideMany)
        self.rows: Sequence[DecisionRow] = command.rows if isinstance(command, DecideMany) else [command.row]
        self.sent = command.sent
        """Contexts as they were sent, if they were."""
        self.bare: DecideMany | None = None
        if isinstance(command, DecideMany) and not shadow and bare_requests.is_bare(command):
            self.bare = command
        self.whole: tuple[Drawn, int] | None = None
        self.as_json = command.as_json
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
    asked = [_Asked(one, draft.view.settings.shadow) for one in commands]
    serving = draft.serving
    given = [row.id for one in asked if one.bare is None for row in one.rows if row.id is not None]
    known = draft.find(DECISION, given) if given else {}
    first: dict[str, DecisionRow] = {}
    for one in asked:
        if one.bare is None or not bare_requests.fits(draft, one.rows):
            _sort_out(draft, serving, one, known, first)
    _draw_all(draft, serving, asked)
    made: dict[str, DecisionAnswer] = {}
    add = _appending(draft, serving, make_id)
    return [
        _record(one, made, add)
        if one.bare is None or one.whole is None
        else bare_requests.record(draft, serving, *one.whole, one.bare, make_id)
        for one in asked
    ]


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
                if draft.head.facts.get("varying") != [] or not _is_plain(row, draft.form):
                    _check(draft, serving, row, where_of(one, at))
                continue
            where = where_of(one, at)
            check_id("id", row.id, where)
            if row.id in known:
                one.answers[at] = _replayed(draft.name, serving, row, known[row.id], where)
            elif row.id in first:
                if not _same(row, first[row.id]):
                    raise conflict("id", row.id, where)
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


def _is_plain(row: DecisionRow, form: int | None) -> bool:
    """Return whether a row has nothing but a context of the right number of numbers, as most rows have."""
    context = row.context
    return (
        type(context) is list
        and 0 < len(context) <= MOST_COLUMNS
        and len(context) == form
        and row.eligible is None
        and row.unit is None
        and row.action_features is None
    )


def _check(draft: Draft, serving: Serving, row: DecisionRow, where: str | None) -> None:
    if row.unit is not None:
        check_id("unit", row.unit, where, made=True)
    serving.check(row, draft.form, where)
    if serving.bandit.encoder is None:  # which refuses what it cannot read
        check_columns(row.context, kinds_of(None, draft.view.settings.context), where)
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
    odd = next((label for label, one in (given or {}).items() if sorted(one) != known), None)
    if odd is not None or (known and not given):
        wanted = ", ".join(known) or "none"
        got = f"{', '.join(given[odd]) or 'none'} for {odd!r}" if given and odd is not None else "none"
        rule = f"the features per decision of this experiment are {wanted}, for every action that is offered"
        raise refuse("action_features", got, rule, "send these", where)
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
    fact = decision_fact(record)
    if not _same(row, fact):
        raise conflict("id", record.key, where)
    return DecisionAnswer(
        id=record.key,
        action=fact.action,
        propensity=1.0 if fact.propensity is None else fact.propensity,
        probabilities=serving.shown(fact.probabilities or []),
        version=fact.version,
        replayed=True,
        shadow=fact.shadow,
    )


def _draw_all(draft: Draft, serving: Serving, asked: Sequence[_Asked]) -> None:
    """Draw for all rows that need it: single ones together, each request of several by itself."""
    singles = [one for one in asked if not one.many and one.error is None and one.answers == [None] and not one.copies]
    _draw_some(draft, serving, [(one, 0) for one in singles])
    for one in asked:
        if one.error is not None or not one.many:
            continue
        if one.bare is not None:
            drawn = bare_requests.draw(draft, serving, one.rows)
            one.whole, one.error = (None, drawn) if isinstance(drawn, ServiceError) else (drawn, None)
        else:
            rows = [(one, at) for at, found in enumerate(one.answers) if found is None and at not in one.copies]
            _draw_some(draft, serving, rows)


def _draw_some(draft: Draft, serving: Serving, rows: list[tuple[_Asked, int]]) -> None:
    """Draw for some rows: those without ids in one call, then those with ids."""
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
        one.error = as_refusal(wrong, where_of(one, at) if len(chosen) == 1 else None)
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
            answer = answers[at] = add(row, one.sent[at] if one.sent else row.context, one.as_json, *drawn)
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

    def add(
        row: DecisionRow, context: Any, as_json: bool, result: Drawn, place: int, number: int | None
    ) -> DecisionAnswer:
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
            id=key,
            action=action,
            propensity=propensity,
            probabilities=shares.answered(as_json),
            version=version,
            shadow=shadow,
        )

    return add
