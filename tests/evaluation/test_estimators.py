"""Every estimator agrees with its formula, written row by row, and with the whole evaluation."""

from typing import Any

import numpy as np
import pytest

from benchmarks.worlds import ACTIONS, World, row_by_row, soft
from spuir.errors import ParameterError, UnknownNameError
from spuir.evaluation import Estimate, TargetRows, TermSums, ValueEstimator, evaluate, make_estimators
from spuir.evaluation.block_sums import BlockAdder, ModelSums, least_error, span_of
from spuir.evaluation.estimators import FAMILY, ClippedInversePropensity, ShrunkDoublyRobust, SwitchDoublyRobust

SET = {"clipped-ips": 1.7, "switch-dr": 1.7, "dros": 4.0}


@pytest.fixture(scope="module")
def table() -> list[dict[str, Any]]:
    rng = np.random.default_rng(7)
    n = 300
    chances, logged = rng.dirichlet(np.ones(3), n), 0.05 + 0.85 * rng.dirichlet(np.ones(3), n)
    actions, rewards, guesses = rng.integers(3, size=n), rng.normal(size=n), rng.normal(size=(n, 3))
    return [
        {"r": r, "a": int(a), "p": float(p[a]), "pi": pi.tolist(), "q": q.tolist()}
        for r, a, p, pi, q in zip(rewards, actions, logged, chances, guesses, strict=True)
    ]


def expected_of(table: list[dict[str, Any]]) -> np.ndarray:
    return np.array([np.dot(row["pi"], row["q"]) for row in table])


def target_rows(table: list[dict[str, Any]]) -> TargetRows:
    at = [row["a"] for row in table]
    chances, guesses = np.array([row["pi"] for row in table]), np.array([row["q"] for row in table])
    rows = np.arange(len(table))
    propensities = np.array([row["p"] for row in table])
    return TargetRows(
        rewards=np.array([row["r"] for row in table]),
        target=chances[rows, at],
        propensities=propensities,
        predicted=guesses[rows, at],
        estimated=propensities,
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", FAMILY)
def test_an_estimator_agrees_with_its_formula_row_by_row(
    name: str, weighted: bool, table: list[dict[str, Any]]
) -> None:
    kind: Any = FAMILY[name]
    estimator = kind(SET[name]) if name in SET else kind()
    rows = target_rows(table)
    weights = np.random.default_rng(1).gamma(2, 1, len(table)) if weighted else None
    blocks = np.arange(len(table)) // 3
    terms = estimator.terms(rows)
    model = ModelSums(100)
    sums, weight = TermSums.zero(100, terms, model if estimator.needs_model else None), np.zeros(100)
    # The second part has its rows in another order, as units have.
    for part in (np.arange(120), np.random.default_rng(5).permutation(np.arange(120, 300))):
        pieces = [None if one is None else one[part] for one in terms]
        adder = BlockAdder(blocks[part], 100, None if weights is None else weights[part])
        adder(weight, np.ones(len(part)))
        model.add(adder, expected_of(table)[part])
        sums.add(adder, type(terms)(*pieces))
    found = float(sums.value(weight))
    expected = row_by_row(name, table, SET.get(name), None if weights is None else weights.tolist())
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_the_effects_of_blocks_are_those_of_leaving_them_out(table: list[dict[str, Any]]) -> None:
    rows = target_rows(table)
    for name in FAMILY:
        terms = FAMILY[name]().terms(rows)
        adder, model = BlockAdder(np.arange(300), 300, None), ModelSums(300)
        model.add(adder, expected_of(table))
        sums = TermSums.zero(300, terms, model if FAMILY[name].needs_model else None)
        sums.add(adder, terms)
        weight = np.ones(300)
        estimate = Estimate(parts=((1.0, sums),), weight=weight, rows=np.ones(300, np.int64))
        assert abs(estimate.influence.sum()) < 1e-12
        keep = np.ones((1, 300))
        keep[0, 17] = 0.999
        slope = -float(estimate.redrawn(keep)[0][0]) / 0.001
        assert slope == pytest.approx(estimate.influence[17], rel=2e-2, abs=1e-6)


def test_the_settings_at_their_limits_are_the_unbiased_estimators(table: list[dict[str, Any]]) -> None:
    rows = target_rows(table)

    def plain(estimator: ValueEstimator) -> Any:
        return estimator.terms(rows).plain

    assert np.array_equal(plain(ClippedInversePropensity(np.inf)), plain(FAMILY["ips"]()))
    assert np.array_equal(plain(SwitchDoublyRobust(np.inf)), plain(FAMILY["dr"]()))
    assert np.allclose(plain(ShrunkDoublyRobust(1e12)), plain(FAMILY["dr"]()))
    assert not plain(SwitchDoublyRobust(0.0)).any()  # v̂ alone, as dm


@pytest.mark.parametrize("name", FAMILY)
def test_no_term_exceeds_the_bound_that_goes_with_it(name: str, table: list[dict[str, Any]]) -> None:
    rows = target_rows(table)
    for setting in (0.5, 1.7, 40.0) if name in SET else (None,):
        kind: Any = FAMILY[name]
        estimator = kind() if setting is None else kind(setting)
        terms = estimator.terms(rows)
        gaps = rows.rewards - rows.predicted if estimator.needs_model else rows.rewards
        bound = estimator.reach(float(rows.ratios.max())) * span_of(gaps)
        seen = [span_of(values) for values in terms[:2] if values is not None]
        assert sum(seen) <= bound * (1 + 1e-12)
        assert not seen or sum(seen) > 0.1 * bound


def clipped(bound: float, ratios: np.ndarray, rewards: np.ndarray) -> Estimate:
    n = len(ratios)
    rows = TargetRows(rewards, ratios, np.ones(n), np.zeros(n))
    terms = ClippedInversePropensity(bound).terms(rows)
    sums = TermSums.zero(n, terms)
    sums.add(BlockAdder(np.arange(n), n, None), terms)
    return Estimate(parts=((1.0, sums),), weight=np.ones(n), rows=np.ones(n, np.int64))


def test_the_data_choose_a_bound_where_its_bias_is_smaller_than_the_noise() -> None:
    rng = np.random.default_rng(0)
    ratios = np.where(np.arange(4000) % 500 == 0, 400.0, 1.0)
    bounds = (3.0, 30.0, np.inf)
    noise = [clipped(bound, ratios, rng.normal(size=4000)) for bound in bounds]
    assert bounds[least_error(noise, noise[-1])] < np.inf
    # Every reward is 1: a bound takes away a part of each large weight, which is bias and not noise.
    biased = [clipped(bound, np.where(ratios > 1, 3.1, 1.0), np.ones(4000)) for bound in (1.5, np.inf)]
    assert least_error(biased, biased[-1]) == 1


def test_an_evaluation_agrees_with_the_formulas_row_by_row() -> None:
    """The reward model is the only thing taken from the evaluation; its predictions are tested beside it."""
    frame, contexts = World().draw(400, np.random.default_rng(3))
    chances = soft(contexts)
    frame = frame.assign(weight=np.random.default_rng(4).integers(1, 4, 400).astype(float))
    report = evaluate(
        frame, {"soft": chances}, actions=ACTIONS, reward_model=None, estimators=["ips", "snips"], against=["logged"]
    )
    rows = [
        {"r": r, "a": ACTIONS.index(a), "p": p, "pi": pi.tolist(), "q": [0.0] * 3}
        for r, a, p, pi in zip(frame.reward, frame.action, frame.propensity, chances, strict=True)
    ]
    for name in ("ips", "snips"):
        expected = row_by_row(name, rows, weights=frame.weight.tolist())
        assert report.value_of("soft", name).value == pytest.approx(expected, rel=1e-9)
    mean = float((frame.weight * frame.reward).sum() / frame.weight.sum())
    assert report.value_of("logged", "snips").value == pytest.approx(mean, rel=1e-12)


def test_unknown_and_repeated_estimators_are_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'switch-dr'\?"):
        make_estimators(["switchdr"])
    with pytest.raises(ParameterError, match="twice"):
        make_estimators(["dr", "dr"])


def test_values_are_those_of_the_open_bandit_pipeline() -> None:
    """The numbers are what obp 0.5.7 computes for these rows; it does not install beside this project's Python."""
    rng = np.random.default_rng(0)
    chances, logged = rng.dirichlet(np.ones(3), 500), 0.05 + 0.85 * rng.dirichlet(np.ones(3), 500)
    actions, rewards, guesses = rng.integers(3, size=500), rng.normal(size=500), rng.normal(size=(500, 3))
    rows = [
        {"r": r, "a": int(a), "p": float(p[a]), "pi": pi.tolist(), "q": q.tolist()}
        for r, a, p, pi, q in zip(rewards, actions, logged, chances, guesses, strict=True)
    ]
    peer = {
        "ips": -0.24077720621798682,
        "clipped-ips": -0.07750167453082682,
        "snips": -0.14141858723059172,
        "dm": 0.06539207141999633,
        "dr": -0.29489406237792326,
        "sndr": -0.14621913896320443,
        "switch-dr": 0.04249898625450229,
        "dros": 0.0021304059306790093,
    }
    for name, value in peer.items():
        assert row_by_row(name, rows, SET.get(name)) == pytest.approx(value, abs=1e-9), name


def test_values_are_those_of_vowpal_wabbits_estimators(table: list[dict[str, Any]]) -> None:
    peer = pytest.importorskip("estimators.bandits.snips", reason="vw-estimators is not installed")
    plain = pytest.importorskip("estimators.bandits.ips")
    for name, module in (("snips", peer), ("ips", plain)):
        theirs = module.Estimator()
        for row in table:
            theirs.add_example(row["p"], row["r"], row["pi"][row["a"]])
        assert row_by_row(name, table) == pytest.approx(theirs.get(), abs=1e-9)
