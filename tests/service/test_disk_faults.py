"""Kills, power cuts, failing and full disks: what was acknowledged is there, once, and nothing is half there.

The scenario runs once on a disk that keeps every storage call. The files as a kill or a power cut at any call would
leave them follow from that trace; the service is started on them and its log is compared with what clients were told.
"""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest

from spuir.errors import ServiceError
from spuir.service.checking import check_store
from spuir.service.commands import AddAction, ChangeExperiment, Decide, DecisionRow, Forget, Reward, RewardRow
from spuir.service.log_records import DECISION, REWARD, decision_fact, reward_fact
from spuir.service.stores import open_store
from spuir.service.stores.base import damage
from tests.service.disks import FailingDisk, RecordingDisk, Trace, put
from tests.service.shops import NAME, Clock, Shop, sqlite_store

FILE = "log.db"


def scenario(shop: Shop, told: Any, events: int) -> None:
    """Send decisions and rewards, alone and in small groups, close episodes, change settings, actions and units."""
    rng = np.random.default_rng(11)
    ids: list[str] = []
    for number in range(events // 2):
        rows = [DecisionRow(context=rng.normal(size=3).tolist(), id=f"d{number}", unit=f"u{number % 7}")]
        if number % 5 == 0:
            rows.append(DecisionRow(context=rng.normal(size=3).tolist(), id=f"e{number}"))
        answers = shop.ask([Decide(experiment=NAME, row=row) for row in rows])
        answers += shop.decide_many(rng.normal(size=(2, 3)))  # which share a record
        for answer in answers:
            assert not isinstance(answer, ServiceError), answer
            told((DECISION, answer.id, answer.action, answer.propensity))
            ids.append(answer.id)
        if number % 3:
            chosen = ids[int(rng.integers(len(ids)))]
            row = RewardRow(decision_id=chosen, reward=float(rng.normal()), id=f"r{number}")
            (answer,) = shop.ask([Reward(experiment=NAME, row=row)])
            assert not isinstance(answer, ServiceError), answer
            if answer.status != "forgotten":
                told((REWARD, row.id, row.decision_id, row.reward))
        shop.clock.now += 60
        if number % 20 == 19:
            told(("close", shop.close().version))
        if number == 30:
            shop.do(AddAction(experiment=NAME, label="d"))
            told(("action", "d"))
        if number == 45:
            shop.do(ChangeExperiment(experiment=NAME, changes={"default_reward": 0.5}))
            told(("setting", 0.5))
        if number == 50:
            shop.do(Forget(experiment=NAME, unit="u3"))
            told(("forget", "u3"))


class FoundShop(Shop):
    """A shop that is started on files that are there, long after they were left."""

    def __init__(self, folder: Path) -> None:
        self.make_store, self.clock, self.made = sqlite_store(folder), Clock(1_800_000_000.0), 10_000
        self.engine = self.start()


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Trace:
    """The storage calls of the scenario, with what clients were told between them."""
    disk = RecordingDisk()
    shop = Shop(sqlite_store(tmp_path_factory.mktemp("recorded"), vfs=disk.name), policy="sbucb")
    disk.trace.acknowledge(("created",))
    scenario(shop, disk.trace.acknowledge, 130)
    shop.engine.close()
    return disk.trace


def compare(folder: Path, told: list[Any], replay: bool) -> Counter[str]:
    """Start the service on files, and compare its log with what clients were told before these files were left."""
    if not told:  # nobody had an answer: the file may be incomplete, and is made anew or refused
        return Counter(images=1)
    shop = FoundShop(folder)
    store = shop.engine.store
    try:
        assert store.notes == []  # nothing had to be cut
        assert damage(store, NAME) == []
        forgotten = ("forget", "u3") in told
        keys = {kind: [one[1] for one in told if one[0] == kind] for kind in (DECISION, REWARD)}
        found = {kind: store.find(NAME, kind, keys[kind]) for kind in keys}
        for fact in told:
            if fact[0] in keys:
                record = found[fact[0]][fact[1]]
                if record.payload is None:
                    assert forgotten or ("forget", "u3") not in told
                elif fact[0] == DECISION:
                    decided = decision_fact(record)
                    assert (decided.action, decided.propensity) == fact[2:]
                else:
                    rewarded = reward_fact(record.payload)
                    assert (rewarded.decision_id, rewarded.reward) == fact[2:]
        versions = [one[1] for one in told if one[0] == "close" and one[1] is not None]
        assert len(shop.engine.versions(NAME)) > max(versions, default=0)
        experiment = shop.engine.experiment(NAME)
        assert ("action", "d") not in told or "d" in [action.label for action in experiment.actions]
        assert ("setting", 0.5) not in told or experiment.settings.default_reward == 0.5
        if replay:
            assert check_store(store).problems == []
        assert shop.decide((0.1, 0.2, 0.3), id="afterwards").id == "afterwards"  # it goes on
        return Counter(images=1, acknowledged=len(told), lost=0)
    finally:
        shop.engine.close()


LONG = pytest.mark.faults


@pytest.mark.parametrize("most", [40, pytest.param(100_000, marks=LONG)])
def test_a_kill_at_any_storage_call_loses_nothing_that_was_acknowledged(trace, tmp_path, most):
    total: Counter[str] = Counter()
    places = np.unique(np.linspace(0, len(trace.calls), min(most, len(trace.calls) + 1)).astype(int))
    for number, place in enumerate(places.tolist()):
        put(trace.after_kill(place), tmp_path / "disk")
        total += compare(tmp_path / "disk", trace.acknowledged(place), replay=number % 20 == 0)
    assert total["images"] == len(places) and total["acknowledged"] > len(places)


@pytest.mark.parametrize("most", [30, pytest.param(100_000, marks=LONG)])
@pytest.mark.parametrize("kept", ["nothing", "a prefix", "any sectors"])
def test_a_power_cut_around_any_sync_loses_nothing_that_was_acknowledged(trace, tmp_path, kept, most):
    rng = np.random.default_rng(5)
    places = trace.syncs()
    if most < len(places):
        places = [places[at] for at in np.unique(np.linspace(0, len(places) - 1, most).astype(int))]

    def keep(n: int) -> np.ndarray:
        if kept == "nothing":
            return np.zeros(n, dtype=bool)
        return np.arange(n) < rng.integers(n + 1) if kept == "a prefix" else rng.random(n) < 0.5

    for number, place in enumerate(places):
        put(trace.after_power_cut(place, keep), tmp_path / "disk")
        compare(tmp_path / "disk", trace.acknowledged(place), replay=number % 20 == 0)


def test_the_trace_shows_that_commits_are_synchronised(trace):
    """Every answer comes after a synchronisation that follows the last write: otherwise a power cut could lose it."""
    unsynced = 0
    for call in trace.calls:
        if call.kind == "write" and call.file.endswith("-wal"):
            unsynced += 1
        elif call.kind == "sync" and call.file.endswith("-wal"):
            unsynced = 0
        elif call.kind == "ack":
            assert unsynced == 0


@pytest.fixture
def failing(tmp_path):
    disk = FailingDisk()
    shop = Shop(sqlite_store(tmp_path, vfs=disk.name), policy="sbucb")
    yield disk, shop
    disk.fails = lambda number, call: None
    shop.engine.close()


@pytest.mark.parametrize("how", ["io", "full"])
@pytest.mark.parametrize("kind", ["write", "sync"])
def test_a_failing_disk_acknowledges_nothing_and_recovers_without_a_restart(failing, how, kind, tmp_path):
    if (how, kind) == ("full", "sync"):
        how = "io"  # a full disk shows when it is written
    disk, shop = failing
    shop.live(episodes=1, rows=20)
    told = [shop.decide((0.1, 0.2, 0.3), id=f"before{n}") for n in range(5)]
    for attempt in range(4):
        start = disk.count + attempt
        disk.fails = lambda number, call, start=start: how if number > start and call.kind == kind else None
        with pytest.raises(ServiceError) as refused:
            shop.decide((0.4, 0.5, 0.6), id=f"during{attempt}")
        assert refused.value.code == ("storage_full" if how == "full" else "storage_unavailable")
        disk.fails = lambda number, call: None
        answer = shop.decide((0.4, 0.5, 0.6), id=f"after{attempt}")
        assert not answer.replayed
        told.append(answer)
    # The refused ones were never recorded as acknowledged: sending them again records each once.
    again = [shop.decide((0.4, 0.5, 0.6), id=f"during{attempt}") for attempt in range(4)]
    told += again
    shop.restart()
    found = shop.engine.store.find(NAME, DECISION, [one.id for one in told])
    assert {key: decision_fact(record).action for key, record in found.items()} == {one.id: one.action for one in told}
    assert check_store(shop.engine.store).problems == []


@pytest.mark.parametrize("how", ["io", "full"])
def test_a_disk_that_fails_while_a_version_is_recorded_does_not_lose_the_episode(failing, how):
    disk, shop = failing
    shop.live(episodes=1, rows=20)
    for n in range(10):
        shop.reward(shop.decide((0.1 * n, 0.2, 0.3), id=f"x{n}").id, 1.0)
    shop.clock.now += 3_600
    start = disk.count
    calls: list[str] = []

    def fails(number: int, call: Any) -> str | None:
        calls.append(call.kind)
        # The close is one commit, the version the next: only the second one fails.
        return how if calls.count("sync") >= 1 and call.kind == "write" else None

    disk.fails = fails
    try:
        shop.close()
    except ServiceError as refused:
        assert refused.code.startswith("storage")
    disk.fails = lambda number, call: None
    assert disk.count > start
    shop.engine.tick()
    shop.engine.tick()
    if len(shop.digests()) < 3:  # the close itself was refused
        shop.close()
    digests = shop.digests()
    assert len(digests) == 3
    shop.restart()
    assert shop.digests() == digests
    assert check_store(shop.engine.store).problems == []


def _stored(tmp_path: Path) -> tuple[Path, list[Any]]:
    """Return the file of a store that was closed in good order, and its decisions."""
    shop = Shop(sqlite_store(tmp_path), policy="sbucb")
    shop.live(episodes=2, rows=30)
    records = shop.engine.store.records(NAME, 1, 10**9)
    shop.engine.close()
    return tmp_path / FILE, records


@pytest.mark.parametrize("number", [60, pytest.param(3_000, marks=LONG)])
def test_a_flipped_bit_is_found_or_changes_nothing(tmp_path, number):
    """A damaged end is cut and reported, damage before it stops the start; never a silent skip or a traceback."""
    file, records = _stored(tmp_path)
    content = file.read_bytes()
    rng = np.random.default_rng(3)
    outcomes: Counter[str] = Counter()
    broken = tmp_path / "broken"
    for _ in range(number):
        damaged = bytearray(content)
        damaged[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
        put({FILE: bytes(damaged)}, broken)
        outcomes[_opened(broken / FILE, records)] += 1
    assert outcomes["wrong"] == 0, outcomes
    assert outcomes["found"] > number / 4, outcomes


@pytest.mark.parametrize("number", [25, pytest.param(400, marks=LONG)])
def test_a_truncated_file_is_found_or_changes_nothing(tmp_path, number):
    file, records = _stored(tmp_path)
    content = file.read_bytes()
    for size in np.linspace(1, len(content) - 1, number).astype(int).tolist():
        put({FILE: content[:size]}, tmp_path / "broken")
        assert _opened(tmp_path / "broken" / FILE, records) != "wrong", size


def test_a_database_of_another_program_is_left_alone(tmp_path):
    path = tmp_path / FILE
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(ServiceError, match="another program"):
        open_store(str(path))
    assert path.read_bytes() == before


def _opened(path: Path, records: list[Any]) -> str:
    """Open and check a damaged store: "found" where the damage is said, "harmless" where the log is whole."""
    try:
        store = open_store(str(path))
    except ServiceError as refused:
        assert refused.remedy and "Traceback" not in str(refused)
        return "found"
    try:
        report = check_store(store)
        if report.problems or report.notes:
            return "found"
        return "harmless" if store.records(NAME, 1, 10**9) == records else "wrong"
    except ServiceError:
        return "found"
    finally:
        store.close()


@pytest.mark.parametrize("damage_of", ["deleted", "empty", "flipped", "newer"])
def test_a_corrupt_snapshot_is_rebuilt_with_the_same_bytes(tmp_path, damage_of):
    shop = Shop(sqlite_store(tmp_path), policy="sbucb")
    shop.live(episodes=4, rows=30)
    store, digests = shop.engine.store, shop.digests()
    sound = {version: store.model(NAME, version) for version in store.models(NAME)}
    answer = shop.decide((0.3, 0.2, 0.1), id="before")
    for version in list(sound)[1:]:
        content = sound[version]
        assert content is not None
        with store.transaction() as writer:
            writer.lock(NAME)
            if damage_of == "deleted":
                writer.drop_models(NAME, [version])
            else:
                flipped = content[:-20] + bytes([content[-20] ^ 4]) + content[-19:]
                newer = content.replace(b'"format":', b'"format":9', 1)
                bad = {"empty": b"", "flipped": flipped, "newer": newer}[damage_of]
                writer.put_model(NAME, version, bad)
    shop.restart()
    assert shop.digests() == digests
    again = shop.decide((0.3, 0.2, 0.1), id="after")
    assert again.probabilities == answer.probabilities
    newest = max(sound)
    assert shop.engine.model(NAME, newest) == sound[newest]
    assert check_store(shop.engine.store).problems == []
    shop.engine.close()


def test_a_backup_taken_while_running_is_a_store(tmp_path):
    shop = Shop(sqlite_store(tmp_path), policy="sbucb")
    shop.live(episodes=2, rows=30)
    shop.engine.store.backup(str(tmp_path / "copy.db"))
    shop.live(episodes=1, rows=30, seed=1)
    with pytest.raises(ServiceError, match="never overwrites"):
        shop.engine.store.backup(str(tmp_path / "copy.db"))
    shop.engine.close()
    folder = tmp_path / "restored"
    folder.mkdir()
    shutil.copy(tmp_path / "copy.db", folder / FILE)
    restored = open_store(str(folder / FILE))
    head = restored.head(NAME)
    assert head is not None and head.facts["counts"]["decisions"] == 60
    assert check_store(restored).problems == []
    restored.close()
