"""The benchmark suite's contract and its report; nothing is timed here."""

import io
import json

import pytest
from rich.console import Console

from benchmarks import requirements, training
from benchmarks.report import markdown, sheets, show
from benchmarks.requirements import Requirement, grid
from benchmarks.timing import Clock, exponent, ratio

FLOORS = {
    # Learning with exact imputation: against our own update, and against the fastest peer.
    ("speed/learn-overhead/paper", "at most", 1.25),
    ("speed/learn-overhead/wide", "at most", 1.5),
    ("speed/learn-overhead/large", "at most", 1.25),
    ("speed/learn-overhead/deep", "at most", 1.25),
    ("speed/learn-peer/paper", "at least", 2.5),
    ("speed/learn-peer/wide", "at least", 2.0),
    # Deciding with all widths, then with the shared bound and the dense path's actions.
    ("speed/dense-peer/paper", "at least", 1.2),
    ("speed/dense-peer/wide", "at least", 1.5),
    ("speed/bound-peer/paper", "at least", 2.0),
    ("speed/bound-peer/wide", "at least", 4.0),
    ("speed/bound-equal/paper", "at least", 1.0),
    ("speed/bound-equal/wide", "at least", 1.0),
    # Sketched learning.
    ("speed/sketch-deep/sketched", "at least", 2.0),
    ("speed/sketch-deep/default", "at least", 1.4),
    ("speed/sketch-naive/sketched", "at least", 10.0),
    ("speed/sketch-naive/default", "at least", 10.0),
    # Exponents.
    ("scaling/learn/B", "at most", 1.1),
    ("scaling/learn/M", "at most", 1.1),
    ("scaling/learn/d", "at most", 2.2),
    # Quality.
    ("quality/half/synthetic", "at most", 0.5),
}
REPORTED = {
    *(f"speed/learn-naive/{shape}" for shape in ("paper", "wide", "large", "deep")),
    *(f"speed/learn-default-peer/{shape}" for shape in ("paper", "wide", "large", "deep")),
    *(f"speed/learn-cast-peer/{shape}" for shape in ("paper", "wide", "large", "deep")),
    *(f"speed/dense-cast-peer/{shape}" for shape in ("paper", "wide", "large", "deep")),
    *(f"speed/bound-cast-peer/{shape}" for shape in ("paper", "wide")),
    *(f"speed/dense-gemm/{shape}" for shape in ("paper", "wide", "large", "deep")),
    *(f"speed/sketch-large/{moments}" for moments in ("sketched", "exact", "corrected")),
}


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
        "quality": worlds,
    }


def test_grid_holds_every_floor_and_every_reported_row():
    items = grid()
    keys = [item.key for item in items]
    assert len(keys) == len(set(keys))
    assert {(item.key, item.sense, item.floor) for item in items} >= FLOORS
    assert {item.key for item in items if item.floor is None} >= REPORTED
    assert {item.section for item in items} == {"speed", "scaling", "memory", "quality"}


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
    partial = {key: value for key, value in results.items() if key not in ("speed", "scaling", "memory", "quality")}
    assert [sheet.title for sheet in sheets(partial)] == ["What must be reached"]
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
