"""One shared grid of settings for the methods of the paper, so that reports can show each method at its best too.

A setting holds the parameters that differ from the authors' preset; ``{}`` is the preset itself. The best setting has
the highest mean reward over the tuning seeds 1000 to 1004, which no reported number uses. A grid that tunes comes in
two stages: first the tuning runs, then the runs of the chosen settings.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from spuir.reproduction.base import Scope
from spuir.reproduction.policy_runs import Setup
from spuir.reproduction.tasks import Result, Task
from spuir.results.figures import TUNED

Setting = Mapping[str, Any]
"""Parameters that differ from the authors' preset."""

METHODS = ("sbucb", "puir", "spuir", "puir-rs", "spuir-rs", "bexp3", "bexp3-ipw", "blts-b", "dfm-s")
"""The methods of the paper's table."""

ALPHAS = (0.0, 0.03, 0.1, 0.2, 0.5, 1.0)
"""Values of α for every method that has one, including the authors' 0.1, 0.2 and 1."""

RIDGES = (1.0, 10.0)
"""The authors' λ, and one that shrinks estimates as imputation does."""

TUNING_SEEDS = range(1000, 1005)
PRESET = "paper"

QUICK_METHODS = ("sbucb", "puir", "spuir")
"""In a quick run these choose between two settings on one seed; the others keep the authors' setting."""

SLOW_ENVIRONMENTS = ("criteo-recent", "criteo-all")
"""Where runs take long, methods choose among the settings with the authors' λ only, about half of them."""


def _grid(authors: Setting, others: Iterable[Setting]) -> tuple[Setting, ...]:
    """Return the authors' setting as ``{}``, then the others without the one that repeats it."""
    return ({}, *(setting for setting in others if setting != authors))


def _optimistic(alpha: float, ridges: Sequence[float] = RIDGES) -> tuple[Setting, ...]:
    """Return the twelve pairs (α, λ) of every method with an α; ``alpha`` is the authors'."""
    pairs = [{"alpha": one, "ridge": ridge} for ridge in ridges for one in ALPHAS]
    return _grid({"alpha": alpha, "ridge": RIDGES[0]}, pairs)


_EXPONENTIAL = _grid(
    {},
    [
        {"accumulate": "steps", "rate": rate, "ridge": ridge}
        for ridge in RIDGES
        for rate in (None, 0.003, 0.01, 0.03, 0.1)
    ],
)
_BALANCED = _grid(
    {}, [{"propensity_draws": None, "scale": scale, "ridge": ridge} for ridge in RIDGES for scale in (0.0, 0.05, 0.25)]
)
_DELAYED = _grid({}, [{"memory": "laplace", "ridge": ridge} for ridge in (0.1, *RIDGES)])

SETTINGS: Mapping[str, tuple[Setting, ...]] = {
    "sbucb": _optimistic(1.0),
    "puir": _optimistic(0.1),
    "spuir": _optimistic(0.2),
    "puir-rs": _optimistic(0.1),
    "spuir-rs": _optimistic(0.1),
    "bexp3": _EXPONENTIAL,
    "bexp3-ipw": _EXPONENTIAL,
    "blts-b": _BALANCED,
    "dfm-s": _DELAYED,
    "puir-kernel": _optimistic(0.1, RIDGES[:1]),
    "spuir-kernel": _optimistic(0.2, RIDGES[:1]),
}
"""The settings of each method, the authors' first: at most twelve, fewer for slow methods.

Optimistic methods share twelve pairs of α and λ and keep the authors' imputation and sketch. Exponential weights sum
over steps, as in their papers, at several rates. BLTS-B uses exact propensities. DFM-S keeps all rows."""


def tuned(method: str) -> str:
    """Return the label of a method at its own best setting."""
    return method + TUNED


def settings_of(scope: Scope, method: str, environment: str) -> Sequence[Setting]:
    """Return the settings that a method may choose from in an environment, the authors' first."""
    every = SETTINGS[method]
    if environment in SLOW_ENVIRONMENTS:
        every = tuple(setting for setting in every if setting.get("ridge", RIDGES[0]) == RIDGES[0])
    return scope.axis(every, every[:2] if method in QUICK_METHODS else every[:1])


def tuning_tasks(scope: Scope, method: str, setup: Setup) -> list[Task]:
    """Return the runs that choose a method's setting: each setting on each tuning seed, or none if it has only one."""
    settings = settings_of(scope, method, setup.environment)
    if len(settings) == 1:
        return []
    seeds = scope.axis(TUNING_SEEDS, TUNING_SEEDS[:1])
    return [task for setting in settings for task in setting_tasks(seeds, method, setting, setup)]


def setting_tasks(seeds: Iterable[int], method: str, setting: Setting, setup: Setup) -> list[Task]:
    """Return the runs of one setting, one per seed."""
    return setup.runs(seeds, method, preset=PRESET, parameters=setting)


def best(scope: Scope, results: Iterable[Result], method: str, setup: Setup) -> dict[str, Any] | None:
    """Return the setting with the highest mean reward over the tuning seeds, the first of equals.

    None while a tuning run is missing.
    """
    return _best(scope, _by_key(results), method, setup)


def both(scope: Scope, results: Iterable[Result], methods: Iterable[str], setup: Setup) -> list[Task]:
    """Return the runs of each method at the authors' setting, its tuning runs and, once known, its best setting."""
    known, tasks = _by_key(results), list[Task]()
    for method in methods:
        tasks += setting_tasks(scope.seeds, method, {}, setup)
        tasks += tuning_tasks(scope, method, setup)
        chosen = _best(scope, known, method, setup)
        if chosen:
            tasks += setting_tasks(scope.seeds, method, chosen, setup)
    return tasks


def labelled(scope: Scope, results: Iterable[Result], methods: Iterable[str], setup: Setup) -> dict[str, list[Result]]:
    """Return the results on the reported seeds: "puir" at the authors' setting, "puir (tuned)" at its best one.

    The two are equal where the authors' setting is the best. A label without results is left out.
    """
    known, groups = _by_key(results), dict[str, list[Result]]()
    for method in methods:
        chosen = _best(scope, known, method, setup)
        for label, setting in ((method, {}), (tuned(method), chosen)):
            if setting is not None:
                tasks = setting_tasks(scope.seeds, method, setting, setup)
                groups[label] = [known[task.key] for task in tasks if task.key in known]
    return {label: group for label, group in groups.items() if group}


def at_alpha(method: str, alpha: float) -> Setting:
    """Return the setting of the grid in which an optimistic method has this α and otherwise the authors' values."""
    setting = {"alpha": alpha, "ridge": RIDGES[0]}
    return setting if setting in SETTINGS[method] else {}


def words(setting: Setting | None) -> str:
    """Return a setting as a table shows it."""
    if setting is None:
        return "not chosen yet"
    return ", ".join(f"{name} = {value}" for name, value in setting.items()) or "the authors'"


def _by_key(results: Iterable[Result]) -> dict[str, Result]:
    return {result.task.key: result for result in results}


def _best(scope: Scope, known: Mapping[str, Result], method: str, setup: Setup) -> dict[str, Any] | None:
    settings, tasks = settings_of(scope, method, setup.environment), tuning_tasks(scope, method, setup)
    return highest(settings, tasks, known, "average_reward") if tasks else dict(settings[0])


def highest(
    settings: Sequence[Setting], tasks: Sequence[Task], known: Mapping[str, Result], column: str, sign: int = 1
) -> dict[str, Any] | None:
    """Return the setting with the highest mean last value of a column, the first of equals; None if a run is missing.

    ``tasks`` has as many runs of each setting, in the order of the settings. ``sign`` −1 takes the lowest mean.
    """
    if any(task.key not in known for task in tasks):
        return None
    values = np.reshape([known[task.key].rows[-1][column] for task in tasks], (len(settings), -1))
    return dict(settings[int(np.argmax(sign * values.mean(axis=1)))])
