"""Replay and tuning of policies that read a catalogue."""

import numpy as np
import pytest

import spuir
from spuir.base import streams
from spuir.errors import InputError
from spuir.evaluation.encoded_rows import EncodedRows
from spuir.evaluation.replay import replay
from spuir.evaluation.reward_models import RidgeRewards
from spuir.logs import open_log
from spuir.training import train
from tests.training.catalogues import BATCH, ITEMS, LABELS, executed_prices, make_log


@pytest.mark.parametrize("varying", [False, True])
def test_replay_learns_with_the_features_of_the_log(varying: bool) -> None:
    table = make_log(6_000, varying=varying)
    rows = EncodedRows.read(open_log(table, catalogue=ITEMS), batch_size=BATCH)
    described = replay(rows, "hierarchical", batch_size=BATCH)
    plain = replay(rows, "auto", batch_size=BATCH)
    assert described.value > float(np.mean(table["reward"].to_numpy())) + 5 * described.standard_error
    if varying:
        # One model per action does not see the prices, which have as large an effect as all else together. Both replays
        # are deterministic; at these errors a wrong order would have a probability below 1e-4.
        assert described.value > plain.value + 4 * np.hypot(described.standard_error, plain.standard_error)


def test_rows_know_the_features_of_their_actions() -> None:
    table = make_log(varying=True)
    rows = EncodedRows.read(open_log(table, catalogue=ITEMS), batch_size=BATCH)
    order = [LABELS.index(str(label)) for label in rows.labels]
    assert rows.catalogue["size"].tolist() == [ITEMS["size"][at] for at in order]
    assert np.array_equal(rows.executed_features(slice(5, 90))["price"], executed_prices(table)[5:90])
    some = np.array([7, 300, 41])
    assert np.array_equal(rows.at(some).executed_features(slice(None))["price"], executed_prices(table)[some])
    offered = rows.offered_features(slice(3, 5))
    names = [str(rows.labels[code]) for code in offered["action"]]
    expected = table["eligible"].to_pylist()[3:5]
    assert [sorted(n for n, row in zip(names, offered["row"], strict=True) if row == at) for at in (0, 1)] == [
        sorted(one) for one in expected
    ]


def test_masks_and_lists_of_labels_give_the_same_rows() -> None:
    rng, rows = np.random.default_rng(0), 40
    actions = np.where(np.arange(rows) % 2, "a", "b")  # the first label to appear is not the first one of a mask
    masks = [[label == action or row % 3 > 0 for label in "ab"] for row, action in enumerate(actions)]
    table = {"x": rng.normal(size=rows), "action": actions, "reward": rng.random(rows), "propensity": [0.5] * rows}
    listed = [[label for label, here in zip("ab", mask, strict=True) if here] for mask in masks]
    priced = [[{"a": 1.0, "b": 2.0}[label] for label in labels] for labels in listed]
    by_mask = EncodedRows.read({**table, "eligible": masks, "action.price": [[1.0, 2.0]] * rows}, batch_size=10)
    by_list = EncodedRows.read({**table, "eligible": listed, "action.price": priced}, batch_size=10)
    assert by_mask.labels == by_list.labels == ("b", "a")
    np.testing.assert_array_equal(by_mask.eligible, by_list.eligible)
    for features in (EncodedRows.executed_features, EncodedRows.offered_features):
        one, two = features(by_mask, slice(0, 20)), features(by_list, slice(0, 20))
        assert one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one)


def test_masks_in_another_order_than_the_model_give_the_same_value() -> None:
    rng, rows, order = np.random.default_rng(0), 400, ["b", "a"]
    actions, prices = rng.choice(order, rows), rng.normal(size=(rows, 2))
    masks = [[label == action or bool(rng.random() < 0.7) for label in order] for action in actions]
    kept = [np.flatnonzero(mask) for mask in masks]
    rewards = prices[np.arange(rows), [order.index(action) for action in actions]]
    table = {"x": rng.normal(size=rows), "action": actions, "reward": rewards, "episode": np.arange(rows) // 50}
    table["propensity"] = [1 / len(one) for one in kept]
    listed = {"eligible": [[order[at] for at in one] for one in kept]}
    listed["action.price"] = [prices[row, one].tolist() for row, one in enumerate(kept)]
    model = train({**table, **listed}, "hierarchical").bandit
    assert model.actions_.tolist() == ["a", "b"]
    masked = {"eligible": masks, "action.price": prices.tolist()}
    logs = ({**table, **masked}, {**table, **listed})
    one, two = (
        spuir.evaluate(log, {"model": model}, actions=order, on_training_rows=True).value_of("model").value
        for log in logs
    )
    assert one == two


def test_tuning_compares_and_trains_with_a_catalogue() -> None:
    log = open_log(make_log(4_000), catalogue=ITEMS)
    found = spuir.tune(log, policies=["hierarchical"], budget=2, batch_size=BATCH, learning="replay")
    assert found.candidate.policy == "hierarchical"
    assert "size" in found.training.bandit.shared_coefficients_frame()["action_feature"].tolist()


def test_tuning_without_a_catalogue_is_refused_at_once() -> None:
    with pytest.raises(InputError, match="learns from the features of actions"):
        spuir.tune(make_log(), policies=["hierarchical"], budget=2, batch_size=BATCH)


class TestRewardModels:
    """The reward model of an evaluation reads the catalogue."""

    def features(self) -> np.ndarray:
        return np.column_stack([ITEMS["size"], [kind == "sport" for kind in ITEMS["kind"]]]).astype(float)

    def rows(self, n: int, seed: int = 0):
        rng = streams.generator(seed, "tests", "reward model")
        contexts, codes = rng.standard_normal((n, 4)), rng.integers(len(LABELS), size=n)
        contexts[:, -1] = 1.0
        means = contexts[:, 0] * self.features()[:, :1] + contexts[:, 1] * self.features()[:, 1:]
        return contexts, codes, means.T, means.T[np.arange(n), codes] + 0.5 * rng.standard_normal(n)

    def test_few_rows_per_action_are_predicted_better(self):
        contexts, codes, means, rewards = self.rows(150)
        ones, folds, errors = np.ones(150), np.arange(150) % 5, []
        for described in (None, self.features):
            model = RidgeRewards(5, described=described)
            model.collect(contexts, codes, rewards, ones, folds)
            model.finish(len(LABELS))
            errors.append(np.square(model.predict(contexts, folds) - means).mean())
        assert errors[1] < 0.5 * errors[0]
        assert model.ridge is None

    def test_features_that_say_nothing_are_not_used_for_long(self):
        """Where features are noise, held-out rewards decide; the error is at most a little above that without."""
        rng = streams.generator(3, "tests", "noise")
        contexts, codes = rng.standard_normal((3000, 3)), rng.integers(12, size=3000)
        contexts[:, -1] = 1.0
        theta = rng.standard_normal((12, 3))
        means = contexts @ theta.T
        rewards = means[np.arange(3000), codes] + 0.5 * rng.standard_normal(3000)
        ones, folds, errors = np.ones(3000), np.arange(3000) % 5, []
        for described in (None, lambda: rng.standard_normal((12, 2))):
            model = RidgeRewards(5, described=described)
            model.collect(contexts, codes, rewards, ones, folds)
            model.finish(12)
            errors.append(np.square(model.predict(contexts, folds) - means).mean())
        assert errors[1] < 1.1 * errors[0]

    def test_rewards_that_are_all_alike(self):
        contexts, codes, _, _ = self.rows(40)
        model = RidgeRewards(2, described=self.features)
        model.collect(contexts, codes, np.full(40, 3.0), np.ones(40), np.arange(40) % 2)
        model.finish(len(LABELS))
        np.testing.assert_allclose(model.predict(contexts, np.arange(40) % 2), 3.0)

    def test_an_evaluation_reads_the_catalogue(self):
        """The model of an evaluation is the shared one where the log has a catalogue, and the plain one elsewhere."""
        values = []
        for catalogue in (None, ITEMS, {"action": LABELS, "noise": [0.0] * len(LABELS)}):
            log = open_log(make_log(240, seed=4), catalogue=catalogue)
            found = spuir.evaluate(log, {"even": "uniform"}, against=[], estimators=["dm"])
            values.append(found.estimates["value"].iloc[0])
        assert values[0] != values[1]
        assert values[0] == pytest.approx(values[2], abs=0.1)
