"""Coefficients, factors and contexts → the argmax of Algorithm 1, with exact widths only where they decide.

Three steps, each on the contexts that the step before left undecided:

1. one bound on the widths of all actions (identity 4): :class:`Bound`;
2. widths in single precision, with a bound on their error: :func:`single_widths`;
3. exact widths ‖s‖ in the inverse of Ψ_j or W_j, (9): :func:`squared_widths`.

Tables are (M, n): one row per action, one column per context.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from spuir.base.records import Codes, Floats, Mask, all_finite
from spuir.core.quiet import quietly
from spuir.core.scratch import CACHE_BYTES, workspace
from spuir.core.solving import FINE, Single, Solved, solve
from spuir.core.statistics import blocks
from spuir.core.ties import TIE, Winners, check_finite, row_blocks, sole_candidates

ROUNDING_MARGIN = 1e-9
"""Slack for rounding and ties, relative to the best score."""
FACTOR_ROUNDING = 16 * 2.0**-52
"""Largest rounding error of a computed Gram matrix and its factor, per unit of its trace."""
MAX_RELATIVE_ERROR = 0.01
"""Largest relative error with which the shared bound is used."""
MAX_SINGLE_ERROR = 0.1
"""Largest relative error with which widths in single precision are used; above it too many contexts stay close."""
UNDERFLOW_LOSS = 1e-16
"""Upper bound on what a width of up to 10⁴ columns loses because numbers below 2⁻¹²⁶ become 0."""
MIN_CHUNK_ROWS, MIN_SINGLE_ROWS = 32, 128
"""Least number of contexts in one product: with fewer, reading the roots costs more than using them (measured)."""
MAX_OPEN_SHARE = 0.5
"""Largest share of contexts the shared bound may leave undecided; above it, later blocks skip the bound (measured)."""
LEVEL_NUMBERS = 2**18
"""Numbers in one table of scores at several levels."""
ONE_LEVEL = (1.0,)
"""The levels of a rule that always weighs widths by α."""
COST_PER_ACTION, COST_PER_PAIR = 50.0, 2.5
"""Cost of visiting one action, and one of its contexts, relative to one width computed in bulk (measured)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Bound:
    """A width that no action exceeds: ‖s‖ in the inverse of P ⪯ Ψ_j for every j (identity 4).

    ``shared`` is P, factored. ``inflation`` ≥ 1 multiplies its widths to allow for rounding. The bound does not cover
    the actions ``uncovered`` (k,), which stay candidates for every context.
    """

    shared: Solved
    inflation: float
    uncovered: Codes

    @classmethod
    def of(cls, shared: Floats, ridge: float, solved: Solved, uncovered: Codes) -> "Bound | None":
        """Factor P = ``shared`` + λI; None where rounding may have lifted P above some Ψ_j.

        A computed Ψ_j is off by at most ε = FACTOR_ROUNDING·trace Ψ_j, and P − εI ⪰ (1 − ε·trace P⁻¹)·P.
        """
        factored = solve(shared[None].copy(), np.zeros((1, len(shared))), ridge)
        slack = FACTOR_ROUNDING * float(solved.traces.max()) * float(np.vdot(factored.roots, factored.roots))
        if factored.worst != FINE or not slack <= MAX_RELATIVE_ERROR:
            return None
        return cls(shared=factored, inflation=1.0 + slack, uncovered=uncovered)

    def largest_bonus(self, contexts: Floats, alpha: float) -> Floats:
        """Return an upper bound on α·width of every covered action (n,), in single precision where that is accurate."""
        single, inflation = self.shared.single, self.inflation
        widths = single_widths(single, contexts) if single.error < MAX_RELATIVE_ERROR else None
        if widths is not None:
            bonus = widths[0]
            bonus *= inflation * (1.0 + 2.0 * single.error)
            bonus += inflation * UNDERFLOW_LOSS
            bonus *= alpha
            return bonus
        projected = contexts @ self.shared.roots[0]
        bonus = alpha * (inflation * np.sqrt(np.einsum("np,np->n", projected, projected)))
        # Where even this overflows there is no bound; the widths themselves may still be finite.
        return np.where(np.isnan(bonus), np.inf, bonus)


class Acting(NamedTuple):
    """What an optimistic rule acts by: factored matrices, the weight α of widths, and the shared bound if any.

    ``levels``, in increasing order and ≥ 0, multiply α; each context draws one of them.
    """

    solved: Solved
    alpha: float
    bound: Bound | None = None
    levels: tuple[float, ...] = ONE_LEVEL


def row_winners(means: Floats, rule: Acting, row: Floats, eligible: Mask | None) -> Winners:
    """Return the argmax of mean (M,) + α·width for one context (p,), all widths from one product.

    ``eligible`` is (1, M), None for all.
    """
    m, scores = len(means), means
    if rule.alpha:
        projected = row.dot(rule.solved.stacked_roots).reshape(m, -1)
        bonuses = rule.alpha * np.sqrt(np.vecdot(projected, projected))
        if len(rule.levels) > 1:
            return _row_levels(means, bonuses, rule.levels, row, eligible)
        scores = means + bonuses
    if not all_finite(scores):
        check_finite(scores, row[None])
    if eligible is not None:
        scores = np.where(eligible[0], scores, -np.inf)
    best = scores.item(scores.argmax())
    tied = scores >= best - TIE * abs(best)
    codes = tied.nonzero()[0]
    if len(codes) > 1:
        return Winners.of(scores[:, None])
    return Winners.without_ties(codes, m)


def _row_levels(
    means: Floats, bonuses: Floats, levels: tuple[float, ...], row: Floats, eligible: Mask | None
) -> Winners:
    """Return the winners at all levels for one context, from its means and bonuses (M,)."""
    check_finite(means + levels[-1] * bonuses, row[None])
    if eligible is not None:
        means = np.where(eligible[0], means, -np.inf)
    return Winners.at_levels(means[:, None], bonuses[:, None], levels)


def winners(
    n: int,
    features: Callable[[slice], Floats],
    means: Callable[[Floats], Floats],
    rule: Acting,
    eligible: Mask | None,
) -> Winners:
    """Return the argmax of mean + α·width, Algorithm 1 line 9, for n contexts; exact widths only where they decide.

    ``features`` returns the rows (k, p) of a slice, ``means`` their estimates (M, k). ``eligible`` is (M, n), None for
    all. If the shared bound decides too few contexts of a block, the blocks after it skip the bound.
    """
    m, p = rule.solved.theta.shape
    parts: list[Winners] = []
    starts: list[int] = []
    for rows in row_blocks(n, max(m, p)):
        block = features(rows)
        score = means(block)
        check_finite(score, block, rows.start)
        if eligible is not None:
            score = np.where(eligible[:, rows], score, -np.inf)
        part, open_share = _block_winners(score, rule, block)
        if open_share > MAX_OPEN_SHARE:
            rule = rule._replace(bound=None)
        parts.append(part)
        starts.append(rows.start)
    return _concatenated(parts, starts, m)


def _concatenated(parts: list[Winners], starts: list[int], m: int) -> Winners:
    """Return the winners of consecutive blocks as one record."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Winners.without_ties(np.empty(0, np.intp), m)
    return Winners(
        winner=np.concatenate([part.winner for part in parts]),
        columns=np.concatenate([part.columns + start for part, start in zip(parts, starts, strict=True)]),
        shares=np.concatenate([part.shares for part in parts], axis=1),
    )


@quietly
def _block_winners(score: Floats, rule: Acting, contexts: Floats) -> tuple[Winners, float]:
    """Find the winners of a block from its means (M, n); return also the share that the shared bound left undecided."""
    if not rule.alpha:
        return Winners.of(score), 0.0
    if rule.bound is None:
        return _winners_by_width(score, np.isfinite(score), rule, contexts), 0.0
    best = score.max(axis=0)
    bonus = rule.bound.largest_bonus(contexts, rule.alpha * rule.levels[-1])
    # A bonus lies between 0 and the largest one: an action further below the best mean than that cannot win or tie.
    candidates = score >= best - bonus - ROUNDING_MARGIN * np.abs(best)
    uncovered = rule.bound.uncovered
    if len(uncovered):
        candidates[uncovered] = np.isfinite(score[uncovered])
    winner, columns = sole_candidates(candidates)
    if not len(columns):
        return Winners.without_ties(winner, len(score)), 0.0
    exact = _winners_by_width(
        score.take(columns, axis=1), candidates.take(columns, axis=1), rule, contexts.take(columns, axis=0)
    )
    return _with_exact(winner, columns, exact), len(columns) / score.shape[1]


def _winners_by_width(score: Floats, candidates: Mask, rule: Acting, contexts: Floats) -> Winners:
    """Find the winners among the candidates (M, n): by widths in single precision, then by exact ones where close."""
    single = rule.solved.single
    widths = None
    if single.error < MAX_SINGLE_ERROR and not _few_pairs(candidates):
        widths = single_widths(single, contexts)
    if widths is None:
        return _winners_by_exact_width(score, candidates, rule, contexts)
    widths *= rule.alpha
    # Two widths, each off by at most its error. The rest of 2.1 covers the rounding of exact widths and of sums.
    error = 2.1 * (rule.alpha * (np.abs(contexts) @ single.rounding)) + 2.0 * rule.alpha * UNDERFLOW_LOSS
    close = _close_at(rule.levels[-1], score, widths, error)
    if close is None:
        return _winners_by_exact_width(score, candidates, rule, contexts)
    if len(rule.levels) > 1:
        return _winners_at_levels(score, widths, error, close, rule, contexts)
    winner, columns = sole_candidates(close)
    if not len(columns):
        return Winners.without_ties(winner, len(score))
    candidates = close.take(columns, axis=1) & candidates.take(columns, axis=1)
    exact = _winners_by_exact_width(score.take(columns, axis=1), candidates, rule, contexts.take(columns, axis=0))
    return _with_exact(winner, columns, exact)


def _winners_at_levels(
    score: Floats, bonuses: Floats, error: Floats, highest: Mask, rule: Acting, contexts: Floats
) -> Winners:
    """Find the winners at all levels; exact widths are needed only where some level is too close.

    ``bonuses`` (M, n) are in single precision, with their ``error`` (n,); ``highest`` marks who is close to the best at
    the highest level.
    """
    # Scores are linear in the level: who wins by the mean alone and at the highest level wins at all levels between.
    best = score.max(axis=0)
    highest |= score >= best - ROUNDING_MARGIN * np.abs(best)
    sure, open_columns = sole_candidates(highest)
    if not len(open_columns):
        return Winners.without_ties(sure, len(score))
    score, bonuses, error = (part.take(open_columns, axis=-1) for part in (score, bonuses, error))
    counts, together = np.zeros(score.shape, np.intp), max(1, LEVEL_NUMBERS // score.size)
    for at in range(0, len(rule.levels), together):
        close = _close_at(np.array(rule.levels[at : at + together])[:, None, None], score, bonuses, error)
        # Where scores overflow, nothing is known: all are close.
        counts += together if close is None else close.sum(axis=0)
    shares = counts / len(rule.levels)
    # At each level one action is close to the best, at least: more of them all in all, and some level is unclear.
    if counts.sum() != len(rule.levels) * len(open_columns):
        unclear = np.flatnonzero(counts.sum(axis=0) != len(rule.levels))
        means = score.take(unclear, axis=1)
        exact = _winners_by_exact_width(means, np.isfinite(means), rule, contexts[open_columns[unclear]])
        shares[:, unclear] = 0.0
        shares[exact.winner, unclear] = 1.0
        shares[:, unclear[exact.columns]] = exact.shares
    sure[open_columns] = shares.argmax(axis=0)
    return Winners(winner=sure, columns=open_columns, shares=shares)


def _close_at(level: Any, score: Floats, bonuses: Floats, error: Floats) -> Mask | None:
    """Return which scores at a level (M, n) are as large as the best, up to rounding; None where they overflow.

    ``level`` is a number, or (k, 1, 1) for several levels at once.
    """
    scores = score + level * bonuses
    best = scores.max(axis=-2, keepdims=True)
    if not all_finite(best):
        return None
    return scores >= best - (level * error + ROUNDING_MARGIN * np.abs(best))


def _winners_by_exact_width(score: Floats, candidates: Mask, rule: Acting, contexts: Floats) -> Winners:
    """Find the winners among the candidates (M, n) by exact widths."""
    if _few_pairs(candidates):
        score, bonuses = _candidate_scores(score, candidates, rule, contexts)
    else:
        bonuses = squared_widths(rule.solved, contexts)
        np.sqrt(bonuses, out=bonuses)
        bonuses *= rule.alpha
    highest = score + rule.levels[-1] * bonuses
    check_finite(highest.max(axis=0), contexts)
    return Winners.of(highest) if len(rule.levels) == 1 else Winners.at_levels(score, bonuses, rule.levels)


def _with_exact(winner: Codes, columns: Codes, exact: Winners) -> Winners:
    """Return ``winner`` (n,) with the exact winners of some columns put in."""
    winner[columns] = exact.winner
    return Winners(winner=winner, columns=columns[exact.columns], shares=exact.shares)


def _few_pairs(candidates: Mask) -> bool:
    """Return whether visiting each action's own candidate contexts is cheaper than computing all widths at once."""
    # Every context here has two candidates or more: with few actions the answer is known before counting.
    if 2 * COST_PER_PAIR >= len(candidates):
        return False
    return COST_PER_ACTION * candidates.any(axis=1).sum() + COST_PER_PAIR * candidates.sum() < candidates.size


def _candidate_scores(score: Floats, candidates: Mask, rule: Acting, contexts: Floats) -> tuple[Floats, Floats]:
    """Return means and α·widths of the candidates, −inf and 0 elsewhere; each (M, n)."""
    means, bonuses = np.where(candidates, score, -np.inf), np.zeros_like(score)
    for j in np.flatnonzero(candidates.any(axis=1)):
        columns = np.flatnonzero(candidates[j])
        projected = contexts[columns] @ rule.solved.roots[j]
        bonuses[j, columns] = rule.alpha * np.sqrt(np.einsum("np,np->n", projected, projected))
    return means, bonuses


@quietly
def squared_widths(solved: Solved, contexts: Floats) -> Floats:
    """Return sᵀΨ_j⁻¹s = ‖sᵀU_j⁻¹‖² of (9) for all actions and contexts (n, p), as (M, n), by one product per chunk."""
    m, p = solved.theta.shape
    out = np.empty((m, len(contexts)))
    for rows in _chunks(len(contexts), 8 * m * p, MIN_CHUNK_ROWS):
        room = workspace("projected", (rows.stop - rows.start, m * p))
        projected = np.matmul(contexts[rows], solved.stacked_roots, out=room).reshape(-1, m, p)
        out[:, rows] = np.einsum("nmp,nmp->nm", projected, projected).T
    check_finite(out, contexts)
    return out


@quietly
def single_widths(single: Single, contexts: Floats) -> Floats | None:
    """Return the widths ‖sᵀU_j⁻¹‖ of all roots, as (M, n), in single precision; None where that overflows."""
    first = single.bands[0]
    m = first.shape[0] // first.shape[1]
    out = np.empty((m, len(contexts)))
    for rows in _chunks(len(contexts), 4 * len(first), MIN_SINGLE_ROWS):
        block, n = contexts[rows].astype(np.float32).T, rows.stop - rows.start
        squares = np.zeros((m, n), np.float32)
        for band in single.bands:
            room = workspace("projected, single", (len(band), n), np.float32)
            # One row per column of a root: squares are added in long rows, several times faster than in short ones.
            projected = np.matmul(band, block[: band.shape[1]], out=room).reshape(m, -1, n)
            squares += np.einsum("mkn,mkn->mn", projected, projected)
        out[:, rows] = squares
    np.sqrt(out, out=out)
    return out if all_finite(out) else None


def _chunks(n: int, row_bytes: int, least: int) -> Iterator[slice]:
    """Return slices of contexts, ``least`` or more, whose products are still in the cache when squares are summed."""
    return blocks(n, row_bytes, max(CACHE_BYTES, least * row_bytes))
