"""``bonus``: what imputed rewards change, apart from each other: the estimates and the widths."""

from typing import Any, cast

import numpy as np
import pytest

import spuir
from spuir.base.records import Batch
from spuir.policies import make_policy
from spuir.policies.optimistic import Optimistic

ACTIONS, DIM, ROWS, EPISODES = 4, 6, 60, 5
NAMES = ("puir", "puir-rs", "puir-exp", "puir-poly", "blts-b")


def batches(rng: np.random.Generator) -> list[Batch]:
    return [
        Batch(
            contexts=rng.normal(0.2, 0.5, (ROWS, DIM)),
            actions=rng.integers(ACTIONS, size=ROWS),
            rewards=rng.random(ROWS),
            propensities=np.full(ROWS, 1 / ACTIONS),
        )
        for _ in range(EPISODES)
    ]


def learned(policy: Any, some: list[Batch]) -> Any:
    rng = np.random.default_rng(0)
    state = policy.init(ACTIONS, DIM, rng)
    for batch in some:
        state, _ = policy.learn(state, batch, rng)
    return state


def naive(some: list[Batch], contexts: np.ndarray, *, rate: float, discount: float) -> tuple[np.ndarray, np.ndarray]:
    """(2) to (4) row by row; the width is ‖s‖ in the inverse of λI + Φ_j with λ = 1."""
    means, widths = [], []
    for action in range(ACTIONS):
        observed, imputed = np.eye(DIM), np.zeros((DIM, DIM))
        moment, filled, theta = np.zeros(DIM), np.zeros(DIM), np.zeros(DIM)
        for batch in some:
            imputed, filled = discount * imputed, discount * filled
            for row, chosen, reward in zip(batch.contexts, batch.actions, batch.rewards, strict=True):
                if chosen == action:
                    observed, moment = observed + np.outer(row, row), moment + reward * row
                else:
                    imputed, filled = imputed + np.outer(row, row), filled + (theta @ row) * row
            theta = np.linalg.solve(observed + rate * imputed, moment + rate * filled)
        means.append(contexts @ theta)
        widths.append([np.sqrt(row @ np.linalg.inv(observed) @ row) for row in contexts])
    return np.array(means).T, np.array(widths).T


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("rate", "discount"), [(0.1, 0.9), (1.0, 0.1)])
def test_the_naive_form_agrees(seed: int, rate: float, discount: float) -> None:
    rng = np.random.default_rng(seed)
    some, contexts = batches(rng), rng.normal(0.2, 0.5, (30, DIM))
    policy = cast(Optimistic, make_policy("puir", bonus="observed", imputation_rate=rate, discount=discount, alpha=0.7))
    state = learned(policy, some)
    means, widths = policy.estimates(state, contexts)
    expected = naive(some, contexts, rate=rate, discount=discount)
    np.testing.assert_allclose(means, expected[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(widths, expected[1], rtol=1e-9)
    best = (expected[0] + 0.7 * expected[1]).argmax(axis=1)
    np.testing.assert_array_equal(policy.decide(state, contexts, np.random.default_rng(1)).actions, best)


@pytest.mark.parametrize("name", [*NAMES, "spuir", "spuir-rs", "spuir-kernel"])
def test_estimates_stay_and_widths_lose_their_imputed_part(name: str) -> None:
    """The same batches, so the imputed rewards are the same: only widths differ, and none is smaller."""
    rng = np.random.default_rng(7)
    some, contexts = batches(rng), rng.normal(0.2, 0.5, (40, DIM))
    usual, observed = (cast(Any, make_policy(name, bonus=bonus)) for bonus in ("imputed", "observed"))
    mean, width = usual.estimates(learned(usual, some), contexts)
    other_mean, other_width = observed.estimates(learned(observed, some), contexts)
    np.testing.assert_array_equal(mean, other_mean)
    assert (other_width >= width - 1e-12).all()
    if "imputing" in usual.traits:
        assert (other_width > width + 1e-6).mean() > 0.9


@pytest.mark.parametrize("name", ["puir", "spuir"])
def test_screened_decisions_are_those_of_the_table(name: str) -> None:
    """The shared bound holds for Ψ_j only; decisions with observed widths must not use it."""
    rng = np.random.default_rng(3)
    some, contexts = batches(rng), rng.normal(0.2, 0.5, (500, DIM))
    policy = cast(Any, make_policy(name, bonus="observed", alpha=0.5, imputation_rate=1.0))
    state = learned(policy, some)
    table = policy.table(state, contexts, np.ones((500, ACTIONS), bool))
    actions = policy.decide(state, contexts, np.random.default_rng(0)).actions
    np.testing.assert_array_equal(actions, table.scores.argmax(axis=1))


@pytest.mark.parametrize("name", ["puir", "spuir"])
def test_only_the_widths_of_imputation(name: str) -> None:
    """Estimates are those without imputation, widths those with it."""
    rng = np.random.default_rng(5)
    some, contexts = batches(rng), rng.normal(0.2, 0.5, (200, DIM))
    plain = cast(Any, make_policy(name, imputation_rate=0.0, alpha=0.4))
    both, only = (cast(Any, make_policy(name, bonus=bonus, alpha=0.4)) for bonus in ("imputed", "only"))
    state = learned(only, some)
    means, widths = only.estimates(state, contexts)
    np.testing.assert_array_equal(means, plain.estimates(learned(plain, some), contexts)[0])
    np.testing.assert_array_equal(widths, both.estimates(learned(both, some), contexts)[1])
    actions = only.decide(state, contexts, np.random.default_rng(0)).actions
    np.testing.assert_array_equal(actions, (means + 0.4 * widths).argmax(axis=1))


def test_without_imputation_the_parameter_changes_nothing() -> None:
    rng = np.random.default_rng(11)
    some, contexts = batches(rng), rng.normal(0.2, 0.5, (20, DIM))
    plain, observed = (cast(Any, make_policy("sbucb", bonus=bonus)) for bonus in ("imputed", "observed"))
    usual, same = (policy.estimates(learned(policy, some), contexts) for policy in (plain, observed))
    np.testing.assert_array_equal(usual, same)


def test_an_unknown_bonus_is_refused() -> None:
    with pytest.raises(spuir.errors.ParameterError, match="'imputed', 'observed', 'only'"):
        make_policy("puir", bonus="full")


def test_the_two_names_of_the_authors_preset() -> None:
    for name in spuir.list_policies():
        assert make_policy(name, preset="authors-code") == make_policy(name, preset="paper")
    with pytest.raises(spuir.errors.ParameterError, match="authors-code"):
        make_policy("puir", preset="authors")
