"""The trials that several experiments share; each is a function of JSON data that returns tidy rows."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from spuir.environments import make_environment
from spuir.loop import run
from spuir.policies import make_policy
from spuir.reproduction.runner import Task
from spuir.results.history import History

CHECKPOINTS = 30


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
    """Run one policy through one world; return running values at up to 30 episodes, the last among them."""
    history = run(
        make_policy(policy, preset=preset, **parameters),
        make_environment(environment, **{"seed": seed} | dict(world)),
        episodes,
        batch_size,
        seed,
        feedback=feedback,
    )
    return checkpoints(history)


def playing(
    policy: str,
    environment: str,
    *,
    episodes: int,
    batch_size: int,
    seed: int,
    preset: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    world: Mapping[str, Any] | None = None,
    feedback: float = 0.0,
    alone: bool = False,
) -> Task:
    """Return the task of :func:`play` with these arguments. Equal arguments are one task, whichever experiment asks."""
    return Task(
        function="spuir.reproduction.trials:play",
        arguments={
            "policy": policy,
            "preset": preset,
            "parameters": dict(parameters or {}),
            "environment": environment,
            "world": dict(world or {}),
            "episodes": episodes,
            "batch_size": batch_size,
            "seed": seed,
            "feedback": feedback,
        },
        alone=alone,
    )


def checkpoints(history: History) -> list[dict[str, Any]]:
    """Return running values up to each checkpoint: a row each, the last one for the whole run."""
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
