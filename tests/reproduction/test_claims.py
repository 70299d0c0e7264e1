"""From numbers to verdicts: contrasts by hand, and every rule of judging on samples made for it."""

import math

import numpy as np
import pytest
from scipy import stats

from spuir.reproduction.claims import (
    CODE_ONLY,
    CONTRADICTED,
    HOLDS,
    NOT_TESTED,
    UNDECIDED,
    Claim,
    Contrast,
    Interval,
    Sample,
    difference,
    exponent,
    interval,
    judge,
    judge_all,
    level,
    mean_ratio,
    ratio,
    samples_of,
)


def made(name, *values):
    runs = {seed: f"{name}{seed}" for seed in range(len(values))}
    return Sample(name=name, values=dict(enumerate(values)), runs=runs)


def around(value, spread=0.01, name="x", n=8):
    """A sample whose mean is ``value``."""
    return made(name, *(value + spread * (-1) ** seed for seed in range(n)))


ZERO = made("zero", *[0.0] * 8)


def lead(value, spread=0.01):
    return difference("lead", around(value, spread), ZERO)


def claim(**given):
    return Claim(id="id", place="here", wording="It is so.", **given)


def outcome(level=0.95, **given):
    return judge(claim(**given), level).outcome


def test_contrasts_by_hand():
    ours, theirs = made("a", 3.0, 5.0, 4.0), made("b", 1.0, 2.0, 1.0)
    assert difference("", ours, theirs).by_seed() == {0: 2.0, 1: 3.0, 2: 3.0}
    assert difference("", ours, theirs, percent_of=theirs).by_seed()[0] == pytest.approx(100 * 2.0 / (4.0 / 3))
    assert ratio("", ours, theirs).by_seed()[1] == pytest.approx(math.log(2.5))
    assert level("", ours).by_seed() == {0: 3.0, 1: 5.0, 2: 4.0}
    both = mean_ratio("", [ours, theirs], [theirs, theirs]).by_seed()
    assert both[0] == pytest.approx(0.5 * math.log(3.0))
    square = exponent("", [1, 2, 4], [made("p", 3.0), made("q", 12.0), made("r", 48.0)]).by_seed()
    assert square[0] == pytest.approx(2.0)


def test_a_contrast_has_the_seeds_that_all_samples_have():
    short = Sample(name="s", values={1: 1.0, 2: 4.0, 9: 0.0})
    assert set(difference("", short, made("a", 0.0, 0.0, 0.0)).by_seed()) == {1, 2}
    assert ratio("", short, short).by_seed() == {}  # one value has no logarithm: none is chosen
    assert exponent("", [1], [short]).by_seed() == Contrast(name="", terms=()).by_seed() == {}


def test_intervals_are_those_of_the_textbook():
    values = np.random.default_rng(0).normal(size=12)
    found = interval(values, 0.99)
    low, high = stats.t.interval(0.99, 11, values.mean(), stats.sem(values))
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert interval([1.0]).high == math.inf
    assert Interval(1.0, 0.0, 2.0).through(math.exp).high == pytest.approx(math.exp(2))


@pytest.mark.parametrize(
    ("value", "spread", "found"),
    [(1.0, 0.1, HOLDS), (-1.0, 0.1, CONTRADICTED), (0.0, 1.0, UNDECIDED), (0.0, 0.0, CONTRADICTED)],
)
def test_order_claims(value, spread, found):
    assert outcome(coded=[lead(value, spread)]) == found
    assert outcome(coded=[lead(-value, spread)], kind="less") == found


@pytest.mark.parametrize(
    ("value", "spread", "found"),
    [
        (0.2, 0.1, HOLDS),
        (3.0, 0.1, CONTRADICTED),
        (-3.0, 0.1, CONTRADICTED),
        (1.0, 0.5, UNDECIDED),
        (0.0, 3.0, UNDECIDED),
    ],
)
def test_equivalence_is_tested_as_equivalence(value, spread, found):
    assert outcome(coded=[lead(value, spread)], kind="alike", margin=1.0) == found


def test_a_claim_about_all_holds_if_all_do_and_is_refuted_by_one():
    assert outcome(coded=[lead(1.0), lead(2.0)]) == HOLDS
    assert outcome(coded=[lead(1.0), lead(0.0, 1.0)]) == UNDECIDED
    assert outcome(coded=[lead(1.0), lead(0.0, 1.0), lead(-1.0)]) == CONTRADICTED


@pytest.mark.parametrize(
    ("coded", "tuned", "found"),
    [
        (3.0, 1.0, HOLDS),
        (-3.0, 1.0, HOLDS),
        (3.0, -1.0, CODE_ONLY),
        (3.0, 0.0, CODE_ONLY),
        (-3.0, -1.0, CONTRADICTED),
    ],
)
def test_the_fair_comparison_decides(coded, tuned, found):
    assert outcome(coded=[lead(coded)], tuned=[lead(tuned, 0.01)], fair=True) == found


def test_a_lead_that_may_be_large_when_tuned_is_undecided():
    wide = lead(0.5, 3.0)
    assert wide.interval().high > 1.0
    assert outcome(coded=[lead(3.0)], tuned=[wide], fair=True) == UNDECIDED
    assert outcome(coded=[lead(3.0)], tuned=[lead(0.0, 0.5)], fair=True) == CODE_ONLY
    assert outcome(coded=[lead(3.0)], fair=True) == UNDECIDED  # the search is not done yet


def test_without_seeds_nothing_is_decided_and_what_is_no_test_says_so():
    few = difference("", made("a", 1.0, 2.0), made("b", 0.0, 0.0))
    assert outcome(coded=[few]) == outcome() == UNDECIDED
    assert outcome(coded=[Contrast(name="", terms=())]) == UNDECIDED
    assert outcome(coded=[lead(5.0)], untested="its premises are not met") == NOT_TESTED


def test_intervals_hold_for_a_family_at_once():
    """The paper's contrasts are one family, all others another; what is no test counts in neither."""
    claims = [
        claim(coded=[lead(1.0), lead(1.0)], tuned=[lead(1.0), lead(1.0)], fair=True),
        claim(coded=[lead(1.0)]),
        claim(coded=[lead(1.0)] * 9, untested="no"),
        claim(coded=[lead(1.0)], source="ours"),
    ]
    verdicts = judge_all(claims)
    assert [one.level for one in verdicts] == pytest.approx([0.99, 0.99, 0.99, 0.95])
    assert verdicts[0].coded[0].low == pytest.approx(lead(1.0).interval(0.99).low)


def test_a_family_of_true_null_claims_is_rarely_refuted_anywhere():
    """With 10 contrasts around 0, some interval excludes 0 in at most 5 % of families.

    500 families: with an error rate of 0.05 the count is binomial, and above 50 with a probability below 1e-6.
    """
    rng, wrong = np.random.default_rng(1), 0
    for _ in range(500):
        contrasts = [level("", made("x", *rng.normal(size=20))) for _ in range(10)]
        (verdict,) = judge_all([claim(coded=contrasts)])
        wrong += any(one.low > 0 or one.high < 0 for one in verdict.coded)
    assert 0 < wrong <= 50


def test_a_record_can_be_computed_again():
    ours, theirs = around(2.0, name="ours"), around(1.0, 0.02, name="theirs")
    one = claim(coded=[difference("d", ours, theirs, percent_of=theirs)], margin=0.5)
    (verdict,) = judge_all([one])
    record = verdict.record("figure0")
    assert record["id"] == "figure0/id"
    assert record["outcome"] == HOLDS
    (found,) = record["estimates"]
    assert found["terms"] == [[1.0, "ours"], [-1.0, "theirs"]]
    assert (found["percent_of"], found["n"], found["settings"]) == ("theirs", 8, "authors-code")
    assert samples_of([one]) == {"ours": ours, "theirs": theirs}
