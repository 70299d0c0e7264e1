"""The engine on a clock that tests move: decisions, idempotency, learning, and equality with ``spuir.run``."""

import numpy as np
import pytest

import spuir
from spuir.bandit import from_bytes
from spuir.base.streams import generator
from spuir.errors import ServiceError
from spuir.service.checking import check_store
from spuir.service.commands import (
    CloseEpisode,
    Decide,
    DecideMany,
    DecisionRow,
    Publish,
    Reward,
    RewardMany,
    RewardRow,
)
from spuir.service.log_records import decision_fact
from tests.service.shops import NAME, Shop, refused, sqlite_store


@pytest.fixture
def shop(tmp_path):
    made = Shop(sqlite_store(tmp_path))
    yield made
    made.engine.close()


def test_a_loop_over_the_engine_is_spuir_run_bit_for_bit(tmp_path):
    world, seed, episodes, rows = spuir.make_environment("coupon", seed=3), 3, 4, 60
    history = spuir.run("spuir", world, episodes, rows, seed)
    shop = Shop(sqlite_store(tmp_path), actions=world.n_actions, seed=seed, window=None)
    for episode in range(episodes + 1):
        rounds = world.draw(rows, generator(seed, "environment", "contexts", episode))
        answers = shop.decide_many(rounds.contexts)
        actions = np.array([answer.action for answer in answers])
        feedback = world.feedback(rounds, actions, generator(seed, "environment", "noise", episode))
        items = [
            RewardRow(decision_id=answer.id, reward=float(value))
            for answer, value in zip(answers, feedback.rewards, strict=True)
        ]
        # Out of order: rows are learned in the order of decisions.
        shop.do(RewardMany(experiment=NAME, rows=items[::-1]))
        if episode < episodes:
            assert shop.close().rows == rows
        if episode:
            assert feedback.rewards.mean() == history.rewards[episode - 1]
            assert np.array_equal(np.bincount(actions, minlength=world.n_actions), history.counts[episode - 1])
    mine = from_bytes(shop.engine.model(NAME), "the service")
    bandit = spuir.Bandit("spuir", world.n_actions, random_state=seed)
    direct = _loop(bandit, world, seed, episodes, rows)
    for name, array in vars(mine.state_).items():
        if isinstance(array, np.ndarray):
            assert np.array_equal(array, getattr(direct.state_, name)), name
    assert mine.n_episodes_ == episodes
    assert np.array_equal(mine.coefficients_, direct.coefficients_)
    assert check_store(shop.engine.store).problems == []


def _loop(bandit, world, seed, episodes, rows):
    """The loop of ``spuir.run`` around a bandit, as its docstring promises."""
    for episode in range(episodes):
        rounds = world.draw(rows, generator(seed, "environment", "contexts", episode))
        decision = bandit.decide(rounds.contexts)
        feedback = world.feedback(rounds, decision.actions, generator(seed, "environment", "noise", episode))
        bandit.partial_fit(rounds.contexts, decision.actions, feedback.rewards, decision.propensities)
    return bandit


def test_single_requests_agree_with_one_call(tmp_path, shop):
    contexts = np.random.default_rng(1).normal(size=(30, 3))
    (tmp_path / "other").mkdir()
    other = Shop(sqlite_store(tmp_path / "other"))
    shop.live()
    other.live()
    together = shop.decide_many(contexts)
    alone = [other.decide(tuple(one)) for one in contexts.tolist()]
    assert [one.action for one in together] == [one.action for one in alone]
    np.testing.assert_allclose(
        [one.propensity for one in together], [one.propensity for one in alone], rtol=0, atol=1e-10
    )


def test_the_draw_depends_on_the_id_alone(shop):
    shop.live()
    version = shop.engine.experiment(NAME).version
    bandit = from_bytes(shop.engine.model(NAME, version), "the service")
    contexts = np.random.default_rng(2).normal(size=(50, 3))
    answers = shop.decide_many(contexts, ids=[f"order {at}" for at in range(50)])
    again = bandit.decide(contexts, ids=[f"order {at}" for at in range(50)])
    assert [one.action for one in answers] == again.actions.tolist()
    assert [one.propensity for one in answers] == again.propensities.tolist()
    assert list(answers[7].probabilities.values()) == again.probabilities[7].tolist()


def test_a_decision_that_is_asked_again_is_answered_again(shop):
    shop.live()
    first = shop.decide((0.1, 0.2, 0.3), id="k", eligible=["a", "c"], unit="ann")
    records = shop.engine.experiment(NAME).records
    second = shop.decide((0.1, 0.2, 0.3), id="k", eligible=["a", "c"], unit="ann")
    assert second.replayed and not first.replayed
    assert (second.action, second.propensity, second.probabilities) == (
        first.action,
        first.propensity,
        first.probabilities,
    )
    assert shop.engine.experiment(NAME).records == records
    for other in ({"eligible": ["a", "b"]}, {"unit": "bob"}, {"defer": True}, {"context": [0.1, 0.2, 0.4]}):
        row = {"context": [0.1, 0.2, 0.3], "eligible": ["a", "c"], "unit": "ann", **other}
        assert refused(shop, Decide(experiment=NAME, row=DecisionRow(id="k", **row))).code == "conflict"


def test_the_same_decision_many_times_in_one_group_is_one_record(shop):
    row = DecisionRow(context=[1.0, 2.0], id="k")
    out = shop.ask([Decide(experiment=NAME, row=row) for _ in range(32)])
    assert len({one.action for one in out}) == 1
    assert [one.replayed for one in out] == [False] + [True] * 31
    assert shop.engine.experiment(NAME).counts["decisions"] == 1
    other = DecisionRow(context=[1.0, 3.0], id="k")
    group = [Decide(experiment=NAME, row=row), Decide(experiment=NAME, row=other)]
    assert [getattr(one, "code", "fine") for one in shop.ask(group)] == ["fine", "conflict"]


def test_a_refused_command_changes_no_neighbour(shop):
    good = Decide(experiment=NAME, row=DecisionRow(context=[1.0, 2.0]))
    bad = [
        Decide(experiment=NAME, row=DecisionRow(context=[1.0])),
        Decide(experiment=NAME, row=DecisionRow(context={"age": 3})),
        Decide(experiment=NAME, row=DecisionRow(context=[1.0, float("nan")])),
        Decide(experiment=NAME, row=DecisionRow(context=[1.0, 2.0], eligible=["d"])),
        Decide(experiment=NAME, row=DecisionRow(context=[1.0, 2.0], eligible=[])),
        Decide(experiment=NAME, row=DecisionRow(context=[1.0, 2.0], id="")),
        Decide(experiment=NAME, row=DecisionRow(context=[1.0, 2.0], id="~mine")),
        Decide(experiment="other", row=DecisionRow(context=[1.0, 2.0])),
        DecideMany(experiment=NAME, rows=[good.row, DecisionRow(context=[1.0])]),
        Reward(experiment=NAME, row=RewardRow(decision_id="x", reward=float("inf"))),
        Decide(experiment=NAME, row=DecisionRow(context=[1.0, 2.0], action_features={"a": {}})),
    ]
    out = shop.ask([good, *bad, good])
    assert not isinstance(out[0], ServiceError) and not isinstance(out[-1], ServiceError)
    codes = [getattr(one, "code", None) for one in out[1:-1]]
    assert codes == ["invalid"] * 7 + ["unknown_experiment", "invalid", "invalid", "unsupported"]
    assert shop.engine.experiment(NAME).counts["decisions"] == 2
    assert check_store(shop.engine.store).problems == []


def test_a_refused_first_context_settles_no_form(shop):
    assert refused(shop, Decide(experiment=NAME, row=DecisionRow(context=[]))).code == "invalid"
    many = DecideMany(experiment=NAME, rows=[DecisionRow(context=[1.0]), DecisionRow(context=[1.0, 2.0])])
    assert refused(shop, many).where == "decisions[1]"
    shop.decide({"age": 31, "device": "phone"})
    assert refused(shop, Decide(experiment=NAME, row=DecisionRow(context=[1.0]))).code == "invalid"


def test_row_numbers_go_on_after_a_restart(shop):
    first = [shop.decide() for _ in range(20)]
    shop.restart()
    second = [shop.decide() for _ in range(20)]
    assert [one.action for one in first] != [one.action for one in second]  # 3⁻²⁰ by chance
    assert check_store(shop.engine.store).problems == []


def test_raw_columns_are_encoded_from_the_first_episode_on(shop):
    devices = ["phone", "tablet", None]
    for at in range(60):
        context = {"age": 20 + at, "device": devices[at % 3]} | ({"city": "Bonn"} if at % 2 else {})
        answer = shop.decide(context)
        assert answer.propensity == pytest.approx(1 / 3)
        shop.reward(answer.id, float(at % 3 == 0 and answer.action == "a"))
    shop.clock.now += 3_600
    assert shop.close().rows == 60
    assert shop.engine.experiment(NAME).version == 1
    # New columns, unseen levels and missing columns are counted, never an error.
    for context in ({"age": 5, "device": "watch", "new": 1}, {"device": "phone"}, {"city": None}):
        assert sum(shop.decide(context).probabilities.values()) == pytest.approx(1)
    assert shop.engine.experiment(NAME).drift["rows with other columns"] == 3
    shop.clock.now += 3_600
    shop.close()
    assert shop.engine.experiment(NAME).version == 2
    assert check_store(shop.engine.store).problems == []
    code = refused(shop, Decide(experiment=NAME, row=DecisionRow(context={"age": "old"}))).code
    assert code == "invalid"


def test_probabilities_are_those_of_the_eligible_actions(shop):
    shop.live()
    answer = shop.decide((0.1, 0.2, 0.3), eligible=["b"])
    assert (answer.action, answer.propensity) == ("b", 1.0)
    assert answer.probabilities == {"a": 0.0, "b": 1.0, "c": 0.0}
    many = shop.decide_many(np.random.default_rng(0).normal(size=(20, 3)))
    assert all(sum(one.probabilities.values()) == pytest.approx(1, abs=1e-9) for one in many)
    assert all(one.probabilities[str(one.action)] == one.propensity for one in many)


def test_propensities_are_the_shares_of_the_actions(tmp_path):
    # χ² with 2 degrees of freedom; the bound is passed by chance once in 1,000 seeds, and the seed is fixed.
    shop = Shop(sqlite_store(tmp_path), policy="spuir", parameters={"floor": 0.15})
    shop.live(episodes=2)
    contexts = np.tile([[0.3, -0.2, 0.1]], (3_000, 1))
    answers = shop.decide_many(contexts)
    expected = np.array(list(answers[0].probabilities.values()))
    assert expected.min() >= 0.15
    counts = np.array([sum(one.action == label for one in answers) for label in "abc"])
    assert ((counts - 3_000 * expected) ** 2 / (3_000 * expected)).sum() < 13.8


def test_a_group_is_one_call_and_one_transaction(shop, monkeypatch):
    shop.live()
    calls = []
    serving = shop.engine._serving(shop.engine.store, shop.engine._views[NAME])
    original = serving.bandit.decide
    monkeypatch.setattr(serving.bandit, "decide", lambda *args: calls.append(len(args[0])) or original(*args))
    commands = [Decide(experiment=NAME, row=DecisionRow(context=[0.0, 0.0, float(at)])) for at in range(50)]
    reward = Reward(experiment=NAME, row=RewardRow(decision_id="x", reward=1.0))
    shop.ask([*commands[:25], reward, *commands[25:]])
    assert calls == [50]


def test_closing_an_empty_episode_records_nothing(shop):
    records = shop.engine.experiment(NAME).records
    answer = shop.close()
    assert (answer.rows, answer.version) == (0, None)
    assert shop.engine.experiment(NAME).records == records
    assert shop.ask([CloseEpisode(experiment="nowhere")])[0].code == "unknown_experiment"


def test_row_numbers_are_never_used_twice_and_take_little_room(tmp_path):
    shop = Shop(sqlite_store(tmp_path), window=None)
    for _ in range(30):
        shop.decide((1.0, 2.0))
        shop.close()
    shop.do(Publish(experiment=NAME, version=2))
    shop.decide((1.0, 2.0))
    shop.decide((1.0, 2.0))
    records = shop.engine.store.records(NAME, 1, 10_000, ("decision",))
    facts = [decision_fact(one) for one in records]
    drawn = [(fact.episode, fact.row) for fact in facts]
    assert len(set(drawn)) == len(drawn) == 32
    assert len(shop.engine.store.heads()[0].facts["rows"]) <= 21
    assert check_store(shop.engine.store).problems == []
