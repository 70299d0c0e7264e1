"""Actions that deviate by a constant alone, against one dense ridge regression over all columns."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spuir.core import constant_deviations, hierarchy
from spuir.core.constant_deviations import ConstantFit
from spuir.core.hierarchy import Folded, Ridges
from spuir.core.statistics import summarise
from tests.core.test_hierarchy import TOLERANCE, Case, dense, make

SHAPES = [
    {},
    {"varying": 2},
    {"kernel": 3},
    {"rows": 5, "actions": 2},
    {"actions": 1},
    {"actions": 40},
]


def made(seed: int, **shape: Any) -> Case:
    """Return random rows of actions that deviate by a constant, with ridges other than 1."""
    case = make(seed, **shape)
    case.weights[:3] = 1.0
    case.columns = case.columns._replace(deviations="constant")
    case.ridges = Ridges(case.ridges.shared, case.ridges.own[:1])
    return case


def sums(case: Case) -> tuple[Any, Folded]:
    return constant_deviations.sum_rows(case.rows, case.features, case.codes, case.rewards, case.weights, None)


def fit(case: Case, table: Any = None, shared: Any = None, features: Any = None) -> ConstantFit:
    known = sums(case)
    return constant_deviations.fit(
        known[0] if table is None else table,
        case.features if features is None else features,
        case.columns,
        case.ridges,
        known[1] if shared is None else shared,
        1.0,
    )


def widths(found: ConstantFit, rows: Any) -> tuple[Any, Any]:
    """Return the squared widths of all rows and actions by both ways."""
    every = np.arange(len(found.theta))
    x = found.features
    by_row = [
        found.squares(np.vecdot(x @ metric, x), row, every)
        for row, metric in zip(rows, found.by_row(rows), strict=True)
    ]
    repeated, at = np.repeat(rows, len(every), axis=0), np.tile(every, len(rows))
    by_pair = found.squares(found.lengths(repeated, at), repeated, at)
    return np.array(by_row), by_pair.reshape(len(rows), -1)


def agree(case: Case) -> None:
    found, expected = fit(case), dense(case)
    for name in ("theta", "noise", "evidence", "shared", "mean", "deviation", "spread"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), rtol=TOLERANCE, atol=TOLERANCE, err_msg=name
        )
    rows = case.rows[:7] * [*np.linspace(0.5, 2.0, case.rows.shape[1] - 1), 1.0]
    for squares in widths(found, rows):
        quadratic = np.einsum("ni,mij,nj->nm", rows, expected.covariance, rows)
        np.testing.assert_allclose(squares, quadratic, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_one_dense_ridge_regression(shape):
    for seed in range(3):
        agree(made(seed, **shape))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(4, 40), st.integers(1, 8), st.integers(1, 4), st.integers(1, 3))
def test_the_identity_holds_for_drawn_shapes(seed, rows, actions, dim, features):
    agree(made(seed, rows=rows, actions=actions, dim=dim, features=features))


def test_one_row():
    case = made(0, rows=1, actions=3)
    found = fit(case)
    assert found.noise > 0  # the residual of the centred reward is 0, so that the least noise takes over
    with np.errstate(all="ignore"):
        expected = dense(case).covariance
    for squares in widths(found, case.rows):
        np.testing.assert_allclose(squares, np.einsum("ni,mij,nj->nm", case.rows, expected, case.rows), rtol=1e-9)


def test_the_next_ridges_are_those_of_the_dense_regression():
    """One step of MacKay's rule for the constant's ridge, from the dense posterior."""
    case = made(3, rows=80, actions=9)
    found, expected = fit(case), dense(case)
    stepped = hierarchy.next_ridges(found, case.columns, float(case.weights.sum()), 1e6)
    ridge = float(case.ridges.own[0])
    freedom = len(expected.spread) - ridge * expected.spread.sum()
    assert stepped.own[0] == pytest.approx(expected.noise * freedom / np.square(expected.deviation).sum(), rel=1e-8)


def test_at_a_fixed_point_the_evidence_is_flat():
    case = made(3, rows=500, actions=15)
    own = np.linspace(-1.5, 1.5, 15)
    case.rewards = case.rewards + case.rows @ [1.0, -1.0, 0.5, 0.0] + own[case.codes]
    table, shared = sums(case)
    settled = constant_deviations.improve(table, case.features, case.columns, case.ridges, shared, 1e6, 600)
    case.ridges = settled.ridges
    for _ in range(300):
        case.ridges = hierarchy.next_ridges(fit(case), case.columns, shared.weight, 1e6)
    best = fit(case)
    for factor in (0.97, 1.03):
        moved = replace(case, ridges=Ridges(case.ridges.shared, factor * case.ridges.own))
        assert fit(moved).evidence <= best.evidence + 1e-9 * abs(best.evidence)


def test_sums_of_rows_are_those_of_sums_per_action():
    """Summing rows over x ⊗ φ is combining the sums of each action, in pieces or at once; nothing else is assumed."""
    case = made(1, rows=70, actions=9)
    table, shared = sums(case)
    again, other = constant_deviations.of_sums(
        summarise(case.rows, case.codes, case.rewards, case.weights, len(case.features)), case.features
    )
    np.testing.assert_allclose(table, again, rtol=1e-12, atol=1e-12)
    for name, value in vars(other).items():
        np.testing.assert_allclose(getattr(shared, name), value, rtol=1e-11, atol=1e-11, err_msg=name)


def test_pieces_do_not_matter(monkeypatch):
    case = made(2, rows=90, actions=30)
    whole = fit(case)
    monkeypatch.setattr(constant_deviations, "PIECE_BYTES", 1)
    pieces = fit(case)
    for name in ("theta", "evidence", "pull", "spread"):
        np.testing.assert_allclose(getattr(pieces, name), getattr(whole, name), rtol=1e-9, atol=1e-10, err_msg=name)


def test_retired_actions_are_folded_exactly():
    """At the same ridge, integrating out some actions changes no estimate of the others."""
    case = made(4, rows=90, actions=7)
    whole, (table, shared) = fit(case), sums(case)
    gone, kept = np.array([1, 4, 6]), np.array([0, 2, 3, 5])
    left = constant_deviations.integrated(shared, table[gone], case.features[gone], float(case.ridges.own[0]))
    part = fit(case, table[kept], left, case.features[kept])
    for name in ("theta", "pull", "spread"):
        np.testing.assert_allclose(getattr(part, name), getattr(whole, name)[kept], rtol=1e-8, atol=TOLERANCE)
    for name in ("noise", "evidence", "mean"):
        assert getattr(part, name) == pytest.approx(getattr(whole, name), rel=TOLERANCE)
    np.testing.assert_allclose(part.shared, whole.shared, rtol=1e-8, atol=TOLERANCE)


def test_it_is_the_full_model_with_stiff_columns():
    """With deviations of all columns but the constant ruled out, the full model gives the same, nearly."""
    case = made(5, rows=90, actions=6)
    found = fit(case)
    stiff = Ridges(case.ridges.shared, np.array([float(case.ridges.own[0]), 1e12]))
    full = make(5, rows=90, actions=6)
    full.weights = case.weights
    other = full.fit(ridges=stiff)
    np.testing.assert_allclose(found.theta, other.theta, rtol=1e-6, atol=1e-6)
    assert found.evidence == pytest.approx(other.evidence, rel=1e-6)


def test_a_copy_counts_as_rows_at_the_mean():
    """What an action leaves to its copy is what n rows with its mean context and mean reward would leave."""
    case = made(6)
    table, _ = sums(case)
    row, x = table[2], case.features[2]
    n = row[-2]
    found = constant_deviations.copied(row, x)
    _, expected = constant_deviations.sum_rows(
        row[None, :-1] / n, x[None], np.zeros(1, np.intp), row[-1:] / n, np.array([n]), None
    )
    for name, value in vars(expected).items():
        np.testing.assert_allclose(getattr(found, name), value, rtol=1e-11, atol=1e-11, err_msg=name)
    nothing = constant_deviations.copied(np.zeros(len(row)), x)
    assert not nothing.matrix.any()
