"""Sums + ridge → Cholesky factor, coefficients, widths, result code. Nothing here calls ``inv``.

Factoring and using the factor are separate: :func:`solve` runs once per episode, the rest on its result. All
matrices are stacked per action, C-ordered; ``upper[j]`` holds U with Ψ_j = UᵀU in its upper triangle.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dposv

from spuir.base.records import Floats, all_finite
from spuir.core.quiet import quietly
from spuir.core.scratch import CACHE_BYTES, workspace
from spuir.core.statistics import blocks
from spuir.errors import NumericalError

FINE, JITTERED, DEFICIENT = 0, 1, 2
"""Result codes of a solve, from the mildest to the worst.

FINE: every matrix was positive definite. JITTERED: a multiple of the identity was added to a matrix that rounding had
made indefinite. DEFICIENT: an eigenvalue decomposition replaced the factor of a numerically singular matrix.
"""
BAND = 16
"""Columns of a root that are multiplied at once; narrow bands leave out most of the zeros below them (measured)."""
SUBSTITUTED = 64
"""Columns of a root that are substituted at once (measured)."""
RANGE = 1e15
"""Largest norm of a factor and of its inverse for which single precision loses nothing at the ends of its range."""


@dataclass(frozen=True, eq=False)
class Solved:
    """Ψ_j = λI + … factored, and θ_j = Ψ_j⁻¹ rhs_j, for all actions.

    ``upper`` (M, p, p), ``theta`` (M, p), ``codes`` a result code for each action.
    """

    upper: Floats
    theta: Floats
    codes: tuple[int, ...]

    @property
    def worst(self) -> int:
        """The worst of the result codes."""
        return max(self.codes, default=FINE)

    def again(self, rhs: Floats) -> Floats:
        """Return Ψ_j⁻¹ rhs_j for another right-hand side (M, p)."""
        theta = rhs.copy()
        for j, upper in enumerate(self.upper):
            lapack.dpotrs(upper.T, theta[j], lower=1, overwrite_b=1)
        return theta

    def _triangles(self) -> Iterator[tuple[slice, Floats]]:
        """Return the sizes |U_j| of some actions at a time, with zeros below their diagonals, in a workspace."""
        m, p, _ = self.upper.shape
        above = np.tri(p).T
        for some in blocks(m, 8 * p * p, CACHE_BYTES):
            sizes = np.abs(self.upper[some], out=workspace("triangles", (some.stop - some.start, p, p)))
            yield some, np.multiply(sizes, above, out=sizes)

    @cached_property
    def roots(self) -> Floats:
        """U_j⁻¹ (M, p, p), upper triangular, so that sᵀΨ_j⁻¹s = ‖sᵀU_j⁻¹‖²."""
        roots, p = np.zeros_like(self.upper), self.upper.shape[1]
        diagonals(roots)[:] = 1.0
        # Substitution into the identity is faster than LAPACK's own inversion of a triangle, the larger the more. In a
        # large one, a few columns at a time, down to the last row that is not 0.
        for root, upper in zip(roots, self.upper, strict=True):
            if p <= SUBSTITUTED:
                dtrsm(1.0, upper.T, root.T, lower=1, overwrite_b=1)
                continue
            for start in range(0, p, SUBSTITUTED):
                stop = min(start + SUBSTITUTED, p)
                part = root[:stop, start:stop]
                part[:] = dtrsm(1.0, upper[:stop, :stop].T, part, lower=1, trans_a=1)
        return roots

    @cached_property
    def stacked_roots(self) -> Floats:
        """The roots side by side (p, M·p): all widths from one product with the contexts."""
        p = self.roots.shape[1]
        return self.roots.transpose(1, 0, 2).reshape(p, -1)

    def _bands(self) -> Iterator[NDArray[np.float32]]:
        """Return some columns of all roots at a time, as rows, down to their last entry that is not 0."""
        p = self.roots.shape[1]
        for start in range(0, p, BAND):
            stop = min(start + BAND, p)
            band = self.roots[:, :stop, start:stop].transpose(0, 2, 1)
            yield band.astype(np.float32, order="C").reshape(-1, stop)

    @cached_property
    def traces(self) -> Floats:
        """The trace of each Ψ_j (M,)."""
        return np.concatenate([_squares(sizes) for _, sizes in self._triangles()])

    @cached_property
    @quietly
    def single(self) -> "Single":
        """The roots in single precision, with the error they carry into widths."""
        unit = (self.upper.shape[1] + 4) * 2.0**-23
        rows = np.sqrt(np.vecdot(self.roots, self.roots))
        spans, largest = np.empty_like(rows), float(np.vecdot(rows, rows).max())
        for some, sizes in self._triangles():
            spans[some] = np.matvec(sizes, rows[some])
            largest = max(largest, float(_squares(sizes).max()))
        error = unit * math.sqrt(np.vecdot(spans, spans).max())
        return Single(
            bands=tuple(self._bands()),
            rounding=unit * rows.max(axis=0),
            error=error if largest <= RANGE**2 else math.inf,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Single:
    """Roots in single precision, and two bounds on the error of the widths computed with them.

    ``bands`` are the columns of all roots in turn, each (M·columns, rows) without the zeros below the diagonal.

    With u = 2⁻²⁴ and r_i the norm of row i of U⁻¹, sᵀU⁻¹ is off by at most (p+2)·u·Σ|s_i|r_i, and summing the squares
    adds half as much: a width is off by at most Σ|s_i|·``rounding``_i, rounding (p,) being 2(p+4)·u·r, the largest of
    all actions. Since sᵀ = (sᵀU⁻¹)U, Σ|s_i|r_i ≤ ‖sᵀU⁻¹‖·‖|U|r‖: relative to the width it is off by at most ``error``,
    2(p+4)·u·‖|U|r‖, infinite out of range. Neither depends on the units of the columns. Underflow
    takes at most 2⁻¹²⁶ from each context value, product and square: negligible where no norm exceeds RANGE.
    """

    bands: tuple[NDArray[np.float32], ...]
    rounding: Floats
    error: float


@quietly
def _squares(stack: Floats) -> Floats:
    """Return the sum of squares of each matrix of a contiguous stack (M,), infinite where it overflows."""
    flat = stack.reshape(len(stack), -1)
    return np.vecdot(flat, flat)


def diagonals(stack: Floats) -> Floats:
    """Return the diagonals (M, p) of a stack of contiguous matrices, as a writable view."""
    m, p, _ = stack.shape
    return stack.reshape(m, p * p)[:, :: p + 1]


@quietly
def semi_definite(stack: Floats, tolerance: float) -> bool:
    """Return whether every matrix of a stack (k, p, p) is symmetric and has no eigenvalue below −``tolerance``."""
    if not tolerance:
        return not stack.any()
    shift = tolerance * np.eye(stack.shape[-1])
    for matrix in stack:  # one at a time, so that only one is copied
        if np.abs(matrix - matrix.T).max(initial=0.0) > tolerance or lapack.dpotrf(matrix + shift)[1]:
            return False
    return True


def solve(psi: Floats, rhs: Floats, ridge: float | Floats = 0.0) -> Solved:
    """Factor Ψ_j = ``psi``_j + λI and solve Ψ_j θ_j = rhs_j for every action.

    θ_j is (2), the minimiser of (1), or (6), that of the sketched (5).

    ``psi`` (M, p, p) is overwritten by the factors, ``rhs`` (M, p) is left alone; ``ridge`` is λ, or one for
    each column (p,).
    """
    theta, codes, within = rhs.copy(), [FINE] * len(psi), diagonals(psi)
    diagonal = within.copy()
    diagonal += ridge
    within[:] = diagonal
    # The Fortran view of a symmetric C-ordered matrix is itself: with lower=1 and both overwritten (the three ones), no
    # copy is made. LAPACK is called by position, which is measurably faster for small matrices.
    for j in range(len(psi)):
        _, _, failed = dposv(psi[j].T, theta[j], 1, 1, 1)
        if failed and all_finite(diagonal[j]):
            theta[j], codes[j] = _rescue(psi[j], _restored(psi[j], diagonal[j]), rhs[j])
    if not (all_finite(theta) and all_finite(diagonal)):
        raise NumericalError(
            "sums", "a non-finite value", "sums of rows must stay finite", "scale contexts and rewards down"
        )
    return Solved(psi, theta, tuple(codes))


def _restored(matrix: Floats, diagonal: Floats) -> Floats:
    """Return the symmetric matrix whose upper triangle a failed factorisation left half overwritten."""
    below = np.tril(matrix, -1)
    return below + below.T + np.diag(diagonal)


def _rescue(out: Floats, psi: Floats, rhs: Floats) -> tuple[Floats, int]:
    """Factor a matrix that is not positive definite in floating point, into ``out``; return θ and the code."""
    scale = float(np.trace(psi)) / len(psi)
    if scale > 0:
        for power in (-14, -12, -10):
            out[:] = psi
            out[np.diag_indices(len(psi))] += scale * 10.0**power
            _, theta, failed = lapack.dposv(out.T, rhs.copy(), lower=1, overwrite_a=1)
            if not failed:
                return theta, JITTERED
    values, vectors = np.linalg.eigh(psi)
    values = np.maximum(values, max(float(values[-1]), 1.0) * 1e-10)
    _, r = np.linalg.qr((vectors * np.sqrt(values)).T)
    out[:] = r * np.sign(np.diag(r))[:, None]
    return vectors @ ((vectors.T @ rhs) / values), DEFICIENT


def fit_root(gram: Floats, ridge: float) -> tuple[Floats, Floats]:
    """Return G (M, p, p) with GGᵀ = Ψ⁻¹ΦΨ⁻¹, and the trace (M,) of Ψ⁻¹Φ, for Ψ = λI + Φ and columns of any scale.

    σ²GGᵀ is the variance of a ridge fit; as a sum of squares it is never below 0. With Φ = FFᵀ, G = F(λI + FᵀF)⁻¹.
    """
    diagonal = np.einsum("mii->mi", gram)
    # F is triangular with the largest column first: rounding in a large column then never reaches a small one.
    order = np.argsort(-diagonal, axis=1)
    every = np.arange(len(gram))[:, None]
    roots = np.sqrt(diagonal[every, order])
    unit = np.where(roots > 0, roots, 1.0)
    ordered = gram[every[:, :, None], order[:, :, None], order[:, None, :]]
    factor = roots[:, :, None] * _triangular(ordered / (unit[:, :, None] * unit[:, None, :]))
    inner = factor.transpose(0, 2, 1) @ factor + ridge * np.eye(gram.shape[1])
    scale = 1.0 / np.sqrt(np.einsum("mii->mi", inner))
    right = scale[:, :, None] * factor.transpose(0, 2, 1)
    solved = np.asarray(np.linalg.solve(scale[:, :, None] * inner * scale[:, None, :], right), np.float64)
    root = np.empty_like(gram)
    root[every, order] = (scale[:, :, None] * solved).transpose(0, 2, 1)
    return root, np.einsum("mij,mij->m", root[every, order], factor)


def _triangular(correlations: Floats) -> Floats:
    """Return L (M, p, p) with LLᵀ the given matrices of unit diagonal; 0 in columns that depend on earlier ones."""
    p = correlations.shape[1]
    noise = 64 * p * np.finfo(np.float64).eps  # of the sums that make a Gram matrix, with room to spare
    made = np.zeros_like(correlations)
    for k in range(p):
        column = correlations[:, k:, k] - (made[:, k:, :k] @ made[:, k, :k, None])[:, :, 0]
        pivot = column[:, :1]
        made[:, k:, k] = np.where(pivot > noise, column / np.sqrt(np.where(pivot > noise, pivot, 1.0)), 0.0)
    return made
