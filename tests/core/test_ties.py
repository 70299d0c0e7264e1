"""Scores to actions: the tie rule, exact propensities, floors and eligibility."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spuir.core import ties
from spuir.core.ties import Winners, argmax_probabilities, draw, eligible_mask, tied_actions, with_floor
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
        assert found.shares.tolist() == [[0.0, 0.5], [0.5, 0.5], [0.5, 0.0]]


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


@pytest.mark.parametrize("m", [1, 2, 5, 254, 255, 256, 300])
def test_sole_candidates_and_undecided_columns_are_found(m: int) -> None:
    rng = np.random.default_rng(m)
    for share in (0.0, 0.01, 0.5, 1.0):
        mask = rng.random((m, 40)) < share
        mask[rng.integers(m, size=40), np.arange(40)] = True
        for given_ in (mask, np.asfortranarray(mask), mask[:, ::3], mask[:, :0]):
            several = [i for i, column in enumerate(given_.T) if list(column).count(True) > 1]
            codes, undecided = ties.sole_candidates(given_)
            assert undecided.tolist() == several
            np.testing.assert_array_equal(np.delete(codes, several), np.delete(given_.argmax(axis=0), several))


def test_the_codes_of_many_actions_stay_exact() -> None:
    mask = np.zeros((100_001, 3), np.bool_)
    mask[99_999, 0] = mask[100_000, 1] = mask[0, 2] = mask[100_000, 2] = True
    codes, undecided = ties.sole_candidates(mask)
    assert codes[:2].tolist() == [99_999, 100_000] and undecided.tolist() == [2]


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
    actions, propensities = Winners.of(table).draw(
        lambda rows: uniforms if rows is None else uniforms[rows], mask, floor
    )
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


class TestFinite:
    def test_the_first_bad_value_is_named(self) -> None:
        contexts = np.ones((3, 2))
        contexts[2, 1] = np.nan
        with pytest.raises(InputError, match="nan at row 2, column 1"):
            ties.check_finite(np.ones((2, 2)) @ contexts.T, contexts)

    def test_an_overflow_of_finite_values_is_named_as_such(self) -> None:
        with pytest.raises(InputError, match="overflow"):
            ties.check_finite(np.array([[np.inf]]), np.ones((1, 1)))

    def test_large_scores_whose_sum_overflows_are_fine(self) -> None:
        with np.errstate(over="ignore"):
            ties.check_finite(np.full((2, 2), 1e308), np.ones((2, 2)))


def test_all_patterns_of_ties_among_four_are_found() -> None:
    for pattern in itertools.product([0.0, 1.0], repeat=4):
        scores = np.array(pattern)[:, None]
        assert tied_actions(scores)[:, 0].tolist() == [x == max(pattern) for x in pattern]
