"""Stores of logs, by address: SQLite in one file, or PostgreSQL for several processes."""

from typing import Any

from spuir.errors import ParameterError
from spuir.service.stores.base import LogStore

SQLITE = "sqlite:///"


def open_store(url: str, read_only: bool = False, **options: Any) -> LogStore:
    """Return the store at an address: ``sqlite:///path`` or the path of a file."""
    if url.startswith(SQLITE) or "://" not in url:
        from spuir.service.stores.sqlite import SqliteStore

        return SqliteStore(url.removeprefix(SQLITE), read_only=read_only, **options)
    scheme = url.split("://", maxsplit=1)[0]
    raise ParameterError(
        "store", f"{scheme}://…", f"a store is the path of a file or {SQLITE}path", "pass one of these"
    )
