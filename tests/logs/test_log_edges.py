"""What a doubter tried on logs: odd keys, odd events, times that no calendar has, values that a format cannot hold."""

import json
import warnings
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from spuir.cli.app import main
from spuir.errors import InputError, ParameterError
from spuir.logs import open_log, write_log


@pytest.fixture(autouse=True)
def no_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_rows_whose_keys_are_numbers_keep_their_values() -> None:
    rows = [{1: 5.0, "action": "a", "reward": 1.0}, {1: 7.0, "action": "b", "reward": 0.0}]
    assert open_log(rows).table()["1"].to_pylist() == [5.0, 7.0]
    with pytest.raises(InputError, match="column '1' twice"):
        open_log([{1: 5.0, "1": 6.0, "action": "a", "reward": 1.0}])


EVENT: dict[str, Any] = {
    "_label_cost": -1.0,
    "_label_probability": 0.5,
    "_label_Action": 1,
    "_labelIndex": 0,
    "EventId": "e1",
    "a": [1, 2],
    "c": {"U": {"age": 3}, "_multi": [{"_tag": "a"}, {"_tag": "b"}]},
    "p": [0.5, 0.5],
}
SLOT = {"_a": [0], "_p": [1.0]}
ODD: list[dict[str, Any]] = [
    {"p": 0.5},
    {"o": 3},
    {"o": True},
    {"_outcomes": 3},
    {"_outcomes": [None]},
    {"_outcomes": ["x"]},
    {"_outcomes": [{"_a": [1.5], "_p": [1.0]}]},
    {"_outcomes": [SLOT | {"_p": 3}]},
    {"_outcomes": [SLOT | {"_p": {"a": 1}}]},
    {"_outcomes": [SLOT], "c": EVENT["c"] | {"_slots": 7}},
    {"_outcomes": [SLOT], "c": EVENT["c"] | {"_slots": [None]}},
    {"_outcomes": [SLOT], "c": EVENT["c"] | {"_slots": [{"_inc": [99]}]}},
    {"_outcomes": [SLOT], "c": EVENT["c"] | {"_slots": [{"_inc": 5}]}},
    {"spuir": {"episode": 10**30}},
]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: json.dumps(odd)[:40])
def test_one_odd_event_is_a_fault_and_no_more(odd: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "one.dsjson"
    # An event of slots has its costs there.
    usual = {name: EVENT[name] for name in EVENT if "_outcomes" not in odd or not name.startswith("_label")}
    path.write_text("\n".join([json.dumps(EVENT)] * 1000 + [json.dumps(usual | odd)]) + "\n")
    assert open_log(path).table().num_rows in (1000, 1001)
    assert CliRunner().invoke(main, ["doctor", str(path), "-q"], catch_exceptions=False).exit_code in (0, 1, 2)


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


@pytest.mark.parametrize("value", ["\ud83d", 10**30])
def test_values_that_arrow_cannot_hold_are_refused(value: Any) -> None:
    with pytest.raises(InputError, match="column 'x'"):
        open_log([{"x": value, "action": "a", "reward": 1.0}])
    with pytest.raises(ParameterError, match="type of 'x': got None"):
        open_log({"x": [1], "action": ["a"], "reward": [1.0]}, types={"x": None})


@pytest.mark.parametrize("cell", [float("inf"), [1.0, float("nan")], [float("-inf")]])
def test_json_names_the_cell_that_it_has_no_word_for(cell: Any, tmp_path: Path) -> None:
    log = open_log(pa.table({"action": ["a"], "reward": [1.0], "x": [cell]}))
    with pytest.raises(InputError, match=r"row: got x = .*(inf|nan)"):
        write_log(log, tmp_path / "log.jsonl")


def test_lists_of_dates_are_written_as_text(tmp_path: Path) -> None:
    log = open_log(pa.table({"action": ["a"], "reward": [1.0], "x": [[date(2026, 1, 2)]]}))
    write_log(log, tmp_path / "log.csv")
    assert json.loads(open_log(tmp_path / "log.csv").table()["x"][0].as_py()) == ["2026-01-02"]


@pytest.mark.parametrize("wrong", [{"n_rounds": None}, {"action": 5}, {"position": [0, 5]}])
def test_a_feedback_of_another_shape_is_refused(wrong: dict[str, Any]) -> None:
    given = {
        "n_rounds": 2,
        "n_actions": 2,
        "action": np.array([0, 1]),
        "reward": np.array([1.0, 0.0]),
        "pscore": np.array([0.5, 0.5]),
        "position": [0, 1],
        "context": np.ones((2, 2)),
        "pi_b": np.full((2, 2, 2), 0.5),
        "action_context": np.eye(2),
        "expected_reward": None,
    }
    with pytest.raises(InputError, match="pass what obp returned"):
        open_log(given | wrong, "obp")
