"""How time grows around the large shape, one of B, M and d varied at a time."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

from benchmarks.shapes import LARGE, Shape, draw_rows
from benchmarks.speed import Effort, bandit, learner, sbucb
from benchmarks.timing import Task, exponent

Curve = dict[str, list[float]]
AXES: dict[str, tuple[str, tuple[int, ...]]] = {
    "B": ("rows", (25_000, 50_000, 100_000, 200_000)),
    "M": ("actions", (5, 10, 20, 40, 80)),
    "d": ("dim", (50, 70, 100, 140, 200)),
}


def learn_task(shape: Shape) -> Task:
    """Return the task of learning one batch exactly."""
    return learner(bandit("puir", shape, draw_rows(shape, 0)), draw_rows(shape, 1))


def decide_task(shape: Shape) -> Task:
    """Return the task of deciding one batch with all widths."""
    dense, contexts = sbucb(shape, draw_rows(shape, 0)), draw_rows(shape, 1).contexts
    return lambda: dense.decide(contexts)


TASKS: dict[str, Callable[[Shape], Task]] = {"learn": learn_task, "decide": decide_task}


def points(axis: str) -> dict[int, Shape]:
    """Return the shapes along one axis."""
    name, values = AXES[axis]
    return {value: replace(LARGE, **{name: value}) for value in values}


def measure(effort: Effort, say: Callable[[str], None]) -> tuple[dict[str, Curve], dict[str, float]]:
    """Return the curves and the fitted exponents."""
    curves: dict[str, Curve] = {}
    found: dict[str, float] = {}
    for what, axis in product(TASKS if effort.heavy else ["learn"], AXES):
        say(f"exponent of {what} in {axis}")
        shapes = points(axis)
        clocks = effort.race({str(size): TASKS[what](shape) for size, shape in shapes.items()})
        curve = {"size": [float(size) for size in shapes], "median_ms": [clock.median for clock in clocks.values()]}
        curves[f"{what}, {axis}"] = curve
        found[f"scaling/{what}/{axis}"] = exponent(curve["size"], [clock.best for clock in clocks.values()])
    return curves, found
