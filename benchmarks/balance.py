"""How κ and η of ``imputation_rate="balanced"`` were chosen: reward against SBUCB on 5 to 50 actions.

Run ``python -m benchmarks.balance [seeds]``. For every set and every α in 0.1, 0.3, 1, each (κ, η) of a grid and
the constant rate 0.1 are run beside SBUCB with the same α on the same contexts and noise; the table shows the
worst relative loss of reward. Real tables are read as in ``benchmarks.bandwidth``.
"""

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

import spuir
from benchmarks.data import data_folder
from spuir.environments.base import Environment
from spuir.records import Codes, Feedback, Floats, Rounds

ALPHAS = (0.1, 0.3, 1.0)
BALANCES = (0.1, 0.25, 0.5, 1.0)
DISCOUNTS = (0.0, 0.1, 0.5, 0.9)
EPISODES, BATCH = 30, 1000


@dataclass(frozen=True, kw_only=True)
class Labelled(Environment):
    """A labelled table as a full-information bandit: reward 1 for the row's own label."""

    table: str = "digits"
    name = "labelled"

    def _settle(self, rng: Generator) -> None:
        contexts, labels = load_table(self.table)
        object.__setattr__(self, "_contexts", contexts)
        object.__setattr__(self, "_labels", labels)

    def draw(self, n: int, rng: Generator) -> Rounds:
        """Draw rows with replacement."""
        rows = rng.integers(len(self._labels), size=n)
        return Rounds(contexts=self._contexts[rows], payload=self._labels[rows])

    def feedback(self, rounds: Rounds, actions: Codes, rng: Generator) -> Feedback:
        """Return 1 where the executed action is the row's label."""
        rewards = self.expected_rewards(rounds)
        return Feedback(rewards=rewards[np.arange(len(actions)), actions], all_rewards=rewards)

    def expected_rewards(self, rounds: Rounds) -> Floats:
        """Return the labels as indicator columns (n, M)."""
        return (rounds.payload[:, None] == np.arange(self.n_actions)).astype(np.float64)


def load_table(name: str) -> tuple[Floats, Codes]:
    """Return standardised contexts with a constant column, and integer labels."""
    if name == "digits":
        from sklearn.datasets import load_digits

        contexts, labels = load_digits(return_X_y=True)
    else:
        file = data_folder() / "covertype" / "covertype_100k.csv.gz"
        values = np.loadtxt(file, delimiter=",", skiprows=1, max_rows=30_000)
        contexts, labels = values[:, :-1], values[:, -1] - values[:, -1].min()
    spread = contexts.std(axis=0)
    contexts = (contexts - contexts.mean(axis=0)) / np.where(spread > 0, spread, 1.0) / np.sqrt(contexts.shape[1])
    return np.column_stack([contexts, np.ones(len(contexts))]), labels.astype(np.intp)


def sets() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield a label, an environment and its parameters."""
    yield "synthetic 5", "synthetic", {}
    for m in (5, 20, 50):
        yield f"heterogeneous {m}", "heterogeneous", {"n_actions": m}
        yield f"linear {m}", "linear", {"n_actions": m}
    yield "nonlinear rbf 10", "nonlinear", {"n_actions": 10, "truth": "rbf"}
    yield "digits 10", "labelled", {"table": "digits", "n_actions": 10, "dim": 65}
    if (data_folder() / "covertype" / "covertype_100k.csv.gz").is_file():
        yield "covertype 7", "labelled", {"table": "covertype", "n_actions": 7, "dim": 55}


def policies() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every policy compared, SBUCB first."""
    yield "sbucb", {}
    yield "constant 0.1, η 0.9", {"imputation_rate": 0.1, "discount": 0.9}
    for balance in BALANCES:
        for discount in DISCOUNTS:
            name = f"balanced κ {balance}, η {discount}"
            yield name, {"imputation_rate": "balanced", "balance": balance, "discount": discount}


def reward(task: tuple[str, dict[str, Any], dict[str, Any], float, int]) -> float:
    """Return the mean reward of one run."""
    kind, settings, parameters, alpha, seed = task
    if kind == "labelled":
        world: Environment = Labelled(seed=seed, **settings)
    else:
        world = spuir.make_environment(kind, seed=seed, **settings)
    policy = spuir.make_policy("sbucb", alpha=alpha, **parameters)
    return float(spuir.run(policy, world, episodes=EPISODES, batch_size=BATCH, seed=seed).average_reward[-1])


def main(seeds: int) -> None:
    """Run the grid and print the relative loss against SBUCB."""
    worst: dict[str, float] = {}
    with ProcessPoolExecutor() as pool:
        for label, kind, settings in sets():
            for alpha in ALPHAS:
                tasks = [(kind, settings, p, alpha, s) for _, p in policies() for s in range(seeds)]
                table = np.array(list(pool.map(reward, tasks, chunksize=2))).reshape(-1, seeds).mean(axis=1)
                losses = 1.0 - table / table[0]
                for (name, _), loss in zip(policies(), losses, strict=True):
                    worst[name] = max(worst.get(name, -1.0), float(loss))
                print(
                    f"{label:18s} α {alpha:<4} sbucb {table[0]:.4f}  loss % "
                    + " ".join(f"{100 * x:6.2f}" for x in losses[1:]),
                    flush=True,
                )
    print("\nworst relative loss of reward to SBUCB")
    for name, loss in worst.items():
        print(f"  {name:28s} {100 * loss:6.2f} %")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
