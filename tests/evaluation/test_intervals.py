"""Intervals: what can be checked by hand, and how the kinds relate to each other."""

import numpy as np
import pytest
from scipy import stats

from spuir.errors import UnknownNameError
from spuir.evaluation import Estimate, Terms, TermSums, interval
from spuir.evaluation.block_sums import BlockAdder
from spuir.evaluation.intervals import INTERVALS


def mean_of(values: np.ndarray, blocks: np.ndarray | None = None, by: str = "row") -> Estimate:
    """The mean of some values as an estimate."""
    places = np.arange(len(values)) if blocks is None else blocks
    count = int(places.max()) + 1
    adder, terms = BlockAdder(places, count, None), Terms(values)
    sums, weight = TermSums.zero(count, terms), np.zeros(count)
    sums.add(adder, terms)
    adder(weight, np.ones(len(values)))
    return Estimate(parts=((1.0, sums),), weight=weight, rows=weight.astype(np.int64), by=by)


def test_a_symmetric_sample_gives_the_t_interval() -> None:
    values = np.concatenate([np.linspace(-1, 1, 51), np.linspace(-1, 1, 51)]) + 5
    estimate = mean_of(values)
    low, high = interval(estimate, 0.95)
    half = stats.t.ppf(0.975, 101) * values.std(ddof=1) / np.sqrt(102)
    assert (low, high) == (pytest.approx(5 - half, rel=1e-9), pytest.approx(5 + half, rel=1e-9))


def test_a_skewed_sample_reaches_further_on_its_long_side() -> None:
    values = np.where(np.arange(1000) % 100 == 0, 1.0, 0.0)
    low, high = interval(mean_of(values))
    assert 0 < low < 0.01 < high
    assert high - 0.01 > 1.2 * (0.01 - low)
    # Ten successes of a thousand: the exact interval of a share is 0.0048 to 0.0183.
    assert (low, high) == (pytest.approx(0.0048, abs=1e-3), pytest.approx(0.0183, abs=3e-3))


@pytest.mark.parametrize("kind", INTERVALS)
def test_intervals_hold_the_estimate_and_grow_with_the_level(kind: str) -> None:
    estimate = mean_of(np.random.default_rng(0).gamma(2, 1, 400))
    narrow, wide = interval(estimate, 0.8, kind), interval(estimate, 0.99, kind)
    assert wide.low < narrow.low < estimate.value < narrow.high < wide.high
    assert interval(estimate, 0.8, kind) == narrow


def test_what_promises_more_is_wider() -> None:
    estimate = mean_of(np.random.default_rng(1).random(2000))
    widths = {kind: np.ptp(interval(estimate, 0.95, kind)) for kind in INTERVALS}
    assert widths["bootstrap"] == pytest.approx(widths["normal"], rel=0.1)
    assert widths["normal"] < widths["sequence"] < 2.5 * widths["normal"]
    assert widths["normal"] < widths["empirical-bernstein"]


def test_weights_stretch_the_span() -> None:
    """A row of weight ω moves a mean ω times as far as one of weight 1."""
    adder, terms = BlockAdder(np.arange(4), 4, np.array([1.0, 1, 1, 7])), Terms(np.array([0.0, 1, 0, 1]))
    sums, weight = TermSums.zero(4, terms), np.zeros(4)
    sums.add(adder, terms)
    adder(weight, np.ones(4))
    estimate = Estimate(parts=((1.0, sums),), weight=weight, rows=np.ones(4, np.int64))
    assert estimate.span == pytest.approx(7 * 4 / 10)


def test_a_bootstrap_of_few_units_has_no_empty_draws() -> None:
    values = np.random.default_rng(4).random(40)
    low, high = interval(mean_of(values, np.arange(40) % 4, "unit"), 0.95, "bootstrap")
    assert low < values.mean() < high


def test_merged_rows_keep_their_error() -> None:
    """Sums over blocks of ten rows say nearly the same as single rows: relative error of a variance √(2/1000)."""
    values = np.random.default_rng(2).gamma(1, 1, 10_000)
    single, merged = mean_of(values), mean_of(values, np.arange(10_000) // 10)
    assert merged.value == pytest.approx(single.value, rel=1e-12)
    assert merged.standard_error == pytest.approx(single.standard_error, rel=0.15)
    assert merged.pieces == single.pieces == 10_000


def test_rows_of_one_unit_are_not_counted_as_independent() -> None:
    rng = np.random.default_rng(3)
    values, units = np.repeat(rng.normal(size=100), 20), np.repeat(np.arange(100), 20)
    by_row, by_unit = mean_of(values), mean_of(values, units, "unit")
    assert by_unit.pieces == 100
    assert by_unit.standard_error == pytest.approx(np.sqrt(20) * by_row.standard_error, rel=0.05)


def test_a_paired_difference_cancels_what_both_share() -> None:
    rng = np.random.default_rng(4)
    common = rng.normal(size=500)
    first, second = mean_of(common + 0.1), mean_of(common)
    paired = first.minus(second)
    assert paired.value == pytest.approx(0.1)
    assert paired.standard_error < 1e-12
    assert interval(paired) == (pytest.approx(0.1), pytest.approx(0.1))


def test_one_block_gives_no_interval() -> None:
    assert interval(mean_of(np.arange(5.0), np.zeros(5, np.intp))) == (-np.inf, np.inf)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'bootstrap'\?"):
        interval(mean_of(np.arange(5.0)), 0.95, "bootstrp")


@pytest.mark.parametrize("kind", ["normal", "bootstrap"])
def test_skewed_means_are_covered(kind: str) -> None:
    """Samples of 150 exponentials: 400 95 % intervals cover 92 %, and 80 cover 87 %, save by chance with p < 0.01."""
    rng = np.random.default_rng(5)
    reps = 400 if kind == "normal" else 80
    hits = [
        low <= 1 <= high for low, high in (interval(mean_of(rng.exponential(1, 150)), 0.95, kind) for _ in range(reps))
    ]
    assert np.mean(hits) > (0.92 if kind == "normal" else 0.87)


def test_a_confidence_sequence_covers_at_all_looks_together() -> None:
    """200 streams with 20 looks each: at most 5 % may ever miss; 9 % would be missed by chance with p < 0.01."""
    rng = np.random.default_rng(6)
    missed = 0
    for _ in range(200):
        values = rng.normal(size=4000)
        looks = [interval(mean_of(values[:n]), 0.95, "sequence") for n in range(200, 4001, 200)]
        missed += any(not low <= 0 <= high for low, high in looks)
    assert missed <= 18


def ratio_of(above: np.ndarray, below: np.ndarray, plain: np.ndarray | None = None) -> Estimate:
    """Σabove/Σbelow as an estimate, plus the mean of ``plain``; every row is a block."""
    count = len(above)
    terms, adder = Terms(plain, above, below), BlockAdder(np.arange(count), count, None)
    sums = TermSums.zero(count, terms)
    sums.add(adder, terms)
    return Estimate(parts=((1.0, sums),), weight=np.ones(count), rows=np.ones(count, np.int64))


def test_a_draw_has_the_value_and_the_error_of_its_own_blocks() -> None:
    """Of the blocks repeated as often as the draw says, also for differences of two ratios."""
    rng = np.random.default_rng(6)
    columns = rng.random((5, 40)) + np.array([[3.0], [1.0], [0.0], [2.0], [1.0]])

    def made(at: np.ndarray) -> Estimate:
        above, below, plain, more, beyond = columns[:, at]
        return ratio_of(above, below, plain).minus(ratio_of(more, beyond))

    draws = rng.poisson(1.0, (25, 40)).astype(float)
    whole = made(np.arange(40))
    moved, errors = whole.redrawn(draws)
    for draw, shift, error in zip(draws, moved, errors, strict=True):
        alone = made(np.repeat(np.arange(40), draw.astype(int)))
        assert whole.value + shift == pytest.approx(alone.value, rel=1e-9)
        assert error == pytest.approx(alone.standard_error, rel=1e-9)


def test_a_draw_without_a_row_of_the_policy_has_no_error() -> None:
    estimate = ratio_of(np.array([1.0, 0, 0, 1]), np.array([2.0, 0, 0, 1]))
    _, errors = estimate.redrawn(np.array([[0.0, 2, 1, 0], [1, 0, 1, 2], [1, 0, 0, 0]]))
    assert (errors > 0).tolist() == [False, True, False]


def test_the_bootstrap_of_a_ratio_holds_its_level_with_few_blocks() -> None:
    """Of 300 intervals at 95 %, fewer than 270 hold the truth with probability below 0.003 if the level is 94 %."""
    rng, held = np.random.default_rng(31), 0
    for seed in range(300):
        weights = (rng.random(40) < 0.5) * rng.choice([1.0, 2, 6], 40)
        low, high = interval(ratio_of(weights * (rng.random(40) < 0.3), weights), 0.95, "bootstrap", seed)
        held += low <= 0.3 <= high
    assert held >= 270
