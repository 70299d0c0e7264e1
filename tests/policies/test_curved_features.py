"""Where rewards are curved in the features of actions, products of features join the model; else nothing changes."""

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import spuir
from spuir.base import packing, streams
from spuir.base.records import Batch
from spuir.policies import hierarchical_curved
from tests.catalogues import items, taught

FEATURES, DIM = 5, 2


class Bends:
    """A catalogue whose rewards depend on the product of two features, times a column of the context."""

    def __init__(self, actions: int = 60, features: int = FEATURES, seed: int = 0, bend: float = 1.0) -> None:
        self.rng, self.bend = streams.generator(seed, "bends", actions), bend
        names = [f"f{at}" for at in range(features)]
        self.table = pd.DataFrame(self.rng.standard_normal((actions, features)), columns=names)

    def rewards(self, contexts: Any, labels: Any) -> Any:
        x = self.table.to_numpy()[labels]
        bent = self.bend * x[:, 0] * x[:, 1] * contexts[:, 0] + (1.0 - self.bend) * x[:, 0] * contexts[:, 1]
        return bent + self.rng.standard_normal(len(x))

    def teach(self, bandit: Any, episodes: int = 4, rows: int = 400, among: int | None = None) -> Any:
        live = [at for at, on in zip(bandit.actions_, bandit.active_, strict=True) if on and at < len(self.table)]
        for _ in range(episodes):
            contexts, labels = self.rng.standard_normal((rows, DIM)), self.rng.choice(live[:among], rows)
            bandit.partial_fit(contexts, labels, self.rewards(contexts, labels))
        return bandit

    def error(self, bandit: Any) -> float:
        """Return the mean error of the coefficient of the first column, which has the product."""
        x = self.table.to_numpy()
        found = bandit.coefficients_[: len(x), 0]
        return float(np.abs(found - self.bend * x[:, 0] * x[:, 1]).mean())


def bandit_of(world: Bends, **given: Any) -> Any:
    return spuir.Bandit("hierarchical", world.table, random_state=0, **given)


class TestTheSwitch:
    def test_products_estimate_where_rewards_are_curved(self):
        world, other = Bends(), Bends()
        bandit, linear = world.teach(bandit_of(world)), other.teach(bandit_of(other, products=False))
        curved = bandit.diagnosis()["curved"]
        assert curved["acts"]
        assert curved["gain"] > hierarchical_curved.CLEARLY
        assert "add" in curved["why"]
        assert linear.diagnosis()["curved"] == {"acts": False, "why": "products=False"}
        assert world.error(bandit) < 0.7 * other.error(linear)

    def test_a_new_action_starts_from_its_products(self):
        world = Bends()
        bandit = world.teach(bandit_of(world), 6)
        rows = Bends(seed=1).table.iloc[:20]
        for at, row in enumerate(rows.to_numpy()):
            bandit.add_action(1000 + at, features=dict(zip(rows.columns, row, strict=True)), ramp=None)
        expected = rows.to_numpy()[:, 0] * rows.to_numpy()[:, 1]
        assert np.corrcoef(bandit.coefficients_[-20:, 0], expected)[0, 1] > 0.95

    def test_linear_rewards_give_the_same_bits_as_without_products(self):
        world, other = Bends(bend=0.0), Bends(bend=0.0)
        bandit, linear = world.teach(bandit_of(world)), other.teach(bandit_of(other, products=False))
        for one, table in ((bandit, world.table), (linear, other.table)):
            one.remove_action(3).add_action(99, features=dict(table.iloc[3]))
        assert not bandit.diagnosis()["curved"]["acts"]
        contexts = np.random.default_rng(0).standard_normal((50, DIM))
        np.testing.assert_array_equal(bandit.decision_function(contexts), linear.decision_function(contexts))
        np.testing.assert_array_equal(bandit.decide(contexts).actions, linear.decide(contexts).actions)

    def test_it_switches_back_when_the_world_becomes_linear(self):
        world = Bends()
        bandit = world.teach(bandit_of(world, forgetting=0.5))
        assert bandit.diagnosis()["curved"]["acts"]
        world.bend = 0.0
        world.teach(bandit, 8)
        assert not bandit.diagnosis()["curved"]["acts"]

    def test_widths_are_those_of_the_linear_model(self):
        world = Bends()
        bandit = world.teach(bandit_of(world))
        state, learner = bandit.state_, bandit.policy_.learner
        made = learner.problem(state)
        plain = hierarchical_curved.hierarchy.fit(
            state.observed, made.features, made.columns, made.ridges, made.folded, state.variance
        )
        np.testing.assert_allclose(learner.fitted(state).fit.covariance, plain.covariance)
        assert not np.allclose(learner.fitted(state).fit.theta, plain.theta)

    def test_kernel_columns_join_where_features_are_few(self):
        """A new action is placed on a wave of its only feature, which no product describes."""
        world = Bends(features=1)
        world.rewards = lambda contexts, labels: (  # type: ignore[method-assign]
            np.cos(3.0 * world.table.f0.to_numpy()[labels]) + 0.3 * world.rng.standard_normal(len(labels))
        )
        bandit = world.teach(bandit_of(world))
        assert bandit.diagnosis()["curved"]["acts"]
        rows = Bends(features=1, seed=1).table.iloc[:40]
        for at, value in enumerate(rows.f0):
            bandit.add_action(1000 + at, features={"f0": value}, ramp=None)
        assert np.corrcoef(bandit.intercept_[-40:], np.cos(3.0 * rows.f0))[0, 1] > 0.9


class TestLife:
    def test_removing_actions_changes_no_other_estimate(self):
        world = Bends()
        bandit = world.teach(bandit_of(world))
        contexts = np.random.default_rng(1).standard_normal((30, DIM))
        before = bandit.decide(contexts).means
        for label in (0, 7, 20):
            bandit.remove_action(label)
        kept = [at for at in range(60) if at not in (0, 7, 20)]
        np.testing.assert_allclose(bandit.decide(contexts).means[:, kept], before[:, kept], rtol=1e-6, atol=1e-8)
        assert bandit.diagnosis()["curved"]["acts"]

    def test_retired_actions_and_late_rows_are_part_of_both_models(self):
        """The folded sums of the larger model contain those of the smaller one, with forgetting too."""
        world = Bends()
        bandit = world.teach(bandit_of(world, forgetting=0.9), 3)
        bandit.remove_action(0)
        world.teach(bandit, 1)
        late = world.rng.standard_normal((20, DIM))
        bandit.partial_fit(late, [0] * 20, world.rewards(late, [0] * 20))
        state: Any = bandit.state_
        whole = state.curved.left.folded(state.folded)
        width, count = DIM + 1, state.curved.left.vector.shape[0]
        columns = np.arange(count * width).reshape(count, width)[[*range(FEATURES), count - 1]].ravel()
        np.testing.assert_allclose(whole.matrix[np.ix_(columns, columns)], state.folded.matrix, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(whole.vector[columns], state.folded.vector, rtol=1e-9, atol=1e-10)

    def test_a_saved_model_goes_on(self, tmp_path):
        world = Bends()
        bandit = world.teach(bandit_of(world))
        bandit.remove_action(5)
        bandit.save(tmp_path / "one.spuir")
        again = spuir.load(tmp_path / "one.spuir")
        assert again.diagnosis()["curved"] == bandit.diagnosis()["curved"]
        contexts, labels = world.rng.standard_normal((300, DIM)), world.rng.choice(range(6, 60), 300)
        rewards = world.rewards(contexts, labels)
        for one in (bandit, again):
            one.partial_fit(contexts, labels, rewards)
        np.testing.assert_array_equal(again.coefficients_, bandit.coefficients_)

    def test_a_model_that_started_without_stays_linear(self):
        """A model saved before there was a larger one has none: it learns on as it did."""
        world = Bends()
        old = world.teach(bandit_of(world, products=False), 1)
        meta, arrays = packing.pack(old.state_)
        del meta["curved"]
        found = packing.unpack(type(old.state_), meta, arrays)
        state: Any = old.state_
        policy: Any = spuir.make_policy("hierarchical")
        policy.check_state(found)
        for _ in range(4):
            contexts, codes = world.rng.standard_normal((400, DIM)), world.rng.integers(60, size=400)
            batch = Batch(contexts=contexts, actions=codes, rewards=world.rewards(contexts, codes))
            state, _ = old.policy_.learn(state, batch, streams.generator(0, "old"))
            found, _ = policy.learn(found, batch, streams.generator(0, "old"))
        for one, other in zip(policy.coefficients(found), old.policy_.coefficients(state), strict=True):
            np.testing.assert_array_equal(one, other)
        assert "started without" in policy.diagnosis(found)["curved"]["why"]

    def test_shards_and_whole_episodes_agree(self):
        world = Bends()
        other = Bends()
        whole, parts = world.teach(bandit_of(world)), other.teach(bandit_of(other))
        contexts, labels = world.rng.standard_normal((200, DIM)), world.rng.choice(60, 200)
        rewards = world.rewards(contexts, labels)
        whole.partial_fit(contexts, labels, rewards)
        cuts = [slice(0, 50), slice(50, 51), slice(51, 200)]
        parts.absorb(sum(parts.collect(contexts[cut], labels[cut], rewards[cut]) for cut in cuts))
        assert whole.diagnosis()["curved"]["acts"]
        np.testing.assert_allclose(parts.coefficients_, whole.coefficients_, rtol=1e-8, atol=1e-9)


class TestBounds:
    def test_no_more_actions_than_columns_stay_linear(self):
        world = Bends(actions=21)  # of 5 features, 15 products and a constant
        bandit = world.teach(bandit_of(world))
        assert bandit.diagnosis()["curved"] == {"acts": False, "why": "21 actions are too few for 21 columns"}

    def test_many_columns_leave_out_the_smaller_directions(self):
        """40 context columns leave room for the products of some directions, 800 for none."""
        policy: Any = spuir.make_policy("hierarchical")
        model = policy.learner.curved
        widths = [model.width(16, dim + 1) * (dim + 1) for dim in (4, 20, 40, 60)]
        assert max(widths) <= hierarchical_curved.MOST_COLUMNS
        assert model.columns_map(16, 5).components == 16
        assert 2 <= model.columns_map(16, 41).components < 16
        assert model.columns_map(16, 801) is None

    def test_a_model_of_too_many_columns_says_so(self):
        world = Bends(actions=20)
        bandit, rng = bandit_of(world), streams.generator(0, "wide")
        bandit.partial_fit(rng.standard_normal((300, 300)), rng.integers(20, size=300), rng.standard_normal(300))
        assert bandit.state_.curved is None
        assert "1,500 columns" in bandit.diagnosis()["curved"]["why"]

    def test_too_little_memory_leaves_it_out(self):
        limit = 12 * 8 * (60 * 4**2 + (6 * 3) ** 2) / 2**30  # of the smaller model alone
        world = Bends()
        bandit = world.teach(bandit_of(world, memory_limit=limit, deviations="all"))
        assert bandit.state_.curved is None
        assert not bandit.diagnosis()["curved"]["acts"]

    def test_the_forecast_of_memory_covers_the_larger_model(self):
        """The peak while it is solved is at most what decides whether it is considered."""
        world, rng = Bends(actions=100, features=10), streams.generator(0, "peak")
        bandit, x, dim = bandit_of(world), world.table.to_numpy(), 10
        for episode in range(3):
            contexts, labels = rng.standard_normal((500, dim)), rng.integers(100, size=500)
            rewards = 2.0 * x[labels, 0] * x[labels, 1] * contexts[:, 0] + 0.1 * rng.standard_normal(500)
            if episode == 2:
                tracemalloc.start()
            bandit.partial_fit(contexts, labels, rewards)
        bandit.decide(contexts)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert bandit.diagnosis()["curved"]["acts"]
        count, width = bandit.state_.curved.left.vector.shape
        sums = 8 * (100 * (width * width + width + 2) + (count * width) ** 2)
        assert 0.3 * hierarchical_curved.SOLVING * sums < peak <= hierarchical_curved.SOLVING * sums

    def test_constant_deviations_stay_linear(self):
        world = Bends()
        bandit = world.teach(bandit_of(world, deviations="constant"))
        assert bandit.diagnosis()["curved"] == {"acts": False, "why": "actions deviate by a constant alone"}

    @pytest.mark.parametrize(
        "changes", [{"acts": True, "shared_ridges": None}, {"own_ridges": np.array([-1.0, 1.0])}, {"expected": np.nan}]
    )
    def test_a_damaged_state_is_refused(self, changes):
        world = Bends()
        bandit = world.teach(bandit_of(world))
        state = replace(bandit.state_, curved=replace(bandit.state_.curved, **changes))
        with pytest.raises(spuir.errors.SpuirError):
            bandit.policy_.check_state(state)


def test_other_values_of_products_are_refused():
    with pytest.raises(spuir.errors.ParameterError, match=r"products .* 'auto'"):
        spuir.Bandit("hierarchical", items(), products="sometimes")


def test_an_update_of_features_moves_products_too():
    bandit, shop = taught()
    before = bandit.state_.curved.left.vector.copy()
    bandit.update_action("n4", features=dict(shop.catalogue.loc["n5"]))
    np.testing.assert_array_equal(bandit.state_.curved.left.vector, before)
