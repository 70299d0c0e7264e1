"""The benchmark suite's contract and its report; nothing is timed here."""

import io
import json

import pytest
from rich.console import Console

from benchmarks import action_features, calls, log_training, requirements, speed, training
from benchmarks.__main__ import PARTS, missed
from benchmarks.report import markdown, sheets, show
from benchmarks.requirements import Requirement, grid
from benchmarks.shapes import SHAPES, Shape
from benchmarks.timing import Clock, exponent, ratio

TINY = {name: Shape(name, 60, 3, 4) for name in SHAPES}
"""The measured shapes by name, small enough to run every race once."""


@pytest.fixture
def results():
    """Results as they are stored, small and made up."""
    row = {"median_ms": 0.5, "best_ms": 0.25, "runs": 7, "scale": 1.0}
    worlds = {
        world: {"spuir": [[0.5, 0.5], [1.0, 2.0]], "puir": [[0.5, 0.5], [3.0, 4.0]]} for world in requirements.WORLDS
    }
    return {
        "command": "python -m benchmarks",
        "quick": False,
        "seeds": 20,
        "about": {"Python": "3.11", "machine": "a machine"},
        "measured": {item.key: item.floor if item.floor is not None else 1.0 for item in grid()},
        "speed": {"learn, paper (1,400, 40, 5)": {"puir": row, "a peer": row | {"scale": 2.0, "median_ms": 1234.5}}},
        "scaling": {f"learn, {axis}": {"size": [10.0, 20.0], "median_ms": [1.0, 2.0]} for axis in "BMd"},
        "memory": {"learn": {"working_bytes": 2.0**20, "context_bytes": 2.0**21}},
        "training": {"csv, 1 workers": {"seconds": 2.0, "rows": 500.0}},
        "quality": worlds,
    }


def test_every_requirement_is_named_once_and_can_be_judged():
    items = grid()
    assert len({item.key for item in items}) == len({item.text for item in items}) == len(items)
    for item in items:
        assert item.section in PARTS and item.sense in ("at most", "at least")
        assert item.floor is None or item.floor > 0


def test_the_races_measure_every_requirement_on_speed(monkeypatch):
    """Every race runs once at small shapes; only comparisons with libraries that are not installed may be missing."""

    def once(tasks, *, rounds, seconds, scales=None):
        for task in tasks.values():
            task()
        return {name: Clock((1.0,)) for name in tasks}

    monkeypatch.setattr(speed, "race", once)
    monkeypatch.setattr(speed, "SHAPES", TINY)
    monkeypatch.setattr(speed, "SKETCH", 20)
    for name, shape in TINY.items():
        monkeypatch.setattr(speed, name.upper(), shape)
    monkeypatch.setattr(speed.peers, "installed", list)
    found = speed.measure(speed.Effort(cases=1), lambda text: None).found
    needed = {item.key for item in grid() if item.section == "speed" and "-peer/" not in item.key}
    assert found.keys() == needed
    assert all(found[f"speed/labels/{form}"] == 1.0 for form in calls.TEXT_LABELS)


def test_the_races_measure_every_requirement_on_the_catalogue(monkeypatch):
    """Every race runs at small sizes; Vowpal Wabbit is among the requirements of the tests."""
    sizes = {"ACTIONS": 12, "COLUMNS": 3, "ROWS": 300, "MANY": 40, "HUGE": 60, "LISTED": 4, "WABBIT_ROWS": 2}
    for name, size in sizes.items():
        monkeypatch.setattr(action_features, name, size)
    tables, found = action_features.measure(speed.Effort(seconds=0.0, rounds=1), lambda text: None)
    assert found.keys() == {item.key for item in grid() if item.section == "catalogue"}
    assert all(value > 0 for value in found.values())
    assert all(clock.seconds for clocks in tables.values() for clock in clocks.values())


def test_the_trainings_measure_every_requirement_on_training(monkeypatch, tmp_path):
    log_training.write_files(tmp_path, 2**16, rows=4_000)
    assert {(tmp_path / name).exists() for name, _, _ in log_training.TASKS.values()} == {True}
    tasks = {task: given for task, given in log_training.TASKS.items() if given[2] == 2}  # others would be pinned
    assert {task: log_training.run(task, tmp_path)["rows"] for task in tasks} == {
        "csv, 2 workers": 20_000, "jsonl, 2 workers": 20_000, "sorted, 5m an episode": 4_000,
        "unsorted, 5m an episode": 4_000, "sorted, 1h an episode": 4_000, "unsorted, 1h an episode": 4_000,
    }  # fmt: skip
    monkeypatch.setattr(log_training, "write_files", lambda *given: None)
    monkeypatch.setattr(log_training, "elsewhere", lambda *given: {"seconds": 1.0, "rows": 1})
    _, found = log_training.measure(1, lambda text: None)
    assert found == {item.key: 1.0 for item in grid() if item.section == "training"}


def test_a_missed_floor_is_listed_and_what_is_only_reported_is_not(results):
    floors = {item.key: (item.sense, item.floor) for item in grid() if item.floor is not None}
    assert missed(results, list(PARTS)) == []
    for key, (sense, floor) in floors.items():
        worse = floor * (1.01 if sense == "at most" else 0.99)
        assert missed(results | {"measured": results["measured"] | {key: worse}}, list(PARTS)) == [key]
    reported = next(item.key for item in grid() if item.floor is None)
    assert missed(results | {"measured": results["measured"] | {reported: 1e-9}}, list(PARTS)) == []


def test_a_floor_that_was_not_measured_is_missed_only_where_its_part_ran(results):
    del results["measured"]["speed/predict/paper"]
    assert missed(results, list(PARTS)) == missed(results, ["speed"]) == ["speed/predict/paper"]
    assert missed(results, ["scaling", "quality"]) == []


def test_quality_covers_both_learnable_worlds_and_noise_from_a_hundredth_to_ten():
    losses = [item for item in grid(20) if item.key.startswith("quality/loss/")]
    assert [item.key.rpartition("/")[2] for item in losses] == list(requirements.WORLDS)
    assert {"synthetic", "heterogeneous"} < set(requirements.WORLDS)
    noises = [parameters["noise"] for name, parameters in requirements.WORLDS.values() if name == "linear"]
    assert (min(noises), max(noises)) == (0.01, 10.0)
    # One-sided at 5 % over six worlds and three horizons with 19 degrees of freedom: the 1 − 0.05/18 quantile.
    assert all(item.floor == pytest.approx(3.1266, abs=1e-3) for item in losses)


@pytest.mark.parametrize(
    ("sense", "floor", "value", "expected"),
    [
        ("at most", 1.25, 1.25, "pass"),
        ("at most", 1.25, 1.26, "fail"),
        ("at least", 2.0, 2.0, "pass"),
        ("at least", 2.0, 1.99, "fail"),
        ("at least", None, 0.1, "reported"),
        ("at least", 2.0, None, "not measured"),
    ],
)
def test_verdict(sense, floor, value, expected):
    assert Requirement("speed/x", "x", sense, floor).verdict(value) == expected


def test_page_names_command_machine_and_every_requirement(results):
    page = markdown(results)
    assert "python -m benchmarks" in page
    assert "a machine" in page
    assert all(f"| {item.text} |" in page for item in grid())
    assert "| fail |" not in page
    assert "not measured" not in page
    assert "| a peer (scaled) | 1,234 | 0.25 | 7 |" in page
    assert "| learn | 1 | 2 |" in page
    assert "1.5 ± 0.5" in page


def test_page_shows_a_missed_floor_and_what_is_missing(results):
    results["measured"]["speed/learn-peer/paper"] = 2.4
    del results["measured"]["speed/sketch-naive/default"]
    rows = {row[0]: row[-1] for row in sheets(results)[0].rows}
    texts = {item.key: item.text for item in grid()}
    assert rows[texts["speed/learn-peer/paper"]] == "fail"
    assert rows[texts["speed/sketch-naive/default"]] == "not measured"
    assert list(rows.values()).count("fail") == 1


def test_parts_that_were_not_run_are_left_out_and_a_quick_run_says_so(results):
    partial = {key: value for key, value in results.items() if key not in PARTS}
    assert [sheet.title for sheet in sheets(partial)] == ["Requirements"]
    assert "quick run" not in markdown(partial)
    assert "quick run" in markdown(partial | {"quick": True})


def test_terminal_shows_the_same_tables(results):
    stream = io.StringIO()
    show(results, Console(file=stream, width=200))
    assert all(sheet.title in stream.getvalue() for sheet in sheets(results))


def test_ratio_pairs_the_rounds_and_scales():
    slow, fast = Clock((2.0, 40.0, 6.0), scale=2.0), Clock((1.0, 10.0, 2.0))
    assert ratio(slow, fast) == pytest.approx(6.0)
    assert slow.median == pytest.approx(12_000)
    assert slow.best == pytest.approx(4_000)


def test_exponent_recovers_a_power():
    assert exponent([1.0, 2.0, 4.0, 8.0], [3.0, 12.0, 48.0, 192.0]) == pytest.approx(2.0)


def test_the_page_on_training_says_what_is_stored() -> None:
    stored = json.loads(training.STORED.read_text(encoding="utf-8"))
    assert training.PAGE.read_text(encoding="utf-8") == training.page(stored)
    assert all(reached for *_, reached in training.floors(stored))
