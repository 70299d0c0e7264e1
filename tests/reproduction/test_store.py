"""Results that are kept: nothing lost, nothing twice, nothing of another version."""

import json
import os
import resource

import pytest

import spuir
from spuir.errors import SpuirError
from spuir.reproduction import store as module
from spuir.reproduction.store import open_store
from spuir.reproduction.tasks import Result, Task


def task(number, alone=False):
    return Task(
        function="tests.reproduction.toy:draw", arguments={"cell": number, "seed": 0, "ä": [1, None]}, alone=alone
    )


def result(number, alone=False):
    return Result(task(number, alone), [{"episode": 1, "value": 0.1 * number, "nothing": None}], 0.25)


@pytest.fixture
def folder(tmp_path):
    """A folder with three results."""
    with open_store(tmp_path / "out") as store:
        for number in range(3):
            store.add(result(number))
    return tmp_path / "out"


def found(folder):
    with open_store(folder) as store:
        return [store.find(task(number)) for number in range(3)]


def test_results_are_found_again_as_they_were(folder):
    assert found(folder) == [result(number) for number in range(3)]
    with open_store(folder) as store:
        assert store.find(task(7)) is None
        assert len(store) == 3


def test_half_a_line_is_cut_off_wherever_it_ends(folder):
    whole = (folder / module.LINES).read_bytes()
    for length in range(len(whole)):
        (folder / module.LINES).write_bytes(whole[:length])
        left = [one is not None for one in found(folder)]
        done = max(whole[:length].count(b"\n") - 1, 0)
        assert left == [number < done for number in range(3)]
        assert (folder / module.LINES).read_bytes() == whole[: whole[:length].rfind(b"\n") + 1]


def test_work_goes_on_after_half_a_line(folder):
    whole = (folder / module.LINES).read_bytes()
    for length in (len(whole) - 1, 5):
        (folder / module.LINES).write_bytes(whole[:length])
        with open_store(folder) as store:
            for number in range(3):
                if store.find(task(number)) is None:
                    store.add(result(number))
        assert (folder / module.LINES).read_bytes() == whole


@pytest.mark.parametrize(
    "line", ["{}", "no JSON", '{"key": "0", "function": "a:b", "arguments": {}, "alone": false}', "[]"]
)
def test_a_damaged_line_is_refused_and_left_alone(folder, line):
    lines = (folder / module.LINES).read_text(encoding="utf-8").splitlines()
    text = "\n".join([*lines[:2], line, *lines[2:]]) + "\n"
    (folder / module.LINES).write_text(text, encoding="utf-8")
    with pytest.raises(SpuirError, match=r"line 3 of .*delete that line"):
        found(folder)
    assert (folder / module.LINES).read_text(encoding="utf-8") == text


def test_a_changed_argument_is_noticed(folder):
    path = folder / module.LINES
    path.write_text(path.read_text(encoding="utf-8").replace('"cell":1', '"cell":5'), encoding="utf-8")
    with pytest.raises(SpuirError, match="line 3"):
        found(folder)


@pytest.mark.parametrize("first", ['{"spuir":"0.0.1","layout":1}', '{"layout":1}', "[1]"])
def test_results_of_another_version_are_refused(folder, first):
    lines = (folder / module.LINES).read_text(encoding="utf-8").splitlines()
    (folder / module.LINES).write_text("\n".join([first, *lines[1:]]) + "\n", encoding="utf-8")
    with pytest.raises(SpuirError, match=r"may give other numbers; choose another folder with --out"):
        found(folder)


def test_a_result_that_ran_beside_others_is_no_measure_of_time(folder):
    with open_store(folder) as store:
        assert store.find(task(0, alone=True)) is None
        store.add(result(0, alone=True))
        assert store.find(task(0, alone=True)) is not None
        assert store.find(task(0)) is not None
    with open_store(folder) as store:
        assert store.find(task(0, alone=True)) is not None
        assert len(store) == 3


def test_one_process_at_a_time(folder):
    with (
        open_store(folder),
        pytest.raises(SpuirError, match=f"process {os.getpid()} is writing to it"),
        open_store(folder),
    ):
        pass
    found(folder)


def test_the_lock_of_a_dead_process_is_no_obstacle(folder):
    (folder / module.LOCK).write_text("999999999\n", encoding="utf-8")
    with open_store(folder):
        assert (folder / module.LOCK).read_text(encoding="utf-8") == f"{os.getpid()}\n"
    assert (folder / module.LOCK).read_text(encoding="utf-8") == ""


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SpuirError, match="cannot be written"), open_store(tmp_path / "file" / "out"):
        pass


def test_a_full_disk_is_named(folder):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(SpuirError, match="lock, but it cannot be written"), open_store(folder):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_failures_in_the_body_are_not_mistaken_for_the_lock(folder):
    with pytest.raises(FileNotFoundError), open_store(folder):
        (folder / "nowhere" / "file").read_text(encoding="utf-8")


def test_the_manifest_has_every_sitting(tmp_path):
    for number in (1, 2):
        with open_store(tmp_path) as store, store.sitting(workers=number, command="a command"):
            begun = json.loads((tmp_path / module.MANIFEST).read_text(encoding="utf-8"))["sittings"][-1]
            assert begun["finished"] is None
            store.add(result(number))
    manifest = json.loads((tmp_path / module.MANIFEST).read_text(encoding="utf-8"))
    assert manifest["version"] == spuir.__version__
    assert manifest["results"] == 2
    assert [sitting["workers"] for sitting in manifest["sittings"]] == [1, 2]
    for sitting in manifest["sittings"]:
        assert sitting["finished"] >= sitting["started"]
        assert sitting["tasks"] == 1
        assert {"spuir", "python", "numpy", "scipy"} <= set(sitting["versions"])
        assert {"processor", "cores", "memory_gb", "system"} == set(sitting["machine"])
        assert {"commit", "dirty", "blas", "command"} <= set(sitting)


def test_a_broken_manifest_is_no_loss(folder):
    (folder / module.MANIFEST).write_text("{", encoding="utf-8")
    assert all(found(folder))
    with open_store(folder) as store, pytest.raises(SpuirError, match="delete it"):
        store.note(report={})


def test_a_task_is_known_by_what_it_is_called_with():
    one = Task(function="a:b", arguments={"x": 1, "y": {"z": 2}})
    assert one.key == Task(function="a:b", arguments={"y": {"z": 2}, "x": 1}, alone=True).key
    assert one.key != Task(function="a:b", arguments={"x": 2, "y": {"z": 2}}).key
    assert one.key != Task(function="a:c", arguments={"x": 1, "y": {"z": 2}}).key
    assert one.label == 'b(x=1, y={"z": 2})'
    with pytest.raises(ValueError, match="not JSON compliant"):
        _ = Task(function="a:b", arguments={"x": float("nan")}).key
