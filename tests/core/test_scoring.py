"""Scores to actions: the tie rule, exact propensities, floors, eligibility, widths by either product, blocks."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spuir.core import scoring
from spuir.core.scoring import Winners, argmax_probabilities, draw, eligible_mask, tied_actions, with_floor
from spuir.core.solving import Solved, solve
from spuir.errors import InputError

ALL = np.ones((1, 3), np.bool_)


def probabilities(*scores: float) -> list[float]:
    return argmax_probabilities(np.array([scores]), np.ones((1, len(scores)), np.bool_))[0].tolist()


class TestTieRule:
    def test_equal_scores_share_equally(self) -> None:
        assert probabilities(1.0, 1.0, 0.5) == [0.5, 0.5, 0.0]
        assert probabilities(0.0, 0.0, 0.0, 0.0) == [0.25] * 4

    @pytest.mark.parametrize("top", [1.0, 3e8, 2e-9, -1.0, -5e6])
    def test_scores_within_1e12_relative_are_tied_and_others_not(self, top: float) -> None:
        assert probabilities(top, top - 0.9e-12 * abs(top)) == [0.5, 0.5]
        assert probabilities(top, top - 1.1e-12 * abs(top)) == [1.0, 0.0]
        assert probabilities(top - 0.9e-12 * abs(top), top) == [0.5, 0.5]

    def test_nothing_but_nought_ties_with_nought(self) -> None:
        assert probabilities(0.0, -1e-300, 0.0) == [0.5, 0.0, 0.5]

    def test_ties_are_with_the_best_not_with_one_another(self) -> None:
        # The third is within the tolerance of the second, which is within that of the best; the third is out.
        assert probabilities(1.0, 1.0 - 0.8e-12, 1.0 - 1.6e-12) == [0.5, 0.5, 0.0]

    def test_an_ineligible_action_neither_wins_nor_ties(self) -> None:
        scores, eligible = np.array([[5.0, 1.0, 1.0]]), np.array([[False, True, True]])
        assert argmax_probabilities(scores, eligible).tolist() == [[0.0, 0.5, 0.5]]
        assert scores.tolist() == [[5.0, 1.0, 1.0]]

    def test_the_lowest_code_leads_the_tied_ones(self) -> None:
        found = Winners.of(np.array([[0.0, 2.0], [1.0, 2.0], [1.0, 0.0]]))
        assert found.winner.tolist() == [1, 0]
        assert found.columns.tolist() == [0, 1]
        assert found.tied.tolist() == [[False, True], [True, True], [True, False]]


tie_scores = st.lists(st.sampled_from([0.0, 1.0, 1.0 - 5e-13, 1.0 - 1e-9, -2.0]), min_size=1, max_size=6)


@st.composite
def rules(draw_: st.DrawFn) -> tuple[np.ndarray, np.ndarray, float]:
    """Scores (M,) full of ties and near-ties, who is eligible, and a floor from 0 to all that there is."""
    scores = np.array(draw_(tie_scores))
    m = len(scores)
    eligible = np.array(draw_(st.lists(st.booleans(), min_size=m, max_size=m)))
    eligible[draw_(st.integers(0, m - 1))] = True
    share = draw_(st.sampled_from([0.0, 1e-3, 0.25, 0.5, 0.9, 1.0]))
    return scores, eligible, share / int(eligible.sum())


@settings(max_examples=150)
@given(rules(), st.booleans())
def test_one_uniform_draws_exactly_the_stated_probabilities(
    rule: tuple[np.ndarray, np.ndarray, float], everyone: bool
) -> None:
    scores, eligible, floor = rule
    m = len(scores)
    if everyone:
        eligible, floor = np.ones(m, np.bool_), min(floor, 1.0 / m)
    grid = 6000
    uniforms = (np.arange(grid) + 0.5) / grid
    table = np.where(eligible, scores, -np.inf)[:, None].repeat(grid, axis=1)
    mask = None if everyone else eligible[:, None].repeat(grid, axis=1)
    actions, propensities = Winners.of(table).draw(uniforms, mask, floor)
    expected = with_floor(argmax_probabilities(scores[None], eligible[None]), eligible[None], floor)[0]
    # Every propensity is the probability of the action drawn, also of a tied action that was explored …
    np.testing.assert_allclose(propensities, expected[actions], rtol=1e-12, atol=1e-15)
    # … and the uniforms that lead to an action have just that measure: at most two cut cells per action.
    shares = np.bincount(actions, minlength=m) / grid
    np.testing.assert_allclose(shares, expected, atol=2.01 / grid)
    assert not shares[~eligible].any()


@given(rules())
def test_drawing_by_inversion_agrees_with_the_probabilities(rule: tuple[np.ndarray, np.ndarray, float]) -> None:
    scores, eligible, floor = rule
    expected = with_floor(argmax_probabilities(scores[None], eligible[None]), eligible[None], floor)
    grid = 3000
    table = expected.repeat(grid, axis=0)
    actions, propensities = draw(table, (np.arange(grid) + 0.5) / grid)
    np.testing.assert_array_equal(propensities, expected[0][actions])
    assert np.all(propensities > 0)
    np.testing.assert_allclose(np.bincount(actions, minlength=len(scores)) / grid, expected[0], atol=1.01 / grid)


def test_the_ends_of_the_unit_interval_draw_possible_actions() -> None:
    table = np.array([[0.0, 0.3, 0.7, 0.0]] * 3)
    actions, propensities = draw(table, np.array([0.0, np.nextafter(1.0, 0.0), 0.3]))
    assert actions.tolist() == [1, 2, 2]
    assert propensities.tolist() == [0.3, 0.7, 0.7]
    # Nine tenths that sum to a little less than one.
    actions, _ = draw(np.array([[0.1] * 10 + [0.0]]), np.array([np.nextafter(1.0, 0.0)]))
    assert actions.tolist() == [9]


class TestEligibility:
    def test_none_is_everyone_and_one_row_is_for_all(self) -> None:
        assert eligible_mask(None, 2, 3).tolist() == [[True] * 3] * 2
        assert eligible_mask(np.array([1, 0, 1]), 2, 3).tolist() == [[True, False, True]] * 2
        assert eligible_mask([[0.0, 1.0]], 1, 2).tolist() == [[False, True]]

    @pytest.mark.parametrize(
        ("given_", "text"),
        [
            (np.ones((2, 2), bool), "shape"),
            (np.array([[1, 2, 0]] * 2), "True or False"),
            (np.array([["a", "b", "c"]] * 2), "True or False"),
            (np.array([[True, True, True], [False, False, False]]), "row 1"),
        ],
    )
    def test_other_masks_are_refused(self, given_: np.ndarray, text: str) -> None:
        with pytest.raises(InputError, match=text):
            eligible_mask(given_, 2, 3)


class TestFloor:
    def test_every_eligible_action_keeps_its_least_probability(self) -> None:
        eligible = np.array([[True, True, False], [True, True, True]])
        rule = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
        expected = [[0.9, 0.1, 0.0], [0.1, 0.45, 0.45]]
        np.testing.assert_allclose(with_floor(rule, eligible, 0.1), expected, rtol=1e-15)
        assert with_floor(rule, eligible, 0.0) is rule

    def test_a_floor_that_leaves_nothing_is_uniform_and_a_higher_one_refused(self) -> None:
        np.testing.assert_allclose(with_floor(np.array([[1.0, 0.0, 0.0]]), ALL, 1 / 3), [[1 / 3] * 3], rtol=1e-15)
        with pytest.raises(InputError, match=r"at most 0\.333"):
            with_floor(np.array([[1.0, 0.0, 0.0]]), ALL, 0.34)


# ---- widths ---------------------------------------------------------------------------------------------------


def solved_of(rng: np.random.Generator, m: int, p: int, condition: float, copies: int = 1) -> Solved:
    """Actions with matrices of that condition number, the last ``copies`` of them alike."""
    turn = np.linalg.qr(rng.normal(size=(m, p, p)))[0]
    psi = (turn * np.geomspace(1.0, condition, p)) @ turn.transpose(0, 2, 1)
    rhs = 0.1 * rng.normal(size=(m, p))
    psi[m - copies :], rhs[m - copies :] = psi[-1], 0.0 if copies > 1 else rhs[-1]
    return solve((psi + psi.transpose(0, 2, 1)) / 2, rhs)


@pytest.mark.parametrize("m", [1, 5, 14, 33])
@pytest.mark.parametrize("condition", [1.0, 1e3])
def test_both_products_give_the_widths_to_nine_digits(m: int, condition: float) -> None:
    rng = np.random.default_rng(m)
    solved = solved_of(rng, m, 7, condition)
    contexts = rng.normal(size=(50, 7))
    assert solved.well_conditioned
    by_roots, by_pairs = scoring.squared_widths(solved, contexts), scoring._by_pairs(solved, contexts)
    np.testing.assert_allclose(np.sqrt(by_pairs), np.sqrt(by_roots), rtol=1e-9)
    upper = np.triu(solved.upper)
    inverse = np.linalg.inv(upper.transpose(0, 2, 1) @ upper)
    np.testing.assert_allclose(by_roots, np.einsum("np,mpq,nq->mn", contexts, inverse, contexts), rtol=1e-9)


@pytest.mark.parametrize("budget", [1, 8 * 7 * 14, 8 * 28 * 3, 10**6])
def test_widths_do_not_depend_on_the_size_of_blocks(monkeypatch: pytest.MonkeyPatch, budget: int) -> None:
    rng = np.random.default_rng(3)
    solved, contexts = solved_of(rng, 14, 7, 10.0), rng.normal(size=(23, 7))
    roots, pairs = scoring.squared_widths(solved, contexts), scoring._by_pairs(solved, contexts)
    monkeypatch.setattr(scoring, "BLOCK_BYTES", budget)
    np.testing.assert_allclose(scoring.squared_widths(solved, contexts), roots, rtol=1e-13)
    np.testing.assert_allclose(scoring._by_pairs(solved, contexts), pairs, rtol=1e-13)


def choose(solved: Solved, contexts: np.ndarray, alpha: float) -> Winners:
    rule = scoring.Acting(solved=solved, alpha=alpha)
    return scoring.winners(len(contexts), lambda rows: contexts[rows], lambda rows: solved.theta @ rows.T, rule, None)


@pytest.mark.parametrize(
    ("more", "p", "condition", "used"),
    [(-1, 6, 10.0, False), (0, 6, 10.0, True), (0, 6, 1e9, False), (0, 65, 10.0, False)],
)
def test_pair_products_serve_many_well_conditioned_actions_of_few_columns_only(
    monkeypatch: pytest.MonkeyPatch, more: int, p: int, condition: float, used: bool
) -> None:
    rng = np.random.default_rng(5)
    monkeypatch.setattr(scoring, "PAIRS_TO", 64)
    solved, contexts = solved_of(rng, scoring.PAIRS_FROM + more, p, condition), rng.normal(size=(30, p))
    calls = []
    honest = scoring._by_pairs
    monkeypatch.setattr(scoring, "_by_pairs", lambda *given_: calls.append(1) or honest(*given_))
    choose(solved, contexts, 0.5)
    assert bool(calls) is used


@pytest.mark.parametrize("condition", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("m", [15, 37])
@pytest.mark.parametrize("pairs_from", [1, 1000])
def test_actions_alike_stay_tied_however_their_widths_are_computed(
    monkeypatch: pytest.MonkeyPatch, pairs_from: int, m: int, condition: float
) -> None:
    monkeypatch.setattr(scoring, "PAIRS_FROM", pairs_from)
    rng = np.random.default_rng(m)
    solved = solved_of(rng, m, 10, condition, copies=m)
    contexts = rng.normal(size=(200, 10))
    upper = np.triu(solved.upper[0])
    # Half of them along the longest axes, where the form is the difference of large numbers.
    contexts[:100] = contexts[:100] @ (upper.T @ upper) / condition
    found = choose(solved, contexts, 0.5)
    assert len(found.columns) == 200 and found.tied.all()


@given(st.integers(0, 10**6), st.sampled_from([1.0, 1e4, 1e6]), st.sampled_from([0.0, 0.01, 1.0, 100.0]))
def test_winners_by_pair_products_are_those_by_the_factors(seed: int, condition: float, alpha: float) -> None:
    rng = np.random.default_rng(seed)
    solved = solved_of(rng, 20, 5, condition, copies=int(rng.integers(1, 5)))
    contexts = rng.normal(size=(40, 5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "PAIRS_FROM", 1)
        found = choose(solved, contexts, alpha)
    exact = Winners.of(solved.theta @ contexts.T + alpha * np.sqrt(scoring.squared_widths(solved, contexts)))
    np.testing.assert_array_equal(found.winner, exact.winner)
    np.testing.assert_array_equal(found.columns, exact.columns)
    np.testing.assert_array_equal(found.tied, exact.tied)


@pytest.mark.parametrize("n", [0, 1, 5, 16])
def test_blocks_of_contexts_join_to_the_same_winners(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    rng = np.random.default_rng(6)
    solved = solved_of(rng, 4, 3, 10.0, copies=2)
    contexts = rng.normal(size=(n, 3))
    whole = choose(solved, contexts, 1.0)
    assert n < 16 or 0 < len(whole.columns) < n
    for rows in (1, 2, 3):
        monkeypatch.setattr(scoring, "BLOCK_BYTES", rows * 8 * 4)
        cut = choose(solved, contexts, 1.0)
        np.testing.assert_array_equal(cut.winner, whole.winner)
        np.testing.assert_array_equal(cut.columns, whole.columns)
        np.testing.assert_array_equal(cut.tied, whole.tied)


class TestFinite:
    def test_the_first_bad_value_is_named(self) -> None:
        contexts = np.ones((3, 2))
        contexts[2, 1] = np.nan
        with pytest.raises(InputError, match="nan at row 2, column 1"):
            scoring.check_finite(np.ones((2, 2)) @ contexts.T, contexts)

    def test_an_overflow_of_finite_values_is_named_as_such(self) -> None:
        with pytest.raises(InputError, match="overflow"):
            scoring.check_finite(np.array([[np.inf]]), np.ones((1, 1)))

    def test_large_scores_whose_sum_overflows_are_fine(self) -> None:
        with np.errstate(over="ignore"):
            scoring.check_finite(np.full((2, 2), 1e308), np.ones((2, 2)))


def test_all_patterns_of_ties_among_four_are_found() -> None:
    for pattern in itertools.product([0.0, 1.0], repeat=4):
        scores = np.array(pattern)[:, None]
        assert tied_actions(scores)[:, 0].tolist() == [x == max(pattern) for x in pattern]
