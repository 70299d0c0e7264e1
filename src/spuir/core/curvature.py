"""Further columns of actions, such as products of their features: what retired actions left, and what is gained.

The sums of an action do not depend on its features, so that a model with further columns w of x is solved from the
same sums as the one with the columns l alone. The order of the columns is l, w, constant.

The larger model is expensive to solve. What it would gain follows from the smaller one: with the blocks of P and h of
:mod:`spuir.core.hierarchy`, B = P_ww − P_wl P_ll⁻¹ P_lw and g = h_w − P_wl vec Θ, its log evidence with a ridge λ of
the further columns is higher by ½ [gᵀ(B + λI)⁻¹g/σ̂² − ln|I + B/λ|], the noise and the other ridges being kept.
:func:`expected` takes the diagonal of B for B, and the best λ.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from spuir.base.records import Codes, Floats
from spuir.core.hierarchy import LARGEST_RIDGE, Columns, Folded, HierarchicalFit, Ridges, integrated_out
from spuir.core.packed_matrices import packed_products, triangle, unpacked
from spuir.core.statistics import Statistics

TRIED_RIDGES: Floats = np.geomspace(0.1, LARGEST_RIDGE, 61)
"""Ridges of the further columns among which the best is taken."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Left:
    """What retired actions left over x ⊗ φ, with the further columns.

    ``matrix`` (K(K + 1)/2, D(D + 1)/2) is P₀, packed in both factors, and ``vector`` (K, D) is h₀. The latest retired
    actions wait in ``features`` x (m, K), ``inner`` R H G (m, D(D + 1)/2) and ``pulled`` R H b (m, D) until
    :meth:`settled`, so that many are added at once. The scalars are those of the smaller model.
    """

    matrix: Floats
    vector: Floats
    features: Floats
    inner: Floats
    pulled: Floats

    @classmethod
    def nothing(cls, count: int, width: int) -> "Left":
        """Return what is left before an action was retired, of ``count`` columns x and ``width`` columns φ."""
        packed = len(triangle(width)[0])
        return cls(
            matrix=np.zeros((len(triangle(count)[0]), packed)),
            vector=np.zeros((count, width)),
            features=np.zeros((0, count)),
            inner=np.zeros((0, packed)),
            pulled=np.zeros((0, width)),
        )

    def joined(self, sums: Statistics, features: Floats, columns: Columns, ridges: Ridges) -> "Left":
        """Return it with more retired actions, which have the columns x ``features`` (m, K)."""
        inner, pulled = integrated_out(sums.gram, sums.moment, columns, ridges)
        return replace(
            self,
            features=np.concatenate([self.features, features]),
            inner=np.concatenate([self.inner, inner]),
            pulled=np.concatenate([self.pulled, pulled]),
        )

    def settled(self, factor: float = 1.0) -> "Left":
        """Return ``factor`` × this, with no action waiting."""
        if factor == 1.0 and not len(self.features):
            return self
        nothing = Left.nothing(*self.vector.shape)
        return replace(
            nothing,
            matrix=factor * (self.matrix + packed_products(self.features).T @ self.inner),
            vector=factor * (self.vector + self.features.T @ self.pulled),
        )

    def folded(self, scalars: Folded) -> Folded:
        """Return the sums of the larger model; ``scalars`` are those of the smaller one."""
        done = self.settled()
        return replace(scalars, matrix=unpacked(done.matrix, *done.vector.shape), vector=done.vector.ravel())


class Expected(NamedTuple):
    """What further columns would add to the log evidence, and their best ridges, one for each block of φ."""

    gain: float
    ridges: Floats


def expected(
    sums: Statistics, features: Floats, made: HierarchicalFit, columns: Columns, left: Left, largest: Floats
) -> Expected:
    """Return what further columns would gain over a fit without them.

    Parameters
    ----------
    sums
        Of the live actions (M).
    features
        (M, K) their columns, the further ones among them.
    made, columns
        The fit without further columns, and its blocks of columns.
    left
        What retired actions left.
    largest
        The largest ridge of the further columns, one for each block of φ.
    """
    score, information = _score(sums, features, made, columns, left.settled())
    gain, ridges = 0.0, np.empty(len(columns.own))
    for at, block in enumerate(columns.own):
        signal = (np.square(score[:, block]) / made.noise).ravel()
        known = np.maximum(information[:, block].ravel(), 0.0)
        tried = np.minimum(TRIED_RIDGES, largest[at])[:, None]
        gains = 0.5 * (signal / (tried + known) - np.log1p(known / tried)).sum(axis=1)
        best = int(gains.argmax())
        gain, ridges[at] = gain + max(float(gains[best]), 0.0), tried[best, 0]
    return Expected(gain, ridges)


def _score(
    sums: Statistics, features: Floats, made: HierarchicalFit, columns: Columns, left: Left
) -> tuple[Floats, Floats]:
    """Return g and the diagonal of B, both (K − L, D), L being the number of columns of the smaller model."""
    count, width, last = features.shape[1], columns.width, int(columns.feature_width) - 1
    further, base = np.array(range(last, count - 1)), np.array([*range(last), count - 1])
    moment = sums.moment - made.mean * sums.gram[:, :, -1]
    inner, pulled = integrated_out(sums.gram, moment, columns, made.ridges)
    cross = _blocks(features, inner, further, base, left, width)
    own = _own_blocks(features, inner, further, left, width)
    # What was left is of rewards that are not centred: r̄ times the column of the constant in both is taken out.
    constant = left.matrix[triangle(count)[2][further, -1]][:, triangle(width)[2][:, -1]]
    right = features[:, further].T @ pulled + left.vector[further] - made.mean * constant
    score = right - (cross @ made.shared.ravel()).reshape(right.shape)
    information = own - np.vecdot(cross @ made.shared_inverse, cross).reshape(right.shape)
    return score, information


def _blocks(features: Floats, inner: Floats, rows: Codes, columns: Codes, left: Left, width: int) -> Floats:
    """Return the block of P (r·D, c·D) of some columns of x by others."""
    pairs = features[:, rows, None] * features[:, None, columns]
    place = triangle(features.shape[1])[2][rows[:, None], columns]
    packed = pairs.reshape(len(features), -1).T @ inner + left.matrix[place.ravel()]
    full = packed.reshape(len(rows), len(columns), -1)[:, :, triangle(width)[2]]  # (r, c, D, D)
    return np.ascontiguousarray(full.transpose(0, 2, 1, 3)).reshape(len(rows) * width, -1)


def _own_blocks(features: Floats, inner: Floats, rows: Codes, left: Left, width: int) -> Floats:
    """Return the diagonal of P (r, D) at some columns of x."""
    diagonal = np.diagonal(triangle(width)[2])
    place = np.diagonal(triangle(features.shape[1])[2])[rows]
    return np.square(features[:, rows]).T @ inner[:, diagonal] + left.matrix[place[:, None], diagonal]
