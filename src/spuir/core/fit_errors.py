"""Standard errors of ridge fits: what the noise of the observed rewards does to coefficients and to means."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from spuir.base.records import Floats
from spuir.core.quiet import quietly
from spuir.core.solving import fit_root, solve
from spuir.core.statistics import Statistics


@dataclass(frozen=True, eq=False)
class FitErrors:
    """The variance of each action's ridge fit, σ_j²GGᵀ.

    ``root`` G (M, p, p) with GGᵀ = (λI+Φ_j)⁻¹Φ_j(λI+Φ_j)⁻¹, ``noise`` σ_j² (M,), NaN without degrees of freedom.
    """

    root: Floats
    noise: Floats

    @classmethod
    @quietly
    def of(cls, observed: Statistics, ridge: float) -> Self:
        """Return the errors of the fits on the observed rows alone; what a sketch adds is in the energy of its sums."""
        theta = solve(observed.gram.copy(), observed.moment, ridge).theta
        root, dims = fit_root(observed.gram, ridge)
        fitted = np.einsum("mi,mij,mj->m", theta, observed.gram, theta)
        residual = np.maximum(observed.energy - 2 * np.einsum("mi,mi->m", theta, observed.moment) + fitted, 0.0)
        freedom = observed.weight - dims
        return cls(root, np.where(freedom > 0, residual / np.where(freedom > 0, freedom, 1.0), np.nan))

    @quietly
    def of_sums(self, weights: Floats) -> Floats:
        """Return the standard errors (M, k) of k sums of coefficients, with ``weights`` (p, k)."""
        out = np.empty((len(self.noise), weights.shape[1]))
        for j, (root, noise) in enumerate(zip(self.root, self.noise, strict=True)):
            out[j] = np.sqrt(noise * np.square(weights.T @ root).sum(axis=1))
        return out
