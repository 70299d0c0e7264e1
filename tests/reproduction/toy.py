"""Small experiments with which the runner and the report are tried; worker processes find their tasks here too."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spuir.base.streams import generator
from spuir.reproduction.base import Drawing, Experiment, Findings, ReportTable, Scope
from spuir.reproduction.claims import Claim, Sample, difference
from spuir.reproduction.schedule import carry_out
from spuir.reproduction.store import open_store
from spuir.reproduction.tasks import Result, Task
from spuir.results import figures

HERE = "tests.reproduction.toy"


def draw(*, log: str, cell: int, seed: int, pause: float = 0.0) -> list[dict[str, Any]]:
    """Return two rows that depend on the arguments alone, and note in a side file that it was done."""
    time.sleep(pause)
    rng = generator(seed, "toy", cell)
    rows = [{"episode": n, "reward": float(rng.random())} for n in (1, 2)]
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(f"{cell} {seed}\n")
    return rows


def fail(*, unless: str, seed: int) -> list[dict[str, Any]]:
    """Fail, except where a file says that it is mended."""
    if not Path(unless).exists():
        raise ValueError(f"seed {seed} is broken")
    return [{"reward": 0.0}]


def die(*, seed: int) -> list[dict[str, Any]]:
    """Bring the process down."""
    os._exit(3)


def strange(*, seed: int) -> list[dict[str, Any]]:
    """Return what no file of results can hold."""
    return [{"reward": object()}]


def drawing(log: Path, cell: int, seed: int, *, pause: float = 0.0, alone: bool = False) -> Task:
    arguments = {"log": str(log), "cell": cell, "seed": seed} | ({"pause": pause} if pause else {})
    return Task(function=f"{HERE}:draw", arguments=arguments, alone=alone)


def grid(plan: Scope, results: Sequence[Result]) -> list[Task]:
    """Ask for cells 0 and 1, then for ten times the better one: a choice that needs the results."""
    log = folder_of(plan) / "log"
    first = [drawing(log, cell, seed) for cell in (0, 1) for seed in plan.seeds]
    found = {result.task.key: result for result in results}
    if any(task.key not in found for task in first):
        return first
    means = {
        cell: sum(found[drawing(log, cell, seed).key].rows[-1]["reward"] for seed in plan.seeds) for cell in (0, 1)
    }
    chosen = 10 * max(means, key=lambda cell: means[cell])
    return first + [drawing(log, 10 + chosen, seed) for seed in plan.seeds]


def folder_of(plan: Scope) -> Path:
    """Return the folder for side files, which a plan hands on as its data."""
    assert plan.data is not None
    return plan.data


def report(plan: Scope, results: Sequence[Result]) -> Findings:
    """Return one of everything, and something to escape."""
    figure, (ax,) = figures.new_figure(1)
    ax.plot([1, 2], [results[0].rows[0]["reward"], results[0].rows[1]["reward"]])
    ax.set(xlabel="episode", ylabel="reward")
    rows = [
        {"cell": result.arguments["cell"], "reward": result.rows[-1]["reward"], "reward ±": 0.5} for result in results
    ]
    odd = [{"what": "a | b <c>", "n": 1234567, "none": None, "small": -1.5e-7}]
    return Findings(
        tables=[
            ReportTable(name="", title="Rewards", rows=rows, formats={"reward": ".3f"}),
            ReportTable(name="odd", title="Odd & ends", rows=odd),
        ],
        claims=claims(),
        drawings={"": Drawing(figure, "Rewards & more, -0.5 to 5%.")},
    )


def claims() -> list[Claim]:
    """Return a claim for every outcome."""
    low, high = (
        Sample(name=name, values={seed: level + 0.01 * seed for seed in range(4)}, runs=dict.fromkeys(range(4), "ab"))
        for name, level in (("low", -0.5), ("high", 1.0))
    )
    about: dict[str, Any] = {"place": "Figure 0"}
    rise, fall = difference("high − low", high, low), difference("low − high", low, high)
    return [
        Claim(id="one-two", wording="One < two.", coded=[rise], **about),
        Claim(id="two-one", wording="Two is one.", coded=[fall], **about),
        Claim(id="open", wording="Who knows?", **about),
        Claim(id="untested", wording="Nobody.", coded=[rise], untested="5% is not 7 %.", **about),
        Claim(id="ours", wording="Here only.", coded=[rise], tuned=[fall], fair=True, source="ours", **about),
    ]


EXPERIMENT = Experiment(
    name="toy",
    title="A toy & its box",
    source="Figure 0",
    grid=grid,
    report=report,
)


def paused_grid(plan: Scope, results: Sequence[Result]) -> list[Task]:
    """Ask for twenty short tasks."""
    return [drawing(folder_of(plan) / "log", cell, seed, pause=0.05) for cell in range(10) for seed in plan.seeds]


PAUSED = replace(EXPERIMENT, name="paused", grid=paused_grid)


def broken_grid(plan: Scope, results: Sequence[Result]) -> list[Task]:
    """Ask for tasks that fail, die and return nonsense, between those that do what they should."""
    data = folder_of(plan)
    bad = [Task(function=f"{HERE}:{name}", arguments={"seed": 0}) for name in ("die", "strange")]
    bad.append(Task(function=f"{HERE}:fail", arguments={"unless": str(data / "mended"), "seed": 0}))
    return [drawing(data / "log", 0, 0), *bad, drawing(data / "log", 1, 0), drawing(data / "log", 2, 0)]


BROKEN = replace(EXPERIMENT, name="broken", grid=broken_grid)


def timed_grid(plan: Scope, results: Sequence[Result]) -> list[Task]:
    """Ask for two timed tasks before two others."""
    log = folder_of(plan) / "log"
    timed = [drawing(log, cell, 0, alone=True) for cell in (0, 1)]
    return [*timed, drawing(log, 0, 0), drawing(log, 2, 0), drawing(log, 3, 0)]


TIMED = replace(EXPERIMENT, name="timed", grid=timed_grid)


def refusing_grid(plan: Scope, results: Sequence[Result]) -> list[Task]:
    """Ask for nothing, and say why not."""
    raise ValueError("no idea what to ask for")


REFUSING = replace(EXPERIMENT, name="refusing", grid=refusing_grid)


def refusing_report(plan: Scope, results: Sequence[Result]) -> Findings:
    """Find nothing, and say why not."""
    raise ValueError("nothing to say")


SILENT = replace(EXPERIMENT, name="silent", report=refusing_report)


if __name__ == "__main__":
    # As in a terminal, even where the tests run in the background of a shell, which ignores interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    out, side, workers = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    with open_store(out) as store:
        carry_out([PAUSED], Scope(repeats=2, data=side), store, workers)
