"""Regret of the sketch with our moments and with the paper's, seed by seed on the same contexts and noise."""

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

import spuir
from benchmarks.requirements import WORLDS

SKETCH = 150
POLICIES: dict[str, dict[str, object]] = {
    "spuir": {"sketch_size": SKETCH},
    "spuir, the paper's moments": {"sketch_size": SKETCH, "moments": "sketched"},
    "puir": {},
}
OURS, PAPERS, EXACT = POLICIES


@dataclass(frozen=True)
class Trial:
    """One policy on one world with one seed."""

    policy: str
    world: str
    seed: int


def regret(trial: Trial, *, episodes: int) -> float:
    """Return the cumulative regret against the best action for each context."""
    name, parameters = WORLDS[trial.world]
    policy = spuir.make_policy(trial.policy.partition(",")[0], **POLICIES[trial.policy])
    environment = spuir.make_environment(name, seed=trial.seed, **parameters)
    return float(spuir.run(policy, environment, episodes=episodes, batch_size=1_400, seed=trial.seed).regret[-1])


def paired(ours: list[float], theirs: list[float]) -> float:
    """Return the paired t statistic of ours − theirs; 0 where they are equal throughout."""
    gaps = np.subtract(ours, theirs)
    error = gaps.std(ddof=1) / np.sqrt(len(gaps))
    return float(gaps.mean() / error) if error else 0.0


def measure(
    seeds: int, episodes: int, say: Callable[[str], None]
) -> tuple[dict[str, dict[str, list[float]]], dict[str, float]]:
    """Return the regrets by world and policy, one a seed, and what they say of the requirements."""
    table: dict[str, dict[str, list[float]]] = {}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for world in WORLDS:
            say(f"quality on {world}")
            trials = [Trial(policy, world, seed) for policy in POLICIES for seed in range(seeds)]
            regrets = list(pool.map(partial(regret, episodes=episodes), trials))
            table[world] = {name: regrets[i * seeds : (i + 1) * seeds] for i, name in enumerate(POLICIES)}
    found = {f"quality/loss/{world}": paired(row[OURS], row[PAPERS]) for world, row in table.items()}
    first = next(iter(WORLDS))
    found[f"quality/half/{first}"] = float(np.mean(table[first][OURS]) / np.mean(table[first][PAPERS]))
    return table, found
