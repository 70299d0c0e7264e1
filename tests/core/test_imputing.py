"""Complements, imputed moments, links and rates, each against its definition."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spuir.core import imputing, statistics
from spuir.core.imputing import LINKS, balanced_rates, complement, gaps, linear_moments, link_gap, scheduled_rate
from spuir.errors import NumericalError


def loop_complement(stack: np.ndarray) -> np.ndarray:
    out = np.zeros_like(stack)
    for j in range(len(stack)):
        for k in range(len(stack)):
            if k != j:
                out[j] += stack[k]
    return out


@pytest.mark.parametrize("m", [1, 2, 3, 7, 8, 9, 15, 16, 17, 20, 60, 64, 65, 130])
@pytest.mark.parametrize("group", [2, 3, 8, 1000])
def test_the_complement_is_the_sum_of_all_others(monkeypatch: pytest.MonkeyPatch, m: int, group: int) -> None:
    monkeypatch.setattr(imputing, "GROUP", group)
    rng = np.random.default_rng(m)
    for shape in ((), (3,), (2, 3), (4, 4)):
        # Whole numbers, so that every order of summation gives the same.
        stack = rng.integers(-9, 10, size=(m, *shape)).astype(float)
        kept = stack.copy()
        np.testing.assert_array_equal(complement(stack), loop_complement(stack))
        np.testing.assert_array_equal(stack, kept)


def test_one_product_and_groups_meet_where_one_takes_over() -> None:
    rng = np.random.default_rng(0)
    for m in (imputing.GROUP, imputing.GROUP + 1, imputing.GROUP**2, imputing.GROUP**2 + 1):
        stack = rng.normal(size=(m, 5, 5))
        np.testing.assert_allclose(complement(stack), loop_complement(stack), rtol=1e-13, atol=1e-13)


def grams(rng: np.random.Generator, m: int, width: int, spread: float) -> np.ndarray:
    """Rank-deficient Gram matrices whose sizes span ``spread`` powers of ten."""
    rows = rng.normal(size=(m, max(1, width // 2), width)) * 10.0 ** (spread / 2 * rng.uniform(-1, 1, (m, 1, 1)))
    return rows.transpose(0, 2, 1) @ rows


@given(st.integers(0, 10**6), st.sampled_from([2, 3, 8, 9, 30]), st.sampled_from([0.0, 8.0, 24.0]))
def test_a_complement_is_never_negative_definite(seed: int, m: int, spread: float) -> None:
    for matrix in complement(grams(np.random.default_rng(seed), m, 6, spread)):
        # Of its own size, not of the total's: what is left after a large own part is as good as any.
        assert np.linalg.eigvalsh(matrix).min() >= -1e-13 * np.abs(matrix).max()


def test_total_minus_own_would_be_negative_definite() -> None:
    stack = grams(np.random.default_rng(1), 2, 6, 0.0)
    stack[0] *= 1e15
    rest = stack.sum(axis=0) - stack[0]
    assert np.linalg.eigvalsh(rest).min() < -1e-3 * np.abs(rest).max()
    assert np.linalg.eigvalsh(complement(stack)[0]).min() > -1e-15


@pytest.mark.parametrize("m", [4, 9, 40])
def test_actions_without_rows_get_the_same_complement_to_the_last_bit(m: int) -> None:
    stack = grams(np.random.default_rng(m), m, 6, 6.0)
    idle = [0, m // 2, m - 1]
    stack[idle] = 0.0
    out = complement(stack)
    np.testing.assert_array_equal(out[idle], np.broadcast_to(out[0], (3, 6, 6)))
    np.testing.assert_allclose(out, loop_complement(stack), rtol=1e-12)


def test_a_leading_zero_does_not_make_an_action_idle() -> None:
    stack = np.random.default_rng(0).integers(1, 9, size=(12, 3)).astype(float)
    stack[[2, 7], 0] = 0.0
    np.testing.assert_array_equal(complement(stack), loop_complement(stack))


def test_linear_moments_need_no_rows() -> None:
    rng = np.random.default_rng(2)
    rows, theta = rng.normal(size=(4, 11, 5)), rng.normal(size=(4, 5))
    expected = [S.T @ (S @ t) for S, t in zip(rows, theta, strict=True)]
    np.testing.assert_allclose(linear_moments(rows.transpose(0, 2, 1) @ rows, theta), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["exp", "poly"])
@pytest.mark.parametrize("cap", [None, 0.1])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("piece", [1, 3, 100])
def test_gaps_are_what_a_link_adds_to_the_linear_moment(
    monkeypatch: pytest.MonkeyPatch, name: str, cap: float | None, masked: bool, piece: int
) -> None:
    rng = np.random.default_rng(3)
    contexts, theta = 0.3 * rng.normal(size=(17, 4)), rng.normal(size=(3, 4))
    executed, weights = rng.integers(3, size=17), rng.random(17)
    hidden = rng.random((17, 3)) < 0.5 if masked else np.arange(3) != executed[:, None]
    monkeypatch.setattr(statistics, "GATHER_BYTES", piece * 8 * (4 + 9))
    got = gaps(contexts, hidden if masked else executed, theta, LINKS[name], cap, weights)
    expected = np.zeros((3, 4))
    for b, s in enumerate(contexts):
        for j in range(3):
            z = float(theta[j] @ s)
            value = z * math.exp(z) if name == "exp" else 2 * z * z
            if hidden[b, j]:
                expected[j] += weights[b] * ((value if cap is None else min(value, cap)) - z) * s
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("name", "reward"), [("linear", lambda z: z), ("exp", np.exp), ("poly", np.square)])
def test_a_link_is_the_inner_product_of_coefficients_and_gradient(name: str, reward) -> None:
    rng = np.random.default_rng(4)
    theta, contexts, step = rng.normal(size=3), rng.normal(size=(20, 3)), 1e-6
    for s in contexts:
        gradient = [(reward((theta + step * e) @ s) - reward((theta - step * e) @ s)) / (2 * step) for e in np.eye(3)]
        assert LINKS[name].reward(np.array([theta @ s]), None)[0] == pytest.approx(theta @ np.array(gradient), rel=1e-6)
    z = np.linspace(-1, 1, 5)
    assert not np.shares_memory(LINKS[name].reward(z, None), z)
    assert LINKS[name].reward(z, 0.25).max() <= 0.25


def test_an_imputed_reward_that_overflows_is_refused_with_the_remedy() -> None:
    contexts, theta = np.full((1, 1), 1000.0), np.ones((1, 1))
    with pytest.raises(NumericalError, match="imputed_cap"):
        link_gap(contexts, theta, LINKS["exp"], None)
    assert link_gap(contexts, theta, LINKS["exp"], 1.0)[0, 0] == 1.0 - 1000.0


def test_the_schedule_climbs_by_tenths() -> None:
    assert [scheduled_rate(n, 90) for n in (0, 1, 9, 10, 18, 19, 81, 82, 90, 91, 1000)] == [
        0.0, 0.1, 0.1, 0.2, 0.2, 0.3, 0.9, 1.0, 1.0, 1.0, 1.0,
    ]  # fmt: skip
    assert [scheduled_rate(n, 3) for n in (1, 2, 3, 4)] == [0.4, 0.7, 1.0, 1.0]
    assert scheduled_rate(1, 1) == 1.0
    assert [scheduled_rate(n, None) for n in (9, 10)] == [scheduled_rate(n, 90) for n in (9, 10)]


@given(st.integers(1, 200), st.integers(0, 400))
def test_the_schedule_is_the_rounded_up_tenth(horizon: int, episode: int) -> None:
    tenth = round(10 * scheduled_rate(episode, horizon))
    if episode <= horizon:
        assert (tenth - 1) * horizon < 10 * episode <= tenth * horizon
    else:
        assert tenth == 10


def test_balanced_rates_weigh_observed_against_imputed_rows() -> None:
    observed, imputed = np.array([10.0, 0.0, 5.0, 3.0, 4.0]), np.array([40.0, 50.0, 0.0, 1.0, 4.0])
    assert balanced_rates(observed, imputed, 0.8).tolist() == [0.2, 0.0, 0.0, 1.0, 0.8]
    assert observed.tolist() == [10.0, 0.0, 5.0, 3.0, 4.0]
