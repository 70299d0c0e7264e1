"""Standard errors of ridge fits: what the noise of the observed rewards does to coefficients and to means."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from spuir.base.records import Floats
from spuir.core.quiet import quietly
from spuir.core.solving import solve
from spuir.core.statistics import Statistics


@dataclass(frozen=True, eq=False)
class FitErrors:
    """The variance of each action's ridge fit, σ_j²(λI+Φ_j)⁻¹Φ_j(λI+Φ_j)⁻¹, by the eigenvectors of Φ_j = VEVᵀ.

    ``vectors`` V (M, p, p), ``spread`` E/(λ+E)² (M, p), ``noise`` σ_j² (M,), NaN without degrees of freedom. In these
    terms every variance is a sum of squares, never below 0.
    """

    vectors: Floats
    spread: Floats
    noise: Floats

    @classmethod
    @quietly
    def of(cls, observed: Statistics, ridge: float) -> Self:
        """Return the errors of the fits on the observed rows alone; what a sketch adds is in the energy of its sums."""
        theta = solve(observed.gram.copy(), observed.moment, ridge).theta
        spectrum, vectors = np.linalg.eigh(observed.gram)
        rounding = spectrum.shape[1] * np.finfo(np.float64).eps * spectrum[:, -1:]
        spectrum = np.where(spectrum > rounding, spectrum, 0.0)
        fitted = np.einsum("mi,mij,mj->m", theta, observed.gram, theta)
        residual = np.maximum(observed.energy - 2 * np.einsum("mi,mi->m", theta, observed.moment) + fitted, 0.0)
        freedom = observed.weight - (spectrum / (ridge + spectrum)).sum(axis=1)
        noise = np.where(freedom > 0, residual / np.where(freedom > 0, freedom, 1.0), np.nan)
        return cls(vectors, spectrum / np.square(ridge + spectrum), noise)

    def coefficients(self) -> Floats:
        """Return the standard error of each coefficient (M, p)."""
        return np.sqrt(self.noise[:, None] * np.matmul(np.square(self.vectors), self.spread[:, :, None])[:, :, 0])

    @quietly
    def means(self, rows: Floats) -> Floats:
        """Return the standard error of ⟨θ_j,s⟩ for feature rows (n, p) and all actions, (n, M)."""
        out = np.empty((len(rows), len(self.noise)))
        for j, (vectors, spread, noise) in enumerate(zip(self.vectors, self.spread, self.noise, strict=True)):
            out[:, j] = np.sqrt(noise * (np.square(rows @ vectors) @ spread))
        return out
