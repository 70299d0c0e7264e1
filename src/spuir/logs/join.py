"""Decisions in one table, rewards in another, joined by id: tables of any size, in bounded memory.

Both tables are put apart on disk by a hash of their ids, with no more than ids, times and rewards. Each part is
settled in memory by the rules of an episode, and its outcomes are kept in the order of the decisions. The joined log
then reads the decisions once more, piece by piece, and takes the outcomes of each row from where its hash says.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spuir.base.hashing import digest
from spuir.base.parameters import COUNT, check_value
from spuir.base.records import Codes
from spuir.errors import InputError
from spuir.logs.column_plan import ColumnPlan, PlannedColumn
from spuir.logs.columns import COLUMNS, declaring, renaming
from spuir.logs.formats import Faults
from spuir.logs.formats.base import BATCH_ROWS
from spuir.logs.log import Log
from spuir.logs.open import open_log
from spuir.logs.parts import Part
from spuir.logs.rewards import Report, RewardRules, settle
from spuir.logs.spilling import Folder, Spill, hash_ids, read_spilled, spilled_bytes
from spuir.logs.times import UNKNOWN, Instants
from spuir.tables.arrow import arrow, compute

if TYPE_CHECKING:
    import pyarrow as pa

MEMORY = 256 << 20
"""Bytes that a join may hold at a time, about."""
_SHARE = 8
"""How many times the size of its part on disk the settling of a part takes."""
_LEAST = 1 << 16
"""Bytes below which a part is not put apart any more."""
_MOST, _FURTHER, _DEEPEST = 64, 16, 4
"""Parts at first; parts of a part that is still too large; how often that is done, as one id may be most of a table."""
_OUTCOME = np.dtype([("reward", "<f8"), ("time", "<i8"), ("first", "?")])


class Joined(NamedTuple):
    """The joined log, and what was counted."""

    log: Log
    report: Report


@dataclass(frozen=True, kw_only=True)
class JoinedPart(Part):
    """A piece of the decisions with the outcomes of its rows.

    ``outcomes`` is the file of all outcomes, part after part; ``starts`` (parts,) says where those of this piece
    begin in each part. ``folder`` keeps the file; it stays behind when the piece is sent to another process, where the
    file is found as long as the log lives.
    """

    base: Part
    outcomes: str
    starts: Codes = field(repr=False)
    mark: str
    folder: Folder | None = field(repr=False, compare=False)

    @property
    def first_row(self) -> int:
        """The number of its first decision within the source."""
        return self.base.first_row

    def read(
        self, columns: Sequence[str] | None = None, *, batch_rows: int = BATCH_ROWS, faults: Faults | None = None
    ) -> "Iterator[pa.RecordBatch]":
        """Yield its rows with their rewards, duplicated decisions left out."""
        pa = arrow()
        schema = self.plan.schema_of(columns)
        own = [name for name in schema.names if name not in ("reward", "reward_time", "decision_id")]
        outcomes = np.memmap(self.outcomes, _OUTCOME, "r") if os.path.getsize(self.outcomes) else np.empty(0, _OUTCOME)
        cursors = self.starts.copy()
        for batch in self.base.read(["decision_id", *own], batch_rows=batch_rows, faults=faults):
            found = _taken(outcomes, _parts(batch["decision_id"], len(cursors)), cursors)
            arrays = {name: batch[name] for name in batch.schema.names}
            arrays["reward"] = pa.array(found["reward"], mask=np.isnan(found["reward"]))
            times = pa.array(found["time"], mask=found["time"] == UNKNOWN)
            arrays["reward_time"] = times.cast(pa.timestamp("us", "UTC"))
            whole = pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)
            yield whole if found["first"].all() else whole.filter(pa.array(found["first"]))

    def identity(self) -> Iterator[bytes]:
        """Yield bytes that differ when the decisions, the rewards or the rules do."""
        yield from self.base.identity()
        yield self.mark.encode()

    def __getstate__(self) -> dict[str, Any]:
        """Leave the folder with the log."""
        return self.__dict__ | {"folder": None}


def _taken(outcomes: NDArray[Any], parts: Codes, cursors: Codes) -> NDArray[Any]:
    """Return the next outcomes (n,) of the parts (n,) that rows belong to, and move the cursors on."""
    found = np.empty(len(parts), _OUTCOME)
    order = np.argsort(parts, kind="stable")
    counts = np.bincount(parts, minlength=len(cursors))
    start = 0
    for part in np.flatnonzero(counts):
        rows, at = counts[part], cursors[part]
        found[order[start : start + rows]] = outcomes[at : at + rows]
        cursors[part] += rows
        start += rows
    return found


def _parts(ids: "pa.Array", count: int, divisor: int = 1) -> Codes:
    """Return which of ``count`` parts each id (n,) belongs to; another divisor asks other digits of the hash."""
    if count == 1:
        return np.zeros(len(ids), np.intp)
    return (hash_ids(ids) // np.uint64(divisor) % np.uint64(count)).astype(np.intp)


def join_logs(
    decisions: Any,
    rewards: Any,
    *,
    default: float | None = 0.0,
    aggregation: str = "earliest",
    window: Any = None,
    late: str = "drop",
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
        As in :class:`spuir.Episode`. With ``default=None`` a decision that hears nothing stays, without a reward.
    memory
        Bytes to hold at a time, about.
    folder
        BatchLocation temporary files go; None = where the system has them. They are removed with the joined log.

    Returns
    -------
    Joined
        ``log`` has the pieces and the order of the decisions, and their first row where an id stands twice; ``report``
        counts duplicates, orphans, late and other rewards.
    """
    rules = RewardRules(default=default, aggregation=aggregation, window=window, late=late)
    check_value("memory", memory, COUNT, "the default is 256 MiB")
    left = decisions if isinstance(decisions, Log) else open_log(decisions, kind="decisions")
    right = rewards if isinstance(rewards, Log) else open_log(rewards, kind="rewards")
    _check(left, right, rules)
    kept = Folder(folder)
    try:
        return _Join(left, right, rules, memory, kept).run()
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
                raise InputError(what, "no such column", rule, f"say which one it is: {renaming('…', name, what)}")
        kinds.append(log.schema.field("decision_id").type)
    if not kinds[0].equals(kinds[1]):
        got = f"{kinds[0]} in decisions and {kinds[1]} in rewards"
        rule = "ids have one type in both tables"
        raise InputError("decision_id", got, rule, f"open both with {declaring('decision_id', 'string')}")
    for name in ("reward", "reward_time"):
        if name in decisions.schema.names:
            rule = "rewards come from the other table"
            raise InputError("decisions", f"a column {name!r}", rule, f"leave it out: {renaming(name, None)}")
    if rules.window is not None and not ("time" in decisions.schema.names and _time_of(rewards)):
        rule = "a window needs the times of decisions and rewards"
        raise InputError(
            "window", repr(rules.window), rule, "give both tables a column 'time', or leave the window out"
        )


def _time_of(rewards: Log) -> str | None:
    """Return the column that says when rewards came."""
    return next((name for name in ("reward_time", "time") if name in rewards.schema.names), None)


class _Place(NamedTuple):
    """Where the outcomes of a part go, and the rows (pieces,) of it at which each piece of the decisions ends."""

    outcomes: NDArray[Any]
    ends: NDArray[np.int64]


def _outcomes(path: str, rows: int) -> NDArray[Any]:
    """Return a file of outcomes, none of them known yet, as an array that the system keeps on disk."""
    with open(path, "wb") as sink:
        sink.truncate(rows * _OUTCOME.itemsize)
    return np.memmap(path, _OUTCOME, "r+") if rows else np.empty(0, _OUTCOME)


class _Join:
    """One join under way."""

    def __init__(self, decisions: Log, rewards: Log, rules: RewardRules, memory: int, folder: Folder) -> None:
        self.decisions, self.rewards, self.rules, self.folder = decisions, rewards, rules, folder
        self.limit = max(memory // _SHARE, _LEAST)
        guess = (decisions.bytes + rewards.bytes) // self.limit
        self.count = min(1 << int(guess).bit_length(), _MOST) if guess else 1
        self.report = Report()
        self.named = 0
        self.twice = np.zeros(len(decisions.parts), np.int64)
        pa = arrow()
        ids = _wide(decisions.schema.field("decision_id").type)
        self.left = pa.schema([("id", ids), ("time", pa.int64()), ("at", pa.int64())])
        self.right = pa.schema([("id", ids), ("time", pa.int64()), ("reward", pa.float64())])

    def run(self) -> Joined:
        """Put both tables apart, settle part after part, and return the joined log."""
        with Spill(self.folder.path, "decisions", self.count, self.left) as decided:
            counts = self._spill_decisions(decided)
        with Spill(self.folder.path, "rewards", self.count, self.right) as rewarded:
            self._spill_rewards(rewarded)
        totals = counts.sum(axis=0)
        bases = np.concatenate([[0], np.cumsum(totals)])
        starts = bases[:-1] + np.cumsum(counts, axis=0) - counts
        path = os.path.join(self.folder.path, "outcomes")
        outcomes = _outcomes(path, int(bases[-1]))
        for part in range(self.count):
            place = _Place(outcomes[bases[part] : bases[part + 1]], np.cumsum(counts[:, part]))
            self._settle(decided.paths[part], rewarded.paths[part], place, _MOST)
        return Joined(self._log(path, starts, counts.sum(axis=1) - self.twice), self.report)

    def _spill_decisions(self, spill: Spill) -> NDArray[np.int64]:
        """Write ids and times of the decisions, and return how many rows of each piece went to each part."""
        pa = arrow()
        timed = "time" in self.decisions.schema.names
        counts = np.zeros((len(self.decisions.parts), self.count), np.int64)
        seen = np.zeros(self.count, np.int64)
        for at, piece in enumerate(self.decisions.parts):
            row = 0
            for batch in piece.read(["decision_id", "time"] if timed else ["decision_id"]):
                ids = batch["decision_id"]
                if ids.null_count:
                    row += piece.first_row + int(np.argmax(ids.is_null().to_numpy(zero_copy_only=False)))
                    rule = "every decision has an id"
                    raise InputError(f"{piece.source}, row {row}", "no decision_id", rule, "fill or drop that row")
                row += batch.num_rows
                parts = _parts(ids, self.count)
                times = _instants(batch["time"] if timed else None, len(ids))
                places = _places(parts, seen)
                columns = [ids.cast(_wide(ids.type)), pa.array(times), pa.array(places)]
                seen += (added := spill.write(pa.RecordBatch.from_arrays(columns, ["id", "time", "at"]), parts))
                counts[at] += added
        return counts

    def _spill_rewards(self, spill: Spill) -> None:
        pa = arrow()
        timed = _time_of(self.rewards)
        for batch in self.rewards.batches(["decision_id", "reward", *([timed] if timed else [])]):
            ids = batch["decision_id"]
            times = _instants(batch[timed] if timed else None, len(ids))
            columns = [ids.cast(_wide(ids.type)), pa.array(times), batch["reward"]]
            spill.write(pa.RecordBatch.from_arrays(columns, ["id", "time", "reward"]), _parts(ids, self.count))

    def _settle(self, decided: str, rewarded: str, place: "_Place", divisor: int, depth: int = 0) -> None:
        """Settle one part, put apart further while it is too large, and remove its files."""
        if spilled_bytes(decided) + spilled_bytes(rewarded) <= self.limit or depth == _DEEPEST:
            self._settle_whole(decided, rewarded, place)
            return
        self.named += 1
        left = self._apart(decided, f"decisions-{self.named}", self.left, divisor)
        right = self._apart(rewarded, f"rewards-{self.named}", self.right, divisor)
        for one, other in zip(left, right, strict=True):
            self._settle(one, other, place, divisor * _FURTHER, depth + 1)

    def _apart(self, path: str, name: str, schema: "pa.Schema", divisor: int) -> list[str]:
        with Spill(self.folder.path, name, _FURTHER, schema) as spill:
            for batch in read_spilled(path):
                spill.write(batch, _parts(batch["id"], _FURTHER, divisor))
        _remove(path)
        return spill.paths

    def _settle_whole(self, decided: str, rewarded: str, place: "_Place") -> None:
        pc = compute()
        pa = arrow()
        left = pa.Table.from_batches(list(read_spilled(decided)), self.left)
        right = pa.Table.from_batches(list(read_spilled(rewarded)), self.right)
        _remove(decided)
        _remove(rewarded)
        if not left.num_rows and not right.num_rows:
            return
        coded = left["id"].combine_chunks().dictionary_encode()
        codes = coded.indices.to_numpy(zero_copy_only=False)
        _, first = np.unique(codes, return_index=True)
        found = pc.index_in(right["id"].combine_chunks(), value_set=coded.dictionary, skip_nulls=True)
        owners = found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.intp)
        rewards = right["reward"].to_numpy()
        times = right["time"].to_numpy()
        settled = settle(self.rules, left["time"].to_numpy()[first], owners, rewards, times, _Named(right["id"]))
        rows = left["at"].to_numpy()
        made = np.empty(len(first), _OUTCOME)
        made["reward"], made["time"], made["first"] = settled.rewards, settled.times, True
        place.outcomes[rows[first]] = made
        again = np.searchsorted(place.ends, np.delete(rows, first), side="right")
        self.twice += np.bincount(again, minlength=len(self.twice))
        self.report += settled.report + Report(duplicates=len(again))

    def _log(self, path: str, starts: Codes, rows: NDArray[np.int64]) -> Log:
        pa = arrow()
        plan = self.decisions.plan
        added = {"reward": pa.float64(), "reward_time": pa.timestamp("us", "UTC")}
        if _time_of(self.rewards) is None:
            del added["reward_time"]
        fields = {one.name: one for one in plan.fields}
        fields |= {name: PlannedColumn(name, name, COLUMNS[name].holds, kind) for name, kind in added.items()}
        order = [name for name in COLUMNS if name in fields] + [name for name in fields if name not in COLUMNS]
        joined = ColumnPlan(tuple(fields[name] for name in order), plan.casts, plan.unit)
        mark = digest(self.rewards.fingerprint(), repr(self.rules))
        pieces = [
            JoinedPart(
                number=base.number,
                source=base.source,
                rows=int(rows[at]),
                bytes=base.bytes,
                plan=joined,
                base=base,
                outcomes=path,
                starts=starts[at],
                mark=mark,
                folder=self.folder,
            )
            for at, base in enumerate(self.decisions.parts)
        ]
        log = self.decisions
        return Log(tuple(pieces), joined, log.context, log.format, log.notices + self.rewards.notices)


class _Named:
    """Ids by row for refusals, so that they become Python objects only where one is shown."""

    def __init__(self, ids: "pa.ChunkedArray") -> None:
        self._ids = ids

    def __getitem__(self, row: int) -> Any:
        return self._ids[row].as_py()


def _wide(kind: "pa.DataType") -> "pa.DataType":
    """Return the type of ids on disk: texts with room for more than two gigabytes of them."""
    pa = arrow()
    return pa.large_string() if pa.types.is_string(kind) else kind


def _instants(times: "pa.Array | None", length: int) -> Instants:
    """Return times (n,) as microseconds."""
    if times is None:
        return np.full(length, UNKNOWN, np.int64)
    return times.cast(arrow().int64()).fill_null(UNKNOWN).to_numpy()


def _places(parts: Codes, seen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place (n,) of each row within its part, of which ``seen`` (parts,) rows came before."""
    order = np.argsort(parts, kind="stable")
    starts = np.searchsorted(parts[order], np.arange(len(seen)))
    places = np.empty(len(parts), np.int64)
    places[order] = np.arange(len(parts)) - starts[parts[order]] + seen[parts[order]]
    return places


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.remove(path)
