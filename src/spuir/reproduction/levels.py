"""What needs no learning: the uniform policy, the best fixed action, and the best action for each context.

They stand beside every comparison, because on some data the best fixed action is most of the story.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spuir.base.streams import generator
from spuir.environments import make_environment
from spuir.reproduction.runner import Result, Task
from spuir.reproduction.verdicts import last, summary

LEVELS = ("uniform", "best fixed", "oracle")


def levels(
    *, environment: str, world: Mapping[str, Any], episodes: int, batch_size: int, seed: int
) -> list[dict[str, Any]]:
    """Return the mean expected reward of each level on the very contexts that a run of this seed meets.

    The row also says how many actions and columns the world has, and whether its rows are generated.
    """
    place = make_environment(environment, **{"seed": seed} | dict(world))
    sums, best = np.zeros(place.n_actions), 0.0
    for n in range(1, episodes + 1):
        expected = place.expected_rewards(place.draw(batch_size, generator(seed, "environment", "contexts", n)))
        sums += expected.sum(axis=0)
        best += float(expected.max(axis=1).sum())
    values = np.array([sums.mean(), sums.max(), best]) / (episodes * batch_size)
    facts = {"actions": place.n_actions, "columns": place.dim, "generated": bool(getattr(place, "generated", False))}
    return [dict(zip(LEVELS, values.tolist(), strict=True)) | facts]


def levelling(
    environment: str, *, episodes: int, batch_size: int, seed: int, world: Mapping[str, Any] | None = None
) -> Task:
    """Return the task of :func:`levels` with these arguments."""
    return Task(
        function="spuir.reproduction.levels:levels",
        arguments={
            "environment": environment,
            "world": dict(world or {}),
            "episodes": episodes,
            "batch_size": batch_size,
            "seed": seed,
        },
    )


def mean_levels(results: Sequence[Result]) -> dict[str, float]:
    """Return each level as a mean over the seeds, for a figure; none without results."""
    return {name: summary(last(results, name).values())[0] for name in LEVELS} if results else {}


def level_rows(results: Sequence[Result], first: str, title: str) -> list[dict[str, Any]]:
    """Return a table row for each level, its name under ``first`` and its value under ``title``."""
    return [
        {first: name, title: mean, f"{title} ±": error}
        for name in LEVELS
        for mean, error in [summary(last(results, name).values())]
    ]
