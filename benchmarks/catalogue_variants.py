"""What was tried to improve ``hierarchical``: run ``python -m benchmarks.catalogue_variants [SEEDS] [WORLD…]``.

Each variant plays in worlds of the experiment ``catalogue``, on seeds that the experiment does not report. Columns: the
expected reward per decision, its change in per cent with the standard error of that, on rows whose best action is new
the share of the way from uniform to oracle, and the processor time in seconds.
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
from spuir.reproduction.catalogue_worlds import WORLDS, Truth, browse
from spuir.reproduction.claims import summary

FIRST_SEED, SEEDS = 200_000, 4
LEARNER = "spuir.policies.hierarchical_learner.HierarchicalLearner"


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
    "all widths count alike": (dict, {"tried_weight": 1.0}),
    "those of tried actions 0.6": (dict, {"tried_weight": 0.6}),
    "those of new actions 1.5": (dict, {"alpha": 1.5, "tried_weight": 1 / 1.5}),
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


def errors_of_new(world: str, seed: int) -> Floats:
    """Return true minus estimated rewards of new actions, in widths, where these are among the two most promising."""
    chances, plain = Truth.chances, HierarchicalLearner.pair_estimates
    seen, found = list[Floats](), list[Floats]()

    def recorded(self: Truth, *rows: Any) -> Floats:
        seen[:] = [chances(self, *rows)]
        return seen[0]

    def judged(self: Any, state: Any, contexts: Floats, pairs: Any) -> tuple[Floats, Floats]:
        means, widths = plain(self, state, contexts, pairs)
        if self.fixed(state) and state.episode >= 5:
            fitted = self.fitted(state)
            new = form_of(state).weights(state)[fitted.place[pairs.codes]] == 0
            bounds = (means + fitted.noise * widths).reshape(len(contexts), -1)
            best = (bounds >= np.sort(bounds, axis=1)[:, -2:-1]).ravel()
            errors = (seen[0].ravel() - means - fitted.mean) / (fitted.noise * widths)
            found.append(errors[new & best])
        return means, widths

    with patch.object(Truth, "chances", recorded), patch(f"{LEARNER}.pair_estimates", judged):
        browse(world=world, method="hierarchical", seed=seed)
    return np.concatenate(found)


def main() -> None:
    """Print a line for each world and variant, and how right the widths of new actions are."""
    given = sys.argv[1:]
    seeds = int(given[0]) if given else SEEDS
    for world in given[1:] or list(WORLDS):
        if WORLDS[world].replaced:
            errors = np.concatenate([errors_of_new(world, FIRST_SEED + seed) for seed in range(seeds)])
            print(f"{world:28} errors of new actions in widths: {errors.mean():+.2f} ± {errors.std():.2f}", flush=True)
        start = list[float]()
        for variant in VARIANTS:
            rows = play(world, variant, seeds)
            rewards = [row["average_reward"] for row in rows]
            start = start or rewards
            change, error = summary(100.0 * (np.array(rewards) - start) / np.mean(start))
            new = np.mean([row["new"] for row in rows]) if WORLDS[world].replaced else np.nan
            time = np.mean([row["processor"] for row in rows])
            shown = f"{np.mean(rewards):.4f} {change:+.2f} ± {error:.2f} {new:5.3f} {time:5.2f}"
            print(f"{world:28} {variant:28} {shown}", flush=True)


if __name__ == "__main__":
    main()
