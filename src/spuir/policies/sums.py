"""What one shard of an episode contributes to a ridge policy: exact sums, or a sketch of its rows.

Both add up over shards. A sketched shard keeps its rows as long as the episode has no more of them than the
sketch, and hashes them when it grows beyond.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spuir.core.imputing import LINKS, complement, gaps, link_gap
from spuir.core.statistics import Statistics, blocks, count_codes, dense_rows, refuse_non_finite, summarise
from spuir.errors import ShardError
from spuir.records import Batch, Codes, Floats, Mask
from spuir.sketches import Sketch


_ADDITIVE = ("observed", "hidden", "residual", "surprise", "gap", "gap_sketch", "weight", "energy", "hidden_weight")


def observed_entries(batch: Batch) -> tuple[Codes | None, Codes, Floats, Floats | None]:
    """Return (rows, actions, rewards, weights) of everything observed: executed, then revealed."""
    if batch.revealed is None:
        return None, batch.actions, batch.rewards, batch.weights
    rows, codes = np.nonzero(_newly_revealed(batch))
    rows_all = np.concatenate([np.arange(len(batch)), rows])
    rewards = np.concatenate([batch.rewards, batch.revealed_rewards[rows, codes]])
    weights = None if batch.weights is None else batch.weights[rows_all]
    return rows_all, np.concatenate([batch.actions, codes]), rewards, weights


def _newly_revealed(batch: Batch) -> Mask:
    revealed = batch.revealed.copy()
    revealed[np.arange(len(batch)), batch.actions] = False
    return revealed


def hidden_mask(batch: Batch) -> Mask | Codes:
    """Return which rows are imputed for which action: (B, M), or the executed codes where that says it all."""
    if batch.revealed is None:
        return batch.actions
    hidden = ~batch.revealed
    hidden[np.arange(len(batch)), batch.actions] = False
    return hidden


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactSums:
    """Sums of a shard's rows.

    ``observed`` per action; ``hidden`` the sums of the rows imputed for each action, None where they are
    the complement of the observed ones; ``gap`` (M, p) what a nonlinear link adds to the imputed moment.
    """

    rows: int
    observed: Statistics
    hidden: Statistics | None = None
    gap: Floats | None = None

    def imputed(self) -> tuple[Floats, Floats]:
        """Return Ŝ_jᵀŜ_j (M, p, p) and the imputed weight (M,)."""
        if self.hidden is not None:
            return self.hidden.gram, self.hidden.weight
        return complement(self.observed.gram), complement(self.observed.weight)

    def __add__(self, other: "ExactSums") -> "ExactSums":
        """Return the sums of both shards."""
        hidden = None
        if self.hidden is not None or other.hidden is not None:
            hidden = self._explicit() + other._explicit()
        gap = self.gap if other.gap is None else other.gap if self.gap is None else self.gap + other.gap
        return ExactSums(rows=self.rows + other.rows, observed=self.observed + other.observed, hidden=hidden, gap=gap)

    def _explicit(self) -> Statistics:
        if self.hidden is not None:
            return self.hidden
        gram, weight = self.imputed()
        return replace(Statistics.zero(*self.observed.moment.shape), gram=gram, weight=weight)


def exact_sums(batch: Batch, theta: Floats, link: str, cap: float | None, imputing: bool) -> ExactSums:
    """Return the sums of a batch whose contexts are already feature rows."""
    m = len(theta)
    rows, codes, rewards, weights = observed_entries(batch)
    observed = summarise(batch.contexts, codes, rewards, weights, m, rows)
    if not imputing:
        return ExactSums(rows=len(batch), observed=observed)
    hidden, gap, mask = None, None, hidden_mask(batch)
    if mask.ndim == 2:
        at, action = np.nonzero(mask)
        weights = None if batch.weights is None else batch.weights[at]
        hidden = summarise(batch.contexts, action, np.zeros(len(at)), weights, m, at)
    if not LINKS[link].linear:
        gap = gaps(batch.contexts, mask, theta, LINKS[link], cap, batch.weights)
    return ExactSums(rows=len(batch), observed=observed, hidden=hidden, gap=gap)


@dataclass(frozen=True, kw_only=True, eq=False)
class Hashed:
    """Γ_j = C_j S_j (M, c, p) and Λ_j = C_j R_j (M, c) of some rows."""

    contexts: Floats
    rewards: Floats

    def __add__(self, other: "Hashed") -> "Hashed":
        """Return the sketch of both sets of rows."""
        return Hashed(contexts=self.contexts + other.contexts, rewards=self.rewards + other.rewards)


@dataclass(frozen=True, kw_only=True, eq=False)
class SketchedSums:
    """Sketches of a shard's rows, with one hash for all actions, and the exact sums that cost no more.

    ``held`` keeps the shard's rows while the episode is no larger than the sketch; the other arrays are
    then None. With ``sketched_moments`` the moment is Γ_jᵀΛ_j as in the paper. Otherwise it is taken exactly
    about the coefficients ``reference`` (M, p): p_j = (Γ_jᵀΓ_j) ref_j + S_jᵀ(R_j − S_j ref_j), of which the last
    part is ``residual`` (M, p); ``surprise`` (M,) is ‖R_j − S_j ref_j‖².
    """

    rows: int
    sketch: Sketch
    key: int
    link: str
    cap: float | None
    theta: Floats
    sketched_moments: bool
    reference: Floats | None = None
    held: Batch | None = None
    observed: Hashed | None = None
    hidden: Hashed | None = None
    residual: Floats | None = None
    surprise: Floats | None = None
    gap: Floats | None = None
    gap_sketch: Floats | None = None
    weight: Floats | None = None
    energy: Floats | None = None
    hidden_weight: Floats | None = None

    def exact(self, imputing: bool) -> ExactSums | None:
        """Return exact sums where the episode's rows are all still held."""
        if self.held is None:
            return None
        return exact_sums(self.held, self.theta, self.link, self.cap, imputing)

    def __add__(self, other: "SketchedSums") -> "SketchedSums":
        """Return the sums of both shards; rows are held only while they fit the sketch together."""
        if self.key != other.key:
            raise ShardError("shard", "another hash key", "shards of one episode share a key", "collect with one bandit")
        if self.held is not None and other.held is not None and self.sketch.keeps(self.rows + other.rows):
            return replace(self, rows=self.rows + other.rows, held=_joined(self.held, other.held))
        first, second = self.hashed(), other.hashed()
        if (first.hidden is None) != (second.hidden is None):
            first, second = first._explicit(), second._explicit()
        summed = {
            name: _plus(getattr(first, name), getattr(second, name))
            for name in _ADDITIVE
        }
        return replace(first, rows=self.rows + other.rows, **summed)

    def imputed(self) -> tuple[Floats, Floats]:
        """Return Γ̂_j = Σ_{k≠j} Γ_k (M, c, p), or the sketch of the hidden rows, and the imputed weight (M,)."""
        if self.hidden is not None:
            return self.hidden.contexts, self.hidden_weight
        return complement(self.observed.contexts), complement(self.weight)

    def _explicit(self) -> "SketchedSums":
        if self.hidden is not None:
            return self
        contexts, weight = self.imputed()
        hidden = Hashed(contexts=contexts, rewards=np.zeros(contexts.shape[:2]))
        return replace(self, hidden=hidden, hidden_weight=weight)

    def about(self, reference: Floats, batch: Batch) -> "SketchedSums":
        """Return the same sums with moments taken about ``reference``, by a second pass over the rows."""
        residual, surprise = residual_moments(batch, *observed_entries(batch), reference)
        return replace(self, reference=reference, residual=residual, surprise=surprise)

    def hashed(self) -> "SketchedSums":
        """Return the same shard with its rows hashed."""
        if self.held is None:
            return self
        batch, m = self.held, len(self.theta)
        rows, codes, rewards, weights = observed_entries(batch)
        observed, weight, energy = self._hash(batch, rows, codes, rewards, weights)
        made = replace(self, held=None, observed=observed, weight=weight, energy=energy)
        if self.reference is not None:
            residual, surprise = residual_moments(batch, rows, codes, rewards, weights, self.reference)
            made = replace(made, residual=residual, surprise=surprise)
        mask = hidden_mask(batch)
        if mask.ndim == 2:
            at, action = np.nonzero(mask)
            heavy = None if batch.weights is None else batch.weights[at]
            hidden, hidden_weight, _ = self._hash(batch, at, action, np.zeros(len(at)), heavy)
            made = replace(made, hidden=hidden, hidden_weight=hidden_weight)
        link = LINKS[self.link]
        if not link.linear and self.sketched_moments:
            made = replace(made, gap_sketch=self._hashed_gaps(batch, mask, m))
        elif not link.linear:
            made = replace(made, gap=gaps(batch.contexts, mask, self.theta, link, self.cap, batch.weights))
        if not np.isfinite(np.vdot(observed.contexts, observed.contexts)):
            refuse_non_finite(batch.contexts)
        return made

    def _hash(
        self, batch: Batch, rows: Codes | None, codes: Codes, rewards: Floats, weights: Floats | None
    ) -> tuple[Hashed, Floats, Floats]:
        """Hash entries by their rows' ids into Γ_j and Λ_j, √w a row; also weight and energy per action."""
        m, width = self.theta.shape
        count_codes(codes, m)
        ids = row_ids(batch)
        contexts, responses = np.zeros((m, self.sketch.size, width)), np.zeros((m, self.sketch.size))
        root = None if weights is None else np.sqrt(weights)
        pieces = blocks(len(codes), 8 * width)
        for number, piece in enumerate(pieces):
            at = piece if rows is None else rows[piece]
            S, R = dense_rows(batch.contexts, at), rewards[piece]
            if root is not None:
                S, R = S * root[piece, None], R * root[piece]
            part = self.sketch.sums(S, codes[piece], m, ids[at], self.key)
            contexts = part if number == 0 else contexts + part
            responses += self.sketch.sums(R[:, None], codes[piece], m, ids[at], self.key)[:, :, 0]
        heavy = np.ones(len(codes)) if weights is None else weights
        weight, energy = np.bincount(codes, heavy, m), np.bincount(codes, heavy * rewards * rewards, m)
        return Hashed(contexts=contexts, rewards=responses), weight, energy

    def _hashed_gaps(self, batch: Batch, mask: Mask | Codes, m: int) -> Floats:
        """Return Ĉ_j (T_j − Ŝ_jθ_j) (M, c): what a nonlinear link adds to Λ̂_j."""
        total = np.zeros((m, self.sketch.size))
        ids = row_ids(batch)
        for piece in blocks(len(batch), 8 * (self.theta.shape[1] + 3 * m)):
            gap = link_gap(dense_rows(batch.contexts, piece), self.theta, LINKS[self.link], self.cap)
            if batch.weights is not None:
                gap *= np.sqrt(batch.weights[piece, None])
            if mask.ndim == 1:
                gap[np.arange(len(gap)), mask[piece]] = 0.0
            else:
                gap *= mask[piece]
            one = np.zeros(len(gap), np.intp)
            total += self.sketch.sums(gap, one, 1, ids[piece], self.key)[0].T
        return total


def residual_moments(
    batch: Batch, rows: Codes | None, codes: Codes, rewards: Floats, weights: Floats | None, reference: Floats
) -> tuple[Floats, Floats]:
    """Return S_jᵀ(R_j − S_j ref_j) (M, p) and ‖R_j − S_j ref_j‖² (M,), exactly, in O(k·p) for k entries."""
    m, width = reference.shape
    total, squares = np.zeros((m, width)), np.zeros(m)
    for piece in blocks(len(codes), 8 * (width + 2 * m)):
        S = dense_rows(batch.contexts, piece if rows is None else rows[piece])
        own = codes[piece]
        if m <= width:
            predicted = (S @ reference.T)[np.arange(len(S)), own]
        else:
            predicted = np.einsum("np,np->n", S, reference[own])
        left = rewards[piece] - predicted
        heavy = left if weights is None else left * weights[piece]
        squares += np.bincount(own, left * heavy, m)
        if m <= width:
            spread = np.zeros((len(S), m))
            spread[np.arange(len(S)), own] = heavy
            total += spread.T @ S
        else:
            total += summarise_moments(S, own, heavy, m)
    return total, squares


def summarise_moments(contexts: Floats, codes: Codes, values: Floats, m: int) -> Floats:
    """Return Σ value·s per action (M, p) for many actions."""
    order = np.argsort(codes, kind="stable")
    present, starts = np.unique(codes[order], return_index=True)
    out = np.zeros((m, contexts.shape[1]))
    out[present] = np.add.reduceat(contexts[order] * values[order, None], starts, axis=0)
    return out


def row_ids(batch: Batch) -> NDArray[np.int64]:
    """Return the ids by which rows are hashed."""
    return np.arange(len(batch), dtype=np.int64) if batch.row_ids is None else batch.row_ids


def _plus(first: Any, second: Any) -> Any:
    if first is None or second is None:
        return first if second is None else second
    return first + second


def _joined(first: Batch, second: Batch) -> Batch:
    """Return the rows of two held shards as one batch."""
    n, m = len(first), len(second)
    parts: dict[str, object] = {
        "contexts": np.concatenate([dense_rows(first.contexts, slice(0, n)), dense_rows(second.contexts, slice(0, m))]),
        "row_ids": np.concatenate([row_ids(first), row_ids(second)]),
    }
    for name in ("actions", "rewards", "weights", "revealed", "revealed_rewards"):
        one, two = getattr(first, name), getattr(second, name)
        if one is None and two is None:
            continue
        parts[name] = np.concatenate([_filled(name, one, n, two), _filled(name, two, m, one)])
    return Batch(**parts)


def _filled(name: str, column: Floats | None, length: int, like: Floats | None) -> Floats:
    if column is not None:
        return column
    return np.ones(length) if name == "weights" else np.zeros((length, *like.shape[1:]), like.dtype)
