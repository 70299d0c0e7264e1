"""Episodes to check a policy on, and the comparisons that laws use."""

import json
import warnings
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from spuir.bandit import Bandit
from spuir.base import packing, streams
from spuir.base.records import Floats, Mask
from spuir.core import ties
from spuir.errors import InterceptWarning
from spuir.policies import Policy
from spuir.storage import model_file

N_ACTIONS, DIM = 4, 5
SIZES = (260, 60, 170)
"""Sizes of the episodes: below and above the default size of a sketch, the first enough to fix a feature map."""
TOLERANCE = 1e-10
"""Relative difference allowed between two orders of summation."""


@dataclass(frozen=True)
class Law:
    """A law: its name, the function that checks a policy, and the traits a policy must and must not have."""

    name: str
    check: Callable[[Policy], None]
    needs: frozenset[str] = frozenset()
    unless: frozenset[str] = frozenset()

    def applies(self, traits: frozenset[str]) -> bool:
        """Return whether the law applies to a policy with these traits."""
        return self.needs <= traits and not self.unless & traits


def law(check: Callable[[Policy], None], needs: Iterable[str] = (), unless: Iterable[str] = ()) -> Law:
    """Return a law named after the function that checks it."""

    @wraps(check)
    def without_advice(policy: Policy) -> None:
        # The rewards of the trials average 0.5 and no context column is constant, on purpose.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InterceptWarning)
            check(policy)

    return Law(check.__name__.replace("_", " "), without_advice, frozenset(needs), frozenset(unless))


@dataclass(frozen=True, kw_only=True, eq=False)
class TrialRows:
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

    def take(self, chosen: ArrayLike | slice) -> "TrialRows":
        """Return some rows, in the order given."""
        picked = {name: column[chosen] for name, column in vars(self).items() if column is not None}
        return replace(self, **picked)

    def columns(self) -> dict[str, Any]:
        """Return everything as keyword arguments of ``partial_fit`` and ``collect``."""
        return {name: column for name, column in vars(self).items() if column is not None}


def is_exact(policy: Policy) -> bool:
    """Return whether the policy's propensities are exact, not Monte Carlo estimates."""
    state = policy.init(2, 1, streams.generator(0, "trial", "init"))
    return policy.decide(state, np.zeros((1, 1)), streams.generator(0, "trial", "decide")).exact


def episode(policy: Policy, number: int, rows: int, *, actions: int = N_ACTIONS, dim: int = DIM) -> TrialRows:
    """Return an episode with uniformly drawn actions and rewards around 0.5 that are linear in the context.

    Contexts are exact in single precision. Propensities are included only if the policy cannot compute them exactly.
    """
    rng = streams.generator(0, "trial", number, rows)
    X = rng.normal(0.1, 0.4, (rows, dim)).astype(np.float32).astype(np.float64)
    codes = rng.integers(actions, size=rows)
    weights = streams.generator(0, "trial", "truth").normal(0.0, 0.3, (actions, dim))
    rewards = 0.5 + np.einsum("nd,nd->n", X, weights[codes]) + 0.1 * rng.standard_normal(rows)
    propensities = None if is_exact(policy) else np.full(rows, 1.0 / actions)
    ids = rng.permutation(10 * rows)[:rows]
    return TrialRows(X=X, actions=codes, rewards=rewards, row_ids=ids, propensities=propensities)


def enriched(rows: TrialRows, actions: int = N_ACTIONS, lightest: int = 0) -> TrialRows:
    """Return the rows with weights, eligibility, some revealed rewards, and delayed conversions of clicks.

    Some weights are 0, unless ``lightest`` is 1.
    """
    rng, n = streams.generator(0, "trial", "enriched", len(rows)), len(rows)
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
    """Return n contexts that are in no episode."""
    drawn = streams.generator(seed, "trial", "contexts").normal(0.1, 0.4, (n, dim))
    return drawn.astype(np.float32).astype(np.float64)


def fresh(policy: Policy, seed: int = 7, actions: int | list[Any] = N_ACTIONS) -> Bandit:
    """Return a bandit before its first episode."""
    return Bandit(policy, actions, random_state=seed)


_TRAINED: dict[tuple[tuple[int, ...], int], tuple[Policy, Bandit]] = {}
"""The last trained bandit for each list of sizes and each seed: most laws of a policy begin with the same one."""


def trained(policy: Policy, sizes: Iterable[int] = SIZES, seed: int = 7) -> Bandit:
    """Return a bandit that has learned one episode of each size, as a new copy."""
    key = (tuple(sizes), seed)
    if key not in _TRAINED or _TRAINED[key][0] is not policy:
        bandit = fresh(policy, seed)
        for number, size in enumerate(key[0]):
            bandit.partial_fit(**episode(policy, number, size).columns())
        _TRAINED[key] = policy, bandit
    return deepcopy(_TRAINED[key][1], {id(policy): policy})


def frozen(bandit: Bandit) -> tuple[str, dict[str, bytes]]:
    """Return the content of a model file, byte for byte: the state, the labels, the number of rows decided."""
    header, arrays = model_file.describe(bandit.policy_, bandit._model, bandit._seed, bandit._rows.used)
    return json.dumps(header, sort_keys=True), {name: array.tobytes() for name, array in arrays.items()}


def table(bandit: Bandit, X: Any) -> dict[str, Floats]:
    """Return what a bandit computes for contexts, and its coefficients if it has any."""
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


def require_alike(found: Bandit, expected: Bandit, what: str) -> None:
    """Require two bandits to give the same results on new contexts."""
    X = contexts(40, dim=expected.n_features_in_)
    left, right = table(found, X), table(expected, X)
    for name, values in right.items():
        require_close(left[name], values, f"{what}: {name}")
    require(found.n_episodes_ == expected.n_episodes_, f"{what}: another number of episodes")


def require_equal_states(found: Bandit, expected: Bandit, what: str) -> None:
    """Require the states of two bandits to hold the same numbers, whether or not anything is computed from them."""
    left, right = packing.pack(found.state_)[1], packing.pack(expected.state_)[1]
    require(left.keys() == right.keys(), f"{what}: states with other arrays")
    for name, values in right.items():
        require_close(left[name], values, f"{what}: {name!r} of the state")


def require_same(found: NDArray[Any], expected: NDArray[Any], what: str) -> None:
    """Require two arrays to be equal, bit for bit."""
    require(np.array_equal(found, expected), f"{what}: not the same")


def require_probabilities(probabilities: Floats, eligible: Mask, floor: float | None, what: str) -> None:
    """Require rows (n, M) to be probabilities: 0 where ineligible, at least the floor elsewhere, summing to one."""
    require(np.isfinite(probabilities).all(), f"{what}: a probability is not finite")
    require((probabilities[~eligible] == 0).all(), f"{what}: an ineligible action has a positive probability")
    least = ties.with_floor(np.zeros_like(probabilities), eligible, floor)
    require((probabilities >= least * (1 - 1e-12)).all(), f"{what}: a probability below the floor {floor}")
    require_close(probabilities.sum(axis=1), np.ones(len(probabilities)), f"{what}: sums", 1e-12)


def masks(n: int, rng: Generator) -> dict[str, Mask | None]:
    """Return eligibility in all forms: None, (M,) and (n, M), down to a single action."""
    each = rng.random((n, N_ACTIONS)) < 0.5
    each[np.arange(n), rng.integers(N_ACTIONS, size=n)] = True
    one = np.arange(N_ACTIONS) == 1
    return {"all": None, "most": ~one, "one": one, "by row": each}
