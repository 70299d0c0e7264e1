"""Decisions in one table, rewards in another, joined by id: tables of any size, in bounded memory.

DuckDB sorts the rows of both tables by id. We combine the rewards of each decision by the rules of an episode, and
write one outcome per decision to a file. The joined log reads the decisions once more, part by part, together with
their outcomes.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spuir.base.counting import counted
from spuir.base.hashing import digest
from spuir.base.parameters import COUNT, check_value
from spuir.base.records import Mask
from spuir.errors import InputError
from spuir.logs.column_plan import ColumnPlan, PlannedColumn
from spuir.logs.columns import COLUMNS, declaring, renaming
from spuir.logs.cut import written
from spuir.logs.formats import Faults
from spuir.logs.log import Log
from spuir.logs.open import open_log
from spuir.logs.parts import DerivedPart
from spuir.logs.rewards import Report, RewardRules, settle
from spuir.logs.sort import sort_rows
from spuir.logs.temporary import Folder, full_disk
from spuir.logs.times import UNKNOWN, instants
from spuir.tables.arrow import pa, pc

MEMORY = 256 << 20
"""Bytes that a join may use by default."""
_OUTCOME = np.dtype([("reward", "<f8"), ("time", "<i8"), ("first", "?")])
"""What is stored per decision: its reward, when that came, and whether it is the first decision with its id."""
_FILL_ROWS = 1 << 20
_YEAR = 365 * 86_400 * 10**6
_LATEST = 1_000
"""How many of the latest times of rewards are kept, to find those that are far from all others."""


class Joined(NamedTuple):
    """The joined log, and what was counted."""

    log: Log
    report: Report


@dataclass(frozen=True, kw_only=True)
class JoinedPart(DerivedPart):
    """A part of the decisions with the outcomes of its rows.

    ``outcomes`` is the file of all outcomes, in the order of the decisions, and ``start`` the number of decisions in
    earlier parts. ``folder`` keeps the file.
    """

    outcomes: str
    start: int
    mark: str
    folder: Folder | None = field(repr=False, compare=False)

    def _chosen(
        self, columns: Sequence[str] | None, batch_rows: int, faults: Faults | None
    ) -> "Iterator[tuple[pa.RecordBatch, Mask]]":
        """Yield the decisions with their rewards, and which of them are not duplicates."""
        schema = self.plan.schema_of(columns)
        own = [name for name in schema.names if name not in ("reward", "reward_time")]
        if not os.path.exists(self.outcomes):
            rule, remedy = "the joined rewards are kept there", "keep the joined log, or share the folder (--scratch)"
            raise InputError(self.source, f"no file {self.outcomes!r}", rule, remedy)
        outcomes, start = _open_outcomes(self.outcomes, "r"), self.start
        for batch in self.base.read(own, batch_rows=batch_rows, faults=faults):
            here = outcomes[start : start + batch.num_rows]
            start += batch.num_rows
            arrays = {name: batch[name] for name in own}
            arrays["reward"] = pa.array(here["reward"], mask=np.isnan(here["reward"]))
            times = pa.array(here["time"], mask=here["time"] == UNKNOWN)
            arrays["reward_time"] = times.cast(pa.timestamp("us", "UTC"))
            yield pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema), here["first"]

    @property
    def paths(self) -> tuple[str, ...]:
        """The files of the decisions, and the file of the outcomes."""
        return (*self.base.paths, self.outcomes)

    def identity(self) -> Iterator[bytes]:
        """Yield bytes that differ when the decisions, the rewards or the rules do."""
        yield from self.base.identity()
        yield self.mark.encode()


def join_logs(
    decisions: Any,
    rewards: Any,
    *,
    default: float | None = 0.0,
    aggregation: str = "earliest",
    window: Any = None,
    late: str = "drop",
    as_of: Any = None,
    memory: int = MEMORY,
    folder: str | os.PathLike[str] | None = None,
) -> Joined:
    """Give each decision its reward from another table, by ``decision_id``.

    Parameters
    ----------
    decisions, rewards
        Logs, or what :func:`open_log` takes. Decisions need ``decision_id`` and ``action``; rewards ``decision_id``
        and ``reward``, and when they came in ``reward_time`` or ``time``.
    default, aggregation, window, late
        As in :class:`spuir.Episode`. With ``default=None`` a decision without rewards is kept, without a reward.
    as_of
        With a window: the time until which rewards are complete; None = that of the last reward. A decision whose
        window ends later is kept, without a reward.
    memory
        Approximate memory limit of the join in bytes; at least 64 MiB are used.
    folder
        Where temporary files go; None = the folder of the system. They are removed with the joined log.

    Returns
    -------
    Joined
        ``log`` has the parts and the order of the decisions; of decisions with the same id it keeps the first.
        ``report`` counts duplicates, orphans, late and other rewards, and decisions whose window is still open.
    """
    rules = RewardRules(default=default, aggregation=aggregation, window=window, late=late)
    check_value("memory", memory, COUNT, "the default is 256 MiB")
    left = decisions if isinstance(decisions, Log) else open_log(decisions, kind="decisions")
    right = rewards if isinstance(rewards, Log) else open_log(rewards, kind="rewards")
    _check(left, right, rules)
    end = _End(None if as_of is None else int(instants(as_of, 1, "as_of")[0]))
    kept = Folder(folder)
    try:
        with full_disk(kept.path):
            return _join(left, right, rules, end, memory, kept)
    except BaseException:
        kept.remove()
        raise


def _check(decisions: Log, rewards: Log, rules: RewardRules) -> None:
    """Refuse tables that cannot be joined."""
    kinds: list[Any] = []
    for what, log, needed in (("decisions", decisions, "action"), ("rewards", rewards, "reward")):
        for name in ("decision_id", needed):
            if name not in log.schema.names:
                rule = f"{what} need a column {name!r}"
                raise InputError(what, "no such column", rule, f"name it: {renaming('…', name, what)}")
        kinds.append(log.schema.field("decision_id").type)
    if not kinds[0].equals(kinds[1]):
        got = f"{kinds[0]} in decisions and {kinds[1]} in rewards"
        what, log = ("rewards", rewards) if pa.types.is_string(kinds[0]) else ("decisions", decisions)
        (raw,) = (one.raw for one in log.plan.fields if one.name == "decision_id")
        remedy = f"open the {what} with {declaring(raw, 'string', what)}"
        raise InputError("decision_id", got, "ids have one type in both tables", remedy)
    for name in ("reward", "reward_time"):
        if name in decisions.schema.names:
            rule = "rewards are read from the other table"
            raise InputError("decisions", f"a column {name!r}", rule, f"leave it out: {renaming(name, None)}")
    if rules.window is not None and not ("time" in decisions.schema.names and _time_of(rewards)):
        what = "rewards" if "time" in decisions.schema.names else "decisions"
        rule = f"a window needs the times of decisions and rewards, and the {what} have no column 'time'"
        remedy = f"name it: {renaming('…', 'time', what)}, or leave the window out"
        raise InputError("window", repr(rules.window), rule, remedy)


def _time_of(rewards: Log) -> str | None:
    """Return the column that says when rewards came."""
    return next((name for name in ("reward_time", "time") if name in rewards.schema.names), None)


class _End:
    """The time until which rewards are complete: given, or the time of the last reward."""

    def __init__(self, given: int | None) -> None:
        self.given, self.first, self.rewards = given, np.iinfo(np.int64).max, 0
        self.latest = np.full(1, UNKNOWN, np.int64)  # the latest times of rewards, in order

    @property
    def time(self) -> int:
        """The time in microseconds; before every decision if there is no reward."""
        return int(self.latest[-1]) if self.given is None else self.given

    def see(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        """Update the times of the first and the last rewards from a batch."""
        times = batch["time"].to_numpy()
        times = times[times != UNKNOWN]
        self.first, self.rewards = min(self.first, times.min(initial=self.first)), self.rewards + len(times)
        self.latest = np.sort(np.append(self.latest, times[times > self.latest[0]]))[-_LATEST:]
        return batch

    def check(self) -> None:
        """Raise if the last rewards, at most 1 % of them, came years after all others: such a time is a mistake."""
        gaps = np.diff(self.latest[self.latest != UNKNOWN])
        at = int(np.argmax(gaps)) + 1 if len(gaps) else 0
        few = len(gaps) + 1 - at
        if self.given is None and at and few <= 0.01 * self.rewards:
            rest, gap = int(self.latest[-few - 1]), int(gaps[at - 1])
            if gap >= max(_YEAR, 3 * (rest - self.first)):
                whose = "it comes" if few == 1 else f"it and {few - 1:,} others come"
                rule = f"{whose} {gap / _YEAR:.0f} years after the rest, which end at {written(rest)}"
                remedy = "correct or drop such rewards, or say until when they are complete (--as-of, as_of=)"
                raise InputError("time of the last reward", written(self.time), rule, remedy)

    def notice(self, rules: RewardRules, report: Report) -> list[str]:
        """Return what the user should know of open windows; raise if no decision has its reward."""
        if not report.open:
            return []
        if self.time == UNKNOWN:
            ended = "without a single reward"
        else:
            ended = f"at {written(self.time)}, the {'time of the last reward' if self.given is None else 'given time'}"
        if report.open == report.decisions:
            got, rule = f"{rules.window!r}", f"{ended}, the window of all {report.decisions:,} decisions is still open"
            remedy = "wait for the rewards, or say until when they are complete (--as-of, as_of=)"
            raise InputError("window", got, rule, remedy)
        left = counted(report.open, "decision")
        whose = f"Left out: {left} whose window of {rules.window} was still open {ended}"
        return [f"{whose}. If rewards are complete until another time, name it (--as-of, as_of=)."]


def _join(decisions: Log, rewards: Log, rules: RewardRules, end: _End, memory: int, folder: Folder) -> Joined:
    """Write the outcome of every decision to a file, and return the joined log."""
    ids = decisions.schema.field("decision_id").type
    schema = pa.schema([("id", ids), ("number", pa.int64()), ("time", pa.int64()), ("reward", pa.float64())])
    starts = [0]
    path = os.path.join(folder.path, "outcomes")
    events = sort_rows(schema, _events(decisions, rewards, starts, end), "id, number", folder.path, memory)
    report, outcomes = Report(), np.empty(0, _OUTCOME)
    for at, table in enumerate(_whole_ids(events)):
        if at == 0:
            # Both tables have been read before the first row is there, so that the decisions are counted.
            if rules.window is not None:
                end.check()
            outcomes = _create_outcomes(path, starts[-1])
        report += _settle(rules, table, outcomes, end.time)
    notices = end.notice(rules, report)
    rows = [int(np.count_nonzero(outcomes["first"][start:stop])) for start, stop in pairwise(starts)]
    mark = digest(rewards.fingerprint(), repr(rules), repr(end.given))
    log = _joined_log(decisions, rewards, mark, starts, rows, path, folder)
    return Joined(replace(log, notices=(*log.notices, *notices)), report)


def _events(decisions: Log, rewards: Log, starts: list[int], end: _End) -> "Iterator[pa.RecordBatch]":
    """Yield the decisions, then the rewards, numbered; append to ``starts`` the number of the row after each part."""
    number = 0
    for part in decisions.parts:
        for batch in part.read([name for name in ("decision_id", "time") if name in decisions.schema.names]):
            ids = batch["decision_id"]
            if ids.null_count:
                missing = int(np.argmax(ids.is_null().to_numpy(zero_copy_only=False)))
                row = part.source_row(number - starts[-1] + missing)
                rule = "every decision has an id"
                raise InputError(f"{part.source}, row {row}", "no decision_id", rule, "fill or drop that row")
            yield _event_batch(batch, number, "time")
            number += batch.num_rows
        starts.append(number)
    time = _time_of(rewards)
    for batch in rewards.batches(["decision_id", "reward", *([time] if time else [])]):
        yield end.see(_event_batch(batch, number, time))
        number += batch.num_rows


def _event_batch(batch: "pa.RecordBatch", start: int, time: str | None) -> "pa.RecordBatch":
    """Return id, number, time in microseconds and reward of each row; a decision has no reward."""
    rows, names = batch.num_rows, batch.schema.names
    unknown = pa.array(np.full(rows, UNKNOWN, np.int64))
    columns = [
        batch["decision_id"],
        pa.array(np.arange(start, start + rows)),
        batch[time].cast(pa.int64()).fill_null(UNKNOWN) if time in names else unknown,
        batch["reward"] if "reward" in names else pa.nulls(rows, pa.float64()),
    ]
    return pa.record_batch(columns, ["id", "number", "time", "reward"])


def _whole_ids(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.Table]":
    """Yield rows that are sorted by id in tables that hold all rows of an id."""
    waiting: list[Any] = []
    for batch in batches:
        # The next batch may begin with further rows of the last id of this one.
        edge = int(np.flatnonzero(_first_of_id(batch["id"]))[-1])
        if edge:
            yield pa.Table.from_batches([*waiting, batch.slice(0, edge)])
            waiting = []
        waiting.append(batch.slice(edge))
    if waiting:
        yield pa.Table.from_batches(waiting)


def _first_of_id(ids: "pa.Array") -> Mask:
    """Return whether each of the sorted ids (n,) differs from the one before; a missing id differs from all."""
    changes = pc.not_equal(ids[1:], ids[:-1]).fill_null(True)
    return np.concatenate([[True], changes.to_numpy(zero_copy_only=False)])


def _settle(rules: RewardRules, table: "pa.Table", outcomes: NDArray[Any], as_of: int) -> Report:
    """Write the outcomes of the decisions in a table of rows sorted by id and number, and return what was counted."""
    ids = table["id"].combine_chunks()
    numbers, times = table["number"].to_numpy(), table["time"].to_numpy()
    is_reward = numbers >= len(outcomes)
    first = _first_of_id(ids)
    # Decisions sort before rewards: an id has a decision if its first row is one.
    decides = first & ~is_reward
    latest = np.maximum.accumulate(np.where(first, np.arange(len(first)), 0))
    owners = np.where(decides[latest], np.cumsum(decides)[latest] - 1, -1)
    rewards = table["reward"].to_numpy()[is_reward]
    ids_of_rewards = ids.filter(pa.array(is_reward))
    settled = settle(rules, times[decides], owners[is_reward], rewards, times[is_reward], ids_of_rewards, as_of)
    made = np.empty(len(settled.rewards), _OUTCOME)
    made["reward"], made["time"], made["first"] = settled.rewards, settled.times, True
    outcomes[numbers[decides]] = made
    return settled.report + Report(duplicates=int(np.count_nonzero(~is_reward & ~first)))


def _create_outcomes(path: str, rows: int) -> NDArray[Any]:
    """Create a file of outcomes, none of which is known yet, and return it as an array on disk."""
    with open(path, "wb") as sink:
        # Writing reserves the space: a full disk must be an error here, and not a crash of the array later.
        for start in range(0, rows, _FILL_ROWS):
            sink.write(np.zeros(min(rows - start, _FILL_ROWS), _OUTCOME).tobytes())
    return _open_outcomes(path, "r+")


def _open_outcomes(path: str, mode: Any) -> NDArray[Any]:
    return np.memmap(path, _OUTCOME, mode) if os.path.exists(path) and os.path.getsize(path) else np.empty(0, _OUTCOME)


def _joined_log(
    decisions: Log, rewards: Log, mark: str, starts: list[int], rows: list[int], path: str, folder: Folder
) -> Log:
    """Return the decisions as a log with rewards; ``rows`` counts the rows of each part without duplicates."""
    added = {"reward": pa.float64()}
    if _time_of(rewards) is not None:
        added["reward_time"] = pa.timestamp("us", "UTC")
    fields = {one.name: one for one in decisions.plan.fields}
    fields |= {name: PlannedColumn(name, name, COLUMNS[name].holds, kind) for name, kind in added.items()}
    order = [name for name in COLUMNS if name in fields] + [name for name in fields if name not in COLUMNS]
    plan = ColumnPlan(tuple(fields[name] for name in order), decisions.plan.casts, decisions.plan.unit)
    parts = tuple(
        JoinedPart(
            number=base.number,
            source=base.source,
            rows=rows[at],
            bytes=base.bytes,
            plan=plan,
            base=base,
            outcomes=path,
            start=starts[at],
            mark=mark,
            folder=folder,
        )
        for at, base in enumerate(decisions.parts)
    )
    notices = decisions.notices + rewards.notices
    return Log(parts, plan, decisions.context, decisions.format, notices, decisions.catalogue)
