"""Episodes cut by column, size and time: against row-by-row references, over every way to batch the rows."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv

from spuir.errors import InputError, ParameterError
from spuir.logs import Cut, cut_episodes, open_log

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def log_of(n: int, **columns: Any) -> Any:
    return open_log({"action": np.zeros(n, np.int64), "reward": np.zeros(n)} | columns)


def in_batches(cut: Cut, table: pa.Table, sizes: list[int]) -> list[Any]:
    """Return the keys of a table that comes in batches of these sizes, over and over."""
    keys: list[Any] = []
    at = 0
    while len(keys) < table.num_rows:
        part = table.slice(len(keys), sizes[at % len(sizes)]).combine_chunks()
        for batch in part.to_batches():
            keys += cut.keys(batch, len(keys)).to_pylist()
        at += 1
    return keys


BATCHES = st.lists(st.integers(1, 9), min_size=1, max_size=4)


@given(n=st.integers(1, 50), size=st.integers(1, 60), batches=BATCHES)
def test_size_counts_rows_across_batches(n: int, size: int, batches: list[int]) -> None:
    log = log_of(n)
    keys = in_batches(cut_episodes(log, batch_size=size), log.table(), batches)
    assert keys == [row // size for row in range(n)]
    counts = Counter(keys)
    assert all(counts[one] == size for one in range(n // size))
    assert counts[n // size] == n % size


def test_more_rows_than_there_can_be_are_one_episode() -> None:
    log = log_of(5)
    assert in_batches(cut_episodes(log, batch_size=10**30), log.table(), [2]) == [0] * 5


@given(
    times=st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=40),
    every=st.sampled_from([("hour", 3600), ("15m", 900), ("1d", 86_400), (7.5, 7.5), (timedelta(hours=6), 21_600)]),
    batches=BATCHES,
)
def test_time_is_aligned_to_the_epoch_in_any_order(
    times: list[int], every: tuple[Any, float], batches: list[int]
) -> None:
    log = log_of(len(times), time=times)
    cut = cut_episodes(log, every=every[0])
    assert in_batches(cut, log.table(), batches) == [int(one // every[1]) for one in times]


def test_a_row_out_of_order_belongs_to_its_time() -> None:
    start = datetime(2024, 5, 1, tzinfo=UTC)
    minutes = [0, 59, 60, 30, 61]
    log = log_of(5, time=[start + timedelta(minutes=one) for one in minutes])
    keys = cut_episodes(log, every="hour").keys(next(log.batches()))
    hour = (start - EPOCH) // timedelta(hours=1)
    assert keys.to_pylist() == [hour, hour, hour + 1, hour, hour + 1]


@pytest.mark.parametrize("values", [[3, 1, 3, 2], ["b", "a", "b", "c"]])
def test_the_column_wins_with_a_notice(values: list[Any]) -> None:
    log = log_of(4, episode=values, time=[0, 1, 2, 3])
    cut = cut_episodes(log)
    assert (cut.kind, cut.notice, cut.columns) == ("column", None, ("episode",))
    assert cut.keys(next(log.batches())).to_pylist() == values
    words: list[tuple[dict[str, Any], str]] = [({"batch_size": 2}, "batch_size=2"), ({"every": "1h"}, "every='1h'")]
    for given_, word in words:
        noticed = cut_episodes(log, **given_)
        assert noticed.kind == "column"
        assert noticed.notice == f"the log has a column 'episode', which takes precedence over {word}."


def test_pairs_carry_the_count_from_part_to_part() -> None:
    n = (1 << 18) + 5
    log = log_of(n, time=np.zeros(n))
    cut = cut_episodes(log, batch_size=100_000)
    keys = np.concatenate([found.to_numpy() for found, _ in cut.pairs(log, ["reward"])])
    np.testing.assert_array_equal(keys, np.arange(n) // 100_000)
    assert all(batch.schema.names == ["reward"] for _, batch in cut.pairs(log, ["reward"]))
    (found, batch), *_ = cut_episodes(log, every="day").pairs(log, ["action"])
    assert batch.schema.names == ["action"] and set(found.to_pylist()) == {0}
    assert next(iter(cut.pairs(log)))[1].schema.names == log.schema.names


def test_pairs_name_the_file_and_the_row_of_a_missing_time(tmp_path: Path) -> None:
    for name, times in (("a.csv", [1, 2, 3]), ("b.csv", [4, None])):
        table = pa.table({"time": times, "action": ["x"] * len(times), "reward": [1.0] * len(times)})
        csv.write_csv(table, tmp_path / name)
    log = open_log([tmp_path / "a.csv", tmp_path / "b.csv"])
    with pytest.raises(InputError, match=r"b\.csv': got nothing at row 1, but every row needs it"):
        list(cut_episodes(log, every="day").pairs(log))


@pytest.mark.parametrize(
    ("given_", "error", "told"),
    [
        ({}, InputError, "give batch_size or every"),
        ({"batch_size": 0}, ParameterError, "an integer ≥ 1"),
        ({"batch_size": 1.5}, ParameterError, "an integer ≥ 1"),
        ({"every": "fortnight"}, ParameterError, "'15m'"),
        ({"every": "hour"}, InputError, "needs a column 'time'"),
        ({"every": "hour", "batch_size": 5}, ParameterError, "give one of the two"),
    ],
)
def test_what_cannot_be_cut_is_refused(given_: dict[str, Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        cut_episodes(log_of(3), **given_)


@pytest.mark.parametrize(("name", "given_"), [("time", {"every": "1h"}), ("episode", {})])
def test_a_row_without_a_key_is_refused_with_its_number_in_the_batch(name: str, given_: dict[str, Any]) -> None:
    log = log_of(4, **{name: pa.array([1, 2, None, 4])})
    cut = cut_episodes(log, **given_)
    with pytest.raises(InputError, match=f"column '{name}'.*at row 2,"):
        cut.keys(next(log.batches()), 100)
