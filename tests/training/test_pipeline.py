"""Training from a log equals partial_fit, episode by episode."""

import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
import warnings
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

import spuir
from spuir.errors import InputError, ParameterError, UnknownNameError
from spuir.logs import open_log
from spuir.logs.doctor import examine
from spuir.policies import list_policies
from spuir.training import Training, checkpoint, job, train
from spuir.training.engines.local import Local
from tests.training.logs import gap, make_table, one_by_one, write_files

ROWS, BATCH = 2_600, 450
SLICES = [slice(start, start + BATCH) for start in range(0, ROWS, BATCH)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log of files and row groups that have nothing to do with the episodes."""
    return write_files(tmp_path / "log", make_table(ROWS), [1_000, 7, 1_400, 193], group=333)


def model_bytes(trained: Training, tmp_path: Path) -> bytes:
    """Return the saved model."""
    path = tmp_path / "probe.spuir"
    trained.bandit.save(path)
    return path.read_bytes()


@pytest.mark.parametrize("name", list_policies())
def test_equals_partial_fit(folder: Path, name: str) -> None:
    policy = spuir.make_policy(name, preset="paper")
    own = "own" if "weighting" in policy.traits else None
    labels = [0, 1, 2] if policy.takes_features else None  # said explicitly: these actions have no features
    trained = train(str(folder), policy, batch_size=BATCH, propensity=own, actions=labels)
    assert gap(trained.bandit, one_by_one(policy, make_table(ROWS), SLICES)) < 1e-9
    assert [line.rows for line in trained.episodes] == [BATCH] * 5 + [350]


@pytest.mark.parametrize("name", ["puir", "spuir", "puir-kernel", "bexp3"])
def test_same_bits_for_any_number_of_workers_and_twice(folder: Path, tmp_path: Path, name: str) -> None:
    models = {
        model_bytes(train(str(folder), name, batch_size=BATCH, workers=workers), tmp_path) for workers in (1, 2, 3, 2)
    }
    assert len(models) == 1


def test_weights_and_propensities_of_the_log_are_used(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    table = make_table(900, weight=rng.random(900) + 0.5, propensity=rng.uniform(0.2, 0.9, 900))
    for name in ("puir", "spuir", "blts-b", "bexp3-ipw"):
        trained = train(table, name, batch_size=300)
        expected = one_by_one(
            name,
            table,
            [slice(0, 300), slice(300, 600), slice(600, 900)],
            sample_weight="weight",
            propensities="propensity",
        )
        assert gap(trained.bandit, expected) < 1e-9


def eligible_lists(table: pa.Table, seed: int = 4) -> list[list[int]]:
    """Return lists with the executed action and some others."""
    offered = np.random.default_rng(seed).random((table.num_rows, 3)) < 0.4
    offered[np.arange(table.num_rows), table["action"].to_numpy()] = True
    return [np.flatnonzero(row).tolist() for row in offered]


@pytest.mark.parametrize("form", ["lists", "masks"])
@pytest.mark.parametrize("name", ["bexp3", "bexp3-ipw", "blts-b", "puir-exp", "puir", "auto"])
def test_what_was_eligible_counts_as_in_partial_fit(tmp_path: Path, name: str, form: str) -> None:
    table = make_table(ROWS)
    lists = eligible_lists(table)
    logged = lists if form == "lists" else [[label in one for label in range(3)] for one in lists]
    log = write_files(tmp_path / "log", table.append_column("eligible", pa.array(logged)), [ROWS], group=333)
    policy = spuir.training.policy_for_logs(name)
    own = "own" if "weighting" in policy.traits else None
    trained = train(str(log), policy, batch_size=BATCH, propensity=own).bandit
    objects = np.empty(ROWS, object)
    objects[:] = lists
    expected, without = one_by_one(policy, table, SLICES, eligible=objects), one_by_one(policy, table, SLICES)
    assert gap(trained, expected) < 1e-9
    # What could be chosen matters for the policy's own probabilities, so only where these are learned from.
    assert (gap(expected, without) > 1e-6) == (name in ("bexp3", "bexp3-ipw", "blts-b"))


def test_rows_that_say_nothing_allow_every_action_and_wrong_ones_are_named(tmp_path: Path) -> None:
    table = make_table(900)
    lists = eligible_lists(table)
    full, silent = (
        [[0, 1, 2, *more] if row % 3 else none for row in range(900)] for more, none in (([], [0, 1, 2]), ([77], None))
    )
    models = [
        train(table.append_column("eligible", pa.array(one)), "bexp3", batch_size=300).bandit for one in (full, silent)
    ]
    assert gap(*models) < 1e-12
    lists[700] = [(table["action"][700].as_py() + 1) % 3]
    write_files(tmp_path / "log", table.append_column("eligible", pa.array(lists)), [400, 500], group=50)
    with pytest.raises(InputError, match=r"part-01\.parquet': got \d executed but not eligible at row 300,"):
        train(str(tmp_path / "log"), "bexp3", batch_size=300)


@pytest.mark.parametrize("kind", ["episode", "time"])
def test_scattered_episodes_are_grouped_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    numbers = np.random.default_rng(2).integers(0, 40, ROWS)
    hours = pa.array(1_700_000_000 // 3600 * 3600 + 3600 * numbers + 5)
    further: dict[str, Any] = {"episode": numbers} if kind == "episode" else {"time": hours}
    table = make_table(ROWS, **further)
    write_files(tmp_path / "log", table, [1_300, 1_300], group=200)
    episodes = [np.flatnonzero(numbers == number) for number in np.unique(numbers)]
    expected = one_by_one("spuir", table, episodes)
    given: dict[str, Any] = {} if kind == "episode" else {"every": "hour"}
    for limit, expected_notices in ((job.OPEN_BYTES, 0), (1, 1)):
        monkeypatch.setattr(job, "OPEN_BYTES", limit)
        trained = train(str(tmp_path / "log"), "spuir", **given)
        assert sum("grouping rows by episode" in notice for notice in trained.notices) == expected_notices
        assert gap(trained.bandit, expected) < 1e-9
        assert [line.rows for line in trained.episodes] == [len(rows) for rows in episodes]


@pytest.mark.parametrize("scattered", [False, True])
def test_a_reward_whose_square_overflows_is_named_by_its_row_in_the_file(tmp_path: Path, scattered: bool) -> None:
    order = np.arange(100)
    table = make_table(100, episode=order % 10 if scattered else order // 10)
    rewards = table["reward"].to_numpy().copy()
    rewards[77] = 1e200
    write_files(tmp_path / "log", table.set_column(1, "reward", pa.array(rewards)), [50, 50], group=20)
    with pytest.raises(InputError, match=r"rewards in file .*part-01\.parquet': got 1e\+200 at row 27,"):
        train(str(tmp_path / "log"), "puir")


def test_a_bad_row_of_a_grouped_log_is_named_where_it_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(100, episode=np.arange(100) % 10)
    rewards = table["reward"].to_numpy().copy()
    rewards[77] = np.inf
    write_files(tmp_path / "log", table.set_column(1, "reward", pa.array(rewards)), [50, 50], group=20)
    monkeypatch.setattr(job, "OPEN_BYTES", 1)
    with pytest.raises(InputError, match=r"rewards in file .*part-01\.parquet': got inf at row 27"):
        train(str(tmp_path / "log"), "puir")
    contexts = table["x2"].to_numpy().copy()
    contexts[61] = np.inf
    write_files(tmp_path / "log", table.set_column(4, "x2", pa.array(contexts)), [50, 50], group=20)
    with pytest.raises(InputError, match=r"column 'x2' in file .*part-01\.parquet': got inf at row 11"):
        train(str(tmp_path / "log"), "puir")
    write_files(tmp_path / "log", table, [50, 50], group=20)
    with pytest.raises(UnknownNameError, match=r"action in file .*part-00\.parquet'"):
        train(str(tmp_path / "log"), "puir", actions=[0, 1])


@pytest.mark.parametrize(("policy", "limit"), [("puir", 1), ("puir", 2**28), ("puir-kernel", 2**28)])
def test_broken_rows_are_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, limit: int
) -> None:
    rng = np.random.default_rng(4)
    lines = [
        json.dumps(
            {
                "_label_cost": -float(rng.random()),
                "_label_probability": 0.5,
                "_label_Action": 1 + at % 2,
                "_labelIndex": at % 2,
                "Timestamp": f"2024-05-06T{at % 4:02}:00:00Z",
                "EventId": f"e{at}",
                "a": [1 + at % 2, 2 - at % 2],
                "p": [0.5, 0.5],
                "c": {"u": {"x": float(rng.normal())}, "_multi": [{"_tag": "a"}, {"_tag": "b"}]},
            }
        )
        for at in range(240)
    ]
    path = tmp_path / "log.json"
    path.write_text("\n".join([*lines[:100], "{", *lines[100:]]), encoding="utf-8")
    monkeypatch.setattr(job, "OPEN_BYTES", limit)
    trained = train(str(path), policy, every="hour")
    assert trained.rows == 240
    assert [note for note in trained.notices if "broken" in note and "1 broken row," in note and "line 101" in note]


def test_many_actions_are_kept_as_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(600, labels=tuple(range(200)))
    collected = []
    original = spuir.Bandit.collect
    monkeypatch.setattr(spuir.Bandit, "collect", lambda *a, **k: collected.append(1) or original(*a, **k))
    trained = train(table, "puir", batch_size=100)
    assert not collected
    monkeypatch.undo()
    assert gap(trained.bandit, one_by_one("puir", table, [slice(s, s + 100) for s in range(0, 600, 100)])) < 1e-9


def test_rows_without_a_reward_are_left_out_and_counted() -> None:
    table = make_table(300)
    rewards = table["reward"].to_pylist()
    rewards[:100] = [None] * 100
    rewards[150] = None
    log = table.set_column(1, "reward", pa.array(rewards, pa.float64()))
    trained = train(log, "puir", batch_size=100)
    kept = [np.delete(np.arange(100, 200), 50), np.arange(200, 300)]
    assert gap(trained.bandit, one_by_one("puir", table, kept)) < 1e-9
    assert [line.silent for line in trained.episodes] == [100, 1, 0]
    assert trained.episodes[0].mean_reward is None
    with pytest.raises(InputError, match="no row with a reward"):
        train(table.set_column(1, "reward", pa.nulls(300, pa.float64())), "puir", batch_size=100)


@pytest.mark.parametrize("preset", ["paper", None])
@pytest.mark.parametrize("limit", [job.OPEN_BYTES, 1])
@pytest.mark.parametrize("scattered", [False, True])
def test_sketches_of_rows_without_a_reward_or_a_weight(
    monkeypatch: pytest.MonkeyPatch, preset: str | None, limit: int, scattered: bool
) -> None:
    """A sketch hashes rows by number, with a key for each episode: neither may count what is not learned."""
    rng = np.random.default_rng(5)
    numbers = np.repeat(np.arange(8), 150)
    weights = np.where(rng.random(1_200) < 0.1, 0.0, 1.0 + rng.random(1_200))
    silent = (rng.random(1_200) < 0.2) | (numbers == 0) | (numbers == 3)
    weights[numbers == 5] = 0.0
    order = rng.permutation(1_200) if scattered else np.arange(1_200)
    table = make_table(1_200, episode=numbers, weight=weights)
    rewards = pa.array(table["reward"].to_numpy(), mask=silent)
    log = table.set_column(1, "reward", rewards).take(pa.array(order))
    policy = spuir.make_policy("spuir", preset=preset, sketch_size=20)
    monkeypatch.setattr(job, "OPEN_BYTES", limit)
    monkeypatch.setattr("spuir.logs.open.TABLE_ROWS", 170)
    trained = train(log, policy, **({} if scattered else {"batch_size": 150, "rename": {"episode": None}}))
    known = np.flatnonzero(~silent & (weights > 0))
    episodes = [order[np.isin(order, known) & (numbers[order] == number)] for number in (1, 2, 4, 6, 7)]
    expected = one_by_one(policy, table, episodes, sample_weight="weight")
    assert gap(trained.bandit, expected) < 1e-9
    assert trained.bandit.n_episodes_ == 5 and len(trained.episodes) == 8


def test_text_episodes_are_learned_in_their_natural_order() -> None:
    numbers = np.repeat(np.arange(1, 13), 50)
    table = make_table(600, episode=[f"e{number}" for number in numbers])
    trained = train(table, "puir")
    assert [line.key for line in trained.episodes] == [f"e{number}" for number in range(1, 13)]
    assert gap(trained.bandit, one_by_one("puir", table, [slice(s, s + 50) for s in range(0, 600, 50)])) < 1e-9
    assert any("'e1', 'e2', 'e3', …, 'e12'" in notice for notice in trained.notices)
    with pytest.raises(InputError, match=r"'e01' and 'e1'|'e1' and 'e01'"):
        train(make_table(100, episode=["e1", "e01"] * 50), "puir")


class TestFirstTime:
    """One mistaken time would be the first episode, on which everything else is fixed."""

    DAYS = 1_700_000_000 + 600 * np.arange(3_000)

    def train_with(self, tmp_path: Path, **changed: int) -> Training:
        times = self.DAYS.copy()
        for row, value in changed.items():
            times[int(row[1:])] = value
        write_files(tmp_path / "log", make_table(3_000, time=times), [1_000, 2_000], group=500)
        return train(str(tmp_path / "log"), "puir", every="day")

    @pytest.mark.parametrize("value", [0, 86_400 * 20, 1_200_000_000])
    def test_it_is_refused_with_its_row(self, tmp_path: Path, value: int) -> None:
        with pytest.raises(InputError, match=r"'time' in file .*part-01\.parquet': got .* at row 1500.*years before"):
            self.train_with(tmp_path, r2500=value)

    def test_several_of_them(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"1970-01-01.*at row 700, but it and 1 others come 5\d years before"):
            self.train_with(tmp_path, r700=0, r2000=86_400)

    def test_what_is_plausible(self, tmp_path: Path) -> None:
        # Ten months before the rest, and a log that counts from its beginning.
        assert len(self.train_with(tmp_path, r10=1_675_000_000).episodes) == 23
        assert len(train(make_table(300, time=np.arange(300) * 3_600), "puir", every="day").episodes) == 13

    def test_a_long_log_may_pause_for_a_year(self) -> None:
        years = 1_400_000_000 + 31_557_600 * np.array([0] * 5 + [3, 4, 5, 6, 7] * 99)
        assert len(train(make_table(500, time=years), "puir", every="day").episodes) == 6


def test_text_labels_raw_columns_and_csv(tmp_path: Path) -> None:
    table = make_table(400, labels=("north", "south", "été"), city=["Oslo", "Rome", "Bern", "Oslo"] * 100)
    csv.write_csv(table, tmp_path / "log.csv")
    trained = train(str(tmp_path / "log.csv"), "puir", batch_size=200, encoding={"intercept": True})
    assert trained.bandit.actions_.tolist() == ["north", "south", "été"]
    row = {"x0": 2.0, "x1": 0.0, "x2": 0.0, "x3": 0.0, "city": "Oslo"}
    assert trained.bandit.predict([row]).tolist() == ["south"]
    again = train(table, "puir", batch_size=200, encoding={"intercept": True})
    np.testing.assert_allclose(again.bandit.coefficients_, trained.bandit.coefficients_, rtol=1e-9)


def test_only_given_actions_are_taken(folder: Path) -> None:
    trained = train(str(folder), "puir", batch_size=BATCH, actions=[2, 0, 1, 9])
    assert trained.bandit.actions_.tolist() == [2, 0, 1, 9]
    with pytest.raises(UnknownNameError, match=r"part-00\.parquet"):
        train(str(folder), "puir", batch_size=BATCH, actions=[0, 1])


def test_an_unknown_option_of_the_encoder_is_refused_at_once(folder: Path) -> None:
    with pytest.raises(ParameterError, match=r"'hash'.*did you mean 'hashing'"):
        train(folder, "puir", batch_size=100, encoding={"hash": 8})
    with pytest.raises(ParameterError, match="'table'"):
        examine(open_log(folder), encoding={"table": 1})


def test_a_bad_row_is_named_with_its_file(tmp_path: Path) -> None:
    table = make_table(50)
    broken = table.set_column(1, "reward", pa.array([*table["reward"].to_pylist()[:-1], float("inf")]))
    write_files(tmp_path / "log", broken, [50], group=50)
    with pytest.raises(InputError, match=r"rewards in .*part-00\.parquet.*: got inf"):
        train(str(tmp_path / "log"), "puir", batch_size=10)


SCRIPT = """
import sys, time
from spuir.training import checkpoint, fold, train
checkpoint.SAVE_SECONDS = 0.0
learn = fold.learn_episode
def slow(*given):
    time.sleep(0.15)
    return learn(*given)
fold.learn_episode = slow
train(sys.argv[1], "spuir", batch_size=150, out=sys.argv[2])
"""


def test_a_killed_run_resumes_to_the_same_bits(folder: Path, tmp_path: Path) -> None:
    out, progress = tmp_path / "model.spuir", tmp_path / "model.spuir.progress" / "progress.json"
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder), str(out)])
    try:
        for _ in range(600):
            if progress.exists() and process.poll() is None and "episode-000000003" in progress.read_text("utf-8"):
                break
            if process.poll() is not None:
                break
            time.sleep(0.02)
        assert process.poll() is None, "it ended before it could be killed"
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait(timeout=30)
    assert not out.exists()
    resumed = train(str(folder), "spuir", batch_size=150, out=out)
    whole = train(str(folder), "spuir", batch_size=150, out=tmp_path / "whole.spuir")
    assert resumed.resumed >= 3
    assert out.read_bytes() == (tmp_path / "whole.spuir").read_bytes()
    assert len(resumed.episodes) == len(whole.episodes) == 18
    assert not progress.parent.exists()


FULL = """
import resource, sys
from spuir.training import checkpoint, train
checkpoint.SAVE_SECONDS = 0.0
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, most))  # as good as a full disk: a longer file cannot be written
def watch(stage, done, total):
    if stage == "learn" and done == total:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
train(sys.argv[1], "puir", batch_size=150, out=sys.argv[2], tell=print, watch=watch)
"""


def test_training_continues_when_a_checkpoint_cannot_be_saved(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.spuir"
    command = [sys.executable, "-c", FULL, str(folder), str(out)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert printed.count("Training continues without checkpoints") == 1 and "File too large" in printed
    train(str(folder), "puir", batch_size=150, out=tmp_path / "whole.spuir")
    assert out.read_bytes() == (tmp_path / "whole.spuir").read_bytes()
    assert sorted(path.name for path in tmp_path.glob("*.spuir*")) == ["model.spuir", "whole.spuir"]


def test_other_settings_do_not_resume_a_killed_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "model.spuir"

    class StopError(Exception):
        pass

    def stop(stage: str, done: int, total: int) -> None:
        if stage == "learn" and done > 1_000:
            raise StopError

    monkeypatch.setattr(checkpoint, "SAVE_SECONDS", 0.0)
    with pytest.raises(StopError):
        train(str(folder), "puir", batch_size=BATCH, out=out, watch=stop)
    again = train(str(folder), spuir.make_policy("puir", ridge=2.0), batch_size=BATCH, out=out)
    assert again.resumed == 0
    assert any(note.startswith("Starting from the first episode") for note in again.notices)


def test_memory_is_forecast_and_too_much_refused(folder: Path) -> None:
    table = make_table(3_000)
    tracemalloc.start()
    try:
        trained = train(table, "puir", batch_size=1_000, workers=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < trained.needed.total
    with pytest.raises(ParameterError, match=r"7 tables of 3 actions × \(5² \+ 5 \+ 2\) numbers.*fewer actions"):
        train(str(folder), "puir", batch_size=BATCH, memory_limit=1_000)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 10, "workers": 0}, "workers"),
        ({"batch_size": 10, "engine": "dusk"}, "did you mean 'dask'"),
        ({"batch_size": 10, "context": []}, "context"),
    ],
)
def test_wrong_arguments_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(spuir.errors.SpuirError, match=message):
        train(make_table(30), "puir", **given)


def test_without_a_word_on_episodes_they_have_the_recommended_size(folder: Path) -> None:
    size = spuir.planning.plan(ROWS, 4, 3).batch_size
    trained = train(str(folder), "puir")
    assert 1 < size < ROWS
    assert [line.rows for line in trained.episodes[:-1]] == [size] * (len(trained.episodes) - 1)
    assert any(f"each has {size:,} rows, the recommended size" in notice for notice in trained.notices)
    assert not any("--every" in notice for notice in trained.notices)  # the log has no times
    assert gap(trained.bandit, train(str(folder), "puir", batch_size=size).bandit) == 0


def test_a_log_without_rows_is_refused_before_anything_is_said_of_it(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("age,action,reward\n")
    told: list[str] = []
    with pytest.raises(InputError, match="log: got no rows, but training needs at least one decision"):
        train(tmp_path / "log.csv", "puir", tell=told.append)
    assert not told


def test_a_column_of_ids_is_named_with_the_option_that_leaves_it_out() -> None:
    ids, towns = [f"v{row}" for row in range(600)], [f"t{row % 300}" for row in range(600)]
    trained = train(make_table(600, visit_id=ids, town=towns), "puir", batch_size=200)
    (notice,) = (one for one in trained.notices if "looks like an id" in one)
    assert notice.startswith("visit_id: nearly every row has a different value")
    assert "leave it out (--rename visit_id=)" in notice
    without = train(make_table(600, visit_id=ids), "puir", batch_size=200, rename={"visit_id": None})
    assert not any("looks like an id" in one for one in without.notices)


def test_a_local_engine_keeps_order_and_hands_failures_on() -> None:
    engine = Local(3)
    assert list(engine.map(lambda item: item * 2, range(50))) == list(range(0, 100, 2))
    with pytest.raises(ZeroDivisionError):
        list(engine.map(lambda item: 1 // item, [1, 0, 2]))


def test_a_missing_propensity_is_refused_with_a_way_out(tmp_path: Path) -> None:
    chances = [None if row == 517 else 0.5 for row in range(900)]
    write_files(tmp_path / "log", make_table(900, propensity=pa.array(chances)), [400, 500], group=50)
    with pytest.raises(InputError, match=r"part-01\.parquet': got nothing at row 117, .*\(--rename propensity=\)"):
        train(str(tmp_path / "log"), "puir", batch_size=300)
    assert train(str(tmp_path / "log"), "puir", batch_size=300, rename={"propensity": None}).rows == 900


def test_warnings_are_as_before_after_two_trainings_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, fix = {name: Event() for name in ("first", "second")}, spuir.Bandit.fix
    before = warnings.filters, warnings.showwarning

    def slowly(bandit: spuir.Bandit, *given: Any, **named: Any) -> Any:
        entered[current_thread().name].set()
        if current_thread() is first:
            entered["second"].wait(1)
        else:
            first.join(30)
        return fix(bandit, *given, **named)

    def learn() -> None:
        train(make_table(200), "auto", batch_size=100, workers=1)

    monkeypatch.setattr(spuir.Bandit, "fix", slowly)
    first, second = (Thread(target=learn, name=name) for name in entered)
    first.start()
    assert entered["first"].wait(30)
    second.start()
    second.join()
    assert warnings.filters is before[0] and warnings.showwarning is before[1]
