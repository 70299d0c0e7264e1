import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spuir.base import streams
from spuir.errors import ParameterError, SnapshotError


def test_the_same_seed_and_path_give_the_same_numbers_on_every_machine() -> None:
    first = streams.generator(7, "environment", "noise", 3)
    second = streams.generator(7, "environment", "noise", 3)
    np.testing.assert_array_equal(first.random(5), second.random(5))
    # Written down once: a change here changes every published number.
    assert streams.generator(0, "policy").integers(0, 1000, 5).tolist() == [150, 546, 387, 243, 409]


@given(
    st.lists(st.lists(st.text(max_size=4), max_size=3).map(tuple), min_size=2, max_size=2, unique=True),
    st.integers(0, 2**64),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_different_paths_give_different_numbers(paths, seed) -> None:
    one, two = (streams.generator(seed, *path).integers(2**63) for path in paths)
    assert one != two


def test_names_do_not_run_together() -> None:
    paths = [("a", "b/c"), ("a/b", "c"), ("a/b/c",), ("ab", "/c"), ("a", "b", "c"), ("1:a",), ()]
    drawn = {int(streams.generator(0, *path).integers(2**63)) for path in paths}
    assert len(drawn) == len(paths)


def test_a_number_and_its_text_name_the_same_stream_whatever_its_type() -> None:
    drawn = {int(streams.generator(0, "episode", name).integers(2**63)) for name in (3, "3", np.int64(3))}  # type: ignore[arg-type]
    assert len(drawn) == 1


def test_streams_are_uncorrelated() -> None:
    # 45 correlations of 20,000 pairs, each within 5 standard errors: errs with probability below 3e-5.
    draws = np.array([streams.generator(1, "stream", i).normal(size=20_000) for i in range(10)])
    correlations = np.asarray(np.corrcoef(draws))[np.triu_indices(10, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(20_000)


@pytest.mark.parametrize("seed", [0, 5, np.int64(9), np.uint8(3), 2**100])
def test_an_integer_is_its_own_seed(seed) -> None:
    assert streams.as_seed(seed) == int(seed)
    assert type(streams.as_seed(seed)) is int


def test_a_generator_gives_a_seed_and_moves_on() -> None:
    one, two = np.random.default_rng(0), np.random.default_rng(0)
    assert streams.as_seed(one) == streams.as_seed(two)
    assert streams.as_seed(one) != streams.as_seed(np.random.default_rng(0))


def test_no_seed_is_a_fresh_one() -> None:
    assert streams.as_seed(None) != streams.as_seed(None)


@pytest.mark.parametrize("seed", [-1, 1.0, True, "0", np.float64(1), [1], np.random.RandomState(0)])
def test_anything_else_is_refused(seed) -> None:
    with pytest.raises(ParameterError, match="a seed is None, an integer ≥ 0 or a numpy Generator") as caught:
        streams.as_seed(seed)
    assert caught.value.got == repr(seed)


@pytest.mark.parametrize("used", [0, 1, 7])
def test_a_saved_position_continues_exactly(used: int) -> None:
    rng = streams.generator(3, "policy")
    rng.integers(0, 2**32, used, dtype=np.uint32)  # an odd number leaves half a word behind
    back = streams.set_state(json.loads(json.dumps(streams.get_state(rng))))
    np.testing.assert_array_equal(
        rng.integers(0, 2**32, 5, dtype=np.uint32), back.integers(0, 2**32, 5, dtype=np.uint32)
    )
    np.testing.assert_array_equal(rng.normal(size=5), back.normal(size=5))


def test_saving_does_not_move_the_stream() -> None:
    one, two = streams.generator(3), streams.generator(3)
    streams.get_state(one)
    assert one.random() == two.random()


@pytest.mark.parametrize(
    "change",
    [{"state": "x"}, {"state": "-1"}, {"inc": None}, {"inc": "9" * 60}, {"kind": "MT19937"}, {"uinteger": 2**40}],
)
def test_a_damaged_position_is_refused(change: dict) -> None:
    saved = {**streams.get_state(streams.generator(3)), **change}
    with pytest.raises(SnapshotError, match="saved stream"):
        streams.set_state(saved)


def test_an_incomplete_position_is_refused() -> None:
    for saved in ({}, [], None, 3):
        with pytest.raises(SnapshotError, match="saved stream"):
            streams.set_state(saved)  # type: ignore[arg-type]
