"""Several decisions in one record: the same decisions, found, rewarded, learned, erased and checked one by one."""

import apsw
import msgspec
import numpy as np
import pytest

from spuir.bandit import from_bytes
from spuir.errors import ServiceError
from spuir.service.api.decision_routes import _several
from spuir.service.bare_requests import MOST_TOGETHER
from spuir.service.checking import check_store, repair_store
from spuir.service.commands import DecideMany, DecisionRow, Reward, RewardRow
from spuir.service.log_records import DECISION, DECISIONS, decision_fact, id_in, place_in
from spuir.service.stores import open_store, sqlite
from spuir.service.stores.base import damage
from spuir.storage.snapshot import pack
from tests.service.shops import NAME, Shop, sqlite_store

ROWS = 40


@pytest.fixture
def shop(tmp_path):
    made = Shop(sqlite_store(tmp_path))
    yield made
    made.engine.close()


@pytest.fixture
def anywhere(reopened):
    """A shop on each of the stores."""
    made = Shop(reopened)
    yield made
    made.engine.close()


def contexts(rows=ROWS, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, 3))


def held(shop):
    """The records of the shop that hold several decisions."""
    return shop.engine.store.stored(NAME, 1, 10_000, (DECISIONS,))


def test_an_id_says_which_record_and_which_row():
    assert place_in(id_in("~0001.ab", 26)) == ("~0001.ab", 26)
    for other in ("d1", "~0001.ab", "~0001.ab.", "~0001.ab.01", "~0001.ab.G", "~0001.ab.-1", "~0001.ab.fffffffff"):
        assert place_in(other) is None


def test_rows_that_are_only_contexts_share_a_record_and_are_found_one_by_one(anywhere):
    answers = anywhere.decide_many(contexts())
    (record,) = held(anywhere)
    assert record.rows == ROWS and record.owner is None and record.unit is None
    assert len({one.id for one in answers}) == ROWS
    store = anywhere.engine.store
    found = store.find(NAME, DECISION, [one.id for one in answers])
    for context, answer in zip(contexts().tolist(), answers, strict=True):
        fact = decision_fact(found[answer.id])
        assert (fact.context, fact.action, fact.propensity) == (context, answer.action, answer.propensity)
        assert dict(zip("abc", fact.probabilities or (), strict=True)) == answer.probabilities
        assert anywhere.status(answer.id).status == "pending"
    singles = store.records(NAME, 1, 10_000, (DECISION,))
    assert [one.key for one in singles] == [one.id for one in answers]
    assert anywhere.engine.experiment(NAME).counts["decisions"] == ROWS


@pytest.mark.parametrize("window", [None, "1h"])
def test_they_are_decided_and_learned_as_with_a_record_each(tmp_path, window):
    """The plain form: the same rows with a unit, which each have a record of their own."""
    states, drawn, logs = [], [], []
    for unit in (None, "ann"):
        (tmp_path / str(unit)).mkdir()
        shop = Shop(sqlite_store(tmp_path / str(unit)), window=window, policy="puir")  # which does not read ids
        answers = []
        for episode in range(3):
            rows = [DecisionRow(context=one, unit=unit) for one in contexts(seed=episode).tolist()]
            answers += shop.do(DecideMany(experiment=NAME, rows=rows)).decisions
            for one in answers[-ROWS::2]:
                assert shop.reward(one.id, float(one.action == "a")) == "joined"
            shop.clock.now += 3_600
            shop.close()
        assert bool(held(shop)) is (unit is None)
        _, learned = pack(from_bytes(shop.engine.model(NAME), "the model").state_)
        states.append({name: array.tolist() for name, array in learned.items()})
        drawn.append([(one.action, one.propensity, one.probabilities, one.version) for one in answers])
        rows = [row for block in shop.engine.log(NAME) for row in block]
        logs.append([{k: v for k, v in row.items() if k not in ("decision_id", "unit_id")} for row in rows])
        report = check_store(shop.engine.store)
        assert report.problems == [] and report.decisions == 3 * ROWS
        shop.engine.close()
    assert states[0] == states[1]
    assert drawn[0] == drawn[1]
    assert logs[0] == logs[1]


def test_a_large_request_is_one_call_in_several_records(shop):
    rows = 2 * MOST_TOGETHER + 7
    answers = shop.decide_many(contexts(rows))
    assert [one.rows for one in held(shop)] == [MOST_TOGETHER, MOST_TOGETHER, 7]
    assert len({decision_fact(one).call for one in shop.engine.store.records(NAME, 1, 99, (DECISION,))}) == 1
    assert shop.status(answers[-1].id).action == answers[-1].action
    shop.clock.now += 3_600
    assert shop.close().rows == rows
    assert shop.engine.versions(NAME)[-1].rows == rows
    assert check_store(shop.engine.store).problems == []


def test_a_request_keeps_a_record_for_each_row_that_has_more_than_a_context(shop):
    rows = [DecisionRow(context=[0.1, 0.2, 0.3]), DecisionRow(context=[0.1, 0.2, 0.3], id="mine")]
    shop.do(DecideMany(experiment=NAME, rows=rows))
    rows = [DecisionRow(context=[0.1, 0.2, 0.3]), DecisionRow(context=[0.1, 0.2, 0.3], unit="ann")]
    shop.do(DecideMany(experiment=NAME, rows=rows))
    assert held(shop) == []


def test_a_refused_request_leaves_nothing_behind(shop):
    shop.decide_many(contexts(2))
    before = shop.engine.experiment(NAME).records
    for wrong in (contexts(4)[:, :2], contexts(4) * np.inf):
        with pytest.raises(ServiceError):
            shop.decide_many(wrong)
    assert shop.engine.experiment(NAME).records == before
    first = shop.decide_many(contexts(2, seed=1))
    facts = shop.engine.store.find(NAME, DECISION, [one.id for one in first]).values()
    assert [decision_fact(one).row for one in facts] == [2, 3]  # no number was used up


def test_ids_that_no_decision_has_are_unknown(shop):
    answers = shop.decide_many(contexts(3))
    key = answers[0].id.rpartition(".")[0]
    for one in (f"{key}.3", f"{key}.00", key, f"{key}.0.0"):
        with pytest.raises(ServiceError, match="no decision of this id"):
            shop.status(one)
        assert shop.reward(one) == "unknown"
    assert shop.reward(answers[2].id) == "joined"


def test_a_reward_beside_the_request_finds_its_decision(shop):
    """Rewards of the same transaction come after its decisions, whose ids a test can foresee."""
    shop.decide((0.1, 0.2, 0.3))
    at, seq = round(shop.clock.now * 1e6), shop.engine.experiment(NAME).records + 1
    foreseen = f"~{at:014x}{seq:x}.{shop.made + 1:08x}.2"
    rows = [DecisionRow(context=one) for one in contexts(3).tolist()]
    reward = Reward(experiment=NAME, row=RewardRow(decision_id=foreseen, reward=1.0))
    decided, rewarded = shop.ask([DecideMany(experiment=NAME, rows=rows), reward])
    assert decided.decisions[2].id == foreseen
    assert rewarded.status == "joined"


def test_an_episode_is_closed_when_enough_decisions_have_settled(reopened):
    shop = Shop(reopened, window="1h", batch_size=25)
    shop.decide_many(contexts(10))
    shop.clock.now += 60
    shop.decide_many(contexts(10))
    shop.clock.now += 60
    shop.decide_many(contexts(10))
    store, start = shop.engine.store, 1_700_000_000_000_000
    hour, minute = 3_600_000_000, 60_000_000
    ends = [store.settles(NAME, 0, count) for count in (1, 10, 11, 20, 21, 30, 31)]
    first, second, third = (start + hour + at * minute for at in range(3))
    assert ends == [first, first, second, second, third, third, None]
    assert store.settling(NAME, first, third)[0] == 20
    shop.clock.now += 3_600 - 61
    shop.engine.tick()
    assert shop.engine.experiment(NAME).newest == 0
    shop.clock.now += 61
    shop.engine.tick()
    assert shop.engine.versions(NAME)[-1].rows == 30
    shop.engine.close()


def test_old_decisions_are_erased_together(tmp_path):
    shop = Shop(sqlite_store(tmp_path), retention="1d")
    answers = shop.decide_many(contexts())
    shop.reward(answers[5].id)
    shop.clock.now += 3_600
    shop.close()
    shop.clock.now += 2 * 86_400
    while shop.engine.tick() < 1:
        pass
    assert all(one.payload is None for one in held(shop))
    assert shop.status(answers[5].id).status == "forgotten"
    assert shop.reward(answers[5].id, id="late") == "forgotten"
    assert check_store(shop.engine.store).problems == []
    assert shop.decide((0.1, 0.2, 0.3)).version == 1
    shop.engine.close()


def tamper(tmp_path, statement, *values):
    connection = apsw.Connection(str(tmp_path / "log.db"))
    connection.execute(statement, values)
    connection.close()


@pytest.mark.parametrize("change", ["rows = rows - 1", "rows = 1", "payload = CAST(payload || ' ' AS BLOB)"])
def test_damage_of_a_shared_record_is_found(tmp_path, change):
    shop = Shop(sqlite_store(tmp_path))
    shop.decide_many(contexts())
    shop.decide((0.1, 0.2, 0.3))
    shop.engine.close()
    tamper(tmp_path, f"UPDATE record SET {change} WHERE kind = 'decisions'")
    with pytest.raises(ServiceError, match="a log is read as written"):
        shop.start()


def test_a_status_is_never_read_from_a_damaged_payload(tmp_path):
    shop = Shop(sqlite_store(tmp_path))
    answers = shop.decide_many(contexts())
    tamper(tmp_path, "UPDATE record SET payload = CAST(replace(payload, '0', '1') AS BLOB) WHERE kind = 'decisions'")
    with pytest.raises(ServiceError, match="matches its digest"):
        shop.status(answers[7].id)
    shop.engine.close()


def test_a_damaged_payload_is_given_up_with_its_decisions(tmp_path):
    shop = Shop(sqlite_store(tmp_path))
    lost = shop.decide_many(contexts())
    kept = shop.decide_many(contexts(10, seed=1))
    shop.engine.close()
    (seq, _) = (one.seq for one in open_held(tmp_path))
    tamper(tmp_path, "UPDATE record SET payload = CAST(payload || ' ' AS BLOB) WHERE position & 0xffffffffff = ?", seq)
    store = open_store(str(tmp_path / "log.db"), verify=False)
    assert f"[{seq}]" in repair_store(store)[0]
    assert damage(store, NAME) == []
    store.close()
    shop.engine = shop.start()
    shop.clock.now += 3_600
    shop.close()
    assert shop.status(lost[3].id).status == "forgotten"
    assert shop.status(kept[3].id).status == "defaulted"
    assert shop.engine.versions(NAME)[-1].rows == 10
    assert check_store(shop.engine.store).problems == []
    shop.engine.close()


def open_held(tmp_path):
    store = open_store(str(tmp_path / "log.db"))
    found = store.stored(NAME, 1, 100, (DECISIONS,))
    store.close()
    return found


def test_a_damaged_end_is_cut_with_all_its_decisions(tmp_path):
    shop = Shop(sqlite_store(tmp_path), window=None)
    shop.decide_many(contexts(10))
    shop.decide_many(contexts())
    shop.engine.close()
    tamper(tmp_path, "UPDATE record SET payload = CAST(payload || ' ' AS BLOB) WHERE rows = ?", ROWS)
    shop.engine = shop.start()
    assert "set aside" in shop.engine.store.notes[0]
    assert shop.engine.experiment(NAME).counts["decisions"] == 10
    assert shop.close().rows == 10
    assert check_store(shop.engine.store).problems == []
    shop.engine.close()


def test_a_copy_has_them_too(anywhere, tmp_path):
    anywhere.live(episodes=2)
    anywhere.engine.store.backup(str(tmp_path / "copy.db"))
    copy = open_store(str(tmp_path / "copy.db"))
    assert copy.stored(NAME, 1, 10_000) == anywhere.engine.store.stored(NAME, 1, 10_000)
    assert check_store(copy).problems == []
    copy.close()


def test_a_store_of_the_version_before_is_brought_up_to_date(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "SCHEMA_VERSION", 1)
    monkeypatch.setattr(sqlite, "_MIGRATIONS", sqlite._MIGRATIONS[:1])
    path = str(tmp_path / "log.db")
    open_store(path).close()
    monkeypatch.undo()
    connection = apsw.Connection(path)
    assert "rows" not in [row[1] for row in connection.execute("PRAGMA table_info(record)")]
    connection.close()
    shop = Shop(sqlite_store(tmp_path))
    shop.live(episodes=2)
    assert check_store(shop.engine.store).problems == []
    shop.engine.close()


def test_a_body_of_contexts_is_kept_as_it_was_sent():
    body = b'{"decisions": [{"context": [1, 2.50]},\n {"context": [3e0, -4]}]}'
    rows, sent, request = _several(body)
    assert [row.context for row in rows] == [[1.0, 2.5], [3.0, -4.0]]
    assert sent is None and request is not None and bytes(request) == body


@pytest.mark.parametrize(
    "body",
    [
        b'{"decisions": [{"context": [1, 2]}, {"context": [3, 4], "id": "d"}]}',
        b'{"decisions": [{"context": [1, 2]}, {"context": [3, 4], "defer": false}]}',
        b'{"decisions": [{"context": {"a": 1}}, {"context": {"a": 2}}]}',
        b'{"decisions": [{"context": [1, 2]}, {"context": [3, 4]}' + b" " * 1_000 + b"]}",
    ],
)
def test_any_other_body_is_not(body):
    assert _several(body)[2] is None


def test_a_key_that_is_given_twice_is_refused():
    with pytest.raises(ServiceError, match="twice"):
        _several(b'{"decisions": [{"context": [1, 2], "context": [3, 4]}, {"context": [5, 6]}]}')


def test_a_body_is_recorded_as_it_was_sent(shop):
    body = b'{"decisions": [{"context": [1, 2.50, 3]}, {"context": [3e0, -4, 0]}]}'
    rows, _, request = _several(body)
    answers = shop.do(DecideMany(experiment=NAME, rows=rows, request=request, as_json=True)).decisions
    (record,) = held(shop)
    assert body in record.payload
    fact = decision_fact(record.single(1))
    assert fact.context == [3.0, -4.0, 0.0]
    assert msgspec.json.decode(answers[1].probabilities) == dict(zip("abc", fact.probabilities or (), strict=True))
    shop.decide((0.1, 0.2, 0.3))
    assert check_store(shop.engine.store).problems == []
