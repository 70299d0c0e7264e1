"""Random Fourier features against their formula, the kernel they stand for, and their wide limit."""

from typing import Any

import numpy as np
import pytest

from spuir.base import streams
from spuir.errors import InputError
from spuir.features.fourier import Fourier


def rng(*path):
    return streams.generator(0, "test", "fourier", *path)


def test_the_columns_are_the_formula():
    features = Fourier(n_features=7, bandwidth=0.3, raw=True, intercept=True)
    state = features.init(3, rng("map"))
    contexts = rng("contexts").standard_normal((5, 3))
    columns = features.apply(state, contexts)
    for i in range(5):
        for k in range(7):
            angle = sum(contexts[i, j] * state.frequencies[j, k] for j in range(3)) / 0.3 + state.phases[k]
            assert columns[i, k] == pytest.approx(np.sqrt(2 / 7) * np.cos(angle), abs=1e-12)
    np.testing.assert_array_equal(columns[:, 7:10], contexts)
    np.testing.assert_array_equal(columns[:, 10], 1.0)
    assert features.names(state, ["a", "b", "c"])[6:] == ["fourier_6", "a", "b", "c", "intercept"]


@pytest.mark.parametrize("bandwidth", [0.5, 1.0, 3.0])
def test_products_of_rows_approximate_the_gaussian_kernel(bandwidth):
    # One product is a mean of m independent terms in [-2, 2]; by Hoeffding an error above t has a probability of at
    # most 2·exp(−m·t²/8): for m = 40,000, t = 0.08 and 66 pairs below 2e-12, whatever the seed.
    features = Fourier(n_features=40_000, bandwidth=bandwidth)
    state = features.init(3, rng("kernel", str(bandwidth)))
    contexts = rng("points").normal(2.0, 1.0, (12, 3))
    columns = features.apply(state, contexts)
    distances = np.linalg.norm(contexts[:, None] - contexts[None], axis=2)
    kernel = np.exp(-(distances**2) / (2 * bandwidth**2))
    np.testing.assert_allclose(columns @ columns.T, kernel, rtol=0, atol=0.08)


def test_frequencies_are_standard_normal_and_phases_uniform():
    # Means and variances of 60,000 draws: five standard errors, exceeded with a probability below 1e-5 in all.
    state = Fourier(n_features=20_000).init(3, rng("law"))
    assert abs(state.frequencies.mean()) < 5 / np.sqrt(60_000)
    assert abs(state.frequencies.var() - 1) < 5 * np.sqrt(2 / 60_000)
    assert state.phases.min() >= 0 and state.phases.max() < 2 * np.pi
    assert abs(state.phases.mean() - np.pi) < 5 * np.pi / np.sqrt(3 * 20_000)


def test_a_very_wide_kernel_is_an_intercept_plus_a_linear_part():
    contexts = rng("wide").standard_normal((300, 4))
    truth = contexts @ [1.0, -2.0, 0.5, 3.0] + 4.0
    features = Fourier(n_features=50, bandwidth=200.0)
    columns = features.apply(features.init(4, rng("wide map")), contexts)
    assert np.linalg.matrix_rank(columns, tol=1e-2) == 5
    fitted = columns @ np.linalg.lstsq(columns, truth, rcond=1e-5)[0]
    assert np.abs(fitted - truth).max() < 0.05
    flat = columns - columns.mean(axis=0)
    on_contexts = contexts @ np.linalg.lstsq(contexts, flat, rcond=None)[0]
    assert np.linalg.norm(flat - on_contexts) < 0.1 * np.linalg.norm(flat)


def test_a_given_bandwidth_needs_no_batch_and_auto_acts_as_one_until_it_has_one():
    given, automatic = Fourier(bandwidth=1), Fourier()
    first, second = given.init(3, rng("map")), automatic.init(3, rng("map"))
    assert given.fixed(first) and isinstance(first.bandwidth, float)
    assert not automatic.fixed(second) and second.bandwidth is None
    contexts = rng("contexts").standard_normal((4, 3))
    np.testing.assert_array_equal(given.apply(first, contexts), automatic.apply(second, contexts))


def test_fixing_keeps_what_was_drawn():
    features = Fourier(n_features=10)
    state = features.init(3, rng("map"))
    contexts = rng("contexts").standard_normal((40, 3))
    fixed: Any = features.fix(state, contexts, np.arange(40) % 2, contexts[:, 0], None)
    assert fixed.frequencies is state.frequencies and fixed.phases is state.phases
    assert isinstance(fixed.bandwidth, float) and fixed.bandwidth > 0
    assert state.bandwidth is None


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_contexts_that_are_not_finite_cannot_fix_a_map(bad):
    features = Fourier(n_features=10)
    contexts = rng("contexts").standard_normal((9, 3))
    contexts[4, 1] = bad
    with pytest.raises(InputError, match="row 4"):
        features.fix(features.init(3, rng("map")), contexts, np.zeros(9, int), np.zeros(9), None)


def test_contexts_of_another_width_are_refused():
    features = Fourier(n_features=10)
    state = features.init(3, rng("map"))
    with pytest.raises(InputError, match="3 columns"):
        features.apply(state, np.zeros((2, 4)))
    with pytest.raises(InputError, match="3 columns"):
        features.fix(state, np.zeros((2, 4)), np.zeros(2, int), np.zeros(2), None)
