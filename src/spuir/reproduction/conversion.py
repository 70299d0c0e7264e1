"""A shop as a test: two offers that convert at 5 % and 10 %, raw columns in their own units, the default policy.

The columns are what a table has before anybody prepares it: a time in epoch seconds, a yearly income, an age, a
number of visits, a price and whether the customer is new. Either one offer is better for everybody, or new customers
want the other one.
"""

from typing import Any

import numpy as np

from spuir.bandit import Bandit
from spuir.base.records import Floats
from spuir.base.streams import generator
from spuir.policies import make_policy

RATES = (0.05, 0.10)
LATER_ROWS = 4000
"""Rows on which the choices are judged; the policy never learns from them."""


def customers(n: int, seed: int, episode: int) -> Floats:
    """Draw n rows: epoch seconds of one week per episode, income, age, visits, price, new or not."""
    rng = generator(seed, "environment", "contexts", episode)
    week = 7 * 86_400
    return np.column_stack(
        [
            1.7e9 + week * (episode + rng.random(n)),
            np.exp(rng.normal(10.5, 0.5, n)),
            rng.integers(18, 80, n),
            rng.poisson(3.0, n),
            rng.gamma(2.0, 20.0, n),
            rng.random(n) < 0.5,
        ]
    ).astype(np.float64)


def better_offer(rows: Floats, *, contextual: bool) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Return the offer that converts at the higher rate, for each row."""
    return (rows[:, -1] > 0).astype(np.intp) if contextual else np.ones(len(rows), dtype=np.intp)


def convert(
    *, contextual: bool, policy: str, parameters: dict[str, Any], episodes: int, batch_size: int, seed: int
) -> list[dict[str, Any]]:
    """Let a policy sell for some episodes; return, after each, the share of later rows with the better offer."""
    bandit = Bandit(make_policy(policy, **parameters), actions=2, random_state=seed)
    later = customers(LATER_ROWS, seed, episodes)
    wanted = better_offer(later, contextual=contextual)
    rows: list[dict[str, Any]] = []
    for n in range(episodes):
        contexts = customers(batch_size, seed, n)
        actions = bandit.decide(contexts).actions
        best = better_offer(contexts, contextual=contextual)
        rates = np.where(actions == best, max(RATES), min(RATES))
        sold = generator(seed, "environment", "noise", n).random(batch_size) < rates
        bandit.partial_fit(contexts, actions, sold.astype(np.float64))
        rows.append({"episode": n + 1, "share": float((bandit.predict(later) == wanted).mean())})
    return rows
