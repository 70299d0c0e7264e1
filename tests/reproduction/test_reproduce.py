"""Grids are carried out: each task once, in any number of processes, through kills and failures."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from spuir.base.streams import generator
from spuir.cli.app import main
from spuir.reproduction import EXPERIMENTS
from spuir.reproduction.base import Scope
from spuir.reproduction.schedule import TaskTimes, ask, carry_out
from spuir.reproduction.store import LINES, open_store, read_manifest
from spuir.reproduction.tasks import Result
from tests.reproduction import toy

ROOT = Path(__file__).parents[2]


def done(experiments, out, side, *, workers=1, repeats=2, follow=None):
    """Carry out experiments; return what each has, and the failures."""
    side.mkdir(exist_ok=True)
    with open_store(out) as store:
        return carry_out(experiments, Scope(repeats=repeats, data=side), store, workers, follow)


def rows(asked):
    return [(result.task.key, result.rows) for one in asked for result in one.results]


def lines(path):
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def test_any_number_of_workers_gives_the_same_rows_and_each_task_is_done_once(tmp_path):
    told = []
    one, _ = done([toy.EXPERIMENT], tmp_path / "one", tmp_path / "side", workers=1)
    count = len(lines(tmp_path / "side" / "log"))
    (tmp_path / "side" / "log").unlink()
    two, failures = done(
        [toy.EXPERIMENT, toy.SILENT],
        tmp_path / "two",
        tmp_path / "side",
        workers=2,
        follow=lambda *numbers: told.append(numbers),
    )
    assert not failures
    assert rows(one) == rows(two[:1]) == rows(two[1:])
    assert [result.task.key for result in one[0].results] == [task.key for task in one[0].tasks]
    assert len(one[0].tasks) == count == len(lines(tmp_path / "side" / "log")) == 6
    assert all(0 <= finished <= total and left >= 0 for finished, total, left in told)


def test_a_second_time_there_is_nothing_to_do(tmp_path):
    first, _ = done([toy.EXPERIMENT], tmp_path / "out", tmp_path / "side")
    before = (
        read_manifest(tmp_path / "out"),
        (tmp_path / "out" / LINES).read_bytes(),
        lines(tmp_path / "side" / "log"),
    )
    second, _ = done([toy.EXPERIMENT], tmp_path / "out", tmp_path / "side")
    assert rows(first) == rows(second)
    assert before == (
        read_manifest(tmp_path / "out"),
        (tmp_path / "out" / LINES).read_bytes(),
        lines(tmp_path / "side" / "log"),
    )
    more, _ = done([toy.EXPERIMENT], tmp_path / "out", tmp_path / "side", repeats=3)
    assert len(read_manifest(tmp_path / "out")["sittings"]) == 2
    assert set(map(str, rows(first))) <= set(map(str, rows(more)))


def test_failures_stop_nothing_are_told_and_tried_again(tmp_path):
    asked, failures = done([toy.REFUSING, toy.BROKEN], tmp_path / "out", tmp_path / "side", workers=2)
    refusing, broken = asked
    assert refusing.failure == "ValueError: no idea what to ask for"
    assert [result.arguments["cell"] for result in broken.results] == [0, 1, 2]
    told = sorted(f"{one['task']} {one['error']}" for one in failures.values())
    assert len(told) == len(broken.missing) == 3
    assert "die(seed=0) WorkerError: worker: got exit code 3 during a job" in told[0]
    assert "fail(" in told[1]
    assert "ValueError: seed 0 is broken" in told[1]
    assert "strange(seed=0) TypeError: a row holds a object" in told[2]
    assert read_manifest(tmp_path / "out")["sittings"][-1]["failures"] == failures
    (tmp_path / "side" / "mended").touch()
    asked, failures = done([toy.BROKEN], tmp_path / "out", tmp_path / "side")
    assert len(failures) == len(asked[0].missing) == 2
    assert len(lines(tmp_path / "side" / "log")) == 3


def test_timed_tasks_come_last_and_one_that_is_asked_for_both_ways_is_timed(tmp_path):
    (asked,), _ = done([toy.TIMED], tmp_path / "out", tmp_path / "side", workers=2)
    cells = [int(line.split()[0]) for line in lines(tmp_path / "side" / "log")]
    assert sorted(cells[:2]) == [2, 3]
    assert cells[2:] == [0, 1]
    assert [result.task.alone for result in asked.results] == [True, True, False, False]


def start(out, side, workers=2):
    command = [sys.executable, "-m", "tests.reproduction.toy", str(out), str(side), str(workers)]
    return subprocess.Popen(command, cwd=ROOT, start_new_session=True, stderr=subprocess.PIPE)


def wait_for(holds, process):
    """Wait until something holds; a process that ends before it does is a failure."""
    while not holds():
        assert process.poll() is None, process.stderr.read().decode()
        time.sleep(0.005)


def stored(out):
    """Return the keys of the whole lines of results."""
    path = out / LINES
    data = path.read_bytes() if path.exists() else b""
    return [json.loads(line)["key"] for line in data[: data.rfind(b"\n") + 1].splitlines()[1:]]


@pytest.mark.skipif(os.name != "posix", reason="needs process groups")
def test_killed_at_any_point_it_goes_on_without_doing_anything_again(tmp_path):
    out, side = tmp_path / "out", tmp_path / "side"
    side.mkdir()
    rng = generator(5, "test", "kills")
    for count, kill in ((3, os.kill), (10, os.killpg)):
        before = stored(out)
        (side / "log").unlink(missing_ok=True)
        process = start(out, side)
        wait_for(lambda count=count: len(stored(out)) >= count, process)
        time.sleep(float(rng.uniform(0, 0.06)))
        kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert not again(before, side)
        assert len(stored(out)) < 20
    before = stored(out)
    (side / "log").unlink(missing_ok=True)
    (resumed,), failures = done([toy.PAUSED], out, side, workers=2)
    assert not failures
    assert not again(before, side)
    assert len(stored(out)) == len(set(stored(out))) == 20
    (whole,), _ = done([toy.PAUSED], tmp_path / "whole", side, workers=1)
    assert rows([resumed]) == rows([whole])


def again(before, side):
    """Return the tasks that were stored before a sitting and done again in it."""
    tasks = (toy.drawing(side / "log", *map(int, line.split()), pause=0.05) for line in lines(side / "log"))
    return [task for task in tasks if task.key in before]


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_an_interrupt_keeps_what_is_finished(tmp_path):
    out, side = tmp_path / "out", tmp_path / "side"
    side.mkdir()
    process = start(out, side)
    wait_for(lambda: len(stored(out)) >= 2, process)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGINT
    assert errors.count(b"Traceback") == 1, errors.decode()
    sitting = read_manifest(out)["sittings"][-1]
    assert sitting["finished"] is not None
    assert 2 <= len(stored(out)) < 20
    assert len(stored(out)) - sitting["tasks"] in (0, 1)  # one may be on the disk and not counted yet


def test_a_grid_sees_only_what_it_asked_for(tmp_path):
    done([toy.TIMED], tmp_path / "out", tmp_path / "side")
    with open_store(tmp_path / "out") as store:
        asked = ask(toy.EXPERIMENT, Scope(repeats=2, data=tmp_path / "side"), store)
    assert [result.arguments["cell"] for result in asked.results] == [0, 1]
    assert len(asked.tasks) == 4


def test_the_time_left_is_judged_by_the_nearest_known_tasks():
    times = TaskTimes()
    tasks = [toy.drawing(Path("log"), cell, seed) for cell in (0, 1) for seed in (0, 1)]
    assert times.estimate(tasks[0]) == 1.0
    times.add(Result(tasks[0], [], 4.0))
    times.add(Result(tasks[2], [], 2.0))
    assert [times.estimate(task) for task in tasks] == [4.0, 4.0, 2.0, 2.0]
    assert times.estimate(toy.drawing(Path("log"), 7, 0)) == 3.0
    assert times.remaining(tasks, workers=2) == 6.0
    assert times.remaining([toy.drawing(Path("log"), 0, 0, alone=True)], workers=2) == 4.0


@pytest.fixture
def toys(monkeypatch):
    """Let the command line know the toys."""
    table = {one.name: f"{toy.HERE}:{name}" for name, one in vars(toy).items() if type(one) is type(toy.EXPERIMENT)}
    monkeypatch.setattr(EXPERIMENTS, "_table", table)


def reproduce(*arguments):
    return CliRunner().invoke(main, ["reproduce", *map(str, arguments)], catch_exceptions=False)


@pytest.mark.usefixtures("toys")
def test_the_command_writes_a_report_and_says_so(tmp_path):
    given = ("--only", "toy", "--data", tmp_path, "--out", tmp_path / "out", "--repeats", 3, "-w", 1)
    outcome = reproduce(*given)
    assert outcome.exit_code == 0
    for text in ("toy/one-two", "contradicted", "1.5 [1.5, 1.5]"):
        assert text in outcome.stdout
    assert "report.html" in outcome.stderr
    written = (tmp_path / "out" / "report.html").stat().st_mtime_ns
    outcome = reproduce(*given, "--json", "--quiet")
    assert json.loads(outcome.stdout) == json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    assert outcome.stderr == ""
    assert (tmp_path / "out" / "report.html").stat().st_mtime_ns == written


@pytest.mark.usefixtures("toys")
def test_the_command_lists_what_failed_and_ends_with_1(tmp_path):
    outcome = reproduce("--only", "broken,refusing,toy", "--data", tmp_path, "--out", tmp_path / "out", "-w", 2)
    assert outcome.exit_code == 1
    for text in (
        "4 failed; run the same command again to retry",
        "die(seed=0)",
        "seed 0 is broken",
        "refusing: ValueError",
    ):
        assert text in outcome.stderr
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "3 of 6 tasks are missing" in page
    assert "no idea what to ask for" in page


@pytest.mark.usefixtures("toys")
def test_an_interrupted_command_ends_with_130(tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("spuir.reproduction.schedule.carry_out", interrupt)
    outcome = reproduce("--only", "toy", "--data", tmp_path, "--out", tmp_path / "out", "-q")
    assert outcome.exit_code == 130
    assert "run the same command again to resume" in outcome.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--only", "figure3"), "did you mean 'figure3"),
        (("--only", "zzzzz"), "the names are overview"),
        (("--only", "figure1,tabel2"), "did you mean 'table2'"),
        (("--data", "nowhere"), "it has to be a folder"),
        (("--repeats", "0"), "--repeats"),
        (("--first-seed", "-1"), "--first-seed"),
        (("--policy", "nowhere:Mine"), "it cannot be imported"),
        (("--policy", "spuir.policies.optimistic:Nothing"), "it cannot be imported"),
        (("--policy", "spuir.policies.optimistic:ONE_ROW"), "a Recipe or a subclass of Policy"),
        (("--workers", "0"), "--workers"),
    ],
)
def test_refusals(arguments, said, tmp_path):
    outcome = reproduce("--out", tmp_path / "out", *arguments)
    assert outcome.exit_code == 2
    assert said in outcome.stderr
    assert not (tmp_path / "out").exists()


def test_without_the_means_to_draw_nothing_is_run(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    outcome = reproduce("--only", "theorem1", "--out", tmp_path / "out")
    assert outcome.exit_code == 2
    assert 'pip install "spuir[plot]"' in outcome.stderr
    assert not (tmp_path / "out").exists()


def test_a_policy_of_ones_own_is_compared(tmp_path):
    pytest.importorskip("matplotlib")
    given = ("--only", "figure3c", "--quick", "--first-seed", 5, "--policy", "spuir.policies.greedy:GREEDY")
    outcome = reproduce(*given, "--out", tmp_path, "-w", 1, "--json", "-q")
    assert outcome.exit_code == 0, outcome.stderr
    results = json.loads(outcome.stdout)
    (section,) = results["experiments"]
    rows = [row for row in section["tables"][0]["rows"] if row["method"] == "GREEDY"]
    assert {row["setting"].partition(":")[0] for row in rows} == {"code", "best"}
    assert all(row["lead over SBUCB, % of its reward"] for row in rows)
    assert "--first-seed 5 --policy spuir.policies.greedy:GREEDY" in results["command"]
    assert results["seeds"] == [5, 6, 7]
    assert "GREEDY" in (tmp_path / section["figures"][0]["file"]).read_text(encoding="utf-8")
