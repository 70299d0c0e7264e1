"""Rewards for the actions not executed: complement sums, imputed moments, links, rates.

Every row on which action j was not executed is imputed for j, with the reward that the coefficients which
acted in this episode predict. Because contexts are shared, nothing here visits M copies of the rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from spuir.base.records import Codes, Floats, Mask
from spuir.core.quiet import quietly
from spuir.core.statistics import blocks, dense_rows
from spuir.errors import NumericalError

GROUP = 8
"""Up to this many actions the complement is one small product; more are first summed in groups of this size."""


def complement(stack: Floats, room: Floats | None = None) -> Floats:
    """Return Σ_{k≠j} of a stack (M, …), for every j, in ``room`` if given: identity 1.

    Never "total minus own", which cancels and loses positive semi-definiteness.
    """
    if len(stack) <= GROUP and stack.ndim == 2:
        return _all_but_own(len(stack)).dot(stack, room)
    flat = stack.reshape(len(stack), -1)
    out = np.empty_like(flat) if room is None else room.reshape(flat.shape)
    _complement(flat, out)
    if len(stack) > GROUP:
        # Actions never executed share one sum, bit for bit, so that they tie however large the sums are.
        idle = [j for j in np.flatnonzero(flat[:, 0] == 0.0) if not flat[j].any()]
        out[idle] = out[idle[:1]]
    return out.reshape(stack.shape)


def _complement(flat: Floats, out: Floats) -> None:
    """Add the rest of each row's group to the complement of its group among the groups."""
    m, width = flat.shape
    if m <= GROUP:
        _all_but_own(m).dot(flat, out)
        return
    whole = m - m % GROUP
    groups = out[:whole].reshape(-1, GROUP, width)
    np.matmul(_all_but_own(GROUP), flat[:whole].reshape(groups.shape), out=groups)
    if whole < m:
        np.matmul(_all_but_own(m - whole), flat[whole:], out=out[whole:])
    sums = out[::GROUP] + flat[::GROUP]
    others = np.empty_like(sums)
    _complement(sums, others)
    groups += others[: len(groups), None]
    out[whole:] += others[-1]


@cache
def _all_but_own(m: int) -> Floats:
    """Return the matrix of ones with a zero diagonal (m, m)."""
    return np.ones((m, m)) - np.eye(m)


def linear_moments(gram: Floats, theta: Floats, out: Floats | None = None) -> Floats:
    """Return Ŝ_jᵀR̂_j = (Ŝ_jᵀŜ_j) θ_j (M, p) for a stack of Grams (M, p, p): identity 2, no rows needed."""
    return np.matvec(gram, theta, out=out)


def gaps(
    contexts: Any, hidden: Mask | Codes, theta: Floats, link: "Link", cap: float | None, weights: Floats | None
) -> Floats:
    """Return Σ w (T(θ_j,s) − ⟨θ_j,s⟩) s over the rows hidden from j, (M, p), in one product per block.

    Added to Φ̂_jθ_j it gives the imputed moment of a nonlinear link; it is zero for the linear one.
    ``hidden`` is (B, M), or the executed codes (B,), from which all other actions are hidden.
    """
    m, width = theta.shape
    total = np.zeros((m, width))
    for rows in blocks(int(contexts.shape[0]), 8 * (width + 3 * m)):
        S = dense_rows(contexts, rows)
        gap = link_gap(S, theta, link, cap)
        if weights is not None:
            gap *= weights[rows, None]
        keep_hidden(gap, hidden[rows])
        total += gap.T @ S
    return total


def keep_hidden(table: Floats, hidden: Mask | Codes) -> None:
    """Set to zero, in place, the entries (n, M) that are not imputed; ``hidden`` as in :func:`gaps`."""
    if hidden.ndim == 1:
        table[np.arange(len(table)), hidden] = 0.0
    else:
        table *= hidden


def link_gap(contexts: Floats, theta: Floats, link: "Link", cap: float | None) -> Floats:
    """Return T(θ_j,s) − ⟨θ_j,s⟩ for all rows and actions (n, M); refuses what is not finite."""
    z = contexts @ theta.T
    gap = link.reward(z, cap)
    gap -= z
    if not np.all(np.isfinite(gap)):
        raise NumericalError(
            f"imputed rewards of the {link.name} link",
            "a non-finite value",
            "imputed rewards must be finite",
            "set imputed_cap (1 in the paper preset), or scale the contexts down",
        )
    return gap


@dataclass(frozen=True)
class Link:
    """An expected reward G(θ,s) as a function of z = ⟨θ,s⟩, imputed as T = ⟨θ, ∇G(θ,s)⟩."""

    name: str
    linearised: Callable[[Floats], Floats]
    linear: bool = False

    def score(self, z: Floats) -> Floats:
        """Return the reward that a policy expects at z, uncapped; ``z`` itself for the linear link."""
        return z if self.linear else self.reward(z, None)

    @quietly
    def reward(self, z: Floats, cap: float | None) -> Floats:
        """Return T at z, at most ``cap``, as a new array."""
        value = self.linearised(z)
        return value if cap is None else np.minimum(value, cap)


def _linear(z: Floats) -> Floats:
    return z.copy()


def _exponential(z: Floats) -> Floats:
    return z * np.exp(z)  # ∇exp⟨θ,s⟩ = exp(z)·s, so T = z·eᶻ


def _polynomial(z: Floats) -> Floats:
    return 2.0 * z * z  # ∇⟨θ,s⟩² = 2z·s, so T = 2z²


LINKS = {
    "linear": Link("linear", _linear, linear=True),
    "exp": Link("exp", _exponential),
    "poly": Link("poly", _polynomial),
}

PAPER_EPISODES = 90
"""The schedule's N where no horizon is given: the authors' number of episodes."""


def scheduled_rate(episode: int, episodes: int | None) -> float:
    """Return ⌈10 n/N⌉/10 for the n-th call of learn, 1 after the N-th: the paper's schedule."""
    horizon = PAPER_EPISODES if episodes is None else episodes
    return min(1.0, -(-10 * episode // horizon) / 10)


def balanced_rates(observed: Floats, imputed: Floats, balance: float) -> Floats:
    """Return γ_j = κ·n_j/n̂_j, at most 1, and 0 where either count is 0."""
    rates = np.zeros_like(observed)
    np.divide(balance * observed, imputed, out=rates, where=imputed > 0)
    return np.minimum(rates, 1.0)
