"""Per-action sums: the laws of a commutative monoid, and one pass over rows in pieces of any size."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from spuir.core import statistics
from spuir.core.statistics import Statistics, blocks, by_action, count_codes, dense_rows, grow, summarise
from spuir.errors import InputError

NAMES = ("gram", "moment", "weight", "energy")
M, P = 3, 4


def make(seed: int, scale: float = 1.0) -> Statistics:
    rng = np.random.default_rng(seed)
    rows = scale * rng.normal(size=(12, P))
    return summarise(rows, rng.integers(M, size=12), rng.normal(size=12), rng.random(12), M)


sums = st.builds(make, st.integers(0, 10**6), st.sampled_from([1e-6, 1.0, 1e6]))
factors = st.sampled_from([0.0, 1.0]) | st.floats(1e-9, 1.0)


def same(first: Statistics, second: Statistics, tolerance: float = 0.0) -> None:
    for name in NAMES:
        a, b = getattr(first, name), getattr(second, name)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max(initial=0.0), err_msg=name)


@given(sums)
def test_zero_is_neutral(a: Statistics) -> None:
    same(a + Statistics.zero(M, P), a)
    same(Statistics.zero(M, P) + a, a)


@given(sums, sums)
def test_addition_commutes(a: Statistics, b: Statistics) -> None:
    same(a + b, b + a)


@given(sums, sums, sums)
def test_addition_is_associative_to_rounding(a: Statistics, b: Statistics, c: Statistics) -> None:
    same((a + b) + c, a + (b + c), 1e-14)


@given(sums, sums, factors)
def test_decay_distributes_over_addition(a: Statistics, b: Statistics, factor: float) -> None:
    same((a + b).decayed(factor), a.decayed(factor) + b.decayed(factor), 1e-14)


@given(sums, factors, factors)
def test_decays_multiply(a: Statistics, first: float, second: float) -> None:
    same(a.decayed(first).decayed(second), a.decayed(first * second), 1e-14)


@given(sums)
def test_decay_by_one_keeps_and_by_nought_clears(a: Statistics) -> None:
    same(a.decayed(1.0), a)
    same(a.decayed(0.0), Statistics.zero(M, P))


@given(sums, sums, factors)
def test_then_is_decay_and_addition_in_the_arrays_of_the_new_sums(a: Statistics, b: Statistics, factor: float) -> None:
    kept, expected = a.copied(), a.decayed(factor) + b
    after = a.then(factor, b)
    same(after, expected, 1e-15)
    same(a, kept)
    assert np.shares_memory(after.gram, b.gram)


def test_a_copy_has_arrays_of_its_own() -> None:
    a = make(1)
    copy = a.copied()
    same(copy, a)
    assert not any(np.shares_memory(getattr(a, name), getattr(copy, name)) for name in NAMES)


@given(st.integers(0, 10**6), st.integers(0, 20))
def test_sums_of_parts_add_up_to_the_sums_of_the_whole(seed: int, cut: int) -> None:
    rng = np.random.default_rng(seed)
    rows, codes, rewards, weights = (
        rng.normal(size=(20, P)),
        rng.integers(M, size=20),
        rng.normal(size=20),
        rng.random(20),
    )
    whole = summarise(rows, codes, rewards, weights, M)
    parts = [summarise(rows[s], codes[s], rewards[s], weights[s], M) for s in (slice(cut), slice(cut, 20))]
    same(parts[0] + parts[1], whole, 1e-13)


FORMS: dict[str, Any] = {
    "float64": lambda x: x,
    "float32": lambda x: x.astype(np.float32),
    "int": lambda x: x.astype(np.int64),
    "bool": lambda x: x.astype(bool),
    "Fortran": np.asfortranarray,
    "some columns": lambda x: np.hstack([x, x])[:, : x.shape[1]],
    "CSR": sparse.csr_array,
}


@given(
    st.lists(st.integers(0, 5), min_size=0, max_size=14),
    st.integers(1, 15),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["float64", "Fortran", "some columns", "CSR"]),
)
def test_chunk_borders_may_fall_anywhere(
    codes: list[int], piece: int, weighted: bool, repeated: bool, form: str
) -> None:
    rng = np.random.default_rng(len(codes) + 100 * piece)
    k, m, width = len(codes), 6, 3
    rows = rng.normal(size=(max(k, 1), width))
    at = rng.integers(len(rows), size=k) if repeated else np.arange(k)
    rewards, weights = rng.normal(size=k), rng.random(k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "GATHER_BYTES", piece * 8 * width)
        got = summarise(
            FORMS[form](rows[:k] if not repeated else rows),
            np.array(codes, np.intp),
            rewards,
            weights if weighted else None,
            m,
            at if repeated else None,
        )
    expected = Statistics.zero(m, width)
    for entry, code in enumerate(codes):
        w, s, r = weights[entry] if weighted else 1.0, rows[at[entry]], rewards[entry]
        expected.gram[code] += w * np.outer(s, s)
        expected.moment[code] += w * r * s
        expected.weight[code] += w
        expected.energy[code] += w * r * r
    same(got, expected, 1e-13)


def test_a_weight_of_nought_leaves_no_trace() -> None:
    rng = np.random.default_rng(0)
    rows, codes, rewards = rng.normal(size=(9, P)), rng.integers(M, size=9), rng.normal(size=9)
    weights = np.array([1.0] * 6 + [0.0] * 3)
    same(summarise(rows, codes, rewards, weights, M), summarise(rows[:6], codes[:6], rewards[:6], None, M), 1e-15)


def test_gram_matrices_are_symmetric_to_the_last_bit() -> None:
    gram = make(3).gram
    np.testing.assert_array_equal(gram, gram.transpose(0, 2, 1))


def test_growing_adds_an_empty_action_or_a_copy() -> None:
    a = make(1)
    cold, copy = a.grown(None), a.grown(1)
    for name in NAMES:
        np.testing.assert_array_equal(getattr(cold, name)[:M], getattr(a, name))
        assert not getattr(cold, name)[M].any()
        np.testing.assert_array_equal(getattr(copy, name)[M], getattr(a, name)[1])
    grown = grow(a.weight, 0)
    grown[M] = -1.0
    assert a.weight[0] != -1.0


@given(st.integers(0, 100), st.integers(0, 50), st.integers(0, 400))
def test_blocks_cover_every_row_once_within_the_budget(n: int, row_bytes: int, budget: int) -> None:
    cuts = list(blocks(n, row_bytes, budget))
    assert [i for cut in cuts for i in range(cut.start, cut.stop)] == list(range(n))
    assert all(cut.stop - cut.start == 1 or (cut.stop - cut.start) * row_bytes <= budget for cut in cuts)


def test_rows_are_ordered_by_action_and_stable_within() -> None:
    codes = np.array([2, 0, 2, 1, 0], np.intp)
    assert by_action(codes, 3).tolist() == [1, 4, 3, 0, 2]
    # Beside the ends of one and of two bytes.
    for first in (252, 253, 254, 65_532, 65_533, 65_534, 70_000):
        assert by_action(codes + first, first + 3).tolist() == [1, 4, 3, 0, 2]


def test_codes_are_counted_and_wrong_ones_named() -> None:
    assert count_codes(np.array([2, 0, 2], np.intp), 4).tolist() == [1, 0, 2, 0]
    assert count_codes(np.array([], np.intp), 2).tolist() == [0, 0]
    for codes, text in (([0, 3], "code 3 at row 1"), ([-1, 0], "code -1 at row 0")):
        with pytest.raises(InputError, match=text) as caught:
            count_codes(np.array(codes, np.intp), 3)
        assert "0 to 2" in str(caught.value)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("rows", [slice(1, 4), np.array([3, 0, 0]), slice(None)], ids=["slice", "codes", "all"])
def test_rows_of_any_form_come_out_dense_contiguous_and_double(form: Any, rows: Any) -> None:
    x = np.eye(5, 3)
    got = dense_rows(form(x), rows)
    assert got.dtype == np.float64 and got.flags.c_contiguous
    np.testing.assert_array_equal(got, x[rows])


@pytest.mark.parametrize("form", ["float64", "float32", "Fortran", "some columns"])
def test_no_more_rows_are_copied_than_are_chosen(form: str) -> None:
    table, rows = FORMS[form](np.ones((40_000, 10))), np.arange(0, 40_000, 4_000)
    tracemalloc.start()
    try:
        dense_rows(table, rows)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < table.nbytes / 100


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
@pytest.mark.parametrize("form", ["float64", "CSR"])
def test_a_value_that_cannot_be_summed_is_named_wherever_it_stands(
    monkeypatch: pytest.MonkeyPatch, bad: float, form: str
) -> None:
    rows = np.ones((11, 3))
    rows[7, 2] = bad
    monkeypatch.setattr(statistics, "GATHER_BYTES", 2 * 8 * 3)
    with pytest.raises(InputError, match="row 7, column 2"), np.errstate(over="ignore", invalid="ignore"):
        summarise(FORMS[form](rows), np.zeros(11, np.intp), np.zeros(11), None, 1)


def test_large_but_summable_values_pass() -> None:
    # Squares of 1e153 are finite; only the check's own sum over the matrix overflows.
    rows = np.full((2, 3), 1e153)
    with np.errstate(over="ignore"):
        got = summarise(rows, np.zeros(2, np.intp), np.zeros(2), None, 1)
    assert np.all(np.isfinite(got.gram))
