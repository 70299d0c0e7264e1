"""Digests and the mixing of 64-bit words."""

from hashlib import blake2b

import numpy as np
import pytest

from spuir.base.hashing import digest, mix64, splitmix64


def test_splitmix64_draws_the_published_numbers():
    """The first outputs of the reference generator for the seed 1234567."""
    first, golden = 6457827717110365317, 0x9E3779B97F4A7C15
    second = 3203168211198807973
    states = np.array([1234567, (1234567 + golden) % 2**64], np.uint64)
    np.testing.assert_array_equal(splitmix64(states), np.array([first, second], np.uint64))


def test_mixing_is_one_to_one_and_leaves_its_argument_alone():
    words = np.arange(1 << 16, dtype=np.uint64)
    mixed = mix64(words)
    np.testing.assert_array_equal(words, np.arange(1 << 16, dtype=np.uint64))
    assert len(np.unique(mixed)) == len(words)
    assert mixed[0] == 0
    # Full avalanche: one bit of the argument changes each bit of the result half of the time.
    flipped = np.unpackbits((mixed ^ mix64(words ^ np.uint64(1))).view(np.uint8)).mean()
    assert flipped == pytest.approx(0.5, abs=0.005)


@pytest.mark.parametrize("function", [mix64, splitmix64])
def test_one_integer_is_hashed_as_in_an_array(function):
    words = [0, 1, 2**32, 2**63 + 11, 2**64 - 1]
    assert [function(word) for word in words] == function(np.array(words, np.uint64)).tolist()


def test_parts_do_not_run_together():
    texts = {digest("ab", "c"), digest("a", "bc"), digest("abc"), digest("abc", ""), digest("", "abc"), digest()}
    assert len(texts) == 6


def test_a_digest_is_blake2b_of_lengths_and_contents():
    content = (2).to_bytes(8, "little") + "é".encode() + (1).to_bytes(8, "little") + b"x"
    assert digest("é", b"x") == blake2b(content, digest_size=16).hexdigest()
    assert len(digest("x", size=5)) == 10


def test_an_array_counts_by_its_bytes_in_c_order():
    table = np.arange(6.0).reshape(2, 3)
    for same in (table.tobytes(), bytearray(table.tobytes()), table.data, np.asfortranarray(table)):
        assert digest(same) == digest(table)
    assert digest(table.T) != digest(table)
    assert digest(np.empty((0, 3))) == digest(b"")
