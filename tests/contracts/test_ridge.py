"""Every ridge policy against the paper's formulas written out, and the limits in which policies coincide."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from benchmarks.naive import NaivePolicy
from spuir import Bandit, make_policy
from spuir.base import streams
from spuir.base.records import Batch
from spuir.policies.ridge import Ridge
from spuir.policies.thompson import Thompson
from spuir.testing.trial import contexts, enriched, episode, frozen, require_close
from tests.contracts.cases import CASES

RIDGE = {case: policy for case, policy in CASES.items() if isinstance(policy, Ridge)}
SIZES = (60, 200, 30, 170)


def batch_of(policy, number, size, actions):
    rows = episode(policy, number, size, actions=actions)
    rows = enriched(rows, actions) if number else rows
    given = {name: value for name, value in rows.columns().items() if name not in ("X", "sample_weight")}
    chances = np.linspace(0.05, 1.0, size)
    return Batch(contexts=rows.X, weights=rows.sample_weight, **{**given, "propensities": chances})


def naive_of(policy, n_actions, width):
    """Return the paper's own form with the policy's parameters."""
    sketch = None if policy.sketch == "identity" else policy.learner.summation.sketch
    given = {item.name for item in fields(NaivePolicy)} & {item.name for item in fields(policy)} - {"sketch"}
    return NaivePolicy(n_actions, width, sketch=sketch, **{name: getattr(policy, name) for name in given})


def weights_of(policy, batch):
    weights = np.ones(len(batch)) if batch.weights is None else batch.weights
    if isinstance(policy, Thompson) and policy.propensity_floor:
        return weights / np.maximum(policy.propensity_floor, batch.propensities)
    return weights


@pytest.mark.parametrize("policy", RIDGE.values(), ids=RIDGE)
@pytest.mark.parametrize("like", [None, 1], ids=["cold", "copy"])
def test_learning_is_the_paper_written_out(policy, like):
    """Weights, revealed rewards, a schedule, a new action, episodes below and above the size of the sketch."""
    state = policy.fix(policy.init(3, 5, streams.generator(0, "init")), contexts(300))
    naive = naive_of(policy, 3, policy.feature_map.width(5))
    for number, size in enumerate(SIZES):
        if number == 2:
            state = policy.grow(state, like)
            naive.add(like)
        batch = batch_of(policy, number, size, state.n_actions)
        key = int(streams.generator(1, "learn", number).integers(2**63))
        state, info = policy.learn(state, batch, streams.generator(1, "learn", number))
        rows = policy.feature_map.apply(state.features, batch.contexts)
        naive.learn(replace(batch, contexts=rows, weights=weights_of(policy, batch)), key)
        X = contexts(30)
        found = policy.table(state, X, np.ones((30, state.n_actions), bool))
        means, widths, _ = naive.tables(policy.feature_map.apply(state.features, X))
        require_close(found.means, means, f"means after {number + 1} episodes")
        require_close(found.widths, widths, f"widths after {number + 1} episodes")
        require_close(info.rate, [naive.gamma(j) for j in range(state.n_actions)], "rates")


def played(policy, batches=(80, 200, 60), actions=4):
    bandit = Bandit(policy, actions, random_state=3)
    decided = []
    for number, size in enumerate(batches):
        bandit.partial_fit(**episode(policy, number, size, actions=actions).columns())
        decision = bandit.decide(contexts(100))
        decided.append((decision.actions, decision.propensities, decision.scores))
    return bandit, decided


@pytest.mark.parametrize("name", ["puir", "puir-rs", "puir-exp", "puir-kernel"])
def test_without_imputation_puir_is_sbucb_to_the_last_bit(name):
    policy: Any = make_policy(name, imputation_rate=0.0, link="linear", alpha=0.3)
    plain = make_policy("sbucb", alpha=0.3, features=policy.features)
    (bandit, decided), (other, expected) = played(policy), played(plain)
    for found, wanted in zip(decided, expected, strict=True):
        for left, right in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(bandit.coefficients_, other.coefficients_)


def test_a_sketch_as_large_as_the_batch_changes_nothing():
    exact = make_policy("spuir", sketch="identity")
    for moments in ("sketched", "exact", "corrected", "anchored"):
        hashed = make_policy("spuir", sketch_size=200, moments=moments)
        for left, right in zip(played(hashed)[1], played(exact)[1], strict=True):
            require_close(left[2], right[2], moments)


def test_full_imputation_of_one_episode_repeats_the_estimate():
    """γ = 1 after one cold episode: the imputed rows carry the reward 0 that θ = 0 predicts, so Ψ_j = λI + SᵀS."""
    policy = make_policy("puir", imputation_rate=1.0, ridge=0.5)
    bandit, rows = Bandit(policy, 4, random_state=0), episode(policy, 0, 300)
    bandit.partial_fit(**rows.columns())
    whole = rows.X.T @ rows.X + 0.5 * np.eye(5)
    for j in range(4):
        own = rows.actions == j
        require_close(bandit.coefficients_[j], np.linalg.solve(whole, rows.X[own].T @ rows.rewards[own]), f"action {j}")


@pytest.mark.parametrize("name", ["puir", "spuir", "puir-poly"])
@pytest.mark.parametrize("screen", [True, False])
def test_revealing_everything_is_the_same_for_every_executed_action(name, screen):
    """Under full information nothing is imputed, and what was executed makes no difference."""
    policy = make_policy(name, imputation_rate=0.5, screen=screen, sketch="identity")
    rows = episode(policy, 0, 150)
    table = streams.generator(5, "all").normal(0.5, 0.2, (150, 4))
    results = []
    for executed in (rows.actions, np.zeros(150, np.intp)):
        bandit = Bandit(policy, 4, random_state=1)
        given = replace(rows, actions=executed, rewards=table[np.arange(150), executed])
        full = replace(given, revealed=np.ones((150, 4), bool), revealed_rewards=table)
        results.append(bandit.partial_fit(**full.columns()).coefficients_)
    require_close(results[1], results[0], "coefficients")
    expected = np.linalg.solve(rows.X.T @ rows.X + np.eye(5), rows.X.T @ table).T
    require_close(results[0], expected, "plain ridge regressions")


@pytest.mark.parametrize("policy", [p for p in RIDGE.values() if hasattr(p, "screen")][::3], ids=lambda p: p.name)
def test_the_shared_bound_chooses_what_the_dense_path_chooses(policy):
    decided = []
    for screen in (True, False):
        bandit = played(replace(policy, screen=screen))[0]
        decision = bandit.decide(contexts(2000))
        decided.append((decision.actions, decision.propensities))
    for left, right in zip(*decided, strict=True):
        np.testing.assert_array_equal(left, right)


def test_swapping_the_rate_for_zero_and_back_keeps_the_state():
    """Parameters are arguments of a step, not part of the state."""
    bandit = played(make_policy("puir"))[0]
    before = frozen(bandit)[1]
    bandit.set_params(policy__imputation_rate=0.0).decide(contexts(5))
    bandit.set_params(policy__imputation_rate=0.1)
    assert frozen(bandit)[1] == before
