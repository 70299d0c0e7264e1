"""What was tried to improve ``hierarchical``: run ``python -m benchmarks.catalogue_variants [SEEDS] [WORLD…]``.

Each variant plays in worlds of the experiment ``catalogue``, on seeds that the experiment does not report. Columns: the
expected reward per decision, on rows whose best action is new the share of the way from uniform to oracle, and the
processor time in seconds.
"""

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from spuir.base.records import Floats
from spuir.core import hierarchy
from spuir.policies.hierarchical_forms import form_of
from spuir.policies.hierarchical_learner import MAX_STEPS, HierarchicalLearner
from spuir.policies.hierarchical_model import START_OWN
from spuir.reproduction.catalogue_worlds import WORLDS, browse

FIRST_SEED, SEEDS = 200_000, 4
LEARNER = "spuir.policies.hierarchical_learner.HierarchicalLearner"


def optimistic(share: float) -> dict[str, Any]:
    """Widen the widths of an action with n rows by the factor 1 + share/(1 + n)."""
    plain = HierarchicalLearner.pair_estimates

    def widened(self: Any, state: Any, contexts: Floats, pairs: Any) -> tuple[Floats, Floats]:
        means, widths = plain(self, state, contexts, pairs)
        if self.fixed(state):
            rows = form_of(state).weights(state)[self.fitted(state).place[pairs.codes]]
            widths = widths * (1.0 + share / (1.0 + rows))
        return means, widths

    return {f"{LEARNER}.pair_estimates": widened}


def loose(limit: float) -> dict[str, Any]:
    """Keep the ridge of the constant's deviation below a limit, so that new actions stay uncertain."""
    plain = hierarchy.next_ridges

    def limited(*given: Any) -> hierarchy.Ridges:
        shared, own = plain(*given)
        return hierarchy.Ridges(shared, np.append(min(own[0], limit), own[1:]))

    return {"spuir.core.hierarchy.next_ridges": limited}


def switching() -> dict[str, Any]:
    """Act on what the features say alone, wherever the evidence of that model is not lower."""

    def updated(self: Any, state: Any) -> Any:
        variance = self.scale(state)
        if not self._steps(state, variance):
            return state
        problem, form = self.problem(state), form_of(state)
        start = problem.ridges._replace(own=np.full(len(problem.ridges.own), START_OWN))
        made = form.fit(state, replace(problem, ridges=start), variance, MAX_STEPS)
        stiff = hierarchy.Ridges(made.ridges.shared, np.full(len(start.own), hierarchy.LARGEST_RIDGE))
        if form.fit(state, replace(problem, ridges=stiff), variance, 0).evidence >= made.evidence:
            shared, own = stiff
        else:
            shared, own = made.ridges
        return replace(state, shared_ridges=shared, own_ridges=own, updated=state.episode)

    return {f"{LEARNER}._updated": updated}


VARIANTS: Mapping[str, tuple[Callable[[], dict[str, Any]], Mapping[str, Any]]] = {
    "as it is": (dict, {}),
    "widths of new actions × 1.5": (lambda: optimistic(0.5), {}),
    "widths of new actions × 2": (lambda: optimistic(1.0), {}),
    "ridge of own constants ≤ 30": (lambda: loose(30.0), {}),
    "ridge of own constants ≤ 10": (lambda: loose(10.0), {}),
    "switch to features alone": (switching, {}),
    "24 kernel columns": (dict, {"kernel": 24}),
    "products of features": (dict, {"products": True}),
    "no products": (dict, {"products": False}),
}
"""Variants by name: what is replaced, and the parameters."""


def play(world: str, variant: str, seeds: int) -> list[Mapping[str, Any]]:
    """Return the last row of each run."""
    changes, options = VARIANTS[variant]
    with ExitStack() as stack:
        for name, value in changes().items():
            stack.enter_context(patch(name, value))
        return [
            browse(world=world, method="hierarchical", seed=FIRST_SEED + seed, options=options)[-1]
            for seed in range(seeds)
        ]


def main() -> None:
    """Print a line for each world and variant."""
    given = sys.argv[1:]
    seeds = int(given[0]) if given else SEEDS
    for world in given[1:] or list(WORLDS):
        for variant in VARIANTS:
            rows = play(world, variant, seeds)
            means = [np.mean([row[name] for row in rows]) for name in ("average_reward", "processor")]
            new = np.mean([row["new"] for row in rows]) if WORLDS[world].replaced else np.nan
            print(f"{world:28} {variant:28} {means[0]:.4f} {new:5.3f} {means[1]:5.2f}", flush=True)


if __name__ == "__main__":
    main()
