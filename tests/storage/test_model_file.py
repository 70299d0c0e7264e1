"""Saved bandits: what a file may hold, and who can load it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spuir
from spuir.base.streams import generator
from spuir.errors import SnapshotError
from spuir.storage import snapshot
from tests.bandits import B, taught


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("active", [True, False]),
        ("active", [True] * 5),
        ("active", ["no"] * 3),
        ("active", [False] * 3),
        ("columns", ["a"]),
        ("columns", "abc"),
        ("columns", [[1], 2, 3]),
    ],
)
def test_a_header_that_does_not_fit_is_refused(field: str, value: Any, tmp_path: Path) -> None:
    taught().save(tmp_path / "m.spuir")
    header, arrays = snapshot.read(tmp_path / "m.spuir")
    snapshot.write(tmp_path / "n.spuir", header | {field: value}, arrays)
    with pytest.raises(SnapshotError, match=field):
        spuir.load(tmp_path / "n.spuir")


@pytest.mark.parametrize("policy", spuir.list_policies())
def test_what_is_not_finite_is_refused_when_loaded(policy: str, tmp_path: Path) -> None:
    rng = generator(0, "rows")
    bandit = spuir.Bandit(policy, 3, random_state=0)
    bandit.partial_fit(rng.normal(size=(40, 2)), rng.integers(3, size=40), rng.integers(2, size=40))
    bandit.save(tmp_path / "m.spuir")
    header, arrays = snapshot.read(tmp_path / "m.spuir")
    # Rows that a policy keeps may have delays without an end.
    names = [name for name, array in arrays.items() if array.dtype.kind == "f" and name not in FREE]
    assert names
    for name in names:
        for value in (np.nan, np.inf):
            wild = arrays[name].copy()
            wild.flat[-1] = value
            snapshot.write(tmp_path / "n.spuir", header, arrays | {name: wild})
            with pytest.raises(SnapshotError, match=r"a non-finite value|finite sums per action|must be finite"):
                spuir.load(tmp_path / "n.spuir")


def test_a_missing_file_is_one_error_not_two(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="no such file") as caught:
        spuir.load(tmp_path / "none.spuir")
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


FREE = {"kept.elapsed", "kept.weights"}


def run_alone(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a fresh process for each file is a fork")
def test_every_policy_is_loaded_by_a_process_that_knows_nothing_of_it(tmp_path: Path) -> None:
    for name in spuir.list_policies():
        taught(name, click=np.ones(B), conversion=np.ones(B), elapsed=np.ones(B)).save(tmp_path / f"{name}.spuir")
    done = run_alone(
        "import os, sys, pathlib, spuir, spuir.bandit\n"
        f"for path in sorted(pathlib.Path({str(tmp_path)!r}).iterdir()):\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        assert spuir.load(path).predict([[1.0, 2.0, 3.0]]).shape == (1,)\n"
        "        os._exit(0)\n"
        "    if os.waitpid(child, 0)[1]:\n"
        "        sys.exit(path.name)\n"
    )
    assert done.returncode == 0, done.stderr


def test_how_numpy_warns_at_the_first_use_does_not_stay() -> None:
    done = run_alone(
        "import numpy as np, spuir\n"
        "with np.errstate(all='raise'):\n"
        "    spuir.Bandit\n"
        "X = np.full((4, 2), 1e-200)\n"
        "spuir.Bandit('puir', 2, random_state=0).partial_fit(X, [0, 1, 0, 1], [1.0, 2.0, 3.0, 4.0]).decide(X)\n"
    )
    assert done.returncode == 0, done.stderr


def test_a_label_that_no_file_can_hold_is_named(tmp_path: Path) -> None:
    bandit = spuir.Bandit("puir", [1.0, np.inf], random_state=0)
    with pytest.raises(SnapshotError, match="action label: got inf"):
        bandit.save(tmp_path / "m.spuir")


def test_only_a_saved_model_is_replaced_unasked(tmp_path: Path) -> None:
    bandit, other, empty = taught(), tmp_path / "notes.txt", tmp_path / "empty"
    other.write_text("mine")
    empty.touch()
    with pytest.raises(SnapshotError, match=r"notes\.txt.*is not a saved model; choose another path.*overwrite=True"):
        bandit.save(other)
    assert other.read_text() == "mine"
    for path, overwrite in ((other, True), (empty, False), (empty, False)):
        bandit.save(path, overwrite=overwrite)
        assert spuir.load(path).n_episodes_ == bandit.n_episodes_
