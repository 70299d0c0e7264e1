"""The doctor: a clean log has no finding, and every fault planted in it, one at a time, is found where it stands."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner

from spuir.cli.app import main
from spuir.errors import InputError
from spuir.logs import open_log
from spuir.logs.doctor import Diagnosis, checks, diagnosis, examine
from spuir.logs.doctor.problems import PROBLEMS

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")

ROWS = 600
LABELS = ["coupon", "mail", "nothing"]


def clean() -> Any:
    """Return a log in which nothing is wrong."""
    rng = np.random.default_rng(8)
    probabilities = rng.dirichlet(np.full(3, 4.0), ROWS)
    codes = (rng.random((ROWS, 1)) > probabilities.cumsum(axis=1)[:, :2]).sum(axis=1)
    return pd.DataFrame(
        {
            "decision_id": [f"d{row}" for row in range(ROWS)],
            "time": pd.date_range("2026-01-05", periods=ROWS, freq="min"),
            "action": np.array(LABELS)[codes],
            "reward": rng.normal(size=ROWS),
            "propensity": probabilities[np.arange(ROWS), codes],
            "probabilities": list(probabilities),
            "eligible": [LABELS] * ROWS,
            "weight": rng.uniform(1, 2, ROWS),
            "reward_time": pd.date_range("2026-01-05T00:10", periods=ROWS, freq="min"),
            "age": rng.normal(40, 10, ROWS).round(),
            "device": rng.choice(["phone", "desktop"], ROWS),
            "member": rng.random(ROWS) < 0.5,
            "joined": pd.date_range("2025-01-01", periods=ROWS, freq="h"),
            "user": [{"score": float(score)} for score in rng.normal(size=ROWS)],
            "vec": list(rng.normal(size=(ROWS, 2))),
        }
    )


CLEAN = clean()


def put(column: str, values: dict[int, Any]) -> Callable[[Any], Any]:
    """Return the change that puts values into some rows of a column."""

    def change(frame: Any) -> Any:
        changed = frame[column].astype(object)
        for row, value in values.items():
            changed.iat[row] = value
        return frame.assign(**{column: changed.tolist()})

    return change


def whole(**columns: Any) -> Callable[[Any], Any]:
    """Return the change that sets whole columns, given as values or made from the log."""
    return lambda frame: frame.assign(
        **{name: make(frame) if callable(make) else make for name, make in columns.items()}
    )


class Fault(NamedTuple):
    """A fault: how it is planted, and the check, severity, column and rows with which it must be found."""

    plant: Callable[[Any], Any]
    check: str
    severity: str
    column: str | None
    rows: tuple[int, ...] = ()
    options: dict[str, Any] = {}  # noqa: RUF012 - read only


FIRST = (0, 1, 2, 3, 4)
FAULTS = {
    "no action": Fault(put("action", {7: None}), "missing action", "error", "action", (7,)),
    "a misspelt action": Fault(put("action", {9: "cuopon"}), "rare action", "warning", "action", (9,)),
    "no reward": Fault(put("reward", {3: None, 5: np.nan}), "missing reward", "warning", "reward", (3, 5)),
    "an infinite reward": Fault(put("reward", {11: np.inf}), "impossible reward", "error", "reward", (11,)),
    "one reward": Fault(whole(reward=0.5), "constant reward", "warning", "reward"),
    "no reward at all": Fault(whole(reward=np.nan), "no reward", "error", "reward"),
    "no propensity": Fault(put("propensity", {2: None}), "missing propensity", "error", "propensity", (2,)),
    "propensity 0": Fault(put("propensity", {2: 0.0}), "impossible propensity", "error", "propensity", (2,)),
    "propensity below 0": Fault(put("propensity", {8: -0.1}), "impossible propensity", "error", "propensity", (8,)),
    "propensity above 1": Fault(put("propensity", {599: 1.5}), "impossible propensity", "error", "propensity", (599,)),
    "another propensity": Fault(put("propensity", {4: 0.987}), "disagreeing propensity", "error", "propensity", (4,)),
    "another action's propensity": Fault(
        lambda frame: frame.assign(
            propensity=[
                row.probabilities[(LABELS.index(row.action) + (at == 21)) % 3]
                for at, row in enumerate(frame.itertuples())
            ]
        ),
        "disagreeing propensity",
        "error",
        "propensity",
        (21,),
    ),
    "no distribution": Fault(
        put("probabilities", {6: [0.9, 0.9, 0.9]}), "impossible probabilities", "error", "probabilities", (6,)
    ),
    "fewer labels": Fault(put("eligible", {6: LABELS[:2]}), "unequal lists", "error", "eligible", (6,)),
    "ineligible": Fault(put("eligible", {6: ["x", "y", "z"]}), "ineligible action", "error", "action", (6,)),
    "ineligible without probabilities": Fault(
        lambda frame: put("eligible", {6: ["x"], 9: []})(frame.drop(columns="probabilities")),
        "ineligible action",
        "error",
        "action",
        (6,),
    ),
    "an empty list": Fault(put("eligible", {6: []}), "nothing eligible", "error", "eligible", (6,)),
    "an empty list without probabilities": Fault(
        lambda frame: put("eligible", {6: [], 9: ["x"]})(frame.drop(columns="probabilities")),
        "nothing eligible",
        "error",
        "eligible",
        (6,),
    ),
    "ineligible by a mask": Fault(
        lambda frame: frame.drop(columns="probabilities").assign(
            eligible=[[label != own or at not in (6, 9) for label in LABELS] for at, own in enumerate(frame.action)]
        ),
        "ineligible action",
        "error",
        "action",
        (6, 9),
    ),
    "an empty mask": Fault(
        lambda frame: frame.drop(columns="probabilities").assign(eligible=[[at != 6] * 3 for at in range(ROWS)]),
        "nothing eligible",
        "error",
        "eligible",
        (6,),
    ),
    "propensities too small": Fault(
        lambda frame: frame.drop(columns=["probabilities", "eligible"]).assign(propensity=frame.propensity / 3),
        "implausible propensity",
        "warning",
        "propensity",
    ),
    "deterministic": Fault(
        lambda frame: frame.drop(columns=["probabilities", "eligible"]).assign(propensity=1.0),
        "deterministic",
        "warning",
        "propensity",
    ),
    "an id again": Fault(put("decision_id", {50: "d3", 51: "d3"}), "repeated id", "error", "decision_id", (50, 51)),
    "no id": Fault(put("decision_id", {50: None}), "missing id", "warning", "decision_id", (50,)),
    "backwards": Fault(put("time", {100: pd.Timestamp("2026-01-04")}), "unsorted", "warning", "time", (100,)),
    "no time": Fault(put("time", {100: None}), "missing time", "warning", "time", (100,)),
    "an early reward": Fault(
        put("reward_time", {5: pd.Timestamp("2026-01-01")}), "early reward", "warning", "reward_time", (5,)
    ),
    "a negative weight": Fault(put("weight", {5: -1.0}), "impossible weight", "error", "weight", (5,)),
    "no weight": Fault(put("weight", {5: None}), "impossible weight", "error", "weight", (5,)),
    "infinite context": Fault(put("age", {12: -np.inf}), "not finite", "error", "age", (12,)),
    "a constant number": Fault(whole(age=3.0), "constant", "warning", "age"),
    "a constant word": Fault(whole(device="phone"), "constant", "warning", "device"),
    "a constant time": Fault(whole(joined=pd.Timestamp("2025-01-01")), "constant", "warning", "joined"),
    "an empty column": Fault(whole(age=np.nan), "empty", "warning", "age"),
    "a word among numbers": Fault(
        whole(score=lambda f: [str(at % 50) if at != 14 else "n.a." for at in range(ROWS)]),
        "mixed",
        "warning",
        "score",
        (14,),
    ),
    "ids as context": Fault(whole(session=lambda f: "s" + f.decision_id), "id-like", "warning", "session"),
    "the reward": Fault(whole(paid=lambda f: f.reward), "equals reward", "error", "paid"),
    "the reward, scaled": Fault(whole(paid=lambda f: 3 - 2 * f.reward), "tells reward", "warning", "paid"),
    "the reward in words": Fault(
        whole(reward=lambda f: (f.reward > 0) * 1.0, bought=lambda f: np.where(f.reward > 0, "yes", "no")),
        "tells reward",
        "warning",
        "bought",
    ),
    "the action": Fault(whole(shown=lambda f: f.action), "equals action", "error", "shown"),
    "the action, renamed": Fault(whole(shown=lambda f: f.action.str.upper()), "tells action", "warning", "shown"),
    "the action as a number": Fault(
        whole(shown=lambda f: f.action.map({"coupon": 3.0, "mail": 1.0, "nothing": 2.0})),
        "tells action",
        "warning",
        "shown",
    ),
    "a later time": Fault(
        whole(joined=lambda f: f.time + pd.Timedelta("1h")), "known afterwards", "warning", "joined", FIRST
    ),
    "a late name": Fault(whole(was_clicked=lambda f: ~f.member), "sounds late", "note", "was_clicked"),
    "vectors of two lengths": Fault(put("vec", {13: [1.5]}), "encoding", "error", None),
    "objects in lists": Fault(whole(items=lambda f: [[{"a": 1}]] * ROWS), "unreadable", "error", "items"),
    "no episode": Fault(
        lambda frame: put("episode", {4: None})(frame.assign(episode=np.arange(ROWS) // 200)),
        "missing episode",
        "error",
        "episode",
        (4,),
    ),
    "scattered episodes": Fault(
        whole(episode=lambda f: np.arange(ROWS) // 200 % 2), "scattered episodes", "note", "episode", (400,)
    ),
    "one episode": Fault(lambda frame: frame, "one episode", "warning", None, (), {"batch_size": 10_000}),
}


def found(frame: Any, **options: Any) -> Diagnosis:
    return examine(open_log(frame), **options)


def test_a_clean_log_has_no_finding() -> None:
    told = found(CLEAN, batch_size=100)
    assert (told.findings, told.severity) == ((), 0)
    assert told.to_dict()["severity"] == "fine"


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_where_it_stands(name: str) -> None:
    fault = FAULTS[name]
    told = found(fault.plant(CLEAN), **fault.options)
    same = [one for one in told.findings if (one.check, one.column) == (fault.check, fault.column)]
    assert len(same) == 1, told.findings
    assert same[0].severity == fault.severity
    if fault.rows:
        assert tuple(row.row for row in same[0].rows) == fault.rows
        assert same[0].count == (ROWS if fault.rows == FIRST else len(fault.rows))
    assert all(sentence.endswith(".") for sentence in (same[0].problem, same[0].effect, same[0].remedy))
    assert told.severity >= ["note", "warning", "error"].index(fault.severity)


def test_what_is_there_is_told() -> None:
    told = found(CLEAN, batch_size=250).to_dict()
    assert (told["rows"], told["format"], told["sources"]) == (ROWS, "table", ["table"])
    assert sum(told["actions"].values()) == ROWS
    assert list(told["actions"].values()) == sorted(told["actions"].values(), reverse=True)
    assert told["episodes"] == {"by": "size", "count": 3, "smallest": 100, "largest": 250, "median": 250.0}
    lines = {line["name"]: line for line in told["columns"]}
    assert lines["reward"]["role"] == "canonical"
    assert (lines["device"]["role"], lines["device"]["kind"]) == ("context", "category")
    assert lines["user.score"]["features"] == ["user.score"]
    assert told["features"] == sum(len(line.get("features", ())) for line in told["columns"])
    assert json.loads(json.dumps(told)) == told


def test_episodes_are_told_by_column_and_by_time() -> None:
    days = found(CLEAN.assign(episode=np.repeat(["a", "b"], ROWS // 2)), batch_size=10).episodes
    assert days == {"by": "column", "count": 2, "smallest": 300, "largest": 300, "median": 300.0}
    hours = found(CLEAN, every="hour").episodes
    assert hours is not None
    assert (hours["by"], hours["count"], hours["largest"]) == ("time", 10, 60)
    assert found(CLEAN).episodes is None


def test_faults_are_found_in_the_file_and_batch_where_they_stand(tmp_path: Path) -> None:
    plain = CLEAN[["decision_id", "action", "reward", "propensity", "age", "device"]]
    second = put("reward", {450: np.inf})(
        put("decision_id", {77: "x5"})(plain.assign(decision_id="x" + plain.decision_id))
    )
    second.loc[10, "decision_id"] = "d5"
    plain.to_parquet(tmp_path / "1.parquet", row_group_size=100)
    second.to_parquet(tmp_path / "2.parquet", row_group_size=100)
    told = {one.check: one for one in examine(open_log(tmp_path)).findings}
    assert set(told) == {"impossible reward", "repeated id"}
    where = [(Path(row.source.split("'")[1]).name, row.row) for one in told.values() for row in one.rows]
    assert sorted(where) == [("2.parquet", 10), ("2.parquet", 450)]


def test_the_log_looks_the_same_in_whatever_batches_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = put("propensity", {17: 2.0})(put("age", {300: np.inf})(CLEAN.assign(paid=CLEAN.reward, shown=CLEAN.action)))
    table = pa.Table.from_pandas(bad, preserve_index=False)
    whole_log, log = open_log(table), open_log(table)
    read = type(log.parts[0]).read
    expected = examine(whole_log, batch_size=100).to_dict()
    monkeypatch.setattr(type(log.parts[0]), "read", lambda self, *a, **k: read(self, *a, **{**k, "batch_rows": 37}))
    assert examine(log, batch_size=100).to_dict() == expected
    assert expected["severity"] == "error"


def test_beyond_the_limit_ids_are_sampled_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "ID_LIMIT", 100)
    table = {"decision_id": np.repeat(np.arange(2000), 2), "action": [0, 1] * 2000, "reward": np.arange(4000.0)}
    [finding] = [one for one in found(table).findings if one.check == "repeated id"]
    # An id is in the sample with all its rows or not at all: at most 50 ids of two rows fit into the limit.
    assert "a sample of one id in 32" in finding.problem
    assert 20 < finding.count <= 50
    assert all(row.row % 2 == 1 for row in finding.rows)


def test_levels_beyond_the_encoders_are_told_and_missing_values_that_come_later() -> None:
    rng = np.random.default_rng(0)
    n = 102_000
    table = {
        "action": rng.integers(0, 2, n),
        "reward": rng.normal(size=n),
        "town": rng.integers(0, 200, n).astype(str),
        "late": np.where(np.arange(n) < 101_000, rng.normal(size=n), np.nan),
    }
    told = {(one.check, one.column): one for one in found(table).findings}
    assert set(told) == {("many levels", "town"), ("missing later", "late"), ("no propensity", None)}
    assert {one.severity for one in told.values()} == {"note"}
    assert ("many levels", "town") not in {
        (one.check, one.column) for one in found(table, encoding={"hashing": 8}).findings
    }


def test_vectors_that_change_their_length_later_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "LEARNING_ROWS", 100)
    [finding] = found(put("vec", {313: [1.0]})(CLEAN)).findings
    assert (finding.check, finding.column, finding.rows[0].row) == ("unequal vectors", "vec", 313)


def test_a_log_without_context_or_rows_is_told() -> None:
    bare = {"action": ["a", "b"] * 50, "reward": np.arange(100.0)}
    assert [(one.check, one.severity) for one in found(bare).findings] == [
        ("no context", "error"),
        ("no propensity", "note"),
        ("intercept", "note"),
    ]
    with pytest.raises(InputError, match="no rows"):
        found(
            {"action": pa.array([], pa.string()), "reward": pa.array([], pa.float64()), "x": pa.array([], pa.float64())}
        )


def test_broken_lines_are_counted_and_shown(tmp_path: Path) -> None:
    good = [
        {
            "_label_cost": -float(at % 3),
            "_label_probability": 0.5,
            "_label_Action": 1,
            "_labelIndex": 0,
            "a": [1 + at % 2, 2 - at % 2],
            "p": [0.5, 0.5],
            "c": {"User": {"age": at * 7 % 31}, "_multi": [{"_tag": "a"}, {"_tag": "b"}]},
            "EventId": f"e{at}",
            "Timestamp": f"2026-01-05T00:{at // 60:02}:{at % 60:02}Z",
        }
        for at in range(400)
    ]
    lines = [json.dumps(event) for event in good]
    path = tmp_path / "log.dsjson"
    path.write_text("\n".join([*lines[:10], "{broken", *lines[10:]]) + "\n", encoding="utf-8")
    log = open_log(path)
    told = [one for one in examine(log).findings if one.check == "broken rows"]
    assert len(told) == 1
    assert (told[0].severity, told[0].count, told[0].rows[0].row) == ("warning", 1, 11)


# ---- the command --------------------------------------------------------------------------------------------


def spuir(*arguments: Any) -> Any:
    return CliRunner().invoke(main, ["doctor", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def log(tmp_path: Path) -> Callable[..., Path]:
    def write(change: Callable[[Any], Any] = lambda frame: frame) -> Path:
        path = tmp_path / "log.csv"
        plain = CLEAN[["decision_id", "time", "action", "reward", "propensity", "age", "device"]]
        change(plain).to_csv(path, index=False)
        return path

    return write


def test_the_exit_code_is_the_severity(log: Callable[..., Path]) -> None:
    assert spuir(log()).exit_code == 0
    assert spuir(log(whole(was_clicked=lambda f: f.age > 40))).exit_code == 0
    assert spuir(log(whole(age=1))).exit_code == 1
    assert spuir(log(put("propensity", {3: 0.0}))).exit_code == 2
    assert spuir("nowhere.csv").exit_code == 2


def test_the_command_shows_columns_episodes_plan_and_findings(log: Callable[..., Path]) -> None:
    done = spuir(log(put("propensity", {3: 0.0, 8: 4.0})), "-b", 150)
    shown = " ".join(done.stdout.split())
    for text in (
        "csv, 600 rows",
        "3 actions, 4 features",
        "timestamp[us, tz=UTC]",
        "device string context, category, 3 features",
        "episodes by size: 4, of 150 to 150 rows",
        "recommended: --batch-size 306, which gives 2 episodes",
        "✗ error propensity: there are propensities outside (0, 1]",
        "rows 3 (0), 8 (4) of",
        "→ log the probability of the executed action",
        "1 error",
    ):
        assert text in shown
    assert "nothing wrong was found" in spuir(log()).stdout


def test_json_goes_to_standard_output_alone(log: Callable[..., Path]) -> None:
    done = spuir(log(whole(age=1)), "--json", "--quiet", "--every", "hour")
    told = json.loads(done.stdout)
    assert done.stderr == ""
    assert [one["check"] for one in told["findings"]] == ["constant"]
    assert told["plan"]["batch_size"] == 306
    assert told["episodes"]["by"] == "time"


def test_columns_can_be_renamed_left_out_and_chosen(log: Callable[..., Path]) -> None:
    path = log(lambda frame: frame.rename(columns={"action": "offer"}))
    assert "need a column 'action'" in spuir(path).stderr
    assert spuir(path, "--rename", "offer=action", "--rename", "age=").exit_code == 0
    told = json.loads(spuir(path, "--rename", "offer=action", "--context", "age", "--json").stdout)
    assert [line["name"] for line in told["columns"] if line["role"] == "context"] == ["age"]
    hashed = json.loads(spuir(log(), "--hashing", 16, "--json").stdout)
    assert hashed["features"] == 17


def test_quiet_says_nothing_but_the_code(log: Callable[..., Path]) -> None:
    done = spuir(log(put("propensity", {3: 0.0})), "-q")
    assert (done.exit_code, done.output) == (2, "")


def test_the_page_lists_every_check_with_its_severity() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "doctor.md").read_text(encoding="utf-8")
    lines = [line.split("|")[1:3] for line in page.splitlines() if line.startswith("| ")]
    listed = {name.strip(): severity.strip() for names, severity in lines for name in names.split(",")}
    assert {name: listed.get(name) for name in PROBLEMS} == {name: one.severity for name, one in PROBLEMS.items()}
    assert all(one.effect.endswith(".") and one.remedy.endswith(".") for one in PROBLEMS.values())
