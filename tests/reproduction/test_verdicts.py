"""Intervals, exponents and the rule of verdicts, against SciPy and against sums written out."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from spuir.base.streams import generator
from spuir.reproduction.base import AUTHORS_ONLY, FAILS, HOLDS, OPEN
from spuir.reproduction.tasks import Result, Task
from spuir.reproduction.verdicts import (
    Interval,
    all_above,
    estimate,
    judge,
    last,
    paired,
    power_law,
    say,
    say_all,
    slope,
    summary,
    weakest,
)

VALUES = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=12)
ABOVE, BELOW, ACROSS = Interval(2.0, 1.0, 3.0), Interval(-2.0, -3.0, -1.0), Interval(0.5, -1.0, 2.0)


def result(seed, values):
    task = Task(function="m:f", arguments={"seed": seed, "policy": "puir" if seed % 2 else "sbucb"})
    return Result(task, [{"episode": n + 1, "reward": value} for n, value in enumerate(values)], 0.0)


@given(VALUES)
def test_the_interval_of_a_mean_is_students(values):
    if np.std(values) < 1e-6:
        values = [*values, values[0] + 1.0]
    found = estimate(values)
    known = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert found.estimate == pytest.approx(np.mean(values), abs=1e-9)
    assert (found.low, found.high) == pytest.approx((known.low, known.high), rel=1e-9, abs=1e-9)
    assert found.seeds == len(values)


def test_differences_are_taken_within_seeds_that_both_have():
    ours, theirs = {3: 1.0, 1: 5.0, 2: 2.0, 9: 100.0}, {1: 4.0, 2: 0.0, 3: 1.5, 7: -100.0}
    known = stats.ttest_rel([5.0, 2.0, 1.0], [4.0, 0.0, 1.5]).confidence_interval(0.95)
    found = paired(ours, theirs)
    assert found.seeds == 3
    assert (found.low, found.high) == pytest.approx((known.low, known.high))


def test_one_value_has_an_infinite_interval_and_none_has_no_estimate():
    assert estimate([2.0]) == Interval(2.0, -math.inf, math.inf, 1)
    none = paired({0: 1.0}, {1: 1.0})
    assert math.isnan(none.estimate)
    assert (none.low, none.high, none.seeds) == (-math.inf, math.inf, 0)
    mean, error = summary([4.0])
    assert mean == 4.0
    assert math.isnan(error)
    assert all(map(math.isnan, summary([])))


def test_a_summary_by_hand():
    # 1, 2, 6: mean 3, squared deviations 4 + 1 + 9 = 14, variance 7, standard error √(7/3).
    assert summary([1, 2, 6]) == pytest.approx((3.0, math.sqrt(7 / 3)))


@given(st.floats(-3, 3), st.floats(0.1, 10), st.lists(st.floats(0.1, 100), min_size=2, max_size=6, unique=True))
def test_a_pure_power_is_found(power, factor, x):
    if max(x) < 1.01 * min(x):
        x = [*x, 2 * max(x)]
    assert slope(x, [factor * value**power for value in x]) == pytest.approx(power, abs=1e-6)


def test_an_exponent_is_the_mean_of_the_slopes_that_scipy_fits():
    rng = generator(5, "tests", "judging")
    x = [1.0, 2.0, 5.0, 10.0]
    by_seed = {seed: list(np.exp(rng.normal(0.0, 0.3, 4)) * np.power(x, 0.7)) for seed in range(6)}
    slopes = [stats.linregress(np.log(x), np.log(y)).slope for y in by_seed.values()]
    assert power_law(x, by_seed).estimate == pytest.approx(np.mean(slopes))
    assert power_law(x, by_seed).high == pytest.approx(estimate(slopes).high)


@pytest.mark.parametrize("y", [[1.0, 0.0, 2.0], [1.0, -1.0, 2.0]])
def test_what_has_no_logarithm_has_no_exponent(y):
    found = power_law([1.0, 2.0, 4.0], {0: y, 1: [1.0, 2.0, 4.0], 2: [1.0, 2.0, 4.0]})
    assert math.isnan(found.estimate)
    assert judge(found) == OPEN


def test_one_place_has_no_slope():
    assert math.isnan(slope([2.0, 2.0], [1.0, 3.0]))


@pytest.mark.parametrize(
    ("claimed", "tuned", "margin", "outcome"),
    [
        (ABOVE, None, 0.0, HOLDS),
        (ABOVE, ABOVE, 0.0, HOLDS),
        (ABOVE, ACROSS, 0.0, AUTHORS_ONLY),
        (ABOVE, BELOW, 0.0, AUTHORS_ONLY),
        (ACROSS, ABOVE, 0.0, FAILS),
        (BELOW, ABOVE, 0.0, FAILS),
        (ABOVE, None, 1.0, FAILS),  # at the margin is not beyond it
        (ACROSS, None, -1.5, HOLDS),  # no worse than by 1.5
        (Interval(1.0, 0.9, 1.1, 2), None, 0.0, OPEN),
        (ABOVE, Interval(1.0, 0.9, 1.1, 2), 0.0, OPEN),
    ],
)
def test_the_rule(claimed, tuned, margin, outcome):
    assert judge(claimed, tuned, margin) == outcome


def test_a_claim_about_all_stands_with_the_weakest():
    assert weakest([ABOVE, ACROSS]) == ACROSS
    held = all_above("i", "c", "w", {"a": ABOVE, "b": ABOVE})
    assert (held.id, held.claim, held.outcome) == ("i", "c", HOLDS)
    assert held.evidence == (
        "w: a: 2.0000 [1.0000, 3.0000]; b: 2.0000 [1.0000, 3.0000]. Rule: every 95 % t-interval over seeds above 0."
    )
    assert all_above("i", "c", "w", {"a": ABOVE, "b": ACROSS}).outcome == FAILS
    assert all_above("i", "c", "w", {"a": ABOVE, "b": ACROSS}, margin=-2.0, also="Well.").outcome == HOLDS


def test_intervals_turn_shift_and_stretch():
    assert -ABOVE == BELOW
    assert ABOVE.minus(1.5) == Interval(0.5, -0.5, 1.5)
    assert ABOVE.times(2.0) == Interval(4.0, 2.0, 6.0)
    assert say(ABOVE, ".1f") == "2.0 [1.0, 3.0]"
    assert say_all({"a": ABOVE, "b": BELOW}, ".0f") == "a: 2 [1, 3]; b: -2 [-3, -1]"


def test_last_values():
    results = [result(seed, [0.1 * seed, float(seed)]) for seed in (4, 1, 3)]
    assert last(results, "reward") == {4: 4.0, 1: 1.0, 3: 3.0}
