"""Two tables joined by id: as an episode settles them, in the order of the decisions, in bounded memory."""

import gc
import pickle
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spuir
from spuir.base.streams import generator
from spuir.errors import InputError, ParameterError
from spuir.logs import Report, join, join_logs, open_log, sort, write_log
from spuir.logs.id_hashes import hash_ids
from spuir.logs.rewards import AGGREGATIONS


@contextmanager
def small_batches() -> Iterator[None]:
    """Hand on results two rows at a time, so that the rewards of one decision come in several batches."""

    def sliced(*given: Any) -> Iterator[pa.RecordBatch]:
        for batch in sort.sort_rows(*given):
            for start in range(0, batch.num_rows, 2):
                yield batch.slice(start, 2)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join, "sort_rows", sliced)
        yield


def by_episode(
    decisions: dict[str, Any], rewards: dict[str, Any], as_of: int | None, **rules: Any
) -> tuple[list[Any], Report]:
    """Return the rewards of the decisions, each id once, and the report, as an episode has them."""
    episode = spuir.Episode(**rules)
    ids = decisions["decision_id"]
    episode.record(np.zeros((len(ids), 1)), ids=ids, actions=decisions["action"], time=decisions["time"])
    for name, value, when in zip(rewards["decision_id"], rewards["reward"], rewards["time"], strict=True):
        episode.reward(name, value, time=when)
    report = episode.close(as_of=max(rewards["time"], default=-100) if as_of is None else as_of)
    return episode.table()["reward"].to_pylist(), report


IDS = st.integers(-3, 30) | st.sampled_from([2**62, -(2**62)])


@settings(max_examples=60)
@given(
    decided=st.lists(st.tuples(IDS, st.integers(0, 9)), min_size=1, max_size=40),
    events=st.lists(st.tuples(IDS, st.integers(-8, 8).map(float), st.integers(0, 30)), max_size=60),
    aggregation=st.sampled_from(AGGREGATIONS),
    window=st.none() | st.just(9),
    late=st.sampled_from(["drop", "accept"]),
    default=st.none() | st.just(-1.0),
    text=st.booleans(),
    as_of=st.none() | st.integers(8, 30),
)
def test_tables_are_joined_as_an_episode_does_it(
    decided: list[tuple[int, int]],
    events: list[tuple[int, float, int]],
    aggregation: str,
    window: int | None,
    late: str,
    default: float | None,
    text: bool,
    as_of: int | None,
) -> None:
    name = (lambda one: f"id é {one}") if text else (lambda one: one)
    decisions = {
        "decision_id": [name(one) for one, _ in decided],
        "time": [when for _, when in decided],
        "action": list(range(len(decided))),
    }
    rewards = {
        "decision_id": [name(one) for one, _, _ in events],
        "reward": [value for _, value, _ in events],
        "time": [when for _, _, when in events],
    }
    rules: dict[str, Any] = {"aggregation": aggregation, "window": window, "late": late, "default": default}
    expected, report = by_episode(decisions, rewards, as_of, **rules)
    kind = pa.string() if text else pa.int64()
    table = pa.table(
        {
            "decision_id": pa.array(rewards["decision_id"], kind),
            "reward": pa.array(rewards["reward"], pa.float64()),
            "time": pa.array(rewards["time"], pa.int64()),
        }
    )
    with small_batches():
        if report.open == report.decisions:
            with pytest.raises(InputError, match="decisions is still open"):
                join_logs(decisions, table, as_of=as_of, **rules)
            return
        joined = join_logs(decisions, table, as_of=as_of, **rules)
    found = joined.log.table()
    first = list(dict.fromkeys(decisions["decision_id"]))
    assert found["decision_id"].to_pylist() == first
    assert found["action"].to_pylist() == [decisions["decision_id"].index(one) for one in first]
    assert found["reward"].to_pylist() == expected
    assert joined.report == report
    assert joined.log.rows == len(first)


def tables(n: int, folder: Path, group: int = 430) -> tuple[Path, Path]:
    """Write n decisions in row groups, and about as many rewards in another order; return both paths."""
    rng = generator(0, "tables", n)
    ids = np.array([f"{one:016x}" for one in rng.permutation(n)])
    x = rng.normal(size=n)
    times = np.arange(n, dtype=np.float64)
    decisions = pa.table({"decision_id": ids, "time": times, "action": rng.integers(0, 3, n), "x": x})
    own = rng.integers(0, n, n)
    rewards = pa.table({"decision_id": ids[own], "reward": rng.normal(size=n), "reward_time": times[own] + 5})
    folder.mkdir(exist_ok=True)
    left, right = folder / f"decisions-{n}.parquet", folder / f"rewards-{n}.parquet"
    pq.write_table(decisions, left, row_group_size=group)
    pq.write_table(rewards, right, row_group_size=2 * group)
    return left, right


class TestLog:
    def test_order_columns_and_context_are_those_of_the_decisions(self, tmp_path: Path) -> None:
        left, right = tables(3000, tmp_path)
        log, report = join_logs(left, right, aggregation="sum", window="1m", as_of=4_000)
        decisions, rewards = pq.read_table(left), pq.read_table(right).to_pandas()
        assert log.schema.names == ["decision_id", "time", "action", "reward", "reward_time", "x"]
        assert log.context == ("x",) and log.format == "parquet"
        table = log.table()
        assert table["decision_id"].to_pylist() == decisions["decision_id"].to_pylist()
        assert table["x"].equals(decisions["x"])
        sums = rewards.groupby("decision_id")["reward"].sum()
        expected = [sums.get(one, 0.0) for one in decisions["decision_id"].to_pylist()]
        np.testing.assert_allclose(table["reward"].to_numpy(), expected, rtol=1e-12)
        known = [one is not None for one in table["reward_time"].to_pylist()]
        assert sum(known) == len(sums) == 3000 - report.silent

    def test_parts_are_read_alone_in_any_order_and_elsewhere(self, tmp_path: Path) -> None:
        log, _ = join_logs(*tables(2000, tmp_path))
        whole = log.table()
        sent = [pickle.loads(pickle.dumps(part)) for part in log.parts]
        assert len(sent) == 5
        apart = [list(part.read(batch_rows=37)) for part in reversed(sent)]
        assert pa.Table.from_batches([batch for some in reversed(apart) for batch in some], log.schema).equals(whole)
        assert [part.rows for part in sent] == [sum(b.num_rows for b in some) for some in reversed(apart)]
        assert log.table(["reward"])["reward"].equals(whole["reward"])
        assert log.table(["x", "decision_id"]).equals(whole.select(["x", "decision_id"]))

    def test_parts_know_their_rows_without_duplicates(self, tmp_path: Path) -> None:
        ids = [0, 1, 0, 2, 2, 3, 1, 4, 5, 3]
        table = pa.table({"decision_id": ids, "action": list(range(10))})
        pq.write_table(table, tmp_path / "decisions.parquet", row_group_size=3)
        log, report = join_logs(tmp_path / "decisions.parquet", {"decision_id": [3], "reward": [1.0]})
        assert [part.rows for part in log.parts] == [2, 2, 2, 0]
        assert log.table()["action"].to_pylist() == [0, 1, 3, 5, 7, 8]
        assert report.duplicates == 4
        named = [part.source_row(row) for part in log.parts for row in range(part.rows or 0)]
        assert named == [0, 1, 3, 5, 7, 8]  # as the file counts them

    def test_the_joined_log_can_be_written_and_opened(self, tmp_path: Path) -> None:
        log, _ = join_logs(*tables(500, tmp_path))
        write_log(log, tmp_path / "joined.csv.zst")
        assert open_log(tmp_path / "joined.csv.zst").table().num_rows == 500

    def test_text_files_are_joined_too(self, tmp_path: Path) -> None:
        (tmp_path / "d.csv").write_text("decision_id,action,age\na,0,1\nb,1,2\na,1,3\n", encoding="utf-8")
        (tmp_path / "r.jsonl").write_text('{"id": "b", "paid": 3}\n{"id": "z", "paid": null}\n', encoding="utf-8")
        rewards = open_log(tmp_path / "r.jsonl", rename={"id": "decision_id", "paid": "reward"}, kind="rewards")
        log, report = join_logs(tmp_path / "d.csv", rewards, default=None)
        assert log.table().to_pylist() == [
            {"decision_id": "a", "action": 0, "reward": None, "age": 1},
            {"decision_id": "b", "action": 1, "reward": 3.0, "age": 2},
        ]
        assert report == Report(decisions=2, duplicates=1, rewards=2, orphans=1, silent=1)
        assert log.rows == 2

    def test_missing_values_and_ids_of_rewards_are_counted(self) -> None:
        decisions = {"decision_id": [1, 2], "action": [0, 0]}
        rewards = {"decision_id": pa.array([1, None, 2, 2]), "reward": [None, 1.0, 2.0, None]}
        log, report = join_logs(decisions, rewards)
        assert log.table()["reward"].to_pylist() == [0.0, 2.0]
        assert report == Report(decisions=2, rewards=4, orphans=1, missing=2, silent=1)

    def test_the_fingerprint_follows_both_tables_and_the_rules(self) -> None:
        decisions = {"decision_id": [1], "action": [0]}
        marks = {
            join_logs(decisions, {"decision_id": [1], "reward": [value]}, default=default).log.fingerprint()
            for value in (1.0, 2.0)
            for default in (0.0, None)
        }
        assert len(marks) == 4

    def test_no_decisions_and_no_rewards(self) -> None:
        none = {"decision_id": pa.array([], pa.string()), "action": pa.array([], pa.int64())}
        log, report = join_logs(none, {"decision_id": ["a"], "reward": [1.0]})
        assert log.table().num_rows == 0 and report == Report(rewards=1, orphans=1)
        some = {"decision_id": ["a"], "action": [1]}
        nothing = {"decision_id": pa.array([], pa.string()), "reward": pa.array([], pa.float64())}
        assert join_logs(some, nothing).log.table()["reward"].to_pylist() == [0.0]


class TestOpenWindows:
    """What cannot be known yet is not learned as 0."""

    DECISIONS: dict[str, Any] = {  # noqa: RUF012
        "decision_id": list("abcd"),
        "action": [0, 0, 1, 1],
        "time": ["2024-05-01", "2024-05-02", "2024-05-03", "2024-05-04"],
    }
    REWARDS: dict[str, Any] = {  # noqa: RUF012
        "decision_id": list("ad"),
        "reward": [1.0, 1.0],
        "time": ["2024-05-01T12:00", "2024-05-04T06:00"],
    }

    def join(self, **rules: Any) -> tuple[list[Any], Report, tuple[str, ...]]:
        log, report = join_logs(self.DECISIONS, self.REWARDS, **rules)
        return log.table()["reward"].to_pylist(), report, log.notices

    def test_decisions_are_open_at_the_last_reward_even_if_they_were_quick_to_pay(self) -> None:
        rewards, report, (notice,) = self.join(window="1d")
        # "c" is open until 00:00 of the 4th, which is over; "d" has a reward, but its window runs on.
        assert rewards == [1.0, 0.0, 0.0, None]
        assert report == Report(decisions=4, rewards=2, silent=2, open=1)
        assert "1 with a window still open" in str(report)
        assert "Left out: 1 decision whose window of 1d was still open at 2024-05-04T06:00:00+00:00" in notice
        assert "--as-of" in notice

    @pytest.mark.parametrize(
        ("as_of", "expected"),
        [
            ("2024-05-09", [1.0, 0.0, 0.0, 1.0]),
            ("2024-05-03T12:00", [1.0, 0.0, None, None]),
            (1714694400, [1.0, 0.0, None, None]),
        ],
    )
    def test_another_time_can_be_given(self, as_of: Any, expected: list[float | None]) -> None:
        assert self.join(window="1d", as_of=as_of)[0] == expected

    def test_without_a_window_nothing_is_open(self) -> None:
        rewards, report, notices = self.join()
        assert (rewards, report.open, notices) == ([1.0, 0.0, 0.0, 1.0], 0, ())

    def test_the_time_is_part_of_the_fingerprint(self) -> None:
        marks = {
            join_logs(self.DECISIONS, self.REWARDS, window="1d", as_of=as_of).log.fingerprint()
            for as_of in (None, "2024-05-09", "2024-05-08")
        }
        assert len(marks) == 3

    def test_a_last_reward_years_after_all_others_is_refused(self) -> None:
        """It would close the windows of all decisions, whose rewards would be learned as 0."""
        hours = np.arange("2024-05-01T00", "2024-05-11T00", dtype="M8[h]").astype("M8[us]")
        ids = [f"d{at}" for at in range(240)]
        decisions = {"decision_id": ids, "time": hours, "action": [0] * 240}
        late = hours.copy()
        late[7] = np.datetime64("2096-01-01")
        rewards = {"decision_id": ids, "time": late, "reward": [1.0] * 240}
        with pytest.raises(InputError, match=r"2096-01-01.*it comes 72 years after the rest.*2024-05-10T23.*--as-of"):
            join_logs(decisions, rewards, window="1d")
        assert join_logs(decisions, rewards, window="1d", as_of="2024-05-10T23").report.open == 24
        assert join_logs(decisions, rewards).report.open == 0  # without a window the time of a reward does not matter
        late[7] = np.datetime64("2024-05-20")
        assert join_logs(decisions, rewards | {"time": late}, window="1d").report.open == 0

    def test_when_all_are_open_it_is_refused(self) -> None:
        with pytest.raises(InputError, match=r"window of all 4 decisions is still open.*--as-of"):
            self.join(window="1w")


class TestRefusals:
    DECISIONS: dict[str, Any] = {"decision_id": ["a", "b"], "action": [0, 1], "time": [0, 0]}  # noqa: RUF012
    REWARDS: dict[str, Any] = {"decision_id": ["a"], "reward": [1.0], "time": [9999]}  # noqa: RUF012

    @pytest.mark.parametrize(
        ("decisions", "rewards", "rules", "told"),
        [
            (
                {},
                {"decision_id": [1]},
                {},
                r"in rewards.*open the rewards with types=.*\(--type-rewards decision_id=string\)",
            ),
            ({"decision_id": [1, 2]}, {}, {}, r"open the decisions with types=.*\(--type decision_id=string\)"),
            ({"reward": [1.0, 2.0]}, {}, {}, r"a column 'reward'.*rename="),
            ({"decision_id": ["a", None]}, {}, {}, "row 1: got no decision_id"),
            ({}, {"reward": [np.inf]}, {}, "inf 'a'"),
            ({}, {"time": [None]}, {"window": "1h"}, "no time of the reward 'a'"),
            ({"time": pa.array([None, 0])}, {}, {"window": "1h"}, "no time of its decision 'a'"),
            ({}, {}, {"window": "1h", "late": "refuse"}, "9999 s after its decision 'a'"),
        ],
    )
    def test_what_cannot_be_joined_leaves_nothing_behind(
        self, tmp_path: Path, decisions: dict[str, Any], rewards: dict[str, Any], rules: dict[str, Any], told: str
    ) -> None:
        with pytest.raises(InputError, match=told):
            join_logs(self.DECISIONS | decisions, self.REWARDS | rewards, **rules, folder=tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_a_window_without_times(self) -> None:
        with pytest.raises(InputError, match=r"needs the times.* the decisions have no .*\(--time-column …\)"):
            join_logs({"decision_id": ["a"], "action": [0]}, self.REWARDS, window="1h")
        with pytest.raises(InputError, match=r"the rewards have no column 'time'; .*\(--reward-time-column …\)"):
            join_logs(self.DECISIONS, {"decision_id": ["a"], "reward": [1.0]}, window="1h")

    def test_parameters_and_folders(self, tmp_path: Path) -> None:
        with pytest.raises(ParameterError, match="memory"):
            join_logs(self.DECISIONS, self.REWARDS, memory=0)
        with pytest.raises(InputError, match=r"folder.*name another"):
            join_logs(self.DECISIONS, self.REWARDS, folder=tmp_path / "absent")
        with pytest.raises(InputError, match="need a column 'action'"):
            join_logs(self.REWARDS, self.REWARDS)

    def test_temporary_files_go_with_the_log(self, tmp_path: Path) -> None:
        joined = join_logs(self.DECISIONS, self.REWARDS, folder=tmp_path)
        parts = joined.log.parts
        del joined
        gc.collect()
        (folder,) = tmp_path.iterdir()
        assert [one.name for one in folder.iterdir()] == ["outcomes"]
        assert sum(batch.num_rows for part in parts for batch in part.read()) == 2
        del parts
        gc.collect()
        assert list(tmp_path.iterdir()) == []


def arrow_peak(work: Any) -> int:
    """Return the most bytes that Arrow held during some work, beyond what it held before."""
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    before = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        work()
    finally:
        pa.set_memory_pool(before)
    return pool.max_memory()


def test_memory_does_not_grow_with_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort, "RESULT_ROWS", 2_048)
    monkeypatch.setattr(join, "_FILL_ROWS", 2_048)
    peaks: list[tuple[int, int]] = []
    for n in (8_000, 48_000):
        left, right = tables(n, tmp_path, 2_000)
        decisions, rewards = open_log(left, kind="decisions"), open_log(right, kind="rewards")

        def work(decisions: Any = decisions, rewards: Any = rewards) -> None:
            log, _ = join_logs(decisions, rewards)
            for _ in log.batches():
                pass

        tracemalloc.start()
        arrow = arrow_peak(work)
        peaks.append((arrow, tracemalloc.get_traced_memory()[1]))
        tracemalloc.stop()
    (small_arrow, small_numpy), (large_arrow, large_numpy) = peaks
    # Six times the rows in row groups of one size; held whole, it would be six times.
    assert large_arrow < 2 * small_arrow
    assert large_numpy < 2 * small_numpy


SPILLING = """
import os, resource, sys
from spuir.errors import InputError
from spuir.logs import join_logs, sort
sort.MIN_MEMORY = 1
folder, limit = sys.argv[3], int(sys.argv[4])
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit or most, most))  # a longer file cannot be written, as on a full disk
try:
    log, report = join_logs(sys.argv[1], sys.argv[2], memory=32 << 20, folder=folder)
    left = os.listdir(os.path.join(folder, os.listdir(folder)[0]))
    print(report.decisions - report.silent == report.rewards - report.repeated, left, log.rows)
except (InputError, OSError) as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("limit", "message"),
    [(0, "True ['outcomes'] 250000"), (1_000_000, "InputError sort"), (1_000, "InputError folder")],
)
def test_tables_larger_than_memory_and_full_disks(tmp_path: Path, limit: int, message: str) -> None:
    left, right = tables(250_000 if limit != 1_000 else 1_000, tmp_path, 50_000)
    (tmp_path / "scratch").mkdir()
    command = [sys.executable, "-c", SPILLING, str(left), str(right), str(tmp_path / "scratch"), str(limit)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert message in printed
    assert list((tmp_path / "scratch").iterdir()) == []


class TestHashes:
    @given(st.lists(st.text(), min_size=1, max_size=30), st.integers(0, 5))
    def test_a_hash_depends_on_the_text_alone(self, texts: list[str], skip: int) -> None:
        every = hash_ids(pa.array(texts, pa.string()))
        apart = [hash_ids(pa.array([text], pa.large_string()))[0] for text in texts]
        assert every.tolist() == apart
        assert hash_ids(pa.array(texts, pa.string()).slice(skip)).tolist() == apart[skip:]
        assert len(set(apart)) == len(set(texts))

    def test_hashes_are_even_and_stay_the_same(self) -> None:
        assert hash_ids(pa.array([0, 1, -1])).tolist() == [
            16294208416658607535,
            10451216379200822465,
            16490336266968443936,
        ]
        for ids in (pa.array(range(64_000)), pa.array([str(one) for one in range(64_000)])):
            counts = np.bincount((hash_ids(ids) % np.uint64(64)).astype(int), minlength=64)
            # Fixed ids; a fair hash leaves ±6 standard deviations of Poisson(1000) with probability 1e-7.
            assert abs(counts - 1000).max() < 6 * np.sqrt(1000)
