"""Nyström features against their definition, and what makes them safe on raw columns."""

from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist

from spuir.base.streams import generator
from spuir.features.nystroem import LEAST_EIGENVALUE, Nystroem, NystroemState

D = 3


def fixed(features: Nystroem, X: Any, weights: Any = None) -> NystroemState:
    start: Any = features.init(X.shape[1], generator(0, "map"))
    state = features.fix(start, X, np.zeros(len(X), np.intp), np.zeros(len(X)), weights)
    assert isinstance(state, NystroemState)
    return state


def rows(n: int = 300, seed: int = 0) -> Any:
    return generator(seed, "rows").normal([1.0, -20.0, 300.0], [0.1, 5.0, 80.0], (n, D))


def test_the_columns_are_those_of_the_definition() -> None:
    features, X, weights = Nystroem(landmarks=40), rows(), generator(1, "weights").integers(0, 4, 300).astype(float)
    state = fixed(features, X, weights)
    kept = np.repeat(np.arange(300), weights.astype(int))
    mean, sd = X[kept].mean(axis=0), X[kept].std(axis=0)
    z = np.clip((X - mean) / sd, -4, 4)
    length = np.mean(np.square(z[kept]).sum(axis=1)) ** -0.5
    assert state.landmarks is not None and len(state.landmarks) == 40
    # Every landmark is a row of positive weight.
    assert np.all(cdist(state.landmarks, z[weights > 0]).min(axis=1) < 1e-9)
    K = np.exp(-(cdist(state.landmarks, state.landmarks) ** 2) / (2 * state.bandwidth**2))
    E, V = np.linalg.eigh(K)
    columns = features.apply(state, X)
    np.testing.assert_allclose(columns[:, :D], length * z, rtol=1e-9, atol=1e-12)
    kernel = np.exp(-(cdist(z, state.landmarks) ** 2) / (2 * state.bandwidth**2))
    expected = kernel @ V / np.sqrt(np.maximum(E, LEAST_EIGENVALUE * E[-1]))
    # Eigenvectors have no sign, and those of close eigenvalues no direction: compare what a ridge model sees.
    np.testing.assert_allclose(columns[:, D:] @ columns[:, D:].T, expected @ expected.T, rtol=1e-7, atol=1e-9)


def test_the_kernel_is_exact_between_landmarks() -> None:
    features, X = Nystroem(landmarks=12), rows()
    state = fixed(features, X)
    assert state.landmarks is not None and state.scaling is not None
    own = features.apply(state, state.landmarks * state.scaling.scale + state.scaling.centre)[:, D:]
    K = np.exp(-(cdist(state.landmarks, state.landmarks) ** 2) / (2 * state.bandwidth**2))
    np.testing.assert_allclose(own @ own.T, K, atol=1e-5)


def test_the_bandwidth_is_a_share_of_the_median_distance() -> None:
    X = rows(200)
    z = np.clip((X - X.mean(axis=0)) / X.std(axis=0), -4, 4)
    state = fixed(Nystroem(bandwidth_factor=0.5), X)
    assert state.bandwidth == pytest.approx(0.5 * np.median(pdist(z)), rel=1e-9)


@pytest.mark.parametrize("shift", [0.0, 1e8])
@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e6])
def test_units_and_offsets_of_columns_do_not_matter(shift: float, unit: float) -> None:
    features, X = Nystroem(landmarks=300), np.round(rows(), 3)
    plain, other = fixed(features, X), fixed(features, X * unit + shift * unit)
    first, second = features.apply(plain, X), features.apply(other, X * unit + shift * unit)
    # All rows are landmarks, in another order: their products are the same.
    np.testing.assert_allclose(first @ first.T, second @ second.T, atol=1e-5)


def test_a_constant_column_counts_for_nothing() -> None:
    X = np.column_stack([rows(), np.full(300, 7.3)])
    state = fixed(Nystroem(landmarks=10), X)
    assert state.scaling is not None and state.scaling.scale[-1] == 1.0
    np.testing.assert_array_equal(Nystroem(landmarks=10).apply(state, X)[:, D], 0.0)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_fewer_distinct_rows_than_landmarks_leave_columns_of_zero(count: int) -> None:
    features = Nystroem(landmarks=8)
    X = np.repeat(rows(count), 4, axis=0)
    state = fixed(features, X)
    columns = features.apply(state, X)
    assert columns.shape == (4 * count, D + 8) and np.isfinite(columns).all()
    assert state.landmarks is not None and len(state.landmarks) == count
    np.testing.assert_array_equal(columns[:, D + count :], 0.0)


def test_values_far_outside_the_first_batch_are_clipped() -> None:
    features = Nystroem(landmarks=10)
    state = fixed(features, rows())
    far, further = features.apply(state, np.full((1, D), 1e9)), features.apply(state, np.full((1, D), 1e12))
    np.testing.assert_array_equal(far, further)
