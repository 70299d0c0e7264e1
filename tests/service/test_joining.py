"""Rewards in time, late, early, unknown and repeated; aggregation; windows under a clock that jumps; silence."""

from itertools import permutations

import pytest

from spuir.errors import ServiceError
from spuir.service.checking import check_store
from spuir.service.commands import Activate, ChangeExperiment, Decide, DecisionRow, Reward, RewardMany, RewardRow
from spuir.service.versions.joining import combine
from tests.service.shops import NAME, Shop, refused, sqlite_store

HOUR = 3_600.0


@pytest.fixture
def shop(tmp_path):
    made = Shop(sqlite_store(tmp_path), window="1h")
    yield made
    made.engine.close()


def learned(shop):
    """Return the rows that were learned, by decision id."""
    return {row["decision_id"]: row for block in shop.engine.log(NAME, settled=True) for row in block}


# (time, id, value) → the documented result of each aggregation, whatever the order of arrival.
TABLE = [
    ([(1, "a", 3.0)], dict(earliest=3.0, sum=3.0, average=3.0, median=3.0, min=3.0, max=3.0)),
    ([(2, "a", 1.0), (1, "b", 5.0)], dict(earliest=5.0, sum=6.0, average=3.0, median=3.0, min=1.0, max=5.0)),
    ([(1, "b", 1.0), (1, "a", 5.0)], dict(earliest=5.0, sum=6.0, average=3.0, median=3.0, min=1.0, max=5.0)),
    (
        [(3, "a", 1e16), (2, "b", 1.0), (1, "c", -1e16)],
        dict(earliest=-1e16, sum=1.0, average=1 / 3, median=1.0, min=-1e16, max=1e16),
    ),
]


@pytest.mark.parametrize(("rewards", "results"), TABLE)
def test_aggregations_do_not_depend_on_the_order_of_arrival(rewards, results):
    for order in permutations(rewards):
        for aggregation, result in results.items():
            assert combine(aggregation, order) == result, aggregation


@pytest.mark.parametrize("aggregation", ["earliest", "sum", "average", "median", "min", "max"])
def test_rewards_of_one_decision_are_combined(tmp_path, aggregation):
    shop = Shop(sqlite_store(tmp_path), aggregation=aggregation)
    key = shop.decide().id
    # "second" came first, but its client dates it later; the third one repeats the first and counts once.
    assert shop.reward(key, 4.0, id="second", time=200.0) == "joined"
    assert shop.reward(key, 1.0, id="first", time=100.0) == "joined"
    assert shop.reward(key, 1.0, id="first", time=100.0) == "duplicate"
    shop.clock.now += HOUR
    shop.close()
    expected = {"earliest": 1.0, "sum": 5.0, "average": 2.5, "median": 2.5, "min": 1.0, "max": 4.0}
    assert learned(shop)[key]["reward"] == expected[aggregation]
    status = shop.status(key)
    assert (status.status, status.reward, status.rewards, status.used_in) == ("joined", expected[aggregation], 2, 1)


def test_a_reward_that_is_sent_again_counts_once(shop):
    key = shop.decide().id
    row = RewardRow(decision_id=key, reward=1.0, id="order 7")
    out = shop.ask([Reward(experiment=NAME, row=row)] * 100)
    assert [one.status for one in out] == ["joined"] + ["duplicate"] * 99
    shop.restart()
    assert shop.reward(key, 1.0, id="order 7") == "duplicate"
    assert shop.engine.experiment(NAME).counts["rewards"] == 1
    other = Reward(experiment=NAME, row=RewardRow(decision_id=key, reward=2.0, id="order 7"))
    assert refused(shop, other).code == "conflict"
    many = shop.do(RewardMany(experiment=NAME, rows=[other.row, RewardRow(decision_id=key, reward=3.0)]))
    assert [one.status for one in many.rewards] == ["conflict", "joined"]
    # Without an id, the same value at the same time is the same reward; another value is another one.
    assert shop.reward(key, 3.0) == "duplicate"
    assert shop.reward(key, 3.0, time="2026-01-01T00:00:00Z") == "joined"


def test_a_reward_after_the_window_is_late_and_not_learned(shop):
    keys = [shop.decide().id for _ in range(3)]
    shop.clock.now += HOUR - 1e-6
    assert shop.reward(keys[0]) == "joined"
    assert shop.status(keys[1]).status == "pending"
    shop.clock.now += 1e-6
    assert shop.reward(keys[1]) == "late"
    shop.close()
    assert shop.reward(keys[1], 2.0) == "late"
    rows = learned(shop)
    assert [rows[key]["reward"] for key in keys] == [1.0, 0.0, 0.0]
    assert [shop.status(key).status for key in keys] == ["joined", "late", "defaulted"]
    counts = shop.engine.experiment(NAME).counts
    assert (counts["rewards joined"], counts["rewards late"], counts["learned"], counts["defaulted"]) == (1, 2, 3, 2)


def test_an_early_reward_waits_for_its_decision(shop):
    assert shop.reward("mine", 5.0) == "early"
    shop.clock.now += 60
    shop.decide(id="mine")
    assert shop.status("mine").status == "joined"
    assert shop.reward("yours") == "early"
    shop.clock.now += 601  # more than ten minutes before its decision
    shop.decide(id="yours")
    shop.clock.now += HOUR
    shop.close()
    rows = learned(shop)
    assert (rows["mine"]["reward"], rows["yours"]["reward"]) == (5.0, 0.0)


def test_a_reward_without_a_decision_is_recorded_and_counted(shop):
    assert shop.reward("~made-by-nobody") == "unknown"
    assert shop.engine.experiment(NAME).counts["rewards unknown"] == 1
    with pytest.raises(ServiceError) as failure:
        shop.status("~made-by-nobody")
    assert failure.value.code == "unknown_decision"
    shop.do(ChangeExperiment(experiment=NAME, changes={"early": None}))
    assert shop.reward("mine") == "unknown"


def test_deferred_decisions_are_learned_only_if_activated(shop):
    left, taken, late = (shop.decide(defer=True).id for _ in range(3))
    assert shop.reward(left) == shop.reward(taken) == "joined"
    assert shop.do(Activate(experiment=NAME, decision_id=taken)).status == "activated"
    assert shop.do(Activate(experiment=NAME, decision_id=taken)).status == "duplicate"
    assert refused(shop, Activate(experiment=NAME, decision_id="nobody")).code == "unknown_decision"
    shop.clock.now += HOUR
    assert refused(shop, Activate(experiment=NAME, decision_id=late)).code == "too_late"
    shop.close()
    assert list(learned(shop)) == [taken]
    assert [shop.status(key).status for key in (left, taken, late)] == ["not activated", "joined", "not activated"]
    assert shop.engine.experiment(NAME).counts["not activated"] == 2


def test_silence_gets_the_default_once_also_if_the_service_was_down(tmp_path):
    shop = Shop(sqlite_store(tmp_path), window="1h", batch_size=3, default_reward=-1.0)
    keys = [shop.decide().id for _ in range(3)]
    shop.reward(keys[1], 1.0)
    shop.engine.close()
    shop.clock.now += 10 * HOUR
    shop.engine = shop.start()
    shop.engine.tick()
    assert [learned(shop)[key]["reward"] for key in keys] == [-1.0, 1.0, -1.0]
    shop.clock.now += 10 * HOUR
    shop.engine.tick()
    shop.close()
    assert shop.engine.experiment(NAME).newest == 1
    assert shop.engine.experiment(NAME).counts["defaulted"] == 2


def test_without_a_default_silent_decisions_are_left_out(tmp_path):
    shop = Shop(sqlite_store(tmp_path), default_reward=None)
    paid, silent = shop.decide().id, shop.decide().id
    shop.reward(paid, 2.0)
    shop.clock.now += HOUR
    shop.close()
    assert list(learned(shop)) == [paid]
    assert shop.status(silent).used_in is None
    assert shop.engine.experiment(NAME).counts["learned"] == 1


def test_rewarded_decisions_never_settle_before_silent_ones(tmp_path):
    shop = Shop(sqlite_store(tmp_path), window="1h", batch_size=4)
    keys = [shop.decide().id for _ in range(4)]
    for key in keys[:3]:
        shop.reward(key)
    shop.clock.now += HOUR / 2
    shop.engine.tick()
    assert shop.engine.experiment(NAME).newest == 0
    assert shop.close().rows == 0
    assert shop.engine.tick() == pytest.approx(1.0)
    shop.clock.now += HOUR / 2
    shop.engine.tick()
    assert shop.engine.experiment(NAME).newest == 1


def test_jumps_of_the_clock(shop):
    """Log time never goes back: no negative age, no window that opens again, no second default."""
    first = shop.decide().id
    shop.clock.now -= HOUR
    second = shop.decide().id
    assert shop.status(second).time == shop.status(first).time
    assert shop.reward(second) == "joined"
    shop.clock.now += HOUR + 86_400
    third = shop.decide().id
    assert shop.reward(first) == "late"
    shop.close()
    shop.clock.now -= 86_400
    assert shop.close().rows == 0
    assert shop.reward(third) == "joined"
    assert shop.reward(first, 3.0) == "late"
    shop.clock.now += 86_400 + HOUR
    shop.close()
    assert [row["reward"] for row in learned(shop).values()] == [0.0, 1.0, 1.0]
    assert shop.engine.experiment(NAME).counts["defaulted"] == 1
    times = [record.time for record in shop.engine.store.records(NAME, 1, 1_000)]
    assert times == sorted(times)
    assert check_store(shop.engine.store).problems == []


def test_a_period_closes_what_has_settled(tmp_path):
    shop = Shop(sqlite_store(tmp_path), window="10m", period="1h")
    shop.decide()
    shop.clock.now += 1_800
    shop.engine.tick()
    assert shop.engine.experiment(NAME).newest == 0
    shop.decide()
    shop.clock.now += 1_800
    shop.decide()
    shop.engine.tick()
    assert shop.engine.versions(NAME)[-1].rows == 2
    shop.clock.now += HOUR
    shop.engine.tick()
    assert shop.engine.versions(NAME)[-1].rows == 1
    shop.clock.now += 10 * HOUR
    shop.engine.tick()
    assert shop.engine.experiment(NAME).newest == 2


def test_a_shorter_window_never_lets_a_decision_be_learned_twice(shop):
    old = shop.decide().id
    shop.do(ChangeExperiment(experiment=NAME, changes={"window": "1m"}))
    shop.clock.now += 10
    new = shop.decide().id
    shop.clock.now += 60
    assert shop.close().rows == 1
    assert list(learned(shop)) == [new]
    shop.do(ChangeExperiment(experiment=NAME, changes={"window": None}))
    last = shop.decide().id
    shop.clock.now += HOUR
    assert shop.close().rows == 2
    assert list(learned(shop)) == [new, old, last]
    assert shop.close().rows == 0
    assert shop.reward(last) == "late"
    assert check_store(shop.engine.store).problems == []


def test_rewards_are_settled_by_the_close_without_a_window(tmp_path):
    shop = Shop(sqlite_store(tmp_path), window=None)
    row = DecisionRow(context=[1.0, 2.0], id="k")
    group = [Decide(experiment=NAME, row=row), Reward(experiment=NAME, row=RewardRow(decision_id="k", reward=2.0))]
    assert shop.ask(group)[1].status == "joined"
    shop.close()
    assert shop.reward("k", 3.0) == "late"
    assert learned(shop)["k"]["reward"] == 2.0
    assert shop.status("k").used_in == 1
