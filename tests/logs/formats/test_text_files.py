"""Large text files become several parts: the same rows and the same messages, wherever the cuts fall."""

import csv
import gzip
import io
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spuir.errors import InputError
from spuir.logs import Log, open_log
from spuir.logs.doctor import examine
from spuir.logs.formats import csv as csv_format
from spuir.logs.formats import text_files

CELLS = ["a", "b,c", "two\nlines", 'a "quote"', '"', "", "ü", "\n", ',\n"', "\r\nz"]
SIZES = [3, 16, 100]


@pytest.fixture(params=SIZES)
def section_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Cut every file into sections of about so many bytes."""
    cut_at(request.param, monkeypatch)
    return request.param


def cut_at(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (text_files, csv_format):
        monkeypatch.setattr(module, "SECTION_BYTES", size)
    monkeypatch.setattr(text_files, "SPLIT_BYTES", 1)


def write_csv(path: Path, quoting: Any = csv.QUOTE_MINIMAL, end: str = "\n", mark: str = "") -> Path:
    text = io.StringIO()
    writer = csv.writer(text, quoting=quoting, lineterminator=end)
    writer.writerow(["action", "reward", "a\nname"])
    writer.writerows([f"a{row}", row / 4, CELLS[row % len(CELLS)]] for row in range(24))
    path.write_bytes((mark + text.getvalue()).encode())
    return path


def check_parts(log: Log) -> None:
    """Read every part alone, as a worker does, and compare the numbers of their first rows."""
    row = 0
    for part in pickle.loads(pickle.dumps(log.parts)):
        assert part.first_row == row
        row += sum(batch.num_rows for batch in part.read())


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize(("end", "mark"), [("\n", ""), ("\r\n", "\ufeff"), ("\n", "\ufeff")])
def test_a_csv_file_with_quoted_line_ends_is_read_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quoting: int, end: str, mark: str
) -> None:
    path = write_csv(tmp_path / "log.csv", quoting, end, mark)
    whole = open_log(path)
    assert len(whole.parts) == 1
    for size in SIZES:
        cut_at(size, monkeypatch)
        log = open_log(path)
        assert len(log.parts) > 1
        assert log.table().equals(whole.table())
        check_parts(log)


@pytest.mark.parametrize("cell", ['5" pipe', ' "x"', '"x"y"z"'])
def test_a_csv_file_with_loose_quotes_stays_one_part(tmp_path: Path, section_bytes: int, cell: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text("action,reward,x\n" + f'a,1,{cell}\nb,0,"two\nlines"\n' * 9)
    log = open_log(path)
    assert len(log.parts) == 1
    assert log.table()["x"].to_pylist()[1::2] == ["two\nlines"] * 9


def test_blank_lines_and_a_missing_last_line_end(tmp_path: Path, section_bytes: int) -> None:
    for name, end in (("blank.csv", "\n\n\n\n"), ("bare.csv", "")):
        path = tmp_path / name
        path.write_text("action,reward\n" + "a,1\n\n" * 9 + "b,0" + end)
        log = open_log(path)
        assert log.table()["action"].to_pylist() == ["a"] * 9 + ["b"]
        check_parts(log)


def test_json_lines_are_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.jsonl"
    rows = [{"action": f"a{row}", "reward": row / 4, "x": CELLS[row % len(CELLS)]} for row in range(24)]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    whole = open_log(path).table()
    for size in SIZES:
        cut_at(size, monkeypatch)
        log = open_log(path)
        assert len(log.parts) > 1
        assert log.table().equals(whole)
        check_parts(log)


@pytest.mark.parametrize(
    ("name", "good", "bad", "message"),
    [
        ("log.csv", '"a\nb",1\n', "a,1,2\n", "line 21: got 3 cells"),
        ("log.csv", '"a\nb",1\n', "a,nought\n", "line 21: got 'nought'"),
        ("log.jsonl", '{"action": "a", "reward": 1}\n\n', '{"action": 1\n', "line 21: got '{"),
    ],
)
def test_a_broken_line_is_named_in_a_later_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, good: str, bad: str, message: str
) -> None:
    path = tmp_path / name
    header = "action,reward\n" if name.endswith("csv") else "\n"
    path.write_text(header + good * 9 + "\n" + bad)
    monkeypatch.setattr(csv_format, "PREFIX_BYTES", 40)
    monkeypatch.setattr("spuir.logs.formats.jsonl.PREFIX_BYTES", 40)
    for size in (*SIZES, 10_000):
        cut_at(size, monkeypatch)
        log = open_log(path)
        with pytest.raises(InputError, match=rf"log\.\w+', {message}"):
            log.table()


def test_a_quote_that_is_never_closed_is_named_by_its_line(tmp_path: Path, section_bytes: int) -> None:
    path = tmp_path / "log.csv"
    path.write_text("action,reward,x\n" + 'a,1,"b\nc"\n' * 9 + 'a,1,"b\n')
    with pytest.raises(InputError, match=r"line 20: got a quote without end"):
        open_log(path).table()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_first_line_of_excel_is_to_be_removed(tmp_path: Path, encoding: str) -> None:
    path, rows = tmp_path / "log.csv", "age;action;reward\r\n31;mail;1\r\n"
    path.write_bytes(f"sep=;\r\n{rows}".encode(encoding))
    with pytest.raises(InputError, match=r"log\.csv', line 1: got 'sep=;', but .*; remove that line"):
        open_log(path)
    path.write_bytes(rows.encode(encoding))
    assert open_log(path).context == ("age",)


def test_a_cell_that_does_not_fit_is_named_by_its_line(tmp_path: Path, section_bytes: int) -> None:
    path = tmp_path / "log.csv"
    path.write_text("action,reward,time\n" + "a,1,2026-01-01T00:00:00\n" * 9 + "a,1,soon\n")
    with pytest.raises(InputError, match=r"line 11, column 'time': got 'soon'"):
        open_log(path, types={"time": "string"}).table()


@pytest.mark.parametrize("size", [1, 2, 7, 64])
@pytest.mark.parametrize("end", ["", "\n"])
def test_blocks_are_whole_lines_with_their_numbers(size: int, end: str, tmp_path: Path) -> None:
    lines = [b"x" * length for length in (0, 3, 50, 1, 0, 0, 9, 130, 2)]
    (tmp_path / "lines.txt").write_bytes(b"\n".join(lines) + end.encode())
    found: list[tuple[int, bytes]] = []
    for block in text_files.line_blocks(str(tmp_path / "lines.txt"), size=size):
        found += enumerate(block.lines(), block.first)
        assert block.last == found[-1][0]
    assert found == list(enumerate(lines, 1))
    with pytest.raises(InputError, match=r"line 8.*a line has at most 60 bytes"):
        list(text_files.line_blocks(str(tmp_path / "lines.txt"), size=size, longest=60))


def test_the_doctor_numbers_the_rows_of_the_file(tmp_path: Path, section_bytes: int) -> None:
    path = tmp_path / "log.csv"
    path.write_text("action,reward,x\n" + "a,1,2\nb,0,3\n" * 9 + "c,1,4\n")
    found = next(one for one in examine(open_log(path)).findings if one.check == "rare action")
    assert [row.row for row in found.rows] == [18]


def test_a_compressed_file_stays_one_part(tmp_path: Path, section_bytes: int) -> None:
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(b"action,reward\n" + b"a,1\n" * 50))
    log = open_log(path)
    assert (len(log.parts), log.table().num_rows) == (1, 50)


class TestDeepLines:
    """Arrow's parser ends the process on a line that is nested too deeply, so that such a line must not reach it."""

    ROW = '{"action": "a", "reward": 1.0, "x": 0.5}\n'
    READ = (
        "import sys; from spuir.logs import open_log; print(sum(b.num_rows for b in open_log(sys.argv[1]).batches()))"
    )

    def read(self, path: Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([sys.executable, "-c", self.READ, str(path)], capture_output=True, text=True, check=False)

    @pytest.mark.parametrize("before", [0, 3, 200_000])
    @pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"k":', "}")])
    def test_a_deep_line_is_refused(self, before: int, opening: str, closing: str, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        deep = opening * 20_000 + "1" + closing * 20_000
        path.write_text(f'{self.ROW * before}{{"action": "a", "reward": 1.0, "x": {deep}}}\n{self.ROW}')
        done = self.read(path)
        assert done.returncode == 1
        assert f"line {before + 1}" in done.stderr and "nested at most 2,048 levels deep" in done.stderr

    def test_brackets_within_texts_and_beside_each_other_are_fine(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        row = {"action": "a", "reward": 1.0, "note": '\\"[{' * 20_000, "x": [[1.0]] * 5_000}
        path.write_text(f"{json.dumps(row)}\n" * 2)
        done = self.read(path)
        assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr


@pytest.mark.usefixtures("section_bytes")
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
@pytest.mark.parametrize(("name", "delimiter"), [("log.csv", ";"), ("log.txt", "\t")])
def test_text_in_utf_16_is_read_as_in_utf_8(tmp_path: Path, encoding: str, name: str, delimiter: str) -> None:
    lines = [
        delimiter.join(cells) for cells in (("action", "reward", "city"), ("ä", "1", "Zürich"), ("b", "0", "東京"))
    ]
    mark = "\ufeff" if encoding == "utf-16-be" else ""  # "utf-16" writes it itself
    (tmp_path / name).write_bytes((mark + "\r\n".join(lines) + "\r\n").encode(encoding))
    expected = [{"action": "ä", "reward": 1.0, "city": "Zürich"}, {"action": "b", "reward": 0.0, "city": "東京"}]
    assert open_log(tmp_path / name).table().to_pylist() == expected
    (tmp_path / name).write_bytes((mark + "\r\n".join([*lines, delimiter.join("acd")])).encode(encoding))
    with pytest.raises(InputError, match="line 4"):
        open_log(tmp_path / name, types={"reward": "float64"}).table()


def test_json_lines_in_utf_16_are_read(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes('{"action": "ä", "reward": 1, "x": 2}\n'.encode("utf-16"))
    assert open_log(tmp_path / "log.jsonl").table().to_pylist() == [{"action": "ä", "reward": 1.0, "x": 2}]


@pytest.mark.usefixtures("section_bytes")
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("a;1,5;2\nb;-0,25;\n", [(1.5, 2), (-0.25, None)]),  # a decimal comma
        ("a;1.5;2\nb;0.25;3\n", [(1.5, 2), (0.25, 3)]),
        ("a;1;2,5\nb;0;x\n", [(1.0, "2,5"), (0.0, "x")]),
        ("a;1.5;2,5\nb;0;3,5\n", [(1.5, "2,5"), (0.0, "3,5")]),  # both: only one can be meant
        ("a;1;1,234\nb;0;2,500\n", [(1.0, "1,234"), (0.0, "2,500")]),  # perhaps thousands
    ],
)
def test_numbers_with_a_decimal_comma_are_read(rows: str, expected: list[Any], tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(f"action;reward;x\n{rows}")
    for _ in range(2):
        log = open_log(tmp_path / "log.csv")
        assert [(row["reward"], row["x"]) for row in log.table().to_pylist()] == expected
    (tmp_path / "log.csv").write_text("action;reward;x\na;0.125;5.5\n")  # another file of that name
    assert open_log(tmp_path / "log.csv").table().to_pylist() == [{"action": "a", "reward": 0.125, "x": 5.5}]
