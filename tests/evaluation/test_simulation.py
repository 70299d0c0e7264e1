"""Simulation: a world fitted to a log has its contexts, its expected rewards and its noise."""

import numpy as np
import pytest

import spuir
from spuir.base.records import Rounds
from spuir.base.streams import generator
from spuir.evaluation.simulation import fit_world, simulate
from tests.evaluation.known_rows import logged

LINEAR = spuir.make_policy("sbucb", ridge=0.01)


@pytest.mark.parametrize("binary", [False, True])
def test_the_fitted_world_is_the_world(binary):
    world = logged(6_000, tilt=0.5, binary=binary)
    fitted = fit_world(world.rows, model=LINEAR)
    assert (fitted.n_actions, fitted.dim, fitted.residuals is None) == (3, 3, binary)
    # Errors of a mean are about 0.5/√2000 with binary rewards and 0.09/√2000 otherwise.
    assert np.sqrt(np.mean(np.square(fitted.means - world.means))) < (0.04 if binary else 0.008)
    rounds = fitted.draw(20_000, generator(0, "tests", "contexts"))
    assert {tuple(row) for row in rounds.contexts[:50]} <= {tuple(row) for row in world.rows.contexts}
    actions = np.full(20_000, 1)
    rewards = fitted.feedback(rounds, actions, generator(0, "tests", "noise")).rewards
    assert set(np.unique(rewards)) == {0.0, 1.0} if binary else len(np.unique(rewards)) > 1_000
    expected = fitted.expected_rewards(rounds)[:, 1]
    spread = np.sqrt((expected * (1 - expected)).mean()) if binary else 0.3 / np.sqrt(12)
    # Five standard errors.
    assert abs((rewards - expected).mean()) < 5 * spread / np.sqrt(20_000)
    assert (rewards - expected).std() == pytest.approx(spread, rel=0.05)


def test_residuals_are_stretched_by_what_the_fit_took():
    sizes = [np.std(np.array(fit_world(logged(120, seed).rows, model=LINEAR).residuals)) for seed in range(40)]
    # The truth is 0.3/√12 = 0.0866; the mean of 40 is known to 1 %. Without stretching it would be 4 % too small.
    assert np.mean(sizes) == pytest.approx(0.3 / np.sqrt(12), rel=0.03)


def test_a_simulation_is_a_run_and_repeats():
    world = fit_world(logged(1_000).rows)
    first, again = (simulate(world, "sbucb", episodes=4, batch_size=50, seed=2) for _ in range(2))
    np.testing.assert_array_equal(first.rewards, again.rewards)
    same = spuir.run("sbucb", world, episodes=4, batch_size=50, seed=2)
    np.testing.assert_array_equal(first.rewards, same.rewards)
    assert first.environment == "fitted"
    assert len(fit_world(logged(1_000).rows).expected_rewards(Rounds(contexts=world.rows[:2], payload=[0, 1]))) == 2


def test_a_kernel_finds_what_a_line_cannot():
    world = logged(4_000, tilt=0.0)
    rows = world.rows
    bent = np.cos(3 * rows.contexts[:, 1]) * (rows.actions == 0)
    from dataclasses import replace

    curved = replace(rows, rewards=bent + 0.1 * rows.rewards)
    truth = np.cos(3 * rows.contexts[:, 1])
    error = [np.mean(np.square(fit_world(curved, model=model).means[:, 0] - truth)) for model in (None, LINEAR)]
    assert error[0] < 0.1 * error[1]
