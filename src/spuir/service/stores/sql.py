"""Reads and writes of a log in SQL, the same for every database; what differs is handed in by its store.

An experiment has a number, and a record's ``position`` is that number and, in the lowest 40 bits, its place in the
log, so that one primary key gives the records of an experiment in order.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from spuir.errors import ServiceError
from spuir.service.log_records import CONTROL, DECISION, DECISIONS, Record, encode, held_in, place_in
from spuir.service.stores.base import CHUNK, Head, LogReader, LogStore
from spuir.storage.atomic import sync_folder

PLACES = 40
"""A record's position is its experiment's number and, in this many bits, its place."""
MASK = (1 << PLACES) - 1
COLUMNS = f"position & {MASK}, time, kind, key, payload, digest, chain, owner, due, unit, rows"
ROW = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
"""The values of one record."""
HEAD = "SELECT name, seq, time, chain, facts FROM experiment"
TRAFFIC = "kind NOT IN ({})".format(", ".join(f"'{kind}'" for kind in CONTROL))
"""What is true of the records that are not about how an experiment is run."""

SEVERAL_DECISIONS = """
    ALTER TABLE record ADD COLUMN rows INTEGER NOT NULL DEFAULT 1;
    DROP INDEX record_due;
    CREATE INDEX record_due ON record (experiment, due, rows) WHERE due IS NOT NULL;
    """
"""What brings a store to version 2, in which a record may hold several decisions."""
STEP = 100
"""So many records are read at once where each may hold many decisions."""


def wrong_end(head: Head, found: list[tuple[int, str]], remedy: str) -> ServiceError:
    """Return the error for a log whose end is damaged; ``found`` says where and how."""
    place, wrong = found[0]
    got = f"record {place:,} of {head.seq:,}: {wrong}"
    return ServiceError("storage_unavailable", f"log {head.name!r}", got, "a log is read as written", remedy)


@contextmanager
def new_backup(path: str) -> Generator[str]:
    """Yield where to write a backup, which takes the name ``path`` when it is whole; a failure leaves nothing."""
    if os.path.exists(path):
        rule = "a backup never overwrites a file"
        raise ServiceError("exists", "backup", repr(path), rule, "choose another name")
    folder, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise ServiceError("invalid", "backup", repr(path), "its folder must exist", "create it, or choose another")
    try:
        with TemporaryDirectory(prefix=".spuir-", dir=folder) as fresh:
            yield os.path.join(fresh, name)
            os.replace(os.path.join(fresh, name), path)
        sync_folder(folder)
    except OSError as failure:
        rule, remedy = "the folder must take a new file", "choose another, or correct its rights"
        raise ServiceError("storage_unavailable", f"backup {path!r}", failure.strerror, rule, remedy) from failure


class SqlReads(ABC):
    """Reads of a log; a store says how to carry out a statement with ``?`` where values go."""

    among = ""
    """The condition that a column is one of many values, with ``{}`` for the column."""

    def __init__(self, numbers: dict[str, int]) -> None:
        self._numbers = numbers

    @abstractmethod
    def _all(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return the rows of a query."""

    @abstractmethod
    def _values(self, values: Sequence[str]) -> Any:
        """Return many values as the one that :attr:`among` takes."""

    def _number(self, name: str) -> int:
        """Return the number of an experiment, −1 if there is none."""
        known = self._numbers.get(name)
        if known is None:
            found = self._all("SELECT id FROM experiment WHERE name = ?", (name,))
            if not found:
                return -1
            known = self._numbers[name] = found[0][0]
        return known

    @staticmethod
    def _as_head(row: Sequence[Any]) -> Head:
        name, seq, time, chain, facts = row
        try:
            return Head(name, seq, time, chain, msgspec.json.decode(facts))
        except (msgspec.DecodeError, ValueError, TypeError) as damaged:
            rule, remedy = "the head of a log is JSON", "run spuir serve --check, and restore a backup"
            raise ServiceError("storage_unavailable", f"log {name!r}", str(damaged), rule, remedy) from damaged

    def heads(self) -> list[Head]:
        """Return the heads of all experiments, by name."""
        return sorted(map(self._as_head, self._all(HEAD)), key=lambda head: head.name)

    def head(self, name: str) -> Head | None:
        """Return the head of one experiment."""
        rows = self._all(f"{HEAD} WHERE name = ?", (name,))
        return self._as_head(rows[0]) if rows else None

    def records(
        self, name: str, first: int, last: int, kinds: Sequence[str] | None = None, limit: int = CHUNK
    ) -> list[Record]:
        """Return the records from one place to another, in order, those of several decisions taken apart."""
        if kinds is not None and DECISION not in kinds:
            return self.stored(name, first, last, kinds, limit)
        wanted = kinds if kinds is None else (*kinds, DECISIONS)
        found: list[Record] = []
        while len(found) < limit:
            step = min(STEP, limit - len(found))
            piece = self.stored(name, first, last, wanted, step)
            for one in piece:
                found += one.singles
            if len(piece) < step:
                break
            first = piece[-1].seq + 1
        return found

    def stored(
        self, name: str, first: int, last: int, kinds: Sequence[str] | None = None, limit: int = CHUNK
    ) -> list[Record]:
        """Return the records from one place to another, in order, as they were appended."""
        base = self._number(name) << PLACES
        if base < 0:
            return []
        chosen = "" if kinds is None else f" AND kind IN ({', '.join('?' * len(kinds))})"
        if kinds is not None and set(kinds) <= set(CONTROL):
            chosen += f" AND NOT ({TRAFFIC})"  # lets the index of these records be used
        sql = f"SELECT {COLUMNS} FROM record WHERE position BETWEEN ? AND ?{chosen} ORDER BY position LIMIT ?"
        return [Record(*row) for row in self._all(sql, (base + first, base + last, *(kinds or ()), limit))]

    def find(self, name: str, kind: str, keys: Sequence[str]) -> dict[str, Record]:
        """Return the records of one kind that have these keys, by key."""
        if not keys:
            return {}
        sql = f"SELECT {COLUMNS} FROM record WHERE experiment = ? AND kind = ? AND {self.among.format('key')}"
        number = self._number(name)
        found = {row[3]: Record(*row) for row in self._all(sql, (number, kind, self._values(keys)))}
        if kind != DECISION:
            return found
        shared = list({place[0] for key in keys if (place := place_in(key)) is not None})
        if shared:
            rows = self._all(sql, (number, DECISIONS, self._values(shared)))
            found |= held_in({row[3]: Record(*row) for row in rows}, keys)
        return found

    def owned(self, name: str, ids: Sequence[str]) -> list[Record]:
        """Return rewards and activations of decisions by their ids, in order."""
        if not ids:
            return []
        chosen = self.among.format("owner")
        sql = f"SELECT {COLUMNS} FROM record WHERE experiment = ? AND {chosen} ORDER BY position"
        return [Record(*row) for row in self._all(sql, (self._number(name), self._values(ids)))]

    def settling(self, name: str, after: int, until: int) -> tuple[int, int, int]:
        """Return how many decisions settle after one time and until another, and their first and last places."""
        sql = (
            "SELECT CAST(COALESCE(SUM(rows), 0) AS BIGINT), COALESCE(MIN(position), 0), COALESCE(MAX(position), 0)"
            " FROM record WHERE experiment = ? AND due > ? AND due <= ?"
        )
        count, first, last = self._all(sql, (self._number(name), after, until))[0]
        return count, first & MASK, last & MASK

    def settles(self, name: str, after: int, count: int) -> int | None:
        """Return when the ``count``-th decision after a time settles; None if there are fewer."""
        first = "SELECT due, rows FROM record WHERE experiment = ? AND due > ? ORDER BY due LIMIT ?"
        sums = f"SELECT due, SUM(rows) OVER (ORDER BY due ROWS UNBOUNDED PRECEDING) AS total FROM ({first}) AS first"
        sql = f"SELECT due FROM ({sums}) AS sums WHERE total >= ? ORDER BY due LIMIT 1"
        rows = self._all(sql, (self._number(name), after, count, count))
        return rows[0][0] if rows else None

    def of_unit(self, name: str, unit: str) -> list[Record]:
        """Return the decisions of a unit, in order."""
        sql = f"SELECT {COLUMNS} FROM record WHERE experiment = ? AND unit = ? ORDER BY position"
        return [Record(*row) for row in self._all(sql, (self._number(name), unit))]

    def model(self, name: str, version: int) -> bytes | None:
        """Return the saved model of a version, None if there is none that can be read."""
        sql = "SELECT content FROM model WHERE experiment = ? AND version = ? ORDER BY piece"
        rows = self._all(sql, (self._number(name), version))
        sound = rows and all(isinstance(row[0], bytes) for row in rows)  # a damaged file may say that it is a number
        return b"".join(row[0] for row in rows) if sound else None

    def models(self, name: str) -> list[int]:
        """Return the versions whose models are saved, the oldest first."""
        sql = "SELECT DISTINCT version FROM model WHERE experiment = ? ORDER BY version"
        return [row[0] for row in self._all(sql, (self._number(name),))]


class SqlWrites(SqlReads):
    """Writes of one transaction; a store says how to carry out a statement many times, and how to lock a head."""

    @abstractmethod
    def _many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Carry out a statement with each row of values."""

    def append(self, head: Head, records: Sequence[Record]) -> None:
        """Add records behind the head that was locked; ``head`` is the new one."""
        number = self._number(head.name)
        if number < 0:
            first = "INSERT INTO experiment (name, seq, time, chain, facts) VALUES (?, 0, 0, ?, ?)"
            self._many(first, [(head.name, b"", b"{}")])
            number = self._number(head.name)
        base = number << PLACES
        self._insert([(base + one[0], number, *one[1:11]) for one in records])
        update = "UPDATE experiment SET seq = ?, time = ?, chain = ?, facts = ? WHERE id = ?"
        self._many(update, [(head.seq, head.time, head.chain, encode(head.facts), number)])

    def _insert(self, rows: Sequence[Sequence[Any]]) -> None:
        """Add rows to the table of records."""
        self._many(f"INSERT INTO record VALUES {ROW}", rows)

    def erase(self, name: str, seqs: Iterable[int]) -> None:
        """Overwrite the payloads of records; their digests stay."""
        base = self._number(name) << PLACES
        erase = "UPDATE record SET payload = NULL, unit = NULL WHERE position = ?"
        self._many(erase, [(base + seq,) for seq in seqs])

    def put_model(self, name: str, version: int, content: bytes, piece: int = 0) -> None:
        """Save the model of a version, or the next piece of it."""
        if piece == 0:
            self.drop_models(name, [version])
        put = (
            "INSERT INTO model (experiment, version, piece, content) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (experiment, version, piece) DO UPDATE SET content = excluded.content"
        )
        self._many(put, [(self._number(name), version, piece, content)])

    def drop_models(self, name: str, versions: Iterable[int], piece: int | None = None) -> None:
        """Delete saved models, or one piece of each."""
        drop, number = "DELETE FROM model WHERE experiment = ? AND version = ?", self._number(name)
        if piece is None:
            self._many(drop, [(number, version) for version in versions])
        else:
            self._many(f"{drop} AND piece = ?", [(number, version, piece) for version in versions])


def copy_logs(source: LogReader, target: LogStore) -> None:
    """Copy every log and saved model into an empty store, in one transaction."""
    with target.transaction() as writer:
        for end in source.heads():
            writer.append(Head(end.name), [])
            first = 1
            while records := source.stored(end.name, first, end.seq):
                writer.append(end, records)
                first = records[-1].seq + 1
            for version in source.models(end.name):
                content = source.model(end.name, version)
                if content is not None:
                    writer.put_model(end.name, version, content)
