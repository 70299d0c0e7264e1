"""The ridge learner: standard errors of its coefficients."""

import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import spuir
from tests.bandits import ACTIONS, REWARDS, D, M, X, taught


class TestStandardErrors:
    def test_they_are_those_of_the_sandwich(self) -> None:
        table = taught(spuir.make_policy("sbucb", ridge=0.7)).coefficient_table()
        for code in range(M):
            S, R = X[ACTIONS == code], REWARDS[ACTIONS == code]
            inverse = np.linalg.inv(S.T @ S + 0.7 * np.eye(D))
            left = R - S @ inverse @ S.T @ R
            spread = left @ left / (len(R) - np.trace(inverse @ S.T @ S)) * np.diag(inverse @ S.T @ S @ inverse)
            np.testing.assert_allclose(
                [line.standard_error for line in table if line.action == code], np.sqrt(spread), rtol=1e-9
            )

    @pytest.mark.parametrize(("ridge", "scale"), [(1e-6, 1.0), (1.0, 1e6), (1e-9, 1e3)])
    def test_repeated_rows_have_finite_ones(self, ridge: float, scale: float) -> None:
        rng = np.random.default_rng(1)
        rows = scale * np.repeat(rng.normal(size=(1, 4)), 50, axis=0)
        bandit = spuir.Bandit(spuir.make_policy("sbucb", ridge=ridge, intercept=True), 1, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            bandit.partial_fit(rows, np.zeros(50, int), rng.normal(size=50))
            errors = np.array([line.standard_error for line in bandit.coefficient_table()])
        # One direction is known, to 1/√50 of the noise in all; the others stay where the ridge holds them.
        full = np.append(rows[0], 1.0)
        assert np.all(errors >= 0)
        np.testing.assert_allclose(errors / errors.max(), np.abs(full) / np.abs(full).max(), atol=1e-3)


def exact_errors(contexts: np.ndarray, rewards: np.ndarray, ridge: float) -> list[float]:
    """Return the standard errors of one ridge regression in exact fractions."""
    rows = [[Fraction(float(cell)) for cell in row] for row in contexts]
    goals, p = [Fraction(float(reward)) for reward in rewards], contexts.shape[1]
    every = range(p)
    gram = [[sum(row[i] * row[j] for row in rows) for j in every] for i in every]
    wide: list[list[Any]] = [
        [gram[i][j] + (Fraction(ridge) if i == j else 0) for j in every] + [Fraction(int(i == j)) for j in every]
        for i in every
    ]
    for i in every:  # Gauss and Jordan
        wide[i] = [cell / wide[i][i] for cell in wide[i]]
        for k in every:
            if k != i:
                wide[k] = [cell - wide[k][i] * own for cell, own in zip(wide[k], wide[i], strict=True)]
    inverse = [row[p:] for row in wide]
    moment = [sum(row[i] * goal for row, goal in zip(rows, goals, strict=True)) for i in every]
    theta = [sum(inverse[i][j] * moment[j] for j in every) for i in every]
    left = sum(
        (goal - sum(a * b for a, b in zip(row, theta, strict=True))) ** 2 for row, goal in zip(rows, goals, strict=True)
    )
    hat = [[sum(inverse[i][k] * gram[k][j] for k in every) for j in every] for i in every]
    noise = left / (len(goals) - sum(hat[i][i] for i in every))
    return [math.sqrt(noise * sum(hat[i][k] * inverse[k][i] for k in every)) for i in every]


@pytest.mark.parametrize("scales", [(1e8, 1.0, 1e-3), (1e12, 1.0, 1e6), (1.0, 1e-9, 1e9), (1e15, 1e-6, 1.0)])
def test_standard_errors_hold_for_columns_of_any_scale(scales: tuple[float, ...]) -> None:
    """A user id or epoch seconds among the columns: logs of real systems have them."""
    rng = np.random.default_rng(5)
    contexts = rng.standard_normal((60, 3)) * scales
    contexts[:, 0] += 3 * scales[0]  # far from 0, as ids and times are
    rewards = 0.5 + rng.standard_normal(60)
    bandit = spuir.Bandit("sbucb", 1).partial_fit(contexts, np.zeros(60, int), rewards)
    errors = [line.standard_error for line in bandit.coefficient_table()]
    np.testing.assert_allclose(errors, exact_errors(contexts, rewards, 1.0), rtol=1e-6)


def test_standard_errors_of_two_large_columns_that_are_one() -> None:
    """Ridge gives each of two equal columns half of the coefficient, and half of its error."""
    rng = np.random.default_rng(6)
    column, rewards = 1e9 * (1 + rng.random(50)), rng.standard_normal(50)
    pair, alone = (
        spuir.Bandit("sbucb", 1).partial_fit(contexts, np.zeros(50, int), rewards).coefficient_table()[0].standard_error
        for contexts in (np.column_stack([column, column]), column[:, None])
    )
    np.testing.assert_allclose(pair, alone / 2, rtol=1e-6)
