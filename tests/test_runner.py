"""Many runs at once."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from spuir.environments import make_environment
from spuir.errors import ParameterError, SpuirError
from spuir.policies import make_policy
from spuir.runner import Task, run_all, summarise, versions, write_json, write_rows


def tasks(**changes):
    given = {"environment": make_environment("synthetic"), "episodes": 3, "batch_size": 60} | changes
    return [Task(policy=make_policy(name), seed=seed, **given) for seed in (0, 1) for name in ("sbucb", "puir")]


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
    path = write_rows(tmp_path / "deep" / "results.csv", [*plain, *histories])
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
