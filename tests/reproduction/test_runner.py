"""Many runs at once."""

import csv
import json
import multiprocessing
import os
import time
from collections import deque
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from spuir.environments import make_environment
from spuir.errors import ParameterError, SpuirError
from spuir.policies import make_policy
from spuir.reproduction.manifest import commit, machine, versions
from spuir.reproduction.runner import Run, run_all, summarise
from spuir.reproduction.workers import WorkerError, run_jobs
from spuir.storage.atomic import write_csv, write_json


def tasks(**changes):
    given = {"environment": make_environment("synthetic"), "episodes": 3, "batch_size": 60} | changes
    return [Run(policy=make_policy(name), seed=seed, **given) for seed in (0, 1) for name in ("sbucb", "puir")]


@pytest.fixture(scope="module")
def histories():
    return run_all(tasks(), workers=1)


def test_any_number_of_workers_gives_the_same_numbers_in_the_same_order(histories):
    counts = []
    parallel = run_all(tasks(), workers=2, watch=counts.append)
    assert [(one.policy, one.seed) for one in parallel] == [("sbucb", 0), ("puir", 0), ("sbucb", 1), ("puir", 1)]
    for here, there in zip(histories, parallel, strict=True):
        for name, values in here.columns().items():
            if not name.endswith("seconds"):
                np.testing.assert_array_equal(values, there.columns()[name])
    assert counts == sorted(counts)
    assert counts[-1] == 12


def test_one_worker_counts_every_episode():
    counts = []
    run_all(tasks(), workers=1, watch=counts.append)
    assert counts == list(range(1, 13))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failure_is_raised_as_it_was(workers):
    given = tasks()
    with pytest.raises(ParameterError, match="batch_size of run: got 0"):
        run_all([given[0], replace(given[1], batch_size=0), *given[2:]], workers=workers)


def test_summary_has_mean_and_standard_error_best_first(histories):
    records = summarise(histories)
    assert sorted(record["policy"] for record in records) == ["puir", "sbucb"]
    rewards = [record["average_reward"]["mean"] for record in records]
    assert rewards == sorted(rewards, reverse=True)
    mine = [history.rewards.mean() for history in histories if history.policy == "puir"]
    record = next(record for record in records if record["policy"] == "puir")
    assert record["seeds"] == 2
    assert record["average_reward"]["mean"] == pytest.approx(np.mean(mine))
    assert record["average_reward"]["standard_error"] == pytest.approx(abs(mine[0] - mine[1]) / 2)
    assert {"cvr", "ctcvr", "regret_per_step", "decide_seconds", "learn_seconds"} <= set(record)


def test_a_single_seed_has_no_standard_error(histories):
    (record,) = summarise(histories[:1])
    assert record["average_reward"]["standard_error"] is None


def test_rows_are_tidy(histories, tmp_path):
    plain = run_all(tasks(environment=make_environment("linear"))[:1], workers=1)
    rows = (row for history in [*plain, *histories] for row in history.rows())
    path = write_csv(tmp_path / "deep" / "results.csv", rows)
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 15
    assert rows[0]["cvr"] == ""
    assert float(rows[3]["reward"]) == histories[0].rewards[0]
    assert [row["episode"] for row in rows[:3]] == ["1", "2", "3"]


def test_json_is_written_whole(tmp_path):
    path = write_json(tmp_path / "results.json", {"λ": [1, None]})
    assert json.loads(path.read_text(encoding="utf-8")) == {"λ": [1, None]}
    assert [one.name for one in tmp_path.iterdir()] == ["results.json"]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SpuirError, match="cannot be written"):
        write_json(tmp_path / "file" / "results.json", {})


def test_versions_name_what_numbers_depend_on():
    assert set(versions()) == {"python", "spuir", "numpy", "scipy"}
    assert versions()["numpy"] == np.__version__


@dataclass(frozen=True)
class Job:
    """Something that ends in a given way."""

    how: str

    def run(self, step):
        step(1)
        if self.how == "raise":
            raise AwkwardError(1, 2)
        if self.how == "die":
            os._exit(7)
        return (lambda: None) if self.how == "unpicklable" else self.how

    def __setstate__(self, state):
        if state["how"] == "unreadable":
            raise LookupError("cannot be read")
        object.__setattr__(self, "how", state["how"])


class AwkwardError(Exception):
    """An exception that can be pickled and not unpickled."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def test_each_job_ends_in_its_own_way():
    ways = ["a", "raise", "die", "unpicklable", "unreadable", "b"]
    steps = []
    ended = {done.place: done for done in run_jobs([Job(way) for way in ways], 2, steps.append)}
    assert sorted(ended) == list(range(6))
    assert (ended[0].value, ended[5].value) == ("a", "b")
    assert "AwkwardError: 1 and 2" in str(ended[1].failure)
    assert isinstance(ended[2].failure, WorkerError)
    assert "exit code 7" in str(ended[2].failure)
    assert "it failed with that" in str(ended[3].failure)
    assert isinstance(ended[4].failure, LookupError)
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) == 5  # all but the job that could not be read; a step before a death counts


def test_a_single_worker_is_this_process_unless_it_is_to_be_apart():
    jobs = [Where(), Where()]
    assert [done.value for done in run_jobs(jobs, 1)] == [os.getpid()] * 2
    one, two = (done.value for done in run_jobs(jobs, 1, apart=True))
    assert one == two != os.getpid()
    assert list(run_jobs([], 2, apart=True)) == []


class Where:
    """Tells which process it is done in."""

    def run(self, step):
        return os.getpid()


def test_closing_stops_what_is_running(tmp_path):
    with closing(run_jobs([Note(tmp_path / "a", 0.0), Note(tmp_path / "b", 60.0)], 2)) as ended:
        assert next(ended).place == 0
    assert not multiprocessing.active_children()
    assert not (tmp_path / "b").exists()


def test_an_interrupt_just_after_a_process_has_started_ends_it(monkeypatch):
    """It has no job yet, so that nothing else would end it."""

    class Interrupted(deque):
        def popleft(self):
            raise KeyboardInterrupt

    def run():
        with suppress(KeyboardInterrupt):
            list(run_jobs([Where()], apart=True))

    monkeypatch.setattr("spuir.reproduction.workers.deque", Interrupted)
    waiting = Thread(target=run, daemon=True)
    waiting.start()
    waiting.join(30)
    assert not waiting.is_alive() and not multiprocessing.active_children()


@dataclass(frozen=True)
class Note:
    """Waits, then writes a file."""

    path: Path
    seconds: float

    def run(self, step):
        time.sleep(self.seconds)
        self.path.touch()


def test_no_partial_file_is_left_behind(tmp_path, monkeypatch):
    write_json(tmp_path / "a.json", {"x": float("nan")})
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {"x": None}
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(SpuirError, match="No space left on device"):
        write_json(tmp_path / "a.json", {"x": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {"x": None}


def test_the_commit_is_that_of_the_package_alone(tmp_path):
    assert commit(tmp_path) == {"commit": None, "dirty": None}
    found = commit()
    assert found["commit"] is None or len(found["commit"]) == 40
    assert set(machine()) == {"processor", "cores", "memory_gb", "system"}
