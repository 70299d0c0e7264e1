"""Logs in one SQLite file: write-ahead log, every commit synchronised to the disk before it counts.

The package ``apsw`` rather than the standard library's module, because it gives the exact error of the disk, the
backup interface, and a virtual file system in which tests make the disk fail.
"""

import os
import threading
import weakref
from abc import abstractmethod
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any

import apsw

from spuir.errors import ServiceError
from spuir.service.log_records import encode
from spuir.service.stores.base import TAIL, Head, damage, mended_facts
from spuir.service.stores.file_lock import take
from spuir.service.stores.sql import (
    PLACES,
    ROW,
    SEVERAL_DECISIONS,
    TRAFFIC,
    SqlReads,
    SqlWrites,
    new_backup,
    wrong_end,
)

SCHEMA_VERSION = 2
_SMALLEST = 512
_FULL = "database or disk is full"
"""What SQLite says; a copy of a database says "not an error"."""
_APPLICATION = 0x53505549  # "SPUI": what `file` shows, and what tells our files from others
_MIGRATIONS: tuple[str, ...] = (
    f"""
    CREATE TABLE experiment (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, seq INTEGER NOT NULL, time INTEGER NOT NULL,
        chain BLOB NOT NULL, facts BLOB NOT NULL
    ) STRICT;
    CREATE TABLE record (
        position INTEGER PRIMARY KEY, experiment INTEGER NOT NULL, time INTEGER NOT NULL, kind TEXT NOT NULL,
        key TEXT NOT NULL, payload BLOB, digest BLOB NOT NULL, chain BLOB NOT NULL, owner TEXT, due INTEGER, unit TEXT
    ) STRICT;
    CREATE UNIQUE INDEX record_key ON record (experiment, kind, key);
    CREATE INDEX record_owner ON record (experiment, owner) WHERE owner IS NOT NULL;
    CREATE INDEX record_due ON record (experiment, due) WHERE due IS NOT NULL;
    CREATE INDEX record_unit ON record (experiment, unit) WHERE unit IS NOT NULL;
    CREATE INDEX record_control ON record (position) WHERE NOT ({TRAFFIC});
    CREATE TABLE model (
        experiment INTEGER NOT NULL, version INTEGER NOT NULL, piece INTEGER NOT NULL, content BLOB NOT NULL,
        PRIMARY KEY (experiment, version, piece)
    ) STRICT;
    CREATE TABLE damaged (
        experiment INTEGER NOT NULL, position INTEGER NOT NULL, time INTEGER, kind TEXT, key TEXT, payload BLOB,
        digest BLOB, chain BLOB
    );
    """,
    SEVERAL_DECISIONS,
)
"""What brings a file from each version to the next."""

CHECKPOINT = 4_000
"""Pages of the write-ahead log after which they are copied to the database, by a thread beside the commits."""
_MOST_PAGES = 16 * CHECKPOINT
"""Pages after which commits wait for the copying, so that the write-ahead log is bounded."""
_AT_ONCE = (128, 32, 8, 2, 1)
"""How many records one statement adds: few sizes, so that their statements are prepared once."""
_INSERTS = {size: "INSERT INTO record VALUES " + ", ".join([ROW] * size) for size in _AT_ONCE}


class _SqliteReads(SqlReads):
    among = "{} IN (SELECT value FROM json_each(?))"

    @abstractmethod
    def _connection(self) -> apsw.Connection:
        """Return the connection to read from."""

    def _all(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        with _storage_errors():
            return self._connection().execute(sql, values).fetchall()

    def _values(self, values: Sequence[str]) -> str:
        return encode(values).decode()


class _Transaction(_SqliteReads, SqlWrites):
    """Reads and writes by the writer's connection."""

    def __init__(self, connection: apsw.Connection, numbers: dict[str, int]) -> None:
        super().__init__(numbers)
        self._writer = connection

    def _connection(self) -> apsw.Connection:
        return self._writer

    def _many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        with _storage_errors():
            self._writer.executemany(sql, rows)

    def _insert(self, rows: Sequence[Sequence[Any]]) -> None:
        """Add rows to the table of records, many by one statement, during which other threads run."""
        with _storage_errors():
            done = 0
            for size in _AT_ONCE:
                while done + size <= len(rows):
                    values = tuple(chain.from_iterable(rows[done : done + size]))
                    self._writer.execute(_INSERTS[size], values)
                    done += size

    def lock(self, name: str) -> Head | None:
        """Return the head of an experiment; the transaction has locked the whole file."""
        return self.head(name)


class SqliteStore(_SqliteReads):
    """Logs in one SQLite file.

    Parameters
    ----------
    path
        The file, made if it is missing.
    read_only
        Whether only to read, as the learner's process does.
    vfs
        A virtual file system of SQLite by name; None = that of the system.
    verify
        Whether to verify the ends of the logs; only a repair does without.
    """

    def __init__(
        self, path: str | os.PathLike[str], read_only: bool = False, vfs: str | None = None, verify: bool = True
    ) -> None:
        self.path = os.path.abspath(os.fspath(path))
        self.url, self.notes = f"sqlite:///{self.path}", list[str]()
        self._read_only, self._vfs = read_only, vfs
        self._local, self._opened = threading.local(), list[apsw.Connection]()
        self._lock, self._failed = threading.RLock(), False
        self._writer: apsw.Connection | None = None
        self._copier: threading.Thread | None = None
        self._copied = 0
        """Pages that the write-ahead log had when it was copied last."""
        super().__init__({})
        self._release = None if read_only else weakref.finalize(self, os.close, take(self.path))
        try:
            with _storage_errors(f"store {self.path!r}"):
                if not read_only:
                    self._writer = self._open_writer()
                if verify:
                    self._verify_tails()
        except BaseException:
            self.close()
            raise

    # ---- connections ----------------------------------------------------------------------------------------

    def _connect(self, flags: int) -> apsw.Connection:
        made = apsw.Connection(self.path, flags=flags, vfs=self._vfs)
        made.set_busy_timeout(10_000)
        for setting in ("synchronous = FULL", "secure_delete = ON", "cache_size = -32000", "temp_store = MEMORY"):
            made.execute(f"PRAGMA {setting}")
        return made

    def _connection(self) -> apsw.Connection:
        """Return this thread's connection for reading."""
        found: apsw.Connection | None = getattr(self._local, "connection", None)
        if found is None:
            found = self._local.connection = self._connect(apsw.SQLITE_OPEN_READONLY)
            with self._lock:
                self._opened.append(found)
        return found

    def _open_writer(self) -> apsw.Connection:
        size = os.path.getsize(self.path) if os.path.exists(self.path) else 0
        if 0 < size < _SMALLEST:  # SQLite would take the rest of a truncated file for a new one
            rule = f"a database has at least {_SMALLEST} bytes"
            raise ServiceError("storage_unavailable", f"store {self.path!r}", f"{size} bytes", rule, "restore a backup")
        made = self._connect(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        application: Any = made.execute("PRAGMA application_id").fetchall()[0][0]
        version: Any = made.execute("PRAGMA user_version").fetchall()[0][0]
        foreign = application != _APPLICATION and made.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        if version > SCHEMA_VERSION or foreign:
            rule = f"this version reads stores of spuir up to version {SCHEMA_VERSION}"
            got = f"version {version}" if application == _APPLICATION else "a file of another program"
            remedy = "upgrade spuir, or name another file"
            raise ServiceError("storage_unavailable", f"store {self.path!r}", got, rule, remedy)
        made.execute("PRAGMA journal_mode = WAL")
        after_commit = weakref.WeakMethod(self._after_commit)  # so that a store nobody holds is closed

        def hook(writer: apsw.Connection, schema: str, pages: int) -> int:
            found = after_commit()
            if found is not None:
                found(writer, pages)
            return apsw.SQLITE_OK

        made.set_wal_hook(hook)
        if version < SCHEMA_VERSION:
            with made:
                for step in _MIGRATIONS[version:]:
                    made.execute(step)
                made.execute(f"PRAGMA application_id = {_APPLICATION}")
                made.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        return made

    # ---- writing --------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Generator[_Transaction]:
        """Begin a transaction; see :class:`spuir.service.stores.base.LogStore`."""
        with self._lock:
            if self._failed:
                self._recover()
            numbers = dict(self._numbers)
            writer = self._writer
            if writer is None:
                rule = "it was opened for reading, or closed"
                raise ServiceError("storage_unavailable", "store", "a write", rule, "open it for writing")
            try:
                with _storage_errors():
                    writer.execute("BEGIN IMMEDIATE")
                    yield _Transaction(writer, numbers)
                    writer.execute("COMMIT")
            except BaseException as failure:
                with suppress(apsw.Error):
                    if writer.in_transaction:
                        writer.execute("ROLLBACK")
                if isinstance(failure, ServiceError) and failure.code == "storage_unavailable":
                    self._failed = True
                raise
            self._numbers.update(numbers)

    def _after_commit(self, writer: apsw.Connection, pages: int) -> None:
        """Let a long write-ahead log be copied to the database beside what follows, and copy the short rest here.

        Only when all of it is copied, the write-ahead log begins anew. What cannot be copied now stays in it.
        """
        if pages < self._copied:  # it began anew
            self._copied = 0
        if pages - self._copied < CHECKPOINT:
            return
        if self._copier is None and pages < _MOST_PAGES:
            copier = threading.Thread(target=self._copy, name="spuir-checkpoint", daemon=True)
            with suppress(RuntimeError):  # the system may have no thread to spare, and the commit is durable anyhow
                copier.start()
                self._copier = copier
        elif self._copier is None or not self._copier.is_alive() or pages >= _MOST_PAGES:
            self._await_copier()
            with suppress(apsw.Error):
                writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            self._copied = pages

    def _copy(self) -> None:
        """Copy the write-ahead log to the database, by a connection of this thread."""
        with suppress(apsw.Error):
            copier = self._connect(apsw.SQLITE_OPEN_READWRITE)
            try:
                copier.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            finally:
                copier.close()

    def _await_copier(self) -> None:
        if self._copier is not None:
            self._copier.join()
            self._copier = None

    def _recover(self) -> None:
        """Open the file anew after the disk failed, write everything to its place, and verify the ends of the logs.

        A synchronisation that failed is never taken for one that succeeded: what the write-ahead log holds is written
        to the database again and synchronised there.
        """
        with _storage_errors():
            self._await_copier()
            if self._writer is not None:
                with suppress(apsw.Error):
                    self._writer.close()
            self._writer = None
            self._writer = self._open_writer()
            if self._checkpoint(self._writer):
                raise apsw.BusyError("a reader holds the write-ahead log")
            self._verify_tails()
        self._failed = False

    @staticmethod
    def _checkpoint(writer: apsw.Connection) -> bool:
        """Write everything to its place and empty the write-ahead log; return whether a reader was in the way."""
        return bool(writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0])

    def available(self) -> bool:
        """Return whether the last transaction could be written."""
        return not self._failed and (self._read_only or self._writer is not None)

    def elect(self) -> bool:
        """Return True: one process at a time has the file."""
        return not self._read_only

    # ---- damage ---------------------------------------------------------------------------------------------

    def _verify_tails(self) -> None:
        """Verify the last records of every log; cut a damaged end into the table of damaged records."""
        for head in self.heads():
            found = damage(self, head.name, max(1, head.seq - TAIL))
            if not found:
                continue
            if self._writer is None or any(seq != head.seq for seq, _ in found) or head.seq == 1:
                remedy = f"run spuir serve --check --repair --store {self.path}, or restore a backup"
                raise wrong_end(head, found, remedy)
            self._cut(head, found[0][1])

    def _cut(self, head: Head, wrong: str) -> None:
        """Move the damaged last record out of a log."""
        writer, base = self._writer, self._number(head.name) << PLACES
        if writer is None:
            return
        lost = self.stored(head.name, head.seq, head.seq)
        facts = encode(mended_facts(self, head, lost[0] if lost else None))
        with writer:
            move = (
                "INSERT INTO damaged SELECT experiment, position, time, kind, key, payload, digest, chain"
                " FROM record WHERE position = ?"
            )
            writer.execute(move, (base + head.seq,))
            writer.execute("DELETE FROM record WHERE position = ?", (base + head.seq,))
            before = self.stored(head.name, head.seq - 1, head.seq - 1)[0]
            update = "UPDATE experiment SET seq = ?, time = ?, chain = ?, facts = ? WHERE name = ?"
            writer.execute(update, (before.seq, before.time, before.chain, facts, head.name))
        self.notes.append(f"log {head.name!r}: the last record, {head.seq:,}, was damaged ({wrong}) and set aside")

    def check(self) -> list[str]:
        """Return what SQLite finds wrong with its file."""
        with _storage_errors():
            rows: list[Any] = self._connection().execute("PRAGMA integrity_check").fetchall()
        return [row[0] for row in rows if row[0] != "ok"]

    def backup(self, path: str) -> None:
        """Write a copy to a new file, page by page, while others keep using it."""
        with new_backup(path) as copy, _storage_errors(f"backup {path!r}"):
            source = self._connect(apsw.SQLITE_OPEN_READONLY)
            target = apsw.Connection(copy)
            try:
                with target.backup("main", source, "main") as job:
                    while not job.done:
                        job.step(1_000)
            finally:
                target.close()
                source.close()

    def scrub(self) -> bool:
        """Make erased payloads disappear from the write-ahead log too; a reader can be in the way."""
        with self._lock, _storage_errors():
            return self._writer is not None and not self._checkpoint(self._writer)

    def close(self) -> None:
        """Close every connection."""
        with self._lock:
            self._await_copier()
            for one in (*self._opened, self._writer):
                if one is not None:
                    with suppress(apsw.Error):
                        one.close()
            self._opened.clear()
            self._writer = None
            self._local = threading.local()
            if self._release is not None:
                self._release()


@contextmanager
def _storage_errors(subject: str = "store") -> Generator[None]:
    """Turn errors of SQLite into those of the service."""
    try:
        yield
    except apsw.FullError as full:
        remedy = "free space on the disk and send it again"
        raise ServiceError("storage_full", subject, _FULL, "a record needs space", remedy) from full
    except (apsw.NotADBError, apsw.CorruptError, UnicodeDecodeError) as damaged:
        rule = "the file is a sound database of spuir serve"
        remedy = "if it is none, name another with --store; otherwise run spuir serve --check, and restore a backup"
        raise ServiceError("storage_unavailable", subject, str(damaged), rule, remedy) from damaged
    except apsw.Error as failure:
        remedy = "check the disk, and send it again"
        raise ServiceError("storage_unavailable", subject, str(failure), "the disk must take it", remedy) from failure
