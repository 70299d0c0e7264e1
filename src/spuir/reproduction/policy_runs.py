"""The tasks that most experiments share: run one policy in one environment, or measure what needs no learning.

What needs no learning are three reference levels: the uniform policy, the best fixed action, and the best action for
each context. Reports show them with every comparison, because on some data the best fixed action earns almost all
there is to earn.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spuir.base.streams import generator
from spuir.environments import make_environment
from spuir.loop import run
from spuir.policies import make_policy
from spuir.reproduction.tasks import Result, Task
from spuir.reproduction.verdicts import last, mean_of, with_error
from spuir.results.history import History

CHECKPOINTS = 30
LEVELS = ("uniform", "best fixed", "oracle")


def play(
    *,
    policy: str,
    preset: str | None,
    parameters: Mapping[str, Any],
    environment: str,
    world: Mapping[str, Any],
    episodes: int,
    batch_size: int,
    seed: int,
    feedback: float,
) -> list[dict[str, Any]]:
    """Run one policy in one environment; return running values at up to 30 episodes, including the last."""
    history = run(
        make_policy(policy, preset=preset, **parameters),
        make_environment(environment, **{"seed": seed} | dict(world)),
        episodes,
        batch_size,
        seed,
        feedback=feedback,
    )
    return checkpoints(history)


def checkpoints(history: History) -> list[dict[str, Any]]:
    """Return the running values at each checkpoint, one row each; the last row covers the whole run."""
    length = len(history)
    steps = history.batch_size * np.arange(1, length + 1)
    columns = {
        "average_reward": history.average_reward,
        "regret_per_step": history.regret / steps,
        "fixed_regret_per_step": history.fixed_regret / steps,
        "decide_seconds": np.cumsum(history.decide_seconds),
        "learn_seconds": np.cumsum(history.learn_seconds),
    }
    if history.clicks is not None and history.conversions is not None:
        clicks, conversions = np.cumsum(history.clicks), np.cumsum(history.conversions)
        columns |= {"cvr": conversions / np.maximum(clicks, 1), "ctcvr": conversions / steps}
    kept = np.unique(np.linspace(0, length - 1, min(length, CHECKPOINTS)).round().astype(int))
    return [{"episode": int(n) + 1} | {name: float(values[n]) for name, values in columns.items()} for n in kept]


def levels(
    *, environment: str, world: Mapping[str, Any], episodes: int, batch_size: int, seed: int
) -> list[dict[str, Any]]:
    """Return the mean expected reward of each reference level on the contexts that a run with this seed meets.

    The row also says how many actions and columns the environment has, and whether its rows are generated.
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


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Where policies run: an environment with its parameters ``world``, and the length of a run."""

    environment: str
    episodes: int
    batch_size: int
    world: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def arguments(self, seed: int) -> dict[str, Any]:
        """Return the arguments that a task of this setup has, whatever runs."""
        return {
            "environment": self.environment,
            "world": dict(self.world),
            "episodes": self.episodes,
            "batch_size": self.batch_size,
            "seed": seed,
        }

    def runs(
        self,
        seeds: Iterable[int],
        policy: str,
        *,
        preset: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        feedback: float = 0.0,
    ) -> list[Task]:
        """Return the tasks of :func:`play`, one per seed. Equal runs are one task, whichever experiment asks."""
        given = {"policy": policy, "preset": preset, "parameters": dict(parameters or {}), "feedback": feedback}
        return [Task.of(play, **given, **self.arguments(seed)) for seed in seeds]

    def levels(self, seeds: Iterable[int]) -> list[Task]:
        """Return the tasks of :func:`levels`, one per seed."""
        return [Task.of(levels, **self.arguments(seed)) for seed in seeds]


def mean_levels(results: Sequence[Result]) -> dict[str, float]:
    """Return each reference level as a mean over the seeds, or nothing without results."""
    return {name: mean_of(last(results, name)) for name in LEVELS} if results else {}


def level_rows(results: Sequence[Result], first: str, title: str) -> list[dict[str, Any]]:
    """Return a table row for each reference level, its name under ``first`` and its value under ``title``."""
    return [{first: name} | with_error(title, last(results, name).values()) for name in LEVELS]
