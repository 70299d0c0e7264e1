"""Regret of the sketch with our moments and with the paper's, seed by seed on the same contexts and noise."""

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

import spuir
from benchmarks.requirements import HORIZONS, WORLDS

SKETCH = 150
POLICIES: dict[str, dict[str, Any]] = {
    "spuir": {"sketch_size": SKETCH},
    "spuir, the paper's moments": {"sketch_size": SKETCH, "moments": "sketched"},
    "puir": {},
}
OURS, PAPERS, _ = POLICIES

Table = dict[str, dict[str, list[list[float]]]]
"""Regrets by world, policy and horizon, one a seed."""


@dataclass(frozen=True)
class Trial:
    """One policy on one world with one seed."""

    policy: str
    world: str
    seed: int


def regret(trial: Trial) -> list[float]:
    """Return the cumulative regret against the best action for each context, at each horizon."""
    name, parameters = WORLDS[trial.world]
    policy = spuir.make_policy(trial.policy.partition(",")[0], **POLICIES[trial.policy])
    environment = spuir.make_environment(name, seed=trial.seed, **parameters)
    history = spuir.run(policy, environment, episodes=max(HORIZONS), batch_size=1_400, seed=trial.seed)
    return [float(history.regret[n - 1]) for n in HORIZONS]


def paired(ours: list[float], theirs: list[float]) -> float:
    """Return the paired t statistic of ours − theirs; 0 where they are equal throughout."""
    gaps = np.subtract(ours, theirs)
    error = gaps.std(ddof=1) / np.sqrt(len(gaps))
    return float(gaps.mean() / error) if error else 0.0


def measure(seeds: int, say: Callable[[str], None]) -> tuple[Table, dict[str, float]]:
    """Return the regrets by world, policy and horizon, one a seed, and what they say of the requirements."""
    table: Table = {}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for world in WORLDS:
            say(f"quality on {world}")
            trials = [Trial(policy, world, seed) for policy in POLICIES for seed in range(seeds)]
            by_policy = np.array(list(pool.map(regret, trials))).reshape(len(POLICIES), seeds, len(HORIZONS))
            table[world] = {name: values.T.tolist() for name, values in zip(POLICIES, by_policy, strict=True)}
    found = {
        f"quality/loss/{world}": max(paired(*pair) for pair in zip(row[OURS], row[PAPERS], strict=True))
        for world, row in table.items()
    }
    first = next(iter(WORLDS))
    found[f"quality/half/{first}"] = float(np.mean(table[first][OURS][-1]) / np.mean(table[first][PAPERS][-1]))
    return table, found
