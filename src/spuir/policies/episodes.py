"""Sums of an episode → its observed and imputed statistics: (3) and (4) from exact sums, (7) and (8) from sketches."""

from typing import NamedTuple

import numpy as np

from spuir.base.records import Floats
from spuir.core.imputing import linear_moments
from spuir.core.scratch import workspace
from spuir.core.solving import solve
from spuir.core.statistics import Statistics
from spuir.policies.sketched import Hashed, SketchedSums
from spuir.policies.sums import ExactSums


class Episode(NamedTuple):
    """What an episode adds: ``seen`` to the observed and ``hidden`` to the imputed sums, ``total`` (p, p) to T.

    The last two are None where nothing is imputed.
    """

    seen: Statistics
    hidden: Statistics | None = None
    total: Floats | None = None


def exact_episode(sums: ExactSums, theta: Floats, imputing: bool) -> Episode:
    """Return the statistics of an episode, in the arrays of ``sums``; ``theta`` (M, p) acted in it."""
    if not imputing:
        return Episode(sums.observed)
    hidden = sums.imputed()
    gram, moment = hidden.gram, hidden.moment
    linear_moments(gram, theta, out=moment)  # Ŝ_jᵀR̂_j of (4), identity 2
    hidden.energy.fill(0.0)  # imputed rewards have no energy
    if sums.gap is not None:
        moment += sums.gap
    p = hidden.width
    total = (sums.observed.table[0, : p * p] + hidden.table[0, : p * p]).reshape(p, p)
    return Episode(sums.observed, hidden, total)


def sketched_episode(sums: SketchedSums, theta: Floats, imputing: bool, moments: str, ridge: float) -> Episode:
    """Return the same from sketches: ΓᵀΓ in place of SᵀS, and half the Gram of the sketch of all rows."""
    whole = sums.exact(imputing)
    if whole is not None:
        return exact_episode(whole, theta, imputing)
    parts = sums.hashed()
    gram = np.matmul(parts.contexts.transpose(0, 2, 1), parts.contexts)  # Γ_jᵀΓ_j of (7)
    moment, energy = sketched_moment(parts, gram, sums.how.reference, moments, ridge)
    seen = Statistics.of(gram=gram, moment=moment, weight=parts.weight, energy=energy)
    if not imputing:
        return Episode(seen)
    others, weight = parts.imputed(workspace("imputed", parts.contexts.shape))
    imputed_gram = np.matmul(others.transpose(0, 2, 1), others)  # Γ̂_jᵀΓ̂_j of (8)
    imputed_moment = linear_moments(imputed_gram, theta)  # Γ̂_jᵀΛ̂_j of (8), as Λ̂_j = Γ̂_jθ_j
    if parts.gap is not None:
        imputed_moment += parts.gap
    if parts.gap_sketch is not None:
        imputed_moment += np.matmul(parts.gap_sketch[:, None, :], others)[:, 0]
    hidden = Statistics.of(gram=imputed_gram, moment=imputed_moment, weight=weight)
    everything = parts.contexts[0] + others[0]
    # AᵀA + BᵀB ⪰ ½(A+B)ᵀ(A+B): half the sketch of all rows bounds every action from below.
    return Episode(seen, hidden, 0.5 * (everything.T @ everything))


def sketched_moment(
    parts: Hashed, gram: Floats, reference: Floats, moments: str, ridge: float
) -> tuple[Floats, Floats]:
    """Return the moment that belongs to the sketched Gram (M, p), and an energy that belongs to both (M,).

    Sketched, its error grows with the noise ‖e‖ of the rewards; taken exactly about a reference, with the
    distance ‖S(θ − ref)‖ of the reference from the least squares solution θ. The anchored moment weighs
    the two by the inverse of their variances, both estimated on the sketch: with g = Sᵀ(R − S ref), ‖S(θ − ref)‖²
    by gᵀ(λI + ΓᵀΓ)⁻¹g, and ‖e‖² by the squared residual of the sketched fit.

    Either error has the covariance τ²/c · ΓᵀΓ, beside σ²ΓᵀΓ of the noise σ² = ‖e‖²/n itself. The energy is such that
    the fit of these sums leaves n(σ² + τ²/c), from which standard errors are made.
    """
    hashed = hashed_moment(parts)  # Γ_jᵀΛ_j of (7)
    centre = linear_moments(gram, reference)
    exact = solve(gram.copy(), parts.residual, ridge)
    left = parts.rewards - linear_moments(parts.contexts, reference + exact.again(hashed - centre))
    shift, noise = np.einsum("mp,mp->m", parts.residual, exact.theta), np.einsum("mc,mc->m", left, left)
    share = np.full_like(shift, moments == "sketched")
    if moments == "anchored":
        np.divide(shift, shift + noise, out=share, where=shift + noise > 0)
    anchored = centre + share[:, None] * (hashed - centre) + (1.0 - share[:, None]) * parts.residual
    moment = hashed if moments == "sketched" else anchored
    # The fit has taken p of the sketch's degrees of freedom, or of the rows' where these are fewer.
    size, p = parts.contexts.shape[1:]
    rows = np.minimum(parts.weight, size)
    noise *= rows / np.maximum(rows - p, 1.0)
    spread = share**2 * noise + (1.0 - share) ** 2 * shift
    energy = noise + parts.weight * spread / size + np.einsum("mp,mp->m", moment, exact.again(moment))
    return moment, np.where(np.isfinite(energy), energy, parts.energy)


def hashed_moment(parts: Hashed) -> Floats:
    """Return Γ_jᵀΛ_j (M, p)."""
    return np.matmul(parts.rewards[:, None, :], parts.contexts)[:, 0]


def batch_solution(parts: Hashed, ridge: float) -> Floats:
    """Return θ′ (M, p): the sketched ridge solution of one batch alone."""
    psi = np.matmul(parts.contexts.transpose(0, 2, 1), parts.contexts)
    return solve(psi, hashed_moment(parts), ridge).theta
