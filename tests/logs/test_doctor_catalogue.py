"""What the doctor says about a catalogue: planted problems, each found, and nothing found where nothing is wrong."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from spuir.cli.app import main
from spuir.logs import open_log, write_log
from spuir.logs.doctor import Diagnosis, examine

LABELS = [f"n{at}" for at in range(8)]
ITEMS: dict[str, Any] = {"action": LABELS, "topic": list("aabbccdd"), "size": list(range(8))}


def rows(n: int = 400) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    offered = [rng.choice(LABELS, 3, replace=False).tolist() for _ in range(n)]
    return {
        "action": [one[0] for one in offered],
        "reward": rng.random(n),
        "propensity": np.full(n, 1 / 3),
        "eligible": offered,
        "action.price": rng.random((n, 3)),
        "x": rng.normal(size=n),
    }


def look(items: Any, **changes: Any) -> Diagnosis:
    return examine(open_log(rows() | changes, catalogue=items))


class TestPlanted:
    def test_a_sound_catalogue_gives_no_finding(self) -> None:
        assert {one.check for one in look(ITEMS).findings} <= {"intercept"}
        assert look(ITEMS).catalogue == {
            "source": "table of actions",
            "actions": 8,
            "features": ["topic", "size"],
            "per_decision": ["price"],
            "repeated": 0,
            "conflicts": {},
        }

    @pytest.mark.parametrize(
        ("items", "check", "problem"),
        [
            (
                {name: column[1:] for name, column in ITEMS.items()},
                "no features",
                "1 executed action not in the catalogue: n0.",
            ),
            (ITEMS | {"action": [None, *LABELS[1:]]}, "unnamed action", "the catalogue has 1 row without a label."),
            (ITEMS | {"size": [3] * 8}, "constant feature", "the feature 'size' of the catalogue is constant."),
            (ITEMS | {"size": [None] * 8}, "constant feature", "the feature 'size' of the catalogue is empty."),
            (ITEMS | {"size": [*range(7), np.inf]}, "not finite", "1 value not finite."),
            (
                {"action": [f"n{at}" for at in range(20)], "size": [*map(str, range(19)), "big"]},
                "mixed",
                "the feature 'size' of the catalogue is read as text because of big.",
            ),
            (ITEMS | {"name": list("abcdefgh")}, "unique feature", "the feature 'name' differs for every action."),
            (
                {name: [*column, column[0]] for name, column in ITEMS.items()},
                "repeated action",
                "the catalogue has 1 row with a label that a later row has, with the same features.",
            ),
            (
                {name: [*column, column[0]] for name, column in ITEMS.items()} | {"size": list(range(9))},
                "conflicting features",
                "the catalogue has 1 row with a label that a later row has: size differs for 1 label.",
            ),
            (
                {"action": [*LABELS, "new"], "topic": list("aabbccdda"), "size": list(range(9))},
                "untried actions",
                "the log never takes 1 of the 9 actions of the catalogue.",
            ),
        ],
    )
    def test_each_problem_is_found(self, items: Any, check: str, problem: str) -> None:
        problems = {one.check: one.problem for one in look(items).findings}
        assert problems.get(check) == problem

    def test_a_list_that_does_not_fit_is_found_with_its_row(self) -> None:
        prices = rows()["action.price"].tolist()
        prices[7] = [1.0, 2.0]
        (one,) = [one for one in look(ITEMS, **{"action.price": prices}).findings if one.check == "unequal features"]
        assert (one.severity, one.count, one.rows[0].row, one.rows[0].value) == ("error", 1, 7, "2 values")

    @pytest.mark.parametrize(
        ("value", "check"), [(2.0, "constant feature"), (np.nan, "constant feature"), (np.inf, "not finite")]
    )
    def test_a_column_that_says_nothing_is_found(self, value: float, check: str) -> None:
        problems = [one for one in look(ITEMS, **{"action.price": np.full((400, 3), value)}).findings]
        assert [one.check for one in problems if one.column == "action.price"] == [check]

    def test_texts_per_decision_are_found(self) -> None:
        """Training leaves them out, also where a single text stands among numbers."""
        moods = [["glad", "1", "2"], *[["1", "2", "3"]] * 399]
        (one,) = [one for one in look(ITEMS, **{"action.mood": moods}).findings if one.column == "action.mood"]
        assert (one.check, one.severity) == ("text feature", "warning")
        flags = look(ITEMS, **{"action.flag": [[True, False, True]] * 400})
        assert not [one for one in flags.findings if one.column == "action.flag"]

    def test_what_is_offered_but_unknown_is_found(self) -> None:
        offered = rows()["eligible"]
        offered[3][2] = "typo"
        (one,) = [one for one in look(ITEMS, eligible=offered).findings if one.column == "eligible"]
        assert (one.check, one.severity) == ("eligible without features", "warning")
        assert one.problem == "1 eligible action not in the catalogue: typo."


def test_the_command_reads_a_catalogue(tmp_path: Path) -> None:
    write_log(open_log(rows()), tmp_path / "log.parquet")
    write_log(pa.table(ITEMS | {"item": LABELS}).drop(["action"]).to_batches(), tmp_path / "items.csv")
    command = ["doctor", str(tmp_path / "log.parquet"), "--actions", str(tmp_path / "items.csv")]
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 2
    assert "--rename-actions" in refused.output
    result = CliRunner().invoke(main, [*command, "--rename-actions", "item=action"])
    assert result.exit_code == 0, result.output
    assert "catalogue: 8 actions, 2 features (topic, size); per decision: price" in result.output
