"""Learning beside serving: the process of its own gives the same versions, and its death loses nothing."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from spuir.base.records import Derived
from spuir.errors import InputError, ServiceError
from spuir.service.checking import check_store
from spuir.service.commands import Publish
from spuir.service.engine import Engine
from spuir.service.experiment_view import Closed
from spuir.service.log_records import CloseFact
from spuir.service.settings import ExperimentSettings
from spuir.service.stores.sql import SqlWrites
from spuir.service.versions.learner import LearningJob
from spuir.service.versions.learner_process import MOST_DEATHS, ChildProcess
from spuir.service.versions.model_steps import opened, solve_ahead
from tests.service.shops import NAME, Shop, sqlite_store

PATIENCE = 60.0


def wait(shop, version):
    """Let the engine tick until a version is there."""
    end = time.monotonic() + PATIENCE
    while shop.engine.experiment(NAME).newest < version:
        assert time.monotonic() < end, shop.engine.status()
        time.sleep(min(0.02, shop.engine.tick()))


class Beside(Shop):
    """A shop that learns in a process of its own."""

    def start(self):
        self.learner = ChildProcess()
        return Engine(self.make_store(), clock=self.clock, ids=self._id, learner=self.learner)

    def close(self):
        answer = super().close()
        wait(self, answer.version)
        return answer


@pytest.fixture
def shop(tmp_path):
    made = Beside(sqlite_store(tmp_path))
    yield made
    made.engine.close()


@pytest.mark.parametrize("policy", ["auto", "puir", "uniform"])
def test_what_is_solved_ahead_is_not_solved_by_the_first_decisions(tmp_path, policy, monkeypatch):
    shop = Beside(sqlite_store(tmp_path), policy=policy)
    shop.live(episodes=2)
    version = opened(shop.engine.model(NAME), "a version")
    shop.engine.close()
    solved, get = [], Derived.get

    def counted(self, owner, make, state):
        return get(self, owner, lambda one: solved.append(owner) or make(one), state)

    monkeypatch.setattr(Derived, "get", counted)
    solve_ahead(version)
    ahead = len(solved)
    assert ahead == (policy != "uniform")
    version.decide(np.zeros((1, 3)))
    version.decide(np.zeros((5, 3)))
    assert len(solved) == ahead


def test_a_process_of_its_own_learns_the_same_versions(shop, tmp_path):
    (tmp_path / "here").mkdir()
    here = Shop(sqlite_store(tmp_path / "here"))
    shop.live(episodes=3)
    here.live(episodes=3)
    assert shop.digests() == here.digests()
    assert check_store(shop.engine.store).problems == []
    assert shop.engine.status()["learner_failures"] == 0


def test_decisions_are_served_while_the_next_version_is_learned(shop):
    shop.live(episodes=1)
    shop.decide_many(np.random.default_rng(0).normal(size=(200, 3)))
    shop.clock.now += 3_600
    Shop.close(shop)
    assert shop.engine.experiment(NAME).learning
    versions = set()
    while shop.engine.experiment(NAME).newest < 2:
        versions.add(shop.decide((0.1, 0.2, 0.3)).version)
    assert versions <= {1, 2} and 1 in versions
    assert check_store(shop.engine.store).problems == []


def test_a_learner_that_dies_is_started_again(shop):
    shop.live(episodes=1)
    shop.decide_many(np.random.default_rng(0).normal(size=(50, 3)))
    shop.clock.now += 3_600
    Shop.close(shop)
    assert shop.learner._child is not None
    shop.learner._child.kill()
    shop.learner._child.wait()
    wait(shop, 2)
    assert check_store(shop.engine.store).problems == []


def test_an_engine_that_stops_while_it_learns_finishes_at_the_next_start(shop):
    shop.live(episodes=1)
    shop.decide_many(np.random.default_rng(0).normal(size=(50, 3)))
    shop.clock.now += 3_600
    Shop.close(shop)
    shop.restart()
    wait(shop, 2)
    assert check_store(shop.engine.store).problems == []


def test_nobody_waits_for_a_learner_that_is_busy(tmp_path):
    """More jobs wait than a pipe can hold, and the learner does not read."""
    shop = Shop(sqlite_store(tmp_path))
    learner = ChildProcess()
    assert learner._child is not None
    os.kill(learner._child.pid, signal.SIGSTOP)
    settings = ExperimentSettings(actions=[f"a rather long label {number}" for number in range(500)])
    close = Closed(5, 5, CloseFact(1, 0, 0, 0))

    def submit():
        for number in range(50):
            learner.submit(shop.engine.store, LearningJob(f"shop-{number}", 1, 0, close, settings, []))

    sending = threading.Thread(target=submit, daemon=True)
    sending.start()
    sending.join(PATIENCE)
    assert not sending.is_alive()
    assert learner.collect() == []
    learner.close()
    shop.engine.close()


def test_a_large_model_is_saved_in_pieces_beside_decisions(shop, monkeypatch):
    monkeypatch.setattr("spuir.service.versions.learning_jobs.PIECE", 512)
    shop.live(episodes=2)
    shop.decide_many(np.random.default_rng(0).normal(size=(50, 3)))
    shop.clock.now += 3_600
    Shop.close(shop)
    while shop.engine.experiment(NAME).newest < 3:
        shop.decide((0.1, 0.2, 0.3))
    store = shop.engine.store
    pieces = store._all("SELECT length(content) FROM model WHERE version = 3 ORDER BY piece")
    assert len(pieces) > 2 and {size for (size,) in pieces[:-1]} == {512}
    assert sum(size for (size,) in pieces) == len(shop.engine.model(NAME, 3))
    assert check_store(store).problems == []
    assert shop.decide((0.1, 0.2, 0.3)).version == 3


def test_pieces_have_commits_of_their_own_only_while_nobody_asks(tmp_path, monkeypatch):
    """A request that comes during such a commit has to wait for it."""
    monkeypatch.setattr("spuir.service.versions.learning_jobs.PIECE", 1_000)
    monkeypatch.setattr("spuir.service.engine.QUIET", 30.0)
    shop = Shop(sqlite_store(tmp_path))
    shop.engine._jobs.learner.beside = True
    shop.live(episodes=1)
    jobs = shop.engine._jobs
    piece = jobs.next_piece()
    assert piece is not None
    shop.engine.tick()  # which looks around
    assert 0 < shop.engine.tick() <= 30.0 and jobs.next_piece() == piece
    shop.decide((0.1, 0.2, 0.3))
    following = jobs.next_piece()
    assert following is None or following.piece == piece.piece + 1
    monkeypatch.setattr("spuir.service.engine.QUIET", 0.0)
    end = time.monotonic() + PATIENCE
    while jobs.next_piece() is not None:
        assert time.monotonic() < end
        shop.engine.tick()
    shop.engine.tick()
    assert shop.decide((0.1, 0.2, 0.3)).version == 1
    shop.engine.close()


def test_a_model_that_finds_no_space_does_not_keep_decisions_from_being_recorded(shop, monkeypatch):
    monkeypatch.setattr("spuir.service.versions.learning_jobs.PIECE", 512)
    shop.live(episodes=1)
    shop.decide_many(np.random.default_rng(0).normal(size=(50, 3)))
    shop.clock.now += 3_600
    Shop.close(shop)
    full = ServiceError("storage_full", "store", "a piece", "a record needs space", "free some")
    put, tried = SqlWrites.put_model, []

    def refuse(writer, name, version, content, piece=0):
        tried.append(piece)
        raise full

    monkeypatch.setattr(SqlWrites, "put_model", refuse)
    end = time.monotonic() + PATIENCE
    while not tried:
        assert time.monotonic() < end
        assert shop.decide((0.1, 0.2, 0.3)).version == 1
    monkeypatch.setattr(SqlWrites, "put_model", put)
    wait(shop, 2)
    assert check_store(shop.engine.store).problems == []


def test_an_old_model_is_deleted_piece_by_piece_while_a_new_one_is_saved(shop, monkeypatch):
    monkeypatch.setattr("spuir.service.versions.learning_jobs.PIECE", 512)
    monkeypatch.setattr("spuir.service.versions.rebuild.KEPT_MODELS", 2)
    dropped, drop = [], SqlWrites.drop_models

    def count(writer, name, versions, piece=None):
        versions = list(versions)
        dropped.extend((one, piece) for one in versions if piece is not None)
        drop(writer, name, versions, piece)

    monkeypatch.setattr(SqlWrites, "drop_models", count)
    for number in range(1, 6):
        shop.decide_many(np.random.default_rng(number).normal(size=(50, 3)))
        shop.clock.now += 3_600
        Shop.close(shop)
        wait(shop, number)
    assert shop.engine.store.models(NAME) == [0, 4, 5]
    assert {one for one, _ in dropped} == {1, 2, 3}
    assert len({piece for one, piece in dropped if one == 2}) > 2
    shop.do(Publish(experiment=NAME, version=2))  # which is learned again, and saved
    assert shop.decide((0.1, 0.2, 0.3)).version == 2
    assert 2 in shop.engine.store.models(NAME)
    assert check_store(shop.engine.store).problems == []


def test_integers_of_any_size_among_the_parameters_do_not_stop_learning(tmp_path):
    shop = Beside(sqlite_store(tmp_path), policy="spuir", parameters={"alpha": 10**30})
    try:
        shop.live(episodes=1)
        assert shop.engine.experiment(NAME).newest == 1
        assert check_store(shop.engine.store).problems == []
    finally:
        shop.engine.close()


def test_a_first_episode_that_teaches_nothing_does_not_end_learning(tmp_path):
    shop = Beside(sqlite_store(tmp_path))
    try:
        shop.decide((0.1, 0.2, 0.3), defer=True)
        shop.clock.now += 3_600
        shop.close()
        shop.live(episodes=1)
        assert [one.rows for one in shop.engine.versions(NAME)] == [0, 0, 40]
        assert shop.engine.status()["learner_failures"] == 0
    finally:
        shop.engine.close()


def test_a_model_that_cannot_be_used_counts_as_the_death_of_its_process(tmp_path, monkeypatch):
    shop = Beside(sqlite_store(tmp_path))
    failures = [InputError("model", "this one", "it is refused once", "try again"), RuntimeError("unforeseen")]

    def solved(_):
        if failures:
            raise failures.pop()

    monkeypatch.setattr("spuir.service.versions.learner_process.solve_ahead", solved)
    try:
        shop.live(episodes=1)
        assert shop.engine.experiment(NAME).newest == 1
        assert shop.engine.status()["learner_failures"] == 2
    finally:
        shop.engine.close()


def test_a_job_that_the_process_keeps_dying_with_gives_way_to_others(tmp_path):
    shop = Shop(sqlite_store(tmp_path))
    learner = ChildProcess()
    settings, close = ExperimentSettings(actions=["a", "b"]), Closed(5, 5, CloseFact(1, 0, 0, 0))
    for name in ("deadly", "other"):
        learner.submit(shop.engine.store, LearningJob(name, 1, 0, close, settings, []))
    found = []
    for _ in range(MOST_DEATHS):  # before it has loaded its libraries, so that it has answered nothing
        assert found == [] and learner._child is not None
        learner._child.kill()
        learner._child.wait()
        found = learner.collect()
    (given_up,) = found
    assert (given_up.name, given_up.again) == ("deadly", True) and "memory" in (given_up.error or "")
    end = time.monotonic() + PATIENCE
    while not (found := learner.collect()) and time.monotonic() < end:
        time.sleep(0.02)
    assert [one.name for one in found] == ["other"]
    assert learner.failures == MOST_DEATHS
    learner.close()
    shop.engine.close()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no process groups")
def test_an_interrupt_at_the_terminal_does_not_reach_a_process_that_starts():
    """The server ends it; the process would print a traceback until it has loaded what ignores an interrupt."""
    script = """
import os, signal, time
from spuir.service.versions.learner_process import ChildProcess
signal.signal(signal.SIGINT, lambda *_: None)
learner = ChildProcess()
os.killpg(0, signal.SIGINT)
time.sleep(0.5)
print(learner._child.poll())
learner.close()
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=False, capture_output=True, text=True, start_new_session=True)
    assert (done.stdout, done.stderr) == ("None\n", "")
