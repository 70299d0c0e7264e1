"""Conversions that come late: the likelihood of one action's clicked rows, its slopes, and its fit.

A click on context s converts with probability σ(z), z = ⟨w_c,s⟩, after an exponential delay of rate eᵛ,
v = ⟨w_d,s⟩ clipped to ±20 (Chapelle 2014). A row that converted after the time e has the loss −log σ(z) − v + eᵛe. One
that has not converted in the time e will convert later or never: −log(σ(−z) + σ(z)·exp(−eᵛe)). An infinite e
means that all conversions have arrived, at unknown times: −log σ(±z), a logistic regression.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cholesky, eigh, solve_triangular
from scipy.optimize import minimize
from scipy.special import log_expit

from spuir.base.records import Codes, Floats, Mask
from spuir.core.quiet import quietly
from spuir.core.statistics import blocks
from spuir.errors import NumericalError

LARGEST_LOG_RATE = 20.0
"""Where v is clipped: rates beyond e^±20 cannot be distinguished, and must not overflow."""
TOLERANCE = 1e-10
"""Relative gain of an iteration, and size of the slope, below which a fit has converged."""
ROUNDING = 16 * 2.0**-52
"""Error of a factor per column and unit of the largest diagonal entry."""
TEMPORARIES = 16
"""Numbers per row that a pass over the rows holds beside the contexts."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Clicks:
    """Clicked rows of one action or several.

    ``contexts`` (n, d); ``converted`` (n,), whether a conversion was seen; ``elapsed`` (n,), the delay of a conversion
    seen, otherwise the time waited, infinite where nothing is delayed; ``weights`` (n,), copies of each row.
    """

    contexts: Floats
    converted: Mask
    elapsed: Floats
    weights: Floats

    @classmethod
    def of(
        cls, contexts: ArrayLike, converted: ArrayLike, elapsed: ArrayLike, weights: ArrayLike | None = None
    ) -> Self:
        """Return rows from columns of any kind; without ``weights`` each counts once."""
        times = np.asarray(elapsed, np.float64)
        return cls(
            contexts=np.asarray(contexts, np.float64),
            converted=np.asarray(converted, np.bool_),
            elapsed=times,
            weights=np.ones(len(times)) if weights is None else np.asarray(weights, np.float64),
        )

    def __len__(self) -> int:
        """Return n."""
        return len(self.elapsed)

    def take(self, rows: Codes | slice) -> "Clicks":
        """Return some of the rows, in the order given."""
        return Clicks(
            contexts=self.contexts[rows],
            converted=self.converted[rows],
            elapsed=self.elapsed[rows],
            weights=self.weights[rows],
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """The result of a fit: ``weights`` (2, d), w_c above w_d, and how the optimiser ended."""

    weights: Floats
    objective: float
    iterations: int
    converged: bool


@dataclass(frozen=True, eq=False)
class _Reading:
    """What loss, slope and curvature of rows have in common, each (n,).

    ``yes`` and ``no`` are log σ(±z); ``log_rate`` is v after the clip and ``free`` where that leaves it alone;
    ``exposure`` is eᵛe; ``unseen`` the log probability of no conversion so far; ``pending`` the probability that one
    is still to come; ``timed`` marks the rows whose waiting time carries information.
    """

    yes: Floats
    no: Floats
    log_rate: Floats
    free: Mask
    exposure: Floats
    unseen: Floats
    pending: Floats
    timed: Mask

    @classmethod
    def of(cls, scores: Floats, elapsed: Floats) -> "_Reading":
        """Read z and v (n, 2) of rows observed for the time ``elapsed`` (n,)."""
        yes, no = log_expit(scores[:, 0]), log_expit(-scores[:, 0])
        log_rate = np.clip(scores[:, 1], -LARGEST_LOG_RATE, LARGEST_LOG_RATE)
        # The largest number stands in for infinity, whose product with a chance of 0 would be undefined.
        exposure = np.minimum(np.exp(log_rate) * elapsed, np.finfo(np.float64).max)
        unseen = np.logaddexp(no, yes - exposure)
        return cls(
            yes=yes,
            no=no,
            log_rate=log_rate,
            free=np.abs(scores[:, 1]) < LARGEST_LOG_RATE,
            exposure=exposure,
            unseen=unseen,
            pending=np.exp(yes - exposure - unseen),
            timed=np.isfinite(elapsed),
        )

    def losses(self, converted: Mask) -> Floats:
        """Return the negative log-likelihood of each row (n,)."""
        seen = np.where(self.timed, self.exposure - self.log_rate, 0.0) - self.yes
        return np.where(converted, seen, -self.unseen)

    def slopes(self, converted: Mask) -> Floats:
        """Return the derivatives of the losses by z and v (n, 2)."""
        # σ(z) − pending, as a product: the difference would cancel while little time has passed.
        waiting = np.exp(self.yes + self.no - self.unseen) * -np.expm1(-self.exposure)
        by_z = np.where(converted, -np.exp(self.no), waiting)
        by_v = np.where(converted, np.where(self.timed, self.exposure - 1.0, 0.0), self.pending * self.exposure)
        return np.stack([by_z, np.where(self.free, by_v, 0.0)], axis=1)

    def curvatures(self, converted: Mask) -> tuple[Floats, Floats, Floats]:
        """Return the second derivatives of the losses by zz, zv and vv, each (n,)."""
        pending = np.where(converted, 0.0, self.pending)
        spread = pending * np.exp(self.no - self.unseen)
        mixed = spread * self.exposure
        known = np.where(converted, np.where(self.timed, self.exposure, 0.0), pending * self.exposure)
        by_vv = known - mixed * np.where(converted, 0.0, self.exposure)
        return (
            np.exp(self.yes + self.no) - spread,
            np.where(self.free, mixed, 0.0),
            np.where(self.free, by_vv, 0.0),
        )


def _readings(weights: Floats, clicks: Clicks) -> Iterator[tuple[Clicks, _Reading]]:
    """Yield the rows in blocks of bounded memory, with what the weights (2, d) say about them."""
    for rows in blocks(len(clicks), 8 * (clicks.contexts.shape[1] + TEMPORARIES)):
        part = clicks.take(rows)
        yield part, _Reading.of(part.contexts @ weights.T, part.elapsed)


@quietly
def loss_and_slope(weights: Floats, clicks: Clicks) -> tuple[float, Floats]:
    """Return the negative log-likelihood of the rows at ``weights`` (2, d), and its gradient (2, d)."""
    loss, slope = 0.0, np.zeros(weights.shape)
    for part, reading in _readings(weights, clicks):
        loss += float(part.weights @ reading.losses(part.converted))
        slope += (part.weights[:, None] * reading.slopes(part.converted)).T @ part.contexts
    return loss, slope


@quietly
def curvature(weights: Floats, clicks: Clicks) -> Floats:
    """Return the second derivatives (2d, 2d) of the negative log-likelihood, those by w_c first."""
    d = clicks.contexts.shape[1]
    total = np.zeros((2 * d, 2 * d))
    for part, reading in _readings(weights, clicks):
        zz, zv, vv = (part.weights * each for each in reading.curvatures(part.converted))
        S = part.contexts
        total[:d, :d] += S.T @ (zz[:, None] * S)
        total[:d, d:] += S.T @ (zv[:, None] * S)
        total[d:, d:] += S.T @ (vv[:, None] * S)
    total[d:, :d] = total[:d, d:].T
    return total


def fit(
    clicks: Clicks, start: Floats, *, ridge: float = 1.0, information: Floats | None = None, iterations: int = 10
) -> Fit:
    """Return the weights that L-BFGS finds from ``start`` (2, d) for the rows of one action.

    Parameters
    ----------
    clicks
        The rows; they are read in blocks, so that memory beyond them is bounded.
    start
        (2, d) weights w_c and w_d to start from.
    ridge
        Penalty ½·ridge·(‖w_c‖² + ‖w_d‖²).
    information
        (2d, 2d) positive semi-definite: what earlier rows, no longer kept, contributed. If given, the
        penalty is ½(w − start)ᵀ(ridge·I + information)(w − start): a normal prior around the start.
    iterations
        Largest number of steps.
    """
    shape = start.shape
    origin, to_weights, to_slope = _coordinates(start, ridge, information)

    def objective(point: Floats) -> tuple[float, Floats]:
        loss, slope = loss_and_slope((origin + to_weights(point)).reshape(shape), clicks)
        return loss + 0.5 * float(point @ point), to_slope(slope.ravel()) + point

    begin = np.zeros(start.size) if information is not None else np.sqrt(ridge) * start.ravel()
    with np.errstate(over="ignore", invalid="ignore"):
        found = minimize(
            objective,
            begin,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": iterations, "ftol": TOLERANCE, "gtol": TOLERANCE},
        )
    weights = (origin + to_weights(np.asarray(found.x, np.float64))).reshape(shape)
    if not (np.isfinite(weights).all() and np.isfinite(found.fun)):
        raise _overflow()
    return Fit(weights=weights, objective=float(found.fun), iterations=int(found.nit), converged=int(found.status) == 0)


_Linear = Callable[[Floats], Floats]


def _coordinates(start: Floats, ridge: float, information: Floats | None) -> tuple[Floats, _Linear, _Linear]:
    """Return an origin and the maps of points to weights and of slopes back, so that the penalty is ½‖point‖².

    A prior that knows some directions a thousand times better than others would take more steps than are allowed.
    """
    if information is None:
        scale = 1.0 / np.sqrt(ridge)
        return np.zeros(start.size), lambda point: scale * point, lambda slope: scale * slope
    root = _root(ridge, information)
    return (
        start.ravel(),
        lambda point: np.asarray(solve_triangular(root, point, check_finite=False)),
        lambda slope: np.asarray(solve_triangular(root, slope, trans=1, check_finite=False)),
    )


def _root(ridge: float, information: Floats) -> Floats:
    """Return the upper factor U of ridge·I + information = UᵀU, with more than ridge where rounding requires it."""
    size = len(information)
    enough = max(ridge, ROUNDING * size * float(information.diagonal().max(initial=0.0)))
    return np.asarray(cholesky(information + enough * np.eye(size), check_finite=False))


@quietly
def informed(information: Floats, ridge: float, weights: Floats, clicks: Clicks) -> Floats:
    """Return ``information`` (2d, 2d) after further rows, whose fit ended at ``weights``: Laplace's approximation.

    The likelihood is not concave: a row that may yet convert can bend it the wrong way. Directions in which
    the new rows would take away from ridge·I + information stay as they are.
    """
    root = _root(ridge, information)
    gained = curvature(weights, clicks)
    if not np.isfinite(gained).all():
        raise _overflow()
    half = solve_triangular(root, gained, trans=1, check_finite=False)
    relative = np.asarray(solve_triangular(root, half.T, trans=1, check_finite=False))
    values, vectors = eigh(0.5 * (relative + relative.T), check_finite=False)
    kept = root.T @ (np.asarray(vectors) * np.sqrt(np.maximum(values, 0.0)))
    return information + kept @ kept.T


def _overflow() -> NumericalError:
    return NumericalError(
        "fit of delayed conversions",
        "a non-finite value",
        "the likelihood must stay finite",
        "scale contexts and elapsed times down, or raise ridge",
    )
