"""Bodies that are read into a matrix: the same numbers as msgspec reads, and no body that it would refuse."""

import json

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spuir.service.api import shapes
from spuir.service.api.decision_routes import _several
from spuir.service.commands import DecisionRow
from spuir.service.number_rows import NumberRows, read_numbers
from spuir.service.settings import LARGEST_NUMBER


def body(*contexts):
    return json.dumps({"decisions": [{"context": list(one)} for one in contexts]}).encode()


def by_msgspec(text):
    return [row.context for row in shapes.several_decisions.decode(text).decisions]


numbers = st.one_of(
    st.floats(-LARGEST_NUMBER, LARGEST_NUMBER, allow_subnormal=True),
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([0.0, -0.0, 1e-320, 5e-324, 2**53 + 1, 0.1, 1e100, -1e100]),
)


@given(st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(numbers, min_size=width, max_size=width), min_size=2)))
def test_it_reads_the_same_bits_as_msgspec(contexts):
    read = read_numbers(body(*contexts))
    assert read is not None
    assert read.matrix.tobytes() == np.array(by_msgspec(body(*contexts))).tobytes()


PLAIN = body([1.5, -2.0], [0.25, 3.0], [1e-7, 9.0])


@given(
    st.integers(0, len(PLAIN)), st.integers(0, 3), st.binary(max_size=3) | st.sampled_from([b"[", b"]", b",", b"{}"])
)
@example(0, 0, b"\xef\xbb\xbf")
@example(len(PLAIN), 0, b"\x00")
@example(PLAIN.index(b"1.5"), 0, b"[")
def test_what_it_takes_is_what_msgspec_reads(place, cut, inserted):
    """The log keeps the body, and msgspec reads it there: a body of another kind must never be taken."""
    changed = PLAIN[:place] + inserted + PLAIN[place + cut :]
    read = read_numbers(changed)
    if read is not None:
        assert read.matrix.tolist() == by_msgspec(changed)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"[",
        b'{"decisions": []}',
        b'{"decisions": [{"context": [1, 2]}]}',  # one alone
        b'{"decisions": [{"context": [1, 2]}, {"context": [1]}]}',
        b'{"decisions": [{"context": []}, {"context": []}]}',
        b'{"decisions": [{"context": [[1], [2]]}, {"context": [1, 2]}]}',
        b'{"decisions": [{"context": [1, true]}, {"context": [1, 2]}]}',
        b'{"decisions": [{"context": [1, null]}, {"context": [1, 2]}]}',
        b'{"decisions": [{"context": [1, "2"]}, {"context": [1, 2]}]}',
        b'{"decisions": [{"context": [1, 1e101]}, {"context": [1, 2]}]}',
        b'{"decisions": [{"context": [1, 1e400]}, {"context": [1, 2]}]}',
        b'{"decisions": [{"context": [1, 123456789012345678901234567890]}, {"context": [1, 2]}]}',
        b'{"decisions": [{"context": [1, NaN]}, {"context": [1, 2]}]}',
        b'{"decisions": [{"context": [1, 2], "id": "a"}, {"context": [1, 2]}]}',
        b'{"decisions": [{"context": [1, 2], "context": [1, 2]}, {"context": [1, 2]}]}',
        b'{"decisions": [{"context": [1, 2]}, {"context": {"x": 2}}]}',
        b'{"decisions": [{"context": [1, 2]}, {"context": [1, 2]}], "more": 1}',
        b'{"decisions": [{"context": [1, 2]}, {"context": [1, 2]}]} {}',
        b'{"decisions": [{"context": [1, 2]}, [1, 2]]}',
    ],
)
def test_any_other_body_is_left_to_msgspec(text):
    assert read_numbers(text) is None


def test_a_route_reads_both_ways_to_the_same_rows():
    text = body([1.5, -2.0], [0.25, 3.0])
    rows, sent, request = _several(text)
    assert isinstance(rows, NumberRows) and sent is None and request is not None and bytes(request) == text
    assert list(rows) == rows[:] == [DecisionRow(context=[1.5, -2.0]), DecisionRow(context=[0.25, 3.0])]
    padded = text.replace(b"1.5", b"1.5" + b"0" * 200)  # too long to be kept as it was sent
    again, _, kept = _several(padded)
    assert [row.context for row in again] == by_msgspec(text) and kept is None


def test_a_body_after_one_that_could_not_be_read_is_read():
    with pytest.raises(msgspec.ValidationError):
        by_msgspec(b'{"decisions": [{"context": [1, "a"]}, {"context": [1, 2]}]}')
    assert read_numbers(b'{"decisions": [{"context": [1, "a"]}, {"context": [1, 2]}]}') is None
    assert read_numbers(PLAIN) is not None
