"""BEXP3 and BEXP3-IPW against their equations, written out as loops over rows."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from spuir.base.packing import pack, unpack
from spuir.base.records import Batch
from spuir.base.streams import generator
from spuir.errors import InputError, NumericalError, ParameterError
from spuir.policies import bexp3, make_policy
from spuir.policies.bexp3 import ExponentialState

M, D = 4, 3
NAMES = ("bexp3", "bexp3-ipw")
make: Any = make_policy  # states are told apart by what they hold, not by type


def batch_of(seed, n=40, m=M, **more):
    """Rows on which action m − 1 is never played, with rewards that depend on context and action."""
    rng = generator(seed, "batch")
    contexts = rng.normal(size=(n, D))
    actions = rng.integers(max(1, m - 1), size=n)
    rewards = contexts[:, 0] * (actions - 1) + 0.3 * rng.normal(size=n) + 0.5
    return Batch(contexts=contexts, actions=actions, rewards=rewards, **more)


def masked(batch, m=M) -> Any:
    """The batch with some actions ineligible, never the executed one."""
    eligible = generator(9, "mask").random((len(batch), m)) < 0.6
    eligible[np.arange(len(batch)), batch.actions] = True
    return replace(batch, eligible=eligible)


def weighted(batch) -> Any:
    return replace(batch, weights=generator(8, "weights").integers(0, 4, size=len(batch)).astype(float))


def learnt(policy, *batches, m=M):
    state = policy.init(m, D, generator(0, "init"))
    for batch in batches:
        state, _ = policy.learn(state, batch, generator(0, "learn"))
    return state


def chances(totals, rate, mixing, context, eligible):
    """π(·|s) of one row, action by action."""
    logits = {a: rate * float(totals[a] @ context) for a in range(len(totals)) if eligible[a]}
    top = max(logits.values())
    norm = sum(np.exp(value - top) for value in logits.values())
    out = np.zeros(len(totals))
    for a, value in logits.items():
        out[a] = (1 - mixing) * np.exp(value - top) / norm + mixing / len(logits)
    return out


def row_of(batch, b):
    """Weight, context, action, reward and eligibility of one row."""
    weight = 1.0 if batch.weights is None else batch.weights[b]
    eligible = np.ones(M, bool) if batch.eligible is None else batch.eligible[b]
    return weight, np.asarray(batch.contexts[b], dtype=float), batch.actions[b], batch.rewards[b], eligible


def naive_step(name, totals, rate, batch, ridge=1.0, mixing=0.001, cap=100.0):
    """Θ after one episode, steps accumulated: notes' equations row by row."""
    total_weight = sum(row_of(batch, b)[0] for b in range(len(batch)))
    out = totals.copy()
    for action in range(len(totals)):
        gram, moment = ridge * np.eye(D), np.zeros(D)
        for b in range(len(batch)):
            weight, s, executed, reward, eligible = row_of(batch, b)
            p = chances(totals, rate, mixing, s, eligible)
            if name == "bexp3":
                gram += weight * p[action] * np.outer(s, s)
                moment += weight * reward * s * (executed == action)
            elif executed == action:
                known = p[action] if batch.propensities is None else batch.propensities[b]
                share = min(cap, 1 / known) if known else cap
                gram += weight * share * np.outer(s, s)
                moment += weight * share * reward * s
        out[action] += total_weight * np.linalg.solve(gram, moment)
    return out


@pytest.mark.parametrize("ridge", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("change", [lambda b: b, weighted, masked, lambda b: weighted(masked(b))])
@pytest.mark.parametrize("name", NAMES)
def test_two_episodes_follow_the_equations(name, change, ridge):
    policy = make(name, ridge=ridge, rate=0.02, mixing=0.1)
    first, second = change(batch_of(1)), change(batch_of(2))
    expected = naive_step(name, np.zeros((M, D)), 0.02, first, ridge, 0.1)
    state = learnt(policy, first)
    assert_allclose(state.totals, expected, rtol=1e-9, atol=1e-9)
    # By now π is far from uniform, so that the state that acted matters.
    expected = naive_step(name, expected, 0.02, second, ridge, 0.1)
    state, info = policy.learn(state, second, generator(0, "learn"))
    assert_allclose(state.totals, expected, rtol=1e-9, atol=1e-9)
    assert (state.episode, info.rows, info.code) == (2, 40, 0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", [lambda b: b, weighted])
def test_the_authors_variant_adds_one_fit_on_all_rows_per_episode(name, change):
    policy = make(name, preset="paper", ridge=2.0, rate=0.05)
    state, totals, seen = learnt(policy), np.zeros((M, D)), []
    for batch in (change(batch_of(1)), change(batch_of(2)), change(batch_of(3))):
        for b in range(len(batch)):
            weight, s, executed, reward, eligible = row_of(batch, b)
            share = 1.0
            if name == "bexp3-ipw":
                share = min(100, 1 / chances(totals, 0.05, 0.001, s, eligible)[executed])
            seen.append((weight * share, s, executed, reward))
        for action in range(M):
            gram, moment = 2.0 * np.eye(D), np.zeros(D)
            for weight, s, executed, reward in seen:
                if executed == action:
                    gram += weight * np.outer(s, s)
                    moment += weight * reward * s
            totals[action] += np.linalg.solve(gram, moment)
        state, _ = policy.learn(state, batch, generator(0, "learn"))
        assert_allclose(state.totals, totals, rtol=1e-9, atol=1e-10)
    s = batch.contexts[:5]
    assert_allclose(policy.table(state, s, np.ones((5, M), bool)).means, s @ totals.T / 3, rtol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_a_cold_policy_is_uniform(name):
    policy = make(name)
    state = learnt(policy)
    eligible = np.array([[True] * M, [True, False, True, False]])
    table = policy.table(state, np.ones((2, D)), eligible)
    assert_allclose(table.probabilities, [[0.25] * M, [0.5, 0, 0.5, 0]], rtol=1e-15)
    assert not table.means.any() and not table.scores.any() and not table.widths.any()


@pytest.mark.parametrize("name", NAMES)
def test_an_action_never_played_keeps_no_estimate(name):
    state = learnt(make(name), batch_of(1), batch_of(2))
    assert not state.totals[M - 1].any()
    assert state.totals[: M - 1].all()
    assert_array_equal(state.counts, np.bincount(np.r_[batch_of(1).actions, batch_of(2).actions], minlength=M))


@pytest.mark.parametrize("name", NAMES)
def test_one_row_and_one_action(name):
    policy = make(name, ridge=4.0)
    batch = Batch(contexts=np.array([[1.0, 2.0, 0.0]]), actions=np.array([0]), rewards=np.array([3.0]))
    state = learnt(policy, batch, m=1)
    # One action is certain: (4I + ssᵀ)⁻¹ s·3 = 3s/(4 + |s|²).
    assert_allclose(state.totals, [[3 / 9, 6 / 9, 0]], rtol=1e-12)
    assert policy.rate_at(state) == 0
    assert_array_equal(policy.table(state, batch.contexts, np.ones((1, 1), bool)).probabilities, [[1]])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("preset", [None, "paper"])
def test_weights_are_copies(name, preset):
    policy = make(name, preset=preset)
    batch = weighted(masked(batch_of(3)))
    copies = np.repeat(np.arange(len(batch)), batch.weights.astype(int))
    repeated = Batch(
        contexts=batch.contexts[copies],
        actions=batch.actions[copies],
        rewards=batch.rewards[copies],
        eligible=batch.eligible[copies],
    )
    one, other = learnt(policy, batch, batch), learnt(policy, repeated, repeated)
    assert_allclose(one.totals, other.totals, rtol=1e-10, atol=1e-12)
    assert_array_equal(one.counts, other.counts)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("preset", [None, "paper"])
def test_shards_row_order_and_layouts_agree(name, preset, monkeypatch):
    policy = make(name, preset=preset)
    start = learnt(policy, batch_of(1))
    batch = weighted(masked(batch_of(2)))
    whole, _ = policy.learn(start, batch, generator(0, "learn"))

    def piece(rows, contexts=batch.contexts):
        columns = {k: getattr(batch, k)[rows] for k in ("actions", "rewards", "weights", "eligible")}
        return Batch(contexts=contexts[rows], **columns)

    rng = generator(0, "shards")
    left, right = policy.collect(start, piece(slice(25, 40)), rng), policy.collect(start, piece(slice(0, 25)), rng)
    sharded, info = policy.absorb(start, left + right)
    assert_allclose(sharded.totals, whole.totals, rtol=1e-10, atol=1e-12)
    assert_array_equal(sharded.counts, whole.counts)
    assert info.rows == 40
    for contexts in (np.asfortranarray(batch.contexts), csr_array(batch.contexts)):
        other, _ = policy.learn(start, piece(generator(1, "order").permutation(40), contexts), rng)
        assert_allclose(other.totals, whole.totals, rtol=1e-10, atol=1e-12)
    single, _ = policy.learn(start, piece(slice(None), batch.contexts.astype(np.float32)), rng)
    assert_allclose(single.totals, whole.totals, rtol=1e-5, atol=1e-5)
    monkeypatch.setattr(bexp3, "blocks", lambda n, _: (slice(at, min(n, at + 7)) for at in range(0, n, 7)))
    blocked, _ = policy.learn(start, batch, rng)
    assert_allclose(blocked.totals, whole.totals, rtol=1e-10, atol=1e-12)


def test_given_propensities_weigh_the_rows_of_ipw_up_to_the_cap():
    batch = replace(batch_of(4), propensities=np.geomspace(1e-6, 1, 40))
    for cap in (5.0, 100.0):
        found = learnt(make("bexp3-ipw", weight_cap=cap), batch)
        assert_allclose(found.totals, naive_step("bexp3-ipw", np.zeros((M, D)), 0.0, batch, cap=cap), rtol=1e-9)
    plain = learnt(make("bexp3"), batch)
    assert_array_equal(plain.totals, learnt(make("bexp3"), batch_of(4)).totals)


def test_an_action_executed_against_all_odds_weighs_the_cap():
    batch = batch_of(4)
    eligible = np.ones((40, M), bool)
    eligible[np.arange(40), batch.actions] = False
    found = learnt(make("bexp3-ipw", weight_cap=7.0), replace(batch, eligible=eligible))
    expected = naive_step("bexp3-ipw", np.zeros((M, D)), 0.0, replace(batch, propensities=np.full(40, 1 / 7)))
    assert_allclose(found.totals, expected, rtol=1e-9)


def test_the_rate_and_its_horizon():
    state = learnt(make("bexp3"), batch_of(1), batch_of(2))

    def formula(horizon, mixing=0.001):
        return np.sqrt(2 * (1 - mixing) * np.log(M) / (M * horizon))

    for parameters, horizon in (
        ({}, 80),
        ({"episodes": 90, "batch_size": 1400}, 126_000),
        ({"episodes": 90}, 90 * 40),
        ({"batch_size": 1400}, 2 * 1400),
    ):
        assert_allclose(make("bexp3", **parameters).rate_at(state), formula(horizon), rtol=1e-14)
    assert make("bexp3", rate=0.7, episodes=9).rate_at(state) == 0.7
    assert_allclose(make("bexp3", mixing=0.5).rate_at(learnt(make("bexp3"))), formula(1, 0.5))


@pytest.mark.parametrize("name", NAMES)
def test_table_holds_logits_mean_rewards_and_mixed_probabilities(name):
    policy = make(name, mixing=0.2, rate=0.03)
    state = learnt(policy, batch_of(1))
    contexts = generator(5, "contexts").normal(size=(6, D))
    eligible = np.ones((6, M), bool)
    eligible[2:, 1] = False
    table = policy.table(state, contexts, eligible)
    assert_allclose(table.scores, 0.03 * contexts @ state.totals.T, rtol=1e-12)
    assert_allclose(table.means, contexts @ state.totals.T / 40, rtol=1e-12)
    expected = [chances(state.totals, 0.03, 0.2, s, e) for s, e in zip(contexts, eligible, strict=True)]
    assert_allclose(table.probabilities, expected, rtol=1e-12)
    assert_allclose(table.probabilities.sum(axis=1), 1, rtol=1e-14)
    floored = make(name, mixing=0.2, rate=0.03, floor=0.1).table(state, contexts, eligible).probabilities
    share = 1 - 0.1 * eligible.sum(axis=1, keepdims=True)
    assert_allclose(floored, np.where(eligible, 0.1 + share * table.probabilities, 0), rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_learning_uses_the_probabilities_that_acted_floor_included(name):
    start = learnt(make(name, rate=0.5), batch_of(1))
    # With floor = 1/M the policy acts uniformly, whatever Θ is.
    after, _ = make(name, rate=0.5, floor=1 / M).learn(start, batch_of(2), generator(0, "learn"))
    change = naive_step(name, np.zeros((M, D)), 0.0, batch_of(2))
    assert_allclose(after.totals - start.totals, change, rtol=1e-8, atol=1e-9)


def test_huge_logits_leave_the_mixing_share():
    policy = make("bexp3", rate=1.0, mixing=0.04)
    state = replace(learnt(policy), totals=np.outer([1e6, -1e6, 0, 5.0], [1.0, 0, 0]))
    table = policy.table(state, np.array([[1.0, 0, 0]]), np.ones((1, M), bool))
    assert_allclose(table.probabilities, [[0.97, 0.01, 0.01, 0.01]], rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_frequencies_of_draws(name):
    policy = make(name, mixing=0.1)
    state = learnt(policy, batch_of(1))
    context = np.array([[0.4, -0.2, 0.1]])
    n = 100_000
    decision = policy.decide(state, np.repeat(context, n, axis=0), generator(6, "draws"))
    p = policy.table(state, context, np.ones((1, M), bool)).probabilities[0]
    assert p.max() - p.min() > 0.05
    assert_allclose(decision.propensities, p[decision.actions], rtol=1e-12)
    frequency = np.bincount(decision.actions, minlength=M) / n
    # Four comparisons at 5 standard errors: fails once in 4·10⁵ seeds.
    assert np.all(np.abs(frequency - p) <= 5 * np.sqrt(p * (1 - p) / n))


@pytest.mark.parametrize("name", NAMES)
def test_what_pays_is_chosen_more_and_the_authors_variant_hardly_moves(name):
    rng = generator(7, "paying")
    contexts, actions = np.abs(rng.normal(size=(2000, D))), rng.integers(M, size=2000)
    batch = Batch(contexts=contexts, actions=actions, rewards=(actions == 2).astype(float))
    spread = {}
    for preset in (None, "paper"):
        policy = make(name, preset=preset, episodes=10, batch_size=2000)
        table = policy.table(learnt(policy, batch), contexts, np.ones((2000, M), bool))
        assert np.all(table.probabilities.argmax(axis=1) == 2)
        spread[preset] = np.abs(table.probabilities - 1 / M).max()
    assert spread[None] > 0.5
    assert spread["paper"] < 0.05


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rewards", [1e308, 1e200])
def test_overflow_is_refused_and_the_state_untouched(name, rewards):
    policy = make(name)
    state = learnt(policy, batch_of(1))
    before = state.totals.copy()
    with pytest.raises(InputError, match=r"rewards: got .* at row 0"):
        huge = Batch(contexts=np.full((5, D), 1e120), actions=np.zeros(5, int), rewards=np.full(5, rewards))
        policy.learn(state, huge, generator(0, "learn"))
    assert_array_equal(state.totals, before)
    full = replace(state, totals=np.full((M, D), np.finfo(float).max))
    with pytest.raises(NumericalError, match="raise ridge"):
        small = np.full((5, D), 1e-150)
        loud = Batch(contexts=small, actions=np.arange(5) % M, rewards=np.full(5, 1e150), propensities=np.ones(5))
        policy = make(name, rate=0.0, ridge=1e-305)
        policy.absorb(full, policy.collect(state, loud, generator(0, "learn")))
    with pytest.raises(InputError, match="overflow"):
        policy.table(full, np.ones((1, D)), np.ones((1, M), bool))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"actions": np.full(40, M)}, f"code {M} at row 0"),
        ({"contexts": np.full((40, D), np.nan)}, "nan at row 0, column 0"),
        ({"contexts": np.full((40, D), np.inf)}, "inf at row 0, column 0"),
        ({"eligible": np.zeros((40, M), bool)}, "no action at row 0"),
        ({"eligible": np.ones((40, 2), bool)}, "shape"),
    ],
)
def test_unusable_rows_are_refused(name, change, words):
    policy = make(name)
    state = learnt(policy, batch_of(1))
    before = state.totals.copy()
    with pytest.raises(InputError, match=words):
        policy.learn(state, replace(batch_of(2), **change), generator(0, "learn"))
    assert_array_equal(state.totals, before)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "wrong",
    [{"mixing": 1.5}, {"rate": -1.0}, {"ridge": 0}, {"accumulate": "rows"}, {"episodes": 0}, {"batch_size": 2.5}],
)
def test_bad_parameters_are_refused(name, wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        make(name, **wrong)


def test_the_cap_belongs_to_ipw_and_is_at_least_one():
    with pytest.raises(ParameterError, match="weight_cap"):
        make("bexp3-ipw", weight_cap=0.5)
    with pytest.raises(ParameterError, match="no such parameter"):
        make("bexp3", weight_cap=100.0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("preset", [None, "paper"])
def test_a_new_action_starts_cold_or_like_another(name, preset):
    policy = make(name, preset=preset)
    state = learnt(policy, batch_of(1))
    cold, warm = policy.grow(state, None), policy.grow(state, 1)
    assert not cold.totals[M].any()
    assert_array_equal(warm.totals[M], state.totals[1])
    for grown in (cold, warm):
        policy.check_state(grown)
        assert_array_equal(grown.totals[:M], state.totals)
        assert_array_equal(grown.counts, [*state.counts, 0])
        table = policy.table(grown, np.ones((2, D)), np.ones((2, M + 1), bool))
        assert_allclose(table.probabilities.sum(axis=1), 1)
        after, _ = policy.learn(grown, batch_of(2, m=M + 2), generator(0, "learn"))
        assert after.totals[M].any() and after.counts[M] > 0
    assert_array_equal(
        policy.table(warm, np.ones((1, D)), np.ones((1, M + 1), bool)).means[0, [1]], state_mean(policy, state)
    )


def state_mean(policy, state):
    return policy.table(state, np.ones((1, D)), np.ones((1, M), bool)).means[0, [1]]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("preset", [None, "paper"])
def test_states_are_saved_whole_and_checked_against_the_policy(name, preset):
    policy = make(name, preset=preset)
    state = learnt(policy, batch_of(1))
    back = unpack(ExponentialState, *pack(state))
    policy.check_state(back)
    assert_array_equal(back.totals, state.totals)
    one, _ = policy.learn(state, batch_of(2), generator(0, "learn"))
    two, _ = policy.learn(back, batch_of(2), generator(0, "learn"))
    assert_array_equal(one.totals, two.totals)
    other = make(name, accumulate="episodes" if preset is None else "steps")
    with pytest.raises(ParameterError, match="accumulate"):
        other.check_state(state)
    assert policy.traits == {"additive", "sampling"} | ({"weighting"} if policy.name == "bexp3-ipw" else set())
