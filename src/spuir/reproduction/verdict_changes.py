"""What changed between two stored reproductions: the outcome of every verdict, old and new."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class VerdictChange(NamedTuple):
    """One verdict in two reproductions; the outcome is None where a reproduction does not have it."""

    id: str
    claim: str
    old: str | None
    new: str | None


def compare_verdicts(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[VerdictChange]:
    """Return every verdict of two reproductions, each as its ``results.json`` holds it.

    Verdicts are matched by id. Reproductions before ids existed are matched by experiment and claim.
    """
    known = {key: verdict for verdict in _verdicts(old) for key in _keys(verdict)}
    changes: list[VerdictChange] = []
    matched: set[int] = set()
    for verdict in _verdicts(new):
        before = next((known[key] for key in _keys(verdict) if key in known), None)
        if before is not None:
            matched.add(id(before))
        outcome = None if before is None else before["outcome"]
        changes.append(VerdictChange(verdict["id"], verdict["claim"], outcome, verdict["outcome"]))
    gone = [verdict for verdict in known.values() if id(verdict) not in matched]
    unique = {verdict["id"]: verdict for verdict in gone}
    changes += [VerdictChange(verdict["id"], verdict["claim"], verdict["outcome"], None) for verdict in unique.values()]
    return changes


def _verdicts(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return all verdicts of a reproduction. One without an id is called by its experiment and its claim."""
    return [
        {"id": f"{section['name']}/{verdict['claim']}", **verdict, "experiment": section["name"]}
        for section in data["experiments"]
        for verdict in section["verdicts"]
    ]


def _keys(verdict: Mapping[str, Any]) -> list[str]:
    """Return what a verdict is matched by: its id, then its experiment and claim."""
    return [verdict["id"], f"{verdict['experiment']}/{verdict['claim']}"]


def change_lines(changes: Sequence[VerdictChange]) -> list[str]:
    """Return a report on the changes: one line per verdict, then those that changed, appeared or disappeared."""
    lines = [f"{one.id}: {one.old or 'not there'} -> {one.new or 'not there'}" for one in changes]
    changed = [one for one in changes if one.old != one.new]
    lines += ["", f"{len(changed)} of {len(changes)} verdicts changed."]
    for one in changed:
        lines += [
            "",
            f"{one.id}: {one.claim}",
            f"    old: {one.old or 'not there'}",
            f"    new: {one.new or 'not there'}",
        ]
    return lines
