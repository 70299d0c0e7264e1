"""One shared grid of settings for the methods of the paper, so that each is shown at its own best as well.

A setting is what is changed of the authors' preset; ``{}`` is that preset itself. The best setting is the one with
the highest mean reward over seeds of its own, 1000 to 1004, on which no reported number rests. A grid that tunes comes
in two stages: while a choice is open it asks for the tuning runs, then for the runs of what was chosen.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NotRequired, TypedDict, Unpack

import numpy as np

from spuir.reproduction.base import Plan
from spuir.reproduction.runner import Result, Task
from spuir.reproduction.trials import playing

Setting = Mapping[str, Any]
"""Parameters that differ from the authors' preset."""

METHODS = ("sbucb", "puir", "spuir", "puir-rs", "spuir-rs", "bexp3", "bexp3-ipw", "blts-b", "dfm-s")
"""The methods of the paper's table."""

ALPHAS = (0.0, 0.03, 0.1, 0.2, 0.5, 1.0)
"""Weights of the width, the same for every method that has one; the authors' 0.1, 0.2 and 1 are among them."""

RIDGES = (1.0, 10.0)
"""The authors' λ, and one that holds estimates back as imputation does."""

TUNING_SEEDS = range(1000, 1005)
PRESET = "paper"
TUNED = "{} (tuned)"

QUICK_METHODS = ("sbucb", "puir", "spuir")
"""In quick form these choose between two settings on one seed; the others keep the authors' setting."""

COSTLY = ("criteo-recent", "criteo-all")
"""Where runs take long, methods choose among the settings with the authors' λ only: about half of them."""


class Place(TypedDict):
    """Where methods are compared, beside the environment's name: N, B, and the environment's parameters."""

    episodes: int
    batch_size: int
    world: NotRequired[Mapping[str, Any] | None]


def _grid(authors: Setting, others: Iterable[Setting]) -> tuple[Setting, ...]:
    """Return the authors' setting as ``{}`` and the others behind it, without the one that repeats it."""
    return ({}, *(setting for setting in others if setting != authors))


def _optimistic(alpha: float, ridges: Sequence[float] = RIDGES) -> tuple[Setting, ...]:
    """Return the twelve pairs (α, λ) that every method with an α is offered; ``alpha`` is the authors'."""
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
"""What each method may choose from, the authors' setting first: at most twelve, fewer for the slow ones.

Optimistic methods share twelve pairs of α and λ and keep the authors' imputation and sketch. Exponential weights sum
over steps, as their papers say, at several rates. BLTS-B takes exact propensities. DFM-S remembers everything."""


def settings_of(plan: Plan, method: str, environment: str) -> Sequence[Setting]:
    """Return the settings that a plan lets a method choose from in an environment, the authors' first."""
    every = SETTINGS[method]
    if environment in COSTLY:
        every = tuple(setting for setting in every if setting.get("ridge", RIDGES[0]) == RIDGES[0])
    return plan.axis(every, every[:2] if method in QUICK_METHODS else every[:1])


def tuning_tasks(plan: Plan, method: str, environment: str, **place: Unpack[Place]) -> list[Task]:
    """Return the runs that choose a method's setting: each setting on each tuning seed; none where nothing is open."""
    settings = settings_of(plan, method, environment)
    if len(settings) == 1:
        return []
    seeds = plan.axis(TUNING_SEEDS, TUNING_SEEDS[:1])
    return [task for setting in settings for task in setting_tasks(seeds, method, setting, environment, **place)]


def setting_tasks(
    seeds: Iterable[int], method: str, setting: Setting, environment: str, **place: Unpack[Place]
) -> list[Task]:
    """Return the runs of one setting, one for each seed."""
    return [playing(method, environment, preset=PRESET, parameters=setting, seed=seed, **place) for seed in seeds]


def best(
    plan: Plan, results: Iterable[Result], method: str, environment: str, **place: Unpack[Place]
) -> dict[str, Any] | None:
    """Return the setting with the highest mean reward over the tuning seeds, the first of equals.

    None while a tuning run is missing.
    """
    return _best(plan, _index(results), method, environment, **place)


def both(
    plan: Plan, results: Iterable[Result], methods: Iterable[str], environment: str, **place: Unpack[Place]
) -> list[Task]:
    """Return the runs of each method at the authors' setting, its tuning runs and, once known, its best setting."""
    known, tasks = _index(results), list[Task]()
    for method in methods:
        tasks += setting_tasks(plan.seeds, method, {}, environment, **place)
        tasks += tuning_tasks(plan, method, environment, **place)
        chosen = _best(plan, known, method, environment, **place)
        if chosen:
            tasks += setting_tasks(plan.seeds, method, chosen, environment, **place)
    return tasks


def labelled(
    plan: Plan, results: Iterable[Result], methods: Iterable[str], environment: str, **place: Unpack[Place]
) -> dict[str, list[Result]]:
    """Return the results on the plan's seeds: "puir" at the authors' setting, "puir (tuned)" at its best one.

    The two are equal where the authors' setting is the best; a label without results is left out.
    """
    known, groups = _index(results), dict[str, list[Result]]()
    for method in methods:
        chosen = _best(plan, known, method, environment, **place)
        for label, setting in ((method, {}), (TUNED.format(method), chosen)):
            if setting is not None:
                tasks = setting_tasks(plan.seeds, method, setting, environment, **place)
                groups[label] = [known[task.key] for task in tasks if task.key in known]
    return {label: found for label, found in groups.items() if found}


def at_alpha(method: str, alpha: float) -> Setting:
    """Return the setting of the grid in which an optimistic method has this α, and the authors' values otherwise."""
    setting = {"alpha": alpha, "ridge": RIDGES[0]}
    return setting if setting in SETTINGS[method] else {}


def words(setting: Setting | None) -> str:
    """Return a setting as a table shows it."""
    if setting is None:
        return "not chosen yet"
    return ", ".join(f"{name} = {value}" for name, value in setting.items()) or "the authors'"


def _index(results: Iterable[Result]) -> dict[str, Result]:
    return {result.task.key: result for result in results}


def _best(
    plan: Plan, known: Mapping[str, Result], method: str, environment: str, **place: Unpack[Place]
) -> dict[str, Any] | None:
    settings = settings_of(plan, method, environment)
    keys = [task.key for task in tuning_tasks(plan, method, environment, **place)]
    if any(key not in known for key in keys):
        return None
    if not keys:
        return dict(settings[0])
    rewards = np.reshape([known[key].rows[-1]["average_reward"] for key in keys], (len(settings), -1))
    return dict(settings[int(np.argmax(rewards.mean(axis=1)))])
