"""Compare policies fairly: the same contexts, the same noise, scaled columns and an intercept for all.

Two worlds: in the first, rewards are linear in the context, in the second they are not. Differences below two standard
errors mean nothing. Run it: ``python compare_policies.py``. It also draws ``comparison.svg``.
"""

import numpy as np

import spuir
from spuir.errors import MissingExtraError
from spuir.results import figures

POLICIES = (
    spuir.make_policy("uniform"),
    spuir.make_policy("sbucb", scale=True, intercept=True),
    spuir.make_policy("puir", scale=True, intercept=True),
    spuir.make_policy("auto"),
)
WORLDS = {
    "heterogeneous": spuir.make_environment("heterogeneous", n_actions=4, dim=6, noise=1, seed=1),
    "nonlinear": spuir.make_environment("nonlinear", n_actions=4, seed=1),
}
SEEDS = range(3)


def main() -> None:
    """Run every policy in every world, and print what it earned."""
    for world, environment in WORLDS.items():
        histories = [
            spuir.run(policy, environment, episodes=15, batch_size=300, seed=seed)
            for policy in POLICIES
            for seed in SEEDS
        ]
        print(f"{world}: reward per decision, mean ± standard error over {len(SEEDS)} seeds")
        for policy in POLICIES:
            earned = [history.average_reward[-1] for history in histories if history.policy == policy.name]
            print(f"  {policy.name:8} {np.mean(earned):.3f} ± {np.std(earned, ddof=1) / np.sqrt(len(earned)):.3f}")
    try:
        figures.save(figures.average_reward(histories), "comparison")
    except MissingExtraError as missing:
        print(f"no figure was drawn: {missing}")


if __name__ == "__main__":
    main()
