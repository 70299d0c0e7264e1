"""How an experiment is run: settings as history, versions, guards, shadow mode, live actions, imports, erasure."""

import numpy as np
import pytest

import spuir
from spuir.bandit import from_bytes
from spuir.errors import ServiceError
from spuir.service.checking import check_store
from spuir.service.commands import (
    AddAction,
    ArchiveExperiment,
    ChangeExperiment,
    CreateExperiment,
    Decide,
    DecisionRow,
    Forget,
    ImportLog,
    ImportModel,
    LogRow,
    Publish,
    RemoveAction,
    UpdateAction,
)
from spuir.service.settings import ColumnContext, ExperimentSettings, NumberContext
from spuir.service.stores.sql import SqlReads
from spuir.service.versions.rebuild import Lineup
from tests.service.shops import NAME, Shop, refused, sqlite_store


@pytest.fixture
def shop(tmp_path):
    made = Shop(sqlite_store(tmp_path))
    yield made
    made.engine.close()


def sound(shop):
    """Check that the log gives everything again, also in a process that starts anew."""
    report = check_store(shop.engine.store)
    assert report.problems == []
    assert report.versions == len(shop.digests())
    return report


# ---- settings -----------------------------------------------------------------------------------------------


def test_creating_again_with_the_same_settings_is_answered_again(shop):
    settings = ExperimentSettings(actions=["a", "b", "c"], policy="spuir", seed=7)
    assert not shop.do(CreateExperiment(experiment=NAME, settings=settings)).created_now
    unseeded = ExperimentSettings(actions=["a", "b", "c"], policy="spuir")
    assert not shop.do(CreateExperiment(experiment=NAME, settings=unseeded)).created_now
    other = ExperimentSettings(actions=["a", "b"])
    assert refused(shop, CreateExperiment(experiment=NAME, settings=other)).code == "exists"
    made = shop.do(CreateExperiment(experiment="second", settings=other))
    assert made.created_now
    assert made.settings.seed is not None
    assert [one.name for one in shop.engine.experiments()] == ["second", NAME]


@pytest.mark.parametrize(
    "wrong",
    [
        {"actions": []},
        {"actions": 0},
        {"actions": ["a", "a"]},
        {"actions": ["a", ""]},
        {"actions": ["1", 1]},
        {"policy": "nonesuch"},
        {"parameters": {"alhpa": 1}},
        {"floor": 2.0},
        {"batch_size": 0},
        {"batch_size": 10, "window": None},
        {"window": "soon"},
        {"period": -1},
        {"aggregation": "mode"},
        {"seed": -1},
        {"context": NumberContext(dimension=0)},
        {"context": ColumnContext(names=["a", "a"])},
        {"baseline": "z"},
        {"default_reward": float("nan")},
        {"least_value": float("inf")},
    ],
)
def test_settings_that_break_a_rule_are_refused(shop, wrong):
    settings = ExperimentSettings(**({"actions": ["a", "b"]} | wrong))
    assert refused(shop, CreateExperiment(experiment="other", settings=settings)).code == "invalid"


def test_a_label_that_is_there_twice_is_named(shop):
    settings = ExperimentSettings(actions=["a", "b", "b"])
    error = refused(shop, CreateExperiment(experiment="other", settings=settings))
    assert str(error) == "actions: got 'b' twice, but labels differ as texts; drop or rename one."


def test_names_come_from_a_closed_alphabet(shop):
    settings = ExperimentSettings(actions=2)
    for name in ("", "Shop", "a/b", "../x", "a" * 64, "-a", "ä", "a b"):
        assert refused(shop, CreateExperiment(experiment=name, settings=settings)).code == "invalid"


def test_settings_are_history(shop):
    """A change holds from its place in the log on; a replay gives the same digests, and nothing is discarded."""
    shop.live(episodes=1)
    changes = [
        {"default_reward": 0.5},
        {"window": "2h"},
        {"aggregation": "sum"},
        {"floor": 0.05},
        {"parameters": {"alpha": 2.0}},
        {"batch_size": 10},
        {"policy": "sbucb", "parameters": {}},
    ]
    for at, change in enumerate(changes):
        before = shop.engine.experiment(NAME).episode
        shop.do(ChangeExperiment(experiment=NAME, changes=change))
        assert shop.engine.experiment(NAME).episode >= before
        shop.live(episodes=1, seed=at + 1)
        shop.clock.now += 7_200
        shop.engine.tick()
    digests = shop.digests()
    sound(shop)
    shop.restart()
    assert shop.digests() == digests
    assert shop.engine.experiment(NAME).settings.floor == 0.05


def test_another_algorithm_learns_everything_again(tmp_path):
    shop = Shop(sqlite_store(tmp_path), policy="spuir")
    shop.live(episodes=3)
    shop.do(ChangeExperiment(experiment=NAME, changes={"policy": "uniform"}))
    newest = shop.engine.versions(NAME)[-1]
    assert (newest.parent, newest.rows, newest.episode) == (None, 120, 3)
    bandit = from_bytes(shop.engine.model(NAME), "the service")
    assert bandit.policy_.name == "uniform"
    assert sum(one.rows for one in bandit.logged_rewards()) == 120
    sound(shop)


def test_an_algorithm_that_cannot_learn_what_was_is_refused_and_can_be_changed_back(tmp_path):
    shop = Shop(sqlite_store(tmp_path), policy="uniform")
    for scale in (1, 1e9):  # the exponential of a score of the second episode is not finite
        for answer in shop.decide_many(scale * np.random.default_rng(0).normal(size=(40, 3))):
            shop.reward(answer.id)
        shop.clock.now += 3_600
        shop.close()
    learned = shop.digests()[-1]
    shop.do(ChangeExperiment(experiment=NAME, changes={"policy": "puir-exp"}))
    newest = shop.engine.versions(NAME)[-1]
    assert (newest.version, newest.parent, newest.digest) == (3, 2, learned)
    assert newest.refused is not None and "the policy 'puir-exp'" in newest.refused
    assert shop.engine.status()["problems"] == {} and shop.decide((0.1, 0.2, 0.3)).version == 2
    shop.do(ChangeExperiment(experiment=NAME, changes={"policy": "uniform"}))
    shop.live(episodes=1)
    assert (shop.engine.versions(NAME)[-1].refused, shop.engine.experiment(NAME).version) == (None, 4)
    digests = shop.digests()
    sound(shop)
    shop.restart()
    assert shop.digests() == digests


def test_what_cannot_change_is_refused(shop):
    for changes in ({"actions": 3}, {"seed": 1}, {"nonsense": 1}, {}, {"window": "soon"}, {"floor": "x"}):
        assert refused(shop, ChangeExperiment(experiment=NAME, changes=changes)).code == "invalid"


def test_an_archived_experiment_can_be_read(shop):
    shop.live(episodes=1)
    assert shop.do(ArchiveExperiment(experiment=NAME)).archived
    command = Decide(experiment=NAME, row=DecisionRow(context=[1.0, 2.0, 3.0]))
    assert refused(shop, command).code == "archived"
    before = shop.engine.experiment(NAME).records
    assert shop.do(ArchiveExperiment(experiment=NAME)).records == before
    assert len(next(shop.engine.log(NAME))) == 40


# ---- versions -----------------------------------------------------------------------------------------------


def test_rollback_publishes_an_older_version_at_once(shop):
    shop.live(episodes=3)
    old = spuir.bandit.from_bytes(shop.engine.model(NAME, 1), "version 1")
    answer = shop.do(Publish(experiment=NAME, version=1))
    assert (answer.version, answer.previous) == (1, 3)
    made = shop.decide((0.1, 0.2, 0.3), id="k")
    again = old.decide([[0.1, 0.2, 0.3]], ids=["k"])
    assert (made.version, made.action, made.propensity) == (1, again.actions[0], again.propensities[0])
    assert refused(shop, Publish(experiment=NAME, version=9)).code == "unknown_version"
    shop.restart()
    assert shop.decide((0.1, 0.2, 0.3)).version == 1
    # Learning goes on from the newest version.
    shop.live(episodes=1)
    newest = shop.engine.versions(NAME)[-1]
    assert (newest.parent, newest.published) == (3, True)
    sound(shop)


def test_without_publishing_versions_wait(tmp_path):
    shop = Shop(sqlite_store(tmp_path), publish=False)
    shop.live(episodes=2)
    described = shop.engine.experiment(NAME)
    assert (described.version, described.newest) == (0, 2)
    shop.do(Publish(experiment=NAME, version=2))
    assert shop.decide((0.0, 0.0, 0.0)).version == 2


def test_a_version_below_the_guard_is_not_published(tmp_path):
    shop = Shop(sqlite_store(tmp_path), least_value=0.0)
    shop.live(episodes=1)
    assert shop.engine.experiment(NAME).version == 1
    shop.do(ChangeExperiment(experiment=NAME, changes={"least_value": 0.99}))
    shop.live(episodes=1, seed=1)
    newest = shop.engine.versions(NAME)[-1]
    assert not newest.published
    assert "below the guard" in (newest.refused or "")
    assert newest.value is not None and newest.value < 0.99
    assert shop.engine.experiment(NAME).version == 1
    assert shop.engine.experiment(NAME).counts["versions refused"] == 1
    sound(shop)
    # An operator who looked at it may publish it all the same.
    assert shop.do(Publish(experiment=NAME, version=2)).version == 2


def test_a_version_with_numbers_that_are_not_finite_is_refused(shop):
    shop.live(episodes=1)
    for _ in range(20):
        shop.reward(shop.decide((1.0, 2.0, 3.0)).id, 1.7e308)
    shop.clock.now += 3_600
    shop.close()
    newest = shop.engine.versions(NAME)[-1]
    assert newest.refused is not None
    assert shop.engine.experiment(NAME).version == 1
    assert refused(shop, Publish(experiment=NAME, version=2)).code == "refused_version"
    shop.live(episodes=1, seed=5)
    assert shop.engine.experiment(NAME).version == 3
    sound(shop)


def test_shadow_mode_returns_the_baseline_and_counts_matches(tmp_path):
    shop = Shop(sqlite_store(tmp_path), shadow=True, baseline="b")
    shop.live(episodes=2)
    answers = shop.decide_many(np.random.default_rng(0).normal(size=(50, 3)))
    assert {one.action for one in answers} == {"b"}
    assert {one.propensity for one in answers} == {1.0}
    assert len({one.shadow for one in answers}) > 1
    counts = shop.engine.experiment(NAME).counts
    assert counts["decisions"] == 130
    assert counts["shadow matches"] >= sum(one.shadow == "b" for one in answers)
    assert shop.decide((0.0, 0.0, 0.0), eligible=["a", "c"]).action == "a"
    shop.do(ChangeExperiment(experiment=NAME, changes={"shadow": False}))
    assert shop.decide((0.0, 0.0, 0.0)).shadow is None
    sound(shop)


# ---- actions ------------------------------------------------------------------------------------------------


def test_an_action_is_added_live_and_ramps_up(shop):
    shop.live(episodes=2)
    shop.do(AddAction(experiment=NAME, label="d", ramp=0.1, ramp_episodes=2))
    answers = shop.decide_many(np.random.default_rng(0).normal(size=(100, 3)))
    assert max(one.probabilities["d"] for one in answers) == pytest.approx(0.1)
    shop.live(episodes=3, seed=4)
    shop.do(RemoveAction(experiment=NAME, label="b"))
    answers = shop.decide_many(np.random.default_rng(1).normal(size=(100, 3)))
    assert all("b" not in one.probabilities and one.action != "b" for one in answers)
    shop.live(episodes=1, seed=9)
    assert [(one.label, one.active) for one in shop.engine.experiment(NAME).actions] == [
        ("a", True),
        ("b", False),
        ("c", True),
        ("d", True),
    ]
    digests = shop.digests()
    sound(shop)
    shop.restart()
    assert shop.digests() == digests
    assert "d" in shop.decide((0.0, 0.0, 0.0)).probabilities


def test_an_action_is_added_while_the_first_rows_wait_for_more(tmp_path):
    shop = Shop(sqlite_store(tmp_path), policy="auto")  # which looks at some hundred rows before it learns
    shop.live(episodes=1)
    shop.do(AddAction(experiment=NAME, label="d"))
    shop.live(episodes=2)
    assert [one.refused for one in shop.engine.versions(NAME)] == [None] * 4
    sound(shop)


def test_actions_of_an_experiment_that_learned_nothing(shop):
    shop.do(AddAction(experiment=NAME, label="d"))
    shop.do(RemoveAction(experiment=NAME, label="a"))
    assert shop.decide({"age": 3}).probabilities == pytest.approx({"b": 1 / 3, "c": 1 / 3, "d": 1 / 3})
    shop.clock.now += 3_600
    shop.close()
    assert set(shop.decide({"age": 3}).probabilities) == {"b", "c", "d"}
    sound(shop)


def test_wrong_changes_of_actions_are_refused(shop):
    shop.live(episodes=1)
    cases = [
        (AddAction(experiment=NAME, label="a"), "exists"),
        (AddAction(experiment=NAME, label="d", like="z"), "unknown_action"),
        (AddAction(experiment=NAME, label="d", ramp=2.0), "invalid"),
        (AddAction(experiment=NAME, label=""), "invalid"),
        (AddAction(experiment=NAME, label="d", features={"x": 1}), "unsupported"),
        (UpdateAction(experiment=NAME, label="z"), "unknown_action"),
        (RemoveAction(experiment=NAME, label="z"), "unknown_action"),
    ]
    for command, code in cases:
        assert refused(shop, command).code == code
    shop.do(RemoveAction(experiment=NAME, label="a"))
    shop.do(RemoveAction(experiment=NAME, label="b"))
    before = shop.engine.experiment(NAME).records
    assert shop.do(RemoveAction(experiment=NAME, label="b")).records == before
    assert refused(shop, RemoveAction(experiment=NAME, label="c")).code == "invalid"


def test_a_store_that_fails_while_actions_change_is_not_the_clients_fault(tmp_path, monkeypatch):
    shop = Shop(sqlite_store(tmp_path))
    shop.live(episodes=1)
    shop.restart()  # nothing is served yet, so that the model is read

    def fail(*_: object) -> None:
        raise ServiceError("storage_unavailable", "store", "a failure", "the disk must give it", "check the disk")

    monkeypatch.setattr(SqlReads, "model", fail)
    assert refused(shop, AddAction(experiment=NAME, label="d")).code == "storage_unavailable"


# ---- imports ------------------------------------------------------------------------------------------------


def test_rows_from_elsewhere_are_learned(shop):
    rng = np.random.default_rng(0)
    rows = [
        LogRow(
            context=rng.normal(size=2).tolist(),
            action="abc"[at % 3],
            reward=float(at % 3 == 0),
            propensity=1 / 3,
            decision_id=f"old {at}",
            time="2020-01-01T00:00:00Z",
        )
        for at in range(60)
    ]
    assert shop.do(ImportLog(experiment=NAME, rows=rows)).recorded == 60
    again = shop.do(ImportLog(experiment=NAME, rows=rows[:10]))
    assert (again.recorded, again.duplicates) == (0, 10)
    shop.clock.now += 1
    assert shop.close().rows == 60
    bandit = from_bytes(shop.engine.model(NAME), "the service")
    assert [one.mean for one in bandit.logged_rewards()] == [1.0, 0.0, 0.0]
    wrong = [
        LogRow(context=[1.0, 2.0], action="z", decision_id="x"),
        LogRow(context=[1.0], action="a", decision_id="x"),
        LogRow(context=[1.0, 2.0], action="a", decision_id="x", propensity=0.0),
        LogRow(context=[1.0, 2.0], action="a"),
    ]
    for row in wrong:
        assert refused(shop, ImportLog(experiment=NAME, rows=[rows[0], row])).code == "invalid"
    listed = LogRow(context=[1.0, 2.0], action="a", decision_id="x", eligible=["a", "z"])
    error = refused(shop, ImportLog(experiment=NAME, rows=[listed]))
    assert "eligible: got 'z', but a row has actions of the experiment only" in str(error)
    sound(shop)


def test_a_model_from_elsewhere_is_the_next_version(shop):
    rng = np.random.default_rng(0)
    bandit = spuir.Bandit("spuir", ["a", "b", "c"], random_state=99)
    bandit.partial_fit(rng.normal(size=(90, 4)), ["a", "b", "c"] * 30, rng.random(90))
    shop.do(ImportModel(experiment=NAME, model=bandit.to_bytes()))
    assert shop.engine.experiment(NAME).version == 1
    contexts = rng.normal(size=(20, 4))
    answers = shop.decide_many(contexts)
    np.testing.assert_array_equal([list(one.probabilities.values()) for one in answers], bandit.predict_proba(contexts))
    shop.live(episodes=1, dim=4)
    assert shop.engine.versions(NAME)[-1].episode == 2
    sound(shop)
    other = spuir.Bandit("spuir", ["a", "b"], random_state=1).to_bytes()
    for model in (b"", b"rubbish" * 100, other):
        assert refused(shop, ImportModel(experiment=NAME, model=model)).code == "invalid"


# ---- erasure ------------------------------------------------------------------------------------------------


def test_forgetting_a_unit_erases_its_contexts_and_nothing_else(shop, tmp_path):
    shop.live(episodes=1)
    mark = 0.123456789
    learned = [shop.decide((mark, 0.2, 0.3), unit="ann").id for _ in range(5)]
    shop.decide((0.5, 0.2, 0.3), unit="bob")
    shop.reward(learned[0], 77.25)
    shop.clock.now += 3_600
    shop.close()
    pending = shop.decide((mark, 0.2, 0.3), unit="ann", id="open").id
    digests, head = shop.digests(), shop.engine.experiment(NAME).records
    answer = shop.do(Forget(experiment=NAME, unit="ann"))
    assert (answer.decisions, answer.rewards) == (6, 1)
    assert shop.engine.experiment(NAME).records == head + 1
    shop.clock.now += 3_600
    shop.close()
    assert shop.status(pending).status == "forgotten"
    assert refused(shop, Forget(experiment=NAME, unit="ann")).code == "unknown_unit"
    row = DecisionRow(context=[mark, 0.2, 0.3], unit="ann", id="open")
    assert refused(shop, Decide(experiment=NAME, row=row)).code == "forgotten"
    assert shop.digests()[: len(digests)] == digests  # what was learned stays
    report = sound(shop)
    assert any("erased" in note for note in report.notes)
    shop.engine.close()
    for file in tmp_path.iterdir():
        content = file.read_bytes()
        assert b"0.123456789" not in content and b"77.25" not in content and b'"ann"' not in content
    shop.engine = shop.start()
    shop.live(episodes=1, seed=8)
    sound(shop)


def test_what_was_learned_after_an_erasure_is_replayed_without_the_erased_rows(shop):
    shop.decide((1.0, 2.0, 3.0), unit="ann")
    shop.decide((2.0, 1.0, 3.0), unit="bob")
    shop.do(Forget(experiment=NAME, unit="ann"))
    shop.clock.now += 3_600
    shop.close()
    assert shop.engine.versions(NAME)[-1].rows == 1
    assert sound(shop).notes == []


def test_old_payloads_are_erased_after_the_time_they_are_kept(tmp_path):
    shop = Shop(sqlite_store(tmp_path), retention="1d")
    shop.live(episodes=2)
    digests = shop.digests()
    shop.clock.now += 86_400
    open_one = shop.decide((0.0, 0.0, 0.0)).id
    shop.engine.tick()
    kept = [one for one in shop.engine.store.records(NAME, 1, 10_000) if one.payload is not None]
    assert [one.key for one in kept if one.kind == "decision"] == [open_one]
    assert shop.digests() == digests
    assert sound(shop).notes
    shop.restart()
    shop.live(episodes=1)
    sound(shop)


# ---- models -------------------------------------------------------------------------------------------------


def test_a_damaged_or_missing_model_is_rebuilt_from_the_log(shop):
    shop.live(episodes=4)
    digests = shop.digests()
    whole = {version: shop.engine.model(NAME, version) for version in range(5)}
    damages = [None, b"", whole[4][:-1], whole[4][:200] + b"\0" + whole[4][201:], whole[3]]
    for damage in damages:
        with shop.engine.store.transaction() as writer:
            if damage is None:
                writer.drop_models(NAME, range(5))
            else:
                writer.put_model(NAME, 4, damage)
        shop.restart()
        assert shop.engine.model(NAME, 4) == whole[4]
        assert shop.decide((0.1, 0.2, 0.3)).version == 4
    assert Lineup(shop.engine.store, NAME).model(2).to_bytes() == whole[2]
    assert shop.digests() == digests
    shop.live(episodes=1)
    sound(shop)


def test_a_close_without_its_version_is_learned_at_the_next_start(shop):
    shop.live(episodes=2)
    twin = shop.digests()

    class Never:
        def submit(self, store, job):
            pass

        def collect(self):
            return []

        def close(self):
            pass

    shop.decide_many(np.random.default_rng(3).normal(size=(20, 3)))
    shop.clock.now += 3_600
    shop.engine._jobs.learner = Never()
    assert shop.close().version == 3
    assert shop.engine.experiment(NAME).learning
    assert shop.digests() == twin
    shop.restart()
    shop.engine.tick()
    assert not shop.engine.experiment(NAME).learning
    assert shop.engine.experiment(NAME).version == 3
    sound(shop)


def test_rows_that_cannot_be_learned_leave_the_model_as_it_was(shop):
    shop.decide({"age": 3})
    shop.decide({"age": {"years": 3}})
    shop.clock.now += 3_600
    shop.close()
    newest = shop.engine.versions(NAME)[-1]
    if newest.refused is not None:
        assert shop.engine.experiment(NAME).version == 0
    shop.decide({"age": 4})
    shop.clock.now += 3_600
    shop.close()
    sound(shop)


def test_unknown_experiments_are_refused(shop):
    for read in (shop.engine.experiment, shop.engine.versions, shop.engine.model, shop.engine.log):
        with pytest.raises(ServiceError, match="no experiment"):
            read("nowhere")
