"""Stores of logs, by address: SQLite in one file, or PostgreSQL for several processes."""

from typing import Any

from spuir.errors import ParameterError
from spuir.service.stores.base import LogStore

SQLITE, POSTGRES = "sqlite:///", ("postgresql://", "postgres://")


def open_store(url: str, read_only: bool = False, **options: Any) -> LogStore:
    """Return the store at an address: ``sqlite:///path``, the path of a file, or ``postgresql://…``."""
    if url.startswith(SQLITE) or "://" not in url:
        from spuir.service.stores.sqlite import SqliteStore

        return SqliteStore(url.removeprefix(SQLITE), read_only=read_only, **options)
    if url.startswith(POSTGRES):
        from spuir.service.stores.postgres import PostgresStore

        return PostgresStore(url, read_only=read_only, **options)
    scheme = url.split("://", maxsplit=1)[0]
    rule = f"a store is the path of a file, {SQLITE}path or {POSTGRES[0]}user@host/database"
    raise ParameterError("store", f"{scheme}://…", rule, "pass one of these")
