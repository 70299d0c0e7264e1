"""What acting needs of a hierarchical model: estimates and widths of rows and the actions that they may choose."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from spuir.base.pairs import Pairs
from spuir.base.records import Codes, Floats
from spuir.core import packed_matrices
from spuir.core.constant_deviations import ConstantFit
from spuir.core.hierarchy import HierarchicalFit, SharedFit
from spuir.core.statistics import blocks

PAIR_COST = 4.0
"""Cost of the width of one pair by itself, relative to one of a product over all rows and actions (measured)."""
PAIR_BYTES = 2**20
"""Working memory of one piece of pairs."""


@dataclass(frozen=True, eq=False)
class HierarchicalReadout(ABC):
    """The fit, the place of each action in it (M,), −1 where retired, the mean reward and the noise."""

    fit: SharedFit
    place: Codes
    mean: float
    noise: float

    def of(self, codes: Codes) -> tuple[Codes, Floats]:
        """Return the places of some codes, and their coefficients (n, D); 0 for a retired action."""
        at = self.place[codes]
        theta = self.fit.theta[at]
        theta[at < 0] = 0.0
        return at, theta

    @abstractmethod
    def by_row(self, rows: Floats, pairs: Pairs) -> tuple[Floats, Floats]:
        """Return means and squared widths of pairs (k,), the actions of one row at a time."""

    @abstractmethod
    def squares(self, rows: Floats, at: Codes) -> Floats:
        """Return the squared widths (k,) of rows (k, D), one for each of the actions ``at``."""

    def by_pair(self, base: Floats, varying: Floats, pairs: Pairs) -> tuple[Floats, Floats]:
        """Return means and squared widths of pairs (k,) with columns of their own, a piece at a time."""
        rows, at = pairs.rows, self.place[pairs.codes]
        means, squares = np.empty(len(at)), np.empty(len(at))
        width = self.fit.theta.shape[1]
        for piece in blocks(len(at), 4 * width * (width + 1), PAIR_BYTES):
            phi = np.column_stack([base[rows[piece]], varying[piece], np.ones(len(at[piece]))])
            means[piece] = np.vecdot(phi, self.fit.theta[at[piece]])
            squares[piece] = self.squares(phi, at[piece])
        return means, squares

    @abstractmethod
    def variances(self, combinations: Floats) -> Floats:
        """Return the posterior variances (S, c) of combinations (D, c) of coefficients, in units of the noise."""

    @abstractmethod
    def parts(self, rows: Floats, at: Codes) -> tuple[Floats, Floats]:
        """Return what the estimate of rows φ (k, D), one for each of the actions ``at``, is uncertain by.

        These are the variance (k,) of what is the action's own, in units of the noise, and the rows ψ (k, D) whose
        products with x are the columns by which it depends on Θ.
        """

    def difference_variances(self, rows: Floats, codes: Codes, other_rows: Floats, others: Codes) -> Floats:
        """Return the posterior variances (n,) of differences of estimates, in units of the noise.

        The estimate of row φ (n, D) and action ``codes`` (n,), minus that of another row and another action. What both
        know from Θ cancels. A retired action counts as 0.
        """
        out, inverse = np.empty(len(rows)), self.fit.shared_inverse
        x, width = self.fit.features, self.fit.theta.shape[1]
        for piece in blocks(len(rows), 8 * (width**2 + 2 * len(inverse)), PAIR_BYTES):
            left, own = np.zeros((piece.stop - piece.start, len(inverse))), np.zeros(piece.stop - piece.start)
            for sign, phi, code in ((1.0, rows[piece], codes[piece]), (-1.0, other_rows[piece], others[piece])):
                at = self.place[code]
                live = at >= 0
                variance, psi = self.parts(phi[live], at[live])
                own[live] += variance
                left[live] += sign * (x[at[live], :, None] * psi[:, None, :]).reshape(len(psi), -1)
            own[codes[piece] == others[piece]] = 0.0
            out[piece] = own + np.vecdot(left @ inverse, left)
        return np.maximum(out, 0.0)


@dataclass(frozen=True, eq=False)
class FullReadout(HierarchicalReadout):
    """Actions deviate in all columns."""

    fit: HierarchicalFit

    @cached_property
    def forms(self) -> Floats:
        """The posteriors C_a, packed (S, t)."""
        return packed_matrices.packed_forms(self.fit.covariance)

    def by_row(self, rows: Floats, pairs: Pairs) -> tuple[Floats, Floats]:
        """Return means and squared widths of pairs (k,), by one product where the pairs are most of the table."""
        at, theta, forms = self.place[pairs.codes], self.fit.theta, self.forms
        if PAIR_COST * len(at) >= len(pairs) * len(theta):
            table = rows @ theta.T, packed_matrices.quadratic_forms(rows, forms)
            whole = len(at) == table[0].size
            means, squares = (one.ravel() if whole else one[pairs.rows, at] for one in table)
            return means, squares
        means, squares, packed = np.empty(len(at)), np.empty(len(at)), packed_matrices.packed_products(rows)
        bounds: list[int] = pairs.starts.tolist()
        for row, products, start, stop in zip(rows, packed, bounds, bounds[1:], strict=False):
            own = at[start:stop]
            np.dot(theta.take(own, axis=0), row, out=means[start:stop])
            np.dot(forms.take(own, axis=0), products, out=squares[start:stop])
        return means, squares

    def squares(self, rows: Floats, at: Codes) -> Floats:
        """Return the squared widths (k,) of rows (k, D), one for each of the actions ``at``."""
        return np.vecdot(packed_matrices.packed_products(rows), self.forms[at])

    def variances(self, combinations: Floats) -> Floats:
        """Return the posterior variances (S, c) of combinations (D, c) of coefficients, in units of the noise."""
        return np.einsum("ic,mij,jc->mc", combinations, self.fit.covariance, combinations, optimize=True)

    def parts(self, rows: Floats, at: Codes) -> tuple[Floats, Floats]:
        """Return φᵀHφ and ψ = R H φ."""
        inverse = self.fit.own_inverse[at]
        return np.vecdot(np.matvec(inverse, rows), rows), np.vecmat(rows, self.fit.pull[at])


@dataclass(frozen=True, eq=False)
class ConstantReadout(HierarchicalReadout):
    """Actions deviate by a constant alone: nothing of the size D² is kept for an action."""

    fit: ConstantFit

    def by_row(self, rows: Floats, pairs: Pairs) -> tuple[Floats, Floats]:
        """Return means and squared widths of pairs (k,), the actions of one row at a time."""
        at, fit = self.place[pairs.codes], self.fit
        means, squares = np.empty(len(at)), np.empty(len(at))
        bounds: list[int] = pairs.starts.tolist()
        for row, metric, start, stop in zip(rows, fit.by_row(rows), bounds, bounds[1:], strict=False):
            own = at[start:stop]
            x = fit.features.take(own, axis=0)
            np.dot(fit.theta.take(own, axis=0), row, out=means[start:stop])
            squares[start:stop] = fit.squares(np.vecdot(x @ metric, x), row, own)
        return means, squares

    def squares(self, rows: Floats, at: Codes) -> Floats:
        """Return the squared widths (k,) of rows (k, D), one for each of the actions ``at``."""
        return self.fit.squares(self.fit.lengths(rows, at), rows, at)

    def variances(self, combinations: Floats) -> Floats:
        """Return the posterior variances (S, c) of combinations (D, c) of coefficients, in units of the noise."""
        rows, x = np.ascontiguousarray(combinations.T), self.fit.features
        every = slice(None)
        found = [
            self.fit.squares(np.vecdot(x @ metric, x), row, every)
            for row, metric in zip(rows, self.fit.by_row(rows), strict=True)
        ]
        return np.column_stack(found)

    def parts(self, rows: Floats, at: Codes) -> tuple[Floats, Floats]:
        """Return the variance of the own constant by itself, and ψ = φ − m, m the action's sums of φ over n + ρ."""
        share, last = self.fit.shares[at], rows[:, -1]
        return last**2 * share, rows - (last * share)[:, None] * self.fit.sums[at]
