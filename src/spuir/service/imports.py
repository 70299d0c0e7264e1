"""Rows of a log from elsewhere: decisions that were taken and rewarded already, checked as decisions are."""

from spuir.errors import SpuirError
from spuir.logs.times import instants
from spuir.service.commands import ImportAnswer, ImportLog, LogRow
from spuir.service.context_values import check_columns, kinds_of
from spuir.service.decisions import check_varying
from spuir.service.drafting import Draft
from spuir.service.log_records import DECISION, REWARD, DecisionFact, RewardFact
from spuir.service.serving import form_of
from spuir.service.settings import MOST_COLUMNS, Label, as_refusal, check_id, refuse


def import_log(draft: Draft, command: ImportLog) -> ImportAnswer:
    """Append decisions that were taken elsewhere, each with its reward; they settle at once."""
    labels, recorded = set(draft.view.labels), 0
    made = [_imported(draft, row, labels, f"rows[{at}]") for at, row in enumerate(command.rows)]
    known = draft.find(DECISION, [key for key, _, _ in made])
    kinds = kinds_of(draft.serving.bandit.encoder, draft.view.settings.context)
    for at, (key, fact, value) in enumerate(made):
        if key in known:
            continue
        check_form(draft, form_of(fact.context), f"rows[{at}]")
        check_columns(fact.context, kinds, f"rows[{at}]")
        check_varying(draft, None, f"rows[{at}]")
        due = None if draft.window is None else draft.time + 1
        known[key] = draft.add(DECISION, key, fact, None, due, fact.unit)
        draft.count("decisions")
        draft.count("imported")
        draft.note("unit_id", fact.unit is not None)
        draft.note("eligible", fact.eligible is not None)
        if due is None:
            draft.head.facts["open"] = draft.head.facts.get("open", 0) + 1
        if value is not None:
            draft.add(REWARD, f"~{key}", RewardFact(key, value), key)
            draft.count("rewards")
            draft.count("rewards joined")
        recorded += 1
    return ImportAnswer(recorded=recorded, duplicates=len(made) - recorded)


def check_form(draft: Draft, form: int, where: str | None = None) -> None:
    """Refuse contexts of another form than those before; the first ones settle it."""
    if draft.form is not None and draft.form != form:
        rule = "contexts of this experiment have another form"
        raise refuse("context", f"{form} numbers" if form else "raw columns", rule, "use another experiment", where)
    draft.head.facts["form"] = form


def _imported(draft: Draft, row: LogRow, labels: set[Label], where: str) -> tuple[str, DecisionFact, float | None]:
    """Return a row as its id, the fact of its decision and its reward; refuse one that could not be learned."""
    if row.decision_id is None:
        raise refuse("decision_id", "none", "an imported row has an id, by which it is known again", "give one", where)
    check_id("decision_id", row.decision_id, where, made=True)
    if row.unit_id is not None:
        check_id("unit_id", row.unit_id, where, made=True)
    if not 1 <= len(row.context) <= MOST_COLUMNS:
        rule = f"a context has 1 to {MOST_COLUMNS:,} numbers or columns"
        raise refuse("context", f"{len(row.context)} of them", rule, "correct or drop the row", where)
    _check_actions(row, labels, where)
    if row.propensity is not None and not 0 < row.propensity <= 1:
        raise refuse("propensity", row.propensity, "it is in (0, 1]", "correct or drop the row", where)
    try:
        time = None if row.time is None else int(instants(row.time, 1, "time")[0])
    except SpuirError as wrong:
        raise as_refusal(wrong, where) from None
    version = draft.view.published
    fact = DecisionFact(row.context, row.action, row.propensity, version, 0, unit=row.unit_id, imported=True, time=time)
    fact.eligible = row.eligible
    return row.decision_id, fact, row.reward


def _check_actions(row: LogRow, labels: set[Label], where: str) -> None:
    """Refuse a row whose actions are not those of the experiment, or which was not eligible for its own."""
    offered = [row.action] if row.eligible is None else row.eligible
    for subject, label in (("action", row.action), *(("eligible", one) for one in offered)):
        if label not in labels:
            rule, remedy = "a row has actions of the experiment only", "add it first"
            raise refuse(subject, repr(label)[:80], rule, remedy, where)
    if row.action not in offered or len(set(offered)) < len(offered):
        rule = "eligible lists actions once each, with the chosen one among them"
        raise refuse("eligible", repr(offered)[:80], rule, "correct or drop the row", where)
