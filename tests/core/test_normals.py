"""Win probabilities against a naive quadrature, against draws, against closed forms and against their own laws."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_ndtr, ndtr

from spuir.base.streams import generator
from spuir.core import normals
from spuir.core.normals import monte_carlo_probabilities, win_probabilities
from spuir.core.ties import argmax_probabilities

EVERYWHERE, USUALLY = 1e-4, 1e-6  # the tolerance that the module states


def everyone(table):
    return np.ones(np.shape(table), dtype=bool)


def naive(mean, sd, nodes=20_001):
    """P(j wins) = ∫ φ(x) Π_{i≠j} Φ((m_j + s_j x − m_i)/s_i) dx by a dense rule, one action after the other."""
    x = np.linspace(-10, 10, nodes)
    density = np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi)
    out = []
    for j in range(len(mean)):
        value = density.copy()
        for i in range(len(mean)):
            if i != j:
                value *= ndtr((mean[j] + sd[j] * x - mean[i]) / sd[i])
        out.append(np.trapezoid(value, x))
    return np.array(out)


def row(values):
    return np.array([values], dtype=float)


@pytest.mark.parametrize("m", [3, 5, 8])
@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_sds_of_one_order_match_the_dense_rule(m, spread):
    rng = generator(1, "normals", m)
    means, sds = rng.normal(size=(12, m)), np.exp(spread * rng.normal(size=(12, m)))
    expected = np.array([naive(a, b) for a, b in zip(means, sds, strict=True)])
    assert_allclose(expected.sum(axis=1), 1, atol=1e-9)
    error = np.abs(win_probabilities(means, sds, everyone(means)) - expected)
    assert error.max() < EVERYWHERE
    assert np.median(error.max(axis=1)) < USUALLY


@pytest.mark.parametrize("distance", [0.0, 1e-3, 1.0])
def test_sds_from_one_to_a_thousand_match_the_dense_rule(distance):
    rng = generator(2, "normals")
    means, sds = distance * rng.normal(size=(3, 5)), 10 ** rng.uniform(-3, 0, size=(3, 5))
    sds[:, 0], sds[:, 1] = 1.0, 1e-3
    expected = np.array([naive(a, b, nodes=100_001) for a, b in zip(means, sds, strict=True)])
    assert_allclose(expected.sum(axis=1), 1, atol=1e-6)
    assert_allclose(win_probabilities(means, sds, everyone(means)), expected, atol=EVERYWHERE)


@pytest.mark.parametrize(("other_mean", "other_sd"), [(0.0, 1.0), (0.01, 1.0), (0.004, 1e-4), (1.0, 0.5)])
@pytest.mark.parametrize("many", [40, 1999])
def test_one_action_against_many_alike(many, other_mean, other_sd):
    means, sds = np.zeros((1, many + 1)), np.full((1, many + 1), 1e-3)
    means[0, -1], sds[0, -1] = other_mean, other_sd
    x = np.linspace(-10, 10, 400_001)
    wins = np.trapezoid(np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi) * ndtr((other_mean + other_sd * x) / 1e-3) ** many, x)
    found = win_probabilities(means, sds, everyone(means))[0]
    assert_allclose(found[-1], wins, atol=EVERYWHERE)
    assert_allclose(found[:-1], (1 - wins) / many, atol=EVERYWHERE)


def test_frequencies_of_draws():
    rng = generator(3, "normals")
    means, sds = rng.normal(size=(4, 5)), np.exp(rng.normal(size=(4, 5)))
    found = win_probabilities(means, sds, everyone(means))
    draws = 200_000
    for p, mean, sd in zip(found, means, sds, strict=True):
        winners = np.argmax(mean + sd * rng.standard_normal((draws, 5)), axis=1)
        frequency = np.bincount(winners, minlength=5) / draws
        # 20 comparisons at 5 standard errors: a correct implementation fails once in 10⁵ seeds.
        assert np.all(np.abs(frequency - p) <= 5 * np.sqrt(p * (1 - p) / draws) + EVERYWHERE)


def test_two_actions_are_the_closed_form():
    means, sds = row([1.0, 0.4]), row([0.3, 0.4])
    assert_allclose(win_probabilities(means, sds, everyone(means)), [[ndtr(1.2), ndtr(-1.2)]], rtol=1e-14)


def test_equal_normals_are_exactly_uniform():
    for m in (1, 3, 7):
        means, sds = np.full((2, m), -3.0), np.full((2, m), 0.7)
        assert_array_equal(win_probabilities(means, sds, everyone(means)), np.full((2, m), 1 / m))


def test_small_probabilities_stay_positive_and_right():
    # The narrow action wins where both others fall below it: Φ(−5.5)², about 4e-16.
    found = win_probabilities(row([0, 0, -5.5]), row([1, 1, 1e-3]), everyone(row([0, 0, 0])))[0]
    assert_allclose(found[2], ndtr(-5.5) ** 2, rtol=1e-3)


def test_what_cannot_win_gets_exactly_zero():
    means, sds = row([0.0, -30.0, -1.0, 5.0]), row([1.0, 1.0, 1.0, 0.1])
    found = win_probabilities(means, sds, everyone(means))[0]
    assert found[1] == 0
    assert 0 < found[2] < found[0] < 1e-5
    # A gap of 14 is 9.9 sds of the difference: probability 2e-23.
    assert win_probabilities(row([0, -14, -1]), row([1, 1, 1]), everyone(row([0, 0, 0])))[0, 1] == 0
    certain = win_probabilities(row([0, 10, -10]), row([0.5, 0.5, 0.5]), everyone(row([0, 0, 0])))[0]
    assert_array_equal(certain, [0, 1, 0])


@pytest.mark.parametrize(
    "means", [[1.0, 3.0, 2.0], [5.0, 5.0, 1.0], [1e6, 1e6 * (1 + 1e-13), 0.0], [-2.0, -2.0, -2.0], [0.0, -1e-13, -1.0]]
)
def test_without_uncertainty_it_is_the_argmax_rule(means):
    table = row(means)
    found = win_probabilities(table, np.zeros_like(table), everyone(table))
    assert_array_equal(found, argmax_probabilities(table, everyone(table)))


def test_certain_values_beside_uncertain_ones():
    # Both normals below 0.3, else one of them: the two certain 0.3 share the former, the certain 0.1 gets nothing.
    means, sds = row([0.3, 0.0, 0.3, 0.1, 0.2]), row([0.0, 1.0, 0.0, 0.0, 0.5])
    found = win_probabilities(means, sds, everyone(means))[0]
    below = ndtr(0.3) * ndtr(0.2)
    assert found[3] == 0
    assert found[0] == found[2]
    assert_allclose(found[0], below / 2, atol=1e-5)
    z = np.linspace(0.3, 10, 200_001)
    upper = np.trapezoid(np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) * ndtr((z - 0.2) / 0.5), z)
    assert_allclose(found[1], upper, atol=1e-5)


def test_sds_beyond_all_proportion():
    means, sds = row([0.0, 0.0, 0.0, -1.0]), row([1.0, 1e-200, 1e-60, 1e-3])
    found = win_probabilities(means, sds, everyone(means))[0]
    assert_allclose(found, [0.5, 0.25, 0.25, 0], atol=EVERYWHERE)
    huge = win_probabilities(row([1e300, -1e300, 0]), row([1e300, 1e300, 1e300]), everyone(row([0, 0, 0])))
    plain = win_probabilities(row([1, -1, 0]), row([1, 1, 1]), everyone(row([0, 0, 0])))
    assert_allclose(huge, plain, rtol=1e-9)


def test_ineligible_actions_are_as_if_absent():
    rng = generator(4, "normals")
    means, sds = rng.normal(size=(30, 6)), np.exp(rng.normal(size=(30, 6)))
    eligible = rng.random((30, 6)) < 0.6
    eligible[0], eligible[1] = False, [False, True, False, False, False, False]
    found = win_probabilities(means, sds, eligible)
    assert_array_equal(found[0], np.zeros(6))
    assert found[1, 1] == 1
    assert np.all(found[~eligible] == 0)
    for at in range(2, 30):
        some = eligible[at]
        alone = win_probabilities(means[[at]][:, some], sds[[at]][:, some], everyone(means[[at]][:, some]))[0]
        assert_allclose(found[at, some], alone, rtol=1e-10, atol=1e-25)


def test_a_row_is_the_same_in_every_company(monkeypatch):
    rng = generator(5, "normals")
    means, sds = rng.normal(size=(60, 20)), 10 ** rng.uniform(-2, 0, size=(60, 20))
    whole = win_probabilities(means, sds, everyone(means))
    alone = np.concatenate([win_probabilities(means[[i]], sds[[i]], everyone(means[[i]])) for i in range(60)])
    assert_allclose(alone, whole, rtol=1e-12, atol=1e-25)
    monkeypatch.setattr(normals, "SCREEN_BYTES", 7 * 20 * 8)
    monkeypatch.setattr(normals, "WORK_BYTES", 1)
    assert_allclose(win_probabilities(means, sds, everyone(means)), whole, rtol=1e-12, atol=1e-25)


def test_inputs_of_any_layout_are_left_alone():
    rng = generator(6, "normals")
    means, sds = np.asfortranarray(rng.normal(size=(9, 4))), np.asfortranarray(np.exp(rng.normal(size=(9, 4))))
    eligible = np.broadcast_to(np.array([True, True, False, True]), (9, 4))
    kept = means.copy(), sds.copy()
    for table in (means, sds):
        table.flags.writeable = False
    found = win_probabilities(means, sds, eligible)
    assert_array_equal(means, kept[0])
    assert_array_equal(sds, kept[1])
    assert_array_equal(found, win_probabilities(kept[0].copy("C"), kept[1].copy("C"), eligible.copy()))
    assert win_probabilities(means[:0], sds[:0], eligible[:0]).shape == (0, 4)


def test_the_normal_distribution_to_seven_digits():
    x = np.linspace(-35, 45, 40_001)
    cdf, hazard = normals._normal(x)
    assert_allclose(cdf, ndtr(x), rtol=1e-7)
    exact = np.exp(-0.5 * x * x - log_ndtr(x)) / np.sqrt(2 * np.pi)
    assert_allclose(hazard, exact, rtol=1e-7, atol=1e-300)
    assert_array_equal(np.concatenate(normals._normal(np.array([np.inf]))), [1, 0])


# Laws that hold whatever the numbers are -----------------------------------------------------------------------

finite = st.floats(-5, 5, allow_nan=False, width=32)
positive = st.floats(2.0**-10, 3, allow_nan=False, width=32)
rows = st.integers(2, 6).flatmap(
    lambda m: st.tuples(st.lists(finite, min_size=m, max_size=m), st.lists(positive, min_size=m, max_size=m))
)


@given(rows)
@settings(max_examples=60)
def test_rows_sum_to_one(pair):
    means, sds = row(pair[0]), row(pair[1])
    found = win_probabilities(means, sds, everyone(means))
    assert np.all(found >= 0)
    assert_allclose(found.sum(), 1, atol=4e-16 * means.size)


@given(rows, st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_relabelling_moves_probabilities_along(pair, random):
    means, sds = row(pair[0]), row(pair[1])
    order = list(range(means.size))
    random.shuffle(order)
    moved = win_probabilities(means[:, order], sds[:, order], everyone(means))
    assert_allclose(moved, win_probabilities(means, sds, everyone(means))[:, order], rtol=1e-10, atol=1e-20)


@given(rows, st.sampled_from([-1e6, -3.0, 1e6]), st.sampled_from([2.0**-30, 0.5, 2.0**40]))
@settings(max_examples=60)
def test_shift_and_scale_change_nothing(pair, shift, scale):
    # Means on a grid of 2⁻¹⁰, so that a shift of 10⁶ rounds nothing away.
    means, sds = row(np.round(np.multiply(pair[0], 1024)) / 1024), row(pair[1])
    plain = win_probabilities(means, sds, everyone(means))
    moved = win_probabilities(scale * (means + shift), scale * sds, everyone(means))
    assert_allclose(moved, plain, atol=1e-9)


@given(rows, st.floats(1e-3, 4))
@settings(max_examples=60)
def test_a_higher_mean_wins_more(pair, gain):
    means, sds = row(pair[0]), row(pair[1])
    better = means.copy()
    better[0, 0] += gain
    before, after = (win_probabilities(table, sds, everyone(table))[0] for table in (means, better))
    # Two results, each within the tolerance.
    assert after[0] >= before[0] - EVERYWHERE
    assert np.all(after[1:] <= before[1:] + EVERYWHERE)


@given(rows)
@settings(max_examples=60)
def test_duplicates_win_alike(pair):
    means, sds = row([*pair[0], pair[0][0]]), row([*pair[1], pair[1][0]])
    found = win_probabilities(means, sds, everyone(means))[0]
    assert_allclose(found[0], found[-1], rtol=1e-12)


# The authors' estimate -----------------------------------------------------------------------------------------


def joint(rng: Any, actions: int, draws: int) -> Any:
    """Return what gives standard normals for a slice of rows."""
    return lambda rows: rng.standard_normal((rows.stop - rows.start, actions, draws))


def test_monte_carlo_agrees_with_the_integral():
    rng = generator(7, "normals")
    means, sds = rng.normal(size=(40, 4)), np.exp(0.3 * rng.normal(size=(40, 4)))
    eligible = np.ones((40, 4), dtype=bool)
    eligible[:20, 3] = False
    executed = rng.integers(3, size=40)
    draws = 4000
    found = monte_carlo_probabilities(means, sds, eligible, draws, joint(rng, 4, draws), executed)
    p = win_probabilities(means, sds, eligible)[np.arange(40), executed]
    expected = (p * draws + 1) / (draws + 1)
    # 40 comparisons at 5 standard errors: fails once in 4·10⁴ seeds.
    assert np.all(np.abs(found - expected) <= 5 * np.sqrt(p * (1 - p) / draws) + EVERYWHERE)


def test_monte_carlo_is_never_zero_and_splits_ties():
    means, sds = np.array([[0.0, 50.0, 0.0], [2.0, 2.0, 1.0]]), np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    found = monte_carlo_probabilities(
        means, sds, everyone(means), 99, joint(generator(8, "normals"), 3, 99), np.array([0, 1])
    )
    assert_allclose(found, [0.01, (99 / 2 + 1) / 100])


def test_monte_carlo_repeats_with_the_same_generator_in_bounded_memory(monkeypatch):
    rng = generator(9, "normals")
    means, sds = rng.normal(size=(50, 3)), np.ones((50, 3))
    executed = rng.integers(3, size=50)
    monkeypatch.setattr(normals, "SCREEN_BYTES", 8 * 3 * 100 * 7)
    runs = [
        monte_carlo_probabilities(means, sds, everyone(means), 100, joint(generator(1, "draws"), 3, 100), executed)
        for _ in range(2)
    ]
    assert_array_equal(runs[0], runs[1])
    assert np.all((runs[0] > 0) & (runs[0] <= 1))
