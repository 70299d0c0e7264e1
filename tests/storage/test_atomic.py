"""The one writer behind every file that spuir replaces."""

import errno
import os
import stat
from pathlib import Path

import pytest

import spuir
from spuir.errors import SpuirError
from spuir.logs import open_log, write_log
from spuir.storage.atomic import atomic_file, write_atomically, write_text


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "data.csv.gz"
    path.write_bytes(b"old")
    return path


def only(path: Path) -> bool:
    """Whether nothing else is in the folder."""
    return os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("chunks", [b"new", [b"n", bytearray(b"e"), memoryview(b"w")], iter([b"ne", b"w"])])
def test_bytes_and_chunks(target: Path, chunks: object) -> None:
    write_atomically(target, chunks)  # pyright: ignore[reportArgumentType]
    assert target.read_bytes() == b"new"
    assert only(target)


def test_a_relative_path_and_a_new_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_atomically("new", b"x")
    assert (tmp_path / "new").read_bytes() == b"x"


def test_a_writer_that_needs_a_path_finds_the_same_ending(target: Path) -> None:
    with atomic_file(target) as file:
        assert file.name.endswith("data.csv.gz")
        assert Path(file.name).parent == target.parent
        Path(file.name).write_bytes(b"written by path")
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"written by path"
    assert only(target)


def test_the_longest_names_have_room_for_the_new_file(tmp_path: Path) -> None:
    longest = tmp_path / ("é" * 120 + ".csv")
    write_atomically(longest, b"x")
    assert only(longest)


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_a_failing_writer_leaves_the_old_file_and_nothing_else(target: Path, error: BaseException) -> None:
    def chunks():
        yield b"half"
        raise error

    with pytest.raises(type(error)):
        write_atomically(target, chunks())
    assert target.read_bytes() == b"old"
    assert only(target)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failing_step_leaves_the_old_file_and_nothing_else(target: Path, monkeypatch, step: str) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(target, b"new")
    monkeypatch.undo()
    assert target.read_bytes() == b"old"
    assert only(target)


def test_the_file_reaches_the_disk_before_the_renaming_and_the_folder_after(target: Path, monkeypatch) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(handle: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def record_replace(old: str, new: str) -> None:
        steps.append("rename")
        assert Path(old).read_bytes() == b"new"
        replace(old, new)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    write_atomically(target, b"new")
    assert steps == ["file", "rename", "folder"]


def test_the_mode_is_kept(target: Path) -> None:
    target.chmod(0o640)
    write_atomically(target, b"new")
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a" / "b" / "new", b"x")
    assert (tmp_path / "a" / "b" / "new").read_bytes() == b"x"
    spuir.Bandit("puir", ["mail", "call"]).fit([[1.0], [2.0]], ["mail", "call"], [0.0, 1.0]).save(
        tmp_path / "c" / "m.spuir"
    )
    assert spuir.load(tmp_path / "c" / "m.spuir").n_episodes_ == 1
    write_log(open_log({"action": ["a"], "reward": [1.0], "x": [2.0]}), tmp_path / "d" / "log.parquet")
    assert open_log(tmp_path / "d" / "log.parquet").rows == 1


def test_text_makes_its_folder_and_names_what_cannot_be_written(target: Path) -> None:
    path = target.parent / "a" / "b" / "text"
    assert write_text(path, "é").read_bytes() == "é".encode()
    with pytest.raises(SpuirError, match=r"it cannot be written \(File exists\)"):
        write_text(target / "text", "x")
