"""``spuir train`` as a user calls it."""

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyarrow import csv, parquet

import spuir
from spuir.cli.app import main
from spuir.training import fold
from tests.training.logs import gap, make_table, one_by_one, write_files


def call(*arguments: object) -> Result:
    """Run ``spuir train`` with these arguments."""
    return CliRunner().invoke(main, ["train", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log in two files."""
    return write_files(tmp_path / "log", make_table(900), [500, 400], group=200)


def test_from_a_folder_to_a_model_with_table_and_plot(folder: Path, tmp_path: Path) -> None:
    result = call(folder, "--batch-size", 300, "--out", tmp_path / "m.spuir")
    assert result.exit_code == 0, result.output
    assert "3 episodes" in result.stdout
    assert "of memory" in result.stderr
    assert {path.name for path in tmp_path.iterdir()} == {
        "log", "m.spuir", "m.episodes.csv", "m.policy.png", "m.policy.svg", "m.coefficients.csv",
    }  # fmt: skip
    slices = [slice(start, start + 300) for start in (0, 300, 600)]
    assert gap(spuir.load(tmp_path / "m.spuir"), one_by_one("auto", make_table(900), slices)) < 1e-9


def test_json_tells_everything(folder: Path, tmp_path: Path) -> None:
    given = ["--policy", "sbucb", "--set", "alpha=0.3", "--scale", "--intercept", "--seed", 5, "--json", "--quiet"]
    result = call(folder, "-b", 450, "-o", tmp_path / "m.spuir", *given)
    told = json.loads(result.stdout)
    assert told["policy"]["parameters"]["alpha"] == 0.3
    assert (told["rows"], [line["rows"] for line in told["episodes"]]) == (900, [450, 450])
    assert spuir.load(tmp_path / "m.spuir").coefficients_.shape == (3, 5)


def test_rewards_from_a_second_table(tmp_path: Path) -> None:
    table = make_table(400)
    ids = pa.array([f"d{row}" for row in range(400)])
    decisions = table.drop_columns(["reward"]).append_column("decision_id", ids)
    told = np.flatnonzero(np.arange(400) % 4)
    rewards = pa.table({"decision_id": ids.take(pa.array(told)), "reward": table["reward"].take(pa.array(told))})
    parquet.write_table(decisions, tmp_path / "decisions.parquet")
    csv.write_csv(rewards, tmp_path / "rewards.csv")
    result = call(
        tmp_path / "decisions.parquet",
        *("--rewards", tmp_path / "rewards.csv", "--default-reward", -1, "-b", 200, "-o", tmp_path / "m"),
    )
    assert result.exit_code == 0, result.output
    filled = table["reward"].to_numpy().copy()
    filled[::4] = -1.0
    joined = table.set_column(1, "reward", pa.array(filled))
    assert gap(spuir.load(tmp_path / "m"), one_by_one("auto", joined, [slice(0, 200), slice(200, 400)])) < 1e-9
    given = (tmp_path / "decisions.parquet", "--rewards", tmp_path / "rewards.csv", "-b", 200, "-o", tmp_path / "n")
    answered = call(*given, "--default-reward", "none")
    assert answered.exit_code == 0 and "Left out: 100 rows without a reward" in answered.stderr
    assert "'nix' is not a number, or none" in call(*given, "--default-reward", "nix").stderr


def test_decisions_whose_window_is_open_are_not_learned_as_zeros(tmp_path: Path) -> None:
    """Ten days of decisions, paid two hours later if at all, and a window of two days: the last two days are open."""
    table = make_table(400)
    ids, days = pa.array(range(400)), 1_700_006_400 + 2_160 * np.arange(400)
    decisions = table.drop_columns(["reward"]).append_column("decision_id", ids).append_column("time", pa.array(days))
    rewards = pa.table({"decision_id": ids, "reward": table["reward"], "time": pa.array(days + 7_200)})
    csv.write_csv(decisions, tmp_path / "decisions.csv")
    csv.write_csv(rewards.slice(0, 397), tmp_path / "rewards.csv")
    given = (tmp_path / "decisions.csv", "--rewards", tmp_path / "rewards.csv", "--window", "2d", "-b", 100)
    result = call(*given, "-o", tmp_path / "m")
    # The last reward came 2 h after decision 396. Decisions of the last 2 d are open: 396 − 46 h / 36 min on.
    assert "Left out: 80 decisions whose window of 2d was still open at 2023-11-24T23:36:00" in result.stderr
    slices = [slice(0, 100), slice(100, 200), slice(200, 300), slice(300, 320)]
    assert gap(spuir.load(tmp_path / "m"), one_by_one("auto", table, slices)) < 1e-9
    for as_of in ("2023-12-01", 1_701_400_000):
        result = call(*given, "--as-of", as_of, "-o", tmp_path / "n", "--json", "-q")
        assert [line["silent"] for line in json.loads(result.stdout)["episodes"]] == [0] * 4
    assert "as_of: got 'soon'" in call(*given, "--as-of", "soon", "-o", tmp_path / "n").stderr


def test_renaming_choosing_columns_and_actions(tmp_path: Path) -> None:
    table = make_table(300, labels=("a", "b")).rename_columns(["arm", "clicked", "x0", "x1", "x2", "x3"])
    csv.write_csv(table, tmp_path / "log.csv")
    result = call(
        tmp_path / "log.csv",
        *("--rename", "arm=action", "--rename", "clicked=reward", "--context", "x0,x2", "--actions", "b,a,c"),
        *("-b", 100, "-o", tmp_path / "m", "-q"),
    )
    assert result.exit_code == 0, result.output
    made = spuir.load(tmp_path / "m")
    assert (made.actions_.tolist(), made.feature_names_in_.tolist()) == (["b", "a", "c"], ["x0", "x2"])


@pytest.mark.parametrize("labels", [["true", "none", "10", "1e3"], [10, 3]])
def test_labels_have_the_type_of_the_log(tmp_path: Path, labels: list[Any]) -> None:
    """The text ``none`` is an action where actions are texts, and no missing value."""
    parquet.write_table(make_table(120, labels=tuple(labels)), tmp_path / "log.parquet")
    given = ",".join(map(str, labels))
    result = call(tmp_path / "log.parquet", "--actions", given, "-b", 40, "-o", tmp_path / "m", "-q")
    assert result.exit_code == 0, result.output
    assert spuir.load(tmp_path / "m").actions_.tolist() == labels


def test_a_log_without_contexts_is_refused_alike_by_all_that_learn(tmp_path: Path) -> None:
    table = make_table(600, labels=("a", "b")).select(["action", "reward"])
    full = table.append_column("propensity", pa.array([0.5] * 600))
    csv.write_csv(full, tmp_path / "log.csv")
    for command in (["train"], ["tune", "--budget", "4"], ["evaluate", "--policy", "auto"]):
        refused = CliRunner().invoke(main, [*command, str(tmp_path / "log.csv")])
        assert refused.exit_code == 2 and "no context columns" in refused.stderr, command
        assert "a constant 1" in refused.stderr
    csv.write_csv(full.append_column("one", pa.array([1] * 600)), tmp_path / "log.csv")
    assert call(tmp_path / "log.csv", "-b", 100, "-o", tmp_path / "m", "-q").exit_code == 0


def test_without_a_batch_size_the_recommended_one_is_used_and_named(folder: Path, tmp_path: Path) -> None:
    result = call(folder, "-o", tmp_path / "m", "--json")
    sizes = {line["rows"] for line in json.loads(result.stdout)["episodes"][:-1]}
    assert result.exit_code == 0, result.output
    assert len(sizes) == 1
    assert f"each has {sizes.pop():,} rows, the recommended size; --batch-size chooses another" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-b", "100", "--policy", "pair"], "did you mean 'puir'"),
        (["-b", "100", "--set", "alfa=1"], "did you mean 'alpha'"),
        (["-b", "100", "--set", "alpha"], "it reads name=value"),
        (["-b", "100", "--memory", "much"], "write 500m or 4g"),
        (["-b", "100", "--memory", "1k"], "fewer actions"),
        (["-b", "100", "--engine", "spork"], "did you mean 'spark'"),
        (["-b", "100", "--address", "tcp://a:1"], "belongs to --engine dask"),
        (["-b", "100", "--context", "y"], "'y'"),
        (["--every", "hour"], "needs a column 'time'"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_two(
    folder: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    result = call(folder, "-o", tmp_path / "m", *arguments)
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "m").exists()


def test_a_log_that_is_not_there_is_refused(tmp_path: Path) -> None:
    result = call(tmp_path / "none.parquet", "-b", 10)
    assert result.exit_code == 2
    assert "none.parquet" in result.stderr


def write_csv(path: Path, **changed: dict[int, str]) -> Path:
    """Write a log of 400 rows with single cells changed: ``reward={300: "inf"}``."""
    columns = {name: [str(value) for value in values] for name, values in make_table(400).to_pydict().items()}
    for name, cells in changed.items():
        column = columns.setdefault(name, ["1.0"] * 400)
        for row, value in cells.items():
            column[row] = value
    lines = [",".join(columns), *(",".join(row) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("changed", "given", "message"),
    [
        ({"reward": {300: "inf"}}, [], "rewards in file .*log.csv': got inf at row 300"),
        ({"propensity": {300: "1.5"}}, [], "propensities in file .*log.csv': got 1.5 at row 300"),
        ({"x0": {300: "inf"}}, [], "column 'x0' in file .*log.csv': got inf at row 300"),
        ({"action": {300: ""}}, [], "action in file .*log.csv': got nothing at row 300"),
        ({"action": {300: "7"}}, ["--actions", "0,1,2"], "action in file .*log.csv': got 7 at row 300, .*--actions"),
        ({"episode": {300: ""}}, [], "column 'episode' in file .*log.csv': got nothing at row 300"),
        ({"reward": {300: "abc"}}, [], r"got the text 'abc' at line 302"),
        ({"reward": {300: "abc"}}, ["--type", "reward=float64"], "line 302: got 'abc'"),
        ({"time": {300: "1.7e12"}}, ["--every", "1h"], "line 302, column 'time': .*--time-unit ms"),
        ({}, ["--rename", "reward=clicked"], "--reward-column …"),
        ({}, ["--rename-rewards", "a=b"], "--rename-rewards: .* belongs to --rewards"),
        ({}, ["--window", "1h"], "--window: got 1h, but it belongs to --rewards"),
        ({}, ["--as-of", "2024-05-01"], "--as-of: got 2024-05-01, but it belongs to --rewards"),
        ({}, ["--hashing", "0"], "hashing: got 0"),
    ],
)
def test_a_refusal_names_the_row_of_the_file_and_what_to_type(
    tmp_path: Path, changed: dict[str, dict[int, str]], given: list[str], message: str
) -> None:
    log = write_csv(tmp_path / "log.csv", **changed)
    cut = [] if "--every" in given else ["-b", 100]
    result = call(log, *cut, *given, "-o", tmp_path / "m.spuir")
    assert result.exit_code == 2, result.output
    assert re.search(message, result.stderr), result.stderr
    assert not (tmp_path / "m.spuir").exists()


def test_rows_without_a_reward_are_told_and_memory_before_the_table(tmp_path: Path) -> None:
    log = write_csv(tmp_path / "log.csv", reward={3: "", 300: ""})
    result = call(log, "-b", 100, "-o", tmp_path / "m.spuir")
    assert "Left out: 2 rows without a reward" in result.stderr
    assert result.output.index("of memory") < result.output.index("logged reward")


def test_times_in_milliseconds_and_episodes_named_by_their_beginning(tmp_path: Path) -> None:
    log = write_csv(tmp_path / "log.csv", time={row: str(1_700_000_000_000 + 60_000 * row) for row in range(400)})
    result = call(log, "--every", "6h", "--time-unit", "ms", "-o", tmp_path / "m.spuir", "--json", "-q")
    keys = [line["key"] for line in json.loads(result.stdout)["episodes"]]
    assert keys == ["2023-11-14T18:00:00+00:00", "2023-11-15T00:00:00+00:00"]


def test_a_model_that_could_not_be_saved_is_refused_before_training(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = call(folder, "-b", 300, "-o", tmp_path / "file" / "m.spuir")
    assert result.exit_code == 2
    assert "is not a folder" in result.stderr
    assert "of memory" not in result.stderr


def test_a_remedy_about_a_column_that_has_another_name_in_the_file_works(tmp_path: Path) -> None:
    table = make_table(300, labels=("a", "b"))
    chances = pa.array([0.5, None] * 150)
    csv.write_csv(table.append_column("p", chances), tmp_path / "log.csv")
    given = (tmp_path / "log.csv", "-b", 300, "--out", tmp_path / "m.spuir", "--propensity-column", "p")
    assert "leave the column out" in (refused := call(*given)).stderr and "(--rename propensity=)" in refused.stderr
    assert call(*given, "--rename", "propensity=").exit_code == 0
    both = call(*given, "--rename", "p=")
    assert both.exit_code == 2
    assert "--rename: got p=, but --propensity-column names this column too; leave out one of the two" in both.stderr


def test_the_two_tables_are_renamed_apart(tmp_path: Path) -> None:
    table = make_table(200)
    ids = pa.array(range(200))
    csv.write_csv(table.drop_columns(["reward"]).append_column("number", ids), tmp_path / "decisions.csv")
    csv.write_csv(pa.table({"id": ids, "clicked": table["reward"]}), tmp_path / "rewards.csv")
    result = call(
        tmp_path / "decisions.csv",
        *("--rename", "number=decision_id", "--rewards", tmp_path / "rewards.csv"),
        *("--rename-rewards", "id=decision_id", "--rename-rewards", "clicked=reward"),
        *("-b", 100, "-o", tmp_path / "m", "-q"),
    )
    assert result.exit_code == 0, result.output
    assert gap(spuir.load(tmp_path / "m"), one_by_one("auto", table, [slice(0, 100), slice(100, 200)])) < 1e-9


class TestOut:
    """Nothing that is read is written over, nor anything that is no model."""

    @pytest.fixture
    def log(self, tmp_path: Path) -> Path:
        csv.write_csv(make_table(40), tmp_path / "log.csv")
        return tmp_path / "log.csv"

    @pytest.mark.parametrize("out", ["log.csv", "./log.csv", "folder/../log.csv"])
    def test_on_the_log(self, log: Path, out: str) -> None:
        (log.parent / "folder").mkdir()
        before = log.read_bytes()
        result = call(log, "-b", 20, "-q", "-w", 1, "-o", log.parent / out)
        assert (result.exit_code, log.read_bytes()) == (2, before)
        assert "would overwrite" in result.stderr

    def test_on_a_log_whose_name_is_a_pattern(self, log: Path) -> None:
        log = log.rename(log.with_name("log[1].csv"))
        result = call(log, "-b", 20, "-q", "-w", 1, "-o", log)
        assert result.exit_code == 2 and "would overwrite" in result.stderr

    def test_beside_the_log_of_the_same_name(self, log: Path) -> None:
        log = log.rename(log.with_name("shop.episodes.csv"))
        before = log.read_bytes()
        result = call(log, "-b", 20, "-q", "-w", 1, "-o", log.with_name("shop.spuir"))
        assert (result.exit_code, log.read_bytes()) == (2, before)

    def test_on_the_rewards(self, log: Path, tmp_path: Path) -> None:
        ids = pa.array([f"d{row}" for row in range(40)])
        table = make_table(40).append_column("decision_id", ids)
        csv.write_csv(table.drop_columns(["reward"]), log)
        csv.write_csv(table.select(["decision_id", "reward"]), tmp_path / "rewards.csv")
        before = (tmp_path / "rewards.csv").read_bytes()
        given = ("--rewards", tmp_path / "rewards.csv", "-b", 20, "-q", "-w", 1)
        assert call(log, *given, "-o", tmp_path / "rewards.csv").exit_code == 2
        assert (tmp_path / "rewards.csv").read_bytes() == before

    def test_on_a_file_that_is_no_model(self, log: Path, tmp_path: Path) -> None:
        (tmp_path / "thesis.txt").write_text("forty pages")
        result = call(log, "-b", 20, "-q", "-w", 1, "-o", tmp_path / "thesis.txt")
        assert result.exit_code == 2 and "it exists and is not a saved model" in result.stderr
        assert (tmp_path / "thesis.txt").read_text() == "forty pages"

    def test_within_the_folder_that_is_read(self, folder: Path) -> None:
        result = call(folder, "-b", 300, "-q", "-w", 1, "-o", folder / "models" / "m.spuir")
        assert result.exit_code == 2 and "would overwrite" in result.stderr

    @pytest.mark.parametrize("out", ["", ".", "/", "n" * 250])
    def test_on_what_is_no_file(self, log: Path, out: str) -> None:
        result = call(log, "-b", 20, "-q", "-w", 1, "-o", out)
        assert result.exit_code == 2 and result.stderr.startswith("Error: ")

    def test_on_a_pipe_a_loop_and_an_empty_file(self, log: Path, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "loop").symlink_to(tmp_path / "loop")
        (tmp_path / "empty").touch()
        for name, code in (("pipe", 2), ("loop", 2), ("empty", 0)):
            assert call(log, "-b", 20, "-q", "-w", 1, "-o", tmp_path / name).exit_code == code, name

    def test_among_the_files_of_a_pattern(self, log: Path, tmp_path: Path) -> None:
        result = call(tmp_path / "*.csv", "-b", 20, "-q", "-w", 1, "-o", tmp_path / "m.spuir")
        assert result.exit_code == 2 and "would overwrite" in result.stderr

    @pytest.mark.parametrize("pattern", ["log/*.parquet", "log/**", "log/part-0[01].*", "**/*.csv", "**"])
    def test_into_the_folder_of_a_pattern(self, folder: Path, pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The next training on that folder would read what this one wrote."""
        monkeypatch.chdir(folder.parent)
        result = call(pattern, "-b", 300, "-q", "-w", 1, "-o", folder / "m.spuir")
        assert result.exit_code == 2 and "would overwrite" in result.stderr

    def test_beside_the_files_of_a_pattern_that_it_does_not_match(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(folder)
        assert call("*.parquet", "-b", 300, "-q", "-w", 1, "-o", "m.spuir").exit_code == 0

    @pytest.mark.parametrize("name", ["m.episodes.csv", "m.policy.png"])
    def test_on_a_file_beside_that_no_training_wrote(self, log: Path, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_text("forty pages")
        result = call(log, "-b", 20, "-q", "-w", 1, "-o", tmp_path / "m.spuir")
        assert result.exit_code == 2 and "which spuir did not write" in result.stderr
        assert (tmp_path / name).read_text() == "forty pages" and not (tmp_path / "m.spuir").exists()

    def test_a_model_may_be_replaced(self, log: Path, tmp_path: Path) -> None:
        for _ in range(2):
            assert call(log, "-b", 20, "-q", "-w", 1, "-o", tmp_path / "m.spuir").exit_code == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--context", ""), "--context: got ''"),
        (("--actions", ","), "--actions: got ','"),
        (("--memory", "-4g"), "bytes > 0"),
        (("--memory", "nan"), "bytes > 0"),
    ],
)
def test_options_without_a_value_are_refused(given: tuple[str, str], said: str, folder: Path, tmp_path: Path) -> None:
    result = call(folder, "-b", 300, "-q", "-o", tmp_path / "m.spuir", *given)
    assert result.exit_code == 2 and said in result.stderr


def test_numbers_that_are_read_as_text_are_told_of(tmp_path: Path) -> None:
    ages = [str(age % 7) for age in range(59)] + ["old"]
    csv.write_csv(make_table(60, age=ages, city=["Rome", "Oslo"] * 30), tmp_path / "log.csv")
    result = call(tmp_path / "log.csv", "-b", 60, "-w", 1, "--max-levels", 7, "-o", tmp_path / "m.spuir")
    assert result.exit_code == 0, result.output
    assert "Column 'age' is text and becomes categories, but looks like numbers" in result.stderr
    assert "--type age=float64" in result.stderr and "'city'" not in result.stderr
    result = call(tmp_path / "log.csv", "-b", 60, "-w", 1, "--type", "age=float64", "-o", tmp_path / "n.spuir")
    assert result.exit_code == 2 and "'old'" in result.stderr


def test_a_floor_without_room_for_all_actions_is_refused(folder: Path, tmp_path: Path) -> None:
    """Every later decision would be refused: a broken model must not be saved."""
    result = call(folder, "-b", 300, "-w", 1, "-s", "floor=0.5", "-o", tmp_path / "m.spuir")
    assert result.exit_code == 2 and "3 eligible actions × floor must be ≤ 1" in result.stderr
    assert not (tmp_path / "m.spuir").exists()
    assert call(folder, "-b", 300, "-w", 1, "-s", "floor=0.33", "-q", "-o", tmp_path / "m.spuir").exit_code == 0


def test_a_floor_is_fine_where_fewer_actions_are_eligible(tmp_path: Path) -> None:
    table = make_table(60, eligible=pa.array([[True, True, False]] * 60))
    parquet.write_table(table, tmp_path / "log.parquet")
    result = call(tmp_path / "log.parquet", "-b", 30, "-w", 1, "-s", "floor=0.4", "-o", tmp_path / "m.spuir")
    assert result.exit_code == 0 and "3 eligible actions × floor must be ≤ 1" in result.stderr


@pytest.mark.parametrize("policy", ["blts-b", "bexp3-ipw"])
def test_missing_propensities_are_never_invented(policy: str, tmp_path: Path) -> None:
    table = make_table(300, chance=np.random.default_rng(3).uniform(0.2, 0.9, 300))
    csv.write_csv(table, tmp_path / "log.csv")
    context = ("--context", "x0,x1,x2,x3")
    given = (tmp_path / "log.csv", "-b", 100, "-w", 1, "-p", policy, *context, "-q", "-o", tmp_path / "m.spuir")
    refused = call(*given)
    assert refused.exit_code == 2 and "--propensity uniform" in refused.stderr and policy in refused.stderr
    slices = [slice(0, 100), slice(100, 200), slice(200, 300)]
    for value, column in (("uniform", [1 / 3] * 300), (0.25, [0.25] * 300), ("chance", table["chance"])):
        assert call(*given, "--propensity", value).exit_code == 0
        known = table.append_column("propensity", pa.array(column) if isinstance(column, list) else column)
        expected = one_by_one(policy, known, slices, propensities="propensity")
        assert gap(spuir.load(tmp_path / "m.spuir"), expected) < 1e-9
    assert call(*given, "--propensity", "own").exit_code == 0
    assert gap(spuir.load(tmp_path / "m.spuir"), one_by_one(policy, table, slices)) < 1e-9
    for wrong, said in (("chanse", "'chanse', which is no column"), ("1.5", "lies in (0, 1]"), ("0", "lies in (0, 1]")):
        result = call(*given, "--propensity", wrong)
        assert result.exit_code == 2 and said in result.stderr, result.stderr


def test_propensities_are_not_given_twice(tmp_path: Path) -> None:
    csv.write_csv(make_table(100, propensity=[0.5] * 100), tmp_path / "log.csv")
    given = (tmp_path / "log.csv", "-b", 50, "-w", 1, "-p", "blts-b", "-q", "-o", tmp_path / "m.spuir")
    result = call(*given, "--propensity", "uniform")
    assert result.exit_code == 2 and "the log has a column 'propensity'" in result.stderr
    assert call(*given, "--propensity", "uniform", "--rename", "propensity=").exit_code == 0


def test_propensities_that_are_all_one_are_reported(tmp_path: Path) -> None:
    for least, said in ((1.0, True), (0.5, False)):
        csv.write_csv(make_table(100, propensity=[1.0] * 99 + [least]), tmp_path / "log.csv")
        result = call(tmp_path / "log.csv", "-b", 50, "-w", 1, "-o", tmp_path / "m.spuir")
        assert ("All propensities of the log are 1" in result.stderr) == said
        assert ("no other policy can be evaluated on it" in result.stderr) == said
    listed = (tmp_path / "m.episodes.csv").read_text()
    assert "lowest_propensity" in listed and ",0.5," in listed


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            "action,reward,city\n0,1,Zürich\n1,2,Bern\n".encode("latin-1"),
            "column 'city': got bytes that are not UTF-8",
        ),
        (bytes(range(256)) * 4, "got bytes that are not text"),
    ],
)
def test_files_in_another_encoding_are_named(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes(content)
    result = call(tmp_path / "log.csv", "-b", 2, "-q", "-o", tmp_path / "m.spuir")
    assert (
        result.exit_code == 2 and said in result.stderr and "save it as UTF-8, in Excel as “CSV UTF-8”" in result.stderr
    )


@pytest.mark.parametrize("policy", ["puir-kernel", "spuir"])
def test_an_interrupted_run_goes_on(policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.ones(900)
    weights[200:300] = 0.0  # an episode of rows that weigh nothing is none
    folder = write_files(tmp_path / "log", make_table(900, weight=weights), [500, 400], group=200)
    given = (folder, "-b", 100, "-w", 1, "-p", policy)
    whole = call(*given, "-o", tmp_path / "whole.spuir")
    assert whole.exit_code == 0
    learn, calls = fold.learn_episode, []

    def interrupted(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return learn(*given)

    with monkeypatch.context() as patch:
        patch.setattr(fold, "learn_episode", interrupted)
        stopped = call(*given, "-o", tmp_path / "m.spuir")
    assert stopped.exit_code == 130
    assert "stopped; run the same command again to resume" in stopped.stderr
    again = call(*given, "-o", tmp_path / "m.spuir")
    assert again.exit_code == 0 and "Resuming after 4 episodes" in again.stderr
    assert (tmp_path / "m.spuir").read_bytes() == (tmp_path / "whole.spuir").read_bytes()


def test_a_state_that_cannot_be_read_is_said_to_be_so(folder: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("spuir.training.checkpoint.SAVE_SECONDS", -1.0)
    with monkeypatch.context() as patch:
        patch.setattr("spuir.training.checkpoint.Checkpoint.clear", lambda self: None)
        assert call(folder, "-b", 300, "-q", "-w", 1, "-o", tmp_path / "m.spuir").exit_code == 0
    for state in (tmp_path / "m.spuir.progress").glob("*.spuir"):
        state.write_bytes(state.read_bytes()[:-9])
    result = call(folder, "-b", 300, "-w", 1, "-o", tmp_path / "m.spuir")
    assert (
        result.exit_code == 0
        and "Starting from the first episode" in result.stderr
        and "cannot be read" in result.stderr
    )


class TestContinuing:
    @pytest.mark.parametrize("policy", ["spuir", "auto"])
    def test_it_equals_partial_fit(self, policy: str, tmp_path: Path) -> None:
        table = make_table(600)
        parquet.write_table(table.slice(0, 400), tmp_path / "a.parquet")
        parquet.write_table(table.slice(400), tmp_path / "b.parquet")
        model = tmp_path / "m.spuir"
        assert call(tmp_path / "a.parquet", "-p", policy, "-b", 200, "-o", model, "-q").exit_code == 0
        bandit, rows = spuir.load(model), table.slice(400)
        context = rows.drop_columns(["action", "reward"])
        bandit.partial_fit(context, rows["action"], rows["reward"].to_numpy())
        assert call(tmp_path / "b.parquet", "--from", model, "-b", 200, "-q", "-o", tmp_path / "n").exit_code == 0
        continued = spuir.load(tmp_path / "n")
        np.testing.assert_allclose(continued.coefficients_, bandit.coefficients_, rtol=1e-9)
        assert continued.version_ == bandit.version_ and spuir.load(model).n_episodes_ == 2

    def test_what_the_model_has_decided_is_refused(self, folder: Path, tmp_path: Path) -> None:
        model = tmp_path / "m.spuir"
        assert call(folder, "-b", 300, "-o", model, "-q").exit_code == 0
        for given in (("-p", "sbucb"), ("--set", "alpha=1"), ("--seed", 3), ("--actions", "a"), ("--intercept",)):
            result = call(folder, "--from", model, "-b", 300, *given)
            assert result.exit_code == 2 and "the model of --from has decided it" in result.stderr, given
        assert "it belongs to --from" in call(folder, "-b", 300, "--allow-repeat").stderr
        assert "learned 3 episodes ago" in call(folder, "--from", model, "-b", 300).stderr
        other = make_table(90, labels=("new", "other", "x"))
        parquet.write_table(other, tmp_path / "other.parquet")
        result = call(tmp_path / "other.parquet", "--from", model, "-b", 90)
        assert result.exit_code == 2 and "add it to the model first" in result.stderr
        assert spuir.load(model).n_episodes_ == 3


class TestConfig:
    def write(self, folder: Path, text: str) -> Path:
        (folder / "train.toml").write_text(text)
        return folder / "train.toml"

    def test_it_holds_all_options_and_the_command_line_wins(self, folder: Path, tmp_path: Path) -> None:
        text = f'log = ["{folder}"]\npolicy = "sbucb"\nbatch-size = 300\nseed = 4\nquiet = true\njson = true\n'
        text += f'out = "{tmp_path / "c.spuir"}"\n[set]\nalpha = 0.7\n'
        result = call("--config", self.write(tmp_path, text), "--batch-size", 450)
        assert result.exit_code == 0, result.output
        told = json.loads(result.stdout)
        assert told["policy"]["parameters"]["alpha"] == 0.7 and len(told["episodes"]) == 2
        assert spuir.load(tmp_path / "c.spuir").policy_.name == "sbucb"

    def test_a_file_may_repeat_what_the_model_of_from_has_and_not_contradict_it(
        self, folder: Path, tmp_path: Path
    ) -> None:
        model = tmp_path / "m.spuir"
        first = self.write(tmp_path, f'policy = "sbucb"\nout = "{model}"\nbatch-size = 300\n[set]\nalpha = 0.7\n')
        assert call(folder, "--config", first, "-q").exit_code == 0
        assert call(folder, "--config", first, "-q", "--from", model, "--allow-repeat").exit_code == 0
        before = model.read_bytes()
        for text, words in (
            ('policy = "puir"', "policy of --config: got 'puir', but the model of --from has decided it: 'sbucb'"),
            ("[set]\nalpha = 0.8", "alpha of --config: got 0.8, but the model of --from has decided it: 0.7"),
            ("[set]\nwidth = 3", "the sbucb of --from has no such parameter"),
        ):
            other = self.write(tmp_path, f"batch-size = 300\n{text}\n")
            result = call(folder, "--config", other, "--from", model, "--allow-repeat")
            assert result.exit_code == 2 and words in " ".join(result.stderr.split()), result.stderr
        assert model.read_bytes() == before

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("batchsize = 3", "did you mean 'batch-size'?"),
            ("batch-size = [", "it is a TOML file"),
            ('batch-size = "many"', "Invalid value for '-b' / '--batch-size'"),
        ],
    )
    def test_what_is_wrong_is_named(self, folder: Path, tmp_path: Path, text: str, words: str) -> None:
        result = call(folder, "--config", self.write(tmp_path, text))
        assert result.exit_code == 2 and words in result.stderr


def test_the_summary_says_what_was_learned(folder: Path, tmp_path: Path) -> None:
    told = json.loads(call(folder, "-b", 300, "-o", tmp_path / "m.spuir", "-q", "--json").stdout)
    assert sum(line["rows"] for line in told["learned"]) == 900
    table = make_table(900)
    label = told["learned"][0]["action"]
    rewards = table["reward"].to_numpy()[np.array([str(one) == label for one in table["action"].to_pylist()])]
    assert told["learned"][0]["mean_reward"] == pytest.approx(rewards.mean())
    assert told["learned"][0]["standard_error"] == pytest.approx(rewards.std(ddof=1) / np.sqrt(len(rewards)))
    assert sum(line["share"] for line in told["learned"]) == pytest.approx(1)
    assert told["coefficients"]
