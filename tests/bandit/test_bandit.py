"""The public face, line by line as the design states it; the laws that every policy keeps are in the contracts."""

import copy
import inspect
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone

import spuir
from spuir.errors import (
    InputError,
    NotFittedError,
    ParameterError,
    ShardError,
    SnapshotError,
    SpuirError,
    UnknownNameError,
)

LABELS = ["coupon", "gift", "nothing"]
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 4)) + 0.5
ACTIONS = np.array(LABELS)[rng.integers(3, size=60)]
REWARDS = X[:, 0] * (ACTIONS == "gift") + 0.1 * rng.normal(size=60)


def taught(policy: Any = "puir", episodes: int = 2, **given: Any) -> spuir.Bandit:
    bandit = spuir.Bandit(policy, LABELS, random_state=3)
    for n in range(episodes):
        at = slice(30 * n, 30 * n + 30)
        bandit.partial_fit(X[at], ACTIONS[at], REWARDS[at], **given)
    return bandit


def names_of(call: Any) -> list[str]:
    return [name for name in inspect.signature(call).parameters if name != "self"]


class TestNames:
    def test_arguments_are_named_and_ordered_as_promised(self) -> None:
        assert names_of(spuir.run)[:5] == ["policy", "environment", "episodes", "batch_size", "seed"]
        assert names_of(spuir.make_policy)[:2] == ["name", "preset"]
        assert names_of(spuir.Bandit) == ["policy", "actions", "random_state", "encoder", "policy_parameters"]
        assert names_of(spuir.Bandit.decide) == ["X", "eligible", "ids", "action_features"]
        fit = ["X", "actions", "rewards", "propensities", "sample_weight", "eligible"]
        assert names_of(spuir.Bandit.partial_fit)[:6] == fit
        assert names_of(spuir.Bandit.collect)[:4] == ["X", "actions", "rewards", "row_ids"]
        assert names_of(spuir.Bandit.add_action) == ["label", "like", "ramp", "ramp_episodes", "features"]
        assert names_of(spuir.Bandit.update_action) == ["label", "features"]
        assert names_of(spuir.Bandit.remove_action) == ["label"]
        assert names_of(spuir.load) == ["path", "random_state"]
        columns = [
            "contexts",
            "actions",
            "rewards",
            "propensities",
            "weights",
            "eligible",
            "revealed",
            "revealed_rewards",
        ]
        assert names_of(spuir.Batch)[:11] == [*columns, "click", "conversion", "elapsed"]

    def test_defaults_are_as_promised(self) -> None:
        defaults = {name: p.default for name, p in inspect.signature(spuir.run).parameters.items()}
        assert (defaults["episodes"], defaults["batch_size"], defaults["seed"]) == (90, 1400, 0)
        for call in (spuir.Bandit, spuir.load):
            assert inspect.signature(call).parameters["random_state"].default is None

    def test_every_public_name_is_there_and_nothing_else_is(self) -> None:
        for name in spuir.__all__:
            assert getattr(spuir, name) is not None
        with pytest.raises(AttributeError, match="no attribute"):
            _ = spuir.nonsense  # type: ignore[attr-defined]
        assert "spuir" in spuir.list_policies() and "synthetic" in spuir.list_environments()

    def test_a_policy_takes_the_words_of_the_design(self) -> None:
        policy = spuir.make_policy(
            "spuir", preset=None, alpha=0.2, imputation_rate=0.1, discount=0.9, ridge=1.0, sketch_size=150,
            sketch_blocks=1, moments="exact", imputed_cap=None, forgetting=1, episodes=90, batch_size=1400, floor=0,
        )  # fmt: skip
        assert policy.name == "spuir"
        assert policy == spuir.make_policy("spuir", moments="exact", episodes=90, batch_size=1400)

    def test_wrong_words_are_answered_with_the_nearest(self) -> None:
        with pytest.raises(UnknownNameError, match="did you mean 'puir'"):
            spuir.make_policy("puirr")
        with pytest.raises(ParameterError, match="did you mean 'alpha'"):
            spuir.make_policy("puir", alfa=1.0)
        with pytest.raises(ParameterError, match="presets"):
            spuir.make_policy("puir", preset="authors")
        with pytest.raises(UnknownNameError, match="did you mean 'synthetic'"):
            spuir.make_environment("syntetic")


def test_a_run_returns_its_history() -> None:
    h = spuir.run("puir", "synthetic", episodes=3, batch_size=50, seed=0)
    for name in (
        "rewards",
        "average_reward",
        "regret",
        "fixed_regret",
        "decide_seconds",
        "learn_seconds",
        "cvr",
        "ctcvr",
    ):
        assert getattr(h, name).shape == (3,), name
    assert h.counts.shape == (3, 5) and np.all(h.counts.sum(axis=1) == 50)
    np.testing.assert_allclose(h.average_reward, np.cumsum(h.rewards) / [1, 2, 3])
    again = spuir.run(spuir.make_policy("puir"), spuir.make_environment("synthetic", seed=0), episodes=3, batch_size=50)
    np.testing.assert_array_equal(again.rewards, h.rewards)


def test_an_environment_has_its_three_verbs() -> None:
    env = spuir.make_environment("synthetic", n_actions=5, dim=40, seed=0)
    rounds = env.draw(7, np.random.default_rng(1))
    assert rounds.contexts.shape == (7, 40) and env.expected_rewards(rounds).shape == (7, 5)
    feedback = env.feedback(rounds, np.zeros(7, int), np.random.default_rng(2))
    assert feedback.rewards.shape == (7,)
    assert feedback.click is not None and feedback.conversion is not None and feedback.elapsed is not None


class TestDeciding:
    def test_a_cold_bandit_decides_uniformly_among_labels(self) -> None:
        bandit = spuir.Bandit("puir", LABELS, random_state=0)
        d = bandit.decide(X, ids=range(60))
        assert set(d.actions) == set(LABELS) and len(d) == 60
        np.testing.assert_allclose(d.propensities, 1 / 3)
        for table in (d.probabilities, d.scores, d.means, d.widths):
            assert table.shape == (60, 3)
        assert d.exact and d.ids == range(60) and repr(d) == "Decision(n=60, exact=True)"

    def test_a_decision_keeps_what_it_was_made_of(self) -> None:
        bandit, contexts = taught(), X.copy()
        expected = bandit.predict_proba(X)
        d = bandit.decide(contexts)
        contexts[:] = 0.0
        bandit.partial_fit(X, ACTIONS, -REWARDS)
        np.testing.assert_array_equal(d.probabilities, expected)

    @pytest.mark.parametrize(
        "eligible", [[True, False, True], np.array([1, 0, 1]), np.tile([True, False, True], (60, 1))]
    )
    def test_only_eligible_labels_are_chosen(self, eligible: Any) -> None:
        bandit = taught()
        assert "gift" not in bandit.decide(X, eligible=eligible).actions
        assert "gift" not in bandit.predict(X, eligible=eligible)
        assert not bandit.predict_proba(X, eligible=eligible)[:, 1].any()

    def test_predict_is_the_most_probable_and_the_first_of_equals(self) -> None:
        assert set(spuir.Bandit("puir", LABELS).predict(X)) == {"coupon"}
        bandit = taught()
        codes = bandit.predict_proba(X).argmax(axis=1)
        np.testing.assert_array_equal(bandit.predict(X), np.array(LABELS)[codes])

    def test_the_decision_function_is_what_the_rule_compares(self) -> None:
        bandit = taught(spuir.make_policy("puir", alpha=0.7))
        d = bandit.decide(X)
        np.testing.assert_allclose(bandit.decision_function(X), d.means + 0.7 * d.widths, rtol=1e-12)
        sampling = taught("linear-thompson")
        np.testing.assert_array_equal(sampling.decision_function(X), sampling.decide(X).means)

    def test_integers_are_labels_too(self) -> None:
        bandit = spuir.Bandit("puir", 3, random_state=0)
        assert bandit.actions_.tolist() == [0, 1, 2] and bandit.decide(X).actions.dtype.kind == "i"

    def test_the_same_seed_decides_the_same(self) -> None:
        first, second, other = (spuir.Bandit("puir", LABELS, random_state=s).decide(X).actions for s in (1, 1, 2))
        np.testing.assert_array_equal(first, second)
        assert not np.array_equal(first, other)


class TestLearning:
    def test_one_call_is_one_episode_and_needs_no_decision_before_it(self) -> None:
        bandit = spuir.Bandit("puir", LABELS)
        assert bandit.n_episodes_ == 0
        assert bandit.partial_fit(X, ACTIONS, REWARDS) is bandit
        assert bandit.n_episodes_ == 1 and bandit.n_features_in_ == 4
        assert bandit.last_info_ is not None and bandit.last_info_.rows == 60
        assert bandit.coefficients_.shape == (3, 4)

    def test_fit_forgets_first(self) -> None:
        bandit = taught().fit(X, ACTIONS, REWARDS)
        assert bandit.n_episodes_ == 1
        once = spuir.Bandit("puir", LABELS, random_state=3).partial_fit(X, ACTIONS, REWARDS)
        np.testing.assert_array_equal(bandit.coefficients_, once.coefficients_)
        wider = np.column_stack([X, X])
        assert bandit.fit(wider, ACTIONS, REWARDS).n_features_in_ == 8

    def test_a_failed_fit_leaves_what_was_known(self) -> None:
        bandit = taught()
        before = bandit.coefficients_
        with pytest.raises(InputError):
            bandit.fit(X, ACTIONS, np.full(60, np.nan))
        np.testing.assert_array_equal(bandit.coefficients_, before)

    def test_coefficients_are_a_copy_and_follow_the_labels(self) -> None:
        bandit = taught("sbucb")
        bandit.coefficients_[:] = 0.0
        own = ACTIONS == "gift"
        gram, moment = X[own].T @ X[own] + np.eye(4), X[own].T @ REWARDS[own]
        np.testing.assert_allclose(bandit.coefficients_[1], np.linalg.solve(gram, moment), rtol=1e-9)

    def test_further_columns_of_a_batch_are_understood(self) -> None:
        full = np.tile(REWARDS[:, None], (1, 3))
        bandit = spuir.Bandit("sbucb", LABELS).partial_fit(
            X, ACTIONS, REWARDS, revealed=np.ones((60, 3), bool), revealed_rewards=full
        )
        np.testing.assert_allclose(bandit.coefficients_[0], bandit.coefficients_[2], rtol=1e-9)
        with pytest.raises(ParameterError, match="'reveal'"):
            bandit.partial_fit(X, ACTIONS, REWARDS, reveal=1)
        with pytest.raises(InputError, match="revealed"):
            bandit.partial_fit(X, ACTIONS, REWARDS, revealed=np.ones((60, 2), bool), revealed_rewards=full[:, :2])

    def test_an_executed_action_was_eligible(self) -> None:
        with pytest.raises(InputError, match="executed but not eligible"):
            spuir.Bandit("puir", LABELS).partial_fit(X, ACTIONS, REWARDS, eligible=[True, True, False])

    def test_deciding_goes_on_while_learning(self) -> None:
        bandit, failures = taught(), []

        def decide() -> None:
            try:
                for _ in range(30):
                    d = bandit.decide(X)
                    assert len(d) == 60 and np.all(d.propensities > 0)
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=decide) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            bandit.partial_fit(X, ACTIONS, REWARDS, allow_repeat=True)
        for thread in threads:
            thread.join()
        assert not failures and bandit.n_episodes_ == 22


class TestDecisionsAsBatches:
    """A decision stands for contexts, actions, propensities and eligibility."""

    @pytest.mark.parametrize("name", ["puir", "blts-b", "bexp3-ipw"])
    @pytest.mark.parametrize("eligible", [None, [True, False, True]])
    def test_it_learns_what_its_columns_teach(self, name: str, eligible: Any) -> None:
        bandit, twin = taught(name), taught(name)
        day = bandit.decide(X, eligible=eligible)
        bandit.partial_fit(day, REWARDS)
        twin.partial_fit(X, day.actions, REWARDS, propensities=day.propensities, eligible=eligible)
        np.testing.assert_array_equal(bandit.predict_proba(X), twin.predict_proba(X))
        assert bandit.n_episodes_ == 3

    def test_it_still_counts_after_a_pickle_and_a_new_action(self) -> None:
        bandit, twin = taught(), taught()
        day = bandit.decide(X, eligible=[True, False, True])
        bandit.add_action("toy").partial_fit(pickle.loads(pickle.dumps(day)), rewards=REWARDS)
        twin.add_action("toy").partial_fit(X, day.actions, REWARDS)
        np.testing.assert_array_equal(bandit.coefficients_, twin.coefficients_)

    def test_columns_beside_it_are_refused(self) -> None:
        bandit = taught()
        day = bandit.decide(X)
        for wrong in (
            lambda: bandit.partial_fit(day),
            lambda: bandit.partial_fit(day, ACTIONS, REWARDS),
            lambda: bandit.partial_fit(day, REWARDS, propensities=day.propensities),
            lambda: bandit.partial_fit(day, REWARDS[:5]),
            lambda: bandit.partial_fit(X, REWARDS),
            lambda: bandit.partial_fit(bandit.policy_.decide(bandit.state_, X, np.random.default_rng(0)), REWARDS),
        ):
            with pytest.raises(InputError):
                wrong()
        assert bandit.n_episodes_ == 2

    def test_it_becomes_a_table(self) -> None:
        day = taught().decide(X[:2], ids=["a", "b"])
        expected = {"decision_id": ["a", "b"], "action": day.actions, "propensity": day.propensities, "episode": [2, 2]}
        pd.testing.assert_frame_equal(day.to_frame(), pd.DataFrame(expected))
        assert list(taught().decide(X).to_frame().columns) == ["action", "propensity", "episode"]

    def test_an_id_twice_is_refused(self) -> None:
        with pytest.raises(InputError, match=r"ids: got '7' again at row 2, .*its own id"):
            taught().decide(X[:3], ids=["7", "a", 7])


class TestForms:
    frame = pd.DataFrame(X, columns=["age", "spend", "visits", "bias"])

    def test_columns_of_frames_are_matched_by_name(self) -> None:
        bandit = spuir.Bandit("puir", LABELS, random_state=3).partial_fit(self.frame, ACTIONS, REWARDS)
        assert bandit.feature_names_in_.tolist() == ["age", "spend", "visits", "bias"]
        turned = self.frame[["bias", "visits", "age", "spend"]]
        np.testing.assert_array_equal(bandit.predict_proba(turned), bandit.predict_proba(X))
        with pytest.raises(InputError, match="without 'age'"):
            bandit.predict(self.frame.drop(columns="age"))

    def test_names_may_come_with_a_later_batch(self) -> None:
        bandit = taught()
        with pytest.raises(NotFittedError, match="DataFrame"):
            _ = bandit.feature_names_in_
        bandit.partial_fit(self.frame, ACTIONS, REWARDS)
        assert bandit.feature_names_in_[0] == "age"

    @pytest.mark.parametrize("form", [list, sparse.csr_array, np.asfortranarray, lambda x: x.tolist(), pd.DataFrame])
    def test_contexts_come_in_any_form(self, form: Any) -> None:
        bandit = spuir.Bandit("puir", LABELS, random_state=3).partial_fit(form(X), list(ACTIONS), REWARDS.tolist())
        plain = spuir.Bandit("puir", LABELS, random_state=3).partial_fit(X, ACTIONS, REWARDS)
        np.testing.assert_allclose(bandit.coefficients_, plain.coefficients_, rtol=1e-10)
        np.testing.assert_array_equal(bandit.decide(form(X)).actions, plain.decide(X).actions)

    def test_actions_and_rewards_may_be_series(self) -> None:
        bandit = spuir.Bandit("puir", LABELS).partial_fit(self.frame, pd.Series(ACTIONS), pd.Series(REWARDS))
        assert bandit.n_episodes_ == 1

    def test_the_coefficient_table_has_names_and_standard_errors(self) -> None:
        bandit = spuir.Bandit("puir", LABELS).partial_fit(self.frame, ACTIONS, REWARDS)
        rows = bandit.coefficient_table()
        assert [(row.action, row.feature) for row in rows[:5]] == [
            ("coupon", "age"), ("coupon", "spend"), ("coupon", "visits"), ("coupon", "bias"), ("gift", "age"),
        ]  # fmt: skip
        np.testing.assert_array_equal(np.reshape([row.coefficient for row in rows], (3, 4)), bandit.coefficients_)
        assert all(row.standard_error > 0 for row in rows)
        assert list(pd.DataFrame(rows).columns) == ["action", "feature", "coefficient", "standard_error"]
        pd.testing.assert_frame_equal(bandit.coefficients_frame(), pd.DataFrame(rows))

    def test_a_plot_names_the_strongest_coefficients_and_the_shares(self, tmp_path: Path) -> None:
        bandit = taught()
        figure = bandit.plot(X, tmp_path / "what")
        assert {path.name for path in tmp_path.iterdir()} == {"what.png", "what.svg"}
        rewards, mix, coefficients = figure.axes
        assert len(rewards.get_yticklabels()) == 3
        assert [tick.get_text() for tick in mix.get_yticklabels()] == LABELS
        np.testing.assert_allclose([bar.get_width() for bar in mix.patches], bandit.predict_proba(X).mean(axis=0))
        rows = bandit.coefficient_table()
        best = max(rows, key=lambda row: abs(row.coefficient) / row.standard_error)
        assert coefficients.get_yticklabels()[0].get_text() == f"{best.action}: {best.feature}"
        with pytest.raises(ParameterError, match="nothing to draw"):
            spuir.Bandit("uniform", 2).plot()

    def test_what_has_no_coefficients_says_so(self) -> None:
        with pytest.raises(ParameterError, match="no reward model"):
            _ = taught("uniform").coefficients_
        with pytest.raises(NotFittedError, match="partial_fit"):
            _ = spuir.Bandit("puir", LABELS).coefficients_


class TestLiveActions:
    def test_an_added_action_is_cold_or_a_copy(self) -> None:
        bandit = taught().add_action("toy").add_action("voucher", like="gift")
        assert bandit.actions_.tolist() == [*LABELS, "toy", "voucher"]
        assert not bandit.coefficients_[3].any()
        np.testing.assert_allclose(bandit.coefficients_[4], bandit.coefficients_[1], rtol=1e-12)
        assert bandit.predict_proba(X).shape == (60, 5)

    def test_a_removed_action_is_retired(self) -> None:
        bandit = taught().remove_action("gift")
        assert bandit.active_.tolist() == [True, False, True] and bandit.actions_.tolist() == LABELS
        assert "gift" not in bandit.decide(X).actions
        before = bandit.coefficients_
        bandit.partial_fit(X, ["gift"] * 60, REWARDS)
        assert not np.allclose(bandit.coefficients_[1], before[1])
        with pytest.raises(ParameterError, match="never reused"):
            bandit.add_action("gift")

    def test_nothing_eligible_is_refused(self) -> None:
        bandit = taught().remove_action("gift")
        with pytest.raises(InputError, match="no action at row 0"):
            bandit.decide(X, eligible=[False, True, False])


class TestShards:
    @pytest.mark.parametrize("name", ["puir", "spuir", "puir-exp"])
    def test_shards_of_an_episode_add_up(self, name: str) -> None:
        given: dict[str, Any] = {"sketch_size": 20} if name == "spuir" else {}
        policy = spuir.make_policy(name, **given)
        whole, parts = taught(policy), taught(policy)
        ids = np.arange(60) + 1000
        whole.partial_fit(X, ACTIONS, REWARDS, row_ids=ids)
        cuts = [slice(0, 10), slice(10, 35), slice(35, 60)]
        sums = [parts.collect(X[cut], ACTIONS[cut], REWARDS[cut], row_ids=ids[cut]) for cut in cuts]
        assert parts.n_episodes_ == 2
        assert parts.absorb(sums[0] + sums[1] + sums[2]) is parts and parts.n_episodes_ == 3
        np.testing.assert_allclose(parts.coefficients_, whole.coefficients_, rtol=1e-9, atol=1e-12)

    def test_absorbing_leaves_a_shard_as_it_was(self) -> None:
        bandits = [taught() for _ in range(2)]
        shard = bandits[0].collect(X, ACTIONS, REWARDS)
        for bandit in bandits:
            bandit.absorb(shard)
            np.testing.assert_array_equal(bandit.coefficients_, bandits[0].coefficients_)

    def test_what_does_not_belong_is_refused(self) -> None:
        bandit = taught()
        shard = bandit.collect(X, ACTIONS, REWARDS)
        with pytest.raises(ShardError, match="episode 2"):
            bandit.absorb(shard).absorb(shard)
        with pytest.raises(ShardError, match="add up"):
            _ = 1 + shard  # type: ignore[operator]
        with pytest.raises(ShardError, match="absorb takes"):
            bandit.absorb(3)  # type: ignore[arg-type]
        with pytest.raises(ShardError, match="row_ids"):
            taught("spuir").collect(X, ACTIONS, REWARDS)


class TestSaving:
    def test_a_file_resumes_the_streams_and_a_seed_starts_anew(self, tmp_path: Path) -> None:
        bandit, path = taught("spuir"), tmp_path / "bandit"
        bandit.add_action("toy").remove_action("coupon")
        bandit.decide(X)
        bandit.save(path)
        assert [file.name for file in tmp_path.iterdir()] == ["bandit"]
        resumed, reseeded = spuir.load(str(path)), spuir.load(path, random_state=9)
        np.testing.assert_array_equal(resumed.coefficients_, bandit.coefficients_)
        np.testing.assert_array_equal(reseeded.coefficients_, bandit.coefficients_)
        assert resumed.active_.tolist() == [False, True, True, True]
        assert resumed.policy == bandit.policy_
        cold = np.zeros((200, 4))  # every action ties
        expected = bandit.decide(cold).actions
        np.testing.assert_array_equal(resumed.decide(cold).actions, expected)
        assert not np.array_equal(reseeded.decide(cold).actions, expected)

    def test_a_label_that_json_cannot_hold_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SnapshotError, match="label"):
            spuir.Bandit("puir", [("a", 1), ("b", 2)]).save(tmp_path / "x")
        assert not list(tmp_path.iterdir())


class TestScikitLearn:
    def test_the_constructor_stores_its_arguments_untouched(self) -> None:
        bandit = spuir.Bandit("puir", LABELS, random_state=3)
        assert bandit.policy == "puir" and bandit.actions is LABELS and bandit.random_state == 3

    @pytest.mark.parametrize(
        ("arguments", "parameters", "words"),
        [
            (("LinUCB", LABELS), {}, r"policy: got 'LinUCB', .*did you mean '"),
            (("puir", LABELS), {"alfa": 1}, r"got 'alfa', .*did you mean 'alpha'\?$"),
            (("puir", LABELS), {"randomstate": 1}, r"did you mean 'random_state'\?$"),
            (("puir", LABELS), {"alpha": -1}, r"alpha of policy 'puir': got -1, .*the default is 0.1"),
            (("puir",), {}, r"actions: got None, .*pass a list of labels, or their number M"),
            (("puir", -1), {}, "at least one action is needed"),
            ((None, LABELS), {}, "a policy is a registered name"),
        ],
    )
    def test_what_is_wrong_is_refused_at_construction(self, arguments: Any, parameters: Any, words: str) -> None:
        with pytest.raises(SpuirError, match=words):
            spuir.Bandit(*arguments, **parameters)

    def test_parameters_of_the_policy_are_keywords(self) -> None:
        bandit = spuir.Bandit("puir", LABELS, random_state=3, alpha=0.7)
        assert bandit.policy == "puir" and bandit.policy_ == spuir.make_policy("puir", alpha=0.7)
        assert repr(bandit) == f"Bandit('puir', {LABELS}, random_state=3, alpha=0.7)"
        given = bandit.get_params(deep=False)
        assert given == {"policy": "puir", "actions": LABELS, "random_state": 3, "encoder": None, "alpha": 0.7}
        twin: Any = clone(bandit)  # type: ignore[type-var]
        assert twin.policy_ == bandit.policy_ and twin.get_params() == bandit.get_params()
        assert spuir.Bandit(spuir.make_policy("sbucb"), 2, alpha=0.7).policy_ == spuir.make_policy("sbucb", alpha=0.7)
        assert spuir.Bandit("spuir", 2, preset="paper").policy_ == spuir.make_policy("spuir", preset="paper")
        bandit.set_params(policy__ridge=2.0)
        assert bandit.policy_ == spuir.make_policy("puir", alpha=0.7, ridge=2.0)
        bandit.set_params(policy="sbucb")
        assert bandit.policy_ == spuir.make_policy("sbucb")  # another policy starts from its own parameters

    def test_clone_gives_a_fresh_bandit_with_the_same_arguments(self) -> None:
        bandit = taught()
        fresh: Any = clone(bandit)  # type: ignore[type-var]
        assert fresh.n_episodes_ == 0 and fresh.get_params(deep=False) == bandit.get_params(deep=False)
        np.testing.assert_array_equal(
            fresh.fit(X, ACTIONS, REWARDS).coefficients_, taught().fit(X, ACTIONS, REWARDS).coefficients_
        )

    def test_parameters_of_the_policy_are_set_by_name(self) -> None:
        bandit = taught()
        assert bandit.get_params()["policy__alpha"] == 0.1
        before = bandit.decision_function(X)
        assert bandit.set_params(policy__alpha=2.0) is bandit
        d = bandit.decide(X)
        np.testing.assert_allclose(d.scores, d.means + 2.0 * d.widths, rtol=1e-12)
        assert not np.allclose(bandit.decision_function(X), before)
        bandit.set_params(policy="sbucb", random_state=5)
        assert bandit.policy_.name == "sbucb" and bandit.random_state == 5
        with pytest.raises(ParameterError, match="did you mean 'alpha'"):
            bandit.set_params(policy__alpa=1.0)
        assert bandit.set_params(alpha=1.0).policy_ == spuir.make_policy("sbucb", alpha=1.0)
        with pytest.raises(ParameterError, match="alpha"):
            bandit.set_params(policy__alpha=-1.0)

    def test_a_policy_that_does_not_fit_the_state_is_refused(self) -> None:
        bandit = taught().set_params(policy__intercept=True)
        with pytest.raises(ParameterError, match="fit"):
            bandit.decide(X)
        assert bandit.fit(X, ACTIONS, REWARDS).coefficients_.shape == (3, 4)
        assert bandit.intercept_.shape == (3,)

    def test_a_copy_goes_its_own_way(self) -> None:
        bandit = taught()
        twin = copy.deepcopy(bandit)
        np.testing.assert_array_equal(twin.decide(X).actions, bandit.decide(X).actions)
        twin.partial_fit(X, ACTIONS, REWARDS)
        assert (twin.n_episodes_, bandit.n_episodes_) == (3, 2)

    def test_it_shows_its_arguments(self) -> None:
        bandit = spuir.Bandit("puir", 3, random_state=1)
        assert repr(bandit) == "Bandit('puir', 3, random_state=1)"
        bandit.add_action("new").remove_action(0)
        assert repr(bandit) == "Bandit('puir', [1, 2, 'new'], random_state=1)"
        assert repr(spuir.Bandit("puir", 2000)) == "Bandit('puir', 2000, random_state=None)"
        many = spuir.Bandit("puir", [f"a{number}" for number in range(2000)])
        assert repr(many) == "Bandit('puir', ['a0', 'a1', 'a2', … 2,000 in all], random_state=None)"
