"""Probabilities of eligible pairs against the tables that they stand for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spuir.base import streams
from spuir.base.pairs import Pairs
from spuir.core import choosing, ties
from spuir.errors import InputError

LEVELS = tuple((2 * level + 1) / 16 for level in range(16))


def drawn(seed: int, n: int, m: int, ties_too: bool = False):
    """Return a mask, means and bonuses (n, m); with ties, scores of few values."""
    rng = streams.generator(seed, "choosing", n, m)
    mask = rng.random((n, m)) < 0.6
    mask[np.arange(n), rng.integers(m, size=n)] = True
    means, bonuses = rng.standard_normal((n, m)), rng.random((n, m))
    if ties_too:
        means, bonuses = np.round(means), np.round(2 * bonuses) / 2
    return mask, means, bonuses


def dense(mask, means, bonuses, floor):
    """Return the probabilities (n, m) level by level."""
    levels = [ties.argmax_probabilities(means + level * bonuses, mask) for level in LEVELS]
    return ties.with_floor(np.mean(levels, axis=0), mask, floor)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 9), st.booleans(), st.sampled_from([0.0, None, 0.05]))
def test_pairs_have_the_probabilities_of_the_table(seed, n, m, ties_too, floor):
    mask, means, bonuses = drawn(seed, n, m, ties_too)
    pairs = Pairs.of_mask(mask)
    found = choosing.probabilities(pairs, means[mask], bonuses[mask], LEVELS, floor)
    expected = dense(mask, means, bonuses, floor)
    np.testing.assert_allclose(pairs.table(found, 0.0), expected, atol=1e-12)
    best = choosing.most_probable(pairs, found)
    np.testing.assert_array_equal(found[pairs.find(best)], expected.max(axis=1))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(2, 9), st.sampled_from([0.0, None, 0.05]))
def test_capped_pairs_have_the_probabilities_of_the_table(seed, n, m, floor):
    mask, means, bonuses = drawn(seed, n, m)
    caps = np.where(np.arange(m) % 2 == 0, 0.05, np.inf)
    pairs = Pairs.of_mask(mask)
    found = choosing.probabilities(pairs, means[mask], bonuses[mask], LEVELS, floor, caps)

    def among(rows, established):
        return dense(established, means[rows], bonuses[rows], floor)

    expected = ties.with_caps(dense(mask, means, bonuses, floor), mask, caps, among)
    np.testing.assert_allclose(pairs.table(found, 0.0), expected, atol=1e-12)


def test_draws_invert_the_probabilities():
    """The share of draws is the probability: 4 cells of 20,000 draws, within 5 standard deviations."""
    pairs = Pairs(n_actions=9, starts=np.array([0, 3, 4]), codes=np.array([1, 4, 8, 2]))
    chances = np.array([0.2, 0.0, 0.8, 1.0])
    uniforms = streams.generator(0, "draws").random((20_000, 2))
    places = np.array([choosing.draw(pairs, chances, row) for row in uniforms])
    assert set(places[:, 1]) == {3}
    assert abs((places[:, 0] == 0).mean() - 0.2) < 5 * np.sqrt(0.16 / 20_000)
    assert not (places[:, 0] == 1).any()
    # The ends of the unit interval never reach an action of probability 0, or another row.
    for uniform in (0.0, 0.2, np.nextafter(1.0, 0.0)):
        assert chances[choosing.draw(pairs, chances, np.full(2, uniform))].all()


def test_a_floor_too_high_is_refused():
    pairs = Pairs(n_actions=9, starts=np.array([0, 3]), codes=np.array([1, 4, 8]))
    with pytest.raises(InputError, match="3 eligible actions × floor"):
        choosing.with_floor(pairs, np.array([1.0, 0.0, 0.0]), 0.4)


def test_rows_of_pairs():
    mask, _, _ = drawn(3, 8, 5)
    pairs = Pairs.of_mask(mask)
    np.testing.assert_array_equal(pairs.mask, mask)
    for rows in (slice(2, 6), slice(None, None, -2), np.array([5, 0, 5])):
        np.testing.assert_array_equal(pairs[rows].mask, mask[rows])
    np.testing.assert_array_equal(pairs.at(pairs.codes % 2 == 0).mask, mask & (np.arange(5) % 2 == 0))
    place = pairs.find(np.full(8, 3))
    np.testing.assert_array_equal(place >= 0, mask[:, 3])
    assert (pairs.codes[place[place >= 0]] == 3).all()
    np.testing.assert_array_equal(Pairs.every(3, np.array([0, 2]), 4).mask, [[True, False, True, False]] * 3)
