"""Explanations: the estimates behind a decision, parts that add up, contrasts, shares of imputed weight."""

import sys

import numpy as np
import pandas as pd
import pytest

import spuir
from spuir.errors import InputError, MissingExtraError, NotFittedError, ParameterError
from spuir.tables.coefficients import strongest_contrasts
from tests.bandits import ACTIONS, REWARDS, D, M, X, taught

KINDS = {
    "plain": spuir.make_policy("sbucb"),
    "imputing": spuir.make_policy("puir", floor=0.05, intercept=True),
    "sampling": spuir.make_policy("linear-thompson", intercept=True),
    "fourier": spuir.make_policy("puir-kernel", n_features=8, raw=True, intercept=True),
    "sketched": spuir.make_policy("spuir", sketch_size=10),
}


@pytest.mark.parametrize("policy", KINDS.values(), ids=KINDS)
def test_an_explanation_agrees_with_the_decision(policy):
    bandit = taught(policy)
    frame, table = bandit.explain(X), bandit.decide(X)
    rows, chosen = np.arange(len(X)), frame.action.to_numpy()
    np.testing.assert_array_equal(chosen, bandit.predict(X))
    for name, values in (("mean", table.means), ("width", table.widths), ("score", table.scores)):
        np.testing.assert_allclose(frame[name], values[rows, chosen], rtol=1e-12)
    np.testing.assert_allclose(frame.probability, table.probabilities[rows, chosen], rtol=1e-12)
    rival = frame.competitor.to_numpy(int)
    others = table.probabilities.copy()
    others[rows, chosen] = -1
    np.testing.assert_array_equal(others[rows, rival], others.max(axis=1))
    np.testing.assert_allclose(frame.difference, table.means[rows, chosen] - table.means[rows, rival], atol=1e-12)
    parts = frame.filter(like="difference:")
    np.testing.assert_allclose(parts.sum(axis=1), frame.difference, atol=1e-12)


def test_an_explanation_worked_out_by_hand():
    bandit = spuir.Bandit(spuir.make_policy("sbucb", ridge=1.0), ["a", "b"], random_state=0)
    frame = pd.DataFrame({"age": [1.0, 1.0, 0.0, 0.0], "basket": [0.0, 0.0, 2.0, 2.0]})
    bandit.partial_fit(frame, ["a", "b", "a", "b"], [1.0, 0.0, 0.5, 2.0])
    # Φ = diag(1, 4) for both; θ_a = (1/2, 1/5), θ_b = (0, 4/5).
    line = bandit.explain(pd.DataFrame({"age": [2.0], "basket": [1.0]})).iloc[0]
    assert (line.action, line.competitor) == ("a", "b")
    assert line["difference:age"] == pytest.approx(1.0)
    assert line["difference:basket"] == pytest.approx(-0.6)
    assert line.difference == pytest.approx(0.4)
    assert line.because == "age +1, basket -0.6"
    contrast = bandit.contrast("a", "b")
    assert contrast.feature.tolist() == ["age", "basket"]
    np.testing.assert_allclose(contrast.difference, [0.5, -0.6])


def test_errors_of_means_and_contrasts_are_those_of_the_ridge_fit():
    bandit = taught(spuir.make_policy("puir", ridge=2.0))
    frame, variances, theta = bandit.explain(X), [], []
    for j in range(M):
        S, R = X[ACTIONS == j], REWARDS[ACTIONS == j]
        inverse = np.linalg.inv(S.T @ S + 2.0 * np.eye(D))
        theta.append(inverse @ S.T @ R)
        residual = R - S @ theta[-1]
        noise = residual @ residual / (len(S) - np.trace(inverse @ S.T @ S))
        variances.append(noise * inverse @ S.T @ S @ inverse)
    for row, line in frame.iterrows():
        expected = sum(X[row] @ variances[action] @ X[row] for action in (line.action, line.competitor))
        assert line.standard_error == pytest.approx(np.sqrt(expected), rel=1e-9)
    spread = np.sqrt(np.diag(variances[0]) + np.diag(variances[2]))
    np.testing.assert_allclose(bandit.contrast(0, 2).standard_error, spread, rtol=1e-9)


def test_errors_of_scaled_columns_are_per_unit_of_the_context():
    rng = np.random.default_rng(3)
    rows = rng.normal([5.0, -3.0], [10.0, 0.1], (400, 2))
    rewards = 0.02 * rows[:, 0] + rng.normal(size=400)
    scaled = spuir.Bandit(spuir.make_policy("sbucb", ridge=1e-9, scale=True, intercept=True), 1, random_state=0)
    plain = spuir.Bandit(spuir.make_policy("sbucb", ridge=1e-9, intercept=True), 1, random_state=0)
    for bandit in (scaled, plain):
        bandit.partial_fit(rows, np.zeros(400, int), rewards)
    # Without a ridge, scaling changes nothing: neither coefficients nor their errors (clipping touches no row here).
    np.testing.assert_allclose(scaled.coefficients_, plain.coefficients_, rtol=1e-6)
    errors = [[line.standard_error for line in bandit.coefficient_table()] for bandit in (scaled, plain)]
    np.testing.assert_allclose(errors[0], errors[1], rtol=1e-6)


@pytest.mark.parametrize("kernel_map", ["nystroem", "fourier", "none"])
@pytest.mark.parametrize("curved", [False, True])
def test_the_default_policy_is_explained_by_columns_and_its_kernel(kernel_map, curved):
    rng = np.random.default_rng(5)
    rows, actions = rng.normal(size=(600, 2)), rng.integers(2, size=600)
    effect = np.cos(3 * rows[:, 0]) if curved else rows[:, 0]
    bandit = spuir.Bandit("auto", ["a", "b"], random_state=0, kernel_map=kernel_map, landmarks=40)
    rewards = 5.0 + effect * (actions == 1) + 0.1 * rng.normal(size=600)
    bandit.partial_fit(rows, np.array(["a", "b"])[actions], rewards)
    frame, table = bandit.explain(rows[:50]), bandit.decide(rows[:50])
    parts = frame.filter(like="difference:")
    kernel = ["difference:kernel"] if kernel_map != "none" else []
    assert parts.columns.tolist() == ["difference:x0", "difference:x1", "difference:intercept", *kernel]
    np.testing.assert_allclose(parts.sum(axis=1), frame["mean"] - frame.competitor_mean, atol=1e-9)
    np.testing.assert_allclose(frame["mean"], np.where(frame.action == "a", *table.means.T), rtol=1e-12)
    if kernel:
        assert bool(parts["difference:kernel"].any()) == curved
    assert (frame.standard_error > 0).all()
    assert bandit.contrast("b", "a").feature.tolist() == ["x0", "x1", "intercept"]


def test_a_kernel_is_one_source_and_raw_columns_are_their_own():
    assert taught(KINDS["fourier"]).explain(X).filter(like="difference:").columns.tolist() == [
        "difference:x0",
        "difference:x1",
        "difference:x2",
        "difference:intercept",
        "difference:kernel",
    ]


def test_executed_actions_are_explained_and_ineligible_ones_refused():
    bandit = taught()
    asked = np.arange(len(X)) % M
    frame = bandit.explain(X, actions=asked)
    np.testing.assert_array_equal(frame.action, asked)
    assert (frame.difference < 0).any()
    eligible = np.ones((len(X), M), bool)
    eligible[4, asked[4]] = False
    with pytest.raises(InputError, match="at row 4"):
        bandit.explain(X, actions=asked, eligible=eligible)
    with pytest.raises(InputError, match="one action per row"):
        bandit.explain(X, actions=asked[:3])


def test_without_a_competitor_there_is_no_difference():
    frame = taught().explain(X[:2], eligible=[True, False, False])
    assert frame.action.tolist() == [0, 0]
    assert frame.competitor.isna().all() and frame.difference.isna().all() and frame.standard_error.isna().all()
    assert frame.because.tolist() == ["", ""]


def test_the_strongest_contrasts_are_those_of_all_pairs():
    rows = taught("sbucb").coefficient_table()
    pairs = []
    for one in range(M):
        for other in range(one + 1, M):
            for feature in range(D):
                own, its = rows[one * D + feature], rows[other * D + feature]
                error = np.hypot(own.standard_error, its.standard_error)
                pairs.append((abs(own.coefficient - its.coefficient) / error, one, other, own.feature))
    found = strongest_contrasts(rows, M, 4)
    assert [(row.action, other, row.feature) for other, row in found] == [pair[1:] for pair in sorted(pairs)[:-5:-1]]
    assert strongest_contrasts(rows[:D], 1, 4) == [] and strongest_contrasts([], 0, 4) == []


def test_shares_of_imputed_weight():
    frame = taught(spuir.make_policy("puir", imputation_rate=0.5)).action_weights()
    counts = np.bincount(ACTIONS)
    np.testing.assert_allclose(frame.observed_weight, counts)
    hidden = 0.5 * (len(X) - counts)
    np.testing.assert_allclose(frame.imputed_share, hidden / (counts + hidden))
    assert (taught("sbucb").action_weights().imputed_share == 0).all()


def test_what_cannot_be_explained_is_refused(monkeypatch):
    with pytest.raises(ParameterError, match="no reward model"):
        taught("bexp3").explain(X)
    with pytest.raises(NotFittedError):
        spuir.Bandit("puir", 3).explain(X)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match="spuir\\[data\\]"):
        taught().explain(X)
