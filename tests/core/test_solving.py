"""Factoring and solving: known solutions, limits of the ridge, widths in two precisions, result codes."""

from typing import Literal

import numpy as np
import pytest

from spuir.core import solving
from spuir.core.screening import UNDERFLOW_LOSS, single_widths, squared_widths
from spuir.core.solving import DEFICIENT, FINE, JITTERED, Solved, diagonals, solve
from spuir.errors import NumericalError
from tests.core.screening import KINDS, extended_widths, single_case


def matrices(rng: np.random.Generator, m: int, p: int, condition: float) -> np.ndarray:
    """Symmetric positive definite matrices (M, p, p) of that condition number."""
    out = np.empty((m, p, p))
    for j in range(m):
        turn, _ = np.linalg.qr(rng.normal(size=(p, p)))
        out[j] = (turn * np.geomspace(1.0, condition, p)) @ turn.T
    return (out + out.transpose(0, 2, 1)) / 2


@pytest.mark.parametrize("ridge", [0.1, 1.0, 4.0])
def test_the_ridge_is_added_to_every_diagonal(ridge: float) -> None:
    rng = np.random.default_rng(3)
    table = rng.normal(size=(4, 6 * 6 + 5))
    gram = table[:, :36].reshape(4, 6, 6)  # not contiguous as a whole, as in a table of sums
    gram[:] = matrices(rng, 4, 6, 10.0)
    kept, rest, rhs = gram.copy(), table[:, 36:].copy(), rng.normal(size=(4, 6))
    solved, expected = solve(gram, rhs, ridge), solve(kept + ridge * np.eye(6), rhs)
    np.testing.assert_allclose(solved.theta, expected.theta, rtol=1e-12)
    np.testing.assert_allclose(np.triu(solved.upper), np.triu(expected.upper), rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(table[:, 36:], rest)


@pytest.mark.parametrize(("m", "p"), [(1, 1), (1, 7), (5, 1), (4, 6), (60, 3), (2, 64), (2, 65), (3, 150)])
def test_coefficients_factors_and_roots_belong_to_the_matrix(m: int, p: int) -> None:
    rng = np.random.default_rng(10 * m + p)
    psi, rhs = matrices(rng, m, p, 100.0), rng.normal(size=(m, p))
    kept, right = psi.copy(), rhs.copy()
    solved = solve(psi, rhs)
    np.testing.assert_array_equal(rhs, right)
    assert solved.upper is psi and list(solved.codes) == [FINE] * m
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


@pytest.mark.parametrize("p", [1, 2, 5, 8])
@pytest.mark.parametrize("n", [0, 1, 7])
def test_widths_of_any_number_of_columns_and_contexts(p: int, n: int) -> None:
    rng = np.random.default_rng(p)
    psi, contexts = matrices(rng, 3, p, 10.0), rng.normal(size=(n, p))
    expected = np.einsum("np,mpq,nq->mn", contexts, np.linalg.inv(psi), contexts)
    np.testing.assert_allclose(squared_widths(solve(psi, np.zeros((3, p))), contexts), expected, rtol=1e-11)


# ---- single precision -----------------------------------------------------------------------------------------


CONDITIONS = [1.0, 1e2, 1e4, 1e6, 1e8, 1e10, 1e12]
# Powers of two, by which exact widths scale exactly: 1e-25, 1e-19, 1e-9, 1, 1e9, 1e19, 1e25.
SCALES = [2.0**power for power in (-83, -63, -30, 0, 30, 63, 83)]


@pytest.mark.parametrize("p", [1, 2, 7, 40, 120])
@pytest.mark.parametrize("kind", KINDS)
def test_widths_in_single_precision_are_off_by_no_more_than_stated(kind: str, p: int) -> None:
    overflows = 0
    for condition in CONDITIONS:
        solved, contexts, exact = single_case(kind, p, condition)
        error = solved.single.error
        for scale in SCALES:
            found = single_widths(solved.single, scale * contexts)
            if found is None:  # squares beyond 2**128
                assert scale * exact.max() > 1e18
                overflows += 1
                continue
            off = np.abs(found[0] - scale * exact)
            assert np.all(off <= error * scale * exact + UNDERFLOW_LOSS), (condition, scale)
            assert error > 0.5 or np.all(off <= 2.0 * error * found[0] + UNDERFLOW_LOSS), (condition, scale)
            assert np.all(off <= np.abs(scale * contexts) @ solved.single.rounding + UNDERFLOW_LOSS), (condition, scale)
    assert overflows <= 2 * len(CONDITIONS)


@pytest.mark.parametrize("kind", ["spread", "one short axis", "one long axis", "collinear"])
def test_the_stated_error_is_needed_up_to_a_small_factor(kind: str) -> None:
    shares, without = [], []
    for p in (2, 3, 7):
        for seed in range(10):
            solved, contexts, exact = single_case(kind, p, 1e8, seed)
            found = single_widths(solved.single, contexts)
            assert found is not None
            off = float((np.abs(found[0] - exact) / exact).max())
            shares.append(off / solved.single.error)
            without.append(off / ((p + 4) * 2.0**-23))
    assert 1 / 50 < max(shares) <= 1.0
    assert max(without) > 50.0  # the condition has to be part of it


def test_the_error_of_many_is_that_of_the_worst_and_does_not_depend_on_units() -> None:
    rng = np.random.default_rng(1)
    tame, wild = matrices(rng, 2, 5, 10.0), matrices(rng, 1, 5, 1e8)

    def error(*stacks: np.ndarray) -> float:
        psi = np.concatenate(stacks)
        return solve(psi, np.zeros((len(psi), 5))).single.error

    assert error(tame, wild) == error(wild) > 1000 * error(tame)
    assert error(2.0**60 * tame, 2.0**-60 * tame) == pytest.approx(error(tame), rel=1e-12)
    # Columns in other units: each context value has its own.
    units = 2.0 ** np.arange(-20, 30, 10)
    assert error(units[:, None] * wild * units) == error(wild)
    # ‖|U|r‖ of the identity is √p.
    assert solve(np.eye(5)[None], np.zeros((1, 5))).single.error == pytest.approx(9 * 2.0**-23 * np.sqrt(5))


def test_rounding_of_many_is_that_of_the_worst_column_by_column() -> None:
    stretched = np.stack([np.diag([1.0, 4.0, 16.0]), np.diag([4.0, 1.0, 64.0])])
    rounding = solve(stretched, np.zeros((2, 3))).single.rounding
    np.testing.assert_allclose(rounding, 7 * 2.0**-23 * np.array([1.0, 1.0, 0.25]), rtol=1e-12)


def test_the_stated_rounding_is_needed_up_to_a_small_factor() -> None:
    shares, relative = [], []
    for kind in ("spread", "one short axis", "one long axis", "collinear"):
        for p in (2, 3, 7):
            for seed in range(10):
                solved, contexts, exact = single_case(kind, p, 1e8, seed)
                found = single_widths(solved.single, contexts)
                assert found is not None
                stated = np.abs(contexts) @ solved.single.rounding
                shares.append(float((np.abs(found[0] - exact) / stated).max()))
                relative.append(float((stated / (solved.single.error * exact)).min()))
    assert 1 / 20 < max(shares) <= 1.0
    assert min(relative) < 1e-3  # for contexts along short axes it says far more than the relative one


@pytest.mark.parametrize(("matrix", "context"), [(-240, -140), (280, 120)])
def test_what_the_ends_of_single_precision_would_spoil_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch, matrix: int, context: int
) -> None:
    rng = np.random.default_rng(2)
    psi, contexts = 2.0**matrix * matrices(rng, 1, 6, 10.0), 2.0**context * rng.normal(size=(50, 6))
    solved = solve(psi.copy(), np.zeros((1, 6)))
    assert solved.single.error == np.inf
    # Without that, widths far above UNDERFLOW_LOSS would be off by more than stated: underflow takes their digits.
    monkeypatch.setattr(solving, "RANGE", np.inf)
    single = solve(psi.copy(), np.zeros((1, 6))).single
    found, exact = single_widths(single, contexts), extended_widths(solved.upper[0], contexts)
    assert found is not None and single.error < 1e-4 and exact.min() > 1e-8
    assert np.any(np.abs(found[0] - exact) > 2.0 * single.error * found[0] + UNDERFLOW_LOSS)


@pytest.mark.parametrize("size", [1e-300, 1e-60, 1e60, 1e150])
def test_matrices_of_any_size_have_roots_in_single_precision_or_none_without_a_warning(size: float) -> None:
    solved = solve(size * np.stack([np.eye(3)] * 2), np.zeros((2, 3)))
    assert solved.single.error == np.inf and solved.single.bands[0].dtype == np.float32


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
        assert list(solved.codes) == [FINE, JITTERED]
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
        assert list(solved.codes) == [DEFICIENT, FINE]
        factored = check_consistent(solved, 0, rhs)
        np.testing.assert_allclose(factored, (turn * np.maximum(values, 3e-10)) @ turn.T, atol=1e-9)
        np.testing.assert_allclose(solved.theta[0], turn[:, :4] @ (turn[:, :4].T @ rhs / values[:4]), atol=1e-5)

    @pytest.mark.parametrize("matrix", [-np.eye(3), np.zeros((3, 3))], ids=["negative", "zero"])
    def test_a_matrix_without_any_positive_part_still_has_a_factor(self, matrix: np.ndarray) -> None:
        solved = solve(matrix[None].copy(), np.full((1, 3), 1e-9))
        assert list(solved.codes) == [DEFICIENT]
        assert np.all(np.isfinite(solved.theta)) and np.all(np.isfinite(solved.roots))

    def test_a_failure_in_the_last_pivot_restores_the_whole_matrix(self) -> None:
        psi = np.diag([4.0, 3.0, 2.0, -1e-13])
        psi[0, 1] = psi[1, 0] = 1.0
        solved = solve(psi[None].copy(), np.array([[1.0, 2.0, 3.0, 0.0]]))
        assert list(solved.codes) == [JITTERED]
        np.testing.assert_allclose(check_consistent(solved, 0, np.array([1.0, 2.0, 3.0, 0.0])), psi, atol=1e-9)


def test_the_worst_code_is_the_gravest_of_all_actions() -> None:
    good, jittered, deficient = np.eye(3), np.diag([4.0, 3.0, -1e-13]), np.diag([1.0, 1.0, -1.0])
    for parts, worst in (
        ([good, good], FINE),
        ([good, jittered, good], JITTERED),
        ([jittered, deficient, good], DEFICIENT),
    ):
        solved = solve(np.stack(parts), np.ones((len(parts), 3)))
        assert solved.worst == worst and isinstance(solved.worst, int)
    assert solve(np.empty((0, 3, 3)), np.empty((0, 3))).worst == FINE


@pytest.mark.parametrize("order", ["C", "F"])
def test_solving_again_is_solving_with_another_right_hand_side(order: Literal["C", "F"]) -> None:
    rng = np.random.default_rng(3)
    psi = np.concatenate([matrices(rng, 3, 6, 100.0), TestRescue.singular[None] - 1e-14 * np.eye(6)])
    first, second = rng.normal(size=(2, 4, 6))
    solved = solve(psi.copy(), first)
    given_ = np.asarray(second, order=order)
    kept, theta, upper = given_.copy(), solved.theta.copy(), solved.upper.copy()
    again = solved.again(given_)
    np.testing.assert_allclose(again[:3], solve(psi.copy(), second).theta[:3], rtol=1e-12)
    # Also for a matrix that had to be lifted: by the factor that it has now.
    factored = np.triu(upper).transpose(0, 2, 1) @ np.triu(upper)
    left = np.abs((factored @ again[:, :, None])[:, :, 0] - second).max(axis=1)
    assert solved.worst == JITTERED and np.all(left <= 1e-14 * solved.traces * np.abs(again).max(axis=1))
    np.testing.assert_allclose(solved.again(first), theta, rtol=1e-9)
    for now, before in ((given_, kept), (solved.theta, theta), (solved.upper, upper)):
        np.testing.assert_array_equal(now, before)
    assert not np.shares_memory(again, given_)


def test_graver_codes_are_larger_and_saved_as_they_were() -> None:
    assert [FINE, JITTERED, DEFICIENT] == [0, 1, 2]


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
