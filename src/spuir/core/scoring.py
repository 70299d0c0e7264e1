"""Coefficients, factors, contexts → scores → actions and propensities. The tie rule lives here.

Inside this module tables are (M, n), one row an action and contexts as columns: reductions over actions are
then whole-row operations. What leaves it for users is (n, M).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spuir.base.records import Codes, Floats, Mask, all_finite, as_array, as_mask
from spuir.core.quiet import quietly
from spuir.core.scratch import CACHE_BYTES, frozen, workspace
from spuir.core.solving import FINE, Single, Solved, solve
from spuir.core.statistics import blocks
from spuir.errors import InputError

TIE = 1e-12
"""Scores within this relative distance of the best are tied."""
MARGIN = 1e-9
"""Slack against rounding and ties, relative to the best score."""
ROUNDING, TRUSTED = 16 * 2.0**-52, 0.01
"""Error of a Gram matrix and its factor per unit of trace, and the share of it that the shared bound may carry."""
BLOCK_BYTES = 4 * 2**20
"""Working memory of one block of contexts."""
PIECE_ROWS = 32
"""Contexts multiplied at once at least: with fewer, reading the roots costs more than using them (measured)."""
TINY = 1e-16
"""More than what widths of up to 10⁴ columns lose where numbers below 2⁻¹²⁶ are taken for nought."""
LOOSE = 0.5
"""Share of contexts left open by the shared bound above which the next block does without it (measured)."""
LOOP_ACTION, LOOP_PAIR = 50.0, 2.5
"""What an action visited apart and each of its contexts cost, in widths computed all together (measured)."""


def row_blocks(n: int, width: int) -> Iterator[slice]:
    """Return slices that cut n rows into blocks whose tables of ``width`` columns fit the working memory."""
    return blocks(n, 8 * width, BLOCK_BYTES)


def eligible_mask(eligible: ArrayLike | None, n: int, n_actions: int) -> Mask:
    """Return eligibility as (n, M); a row without any eligible action is refused."""
    if eligible is None:
        return np.broadcast_to(np.True_, (n, n_actions))
    mask = as_mask("eligible", as_array("eligible", eligible))
    if mask.shape not in ((n_actions,), (n, n_actions)):
        raise InputError(
            "eligible", f"shape {mask.shape}", f"it must be ({n}, {n_actions}) or ({n_actions},)", "match the table"
        )
    mask = np.broadcast_to(mask, (n, n_actions))
    some = mask.any(axis=1)
    if not some.all():
        raise InputError(
            "eligible", f"no action at row {int(np.argmin(some))}", "every row needs one", "allow an action there"
        )
    return mask


def check_floor(floor: float, eligible: Mask) -> None:
    """Refuse a floor that leaves nothing for the rule: m·floor > 1 over m eligible actions (n, M)."""
    most = int(eligible.sum(axis=1).max(initial=0)) if floor else 0
    if most * floor > 1 + TIE:
        raise InputError("floor", floor, f"{most} eligible actions × floor must be ≤ 1", f"use at most {1 / most:.3g}")


def with_floor(probabilities: Floats, eligible: Mask, floor: float) -> Floats:
    """Return floor + (1 − m·floor)·p where eligible, over m eligible actions; (n, M)."""
    if not floor:
        return probabilities
    check_floor(floor, eligible)
    rest = np.maximum(1.0 - floor * eligible.sum(axis=1, keepdims=True), 0.0)
    return np.where(eligible, floor + rest * probabilities, 0.0)


def argmax_probabilities(scores: Floats, eligible: Mask) -> Floats:
    """Return the probabilities (n, M) of an argmax rule: ties split uniformly, 0 where ineligible."""
    tied = tied_actions(np.where(eligible, scores, -np.inf).T).T
    return tied / tied.sum(axis=1, keepdims=True)


def tied_actions(scores: Floats) -> Mask:
    """Return which actions tie for the best in each column of (M, n)."""
    top = scores.max(axis=0)
    return scores >= top - TIE * np.abs(top)


def count(mask: Mask) -> Codes:
    """Return how many are True in each column of (M, n), in the shortest integers that hold M."""
    return np.add.reduce(mask, axis=0, dtype=np.min_scalar_type(len(mask)))


def first(mask: Mask) -> Codes:
    """Return the code of the first True in each column of (M, n); every column has one."""
    # The largest rank, in short integers: several times faster than argmax down the columns (measured).
    return len(mask) - np.maximum.reduce(mask * _ranks(len(mask)), axis=0).astype(np.intp)


@lru_cache(maxsize=64)
def _ranks(m: int) -> Codes:
    """Return m…1 (m, 1), in the shortest integers that hold m."""
    return frozen(np.arange(m, 0, -1, dtype=np.min_scalar_type(m))[:, None])


def draw(probabilities: Floats, uniforms: Floats) -> tuple[Codes, Floats]:
    """Return actions drawn from rows of probabilities (n, M) by inversion, and their probabilities."""
    cumulative = np.cumsum(probabilities, axis=1)
    cumulative /= cumulative[:, -1:]
    actions = np.minimum((cumulative <= uniforms[:, None]).sum(axis=1), probabilities.shape[1] - 1)
    # Rounding at a boundary may point at an action of probability zero: take the next likelier instead.
    empty = np.flatnonzero(probabilities[np.arange(len(actions)), actions] == 0)
    actions[empty] = probabilities[empty].argmax(axis=1)
    return actions, probabilities[np.arange(len(actions)), actions]


def check_finite(means: Floats, contexts: Floats, first: int = 0) -> None:
    """Refuse contexts whose scores (…, n) are not finite, naming the row; ``first`` is the number of the first."""
    if all_finite(means):
        return
    bad = np.argwhere(~np.isfinite(contexts))
    if len(bad):
        row, column = (int(i) for i in bad[0])
        raise InputError(
            "contexts",
            f"{contexts[row, column]} at row {first + row}, column {column}",
            "every context value must be finite",
            "drop or fill that value",
        )
    raise InputError("contexts", "values that overflow the score", "scores must be finite", "scale the contexts down")


@quietly
def squared_widths(solved: Solved, contexts: Floats) -> Floats:
    """Return sᵀΨ_j⁻¹s = ‖sᵀU_j⁻¹‖² of (9) for all actions and contexts (n, p), as (M, n), by one product per block."""
    m, p = solved.theta.shape
    out = np.empty((m, len(contexts)))
    for rows in _pieces(len(contexts), 8 * m * p):
        flat = workspace("projected", (rows.stop - rows.start, m * p))
        projected = np.matmul(contexts[rows], solved.stacked_roots, out=flat).reshape(-1, m, p)
        out[:, rows] = np.einsum("nmp,nmp->nm", projected, projected).T
    check_finite(out, contexts)
    return out


@quietly
def single_widths(single: Single, contexts: Floats) -> Floats | None:
    """Return the widths ‖sᵀU_j⁻¹‖ of all roots, as (M, n), in single precision; None where that overflows."""
    n, p = contexts.shape
    m = single.roots.shape[1] // p
    out, ones = np.empty((m, n)), _ones(p)
    for rows in _pieces(n, 4 * single.roots.shape[1]):
        k = rows.stop - rows.start
        short = workspace("short", (k, p), np.float32)
        np.copyto(short, contexts[rows], casting="same_kind")
        flat = workspace("flat", (k, single.roots.shape[1]), np.float32)
        np.matmul(short, single.roots, out=flat)
        np.multiply(flat, flat, out=flat)
        out[:, rows] = (flat.reshape(k * m, -1) @ ones).reshape(k, m).T
    np.sqrt(out, out=out)
    return out if all_finite(out) else None


@lru_cache(maxsize=64)
def _ones(p: int) -> NDArray[np.float32]:
    return frozen(np.ones(p, np.float32))


def _pieces(n: int, row_bytes: int) -> Iterator[slice]:
    """Return slices of contexts whose products are still in the cache when their squares are summed."""
    return blocks(n, row_bytes, max(CACHE_BYTES, PIECE_ROWS * row_bytes))


@dataclass(frozen=True, kw_only=True, eq=False)
class Winners:
    """The outcome of an argmax rule for n contexts: the winner, and the columns in which several tie.

    ``winner`` (n,) is the lowest tied code; ``columns`` (k,) are the contexts with ties, ``tied`` (M, k)
    says between whom.
    """

    winner: Codes
    columns: Codes
    tied: Mask

    @classmethod
    def sure(cls, winner: Codes, m: int) -> "Winners":
        """Return winners (n,) among m actions without any tie."""
        return cls(winner=winner, columns=np.empty(0, np.intp), tied=np.empty((m, 0), np.bool_))

    @classmethod
    def of(cls, scores: Floats) -> "Winners":
        """Find the winners of (M, n) scores, −inf where ineligible."""
        tied = tied_actions(scores)
        columns = _open(tied)
        return cls(winner=first(tied), columns=columns, tied=tied[:, columns])

    def draw(self, draw_uniforms: Callable[[], Floats], eligible: Mask | None, floor: float) -> tuple[Codes, Floats]:
        """Split ties uniformly and mix in the floor; return actions and exact propensities, each (n,).

        One uniform decides a row: below m·floor it picks an eligible action, above it the rule's. They are drawn only
        if a row needs one.
        """
        actions, rule = self.winner.copy(), np.ones(len(self.winner))
        if not floor and not len(self.columns):
            return actions, rule
        uniforms = draw_uniforms()
        m = len(self.tied)
        options = np.full(len(rule), m) if eligible is None else eligible.sum(axis=0)
        lost = floor * options
        rest = np.maximum(1.0 - lost, 0.0)
        if len(self.columns):
            counts = self.tied.sum(axis=0)
            scaled = np.clip((uniforms[self.columns] - lost[self.columns]) / np.maximum(rest[self.columns], TIE), 0, 1)
            actions[self.columns] = _nth(self.tied, np.minimum((scaled * counts).astype(np.intp), counts - 1))
            rule[self.columns] = 1.0 / counts
        if not floor:
            return actions, rule
        explored = np.flatnonzero(uniforms < lost)
        if len(explored):
            pick = np.minimum((uniforms[explored] / floor).astype(np.intp), options[explored] - 1)
            allowed = np.ones((m, len(explored)), np.bool_) if eligible is None else eligible[:, explored]
            actions[explored] = _nth(allowed, pick)
            rule[explored] *= actions[explored] == self.winner[explored]
            # A tied action that was explored is still one of the rule's.
            place = np.searchsorted(self.columns, explored)
            inside = np.flatnonzero((place < len(self.columns)) & np.isin(explored, self.columns))
            column = place[inside]
            share = self.tied[actions[explored[inside]], column] / self.tied[:, column].sum(axis=0)
            rule[explored[inside]] = share
        return actions, floor + rest * rule


def _nth(allowed: Mask, position: Codes) -> Codes:
    """Return, per column of (M, k), the code of the ``position``-th True."""
    return (np.cumsum(allowed, axis=0) > position).argmax(axis=0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Acting:
    """What an optimistic rule acts by: factored matrices, the weight α of widths, and the shared bound if any."""

    solved: Solved
    alpha: float
    bound: "Bound | None" = None


@quietly
def row_winners(means: Floats, solved: Solved, alpha: float, row: Floats, eligible: Mask | None) -> Winners:
    """Return the argmax of mean (M,) + α·width for one context (1, p), all widths from one product."""
    m, scores = len(means), means
    if alpha:
        projected = (row @ solved.stacked_roots).reshape(m, -1)
        scores = means + alpha * np.sqrt(np.vecdot(projected, projected))
    if not math.isfinite(np.add.reduce(scores)):
        check_finite(scores, row)
    if eligible is not None:
        scores = np.where(eligible[0], scores, -np.inf)
    best = scores.item(scores.argmax())
    tied = scores >= best - TIE * abs(best)
    if np.count_nonzero(tied) > 1:
        return Winners.of(scores[:, None])
    return Winners.sure(tied.nonzero()[0], m)


def winners(
    n: int,
    features: Callable[[slice], Floats],
    means: Callable[[Floats], Floats],
    rule: Acting,
    eligible: Mask | None,
) -> Winners:
    """Return the argmax of mean + α·width for n contexts, with exact widths only where they decide.

    ``features`` gives the rows (k, p) of a slice, ``means`` their estimates (M, k); ``eligible`` is (M, n), None for
    all. A block on which the shared bound settles too little lets the rest do without it.
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
        part, share = _settled(score, rule, block)
        if share > LOOSE:
            rule = replace(rule, bound=None)
        parts.append(part)
        starts.append(rows.start)
    return _joined(parts, starts, m)


@quietly
def _settled(score: Floats, rule: Acting, contexts: Floats) -> tuple[Winners, float]:
    """Find the winners of a block by ever closer widths; also the share of contexts the shared bound left open.

    First one bound for all actions, then widths in single precision, and exact ones for what is still in play.
    """
    if not rule.alpha:
        return Winners.of(score), 0.0
    if rule.bound is None:
        return _by_width(score, np.isfinite(score), rule, contexts), 0.0
    best = score.max(axis=0)
    reach = rule.bound.reach(contexts, rule.alpha)
    # Widths are ≥ 0 and at most the reach: below the best mean less the reach nothing wins or ties.
    play = score >= best - reach - MARGIN * np.abs(best)
    free = rule.bound.free
    if len(free):
        play[free] = np.isfinite(score[free])
    columns = _open(play)
    if not len(columns):
        return Winners.sure(first(play), len(score)), 0.0
    found = _by_width(score.take(columns, axis=1), play.take(columns, axis=1), rule, contexts.take(columns, axis=0))
    return _corrected(first(play), columns, found), len(columns) / score.shape[1]


def _by_width(score: Floats, play: Mask, rule: Acting, contexts: Floats) -> Winners:
    """Find the winners among the actions in play (M, n): widths in single precision, then exact ones where close."""
    single = rule.solved.single
    widths = None
    if single.error < TRUSTED and not _sparse(play):
        widths = single_widths(single, contexts)
    if widths is None:
        return _exact(score, play, rule, contexts)
    widths *= rule.alpha
    widths += score
    best = widths.max(axis=0)
    if not math.isfinite(np.add.reduce(best)):
        return _exact(score, play, rule, contexts)
    # Two widths, each off by at most its error; the rest of 2.1 covers computed for true widths, and their sums.
    error = 2.1 * (rule.alpha * (np.abs(contexts) @ single.rounding))
    error += MARGIN * np.abs(best) + 2.0 * rule.alpha * TINY
    close = widths >= best - error
    columns = _open(close)
    if not len(columns):
        return Winners.sure(first(close), len(score))
    play = close.take(columns, axis=1) & play.take(columns, axis=1)
    exact = _exact(score.take(columns, axis=1), play, rule, contexts.take(columns, axis=0))
    return _corrected(first(close), columns, exact)


def _sparse(play: Mask) -> bool:
    """Tell whether so few (action, context) pairs are in play that visiting each action apart is cheaper."""
    # Every context here has two actions in play or more: with few actions the answer is known before counting.
    if 2 * LOOP_PAIR >= len(play):
        return False
    return LOOP_ACTION * play.any(axis=1).sum() + LOOP_PAIR * play.sum() < play.size


def _open(play: Mask) -> Codes:
    """Return the columns in which more than one action is in play."""
    return (count(play) > 1).nonzero()[0]


def _joined(parts: list[Winners], starts: list[int], m: int) -> Winners:
    """Return the winners of consecutive blocks as one."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Winners.sure(np.empty(0, np.intp), m)
    return Winners(
        winner=np.concatenate([part.winner for part in parts]),
        columns=np.concatenate([part.columns + start for part, start in zip(parts, starts, strict=True)]),
        tied=np.concatenate([part.tied for part in parts], axis=1),
    )


def _exact(score: Floats, play: Mask, rule: Acting, contexts: Floats) -> Winners:
    """Find the winners among the actions in play (M, n) by exact widths."""
    if _sparse(play):
        score = _candidate_scores(score, play, rule, contexts)
    else:
        widths = squared_widths(rule.solved, contexts)
        np.sqrt(widths, out=widths)
        widths *= rule.alpha
        score = score + widths
    check_finite(score.max(axis=0), contexts)
    return Winners.of(score)


def _corrected(winner: Codes, columns: Codes, exact: Winners) -> Winners:
    """Return ``winner`` (n,) with what was found exactly for some of the columns."""
    winner[columns] = exact.winner
    return Winners(winner=winner, columns=columns[exact.columns], tied=exact.tied)


@dataclass(frozen=True, kw_only=True, eq=False)
class Bound:
    """A width that no action exceeds: ‖s‖ in the inverse of P ⪯ Ψ_j for every j (identity 4).

    ``shared`` is P, factored, and ``stretch`` what rounding asks of its widths. The actions ``free`` (k,) are not
    covered by the bound and stay candidates everywhere.
    """

    shared: Solved
    stretch: float
    free: Codes

    def reach(self, contexts: Floats, alpha: float) -> Floats:
        """Return at least α·‖s‖ in the inverse of P (n,), in single precision where its error is small."""
        single, stretch = self.shared.single, self.stretch
        short = single_widths(single, contexts) if single.error < TRUSTED else None
        if short is not None:
            reach = short[0]
            reach *= stretch * (1.0 + 2.0 * single.error)
            reach += stretch * TINY
            reach *= alpha
            return reach
        projected = contexts @ self.shared.roots[0]
        reach = alpha * (stretch * np.sqrt(np.einsum("np,np->n", projected, projected)))
        # Where even this overflows the bound says nothing; the widths themselves may still be finite.
        return np.where(np.isnan(reach), np.inf, reach)

    @classmethod
    def of(cls, shared: Floats, ridge: float, solved: Solved, free: Codes) -> "Bound | None":
        """Factor P = ``shared`` + λI, with room for rounding; None where rounding may have lifted it above some Ψ_j.

        A computed Ψ_j is off by at most ε = ROUNDING·trace Ψ_j, and P − εI ⪰ (1 − ε·trace P⁻¹)·P.
        """
        factored = solve(shared[None].copy(), np.zeros((1, len(shared))), ridge)
        slack = ROUNDING * float(solved.traces.max()) * float(np.vdot(factored.roots, factored.roots))
        trusted = factored.worst == FINE and slack <= TRUSTED
        return cls(shared=factored, stretch=1.0 + slack, free=free) if trusted else None


def _candidate_scores(score: Floats, play: Mask, rule: Acting, contexts: Floats) -> Floats:
    """Return mean + α·width for the pairs still in play, −inf elsewhere; (M, n)."""
    out = np.full_like(score, -np.inf)
    for j in np.flatnonzero(play.any(axis=1)):
        columns = np.flatnonzero(play[j])
        projected = contexts[columns] @ rule.solved.roots[j]
        width = np.sqrt(np.einsum("np,np->n", projected, projected))
        out[j, columns] = score[j, columns] + rule.alpha * width
    return out
