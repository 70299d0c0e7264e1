"""The default policy earns what it promises, without any setting: small forms of the experiment `default`."""

from typing import Any, cast

import numpy as np
import pytest

from spuir.environments import make_environment
from spuir.loop import run
from spuir.policies import make_policy
from spuir.reproduction.conversion import better_offer, convert, customers

SEEDS = 4


@pytest.mark.parametrize("contextual", [False, True])
def test_it_finds_the_better_of_two_conversion_rates_on_raw_columns(contextual):
    # 5 % against 10 %, 14 × 500 rows. Over 20 seeds the share is 0.98 with a deviation of 0.07 or less for one seed: a
    # mean of four is below 0.85 in fewer than one of a thousand draws.
    given = {"policy": "auto", "parameters": {}, "episodes": 14, "batch_size": 500}
    shares = [convert(contextual=contextual, seed=seed, **given)[-1]["share"] for seed in range(SEEDS)]
    assert np.mean(shares) > 0.85


def test_the_columns_of_the_shop_are_raw():
    rows = customers(500, 0, 3)
    assert rows[:, 0].min() > 1.7e9, "epoch seconds"
    assert rows.std(axis=0).max() / rows.std(axis=0).min() > 1e4
    assert better_offer(rows, contextual=False).all()
    assert 0.4 < better_offer(rows, contextual=True).mean() < 0.6


def test_untuned_it_beats_linear_policies_where_rewards_are_not_linear():
    # Polynomial rewards, one seed. Over 20 seeds auto is ahead by more than 10 % in each.
    world = make_environment("nonlinear", truth="poly", seed=0)
    auto, linear = (
        run(make_policy(name, **cast(Any, given)), world, 20, 500, 0).rewards.mean()
        for name, given in (("auto", {"floor": 0.0}), ("sbucb", {"scale": True, "intercept": True, "alpha": 0.1}))
    )
    assert auto > 1.05 * linear
