"""Four further sets: one whose best action depends on the context, and three real tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from spuir.reproduction.base import Experiment, Findings, ReportTable, Scope
from spuir.reproduction.claims import Claim
from spuir.reproduction.comparison import RIVAL, Compared, MethodComparison
from spuir.reproduction.policy_runs import Setup
from spuir.reproduction.sets import LENGTHS, further
from spuir.reproduction.tasks import Result, Task
from spuir.reproduction.tuning import METHODS, SearchedMethod

KERNEL = "puir-kernel"
CAST: Mapping[str, SearchedMethod] = {
    **{name: METHODS[name] for name in ("sbucb", "puir", "spuir", "bexp3", "blts-b")},
    KERNEL: SearchedMethod(policy=KERNEL, tuned=("alpha", "ridge")),
}
"""Five methods of the paper, and the kernel form of PUIR with its own choice of the bandwidth."""


def comparisons(scope: Scope) -> dict[str, MethodComparison | str]:
    """Return the comparison on each set or, where it cannot be played, the reason."""
    made: dict[str, MethodComparison | str] = {}
    for name in scope.axis(tuple(LENGTHS), ("heterogeneous",)):
        setup = further(scope, name)
        if isinstance(setup, str):
            made[name] = setup
        else:
            made[name] = MethodComparison(name=name, setup=_always(setup), methods=CAST, coded=False)
    return made


def _always(setup: Setup) -> Callable[[Scope], Setup]:
    return lambda scope: setup


def played(scope: Scope) -> dict[str, MethodComparison]:
    """Return the sets that can be played."""
    return {name: one for name, one in comparisons(scope).items() if isinstance(one, MethodComparison)}


def grid(scope: Scope, results: Sequence[Result]) -> list[Task]:
    """Return the tasks of every set at hand."""
    return [task for one in played(scope).values() for task in one.grid(scope, results)]


def report(scope: Scope, results: Sequence[Result]) -> Findings:
    """Return the comparison on every set at hand, and which sets were left out."""
    found = {name: Compared(one, scope, results) for name, one in played(scope).items()}
    found = {name: one for name, one in found.items() if RIVAL in one}
    tables = [replace(one.table(), name=name) for name, one in found.items()]
    absent = [{"set": name, "reason": why} for name, why in comparisons(scope).items() if isinstance(why, str)]
    if absent:
        tables.append(ReportTable(name="absent", title="Sets that were left out", rows=absent))
    return Findings(
        tables=tables,
        claims=[claim for one in found.values() for claim in claims(one)],
        drawings={name: one.drawing(_title(name, one)) for name, one in found.items()},
    )


def _title(name: str, one: Compared) -> str:
    episodes, batch_size = LENGTHS[name]
    shape = f"M = {one.facts('actions')}, d = {one.facts('columns')}"
    return f"{name}: {shape}, N = {episodes}, B = {batch_size:,}"


def claims(one: Compared) -> list[Claim]:
    """Return our questions about one set: whether imputation helps, and whether a kernel does."""
    ours: dict[str, Any] = {"source": "ours", "place": "beyond the paper"}
    return [
        one.claim(
            f"{one.name}/imputation-helps",
            [("puir", RIVAL)],
            wording=f"PUIR earns more than SBUCB on {one.name}.",
            **ours,
        ),
        one.claim(
            f"{one.name}/kernel-helps",
            [(KERNEL, "puir")],
            wording=f"PUIR on kernel features earns more than PUIR on {one.name}.",
            **ours,
        ),
    ]


EXPERIMENT = Experiment(name="real", title="Four further sets", source="beyond the paper", grid=grid, report=report)
