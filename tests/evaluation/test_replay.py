"""Replay: accepted rows are what the policy itself would have logged, and learning happens after every B of them."""

from dataclasses import replace

import numpy as np
import pytest

import spuir
from spuir.base.streams import generator
from spuir.errors import InputError, ParameterError
from spuir.evaluation.replay import QUANTILE, replay
from tests.evaluation.known_rows import logged


def naive(rows, policy, batch_size, seed):
    """Replay row by row, as the definition reads; returns the accepted rows of each episode and the bandit."""
    least = np.quantile(rows.propensities, QUANTILE, method="lower")
    uniforms = generator(seed, "evaluation", "replay").random(len(rows))
    bandit, episodes, batch = spuir.Bandit(policy, 3, seed), [], []
    for row in range(len(rows)):
        chance = bandit.predict_proba(rows.contexts[row : row + 1])[0, rows.actions[row]]
        ratio = least * chance / rows.propensities[row]
        if uniforms[row] < ratio:
            batch.append((row, chance, max(ratio, 1.0)))
        if len(batch) == batch_size:
            taken, chances, copies = (np.array(column) for column in zip(*batch, strict=True))
            columns = rows.contexts[taken], rows.actions[taken], rows.rewards[taken]
            bandit.partial_fit(*columns, np.minimum(chances, 1.0), copies)
            episodes.append((taken, copies))
            batch = []
    if batch:
        episodes.append((np.array([line[0] for line in batch]), np.array([line[2] for line in batch])))
    return episodes


@pytest.mark.parametrize("policy", ["sbucb", "linear-thompson"])
def test_a_replay_is_its_definition_row_by_row(policy):
    rows = logged(1_500, tilt=0.6).rows
    found = replay(rows, spuir.make_policy(policy, floor=0.05), batch_size=40, seed=3)
    episodes = naive(rows, spuir.make_policy(policy, floor=0.05), 40, 3)
    assert found.accepted == sum(len(taken) for taken, _ in episodes)
    means = [np.average(rows.rewards[taken], weights=copies) for taken, copies in episodes]
    np.testing.assert_allclose(found.rewards, means, rtol=1e-12)
    every = np.concatenate([taken for taken, _ in episodes])
    copies = np.concatenate([weights for _, weights in episodes])
    assert found.value == pytest.approx(np.average(rows.rewards[every], weights=copies), rel=1e-12)
    again = replay(rows, spuir.make_policy(policy, floor=0.05), batch_size=40, seed=3)
    np.testing.assert_array_equal(again.rewards, found.rewards)


@pytest.mark.parametrize("tilt", [0.0, 0.5, 2.0])
def test_the_value_of_a_policy_that_does_not_learn_is_recovered(tilt):
    world = logged(40_000, tilt=tilt)
    found = replay(world.rows, "uniform", batch_size=200)
    # Four standard errors: wrong in less than 1 of 10,000 seeds.
    assert abs(found.value - world.means.mean()) < 4 * found.standard_error
    assert found.standard_error < 0.02
    assert found.rewards.shape == found.weights.shape


def test_a_learning_policy_earns_what_it_earns_in_its_world():
    policy = spuir.make_policy("sbucb", alpha=0.3)
    values, truths = [], []
    for seed in range(8):
        rows = logged(6_000, seed, tilt=0.5).rows
        found = replay(rows, policy, batch_size=50, seed=seed)
        values.append(found.rewards[1:13].mean())
        fresh, bandit, earned = logged(700, 100 + seed), spuir.Bandit(policy, 3, seed), []
        for start in range(0, 650, 50):
            now = slice(start, start + 50)
            chosen = bandit.decide(fresh.rows.contexts[now])
            means = fresh.means[now][np.arange(50), chosen.actions]
            noise = 0.3 * (generator(seed, "tests", start).random(50) - 0.5)
            bandit.partial_fit(fresh.rows.contexts[now], chosen.actions, means + noise, chosen.propensities)
            earned.append(means.mean())
        truths.append(np.mean(earned[1:]))
    error = np.sqrt((np.var(values, ddof=1) + np.var(truths, ddof=1)) / len(values))
    # A t statistic with 14 degrees of freedom exceeds 4.5 in less than 1 of 1,000 cases.
    assert abs(np.mean(values) - np.mean(truths)) < 4.5 * error
    assert np.mean(values) > 0.45  # uniform earns 0.4


def test_rare_propensities_count_by_weight_and_not_by_chance():
    world = logged(20_000, tilt=0.0)
    chances = world.rows.propensities.copy()
    # One row in 500 was executed at a tenth of the usual probability.
    rare = np.arange(len(chances)) % 500 == 0
    chances[rare] /= 10
    found = replay(replace(world.rows, propensities=chances), "uniform", batch_size=100)
    assert found.accepted > 5_000  # the least propensity alone would accept 700
    assert found.weights.sum() > found.accepted - 100


def test_eligibility_and_row_weights_are_respected():
    rows = logged(4_000, tilt=0.0).rows
    eligible = np.ones((4_000, 3), bool)
    eligible[:, 2] = rows.actions == 2
    found = replay(replace(rows, eligible=eligible, weights=np.full(4_000, 2.0)), "sbucb", batch_size=100)
    assert found.weights[0] == 200.0
    assert 0 < found.value < 1


def test_too_few_accepted_rows_are_refused():
    rows = logged(300).rows
    with pytest.raises(InputError, match="needs more than one episode of 200 accepted rows; use smaller batches"):
        replay(rows, "sbucb", batch_size=200)
    with pytest.raises(ParameterError, match="batch_size"):
        replay(rows, "sbucb", batch_size=0)
