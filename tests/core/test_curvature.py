"""Further columns of actions: what retired actions left of them, and what they are expected to gain."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from spuir.core import curvature, hierarchy
from spuir.core.curvature import Left
from spuir.core.hierarchy import Columns, Folded, Ridges
from spuir.core.statistics import Statistics
from tests.core.test_hierarchy import TOLERANCE, Case, agree, dense, make

FURTHER = 3


def smaller(case: Case) -> tuple[Any, Columns, Ridges]:
    """Return columns, blocks and ridges without the further columns, which are those of the kernel block."""
    keep = [*range(case.features.shape[1] - FURTHER - 1), case.features.shape[1] - 1]
    count = len(keep)
    columns = case.columns._replace(features=(slice(count - 1, count), *case.columns.features[1:-1]))
    return case.features[:, keep], columns, Ridges(case.ridges.shared[: len(columns.shared)], case.ridges.own)


def left_by(case: Case, gone: Any) -> Left:
    width, count = case.rows.shape[1], case.features.shape[1]
    some = Statistics(width, case.sums.table[gone])
    return Left.nothing(count, width).joined(some, case.features[gone], case.columns, case.ridges)


def scalars(case: Case, gone: Any) -> Folded:
    features, columns, ridges = smaller(case)
    return hierarchy.fold(Statistics(case.rows.shape[1], case.sums.table[gone]), features[gone], columns, ridges)


@pytest.mark.parametrize("shape", [{}, {"varying": 1}, {"actions": 30, "rows": 200}])
def test_the_larger_model_is_one_dense_ridge_regression_after_retirements(shape):
    """Estimates and evidence, with sums of retired actions in the larger form and the scalars of the smaller one."""
    case = make(1, kernel=FURTHER, **shape)
    case.weights[:3] = 1.0
    gone, kept = np.array([1, 4]), np.array([at for at in range(len(case.features)) if at not in (1, 4)])
    folded = left_by(case, gone).folded(scalars(case, gone))
    live = Statistics(case.rows.shape[1], case.sums.table[kept])
    found, expected = case.fit(folded, sums=live, features=case.features[kept]), dense(case)
    of_actions = ("theta", "covariance", "deviation", "spread")
    agree(found, replace(expected, **{name: getattr(expected, name)[kept] for name in of_actions}))


def test_waiting_actions_are_added_later_with_the_same_result():
    case = make(2, kernel=FURTHER, rows=90)
    both = left_by(case, np.array([0, 3])).settled()
    one = left_by(case, np.array([0])).settled()
    width = case.rows.shape[1]
    then = one.joined(Statistics(width, case.sums.table[[3]]), case.features[[3]], case.columns, case.ridges)
    for name in ("matrix", "vector"):
        np.testing.assert_allclose(getattr(then.settled(), name), getattr(both, name), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(getattr(then.settled(0.5), name), 0.5 * getattr(both, name), rtol=1e-12, atol=1e-12)
    assert not len(then.settled().features)


def test_the_score_is_that_of_the_dense_regression():
    """g and the diagonal of B, from P and h of the larger model."""
    case = make(3, kernel=FURTHER, rows=150, actions=9)
    gone, kept = np.array([2, 5]), np.array([0, 1, 3, 4, 6, 7, 8])
    features, columns, ridges = smaller(case)
    width, live = case.rows.shape[1], Statistics(case.rows.shape[1], case.sums.table[kept])
    made = hierarchy.fit(live, features[kept], columns, ridges, scalars(case, gone), 1.0)
    left = left_by(case, gone).settled()
    score, information = curvature._score(live, case.features[kept], made, columns, left)
    # Of all actions at once, retired or not: at the same ridges folding is exact.
    moment = case.sums.moment - made.mean * case.sums.gram[:, :, -1]
    inner, pulled = hierarchy.integrated_out(case.sums.gram, moment, columns, ridges)
    place = np.empty((width, width), np.intp)
    place[np.triu_indices(width)] = place.T[np.triu_indices(width)] = np.arange(inner.shape[1])
    p: Any = sum(np.kron(np.outer(x, x), s[place]) for x, s in zip(case.features, inner, strict=True))
    h: Any = sum(np.kron(x, v) for x, v in zip(case.features, pulled, strict=True))
    last = features.shape[1] - 1
    columns_of = np.arange(case.features.shape[1] * width).reshape(-1, width)
    w, base = columns_of[last:-1].ravel(), np.delete(columns_of, np.arange(last, last + FURTHER), axis=0).ravel()
    shared, _ = ridges.diagonals(columns)
    inverse = np.linalg.inv(p[np.ix_(base, base)] + np.diag(shared.ravel()))
    expected = h[w] - p[np.ix_(w, base)] @ (inverse @ h[base])
    schur = p[np.ix_(w, w)] - p[np.ix_(w, base)] @ inverse @ p[np.ix_(base, w)]
    np.testing.assert_allclose(score.ravel(), expected, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(information.ravel(), np.diag(schur), rtol=1e-8, atol=1e-9)


def gains(case: Case) -> tuple[float, float]:
    """Return the expected gain of the further columns, and the gain with the ridges that it expects."""
    features, columns, ridges = smaller(case)
    nothing = Folded.nothing(columns)
    made = hierarchy.improve(case.sums, features, columns, ridges, nothing, 1.0, 20)
    left = Left.nothing(case.features.shape[1], case.rows.shape[1])
    found = curvature.expected(case.sums, case.features, made, columns, left, np.full(2, 1e5))
    larger = case.fit(ridges=Ridges(np.append(made.ridges.shared, found.ridges), made.ridges.own))
    return found.gain, larger.evidence - made.evidence


def test_the_expected_gain_tells_whether_further_columns_matter():
    case = make(4, kernel=FURTHER, rows=2000, actions=60)
    case.weights[:] = 1.0
    without = gains(case)
    case.rewards = case.rewards + case.features[case.codes, 2] * case.rows[:, 0]  # the first of the further columns
    given = gains(case)
    assert without[0] < 2.0
    assert abs(without[0] - without[1]) < 2.0
    assert given[0] > 20.0
    assert 0.5 < given[0] / given[1] < 2.0


def test_a_small_largest_ridge_makes_unimportant_columns_lose():
    """With a ridge that must be small, columns that do not matter gain nothing."""
    case = make(5, kernel=FURTHER, rows=2000, actions=60)
    features, columns, ridges = smaller(case)
    made = hierarchy.fit(case.sums, features, columns, ridges, Folded.nothing(columns), 1.0)
    left = Left.nothing(case.features.shape[1], case.rows.shape[1])
    found = curvature.expected(case.sums, case.features, made, columns, left, np.full(2, 0.5))
    assert found.gain == 0.0
    assert (found.ridges <= 0.5).all()
    assert TOLERANCE < found.ridges.min()
