"""Batches that the tests share, and the library's policy beside the naive one, learning the same episodes."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from spuir import make_policy
from spuir.base.records import Batch, Floats
from spuir.base.streams import generator
from spuir.policies.learner import RidgeState
from spuir.policies.ridge import Ridge
from spuir.sketches import make_sketch
from tests.identities.naive import NaivePolicy

NAIVE_ONLY = ("ridge", "imputation_rate", "discount", "balance", "forgetting", "link", "imputed_cap", "moments")
NAIVE_ONLY += ("episodes", "alpha")


def make_batch(
    rng: np.random.Generator,
    rows: int,
    dim: int,
    n_actions: int,
    *,
    actions: Any = None,
    weights: bool = False,
    revealed: float = 0.0,
    noise: float = 0.5,
    truth: Floats | None = None,
) -> Batch:
    """Return a random batch; ``actions`` are the codes that are executed at all, ``truth`` (M, d) the coefficients."""
    contexts = 0.3 + rng.normal(size=(rows, dim)) / np.sqrt(dim)
    codes = rng.choice(np.arange(n_actions) if actions is None else np.asarray(actions), size=rows)
    truth = rng.normal(size=(n_actions, dim)) if truth is None else truth
    rewards = contexts @ truth.T + noise * rng.normal(size=(rows, n_actions))
    extra: dict[str, Any] = {}
    if weights:
        extra["weights"] = np.where(rng.random(rows) < 0.1, 0.0, rng.gamma(2.0, 0.5, size=rows))
    if revealed:
        extra["revealed"] = rng.random((rows, n_actions)) < revealed
        extra["revealed_rewards"] = rewards
    return Batch(contexts=contexts, actions=codes, rewards=rewards[np.arange(rows), codes], **extra)


def batch_of(**columns: Any) -> Batch:
    """Return a batch of columns of any kind that becomes one."""
    return Batch(**columns)


@dataclass
class Pair:
    """The library's policy with its state, and the naive policy, after the same episodes."""

    policy: Ridge
    state: RidgeState
    naive: NaivePolicy
    seed: int

    @classmethod
    def start(cls, n_actions: int, dim: int, seed: int = 0, name: str = "puir", **parameters: Any) -> "Pair":
        """Return both before the first episode."""
        made = make_policy(name, **parameters)
        assert isinstance(made, Ridge)
        given = {key: getattr(made, key) for key in NAIVE_ONLY if hasattr(made, key)}
        sketch = None
        if made.sketch != "identity":
            sketch = make_sketch(made.sketch, size=made.sketch_size, blocks=made.sketch_blocks)
        state = made.init(n_actions, dim, generator(seed, "init"))
        return cls(made, state, NaivePolicy(n_actions, dim, sketch=sketch, **given), seed)

    def learn(self, batch: Batch, given: Batch | None = None) -> None:
        """Let both learn ``batch``; ``given`` is another form of it for the library (sparse, float32, …)."""
        stream = (self.seed, "learn", self.state.episode)
        self.naive.learn(batch, key=int(generator(*stream).integers(2**63)))
        self.state, _ = self.policy.learn(self.state, given or batch, generator(*stream))

    def compare(self, contexts: Floats, tolerance: float = 1e-9) -> None:
        """Assert that sums, rates, coefficients, means, widths and scores agree."""
        naive, state, readout = self.naive, self.state, self.policy.readout(self.state)
        close("gram", state.observed.gram, naive.Phi, tolerance)
        close("moment", state.observed.moment, naive.b, tolerance)
        close("weight", state.observed.weight, naive.n, tolerance)
        close("energy", state.observed.energy, naive.energy, tolerance)
        if "imputing" in self.policy.traits:
            assert state.imputed is not None
            close("imputed gram", state.imputed.gram, naive.Phi_hat, tolerance)
            close("imputed moment", state.imputed.moment, naive.b_hat, tolerance)
            close("imputed weight", state.imputed.weight, naive.n_hat, tolerance)
        everyone = range(naive.n_actions)
        close("rates", readout.rates, [naive.gamma(j) for j in everyone], tolerance)
        close("theta", readout.solved.theta, [naive.theta(j) for j in everyone], tolerance)
        eligible = np.ones((len(contexts), naive.n_actions), np.bool_)
        table = self.policy.table(state, contexts, eligible)
        means, widths, scores = naive.tables(contexts)
        close("means", table.means, means, tolerance)
        close("widths", table.widths, widths, tolerance)
        if "sampling" not in self.policy.traits and hasattr(self.policy, "alpha"):
            close("scores", table.scores, scores, tolerance)


def close(what: str, got: Any, expected: Any, tolerance: float) -> None:
    """Assert agreement relative to the largest expected value."""
    want = np.asarray(expected)
    scale = max(float(np.abs(want).max(initial=0.0)), 1e-12)
    np.testing.assert_allclose(got, want, rtol=0.0, atol=tolerance * scale, err_msg=what)
