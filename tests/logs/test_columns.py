"""Canonical columns: every accepted type becomes the one in memory, every other is refused with column and row."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spuir.errors import InputError, ParameterError, UnknownNameError
from spuir.logs import open_log
from spuir.logs.column_kinds import COLUMN_KINDS
from spuir.logs.columns import COLUMNS, TABLES, canonical_names, declaring, renaming
from spuir.logs.times import instants

BASE: dict[str, Any] = {"action": ["a", "b"], "reward": [1.0, 0.0]}
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def column(name: str, values: Any, **given: Any) -> pa.ChunkedArray:
    """Return a canonical column of a log that has these values in it."""
    return open_log(BASE | {name: values}, **given).table()[name]


def test_the_table_names_what_the_interface_promises() -> None:
    required = ["decision_id", "time", "episode", "action", "reward", "propensity"]
    optional = ["probabilities", "eligible", "reward_time", "policy_version", "weight", "position", "unit_id"]
    assert list(COLUMNS) == required + optional
    for one in COLUMNS.values():
        assert one.meaning and one.kind is COLUMN_KINDS[one.holds]
        assert set(one.needed_in) <= set(TABLES)


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, 2], pa.int64(), [1, 2]),
        (pa.array([1, None], pa.uint8()), pa.int64(), [1, None]),
        ([1.0, None], pa.int64(), [1, None]),
        ([Decimal("1"), Decimal("2")], pa.int64(), [1, 2]),
        ([True, False], pa.int64(), [1, 0]),
        (["x", None], pa.string(), ["x", None]),
        (pa.array(["x", "y"]).dictionary_encode(), pa.string(), ["x", "y"]),
        (pa.array(["x", "y"], pa.large_string()), pa.string(), ["x", "y"]),
        (pa.nulls(2), pa.string(), [None, None]),
    ],
)
@pytest.mark.parametrize("name", ["action", "decision_id", "unit_id"])
def test_labels_are_whole_numbers_or_texts(name: str, values: Any, kind: Any, expected: list[Any]) -> None:
    found = column(name, values)
    assert found.type == kind
    assert found.to_pylist() == expected


@pytest.mark.parametrize("values", [[1, 0], [1.0, 0.0], [True, False], [Decimal("1"), Decimal("0")]])
def test_numbers_become_floats(values: Any) -> None:
    found = column("reward", values)
    assert found.type == pa.float64()
    assert found.to_pylist() == [1.0, 0.0]


def test_a_reward_that_is_nan_or_null_is_not_known() -> None:
    table = pa.table({"action": [1, 1, 1], "reward": pa.array([float("nan"), None, 2.0], from_pandas=False)})
    assert open_log(table).table()["reward"].to_pylist() == [None, None, 2.0]


@pytest.mark.parametrize(
    "values",
    [
        [NOON.timestamp()],
        [int(NOON.timestamp())],
        [NOON],
        [NOON.replace(tzinfo=None)],
        pa.array([NOON.replace(tzinfo=None)], pa.timestamp("ns")),
        pa.array([NOON.replace(tzinfo=None)], pa.timestamp("s")),
        pa.array([NOON], pa.timestamp("ms", "Europe/Paris")),
        ["2024-05-01T12:00:00Z"],
        ["2024-05-01 12:00:00"],
        ["2024-05-01T12:00"],
        ["2024-05-01T14:00:00+02:00"],
        ["2024-05-01 14:00:00+0200"],
        [" 2024-05-01T12:00:00.000000000Z "],
    ],
)
def test_times_of_every_form_are_one_instant(values: Any) -> None:
    log = open_log({"action": [1], "reward": [1.0], "time": values})
    assert log.schema.field("time").type == pa.timestamp("us", "UTC")
    assert log.table()["time"].to_pylist() == [NOON]


def test_dates_are_midnight_and_text_forms_may_mix() -> None:
    assert column("time", [date(2024, 5, 1), None]).to_pylist() == [datetime(2024, 5, 1, tzinfo=UTC), None]
    mixed = column("time", ["2024-05-01", "2024-05-01T12:00:00.1234567Z"]).to_pylist()
    assert mixed == [datetime(2024, 5, 1, tzinfo=UTC), NOON.replace(microsecond=123456)]


@pytest.mark.parametrize(("unit", "factor"), [("s", 1), ("ms", 1_000), ("us", 1_000_000), ("ns", 1_000_000_000)])
@pytest.mark.parametrize("kind", [int, float])
def test_the_unit_of_times_can_be_said(unit: str, factor: int, kind: type) -> None:
    values = [kind(int(NOON.timestamp()) * factor)] * 2
    assert column("time", values, time_unit=unit).to_pylist() == [NOON, NOON]


@given(st.lists(st.datetimes(datetime(1900, 1, 1), datetime(9000, 1, 1)), min_size=2, max_size=2))
def test_iso_texts_and_instants_agree(times: list[datetime]) -> None:
    expected = [one.replace(tzinfo=UTC) for one in times]
    assert column("time", [one.isoformat() for one in times]).to_pylist() == expected
    assert column("time", times).to_pylist() == expected


@pytest.mark.parametrize(
    "text", ["2024-05-01 12:00:00 UTC", "2024-05-01 12:00:00.000000 UTC", "2024-05-01T12:00:00 GMT"]
)
def test_the_zone_may_be_a_word(text: str) -> None:
    assert column("time", [text, "2024-05-01T13:00:00+01:00"]).to_pylist() == [NOON, NOON]
    assert instants(text, 1, "time")[0] == NOON.timestamp() * 1e6


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64()])
def test_dates_as_whole_numbers_are_not_taken_for_seconds_in_1970(kind: Any) -> None:
    days = pa.array([1714564800, 20240501], kind)
    with pytest.raises(
        InputError, match=r"row 1.*20240501 \(the date 2024-05-01, or in seconds a time in 1970\).*--type time=string"
    ):
        column("time", days)
    assert column("time", ["20240501", "2024-05-01"]).to_pylist() == [datetime(2024, 5, 1, tzinfo=UTC)] * 2
    assert (
        column("time", pa.array([20240501, 20240501], pa.int64()), types={"time": "string"}).to_pylist()
        == [datetime(2024, 5, 1, tzinfo=UTC)] * 2
    )
    # No date, so that it counts seconds; and neither are milliseconds dates.
    assert column("time", [20241301, 7]).to_pylist()[0].year == 1970
    assert column("time", [20240501, 7], time_unit="ms").to_pylist()[0].year == 1970


def test_episodes_are_numbers_or_texts_that_sort_as_dates_do() -> None:
    assert column("episode", [3, 4]).type == pa.int64()
    assert column("episode", [date(2024, 5, 1), date(2023, 1, 2)]).to_pylist() == ["2024-05-01", "2023-01-02"]
    assert column("episode", [NOON, NOON]).to_pylist() == ["2024-05-01T12:00:00+00:00"] * 2


def test_lists_come_as_lists_or_as_json_text() -> None:
    assert column("probabilities", [[1, 0], [0.5, 0.5]]).to_pylist() == [[1.0, 0.0], [0.5, 0.5]]
    assert column("probabilities", ["[1, 0]", None]).to_pylist() == [[1.0, 0.0], None]
    for kind, lists in (
        (pa.bool_(), [[True, False], [True, True]]),
        (pa.int64(), [[1, 2], []]),
        (pa.string(), [["a"], ["b", "c"]]),
    ):
        texts = [str(one).replace("'", '"').lower() for one in lists]
        for values in (lists, texts):
            found = column("eligible", values)
            assert found.type == pa.list_(kind)
            assert found.to_pylist() == lists


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("action", [1.5, 2.0], ["table, row 0, column 'action'", "got 1.5", "whole numbers or texts"]),
        ("action", [1.0, float(2**60)], ["row 1", "whole numbers or texts"]),
        ("decision_id", pa.array([1, 2**63], pa.uint64()), ["row 1", "9223372036854775808", "as text"]),
        ("time", [0, 1_714_564_800_000], ["row 1", "1714564800000", "time_unit="]),
        ("time", ["2024-05-01", "yesterday"], ["row 1", "'yesterday'", "ISO texts"]),
        ("position", [1.5, 2], ["row 0", "whole numbers"]),
        ("probabilities", ["[1, 0]", "[1, "], ["row 1", "'[1, '", "lists of numbers"]),
        ("probabilities", ["[1, 0]", '["a"]'], ["row 1", "lists of numbers"]),
        ("eligible", ["[true]", '["a"]'], ["row 1", "booleans"]),
    ],
)
def test_a_cell_that_does_not_fit_is_refused_with_its_row(name: str, values: Any, told: list[str]) -> None:
    with pytest.raises(InputError) as refused:
        column(name, values)
    for text in told:
        assert text in str(refused.value)


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("reward", ["1", "0"], "string"),
        ("reward", [[1], [0]], "list"),
        ("action", [NOON, NOON], "timestamp"),
        ("time", [True, False], "bool"),
        ("probabilities", [["a"], ["b"]], "list"),
        ("eligible", [[{"a": 1}], [{"a": 2}]], "list"),
        ("policy_version", [1.5, 2.5], "double"),
    ],
)
def test_a_type_that_does_not_fit_is_refused_when_opened(name: str, values: Any, kind: str) -> None:
    with pytest.raises(InputError, match=f"column '{name}'.*{kind}.*types="):
        open_log(BASE | {name: values})


def test_a_declared_type_converts() -> None:
    assert column("reward", ["1", "0.5"], types={"reward": "float64"}).to_pylist() == [1.0, 0.5]
    ids = pa.array([1, 2**63], pa.uint64())
    assert column("decision_id", ids, types={"decision_id": pa.string()}).to_pylist() == ["1", "9223372036854775808"]
    with pytest.raises(InputError, match=r"row 1, column 'reward': got 'x'"):
        column("reward", ["1", "x"], types={"reward": "float64"})


class TestNames:
    def test_context_is_everything_without_a_canonical_name(self) -> None:
        log = open_log({"age": [1], "reward": [1.0], "city": ["x"], "action": [0], "time": [0]})
        assert log.context == ("age", "city")
        assert log.schema.names == ["time", "action", "reward", "age", "city"]

    def test_context_can_be_listed_and_hold_canonical_columns(self) -> None:
        source = {"age": [1], "reward": [1.0], "city": ["x"], "action": [0], "position": [2]}
        log = open_log(source, context=["city", "position"])
        assert log.context == ("city", "position")
        assert log.schema.names == ["action", "reward", "position", "city"]

    def test_columns_are_renamed_and_left_out(self) -> None:
        source = {"clicked": [True], "offer": ["x"], "age": [1], "reward": [7.0]}
        log = open_log(source, rename={"clicked": "reward", "offer": "action", "reward": "old", "age": None})
        assert log.table().to_pylist() == [{"action": "x", "reward": 1.0, "old": 7.0}]

    def test_two_columns_with_one_name_are_refused(self) -> None:
        with pytest.raises(InputError, match=r"columns 'reward' and 'clicked' both as 'reward'.*leave it out"):
            open_log(BASE | {"clicked": [1, 0]}, rename={"clicked": "reward"})

    @pytest.mark.parametrize(
        ("given", "error", "told"),
        [
            ({"rename": {"clickd": "reward"}}, InputError, "'clickd', which is no column of table"),
            ({"context": ["agee"]}, UnknownNameError, "'agee'"),
            ({"context": ["reward"]}, ParameterError, "known before the decision"),
            ({"context": "age"}, ParameterError, r"write \['age'\]"),
            ({"types": {"agee": "string"}}, ParameterError, "'agee'"),
            ({"types": {"age": "number"}}, ParameterError, "float64"),
            ({"time_unit": "hours"}, ParameterError, "s, ms, us, ns"),
            ({"kind": "table"}, ParameterError, "log, decisions, rewards"),
            ({"delimiter": ","}, ParameterError, "'delimiter'"),
            ({"format": "parquet"}, ParameterError, "pass a path"),
            ({"format": "parkett"}, UnknownNameError, "did you mean 'parquet'"),
        ],
    )
    def test_wrong_words_are_answered(self, given: dict[str, Any], error: type[Exception], told: str) -> None:
        with pytest.raises(error, match=told):
            open_log(BASE | {"age": [1, 2]}, **given)

    @pytest.mark.parametrize(
        ("kind", "names", "missing"),
        [
            ("log", ["action"], "reward"),
            ("log", ["reward"], "action"),
            ("decisions", ["action"], "decision_id"),
            ("rewards", ["decision_id"], "reward"),
        ],
    )
    def test_a_needed_column_is_asked_for(self, kind: str, names: list[str], missing: str) -> None:
        with pytest.raises(InputError, match=f"need a column '{missing}'.*rename="):
            open_log({name: [1] for name in names}, kind=kind)

    @pytest.mark.parametrize("names", [["reward", "spent"], ["spent", "reward"]])
    def test_a_column_in_the_way_of_a_renamed_one_is_left_out(self, names: list[str]) -> None:
        columns = {"action": [1]} | {name: [2.0 if name == "spent" else 1.0] for name in names}
        with pytest.raises(InputError, match=r'leave it out: rename=\{"reward": None\} \(--rename reward=\)'):
            open_log(columns, rename={"spent": "reward"})
        assert open_log(columns, rename={"spent": "reward", "reward": None}).table()["reward"].to_pylist() == [2.0]

    def test_a_log_without_rewards_is_told_about_a_table_of_them(self) -> None:
        columns = {name: [1] for name in ("decision_id", "action")}
        with pytest.raises(InputError, match=r"if rewards are in another table, .*\(--rewards FILE\)"):
            open_log(columns)
        with pytest.raises(InputError, match=r"\(--reward-column …\)$|\(--reward-column …\)\.$"):
            open_log({"decision_id": [1]}, kind="rewards")

    def test_the_order_of_names_is_that_of_the_source(self) -> None:
        assert canonical_names(["b", "a"], {"b": "reward"}, "x") == {"b": "reward", "a": "a"}

    def test_a_renamed_column_may_be_called_by_its_new_name(self) -> None:
        assert canonical_names(["p", "a"], {"p": "propensity", "propensity": None}, "x") == {"a": "a"}
        assert canonical_names(["p", "a"], {"p": "user", "user": "unit_id"}, "x") == {"p": "unit_id", "a": "a"}
        assert canonical_names(["a", "b"], {"a": "b", "b": "a"}, "x") == {"a": "b", "b": "a"}


@pytest.mark.parametrize(
    ("count", "unit"),
    [
        (9404918380800, "s"),
        (-(2**62), "s"),
        (568971820800, "s"),
        (9404918380800_000, "ms"),
        (568971820800_000_000, "us"),
    ],
)
def test_times_that_no_calendar_has_are_refused(count: int, unit: str) -> None:
    times = np.array([0, count], f"M8[{unit}]")
    log = open_log({"time": times, "action": ["a", "b"], "reward": [1.0, 0.0]})
    with pytest.raises(InputError, match=r"row 1, column 'time': got .* from 1970"):
        log.table()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_every_unit_are_kept(unit: str) -> None:
    times = np.array(["2026-11-16T09:30:00", "NaT"], f"M8[{unit}]")
    found = open_log({"time": times, "action": ["a", "b"], "reward": [1.0, 0.0]}).table()["time"]
    assert [None if one is None else one.isoformat() for one in found.to_pylist()] == [
        "2026-11-16T09:30:00+00:00",
        None,
    ]


def test_a_time_that_is_none_is_refused_with_the_way_to_keep_it_as_context() -> None:
    hours = {"action": ["a", "b"], "reward": [1.0, 0.0], "time": ["2PM", "7AM"]}
    with pytest.raises(InputError, match=r"got '2PM'.*such as 2026-01-31T09:30:00.*\(--rename time=OTHER\)"):
        open_log(hours).table()
    assert open_log(hours, rename={"time": "hour"}).context == ("hour",)


def test_a_remedy_for_a_column_with_a_space_can_be_pasted() -> None:
    assert renaming("reward ", "reward") == """rename={"reward ": "reward"} (--reward-column 'reward ')"""
    assert declaring("two words", "float64") == """types={"two words": "float64"} (--type 'two words=float64')"""
    assert renaming("…", "time") == 'rename={"…": "time"} (--time-column …)'
    assert renaming("…", "time", "rewards") == 'rename={"…": "time"} (--reward-time-column …)'
    assert renaming("…", "unit_id") == 'rename={"…": "unit_id"} (--rename …=unit_id)'
    assert renaming("id", "decision_id", "contexts") == 'rename={"id": "decision_id"} (--id-column id)'
    assert renaming("item", "action", "actions") == 'rename={"item": "action"} (--rename-actions item=action)'
