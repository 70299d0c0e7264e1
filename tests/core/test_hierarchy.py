"""The hierarchical model against one dense ridge regression over all columns."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spuir.base import streams
from spuir.core import evidence, hierarchy, packed_matrices
from spuir.core.evidence import CentredSums
from spuir.core.hierarchy import Columns, Folded, Ridges
from spuir.core.statistics import Statistics, summarise

TOLERANCE = 1e-9


@dataclass
class Case:
    """Rows of some actions: φ (n, D), codes, rewards, weights, features x (M, K)."""

    rows: Any
    codes: Any
    rewards: Any
    weights: Any
    features: Any
    columns: Columns
    ridges: Ridges

    @property
    def sums(self) -> Statistics:
        return summarise(self.rows, self.codes, self.rewards, self.weights, len(self.features))

    def fit(self, folded: Folded | None = None, **changes: Any) -> hierarchy.HierarchicalFit:
        given = {"sums": self.sums, "features": self.features, "columns": self.columns, "ridges": self.ridges}
        folded = Folded.nothing(self.columns) if folded is None else folded
        return hierarchy.fit(**{**given, **changes}, folded=folded, variance=1.0)


def make(
    seed: int, *, rows: int = 60, actions: int = 6, dim: int = 3, varying: int = 0, features: int = 2, kernel: int = 0
) -> Case:
    """Return random rows; some actions may have none."""
    rng = streams.generator(seed, "hierarchy", rows, actions, dim)
    width = dim + varying + 1
    own = [slice(width - 1, width), slice(0, dim)] + [slice(dim, dim + varying)] * bool(varying)
    count = features + kernel + 1 if features else 0
    blocks = [slice(count - 1, count), slice(0, features)] + [slice(features, features + kernel)] * bool(kernel)
    columns = Columns(tuple(own), tuple(blocks) if features else ())
    phi = np.column_stack([rng.standard_normal((rows, width - 1)), np.ones(rows)])
    x = np.column_stack([rng.standard_normal((actions, count - 1)), np.ones(actions)]) if features else None
    return Case(
        rows=phi,
        codes=rng.integers(max(actions - 1, 1), size=rows),
        rewards=3.0 + rng.standard_normal(rows),
        weights=rng.integers(0, 3, size=rows) * 0.5,
        features=np.zeros((actions, 0)) if x is None else x,
        columns=columns,
        ridges=Ridges(rng.uniform(0.2, 5.0, len(columns.shared)), rng.uniform(0.5, 9.0, len(own))),
    )


@dataclass
class Dense:
    """One ridge regression over the columns of Θ and of every δ."""

    theta: Any
    covariance: Any
    noise: float
    evidence: float
    shared: Any
    mean: float
    deviation: Any
    spread: Any


def dense(case: Case) -> Dense:
    """Return the same fit, from rows of p + M·E columns and one ridge per column; actions deviate in E of D columns."""
    (n, width), (actions, count) = case.rows.shape, case.features.shape
    p = count * width
    deviating = np.eye(width) if case.columns.deviations == "all" else np.eye(width)[:, -1:]
    blocks = [slice(p + code * deviating.shape[1], p + (code + 1) * deviating.shape[1]) for code in range(actions)]
    design = np.zeros((n, p + actions * deviating.shape[1]))
    for row, code in enumerate(case.codes):
        design[row, :p] = np.kron(case.features[code], case.rows[row])
        design[row, blocks[code]] = case.rows[row] @ deviating
    shared, own = case.ridges.diagonals(case.columns)
    ridge = np.concatenate([shared.ravel(), np.tile(own, actions)])
    weight = case.weights.sum()
    mean = case.weights @ case.rewards / weight
    centred = case.rewards - mean
    gram = design.T @ (case.weights[:, None] * design)
    right = design.T @ (case.weights * centred)
    inverse = np.linalg.inv(gram + np.diag(ridge))
    beta = inverse @ right
    noise = (case.weights @ centred**2 - right @ beta) / weight
    logdet = np.linalg.slogdet(gram + np.diag(ridge))[1] - np.log(ridge).sum()
    # θ_a = [x_a ⊗ I, …, I, …] β, for all actions at once.
    to_theta = np.zeros((actions, width, design.shape[1]))
    for code in range(actions):
        to_theta[code, :, :p] = np.kron(case.features[code], np.eye(width))
        to_theta[code, :, blocks[code]] = deviating
    return Dense(
        theta=to_theta @ beta,
        covariance=to_theta @ inverse @ to_theta.transpose(0, 2, 1),
        noise=noise,
        evidence=-0.5 * (weight * np.log(noise) + logdet),
        shared=beta[:p].reshape(count, width),
        mean=mean,
        deviation=beta[p:].reshape(actions, -1),
        spread=np.diag(inverse)[p:].reshape(actions, -1),
    )


def agree(found: hierarchy.HierarchicalFit, expected: Dense) -> None:
    for name in ("theta", "covariance", "noise", "evidence", "shared", "mean", "deviation", "spread"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), rtol=TOLERANCE, atol=TOLERANCE, err_msg=name
        )


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"features": 0},
        {"varying": 2},
        {"kernel": 3},
        {"varying": 1, "kernel": 2},
        {"rows": 5, "actions": 2},
        {"actions": 1},
        {"actions": 40},
    ],
)
def test_it_is_one_dense_ridge_regression(shape):
    for seed in range(3):
        case = make(seed, **shape)
        case.weights[:3] = 1.0
        agree(case.fit(), dense(case))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(4, 40),
    st.integers(1, 8),
    st.integers(1, 4),
    st.integers(0, 2),
    st.integers(0, 3),
)
def test_the_identity_holds_for_drawn_shapes(seed, rows, actions, dim, varying, features):
    case = make(seed, rows=rows, actions=actions, dim=dim, varying=varying, features=features)
    case.weights[:3] = 1.0
    agree(case.fit(), dense(case))


def test_each_ridge_belongs_to_its_block():
    """In the order of :attr:`Columns.shared`: by blocks of x, then of φ; the entry constant in both is fixed."""
    columns = Columns((slice(2, 3), slice(0, 2)), (slice(1, 2), slice(0, 1)))
    shared, own = Ridges(np.array([2.0, 3.0, 4.0]), np.array([5.0, 6.0])).diagonals(columns)
    np.testing.assert_array_equal(shared, [[4.0, 4.0, 3.0], [2.0, 2.0, 0.01]])
    np.testing.assert_array_equal(own, [6.0, 6.0, 5.0])


def test_one_row():
    case = make(0, rows=1, actions=3)
    case.weights[:] = 1.0
    found = case.fit()
    assert found.noise > 0  # the residual of the centred reward is 0, so that the least noise takes over
    np.testing.assert_allclose(found.covariance, dense_covariance(case), rtol=TOLERANCE)


def dense_covariance(case: Case) -> Any:
    with np.errstate(all="ignore"):
        return dense(case).covariance


def test_an_action_without_rows_is_what_its_features_say():
    case = make(1)
    found = case.fit()
    _, own = case.ridges.diagonals(case.columns)
    empty = len(case.features) - 1
    np.testing.assert_allclose(found.theta[empty], case.features[empty] @ found.shared, rtol=TOLERANCE)
    spread = np.kron(case.features[empty], np.eye(4)) @ found.shared_inverse
    expected = np.diag(1 / own) + spread @ np.kron(case.features[empty], np.eye(4)).T
    np.testing.assert_allclose(found.covariance[empty], expected, rtol=TOLERANCE)


def test_without_features_it_is_the_disjoint_model_with_shared_ridges():
    case = make(2, features=0)
    found = case.fit()
    disjoint = evidence.fit(CentredSums.of(case.sums, 3), case.columns.own, case.ridges.own, 1.0)
    np.testing.assert_allclose(found.theta, disjoint.solved.theta, rtol=TOLERANCE, atol=TOLERANCE)
    assert found.noise == pytest.approx(disjoint.noise, rel=TOLERANCE)
    assert found.evidence == pytest.approx(disjoint.evidence, rel=TOLERANCE)
    weight = float(case.weights.sum())
    expected = evidence.next_ridges(disjoint, CentredSums.of(case.sums, 3), case.columns.own, 1.0)
    np.testing.assert_allclose(hierarchy.next_ridges(found, case.columns, weight, 1.0).own, expected, rtol=1e-8)


def test_at_a_fixed_point_the_evidence_is_flat():
    """The fixed-point steps solve ∂ evidence/∂ ln ridge = 0, checked by differences."""
    case = make(3, rows=400, actions=12)
    case.rewards = case.rewards + case.rows @ [1.0, -1.0, 0.5, 0.0] + case.features[case.codes, 0] * case.rows[:, 0]
    made = case.fit()
    for _ in range(600):
        made = case.fit(ridges=hierarchy.next_ridges(made, case.columns, float(case.weights.sum()), 1e6))
    step = 1e-4
    for part in (0, 1):
        for at in range(len(made.ridges[part])):
            if not 1e-3 < made.ridges[part][at] < 1e4:
                continue  # at a limit
            sides = []
            for sign in (-1, 1):
                moved = [ridge.copy() for ridge in made.ridges]
                moved[part][at] *= np.exp(sign * step)
                sides.append(case.fit(ridges=Ridges(*moved)).evidence)
            assert abs(sides[1] - sides[0]) / (2 * step) < 1e-3 * abs(made.evidence)


def test_retired_actions_are_folded_exactly():
    """At the same ridges, folding some actions changes no estimate of the others."""
    for features in (2, 0):
        case = make(4, rows=90, actions=7, features=features)
        whole, sums = case.fit(), case.sums
        gone, kept = np.array([1, 4, 6]), np.array([0, 2, 3, 5])
        folded = hierarchy.fold(Statistics(4, sums.table[gone]), case.features[gone], case.columns, case.ridges)
        part = case.fit(folded, sums=Statistics(4, sums.table[kept]), features=case.features[kept])
        for name in ("theta", "covariance"):
            np.testing.assert_allclose(getattr(part, name), getattr(whole, name)[kept], rtol=1e-8, atol=TOLERANCE)
        for name in ("noise", "evidence", "mean"):
            assert getattr(part, name) == pytest.approx(getattr(whole, name), rel=TOLERANCE)
        np.testing.assert_allclose(part.shared, whole.shared, rtol=1e-8, atol=TOLERANCE)


def test_folding_two_actions_is_folding_one_after_the_other():
    case = make(5, rows=90, actions=4)
    sums = case.sums
    both = hierarchy.fold(Statistics(4, sums.table[:2]), case.features[:2], case.columns, case.ridges)
    single = [
        hierarchy.fold(Statistics(4, sums.table[at : at + 1]), case.features[at : at + 1], case.columns, case.ridges)
        for at in range(2)
    ]
    added = single[0].combined(1.0, single[1])
    for name, value in vars(both).items():
        np.testing.assert_allclose(getattr(added, name), value, rtol=1e-9, atol=1e-9, err_msg=name)


def test_packed_widths_are_quadratic_forms():
    rng = streams.generator(6, "packed")
    for width in (5, packed_matrices.NARROW + 3):
        rows, roots = rng.standard_normal((30, width)), rng.standard_normal((7, width, width))
        matrices = roots @ roots.transpose(0, 2, 1)
        expected = np.einsum("ni,mij,nj->nm", rows, matrices, rows)
        found = packed_matrices.quadratic_forms(rows, packed_matrices.packed_forms(matrices))
        np.testing.assert_allclose(found, expected, rtol=1e-11)
