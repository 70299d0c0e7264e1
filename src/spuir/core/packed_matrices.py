"""Symmetric matrices packed by their upper triangle, which halves products; and sums of Kronecker products of them."""

from functools import lru_cache

import numpy as np

from spuir.base.records import Codes, Floats
from spuir.core.quiet import quietly

NARROW = 24
"""Rows of up to so many columns are multiplied by index, wider ones column by column (measured)."""


@lru_cache(maxsize=64)
def triangle(width: int) -> tuple[Codes, Codes, Codes]:
    """Return rows and columns of the upper triangle (t,), and the place of each entry in it (width, width)."""
    i, j = np.triu_indices(width)
    place = np.empty((width, width), np.intp)
    place[i, j] = place[j, i] = np.arange(len(i))
    return i, j, place


def packed_products(rows: Floats) -> Floats:
    """Return the upper triangle of r rᵀ for each row (n, t)."""
    n, width = rows.shape
    i, j, _ = triangle(width)
    if width <= NARROW:
        return rows[:, i] * rows[:, j]
    out, start = np.empty((n, len(i))), 0
    for column in range(width):
        stop = start + width - column
        np.multiply(rows[:, column : column + 1], rows[:, column:], out=out[:, start:stop])
        start = stop
    return out


def packed_forms(matrices: Floats) -> Floats:
    """Return symmetric matrices (M, D, D) as (M, t): times packed products they give the quadratic forms."""
    i, j, _ = triangle(matrices.shape[1])
    # In C order, so that rows are taken without a copy of the whole.
    return np.ascontiguousarray(matrices[:, i, j] * np.where(i == j, 1.0, 2.0))


@quietly
def quadratic_forms(rows: Floats, forms: Floats) -> Floats:
    """Return φᵀC_aφ of all rows (n, D) and packed forms (M, t) as (n, M), by one product; never below 0."""
    found = packed_products(rows) @ forms.T
    return np.maximum(found, 0.0, out=found)


def combined(features: Floats, matrices: Floats) -> Floats:
    """Return Σ_a x_a x_aᵀ ⊗ matrix_a (p, p), for symmetric matrices (M, D, D), by one packed product."""
    i, j, _ = triangle(matrices.shape[1])
    return unpacked(packed_products(features).T @ matrices[:, i, j], features.shape[1], matrices.shape[1])


def unpacked(sums: Floats, count: int, width: int) -> Floats:
    """Return the matrix (p, p) of sums of packed x xᵀ times packed matrices, p = ``count`` · ``width``."""
    full = sums[triangle(count)[2][:, :, None, None], triangle(width)[2]]  # (K, K, D, D)
    return np.ascontiguousarray(full.transpose(0, 2, 1, 3)).reshape(count * width, count * width)


def packed_inverse(inverse: Floats, count: int, width: int) -> Floats:
    """Return P⁻¹ (p, p) so that packed x xᵀ times it is the packed Q = (x ⊗ I)ᵀ P⁻¹ (x ⊗ I)."""
    parts = inverse.reshape(count, width, count, width).transpose(0, 2, 1, 3)
    (first, second, _), (i, j, _) = triangle(count), triangle(width)
    twice = np.where(first == second, 0.0, 1.0)[:, None, None]
    both = parts[first, second] + twice * parts[second, first]
    return both[:, i, j]
