"""Thompson acting and balanced learning, each against its definition written out."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr

from spuir import make_policy
from spuir.base.records import Batch
from spuir.base.streams import generator
from spuir.errors import InputError
from spuir.policies.learner import RidgeState
from spuir.policies.thompson import Thompson
from tests.identities.episodes import make_batch

M, D, N = 3, 4, 25


def thompson(name: str = "linear-thompson", **parameters: Any) -> Thompson:
    made = make_policy(name, **parameters)
    assert isinstance(made, Thompson)
    return made


def learnt(policy: Thompson, episodes: int = 2, **feedback: Any) -> RidgeState:
    state = policy.init(M, D, generator(0, "init"))
    for n in range(episodes):
        batch = make_batch(generator(1, "rows", n), 30, D, M, noise=1.0, **feedback)
        state, _ = policy.learn(state, batch, generator(2, "learn", n))
    return state


CONTEXTS = make_batch(generator(3, "probe"), N, D, 1).contexts
ALL = np.ones((N, M), np.bool_)


def win_probability(means: np.ndarray, sds: np.ndarray, j: int) -> float:
    """Return P(score j is the largest) by adaptive quadrature over its own normal."""

    def integrand(x: float) -> float:
        z = means[j] + sds[j] * x
        others = [ndtr((z - means[k]) / sds[k]) for k in range(len(means)) if k != j]
        return math.exp(-x * x / 2) / math.sqrt(2 * math.pi) * math.prod(others)

    return quad(integrand, -9, 9, limit=200)[0]


def test_probabilities_are_those_of_independent_normal_scores() -> None:
    policy = thompson(scale=0.7)
    state = learnt(policy)
    table = policy.table(state, CONTEXTS, ALL)
    solved = policy.readout(state).solved
    upper = np.triu(solved.upper)
    inverse = np.linalg.inv(upper.transpose(0, 2, 1) @ upper)
    for i, s in enumerate(CONTEXTS[:4]):
        means, widths = solved.theta @ s, np.sqrt(np.einsum("p,mpq,q->m", s, inverse, s))
        np.testing.assert_allclose(table.means[i], means, rtol=1e-10)
        np.testing.assert_allclose(table.widths[i], widths, rtol=1e-10)
        expected = [win_probability(means, 0.7 * widths, j) for j in range(M)]
        np.testing.assert_allclose(table.probabilities[i], expected, atol=1e-4)
    np.testing.assert_array_equal(table.scores, table.means)


def test_propensities_are_the_tables_and_restricted_to_the_eligible() -> None:
    policy = thompson(floor=0.05)
    state = learnt(policy)
    mask = ALL.copy()
    mask[::2, 1] = False
    decision = policy.decide(state, CONTEXTS, generator(4, "draw"), mask)
    table = policy.table(state, CONTEXTS, mask).probabilities
    np.testing.assert_allclose(decision.propensities, table[np.arange(N), decision.actions], rtol=1e-12)
    assert not table[::2, 1].any() and np.all(table[mask] >= 0.05)
    np.testing.assert_allclose(table.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(decision.probabilities, table, rtol=1e-12)
    assert decision.exact


def test_without_spread_it_is_greedy_and_splits_ties() -> None:
    policy = thompson(scale=0.0)
    state = learnt(policy)
    table = policy.table(state, CONTEXTS, ALL)
    np.testing.assert_array_equal(table.probabilities.argmax(axis=1), table.means.argmax(axis=1))
    assert set(table.probabilities.ravel()) == {0.0, 1.0}
    tied = policy.table(policy.grow(state, 1), CONTEXTS, np.ones((N, M + 1), np.bool_)).probabilities
    won = table.probabilities[:, 1] == 1.0
    assert won.any()
    np.testing.assert_allclose(tied[won][:, [1, 3]], 0.5)


def test_more_spread_means_more_exploration() -> None:
    state = learnt(thompson())
    shares = [
        thompson(scale=scale).table(state, CONTEXTS, ALL).probabilities.max(axis=1).mean() for scale in (0.01, 0.3, 30)
    ]
    assert shares[0] > shares[1] > shares[2] > 1 / M


class TestBalancing:
    """A row weighs 1/max(f, p): f the floor, p the probability of its action under the state before the update."""

    def expected(self, batch: Batch, weights: np.ndarray, value: float) -> np.ndarray:
        theta = np.zeros((M, D))
        for j in range(M):
            gram, moment = value * np.eye(D), np.zeros(D)
            for b in np.flatnonzero(batch.actions == j):
                gram = gram + weights[b] * np.outer(batch.contexts[b], batch.contexts[b])
                moment = moment + weights[b] * batch.rewards[b] * batch.contexts[b]
            theta[j] = np.linalg.solve(gram, moment)
        return theta

    @pytest.mark.parametrize("value", [0.5, 4.0])
    def test_given_propensities_are_used(self, value: float) -> None:
        policy = thompson("blts-b", ridge=value)
        batch = make_batch(generator(5, "rows"), 40, D, M)
        p = np.linspace(0.05, 1.0, 40)
        state, _ = policy.learn(
            policy.init(M, D, generator(0, "init")), replace(batch, propensities=p), generator(6, "x")
        )
        expected = self.expected(batch, 1 / np.maximum(0.2, p), value)
        np.testing.assert_allclose(policy.readout(state).solved.theta, expected, rtol=1e-9)

    def test_without_them_the_policys_own_at_its_current_state(self) -> None:
        policy = thompson("blts-b", scale=0.6)
        state = learnt(policy, weights=False)
        batch = make_batch(generator(5, "rows"), 40, D, M)
        eligible = np.ones((40, M), np.bool_)
        eligible[:20, 0] = batch.actions[:20] == 0
        for mask in (None, eligible):
            everyone = np.ones((40, M), np.bool_) if mask is None else mask
            own = policy.table(state, batch.contexts, everyone).probabilities[np.arange(40), batch.actions]
            p = np.maximum(own, 1e-9)  # below the floor the value does not matter
            implicit, _ = policy.learn(state, replace(batch, eligible=mask), generator(6, "x"))
            explicit, _ = policy.learn(state, replace(batch, eligible=mask, propensities=p), generator(6, "x"))
            np.testing.assert_allclose(implicit.observed.gram, explicit.observed.gram, rtol=1e-12)
            np.testing.assert_allclose(implicit.observed.moment, explicit.observed.moment, rtol=1e-12, atol=1e-14)

    def test_row_weights_multiply(self) -> None:
        policy = thompson("blts-b")
        batch = make_batch(generator(5, "rows"), 40, D, M, weights=True)
        assert batch.weights is not None
        p = np.full(40, 0.5)
        state, _ = policy.learn(
            policy.init(M, D, generator(0, "init")), replace(batch, propensities=p), generator(6, "x")
        )
        expected = self.expected(batch, 2 * batch.weights, 1.0)
        np.testing.assert_allclose(policy.readout(state).solved.theta, expected, rtol=1e-9)

    def test_a_floor_of_one_is_no_balancing_and_neither_is_nought(self) -> None:
        batch = make_batch(generator(5, "rows"), 40, D, M)
        thetas = []
        for policy in (thompson(), thompson("blts-b", propensity_floor=1.0)):
            state, _ = policy.learn(policy.init(M, D, generator(0, "init")), batch, generator(6, "x"))
            thetas.append(policy.readout(state).solved.theta)
        np.testing.assert_array_equal(thetas[0], thetas[1])
        np.testing.assert_allclose(thetas[0], self.expected(batch, np.ones(40), 1.0), rtol=1e-9)

    def test_balancing_reads_the_acting_state(self) -> None:
        assert "foldable" in thompson().traits
        assert "foldable" not in thompson("blts-b").traits
        assert "sampling" in thompson("blts-b").traits


class TestMonteCarlo:
    policy = thompson("blts-b", preset="paper")

    def test_the_preset_holds_the_authors_values(self) -> None:
        policy = self.policy
        assert (policy.scale, policy.propensity_floor, policy.propensity_draws, policy.ridge) == (0.25, 0.2, 100, 1.0)

    def test_propensities_are_marked_as_estimates_and_never_nought(self) -> None:
        state = learnt(thompson())
        decision = self.policy.decide(state, np.repeat(CONTEXTS, 40, axis=0), generator(4, "draw"))
        assert not decision.exact
        assert decision.propensities.min() >= 1 / 101 and decision.propensities.max() <= 1.0

    def test_actions_and_estimates_follow_the_exact_probabilities(self) -> None:
        state = learnt(thompson(scale=2.0))
        policy = replace(self.policy, scale=2.0, floor=0.1)
        n = 3000
        contexts = np.repeat(CONTEXTS[:1], n, axis=0)
        decision = policy.decide(state, contexts, generator(4, "draw"))
        exact = policy.table(state, CONTEXTS[:1], ALL[:1]).probabilities[0]
        # A share of 3,000 draws has a standard error of at most 0.0092; five of them: wrong once in 600,000.
        np.testing.assert_allclose(np.bincount(decision.actions, minlength=M) / n, exact, atol=5 * 0.0092)
        for j in range(M):
            estimates = decision.propensities[decision.actions == j]
            # Each estimate is (hits + 1)/101, mixed with the floor: biased by less than 0.01, with an error of 0.05.
            assert estimates.mean() == pytest.approx(exact[j], abs=0.01 + 5 * 0.05 / math.sqrt(len(estimates)))

    def test_too_high_a_floor_is_refused(self) -> None:
        with pytest.raises(InputError, match="floor"):
            replace(self.policy, floor=0.4).decide(learnt(thompson()), CONTEXTS, generator(4, "draw"))

    def test_learning_without_propensities_estimates_them(self) -> None:
        state = learnt(thompson())
        batch = make_batch(generator(5, "rows"), 40, D, M)
        after, info = self.policy.learn(state, batch, generator(6, "x"))
        # Every weight 1/max(0.2, p) lies between 1 and 5.
        counts = np.bincount(batch.actions, minlength=M)
        assert np.all(info.counts >= counts) and np.all(info.counts <= 5 * counts)
        again, _ = self.policy.learn(state, batch, generator(6, "x"))
        np.testing.assert_array_equal(after.observed.gram, again.observed.gram)
