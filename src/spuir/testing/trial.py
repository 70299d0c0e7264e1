"""Episodes to try a policy on, and the comparisons that laws are made of."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from spuir.bandit import Bandit
from spuir.base import streams
from spuir.base.records import Floats, Mask
from spuir.policies import Policy
from spuir.storage import model_file

N_ACTIONS, DIM = 4, 5
SIZES = (60, 200, 170)
"""Rows of the episodes on trial: below and above the default size of a sketch."""
TOLERANCE = 1e-10
"""Relative distance within which two orders of summation agree."""


@dataclass(frozen=True)
class Law:
    """A promise: its name, how to try it on a policy, and the traits that a policy must and must not have."""

    name: str
    check: Callable[[Policy], None]
    needs: frozenset[str] = frozenset()
    unless: frozenset[str] = frozenset()

    def applies(self, traits: frozenset[str]) -> bool:
        """Tell whether a policy with these traits has to keep the law."""
        return self.needs <= traits and not self.unless & traits


def law(check: Callable[[Policy], None], needs: Iterable[str] = (), unless: Iterable[str] = ()) -> Law:
    """Return a law named after the function that tries it."""
    return Law(check.__name__.replace("_", " "), check, frozenset(needs), frozenset(unless))


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """The rows of an episode: ``X`` (B, d), labels and rewards (B,), and the optional columns of a batch."""

    X: Any
    actions: Any
    rewards: Any
    row_ids: Any
    propensities: Any = None
    sample_weight: Any = None
    eligible: Any = None
    revealed: Any = None
    revealed_rewards: Any = None
    click: Any = None
    conversion: Any = None
    elapsed: Any = None

    def __len__(self) -> int:
        """Return B."""
        return len(self.rewards)

    def take(self, chosen: ArrayLike | slice) -> "Rows":
        """Return some rows, in the order given."""
        picked = {name: column[chosen] for name, column in vars(self).items() if column is not None}
        return replace(self, **picked)

    def columns(self) -> dict[str, Any]:
        """Return everything as keyword arguments of ``partial_fit`` and ``collect``."""
        return {name: column for name, column in vars(self).items() if column is not None}


def is_exact(policy: Policy) -> bool:
    """Tell whether the policy knows its propensities exactly, rather than by Monte Carlo."""
    state = policy.init(2, 1, streams.generator(0, "trial", "init"))
    return policy.decide(state, np.zeros((1, 1)), streams.generator(0, "trial", "decide")).exact


def episode(policy: Policy, number: int, rows: int, *, actions: int = N_ACTIONS, dim: int = DIM, seed: int = 0) -> Rows:
    """Return an episode of executed actions drawn uniformly, with rewards about 0.5 that are linear in the context.

    Contexts are exact in single precision. Propensities come with it only where the policy could not tell
    them exactly itself.
    """
    rng = streams.generator(seed, "trial", number, rows)
    X = rng.normal(0.1, 0.4, (rows, dim)).astype(np.float32).astype(np.float64)
    codes = rng.integers(actions, size=rows)
    weights = streams.generator(seed, "trial", "truth").normal(0.0, 0.3, (actions, dim))
    rewards = 0.5 + np.einsum("nd,nd->n", X, weights[codes]) + 0.1 * rng.standard_normal(rows)
    chances = None if is_exact(policy) else np.full(rows, 1.0 / actions)
    ids = rng.permutation(10 * rows)[:rows]
    return Rows(X=X, actions=codes, rewards=rewards, row_ids=ids, propensities=chances)


def enriched(rows: Rows, actions: int = N_ACTIONS, seed: int = 0, lightest: int = 0) -> Rows:
    """Return the rows with weights, eligibility, some revealed rewards, and delayed conversions of clicks.

    Some weights are 0, unless the ``lightest`` is 1.
    """
    rng, n = streams.generator(seed, "trial", "enriched", len(rows)), len(rows)
    eligible = rng.random((n, actions)) < 0.7
    eligible[np.arange(n), rows.actions] = True
    weights = rng.integers(lightest, 4, size=n) * 0.75
    revealed = rng.random((n, actions)) < 0.3
    others = rng.normal(0.5, 0.2, (n, actions))
    click = rng.random(n) < 0.8
    outcomes = {"click": click, "conversion": click & (rng.random(n) < 0.5), "elapsed": rng.exponential(0.5, n)}
    further = {name: column.astype(np.float64) for name, column in outcomes.items()}
    return replace(
        rows, sample_weight=weights, eligible=eligible, revealed=revealed, revealed_rewards=others, **further
    )


def contexts(n: int, *, dim: int = DIM, seed: int = 0) -> Floats:
    """Return n contexts that no episode on trial holds."""
    drawn = streams.generator(seed, "trial", "contexts").normal(0.1, 0.4, (n, dim))
    return drawn.astype(np.float32).astype(np.float64)


def fresh(policy: Policy, seed: int = 7, actions: int | list[Any] = N_ACTIONS) -> Bandit:
    """Return a bandit that has seen nothing."""
    return Bandit(policy, actions, random_state=seed)


def learnt(policy: Policy, sizes: Iterable[int] = SIZES, seed: int = 7) -> Bandit:
    """Return a bandit that has learnt one episode of each size."""
    bandit = fresh(policy, seed)
    for number, size in enumerate(sizes):
        bandit.partial_fit(**episode(policy, number, size).columns())
    return bandit


def frozen(bandit: Bandit) -> tuple[str, dict[str, bytes]]:
    """Return everything that a snapshot would hold, byte for byte: the state, the labels, the rows decided."""
    header, arrays = model_file.describe(bandit.policy_, bandit._model, bandit._seed, bandit._rows)
    return json.dumps(header, sort_keys=True), {name: array.tobytes() for name, array in arrays.items()}


def table(bandit: Bandit, X: Any) -> dict[str, Floats]:
    """Return all that a bandit says of contexts, and its coefficients where it has any."""
    found = {"probabilities": bandit.predict_proba(X), "scores": bandit.decision_function(X)}
    if "ridge" in bandit.policy_.traits:
        found["coefficients"] = bandit.coefficients_
    return found


def require(holds: Any, message: str) -> None:
    """Raise an AssertionError unless ``holds``."""
    if not holds:
        raise AssertionError(message)


def require_close(found: ArrayLike, expected: ArrayLike, what: str, tolerance: float = TOLERANCE) -> None:
    """Require two arrays to agree, relative to the largest entry of the expected one."""
    left, right = np.asarray(found), np.asarray(expected)
    require(left.shape == right.shape, f"{what}: shapes {left.shape} and {right.shape}")
    worst = float(np.abs(left - right).max(initial=0.0))
    scale = float(np.abs(right).max(initial=0.0))
    require(worst <= tolerance * scale, f"{what}: {worst:.3g} apart, at a scale of {scale:.3g}")


def require_alike(found: Bandit, expected: Bandit, what: str, tolerance: float = TOLERANCE) -> None:
    """Require two bandits to say the same of fresh contexts."""
    X = contexts(40, dim=expected.n_features_in_)
    left, right = table(found, X), table(expected, X)
    for name, values in right.items():
        require_close(left[name], values, f"{what}: {name}", tolerance)
    require(found.n_episodes_ == expected.n_episodes_, f"{what}: another number of episodes")


def require_same(found: NDArray[Any], expected: NDArray[Any], what: str) -> None:
    """Require two arrays to be equal to the last bit."""
    require(np.array_equal(found, expected), f"{what}: not the same")


def require_chances(probabilities: Floats, eligible: Mask, floor: float, what: str) -> None:
    """Require rows (n, M) to be probabilities: 0 where ineligible, at least the floor elsewhere, summing to one."""
    require(np.isfinite(probabilities).all(), f"{what}: a probability is not finite")
    require((probabilities[~eligible] == 0).all(), f"{what}: an ineligible action has a chance")
    require((probabilities[eligible] >= floor * (1 - 1e-12)).all(), f"{what}: a chance below the floor {floor}")
    require_close(probabilities.sum(axis=1), np.ones(len(probabilities)), f"{what}: sums", 1e-12)


def masks(n: int, rng: Generator, actions: int = N_ACTIONS) -> dict[str, Mask | None]:
    """Return the ways to say which actions are eligible: None, (M,) and (n, M), down to a single one."""
    each = rng.random((n, actions)) < 0.5
    each[np.arange(n), rng.integers(actions, size=n)] = True
    one = np.zeros(actions, np.bool_)
    one[1] = True
    return {"all": None, "most": np.arange(actions) != 1, "one": one, "by row": each}
