"""Logs opened from every form: round trips, many files, broken rows, and refusals that name file, line and column."""

import errno
import gzip
import json
import os
import pickle
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spuir.base.streams import generator
from spuir.errors import InputError, ParameterError, UnknownNameError
from spuir.logs import Log, open_log, write_log
from spuir.logs.formats import csv as csv_format
from spuir.logs.formats import jsonl as jsonl_format
from spuir.logs.formats import parquet as parquet_format
from spuir.logs.formats import text_files

FILES = ["parquet", "arrow", "csv", "csv.gz", "csv.zst", "tsv", "jsonl", "jsonl.gz", "jsonl.zst", "ndjson"]


def sample(n: int, seed: int = 0) -> dict[str, Any]:
    """Return a log of n rows with gaps, unicode, lists and every kind of context."""
    rng = generator(seed, "sample")
    known = rng.random(n) < 0.8
    return {
        "decision_id": [f"d{row:05}" for row in range(n)],
        "time": pa.array((rng.integers(0, 10**9, n) * 1_000_003), pa.timestamp("us", "UTC")),
        "action": rng.choice(["Süd", "北", 'a "b", c'], n),
        "reward": pa.array(rng.normal(size=n), mask=~known),
        "propensity": rng.uniform(0.1, 1, n),
        "eligible": [["Süd", "北"]] * n,
        "probabilities": [[0.25, 0.75]] * n,
        "age": rng.integers(18, 90, n),
        "price": pa.array(rng.gamma(2, 10, n), mask=rng.random(n) < 0.1),
        "city": pa.array(rng.choice(["Łódź", "line\nbreak", "NA", "x"], n), mask=rng.random(n) < 0.2),
        "member": rng.random(n) < 0.5,
    }


def write_text(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


class TestRoundTrips:
    @pytest.mark.parametrize("name", FILES)
    @pytest.mark.parametrize("rows", [1, 300])
    def test_what_is_written_is_read(self, tmp_path: Path, name: str, rows: int) -> None:
        log = open_log(sample(rows))
        write_log(log, tmp_path / f"log.{name}")
        # A column of nothing but "NA" is one of missing numbers where a file has no types.
        back = open_log(tmp_path / f"log.{name}", types={"city": "string"})
        assert back.context == log.context == ("age", "price", "city", "member")
        assert back.table().cast(log.schema).equals(log.table())
        assert back.table().schema == back.schema
        assert list(tmp_path.iterdir()) == [tmp_path / f"log.{name}"]

    @pytest.mark.parametrize("name", FILES)
    def test_a_log_without_rows_keeps_its_columns(self, tmp_path: Path, name: str) -> None:
        log = open_log(sample(0) | {"action": pa.array([], pa.string())})
        assert log.rows == 0
        write_log(log, tmp_path / f"log.{name}")
        if "json" in name:
            with pytest.raises(InputError, match="an empty file"):
                open_log(tmp_path / f"log.{name}")
        else:
            back = open_log(tmp_path / f"log.{name}")
            assert back.table().num_rows == 0
            assert set(back.schema.names) == set(log.schema.names)

    @settings(max_examples=25)
    @given(
        rows=st.lists(
            st.tuples(
                st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1),
                st.none() | st.floats(-1e9, 1e9),
                st.integers(-(2**53), 2**53),
            ),
            min_size=1,
            max_size=20,
        ),
        name=st.sampled_from(["parquet", "csv.zst", "jsonl.gz"]),
    )
    def test_any_text_and_number_survives(
        self, tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, float | None, int]], name: str
    ) -> None:
        actions, rewards, ages = (list(values) for values in zip(*rows, strict=True))
        path = tmp_path_factory.mktemp("any") / f"log.{name}"
        source = {"action": pa.array(actions, pa.string()), "reward": pa.array(rewards, pa.float64()), "age": ages}
        write_log(open_log(source), path)
        back = open_log(path, types={"action": "string"}).table()
        assert back["action"].to_pylist() == actions
        assert back["reward"].to_pylist() == rewards
        assert back["age"].to_pylist() == ages

    @pytest.mark.parametrize("name", ["parquet", "csv", "jsonl", "arrow"])
    def test_a_failure_to_write_names_the_file_and_what_to_check(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        def full(handle: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        log, path = open_log(sample(10)), tmp_path / f"log.{name}"
        path.write_text("no folder")
        with pytest.raises(InputError, match=r"but the file must be writable; check the folder and the free space"):
            write_log(log, path / f"log.{name}")
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match=rf"log.{name}': got No space left on device, but .* writable"):
            write_log(log, path)
        assert path.read_text() == "no folder" and list(tmp_path.iterdir()) == [path]

    def test_writing_refuses_unknown_endings_and_leaves_nothing_half_written(self, tmp_path: Path) -> None:
        log = open_log(sample(3))
        with pytest.raises(ParameterError, match=r"\.parquet.*format="):
            write_log(log, tmp_path / "log.xlsx")
        write_log(log, tmp_path / "log.dat", format="parquet")
        assert open_log(tmp_path / "log.dat").rows == 3
        before = (tmp_path / "log.dat").read_bytes()
        with pytest.raises(InputError, match="no infinite numbers"):
            write_log(open_log({"action": [1], "reward": [np.inf]}), tmp_path / "log.dat", format="jsonl")
        assert (tmp_path / "log.dat").read_bytes() == before
        assert [one.name for one in tmp_path.iterdir()] == ["log.dat"]


class TestMemory:
    @pytest.mark.parametrize(
        "make",
        [
            lambda table: table,
            lambda table: table.to_pandas(),
            lambda table: table.to_batches()[0],
            lambda table: pa.RecordBatchReader.from_batches(table.schema, table.to_batches()),
            lambda table: {name: table[name] for name in table.column_names},
            lambda table: {name: table[name].to_pandas() for name in table.column_names},
            lambda table: table.to_pylist(),
        ],
        ids=["table", "frame", "batch", "reader", "dict of arrow", "dict of series", "rows"],
    )
    def test_every_form_gives_the_same_log(self, make: Callable[[pa.Table], Any]) -> None:
        table = pa.table({"action": ["a", "b"], "reward": [1.0, None], "age": [1, 2], "city": ["x", None]})
        log = open_log(make(table))
        assert log.format == "table"
        assert log.table().to_pylist() == table.to_pylist()

    def test_tables_in_a_dict_are_taken_apart(self) -> None:
        X = np.arange(6.0).reshape(3, 2)
        mask = np.array([[True, False]] * 3)
        log = open_log({"X": X, "action": [0, 1, 0], "reward": [1, 2, 3], "eligible": mask})
        assert log.context == ("X_0", "X_1")
        assert log.table()["X_1"].to_pylist() == [1.0, 3.0, 5.0]
        assert log.table()["eligible"].to_pylist() == mask.tolist()

    def test_categories_and_numbered_columns_are_understood(self) -> None:
        frame = pd.DataFrame({0: [1.0], "action": pd.Categorical(["x"]), "reward": [1], "city": pd.Categorical(["y"])})
        assert open_log(frame).table().to_pylist() == [{"action": "x", "reward": 1.0, "0": 1.0, "city": "y"}]

    @pytest.mark.parametrize(
        ("source", "told"),
        [
            ({"action": [1], "reward": [1, 2]}, "1 values in 'action' and 2 in 'reward'"),
            ({"action": [1], "reward": 1.0}, "column 'reward': got 1.0"),
            ({"action": [1, "a"], "reward": [1, 2]}, "column 'action'.*holds one type"),
            (pd.DataFrame([[1, 2]], columns=["action", "action"]), "column 'action' twice"),
            (7, "got int, but a log is a path"),
            ([], "got list"),
        ],
    )
    def test_what_is_no_table_is_refused(self, source: Any, told: str) -> None:
        with pytest.raises(InputError, match=told):
            open_log(source)

    def test_parts_carry_their_own_rows_alone(self) -> None:
        n = (1 << 18) + 7
        log = open_log({"action": np.zeros(n, np.int64), "reward": np.arange(n)})
        assert [part.rows for part in log.parts] == [1 << 18, 7]
        assert log.parts[1].first_row == 1 << 18
        sent = pickle.dumps(log.parts[1])
        assert len(sent) < 5_000
        assert next(pickle.loads(sent).read())["reward"].to_pylist() == [float(row) for row in range(1 << 18, n)]


class TestParts:
    @pytest.fixture
    def log(self, tmp_path: Path) -> Log:
        table = open_log(sample(1000)).table()
        pq.write_table(table.slice(0, 600), tmp_path / "b.parquet", row_group_size=250)
        pq.write_table(table.slice(600), tmp_path / "c.parquet")
        pq.write_table(table.slice(0, 0), tmp_path / "a.parquet")
        return open_log(tmp_path)

    def test_parquet_parts_are_row_groups_with_their_rows(self, log: Log) -> None:
        found = [(Path(part.source.split("'")[1]).name, part.rows, part.first_row) for part in log.parts]
        groups = [("b.parquet", 250, 0), ("b.parquet", 250, 250), ("b.parquet", 100, 500), ("c.parquet", 400, 0)]
        assert [one for one in found if one[1]] == groups
        assert [part.number for part in log.parts] == list(range(len(found)))
        assert log.rows == 1000 and log.bytes > 0

    def test_each_part_is_read_alone_also_elsewhere(self, log: Log) -> None:
        expected = open_log(sample(1000)).table()
        apart = [pickle.loads(pickle.dumps(part)) for part in reversed(log.parts)]
        batches = [batch for part in reversed(apart) for batch in part.read(batch_rows=64)]
        assert max(batch.num_rows for batch in batches) <= 64
        assert pa.Table.from_batches(batches, log.schema).equals(expected)
        assert log.table().equals(expected)

    def test_columns_are_chosen_in_order(self, log: Log) -> None:
        assert log.table(["age", "action"]).schema.names == ["age", "action"]
        assert sum(batch.num_rows for batch in log.batches([])) == 1000
        assert log.head(7, ["reward"]).num_rows == 7 and log.head(0).num_rows == 0
        assert log.head(5000).num_rows == 1000
        with pytest.raises(UnknownNameError, match="'agee'"):
            log.table(["agee"])

    def test_a_file_that_changed_is_not_read(self, log: Log, tmp_path: Path) -> None:
        assert open_log(tmp_path).fingerprint() == log.fingerprint()
        pq.write_table(open_log(sample(3)).table(), tmp_path / "b.parquet")
        with pytest.raises(InputError, match=r"b\.parquet.*another file.*open the log again"):
            log.table()
        assert open_log(tmp_path).fingerprint() != log.fingerprint()
        (tmp_path / "b.parquet").unlink()
        with pytest.raises(InputError, match="no file"):
            log.table()

    def test_fingerprints_tell_rows_and_names_apart(self) -> None:
        source = {"action": [1, 2], "reward": [1.0, 2.0], "x": [1, 2]}
        logs = [open_log(source), open_log(source | {"reward": [1.0, 3.0]}), open_log(source, rename={"x": "y"})]
        marks = [log.fingerprint() for log in logs]
        assert len(set(marks)) == 3
        assert marks[0] == open_log(dict(source)).fingerprint()


class TestFiles:
    def test_folders_patterns_and_lists(self, tmp_path: Path) -> None:
        for at, name in enumerate(["2024/b.csv", "2024/a.csv", "2025/a.csv"]):
            write_text(tmp_path / name, f"action,reward\n{at},1\n")
        write_text(tmp_path / "2024/_SUCCESS", "")
        write_text(tmp_path / ".hidden/z.csv", "action,reward\n9,9\n")
        write_text(tmp_path / "README", "what this is")
        log = open_log(tmp_path)
        assert log.table()["action"].to_pylist() == [1, 0, 2]
        assert log.notices == (f"file {str(tmp_path / 'README')!r} is left out: its format is unknown.",)
        assert open_log(str(tmp_path / "*" / "a.csv")).table()["action"].to_pylist() == [1, 2]
        assert open_log(str(tmp_path / "**/*.csv")).table()["action"].to_pylist() == [1, 0, 2]
        assert sorted(open_log(str(tmp_path / "**")).table()["action"].to_pylist()) == [0, 1, 2]
        one = tmp_path / "2024" / "b.csv"
        for twice in ([one, one], [tmp_path, one], [one, f"{tmp_path}/2025/../2024/b.csv"]):
            with pytest.raises(InputError, match=r"\.csv' twice, but a log has every file once; name it once"):
                open_log(twice)
        both = [tmp_path / "2025", tmp_path / "2024/b.csv"]
        assert open_log(both).table()["action"].to_pylist() == [2, 0]

    def test_names_of_folders_are_columns(self, tmp_path: Path) -> None:
        for day, country in (("2024-05-01", "a%20b"), ("2024-05-02", "__HIVE_DEFAULT_PARTITION__")):
            for episode in (3, 12):
                folder = tmp_path / f"episode={episode}" / f"day={day}" / f"country={country}"
                folder.mkdir(parents=True)
                pq.write_table(pa.table({"action": [1], "reward": [1.0]}), folder / "part-0.parquet")
        log = open_log(tmp_path)
        assert log.context == ("day", "country")
        assert log.schema.field("episode").type == pa.int64()
        assert log.table().to_pylist()[1] == {
            "episode": 12, "action": 1, "reward": 1.0, "day": "2024-05-02", "country": None,
        }  # fmt: skip
        assert log.table()["country"].to_pylist() == ["a b", None, "a b", None]
        assert log.table(["episode"])["episode"].to_pylist() == [12, 12, 3, 3]

    def test_uneven_files_make_one_log(self, tmp_path: Path) -> None:
        write_text(tmp_path / "a.csv", "action,reward,x,propensity\n1,0,1,0.5\n2,1,2,0.5\n")
        write_text(tmp_path / "b.csv", "x,reward,action\n1.5,NA,3\n")
        write_text(tmp_path / "c.csv", "action,reward,x\n")
        write_text(tmp_path / "d.csv", "")
        log = open_log(tmp_path)
        assert log.table().to_pylist() == [
            {"action": 1, "reward": 0.0, "propensity": 0.5, "x": 1.0},
            {"action": 2, "reward": 1.0, "propensity": 0.5, "x": 2.0},
            {"action": 3, "reward": None, "propensity": None, "x": 1.5},
        ]
        assert any("'propensity' is missing in 2 of 3 files" in one for one in log.notices)
        assert any("d.csv" in one and "empty" in one for one in log.notices)

    def test_whole_numbers_become_floats_in_parquet_too(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"action": [1], "reward": [1], "x": [1]}), tmp_path / "a.parquet")
        pq.write_table(pa.table({"action": [1], "reward": [1.5], "x": [0.5]}), tmp_path / "b.parquet")
        assert open_log(tmp_path).table()["x"].to_pylist() == [1.0, 0.5]

    def test_types_that_differ_are_refused_with_both_files(self, tmp_path: Path) -> None:
        write_text(tmp_path / "a.csv", "action,reward\n1,0\n")
        write_text(tmp_path / "b.csv", "action,reward\nmail,1\n")
        with pytest.raises(InputError, match=r"'action'.*int64 in .*a\.csv' and string in .*b\.csv'.*types="):
            open_log(tmp_path)
        assert open_log(tmp_path, types={"action": "string"}).table()["action"].to_pylist() == ["1", "mail"]

    def test_a_context_that_some_files_lack_is_refused(self, tmp_path: Path) -> None:
        write_text(tmp_path / "a.csv", "action,reward,age\n1,0,5\n")
        write_text(tmp_path / "b.csv", "action,reward\n1,1\n")
        with pytest.raises(InputError, match=r"b\.csv.*no column 'age'.*a\.csv' has it.*rename"):
            open_log(tmp_path)
        assert open_log(tmp_path, rename={"age": None}).table().num_rows == 2
        assert open_log(tmp_path, context=[]).table().num_rows == 2
        write_text(tmp_path / "b.csv", "action,age\n1,1\n")
        with pytest.raises(InputError, match="no column 'reward'"):
            open_log(tmp_path)

    def test_two_formats_are_refused(self, tmp_path: Path) -> None:
        write_text(tmp_path / "a.csv", "action,reward\n1,0\n")
        write_text(tmp_path / "b.jsonl", '{"action": 1, "reward": 0}\n')
        with pytest.raises(InputError, match=r"csv \(.*jsonl \(.*one format"):
            open_log(tmp_path)

    @pytest.mark.parametrize(
        ("name", "told"),
        [("absent.csv", "no such file"), ("*.csv", "no file matches"), ("empty", "no files"), ("log.xyz", "format=")],
    )
    def test_what_is_not_there_or_not_known(self, tmp_path: Path, name: str, told: str) -> None:
        (tmp_path / "empty").mkdir()
        write_text(tmp_path / "log.xyz", "hello")
        with pytest.raises(InputError, match=told):
            open_log(tmp_path / name)


class TestCsv:
    def test_delimiters_marks_and_line_ends(self, tmp_path: Path) -> None:
        expected = [{"action": 1, "reward": 0.5, "x": "a,b"}]
        for text in (
            '\ufeffaction;reward;x\r\n1;0.5;"a,b"\r\n',
            'action\treward\tx\n1\t0.5\t"a,b"',
            'action|reward|x\n\n1|0.5|"a,b"\n\n',
        ):
            assert open_log(write_text(tmp_path / "log.csv", text)).table().to_pylist() == expected
        assert open_log(tmp_path / "log.csv", delimiter="|").table().to_pylist() == expected

    def test_long_numbers_stay_whole(self, tmp_path: Path) -> None:
        path = write_text(tmp_path / "log.csv", "decision_id,action,reward,x\n18446744073709551615,1,0,0.5\n1,1,0,2\n")
        assert open_log(path).table()["decision_id"].to_pylist() == ["18446744073709551615", "1"]
        assert open_log(path).schema.field("x").type == pa.float64()

    def test_words_for_nothing_are_missing_numbers_and_plain_texts(self, tmp_path: Path) -> None:
        path = write_text(tmp_path / "log.csv", "action,reward,x,y\nnull,NA,NaN,NA\nNA,1,2,\nz,1,2,z\n")
        assert open_log(path).table().to_pylist() == [
            {"action": "null", "reward": None, "x": None, "y": "NA"},
            {"action": "NA", "reward": 1.0, "x": 2, "y": None},
            {"action": "z", "reward": 1.0, "x": 2, "y": "z"},
        ]

    def test_a_reward_may_turn_into_a_fraction_and_a_time_get_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(csv_format, "PREFIX_BYTES", 64)
        lines = ["0,0,2024-05-01T00:00:00Z,2024-05-01"] * 50 + ["0,0.5,2024-05-01T00:00:00.25,2024-05-01T01:00"]
        path = write_text(tmp_path / "log.csv", "\n".join(["action,reward,time,when", *lines]))
        last = open_log(path).table().slice(50).to_pylist()[0]
        assert last["reward"] == 0.5 and last["time"].microsecond == 250_000 and last["when"].hour == 1

    @pytest.mark.parametrize("packed", [False, True])
    def test_a_later_conflict_is_refused_with_line_and_column(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
    ) -> None:
        monkeypatch.setattr(csv_format, "PREFIX_BYTES", 128)
        monkeypatch.setattr(csv_format, "BLOCK_BYTES", 64)
        text = "action,reward,age,note\n" + '1,0,5,"two\nlines"\n\n' * 20 + "1,0,old,x\n1,0,6,x\n"
        path = tmp_path / ("log.csv.gz" if packed else "log.csv")
        path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
        with pytest.raises(InputError) as refused:
            open_log(path).table()
        for told in (f"log.csv{'.gz' if packed else ''}', line 62", "'old'", "column 'age'", 'types={"age": "string"}'):
            assert told in str(refused.value)
        log = open_log(path, types={"age": "string"})
        assert log.table()["age"].to_pylist()[-2:] == ["old", "6"]
        assert open_log(path, context=["note"]).table().num_rows == 22

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("action,reward\n1,0\n1,0,3\n", ["line 3", "3 cells", "every row has 2"]),
            ("action,reward\n1,0\n1\n", ["line 3", "1 cells"]),
            ("action,reward,action\n1,0,1\n", ["line 1", "'action' twice"]),
            ('action,reward,x\n1,0,"a\n1,0,b\n1,0,c\n', ["line 2", "a quote without end"]),
            ("", ["an empty file"]),
            ("\n\n", ["an empty file"]),
            ("action reward\n1 0\n", ["need a column 'action'"]),
        ],
    )
    def test_broken_tables_are_refused(self, tmp_path: Path, text: str, told: list[str]) -> None:
        with pytest.raises(InputError) as refused:
            open_log(write_text(tmp_path / "log.csv", text)).table()
        for one in told:
            assert one in str(refused.value)

    def test_other_encodings_and_cut_files_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "log.csv").write_bytes("action,reward,x\n1,0,é\n".encode("latin-1"))
        with pytest.raises(InputError, match="UTF-8"):
            open_log(tmp_path / "log.csv", types={"x": "string"}).table()
        whole = gzip.compress(("action,reward\n" + "1,0.123\n" * 9999).encode())
        (tmp_path / "log.csv.gz").write_bytes(whole[:-20])
        with pytest.raises(InputError, match=r"log\.csv\.gz.*must be complete"):
            open_log(tmp_path / "log.csv.gz").table()

    def test_a_cell_that_becomes_no_time_is_refused_with_its_line(self, tmp_path: Path) -> None:
        text = "action,reward,time\n1,0,2024-05-01\n\n1,0,2024-13-01\n"
        with pytest.raises(InputError, match=r"line 4, column 'time'.*'2024-13-01'"):
            open_log(write_text(tmp_path / "log.csv", text)).table()


class TestJsonLines:
    def test_keys_may_be_absent_and_values_nested(self, tmp_path: Path) -> None:
        lines = [{"action": 1, "reward": 1, "user": {"age": 5}}, {"action": 2, "user": {"city": "x"}}]
        path = write_text(tmp_path / "log.json", "\n\n".join(map(json.dumps, lines)))
        assert open_log(path).table().to_pylist() == [
            {"action": 1, "reward": 1.0, "user": {"age": 5, "city": None}},
            {"action": 2, "reward": None, "user": {"age": None, "city": "x"}},
        ]

    def test_a_reward_may_turn_into_a_fraction(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(jsonl_format, "PREFIX_BYTES", 64)
        text = '{"action": 1, "reward": 0, "time": "2024-05-01T00:00:00Z"}\n'
        path = write_text(tmp_path / "log.jsonl", text * 9 + text.replace(": 0,", ": 0.5,").replace("00Z", "00.5Z"))
        last = open_log(path).table().slice(9).to_pylist()[0]
        assert last["reward"] == 0.5 and last["time"].microsecond == 500_000

    @pytest.mark.parametrize(
        ("line", "told"),
        [
            ('{"action": 1, "reward": ', ["line 6", "one JSON object"]),
            ("[1, 2]", ["line 6", "one JSON object"]),
            (
                '{"action": 1, "reward": 0, "age": "old"}',
                ["line 6", "'old'", "column 'age' is read as int64", "types="],
            ),
            ('{"action": 1, "reward": 0, "age": 1.5}', ["line 6", "1.5", 'types={"age": "float64"}']),
            ('{"action": 1, "reward": 0, "new": 1}', ["line 6", "key 'new'", 'types={"new": "float64"}']),
            ('{"action": 1, "reward": 0, "age": 1, "age": 2}', ["line 6", "once"]),
        ],
    )
    @pytest.mark.parametrize("block", [1 << 20, 90])
    def test_a_broken_line_is_refused_with_its_number(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, told: list[str], block: int
    ) -> None:
        monkeypatch.setattr(jsonl_format, "PREFIX_BYTES", 128)
        monkeypatch.setattr(text_files, "BLOCK_BYTES", block)
        good = '{"action": 1, "reward": 0, "age": 5}\n'
        path = write_text(tmp_path / "log.jsonl", good * 4 + "\n" + line + "\n" + good * 3)
        with pytest.raises(InputError) as refused:
            open_log(path).table()
        for one in told:
            assert one in str(refused.value)

    def test_broken_lines_at_the_beginning_too(self, tmp_path: Path) -> None:
        good = '{"action": 1, "reward": 0}\n'
        for bad in ('{"action": ', '{"action": 1, "reward": "x"}'):
            path = write_text(tmp_path / "log.jsonl", good + bad + "\n" + good)
            with pytest.raises(InputError, match="line 2"):
                open_log(path)

    def test_a_declared_key_may_come_late(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(jsonl_format, "PREFIX_BYTES", 64)
        good = '{"action": 1, "reward": 0}\n'
        path = write_text(tmp_path / "log.jsonl", good * 5 + '{"action": 1, "reward": 0, "new": 2}\n')
        assert open_log(path, types={"new": "float64"}).table()["new"].to_pylist() == [None] * 5 + [2.0]


class TestBinary:
    @pytest.mark.parametrize("name", ["parquet", "arrow"])
    def test_a_damaged_file_is_refused(self, tmp_path: Path, name: str) -> None:
        write_log(open_log(sample(100)), tmp_path / f"log.{name}")
        (tmp_path / f"cut.{name}").write_bytes((tmp_path / f"log.{name}").read_bytes()[:-30])
        with pytest.raises(InputError, match=rf"cut\.{name}.*file, and whole"):
            open_log(tmp_path / f"cut.{name}")

    def test_batches_are_gathered_into_row_groups(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(parquet_format, "GROUP_ROWS", 50)
        write_log(open_log(sample(130)).table().to_batches(max_chunksize=20), tmp_path / "log.parquet")
        assert [part.rows for part in open_log(tmp_path / "log.parquet").parts] == [60, 60, 10]

    def test_arrow_parts_are_record_batches(self, tmp_path: Path) -> None:
        log = open_log(sample(100))
        write_log(log.table().to_batches(max_chunksize=40), tmp_path / "log.feather")
        back = open_log(tmp_path / "log.feather")
        assert [(part.rows, part.first_row) for part in back.parts] == [(40, 0), (40, 40), (20, 80)]
        assert pa.Table.from_batches(back.parts[1].read(batch_rows=7)).equals(log.table().slice(40, 40))

    def test_a_cell_that_does_not_fit_names_file_and_row(self, tmp_path: Path) -> None:
        table = pa.table({"action": [1.0] * 9 + [1.5], "reward": [1.0] * 10})
        pq.write_table(table, tmp_path / "log.parquet", row_group_size=4)
        log = open_log(tmp_path / "log.parquet")
        with pytest.raises(InputError, match=r"log\.parquet', row 9, column 'action': got 1\.5"):
            log.table()
        with pytest.raises(InputError, match="row 9,"):
            list(log.parts[2].read(batch_rows=1))


def test_rows_whose_keys_are_numbers_keep_their_values() -> None:
    rows = [{1: 5.0, "action": "a", "reward": 1.0}, {1: 7.0, "action": "b", "reward": 0.0}]
    assert open_log(rows).table()["1"].to_pylist() == [5.0, 7.0]
    with pytest.raises(InputError, match="column '1' twice"):
        open_log([{1: 5.0, "1": 6.0, "action": "a", "reward": 1.0}])


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


def test_rewards_of_two_types_are_to_be_written_in_one_way(tmp_path: Path) -> None:
    """Read as texts, they would be refused as rewards."""
    (tmp_path / "a.csv").write_text("action,reward,x\na,0.5,1\n")
    (tmp_path / "b.csv").write_text("action,reward,x\na,True,1\n")
    with pytest.raises(InputError, match=r"one type in all files; write it in the same way in all files, or, if it is"):
        open_log(tmp_path)
