"""Logs in PostgreSQL, for several server processes: any of them decides, one is elected to learn.

A transaction locks the rows of the experiments that it appends to, so that places are given once and ids are decided
inside it. Every commit is synchronous. Advisory locks elect the learner and guard migrations; they end with their
connection, so that another process takes over when the learner dies.
"""

import os
import threading
from abc import abstractmethod
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Any, LiteralString, cast

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from spuir.errors import ParameterError, ServiceError
from spuir.service.stores.base import TAIL, Head, damage, store_failed
from spuir.service.stores.sql import (
    HEAD,
    PLACES,
    SEVERAL_DECISIONS,
    TRAFFIC,
    SqlReads,
    SqlWrites,
    copy_logs,
    new_backup,
    wrong_end,
)

SCHEMA_VERSION = 2
_MIGRATIONS: tuple[str, ...] = (
    f"""
    CREATE TABLE experiment (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name TEXT COLLATE "C" NOT NULL UNIQUE, seq BIGINT NOT NULL,
        time BIGINT NOT NULL, chain BYTEA NOT NULL, facts BYTEA NOT NULL
    );
    CREATE TABLE record (
        position BIGINT PRIMARY KEY, experiment BIGINT NOT NULL REFERENCES experiment, time BIGINT NOT NULL,
        kind TEXT COLLATE "C" NOT NULL, key TEXT COLLATE "C" NOT NULL, payload BYTEA, digest BYTEA NOT NULL,
        chain BYTEA NOT NULL, owner TEXT COLLATE "C", due BIGINT, unit TEXT COLLATE "C"
    );
    CREATE UNIQUE INDEX record_key ON record (experiment, kind, key);
    CREATE INDEX record_owner ON record (experiment, owner) WHERE owner IS NOT NULL;
    CREATE INDEX record_due ON record (experiment, due) WHERE due IS NOT NULL;
    CREATE INDEX record_unit ON record (experiment, unit) WHERE unit IS NOT NULL;
    CREATE INDEX record_control ON record (position) WHERE NOT ({TRAFFIC});
    CREATE TABLE model (
        experiment BIGINT NOT NULL REFERENCES experiment, version BIGINT NOT NULL, piece BIGINT NOT NULL,
        content BYTEA NOT NULL, PRIMARY KEY (experiment, version, piece)
    );
    """,
    SEVERAL_DECISIONS,
)
"""What brings a database from each version to the next."""


def _check_url(url: str) -> None:
    """Refuse an address that PostgreSQL cannot read; its own words would show parts of it, a password for instance."""
    try:
        conninfo_to_dict(url)
    except psycopg.Error:
        rule, remedy = "it is not an address of PostgreSQL", "write special characters of a password as %XX"
        raise ParameterError("store", "postgresql://…", rule, remedy) from None


def _lock_number(text: str) -> int:
    """Return the number of the advisory lock that goes by a name."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8, person=b"spuir-lock").digest(), "big", signed=True)


def _carry_out(connection: psycopg.Connection[Any], sql: str, values: Sequence[Any] = ()) -> psycopg.Cursor[Any]:
    """Carry out a statement whose values are marked ``?``; statements are ours, values never become part of them."""
    return connection.execute(cast(LiteralString, sql.replace("?", "%s")), values or None)


class _PostgresReads(SqlReads):
    among = "{} = ANY(?)"

    @abstractmethod
    def _connection(self) -> psycopg.Connection[Any]:
        """Return the connection to read from."""

    def _all(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        with _storage_errors():
            return _carry_out(self._connection(), sql, values).fetchall()

    def _values(self, values: Sequence[str]) -> Any:
        return [value for value in values if "\0" not in value]  # which no text in PostgreSQL has


class _Transaction(_PostgresReads, SqlWrites):
    """Reads and writes by the writer's connection."""

    def __init__(self, connection: psycopg.Connection[Any], numbers: dict[str, int]) -> None:
        super().__init__(numbers)
        self._writer = connection

    def _connection(self) -> psycopg.Connection[Any]:
        return self._writer

    def _many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        with _storage_errors(), self._writer.cursor() as cursor:
            cursor.executemany(cast(LiteralString, sql.replace("?", "%s")), rows)

    def lock(self, name: str) -> Head | None:
        """Return the head of an experiment, which nobody else appends to until the transaction ends."""
        # An experiment that is not there yet has no row to lock: its name is locked instead.
        self._all("SELECT pg_advisory_xact_lock(?)", (_lock_number(f"experiment {name}"),))
        # Saving a piece of a model only needs the experiment to exist, and does not wait for this lock.
        rows = self._all(f"{HEAD} WHERE name = ? FOR NO KEY UPDATE", (name,))
        return self._as_head(rows[0]) if rows else None


class PostgresStore(_PostgresReads):
    """Logs in a PostgreSQL database.

    Parameters
    ----------
    url
        Such as ``postgresql://user@host:5432/database``. A password may be in the URL, or where PostgreSQL's client
        library looks for it (``PGPASSWORD``, ``~/.pgpass``).
    read_only
        Whether only to read, as the learner's process does.
    """

    def __init__(self, url: str, read_only: bool = False) -> None:
        self.url, self.notes = url, list[str]()
        self._read_only = read_only
        self._local, self._opened = threading.local(), list[psycopg.Connection[Any]]()
        self._lock, self._failed, self._elected = threading.RLock(), False, False
        self._writer: psycopg.Connection[Any] | None = None
        self._cleaner: threading.Thread | None = None
        self._candidate: psycopg.Connection[Any] | None = None
        super().__init__({})
        with _storage_errors():
            _check_url(url)
            if not read_only:
                self._writer = self._connect(autocommit=False, purpose="writer")
                self._migrate(self._writer)
            self._verify_tails()

    # ---- connections ----------------------------------------------------------------------------------------

    def _connect(self, autocommit: bool = True, purpose: str = "reader") -> psycopg.Connection[Any]:
        # Both sides notice within half a minute that the other one is gone without a word, such as a machine without
        # power: a lock that it held must end, and nobody waits for its answer.
        options = (
            "-c synchronous_commit=on -c lock_timeout=10s -c idle_in_transaction_session_timeout=60s"
            " -c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=4"
            " -c tcp_user_timeout=30000"
        )
        return psycopg.connect(
            self.url,
            autocommit=autocommit,
            application_name=f"spuir {purpose} {os.getpid()}",
            options=options,
            connect_timeout=10,
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=4,
            tcp_user_timeout=30_000,
        )

    def _connection(self) -> psycopg.Connection[Any]:
        """Return this thread's connection for reading."""
        found: psycopg.Connection[Any] | None = getattr(self._local, "connection", None)
        if found is None or found.closed or found.broken:
            found = self._local.connection = self._connect()
            with self._lock:
                self._opened = [one for one in self._opened if not one.closed] + [found]
        return found

    def _all(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return the rows of a query, asked again by a new connection where the old one was cut."""
        with _storage_errors():
            connection = self._connection()
            try:
                return _carry_out(connection, sql, values).fetchall()
            except psycopg.OperationalError:
                if not connection.broken:
                    raise
                return _carry_out(self._connection(), sql, values).fetchall()

    def _migrate(self, connection: psycopg.Connection[Any]) -> None:
        with connection.transaction():
            _carry_out(connection, "SELECT pg_advisory_xact_lock(?)", (_lock_number("migration"),))
            _carry_out(connection, "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)")
            found = _carry_out(connection, "SELECT version FROM schema_version").fetchall()
            version = found[0][0] if found else 0
            if version > SCHEMA_VERSION:
                rule = f"this version of spuir reads stores up to version {SCHEMA_VERSION}"
                raise ServiceError("storage_unavailable", "store", f"version {version}", rule, "upgrade spuir")
            for step in _MIGRATIONS[version:]:
                _carry_out(connection, step)
            if version < SCHEMA_VERSION:
                _carry_out(connection, "DELETE FROM schema_version")
                _carry_out(connection, "INSERT INTO schema_version VALUES (?)", (SCHEMA_VERSION,))

    # ---- writing --------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Generator[_Transaction]:
        """Begin a transaction; see :class:`spuir.service.stores.base.LogStore`."""
        with self._lock:
            if self._read_only:
                rule = "it was opened for reading"
                raise ServiceError("storage_unavailable", "store", "a write", rule, "open it for writing")
            numbers = dict(self._numbers)
            try:
                with _storage_errors():
                    if self._writer is None or self._writer.closed or self._writer.broken:
                        self._writer = self._connect(autocommit=False, purpose="writer")
                        self._verify_tails()
                    with self._writer.transaction():
                        yield _Transaction(self._writer, numbers)
            except BaseException as failure:
                self._failed = store_failed(failure)
                raise
            self._failed = False
            self._numbers.update(numbers)

    def available(self) -> bool:
        """Return whether the last transaction could be written."""
        return not self._failed

    def elect(self) -> bool:
        """Return whether this process is the one that closes episodes and learns: its connection has the lock."""
        with self._lock, suppress(psycopg.Error):
            if self._candidate is None or self._candidate.closed or self._candidate.broken:
                self._candidate, self._elected = self._connect(purpose="learner"), False
            if self._elected:
                _carry_out(self._candidate, "SELECT 1")  # the lock ends with the connection
            else:
                ask = "SELECT pg_try_advisory_lock(?)"
                self._elected = _carry_out(self._candidate, ask, (_lock_number("learner"),)).fetchall()[0][0]
            return self._elected
        return False

    # ---- damage ---------------------------------------------------------------------------------------------

    def _verify_tails(self) -> None:
        """Verify the last records of every log."""
        for head in self.heads():
            found = damage(self, head.name, max(1, head.seq - TAIL))
            if found:
                raise wrong_end(head, found, "run spuir serve --check, and restore a backup")

    def check(self) -> list[str]:
        """Return what is wrong with the tables: records without a place in an experiment's log."""
        sql = (
            f"SELECT r.position FROM record r JOIN experiment e ON e.id = r.experiment"
            f" WHERE r.position <= (e.id << {PLACES}) OR r.position > (e.id << {PLACES}) + e.seq LIMIT 10"
        )
        return [f"the record at position {row[0]} is outside its log" for row in self._all(sql)]

    def backup(self, path: str) -> None:
        """Write a copy of everything to a new SQLite file, which is a store too, while others keep using it."""
        from spuir.service.stores.sqlite import SqliteStore

        with new_backup(path) as copy, _storage_errors(), self._connect(autocommit=False) as source:
            # One snapshot, so that the copy is the store at one moment.
            _carry_out(source, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            target = SqliteStore(copy)
            try:
                copy_logs(_Transaction(source, {}), target)
            finally:
                target.close()

    def scrub(self) -> bool:
        """Let the space of erased payloads be overwritten, beside everything else, since that takes long."""
        if self._cleaner is not None and self._cleaner.is_alive():
            return False  # it may have passed what was erased since it began
        self._cleaner = threading.Thread(target=self._clean, name="spuir-cleaner", daemon=True)
        self._cleaner.start()
        return True

    def _clean(self) -> None:
        with suppress(psycopg.Error), self._connect(purpose="cleaner") as connection:
            _carry_out(connection, "VACUUM record")

    def close(self) -> None:
        """Close every connection."""
        with self._lock:
            for one in (*self._opened, self._writer, self._candidate):
                if one is not None:
                    with suppress(psycopg.Error):
                        one.close()
            self._opened.clear()
            self._writer = self._candidate = None
            self._elected = False
            self._local = threading.local()


@contextmanager
def _storage_errors() -> Generator[None]:
    """Turn errors of PostgreSQL into those of the service."""
    try:
        yield
    except errors.DiskFull as full:
        remedy = "free space on the database server's disk and send it again"
        raise ServiceError("storage_full", "store", _line(full), "a record needs space", remedy) from full
    except psycopg.Error as failure:
        remedy = "check the database server, and send it again"
        raise ServiceError(
            "storage_unavailable", "store", _line(failure), "PostgreSQL must take it", remedy
        ) from failure


def _line(failure: psycopg.Error) -> str:
    """Return the first line of an error, which has no values of the request."""
    return (str(failure).splitlines() or [type(failure).__name__])[0]
