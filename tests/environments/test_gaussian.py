"""Linear, heterogeneous and nonlinear rewards with Gaussian noise."""

from typing import Any

import numpy as np
import pytest

from spuir import environments
from spuir.base.streams import generator
from spuir.errors import ParameterError

N = 20_000


def make_environment(name: str, **parameters: Any) -> Any:
    return environments.make_environment(name, **parameters)


def expected(env, n=N):
    rounds = env.draw(n, generator(1, "contexts"))
    return rounds.contexts, env.expected_rewards(rounds)


def linear_fit(contexts, values):
    columns = np.column_stack([np.ones(len(contexts)), contexts])
    return columns @ np.linalg.lstsq(columns, values, rcond=None)[0]


@pytest.mark.parametrize("name", ["linear", "heterogeneous", "nonlinear"])
@pytest.mark.parametrize("ratio", [0.01, 1.0, 10.0])
def test_noise_is_that_many_times_the_signal(name, ratio):
    env = make_environment(name, noise=ratio)
    rounds = env.draw(N, generator(1, "contexts"))
    truth = env.expected_rewards(rounds)
    residual = env.feedback(rounds, np.zeros(N, int), generator(2, "noise")).all_rewards - truth
    # 100,000 draws: the deviation's standard error is 0.22 %, six of them are 1.4 %.
    assert residual.std() == pytest.approx(ratio * env.signal, rel=0.014)
    # The shared level of heterogeneous contexts adds 1 % to the spread; the rest is sampling.
    assert truth.std(axis=0) == pytest.approx(np.full(5, env.signal), rel=0.25 if name == "nonlinear" else 0.04)


def test_without_noise_rewards_are_their_expectation():
    env = make_environment("heterogeneous", noise=0)
    rounds = env.draw(50, generator(1, "contexts"))
    outcome = env.feedback(rounds, np.zeros(50, int), generator(2, "noise"))
    np.testing.assert_array_equal(outcome.all_rewards, env.expected_rewards(rounds))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("actions", [2, 5, 20])
def test_heterogeneous_actions_are_each_best_for_a_fair_share(seed, actions):
    env = make_environment("heterogeneous", n_actions=actions, seed=seed)
    _, truth = expected(env)
    shares = np.bincount(truth.argmax(axis=1), minlength=actions) / N
    # Binomial shares of probability 1/M: five standard errors in 81 shares, false alarms below 1e-4.
    assert np.all(np.abs(shares - 1 / actions) < 5 * np.sqrt((1 - 1 / actions) / actions / N))


def test_heterogeneous_with_more_actions_than_columns_still_uses_all():
    env = make_environment("heterogeneous", n_actions=12, dim=4)
    _, truth = expected(env)
    shares = np.bincount(truth.argmax(axis=1), minlength=12) / N
    assert np.all(shares > 0)


def test_heterogeneous_oracle_clearly_beats_every_fixed_action():
    env = make_environment("heterogeneous")
    _, truth = expected(env)
    # Five independent normals: the largest lies 1.163 deviations above their common mean.
    assert truth.max(axis=1).mean() - truth.mean(axis=0).max() > 1.1 * env.spread
    np.testing.assert_allclose(truth.mean(axis=0), 0.5, atol=0.01)


def test_linear_truths_are_linear():
    for name in ("linear", "heterogeneous"):
        contexts, truth = expected(make_environment(name), 500)
        np.testing.assert_allclose(contexts @ np.linalg.lstsq(contexts, truth, rcond=None)[0], truth, atol=1e-10)


@pytest.mark.parametrize(("truth", "most"), [("exp", 0.95), ("poly", 0.6), ("rbf", 0.8)])
def test_nonlinear_truths_are_not(truth, most):
    contexts, values = expected(make_environment("nonlinear", truth=truth))
    explained = 1 - np.mean((values - linear_fit(contexts, values)) ** 2, axis=0) / values.var(axis=0)
    assert np.all(explained < most)


@pytest.mark.parametrize("truth", ["poly", "rbf"])
def test_a_linear_oracle_loses_where_the_truth_bends(truth):
    contexts, values = expected(make_environment("nonlinear", truth=truth))
    chosen = values[np.arange(N), linear_fit(contexts, values).argmax(axis=1)]
    gain, possible = chosen.mean() - values.mean(), values.max(axis=1).mean() - values.mean()
    assert gain < 0.9 * possible


def test_paper_forms_of_the_nonlinear_truths():
    contexts, values = expected(env := make_environment("nonlinear", truth="exp"), 100)
    np.testing.assert_allclose(values, np.exp(contexts @ env.function.weights.T))
    contexts, values = expected(env := make_environment("nonlinear", truth="poly"), 100)
    np.testing.assert_allclose(values, (contexts @ env.function.weights.T) ** 2)


def test_radial_truth_has_the_stated_level_and_spread():
    _, values = expected(make_environment("nonlinear", truth="rbf"))
    # The scale is set on 4,096 other contexts; both samples err by a few per cent.
    np.testing.assert_allclose(values.mean(axis=0), 0.5, atol=0.03)
    np.testing.assert_allclose(values.std(axis=0), 0.2, rtol=0.1)


def test_best_actions_of_nonlinear_truths_depend_on_the_context():
    for truth in ("exp", "poly", "rbf"):
        _, values = expected(make_environment("nonlinear", truth=truth))
        assert np.all(np.bincount(values.argmax(axis=1), minlength=5) > 0.05 * N)


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    [
        ("linear", "noise", -1),
        ("heterogeneous", "dim", 1),
        ("heterogeneous", "spread", 0),
        ("nonlinear", "truth", "cubic"),
        ("nonlinear", "noise", float("nan")),
    ],
)
def test_wrong_parameters(name, parameter, value):
    with pytest.raises(ParameterError, match=parameter):
        make_environment(name, **{parameter: value})
