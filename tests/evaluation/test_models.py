"""Reward and propensity models: cross-fitting is what it says, whatever the order of the rows."""

import numpy as np
import pyarrow as pa
import pytest
from sklearn.linear_model import LinearRegression, Ridge

from benchmarks.worlds import World, threshold
from spuir.errors import InputError, ParameterError
from spuir.evaluation import LoggedRows, evaluate, make_reward_model
from spuir.evaluation.propensity_model import PropensityModel
from spuir.evaluation.reward_models import RIDGES, ContextFeatures, RegressorRewards, RidgeRewards

RNG = np.random.default_rng(0)
N = 240
FEATURES = np.column_stack([RNG.normal(size=(N, 2)), np.ones(N)])
ACTIONS, FOLDS = RNG.integers(3, size=N), RNG.integers(4, size=N)
REWARDS, WEIGHTS = FEATURES @ [0.5, -0.2, 0.3] + 0.2 * ACTIONS + RNG.normal(size=N), RNG.gamma(2, 1, N)


def fitted(model: RidgeRewards | RegressorRewards) -> RidgeRewards | RegressorRewards:
    for rows in (slice(0, 70), slice(70, 200), slice(200, N)):
        model.collect(FEATURES[rows], ACTIONS[rows], REWARDS[rows], WEIGHTS[rows], FOLDS[rows])
    model.finish(4)
    return model


def naive(fold: int, ridge: float) -> np.ndarray:
    """Predictions (N, 4) of ridge regressions that never saw a fold, each on its own; the fourth action has no row."""
    rows = fold != FOLDS
    mean = np.average(REWARDS[rows], weights=WEIGHTS[rows])
    found = np.full((N, 4), mean)
    for action in range(3):
        own = rows & (action == ACTIONS)
        model = Ridge(alpha=ridge, fit_intercept=False)
        found[:, action] += model.fit(FEATURES[own], REWARDS[own] - mean, WEIGHTS[own]).predict(FEATURES)
    return found


def test_the_model_of_a_fold_never_saw_it() -> None:
    model = fitted(RidgeRewards(4, ridge=2.0))
    found = model.predict(FEATURES, FOLDS)
    for fold in range(4):
        rows = fold == FOLDS
        np.testing.assert_allclose(found[rows], naive(fold, 2.0)[rows], rtol=1e-9)


def test_the_ridge_is_the_best_on_held_out_rows() -> None:
    model = fitted(RidgeRewards(4))
    assert isinstance(model, RidgeRewards)

    def error(ridge: float) -> float:
        by_fold = np.stack([naive(fold, ridge) for fold in range(4)])
        guesses = by_fold[FOLDS, np.arange(N), ACTIONS]
        return float(WEIGHTS @ (REWARDS - guesses) ** 2)

    errors = {ridge: error(ridge) for ridge in RIDGES}
    assert model.ridge == min(errors, key=errors.__getitem__)


def test_any_regressor_of_scikit_learn_can_be_given() -> None:
    model = fitted(RegressorRewards(4, LinearRegression()))
    found = model.predict(FEATURES, FOLDS)
    rows = FOLDS != 2
    table = np.hstack([FEATURES[:, :-1], np.eye(4)[ACTIONS]])
    expected = LinearRegression().fit(table[rows], REWARDS[rows], WEIGHTS[rows]).predict(table)
    at = np.flatnonzero(FOLDS == 2)
    np.testing.assert_allclose(found[at, ACTIONS[at]], expected[at], rtol=1e-9)


def test_nystroem_features_see_what_is_not_linear() -> None:
    """Rewards depend on |x| alone: a linear model explains nothing of them."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=4000)
    log = {"x": x, "action": rng.integers(2, size=4000), "reward": np.abs(x), "propensity": np.full(4000, 0.5)}
    errors = {
        name: evaluate(log, ["uniform"], against=[], reward_model=name, estimators=["dr"]).values[0].standard_error
        for name in ("linear", "nystroem")
    }
    # What is left beside the model is the spread of |x| over rows, which both have: 0.6/√4000.
    assert errors["nystroem"] == pytest.approx(0.6 / np.sqrt(4000), rel=0.1)
    assert (errors["linear"] or 0) >= (errors["nystroem"] or 1)


def test_a_log_without_contexts_has_a_model_of_means() -> None:
    features = ContextFeatures(None)
    assert features(pa.table({"a": [1, 2]}).select([])).shape[1] == features.width == 1


def test_too_large_models_are_refused() -> None:
    model = RidgeRewards(5)
    with pytest.raises(InputError, match="choose fewer context columns"):
        model.collect(np.ones((2, 3000)), np.array([0, 9]), np.zeros(2), np.ones(2), np.zeros(2, np.intp))


def test_unknown_models_are_refused() -> None:
    with pytest.raises(ParameterError, match="linear, nystroem, a scikit-learn regressor, or None"):
        make_reward_model("forest", 5)


def test_estimated_propensities_are_near_the_true_ones_and_balanced() -> None:
    frame, contexts = World().draw(6000, np.random.default_rng(2))
    codes = np.array(["a", "b", "c"]).searchsorted(frame.action.to_numpy().astype(str))
    features = np.column_stack([contexts, np.ones(6000)])
    rows = LoggedRows(
        table=None,
        actions=codes,
        rewards=frame.reward.to_numpy(),
        weights=np.ones(6000),
        propensities=None,
        eligible=None,
        units=None,
        episodes=None,
        numbers=np.arange(6000),
    )
    folds = rows.folds("blocks", 5)
    model = PropensityModel(5)
    model.collect(features, rows, folds)
    model.finish(3)
    found = model.predict(features, rows, folds)
    # The true probabilities are a mixture with uniform ones, which a logistic model only approximates.
    assert np.abs(found - frame.propensity).mean() < 0.03
    shares = np.bincount(codes, 1 / found) / 6000
    np.testing.assert_allclose(shares, 1.0, atol=1e-9)


def test_a_log_without_propensities_gives_nearly_the_same_value() -> None:
    frame, _ = World().draw(4000, np.random.default_rng(3))
    known = evaluate(frame, {"rule": threshold}, against=["logged"])
    report = evaluate(frame.drop(columns="propensity"), {"rule": threshold}, against=["logged"], propensity="estimate")
    assert report.value_of("rule").value == pytest.approx(known.value_of("rule").value, abs=0.01)
    assert report.value_of("rule", "balanced-ips").value == pytest.approx(known.value_of("rule").value, abs=0.02)
    assert any("Propensities are estimated" in notice for notice in report.notices)
