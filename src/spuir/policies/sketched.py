"""What one shard of an episode contributes to a sketched ridge policy: hashed rows, one hash for all actions.

A shard keeps its rows as long as the episode has no more of them than the sketch, and hashes them when it
grows beyond; both forms add up.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spuir.base.records import Batch, Codes, Floats, Mask, all_finite
from spuir.core.imputing import LINKS, complement, gaps, keep_hidden, link_gap
from spuir.core.scratch import workspace
from spuir.core.statistics import blocks, count_codes, dense_rows, per_action, refuse_overflow
from spuir.errors import ShardError
from spuir.policies.sums import ExactSums, exact_sums, hidden_mask, observed_entries
from spuir.sketches import Sketch
from spuir.sketches.base import row_sums

HASH_BYTES = 128 * 2**20
"""Rows are hashed in pieces of about this size: every piece costs one more sum of whole sketches."""
TWICE_BYTES = 2**22
"""Rows that are read twice come in pieces of about this size (measured)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Hashing:
    """How the rows of an episode are hashed, the same for all its shards.

    ``theta`` (M, p) are the acting coefficients. With ``sketched_moments`` the moment is Γ_jᵀΛ_j as in the
    paper; otherwise it is taken exactly about ``reference`` (M, p): p_j = (Γ_jᵀΓ_j) ref_j + S_jᵀ(R_j − S_j ref_j).
    """

    sketch: Sketch
    key: int
    link: str
    cap: float | None
    theta: Floats
    reference: Floats
    sketched_moments: bool


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
        return exact_sums(self.held, self.how.theta, self.how.link, self.how.cap, imputing)

    def hashed(self) -> Hashed:
        """Return the hash of the shard's rows."""
        if self.parts is not None:
            return self.parts
        if self.held is None:
            raise ShardError("shard", "neither rows nor a hash", "a shard holds one of them", "collect it again")
        return hash_rows(self.held, self.how)

    def owned(self) -> "SketchedSums":
        """Return the same with rows that are held in memory of their own."""
        return self if self.held is None else replace(self, held=joined([self.held]))

    def __add__(self, other: "SketchedSums") -> "SketchedSums":
        """Return the sums of both shards; rows are held only while they fit the sketch together."""
        if self.how.key != other.how.key:
            raise ShardError("shard", "another hash key", "an episode has one key", "collect with one bandit")
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
    if how.sketched_moments:
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
    link = LINKS[how.link]
    if link.linear:
        return made
    if how.sketched_moments:
        return replace(made, gap_sketch=_hashed_gaps(batch, mask, how))
    return replace(made, gap=gaps(batch.contexts, mask, how.theta, link, how.cap, batch.weights))


def _summable(contexts: Floats) -> bool:
    """Tell whether the Gram matrices of Γ_j (M, c, p) are finite, which their diagonals tell."""
    # The sum of all squares tells at once, where it is finite.
    return math.isfinite(np.vdot(contexts, contexts)) or all_finite(np.einsum("mcp,mcp->mp", contexts, contexts))


def _hash(
    batch: Batch, how: Hashing, rows: Codes | None, codes: Codes, rewards: Floats, weights: Floats | None
) -> tuple[Floats, Floats, Floats, Floats]:
    """Hash entries into Γ_j and Λ_j, √w a row; also return weight and energy per action."""
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
        gap = link_gap(dense_rows(batch.contexts, piece), how.theta, LINKS[how.link], how.cap)
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
    """Return the rows of held shards as one batch, in memory of its own."""
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
