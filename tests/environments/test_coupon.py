"""The stand-in for the paper's commercial product."""

import numpy as np
import pytest

import spuir
from spuir.base.streams import generator
from spuir.environments.coupon import Coupon

N = 20_000
SEEDS = range(8)


def cvr(policy, seed):
    history = spuir.run(policy, "coupon", episodes=20, batch_size=625, seed=seed)
    assert history.conversions is not None and history.clicks is not None
    return history.conversions.sum() / history.clicks.sum()


def test_shape_and_contexts():
    world = Coupon()
    contexts = world.draw(N, generator(1, "contexts")).contexts
    assert contexts.shape == (N, 20) and world.n_actions == 5
    # 400,000 draws: five standard errors of the mean and of the deviation, false alarms below 2e-6.
    assert abs(contexts.mean() - 0.1) < 5 * 0.05 / np.sqrt(contexts.size)
    assert abs(contexts.std() - 0.05) < 5 * 0.05 / np.sqrt(2 * contexts.size)


@pytest.mark.parametrize("seed", range(3))
def test_weights_have_the_stated_levels_and_length(seed):
    weights = Coupon(seed=seed).conversion_weights
    levels = np.array([-0.5, -0.5, 2.15, -0.5, -0.5])
    # z_j sums to zero, so the sum of w_j is that of its level; and its length is √d.
    np.testing.assert_allclose(0.1 * weights.sum(axis=1), levels, atol=1e-12)
    directions = (weights - levels[:, None] / 2.0) * 0.05 * np.sqrt(20) / 0.6
    np.testing.assert_allclose(np.linalg.norm(directions, axis=1), np.sqrt(20), rtol=1e-12)
    assert np.abs(np.corrcoef(directions)[np.triu_indices(5, 1)]).max() < 0.9


def test_delays_have_rate_one_and_clicks_half():
    world = Coupon()
    rounds = world.draw(N, generator(1, "contexts"))
    outcome = world.feedback(rounds, np.full(N, 2), generator(2, "noise"))
    assert outcome.click is not None and outcome.conversion is not None and outcome.elapsed is not None
    delays = outcome.elapsed[outcome.conversion == 1]
    # Five standard errors of each mean: false alarms below 2e-6.
    assert abs(delays.mean() - 1) < 5 / np.sqrt(len(delays))
    assert abs(outcome.click.mean() - 0.5) < 5 * np.sqrt(0.25 / N)


def test_the_best_coupon_is_not_best_for_everyone():
    world = Coupon()
    best = world.expected_rewards(world.draw(N, generator(1, "contexts"))).argmax(axis=1)
    share = np.mean(best == 2)
    assert 0.9 < share < 1


@pytest.mark.parametrize(
    ("name", "parameters", "stated"),
    [("uniform", {}, 0.485), ("sbucb", {"alpha": 1.0}, 0.853), ("puir", {"preset": "paper"}, 0.878)],
)
def test_conversion_rates_are_near_those_it_was_chosen_for(name, parameters, stated):
    """Over 20 draws of the world the means were 0.485, 0.856 and 0.881, the deviations 0.006, 0.006 and 0.004.

    The mean of eight then has a standard error of at most 0.0022. The measured means lie within 0.003 of the stated
    ones, so a tolerance of 0.012 leaves four standard errors on either side: false alarms below 1e-4.
    """
    values = [cvr(spuir.make_policy(name, **parameters), seed) for seed in SEEDS]
    assert np.mean(values) == pytest.approx(stated, abs=0.012)
