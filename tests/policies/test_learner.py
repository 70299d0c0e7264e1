"""The ridge learner: standard errors of its coefficients."""

import warnings

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
