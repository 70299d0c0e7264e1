"""``spuir tune`` as a user calls it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyarrow import csv

import spuir
from spuir.cli.app import main
from spuir.evaluation import exploration
from spuir.evaluation.candidates import Contest
from tests.evaluation.known_rows import as_table

SMALL = ["-b", 100, "--budget", 4, "-p", "puir", "-w", 1]


def call(*arguments: object) -> Result:
    """Run ``spuir tune`` with these arguments."""
    return CliRunner().invoke(main, ["tune", *map(str, arguments)])


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log, and few settings to compare while learning."""
    monkeypatch.setattr(exploration, "ALPHAS", (0.0, 0.2))
    monkeypatch.setattr(exploration, "DECISIONS", 600)
    monkeypatch.setattr(exploration, "SEEDS", range(2))
    monkeypatch.setattr(exploration, "MORE_SEEDS", range(2, 4))
    csv.write_csv(as_table(1_500), tmp_path / "log.csv")
    return tmp_path / "log.csv"


def test_from_a_log_to_a_model_a_report_and_a_sentence(log: Path) -> None:
    done = call(log, *SMALL, "-o", log.parent / "m.spuir")
    assert done.exit_code == 0, done.output
    assert "No gain over your current policy is shown" in done.stdout and "with weak support" in done.stdout
    assert "finalists of 4 candidates" in done.stdout and "reward while learning, by simulation" in done.stdout
    assert {path.name for path in log.parent.iterdir()} == {
        "log.csv", "m.spuir", "m.tuning.json", "m.tuning.png", "m.tuning.svg", "m.coefficients.csv",
    }  # fmt: skip
    report = json.loads((log.parent / "m.tuning.json").read_text())
    saved = spuir.load(log.parent / "m.spuir")
    assert saved.policy_.floor == report["winner"]["parameters"]["floor"]
    quiet = call(log, *SMALL, "-o", log.parent / "m.spuir", "--json", "-q")
    summary = json.loads(quiet.stdout)
    assert not quiet.stderr and summary["written"][0].endswith("m.spuir")
    again = {name: value for name, value in summary.items() if name not in ("seconds", "written")}
    assert again == {name: value for name, value in report.items() if name != "seconds"}


def test_an_interrupt_says_how_to_resume(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    score, calls = Contest.score, list[object]()

    def stopping(self, task):
        calls.append(task)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return score(self, task)

    monkeypatch.setattr(Contest, "score", stopping)
    done = call(log, *SMALL, "-o", log.parent / "m.spuir")
    assert done.exit_code == 130 and done.stderr.endswith("stopped; run the same command again to resume\n")
    assert not (log.parent / "m.spuir").exists()
    done = call(log, *SMALL, "-o", log.parent / "m.spuir")
    assert done.exit_code == 0 and "Resuming with 2 results of an earlier run." in done.stderr
    assert not (log.parent / "m.spuir.progress").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-b", 800], "at least 3 are needed"),
        (["-b", 100, "-p", "bexp3"], "trait 'ridge'"),
        (["-b", 100, "-p", "puri"], "did you mean 'puir'?"),
        (["-b", 100, "--batch-sizes", "many"], "got 'many', but it must be an integer"),
        (["-b", 100, "--batch-sizes", "600", "--learning", "replay"], "rows would be accepted; use smaller batches"),
        (["-b", 100, "--rename", "propensity="], "say --propensity uniform"),
        (["-b", 100, "--propensity", "chance"], "'chance', which is no column"),
        (["-b", 100, "--propensity", "own"], "'own', which is no column"),
        (["-b", 100, "--window", "1d"], "it belongs to --rewards"),
    ],
    ids=str,
)
def test_wrong_input_is_one_sentence(arguments: list[object], words: str, log: Path) -> None:
    done = call(log, *arguments, "--budget", 2, "-q", "-o", log.parent / "m.spuir")
    assert done.exit_code == 2 and words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and not done.stdout
    assert [path.name for path in log.parent.iterdir()] == ["log.csv"]


def test_the_log_is_never_overwritten(log: Path) -> None:
    before = log.read_bytes()
    done = call(log, *SMALL, "-o", log)
    assert done.exit_code == 2 and "would overwrite" in done.stderr
    assert log.read_bytes() == before
