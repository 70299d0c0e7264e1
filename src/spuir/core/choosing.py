"""Scores of pairs (row, action) → probabilities and draws, in which a row costs only its eligible actions.

Every array has one entry per pair, in the order of :class:`spuir.base.pairs.Pairs`.
"""

import numpy as np

from spuir.base.pairs import Pairs
from spuir.base.records import Codes, Floats, Mask
from spuir.core.ties import TIE, check_floor_of, explored_share

ROUNDING = 1e-9
"""Slack for rounding, relative to the best score, below which an action cannot win at any level."""


def _best(pairs: Pairs, scores: Floats) -> Floats:
    """Return the largest score of each row, for each of its pairs (k,)."""
    return np.repeat(np.maximum.reduceat(scores, pairs.starts[:-1]), pairs.counts)


def _first(pairs: Pairs, chosen: Mask) -> Codes:
    """Return the place of the first pair of each row (n,) among the chosen ones (k,)."""
    return np.minimum.reduceat(np.where(chosen, np.arange(len(chosen)), len(chosen)), pairs.starts[:-1])


def _contenders(pairs: Pairs, means: Floats, bonuses: Floats, low: float, high: float) -> Codes:
    """Return the pairs that may win at some level between ``low`` and ``high``.

    Scores are linear in the level. Let one line win at the lowest level and another at the highest: a line that is
    below the upper one of both at these two levels, and where both cross, is below it everywhere.
    """
    lines: list[tuple[Floats, Floats]] = []
    kept = np.zeros(len(means), np.bool_)
    for level in (low, high):
        scores = means + level * bonuses
        best = _best(pairs, scores)
        close = scores >= best - ROUNDING * np.abs(best)
        kept |= close
        # Of several that are close, any one serves.
        first = _first(pairs, close)
        lines.append((means[first], bonuses[first]))
    (mean, bonus), (other, larger) = lines
    rise = larger - bonus
    cross = np.divide(mean - other, rise, out=np.full(len(rise), low), where=rise != 0.0)
    cross = np.clip(cross, low, high)
    height = np.repeat(mean + cross * bonus, pairs.counts)
    kept |= means + np.repeat(cross, pairs.counts) * bonuses >= height - ROUNDING * np.abs(height)
    return np.flatnonzero(kept)


def level_shares(pairs: Pairs, means: Floats, bonuses: Floats, levels: tuple[float, ...]) -> Floats:
    """Return the probability (k,) of each pair under the argmax of mean + level·bonus, at a level drawn evenly.

    Ties share evenly.
    """
    shares = np.zeros(len(means))
    if not len(means):
        return shares
    places = _contenders(pairs, means, bonuses, levels[0], levels[-1])
    kept = np.zeros(len(means), np.bool_)
    kept[places] = True
    few = pairs.at(kept)
    mean, bonus, found = means[places], bonuses[places], np.zeros(len(places))
    for level in levels:
        scores = mean + level * bonus
        best = _best(few, scores)
        tied = scores >= best - TIE * np.abs(best)
        found += tied / np.repeat(np.add.reduceat(tied, few.starts[:-1], dtype=np.float64), few.counts)
    shares[places] = found / len(levels)
    return shares


def with_floor(pairs: Pairs, shares: Floats, floor: float | None) -> Floats:
    """Return floor + (1 − m·floor)·share (k,), over the m actions of each row; None = 0.02/m."""
    if floor == 0:
        return shares
    check_floor_of(floor, pairs.counts)
    lost = explored_share(floor, pairs.counts)
    rest = np.maximum(1.0 - lost, 0.0)
    return np.repeat(lost / pairs.counts, pairs.counts) + np.repeat(rest, pairs.counts) * shares


def probabilities(
    pairs: Pairs,
    means: Floats,
    bonuses: Floats,
    levels: tuple[float, ...],
    floor: float | None,
    caps: Floats | None = None,
) -> Floats:
    """Return the probability of each pair (k,): the rule, the floor, and ``caps`` (M,) of actions that ramp up.

    What exceeds a cap goes to the established actions of the row, as the same rule and floor choose among them. A row
    without an established action is not capped.
    """
    found = with_floor(pairs, level_shares(pairs, means, bonuses, levels), floor)
    if caps is None or not len(found):
        return found
    cap = caps[pairs.codes]
    established = np.isinf(cap)
    excess = np.add.reduceat(np.maximum(found - cap, 0.0), pairs.starts[:-1])
    some = np.logical_or.reduceat(established, pairs.starts[:-1])
    capped_rows = np.flatnonzero((excess > 0) & some)
    if not len(capped_rows):
        return found
    inside = np.isin(pairs.rows, capped_rows)
    others = inside & established
    among = pairs.at(others)[capped_rows]
    shares = level_shares(among, means[others], bonuses[others], levels)
    held = np.where(inside, np.minimum(found, cap), found)
    held[others] += np.repeat(excess[capped_rows], among.counts) * with_floor(among, shares, floor)
    return held


def most_probable(pairs: Pairs, chances: Floats) -> Codes:
    """Return the code of the most probable action of each row (n,), the lowest of equals."""
    return pairs.codes[_likeliest(pairs, chances)]


def _likeliest(pairs: Pairs, chances: Floats) -> Codes:
    """Return the place of the most probable pair of each row (n,), the first of equals."""
    return _first(pairs, chances == _best(pairs, chances))


def draw(pairs: Pairs, chances: Floats, uniforms: Floats) -> Codes:
    """Return the place (n,) of the pair drawn in each row, by inversion of its probabilities (k,)."""
    if not len(pairs):
        return np.empty(0, np.intp)
    total = np.cumsum(chances)
    before = np.concatenate([[0.0], total])[pairs.starts]
    reached = before[:-1] + uniforms * (before[1:] - before[:-1])
    place = np.clip(np.searchsorted(total, reached, side="right"), pairs.starts[:-1], pairs.starts[1:] - 1)
    # Rounding at a boundary may point at an action of probability zero: take the likeliest action instead.
    empty = np.flatnonzero(chances[place] == 0)
    if len(empty):
        place[empty] = _likeliest(pairs, chances)[empty]
    return place
