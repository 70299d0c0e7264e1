"""The tasks that most experiments share: run one policy in one environment, or measure what needs no learning.

What needs no learning are three reference levels: the uniform policy, the best fixed action, and the best action for
each context (the oracle). On some data the best fixed action earns almost all there is to earn.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from spuir.base.records import Floats
from spuir.base.streams import generator
from spuir.environments import make_environment
from spuir.errors import ParameterError
from spuir.loop import run
from spuir.policies import POLICIES, make_policy
from spuir.policies.base import Policy, Recipe
from spuir.reproduction.tasks import Task
from spuir.results.history import History

CHECKPOINTS = 30
AUTHORS = "authors-code"
LEVELS, LEVEL_NAMES = "levels", ("uniform", "best fixed", "oracle")
"""What the cell of the reference levels is called, and the levels."""
REWARD, REGRET = "average_reward", "regret_per_step"


@lru_cache(maxsize=16)
def own_recipe(path: str) -> Recipe:
    """Return the user's policy "module:name" as a recipe: a Recipe, or a subclass of Policy with defaults.

    A registered name stands for its recipe.
    """
    module, _, name = path.partition(":")
    if not name:
        return POLICIES.get(path)
    try:
        member = getattr(import_module(module), name)
    except (ImportError, AttributeError) as failure:
        rule = f"it cannot be imported ({failure})"
        raise ParameterError(
            "--policy", repr(path), rule, "give module:name, and put the module on PYTHONPATH"
        ) from None
    if isinstance(member, Recipe):
        return member
    if isinstance(member, type) and issubclass(member, Policy):
        return Recipe(target=member, defaults={}, paper={}, summary=(member.__doc__ or name).splitlines()[0])
    rule = "your own policy is a Recipe or a subclass of Policy"
    raise ParameterError("--policy", repr(path), rule, "see docs/howto/adding-a-policy.md")


def policy_of(policy: str, preset: str | None, parameters: Mapping[str, Any]) -> Policy:
    """Return a policy by its registered name, or the user's own by "module:name"."""
    if ":" in policy:
        return own_recipe(policy).make(policy.rpartition(":")[2], preset, parameters)
    return make_policy(policy, preset=preset, **parameters)


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
        policy_of(policy, preset, parameters),
        make_environment(environment, **{"seed": seed} | dict(world)),
        episodes,
        batch_size,
        seed,
        feedback=feedback,
    )
    return checkpoints(history)


def tried(**arguments: Any) -> list[dict[str, Any]]:
    """Run one policy as :func:`play` does; return the last row only, which is all that a choice of settings needs."""
    return play(**arguments)[-1:]


def kept_episodes(length: int) -> list[int]:
    """Return up to 30 episodes, counted from 0, evenly spread and including the last."""
    return np.unique(np.linspace(0, length - 1, min(length, CHECKPOINTS)).round().astype(int)).tolist()


def checkpoints(history: History) -> list[dict[str, Any]]:
    """Return the running values at each checkpoint, one row each; the last row covers the whole run."""
    length = len(history)
    steps = history.batch_size * np.arange(1, length + 1)
    columns = {
        REWARD: history.average_reward,
        REGRET: history.regret / steps,
        "fixed_regret_per_step": history.fixed_regret / steps,
        "decide_seconds": np.cumsum(history.decide_seconds),
        "learn_seconds": np.cumsum(history.learn_seconds),
    }
    if history.clicks is not None and history.conversions is not None:
        clicks, conversions = np.cumsum(history.clicks), np.cumsum(history.conversions)
        columns |= {"cvr": conversions / np.maximum(clicks, 1), "ctcvr": conversions / steps}
    return [
        {"episode": n + 1} | {name: float(values[n]) for name, values in columns.items()} for n in kept_episodes(length)
    ]


def levels(
    *, environment: str, world: Mapping[str, Any], episodes: int, batch_size: int, seed: int
) -> list[dict[str, Any]]:
    """Return the reference levels on the contexts and the noise that a run with this seed meets, over episodes.

    ``average_reward`` is what the best action for each context has really earned so far, as the curves of policies
    are; the three levels are expectations. The rows also say how many actions and columns the environment has, and
    whether its rows are generated.
    """
    place = make_environment(environment, **{"seed": seed} | dict(world))
    sums, best, earned = np.zeros(place.n_actions), 0.0, 0.0
    facts = {"actions": place.n_actions, "columns": place.dim, "generated": bool(getattr(place, "generated", False))}
    kept, rows = set(kept_episodes(episodes)), list[dict[str, Any]]()
    for n in range(1, episodes + 1):
        rounds = place.draw(batch_size, generator(seed, "environment", "contexts", n))
        expected: Floats = place.expected_rewards(rounds)
        sums += expected.sum(axis=0)
        best += float(expected.max(axis=1).sum())
        noise = generator(seed, "environment", "noise", n)
        earned += float(place.feedback(rounds, expected.argmax(axis=1), noise).rewards.sum())
        if n - 1 in kept:
            values = np.array([sums.mean(), sums.max(), best, earned]) / (n * batch_size)
            rows.append({"episode": n} | dict(zip((*LEVEL_NAMES, REWARD), values.tolist(), strict=True)) | facts)
    return rows


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Where policies run: an environment with its parameters ``world``, and the length of a run.

    ``seeded`` names further parameters of the world that are set to the seed of the run.
    """

    environment: str
    episodes: int
    batch_size: int
    world: Mapping[str, Any] = field(default_factory=dict[str, Any])
    seeded: tuple[str, ...] = ()

    def arguments(self, seed: int) -> dict[str, Any]:
        """Return the arguments that a task of this setup has, whatever runs."""
        return {
            "environment": self.environment,
            "world": dict(self.world) | dict.fromkeys(self.seeded, seed),
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
        tuning: bool = False,
    ) -> list[Task]:
        """Return the tasks of :func:`play`, one per seed. Equal runs are one task, whichever experiment asks."""
        given = {"policy": policy, "preset": preset, "parameters": dict(parameters or {}), "feedback": feedback}
        return [Task.of(tried if tuning else play, **given, **self.arguments(seed)) for seed in seeds]

    def levels(self, seeds: Iterable[int]) -> list[Task]:
        """Return the tasks of :func:`levels`, one per seed."""
        return [Task.of(levels, **self.arguments(seed)) for seed in seeds]


def by_world(tasks: Sequence[Task]) -> list[Task]:
    """Return tasks grouped by environment and seed, so that a process makes each world once."""
    return sorted(tasks, key=lambda task: (str(task.arguments.get("environment")), int(task.arguments.get("seed", 0))))
