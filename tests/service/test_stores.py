"""One contract for every store: what was committed is there, in order, once; nothing else is."""

import resource
import subprocess
import sys
import threading
from typing import Any

import pytest

from spuir.errors import ServiceError
from spuir.service.drafting import Draft
from spuir.service.log_records import ForgetFact, Record, first_chain, next_chain, payload_digest
from spuir.service.stores import open_store
from spuir.service.stores.base import CHUNK, Head, damage, each_record, in_pieces
from tests.service.processes import server_process
from tests.service.shops import NAME

CREATE = b'{"actions":2}'


def extend(store, name=NAME, *facts):
    """Append records (kind, key, payload, owner, due, unit) in one transaction, and return them."""
    with store.transaction() as writer:
        head = writer.lock(name) or Head(name)
        made = []
        for kind, key, payload, *rest in facts:
            head.seq, head.time, digest = head.seq + 1, head.time + 10, payload_digest(payload)
            head.chain = next_chain(head.chain, head.seq, head.time, kind, key, digest)
            made.append(Record(head.seq, head.time, kind, key, payload, digest, head.chain, *rest))
        writer.append(head, made)
    return made


@pytest.fixture
def filled(store):
    extend(store, NAME, ("create", "", CREATE))
    extend(
        store,
        NAME,
        ("decision", "d1", b'{"n":1}', None, 100, "ann"),
        ("decision", "d2", b'{"n":2}', None, 90, None),
        ("reward", "r1", b'{"r":1}', "d1"),
        ("decision", "d3", b'{"n":3}', None, None, "ann"),
        ("close", "1", b'{"number":1,"rows":0,"previous_seq":0,"previous_time":0}'),
        ("reward", "r2", b'{"r":2}', "d1"),
        ("activation", "d2", b"{}", "d2"),
    )
    return store


def test_an_empty_store_has_nothing(store):
    assert store.heads() == []
    assert store.head(NAME) is None
    assert store.records(NAME, 1, 100) == []
    assert store.find(NAME, "decision", ["d1"]) == {}
    assert store.owned(NAME, ["d1"]) == []
    assert store.settling(NAME, 0, 100) == (0, 0, 0)
    assert store.settles(NAME, 0, 1) is None
    assert store.of_unit(NAME, "ann") == []
    assert store.model(NAME, 0) is None
    assert store.models(NAME) == []
    assert store.check() == []
    assert store.available()


def test_records_come_back_as_they_were_written(filled):
    records = filled.records(NAME, 1, 100)
    assert [one.seq for one in records] == list(range(1, 9))
    assert [one.key for one in filled.records(NAME, 2, 4)] == ["d1", "d2", "r1"]
    assert [one.key for one in filled.records(NAME, 1, 100, ("decision", "close"))] == ["d1", "d2", "d3", "1"]
    assert [one.key for one in filled.records(NAME, 1, 100, ("create", "close"))] == ["", "1"]
    assert len(filled.records(NAME, 1, 100, limit=3)) == 3
    assert records[1] == filled.find(NAME, "decision", ["d1"])["d1"]
    assert isinstance(records[1].payload, bytes)
    assert filled.head(NAME).seq == 8
    assert filled.head(NAME).chain == records[-1].chain
    assert damage(filled, NAME) == []


def test_lookups(filled):
    assert set(filled.find(NAME, "decision", ["d1", "d3", "nobody"])) == {"d1", "d3"}
    assert filled.find(NAME, "reward", ["d1"]) == {}
    assert filled.find(NAME, "decision", []) == {}
    assert set(filled.find(NAME, "decision", ["d1", "no\0text"])) == {"d1"}
    assert filled.owned(NAME, ["no\0text"]) == []
    assert [one.key for one in filled.owned(NAME, ["d1", "d2"])] == ["r1", "r2", "d2"]
    assert filled.settling(NAME, 0, 100) == (2, 2, 3)
    assert filled.settling(NAME, 90, 100) == (1, 2, 2)
    assert filled.settling(NAME, 100, 1_000) == (0, 0, 0)
    assert [filled.settles(NAME, 0, count) for count in (1, 2, 3)] == [90, 100, None]
    assert [one.key for one in filled.of_unit(NAME, "ann")] == ["d1", "d3"]


def test_ids_are_compared_byte_by_byte(filled):
    keys = ["D1", "d1 ", "ü", "u\u0308", "'; DROP TABLE record; --", '"quoted"', "%", "_", "🎈"]
    extend(filled, NAME, *(("decision", key, b"{}", None, None, key) for key in keys))
    for key in keys:
        assert list(filled.find(NAME, "decision", [key])) == [key]
        assert [one.key for one in filled.of_unit(NAME, key)] == [key]
    assert set(filled.find(NAME, "decision", keys)) == set(keys)


def test_a_key_is_used_once_per_kind(filled):
    before = filled.head(NAME)
    with pytest.raises(ServiceError):
        extend(filled, NAME, ("decision", "new", b"{}"), ("decision", "d1", b"{}"))
    assert filled.head(NAME) == before
    assert filled.find(NAME, "decision", ["new"]) == {}
    extend(filled, NAME, ("reward", "d1", b"{}"))
    extend(filled, "other", ("decision", "d1", b"{}"))
    assert [head.name for head in filled.heads()] == ["other", NAME]


def test_a_place_is_given_once(filled):
    head = filled.head(NAME)
    stale = Record(8, 1, "decision", "x", b"{}", b"", b"")
    with pytest.raises(ServiceError), filled.transaction() as writer:
        writer.append(Head(NAME, 8, 1, b"x", {}), [stale])
    assert filled.head(NAME) == head


def test_what_is_not_committed_is_not_there(filled):
    before = filled.head(NAME)
    with pytest.raises(ZeroDivisionError), filled.transaction() as writer:
        head = writer.lock(NAME)
        writer.append(Head(NAME, 9, head.time, b"c" * 16, {}), [Record(9, head.time, "decision", "x", b"{}", b"", b"")])
        assert list(writer.find(NAME, "decision", ["x"])) == ["x"]  # the transaction itself sees it
        assert filled.find(NAME, "decision", ["x"]) == {}  # and nobody else
        raise ZeroDivisionError
    assert filled.head(NAME) == before
    assert filled.find(NAME, "decision", ["x"]) == {}
    extend(filled, NAME, ("decision", "y", b"{}"))
    assert damage(filled, NAME) == []


def test_a_new_experiment_that_is_not_committed_is_not_there(store):
    with pytest.raises(ZeroDivisionError), store.transaction() as writer:
        assert writer.lock("gone") is None
        writer.append(Head("gone", 1, 1, b"c" * 16, {}), [Record(1, 1, "create", "", b"{}", b"", b"")])
        raise ZeroDivisionError
    assert store.heads() == []
    extend(store, "other", ("create", "", CREATE))
    extend(store, "gone", ("create", "", CREATE))
    assert [one.key for one in store.records("gone", 1, 9)] == [""]
    assert store.head("gone").seq == store.head("other").seq == 1


def test_models(filled):
    with filled.transaction() as writer:
        writer.put_model(NAME, 0, b"zero")
        writer.put_model(NAME, 2, b"two")
        writer.put_model(NAME, 2, b"two again")
    assert (filled.model(NAME, 0), filled.model(NAME, 1), filled.model(NAME, 2)) == (b"zero", None, b"two again")
    with filled.transaction() as writer:
        writer.drop_models(NAME, [0, 7])
    assert filled.models(NAME) == [2]


def test_an_erased_payload_leaves_its_digest(filled):
    with filled.transaction() as writer:
        writer.erase(NAME, [2, 4])
    erased = filled.records(NAME, 2, 2)[0]
    assert (erased.payload, erased.unit) == (None, None)
    assert erased.digest == payload_digest(b'{"n":1}')
    assert [one.key for one in filled.of_unit(NAME, "ann")] == ["d3"]
    assert filled.settling(NAME, 0, 100)[0] == 2
    filled.scrub()
    assert damage(filled, NAME) == []


def test_facts_are_kept_with_the_head(store):
    with store.transaction() as writer:
        record = Record(1, 5, "create", "", b"{}", b"d", b"c")
        writer.append(Head(NAME, 1, 5, b"c", {"counts": {"decisions": 3}, "form": None}), [record])
    assert store.head(NAME) == Head(NAME, 1, 5, b"c", {"counts": {"decisions": 3}, "form": None})


def test_many_records_are_read_in_pieces(store):
    extend(store, NAME, *(("decision", f"d{at}", b"{}", None, at + 1) for at in range(CHUNK + 10)))
    assert len(store.records(NAME, 1, 10**6)) == CHUNK
    assert len(store.records(NAME, CHUNK + 1, 10**6)) == 10
    assert [len(piece) for piece in in_pieces(store, NAME, 1, 10**6)] == [CHUNK, 10]
    assert [one.seq for one in each_record(store, NAME, 3, CHUNK + 5, ("decision",))] == list(range(3, CHUNK + 6))
    assert list(in_pieces(store, NAME, 5, 4)) == []
    assert damage(store, NAME) == []
    assert store.settling(NAME, 0, 10**6) == (CHUNK + 10, 1, CHUNK + 10)


def test_reads_in_other_threads_see_what_is_committed(filled):
    seen, go = [], threading.Event()

    def watch():
        while not go.is_set():
            head = filled.head(NAME)
            records = filled.records(NAME, 1, head.seq)
            seen.append((head.seq, len(records), records[-1].chain == head.chain))

    threads = [threading.Thread(target=watch) for _ in range(3)]
    for thread in threads:
        thread.start()
    for at in range(50):
        extend(filled, NAME, ("decision", f"n{at}", b"{}"), ("decision", f"m{at}", b"{}"))
    go.set()
    for thread in threads:
        thread.join()
    assert all(length == seq and whole for seq, length, whole in seen)
    assert filled.head(NAME).seq == 108


def test_a_copy_is_a_store_too(filled, tmp_path):
    with filled.transaction() as writer:
        writer.put_model(NAME, 0, b"zero")
    copy = tmp_path / "copy.db"
    filled.backup(str(copy))
    extend(filled, NAME, ("decision", "later", b"{}"))
    again = open_store(str(copy))
    assert len(again.records(NAME, 1, 100)) == 8
    assert again.records(NAME, 1, 8) == filled.records(NAME, 1, 8)
    assert again.model(NAME, 0) == b"zero"
    assert damage(again, NAME) == []
    again.close()
    with pytest.raises(ServiceError, match="never overwrites"):
        filled.backup(str(copy))
    with pytest.raises(ServiceError, match="its folder must exist"):
        filled.backup(str(tmp_path / "none" / "copy.db"))


def test_a_backup_that_fails_leaves_no_file(filled, tmp_path):
    """Half a backup would look like one, and be in the way of the next."""
    copy, (soft, hard) = tmp_path / "copies" / "copy.db", resource.getrlimit(resource.RLIMIT_FSIZE)
    copy.parent.mkdir()
    resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, hard))
    try:
        with pytest.raises(ServiceError, match=r"backup|store"):
            filled.backup(str(copy))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(copy.parent.iterdir()) == []
    filled.backup(str(copy))
    assert list(copy.parent.iterdir()) == [copy]


def test_a_store_is_opened_again_as_it_was(filled, reopened):
    before = filled.records(NAME, 1, 100)
    filled.close()
    again = reopened()
    assert again.records(NAME, 1, 100) == before
    extend(again, NAME, ("decision", "after", b"{}"))
    assert damage(again, NAME) == []


def test_a_store_for_reading_refuses_to_write(filled, reopened):
    other = reopened(read_only=True)
    assert other.head(NAME) == filled.head(NAME)
    with pytest.raises(ServiceError) as failure:
        extend(other, NAME, ("decision", "x", b"{}"))
    assert failure.value.code == "storage_unavailable"
    extend(filled, NAME, ("decision", "x", b"{}"))
    assert other.head(NAME) == filled.head(NAME)


def test_a_store_elects_whoever_writes(filled):
    assert filled.elect()
    assert filled.elect()


def test_a_draft_is_taken_back_as_a_whole(filled):
    with filled.transaction() as writer:
        draft = Draft.bare(writer, writer.lock(NAME))
        draft.add("decision", "kept", {"n": 1})
        with pytest.raises(ZeroDivisionError), draft.whole():
            draft.add("decision", "dropped", {"n": 2})
            draft.add("forget", "9", ForgetFact([]))
            raise ZeroDivisionError
        draft.add("decision", "also kept", {"n": 3})
        draft.flush()
    assert [one.key for one in filled.records(NAME, 9, 100)] == ["kept", "also kept"]
    assert damage(filled, NAME) == []


def test_chains_begin_with_the_name():
    assert first_chain("a") != first_chain("b")


def test_a_piece_of_a_model_does_not_wait_for_an_experiment(postgres):
    """Two processes that wait for each other would both be refused."""
    url = postgres.new_database("pieces")
    first, second = open_store(url), open_store(url)
    extend(first, NAME, ("create", "", CREATE))
    with first.transaction() as writer:
        assert writer.lock(NAME) is not None
        with second.transaction() as other:
            other.put_model(NAME, 1, b"piece", 0)
    assert first.model(NAME, 1) == b"piece"
    first.close()
    second.close()


def test_one_process_at_a_time_writes_a_sqlite_file(tmp_path):
    with server_process(tmp_path) as server:
        command = [sys.executable, "-m", "spuir", "serve", "--store", "log.db", "--port", "0"]
        second = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=60)
        assert second.returncode != 0
        assert "a second process, but one process at a time writes a SQLite file" in second.stderr
        assert "Traceback" not in second.stderr
        reading = subprocess.run([*command, "--check"], cwd=tmp_path, check=False, capture_output=True, timeout=60)
        assert reading.returncode == 0
        server.kill()  # the system ends the lock
        server.start()


def test_a_store_that_cannot_be_opened_is_free_again(tmp_path):
    path = tmp_path / "log.db"
    path.write_bytes(b"no database" * 100)
    for _ in range(2):
        with pytest.raises(ServiceError, match=r"store '.*log.db': .* sound database .* --store"):
            open_store(str(path))
    path.unlink()
    first = open_store(str(path))
    with pytest.raises(ServiceError, match="one process at a time"):
        open_store(str(path))
    open_store(str(path), read_only=True).close()
    first.close()
    open_store(str(path)).close()
    with pytest.raises(ServiceError, match="the folder of a store must exist"):
        open_store(str(tmp_path / "nowhere" / "log.db"))


def test_a_long_write_ahead_log_is_copied_beside_commits_and_begins_anew(tmp_path, monkeypatch):
    monkeypatch.setattr("spuir.service.stores.sqlite.CHECKPOINT", 50)
    store: Any = open_store(str(tmp_path / "log.db"))
    copied, sizes = set(), []
    for number in range(200):
        extend(store, NAME, ("decision", f"d{number}", b"x" * 20_000, None, None, None))
        copier = store._copier
        if copier is not None:
            copied.add(copier)
            copier.join()
        sizes.append((tmp_path / "log.db-wal").stat().st_size)
    assert len(copied) > 5 and threading.current_thread() not in copied
    assert max(sizes) < 100 * 4_200  # two rounds of 50 pages, of 200 × 5 that were written
    assert damage(store, NAME) == []
    store.close()
    again = open_store(str(tmp_path / "log.db"))
    assert len(again.records(NAME, 1, 1000)) == 200
    again.close()


def test_a_reader_in_the_way_of_the_copying_keeps_no_commit_waiting(tmp_path, monkeypatch):
    monkeypatch.setattr("spuir.service.stores.sqlite.CHECKPOINT", 20)
    monkeypatch.setattr("spuir.service.stores.sqlite._MOST_PAGES", 100)
    store: Any = open_store(str(tmp_path / "log.db"))
    extend(store, NAME, ("create", "", CREATE))
    reader = store._connection()
    reader.execute("BEGIN")
    reader.execute("SELECT COUNT(*) FROM record").fetchall()
    for number in range(60):
        extend(store, NAME, ("decision", f"d{number}", b"x" * 20_000, None, None, None))
    reader.execute("COMMIT")
    assert len(store.records(NAME, 1, 1000)) == 61
    assert damage(store, NAME) == []
    store.close()
