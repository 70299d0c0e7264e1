"""Factoring and solving: known solutions, limits of the ridge, widths, and what the result codes promise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spuir.core.scoring import squared_widths
from spuir.core.solving import DEFICIENT, FINE, JITTERED, MEANING, Solved, diagonals, factor_root, solve
from spuir.errors import NumericalError


def matrices(rng: np.random.Generator, m: int, p: int, condition: float) -> np.ndarray:
    """Symmetric positive definite matrices (M, p, p) of that condition number."""
    out = np.empty((m, p, p))
    for j in range(m):
        turn, _ = np.linalg.qr(rng.normal(size=(p, p)))
        out[j] = (turn * np.geomspace(1.0, condition, p)) @ turn.T
    return (out + out.transpose(0, 2, 1)) / 2


@pytest.mark.parametrize(("m", "p"), [(1, 1), (1, 7), (5, 1), (4, 6), (60, 3)])
def test_coefficients_factors_and_roots_belong_to_the_matrix(m: int, p: int) -> None:
    rng = np.random.default_rng(10 * m + p)
    psi, rhs = matrices(rng, m, p, 100.0), rng.normal(size=(m, p))
    kept, right = psi.copy(), rhs.copy()
    solved = solve(psi, rhs)
    np.testing.assert_array_equal(rhs, right)
    assert solved.upper is psi and solved.code.tolist() == [FINE] * m
    upper = np.triu(solved.upper)
    np.testing.assert_allclose(upper.transpose(0, 2, 1) @ upper, kept, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(np.linalg.solve(kept, rhs[:, :, None])[:, :, 0], solved.theta, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(solved.roots @ upper, np.broadcast_to(np.eye(p), (m, p, p)), atol=1e-12)
    assert not np.tril(solved.roots, -1).any()
    np.testing.assert_allclose(solved.traces, np.trace(kept, axis1=1, axis2=2), rtol=1e-12)
    other = rng.normal(size=(m, p))
    again = solved.again(other)
    np.testing.assert_allclose(kept @ again[:, :, None], other[:, :, None], rtol=1e-10, atol=1e-12)
    assert again is not other


def test_the_lower_triangle_is_not_read() -> None:
    rng = np.random.default_rng(0)
    psi = matrices(rng, 2, 5, 10.0)
    bent = psi + np.tril(rng.normal(size=(5, 5)), -1)
    np.testing.assert_array_equal(solve(bent, np.ones((2, 5))).theta, solve(psi, np.ones((2, 5))).theta)


class TestKnownSolution:
    """Data S = U diag(σ) Vᵀ, R = Uc + rest: the ridge solution is V diag(σ/(σ²+λ)) c for every λ."""

    rng = np.random.default_rng(5)
    U, _ = np.linalg.qr(rng.normal(size=(30, 4)))
    V, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    sigma = np.array([9.0, 3.0, 1.0, 0.2])
    c = rng.normal(size=4)
    rest = rng.normal(size=30)
    S = (U * sigma) @ V.T
    R = U @ c + rest - U @ (U.T @ rest)

    def theta(self, ridge: float) -> np.ndarray:
        return solve((self.S.T @ self.S + ridge * np.eye(4))[None], (self.S.T @ self.R)[None]).theta[0]

    @pytest.mark.parametrize("ridge", [1e-6, 0.1, 1.0, 4.0, 1e6])
    def test_is_found(self, ridge: float) -> None:
        expected = self.V @ (self.sigma / (self.sigma**2 + ridge) * self.c)
        np.testing.assert_allclose(self.theta(ridge), expected, rtol=1e-9)

    def test_goes_to_least_squares_as_the_ridge_vanishes(self) -> None:
        least_squares = np.linalg.lstsq(self.S, self.R, rcond=None)[0]
        errors = [np.abs(self.theta(ridge) - least_squares).max() for ridge in (1e-2, 1e-4, 1e-6, 1e-8)]
        # The bias is λσ⁻³c to first order: each hundredth of the ridge is a hundredth of the error.
        np.testing.assert_allclose(np.divide(errors[1:], errors[:-1]), 0.01, rtol=0.3)

    def test_goes_to_the_scaled_moment_as_the_ridge_grows(self) -> None:
        for ridge in (1e6, 1e9):
            np.testing.assert_allclose(ridge * self.theta(ridge), self.S.T @ self.R, rtol=1000 / ridge)


@given(st.integers(0, 10**6), st.sampled_from([1.0, 1e2, 1e4]), st.integers(1, 8), st.integers(1, 20))
def test_pair_products_are_the_quadratic_form(seed: int, condition: float, p: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    psi = matrices(rng, m, p, condition)
    inverse = np.linalg.inv(psi)
    solved = solve(psi.copy(), np.zeros((m, p)))
    assert solved.pairs.shape == (m, p * (p + 1) // 2)
    contexts = rng.normal(size=(6, p))
    rows, columns = np.triu_indices(p)
    products = (contexts[:, rows] * contexts[:, columns]).T
    expected = np.einsum("np,mpq,nq->mn", contexts, inverse, contexts)
    np.testing.assert_allclose(solved.pairs @ products, expected, rtol=1e-9)
    np.testing.assert_allclose(squared_widths(solved, contexts), expected, rtol=1e-9)


@pytest.mark.parametrize("p", [1, 2, 5, 8])
@pytest.mark.parametrize("n", [0, 1, 7])
def test_widths_of_any_number_of_columns_and_contexts(p: int, n: int) -> None:
    rng = np.random.default_rng(p)
    psi, contexts = matrices(rng, 3, p, 10.0), rng.normal(size=(n, p))
    expected = np.einsum("np,mpq,nq->mn", contexts, np.linalg.inv(psi), contexts)
    np.testing.assert_allclose(squared_widths(solve(psi, np.zeros((3, p))), contexts), expected, rtol=1e-11)


@pytest.mark.parametrize(("condition", "tame"), [(1.0, True), (1e5, True), (1e8, False), (1e14, False)])
def test_what_is_badly_conditioned_says_so(condition: float, tame: bool) -> None:
    rng = np.random.default_rng(1)
    solved = solve(matrices(rng, 3, 5, condition), np.zeros((3, 5)))
    assert solved.well_conditioned is tame
    one_bad = np.concatenate([matrices(rng, 2, 5, 1.0), matrices(rng, 1, 5, condition)])
    assert solve(one_bad, np.zeros((3, 5))).well_conditioned is tame


def check_consistent(solved: Solved, j: int, rhs: np.ndarray) -> np.ndarray:
    """Return the matrix that was factored in place of a bad one, after asserting that θ solves it."""
    upper = np.triu(solved.upper[j])
    factored = upper.T @ upper
    assert np.all(np.diag(upper) > 0)
    np.testing.assert_allclose(factored @ solved.theta[j], rhs, rtol=1e-5, atol=1e-5 * np.abs(rhs).max())
    np.testing.assert_allclose(solved.roots[j] @ upper, np.eye(len(rhs)), atol=1e-6)
    return factored


class TestRescue:
    rng = np.random.default_rng(8)
    good = matrices(rng, 1, 6, 10.0)[0]
    rows = rng.normal(size=(40, 6))
    rows[:, 5] = rows[:, 0]  # a duplicated column
    singular = rows.T @ rows

    def test_a_duplicated_column_with_a_tiny_ridge_is_jittered(self) -> None:
        psi = self.singular + 1e-30 * np.eye(6)
        rhs = self.rows.T @ np.random.default_rng(1).normal(size=40)
        # Rounding may leave the last pivot just positive: a hair less makes the matrix indefinite for certain.
        psi[5, 5] -= 1e-14 * psi[5, 5]
        solved = solve(np.stack([self.good, psi]), np.stack([np.ones(6), rhs]))
        assert solved.code.tolist() == [FINE, JITTERED]
        np.testing.assert_allclose(check_consistent(solved, 1, rhs), psi, atol=1e-9 * np.trace(psi))
        # What the data say is kept: fitted values are those of least squares.
        fitted = np.linalg.lstsq(self.singular, rhs, rcond=1e-10)[0]
        np.testing.assert_allclose(self.singular @ solved.theta[1], self.singular @ fitted, rtol=1e-4)
        np.testing.assert_allclose(solved.theta[0], np.linalg.solve(self.good, np.ones(6)), rtol=1e-12)

    def test_an_indefinite_matrix_falls_back_to_its_positive_part(self) -> None:
        rng = np.random.default_rng(2)
        turn, _ = np.linalg.qr(rng.normal(size=(6, 6)))
        values = np.array([3.0, 2.0, 1.0, 0.5, -0.1, -1.0])
        psi, rhs = (turn * values) @ turn.T, turn[:, :4] @ rng.normal(size=4)
        solved = solve(np.stack([(psi + psi.T) / 2, self.good]), np.stack([rhs, np.ones(6)]))
        assert solved.code.tolist() == [DEFICIENT, FINE]
        factored = check_consistent(solved, 0, rhs)
        np.testing.assert_allclose(factored, (turn * np.maximum(values, 3e-10)) @ turn.T, atol=1e-9)
        np.testing.assert_allclose(solved.theta[0], turn[:, :4] @ (turn[:, :4].T @ rhs / values[:4]), atol=1e-5)

    @pytest.mark.parametrize("matrix", [-np.eye(3), np.zeros((3, 3))], ids=["negative", "zero"])
    def test_a_matrix_without_any_positive_part_still_has_a_factor(self, matrix: np.ndarray) -> None:
        solved = solve(matrix[None].copy(), np.full((1, 3), 1e-9))
        assert solved.code.tolist() == [DEFICIENT]
        assert np.all(np.isfinite(solved.theta)) and np.all(np.isfinite(solved.roots))

    def test_a_failure_in_the_last_pivot_restores_the_whole_matrix(self) -> None:
        psi = np.diag([4.0, 3.0, 2.0, -1e-13])
        psi[0, 1] = psi[1, 0] = 1.0
        solved = solve(psi[None].copy(), np.array([[1.0, 2.0, 3.0, 0.0]]))
        assert solved.code.tolist() == [JITTERED]
        np.testing.assert_allclose(check_consistent(solved, 0, np.array([1.0, 2.0, 3.0, 0.0])), psi, atol=1e-9)


def test_every_code_has_a_meaning_and_graver_ones_are_larger() -> None:
    assert sorted(MEANING) == [FINE, JITTERED, DEFICIENT] == [0, 1, 2]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_sums_that_left_the_finite_numbers_are_refused(bad: float) -> None:
    psi, rhs = np.stack([np.eye(3)] * 2), np.ones((2, 3))
    psi[1, 0, 0] = bad
    with pytest.raises(NumericalError, match="finite"):
        solve(psi, rhs)
    with pytest.raises(NumericalError, match="finite"):
        solve(np.stack([np.eye(3)] * 2), np.where(np.eye(2, 3) > 0, bad, 1.0))


def test_diagonals_are_a_writable_view() -> None:
    stack = np.zeros((2, 3, 3))
    diagonals(stack)[:] += np.array([[1.0], [2.0]])
    np.testing.assert_array_equal(stack, [np.eye(3), 2 * np.eye(3)])


def test_the_root_of_one_matrix_leaves_the_matrix_alone() -> None:
    matrix = matrices(np.random.default_rng(2), 1, 5, 50.0)[0]
    kept = matrix.copy()
    root = factor_root(matrix)
    np.testing.assert_array_equal(matrix, kept)
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(matrix), rtol=1e-11, atol=1e-13)
