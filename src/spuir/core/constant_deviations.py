"""Actions that deviate from what their features say by a constant alone: a model of very many actions.

θ_a = Θᵀx_a + δ_a e, in which e is the constant column. The rows of all actions are summed over x ⊗ φ together, into
one :class:`~spuir.core.hierarchy.Folded`; of an action itself only Σwφ, whose last entry is its weight n, and Σwr are
kept. The features of an action must therefore be known when its rows are summed. δ_a is integrated out as in
:mod:`spuir.core.hierarchy`: with A = Σ w (x ⊗ φ)(x ⊗ φ)ᵀ, c = Σ w r (x ⊗ φ), g_a = Σwφ, s_a = Σwr and u_a = x_a ⊗ g_a

* P = Λ + A − Σ_a u_a u_aᵀ/(n_a + ρ), and vec Θ = P⁻¹ (c − Σ_a u_a s_a/(n_a + ρ));
* δ_a = (s_a − g_aᵀΘᵀx_a)/(n_a + ρ);
* the posterior variance of ⟨θ_a,φ⟩ is 1/(n_a + ρ) + ψᵀQ_aψ with ψ = φ − m_a, m_a = g_a/(n_a + ρ).

Rewards are centred by their mean, as there. Work is done in pieces, so that memory does not grow with the actions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from spuir.base.records import Codes, Floats, all_finite
from spuir.core.evidence import LEAST_SHARE
from spuir.core.hierarchy import Columns, Folded, Ridges, SharedFit, next_ridges, settle, solve_shared
from spuir.core.packed_matrices import combined, packed_inverse, packed_products, triangle, unpacked
from spuir.core.statistics import Statistics, blocks, dense_rows, refuse_overflow

PIECE_BYTES = 8 * 2**20
"""Working memory of one piece of rows or actions."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ConstantFit(SharedFit):
    """A fit of actions that deviate by a constant alone.

    ``pull`` Q_a m_a (M, D), and ``own_spread`` (M, 1) the posterior variance of δ, give all posterior variances.
    ``sums`` (M, D) are g_a and ``shares`` (M,) 1/(n_a + ρ), of which m_a is the product.
    """

    pull: Floats
    own_spread: Floats
    sums: Floats
    shares: Floats

    @property
    def spread(self) -> Floats:
        """The posterior variances of δ (M, 1), in units of the noise."""
        return self.own_spread

    @cached_property
    def forms(self) -> Floats:
        """P⁻¹, packed so that packed x xᵀ times it, times packed φφᵀ, is φᵀQφ."""
        (count, width), (i, j, _) = self.shared.shape, triangle(self.shared.shape[1])
        return packed_inverse(self.shared_inverse, count, width) * np.where(i == j, 1.0, 2.0)

    def by_row(self, rows: Floats) -> Iterator[Floats]:
        """Yield for each row φ (n, D) the matrix (K, K) in which x has the length φᵀQφ."""
        count = self.features.shape[1]
        first, second, place = triangle(count)
        halves = np.where(first == second, 1.0, 0.5)
        for piece in blocks(len(rows), 8 * (len(place) ** 2 + self.forms.shape[1]), PIECE_BYTES):
            yield from ((packed_products(rows[piece]) @ self.forms.T) * halves)[:, place]

    def lengths(self, rows: Floats, at: Codes) -> Floats:
        """Return φᵀQφ (k,) of rows φ (k, D), one for each of the actions ``at``."""
        inner = packed_products(rows) @ self.forms.T
        return np.vecdot(inner, packed_products(self.features[at]))

    def squares(self, lengths: Floats, rows: Floats, at: Any) -> Floats:
        """Return the posterior variance of ⟨θ_a,φ⟩, of φᵀQφ and rows (k, D) or (D,), in units of the noise."""
        last = rows[..., -1]
        pulled = np.vecdot(self.pull[at], rows)
        return np.maximum(lengths - 2.0 * last * pulled + last**2 * self.spread[at, 0], 0.0)


def sum_rows(
    contexts: Any, features: Floats, member: Codes, rewards: Floats, weights: Floats | None, rows: Codes | None
) -> tuple[Floats, Folded]:
    """Return Σwφ and Σwr of each action (M, D + 1), and the sums of all rows over x ⊗ φ.

    ``contexts`` (n, D) are feature rows, ``features`` (M, K) the columns x of the actions, ``member`` (k,) the action
    of each entry; the others are as in :func:`spuir.core.statistics.summarise`.
    """
    width, count = int(contexts.shape[1]), features.shape[1]
    inner, outer = len(triangle(count)[0]), len(triangle(width)[0])
    packed, vector = np.zeros((inner, outer)), np.zeros((count, width))
    table = np.zeros((len(features), width + 1))
    weight = np.ones(len(member)) if weights is None else weights
    for piece in blocks(len(member), 16 * (inner + outer), PIECE_BYTES):
        phi, x, own = (
            dense_rows(contexts, piece if rows is None else rows[piece]),
            features[member[piece]],
            weight[piece],
        )
        weighted = own[:, None] * phi
        packed += packed_products(x).T @ (own[:, None] * packed_products(phi))
        vector += x.T @ (rewards[piece, None] * weighted)
        np.add.at(table, member[piece], np.column_stack([weighted, own * rewards[piece]]))
    total, energy = float(weight @ rewards), float(weight @ np.square(rewards))
    if not (all_finite(table) and all_finite(packed) and np.isfinite(energy)):
        refuse_overflow(contexts, rewards, rows)
    matrix = unpacked(packed, count, width) if count else np.zeros((0, 0))
    mass = float(weight.sum())
    return table, Folded(
        matrix=matrix, vector=vector.ravel(), weight=mass, total=total, energy=energy, slope=total, curve=mass
    )


def of_sums(sums: Statistics, features: Floats) -> tuple[Floats, Folded]:
    """Return the same of the sums of actions with all columns."""
    table = np.column_stack([sums.gram[:, :, -1], sums.moment[:, -1]])
    total, mass = float(sums.moment[:, -1].sum()), float(sums.weight.sum())
    return table, Folded(
        matrix=combined(features, sums.gram) if features.shape[1] else np.zeros((0, 0)),
        vector=(features.T @ sums.moment).ravel(),
        weight=mass,
        total=total,
        energy=float(sums.energy.sum()),
        slope=total,
        curve=mass,
    )


def copied(row: Floats, features: Floats) -> Folded:
    """Return the sums over x ⊗ φ of n rows with the mean context and the mean reward of an action.

    ``row`` (D + 1,) has its Σwφ and Σwr, and ``features`` (K,) its columns x: what is known of it, as rows of another.
    """
    sums, total, n = row[:-1], float(row[-1]), float(row[-2])
    share = 1.0 / n if n > 0 else 0.0
    one: Floats = np.outer(features, sums).ravel()
    return Folded(
        matrix=share * np.outer(one, one),
        vector=share * total * one,
        weight=n,
        total=total,
        energy=share * total**2,
        slope=total,
        curve=n,
    )


def integrated(shared: Folded, table: Floats, features: Floats, ridge: float) -> Folded:
    """Return the sums of all rows with the deviations of some actions integrated out.

    ``table`` (M, D + 1) and ``features`` (M, K) are those of the actions. Sums of retired actions are reduced once and
    for all; it is exact at the present ridge.
    """
    table, features = _tried(table, features)
    width, count = table.shape[1] - 1, features.shape[1]
    weight, total = table[:, -2], table[:, -1]
    share = 1.0 / (weight + ridge)
    packed = np.zeros((len(triangle(count)[0]), len(triangle(width)[0])))
    for piece in _pieces(table, features):
        scaled = share[piece, None] * packed_products(table[piece, :-1])
        packed += packed_products(features[piece]).T @ scaled
    matrix = unpacked(packed, count, width) if count else np.zeros((0, 0))
    return Folded(
        matrix=shared.matrix - matrix,
        vector=shared.vector - (features.T @ ((share * total)[:, None] * table[:, :-1])).ravel(),
        weight=shared.weight,
        total=shared.total,
        energy=shared.energy - float(share @ total**2),
        logdet=shared.logdet + float(np.log1p(weight / ridge).sum()),
        slope=shared.slope - float(share @ (weight * total)),
        curve=shared.curve - float(share @ weight**2),
    )


def _tried(table: Floats, features: Floats) -> tuple[Floats, Floats]:
    """Return the rows of actions that have a weight; the others change nothing."""
    some = table[:, -2] > 0
    return (table, features) if some.all() else (table[some], features[some])


def _pieces(table: Floats, features: Floats) -> Iterator[slice]:
    width, count = table.shape[1], features.shape[1]
    return blocks(len(table), 16 * (width**2 + count**2), PIECE_BYTES)


def fit(
    table: Floats, features: Floats, columns: Columns, ridges: Ridges, shared: Folded, variance: float
) -> ConstantFit:
    """Solve the model with given ridges.

    Parameters
    ----------
    table
        (M, D + 1) Σwφ and Σwr of the live actions.
    features
        (M, K) columns x of the live actions, the constant last.
    columns, ridges
        The blocks of columns, and their ridges.
    shared
        The sums of all rows over x ⊗ φ, in which deviations of retired actions are integrated out.
    variance
        That of the rewards, the scale of what is too small.
    """
    shared_ridges, (ridge,) = ridges.diagonals(columns)
    weight = shared.weight
    mean = shared.total / weight if weight > 0 else 0.0
    reduced = integrated(shared, table, features, float(ridge))
    nothing = np.zeros(reduced.vector.shape)
    solved = solve_shared(lambda: np.zeros(reduced.matrix.shape), nothing, reduced, shared_ridges, mean)
    theta: Floats = features @ solved.theta if features.shape[1] else np.zeros((len(table), columns.width))
    share = 1.0 / (table[:, -2] + ridge)
    deviation = share * (table[:, -1] - mean * table[:, -2] - np.vecdot(table[:, :-1], theta))
    theta[:, -1] += deviation
    pull = _pull(table, features, share, solved.inverse)
    energy = reduced.energy - 2.0 * mean * reduced.slope + mean**2 * reduced.curve
    noise = max((energy - solved.explained) / weight, LEAST_SHARE * variance) if weight > 0 else 0.0
    logdet = reduced.logdet + solved.logdet
    return ConstantFit(
        ridges=ridges,
        theta=theta,
        solved=solved,
        noise=noise,
        mean=mean,
        evidence=float(-0.5 * (weight * np.log(noise) + logdet)) if noise > 0 else 0.0,
        deviation=deviation[:, None],
        own_spread=(share + share * np.vecdot(table[:, :-1], pull))[:, None],
        worst=solved.worst,
        features=features,
        pull=pull,
        sums=table[:, :-1],
        shares=share,
    )


def _pull(table: Floats, features: Floats, share: Floats, inverse: Floats) -> Floats:
    """Return Q_a m_a (M, D), 0 for actions without a row."""
    width, count = table.shape[1] - 1, features.shape[1]
    out = np.zeros((len(table), width))
    if not inverse.size:
        return out
    tried = np.flatnonzero(table[:, -2] > 0)
    packed, place = packed_inverse(inverse, count, width), triangle(width)[2]
    for piece in _pieces(table[tried], features):
        at = tried[piece]
        doubt = (packed_products(features[at]) @ packed)[:, place]
        out[at] = np.matvec(doubt, share[at, None] * table[at, :-1])
    return out


def improve(
    table: Floats, features: Floats, columns: Columns, ridges: Ridges, shared: Folded, variance: float, steps: int
) -> ConstantFit:
    """Return the fit after at most ``steps`` fixed-point steps from ``ridges``; fewer where these settle."""

    def solved(tried: Ridges) -> ConstantFit:
        return fit(table, features, columns, tried, shared, variance)

    return settle(solved, ridges, lambda made: next_ridges(made, columns, shared.weight, variance), steps)
