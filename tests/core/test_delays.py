"""Delayed conversions: losses against a naive loop, slopes against differences, fits against known truths."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit

from spuir.base.streams import generator
from spuir.core import delays
from spuir.core.delays import Clicks, curvature, fit, informed, loss_and_slope
from spuir.errors import NumericalError


def naive(weights, clicks):
    """The definition, row by row, where nothing overflows."""
    total = 0.0
    for s, converted, e, w in zip(clicks.contexts, clicks.converted, clicks.elapsed, clicks.weights, strict=True):
        chance = 1 / (1 + math.exp(-float(weights[0] @ s)))
        v = min(20.0, max(-20.0, float(weights[1] @ s)))
        if converted:
            total += w * (-math.log(chance) - v + math.exp(v) * e)
        else:
            total += -w * math.log((1 - chance) + chance * math.exp(-math.exp(v) * e))
    return total


def some_clicks(n, dim, seed=0):
    rng = generator(seed, "clicks")
    return Clicks.of(
        rng.standard_normal((n, dim)), rng.random(n) < 0.4, rng.exponential(0.7, n), rng.integers(0, 3, n) * 0.5
    )


def simulated(n, truth, longest, seed=0):
    """Rows of a known truth (2, d), watched for uniform times up to ``longest``, with whether each converts at all."""
    rng = generator(seed, "simulated")
    X = rng.standard_normal((n, truth.shape[1]))
    X[:, 0] = 1.0
    ever = rng.random(n) < expit(X @ truth[0])
    delay = rng.exponential(size=n) * np.exp(-X @ truth[1])
    watched = longest * rng.random(n)
    seen = ever & (delay <= watched)
    return Clicks.of(X, seen, np.where(seen, delay, watched)), ever


TRUTH = np.array([[0.3, 0.8, -0.5], [-0.4, 0.3, 0.2]])


@given(
    seed=st.integers(0, 50), n=st.integers(0, 30), dim=st.integers(1, 4), scale=st.sampled_from([0.0, 0.3, 1.0, 4.0])
)
def test_the_loss_is_its_definition(seed, n, dim, scale):
    clicks = some_clicks(n, dim, seed)
    weights = scale * generator(seed, "weights").standard_normal((2, dim))
    assert_allclose(loss_and_slope(weights, clicks)[0], naive(weights, clicks), rtol=1e-9, atol=1e-12)


LOG_ODDS = st.floats(-40, 40)
LOG_RATES = st.floats(-25, 25).filter(lambda v: abs(abs(v) - 20) > 0.01)
TIMES = st.floats(0, 50)


@given(z=LOG_ODDS, v=LOG_RATES, e=TIMES, converted=st.booleans())
def test_slope_and_curvature_are_those_of_the_loss(z, v, e, converted):
    """Central differences of the loss and of the slope; the clip has none beyond ±20."""
    row = Clicks.of([[1.0]], [converted], [e])
    at = np.array([[z], [v]])
    slope, bend = loss_and_slope(at, row)[1], curvature(at, row)
    size = 1 + math.exp(min(20, v)) * e
    for part in range(2):
        step = np.zeros((2, 1))
        step[part] = 1e-5
        (above, upper), (below, lower) = loss_and_slope(at + step, row), loss_and_slope(at - step, row)
        assert_allclose(slope[part, 0], (above - below) / 2e-5, rtol=2e-5, atol=2e-5 * size**0.5 + 1e-10 * size)
        assert_allclose(bend[:, part], (upper - lower)[:, 0] / 2e-5, rtol=2e-4, atol=2e-5 * size**0.5 + 1e-10 * size)
    if abs(v) > 20:
        assert slope[1, 0] == 0 and not bend[1].any() and not bend[:, 1].any()


def test_the_slope_adds_up_over_columns_and_weights():
    clicks, rng = some_clicks(40, 3), generator(1, "direction")
    weights, direction = rng.standard_normal((2, 2, 3))
    slope = loss_and_slope(weights, clicks)[1]
    ahead, behind = (loss_and_slope(weights + h * direction, clicks) for h in (1e-6, -1e-6))
    assert_allclose(np.sum(slope * direction), (ahead[0] - behind[0]) / 2e-6, rtol=1e-6)
    moved = curvature(weights, clicks) @ direction.ravel()
    assert_allclose(moved, (ahead[1] - behind[1]).ravel() / 2e-6, rtol=1e-6, atol=1e-6)
    copies = clicks.take(np.repeat(np.arange(40), (2 * clicks.weights).astype(int)))
    copies = Clicks.of(copies.contexts, copies.converted, copies.elapsed)
    for weighted, copied in zip(loss_and_slope(weights, clicks), loss_and_slope(weights, copies), strict=True):
        assert_allclose(2 * weighted, copied, rtol=1e-12)


@pytest.mark.parametrize("z", [-800.0, -1e300, 0.0, 800.0, 1e300])
@pytest.mark.parametrize("v", [-1e5, -20.0, 0.0, 20.0, 1e5])
@pytest.mark.parametrize("e", [0.0, 1e-300, 1.0, 1e12, np.inf])
@pytest.mark.parametrize("converted", [False, True])
def test_nothing_overflows_at_the_extremes(z, v, e, converted):
    row = Clicks.of([[1.0]], [converted], [e])
    loss, slope = loss_and_slope(np.array([[z], [v]]), row)
    assert np.isfinite(loss) and np.isfinite(slope).all()
    assert np.isfinite(curvature(np.array([[z], [v]]), row)).all()
    if not converted:
        # Between never (z = 0 at most as likely as its odds) and the time waited.
        assert -1e-12 <= loss <= max(z, 0) + math.log(2)
        assert slope[0, 0] >= 0 and slope[1, 0] >= 0


def test_limits_of_waiting():
    """At once nothing is known; for ever, everything: then the rows are those of a logistic regression."""
    z, v = 0.7, -0.2
    weights = np.array([[z], [v]])
    loss, slope = loss_and_slope(weights, Clicks.of([[1.0]], [False], [0.0]))
    assert_allclose([loss, *slope.ravel()], 0, atol=1e-15)
    for converted, sign in ((True, 1), (False, -1)):
        loss, slope = loss_and_slope(weights, Clicks.of([[1.0]], [converted], [np.inf]))
        assert_allclose(loss, -math.log(expit(sign * z)), rtol=1e-14)
        assert_allclose(slope.ravel(), [expit(z) - converted, 0], rtol=1e-14)


def test_blocks_of_rows_change_nothing(monkeypatch):
    clicks, weights = some_clicks(500, 3), generator(0, "weights").standard_normal((2, 3))
    whole = (*loss_and_slope(weights, clicks), curvature(weights, clicks))
    monkeypatch.setattr("spuir.core.statistics.GATHER_BYTES", 3000)
    for found, expected in zip((*loss_and_slope(weights, clicks), curvature(weights, clicks)), whole, strict=True):
        assert_allclose(found, expected, rtol=1e-11)


def test_a_fit_finds_the_truth_behind_strong_censoring():
    """Most conversions are unseen. Six weights within 5 standard errors of the truth: a false alarm in 4e-6."""
    clicks, ever = simulated(20_000, TRUTH, longest=1.0)
    assert clicks.converted.sum() < 0.4 * ever.sum()
    found = fit(clicks, np.zeros((2, 3)), ridge=1e-3, iterations=200)
    errors = np.sqrt(np.diag(np.linalg.inv(curvature(found.weights, clicks)))).reshape(2, 3)
    assert found.converged and 0 < found.iterations < 200
    assert (np.abs(found.weights - TRUTH) < 5 * errors).all()
    assert errors.max() < 0.3
    rates = expit(clicks.contexts @ found.weights[0])
    ignoring = fit(Clicks.of(clicks.contexts, clicks.converted, np.full(20_000, np.inf)), np.zeros((2, 3)))
    truth = expit(clicks.contexts @ TRUTH[0])
    assert np.abs(rates - truth).mean() < 0.25 * np.abs(expit(clicks.contexts @ ignoring.weights[0]) - truth).mean()
    assert abs(expit(clicks.contexts @ ignoring.weights[0]).mean() - truth.mean()) > 0.2


def test_without_delays_a_fit_is_a_logistic_regression():
    clicks, ever = simulated(300, TRUTH, longest=1.0)
    complete = Clicks.of(clicks.contexts, ever, np.full(300, np.inf))
    found = fit(complete, np.zeros((2, 3)), ridge=2.0, iterations=100)
    slope = clicks.contexts.T @ (expit(clicks.contexts @ found.weights[0]) - ever) + 2.0 * found.weights[0]
    assert_allclose(slope, 0, atol=1e-3)
    assert_array_equal(found.weights[1], 0)


def test_steps_are_limited_and_only_go_down():
    clicks, _ = simulated(2000, TRUTH, longest=1.0)
    objectives = []
    for iterations in (1, 3, 10, 100):
        found = fit(clicks, np.zeros((2, 3)), iterations=iterations)
        assert found.iterations <= iterations and found.converged == (iterations == 100)
        penalty = 0.5 * np.square(found.weights).sum()
        assert_allclose(found.objective, loss_and_slope(found.weights, clicks)[0] + penalty, rtol=1e-12)
        objectives.append(found.objective)
    assert objectives == sorted(objectives, reverse=True)
    again = fit(clicks, found.weights, iterations=5)
    assert_allclose(again.weights, found.weights, atol=1e-4)


@pytest.mark.parametrize("ridge", [0.1, 1.0, 30.0])
def test_the_penalty_is_on_both_weights(ridge):
    clicks, _ = simulated(500, TRUTH, longest=2.0)
    found = fit(clicks, np.ones((2, 3)), ridge=ridge, iterations=200).weights
    assert_allclose(loss_and_slope(found, clicks)[1] + ridge * found, 0, atol=5e-3)


def test_a_prior_holds_the_weights_where_rows_once_were():
    """Without rows nothing moves; with rows the optimum balances their slope and the prior's."""
    clicks, _ = simulated(400, TRUTH, longest=1.0)
    start = generator(0, "start").standard_normal((2, 3))
    root = generator(0, "root").standard_normal((6, 6))
    prior = 50 * root @ root.T
    assert_array_equal(fit(clicks.take(slice(0, 0)), start, information=prior).weights, start)
    found = fit(clicks, start, ridge=0.5, information=prior, iterations=200).weights
    pull = (prior + 0.5 * np.eye(6)) @ (found - start).ravel()
    assert_allclose(loss_and_slope(found, clicks)[1].ravel() + pull, 0, atol=1e-2)


def test_episodes_in_sequence_teach_nearly_what_all_rows_teach():
    """Laplace's approximation over 20 parts is within half a standard error of the fit on the whole."""
    clicks, _ = simulated(10_000, TRUTH, longest=1.0)
    whole = fit(clicks, np.zeros((2, 3)), iterations=200).weights
    weights, information = np.zeros((2, 3)), np.zeros((6, 6))
    for rows in np.array_split(np.arange(10_000), 20):
        part = clicks.take(rows)
        weights = fit(part, weights, information=information).weights
        before, information = information, informed(information, 1.0, weights, part)
        assert np.linalg.eigvalsh(information - before).min() > -1e-9 * np.linalg.norm(information)
    errors = np.sqrt(np.diag(np.linalg.inv(curvature(whole, clicks)))).reshape(2, 3)
    assert (np.abs(weights - whole) < 0.5 * errors).all()
    last = fit(clicks.take(slice(9500, 10_000)), np.zeros((2, 3)), iterations=200).weights
    assert np.abs(weights - whole).max() < 0.2 * np.abs(last - whole).max()


def test_information_never_shrinks_where_the_likelihood_bends_the_wrong_way():
    clicks = Clicks.of([[1.0]] * 10, [False] * 10, [3.0] * 10)
    weights = np.array([[3.0], [0.0]])
    assert np.linalg.eigvalsh(curvature(weights, clicks)).min() < -0.1
    before = np.diag([0.5, 0.0])
    gained = informed(before, 1.0, weights, clicks) - before
    assert np.linalg.eigvalsh(gained).min() > -1e-12 and np.linalg.eigvalsh(gained).max() > 0.01


def test_columns_of_very_different_scales_are_fitted():
    clicks, _ = simulated(1000, TRUTH, longest=1.0)
    scaled = Clicks.of(clicks.contexts * [1.0, 1e9, 1e-9], clicks.converted, clicks.elapsed)
    weights, information = np.zeros((2, 3)), np.zeros((6, 6))
    for _ in range(3):
        weights = fit(scaled, weights, information=information).weights
        information = informed(information, 1.0, weights, scaled)
    assert np.isfinite(weights).all() and np.isfinite(information).all()


@pytest.mark.parametrize("information", [None, np.zeros((2, 2))])
def test_what_leaves_the_finite_numbers_is_refused(information):
    endless = Clicks.of([[1.0], [1.0]], [True, True], [1e308, 1e308])
    with pytest.raises(NumericalError, match=r"non-finite.*scale"):
        fit(endless, np.zeros((2, 1)), information=information)
    with pytest.raises(NumericalError, match="non-finite"):
        informed(np.zeros((2, 2)), 1.0, np.zeros((2, 1)), Clicks.of([[1e200]], [True], [1.0]))


def test_inputs_are_not_written():
    clicks, start, prior = some_clicks(50, 2), np.ones((2, 2)), np.eye(4)
    arrays = (clicks.contexts, clicks.converted, clicks.elapsed, clicks.weights, start, prior)
    copies = [array.copy() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    informed(prior, 1.0, fit(clicks, start, information=prior).weights, clicks)
    for array, copied in zip(arrays, copies, strict=True):
        assert_array_equal(array, copied)
    assert delays.LARGEST_LOG_RATE == 20.0
