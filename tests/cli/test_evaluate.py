"""``spuir evaluate``: what it prints, writes and refuses, and its exit codes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import spuir
from benchmarks.worlds import ACTIONS, World
from spuir.cli import main
from spuir.training import policy_for_logs, train

CONTEXT = ["x", "y"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of 2,400 decisions, its decisions and rewards apart, and a model that learned from another log."""
    path = tmp_path_factory.mktemp("evaluate")
    log = World().draw(2400, np.random.default_rng(0))[0].assign(time=1_700_000_000 + 60 * np.arange(2400))
    log.to_csv(path / "log.csv", index=False)
    with_ids = log.assign(decision_id=np.arange(2400))
    with_ids.drop(columns="reward").to_csv(path / "decisions.csv", index=False)
    clicks = with_ids.query("reward > 0").filter(["decision_id", "reward", "time"])
    clicks.to_csv(path / "rewards.csv", index=False)
    earlier = World().draw(2000, np.random.default_rng(1))[0]
    bandit = spuir.Bandit(spuir.make_policy("sbucb", intercept=True, floor=0.02), ACTIONS, random_state=0)
    bandit.partial_fit(earlier[CONTEXT], earlier.action, earlier.reward).save(path / "a.spuir")
    return path


def call(folder: Path, *arguments: str) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return CliRunner().invoke(main, ["evaluate", *arguments])


def data(folder: Path, *arguments: str) -> Any:
    done = call(folder, *arguments, "--json", "-q")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_tables_sentences_and_a_page(folder: Path) -> None:
    done = call(folder, "log.csv", "--model", "a.spuir", "--out", "report.html")
    assert done.exit_code == 0, done.output
    assert "2,400 decisions, 3 actions, estimator dr" in done.stdout
    assert "a.spuir earns 0.3" in done.stdout
    assert "more than today's decisions" in done.stdout
    assert "always:b" in done.stdout
    assert "wrote report.html" in done.stderr
    assert "<h1>Is the new policy better?</h1>" in (folder / "report.html").read_text(encoding="utf-8")


def test_the_gate(folder: Path) -> None:
    passed = call(folder, "log.csv", "-m", "a.spuir", "--fail-unless-better-than", "logged", "-q")
    assert (passed.exit_code, passed.output) == (0, "")
    failed = call(folder, "log.csv", "-m", "a.spuir", "--fail-unless-better-than", "always:*")
    assert failed.exit_code == 1
    assert "not better than always:*: a.spuir" in failed.stderr
    unknown = call(folder, "log.csv", "-m", "a.spuir", "--fail-unless-better-than", "today")
    assert unknown.exit_code == 2


def test_json_says_the_same(folder: Path) -> None:
    found = data(folder, "log.csv", "-m", "a.spuir", "--against", "logged,always:b", "--estimator", "snips")
    assert found["baselines"] == ["logged", "always:b"]
    assert found["estimator"] == "snips"
    assert found["facts"]["rows"] == 2400


def test_joined_tables_give_the_same_as_one(folder: Path) -> None:
    whole = data(folder, "log.csv", "-m", "a.spuir", "--against", "logged")
    joined = data(folder, "decisions.csv", "--rewards", "rewards.csv", "-m", "a.spuir", "--against", "logged")
    assert joined["values"] == whole["values"]


def test_a_policy_is_trained_on_the_earlier_part(folder: Path) -> None:
    found = data(folder, "log.csv", "--policy", "sbucb", "--set", "floor=0.02", "-b", "400", "--holdout", "0.25")
    assert found["facts"]["rows"] == 600
    assert found["evaluated"] == ["sbucb"]
    log = pd.read_csv(folder / "log.csv")
    by_hand = train(log[:1800], policy_for_logs("sbucb", floor=0.02), batch_size=400)
    expected = spuir.evaluate(log[1800:], {"sbucb": by_hand.bandit}, batch_size=400).to_dict()
    for one, two in zip(found["values"], expected["values"], strict=True):
        assert one["value"] == pytest.approx(two["value"], rel=1e-9)


def test_the_holdout_goes_by_order_where_there_is_no_time(folder: Path) -> None:
    log = pd.read_csv(folder / "log.csv").drop(columns="time")
    log.to_csv(folder / "timeless.csv", index=False)
    given = ("-p", "sbucb", "-b", "400", "--against", "logged")
    log.assign(time=np.nan).to_csv(folder / "empty.csv", index=False)
    found = [data(folder, name, *given) for name in ("log.csv", "timeless.csv", "empty.csv")]
    assert found[0]["values"] == found[1]["values"] == found[2]["values"]
    assert found[1]["facts"]["rows"] == 720


def test_options_reach_the_evaluation(folder: Path) -> None:
    given = ["--after", "2023-11-15", "--propensity", "estimate", "--interval", "sequence", "--reward-model", "none"]
    found = data(folder, "log.csv", "-m", "a.spuir", "--level", "0.9", *given)
    assert found["facts"]["rows"] < 2400
    assert (found["facts"]["propensity"], found["interval"], found["level"]) == ("estimate", "sequence", 0.9)
    assert found["estimator"] == "snips"
    assert {one["estimator"] for one in found["values"]} == {"ips", "clipped-ips", "snips", "balanced-ips"}


def test_the_page_overwrites_nothing_that_is_read(folder: Path) -> None:
    before = (folder / "log.csv").read_bytes()
    (folder / "logs").mkdir()
    (folder / "logs" / "log.csv").write_bytes(before)
    for log, out, words in (("log.csv", "log.csv", "ends in .html"), ("logs", "logs/a.html", "would overwrite")):
        result = call(folder, log, "-m", "a.spuir", "--out", out)
        assert result.exit_code == 2 and words in result.stderr
    assert (folder / "log.csv").read_bytes() == before and not (folder / "logs" / "a.html").exists()


def test_baselines_alone(folder: Path) -> None:
    found = data(folder, "log.csv")
    assert found["evaluated"] == []
    assert found["winner"]["policy"] in found["baselines"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m", "b.spuir"], "b.spuir"),
        (["-m", "a.spuir", "--rename", "propensity="], "no column 'propensity'"),
        (["-m", "a.spuir", "--window", "6h"], "it belongs to --rewards"),
        (["-p", "sbucb", "-b", "400", "--after", "2023-11-15"], "leave it out, or evaluate a saved model"),
        (["-p", "sbucb", "-b", "400", "--holdout", "1.5"], "holdout"),
        (["-p", "sbucb", "-b", "400", "--holdout", "0"], "holdout: got 0.0, but it must be a number in (0, 1)"),
        (["-p", "sbucb", "-b", "400", "--holdout", "1"], "holdout: got 1.0, but it must be a number in (0, 1)"),
        (["-p", "sbucb", "-b", "400", "--holdout", "0.0001"], "at least two; use a longer log, or more of it"),
        (["-p", "sbucbb"], "did you mean 'sbucb'"),
        (["-m", "a.spuir", "--propensity", "own"], "'own', which is no column"),
        (["-p", "a.spuir"], "evaluate a saved model with --model"),
        (["-m", "a.spuir", "--interval", "exact"], "the intervals are"),
        (["-m", "a.spuir", "--reward-model", "forest"], "linear, nystroem"),
        (["-m", "a.spuir", "--after", "2031-01-01"], "no rows"),
        (["-m", "a.spuir", "--segment", "nope"], "a segment is a context column"),
        (["-m", "a.spuir", "--set", "alpha=1"], "it belongs to --policy"),
        (["-m", "auto"], "no such file"),
    ],
)
def test_refusals_are_one_sentence(arguments: list[str], message: str, folder: Path) -> None:
    done = call(folder, "log.csv", *arguments, "-q")
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1


def test_a_refusal_is_one_line_without_quiet_too(folder: Path) -> None:
    done = call(folder, "log.csv", "-m", "a.spuir", "--interval", "exact")
    assert done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1
