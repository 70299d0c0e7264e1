"""The paper's synthetic setting."""

from typing import Any

import numpy as np
import pytest

from spuir.base.streams import generator
from spuir.environments import make_environment
from spuir.errors import ParameterError

N = 4000


def play(actions: int = 0, **parameters: Any) -> Any:
    env = make_environment("synthetic", **parameters)
    rounds = env.draw(N, generator(1, "contexts"))
    return env, rounds, env.feedback(rounds, np.full(N, actions), generator(2, "noise"))


def test_contexts_follow_the_papers_law():
    _, rounds, _ = play()
    values = rounds.contexts.ravel()
    # 160,000 draws: five standard errors of the mean and of the deviation, false alarms below 2e-6.
    assert abs(values.mean() - 0.1) < 5 * 0.04 / np.sqrt(values.size)
    assert abs(values.std() - 0.04) < 5 * 0.04 / np.sqrt(2 * values.size)


def test_weights_follow_the_papers_law():
    env: Any = make_environment("synthetic", n_actions=3, dim=20_000)
    spread = (0.01 * np.arange(1, 4)) ** 2
    for weights, slope in ((env.conversion_weights, -0.2), (env.delay_weights, 0.2)):
        # Five standard errors in six means and six deviations: false alarms below 1e-5.
        assert np.all(np.abs(weights.mean(axis=1) - slope * np.arange(3)) < 5 * spread / np.sqrt(20_000))
        assert np.all(np.abs(weights.std(axis=1) - spread) < 5 * spread / np.sqrt(40_000))


def test_reward_mixes_click_and_conversion_by_the_rate_of_the_batch():
    _, _, outcome = play(actions=1)
    share = 0.01 * outcome.conversion.sum() / outcome.click.sum()
    assert 0 < share < 0.01
    np.testing.assert_allclose(outcome.rewards, share * outcome.click + (1 - share) * outcome.conversion, rtol=1e-15)
    assert np.all(outcome.conversion <= outcome.click)


def test_click_and_conversion_rates():
    env, rounds, outcome = play(actions=2)
    rates = env.conversion_rates(rounds)[:, 2]
    # Five standard errors of each of two Bernoulli means: false alarms below 2e-6.
    assert abs(outcome.click.mean() - 0.5) < 5 * np.sqrt(0.25 / N)
    assert abs(outcome.conversion.mean() - 0.5 * rates.mean()) < 5 * np.sqrt(0.1 / N)
    np.testing.assert_allclose(rates, 1 / (1 + np.exp(-rounds.contexts @ env.conversion_weights[2])))


def test_expected_rewards_use_the_weight_at_which_a_learnt_policy_settles():
    env, rounds, outcome = play(actions=0)
    settled = 0.01 * outcome.conversion.sum() / outcome.click.sum()
    assert env.click_share == pytest.approx(settled, abs=5e-4)
    expected = env.expected_rewards(rounds)
    np.testing.assert_allclose(
        expected, 0.5 * (env.click_share + (1 - env.click_share) * env.conversion_rates(rounds)), rtol=1e-15
    )
    assert np.mean(expected.argmax(axis=1) == 0) > 0.99


def test_elapsed_is_the_delay_of_a_conversion_and_otherwise_the_time_left():
    _, _, outcome = play(actions=1)
    left = 1.4 * (1 - np.arange(N) / N)
    converted = outcome.conversion == 1
    np.testing.assert_allclose(outcome.elapsed[~converted], left[~converted])
    assert np.any(outcome.elapsed[converted] > left[converted])
    assert np.all(outcome.elapsed > 0)


def test_delays_are_exponential_with_the_true_rate():
    env, rounds, outcome = play(actions=1)
    converted = outcome.conversion == 1
    scaled = outcome.elapsed[converted] * np.exp(rounds.contexts[converted] @ env.delay_weights[1])
    # Standard exponential: five standard errors of the mean, false alarms below 1e-6.
    assert abs(scaled.mean() - 1) < 5 / np.sqrt(converted.sum())


def test_censoring_drops_late_conversions_and_nothing_else():
    _, _, full = play(actions=1)
    _, _, seen = play(actions=1, censored=True)
    left = 1.4 * (1 - np.arange(N) / N)
    late = (full.conversion == 1) & (full.elapsed > left)
    assert late.any()
    np.testing.assert_array_equal(seen.click, full.click)
    np.testing.assert_array_equal(seen.conversion == 1, (full.conversion == 1) & ~late)
    np.testing.assert_allclose(seen.elapsed[late], left[late])


def test_no_click_means_no_reward():
    _, _, outcome = play(click_rate=0.0)
    assert not outcome.rewards.any()
    _, _, outcome = play(click_rate=1)
    assert outcome.click.all()


@pytest.mark.parametrize(("name", "value"), [("click_rate", 1.5), ("horizon", 0), ("censored", 1)])
def test_wrong_parameters(name, value):
    with pytest.raises(ParameterError, match=name):
        make_environment("synthetic", **{name: value})
