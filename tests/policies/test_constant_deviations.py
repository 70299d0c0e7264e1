"""Actions that deviate by a constant alone: the contract, the same numbers as one dense regression, a long life."""

import tracemalloc
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import spuir
from spuir.base import streams
from spuir.policies.hierarchical import SOLVING_CONSTANTS
from spuir.testing import trial
from tests.catalogues import DIM, Shop, items, laws_with_a_catalogue, taught

POLICY: Any = spuir.make_policy("hierarchical", deviations="constant")
ALONE: dict[str, Any] = {"deviations": "constant"}


@pytest.mark.parametrize("law", laws_with_a_catalogue(POLICY), ids=lambda law: law.name)
@pytest.mark.usefixtures("described")
def test_the_contract(law):
    law.check(POLICY)


def dense(bandit: Any, episodes: list[tuple[Any, Any, Any]], X: Any) -> tuple[Any, Any]:
    """Return means and widths of all live actions from one ridge regression over all rows, faded by forgetting."""
    state, learner = bandit.state_, bandit.policy_.learner
    made, codes = learner.problem(state), {label: code for code, label in enumerate(bandit.actions_)}
    weight = np.concatenate(
        [np.full(len(labels), bandit.policy_.forgetting**age) for age, (_, labels, _) in enumerate(reversed(episodes))][
            ::-1
        ]
    )
    rows = learner.rows(state, np.concatenate([contexts for contexts, _, _ in episodes]))
    code = np.array([codes[label] for _, labels, _ in episodes for label in labels])
    rewards = np.concatenate([rewards for _, _, rewards in episodes])
    mean = weight @ rewards / weight.sum()
    design = np.einsum("nk,nd->nkd", made.features[code], rows).reshape(len(rows), -1)
    design = np.hstack([design, np.eye(len(made.features))[code]])
    shared, own = made.ridges.diagonals(made.columns)
    ridge = np.concatenate([shared.ravel(), np.tile(own, len(made.features))])
    inverse = np.linalg.inv(design.T @ (weight[:, None] * design) + np.diag(ridge))
    beta = inverse @ (design.T @ (weight * (rewards - mean)))
    phi, m = learner.rows(state, X), len(made.features)
    every = np.einsum("mk,nd->nmkd", made.features, phi).reshape(len(X) * m, -1)
    every = np.hstack([every, np.tile(np.eye(m), (len(X), 1))])
    widths = np.sqrt(np.vecdot(every, every @ inverse))
    return (every @ beta + mean).reshape(len(X), m), widths.reshape(len(X), m)


class TestLearning:
    @pytest.mark.parametrize("forgetting", [1.0, 0.7])
    def test_it_is_one_dense_regression(self, forgetting):
        shop, episodes = Shop(items()), []
        bandit = spuir.Bandit("hierarchical", shop.catalogue, random_state=0, forgetting=forgetting, **ALONE)
        for _ in range(3):
            X, labels = shop.contexts(260), shop.rng.choice(shop.catalogue.index[:-1], 260)
            episodes.append((X, labels, 1e3 + shop.rewards(X, labels)))
            bandit.partial_fit(*episodes[-1])
        X = shop.contexts(9)
        means, widths = dense(bandit, episodes, X)
        decided = bandit.decide(X)
        np.testing.assert_allclose(decided.means, means, rtol=1e-9)
        np.testing.assert_allclose(decided.widths, widths, rtol=1e-8)
        lists = shop.lists(9)
        mask = np.array([[label in one for label in bandit.actions_] for one in lists])
        np.testing.assert_allclose(bandit.decide(X, eligible=lists).means[mask], means[mask], rtol=1e-9)

    def test_a_good_action_is_found_out(self):
        bandit, shop = taught(**ALONE)
        for _ in range(6):
            X, labels = shop.contexts(400), shop.rng.choice(shop.catalogue.index, 400)
            bandit.partial_fit(X, labels, shop.rewards(X, labels) + 3.0 * (labels == "n3"))
        means = bandit.decide(np.zeros((1, DIM))).means[0]
        assert means.argmax() == 3
        assert means[3] - np.median(means) > 2.0

    def test_errors_and_parts_are_those_of_the_model(self):
        bandit, shop = taught(**ALONE)
        frame = bandit.coefficients_frame()
        assert (frame.standard_error > 0).all()
        X, lists = shop.contexts(20), shop.lists(20)
        table = bandit.explain(X, eligible=lists)
        parts = [name for name in table.columns if name.startswith("difference:")]
        np.testing.assert_allclose(table[parts].sum(axis=1), table["mean"] - table["competitor_mean"], atol=1e-9)
        found = bandit.diagnosis()
        assert found["deviations"] == "constant"
        assert set(found["evidence"]) == {"hierarchical", "shared"}

    def test_standard_errors_are_widths_of_unit_contexts(self):
        """The error of the constant is the width where all standardised columns are those of a zero context."""
        bandit, _ = taught(**ALONE)
        noise = bandit.diagnosis()["noise"]
        errors = bandit.policy_.standard_errors(bandit.state_)[:, -1]
        np.testing.assert_allclose(errors, noise * bandit.decide(np.zeros((1, DIM))).widths[0], rtol=1e-8)

    def test_features_per_decision(self):
        rng = streams.generator(0, "varying")
        bandit = spuir.Bandit("hierarchical", items(), random_state=0, **ALONE)
        for _ in range(4):
            X, Y = rng.standard_normal((300, DIM)), rng.standard_normal((300, 12, 2))
            decided = bandit.decide(X, action_features=Y)
            own = decided.action_features
            assert own is not None
            bandit.partial_fit(decided, own @ [1.0, -2.0] + 0.1 * rng.standard_normal(300))
        np.testing.assert_allclose(bandit.coefficients_[:, -2:], [[1.0, -2.0]] * 12, atol=0.1)
        mask = rng.random((300, 12)) < 0.5
        mask[:, 3] = True
        rows, codes = np.nonzero(mask)
        long = pd.DataFrame({"row": rows, "action": items().index[codes], "y0": Y[mask][:, 0], "y1": Y[mask][:, 1]})
        expected = bandit.predict_proba(X, eligible=mask, action_features=Y)
        np.testing.assert_allclose(bandit.predict_proba(X, action_features=long), expected, atol=1e-12)


class TestChoosingTheForm:
    LIMIT = POLICY._needed(12, DIM, len(taught()[0].shared_coefficients_) - 1, alone=False)[1] / 2**30
    """What deviations of the small catalogue in all columns take, in GiB."""

    def test_too_large_a_catalogue_deviates_by_a_constant_and_says_so(self):
        shop = Shop(items())
        small = spuir.Bandit("hierarchical", shop.catalogue, random_state=0, memory_limit=0.97 * self.LIMIT)
        chosen = spuir.Bandit("hierarchical", shop.catalogue, random_state=0, **ALONE)
        X, labels = shop.contexts(300), shop.rng.choice(shop.catalogue.index, 300)
        rewards = shop.rewards(X, labels)
        with pytest.warns(spuir.errors.CatalogueWarning, match="12 actions that deviate in all 5 columns would take"):
            small.partial_fit(X, labels, rewards)
        chosen.partial_fit(X, labels, rewards)
        assert small.diagnosis()["deviations"] == "constant"
        np.testing.assert_array_equal(small.coefficients_, chosen.coefficients_)

    def test_a_catalogue_that_fits_deviates_in_all_columns(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            bandit, _ = taught(memory_limit=1.01 * self.LIMIT)
        assert bandit.diagnosis()["deviations"] == "all"
        explicit, _ = taught(deviations="all")
        np.testing.assert_array_equal(bandit.coefficients_, explicit.coefficients_)

    def test_a_catalogue_that_grows_too_large_changes_its_form(self, tmp_path):
        bandit, shop = taught(memory_limit=1.01 * self.LIMIT)
        bandit.remove_action("n11")
        before = bandit.shared_coefficients_
        new = items(3, first=50)
        with pytest.warns(spuir.errors.CatalogueWarning, match="by a constant alone"):
            for label, row in new.iterrows():
                bandit.add_action(label, features=dict(row))
        state: Any = bandit.state_
        assert state.constants.shape == (14, DIM + 2)
        assert state.folded.weight == pytest.approx(780)
        # What the features say was learned from the same rows.
        assert np.corrcoef(bandit.shared_coefficients_.ravel(), before.ravel())[0, 1] > 0.99
        shop.catalogue = pd.concat([shop.catalogue, new])
        shop.teach(bandit, 2)
        bandit.save(tmp_path / "one.spuir")
        again = spuir.load(tmp_path / "one.spuir")
        assert trial.frozen(again) == trial.frozen(bandit)
        for label in [*new.index, "n1", "n2", "n3"]:
            bandit.remove_action(label)  # small enough for all columns again, but their sums are gone
        shop.teach(bandit, 1)
        assert bandit.diagnosis()["deviations"] == "constant"

    def test_a_shard_from_before_is_still_taken(self):
        bandit, shop = taught(memory_limit=1.01 * self.LIMIT)
        X, labels = shop.contexts(60), shop.rng.choice(shop.catalogue.index, 60)
        shard = bandit.policy_.collect(bandit.state_, trial_batch(bandit, X, labels, shop.rewards(X, labels)), None)
        with pytest.warns(spuir.errors.CatalogueWarning):
            for label, row in items(3, first=50).iterrows():
                bandit.add_action(label, features=dict(row))
        weight = bandit.state_.folded.weight
        after, info = bandit.policy_.absorb(bandit.state_, shard)
        assert after.folded.weight == pytest.approx(weight + 60)
        assert info.counts.sum() == 60

    def test_a_catalogue_too_large_for_constants_is_refused(self):
        with pytest.raises(spuir.errors.InputError, match=r"12 actions × 101 columns .* memory_limit is 1e-06 GiB"):
            spuir.Bandit(replace(POLICY, memory_limit=1e-6), items()).decide(np.ones((1, 100)))

    def test_without_features_there_is_nothing_to_deviate_from(self):
        bandit = spuir.Bandit("hierarchical", list(items().index), random_state=0, **ALONE)
        Shop(items()).teach(bandit)
        assert bandit.diagnosis()["deviations"] == "all"


def trial_batch(bandit: Any, X: Any, labels: Any, rewards: Any) -> Any:
    codes = np.array([list(bandit.actions_).index(label) for label in labels])
    return spuir.base.records.Batch(contexts=X, actions=codes, rewards=rewards)


class TestLife:
    def test_a_saved_bandit_goes_on(self, tmp_path):
        bandit, shop = taught(**ALONE)
        bandit.remove_action("n2").add_action("new", features=dict(items(1, first=70).iloc[0]))
        bandit.update_action("n5", features=dict(items(1, first=71).iloc[0]))
        bandit.save(tmp_path / "one.spuir")
        again = spuir.load(tmp_path / "one.spuir")
        assert trial.frozen(again) == trial.frozen(bandit)
        X = shop.contexts(260)
        labels = shop.rng.choice([label for label in shop.catalogue.index if label != "n2"], 260)
        rewards = shop.rewards(X, labels)
        for one in (bandit, again):
            one.partial_fit(X, labels, rewards)
        np.testing.assert_array_equal(again.coefficients_, bandit.coefficients_)
        np.testing.assert_array_equal(again.decide(X).actions, bandit.decide(X).actions)

    def test_sums_that_no_rows_have_are_refused(self):
        bandit, _ = taught(**ALONE)
        state: Any = bandit.state_
        negative = state.constants.copy()
        negative[2, -2] = -1.0
        for broken in (negative, state.constants[1:], np.full_like(state.constants, np.nan)):
            with pytest.raises(spuir.errors.SpuirError):
                bandit.policy_.check_state(replace(state, constants=broken))

    def test_folding_changes_nothing_at_the_same_ridges(self):
        bandit, shop = taught(**ALONE)
        X = shop.contexts(30)
        before = bandit.decision_function(X)
        bandit.remove_action("n0").remove_action("n7")
        kept = [at for at, label in enumerate(bandit.actions_) if label not in ("n0", "n7")]
        np.testing.assert_allclose(bandit.decision_function(X)[:, kept], before[:, kept], rtol=1e-7, atol=1e-9)

    def test_late_rows_of_a_retired_action_are_folded(self):
        bandit, shop = taught(**ALONE)
        bandit.remove_action("n0")
        weight, live = bandit.state_.folded.weight, bandit.state_.constants[:, -2].sum()
        X = shop.contexts(40)
        bandit.partial_fit(X, ["n0"] * 40, shop.rewards(X, ["n0"] * 40))
        assert bandit.state_.folded.weight == pytest.approx(weight + 40)
        assert bandit.state_.constants[:, -2].sum() == pytest.approx(live)
        assert bandit.last_info_.counts[0] == 40

    def test_an_updated_action_starts_again(self):
        """Its rows stay with the features they were learned with, and its own deviation is learned again."""
        bandit, shop = taught(**ALONE)
        X = shop.contexts(10)
        before, others = bandit.decide(X).means[:, 4], bandit.decide(X).means[:, :4]
        bandit.update_action("n4", features=dict(shop.catalogue.loc["n4"]))
        np.testing.assert_array_equal(bandit.decide(X).means[:, 4], before)
        row = dict(shop.catalogue.loc["n5"])
        bandit.update_action("n4", features=row)
        np.testing.assert_allclose(bandit.decide(X).means[:, :4], others, rtol=1e-7, atol=1e-9)
        said = np.append(bandit._model.catalogue.encode("n4", row), 1.0) @ bandit.shared_coefficients_
        np.testing.assert_allclose(bandit.coefficients_[4], said[:-1], rtol=1e-9, atol=1e-9)
        assert bandit.intercept_[4] == pytest.approx(said[-1], rel=1e-9)
        assert bandit.state_.constants[4, -2] == 0

    def test_a_copy_starts_where_its_model_is(self):
        bandit, shop = taught(**ALONE)
        bandit.add_action("copy", like="n3", ramp=None)
        X = shop.contexts(20)
        scores = bandit.decision_function(X)
        np.testing.assert_allclose(scores[:, -1], scores[:, 3], rtol=1e-9)

    def test_actions_before_the_first_row(self):
        shop = Shop(items(4))
        bandit = spuir.Bandit("hierarchical", shop.catalogue, random_state=0, **ALONE)
        bandit.add_action("new", features=dict(shop.catalogue.iloc[1])).add_action("copy", like="n2")
        bandit.update_action("n0", features=dict(shop.catalogue.iloc[3])).remove_action("n1")
        shop.catalogue = pd.concat([shop.catalogue, shop.catalogue.iloc[[1, 2]].set_axis(["new", "copy"])])
        shop.teach(bandit, 2)
        assert "n1" not in set(bandit.decide(shop.contexts(200)).actions)


def test_the_forecast_of_memory_covers_solving():
    """The peak while a model learns is at most what the forecast says, and not far below."""
    count, dim = 20_000, 20
    rng = streams.generator(0, "peak")
    table = pd.DataFrame(rng.standard_normal((count, 20)), columns=[f"f{at}" for at in range(20)])
    bandit = spuir.Bandit("hierarchical", table, random_state=0, components=20, **ALONE)
    contexts, labels = rng.standard_normal((count, dim)), np.arange(count)
    rewards = rng.standard_normal(count)
    needed = POLICY._needed(count, dim, 20, alone=True)[1]
    bandit.fix(contexts[:300])
    tracemalloc.start()
    bandit.partial_fit(contexts, labels, rewards)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.3 * needed < peak <= needed, peak / needed * SOLVING_CONSTANTS
