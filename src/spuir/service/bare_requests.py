"""Requests of several decisions that have nothing but contexts: drawn, recorded and answered as a whole.

Their rows need no records of their own: no client gave them ids, and they name no units that may be forgotten. A record
holds many of them, and the id of each says which record and which row.
"""

from collections.abc import Callable, Sequence
from typing import Any

from spuir.errors import ServiceError, SpuirError
from spuir.service.commands import DecideMany, DecisionAnswer, DecisionRow, DecisionsAnswer
from spuir.service.drafting import Draft
from spuir.service.log_records import DECISIONS, ContextRow, ContextRows, DecisionsFact, ids_in
from spuir.service.number_rows import NumberRows
from spuir.service.serving import Drawn, Serving
from spuir.service.settings import MOST_COLUMNS, as_refusal

MOST_TOGETHER = 250
"""Most decisions in one record, so that a piece of the log is never large."""


def is_bare(command: DecideMany) -> bool:
    """Return whether a command has several rows, and all have nothing but a context."""
    if len(command.rows) < 2:
        return False
    return command.request is not None or all(
        row.id is None and row.unit is None and row.eligible is None and row.action_features is None and not row.defer
        for row in command.rows
    )


def fits(draft: Draft, rows: Sequence[DecisionRow]) -> bool:
    """Return whether the contexts of bare rows are those that the experiment takes, as far as one look can tell."""
    form = draft.form
    if draft.head.facts.get("varying") != [] or form is None or not 0 < form <= MOST_COLUMNS:
        return False
    if isinstance(rows, NumberRows):
        return rows.matrix.shape[1] == form
    return all(type(row.context) is list and len(row.context) == form for row in rows)


def draw(draft: Draft, serving: Serving, rows: Sequence[DecisionRow]) -> tuple[Drawn, int] | ServiceError:
    """Return what is drawn for bare rows, and the number of the first within the episode; or why it is refused."""
    first = draft.take_rows(serving.episode, len(rows))
    try:
        return serving.decide(rows, None, first, bare=True), first
    except SpuirError as wrong:
        draft.give_back(serving.episode, first)
        return as_refusal(wrong)


def record(
    draft: Draft,
    serving: Serving,
    drawn: Drawn,
    first: int,
    command: DecideMany,
    make_id: Callable[[int, int], str],
) -> DecisionsAnswer:
    """Append the decisions of a command, in few records, and return its answer."""
    call, answers = draft.head.seq + 1, list[DecisionAnswer]()
    due = None if draft.window is None else draft.time + draft.window
    for start in range(0, len(command.rows), MOST_TOGETHER):
        part = slice(start, start + MOST_TOGETHER)
        key, shares = make_id(draft.time, draft.head.seq + 1), drawn.shares[part]
        different = [shares[0]] if shares.count(shares[0]) == len(shares) else list(dict.fromkeys(shares))
        codes = {share: code for code, share in enumerate(different)}
        fact = DecisionsFact(
            request=_request(command, part),
            actions=drawn.actions[part],
            propensities=drawn.propensities[part],
            version=serving.version,
            episode=serving.episode,
            call=call,
            row=first + start,
            probabilities=[share.recorded for share in different],  # type: ignore[misc]
            shares=[codes[share] for share in shares] if len(different) > 1 else [],
        )
        draft.add(DECISIONS, key, fact, None, due, None, len(shares))
        chosen = zip(ids_in(key, len(shares)), fact.actions, fact.propensities, shares, strict=True)
        answers += [
            DecisionAnswer(
                id=decision_id,
                action=action,
                propensity=propensity,
                probabilities=share.answered(command.as_json),
                version=serving.version,
            )
            for decision_id, action, propensity, share in chosen
        ]
    draft.count("decisions", len(answers))
    if due is None:
        draft.head.facts["open"] = draft.head.facts.get("open", 0) + len(answers)
    return DecisionsAnswer(decisions=answers)


def _request(command: DecideMany, part: slice) -> Any:
    """Return the body of a request, as it was sent if one record takes all of it; else that of a part."""
    if command.request is not None and len(command.rows) <= MOST_TOGETHER:
        return command.request
    sent: Any = [row.context for row in command.rows[part]] if command.sent is None else command.sent[part]
    return ContextRows([ContextRow(context) for context in sent])
