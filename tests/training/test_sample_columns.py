"""What ``train`` says of columns that the sample shows badly, and of values that are unlike the sample later."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from click.testing import CliRunner
from pyarrow import csv

from spuir.cli.app import main
from spuir.training import train
from tests.training.logs import make_table

N = 12_000


def learned(**columns: Any) -> Any:
    """Return the training from a log with these columns, of six episodes."""
    table = make_table(N, **columns).drop_columns(["x2", "x3"])
    return train(table, "sbucb", batch_size=N // 6, workers=1)


def test_a_column_that_is_empty_in_the_first_episode_is_kept_and_empty_and_constant_ones_are_named() -> None:
    late = pa.array([None if row < N // 6 else float(row % 7) for row in range(N)])
    trained = learned(late=late, never=pa.array([None] * N, pa.float64()), same=["x"] * N, one=np.ones(N))
    names = trained.bandit.encoder.names
    assert {"late", "late is missing", "one"} < set(names)
    said = [sentence for sentence in trained.notices if sentence.startswith("Columns")]
    assert said == [
        "Columns without a value in the first 10,000 rows, on which the encoder was learned, are left out: 'never'.",
        "Columns with a single value in the first 10,000 rows, on which the encoder was learned, give the policy "
        "no information: 'same', 'one'.",
    ]
    assert "late" not in trained.drift.to_dict()["columns"]  # as many are missing as in the sample, or fewer


def test_later_drift_is_counted_and_reported() -> None:
    new = np.arange(N) >= N - 2_000  # the last sixth, after the sample of 10,000 rows
    city = np.where(new, "Bonn", np.array(["Oslo", "Rome"] * (N // 2)))
    trained = learned(city=city, size=np.where(new, 1e3, np.arange(N) % 9.0))
    assert trained.drift.rows == N
    found = trained.drift.to_dict()["columns"]
    assert {name: (line["missing"], line["unseen"], line["outside"]) for name, line in found.items()} == {
        "city": (0, 2_000, 0),
        "size": (0, 0, 2_000),
        **{name: (0, 0, line["outside"]) for name, line in found.items() if name in ("x0", "x1")},
    }
    said = [sentence for sentence in trained.notices if "drifted" in sentence]
    assert said[0] == (
        "Column 'city' has drifted: in rows 0 to 11,999 of the log, 17% of the values are levels without a feature (0% "
        "in the sample); check where it comes from, or train on newer rows."
    )
    assert len(said) == 2
    assert not [one for one in learned(city=["Oslo", "Rome"] * (N // 2)).notices if "drifted" in one]


def test_the_command_shows_drift_and_types_of_the_user_win(tmp_path: Path) -> None:
    rows = np.arange(N)
    table = make_table(N, code=rows % 3, when=["2026-01-05"] * N, zip=np.where(rows < 10_000, rows % 5, 9))
    csv.write_csv(table.drop_columns(["x1", "x2", "x3"]), tmp_path / "log.csv")
    given = ["train", tmp_path / "log.csv", "-b", 5_000, "-o", tmp_path / "m.spuir", "-p", "sbucb"]
    types = ["--type", "code=string", "--type", "zip=string", "--type", "when=string"]
    result = CliRunner().invoke(main, [*map(str, given), *types, "--workers", "2", "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["drift"]["rows"] == N
    assert told["drift"]["columns"]["zip"] == {"missing": 0, "unseen": 2_000, "outside": 0, "drifted": 1 / 6}
    assert any("single value" in one and "'when'" in one for one in told["notices"])
    assert told["features"] == 1 + 4 + 6 + 2  # x0, three codes, five zips and one day, each text with an "other"
    shown = CliRunner().invoke(main, list(map(str, given)))  # all three as the file has them: numbers, and a date
    assert re.search(r"zip\W+0\W+0\W+2,000\W+16\.67%", shown.stdout)
    assert "Column 'zip' has drifted" in shown.stderr


def test_kinds_given_to_train_win() -> None:
    table = make_table(600, code=np.arange(600) % 3)
    options = {"kinds": {"code": "category", "x0": "category"}, "max_levels": 2}
    encoder = train(table, "sbucb", batch_size=300, workers=1, encoding=options).bandit.encoder
    assert encoder is not None
    kinds = {line["column"]: line["kind"] for line in encoder.describe()}
    assert kinds == {"code": "category", "x0": "category", "x1": "number", "x2": "number", "x3": "number"}
