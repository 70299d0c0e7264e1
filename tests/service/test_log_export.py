"""The exported log: canonical columns for training and evaluation, and the same state when it is learned again."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import spuir
from spuir.bandit import from_bytes
from spuir.base.packing import pack
from spuir.logs import open_log
from spuir.service.commands import ImportLog, LogRow
from spuir.training.pipeline import train
from tests.service.shops import NAME, Shop, sqlite_store


def exported(shop, path, **options):
    """Write the log of a shop as JSON lines or Parquet."""
    rows = [row for block in shop.engine.log(NAME, **options) for row in block]
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


@pytest.mark.parametrize("policy", ["spuir", "puir", "sbucb", "bexp3"])
@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_training_on_the_exported_log_gives_the_same_state(tmp_path, policy, ending):
    shop = Shop(sqlite_store(tmp_path), policy=policy)
    shop.live(episodes=4)
    shop.decide((0.1, 0.2, 0.3))  # not settled: not learned by either
    path = tmp_path / f"log.{ending}"
    exported(shop, path, settled=True)
    settings = shop.engine.experiment(NAME).settings
    trained = train(str(path), settings.make_policy(), actions=settings.labels, seed=settings.seed or 0).bandit
    mine = from_bytes(shop.engine.model(NAME), "the service")
    assert trained.n_episodes_ == mine.n_episodes_ == 4
    theirs = pack(trained.state_)[1]
    for name, array in pack(mine.state_)[1].items():
        assert np.array_equal(array, theirs[name]), name


def test_the_exported_log_is_canonical(tmp_path):
    shop = Shop(sqlite_store(tmp_path))
    shop.decide({"age": 31, "time": "noon", "device": "phone"}, unit="ann", eligible=["a", "b"])
    path = tmp_path / "log.jsonl"
    (row,) = exported(shop, path)
    assert row["reward"] is None and row["episode"] is None
    shop.clock.now += 3_600
    shop.close()
    (row,) = exported(shop, path)
    assert (row["episode"], row["reward"], row["policy_version"], row["unit_id"]) == (0, 0.0, "0", "ann")
    assert (row["age"], row["context_time"], row["device"], row["eligible"]) == (31, "noon", "phone", ["a", "b"])
    assert row["time"].startswith("2023-11-14T22:13:20")
    log = open_log(str(path))
    assert {"decision_id", "action", "reward", "propensity", "age", "device"} <= set(log.schema.names)


def test_the_log_can_be_evaluated(tmp_path):
    shop = Shop(sqlite_store(tmp_path), parameters={"floor": 0.1})
    shop.live(episodes=6)
    path = tmp_path / "log.parquet"
    rows = exported(shop, path)
    report = spuir.evaluate(str(path), "always:a", against=["logged"], estimators=["ips"], estimator="ips")
    logged = next(one for one in report.values if one.policy == "logged")
    assert logged.value == pytest.approx(np.mean([row["reward"] for row in rows]))


def test_an_exported_log_can_be_imported_elsewhere(tmp_path):
    shop = Shop(sqlite_store(tmp_path))
    shop.live(episodes=1)
    rows = exported(shop, tmp_path / "log.jsonl")
    (tmp_path / "other").mkdir()
    other = Shop(sqlite_store(tmp_path / "other"))
    taken = [
        LogRow(
            context=[row["x0"], row["x1"], row["x2"]],
            action=row["action"],
            reward=row["reward"],
            propensity=row["propensity"],
            decision_id=row["decision_id"],
        )
        for row in rows
    ]
    other.do(ImportLog(experiment=NAME, rows=taken))
    other.clock.now += 1
    other.close()
    assert other.digests() == shop.digests()


def test_a_copy_made_while_the_service_runs_goes_on_by_itself(tmp_path):
    shop = Shop(sqlite_store(tmp_path))
    shop.live(episodes=2)
    (tmp_path / "copy").mkdir()
    shop.engine.store.backup(str(tmp_path / "copy" / "log.db"))
    copy = Shop.__new__(Shop)
    copy.make_store, copy.clock, copy.made = sqlite_store(tmp_path / "copy"), shop.clock, shop.made
    copy.engine = copy.start()
    assert copy.digests() == shop.digests()
    now = shop.clock.now
    shop.live(episodes=1, seed=3)
    shop.clock.now = now
    copy.live(episodes=1, seed=3)
    assert copy.digests() == shop.digests()
