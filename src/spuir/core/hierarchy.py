"""Ridge regression of actions with features: what the features say, plus each action's own deviation.

θ_a = Θᵀx_a + δ_a. Θ (K, D) has a normal prior with one ridge λ per block of its entries, δ_a (D,) one with a ridge ρ
per block of columns, both in units of the noise. The model is solved exactly from the sums of each action, which need
not know any features: δ_a is integrated out per action, and what remains of all sums is one system in Θ.
With R = diag ρ, H_a = (G_a + R)⁻¹ and S_a = R H_a G_a:

* P = Λ + P₀ + Σ_a x_a x_aᵀ ⊗ S_a, and vec Θ = P⁻¹ (h₀ + Σ_a x_a ⊗ R H_a b_a);
* θ_a = H_a (b_a + R Θᵀx_a), with posterior C_a = H_a + H_a R Q_a R H_a, Q_a = (x_a ⊗ I)ᵀ P⁻¹ (x_a ⊗ I).

P₀ and h₀ are what retired actions left (:func:`fold`). Without features there is no Θ: one ridge regression per action,
with shared ridges. In both tables of columns the constant is the last column.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
from scipy.linalg.lapack import dpotri

from spuir.base.records import Floats
from spuir.core.evidence import LEAST_FREEDOM, LEAST_RIDGE, LEAST_SHARE, Blocks
from spuir.core.packed_matrices import combined, packed_inverse, packed_products, triangle
from spuir.core.solving import FINE, diagonals, solve
from spuir.core.statistics import Statistics

CONSTANT_RIDGE = 0.01
"""λ of the entry of Θ that is constant in the context and in the features."""
LARGEST_RIDGE = 1e5
"""Largest ridge: a block this stiff takes no part, so that actions with the same features are alike."""
SETTLED = 0.02
"""Fixed-point steps end when no ridge changes by more than this share."""


class Columns(NamedTuple):
    """Blocks of columns: ``own`` of φ (D columns) and ``features`` of x (K columns), the constant first in each.

    ``features`` is empty where actions have no features. ``deviations`` says in which columns actions deviate from
    what their features say: ``"all"``, the ``"constant"``, or ``"none"``.
    """

    own: Blocks
    features: Blocks
    deviations: str = "all"

    @property
    def width(self) -> int:
        """D, the number of columns of φ."""
        return self.own[0].stop

    @property
    def feature_width(self) -> int:
        """K, the number of columns of x."""
        return self.features[0].stop if self.features else 0

    @property
    def deviating(self) -> Blocks:
        """The blocks of the columns of deviations, each with a ridge: those of φ, or the constant alone."""
        return self.own if self.deviations == "all" else (slice(0, 1),)

    @property
    def shared(self) -> list[tuple[slice, slice]]:
        """The blocks of Θ that have a ridge of their own: all but the entry that is constant in both."""
        return [(x, phi) for x in self.features for phi in self.own][1:]


class Ridges(NamedTuple):
    """λ of each shared block of Θ, and ρ of each block of columns in which actions deviate."""

    shared: Floats
    own: Floats

    def diagonals(self, columns: Columns) -> tuple[Floats, Floats]:
        """Return Λ as (K, D) and the diagonal of R (D,), or ρ (1,) of the constant alone."""
        shared = np.full((columns.feature_width, columns.width), CONSTANT_RIDGE)
        for (x, phi), ridge in zip(columns.shared, self.shared, strict=True):
            shared[x, phi] = ridge
        own = np.empty(columns.width if columns.deviations == "all" else 1)
        for block, ridge in zip(columns.deviating, self.own, strict=True):
            own[block] = ridge
        return shared, own


@dataclass(frozen=True, kw_only=True, eq=False)
class Folded:
    """Sums over x ⊗ φ: what retired actions left, of rewards that are not centred.

    ``matrix`` (p, p) and ``vector`` (p,) are P₀ and h₀, p = K·D. ``weight`` is Σn, ``total`` Σr, ``energy``
    Σ(e − bᵀHb), ``logdet`` Σ ln|I + R⁻¹G|, ``slope`` Σ(R H b)₀ and ``curve`` Σ(R H G)₀₀, 0 being the constant.
    """

    matrix: Floats
    vector: Floats
    weight: float = 0.0
    total: float = 0.0
    energy: float = 0.0
    logdet: float = 0.0
    slope: float = 0.0
    curve: float = 0.0

    @classmethod
    def nothing(cls, columns: Columns) -> "Folded":
        """Return what is left before an action was retired."""
        p = columns.feature_width * columns.width
        return cls(matrix=np.zeros((p, p)), vector=np.zeros(p))

    def combined(self, factor: float, other: "Folded") -> "Folded":
        """Return ``factor`` × this + ``other``."""
        return Folded(**{name: factor * value + getattr(other, name) for name, value in vars(self).items()})


@dataclass(frozen=True, eq=False)
class Shared:
    """The solved system in Θ: Θ (K, D), the factor of P (p, p), what folded sums explain, ln|P| − ln|Λ|, the code."""

    theta: Floats
    factor: Floats
    explained: float
    logdet: float
    worst: int

    @cached_property
    def inverse(self) -> Floats:
        """P⁻¹ (p, p)."""
        return _inverse(self.factor) if self.factor.size else self.factor


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedFit(ABC):
    """A fit with given ridges.

    ``theta`` (M, D), ``solved`` the system in Θ, ``features`` x (M, K), ``noise`` σ̂², ``mean`` the mean reward that was
    taken out, ``evidence`` its logarithm. ``deviation`` δ and ``spread``, the diagonals of its posterior, are what the
    next ridges need; both have one column for each in which actions deviate.
    """

    ridges: Ridges
    theta: Floats
    solved: Shared
    features: Floats
    noise: float
    mean: float
    evidence: float
    deviation: Floats
    worst: int

    @property
    def shared(self) -> Floats:
        """Θ (K, D)."""
        return self.solved.theta

    @property
    def shared_inverse(self) -> Floats:
        """P⁻¹ (p, p)."""
        return self.solved.inverse

    def estimating(self: "Fit", other: "Fit") -> "Fit":
        """Return the fit with the estimates of another one: its widths and everything else stay."""
        worst = max(self.worst, other.worst)
        return replace(self, theta=other.theta, deviation=other.deviation, worst=worst)

    @property
    @abstractmethod
    def spread(self) -> Floats:
        """The diagonals of the posterior of δ, in units of the noise."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HierarchicalFit(SharedFit):
    """A fit of actions that deviate in all columns: ``own_inverse`` H (M, D, D), ``pull`` H R.

    The posterior is expensive, and computed when it is first needed.
    """

    own_inverse: Floats
    pull: Floats

    @cached_property
    def _posterior(self) -> tuple[Floats, Floats]:
        """C (M, D, D), and the diagonals (M, D) of the posterior of δ: H + (I − HR) Q (I − HR)ᵀ."""
        pull, spread = self.pull, np.einsum("mii->mi", self.own_inverse).copy()
        if not self.shared_inverse.size:
            return self.own_inverse, spread
        doubt = _uncertainty(self.features, self.shared_inverse, pull.shape[1])
        half = pull @ doubt
        added = _symmetric(half @ pull.transpose(0, 2, 1))
        spread += np.einsum("mii->mi", doubt) - 2.0 * np.einsum("mii->mi", half) + np.einsum("mii->mi", added)
        return self.own_inverse + added, spread

    @property
    def covariance(self) -> Floats:
        """C (M, D, D), in units of the noise."""
        return self._posterior[0]

    @property
    def spread(self) -> Floats:
        """The diagonals of the posterior of δ, in units of the noise."""
        return self._posterior[1]


Fit = TypeVar("Fit", bound=SharedFit)


def _uncertainty(features: Floats, inverse: Floats, width: int) -> Floats:
    """Return Q_a = (x_a ⊗ I)ᵀ P⁻¹ (x_a ⊗ I) of all actions (M, D, D), by one packed product."""
    packed = packed_inverse(inverse, features.shape[1], width)
    return (packed_products(features) @ packed)[:, triangle(width)[2]]


def _symmetric(stack: Floats) -> Floats:
    """Return the symmetric part of matrices (M, D, D) that rounding alone made unsymmetric."""
    return 0.5 * (stack + stack.transpose(0, 2, 1))


class _Own(NamedTuple):
    """What the sums of each action say by themselves: H (M, D, D), S = R H G, H b̃ (M, D), ln|I + R⁻¹G| (M,)."""

    inverse: Floats
    left: Floats
    solution: Floats
    logdet: Floats
    worst: int


def _own(gram: Floats, moment: Floats, own: Floats) -> _Own:
    """Return what the sums of each action say by themselves, under the ridges ``own`` (D,)."""
    solved = solve(gram.copy(), moment, own)
    inverse = solved.roots @ solved.roots.transpose(0, 2, 1)
    logdet = 2.0 * np.log(np.abs(diagonals(solved.upper))).sum(axis=1) - float(np.log(own).sum())
    left = _symmetric(own[:, None] * (inverse @ gram))
    return _Own(inverse, left, solved.theta, logdet, solved.worst)


def integrated_out(gram: Floats, moment: Floats, columns: Columns, ridges: Ridges) -> tuple[Floats, Floats]:
    """Return what each action adds to the system in Θ: R H G, packed (M, D(D + 1)/2), and R H b (M, D)."""
    _, own_ridges = ridges.diagonals(columns)
    own, (i, j, _) = _own(gram, moment, own_ridges), triangle(columns.width)
    return own.left[:, i, j], own_ridges * own.solution


def fit(
    sums: Statistics, features: Floats, columns: Columns, ridges: Ridges, folded: Folded, variance: float
) -> HierarchicalFit:
    """Solve the model with given ridges.

    Parameters
    ----------
    sums
        Of the live actions (M), over φ (D columns, the constant last).
    features
        (M, K) columns x of the live actions, the constant last.
    columns, ridges
        The blocks of columns, and their ridges.
    folded
        What retired actions left.
    variance
        That of the rewards, the scale of what is too small.
    """
    shared_ridges, own_ridges = ridges.diagonals(columns)
    weight = float(sums.weight.sum()) + folded.weight
    mean = (float(sums.moment[:, -1].sum()) + folded.total) / weight if weight > 0 else 0.0
    moment = sums.moment - mean * sums.gram[:, :, -1]
    energy = float((sums.energy - 2.0 * mean * sums.moment[:, -1] + mean**2 * sums.weight).sum())
    energy += folded.energy - 2.0 * mean * folded.slope + mean**2 * folded.curve
    own = _own(sums.gram, moment, own_ridges)
    shared = _shared(own, features, shared_ridges, own_ridges, folded, mean)
    said = features @ shared.theta
    pull = own.inverse * own_ridges  # H R
    theta: Floats = own.solution + np.matvec(pull, said)
    unexplained = energy - float(np.vdot(moment, theta)) - shared.explained
    noise = max(unexplained / weight, LEAST_SHARE * variance) if weight > 0 else 0.0
    logdet = float(own.logdet.sum()) + folded.logdet + shared.logdet
    return HierarchicalFit(
        ridges=ridges,
        theta=theta,
        solved=shared,
        noise=noise,
        mean=mean,
        evidence=float(-0.5 * (weight * np.log(noise) + logdet)) if noise > 0 else 0.0,
        deviation=theta - said,
        worst=max(own.worst, shared.worst),
        own_inverse=own.inverse,
        pull=pull,
        features=features,
    )


def _shared(
    own: _Own, features: Floats, shared_ridges: Floats, own_ridges: Floats, folded: Folded, mean: float
) -> Shared:
    """Solve P vec Θ = h."""
    right = (features.T @ (own_ridges * own.solution)).ravel()
    return solve_shared(lambda: combined(features, own.left), right, folded, shared_ridges, mean)


def solve_shared(
    matrix: Callable[[], Floats], right: Floats, folded: Folded, shared_ridges: Floats, mean: float
) -> Shared:
    """Solve P vec Θ = h, of the folded sums and of more; nothing where actions have no features."""
    if not shared_ridges.size:
        return Shared(shared_ridges, np.zeros((0, 0)), 0.0, 0.0, FINE)
    vector = folded.vector - mean * folded.matrix[:, -1]
    solved = solve((matrix() + folded.matrix)[None], (right + vector)[None], shared_ridges.ravel())
    return Shared(
        theta=solved.theta[0].reshape(shared_ridges.shape),
        factor=solved.upper[0],
        explained=float(vector @ solved.theta[0]),
        logdet=2.0 * float(np.log(np.abs(diagonals(solved.upper))).sum()) - float(np.log(shared_ridges).sum()),
        worst=solved.worst,
    )


def _inverse(upper: Floats) -> Floats:
    """Return the inverse of UᵀU, of which the upper triangle of a C-ordered array holds U."""
    found, _ = dpotri(upper.T, lower=1)
    below = np.tril(found, -1)
    return below + below.T + np.diag(np.diagonal(found))


def next_ridges(made: SharedFit, columns: Columns, weight: float, variance: float) -> Ridges:
    """Return the ridges after one fixed-point step: σ̂² × effective number of parameters / squared length.

    A ridge is at least σ̂²/2v, so that no prior exceeds twice the variance v of the rewards. ``weight`` is that of all
    rows.
    """
    least = max(made.noise / (2.0 * variance), LEAST_RIDGE * (1.0 + weight))

    def step(parameters: int, ridge: float, spread: float, squares: float) -> float:
        freedom = max(parameters - ridge * spread, LEAST_FREEDOM)
        return min(max(made.noise * freedom / max(squares, LEAST_SHARE * variance), least), LARGEST_RIDGE)

    inverse = np.diagonal(made.shared_inverse).reshape(made.shared.shape)
    shared = [
        step(made.shared[block].size, ridge, float(inverse[block].sum()), float(np.square(made.shared[block]).sum()))
        for block, ridge in zip(columns.shared, made.ridges.shared, strict=True)
    ]
    parts = [(made.deviation[:, block], made.spread[:, block]) for block in columns.deviating]
    own = np.array(
        [
            step(delta.size, ridge, float(spread.sum()), float(np.square(delta).sum()))
            for (delta, spread), ridge in zip(parts, made.ridges.own, strict=True)
        ]
    )
    if columns.deviations == "none":
        own[:] = LARGEST_RIDGE
    return Ridges(np.array(shared), own)


def improve(
    sums: Statistics,
    features: Floats,
    columns: Columns,
    ridges: Ridges,
    folded: Folded,
    variance: float,
    steps: int,
) -> HierarchicalFit:
    """Return the fit after at most ``steps`` fixed-point steps from ``ridges``; fewer where these settle."""
    weight = float(sums.weight.sum()) + folded.weight

    def solved(tried: Ridges) -> HierarchicalFit:
        return fit(sums, features, columns, tried, folded, variance)

    return settle(solved, ridges, lambda made: next_ridges(made, columns, weight, variance), steps)


def settle(solved: Callable[[Ridges], Fit], ridges: Ridges, following: Callable[[Fit], Ridges], steps: int) -> Fit:
    """Return the fit after at most ``steps`` steps of its ridges; fewer where these settle."""
    made = solved(ridges)
    for _ in range(steps):
        new = following(made)
        changes = (np.log(after / before) for after, before in zip(new, made.ridges, strict=True))
        moved = max(float(np.abs(change).max(initial=0.0)) for change in changes)
        made = solved(new)
        if moved <= SETTLED:
            break
    return made


def fold(sums: Statistics, features: Floats, columns: Columns, ridges: Ridges) -> Folded:
    """Return what some actions leave when they are retired: their sums with δ integrated out.

    It is exact at the present ridges. It is not linear in the sums of an action: shards are added before.
    """
    _, own_ridges = ridges.diagonals(columns)
    own = _own(sums.gram, sums.moment, own_ridges)
    pulled = own_ridges * own.solution
    return Folded(
        matrix=combined(features, own.left) if columns.feature_width else np.zeros((0, 0)),
        vector=(features.T @ pulled).ravel(),
        weight=float(sums.weight.sum()),
        total=float(sums.moment[:, -1].sum()),
        energy=float(sums.energy.sum() - np.vdot(sums.moment, own.solution)),
        logdet=float(own.logdet.sum()),
        slope=float(pulled[:, -1].sum()),
        curve=float(own.left[:, -1, -1].sum()),
    )
