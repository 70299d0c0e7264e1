"""Raw columns to numbers: every source of rows against a page of plain Python that goes row by row."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import spuir
from spuir.errors import InputError, ParameterError, SnapshotError
from spuir.tables.encoder import LEARNING_ROWS, Encoder

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")

Row = Mapping[str, Any]
LEVELS = 3
START = datetime(2026, 1, 5)  # a Monday
IDS = [2**60 + 1, 2**60 + 3, 2**60 + 5]  # as floats they would be one number


# ---- the same by plain Python, row by row -----------------------------------------------------------------------


def missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def frequent(values: Iterable[str]) -> list[str]:
    return [level for level, _ in sorted(Counter(values).items(), key=lambda item: (-item[1], item[0]))][:LEVELS]


def column(rows: Sequence[Row], path: str) -> list[Any]:
    values: list[Any] = list(rows)
    for key in path.split("."):
        values = [None if missing(value) else value.get(key) for value in values]
    return [None if missing(value) else value for value in values]


def number_features(path: str, seen: list[Any], value: Any, scale: bool) -> dict[str, float]:
    known = [float(one) for one in seen if one is not None]
    mean = sum(known) / len(known)
    spread = math.sqrt(sum((one - mean) ** 2 for one in known) / len(known))
    raw = mean if value is None else float(value)
    out = {path: raw}
    if scale:
        out = {path: 0.0 if len(set(known)) == 1 else (raw - mean) / spread}
    return out | ({f"{path} is missing": float(value is None)} if None in seen else {})


def text_features(path: str, seen: list[Any], value: Any) -> dict[str, float]:
    levels = frequent(one for one in seen if one is not None)
    out = {f"{path}={level}": float(value == level) for level in levels}
    told = None in seen
    out[f"{path} is other"] = float(value not in levels and not (value is None and told))
    return out | ({f"{path} is missing": float(value is None)} if told else {})


def time_features(path: str, seen: list[Any], value: Any, scale: bool) -> dict[str, float]:
    known = [one for one in seen if one is not None]
    start = min(known).replace(hour=0, minute=0, second=0)
    days = [None if one is None else (one - start).total_seconds() / 86_400 for one in [*seen, value]]
    clock = any((one.hour, one.minute, one.second) != (0, 0, 0) for one in known)
    out = {f"{path} days": number_features("", days[:-1], days[-1], scale)[""]}
    for name, length in [("week", 7)] + [("day", 1)] * clock:
        share = 0.0 if value is None else (value - START).total_seconds() / 86_400 / length
        out[f"{path} {name} sine"] = 0.0 if value is None else math.sin(2 * math.pi * share)
        out[f"{path} {name} cosine"] = 0.0 if value is None else math.cos(2 * math.pi * share)
    return out | ({f"{path} is missing": float(value is None)} if None in seen else {})


def list_features(path: str, seen: list[Any], value: Any) -> dict[str, float]:
    levels = frequent(item for one in seen if one is not None for item in one)
    items = value or []
    out = {f"{path} has {level}": float(items.count(level)) for level in levels}
    return out | {f"{path} has other": float(sum(item not in levels for item in items))}


def naive(learnt: Sequence[Row], row: Row, scale: bool = False) -> dict[str, float]:
    """Return the features of one row of the table below, by name."""
    out: dict[str, float] = {}
    for path, kind in PATHS.items():
        seen, value = column(learnt, path), column([row], path)[0]
        if all(one is None for one in seen):
            continue
        if kind in ("text", "list"):
            out |= {"text": text_features, "list": list_features}[kind](path, seen, value)
        else:
            features = time_features if kind == "time" else number_features
            out |= features(path, seen, value, scale and kind != "flag")
    return out


PATHS = {
    "age": "number",
    "member": "flag",
    "device": "text",
    "seen": "time",
    "tags": "list",
    "user.city": "text",
    "user.score": "number",
}
WORDS = st.sampled_from(["phone", "desktop", "tv", "watch", "", "ü"])
NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda value: round(value, 3))
MEMBERS = (st.none() | WORDS, st.none() | NUMBERS)
ROWS = st.fixed_dictionaries(
    {
        "age": st.none() | NUMBERS,
        "member": st.none() | st.booleans(),
        "device": st.none() | WORDS,
        "seen": st.none() | st.integers(0, 10**7).map(lambda seconds: START + timedelta(seconds=seconds)),
        "tags": st.none() | st.lists(WORDS, max_size=4),
        "user": st.none() | st.builds(lambda *both: dict(zip(("city", "score"), both, strict=True)), *MEMBERS),
    }
)
SCHEMA = pa.schema(
    {
        "age": pa.float64(),
        "member": pa.bool_(),
        "device": pa.string(),
        "seen": pa.timestamp("us"),
        "tags": pa.list_(pa.string()),
        "user": pa.struct({"city": pa.string(), "score": pa.float64()}),
    }
)


def forms(rows: Sequence[Row]) -> dict[str, Any]:
    """Return rows in every form that an encoder takes."""
    table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
    half = len(rows) // 2
    return {
        "rows": list(rows),
        "columns": {name: [row[name] for row in rows] for name in SCHEMA.names},
        "arrow": table,
        "chunks": pa.concat_tables([table.slice(0, half), table.slice(half)]),
        "frame": pd.DataFrame(list(rows), columns=SCHEMA.names),
        "arrow frame": table.to_pandas(types_mapper=pd.ArrowDtype),
        "other order": table.append_column("extra", pa.array(["x"] * len(rows))).select(
            ["extra", *reversed(SCHEMA.names)]
        ),
    }


@settings(max_examples=25, phases=[Phase.explicit, Phase.generate])  # shrinking seven forms takes minutes
@given(st.lists(ROWS, min_size=1, max_size=8), st.lists(ROWS, min_size=1, max_size=5), st.booleans())
def test_every_form_of_rows_gives_what_plain_python_gives(learnt: list[Row], later: list[Row], scale: bool) -> None:
    names = list(naive(learnt, learnt[0]))
    if not names:
        with pytest.raises(InputError, match="no value"):
            Encoder.learn(learnt, max_levels=LEVELS)
        return
    encoders = {
        form: Encoder.learn(table, columns=SCHEMA.names, max_levels=LEVELS, scale=scale)
        for form, table in forms(learnt).items()
    }
    encoder = encoders["rows"]
    assert list(encoder.names) == names
    expected = np.array([list(naive(learnt, row, scale).values()) for row in later])
    for form, table in forms(later).items():
        assert encoders[form].names == encoder.names
        for one in (encoder, encoders[form], Encoder.from_dict(json.loads(json.dumps(encoders[form].to_dict())))):
            made = one.encode(table)
            np.testing.assert_allclose(made, expected, rtol=1e-9, atol=1e-9, err_msg=form)
            assert made.dtype == np.float64
            assert made.flags.c_contiguous
    alone = np.vstack([encoder.encode(row) for row in later])
    np.testing.assert_array_equal(alone, encoder.encode(later))


# ---- numbers and booleans -----------------------------------------------------------------------------------


def test_numbers_stay_as_they_are_and_have_their_names() -> None:
    encoder = Encoder.learn({"b": [1, 2, 3], "a": [0.5, -1.0, 2.0]})
    assert encoder.names == encoder.columns == ("b", "a")
    np.testing.assert_array_equal(encoder.encode({"a": [7.0], "b": [9]}), [[9.0, 7.0]])


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "i1", "u8", "u2", "?"])
def test_every_dtype_of_numbers_is_taken_at_its_value(dtype: str) -> None:
    values = np.array([0, 1, 1, 0], dtype)
    for table in ({"x": values}, pd.DataFrame({"x": values}), pa.table({"x": pa.array(values)})):
        np.testing.assert_array_equal(Encoder.learn(table).encode(table), values.astype(float)[:, None])


def test_python_numbers_of_all_kinds_are_numbers() -> None:
    encoder = Encoder.learn({"x": [1, 2.5, Decimal("0.5"), np.float32(4), True, None, float("nan")]})
    expected = [1, 2.5, 0.5, 4, 1, 1.8, 1.8]
    made = encoder.encode([{"x": value} for value in [1, 2.5, Decimal("0.5"), np.float32(4), True, None, math.nan]])
    np.testing.assert_allclose(made[:, 0], expected)
    np.testing.assert_array_equal(made[:, 1], [0, 0, 0, 0, 0, 1, 1])


def test_a_constant_is_scaled_to_zero_and_booleans_are_not_scaled() -> None:
    encoder = Encoder.learn({"x": [0.1, 0.1, 0.1], "flag": [True, False, True]}, scale=True)
    np.testing.assert_array_equal(encoder.encode({"x": [0.1, 5.0], "flag": [True, False]}), [[0, 1], [0, 0]])


def test_scaled_numbers_have_mean_zero_and_deviation_one() -> None:
    values = np.random.default_rng(0).normal(1e6, 3.0, 5000)
    made = Encoder.learn({"x": values}, scale=True).encode({"x": values})
    np.testing.assert_allclose([made.mean(), made.std()], [0.0, 1.0], atol=1e-8)


def test_huge_numbers_are_learnt_without_overflow() -> None:
    encoder = Encoder.learn({"x": [1e308, 1e308, -1e308, None]}, scale=True)
    assert np.isfinite(encoder.encode({"x": [1e308, None]})).all()


@pytest.mark.parametrize(
    ("learned", "value", "expected"),
    [
        ([-1.7e308, -1.7e308], 1.7e308, 0.0),
        ([0.0, 1e-310], 5.0, np.finfo(float).max),
        ([[-1.7e308, 0.5]] * 2, [1.7e308, 0.5], 0.0),
        ([[0.0, 0.5], [1e-310, 0.5]], [-5.0, 0.5], -np.finfo(float).max),
    ],
)
def test_scaled_values_are_finite(learned: list[Any], value: Any, expected: float) -> None:
    encoder = Encoder.learn([{"a": one} for one in learned], scale=True)
    assert encoder.encode([{"a": value}])[0, 0] == expected
    missing = encoder.encode([{"a": None}])
    assert np.isfinite(missing).all()


def test_a_fraction_beyond_floats_is_refused() -> None:
    with pytest.raises(InputError, match="a number must be finite"):
        Encoder.learn([{"a": 1.0}, {"a": Fraction(10**400)}])


def test_a_missing_value_that_was_not_seen_at_learning_is_the_mean_and_adds_no_feature() -> None:
    encoder = Encoder.learn({"x": [1.0, 3.0], "flag": [True, False], "word": ["a", "b"]})
    assert "x is missing" not in encoder.names
    row = dict(zip(encoder.names, encoder.encode({"x": None, "flag": None, "word": None})[0], strict=True))
    assert row == {"x": 2.0, "flag": 0.5, "word=a": 0.0, "word=b": 0.0, "word is other": 1.0}


def test_missing_values_deep_in_a_long_table_are_found() -> None:
    values = np.arange(30_000.0)
    values[[0, 17_000, 29_999]] = np.nan
    table = pa.table({"x": values, "y": np.ones(30_000), "word": ["a"] * 30_000})
    made = Encoder.learn(table).encode(table)
    assert np.flatnonzero(made[:, 1]).tolist() == [0, 17_000, 29_999]
    np.testing.assert_allclose(made[17_000, 0], np.nanmean(values))
    np.testing.assert_array_equal(np.delete(made[:, 0], [0, 17_000, 29_999]), values[~np.isnan(values)])


def test_masked_arrays_and_pandas_missing_values_are_missing() -> None:
    encoder = Encoder.learn({"x": [1.0, 2.0, 3.0, None]})
    tables = [
        {"x": np.ma.masked_array([1.0, 9.0], [False, True])},
        pd.DataFrame({"x": pd.array([1, None], dtype="Int64")}),
        pd.DataFrame({"x": pd.Series([1.0, pd.NA], dtype=object)}),
        {"x": [1.0, pd.NaT]},
    ]
    for table in tables:
        np.testing.assert_array_equal(encoder.encode(table), [[1.0, 0.0], [2.0, 1.0]])


def test_durations_and_times_of_day_are_seconds() -> None:
    spans = [timedelta(seconds=90), timedelta(hours=1)]
    clocks = [one for one in pd.to_datetime(["1970-01-01T00:01:30", "1970-01-01T01:00:00"]).time]
    for values in (spans, clocks, np.array(spans, "m8[ms]"), pa.array(spans), pa.array(clocks)):
        np.testing.assert_array_equal(Encoder.learn({"x": values}).encode({"x": values}), [[90.0], [3600.0]])


# ---- text ---------------------------------------------------------------------------------------------------


def test_levels_are_the_most_frequent_in_an_order_that_rows_do_not_decide() -> None:
    words = ["c"] * 3 + ["b"] * 3 + ["a"] * 5 + ["d"]
    encoder = Encoder.learn({"w": words}, max_levels=3)
    assert encoder == Encoder.learn({"w": words[::-1]}, max_levels=3)
    assert encoder.names == ("w=a", "w=b", "w=c", "w is other")
    np.testing.assert_array_equal(encoder.encode({"w": ["d", "new", "c"]}), [[0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 1, 0]])


def test_categorical_columns_are_text_whatever_categories_they_declare() -> None:
    frame = pd.DataFrame({"w": pd.Categorical(["x", None, "y"], categories=["y", "never", "x"])})
    encoder = Encoder.learn(frame)
    assert encoder.names == ("w=x", "w=y", "w is other", "w is missing")
    np.testing.assert_array_equal(encoder.encode(frame), [[1, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0]])
    coded = pa.table({"w": pa.array(["x", None, "y"]).dictionary_encode()})
    np.testing.assert_array_equal(encoder.encode(coded), encoder.encode(frame))


def test_codes_can_be_declared_categories_and_are_compared_as_text() -> None:
    encoder = Encoder.learn({"zip": [7, 7, 12], "x": [1, 2, 3]}, kinds={"zip": "category"})
    assert encoder.names == ("zip=7", "zip=12", "zip is other", "x")
    made = encoder.encode({"zip": ["7", 7.0, 12, 7.5, True], "x": np.zeros(5)})
    np.testing.assert_array_equal(made[:, :3], [[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]])
    whole = pa.table({"zip": pa.array([7.0, 12.0, None]), "x": [0, 0, 0]})
    np.testing.assert_array_equal(encoder.encode(whole)[:, :3], [[1, 0, 0], [0, 1, 0], [0, 0, 1]])


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


def test_ids_beside_a_missing_one_are_learned_apart() -> None:
    names = Encoder.learn(pa.table({"id": [*IDS, None]}), kinds={"id": "category"}).names
    assert names[:3] == tuple(f"id={one}" for one in IDS)
    items = Encoder.learn(pa.table({"seen": [[IDS[0]], [IDS[1], None]]})).names
    assert items[:2] == tuple(f"seen has {one}" for one in IDS[:2])


def test_days_beyond_the_year_9999_have_a_text() -> None:
    days = {"a": np.array(["20000-01-01"], "M8[s]")}
    assert Encoder.learn(days, kinds={"a": "category"}).names[0] == "a=20000-01-01T00:00:00+00:00"


def test_dates_and_booleans_declared_categories_keep_a_readable_level() -> None:
    table = {"day": [date(2026, 1, 5), date(2026, 1, 6)], "flag": np.array([True, False])}
    encoder = Encoder.learn(table, kinds={"day": "category", "flag": "category"})
    assert encoder.names[:2] == ("day=2026-01-05", "day=2026-01-06")
    assert encoder.names[3:5] == ("flag=false", "flag=true")


def test_hashing_is_the_documented_one_and_needs_no_levels() -> None:
    table = {"w": ["a", "b", None], "tags": [["x", "y"], ["x", "x"], []], "n": [1.0, 2.0, 3.0]}
    encoder = Encoder.learn(table, hashing=8, intercept=True)
    assert encoder.names == ("n", *(f"hash {at}" for at in range(8)), "intercept")
    expected = np.zeros((3, 8))
    for row, level in [(0, "w=a"), (1, "w=b"), (0, "tags=x"), (0, "tags=y"), (1, "tags=x"), (1, "tags=x")]:
        word = int.from_bytes(blake2b(level.encode(), digest_size=8).digest(), "little")
        expected[row, word % 2**63 % 8] += -1 if word >= 2**63 else 1
    made = encoder.encode(table)
    np.testing.assert_array_equal(made[:, 1:9], expected)
    np.testing.assert_array_equal(made[:, [0, 9]], [[1, 1], [2, 1], [3, 1]])
    # Pinned, so that saved models keep their meaning: a change of the hash would change this number.
    assert int.from_bytes(blake2b(b"w=a", digest_size=8).digest(), "little") == 14_380_370_109_672_900_163


def test_a_lone_surrogate_is_hashed() -> None:
    encoder = Encoder.learn([{"a": "\ud83d"}], hashing=8)
    assert np.abs(encoder.encode([{"a": "\ud83d"}])).sum() == 1


def test_many_features_are_named_at_once() -> None:
    assert Encoder.learn([{"a": "x"}], hashing=100_000).width == 100_000  # quadratic, this took minutes


def test_single_columns_can_be_hashed_beside_others_with_levels() -> None:
    encoder = Encoder.learn({"a": ["x"], "b": ["y"]}, kinds={"b": "category"}, hashing=4)
    assert encoder.names == ("b=y", "b is other", "hash 0", "hash 1", "hash 2", "hash 3")
    with pytest.raises(ParameterError, match=r"hashing: got None.*hashing=64"):
        Encoder.learn({"a": ["x"]}, kinds={"a": "hash"})


# ---- dates, lists, objects ----------------------------------------------------------------------------------


def test_dates_without_a_clock_have_no_place_in_the_day() -> None:
    days = [date(2026, 1, 5), date(2026, 1, 11), None]
    for values in (days, pa.array(days), pd.Series(pd.to_datetime(days)), np.array(days, "M8[D]")):
        encoder = Encoder.learn({"d": values})
        assert encoder.names == ("d days", "d week sine", "d week cosine", "d is missing")
        made = encoder.encode({"d": values})
        angle = 2 * math.pi * 6 / 7
        np.testing.assert_allclose(made[0], [0, 0, 1, 0], atol=1e-12)
        np.testing.assert_allclose(made[1], [6, math.sin(angle), math.cos(angle), 0], atol=1e-9)
        np.testing.assert_array_equal(made[2], [3, 0, 0, 1])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_every_unit_and_zone_are_read_in_utc(unit: str) -> None:
    moment = datetime(2026, 3, 1, 12, 30, tzinfo=timezone(timedelta(hours=2)))
    encoder = Encoder.learn({"t": [moment]})
    zoned = pa.array([moment.astimezone(UTC).replace(tzinfo=None)], pa.timestamp(unit, tz="Europe/Paris"))
    frame = pd.DataFrame({"t": pd.Series([pd.Timestamp(moment)]).dt.as_unit(unit)})
    naive_moment = np.array([np.datetime64("2026-03-01T10:30:00", unit)])
    for table in (pa.table({"t": zoned}), frame, {"t": naive_moment}, {"t": "2026-03-01T12:30:00+02:00"}):
        np.testing.assert_allclose(encoder.encode(table), encoder.encode({"t": [moment]}), atol=1e-9)
    assert dict(zip(encoder.names, encoder.encode({"t": [moment]})[0], strict=True))["t days"] == 10.5 / 24


def test_text_can_be_declared_a_time() -> None:
    encoder = Encoder.learn({"t": ["2026-01-05", None, "2026-01-07T12:00:00"]}, kinds={"t": "time"})
    np.testing.assert_allclose(encoder.encode({"t": ["2026-01-06"]})[0, 0], 1.0)


def test_lists_of_floats_of_one_length_are_vectors() -> None:
    rows = [[1.0, 2.0], None, [3.0, 6.0]]
    tables = [
        {"v": rows},
        pa.table({"v": pa.array(rows)}),
        pa.table({"v": pa.array(rows, pa.list_(pa.float64(), 2))}),
        pd.DataFrame({"v": rows}),
    ]
    for table in tables:
        encoder = Encoder.learn(table)
        assert encoder.names == ("v.0", "v.1", "v is missing")
        np.testing.assert_array_equal(encoder.encode(table), [[1, 2, 0], [2, 4, 1], [3, 6, 0]])
        scaled = Encoder.learn(table, scale=True)
        np.testing.assert_array_equal(scaled.encode(table)[:, :2], [[-1, -1], [0, 0], [1, 1]])
    flat = {"v": np.array([[1.0, 2.0], [3.0, 6.0]])}
    np.testing.assert_array_equal(Encoder.learn(flat).encode(flat), flat["v"])


def test_a_vector_of_another_length_than_most_is_refused_at_learning() -> None:
    with pytest.raises(InputError, match="column 'v': got a list of 1 at row 1, but the vectors of this column have 2"):
        Encoder.learn({"v": [[0.5, 1.0], [0.5], [1.5, 2.0]]})
    assert Encoder.learn({"v": [[1.0], [2.0, 1.0]]}).names == ("v has 1", "v has 2", "v has other")


def test_lists_of_whole_numbers_are_counted_unless_declared_a_vector() -> None:
    table = {"v": [[1, 2], [2, 2]]}
    assert Encoder.learn(table).names == ("v has 2", "v has 1", "v has other")
    np.testing.assert_array_equal(Encoder.learn(table).encode(table), [[1, 1, 0], [2, 0, 0]])
    np.testing.assert_array_equal(Encoder.learn(table, kinds={"v": "vector"}).encode(table), table["v"])


def test_objects_are_flattened_at_any_depth_and_absent_members_are_missing() -> None:
    rows = [{"a": {"b": {"c": 1.0}, "d": "x"}}, {"a": {"d": "y"}}, {"a": None}]
    encoder = Encoder.learn(rows)
    assert encoder.columns == ("a",)
    assert encoder.names == ("a.b.c", "a.b.c is missing", "a.d=x", "a.d=y", "a.d is other", "a.d is missing")
    np.testing.assert_array_equal(encoder.encode(rows), encoder.encode(pa.Table.from_pylist(rows)))
    np.testing.assert_array_equal(encoder.encode([{"a": {"d": "y"}}])[0], [1, 1, 0, 1, 0, 0])


# ---- tables -------------------------------------------------------------------------------------------------


def test_a_column_and_a_member_of_the_same_name_stay_apart() -> None:
    encoder = Encoder.learn([{"u.age": "a", "u": {"age": 1}}])
    row = dict(zip(encoder.names, encoder.encode([{"u.age": "a", "u": {"age": 3}}])[0], strict=True))
    assert row == {"u.age=a": 1.0, "u.age is other": 0.0, "u.age": 3.0}


def test_columns_without_a_value_give_no_feature_and_are_not_needed_later() -> None:
    encoder = Encoder.learn(pa.table({"x": [1.0], "gone": pa.nulls(1), "nan": [np.nan]}))
    assert (encoder.columns, encoder.empty) == (("x",), ("gone", "nan"))
    np.testing.assert_array_equal(encoder.encode({"x": [4.0]}), [[4.0]])
    assert [line["kind"] for line in encoder.describe()] == ["number", "empty", "empty"]


def test_learning_looks_at_the_first_rows_alone() -> None:
    values = np.zeros(LEARNING_ROWS + 5)
    values[LEARNING_ROWS:] = np.nan
    for table in (pa.table({"x": values}), pd.DataFrame({"x": values}), {"x": values}):
        encoder = Encoder.learn(table)
        assert (encoder.rows, encoder.names) == (LEARNING_ROWS, ("x",))


def test_single_values_may_be_arrays_of_rank_0() -> None:
    encoder = Encoder.learn([{"a": 1.0, "b": "x"}])
    np.testing.assert_array_equal(encoder.encode({"a": np.array(5.0), "b": np.array("x")}), [[5.0, 1.0, 0.0]])


def test_record_batches_and_structured_arrays_are_tables_too() -> None:
    encoder = Encoder.learn(pa.record_batch({"x": [1, 2], "w": ["a", "b"]}))
    table = np.array([(1, "a"), (2, "b")], [("x", int), ("w", "U1")])
    np.testing.assert_array_equal(encoder.encode(table), [[1, 1, 0, 0], [2, 0, 1, 0]])


def test_no_rows_are_encoded_to_no_rows() -> None:
    encoder = Encoder.learn({"x": [1.0], "w": ["a"]})
    for table in ([], {"x": [], "w": []}, pd.DataFrame({"x": [], "w": []}), pa.table({"x": [1], "w": ["a"]}).slice(1)):
        assert encoder.encode(table).shape == (0, 3)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_given_array_is_filled_whatever_its_layout(order: Any) -> None:
    rng = np.random.default_rng(1)
    table = pa.table({f"x{at}": rng.normal(size=5000) for at in range(30)} | {"w": ["a", "b"] * 2500})
    encoder = Encoder.learn(table, scale=True)
    out = np.full((5000, encoder.width), np.nan, order=order)
    assert encoder.encode(table, out) is out
    np.testing.assert_array_equal(out, encoder.encode(table))
    with pytest.raises(InputError, match=r"out: got float64 of shape \(5000, 2\).*\(5000, 33\)"):
        encoder.encode(table, np.zeros((5000, 2)))


def test_encoding_a_numeric_table_does_not_change_it() -> None:
    values = np.array([1.0, np.nan, 3.0])
    Encoder.learn({"x": values}, scale=True).encode({"x": values})
    np.testing.assert_array_equal(values, [1.0, np.nan, 3.0])


# ---- refusals -----------------------------------------------------------------------------------------------

LEARNT = Encoder.learn(
    {
        "age": [30.0, 40.0],
        "member": [True, False],
        "device": ["phone", "tv"],
        "seen": [START, START],
        "tags": [["a"], []],
        "vec": [[0.5, 1.0], [1.5, 2.0]],
        "user": [{"city": "x"}, {"city": "y"}],
    }
)
GOOD = {
    "age": 30.0,
    "member": True,
    "device": "phone",
    "seen": START,
    "tags": ["a"],
    "vec": [0.5, 1.0],
    "user": {"city": "x"},
}
WRONG: dict[str, tuple[str, Any, str]] = {
    "letters": ("age", "old", "column 'age': got 'old' at row 1, but this column holds numbers"),
    "infinity": ("age", math.inf, "column 'age': got inf at row 1, but a number must be finite"),
    "a huge integer": ("age", 10**400, "column 'age': got 10000"),
    "bytes": ("age", b"7", "column 'age': got b'7' at row 1, but raw columns hold numbers"),
    "complex": ("age", 1j, "column 'age': got 1j at row 1, but raw columns hold numbers"),
    "two is no boolean": ("member", 2, "column 'member': got 2 at row 1, but the encoder learned this column as bool"),
    "a list for a word": ("device", ["tv"], "column 'device': got ['tv'] at row 1, but this column holds text"),
    "an object for a word": (
        "device",
        {"os": "x"},
        "column 'device': got {'os': 'x'} at row 1, but this column holds text",
    ),
    "no date": ("seen", "soon", "column 'seen': got 'soon' at row 1, but this column holds dates or times"),
    "a word for a list": ("tags", "a", "column 'tags': got 'a' at row 1, but this column holds lists"),
    "objects in a list": ("tags", [{"b": 1}], "column 'tags': got [{'b': 1}] at row 1, but objects inside lists"),
    "a long vector": ("vec", [0.5, 1.0, 2.0], "column 'vec': got a list of 3 at row 1, but the vectors of this column"),
    "words in a vector": ("vec", ["a", "b"], "column 'vec[]': got 'a' at row 2, but this column holds numbers"),
    "infinity in a vector": ("vec", [0.5, -math.inf], "column 'vec.1': got -inf at row 1, but a number must be finite"),
    "a number for an object": ("user", 3, "column 'user': got 3 at row 1, but this column holds objects"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_value_is_refused_with_its_column_row_and_value(case: str) -> None:
    name, value, start = WRONG[case]
    with pytest.raises(InputError) as refusal:
        LEARNT.encode([GOOD, {**GOOD, name: value}])
    assert str(refusal.value).startswith(start)


@pytest.mark.parametrize(
    ("name", "values", "start"),
    [
        ("age", pa.array(["a", "b"]), "column 'age': got 'a' at row 3, but the encoder learned this column as numbers"),
        (
            "age",
            pa.array([None, "b"]),
            "column 'age': got 'b' at row 4, but the encoder learned this column as numbers",
        ),
        ("age", pa.array([1.0, math.inf]), "column 'age': got inf at row 4, but a number must be finite"),
        (
            "member",
            pa.array([0, 7]),
            "column 'member': got 7 at row 4, but the encoder learned this column as booleans",
        ),
        (
            "seen",
            pa.array([1, 2]),
            "column 'seen': got 1 at row 3, but the encoder learned this column as dates or times",
        ),
        ("age", pa.array([START, START]), "column 'age': got 2026-01-05T00:00:00+00:00 at row 3, but"),
        ("tags", pa.array(["a", "b"]), "column 'tags': got 'a' at row 3, but the encoder learned this column as lists"),
        ("device", pa.array([["a"], []]), "column 'device': got a list of 1 at row 3, but the encoder learned this"),
        (
            "user",
            pa.array([None, 5]),
            "column 'user': got 5 at row 4, but the encoder learned from objects with 'user.city'",
        ),
        ("tags", pa.array([[{"a": 1}], []]), "column 'tags': got a list of objects at row 3, but objects inside lists"),
        (
            "device",
            pa.array([None, {"os": 1}]),
            "column 'device': got an object at row 4, but the encoder learned this column without objects",
        ),
        ("age", pa.array([b"a", b"b"]), "column 'age': got Arrow type binary, but raw columns hold numbers"),
    ],
)
def test_arrow_columns_of_another_type_are_refused_with_the_row_in_the_whole_table(
    name: str, values: Any, start: str
) -> None:
    good = pa.Table.from_pylist([GOOD] * 3)
    bad = pa.Table.from_pylist([GOOD] * 2).drop_columns([name]).append_column(name, values)
    with pytest.raises(InputError) as refusal:
        LEARNT._write(spuir_block(bad, 3), np.zeros((2, LEARNT.width)), [(0, 0, 0)] * len(LEARNT._parts))
    assert str(refusal.value).startswith(start)
    assert LEARNT.encode(good).shape == (3, LEARNT.width)


def spuir_block(table: Any, first: int) -> Any:
    """Return a table as a block that stands after ``first`` other rows."""
    from spuir.tables.raw_tables import blocks

    block = blocks(table)[0]
    block.first = first
    return block


def test_rows_are_counted_over_the_chunks_of_a_table() -> None:
    encoder = Encoder.learn({"x": [1.0]})
    chunks = pa.table({"x": pa.chunked_array([[1.0, 2.0], [3.0, math.inf]])})
    with pytest.raises(InputError, match="got inf at row 3"):
        encoder.encode(chunks)


def test_a_missing_column_is_refused_by_name_with_the_remedy() -> None:
    rest = {name: value for name, value in GOOD.items() if name != "device"}
    with pytest.raises(
        InputError, match=r"X: got the columns 'age', .*also learned from 'device'; add these columns, with"
    ):
        LEARNT.encode([rest])


def test_what_is_no_table_is_refused() -> None:
    for wrong in (np.zeros((2, 3)), [[1.0, 2.0]], "age", 3, None):
        with pytest.raises(InputError, match="with an encoder X is a table of named columns; pass a DataFrame"):
            LEARNT.encode(wrong)


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(InputError, match="got 1 values in 'b' and 2 in 'a', but all columns have the same length"):
        Encoder.learn({"a": [1, 2], "b": [1]})


def test_two_columns_of_one_name_are_refused() -> None:
    frame = pd.DataFrame([[1.0, 2.0]], columns=["x", "x"])
    with pytest.raises(InputError, match="got column 'x' twice, but columns are matched by name; rename one"):
        Encoder.learn(frame)
    with pytest.raises(InputError, match=r"two features named 'user.age', but names are unique; rename one"):
        Encoder.learn([{"user": {"age": 1.0}, "user.age": 2.0}])


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (
            {"x": [1, "a"]},
            {},
            r"column 'x': got 'a' at row 1, but this column holds numbers; .*kinds=\{'x': 'category'\}",
        ),
        ({"x": ["a", 1]}, {}, "column 'x': got 1 at row 1, but this column holds text"),
        ({"x": [object()]}, {}, "column 'x': got <object object at .* at row 0, but raw columns hold numbers"),
        ({"x": []}, {}, "table: got no rows, but an encoder learns from at least one"),
        ({"x": [None]}, {}, "table: got no value, but an encoder needs a column with a value"),
        ({"x": [1]}, {"columns": ["y"]}, "columns: got 'y', but the table has no such column; the columns are x"),
        ({"income": [1]}, {"columns": ["incom"]}, r"the table has no such column; did you mean 'income'\?"),
        ({"x": [1]}, {"kinds": {"y": "number"}}, "got 'y', but the table has no such"),
        ({"x": [1]}, {"kinds": {"x": "text"}}, r"kinds\['x'\]: got 'text', but the kinds are number, flag, category"),
        ({"x": ["a"]}, {"kinds": {"x": "number"}}, "column 'x': got 'a' at row 0, but the encoder learned this column"),
        ({"x": [1]}, {"max_levels": 0}, "max_levels: got 0, but it must be an integer ≥ 1"),
        ({"x": [1]}, {"hashing": -1}, "hashing: got -1, but it must be None or an integer ≥ 1"),
        ({"x": [1]}, {"scale": "yes"}, "scale: got 'yes', but it must be True or False"),
        ({"x": [1]}, {"intercept": 1}, "intercept: got 1, but it must be True or False"),
        ({"x": [math.inf]}, {}, "column 'x': got inf at row 0, but a number must be finite"),
    ],
)
def test_learning_refuses_in_one_sentence(table: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((InputError, ParameterError), match=message):
        Encoder.learn(table, **options)


def test_an_encoder_without_rows_says_how_to_make_one() -> None:
    with pytest.raises(InputError, match=r"an encoder is learned from rows; call spuir\.Encoder\.fit\(table\)"):
        Encoder()


@pytest.mark.parametrize(
    "change",
    [
        {"sources": 3},
        {"sources": [{"name": "x", "parts": [{"column": "x"}]}]},
        {"sources": [{"name": "x", "parts": [{"column": "x", "mean": "a", "deviation": None, "missing": False}]}]},
        {"hashing": 0},
        {"unknown": 1},
    ],
)
def test_saved_data_that_is_no_encoder_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises((SnapshotError, ParameterError)):
        Encoder.from_dict(LEARNT.to_dict() | change)


def test_an_encoder_shows_its_size_and_describes_its_columns() -> None:
    assert repr(LEARNT) == "Encoder(7 columns → 15 features, learned from 2 rows)"
    lines = {line["column"]: line for line in LEARNT.describe()}
    assert lines["user.city"] == {
        "column": "user.city",
        "kind": "category",
        "features": ["user.city=x", "user.city=y", "user.city is other"],
    }
    assert [line["kind"] for line in lines.values()] == [
        "number",
        "flag",
        "category",
        "time",
        "list",
        "vector",
        "category",
    ]


def test_encoders_are_known_by_what_they_do() -> None:
    one, same, other = (Encoder.learn({"x": values}, scale=True) for values in ([1.0, 2.0], [2.0, 1.0], [1.0, 3.0]))
    assert one.fingerprint == same.fingerprint != other.fingerprint
    assert spuir.Encoder is Encoder
