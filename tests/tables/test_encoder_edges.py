"""What a doubter tried on the encoder: large ids beside missing ones, names that meet, the ends of the range."""

import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from spuir import Encoder
from spuir.errors import InputError

IDS = [2**60 + 1, 2**60 + 3, 2**60 + 5]


@pytest.fixture(autouse=True)
def no_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("hashing", [None, 64])
def test_ids_are_the_same_beside_a_missing_one(hashing: int | None) -> None:
    kinds = {"id": "category" if hashing is None else "hash"}
    encoder = Encoder.learn(pa.table({"id": IDS}), kinds=kinds, hashing=hashing)
    alone = encoder.encode(pa.table({"id": IDS}))
    assert len({tuple(row) for row in alone.tolist()}) == 3
    rows = [{"id": one} for one in (*IDS, None)]
    frame = pd.DataFrame({"id": pd.array([*IDS, None], dtype="Int64")})
    for table in (pa.table({"id": [*IDS, None]}), rows, frame):
        np.testing.assert_array_equal(encoder.encode(table)[:3], alone)


def test_ids_beside_a_missing_one_are_learnt_apart() -> None:
    names = Encoder.learn(pa.table({"id": [*IDS, None]}), kinds={"id": "category"}).names
    assert names[:3] == tuple(f"id={one}" for one in IDS)
    items = Encoder.learn(pa.table({"seen": [[IDS[0]], [IDS[1], None]]})).names
    assert items[:2] == tuple(f"seen has {one}" for one in IDS[:2])


def test_a_column_and_a_member_of_the_same_name_stay_apart() -> None:
    encoder = Encoder.learn([{"u.age": "a", "u": {"age": 1}}])
    row = dict(zip(encoder.names, encoder.encode([{"u.age": "a", "u": {"age": 3}}])[0], strict=True))
    assert row == {"u.age=a": 1.0, "u.age is other": 0.0, "u.age": 3.0}


@pytest.mark.parametrize(
    ("learnt", "value", "expected"),
    [
        ([-1.7e308, -1.7e308], 1.7e308, 0.0),
        ([0.0, 1e-310], 5.0, np.finfo(float).max),
        ([[-1.7e308, 0.5]] * 2, [1.7e308, 0.5], 0.0),
        ([[0.0, 0.5], [1e-310, 0.5]], [-5.0, 0.5], -np.finfo(float).max),
    ],
)
def test_scaled_values_are_finite(learnt: list[Any], value: Any, expected: float) -> None:
    encoder = Encoder.learn([{"a": one} for one in learnt], scale=True)
    assert encoder.encode([{"a": value}])[0, 0] == expected
    missing = encoder.encode([{"a": None}])
    assert np.isfinite(missing).all()


def test_single_values_of_rank_nought() -> None:
    encoder = Encoder.learn([{"a": 1.0, "b": "x"}])
    np.testing.assert_array_equal(encoder.encode({"a": np.array(5.0), "b": np.array("x")}), [[5.0, 1.0, 0.0]])


def test_half_a_pair_of_surrogates_is_hashed() -> None:
    encoder = Encoder.learn([{"a": "\ud83d"}], hashing=8)
    assert np.abs(encoder.encode([{"a": "\ud83d"}])).sum() == 1


def test_days_beyond_the_year_9999_have_a_text() -> None:
    days = {"a": np.array(["20000-01-01"], "M8[s]")}
    assert Encoder.learn(days, kinds={"a": "category"}).names[0] == "a=20000-01-01T00:00:00+00:00"


def test_a_fraction_beyond_floats_is_refused() -> None:
    with pytest.raises(InputError, match="a number must be finite"):
        Encoder.learn([{"a": 1.0}, {"a": Fraction(10**400)}])


def test_many_features_are_named_at_once() -> None:
    assert Encoder.learn([{"a": "x"}], hashing=100_000).width == 100_000  # quadratic, this took minutes
