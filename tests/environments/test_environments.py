"""What every registered environment promises."""

import copy
from typing import Any

import numpy as np
import pytest

from spuir.base.streams import generator
from spuir.environments import ENVIRONMENTS, list_environments, make_environment, parameters_of
from spuir.errors import InputError, ParameterError, UnknownNameError

TABLES = ["classification", "uci-coupon", "criteo-recent", "criteo-all"]
"""Environments whose number of actions follows from a table; test_classification, test_uci_coupon, test_criteo."""
NAMES = [name for name in list_environments() if name not in TABLES]


@pytest.fixture(params=NAMES)
def env(request):
    return make_environment(request.param, n_actions=4, dim=6, seed=3)


def draw(env: Any, n: int = 50) -> Any:
    return env.draw(n, generator(1, "contexts"))


def play(env: Any, rounds: Any, actions: Any) -> Any:
    rng = generator(2, "noise")
    return env.feedback(rounds, np.asarray(actions), rng), rng.bit_generator.state


def test_the_registered_environments_are_these():
    assert NAMES == ["synthetic", "heterogeneous", "nonlinear", "linear", "coupon"]
    assert all(ENVIRONMENTS.get(name).name == name for name in [*NAMES, *TABLES])
    assert [name for name in list_environments() if ENVIRONMENTS.get(name).needs_file] == ["uci-coupon"]


@pytest.mark.parametrize(
    ("name", "parameter"), [*((name, "n_actions") for name in TABLES), *((name, "dim") for name in TABLES[:2])]
)
def test_what_follows_from_a_table_cannot_be_given(name, parameter):
    with pytest.raises(ParameterError, match="no such parameter"):
        make_environment(name, **{parameter: 5})


def test_shapes(env):
    rounds = draw(env)
    outcome, _ = play(env, rounds, np.zeros(50, int))
    assert rounds.contexts.shape == (50, 6)
    assert env.expected_rewards(rounds).shape == outcome.all_rewards.shape == (50, 4)
    assert outcome.rewards.shape == (50,)
    for column in (outcome.click, outcome.conversion, outcome.elapsed):
        assert (column is not None) == env.has_clicks
        assert column is None or column.shape == (50,)


def test_equal_seeds_give_equal_worlds_and_others_do_not(env):
    twin, other = (make_environment(env.name, n_actions=4, dim=6, seed=seed) for seed in (3, 4))
    rounds = draw(env)
    assert twin == env
    assert other != env
    np.testing.assert_array_equal(twin.draw(50, generator(1, "contexts")).contexts, rounds.contexts)
    np.testing.assert_array_equal(twin.expected_rewards(rounds), env.expected_rewards(rounds))
    assert not np.array_equal(other.expected_rewards(rounds), env.expected_rewards(rounds))


def test_noise_is_drawn_for_all_actions_whatever_is_executed(env):
    rounds = draw(env)
    first, after_first = play(env, rounds, np.zeros(50, int))
    second, after_second = play(env, rounds, np.arange(50) % 4)
    assert after_first == after_second
    # Where there are clicks, the weight of a click depends on the executed rows, by less than 0.01.
    tolerance = 0.01 if env.has_clicks else 0
    np.testing.assert_allclose(first.all_rewards, second.all_rewards, atol=tolerance)
    np.testing.assert_array_equal(second.rewards, second.all_rewards[np.arange(50), np.arange(50) % 4])


def test_rewards_have_the_expected_mean():
    for name in NAMES:
        env = make_environment(name, seed=1)
        rounds = draw(env, 20_000)
        best = env.expected_rewards(rounds).argmax(axis=1)
        outcome, _ = play(env, rounds, best)
        gap = outcome.all_rewards - env.expected_rewards(rounds)
        # Five standard errors in 20 means: false alarms below 2e-5. The weight of a click adds at most 5e-5.
        assert np.all(np.abs(gap.mean(axis=0)) < 5 * gap.std(axis=0) / np.sqrt(20_000) + 5e-5), name


def test_nothing_is_written_and_no_rounds_are_fine(env):
    rounds = draw(env)
    rounds.contexts.setflags(write=False)
    actions = np.zeros(50, int)
    actions.setflags(write=False)
    before = copy.deepcopy(vars(env))
    play(env, rounds, actions)
    env.expected_rewards(rounds)
    for name, value in vars(env).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, before[name])
    nothing = draw(env, 0)
    outcome, _ = play(env, nothing, np.zeros(0, int))
    assert outcome.rewards.shape == (0,)
    assert outcome.all_rewards.shape == (0, 4)


@pytest.mark.parametrize("actions", [np.zeros(3, int), np.zeros(50), np.full(50, 4), np.full(50, -1)])
def test_wrong_actions_are_refused(env, actions):
    with pytest.raises(InputError, match="actions"):
        play(env, draw(env), actions)


def test_wrong_parameters_are_refused_with_the_rule(env):
    for name, value in {"n_actions": 0, "dim": 0, "seed": -1}.items():
        with pytest.raises(ParameterError, match=rf"{name} of environment '{env.name}'.*must be an integer"):
            make_environment(env.name, **{name: value})
    assert {"n_actions", "dim", "seed"} <= set(parameters_of(type(env)))


def test_names_are_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'synthetic'"):
        make_environment("sinthetic")
    with pytest.raises(ParameterError, match="did you mean 'n_actions'"):
        make_environment("linear", n_action=3)
    with pytest.raises(ParameterError, match="no such parameter"):
        make_environment("linear", coefficients=np.eye(5))


@pytest.mark.parametrize("shape", [(1, 2), (7, 3), (60, 5), (3, 40)])
def test_any_number_of_actions_and_columns(shape):
    actions, dim = shape
    for name in NAMES:
        env = make_environment(name, n_actions=actions, dim=dim)
        rounds = draw(env, 9)
        outcome, _ = play(env, rounds, np.zeros(9, int))
        assert np.isfinite(outcome.all_rewards).all()
        assert np.isfinite(env.expected_rewards(rounds)).all()
