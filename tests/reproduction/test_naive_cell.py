"""One full cell of Figure 3(a), computed again from equations (2) to (8) as they are printed, row sums and all.

Nothing of the learner is used: only the environment, the decisions of the uniform first episode and, for SPUIR, the
sketch matrix, which is drawn.
"""

import csv
from pathlib import Path

import numpy as np
import pytest

import spuir
from spuir.base.streams import generator
from spuir.environments import make_environment
from spuir.loop import observe
from spuir.policies.sketched import SketchedSummation
from spuir.reproduction.base import Scope
from spuir.reproduction.experiments.figure3a import COMPARISON
from spuir.sketches import make_sketch

STORED = Path(__file__).parents[2] / "docs" / "reproduction" / "samples" / "figure3a-values.csv"
SETUP = COMPARISON.setup(Scope())
RATE, DISCOUNT, RIDGE = 0.1, 0.1, 1.0
"""γ, η and λ of PUIR in the authors' code; ω is its α."""


def first_actions(policy, world, contexts, seed):
    """Return the actions of the uniform first episode."""
    return spuir.Bandit(policy, world.n_actions, random_state=seed).decide(contexts).actions


def naive_regret(policy, seed, *, episodes, batch_size, rate, discount, alpha, sketches=None):
    """Return the regret per decision of (2) to (4), or of (6) to (8) with the given sketch matrices (c, B)."""
    world = make_environment("synthetic", seed=seed)
    m, d = world.n_actions, world.dim
    observed, imputed = np.zeros((m, d, d)), np.zeros((m, d, d))
    moment, filled = np.zeros((m, d)), np.zeros((m, d))
    theta, inverse = np.zeros((m, d)), np.stack([np.eye(d) / RIDGE] * m)
    lost = 0.0
    for n in range(episodes + 1):
        rounds = world.draw(batch_size, generator(seed, "environment", "contexts", n))
        S = rounds.contexts
        if n == 0:
            actions = first_actions(policy, world, S, seed)
        else:
            widths = np.sqrt(np.stack([(S @ inverse[j] * S).sum(axis=1) for j in range(m)], axis=1))
            actions = (S @ theta.T + alpha * widths).argmax(axis=1)
            expected = world.expected_rewards(rounds)
            lost += (expected.max(axis=1) - expected[np.arange(batch_size), actions]).sum()
        batch = observe(world, rounds, actions, np.ones(batch_size), feedback=0.0, place=(seed, n))
        old = theta.copy()
        for j in range(m):
            own = actions == j
            left, right, seen, guessed = S[own], S[~own], batch.rewards[own], S[~own] @ old[j]
            if sketches is not None:
                mine, others = sketches[n][:, own], sketches[n][:, ~own]
                left, right, seen, guessed = mine @ left, others @ right, mine @ seen, others @ guessed
            observed[j] += left.T @ left  # (3), (7)
            moment[j] += left.T @ seen
            imputed[j] = discount * imputed[j] + right.T @ right  # (4), (8)
            filled[j] = discount * filled[j] + right.T @ guessed
            psi = RIDGE * np.eye(d) + observed[j] + rate * imputed[j]
            inverse[j] = np.linalg.inv(psi)
            theta[j] = np.linalg.solve(psi, moment[j] + rate * filled[j])  # (2), (6)
    return lost / (episodes * batch_size)


@pytest.mark.skipif(not STORED.exists(), reason="the stored samples are part of the project's folder only")
def test_the_stored_cell_of_puir_is_what_the_equations_give():
    with STORED.open(encoding="utf-8") as file:
        stored = {row.pop("sample"): row for row in csv.DictReader(file)}["puir, synthetic/regret_per_step"]
    policy = spuir.make_policy("puir", preset="authors-code")
    given = {"episodes": SETUP.episodes, "batch_size": SETUP.batch_size, "rate": RATE, "discount": DISCOUNT}
    assert len(stored) == 20
    for seed, value in stored.items():
        naive = naive_regret(policy, int(seed), alpha=0.1, **given)
        assert naive == pytest.approx(float(value), rel=1e-9, abs=1e-12), seed


def test_spuir_is_what_the_sketched_equations_give(monkeypatch):
    """The sketch matrices are those of the run: their keys are noted, and each is written out as a matrix."""
    keys = []
    collect = SketchedSummation.collect

    def noted(self, *arguments):
        sums = collect(self, *arguments)
        keys.append(sums.how.key)
        return sums

    monkeypatch.setattr(SketchedSummation, "collect", noted)
    policy = spuir.make_policy("spuir", preset="authors-code")
    history = spuir.run(policy, "synthetic", 12, SETUP.batch_size, 4)
    sketch = make_sketch("sjlt", size=150, blocks=1)
    rows = np.arange(SETUP.batch_size)
    matrices = [
        sketch.sums(np.eye(SETUP.batch_size), np.zeros(SETUP.batch_size, np.intp), 1, rows, key)[0] for key in keys
    ]
    matrices.append(np.zeros_like(matrices[0]))  # the last episode is not learned from
    given = {"episodes": 12, "batch_size": SETUP.batch_size, "rate": 0.1, "discount": 0.9, "alpha": 0.2}
    naive = naive_regret(policy, 4, sketches=matrices, **given)
    assert naive == pytest.approx(history.summary()["regret_per_step"], rel=1e-9)
