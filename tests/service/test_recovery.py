"""How the engine goes on after a failure: of the store, of the learner, and of one experiment among others."""

import time
from typing import Any

import apsw
import pytest

from spuir.errors import ParameterError, ServiceError
from spuir.service.checking import check_store
from spuir.service.commands import CloseEpisode, CreateExperiment, Decide, DecisionRow, Forget
from spuir.service.settings import ExperimentSettings
from spuir.service.stores import open_store
from spuir.service.versions.learner import InProcess, Learned
from spuir.service.versions.learning_jobs import FIRST_PAUSE
from tests.service.disks import FailingDisk
from tests.service.shops import NAME, Shop, sqlite_store


def test_a_store_that_works_again_is_found_without_a_request(tmp_path):
    """A balancer sends nothing to a server that is not ready, so the engine tries the disk by itself."""
    disk = FailingDisk()
    shop = Shop(sqlite_store(tmp_path, vfs=disk.name))
    disk.fails = lambda number, call: "io"
    with pytest.raises(ServiceError, match="the disk"):
        shop.decide()
    assert not shop.engine.status()["writable"]
    shop.engine.tick()
    assert not shop.engine.status()["writable"]
    disk.fails = lambda number, call: None
    shop.engine.tick()
    assert shop.engine.status()["writable"]
    shop.decide()
    assert check_store(shop.engine.store).problems == []
    shop.engine.close()


def test_what_was_recorded_is_answered_if_learning_cannot_start(tmp_path):
    """The store fails right after a commit: the answer stands, and the next call learns."""

    class Refusing(InProcess):
        """A learner that cannot be reached."""

        def submit(self, store, job):
            raise ServiceError("storage_unavailable", "store", "nothing", "it must answer", "wait")

    shop = Shop(sqlite_store(tmp_path))
    jobs = shop.engine._jobs
    shop.decide()
    shop.clock.now += 3_600
    jobs.learner = Refusing()
    assert shop.close().rows == 1
    assert shop.engine.tick() > 0
    jobs.learner = InProcess()
    shop.engine.tick()
    assert len(shop.digests()) == 2
    shop.engine.close()


def test_rows_that_could_not_be_read_are_learned_later(tmp_path, monkeypatch):
    """The learner loses the store for a moment."""

    class Losing(InProcess):
        """A learner that may have lost the store."""

        lost = True

        def submit(self, store, job):
            if self.lost:
                self._done.append(Learned(job.name, job.version, error="the store is gone", again=True))
            else:
                super().submit(store, job)

    shop = Shop(sqlite_store(tmp_path))
    shop.engine._jobs.learner = learner = Losing()
    shop.decide()
    shop.clock.now += 3_600
    shop.close()
    assert shop.engine.status()["problems"] == {NAME: "the store is gone"}
    learner.lost = False
    shop.engine.tick()
    assert len(shop.digests()) == 1  # not at once
    later = time.monotonic() + FIRST_PAUSE
    monkeypatch.setattr("spuir.service.versions.learning_jobs.time.monotonic", lambda: later)
    shop.engine.tick()
    assert len(shop.digests()) == 2
    assert shop.engine.status()["problems"] == {}
    shop.engine.close()


def test_a_damaged_experiment_does_not_affect_others(tmp_path):
    shop = Shop(sqlite_store(tmp_path))
    shop.live(episodes=1)
    other = CreateExperiment(experiment="other", settings=ExperimentSettings(actions=["a", "b"], seed=1))
    shop.do(other)
    wrong = apsw.Connection(str(tmp_path / "log.db"))
    wrong.execute("UPDATE record SET payload = X'00' WHERE kind = 'version' AND experiment = 1")
    wrong.execute("DELETE FROM model WHERE experiment = 1")
    wrong.close()
    shop.engine._views.clear()
    shop.engine._servings.clear()
    row = DecisionRow(context=[1.0, 2.0, 3.0])
    refused, done = shop.ask([Decide(experiment=NAME, row=row), Decide(experiment="other", row=row)])
    assert isinstance(refused, ServiceError) and refused.code == "damaged"
    assert done.version == 0
    shop.engine.tick()
    assert shop.engine.status()["writable"]
    assert list(shop.engine.status()["problems"]) == [NAME]
    shop.engine.close()


def test_a_model_whose_learner_died_while_it_was_saved_is_no_damage(tmp_path):
    shop = Shop(sqlite_store(tmp_path))
    shop.live(episodes=1)
    with shop.engine.store.transaction() as writer:
        writer.put_model(NAME, 2, b"the first piece", 0)
        writer.put_model(NAME, 2, b"the second piece", 1)
    found = check_store(shop.engine.store)
    assert found.problems == []
    assert any("version 2 is being saved" in note for note in found.notes)
    shop.live(episodes=1)  # which saves it anew
    assert check_store(shop.engine.store).notes == []
    shop.engine.close()


def test_a_failing_disk_is_not_asked_twice_for_the_sake_of_a_model(tmp_path, monkeypatch):
    """What a failed commit left behind is not known, so that nothing is carried out again without being asked."""
    monkeypatch.setattr("spuir.service.versions.learning_jobs.PIECE", 1_000)
    disk = FailingDisk()
    shop = Shop(sqlite_store(tmp_path, vfs=disk.name))
    shop.engine._jobs.learner.beside = True
    shop.decide()
    shop.clock.now += 3_600
    shop.close()
    assert shop.engine._jobs.next_piece() is not None
    failures = iter(["io"])
    disk.fails = lambda number, call: next(failures, None) if call.kind == "sync" else None
    with pytest.raises(ServiceError, match="the disk"):
        shop.decide(id="once")
    assert not shop.engine.status()["writable"]
    assert shop.decide(id="once").version == 0
    monkeypatch.setattr("spuir.service.versions.learning_jobs.FIRST_PAUSE", 0.0)
    shop.engine._jobs.put_off()
    while shop.engine.tick() < 1:
        pass
    assert len(shop.digests()) == 2
    assert check_store(shop.engine.store).problems == []
    shop.engine.close()


def test_an_episode_that_another_process_closed_is_not_closed_again(tmp_path):
    shop = Shop(sqlite_store(tmp_path), window=None)
    shop.decide()
    assert shop.do(CloseEpisode(experiment=NAME, after=1)).rows == 0
    assert shop.do(CloseEpisode(experiment=NAME, after=0)).version == 1
    shop.decide()
    assert shop.do(CloseEpisode(experiment=NAME, after=0)).version is None
    assert shop.do(CloseEpisode(experiment=NAME, after=1)).version == 2
    shop.engine.close()


def test_a_person_is_forgotten_also_if_a_reader_is_in_the_way(tmp_path):
    """The bytes disappear from the write-ahead log as soon as nobody reads it."""
    shop = Shop(sqlite_store(tmp_path))
    shop.decide({"word": "rhinoceros"}, unit="ann")
    store: Any = shop.engine.store
    store._writer.set_busy_timeout(10)
    reader = apsw.Connection(str(tmp_path / "log.db"), flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN")
    reader.execute("SELECT COUNT(*) FROM record").fetchall()
    assert shop.do(Forget(experiment=NAME, unit="ann")).decisions == 1
    assert b"rhinoceros" in (tmp_path / "log.db-wal").read_bytes()
    reader.close()
    shop.engine.tick()
    files = [path.read_bytes() for path in tmp_path.iterdir()]
    assert not any(b"rhinoceros" in content for content in files)
    shop.engine.close()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:rhino ceros@127.0.0.1:9/x",
        "postgresql://ann:rhino%zzceros@127.0.0.1:9/x",
        "postgresql://ann:rhino@127.0.0.1:9/x?password=ceros",
    ],
)
def test_a_password_in_an_address_is_not_shown(url):
    with pytest.raises((ParameterError, ServiceError)) as wrong:
        open_store(url)
    assert "rhino" not in str(wrong.value) and "ceros" not in str(wrong.value)
