"""Values that are unlike the sample of the encoder are counted per column, reported once, and change nothing else."""

import copy
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import spuir
from spuir.base.column_drift import Drift
from spuir.errors import DriftWarning
from spuir.storage import snapshot
from spuir.tables.encoder import Encoder

rng = np.random.default_rng(11)
N = 2_000
SAMPLE = {
    "age": np.where(rng.random(N) < 0.1, np.nan, rng.integers(20, 80, N)),
    "city": rng.choice(["Oslo", "Rome", "Lima"], N),
    "member": rng.random(N) < 0.3,
}
ENCODER = Encoder.fit(SAMPLE)


def later(n: int = 400, seed: int = 0, **changed: Any) -> dict[str, Any]:
    """Return rows that are like the sample, apart from the changed columns."""
    rows = np.random.default_rng(seed).integers(N, size=n)
    return {name: column[rows] for name, column in SAMPLE.items()} | changed


def counts(drift: Drift | None) -> dict[str, list[int]]:
    assert drift is not None
    return {name: line for name, line in zip(drift.columns, drift.counts.tolist(), strict=True) if any(line)}


def bandit(**given: Any) -> spuir.Bandit:
    return spuir.Bandit("puir", ["a", "b"], random_state=0, encoder=ENCODER, intercept=True, **given)


# ---- counting ---------------------------------------------------------------------------------------------------

ROW = st.fixed_dictionaries(
    {
        "number": st.none() | st.integers(-3, 3) | st.sampled_from([0.5, -7.25, float("nan")]),
        "flag": st.none() | st.booleans(),
        "text": st.none() | st.sampled_from("abcde"),
        "list": st.none() | st.lists(st.sampled_from("xyz"), max_size=3),
        "vector": st.none() | st.tuples(*[st.sampled_from([-1.5, 0.5, 2.5])] * 2).map(list),
        "time": st.none() | st.dates().map(lambda day: day.replace(year=2020 + day.year % 3)),
        "hashed": st.none() | st.sampled_from("abc"),
    }
)
KINDS = {"number": "number", "flag": "flag", "text": "category", "list": "list", "vector": "vector", "time": "time"}
KINDS["hashed"] = "hash"


def gone(value: Any) -> bool:
    return value is None or (isinstance(value, float) and np.isnan(value))


def naive(sample: list[Any], values: list[Any], kind: str, most: int) -> list[int]:
    """Count one column by its definition, value by value."""

    known, rest = [value for value in sample if not gone(value)], [value for value in values if not gone(value)]
    missing = len(values) - len(rest)
    if kind in ("text", "list"):
        items = [item for value in known for item in (value if kind == "list" else [value])]
        ranked = sorted(set(items), key=lambda item: (-items.count(item), item))[:most]
        return [missing, sum(any(item not in ranked for item in value) for value in rest), 0]
    if kind in ("flag", "hashed"):
        return [missing, 0, 0]
    if kind == "time":
        return [missing, 0, sum(value < min(known) for value in rest)]
    numbers = [one for value in known for one in (value if kind == "vector" else [value])]
    low, high = min(numbers), max(numbers)
    flat = [value if kind == "vector" else [value] for value in rest]
    return [missing, 0, sum(any(not low <= one <= high for one in value) for value in flat)]


@settings(max_examples=60, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=8), st.lists(ROW, max_size=8), st.integers(1, 3))
def test_counts_are_those_of_the_definition(sample: list[Any], rows: list[Any], most: int) -> None:
    filled = {name for row in sample for name, value in row.items() if value != [] and not gone(value)}
    named = {name: kind for name, kind in KINDS.items() if name in filled}
    assume(named)
    encoder = Encoder.fit(sample, columns=list(named), kinds=named, max_levels=most, hashing=4)
    found = encoder.drift(rows or {name: [] for name in named})
    assert found is not None
    for name, line in zip(found.columns, found.counts.tolist(), strict=True):
        assert line == naive([row[name] for row in sample], [row[name] for row in rows], name, most), name
    again = encoder.drift(sample)
    assert again is not None
    np.testing.assert_allclose(again.counts / len(sample), again.usual)
    np.testing.assert_array_equal(found.usual, again.usual)


def test_blocks_of_a_table_add_up_and_counting_changes_no_number() -> None:
    rows = pa.table(later(city=np.array(["Oslo", "Bonn", "Rome", "Kyiv"] * 100), age=np.arange(400.0)))
    chunked = pa.concat_tables([rows.slice(0, 150), rows.slice(150)])
    features, drift = ENCODER.transform_and_count(chunked)
    assert counts(drift) == {"age": [0, 0, 20 + 320], "city": [0, 200, 0]}
    np.testing.assert_array_equal(features, ENCODER.transform(rows))
    bare = Encoder.from_dict({name: part for name, part in ENCODER.to_dict().items() if name != "samples"})
    np.testing.assert_array_equal(features, bare.transform(rows))  # as a model that was saved before does
    assert bare.drift(rows) is None
    assert bare.fingerprint == ENCODER.fingerprint


def test_whole_numbers_beyond_the_precision_of_floats_are_in_their_own_range() -> None:
    ids = np.array([2**53 + 1, 2**60 + 1])
    encoder = Encoder.fit({"id": ids})
    assert counts(encoder.drift({"id": ids})) == {}
    assert counts(encoder.drift({"id": ids * 2})) == {"id": [0, 0, 1]}


def test_levels_beyond_the_kept_ones_are_usual_as_far_as_they_were() -> None:
    sample = {"city": [f"c{at % 50}" for at in range(1_000)]}
    encoder = Encoder.fit(sample, max_levels=20)
    same, other = encoder.drift(sample), encoder.drift({"city": ["new"] * 1_000})
    assert same is not None
    assert other is not None
    assert (same.shares["city"], other.shares["city"]) == (0.0, pytest.approx(0.4))
    assert not list(same.notable())
    assert "100% of the values are levels without a feature (60% in the sample)" in dict(other.notable())["city"]


@pytest.mark.parametrize(("sample", "rows", "missing", "warns"), [
    (10_000, 100, 0.21, False),  # 11 % above the usual 10 %, but less than four standard errors of 3 %
    (10_000, 5_000, 0.195, False),  # 9.5 % above
    (10_000, 5_000, 0.205, True),
    (10_000, 99, 1.0, False),  # too few rows
    (20, 400, 0.35, False),  # too small a sample to know what is usual
    (20, 400, 1.0, True),
])  # fmt: skip
def test_small_differences_and_small_samples_are_not_notable(
    sample: int, rows: int, missing: float, warns: bool
) -> None:
    def partly(n: int, share: float) -> dict[str, Any]:
        return {"x": np.where(np.arange(n) < round(n * share), np.nan, 1.0)}

    drift = Encoder.fit(partly(sample, 0.1)).drift(partly(rows, missing))
    assert drift is not None
    assert bool(list(drift.notable())) == warns


def test_columns_without_information_in_the_sample_are_named() -> None:
    table = {
        "gone": [None] * 3,
        "same": [7, 7, 7],
        "text": ["a", "a", "a"],
        "half": [7, 7, None],
        "fine": [1, 2, 3],
        "lists": [["a"], ["a"], ["a"]],
        "user": [{"vip": True, "age": at} for at in range(3)],
    }
    encoder = Encoder.fit(table, kinds={"text": "hash"}, hashing=4, scale=True)
    assert encoder.empty == ("gone",)
    assert encoder.constant == ("same", "text", "user.vip")  # hashed lists are not looked into
    assert Encoder.fit(table).constant == ("same", "text", "lists", "user.vip")
    assert Encoder.fit({"x": [1]}).constant == ()


# ---- where it shows ---------------------------------------------------------------------------------------------


def test_decisions_and_episodes_tell_their_drift(tmp_path: Path) -> None:
    rows, strange = later(60), later(40, city=np.array(["Bonn"] * 40), seed=1)
    one = bandit()
    first, second = one.decide(rows), one.decide(strange)
    assert counts(second.drift)["city"] == [0, 40, 0]
    assert first.drift is not None
    assert first.drift.counts[1, 1] == 0
    one.partial_fit(second, np.zeros(40))
    assert one.last_info_ is not None
    assert one.last_info_.drift is second.drift
    one.partial_fit(strange, ["a", "b"] * 20, np.ones(40))
    total = one.drift_
    assert total is not None
    assert (total.rows, total.counts[1].tolist()) == (140, [0, 80, 0])  # the decision is not counted again
    one.predict_proba(strange)
    one.collect(strange, ["a", "b"] * 20, np.ones(40))
    assert one.drift_ is total
    assert counts(pickle.loads(pickle.dumps(second)).drift) == counts(second.drift)
    one.save(tmp_path / "m.spuir")
    back = spuir.load(tmp_path / "m.spuir")
    assert back.drift_ is None
    assert back.last_info_ is not None
    assert counts(back.last_info_.drift) == counts(one.last_info_.drift)
    assert back.encoder == ENCODER


def test_without_an_encoder_there_is_no_drift() -> None:
    plain = spuir.Bandit("puir", 2, random_state=0, intercept=True)
    day = plain.decide(np.ones((3, 2)))
    plain.partial_fit(day, np.ones(3))
    assert day.drift is None
    assert plain.drift_ is None
    assert plain.last_info_ is not None
    assert plain.last_info_.drift is None


def test_shards_carry_their_drift() -> None:
    one, rows = bandit(), later(100, city=np.array(["Bonn"] * 10 + ["Oslo"] * 90))
    halves = [{name: column[at] for name, column in rows.items()} for at in (slice(0, 50), slice(50, 100))]
    first, second = (one.collect(half, ["a", "b"] * 25, np.ones(50)) for half in halves)
    one.absorb(first + second)
    assert one.last_info_ is not None
    assert one.last_info_.drift is not None
    assert one.last_info_.drift.counts[1].tolist() == [0, 10, 0]
    assert one.drift_ is not None
    assert one.drift_.rows == 100


def test_a_column_that_drifts_is_warned_of_once() -> None:
    one = bandit()
    with pytest.warns(DriftWarning) as found:
        one.decide(later(city=np.array(["Bonn"] * 60 + ["Oslo"] * 340), age=np.full(400, 200.0)))
    said = [str(one.message) for one in found]
    assert said == [
        "column 'age' has drifted: 100% of the values are outside the range (0% in the sample); check where it comes "
        "from, or train on newer rows.",
        "column 'city' has drifted: 15% of the values are levels without a feature (0% in the sample); check where it "
        "comes from, or train on newer rows.",
    ]
    assert found[0].filename == __file__
    again = copy.copy(one)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one.decide(later(city=np.array(["Bonn"] * 400)))
        one.partial_fit(later(city=np.array(["Bonn"] * 400)), ["a", "b"] * 200, np.zeros(400))
        one.decide(later(90, member=np.array([None] * 90)))  # too few rows
    with pytest.warns(DriftWarning, match="'member'"):
        one.partial_fit(later(member=np.array([None] * 400)), ["a", "b"] * 200, np.ones(400))
    with pytest.warns(DriftWarning, match="'member'"):
        again.decide(later(member=np.array([None] * 400)))


def test_a_warning_that_is_an_error_leaves_the_bandit_as_it_was() -> None:
    one, two = bandit(), bandit()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DriftWarning):
            one.decide(later(city=np.array(["Bonn"] * 400)))
    assert one.drift_ is None
    np.testing.assert_array_equal(one.decide(later()).actions, two.decide(later()).actions)


def test_counts_of_many_threads_add_up() -> None:
    one, rows = bandit(), later(20, city=np.array(["Bonn"] * 20))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: one.decide(rows), range(200)))
    assert one.drift_ is not None
    assert (one.drift_.rows, one.drift_.counts[1, 1]) == (4_000, 4_000)


def test_models_are_the_same_bits_whatever_was_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    one, two = bandit(), bandit()
    for made, seed in ((one, 1), (two, 2)):
        made.decide(later(50, seed=seed), ids=range(50))
        made.partial_fit(later(50), ["a", "b"] * 25, np.arange(50.0))
    one.decide(later(50, city=np.array(["Bonn"] * 50)), ids=range(50))
    one.save(tmp_path / "one.spuir")
    two.save(tmp_path / "two.spuir")
    assert (tmp_path / "one.spuir").read_bytes() == (tmp_path / "two.spuir").read_bytes()


def test_fitting_anew_counts_anew() -> None:
    one = bandit()
    one.decide(later(50))
    one.fit(later(30), ["a", "b"] * 15, np.ones(30))
    assert one.drift_ is not None
    assert one.drift_.rows == 30


def test_drift_as_a_table_and_as_text() -> None:
    drift = ENCODER.drift(later(10, city=np.array(["Bonn"] * 5 + ["Oslo"] * 5), age=np.full(10, 30.0)))
    assert drift is not None
    assert repr(drift) == "Drift(10 rows, 'city': 50.0%)"
    assert drift.to_dict() == {
        "rows": 10,
        "columns": {"city": {"missing": 0, "unseen": 5, "outside": 0, "drifted": 0.5}},
    }
    assert drift.to_frame()["unseen"].tolist() == [0, 5, 0]
    assert repr(ENCODER.drift(later(0))) == "Drift(0 rows)"


def test_forged_counts_are_refused(tmp_path: Path) -> None:
    one = bandit()
    one.partial_fit(later(50), ["a", "b"] * 25, np.arange(50.0))
    one.save(tmp_path / "m.spuir")
    header, arrays = snapshot.read(tmp_path / "m.spuir")
    name = next(name for name in arrays if name.endswith("drift.counts"))
    snapshot.write(tmp_path / "m.spuir", header, {**arrays, name: arrays[name][:1]})
    with pytest.raises(spuir.errors.SnapshotError, match="3 counts each"):
        spuir.load(tmp_path / "m.spuir")


def test_saved_samples_must_fit_the_columns() -> None:
    saved = ENCODER.to_dict()
    with pytest.raises(spuir.errors.SnapshotError, match="2 of them"):
        Encoder.from_dict(saved | {"samples": saved["samples"][:2]})


@pytest.mark.parametrize(("column", "kind", "features"), [
    ([1, 2, 3], "category", ["x=1", "x=2", "x=3", "x is other"]),
    (["2026-01-05", "2026-01-06", "2026-01-07"], "time", ["x days", "x week sine", "x week cosine"]),
    ([True, False, True], "number", ["x"]),
    ([0, 1, 1], "flag", ["x"]),
    ([[1, 2], [3, 4], [5, 6]], "vector", ["x.0", "x.1"]),
    ([[0.5], [1.5], [0.5]], "list", ["x has 0.5", "x has 1.5", "x has other"]),
    (["a", "b", "a"], "hash", []),
])  # fmt: skip
def test_kinds_given_by_the_user_win(column: list[Any], kind: str, features: list[str]) -> None:
    encoder = Encoder.fit({"x": column}, kinds={"x": kind}, hashing=3 if kind == "hash" else None)
    assert encoder.describe() == [{"column": "x", "kind": kind, "features": features}]
