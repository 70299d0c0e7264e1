"""One contract for every registered format: what it claims, writes and reads back, and what it does with nothing."""

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spuir.errors import InputError
from spuir.logs import open_log, write_log
from spuir.logs.formats import FORMATS, Format, detect

LABELS = ["Süd", "北", "a b"]


@dataclass(frozen=True)
class Case:
    """How a format is tried: its file, options, what it keeps of the columns, and a sample where it cannot write."""

    file: str | None = None
    write: dict[str, Any] = field(default_factory=dict)
    read: dict[str, Any] = field(default_factory=dict)
    loses: tuple[str, ...] = ()
    renames: dict[str, str] = field(default_factory=dict)
    sample: str | None = None


CASES = {
    "dsjson": Case("log.dsjson", write={"actions": LABELS}),
    "vw-cb-adf": Case("log.txt", write={"actions": LABELS}, loses=("time",)),
    "vw-cb": Case("log.vw", write={"actions": LABELS}, read={"actions": LABELS}, loses=("time",)),
    "obp": Case(loses=("decision_id", "time")),
    "obd": Case(
        "log.csv", sample=",timestamp,item_id,position,click,propensity_score\n0,2019-11-24 00:00:34,1,1,0,0.5\n"
    ),
    "mabwiser": Case(loses=("decision_id", "time", "propensity")),
    "contextualbandits": Case(loses=("decision_id", "time")),
    "banditdb": Case("log.parquet", renames={"age": "feature_0", "u.paid": "feature_1"}),
    "parquet": Case("log.parquet"),
    "arrow": Case("log.arrow"),
    "csv": Case("log.csv"),
    "jsonl": Case("log.jsonl"),
}
WRITTEN = [name for name, case in CASES.items() if case.file and case.sample is None]
BINARY = ("parquet", "arrow", "banditdb")  # These pack their columns themselves.
IN_MEMORY = [name for name, case in CASES.items() if case.file is None]


def log(n: int) -> pa.Table:
    """Return n rows in canonical columns."""
    return pa.table(
        {
            "decision_id": pa.array([f"d{row}" for row in range(n)], pa.string()),
            "time": pa.array([1_600_000_000_000_000 + 1_000_000 * row for row in range(n)], pa.timestamp("us", "UTC")),
            "action": pa.array([LABELS[row % 3] for row in range(n)], pa.string()),
            "reward": pa.array([row / 4 % 1 for row in range(n)], pa.float64()),
            "propensity": pa.array([1 / (1 + row % 4) for row in range(n)], pa.float64()),
            "age": pa.array([row - 2.5 for row in range(n)], pa.float64()),
            "u.paid": pa.array([float(1 + row % 2) for row in range(n)], pa.float64()),
        }
    )


def test_every_format_is_tried() -> None:
    assert set(CASES) == set(FORMATS.names())


@pytest.mark.parametrize("name", CASES)
def test_a_format_is_consistent(name: str) -> None:
    format: Format = FORMATS.get(name)
    assert format.name == name
    assert format.summary
    assert (format.survey is None) == (format.read is None)
    assert (format.read is None) == (CASES[name].file is None)
    # What lives in memory goes both ways.
    assert (format.convert is None) == (format.export is None) == (CASES[name].file is not None)


def save(name: str, folder: Path, n: int = 7) -> Path:
    case = CASES[name]
    path = folder / (case.file or "")
    if case.sample is not None:
        path.write_text(case.sample)
    else:
        write_log(open_log(log(n)), path, format=name, **case.write)
    return path


@pytest.mark.parametrize("rows", [1, 7, 300])
@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_is_read(tmp_path: Path, name: str, rows: int) -> None:
    case, table = CASES[name], log(rows)
    opened = open_log(save(name, tmp_path, rows), **case.read)
    assert opened.format == name
    kept: list[str] = [column for column in table.column_names if column not in case.loses]
    back = opened.table([case.renames.get(column, column) for column in kept])
    assert list(back.to_pydict().values()) == list(table.select(kept).to_pydict().values())


@pytest.mark.parametrize("name", [name for name in WRITTEN if name not in BINARY])
def test_packed_files_are_read_too(tmp_path: Path, name: str) -> None:
    path = save(name, tmp_path)
    packed = path.with_name(path.name + ".gz")
    write_log(open_log(log(7)), packed, format=name, **CASES[name].write)
    assert packed.read_bytes() != path.read_bytes()
    assert open_log(packed, **CASES[name].read).table().equals(open_log(path, **CASES[name].read).table())


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.file])
def test_a_file_is_known_by_its_bytes(tmp_path: Path, name: str) -> None:
    assert detect(str(save(name, tmp_path))).name == name


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.file])
def test_a_damaged_file_is_refused_with_its_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / (CASES[name].file or "")
    path.write_bytes(b"PAR1\xff\xfe{\x00\n" * 3 if path.suffix == ".parquet" else b'{"\xff\n' * 3)
    with pytest.raises(InputError, match=path.name):
        open_log(path, format=name, **CASES[name].read).table()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.file])
def test_an_empty_file_is_refused_with_its_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / (CASES[name].file or "")
    path.write_bytes(b"")
    with pytest.raises(InputError, match=path.name):
        open_log(path, format=name, **CASES[name].read)


@pytest.mark.parametrize("rows", [0, 1, 7])
@pytest.mark.parametrize("name", IN_MEMORY)
def test_there_and_back_in_memory(name: str, rows: int) -> None:
    case, table, format = CASES[name], log(rows), FORMATS.get(name)
    exported = format.export(table, {"actions": LABELS})
    assert format.claims(exported) or exported.get("contexts", 1) is None
    options: dict[str, Any] = {"actions": LABELS} if "actions" in format.options else {}
    back = open_log(exported, **options)
    assert back.format == name
    for column in table.column_names:
        if column not in case.loses:
            found = back.table()[{"age": "context_0", "u.paid": "context_1"}.get(column, column)]
            assert found.to_pylist() == table[column].to_pylist()


@pytest.mark.parametrize(("name", "modules"), [("parquet", {"parquet"}), ("arrow", {"ipc"}), ("csv", {"csv", "obd"})])
def test_detecting_a_format_imports_no_others(tmp_path: Path, name: str, modules: set[str]) -> None:
    code = "import sys; from spuir.logs import open_log; open_log(sys.argv[1]); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(save(name, tmp_path))], capture_output=True, text=True, check=True
    )
    loaded = {one.rpartition(".")[2] for one in done.stdout.split() if one.startswith("spuir.logs.formats.")}
    assert loaded - {"base", "text_files"} == modules
