"""What the ridge policies share: rates, readouts, growth, features, standard errors, diagnostics."""

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import spuir
from spuir import make_policy
from spuir.base.streams import generator
from spuir.core.solving import DEFICIENT, FINE, JITTERED, solve
from spuir.errors import InputError, InterceptWarning, NumericalError, ParameterError, ShardError
from spuir.policies.learner import RidgeState
from spuir.policies.ridge import Ridge
from tests.identities.episodes import batch_of, make_batch

M, D = 3, 4


def ridge(name: str = "puir", **parameters: Any) -> Ridge:
    made = make_policy(name, **parameters)
    assert isinstance(made, Ridge)
    return made


def start(policy: Ridge, n_actions: int = M, dim: int = D) -> RidgeState:
    return policy.init(n_actions, dim, generator(0, "init"))


def learnt(policy: Ridge, episodes: int = 2, **feedback: Any) -> RidgeState:
    state = start(policy)
    for n in range(episodes):
        state, _ = policy.learn(
            state, make_batch(generator(1, "rows", n), 40, D, M, **feedback), generator(2, "learn", n)
        )
    return state


class TestRates:
    def test_a_number_is_everyones(self) -> None:
        assert ridge(imputation_rate=0.3).rates(start(ridge())).tolist() == [0.3] * M

    def test_the_schedule_counts_calls_of_learn(self) -> None:
        policy = ridge("puir-rs", episodes=20)
        state, seen = start(policy), []
        for n in range(22):
            state, info = policy.learn(state, make_batch(generator(1, "rows", n), 5, D, M), generator(2, "learn", n))
            assert info.rate is not None
            seen.append(float(info.rate[0]))
        assert seen == [math.ceil((n + 1) / 2) / 10 for n in range(20)] + [1.0, 1.0]
        assert policy.rates(start(policy))[0] == 0.0

    def test_balanced_rates_follow_the_weights(self) -> None:
        policy = ridge(imputation_rate="balanced", balance=0.5, discount=0.5)
        assert policy.rates(start(policy)).tolist() == [0.0] * M
        batch = make_batch(generator(1, "rows"), 40, D, M, actions=[0, 0, 0, 1])
        state, info = policy.learn(start(policy), batch, generator(2, "learn"))
        n0, n1 = np.bincount(batch.actions)[:2]
        np.testing.assert_allclose(policy.rates(state), [min(1, 0.5 * n0 / n1), 0.5 * n1 / n0, 0.0])
        np.testing.assert_array_equal(policy.rates(state), info.rate)


class TestReadout:
    def test_it_is_computed_once_a_state(self) -> None:
        policy = ridge()
        state = learnt(policy)
        assert policy.readout(state) is policy.readout(state)
        assert policy.readout(state) is ridge().readout(state)  # an equal policy

    def test_the_ridge_may_be_changed_without_the_data(self) -> None:
        state = learnt(ridge(imputation_rate=0.0, ridge=1.0))
        for value in (0.1, 4.0):
            theta = ridge(imputation_rate=0.0, ridge=value).readout(state).solved.theta
            expected = np.linalg.solve(state.observed.gram + value * np.eye(D), state.observed.moment[:, :, None])
            np.testing.assert_allclose(theta, expected[:, :, 0], rtol=1e-10)

    def test_the_ridge_meets_its_limits(self) -> None:
        state = learnt(ridge(imputation_rate=0.0))
        observed = state.observed
        least_squares = np.linalg.solve(observed.gram, observed.moment[:, :, None])[:, :, 0]
        small, large = (ridge(imputation_rate=0.0, ridge=value).readout(state).solved.theta for value in (1e-10, 1e10))
        np.testing.assert_allclose(small, least_squares, rtol=1e-7)
        np.testing.assert_allclose(large, 1e-10 * observed.moment, rtol=1e-6)


@pytest.mark.parametrize("value", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("name", ["sbucb", "puir", "spuir"])
def test_an_action_added_cold_knows_nothing(name: str, value: float) -> None:
    policy = ridge(name, ridge=value)
    grown = policy.grow(learnt(policy), None)
    readout = policy.readout(grown)
    assert grown.n_actions == M + 1
    assert not readout.solved.theta[M].any()
    np.testing.assert_allclose(np.triu(readout.solved.upper[M]), math.sqrt(value) * np.eye(D), rtol=1e-12)


@pytest.mark.parametrize("name", ["sbucb", "puir", "spuir"])
def test_an_action_added_like_another_starts_as_its_copy(name: str) -> None:
    policy = ridge(name)
    state = learnt(policy)
    grown = policy.grow(state, 1)
    before, after = policy.readout(state).solved, policy.readout(grown).solved
    np.testing.assert_allclose(after.theta, before.theta[[0, 1, 2, 1]], rtol=1e-12)
    batch = batch_of(contexts=np.ones((5, D)), actions=np.full(5, M), rewards=np.ones(5))
    later, _ = policy.learn(grown, batch, generator(3, "learn"))
    assert not np.allclose(policy.readout(later).solved.theta[M], policy.readout(later).solved.theta[1])
    np.testing.assert_array_equal(policy.readout(state).solved.theta, before.theta)


def test_learning_builds_a_new_state_and_leaves_the_old_one() -> None:
    policy = ridge("spuir", sketch_size=10)
    state = learnt(policy)
    assert state.imputed is not None and state.shared is not None
    arrays = [state.observed.gram, state.observed.moment, state.imputed.gram, state.imputed.moment, state.shared]
    kept = [array.copy() for array in arrays]
    after, _ = policy.learn(state, make_batch(generator(4, "rows"), 40, D, M), generator(5, "learn"))
    assert after.episode == state.episode + 1
    for array, copy in zip(arrays, kept, strict=True):
        np.testing.assert_array_equal(array, copy)


class TestInfo:
    def test_it_counts_rows_and_observations(self) -> None:
        batch = make_batch(generator(6, "rows"), 30, D, M, weights=True, revealed=0.3)
        _, info = ridge().learn(start(ridge()), batch, generator(7, "learn"))
        assert batch.weights is not None and batch.revealed is not None
        seen = batch.revealed | (np.arange(M) == batch.actions[:, None])
        assert info.rows == 30 and info.code == FINE
        np.testing.assert_allclose(info.counts, batch.weights @ seen)

    def test_rank_trouble_is_a_code(self) -> None:
        policy = ridge("sbucb", ridge=1e-200)
        batch = make_batch(generator(8, "rows"), 40, D, 1)
        batch.contexts[:, 3] = batch.contexts[:, 0]
        state, info = policy.learn(start(policy, 1), batch, generator(9, "learn"))
        # Whether rounding leaves the last pivot a hair above or below nought, the outcome says so.
        assert info.code in (FINE, JITTERED)
        state.observed.gram[0] -= 10 * np.eye(D)
        spoilt = replace(state)
        assert policy.readout(spoilt).solved.codes == (DEFICIENT,)

    def test_sums_that_overflow_raise_and_leave_the_state(self) -> None:
        policy = ridge("sbucb")
        state = learnt(policy)
        theta = policy.readout(state).solved.theta.copy()
        batch = batch_of(contexts=np.full((3, D), 1e150), actions=[0, 1, 2], rewards=[1e300] * 3)
        with pytest.raises(InputError, match=r"rewards: got 1e\+300 at row 0"):
            policy.learn(state, batch, generator(9, "learn"))
        np.testing.assert_array_equal(policy.readout(state).solved.theta, theta)

    def test_a_link_that_overflows_names_the_cap(self) -> None:
        policy = ridge("puir-exp", imputation_rate=0.5, imputed_cap=None)
        batch = batch_of(contexts=np.full((40, 1), 30.0), actions=np.arange(40) % 2, rewards=np.full(40, 2500.0))
        state, _ = policy.learn(start(policy, 2, 1), batch, generator(9, "learn"))
        with pytest.raises(NumericalError, match="imputed_cap"):
            policy.learn(state, batch, generator(9, "learn"))
        capped = replace(policy, imputed_cap=1.0)
        assert capped.learn(state, batch, generator(9, "learn"))[0].episode == 2


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"imputation_rate": 0.0}, "ridge additive foldable"),
        ({"imputation_rate": 0.2}, "ridge imputing additive foldable"),
        ({"imputation_rate": "balanced"}, "ridge imputing additive foldable"),
        ({"imputation_rate": 0.2, "link": "exp"}, "ridge imputing additive"),
        ({"imputation_rate": 0.0, "link": "exp"}, "ridge additive foldable"),
        ({"sketch": "sjlt", "moments": "sketched"}, "ridge imputing sketched additive foldable"),
        ({"sketch": "sjlt", "moments": "exact"}, "ridge imputing sketched additive foldable"),
        ({"sketch": "sjlt", "moments": "anchored"}, "ridge imputing sketched additive"),
        ({"sketch": "sjlt", "moments": "corrected"}, "ridge imputing sketched"),
    ],
    ids=str,
)
def test_traits_follow_from_the_parameters(parameters: dict[str, Any], expected: str) -> None:
    assert ridge(**parameters).traits == set(expected.split())


class TestRefusals:
    def test_a_code_beyond_the_actions(self) -> None:
        for name in ("puir", "spuir"):
            policy = ridge(name, **({"sketch_size": 5} if name == "spuir" else {}))
            batch = batch_of(contexts=np.ones((9, D)), actions=[0] * 8 + [M], rewards=[0.0] * 9)
            with pytest.raises(InputError, match="code 3 at row 8"):
                policy.learn(start(policy), batch, generator(2, "learn"))

    def test_blocks_that_do_not_divide_the_sketch(self) -> None:
        with pytest.raises(ParameterError, match="divisible"):
            ridge("spuir", sketch_size=10, sketch_blocks=3)

    def test_a_state_of_other_features(self) -> None:
        state = learnt(ridge())
        ridge().check_state(state)
        with pytest.raises(ParameterError, match="5 features"):
            ridge(intercept=True).check_state(state)

    def test_collecting_what_cannot_be_sharded(self) -> None:
        batch = make_batch(generator(1, "rows"), 20, D, M)
        two_passes = ridge("spuir", moments="corrected", sketch_size=10)
        shards = [two_passes.collect(start(two_passes), batch, generator(2, "learn")) for _ in range(2)]
        with pytest.raises(ShardError, match="twice"):
            _ = shards[0] + shards[1]
        unfixed = ridge("puir-kernel")
        with pytest.raises(ShardError, match="feature map"):
            unfixed.collect(start(unfixed), batch, generator(2, "learn"))

    @pytest.mark.parametrize("name", ["puir", "spuir"])
    def test_a_value_that_is_not_finite(self, name: str) -> None:
        policy = ridge(name, **({"sketch_size": 5} if name == "spuir" else {}))
        batch = make_batch(generator(1, "rows"), 20, D, M)
        batch.contexts[13, 2] = np.nan
        with pytest.raises(InputError, match="row 13, column 2"):
            policy.learn(start(policy), batch, generator(2, "learn"))


class TestFeatures:
    def test_an_intercept_is_a_column_of_ones(self) -> None:
        inside, outside = ridge(intercept=True), ridge()
        first, second = start(inside), start(outside, dim=D + 1)
        for n in range(2):
            batch = make_batch(generator(1, "rows", n), 40, D, M, weights=True)
            first, _ = inside.learn(first, batch, generator(2, "learn", n))
            wide = np.column_stack([batch.contexts, np.ones(40)])
            second, _ = outside.learn(second, replace(batch, contexts=wide), generator(2, "learn", n))
        np.testing.assert_allclose(
            inside.readout(first).solved.theta, outside.readout(second).solved.theta, rtol=1e-10, atol=1e-12
        )

    @pytest.mark.parametrize("name", ["puir-kernel", "spuir-kernel"])
    def test_a_kernel_is_fixed_by_the_first_batch_and_stays(self, name: str) -> None:
        policy = ridge(name, n_features=11, **({"sketch_size": 15} if "sp" in name else {}))
        state = start(policy)
        assert not policy.feature_map.fixed(state.features)
        contexts = make_batch(generator(3, "probe"), 6, D, 1).contexts
        means, widths = policy.estimates(state, contexts)
        assert not means.any() and np.all(widths == 1.0)
        first, _ = policy.learn(state, make_batch(generator(1, "rows", 0), 40, D, M), generator(2, "learn", 0))
        assert policy.feature_map.fixed(first.features) and not policy.feature_map.fixed(state.features)
        second, _ = policy.learn(first, make_batch(generator(1, "rows", 1), 40, D, M), generator(2, "learn", 1))
        assert second.features is first.features

    def test_sums_over_features_are_sums_over_mapped_rows(self) -> None:
        policy, plain = ridge(features="fourier", n_features=7, bandwidth=1.3, raw=True, intercept=True), ridge()
        state = start(policy)
        batch = make_batch(generator(1, "rows"), 40, D, M)
        after, _ = policy.learn(state, batch, generator(2, "learn"))
        mapped = policy.feature_map.apply(state.features, batch.contexts)
        expected, _ = plain.learn(start(plain, dim=7 + D + 1), replace(batch, contexts=mapped), generator(2, "learn"))
        np.testing.assert_allclose(after.observed.gram, expected.observed.gram, rtol=1e-12, atol=1e-12)


class TestStandardErrors:
    @pytest.mark.parametrize("value", [0.1, 4.0])
    @pytest.mark.parametrize("weights", [False, True])
    def test_they_are_those_of_the_ridge_fit_on_observed_rows(self, value: float, weights: bool) -> None:
        policy = ridge(ridge=value, imputation_rate=0.5)
        batches = [make_batch(generator(1, "rows", n), 40, D, M, weights=weights) for n in range(2)]
        state = start(policy)
        for n, batch in enumerate(batches):
            state, _ = policy.learn(state, batch, generator(2, "learn", n))
        errors = policy.standard_errors(state)
        for j in range(M):
            own = [batch.actions == j for batch in batches]
            S = np.concatenate([b.contexts[o] for b, o in zip(batches, own, strict=True)])
            R = np.concatenate([b.rewards[o] for b, o in zip(batches, own, strict=True)])
            w = np.ones(len(S))
            if weights:
                w = np.concatenate([b.weights[o] for b, o in zip(batches, own, strict=True) if b.weights is not None])
            W = np.diag(w)
            inverse = np.linalg.inv(S.T @ W @ S + value * np.eye(D))
            theta = inverse @ S.T @ W @ R
            freedom = w.sum() - np.trace(inverse @ S.T @ W @ S)
            variance = (R - S @ theta) @ W @ (R - S @ theta) / freedom
            expected = np.sqrt(variance * np.diag(inverse @ S.T @ W @ S @ inverse))
            np.testing.assert_allclose(errors[j], expected, rtol=1e-9)

    def test_they_shrink_to_the_spread_of_estimates(self) -> None:
        policy, rng = ridge("sbucb", ridge=1e-6), generator(7, "spread")
        truth, thetas, errors = rng.normal(size=(1, D)), [], []
        for _ in range(300):
            batch = make_batch(rng, 60, D, 1, truth=truth)
            state, _ = policy.learn(start(policy, 1), batch, rng)
            thetas.append(policy.readout(state).solved.theta[0])
            errors.append(policy.standard_errors(state)[0])
        # A standard deviation from 300 draws is within 25 % of its expectation but once in 10⁹ times.
        np.testing.assert_allclose(np.mean(errors, axis=0), np.std(thetas, axis=0), rtol=0.25)

    def test_without_degrees_of_freedom_there_are_none(self) -> None:
        policy = ridge("sbucb", ridge=1e-9)
        state, _ = policy.learn(
            start(policy), make_batch(generator(1, "rows"), 2, D, M, actions=[0]), generator(2, "x")
        )
        errors = policy.standard_errors(state)
        assert np.isnan(errors[1:]).all()


@pytest.mark.parametrize("moments", ["anchored", "sketched", "exact", "corrected"])
@pytest.mark.parametrize("noise", [0.3, 3.0])
def test_standard_errors_tell_what_a_sketch_adds(moments: str, noise: float) -> None:
    policy = ridge("spuir", sketch_size=60, moments=moments)
    off, errors = [], []
    for seed in range(30):
        rng = generator(8, "sketch", seed)
        truth, state = rng.normal(size=(M, D)), start(policy)
        for _ in range(3):
            contexts, actions = rng.normal(size=(600, D)), rng.integers(M, size=600)
            rewards = np.einsum("np,np->n", contexts, truth[actions]) + noise * rng.normal(size=600)
            state, _ = policy.learn(state, batch_of(contexts=contexts, actions=actions, rewards=rewards), rng)
        fitted = solve(state.observed.gram.copy(), state.observed.moment, policy.ridge).theta
        off.append(fitted - truth)
        errors.append(policy.standard_errors(state))
    # 360 errors of 30 independent runs: a share of 0.95 is estimated to ±0.02, the bounds are three times that.
    covered = np.mean(np.abs(off) <= 2.0 * np.array(errors))
    assert 0.88 < covered < 0.99 and np.min(errors) > 0
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.sqrt(np.mean(np.square(off))), rel=0.3)


class TestAdvice:
    """A policy that cannot learn the average reward says so once, and only where it is true."""

    def rows(self, mean: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rng = np.random.default_rng(3)
        return rng.normal(size=(200, 2)), rng.integers(2, size=200), mean + rng.normal(size=200)

    def test_it_warns_of_rewards_that_do_not_average_0(self) -> None:
        X, actions, rewards = self.rows(1.0)
        bandit = spuir.Bandit("puir", 2, random_state=0)
        with pytest.warns(InterceptWarning, match=r"'puir' has no intercept.*rewards average 1\.\d+.*intercept=True"):
            bandit.partial_fit(X, actions, rewards)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            bandit.partial_fit(X + 1.0, actions, rewards)  # once is enough

    def test_it_is_silent_where_something_stands_for_the_average(self) -> None:
        X, actions, rewards = self.rows(1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            spuir.Bandit("puir", 2, random_state=0).partial_fit(*self.rows(0.0))
            spuir.Bandit("puir", 2, random_state=0).partial_fit(np.column_stack([X, np.ones(200)]), actions, rewards)
            spuir.Bandit("puir", 2, random_state=0, intercept=True).partial_fit(X, actions, rewards)
            spuir.Bandit(actions=2, random_state=0).partial_fit(X, actions, rewards)
            spuir.run("puir", "synthetic", episodes=1, batch_size=100)  # policies are compared as they are
