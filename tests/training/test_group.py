"""Scattered episodes are grouped on disk: right, side by side with other runs, and without left-overs."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from spuir.logs import cut_episodes, open_log, temporary
from spuir.logs.temporary import Folder
from spuir.tables.encoder import Encoder
from spuir.training import group, job, train
from spuir.training.engines.local import Local
from spuir.training.group import SortPart, group_by_episode
from spuir.training.scan import scan_log
from tests.training.logs import make_table, write_files

ROWS = 4_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log of 30 scattered episodes of uneven sizes, one of them large."""
    numbers = np.random.default_rng(8).integers(0, 60, ROWS)
    table = make_table(
        ROWS, episode=np.minimum(numbers, 30), city=[["Oslo", "Rome", None][row % 3] for row in range(ROWS)]
    )
    return write_files(tmp_path / "log", table, [1_500, 1, 2_499], group=400)


def ignore(*_: object) -> None:
    """Ignore progress."""


@pytest.mark.parametrize("sort_bytes", [2_000, 20_000, 2**25])
def test_the_rows_of_each_episode_keep_their_order(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sort_bytes: int
) -> None:
    monkeypatch.setattr(group, "SORT_BYTES", sort_bytes)
    log = open_log(str(folder))
    cut, engine = cut_episodes(log), Local(2)
    scan = scan_log(log, cut, engine, ignore, actions=True)
    columns = tuple(log.schema.names)
    scratch = Folder(tmp_path)
    sort = SortPart(
        cut=cut,
        encoder=Encoder.learn(log.table(list(log.context))),
        actions=[0, 1, 2],
        columns=columns,
        keys=scan.keys,
        folder=scratch.path,
    )
    grouped, faults = group_by_episode(log, scan, sort, scratch, 72, engine, ignore)
    assert len(faults) == len(log.parts) and sum(part.part.rows or 0 for part in grouped.parts) == ROWS
    assert (len(grouped.parts) > 1) == (sort_bytes < 2**25)
    found = [row for part in grouped.parts for batch in part.part.read(batch_rows=77) for row in batch.to_pylist()]
    expected = sorted(log.table().to_pylist(), key=lambda row: row["episode"])  # stable
    assert found == expected
    assert all(batch.num_rows <= 77 for part in grouped.parts for batch in part.part.read(["reward"], batch_rows=77))
    for at, part in enumerate(grouped.parts):
        sizes = {key: one.size for key, one in part.episodes.items()}
        read = [row["episode"] for batch in part.part.read(["episode"]) for row in batch.to_pylist()]
        assert sizes == {key: read.count(key) for key in dict.fromkeys(read)}
        assert all(grouped.first[one.number] == at == grouped.last[one.number] for one in part.episodes.values())


def test_many_fragments_are_grouped_although_they_would_fit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Collecting a few rows of every episode from every batch takes longer than sorting them."""
    apart = train(str(folder), "puir")
    monkeypatch.setattr(group, "MIN_FRAGMENTS", 100)
    grouped = train(str(folder), "puir")
    told = [any("grouping rows by episode on disk" in notice for notice in one.notices) for one in (apart, grouped)]
    assert told == [False, True]
    row = {"x0": 0.5, "x1": -1.0, "x2": 0.0, "x3": 2.0, "city": "Rome"}
    scores = [one.bandit.decision_function([row]) for one in (apart, grouped)]
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-9)
    monkeypatch.setattr(group, "FRAGMENT_ROWS", 1)  # as if the rows were many more than the fragments
    assert not any("grouping" in notice for notice in train(str(folder), "puir").notices)


def test_two_grouped_trainings_into_one_file(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a folder of its own, and the last one to end saves its model."""
    monkeypatch.setattr(job, "OPEN_BYTES", 1)
    failures, out = list[BaseException](), tmp_path / "model.spuir"
    train(str(folder), "puir", out=tmp_path / "alone.spuir")

    def work() -> None:
        try:
            train(str(folder), "puir", out=out)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert out.read_bytes() == (tmp_path / "alone.spuir").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone.spuir", "log", "model.spuir"]


FULL = """
import resource, sys
from spuir.cli.app import main
from spuir.training import job
job.OPEN_BYTES = 1
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
# As good as a full disk: a longer file cannot be written.
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), most))
main(["train", *sys.argv[2:]])
"""


def train_on_a_full_disk(limit: int, *given: object) -> subprocess.CompletedProcess[str]:
    """Run ``spuir train`` in a process that cannot write files of more than ``limit`` bytes."""
    command = [sys.executable, "-c", FULL, str(limit), *map(str, given), "-w", "2"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("joined", [False, True])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(folder: Path, tmp_path: Path, joined: bool) -> None:
    (tmp_path / "scratch").mkdir()
    given: list[object] = [folder]
    if joined:
        table = make_table(3_000, decision_id=range(3_000))
        decisions = write_files(tmp_path / "decisions", table.drop_columns(["reward"]), [3_000], group=3_000)
        rewards = write_files(tmp_path / "rewards", table.select(["decision_id", "reward"]), [3_000], group=3_000)
        given = [decisions, "--rewards", rewards, "-b", 100]
    out = tmp_path / "m" / "m.spuir"
    done = train_on_a_full_disk(30_000, *given, "--scratch", tmp_path / "scratch", "-q", "-o", out)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    (sentence,) = done.stderr.strip().splitlines()
    assert "File too large" in sentence and "free some space" in sentence and "--scratch" in sentence
    assert list((tmp_path / "scratch").iterdir()) == []
    assert not (tmp_path / "m").exists() or list((tmp_path / "m").iterdir()) == []


def test_a_disk_that_is_too_full_for_the_figure_keeps_the_model(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "log", make_table(200), [200], group=200)
    done = train_on_a_full_disk(12_000, folder, "-p", "puir", "-b", 50, "-p", "sbucb", "-o", tmp_path / "m" / "m.spuir")
    assert done.returncode == 0, done.stderr
    assert "no figure was drawn: File too large" in done.stderr and "Traceback" not in done.stderr
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == [
        "m.coefficients.csv",
        "m.episodes.csv",
        "m.spuir",
    ]


def test_the_folder_of_a_killed_process_is_removed_by_the_next(tmp_path: Path) -> None:
    script = "import os, sys; from spuir.logs.temporary import Folder; kept = Folder(sys.argv[1]); os._exit(9)"
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=60)
    (left,) = tmp_path.iterdir()
    mine = Folder(tmp_path)
    assert left.exists()  # so young that its process might not have locked it yet
    long_ago = time.time() - 2 * temporary.SETTLED_SECONDS
    for path in (left, mine.path):
        os.utime(path, (long_ago, long_ago))
    other = Folder(tmp_path)
    assert not left.exists() and Path(mine.path).exists()
    for one in (mine, other):
        one.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_fork_leaves_the_folder_of_its_parent_alone(tmp_path: Path) -> None:
    script = """
import os, sys
from spuir.logs.temporary import Folder
kept = Folder(sys.argv[1])
if not os.fork():
    sys.exit()
os.wait()
print(os.path.isdir(kept.path))
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n" and not list(tmp_path.iterdir())
