"""Damage is found: at the start in the end of a log, and by the check anywhere."""

import apsw
import numpy as np
import pytest

from spuir.errors import ServiceError
from spuir.service.checking import check_store, repair_store
from spuir.service.stores import open_store
from spuir.service.stores.base import TAIL, damage
from tests.service.shops import NAME, Shop, sqlite_store


@pytest.fixture
def shop(tmp_path):
    made = Shop(sqlite_store(tmp_path))
    made.live(episodes=2)
    return made


def tamper(tmp_path, statement, *values):
    """Change the database behind the store's back."""
    connection = apsw.Connection(str(tmp_path / "log.db"))
    connection.execute(statement, values)
    connection.close()


def place(shop, kind, nth=0):
    return [one.seq for one in shop.engine.store.records(NAME, 1, 10_000) if one.kind == kind][nth]


CHANGES = {
    "time": "UPDATE record SET time = time + 1 WHERE position & 0xffffffffff = ?",
    "kind": "UPDATE record SET kind = 'activation' WHERE position & 0xffffffffff = ?",
    "key": "UPDATE record SET key = key || 'x' WHERE position & 0xffffffffff = ?",
    "payload": "UPDATE record SET payload = CAST(payload || ' ' AS BLOB) WHERE position & 0xffffffffff = ?",
    "digest": "UPDATE record SET digest = randomblob(16) WHERE position & 0xffffffffff = ?",
    "chain": "UPDATE record SET chain = randomblob(16) WHERE position & 0xffffffffff = ?",
    "all of it": "DELETE FROM record WHERE position & 0xffffffffff = ?",
}


@pytest.mark.parametrize("column", CHANGES)
def test_a_changed_record_is_found_whatever_was_changed(shop, tmp_path, column):
    seq = place(shop, "reward", 3)
    tamper(tmp_path, CHANGES[column], seq)
    assert seq in {where for where, _ in damage(shop.engine.store, NAME)}
    assert check_store(shop.engine.store).problems
    shop.engine.close()
    with pytest.raises(ServiceError, match="--repair") as failure:
        shop.start()
    assert failure.value.code == "storage_unavailable"
    assert f"record {seq:,}" in str(failure.value)


@pytest.mark.parametrize("column", ["payload", "time", "digest", "chain"])
def test_a_damaged_last_record_is_set_aside_and_reported(shop, tmp_path, column):
    last = shop.decide((0.1, 0.2, 0.3)).id
    head = shop.engine.experiment(NAME).records
    shop.engine.close()
    tamper(tmp_path, CHANGES[column], head)
    shop.engine = shop.start()
    (note,) = shop.engine.status()["notes"]
    assert f"{head:,}" in note and "set aside" in note
    assert shop.engine.experiment(NAME).records == head - 1
    with pytest.raises(ServiceError, match="no decision"):
        shop.status(last)
    shop.live(episodes=1)
    assert check_store(shop.engine.store).problems == []


def test_damage_before_the_verified_end_stops_what_needs_it(tmp_path):
    shop = Shop(sqlite_store(tmp_path))
    shop.decide((1.0, 2.0, 3.0))
    seq = place(shop, "decision")
    shop.decide_many(np.zeros((TAIL + 100, 3)), [f"d{at}" for at in range(TAIL + 100)])
    shop.engine.close()
    tamper(tmp_path, CHANGES["payload"], seq)
    shop.engine = shop.start()  # the end of the log is sound
    shop.decide((1.0, 2.0, 3.0))
    shop.clock.now += 3_600
    shop.close()
    assert "matches its digest" in shop.engine.status()["problems"][NAME]
    assert shop.engine.experiment(NAME).learning
    assert shop.engine.experiment(NAME).newest == 0
    shop.engine.close()
    store = open_store(str(tmp_path / "log.db"), verify=False)
    (done,) = repair_store(store)
    assert f"[{seq}]" in done
    assert damage(store, NAME) == []
    store.close()
    shop.engine = shop.start()
    shop.engine.tick()
    assert shop.engine.experiment(NAME).newest == 1
    assert shop.engine.versions(NAME)[-1].rows == TAIL + 101
    assert check_store(shop.engine.store).problems == []


def test_a_damaged_control_record_stops_the_start(shop, tmp_path):
    shop.decide_many(np.zeros((TAIL + 100, 3)), [f"d{at}" for at in range(TAIL + 100)])
    seq = place(shop, "version", 1)
    shop.engine.close()
    tamper(tmp_path, CHANGES["payload"], seq)
    with pytest.raises(ServiceError, match="restore a backup"):
        shop.start()
    with pytest.raises(ServiceError, match="only payloads"):
        repair_store(open_store(str(tmp_path / "log.db"), verify=False))


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "log.db"
    path.write_bytes(b"not a database" * 1_000)
    with pytest.raises(ServiceError) as failure:
        open_store(str(path))
    assert failure.value.code == "storage_unavailable"
    path.unlink()
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE mine (x); PRAGMA user_version = 1")
    other.close()
    with pytest.raises(ServiceError, match="another program"):
        open_store(str(path))


def test_a_store_of_a_newer_version_is_refused(shop, tmp_path):
    shop.engine.close()
    tamper(tmp_path, "PRAGMA user_version = 99")
    with pytest.raises(ServiceError, match="upgrade spuir"):
        shop.start()


def test_counts_that_do_not_match_the_log_are_found(shop, tmp_path):
    wrong = """CAST(replace(facts, '"decisions":80', '"decisions":81') AS BLOB)"""
    tamper(tmp_path, f"UPDATE experiment SET facts = {wrong}")
    assert any("running count" in problem for problem in check_store(shop.engine.store).problems)
