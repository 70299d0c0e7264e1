"""What every registered sketch promises."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from spuir.base import streams
from spuir.errors import ParameterError, ShardError, UnknownNameError
from spuir.sketches import SKETCHES, list_sketches, make_sketch

CASES = {"identity": ("identity", 1), "sjlt": ("sjlt", 1), "sjlt in 4 blocks": ("sjlt", 4), "gaussian": ("gaussian", 1)}
HASHED = {case: kind for case, kind in CASES.items() if kind[0] != "identity"}
SIZE = 24


@pytest.fixture(params=HASHED.values(), ids=list(HASHED))
def sketch(request):
    name, blocks = request.param
    return make_sketch(name, size=SIZE, blocks=blocks)


def matrix(sketch, ids, key=3):
    """The map itself (c, n): what it makes of the unit vectors."""
    ids = np.asarray(ids, np.int64)
    return sketch.sums(np.eye(len(ids)), np.zeros(len(ids), np.intp), 1, ids, key)[0]


def test_the_set_tested_is_the_set_registered():
    assert {name for name, _ in CASES.values()} == set(list_sketches()) == set(SKETCHES.names())


def test_a_column_belongs_to_its_id_and_the_key(sketch):
    ids = np.array([7, 2**62, 0, -5, 123_456_789])
    columns = matrix(sketch, ids)
    np.testing.assert_array_equal(matrix(sketch, ids[::-1]), columns[:, ::-1])
    np.testing.assert_array_equal(matrix(sketch, ids[2:3]), columns[:, 2:3])
    many = np.arange(200)
    assert not np.array_equal(matrix(sketch, many, key=4), matrix(sketch, many, key=3))
    # Under related keys, and for ids that follow each other, columns are no copies of one another.
    for other in (matrix(sketch, many + 1), matrix(sketch, many, key=4)):
        same = np.all(matrix(sketch, many) == other, axis=0).mean()
        # A hashed column is one of 2·24 or more, so 4 of 200 are expected; 24 have a chance below 1e-10.
        assert same < 0.12


def test_the_gram_is_unbiased(sketch):
    """E[ΠᵀΠ] = I: over 1,500 keys the 36 entries of the mean are within 5 standard errors; a false alarm in 2e-5."""
    draws = np.stack([matrix(sketch, np.arange(8) * 1000, key) for key in range(1500)])
    gram = np.matmul(draws.transpose(0, 2, 1), draws)
    error = gram.std(axis=0) / np.sqrt(len(draws))
    # Hashing keeps lengths exactly; only rounding is left on the diagonal.
    assert (np.abs(gram.mean(axis=0) - np.eye(8)) <= 5 * error + 1e-12).all()


def test_products_concentrate_at_the_rate_of_the_size(sketch):
    """The variance of ‖Πx‖² is at most 2‖x‖⁴/c: on 1,000 keys, with 40 % to spare, some 5 standard errors."""
    x = np.ones(40) / np.sqrt(40)
    values = [float(np.square(matrix(sketch, np.arange(40), key) @ x).sum()) for key in range(1000)]
    assert np.var(values) < 1.4 * 2 / SIZE
    assert abs(np.mean(values) - 1) < 5 * np.sqrt(2 / SIZE / 1000)


@given(cuts=st.lists(st.integers(0, 50), max_size=4), key=st.integers(0, 2**63 - 1), seed=st.integers(0, 10))
@pytest.mark.parametrize("case", HASHED)
def test_the_sketch_of_a_whole_is_the_sum_of_its_parts(case, cuts, key, seed):
    name, blocks = HASHED[case]
    sketch = make_sketch(name, size=SIZE, blocks=blocks)
    rng = streams.generator(seed, "parts")
    values, groups = rng.standard_normal((50, 3)), rng.integers(4, size=50)
    ids = rng.permutation(500)[:50]
    whole = sketch.sums(values, groups, 4, ids, key)
    pieces = np.split(np.arange(50), sorted(cuts))
    parts = sum(sketch.sums(values[piece], groups[piece], 4, ids[piece], key) for piece in pieces)
    np.testing.assert_allclose(parts, whole, rtol=0, atol=1e-12)
    assert whole.shape == (4, SIZE, 3)
    for group in range(4):
        own = groups == group
        np.testing.assert_allclose(whole[group], matrix(sketch, ids[own], key) @ values[own], rtol=0, atol=1e-12)


def test_inputs_are_not_written(sketch):
    rng = streams.generator(0, "inputs")
    given_arrays = rng.standard_normal((30, 2)), rng.integers(3, size=30), np.arange(30)
    copies = [part.copy() for part in given_arrays]
    for part in given_arrays:
        part.flags.writeable = False
    sketch.sums(given_arrays[0], given_arrays[1], 3, given_arrays[2], 1)
    for part, copied in zip(given_arrays, copies, strict=True):
        np.testing.assert_array_equal(part, copied)


def test_no_rows_and_empty_groups_are_zero(sketch):
    nothing = sketch.sums(np.empty((0, 2)), np.empty(0, np.intp), 3, np.empty(0, np.int64), 1)
    np.testing.assert_array_equal(nothing, np.zeros((3, SIZE, 2)))
    one = sketch.sums(np.ones((4, 2)), np.full(4, 1), 3, np.arange(4), 1)
    assert one[1].any() and not one[0].any() and not one[2].any()


@pytest.mark.parametrize("case", CASES)
def test_a_batch_no_larger_than_the_sketch_is_kept_whole(case):
    name, blocks = CASES[case]
    sketch = make_sketch(name, size=SIZE, blocks=blocks)
    assert sketch.keeps(0) and sketch.keeps(SIZE)
    assert sketch.keeps(SIZE + 1) == (name == "identity")


@pytest.mark.parametrize("blocks", [1, 2, 3, 8, 24])
def test_a_hashed_column_has_one_entry_in_each_block(blocks):
    columns = matrix(make_sketch("sjlt", size=SIZE, blocks=blocks), np.arange(400))
    by_block = columns.reshape(blocks, SIZE // blocks, 400)
    np.testing.assert_array_equal((by_block != 0).sum(axis=1), 1)
    np.testing.assert_allclose(np.abs(columns[columns != 0]), 1 / np.sqrt(blocks), rtol=1e-15)
    assert {np.sign(value) for value in columns[columns != 0]} == {-1.0, 1.0}


def test_buckets_and_signs_are_even():
    """Chi-square over 24 buckets × 2 signs of 4,000 ids that follow each other; error rate 1e-6."""
    columns = matrix(make_sketch("sjlt", size=SIZE), np.arange(4000))
    counts = np.concatenate([(columns > 0).sum(axis=1), (columns < 0).sum(axis=1)])
    expected = 4000 / 48
    assert np.square(counts - expected).sum() / expected < chi2.isf(1e-6, 47)


def test_the_identity_has_nothing_to_compress():
    with pytest.raises(ShardError, match="keeps every row"):
        matrix(make_sketch("identity", size=4), np.arange(5))


@pytest.mark.parametrize("name", list_sketches())
def test_wrong_sizes_are_refused(name):
    for size, blocks, shown in ((0, 1, "sketch_size"), (-3, 1, "sketch_size"), (24, 0, "blocks"), (24, 5, "divisor")):
        with pytest.raises(ParameterError, match=shown):
            make_sketch(name, size=size, blocks=blocks)


def test_a_wrong_name_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'gaussian'"):
        make_sketch("gausian", size=4)
