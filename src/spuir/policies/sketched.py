"""Sketched sums: hashed rows, one hash for all actions, and the statistics of an episode made of them, (7) and (8).

A shard keeps its rows as long as the episode has no more of them than the sketch, and hashes them when it
grows beyond that; both forms add up.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from spuir.base.records import Batch, Codes, Floats, Mask, all_finite
from spuir.core.imputing import complement, gaps, keep_hidden, linear_moments, link_gap
from spuir.core.scratch import workspace
from spuir.core.solving import solve
from spuir.core.statistics import Statistics, blocks, count_codes, dense_rows, per_action, refuse_overflow
from spuir.errors import ShardError
from spuir.policies.exact import (
    EpisodeStatistics,
    ExactSums,
    ImputedRewards,
    exact_episode,
    exact_sums,
    hidden_mask,
    observed_entries,
)
from spuir.sketches import Sketch
from spuir.sketches.base import row_sums

HASH_BYTES = 128 * 2**20
"""Rows are hashed in pieces of about this size: every piece costs one more sum of whole sketches."""
TWICE_BYTES = 2**22
"""Rows that are read twice come in pieces of about this size (measured)."""


class Moments(NamedTuple):
    """How a sketch keeps the moment of a batch: hashed as in the paper, or exact about reference coefficients.

    ``share`` is the weight of the hashed moment, the rest being that of the exact one; None estimates it on the
    sketch. The reference is 0, the acting coefficients (``about_acting``), or the sketched solution of the batch
    itself (``second_pass``, which reads the rows twice).
    """

    share: float | None
    about_acting: bool = False
    second_pass: bool = False

    @property
    def hashed(self) -> bool:
        """Whether the hashed moment is all that is needed."""
        return self.share == 1.0


MOMENTS = {
    "sketched": Moments(share=1.0),  # Γ_jᵀΛ_j of (7)
    "exact": Moments(share=0.0),
    "corrected": Moments(share=0.0, second_pass=True),
    "anchored": Moments(share=None, about_acting=True),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Hashing:
    """How the rows of an episode are hashed, the same for all its shards.

    ``theta`` (M, p) are the acting coefficients. Hashed moments are Γ_jᵀΛ_j as in the paper; others are taken exactly
    about ``reference`` (M, p): p_j = (Γ_jᵀΓ_j) ref_j + S_jᵀ(R_j − S_j ref_j).
    """

    sketch: Sketch
    key: int
    imputed: ImputedRewards
    theta: Floats
    reference: Floats
    moments: Moments


@dataclass(frozen=True, kw_only=True, eq=False)
class Hashed:
    """Hashed rows of a shard, per action; every field adds up.

    ``contexts`` Γ_j = C_j S_j (M, c, p), ``rewards`` Λ_j = C_j R_j (M, c), ``weight`` and ``energy`` (M,) as in exact
    sums; ``residual`` S_jᵀ(R_j − S_j ref_j) (M, p); ``hidden`` (M, c, p) and
    ``hidden_weight`` (M,) of the imputed rows, None where they are the complement; ``gap`` (M, p) or, sketched,
    ``gap_sketch`` (M, c): what a nonlinear link adds to the imputed moment.
    """

    contexts: Floats
    rewards: Floats
    weight: Floats
    energy: Floats
    residual: Floats
    hidden: Floats | None = None
    hidden_weight: Floats | None = None
    gap: Floats | None = None
    gap_sketch: Floats | None = None

    def imputed(self, room: Floats | None = None) -> tuple[Floats, Floats]:
        """Return Γ̂_j = Σ_{k≠j} Γ_k (M, c, p), or the sketch of the hidden rows, and the imputed weight (M,).

        The first is written into ``room`` (M, c, p) where it is computed and room is given.
        """
        if self.hidden is not None and self.hidden_weight is not None:
            return self.hidden, self.hidden_weight
        return complement(self.contexts, room), complement(self.weight)

    def __add__(self, other: "Hashed") -> "Hashed":
        """Return the sketch of both sets of rows."""
        first, second = self, other
        if (first.hidden is None) != (second.hidden is None):
            first, second = first._explicit(), second._explicit()
        return Hashed(
            **{item.name: _plus(getattr(first, item.name), getattr(second, item.name)) for item in fields(self)}
        )

    def _explicit(self) -> "Hashed":
        hidden, weight = self.imputed()
        return replace(self, hidden=hidden, hidden_weight=weight)


def _plus(first: Any, second: Any) -> Any:
    if first is None or second is None:
        return first if second is None else second
    return first + second


@dataclass(frozen=True, kw_only=True, eq=False)
class SketchedSums:
    """A shard as its rows (``held``) while they fit the sketch, as their hash (``parts``) beyond."""

    rows: int
    how: Hashing
    held: Batch | None = None
    parts: Hashed | None = None

    def exact(self, imputing: bool) -> ExactSums | None:
        """Return exact sums where the episode's rows are all still held."""
        if self.held is None:
            return None
        return exact_sums(self.held, self.how.theta, self.how.imputed._replace(on=imputing))

    def hashed(self) -> Hashed:
        """Return the hash of the shard's rows."""
        if self.parts is not None:
            return self.parts
        if self.held is None:
            raise ShardError("shard", "neither rows nor a hash", "a shard holds one of them", "collect it again")
        return hash_rows(self.held, self.how)

    def owned(self) -> "SketchedSums":
        """Return the same, with copies of the rows that are held."""
        return self if self.held is None else replace(self, held=joined([self.held]))

    def __add__(self, other: "SketchedSums") -> "SketchedSums":
        """Return the sums of both shards; rows are held only while they fit the sketch together."""
        if self.how.key != other.how.key:
            raise ShardError("shard", "another hash key", "an episode has one key", "collect with one bandit")
        if self.how.moments.second_pass:
            rule = "corrected moments pass over the whole episode twice"
            raise ShardError("shard", "a part of an episode", rule, 'use moments="anchored"')
        rows = self.rows + other.rows
        if self.held is not None and other.held is not None and self.how.sketch.keeps(rows):
            return replace(self, rows=rows, held=joined([self.held, other.held]))
        return SketchedSums(rows=rows, how=self.how, parts=self.hashed() + other.hashed())


def sketched_sums(batch: Batch, how: Hashing) -> SketchedSums:
    """Return the sums of a batch whose contexts are already feature rows."""
    whole = SketchedSums(rows=len(batch), how=how, held=batch)
    return whole if how.sketch.keeps(len(batch)) else replace(whole, held=None, parts=whole.hashed())


def hash_rows(batch: Batch, how: Hashing) -> Hashed:
    """Hash the rows of a batch by their ids, once for all actions: identity 3."""
    entries = observed_entries(batch)
    contexts, rewards, weight, energy = _hash(batch, how, *entries)
    if not (_summable(contexts) and all_finite(energy)):
        refuse_overflow(batch.contexts, entries[2], entries[0])
    if how.moments.hashed:
        residual = np.zeros_like(how.theta)
    else:
        residual = residual_moments(batch, how.reference, *entries)
    made = Hashed(contexts=contexts, rewards=rewards, weight=weight, energy=energy, residual=residual)
    mask = hidden_mask(batch)
    if mask.ndim == 2:
        at, action = np.nonzero(mask)
        heavy = None if batch.weights is None else batch.weights[at]
        hidden, _, hidden_weight, _ = _hash(batch, how, at, action, np.zeros(len(at)), heavy)
        made = replace(made, hidden=hidden, hidden_weight=hidden_weight)
    imputed = how.imputed
    if imputed.link.linear:
        return made
    if how.moments.hashed:
        return replace(made, gap_sketch=_hashed_gaps(batch, mask, how))
    return replace(made, gap=gaps(batch.contexts, mask, how.theta, imputed.link, imputed.cap, batch.weights))


def _summable(contexts: Floats) -> bool:
    """Return whether the Gram matrices of Γ_j (M, c, p) are finite, judged by their diagonals."""
    # If the sum of all squares is finite, everything is.
    return math.isfinite(np.vdot(contexts, contexts)) or all_finite(np.einsum("mcp,mcp->mp", contexts, contexts))


def _hash(
    batch: Batch, how: Hashing, rows: Codes | None, codes: Codes, rewards: Floats, weights: Floats | None
) -> tuple[Floats, Floats, Floats, Floats]:
    """Hash entries into Γ_j and Λ_j, each row times √w; also return weight and energy per action."""
    m, width = how.theta.shape
    count_codes(codes, m)
    ids, sketch = row_ids(batch), how.sketch
    contexts, responses = np.zeros((m, sketch.size, width)), np.zeros((m, sketch.size))
    root = None if weights is None else np.sqrt(weights)
    for number, piece in enumerate(blocks(len(codes), 8 * width, HASH_BYTES)):
        at = piece if rows is None else rows[piece]
        own, table, values = codes[piece], dense_rows(batch.contexts, at), rewards[piece]
        if root is not None:
            table, values = table * root[piece, None], values * root[piece]
        spread = sketch.spread(own, m, ids[at], how.key)
        part = spread(table)
        contexts = part if number == 0 else np.add(contexts, part, out=contexts)
        responses += spread(values[:, None])[:, :, 0]
    heavy = np.ones(len(codes)) if weights is None else weights
    return contexts, responses, per_action(codes, heavy, m), per_action(codes, heavy * rewards * rewards, m)


def _hashed_gaps(batch: Batch, mask: Mask | Codes, how: Hashing) -> Floats:
    """Return Ĉ_j (T_j − Ŝ_jθ_j) (M, c): what a nonlinear link adds to Λ̂_j."""
    m, width = how.theta.shape
    total = np.zeros((m, how.sketch.size))
    ids = row_ids(batch)
    for piece in blocks(len(batch), 8 * (width + 3 * m)):
        gap = link_gap(dense_rows(batch.contexts, piece), how.theta, how.imputed.link, how.imputed.cap)
        if batch.weights is not None:
            gap *= np.sqrt(batch.weights[piece, None])
        keep_hidden(gap, mask[piece])
        total += how.sketch.sums(gap, np.zeros(len(gap), np.intp), 1, ids[piece], how.key)[0].T
    return total


def residual_moments(
    batch: Batch, reference: Floats, rows: Codes | None, codes: Codes, rewards: Floats, weights: Floats | None
) -> Floats:
    """Return S_jᵀ(R_j − S_j ref_j) (M, p), exactly, in O(k·p) for k entries."""
    m, width = reference.shape
    total = np.zeros((m, width))
    # Small pieces: each is read twice and should still be in the cache the second time.
    for piece in blocks(len(codes), 16 * width, TWICE_BYTES):
        table = dense_rows(batch.contexts, piece if rows is None else rows[piece])
        own = codes[piece]
        references = reference.take(own, axis=0, out=workspace("references", table.shape), mode="clip")
        left = rewards[piece] - np.vecdot(table, references)
        if weights is not None:
            left = left * weights[piece]
        total += row_sums(left, own, m) @ table
    return total


def row_ids(batch: Batch) -> NDArray[np.int64]:
    """Return the ids by which rows are hashed."""
    return np.arange(len(batch), dtype=np.int64) if batch.row_ids is None else batch.row_ids


def joined(batches: Sequence[Batch]) -> Batch:
    """Return the rows of held shards as one batch of copies."""
    parts: dict[str, Any] = {
        "contexts": np.concatenate([dense_rows(batch.contexts, slice(0, len(batch))) for batch in batches]),
        "row_ids": np.concatenate([row_ids(batch) for batch in batches]),
    }
    for name in ("actions", "rewards", "weights", "revealed", "revealed_rewards"):
        given = [getattr(batch, name) for batch in batches]
        like = next((column for column in given if column is not None), None)
        if like is not None:
            parts[name] = np.concatenate(
                [_filled(name, column, len(batch), like) for column, batch in zip(given, batches, strict=True)]
            )
    return Batch(**parts)


def _filled(name: str, column: Any, length: int, like: Any) -> Any:
    """Return a column, or the neutral one that stands for its absence."""
    if column is not None:
        return column
    return np.ones(length) if name == "weights" else np.zeros((length, *like.shape[1:]), like.dtype)


def sketched_episode(
    sums: SketchedSums, theta: Floats, imputing: bool, moments: Moments, ridge: float
) -> EpisodeStatistics:
    """Return the same from sketches: ΓᵀΓ in place of SᵀS, and half the Gram of the sketch of all rows."""
    whole = sums.exact(imputing)
    if whole is not None:
        return exact_episode(whole, theta, imputing)
    parts = sums.hashed()
    gram = np.matmul(parts.contexts.transpose(0, 2, 1), parts.contexts)  # Γ_jᵀΓ_j of (7)
    moment, energy = sketched_moment(parts, gram, sums.how.reference, moments, ridge)
    seen = Statistics.of(gram=gram, moment=moment, weight=parts.weight, energy=energy)
    if not imputing:
        return EpisodeStatistics(seen)
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
    return EpisodeStatistics(seen, hidden, 0.5 * (everything.T @ everything))


def sketched_moment(
    parts: Hashed, gram: Floats, reference: Floats, moments: Moments, ridge: float
) -> tuple[Floats, Floats]:
    """Return the moment that belongs to the sketched Gram (M, p), and an energy that belongs to both (M,).

    Sketched, its error grows with the noise ‖e‖ of the rewards; taken exactly about a reference, with the
    distance ‖S(θ − ref)‖ of the reference from the least squares solution θ. The anchored moment weighs
    the two by the inverse of their variances, both estimated on the sketch: with g = Sᵀ(R − S ref), ‖S(θ − ref)‖²
    by gᵀ(λI + ΓᵀΓ)⁻¹g, and ‖e‖² by the squared residual of the sketched fit.

    Either error has the covariance τ²/c · ΓᵀΓ, in addition to σ²ΓᵀΓ of the noise σ² = ‖e‖²/n itself. The energy is
    such that the fit of these sums leaves n(σ² + τ²/c), from which standard errors are made.
    """
    hashed = hashed_moment(parts)  # Γ_jᵀΛ_j of (7)
    centre = linear_moments(gram, reference)
    exact = solve(gram.copy(), parts.residual, ridge)
    left = parts.rewards - linear_moments(parts.contexts, reference + exact.again(hashed - centre))
    shift, noise = np.einsum("mp,mp->m", parts.residual, exact.theta), np.einsum("mc,mc->m", left, left)
    share = np.full_like(shift, moments.share or 0.0)
    if moments.share is None:
        np.divide(shift, shift + noise, out=share, where=shift + noise > 0)
    mixed = centre + share[:, None] * (hashed - centre) + (1.0 - share[:, None]) * parts.residual
    moment = hashed if moments.hashed else mixed
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


@dataclass(frozen=True)
class SketchedSummation:
    """Rows become sketched sums: SPUIR. ``ridge`` is λ of the solutions that weigh or centre the moments."""

    sketch: Sketch
    moments: Moments
    ridge: float

    sketched = True

    @property
    def additive(self) -> bool:
        """Whether shards of an episode add up; a second pass needs the whole episode."""
        return not self.moments.second_pass

    @property
    def foldable(self) -> bool:
        """Whether sums do not depend on the acting coefficients."""
        return self.additive and not self.moments.about_acting

    def collect(self, rows: Batch, theta: Floats, imputed: ImputedRewards, rng: Generator) -> SketchedSums:
        """Return the sums of feature rows; rows that they hold are copies, because a shard outlives the call."""
        how = Hashing(
            sketch=self.sketch,
            key=int(rng.integers(2**63)),
            imputed=imputed,
            theta=theta,
            reference=theta if self.moments.about_acting else np.zeros_like(theta),
            moments=self.moments,
        )
        sums = sketched_sums(rows, how)
        if self.moments.second_pass and sums.parts is not None:
            # Moments about the sketched solution of this batch alone, θ′.
            centre = batch_solution(sums.parts, self.ridge)
            residual = residual_moments(rows, centre, *observed_entries(rows))
            return replace(sums, how=replace(how, reference=centre), parts=replace(sums.parts, residual=residual))
        return sums.owned()

    def episode(self, sums: SketchedSums, theta: Floats, imputing: bool) -> EpisodeStatistics:
        """Return the statistics of an episode from its sketches."""
        return sketched_episode(sums, theta, imputing, self.moments, self.ridge)
