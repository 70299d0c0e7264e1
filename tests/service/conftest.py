"""Stores to test: a SQLite file, and a database of a PostgreSQL server that the tests start."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from spuir.service.stores import open_store
from tests.service.postgres_server import programs, running

_databases = count()


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: these tests wait for no disk, and those of faults bring their own."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="spuir-test-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """A PostgreSQL server; tests that need one are skipped where it is not installed."""
    if programs() is None:
        pytest.skip("PostgreSQL's server programs are not installed here")
    folder = tempfile.mkdtemp(prefix="spuir-postgres-")  # readable for PostgreSQL's user, unlike pytest's folders
    os.chmod(folder, 0o755)
    with running(Path(folder) / "server") as server:
        yield server
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    """The address of an empty store."""
    if request.param == "sqlite":
        return str(tmp_path / "log.db")
    return request.getfixturevalue("postgres").new_database(f"contract{next(_databases)}")


@pytest.fixture
def reopened(store_url: str) -> Iterator[Callable[..., Any]]:
    """Open the store, any number of times; all are closed at the end."""
    opened: list[Any] = []

    def open_again(**options: Any) -> Any:
        opened.append(open_store(store_url, **options))
        return opened[-1]

    yield open_again
    for one in opened:
        one.close()


@pytest.fixture
def store(reopened: Callable[..., Any]) -> Any:
    """An empty store."""
    return reopened()
