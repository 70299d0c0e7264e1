"""A look through a log before training: what is in it, what is wrong with it, and what to do about that."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from spuir.errors import InputError
from spuir.logs.columns import ACTION_FEATURE, ACTION_PREFIX, COLUMNS
from spuir.logs.cut import Cut, cut_episodes
from spuir.logs.doctor.catalogue_checks import ActionFeatureCheck
from spuir.logs.doctor.checks import (
    ActionCheck,
    Check,
    CheckedBatch,
    EpisodeCheck,
    IdCheck,
    TimeCheck,
    WeightCheck,
)
from spuir.logs.doctor.context_checks import ContextCheck
from spuir.logs.doctor.findings import SEVERITIES, BatchLocation, Finding, ProblemRow, ProblemRows, finding, numbers
from spuir.logs.doctor.propensity_checks import EligibleCheck, ProbabilityCheck, PropensityCheck
from spuir.logs.doctor.reward_checks import RewardCheck
from spuir.logs.formats.base import Faults
from spuir.logs.log import Log
from spuir.logs.parts import DerivedPart, Part
from spuir.logs.rewards import Report
from spuir.tables.arrow import is_date, pa
from spuir.tables.encoder import LEARNING_ROWS, Encoder, check_options

Watcher = Callable[[int], object]
UNIT_NAMES = ("user", "user_id", "userid", "customer", "customer_id", "customerid", "visitor_id", "client_id")
"""What a column of units is often called."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What was found in a log.

    Parameters
    ----------
    format, sources, rows, bytes
        What kind of log it is, where it lies, and how much there is.
    columns
        One line for each column: its name, role, type, how many values are missing, and the features it gives.
    actions
        How often each action was taken, by label, the most frequent first.
    features
        How many features d an encoder makes of the context; None where it cannot.
    episodes
        How many there are, by what, and how large; None where nothing says how to cut them.
    findings
        The worst first.
    catalogue
        How many labels and which features the catalogue has, and which features vary; None without a catalogue.
    """

    format: str
    sources: tuple[str, ...]
    rows: int
    bytes: int
    columns: tuple[Mapping[str, Any], ...]
    actions: Mapping[str, int]
    features: int | None
    episodes: Mapping[str, Any] | None
    findings: tuple[Finding, ...]
    catalogue: Mapping[str, Any] | None = None

    @property
    def severity(self) -> int:
        """0 where nothing or only notes were found, 1 for warnings, 2 for errors: the exit code of the command."""
        return max((SEVERITIES.index(finding.severity) for finding in self.findings), default=0)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        return {
            "format": self.format,
            "sources": list(self.sources),
            "rows": self.rows,
            "bytes": self.bytes,
            "columns": [dict(line) for line in self.columns],
            "actions": dict(self.actions),
            "features": self.features,
            "episodes": None if self.episodes is None else dict(self.episodes),
            "severity": SEVERITIES[self.severity] if self.findings else "fine",
            "findings": [finding.to_dict() for finding in self.findings],
            "catalogue": None if self.catalogue is None else dict(self.catalogue),
        }


def examine(
    log: Log,
    *,
    batch_size: int | None = None,
    every: Any = None,
    encoding: Mapping[str, Any] | None = None,
    joined: Report | None = None,
    watch: Watcher | None = None,
) -> Diagnosis:
    """Look through a log once, in bounded memory, and return what was found.

    Parameters
    ----------
    log
        What ``open_log`` returned, or the log of what ``join_logs`` did.
    batch_size, every
        How it would be cut into episodes; a column ``episode`` takes precedence.
    encoding
        What :meth:`spuir.Encoder.fit` would be given: ``scale``, ``hashing``, ``max_levels``, ``kinds``.
    joined
        What ``join_logs`` reported, if the rewards come from another table.
    watch
        Called with the number of rows seen so far.

    Notes
    -----
    Memory does not grow with the rows: of decision ids at most four million are held, beyond that those with certain
    hashes, all rows of each; up to 256 levels of a column are followed; an encoder learns from the first 100,000 rows.
    """
    check_options(encoding or {})
    encoder, refused = _encoder(log, encoding or {})
    cut = None
    if "episode" in log.schema.names or batch_size is not None or every is not None:
        cut = cut_episodes(log, batch_size, every)
    checks = _checks(log, encoder, cut, scaled=bool((encoding or {}).get("scale")))
    faults = Faults()
    parts = _look(log, checks, faults, watch)
    rows = sum(count for _, count in parts)
    seen = _seen(checks, joined)
    whole = joined is not None and not joined.duplicates  # then rows have the numbers that they have in the source
    if not whole and any(isinstance(part, DerivedPart) for part, _ in parts):
        seen = [replace(one, rows=tuple(_in_source(parts, row) for row in one.rows)) for one in seen]
    found = [*refused, *_faults(faults), *_joined(joined), *_absent(log), *seen]
    return _diagnosis(log, rows, encoder, checks, found)


class LogChecks(NamedTuple):
    """The checks of a log: all of them, and those whose counts are shown too."""

    every: Sequence[Check]
    actions: ActionCheck
    episodes: EpisodeCheck | None
    contexts: ContextCheck | None


def _diagnosis(log: Log, rows: int, encoder: Encoder | None, checks: LogChecks, found: Sequence[Finding]) -> Diagnosis:
    """Return what was found, the worst first, with what the log holds."""
    ranked = sorted(found, key=lambda one: -SEVERITIES.index(one.severity))
    return Diagnosis(
        format=log.format,
        sources=tuple(dict.fromkeys(part.source for part in log.parts)),
        rows=rows,
        bytes=log.bytes,
        columns=_columns(log, encoder, checks.contexts),
        actions=_frequencies(checks.actions),
        features=None if encoder is None else encoder.width,
        episodes=_sizes(checks.episodes),
        findings=(*ranked, *(finding("reading", None, notice) for notice in log.notices)),
        catalogue=_described(log),
    )


def _described(log: Log) -> dict[str, Any] | None:
    """Return what the catalogue of a log holds, and which features of actions are columns of the log."""
    if log.catalogue is None and not log.action_columns:
        return None
    found = log.catalogue
    return {
        "source": None if found is None else found.source,
        "actions": 0 if found is None else found.table.num_rows,
        "features": [] if found is None else list(found.features),
        "per_decision": [name.removeprefix(ACTION_PREFIX) for name in log.action_columns],
        "repeated": 0 if found is None else found.repeated,
        "conflicts": {} if found is None else dict(found.conflicts),
    }


def _seen(checks: LogChecks, joined: Report | None) -> list[Finding]:
    """Return what the checks found, without rewards that are missing because their window is still open."""
    awaited = 0 if joined is None else joined.open
    found = [one for check in checks.every for one in check.findings()]
    return [one for one in found if one.check != "missing reward" or one.count != awaited]


def _look(log: Log, checks: LogChecks, faults: Faults, watch: Watcher | None) -> list[tuple[Part, int]]:
    """Show every batch of a log to the checks; return the parts, each with its number of rows."""
    row, rows, source, sizes = 0, 0, None, list[tuple[Part, int]]()
    for part in log.parts:
        # Counted here, since a part of a large text file does not know how many rows come before it.
        row, source, before = (row if part.source == source else 0), part.source, rows
        for batch in part.read(faults=faults):
            where = BatchLocation(part.source, row, rows)
            view = CheckedBatch(batch, where, checks.actions.encode(batch, where), numbers(batch["reward"]))
            for check in checks.every:
                check.look(view)
            row, rows = row + batch.num_rows, rows + batch.num_rows
            if watch is not None:
                watch(rows)
        sizes.append((part, rows - before))
    if not rows:
        raise InputError("log", "no rows", "a log has at least one row", "check the path")
    return sizes


def _in_source(parts: Sequence[tuple[Part, int]], row: ProblemRow) -> ProblemRow:
    """Return a row, which was counted among some rows of its source, as the source counts it."""
    number = row.row
    for part, count in parts:
        if part.source == row.source:
            if number < count:
                return row._replace(row=part.source_row(number))
            number -= count
    return row


def _encoder(log: Log, encoding: Mapping[str, Any]) -> tuple[Encoder | None, list[Finding]]:
    """Return an encoder of the first rows, or why there is none."""
    if not log.context:
        return None, [finding("no context", None, "there is no context column.")]
    head = log.head(LEARNING_ROWS, log.context)
    if not head.num_rows:
        return None, []
    try:
        return Encoder.fit(head, **encoding), []
    except InputError as refusal:
        problem = f"{refusal.subject} cannot be encoded: got {refusal.got}, but {refusal.rule}."
        return None, [finding("encoding", None, problem, f"{refusal.remedy}.")]


def _checks(log: Log, encoder: Encoder | None, cut: Cut | None, *, scaled: bool) -> LogChecks:
    """Return the checks that apply to the columns of a log."""
    actions = ActionCheck(described=log.catalogue is not None)
    columns: list[Check] = [
        actions,
        RewardCheck(),
        PropensityCheck(actions),
        ProbabilityCheck(),
        EligibleCheck(actions),
        IdCheck(),
        TimeCheck(),
        WeightCheck(),
    ]
    if log.catalogue is not None or log.action_columns:
        columns.append(ActionFeatureCheck(actions, log.catalogue, log.action_columns))
    episodes = None if cut is None else EpisodeCheck(cut)
    contexts = ContextCheck(log.context, actions, encoder, scaled=scaled) if log.context else None
    every = [check for check in columns if set(check.columns) <= set(log.schema.names)]
    every += [check for check in (episodes, contexts) if check is not None]
    return LogChecks(every, actions, episodes, contexts)


def _faults(faults: Faults) -> list[Finding]:
    """Return the broken rows that the reader skipped."""
    rows = [ProblemRow(one.path, one.line, one.why) for one in faults.first]
    found = ProblemRows(faults.count, rows).finding("broken rows", None, "there are broken rows.")
    for why, count in faults.skipped.items():
        found += ProblemRows(count).finding("skipped rows", None, f"there are rows that are left out: {why}.")
    return found


def _joined(report: Report | None) -> list[Finding]:
    """Return what is wrong with rewards from another table."""
    if report is None:
        return []
    filled = report.silent > 0 and report.default is not None
    found = [finding("silent decisions" if filled else "joined rewards", None, str(report))]
    if report.silent == report.decisions:
        found.append(finding("no joined rewards", None, "no decision has a reward."))
    elif report.orphans > 0.01 * report.rewards:
        problem = f"{report.orphans:,} of {report.rewards:,} rewards have no decision."
        found.append(finding("orphan rewards", None, problem))
    if report.duplicates:
        problem = f"{report.duplicates:,} decisions have the id of an earlier one."
        found.append(finding("duplicate decisions", "decision_id", problem))
    return found


def _absent(log: Log) -> list[Finding]:
    """Return what follows from a column that the log does not have."""
    names, found = set(log.schema.names), list[Finding]()
    if not {"propensity", "probabilities"} & names:
        found.append(finding("no propensity", None, "the log has no propensities."))
    times = [name for name in log.context if is_date(log.schema.field(name).type)]
    if "time" not in names and len(times) == 1:
        found.append(finding("unnamed time", times[0], "it holds times, and the log has no column time."))
    units = [name for name in log.context if name.casefold().replace(" ", "_") in UNIT_NAMES]
    if "unit_id" not in names and len(units) == 1 and not pa.types.is_nested(log.schema.field(units[0]).type):
        found.append(finding("unnamed unit", units[0], "it seems to say who was decided about."))
    return found


def _columns(log: Log, encoder: Encoder | None, contexts: ContextCheck | None) -> tuple[Mapping[str, Any], ...]:
    """Return a line on each column."""
    lines: list[Mapping[str, Any]] = []
    seen = {} if contexts is None else contexts.columns_seen
    made = {} if encoder is None else {line["column"]: line for line in encoder.describe()}
    for item in log.schema:
        if item.name not in log.context:
            meaning = COLUMNS.get(item.name, ACTION_FEATURE).meaning
            lines.append({"name": item.name, "role": "canonical", "type": str(item.type), "meaning": meaning})
            continue
        inside = [name for name in seen if name == item.name or name.startswith(f"{item.name}.")]
        for name in inside or [item.name]:
            made_of = made.get(name, {"kind": None, "features": []})
            absent = seen[name].absent if name in seen else 0
            line = {"name": name, "role": "context", "type": str(item.type) if name == item.name else "member"}
            lines.append({**line, "missing": absent, "kind": made_of["kind"], "features": made_of["features"]})
    return tuple(lines)


def _frequencies(actions: ActionCheck) -> dict[str, int]:
    """Return how often each action was taken, the most frequent first."""
    order = np.argsort(-actions.counts, kind="stable")
    labels = list(actions.codes)
    return {str(labels[at]): int(actions.counts[at]) for at in order.tolist()}


def _sizes(check: EpisodeCheck | None) -> dict[str, Any] | None:
    """Return how many episodes there are, and how large."""
    if check is None or not check.sizes:
        return None
    sizes: Sequence[int] = list(check.sizes.values())
    counted = {"by": check.cut.kind, "count": len(sizes), "smallest": min(sizes), "largest": max(sizes)}
    return {**counted, "median": float(np.median(sizes))}
