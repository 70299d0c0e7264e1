"""Workers are as many as the cores that a process may use, not as many as the machine has."""

import os

import pytest

from spuir.base.processors import cores
from spuir.training.engines.local import Local


def test_a_restricted_process_has_fewer_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert cores() == Local().workers == 1


def test_where_nothing_is_known_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    for known, expected in ((8, 8), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda known=known: known)
        assert cores() == expected
