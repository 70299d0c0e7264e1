"""What a check of a log finds: a problem, how bad it is, the rows it was seen in, and what to do."""

import shlex
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spuir.base.records import Mask
from spuir.logs.doctor.problems import PROBLEMS

SEVERITIES = ("note", "warning", "error")
"""Good to know; probably a mistake; refused by training, or learned wrongly."""

SHOWN_ROWS = 5
"""Rows that a finding names; all of them are counted."""


class BatchLocation(NamedTuple):
    """Where a batch is: what its source is called, the number of its first row there, and the rows before it."""

    source: str
    first: int
    start: int

    def row(self, row: int, value: str) -> "ProblemRow":
        """Return a row of the batch, with its value as text."""
        return ProblemRow(self.source, self.first + row, value)


class ProblemRow(NamedTuple):
    """One row in which a problem was seen: the source, the number of the row there from 0, and the value as text."""

    source: str
    row: int
    value: str


@dataclass(frozen=True)
class Finding:
    """One problem with a log.

    Parameters
    ----------
    check
        The name of the check that found it, a key of :data:`spuir.logs.doctor.problems.PROBLEMS`.
    severity
        One of :data:`SEVERITIES`.
    column
        The column it is about, or several separated by commas; None for the log as a whole.
    problem, effect, remedy
        What is wrong, what follows, and what to do, in a sentence each.
    count
        In how many rows.
    rows
        The first of these.
    """

    check: str
    severity: str
    column: str | None
    problem: str
    effect: str
    remedy: str
    count: int = 0
    rows: tuple[ProblemRow, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        return asdict(self) | {"rows": [row._asdict() for row in self.rows]}


def finding(check: str, column: str | None, problem: str, remedy: str | None = None) -> Finding:
    """Return a finding of a kind; ``remedy`` replaces the usual one."""
    severity, effect, usual = PROBLEMS[check]
    usual = usual.replace("NAME", shlex.quote(column or "NAME"))
    return Finding(check, severity, column, problem, effect, remedy or usual)


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings with those that say the same about several columns, and name no rows, as one."""
    together: dict[Any, list[Finding]] = {}
    for at, one in enumerate(findings):
        same = at if one.rows or one.column is None else (one.check, one.problem)
        together.setdefault(same, []).append(one)
    return [_one(some) for some in together.values()]


def _one(same: list[Finding]) -> Finding:
    if len(same) == 1:
        return same[0]
    names = [one.column or "" for one in same]
    dropping = " ".join(f"--rename {shlex.quote(name)}=" for name in names)
    remedy = PROBLEMS[same[0].check].remedy.replace("--rename NAME=", dropping)
    return replace(same[0], column=", ".join(names), remedy=remedy)


@dataclass
class ProblemRows:
    """Rows in which something was seen: all counted, the first few kept."""

    count: int = 0
    first: list[ProblemRow] = field(default_factory=list[ProblemRow])

    def add(self, seen: Mask, where: BatchLocation, values: Any = None) -> None:
        """Add the rows (n,) of a batch that are marked, with their values (n,), or a function from row to text."""
        found = np.count_nonzero(seen)
        if not found:
            return
        self.count += int(found)
        for row in np.flatnonzero(seen)[: SHOWN_ROWS - len(self.first)].tolist():
            self.first.append(where.row(row, _shown(values, row)))

    def __add__(self, other: "ProblemRows") -> "ProblemRows":
        """Return the rows of both, in their order."""
        rows = sorted([*self.first, *other.first], key=lambda row: (row.source, row.row))
        return ProblemRows(self.count + other.count, rows[:SHOWN_ROWS])

    def finding(self, check: str, column: str | None, problem: str) -> list[Finding]:
        """Return a finding about these rows, none if there are none."""
        if not self.count:
            return []
        return [replace(finding(check, column, problem), count=self.count, rows=tuple(self.first))]


def _shown(values: Any, row: int) -> str:
    if values is None:
        return ""
    value: Any = values(row) if callable(values) else values[row]
    value = value.as_py() if hasattr(value, "as_py") else value
    return f"{value:g}" if isinstance(value, float) else str(value)


def numbers(column: Any) -> NDArray[np.float64]:
    """Return an Arrow column of numbers as float64 (n,), NaN where missing."""
    return column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)


def missing(column: Any) -> Mask:
    """Return which values (n,) of an Arrow column are null."""
    return column.is_null().to_numpy(zero_copy_only=False)
