"""How κ and η of ``imputation_rate="balanced"`` were chosen: reward against SBUCB on 5 to 50 actions.

Run ``python -m benchmarks.balance [seeds]``. For every set and every α in 0.1, 0.3, 1, each (κ, η) of a grid and
the constant rate 0.1 are run beside SBUCB with the same α on the same contexts and noise; the table shows the
worst relative loss of reward. Real tables are read as in ``benchmarks.bandwidth``.
"""

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

import spuir
from benchmarks.data import data_folder

ALPHAS = (0.1, 0.3, 1.0)
BALANCES = (0.1, 0.25, 0.5, 1.0)
DISCOUNTS = (0.0, 0.1, 0.5, 0.9)
EPISODES, BATCH = 30, 1000


def sets() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield a label, an environment and its parameters."""
    yield "synthetic 5", "synthetic", {}
    for m in (5, 20, 50):
        yield f"heterogeneous {m}", "heterogeneous", {"n_actions": m}
        yield f"linear {m}", "linear", {"n_actions": m}
    yield "nonlinear rbf 10", "nonlinear", {"n_actions": 10, "truth": "rbf"}
    yield "digits 10", "classification", {"intercept": True}
    covertype = data_folder() / "covertype" / "covertype_100k.csv.gz"
    if covertype.is_file():
        yield "covertype 7", "classification", {"path": str(covertype), "max_rows": 30_000, "intercept": True}


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
