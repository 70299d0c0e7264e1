"""Servers that several tests share."""

from collections.abc import Generator

import pytest

from tests.service.api.servers import RunningServer, running_server


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningServer]:
    """A server without keys."""
    with running_server(tmp_path_factory.mktemp("open")) as server:
        yield server


@pytest.fixture(scope="module")
def closed_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningServer]:
    """A server with keys."""
    with running_server(tmp_path_factory.mktemp("closed"), keys=True) as server:
        yield server
