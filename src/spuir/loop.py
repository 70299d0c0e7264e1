"""Protocol 1 on one page: contexts → decision → batch → policy, episode after episode.

Each role and episode of a run has its own named random stream, so all policies see the same contexts and noise,
whatever they draw themselves.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np

from spuir.bandit import Bandit
from spuir.base.parameters import COUNT, SEED, UNIT, check_value
from spuir.base.process_settings import one_blas_thread
from spuir.base.records import Batch, Codes, Floats, Rounds
from spuir.base.streams import generator
from spuir.environments import make_environment
from spuir.environments.base import Environment
from spuir.errors import InputError, ParameterError
from spuir.policies import as_policy
from spuir.policies.base import Policy
from spuir.results.history import History, Recorder


def run(
    policy: Policy | str,
    environment: Environment | str,
    episodes: int = 90,
    batch_size: int = 1400,
    seed: int = 0,
    *,
    feedback: float = 0.0,
    progress: Callable[[int], object] | None = None,
) -> History:
    """Run a policy that acts and learns, and return its history.

    Parameters
    ----------
    policy, environment
        Each a name or an object. A name means the default parameters. An environment given by name draws its true
        parameters from the seed of the run, so every seed is a different world. An object of your own needs
        ``n_actions`` and the methods of :class:`spuir.environments.base.Environment`.
    episodes, batch_size
        N and B. A policy whose ``episodes`` or ``batch_size`` is None is given these.
    seed
        An integer ≥ 0. All random streams of the run derive from it.
    feedback
        Probability with which the true reward of each non-executed action is revealed to the learner: 0 is
        bandit feedback, 1 full information.
    progress
        Called with the number of each finished episode.

    Notes
    -----
    The cold policy decides episode 0, which makes it uniform. Then, for n = 1…N, the policy learns from the batch of
    episode n − 1 and decides episode n. The same loop around a :class:`spuir.Bandit` with ``random_state=seed`` gives
    the same actions and the same state. BLAS runs on one thread, so that repeated runs are equal to the last bit.
    """
    limits = {
        "episodes": (episodes, COUNT),
        "batch_size": (batch_size, COUNT),
        "seed": (seed, SEED),
        "feedback": (feedback, UNIT),
    }
    for name, (value, rule) in limits.items():
        check_value(f"{name} of run", value, rule, "choose another value")
    world = make_environment(environment, seed=seed) if isinstance(environment, str) else environment
    if isinstance(world, type) or not hasattr(world, "draw"):
        rule = "an environment is a registered name, an object made by make_environment, or one of your own"
        remedy = "give an object with n_actions, draw, feedback and expected_rewards"
        raise ParameterError("environment", repr(world), rule, remedy)
    policy = with_horizon(as_policy(policy), episodes, batch_size)
    bandit = Bandit(policy, world.n_actions, random_state=seed)
    bandit._advises = False
    recorder = Recorder(policy, world, batch_size, seed)

    batch: Batch | None = None
    with one_blas_thread:
        for n in range(episodes + 1):
            if batch is not None:
                with recorder.timed("learn"):
                    bandit.partial_fit(**columns_of(batch))
            rounds = world.draw(batch_size, generator(seed, "environment", "contexts", n))
            with recorder.timed("decide"):
                decision = bandit.decide(rounds.contexts)
            batch = observe(world, rounds, decision.actions, decision.propensities, feedback=feedback, place=(seed, n))
            if n:  # episode 0, which the cold policy decides uniformly, is learned from but not counted
                recorder.add(world.expected_rewards(rounds), batch)
            if n and progress is not None:
                progress(n)
    return recorder.history()


def columns_of(batch: Batch) -> dict[str, Any]:
    """Return a batch as the arguments of :meth:`spuir.Bandit.partial_fit`."""
    columns = {item.name: getattr(batch, item.name) for item in fields(batch)}
    given = {name: column for name, column in columns.items() if column is not None}
    return {"X": given.pop("contexts"), **given}


def with_horizon(policy: Policy, episodes: int, batch_size: int) -> Policy:
    """Return the policy with ``episodes`` and ``batch_size`` filled in where it has them as None."""
    given = {"episodes": episodes, "batch_size": batch_size}
    names = {item.name for item in fields(policy)}
    missing = {name: value for name, value in given.items() if name in names and getattr(policy, name) is None}
    return replace(policy, **missing) if missing else policy


def observe(
    world: Environment, rounds: Rounds, actions: Codes, propensities: Floats, *, feedback: float, place: tuple[int, int]
) -> Batch:
    """Return the batch that follows from the executed actions, with a share of the other rewards revealed.

    ``place`` is (seed, episode); the noise and the choice of what is revealed have streams of their own.
    """
    seed, episode = place
    outcome = world.feedback(rounds, actions, generator(seed, "environment", "noise", episode))
    revealed = None
    if feedback > 0:
        if outcome.all_rewards is None:
            raise InputError("feedback", feedback, "this environment knows executed actions only", "use feedback=0")
        revealed = generator(seed, "environment", "reveal", episode).random(outcome.all_rewards.shape) < feedback
        revealed[np.arange(len(rounds)), actions] = False
    return Batch(
        contexts=rounds.contexts,
        actions=actions,
        rewards=outcome.rewards,
        propensities=propensities,
        revealed=revealed,
        revealed_rewards=None if revealed is None else outcome.all_rewards,
        click=outcome.click,
        conversion=outcome.conversion,
        elapsed=outcome.elapsed,
    )
