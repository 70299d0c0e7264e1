"""Actions with features in the service: a catalogue, features per decision, and what is refused."""

import numpy as np
import pyarrow as pa
import pytest

from spuir.bandit import from_bytes
from spuir.errors import ServiceError
from spuir.logs import open_log
from spuir.service.checking import check_store
from spuir.service.commands import (
    AddAction,
    ChangeExperiment,
    CreateExperiment,
    Decide,
    DecideMany,
    DecisionRow,
    ImportLog,
    LogRow,
    RemoveAction,
    UpdateAction,
)
from spuir.service.settings import ExperimentSettings
from spuir.training import train
from tests.service.shops import NAME, Shop, refused, sqlite_store

ITEMS = {
    "jam": {"price": 2.0, "kind": "food"},
    "tea": {"price": 3.0, "kind": "drink"},
    "cup": {"price": 9.0, "kind": "ware"},
    "pot": {"price": 20.0, "kind": "ware"},
}


@pytest.fixture
def shop(tmp_path):
    made = Shop(sqlite_store(tmp_path), actions=ITEMS, policy="hierarchical", window=None)
    yield made
    made.engine.close()


def live(shop: Shop, episodes: int, rows: int = 60, **row) -> None:
    """Let people who like cheap things, and others, choose."""
    rng = np.random.default_rng(3)
    for _ in range(episodes):
        for number in range(rows):
            thrift = float(rng.normal())
            given = {name: value(number) if callable(value) else value for name, value in row.items()}
            answer = shop.decide((thrift, 1.0), **given)
            cheap = answer.action in ("jam", "tea")
            shop.reward(answer.id, float(rng.random() < (0.8 if cheap == (thrift > 0) else 0.2)))
        assert shop.close().rows == rows


def test_a_catalogue_is_learned_from_and_replayed(shop):
    live(shop, 5)
    shop.do(AddAction(experiment=NAME, label="mug", features={"price": 8.0, "kind": "ware"}))
    shop.do(UpdateAction(experiment=NAME, label="jam", features={"price": 2.5, "kind": "food"}))
    live(shop, 2)
    shop.do(RemoveAction(experiment=NAME, label="pot"))
    live(shop, 1)
    bandit = from_bytes(shop.engine.model(NAME), "the service")
    assert bandit.policy_.name == "hierarchical" and bandit.actions_.tolist() == [*sorted(ITEMS), "mug"]
    likely = bandit.predict_proba([[2.0, 1.0], [-2.0, 1.0]])[:, [1, 3]].sum(axis=1)  # jam and tea
    assert likely[0] > 0.8 and likely[1] < 0.2
    shown = {one.label: one.features for one in shop.engine.experiment(NAME).actions}
    assert shown["jam"] == {"price": 2.5, "kind": "food"} and shown["mug"]["price"] == 8.0
    report = check_store(shop.engine.store)
    assert report.problems == [] and report.decisions == 480
    digests = shop.digests()
    shop.restart()
    assert shop.digests() == digests


def varying(number: int) -> dict[str, dict[str, float]]:
    """Return the stock of three items, another three each time."""
    labels = [label for at, label in enumerate(ITEMS) if at != number % 4]
    return {label: {"stock": float((number * 7 + at) % 5), "age": 1.0 + at} for at, label in enumerate(labels)}


def test_features_per_decision_say_who_is_eligible_and_are_learned(shop, tmp_path):
    live(shop, 3, action_features=varying)
    answer = shop.decide(
        (0.5, 1.0), action_features={"jam": {"stock": 1.0, "age": 2.0}, "cup": {"stock": 0.0, "age": 9}}
    )
    assert answer.action in ("jam", "cup")
    assert answer.probabilities["tea"] == answer.probabilities["pot"] == 0.0
    assert check_store(shop.engine.store).problems == []
    rows = [row for block in shop.engine.log(NAME, settled=True) for row in block]
    assert len(rows) == 180
    assert rows[0]["eligible"] == ["cup", "pot", "tea"] and rows[0]["action.stock"] == [1.0, 2.0, 0.0]
    items = pa.table(
        {"action": list(ITEMS), **{name: [one[name] for one in ITEMS.values()] for name in ("price", "kind")}}
    )
    log = open_log(pa.Table.from_pylist(rows), catalogue=items)
    trained = train(log, "hierarchical", seed=7).bandit
    assert trained.n_episodes_ == 3


def test_raw_columns_and_features_per_decision_start_uniformly(tmp_path):
    shop = Shop(sqlite_store(tmp_path), actions=ITEMS, policy="hierarchical", window=None)
    rows = [DecisionRow(context={"city": "Oslo", "age": 31}, action_features=varying(n)) for n in range(8)]
    answers = shop.do(DecideMany(experiment=NAME, rows=rows)).decisions
    for number, answer in enumerate(answers):
        offered = varying(number)
        assert answer.propensity == pytest.approx(1 / 3)
        assert {label for label, p in answer.probabilities.items() if p} == set(offered)
    assert shop.close().rows == 8
    assert shop.engine.versions(NAME)[-1].refused is None
    shop.engine.close()


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"action_features": {"jam": {"stock": 1.0}, "hat": {"stock": 1.0}}}, "'hat'"),
        ({"action_features": {}}, "none"),
        ({"action_features": {"jam": {"stock": 1.0}}, "eligible": ["jam"]}, "says which actions are eligible"),
        ({"action_features": {"jam": {"stock": 1.0}, "tea": {"age": 1.0}}}, "got age for 'tea', but"),
        ({"action_features": {"jam": {"row": 1.0}}}, "reserved"),
        ({"action_features": {"jam": {"stock": float("nan")}}}, "finite"),
        ({"eligible": ["jam", "hat"]}, "'hat'"),
        ({"eligible": []}, "got none"),
        ({"eligible": ["jam", "tea", "jam"]}, "got 'jam' twice"),
    ],
)
def test_bad_features_per_decision_are_refused(shop, row, words):
    error = refused(shop, Decide(experiment=NAME, row=DecisionRow(context=[1.0, 2.0], **row)))
    assert words in str(error)


def test_features_per_decision_stay_as_the_first_decision_has_them(shop):
    shop.decide((1.0, 2.0), action_features={"jam": {"stock": 1.0}, "tea": {"stock": 2.0}})
    error = refused(shop, Decide(experiment=NAME, row=DecisionRow(context=[1.0, 2.0])))
    assert "features per decision of this experiment are stock" in str(error)
    imported = LogRow(context=[1.0, 2.0], action="jam", reward=1.0, decision_id="x1")
    assert "stock" in str(refused(shop, ImportLog(experiment=NAME, rows=[imported])))


@pytest.mark.parametrize(
    ("features", "words"), [(None, "mug"), ({"price": 3.0}, "kind"), ({"price": "dear", "kind": "ware"}, "price")]
)
def test_a_new_action_needs_the_features_of_the_catalogue(shop, features, words):
    assert words in str(refused(shop, AddAction(experiment=NAME, label="mug", features=features)))


def test_a_catalogue_needs_a_policy_that_reads_it(tmp_path):
    shop = Shop(sqlite_store(tmp_path))
    settings = ExperimentSettings(actions=ITEMS, policy="auto")
    error = refused(shop, CreateExperiment(experiment="other", settings=settings))
    assert error.code == "unsupported" and "hierarchical" in str(error)
    row = DecisionRow(context=[1.0, 2.0], action_features={"a": {"x": 1.0}})
    assert refused(shop, Decide(experiment=NAME, row=row)).code == "unsupported"
    with pytest.raises(ServiceError):
        shop.do(AddAction(experiment=NAME, label="d", features={"x": 1.0}))
    shop.engine.close()


def test_in_shadow_mode_only_offered_actions_are_served(shop):
    shop.do(ChangeExperiment(experiment=NAME, changes={"shadow": True, "baseline": "pot"}))
    for number in range(20):
        offered = varying(number)
        answer = shop.decide((0.5, 1.0), action_features=offered)
        assert answer.action in offered and (answer.action == "pot") == ("pot" in offered)
        shop.reward(answer.id, 1.0)
    assert shop.close().rows == 20
    assert shop.engine.versions(NAME)[-1].refused is None
    assert check_store(shop.engine.store).problems == []
