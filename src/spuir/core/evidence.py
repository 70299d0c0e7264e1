"""Ridges estimated from the data: the evidence (marginal likelihood) of a Gaussian model with one ridge per block.

The columns of a regression fall into blocks q: a constant, a linear block, a kernel block. The coefficients of a block
have a normal prior of variance σ²/λ_q, the same for all actions. The evidence of the rewards under that model is
maximised over σ² and λ by MacKay's fixed-point steps, from sums alone. One column is constant: rewards are centred by
their mean, so that the ridge of the constant shrinks the difference of an action from the mean reward, not the reward.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from spuir.base.records import Codes, Floats
from spuir.core.solving import Solved, diagonals, solve
from spuir.core.statistics import Statistics

Blocks = tuple[slice, ...]

LARGEST_RIDGE = 1e3
"""Largest ridge: a block this stiff takes no part."""
LEAST_SHARE = 1e-12
"""Least noise and least squared length of coefficients, per variance of the rewards."""
LEAST_FREEDOM = 1e-3
"""Least effective number of parameters of a block."""
LEAST_RIDGE = 1e-9
"""Least ridge per row of an action: rewards without noise would lower it to 0."""


@dataclass(frozen=True, eq=False)
class CentredSums:
    """Sums of M actions with the mean reward taken out.

    ``gram`` (M, p, p), ``moment`` (M, p) of r − mean, ``energy`` (M,) of (r − mean)², ``weight`` (M,) and ``mean``, the
    mean reward of all actions.
    """

    gram: Floats
    moment: Floats
    energy: Floats
    weight: Floats
    mean: float

    @classmethod
    def of(cls, sums: Statistics, constant: int, columns: Codes | None = None) -> "CentredSums":
        """Return the sums centred by the mean reward; ``constant`` is the column of ones.

        ``columns`` chooses some of the columns, the constant among them.
        """
        gram, moment = sums.gram, sums.moment
        ones, total = gram[:, :, constant], moment[:, constant]
        weight = float(sums.weight.sum())
        mean = float(total.sum()) / weight if weight > 0 else 0.0
        centred = moment - mean * ones
        energy = np.maximum(sums.energy - 2.0 * mean * total + mean**2 * sums.weight, 0.0)
        if columns is not None:
            gram, centred = gram[:, columns[:, None], columns], centred[:, columns]
        return cls(gram, centred, energy, sums.weight, mean)

    @property
    def total(self) -> float:
        """The weight of all rows, N."""
        return float(self.weight.sum())

    @cached_property
    def variance(self) -> float:
        """The variance of all rewards."""
        return float(self.energy.sum()) / self.total if self.total > 0 else 0.0


@dataclass(frozen=True, eq=False)
class EvidenceFit:
    """A fit with given ridges: ``solved`` has Ψ_j = G_j + diag λ and θ_j, ``noise`` is σ̂², ``evidence`` is the log."""

    ridges: Floats
    solved: Solved
    noise: float
    evidence: float


def fit(sums: CentredSums, blocks: Blocks, ridges: Floats, variance: float) -> EvidenceFit:
    """Solve with one ridge per block; ``variance`` is that of the rewards, the scale of what is too small."""
    p = sums.moment.shape[1]
    diagonal = np.empty(p)
    for block, ridge in zip(blocks, ridges, strict=True):
        diagonal[block] = ridge
    solved = solve(sums.gram.copy(), sums.moment, diagonal)
    unexplained = float(sums.energy.sum() - np.vdot(sums.moment, solved.theta))
    noise = max(unexplained / sums.total, LEAST_SHARE * variance) if sums.total > 0 else 0.0
    logdet = 2.0 * float(np.log(np.abs(diagonals(solved.upper))).sum())
    prior = len(solved.theta) * float(np.log(diagonal).sum())
    evidence = -0.5 * (sums.total * np.log(noise) + logdet - prior) if noise > 0 else 0.0
    return EvidenceFit(ridges, solved, noise, float(evidence))


def next_ridges(made: EvidenceFit, sums: CentredSums, blocks: Blocks, variance: float) -> Floats:
    """Return the ridges after one fixed-point step: λ_q = σ̂² g_q / Σ_j ‖θ_jq‖².

    g_q = M p_q − λ_q Σ_j tr(Ψ_j⁻¹)_qq is the effective number of parameters of block q. A ridge is at least σ̂²/2v: the
    prior of a block does not exceed twice the variance v of the rewards.
    """
    roots, theta = made.solved.roots, made.solved.theta
    inverse = np.vecdot(roots, roots).sum(axis=0)  # the diagonals of Ψ_j⁻¹, summed over the actions
    squares = np.square(theta).sum(axis=0)
    least = max(made.noise / (2.0 * variance), LEAST_RIDGE * (1.0 + float(sums.weight.max())))
    ridges = np.empty(len(blocks))
    for q, block in enumerate(blocks):
        width = block.stop - block.start
        freedom = max(len(theta) * width - made.ridges[q] * float(inverse[block].sum()), LEAST_FREEDOM)
        length = max(float(squares[block].sum()), LEAST_SHARE * variance)
        ridges[q] = min(max(made.noise * freedom / length, least), LARGEST_RIDGE)
    return ridges


def improve(sums: CentredSums, blocks: Blocks, ridges: Floats, variance: float, steps: int) -> EvidenceFit:
    """Return the fit after some fixed-point steps from ``ridges``."""
    made = fit(sums, blocks, ridges, variance)
    for _ in range(steps):
        made = fit(sums, blocks, next_ridges(made, sums, blocks, variance), variance)
    return made
