"""Scores → actions and exact propensities: the tie rule, eligibility, floors and drawing.

Tables that users see are (n, M). :class:`Winners` and what it uses work on (M, n), with one row per action and one
column per context: reductions over actions are then operations on whole rows.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spuir.base.pairs import Pairs
from spuir.base.records import Codes, Floats, Mask, all_finite, as_array, as_mask
from spuir.core.statistics import blocks
from spuir.errors import InputError

TIE = 1e-12
"""Scores within this relative distance of the best are tied."""
HUGE = 1e100
"""Contexts beyond this are named where scores overflow: no unit of measurement needs them."""
EXPLORED_SHARE = 0.02
"""What a floor of None sets aside in all, spread evenly over the eligible actions of each context."""
BLOCK_BYTES = 4 * 2**20
"""Working memory of one block of contexts."""


def row_blocks(n: int, width: int) -> Iterator[slice]:
    """Return slices that cut n rows into blocks whose tables of ``width`` columns fit the working memory."""
    return blocks(n, 8 * width, BLOCK_BYTES)


def eligible_mask(eligible: ArrayLike | Pairs | None, n: int, n_actions: int) -> Mask:
    """Return eligibility as (n, M); a row without any eligible action is refused."""
    if eligible is None:
        return np.broadcast_to(np.True_, (n, n_actions))
    if isinstance(eligible, Pairs):
        return eligible.mask
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


def explored_share(floor: float | None, options: Codes) -> Floats:
    """Return m·floor (n,), the probability set aside for exploring, from the number m of eligible actions (n,)."""
    return np.full(len(options), EXPLORED_SHARE) if floor is None else np.multiply(floor, options, dtype=np.float64)


def check_floor(floor: float | None, eligible: Mask) -> None:
    """Refuse a floor that leaves nothing for the rule: m·floor > 1 over m eligible actions (n, M)."""
    if floor:
        check_floor_of(floor, eligible.sum(axis=1))


def check_floor_of(floor: float | None, options: Codes) -> None:
    """Refuse a floor that is too high for rows with these numbers m of eligible actions (n,)."""
    most = int(options.max(initial=0))
    if floor is not None and most * floor > 1 + TIE:
        raise InputError("floor", floor, f"{most} eligible actions × floor must be ≤ 1", f"use at most {1 / most:.3g}")


def with_floor(probabilities: Floats, eligible: Mask, floor: float | None) -> Floats:
    """Return floor + (1 − m·floor)·p where eligible, over m eligible actions; (n, M). None = 0.02/m."""
    if floor == 0:
        return probabilities
    check_floor(floor, eligible)
    options = eligible.sum(axis=1)
    lost = explored_share(floor, options)
    rest = np.maximum(1.0 - lost, 0.0)
    return np.where(eligible, (lost / options)[:, None] + rest[:, None] * probabilities, 0.0)


def with_caps(probabilities: Floats, eligible: Mask, caps: Floats, among: Callable[[Codes, Mask], Floats]) -> Floats:
    """Return probabilities (n, M) in which no new action exceeds its cap; the excess goes to the established ones.

    Parameters
    ----------
    probabilities, eligible
        What the rule and the floor give (n, M), and what may be chosen.
    caps
        (M,) largest probability of each new action, infinite for an established one.
    among
        Returns the probabilities (k, M) of the same rule and floor for some rows (k,), with only the established
        actions of these rows (k, M) eligible: the proportions in which they share the excess. Rows without an eligible
        established action are not capped.
    """
    over = np.maximum(probabilities - caps, 0.0)
    established = eligible & np.isinf(caps)
    rows = np.flatnonzero(over.any(axis=1) & established.any(axis=1))
    if not len(rows):
        return probabilities
    capped, excess = np.minimum(probabilities, caps), over[rows].sum(axis=1, keepdims=True)
    capped[rows] += excess * among(rows, established[rows])
    free = ~established.any(axis=1)
    capped[free] = probabilities[free]
    return capped


def argmax_probabilities(scores: Floats, eligible: Mask) -> Floats:
    """Return the probabilities (n, M) of an argmax rule: ties split uniformly, 0 where ineligible."""
    return tie_shares(tied_actions(np.where(eligible, scores, -np.inf).T)).T


def tie_shares(tied: Mask) -> Floats:
    """Return the probability of each action where those ``tied`` (M, n) share each column evenly."""
    return tied / tied.sum(axis=0)


def tied_actions(scores: Floats) -> Mask:
    """Return which actions tie for the best in each column of (M, n)."""
    top = scores.max(axis=0)
    return scores >= top - TIE * np.abs(top)


def draw(probabilities: Floats, uniforms: Floats) -> tuple[Codes, Floats]:
    """Return actions drawn from rows of probabilities (n, M) by inversion, and their probabilities."""
    cumulative = probabilities.cumsum(axis=1)
    cumulative /= cumulative[:, -1:]
    # The last sum is 1, which no number exceeds.
    rows, actions = np.arange(len(probabilities)), (cumulative[:, :-1] <= uniforms[:, None]).sum(axis=1)
    drawn = probabilities[rows, actions]
    if not drawn.all():
        # Rounding at a boundary may point at an action of probability zero: take the likeliest action instead.
        empty = np.flatnonzero(drawn == 0)
        actions[empty] = probabilities[empty].argmax(axis=1)
        drawn = probabilities[rows, actions]
    return actions, drawn


def check_finite(scores: Floats, contexts: Floats, first_row: int = 0) -> None:
    """Refuse contexts whose scores (…, n) are not finite and name the row; ``first_row`` is the first row's number."""
    if all_finite(scores):
        return
    bad = np.argwhere(~np.isfinite(contexts))
    if len(bad):
        row, column = (int(i) for i in bad[0])
        raise InputError(
            "contexts",
            f"{contexts[row, column]} at row {first_row + row}, column {column}",
            "every context value must be finite",
            "drop or fill that value",
        )
    row, column = (int(i) for i in np.unravel_index(np.abs(contexts).argmax(), contexts.shape))
    got = "values that overflow the score"
    if abs(contexts[row, column]) > HUGE:
        got = f"{contexts[row, column]:g} at row {first_row + row}, column {column}, which overflows the score"
    raise InputError("contexts", got, "scores must be finite", "scale the contexts down")


def sole_candidates(candidates: Mask) -> tuple[Codes, Codes]:
    """Return the code of the only candidate in each column of (M, n), and the columns (k,) with more than one.

    Every column has a candidate. Where there are more, their codes are added up, which means nothing.
    """
    # One product counts the candidates and adds up their codes, faster than a sum and an argmax along the columns.
    counts, codes = _ones_and_codes(len(candidates)).dot(candidates.astype(np.float32))
    return codes.astype(np.intp), (counts > 1).nonzero()[0]


@lru_cache(maxsize=64)
def _ones_and_codes(m: int) -> NDArray[np.float32]:
    """Return (2, m): ones, and the codes 0…m−1, which single precision holds exactly up to 2²⁴."""
    return np.array([np.ones(m), np.arange(m)], np.float32)


class Winners(NamedTuple):
    """The outcome of an argmax rule for n contexts: the winner, and the columns in which several actions may win.

    ``winner`` (n,) is the most probable action, the lowest code of equals; ``columns`` (k,) are the contexts in which
    chance may decide, and ``shares`` (M, k) has the probability of each action there.
    """

    winner: Codes
    columns: Codes
    shares: Floats

    @classmethod
    def without_ties(cls, winner: Codes, m: int) -> "Winners":
        """Return winners (n,) among m actions without any tie."""
        return cls(winner, *_no_ties(m))

    @classmethod
    def of(cls, scores: Floats) -> "Winners":
        """Find the winners of (M, n) scores, −inf where ineligible."""
        tied = tied_actions(scores)
        winner, columns = sole_candidates(tied)
        shares = tie_shares(tied[:, columns])
        winner[columns] = shares.argmax(axis=0)
        return cls(winner=winner, columns=columns, shares=shares)

    @classmethod
    def at_levels(cls, means: Floats, bonuses: Floats, levels: tuple[float, ...]) -> "Winners":
        """Find the winners of ``means`` + level·``bonuses``, each (M, n), at a level drawn evenly from ``levels``."""
        shares = np.zeros(means.shape)
        for level in levels:
            shares += tie_shares(tied_actions(means + level * bonuses))
        shares /= len(levels)
        winner, columns = sole_candidates(shares > 0)
        shares = shares[:, columns]
        winner[columns] = shares.argmax(axis=0)
        return cls(winner=winner, columns=columns, shares=shares)

    def draw(
        self, draw_uniforms: Callable[[Codes | None], Floats], eligible: Mask | None, floor: float | None
    ) -> tuple[Codes, Floats]:
        """Draw from the shares and mix in the floor; return actions and exact propensities, each (n,).

        One uniform decides a row: below m·floor it picks an eligible action, above it the rule's. ``draw_uniforms``
        gives those of some rows, or of all for None; they are drawn only for rows that need one.
        """
        n = len(self.winner)
        if floor == 0 and not len(self.columns):
            rule = np.empty(n)
            rule.fill(1.0)  # faster than np.ones, which shows where one row is decided at a time
            return self.winner, rule
        actions, rule = self.winner.copy(), np.ones(n)
        if floor == 0:
            rows = self.columns
            actions[rows], rule[rows] = draw(self.shares.T, draw_uniforms(rows))
            return actions, rule
        uniforms = draw_uniforms(None)
        m = len(self.shares)
        options = np.full(len(rule), m) if eligible is None else eligible.sum(axis=0)
        lost = explored_share(floor, options)
        rest = np.maximum(1.0 - lost, 0.0)
        if len(self.columns):
            scaled = np.clip((uniforms[self.columns] - lost[self.columns]) / np.maximum(rest[self.columns], TIE), 0, 1)
            actions[self.columns], rule[self.columns] = draw(self.shares.T, scaled)
        explored = np.flatnonzero(uniforms < lost)
        if len(explored):
            within = uniforms[explored] / lost[explored]
            pick = np.minimum((within * options[explored]).astype(np.intp), options[explored] - 1)
            allowed = np.ones((m, len(explored)), np.bool_) if eligible is None else eligible[:, explored]
            actions[explored] = nth_true(allowed, pick)
            rule[explored] = actions[explored] == self.winner[explored]
            if len(self.columns):  # where chance decides, an explored action has a share of the rule too
                place = np.searchsorted(self.columns, explored)
                inside = np.flatnonzero(self.columns.take(place, mode="clip") == explored)
                rule[explored[inside]] = self.shares[actions[explored[inside]], place[inside]]
        return actions, lost / options + rest * rule

    def probabilities(self, eligible: Mask | None, floor: float | None) -> Floats:
        """Return what :meth:`draw` draws from (n, M); ``eligible`` is (n, M) too, None for all."""
        n, m = len(self.winner), len(self.shares)
        rule = np.zeros((n, m))
        rule[np.arange(n), self.winner] = 1.0
        rule[self.columns] = self.shares.T
        return with_floor(rule, eligible_mask(eligible, n, m), floor)


@lru_cache(maxsize=64)
def _no_ties(m: int) -> tuple[Codes, Floats]:
    """Return the columns and the shares of winners without ties: empty arrays, which all calls can share."""
    return np.empty(0, np.intp), np.empty((m, 0))


def nth_true(allowed: Mask, position: Codes) -> Codes:
    """Return, per column of (M, k), the code of the ``position``-th True."""
    return (np.cumsum(allowed, axis=0) > position).argmax(axis=0)
