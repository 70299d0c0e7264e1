"""The bandwidth chosen on the first batch: its parts against naive forms, what it may not depend on, edge cases."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spuir.base import streams
from spuir.errors import NumericalError
from spuir.features.bandwidth import MULTIPLES, leave_one_out, median_distance
from spuir.features.canonical import Rows, canonical_rows, evenly_spaced
from spuir.features.fourier import Fourier


def rng(*path):
    return streams.generator(0, "test", "bandwidth", *path)


def batch(n=300, dim=3, n_actions=4, name="batch") -> tuple[Any, Any, Any]:
    source = rng(name)
    contexts = source.normal(0.1, 0.5, (n, dim))
    actions = source.integers(n_actions, size=n)
    return contexts, actions, np.sin(4 * contexts[:, 0] + actions) + 0.1 * source.standard_normal(n)


def chosen(contexts, actions, rewards, weights=None, n_features=40, **parameters: Any) -> Any:
    features = Fourier(n_features=n_features, **parameters)
    fixed: Any = features.fix(features.init(contexts.shape[1], rng("map")), contexts, actions, rewards, weights)
    return fixed.bandwidth


def naive_error(columns, rows, ridge):
    """Refit without each row in turn: one copy of it, or all of it where its weight is below one."""
    total = 0.0
    for i, action in enumerate(rows.actions):
        weights = np.where(rows.actions == action, rows.weights, 0.0)
        if np.sum(rows.actions == action) < 2:
            continue
        weights[i] -= min(rows.weights[i], 1.0)
        gram = columns.T @ (weights[:, None] * columns) + ridge * np.eye(columns.shape[1])
        theta = np.linalg.solve(gram, columns.T @ (weights * rows.rewards))
        total += rows.weights[i] * (rows.rewards[i] - columns[i] @ theta) ** 2
    return total / np.abs(rows.rewards).max() ** 2


@pytest.mark.parametrize("width", [3, 30])
@pytest.mark.parametrize("ridge", [0.1, 1.0, 4.0])
def test_leave_one_out_is_a_refit_without_each_row(width, ridge):
    contexts, actions, rewards = batch(n=60)
    actions[0] = 9
    weights = rng("weights").uniform(0.1, 3.0, 60)
    columns = rng("columns").standard_normal((60, width))
    rows = Rows(contexts=contexts, actions=actions, rewards=5 * rewards, weights=weights)
    assert leave_one_out(columns, rows, ridge) == pytest.approx(naive_error(columns, rows, ridge), rel=1e-10)


@pytest.mark.parametrize(
    "parameters", [{}, {"ridge": 100.0}, {"intercept": True}, {"raw": True}], ids=["plain", "ridge", "intercept", "raw"]
)
def test_the_choice_has_the_least_error_with_the_columns_and_the_ridge_of_the_map(parameters):
    contexts, actions, rewards = batch(n=120, n_actions=2)
    rewards = rewards + contexts[:, 1] + 5.0
    rows = canonical_rows(contexts, actions, rewards, None)
    errors = {}
    for multiple in MULTIPLES:
        bandwidth = multiple * median_distance(rows.contexts, rows.weights)
        features = Fourier(n_features=40, bandwidth=bandwidth, **parameters)
        columns = features.apply(features.init(3, rng("map")), rows.contexts)
        errors[bandwidth] = naive_error(columns, rows, features.ridge)
    assert chosen(contexts, actions, rewards, **parameters) == min(errors, key=errors.__getitem__)


def test_a_column_of_zeros_without_a_ridge_is_no_obstacle():
    contexts, actions, rewards = batch(n=60)
    rows = Rows(contexts=contexts, actions=actions, rewards=rewards, weights=np.ones(60))
    padded = np.column_stack([contexts, np.zeros(60)])
    assert leave_one_out(padded, rows, 0.0) == pytest.approx(leave_one_out(contexts, rows, 0.0), rel=1e-6)


def test_a_weight_is_that_many_copies():
    contexts, actions, rewards = batch(n=50)
    copies = rng("copies").integers(1, 5, 50)
    again = (np.repeat(contexts, copies, axis=0), np.repeat(actions, copies), np.repeat(rewards, copies))
    merged = canonical_rows(*again, None)
    once = canonical_rows(contexts, actions, rewards, copies.astype(float))
    np.testing.assert_array_equal(merged.contexts, once.contexts)
    np.testing.assert_array_equal(merged.weights, once.weights)
    ones = Rows(contexts=again[0], actions=again[1], rewards=again[2], weights=np.ones(len(again[1])))
    expected = leave_one_out(ones.contexts, ones, 1.0)
    assert leave_one_out(merged.contexts, merged, 1.0) == pytest.approx(expected, rel=1e-10)
    assert median_distance(merged.contexts, merged.weights) == median_distance(ones.contexts, ones.weights)
    assert chosen(*again) == chosen(contexts, actions, rewards, copies.astype(float))


def test_the_median_is_that_of_all_pairs_of_different_contexts():
    contexts = rng("median").standard_normal((43, 3))
    pairs = [np.linalg.norm(a - b) for i, a in enumerate(contexts) for b in contexts[:i]]
    assert len(pairs) % 2 == 1
    assert median_distance(contexts, np.ones(43)) == pytest.approx(np.median(pairs), rel=1e-12)
    doubled = np.vstack([contexts, contexts])
    assert median_distance(doubled, np.ones(86)) == pytest.approx(np.median(pairs), rel=1e-12)


@pytest.mark.parametrize("n", [7, 300, 6000])
def test_the_choice_does_not_depend_on_the_order_of_rows_or_the_codes_of_actions(n):
    contexts, actions, rewards = batch(n=n)
    weights = rng("weights").integers(0, 3, n) / 2
    weights[:3] = 1.0
    order = rng("order").permutation(n)
    codes = np.array([12, 3, 7, 0])
    first = chosen(contexts, actions, rewards, weights)
    assert first == chosen(contexts, actions, rewards, weights)
    assert first == chosen(contexts[order], actions[order], rewards[order], weights[order])
    assert first == pytest.approx(chosen(contexts, codes[actions], rewards, weights), rel=1e-12)


def test_rows_of_one_context_are_thinned_alike_in_any_order():
    n = 9000
    contexts = rng("levels").integers(2, size=(n, 4)).astype(np.float64)
    actions, rewards = rng("codes").integers(6, size=n), rng("hits").integers(2, size=n).astype(np.float64)
    order = rng("order").permutation(n)
    first = canonical_rows(contexts, actions, rewards, None, limit=50)
    second = canonical_rows(contexts[order], actions[order], rewards[order], None, limit=50)
    assert len(first.weights) == 50
    for name in ("contexts", "actions", "rewards", "weights"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    everything = canonical_rows(contexts, actions, rewards, None)
    assert everything.weights.sum() == n and len(everything.weights) == 2**4 * 6 * 2


def test_canonical_rows_lose_nothing_below_the_limit():
    contexts, actions, rewards = batch(n=100)
    contexts[5] = -0.0
    contexts[6] = 0.0
    actions[5:7], rewards[5:7] = 1, 0.25
    weights = np.ones(100)
    weights[:3] = 0.0
    rows = canonical_rows(contexts, actions, rewards, weights)
    assert len(rows.weights) == 96 and rows.weights.sum() == 97
    table = {tuple(row) for row in np.column_stack([contexts, actions, rewards])[3:]}
    assert {tuple(row) for row in np.column_stack([rows.contexts, rows.actions, rows.rewards])} == table


def test_indices_are_evenly_spaced():
    assert list(evenly_spaced(3, 5)) == [0, 1, 2]
    assert list(evenly_spaced(10, 5)) == [0, 2, 4, 6, 8]
    assert len(set(evenly_spaced(4097, 4096))) == 4096


def test_the_choice_scales_with_the_contexts_and_ignores_the_scale_of_rewards():
    contexts, actions, rewards = batch()
    first = chosen(contexts, actions, rewards)
    assert chosen(1024 * contexts, actions, rewards) == pytest.approx(1024 * first, rel=1e-9)
    assert chosen(contexts, actions, 1e6 * rewards) == pytest.approx(first, rel=1e-9)
    assert chosen(contexts, actions, 1e200 * rewards) == pytest.approx(first, rel=1e-9)


def median_of(contexts):
    rows = canonical_rows(contexts, np.zeros(len(contexts), int), np.zeros(len(contexts)), None)
    return median_distance(rows.contexts, rows.weights)


class TestEdges:
    def test_one_row(self):
        assert chosen(np.ones((1, 3)), np.zeros(1, int), np.ones(1)) == 1.0

    def test_equal_contexts(self):
        assert chosen(np.full((20, 3), 0.3), np.arange(20) % 4, np.arange(20.0)) == 1.0
        assert chosen(np.zeros((20, 3)), np.arange(20) % 4, np.arange(20.0)) == 1.0

    def test_no_two_rows_of_one_action_fall_back_to_the_median(self):
        contexts, _, rewards = batch(n=6)
        assert chosen(contexts, np.arange(6), rewards) == median_of(contexts)

    def test_no_reward_at_all_falls_back_to_the_median(self):
        contexts, actions, _ = batch()
        assert chosen(contexts, actions, np.zeros(300)) == median_of(contexts)

    def test_two_rows(self):
        contexts = np.array([[0.0, 0.0], [3.0, 4.0]])
        bandwidth = chosen(contexts, np.zeros(2, int), np.array([1.0, 2.0]))
        assert min(abs(bandwidth - 5.0 * k) for k in MULTIPLES) < 1e-12

    def test_one_action_and_actions_never_executed(self):
        contexts, _, rewards = batch()
        assert chosen(contexts, np.zeros(300, int), rewards) == chosen(contexts, np.full(300, 17), rewards)

    def test_rows_without_weight_decide_nothing(self):
        contexts, actions, rewards = batch()
        assert chosen(contexts, actions, rewards, np.zeros(300)) is None
        weights = (np.arange(300) < 200) * 1.0
        assert chosen(contexts, actions, rewards, weights) == chosen(contexts[:200], actions[:200], rewards[:200])

    def test_more_columns_than_rows_and_no_ridge(self):
        contexts, actions, rewards = batch(n=30)
        for ridge in (0.0, 1e-12, 1.0):
            bandwidth = chosen(contexts, actions, rewards, raw=True, intercept=True, ridge=ridge)
            assert min(abs(bandwidth / median_of(contexts) - k) for k in MULTIPLES) < 1e-9

    def test_duplicated_columns_of_a_large_scale(self):
        contexts, actions, rewards = batch()
        twice = 1e7 * np.hstack([contexts, contexts])
        assert np.isfinite(chosen(twice, actions, rewards, raw=True))

    def test_columns_whose_squares_overflow_are_refused(self):
        contexts, actions, rewards = batch()
        with pytest.raises(NumericalError, match="rescale"):
            chosen(1e200 * contexts, actions, rewards, raw=True)
        assert chosen(1e200 * contexts, actions, rewards) > 1e190


def against_hindsight(contexts, actions, table):
    """Learn from the first rows, act greedily on the rest: the reward of auto over the best, and auto's multiple."""
    n, every = len(actions), np.arange(len(contexts))
    first, rewards = contexts[:n], table[every[:n], actions]

    def greedy_reward(bandwidth):
        features = Fourier(bandwidth=bandwidth)
        columns = features.apply(features.init(contexts.shape[1], rng("map")), contexts)
        scores = np.empty(table.shape)
        for action in range(table.shape[1]):
            own = columns[:n][actions == action]
            gram = own.T @ own + np.eye(own.shape[1])
            scores[:, action] = columns @ np.linalg.solve(gram, own.T @ rewards[actions == action])
        return table[every, scores.argmax(axis=1)][n:].mean()

    median = median_of(first)
    automatic = chosen(first, actions, rewards, n_features=100)
    best = max(greedy_reward(k * median) for k in MULTIPLES)
    return greedy_reward(automatic) / best, automatic / median


def standard(table):
    return (table - table.mean(axis=0)) / np.maximum(table.std(axis=0), 1e-9)


# Single draws with fixed seeds; the bounds held in all of the seeds 0 to 20 (0 to 14 for covertype).
def test_a_reward_with_one_best_action_gets_a_wide_kernel(seed=0):
    source = rng("sigmoid", seed)
    contexts = source.normal(0.1, 0.04, (3400, 40))
    chances = 0.5 / (1 + np.exp(contexts.sum(axis=1, keepdims=True) * 0.2 * np.arange(5)))
    table = np.vstack([source.random((1400, 5)) < chances[:1400], chances[1400:]])
    ratio, multiple = against_hindsight(contexts, source.integers(5, size=1400), table)
    assert ratio > 0.95 and multiple > 2.5


def test_digits_get_a_narrow_kernel(seed=0):
    datasets = pytest.importorskip("sklearn.datasets", reason="digits come with scikit-learn")
    digits: Any = datasets.load_digits()
    source = rng("digits", seed)
    order = source.permutation(len(digits.target))
    table = np.eye(10)[digits.target[order]]
    ratio, multiple = against_hindsight(standard(digits.data[order]), source.integers(10, size=900), table)
    assert ratio > 0.95 and multiple < 1.2


def test_covertype_is_near_the_best_in_hindsight(seed=0):
    given = os.environ.get("SPUIR_DATA")
    folder = Path(given) if given else Path(__file__).resolve().parents[3] / "shared" / "data"
    path = folder / "covertype" / "covertype_100k.csv.gz"
    if not path.is_file():
        pytest.skip("covertype is not in the folder that SPUIR_DATA names")
    source = rng("covertype", seed)
    table = np.loadtxt(path, delimiter=",", skiprows=1 + 6400 * seed, max_rows=6400)
    hits = np.eye(7)[table[:, -1].astype(int)]
    ratio, multiple = against_hindsight(standard(table[:, :-1]), source.integers(7, size=1400), hits)
    assert ratio > 0.93 and multiple < 3
