"""The policy for actions with features: the contract with a catalogue, what it learns, actions that come and go."""

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import spuir
from spuir.base import packing, streams
from spuir.core import hierarchy
from spuir.core.hierarchy import Columns, Ridges
from spuir.errors import InputError
from spuir.policies.hierarchical import SOLVING
from spuir.policies.hierarchical_learner import REMEMBERED
from spuir.testing import trial
from tests.catalogues import COLUMNS, DIM, Shop, items, laws_with_a_catalogue, taught

POLICY = spuir.make_policy("hierarchical")


@pytest.mark.parametrize("law", laws_with_a_catalogue(POLICY), ids=lambda law: law.name)
@pytest.mark.usefixtures("described")
def test_the_contract_with_a_catalogue(law):
    law.check(POLICY)


class TestLearning:
    def test_it_is_the_dense_ridge_on_standardised_columns(self):
        """The bandit's estimates follow from the rows by one regression over all columns."""
        bandit, shop = taught()
        state, learner = bandit.state_, bandit.policy_.learner
        made = learner.problem(state)
        expected = hierarchy.fit(state.observed, made.features, made.columns, made.ridges, state.folded, state.variance)
        X = shop.contexts(20)
        phi = learner.rows(state, X)
        means = phi @ expected.theta.T + expected.mean + state.origin
        np.testing.assert_allclose(bandit.decide(X).means, means, rtol=1e-9)
        widths = np.sqrt(np.einsum("nd,mde,ne->nm", phi, expected.covariance, phi))
        np.testing.assert_allclose(bandit.decide(X).widths, widths, rtol=1e-9)

    def test_it_finds_the_shared_coefficients(self):
        bandit, shop = taught()
        for _ in range(5):
            shop.teach(bandit)
        found = bandit.shared_coefficients_[: len(COLUMNS), :DIM]
        frame = bandit.shared_coefficients_frame()
        errors = frame.standard_error.to_numpy().reshape(bandit.shared_coefficients_.shape)[: len(COLUMNS), :DIM]
        # Clipping and shrinkage bias the estimate a little: 6 standard errors for 12 coefficients.
        assert (np.abs(found - shop.weights) < 6 * errors + 0.05).all()
        assert list(frame.columns) == ["action_feature", "feature", "coefficient", "standard_error"]
        assert frame.action_feature.iloc[0] == "age"

    def test_features_and_coefficients_belong_together(self):
        """The features of a new action times Θ are its coefficients."""
        bandit, _ = taught()
        row = {"age": 0.3, "price": -1.0, "length": 0.7, "topic": "news"}
        bandit.add_action("new", features=row)
        x = np.append(bandit._model.catalogue.encode("new", row), 1.0)
        said = x @ bandit.shared_coefficients_
        np.testing.assert_allclose(bandit.coefficients_[-1], said[:-1], rtol=1e-9, atol=1e-9)
        assert bandit.intercept_[-1] == pytest.approx(said[-1], rel=1e-9)

    def test_a_new_action_starts_from_its_features(self):
        bandit, shop = taught()
        for _ in range(4):
            shop.teach(bandit)
        later = items(20, first=50)
        for label, row in later.iterrows():
            bandit.add_action(label, features=dict(row), ramp=None)
        X = shop.contexts(400)
        x = later[list(COLUMNS)].to_numpy()
        expected = np.einsum("nd,kd,mk->nm", X, shop.weights, x)
        found = bandit.decide(X).means[:, -20:]
        assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.99

    def test_deviations_are_learned_too(self):
        """An action that is far better than its features say is found out."""
        bandit, shop = taught()
        for _ in range(6):
            X = shop.contexts(300)
            labels = shop.rng.choice(shop.catalogue.index, 300)
            bandit.partial_fit(X, labels, shop.rewards(X, labels) + 3.0 * (labels == "n3"))
        gap = bandit.intercept_ - bandit.intercept_.mean()
        assert gap[3] > 2.0
        assert bandit.diagnosis()["features explain"] < 0.999

    def test_shards_and_whole_episodes_agree(self):
        whole, shop = taught()
        parts, _ = taught()
        X = shop.contexts(200)
        labels = shop.rng.choice(shop.catalogue.index, 200)
        rewards = shop.rewards(X, labels)
        whole.partial_fit(X, labels, rewards)
        cuts = [slice(0, 50), slice(50, 51), slice(51, 200)]
        parts.absorb(sum(parts.collect(X[cut], labels[cut], rewards[cut]) for cut in cuts))
        np.testing.assert_allclose(parts.coefficients_, whole.coefficients_, rtol=1e-9, atol=1e-10)

    def test_forgetting_fades_folded_actions_too(self):
        bandit, shop = taught(forgetting=0.5)
        bandit.remove_action("n0")
        before = bandit.state_.folded
        live = [label for label in shop.catalogue.index if label != "n0"]
        X = shop.contexts(50)
        labels = shop.rng.choice(live, 50)
        bandit.partial_fit(X, labels, shop.rewards(X, labels))
        np.testing.assert_allclose(bandit.state_.folded.matrix, 0.5 * before.matrix)
        assert bandit.state_.folded.weight == pytest.approx(0.5 * before.weight)

    @pytest.mark.parametrize("deviations", ["constant", "none"])
    def test_deviations_can_be_left_out(self, deviations):
        bandit, shop = taught(deviations=deviations)
        for _ in range(3):
            X, labels = shop.contexts(300), shop.rng.choice(shop.catalogue.index, 300)
            bandit.partial_fit(X, labels, shop.rewards(X, labels) + 3.0 * (labels == "n3"))
        ridges = bandit.diagnosis()["ridges"]["own"]
        assert list(ridges) == ["constant"]
        assert bandit.diagnosis()["deviations"] == deviations
        assert (ridges["constant"] == hierarchy.LARGEST_RIDGE) == (deviations == "none")

    def test_without_a_catalogue_it_is_one_regression_per_action(self):
        shop = Shop(items())
        bandit = shop.teach(spuir.Bandit("hierarchical", list(shop.catalogue.index), random_state=0))
        state, learner = bandit.state_, bandit.policy_.learner
        _, own = Ridges(np.empty(0), state.own_ridges).diagonals(Columns(learner.columns(state).own, ()))
        mean = bandit.diagnosis()["mean reward"] - state.origin
        for code in range(3):
            gram, moment = state.observed.gram[code], state.observed.moment[code]
            theta = np.linalg.solve(gram + np.diag(own), moment - mean * gram[:, -1])
            np.testing.assert_allclose(learner.fitted(state).fit.theta[code], theta, rtol=1e-9, atol=1e-12)


class TestActing:
    @pytest.mark.parametrize("tried_weight", [0.0, 0.8, 1.0])
    @pytest.mark.parametrize("deviations", ["all", "constant"])
    def test_actions_without_rows_count_their_whole_width(self, tried_weight, deviations):
        """Scores and probabilities level by level, from means and widths: α·σ̂·width·(w + (1 − w)/(1 + n))."""
        bandit, shop = taught(tried_weight=tried_weight, deviations=deviations, floor=0.0, alpha=0.7)
        bandit.add_action("new", features=dict(shop.catalogue.iloc[0]), ramp=None)
        bandit.remove_action("n5")
        X = shop.contexts(60)
        decided, state = bandit.decide(X), bandit.state_
        rows = bandit.policy_.learner.observed_weights(state)
        assert rows[-1] == 0.0 and rows.sum() > 500
        share = tried_weight + (1.0 - tried_weight) / (1.0 + rows)
        bonus = 0.7 * bandit.policy_.learner.noise(state) * decided.widths * share
        bonus[:, 5], means = 0.0, decided.means.copy()
        np.testing.assert_allclose(np.delete(decided.scores, 5, 1), np.delete(means + bonus, 5, 1), rtol=1e-9)
        means[:, 5] = -np.inf
        expected = np.zeros(means.shape)
        for level in (np.arange(16) + 0.5) / 8:
            best = (means + level * bonus).argmax(axis=1)
            expected[np.arange(60), best] += 1 / 16
        np.testing.assert_allclose(bandit.predict_proba(X), expected, atol=1e-12)
        code = {label: at for at, label in enumerate(bandit.actions_.tolist())}
        executed = [code[label] for label in decided.actions]
        np.testing.assert_allclose(decided.propensities, expected[np.arange(60), executed], atol=1e-12)

    def test_without_a_catalogue_all_widths_count_alike(self):
        bandits = [spuir.Bandit("hierarchical", 6, random_state=0, tried_weight=weight) for weight in (0.0, 1.0)]
        X = streams.generator(1, "contexts").standard_normal((300, DIM))
        for bandit in bandits:
            bandit.partial_fit(X, np.arange(300) % 5, X[:, 0] * (np.arange(300) % 5))
        whole, alike = (bandit.predict_proba(X) for bandit in bandits)
        assert whole[:, 5].max() > 0.1
        np.testing.assert_array_equal(whole, alike)


class TestCatalogues:
    def test_all_forms_of_a_catalogue_are_one(self):
        table = items()
        rows = {label: dict(row) for label, row in table.iterrows()}
        arrow = pa.Table.from_pandas(table.rename_axis("action").reset_index(), preserve_index=False)
        probabilities = []
        for catalogue in (table, rows, arrow, table.rename_axis("action").reset_index()):
            shop = Shop(table)
            bandit = shop.teach(spuir.Bandit("hierarchical", catalogue, random_state=1))
            probabilities.append(bandit.predict_proba(np.ones((3, DIM))))
        for other in probabilities[1:]:
            np.testing.assert_array_equal(probabilities[0], other)

    def test_raw_columns_are_encoded(self):
        days = pd.date_range("2026-01-01", periods=12)
        table = items().assign(since=days, stock=[None, *range(11)])
        bandit = spuir.Bandit("hierarchical", table, random_state=0)
        shop = Shop(table)
        shop.teach(bandit)
        names = bandit.shared_coefficients_frame().action_feature.unique()
        assert {"age", "topic=sport", "stock is missing"} <= set(names)
        row = dict(table.iloc[3]) | {"stock": None, "topic": "unheard of"}
        bandit.add_action("odd", features=row)
        assert np.isfinite(bandit.coefficients_).all()

    def test_wide_embeddings_are_reduced(self):
        rng = streams.generator(0, "wide")
        base = rng.standard_normal((60, 3))
        wide = pd.DataFrame(base @ rng.standard_normal((3, 40)) + 0.01 * rng.standard_normal((60, 40)))
        wide.columns = [f"e{at}" for at in range(40)]
        bandit = spuir.Bandit("hierarchical", wide, random_state=0)
        X = rng.standard_normal((600, 2))
        labels = rng.integers(60, size=600)
        bandit.partial_fit(X, labels, base[labels, 0] * X[:, 0] + 0.1 * rng.standard_normal(600))
        state: Any = bandit.state_
        assert state.action_map.directions.shape == (40, 16)
        assert bandit.shared_coefficients_.shape == (41, 3)
        said = np.column_stack([wide.to_numpy(), np.ones(60)]) @ bandit.shared_coefficients_
        assert np.corrcoef(said[:, 0], base[:, 0])[0, 1] > 0.98

    def test_a_kernel_fits_curved_features(self):
        rng = streams.generator(0, "curved")
        table = pd.DataFrame({"u": rng.uniform(-2, 2, 80)})
        errors = []
        for kernel in (0, 24):
            bandit = spuir.Bandit("hierarchical", table, random_state=0, kernel=kernel, deviations="none")
            X, labels = rng.standard_normal((2000, 1)), rng.integers(80, size=2000)
            bandit.partial_fit(X, labels, np.cos(3 * table.u.to_numpy()[labels]) + 0.1 * rng.standard_normal(2000))
            errors.append(np.abs(bandit.intercept_ - np.cos(3 * table.u)).mean())
        assert errors[1] < 0.2 < errors[0]

    def test_products_fit_bent_features(self, tmp_path):
        """With products the reward of an action may depend on its features by any polynomial of degree two."""
        rng = streams.generator(0, "bent")
        table = pd.DataFrame(rng.normal(5.0, 2.0, (80, 2)), columns=["u", "v"])
        mean = (table.u - 5) * (table.v - 4) - 0.5 * (table.v - 5) ** 2
        X, labels = rng.standard_normal((2000, 1)), rng.integers(80, size=2000)
        rewards = mean.to_numpy()[labels] + 0.5 * rng.standard_normal(2000)
        errors = []
        for products in (False, True):
            bandit = spuir.Bandit("hierarchical", table, random_state=0, products=products, deviations="none")
            bandit.partial_fit(X, labels, rewards)
            errors.append(np.abs(bandit.intercept_ - mean).mean())
        assert errors[1] < 0.2 < errors[0]
        assert "products × context" in bandit.diagnosis()["ridges"]["shared"]
        bandit.save(tmp_path / "bent.spuir")
        again = spuir.load(tmp_path / "bent.spuir")
        np.testing.assert_array_equal(again.decide(X).means, bandit.decide(X).means)
        both = spuir.Bandit("hierarchical", table, random_state=0, products=True, kernel=5)
        both.partial_fit(X, labels, rewards)
        assert np.abs(both.intercept_ - mean).mean() < 0.3
        assert bandit.shared_coefficients_.shape == (3, 2)

    def test_the_order_of_the_catalogue_does_not_matter(self):
        table = items()
        shuffled = table.iloc[::-1]
        one, other = (
            Shop(table).teach(spuir.Bandit("hierarchical", part, random_state=3), 1) for part in (table, shuffled)
        )
        X = np.ones((4, DIM))
        expected, found = one.decision_function(X), other.decision_function(X)[:, ::-1]
        assert expected.shape == found.shape  # decisions differ in their draws; the maps do not
        state, twin = one.state_, other.state_
        np.testing.assert_allclose(twin.action_map.scaling.centre, state.action_map.scaling.centre, rtol=1e-12)
        np.testing.assert_allclose(twin.action_map.factors, state.action_map.factors, rtol=1e-12)


class TestLife:
    def test_a_saved_bandit_goes_on(self, tmp_path):
        bandit, shop = taught()
        bandit.remove_action("n2").add_action("new", features=dict(items(1, first=70).iloc[0]))
        bandit.update_action("n5", features=dict(items(1, first=71).iloc[0]))
        for fitted in (spuir.Bandit("hierarchical", shop.catalogue, random_state=4), bandit):
            fitted.save(tmp_path / "one.spuir")
            again = spuir.load(tmp_path / "one.spuir")
            assert trial.frozen(again) == trial.frozen(fitted)
            X = shop.contexts(260)
            labels = shop.rng.choice([label for label in shop.catalogue.index if label != "n2"], 260)
            rewards = shop.rewards(X, labels)
            for one in (fitted, again):
                one.partial_fit(X, labels, rewards)
            np.testing.assert_array_equal(again.coefficients_, fitted.coefficients_)
            np.testing.assert_array_equal(again.decide(X).actions, fitted.decide(X).actions)

    def test_a_loaded_model_is_not_fitted_anew_without_its_catalogue(self, tmp_path):
        bandit, shop = taught()
        bandit.save(tmp_path / "one.spuir")
        again = spuir.load(tmp_path / "one.spuir")
        with pytest.raises(spuir.errors.InputError, match="make a new bandit with the catalogue"):
            again.fit(shop.contexts(2), ["n1", "n2"], [0.0, 1.0])
        assert trial.frozen(again) == trial.frozen(bandit)

    @pytest.mark.parametrize("deviations", ["all", "constant"])
    def test_a_year_of_daily_replacement_keeps_its_size(self, deviations):
        """Three of 20 actions are replaced on each of 365 days: sums and features stay bounded."""
        shop = Shop(items(20))
        bandit = spuir.Bandit("hierarchical", shop.catalogue, random_state=0, deviations=deviations)
        every, live, sizes = [shop.catalogue], list(shop.catalogue.index), {}
        for day in range(365):
            new = items(3, first=20 + 3 * day, seed=1)
            for label, row in new.iterrows():
                bandit.add_action(label, features=dict(row))
            for label in live[:3]:
                bandit.remove_action(label)
            live = live[3:] + list(new.index)
            every.append(new)
            shop.catalogue = pd.concat(every[-15:])
            X = shop.contexts(60)
            decided = bandit.decide(X, eligible=shop.lists(60, among=live))
            assert set(decided.actions) <= set(live)
            bandit.partial_fit(decided, shop.rewards(X, decided.actions))
            _, arrays = packing.pack(bandit.state_)
            sizes[day] = sum(array.nbytes for array in arrays.values())
        state: Any = bandit.state_
        assert len(state.live) == 20
        assert len(state.retired) == REMEMBERED < 3 * 365
        assert state.n_actions == 20 + 3 * 365
        # Between the first month and the year only the features of retired actions were added, up to their limit.
        bound = sizes[30] + REMEMBERED * 8 * (state.catalogue.shape[1] + 1)
        assert max(sizes.values()) <= bound
        assert sizes[364] == sizes[363]
        # And it still knows the world: what features say is right for actions it has never seen.
        found = bandit.shared_coefficients_[: len(COLUMNS), :DIM]
        assert np.abs(found - shop.weights).max() < 0.15

    def test_folding_changes_little(self):
        bandit, shop = taught()
        X = shop.contexts(30)
        before = bandit.decision_function(X)
        bandit.remove_action("n0").remove_action("n7")
        kept = [at for at, label in enumerate(bandit.actions_) if label not in ("n0", "n7")]
        np.testing.assert_allclose(bandit.decision_function(X)[:, kept], before[:, kept], rtol=1e-6, atol=1e-8)

    def test_late_rows_of_a_retired_action_are_folded(self):
        bandit, shop = taught()
        bandit.remove_action("n0")
        weight = bandit.state_.folded.weight
        X = shop.contexts(40)
        bandit.partial_fit(X, ["n0"] * 40, shop.rewards(X, ["n0"] * 40))
        assert bandit.state_.folded.weight == pytest.approx(weight + 40)
        assert bandit.last_info_.counts[0] == 40

    def test_updating_moves_what_was_learned(self):
        bandit, shop = taught()
        X = shop.contexts(10)
        before = bandit.decide(X).means[:, 4]
        bandit.update_action("n4", features=dict(shop.catalogue.loc["n4"]))
        np.testing.assert_allclose(bandit.decide(X).means[:, 4], before, rtol=1e-10)
        bandit.update_action("n4", features=dict(shop.catalogue.loc["n5"]))
        assert not np.allclose(bandit.decide(X).means[:, 4], before)

    def test_a_new_action_ramps_up(self):
        bandit, shop = taught()
        for name in ("new", "other"):
            bandit.add_action(name, features=dict(shop.catalogue.iloc[0]), ramp=0.1, ramp_episodes=2)
        X, lists = shop.contexts(200), [[*one, "new", "other"] for one in shop.lists(200)]
        table = bandit.predict_proba(X, eligible=lists)
        assert table[:, -2:].max() <= 0.05 + 1e-12
        np.testing.assert_allclose(table.sum(axis=1), 1.0)
        mask = np.array([[label in one for label in bandit.actions_] for one in lists])
        np.testing.assert_allclose(bandit.predict_proba(X, eligible=mask), table, atol=1e-12)
        decided = bandit.decide(X, eligible=lists)
        place = [list(bandit.actions_).index(action) for action in decided.actions]
        np.testing.assert_allclose(decided.propensities, table[np.arange(200), place])

    def test_actions_before_the_first_row(self):
        shop = Shop(items(4))
        bandit = spuir.Bandit("hierarchical", shop.catalogue, random_state=0)
        bandit.add_action("new", features=dict(shop.catalogue.iloc[1])).add_action("copy", like="n2")
        bandit.update_action("n0", features=dict(shop.catalogue.iloc[3])).remove_action("n1")
        shop.catalogue = pd.concat([shop.catalogue, shop.catalogue.iloc[[1, 2]].set_axis(["new", "copy"])])
        shop.teach(bandit, 2)
        state: Any = bandit.state_
        np.testing.assert_array_equal(
            state.catalogue[state.live.tolist().index(5)], state.catalogue[state.live.tolist().index(2)]
        )
        assert "n1" not in set(bandit.decide(shop.contexts(200)).actions)

    def test_a_removed_action_is_no_model_for_a_new_one(self):
        bandit, _ = taught()
        before = bandit.remove_action("n3").digest()
        with pytest.raises(InputError, match=r"like: got 'n3', but it was removed, .*; choose an active action"):
            bandit.add_action("new", like="n3")
        assert bandit.digest() == before

    def test_fit_starts_again_with_the_catalogue(self):
        bandit, shop = taught()
        X = shop.contexts(300)
        labels = shop.rng.choice(shop.catalogue.index, 300)
        bandit.add_action("new", features=dict(shop.catalogue.iloc[0]))
        bandit.fit(X, labels, shop.rewards(X, labels))
        assert bandit.n_episodes_ == 1
        assert len(bandit.actions_) == 12
        assert bandit.shared_coefficients_.shape[1] == DIM + 1


class TestFeaturesPerDecision:
    def rows(self, seed: int = 0, n: int = 300):
        rng = streams.generator(seed, "varying")
        table, X = items(), rng.standard_normal((n, DIM))
        return rng, table, X, rng.standard_normal((n, 12, 2))

    def teach(self, bandit, seed: int = 0):
        for number in range(4):
            rng, table, X, Y = self.rows(10 * seed + number)
            decided = bandit.decide(X, action_features=Y)
            codes = np.array([list(table.index).index(action) for action in decided.actions])
            own = Y[np.arange(len(X)), codes]
            np.testing.assert_array_equal(decided.action_features, own)
            bandit.partial_fit(decided, own @ [1.0, -2.0] + 0.1 * rng.standard_normal(len(X)))
        return bandit

    def test_they_are_learned(self):
        bandit = self.teach(spuir.Bandit("hierarchical", items(), random_state=0))
        assert bandit.coefficients_.shape == (12, DIM + 2)
        np.testing.assert_allclose(bandit.coefficients_[:, -2:], [[1.0, -2.0]] * 12, atol=0.1)
        assert bandit.n_features_in_ == DIM
        assert bandit.diagnosis()["ridges"]["own"].keys() == {"constant", "context", "per decision"}

    def test_all_forms_agree(self, tmp_path):
        bandit = self.teach(spuir.Bandit("hierarchical", items(), random_state=0))
        rng, table, X, Y = self.rows(99, 30)
        mask = rng.random((30, 12)) < 0.5
        mask[:, 3] = True
        rows, codes = np.nonzero(mask)
        long = pd.DataFrame({"row": rows, "action": table.index[codes], "y0": Y[mask][:, 0], "y1": Y[mask][:, 1]})
        expected = bandit.predict_proba(X, eligible=mask, action_features=Y)
        shuffled = long.sample(frac=1.0, random_state=0)
        for form in (long, shuffled, pa.Table.from_pandas(long), {name: list(long[name]) for name in long}):
            np.testing.assert_allclose(bandit.predict_proba(X, action_features=form), expected, atol=1e-12)
        labels = [[str(label) for label in table.index[row]] for row in mask]
        np.testing.assert_allclose(bandit.predict_proba(X, eligible=labels, action_features=Y), expected, atol=1e-12)
        assert (bandit.predict(X, action_features=long) == bandit.actions_[expected.argmax(axis=1)]).all()
        bandit.save(tmp_path / "one.spuir")
        np.testing.assert_array_equal(
            spuir.load(tmp_path / "one.spuir").predict_proba(X, action_features=long),
            bandit.predict_proba(X, action_features=long),
        )

    def test_executed_features_are_enough_to_learn(self):
        """A log has the features of the executed actions alone."""
        one, other = (spuir.Bandit("hierarchical", items(), random_state=0) for _ in range(2))
        rng, table, X, Y = self.rows(5)
        codes = rng.integers(12, size=300)
        own, rewards = Y[np.arange(300), codes], rng.standard_normal(300)
        labels = list(table.index[codes])
        one.partial_fit(X, labels, rewards, action_features=own)
        other.partial_fit(X, labels, rewards, action_features=Y)
        np.testing.assert_array_equal(one.coefficients_, other.coefficients_)
        frame = pd.DataFrame(own, columns=["y0", "y1"])
        third = spuir.Bandit("hierarchical", items(), random_state=0).fix(X, action_features=frame)
        third.absorb(third.collect(X, labels, rewards, action_features=frame))
        np.testing.assert_allclose(third.coefficients_, one.coefficients_, rtol=1e-9, atol=1e-12)

    def test_an_explanation_adds_up(self):
        bandit = self.teach(spuir.Bandit("hierarchical", items(), random_state=0))
        _, _, X, Y = self.rows(7, 20)
        table = bandit.explain(X, action_features=Y)
        parts = [name for name in table.columns if name.startswith("difference:")]
        assert {"difference:y0", "difference:y1", "difference:intercept"} <= set(parts)
        np.testing.assert_allclose(table[parts].sum(axis=1), table["difference"], atol=1e-9)
        np.testing.assert_allclose(table["mean"] - table["competitor_mean"], table["difference"], atol=1e-9)


def test_an_explanation_of_lists_adds_up():
    bandit, shop = taught()
    lists = shop.lists(20)
    table = bandit.explain(shop.contexts(20), eligible=lists)
    assert all(action in one for action, one in zip(table["action"], lists, strict=True))
    parts = [name for name in table.columns if name.startswith("difference:")]
    np.testing.assert_allclose(table[parts].sum(axis=1), table["mean"] - table["competitor_mean"], atol=1e-9)


@pytest.mark.parametrize("deviations", ["all", "constant"])
def test_errors_of_differences_are_those_of_one_dense_regression(deviations):
    """What two actions share through their features cancels, e.g. between a new action and its twin."""
    shop, twin = Shop(items()), {"age": 0.3, "price": -1.0, "length": 0.7, "topic": "news"}
    bandit = spuir.Bandit("hierarchical", shop.catalogue, random_state=0, deviations=deviations)
    X, labels = shop.contexts(300), shop.rng.choice(shop.catalogue.index, 300)
    bandit.partial_fit(X, labels, shop.rewards(X, labels))
    bandit.add_action("new", features=twin, ramp=None).add_action("twin", features=twin, ramp=None)
    policy: Any = bandit.policy_
    state, learner = bandit.state_, policy.learner
    made, codes = learner.problem(state), {label: code for code, label in enumerate(bandit.actions_)}
    own = np.eye(DIM + 1) if deviations == "all" else np.eye(DIM + 1)[:, -1:]  # columns in which actions deviate

    def design(rows: Any, code: Any) -> Any:
        """Return the columns of Θ and those of the deviations of all actions."""
        phi, one = learner.rows(state, rows), np.eye(len(codes))[code]
        parts = (np.einsum("na,nb->nab", made.features[code], phi), np.einsum("na,nb->nab", one, phi @ own))
        return np.hstack([part.reshape(len(phi), -1) for part in parts])

    shared, ridge = made.ridges.diagonals(made.columns)
    columns = design(X, [codes[label] for label in labels])
    prior = np.concatenate([shared.ravel(), np.tile(ridge, len(codes))])
    inverse = np.linalg.inv(columns.T @ columns + np.diag(prior))
    some = shop.contexts(20)
    for one, other in (("n0", "n1"), ("n0", "new"), ("new", "twin")):
        table = bandit.explain(some, actions=[one] * 20, eligible=[[one, other]] * 20)
        apart = design(some, [codes[one]] * 20) - design(some, [codes[other]] * 20)
        expected = learner.noise(state) * np.sqrt(np.vecdot(apart @ inverse, apart))
        np.testing.assert_allclose(table.standard_error, expected, rtol=1e-9)
        unit = np.vstack([np.eye(DIM), np.zeros(DIM)])  # the effect of a column: from 0 to 1, within the clip
        slope = design(unit, [codes[one]] * (DIM + 1)) - design(unit, [codes[other]] * (DIM + 1))
        slope = slope[:-1] - slope[-1]
        expected = learner.noise(state) * np.sqrt(np.vecdot(slope @ inverse, slope))
        np.testing.assert_allclose(bandit.contrast(one, other).standard_error[:DIM], expected, rtol=1e-9)
    assert bandit.contrast("n0", "n0").standard_error.max() == 0.0


def test_the_evidence_compares_models_on_the_same_rows():
    """After retirements all models are compared on the rows of live actions: without features they agree."""
    rng = streams.generator(3, "evidence")
    bandit = spuir.Bandit("hierarchical", items(), random_state=0)
    for _ in range(3):
        X, labels = rng.standard_normal((600, DIM)), rng.choice(items().index, 600)
        bandit.partial_fit(X, labels, 0.1 * rng.standard_normal(600))
    for label in items().index[:8]:
        bandit.remove_action(label)
    evidence = bandit.diagnosis()["evidence"]
    # Rewards are pure noise: the three models say the same of the 600 rows that are left.
    assert np.ptp(list(evidence.values())) < 10.0


@pytest.mark.parametrize("rows", [2, 300])
def test_a_diagnosis_before_rewards_differ(rows):
    """Too few rows to fix the maps, or the same reward in every row: nothing is explained, and nothing fails."""
    bandit = spuir.Bandit("hierarchical", items(), random_state=0)
    contexts = Shop(items()).contexts(rows)
    bandit.partial_fit(contexts, ["n1", "n2"] * (rows // 2), np.ones(rows))
    found = bandit.diagnosis()
    assert found["noise"] == 0.0
    assert "evidence" not in found
    assert np.isfinite(bandit.shared_coefficients_).all()


def test_the_forecast_of_memory_covers_solving():
    """The peak while a model learns is at most what the forecast says of its sums, and not far below."""
    count, dim = 300, 40
    bandit, rng = spuir.Bandit("hierarchical", items(count), random_state=0), streams.generator(0, "peak")
    contexts, labels = rng.standard_normal((300, dim)), [f"n{at}" for at in range(count)]
    tracemalloc.start()
    bandit.partial_fit(contexts, labels, rng.standard_normal(300))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    columns = len(bandit.shared_coefficients_) * (dim + 1)
    sums = 8 * (count * (dim + 2) ** 2 + columns**2)
    assert 0.3 * SOLVING * sums < peak <= SOLVING * sums


@pytest.mark.parametrize(("actions", "given"), [(list(items().index), {}), (items(), {"deviations": "all"})])
def test_more_memory_than_the_limit_is_refused(actions, given):
    """Without features nothing smaller is left to choose, and a choice of the user is kept."""
    small = replace(POLICY, memory_limit=1e-3, **given)
    with pytest.raises(spuir.errors.InputError, match=r"12 actions × 101² columns .* memory_limit is 0.001 GiB"):
        spuir.Bandit(small, actions).decide(np.ones((1, 100)))
