"""The check that everything in a store follows from its log: digests, versions, probabilities and counts."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from spuir.bandit import Bandit
from spuir.errors import ServiceError, SpuirError
from spuir.service.commands import DecisionRow
from spuir.service.experiment_view import ExperimentView, fold, read_view
from spuir.service.log_records import (
    CONTROL,
    COUNTED,
    DECISION,
    DecisionFact,
    ForgetFact,
    Record,
    decision_fact,
    is_damaged,
)
from spuir.service.serving import Serving
from spuir.service.stores.base import Head, LogReader, LogStore, damage, in_pieces
from spuir.service.versions.model_steps import change_actions, opened, under
from spuir.service.versions.rebuild import Lineup

CLOSE = 1e-9
"""Probabilities agree to this where a call of ``Bandit.decide`` cannot be repeated as a whole; else bit for bit."""
_HELD = 30
"""Models of so many versions are held while decisions are taken again."""
_REACH = 10_000
"""Rows of one call are at most this many places apart."""


@dataclass
class CheckReport:
    """What a check found: how much was checked, what is worth knowing, and what is wrong."""

    records: int = 0
    versions: int = 0
    decisions: int = 0
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def check_store(store: LogStore, decisions: bool = True) -> CheckReport:
    """Verify every record, learn every version again and, with ``decisions``, take every decision again."""
    report = CheckReport(notes=list(store.notes), problems=store.check())
    for head in store.heads():
        found = damage(store, head.name)
        report.records += head.seq
        report.problems += [f"{head.name}: record {seq:,}: {wrong}" for seq, wrong in found]
        if not found:
            try:
                _check_log(store, head, decisions, report)
                _check_counts(store, head, report)
            except SpuirError as wrong:
                report.problems.append(f"{head.name}: {wrong}")
    return report


class _Versions:
    """The versions of one experiment, learned again one after the other as they are needed."""

    def __init__(self, store: LogReader, name: str, report: CheckReport) -> None:
        self.lineup, self.report = Lineup(store, name), report
        self._replay, self._held = self.lineup.replayed(), dict[int, bytes]()
        self._reached = -1

    def advance(self, version: int | None = None) -> None:
        """Learn again up to a version, or all, and compare the digests."""
        name = self.lineup.name
        while version is None or self._reached < version:
            step = next(self._replay, None)
            if step is None:
                return
            self._reached = step.number
            self.report.versions += 1
            if step.again is None:
                note = f"{name}: version {step.number} learned rows that were erased since, so it is not learned again"
                self.report.notes.append(note)
            elif step.again != step.digest:
                wrong = f"{name}: version {step.number} has the digest {step.digest}, and its replay {step.again}"
                self.report.problems.append(wrong)
            if step.model is not None:
                self._held[step.number] = step.model
            for old in sorted(self._held)[:-_HELD]:
                del self._held[old]

    def model(self, version: int) -> Bandit:
        """Return the model of a version."""
        self.advance(version)
        held = self._held.get(version)
        return self.lineup.model(version) if held is None else opened(held, f"version {version}")


def _check_log(store: LogReader, head: Head, decisions: bool, report: CheckReport) -> None:
    """Learn every version again, and take every decision again; compare digests, actions and probabilities."""
    versions = _Versions(store, head.name, report)
    for view, calls in _calls(store, head) if decisions else ():
        servings: dict[int, Serving | None] = {}
        for rows in calls:
            version = rows[0][1].version
            if version not in servings:
                servings[version] = _serving(versions, view, version)
            serving = servings[version]
            if serving is not None:
                _check_call(serving, rows, head.name, report)
    versions.advance()
    lineup = versions.lineup
    view = read_view(store, head.name, head.seq)
    newest = -1 if view is None else view.learned.number
    for version in store.models(head.name):
        if version > newest:
            report.notes.append(f"{head.name}: the model of version {version} is being saved, or its learner died")
        elif lineup.saved(lineup.fact(version)) is None:
            report.notes.append(f"{head.name}: the saved model of version {version} is damaged and will be rebuilt")
    if view is not None:
        lineup.model(view.published)  # refuses if it cannot be served


def _serving(versions: _Versions, view: ExperimentView, version: int) -> Serving | None:
    """Return a version as it decided; None where its model cannot be had any more."""
    try:
        bandit = versions.model(version)
    except ServiceError as gone:
        versions.report.notes.append(f"{view.name}: decisions of version {version} were not taken again: {gone}")
        return None
    since = versions.lineup.fact(version).actions_at
    changes = [change for change in view.changes if change[0] > since]
    return Serving(under(change_actions(bandit, changes), view.settings), version)


def _calls(store: LogReader, head: Head) -> Iterator[tuple[ExperimentView, list[list[tuple[Record, DecisionFact]]]]]:
    """Yield decisions by the call that took them, with the experiment as it was then."""
    view: ExperimentView | None = None
    open_calls: dict[int, list[tuple[Record, DecisionFact]]] = {}
    for piece in in_pieces(store, head.name, 1, head.seq, (DECISION, *CONTROL)):
        for record in piece:
            if record.kind != DECISION:
                if view is not None and open_calls:
                    yield view, list(open_calls.values())
                    open_calls = {}
                view = fold(view, head.name, record)
            elif record.payload is not None:
                fact = decision_fact(record)
                if not fact.imported:
                    open_calls.setdefault(fact.call, []).append((record, fact))
        done = [call for call, rows in open_calls.items() if rows[-1][0].seq < piece[-1].seq - _REACH]
        if view is not None and done:
            yield view, [open_calls.pop(call) for call in done]
    if view is not None and open_calls:
        yield view, list(open_calls.values())


def _check_call(serving: Serving, rows: list[tuple[Record, DecisionFact]], name: str, report: CheckReport) -> None:
    """Repeat one call; where rows of it were erased, repeat the rest row by row."""
    numbers = [fact.row for _, fact in rows]
    keyed = numbers[0] is None
    whole = rows[0][0].seq == rows[0][1].call
    whole = whole and (keyed or numbers == list(range(numbers[0] or 0, (numbers[0] or 0) + len(rows))))
    for part in [rows] if whole else [[row] for row in rows]:
        asked = [
            DecisionRow(context=fact.context, eligible=fact.eligible, action_features=fact.action_features)
            for _, fact in part
        ]
        drawn = serving.decide(asked, [record.key for record, _ in part] if keyed else None, part[0][1].row or 0)
        for at, (record, fact) in enumerate(part):
            report.decisions += 1
            action = fact.action if fact.shadow is None else fact.shadow
            propensity = drawn.propensities[at] if fact.shadow is None else 1.0
            near = abs(propensity - (fact.propensity or 0.0)) <= CLOSE
            same = propensity == fact.propensity
            if drawn.actions[at] != action or not near:
                got = f"{action!r} with {fact.propensity}"
                again = f"{drawn.actions[at]!r} with {propensity}"
                report.problems.append(f"{name}: decision {record.key!r} was {got}, and taken again is {again}")
            elif not same:
                report.notes.append(f"{name}: decision {record.key!r} agrees to {CLOSE:g} only")


def _check_counts(store: LogReader, head: Head, report: CheckReport) -> None:
    """Count the records of each kind, and compare with the running counts."""
    counts = head.facts.get("counts", {})
    found = dict.fromkeys(COUNTED.values(), 0)
    place = 1
    while piece := store.stored(head.name, place, head.seq, tuple(COUNTED)):
        for record in piece:
            found[COUNTED[record.kind]] += record.rows
        place = piece[-1].seq + 1
    for name, count in found.items():
        if counts.get(name, 0) != count:
            running = counts.get(name, 0)
            report.problems.append(f"{head.name}: the log has {count:,} {name}, and the running count is {running:,}")


def repair_store(store: LogStore) -> list[str]:
    """Give up damaged payloads of decisions and rewards, as if they had been erased, and say so in the log.

    Nothing else is touched: a record whose place, time, kind, key or chain is damaged needs a backup.
    """
    done: list[str] = []
    for head in store.heads():
        lost: list[int] = []
        for seq, wrong in damage(store, head.name):
            found = store.stored(head.name, seq, seq)
            if not found or not is_damaged(found[0]) or found[0].kind not in COUNTED or "payload" not in wrong:
                remedy = "restore a backup of the store"
                got, rule = f"record {seq:,}: {wrong}", "only payloads of decisions and rewards can be given up"
                raise ServiceError("storage_unavailable", f"log {head.name!r}", got, rule, remedy)
            lost.append(seq)
        if lost:
            from spuir.service.drafting import Draft

            with store.transaction() as writer:
                locked = writer.lock(head.name)
                if locked is None:
                    continue
                writer.erase(head.name, lost)
                draft = Draft.bare(writer, locked)
                draft.add("repair", str(locked.seq + 1), ForgetFact.of(lost, "damage"))
                draft.flush()
            done.append(f"log {head.name!r}: {len(lost)} damaged payloads were given up: records {lost[:10]}")
    return done
