"""Two stored reproductions are compared verdict by verdict."""

import json
from pathlib import Path

from spuir.reproduction.base import AUTHORS_ONLY, FAILS, HOLDS
from spuir.reproduction.verdict_changes import VerdictChange, change_lines, compare_verdicts

STORED = Path(__file__).parents[2] / "docs" / "reproduction" / "results.json"


def stored(**experiments):
    sections = [{"name": name, "verdicts": verdicts} for name, verdicts in experiments.items()]
    return {"experiments": sections}


def verdict(claim, outcome, id=None):
    return {"claim": claim, "outcome": outcome, "evidence": ""} | ({} if id is None else {"id": id})


def test_verdicts_are_matched_by_id_whatever_their_words():
    old = stored(toy=[verdict("One.", HOLDS, "toy/one"), verdict("Two.", HOLDS, "toy/two")])
    new = stored(toy=[verdict("Two!", HOLDS, "toy/two"), verdict("One!", FAILS, "toy/one")])
    assert compare_verdicts(old, new) == [
        VerdictChange("toy/two", "Two!", HOLDS, HOLDS),
        VerdictChange("toy/one", "One!", HOLDS, FAILS),
    ]


def test_without_ids_they_are_matched_by_experiment_and_claim():
    old = stored(toy=[verdict("Same.", AUTHORS_ONLY)], box=[verdict("Same.", FAILS), verdict("Old.", HOLDS)])
    new = stored(toy=[verdict("Same.", HOLDS, "toy/a")], box=[verdict("Same.", FAILS, "box/a")])
    assert compare_verdicts(old, new) == [
        VerdictChange("toy/a", "Same.", AUTHORS_ONLY, HOLDS),
        VerdictChange("box/a", "Same.", FAILS, FAILS),
        VerdictChange("box/Old.", "Old.", HOLDS, None),
    ]


def test_the_report_lists_every_verdict_and_then_what_changed():
    lines = change_lines(
        [
            VerdictChange("toy/a", "A.", HOLDS, HOLDS),
            VerdictChange("toy/b", "B.", HOLDS, FAILS),
            VerdictChange("toy/c", "C.", None, HOLDS),
        ]
    )
    assert lines[:3] == ["toy/a: holds -> holds", "toy/b: holds -> does not hold here", "toy/c: not there -> holds"]
    assert "2 of 3 verdicts changed." in lines
    assert "toy/a: A." not in lines
    assert "toy/b: B." in lines


def test_the_stored_reproduction_is_the_same_as_itself():
    data = json.loads(STORED.read_text(encoding="utf-8"))
    changes = compare_verdicts(data, data)
    assert len(changes) == sum(len(section["verdicts"]) for section in data["experiments"])
    assert all(one.old == one.new is not None for one in changes)
