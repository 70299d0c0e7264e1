"""What every registered environment promises: every policy meets the same contexts and the same noise."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from spuir import list_environments, make_environment
from spuir.base.parameters import parameter_names
from spuir.base.records import Rounds
from spuir.base.streams import generator
from spuir.environments import ENVIRONMENTS
from spuir.errors import InputError, ParameterError
from tests.environments.files import COUPONS, COVERTYPE, find, write_survey

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "synthetic": ("synthetic", {}),
    "synthetic, censored": ("synthetic", {"censored": True}),
    "heterogeneous": ("heterogeneous", {}),
    "linear": ("linear", {"noise": 2.0}),
    "nonlinear exp": ("nonlinear", {"truth": "exp"}),
    "nonlinear poly": ("nonlinear", {"truth": "poly"}),
    "nonlinear rbf": ("nonlinear", {"truth": "rbf", "noise": 0.1}),
    "coupon": ("coupon", {}),
    "coupon, censored": ("coupon", {"censored": True}),
    "classification, digits": ("classification", {"noise": 0.1, "intercept": True}),
    "classification, covertype": ("classification", {"noise": 0.2, "max_rows": 3000, "path": COVERTYPE}),
    "uci-coupon, written": ("uci-coupon", {"ridge": 1.0, "path": "written"}),
    "uci-coupon, real": ("uci-coupon", {"path": COUPONS}),
    "criteo-recent": ("criteo-recent", {}),
    "criteo-all, censored": ("criteo-all", {"censored": True}),
}
"""Every environment, those that read a file also on a real one: skipped where that is not at hand."""
FIXED = {"classification"}
"""Environments whose truth is the table itself, whatever the seed."""
SUSPECTS = (None, -1, 0, 1.5, np.nan, np.inf, "nonsense", True, [1], object())
SHAPE = {"n_actions": 4, "dim": 6, "seed": 3}


@pytest.fixture(scope="module")
def survey(tmp_path_factory):
    return write_survey(tmp_path_factory.mktemp("survey") / "survey.csv")


@pytest.fixture(params=CASES.values(), ids=list(CASES))
def world(request):
    name, parameters = request.param
    shape = dict(SHAPE)
    if "path" in parameters:
        written = parameters["path"] == "written"
        path = request.getfixturevalue("survey") if written else find(parameters["path"])
        parameters = parameters | {"path": str(path)}
    if "n_actions" not in parameter_names(ENVIRONMENTS.get(name)):
        shape = {"seed": SHAPE["seed"]}
    return make_environment(name, **shape, **parameters)


def draw(world, n=80, seed=1):
    return world.draw(n, generator(seed, "contexts"))


def take(rounds, rows):
    payload = None if rounds.payload is None else rounds.payload[rows]
    return Rounds(contexts=rounds.contexts[rows], payload=payload)


def cycle(world, n=80):
    return np.arange(n) % world.n_actions


def play(world, rounds, actions, seed=2):
    rng = generator(seed, "noise")
    return world.feedback(rounds, np.asarray(actions), rng), rng.bit_generator.state


def test_the_set_tested_is_the_set_registered():
    assert {name for name, _ in CASES.values()} == set(list_environments())


def test_the_same_seed_is_the_same_world(world):
    twin = replace(world)
    assert twin == world and replace(world, seed=4) != world
    rounds, again = draw(world), draw(twin)
    np.testing.assert_array_equal(again.contexts, rounds.contexts)
    np.testing.assert_array_equal(twin.expected_rewards(again), world.expected_rewards(rounds))
    first, second = play(world, rounds, cycle(world))[0], play(twin, again, cycle(world))[0]
    for name, values in vars(first).items():
        np.testing.assert_array_equal(getattr(second, name), values)
    assert not np.array_equal(draw(world, seed=5).contexts, rounds.contexts)
    assert not np.array_equal(play(world, rounds, cycle(world), seed=6)[0].rewards, first.rewards)
    other = replace(world, seed=4).expected_rewards(rounds)
    assert np.array_equal(other, world.expected_rewards(rounds)) == (world.name in FIXED)


def test_noise_does_not_depend_on_the_actions_asked(world):
    """Whatever is executed, the stream moves alike and an action's noise is the same."""
    rounds = draw(world)
    results = [play(world, rounds, actions) for actions in (np.zeros(80, int), np.full(80, 3), cycle(world))]
    assert results[0][1] == results[1][1] == results[2][1]
    # Where there are clicks, their share in the reward depends on the executed rows: less than 0.01.
    tolerance = 0.01 if world.has_clicks else 0.0
    for outcome, _ in results[1:]:
        np.testing.assert_allclose(outcome.all_rewards, results[0][0].all_rewards, rtol=0, atol=tolerance)
    outcome, executed = results[2][0], (np.arange(80), cycle(world))
    np.testing.assert_array_equal(outcome.rewards, outcome.all_rewards[executed])
    single = [play(world, rounds, np.full(80, j))[0] for j in range(world.n_actions)]
    for name in ("click", "conversion", "elapsed"):
        if world.has_clicks:
            columns = np.stack([getattr(one, name) for one in single], axis=1)
            np.testing.assert_array_equal(getattr(outcome, name), columns[executed])


def test_expected_rewards_are_the_mean(world):
    """40 contexts, 4,000 draws of noise each: up to 600 means within 5.5 standard errors, false alarms below 3e-5.

    The share of clicks, which depends on what was executed, shifts a mean by up to 0.005; a censored world counts
    fewer conversions than are expected in the long run.
    """
    some = draw(world, 40)
    rounds = take(some, np.repeat(np.arange(40), 4000))
    executed = world.expected_rewards(rounds).argmax(axis=1)
    rewards = play(world, rounds, executed)[0].all_rewards.reshape(40, 4000, world.n_actions)
    gap = rewards.mean(axis=1) - world.expected_rewards(some)
    slack = 0.005 if world.has_clicks else 0.0
    limit = 5.5 * rewards.std(axis=1) / np.sqrt(4000) + slack
    if getattr(world, "censored", False):
        assert (gap <= limit).all()
        return
    assert (np.abs(gap) <= limit).all()


def test_nothing_is_written(world):
    rounds, actions = draw(world), cycle(world)
    copies = rounds.contexts.copy(), actions.copy()
    rounds.contexts.flags.writeable = False
    actions.flags.writeable = False
    outcome, _ = play(world, rounds, actions)
    expected = world.expected_rewards(rounds)
    expected[:] = np.nan
    outcome.all_rewards[:] = np.nan
    np.testing.assert_array_equal(rounds.contexts, copies[0])
    np.testing.assert_array_equal(actions, copies[1])
    assert np.isfinite(world.expected_rewards(rounds)).all()
    assert np.isfinite(play(world, rounds, actions)[0].all_rewards).all()


def test_a_row_is_rewarded_alone(world):
    rounds = draw(world)
    whole = world.expected_rewards(rounds)
    part = world.expected_rewards(take(rounds, slice(10, 20)))
    np.testing.assert_allclose(part, whole[10:20], rtol=0, atol=1e-13)


@pytest.mark.parametrize("actions", [np.zeros(3, int), np.zeros(80), np.full(80, 99), np.full(80, -1)])
def test_wrong_actions_are_refused_before_anything_is_drawn(world, actions):
    rng = generator(2, "noise")
    with pytest.raises(InputError) as caught:
        world.feedback(draw(world), actions, rng)
    assert caught.value.rule and caught.value.remedy
    assert rng.bit_generator.state == generator(2, "noise").bit_generator.state


def test_every_parameter_has_a_rule(world):
    for item in fields(world):
        if not item.init:
            continue
        rule = item.metadata["rule"]
        wrong = [value for value in SUSPECTS if not rule.test(value)]
        assert wrong and item.metadata["doc"]
        for value in wrong:
            with pytest.raises(ParameterError) as caught:
                replace(world, **{item.name: value})
            assert all(part in str(caught.value) for part in (item.name, repr(value), rule.clause))
