"""Nyström features: the standardised context beside a Gaussian kernel to rows of the first batch (landmarks).

A linear model on these columns is a linear model plus a kernel machine that is exact on the span of the landmarks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.spatial.distance import pdist

from spuir.base.parameters import COUNT, POSITIVE, parameter
from spuir.base.records import Codes, Floats, require_finite
from spuir.core.ties import check_finite
from spuir.errors import ParameterError
from spuir.features.base import FeatureMap, MapState
from spuir.features.canonical import distinct_contexts

DISTANCE_ROWS = 512
"""Rows whose distances give the bandwidth."""
LEAST_EIGENVALUE = 1e-6
"""Eigenvalues of the kernel matrix are raised to this share of the largest."""
CONSTANT = 1e-15
"""A column is constant if its standard deviation is at most this share of its largest value."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NystroemState(MapState):
    """What the first batch fixed; None before it.

    ``origin``, ``mean`` and ``scale`` (d,) standardise contexts as (x − origin − mean)/scale; ``linear_scale`` is
    the factor of the linear block. ``landmarks`` (k, d) are standardised rows of the batch, k ≤ L of them,
    ``projection`` (k, k) turns kernel values into features, and ``bandwidth`` is h.
    """

    origin: Floats | None = None
    mean: Floats | None = None
    scale: Floats | None = None
    landmarks: Floats | None = None
    projection: Floats | None = None
    linear_scale: float = 1.0
    bandwidth: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Nystroem(FeatureMap):
    """The columns ℓz, then k(z, landmarks)·V·E^−½, with z the standardised and clipped context.

    z = clip((x − μ)/s, ±clip), ℓ = (mean ‖z‖²)^−½ and k = exp(−‖·‖²/2h²), h being ``bandwidth_factor`` times the
    median distance between rows. V and E are the eigenvectors and eigenvalues of the kernel matrix of the landmarks.
    Everything is fixed by the contexts of the first batch, whatever their order; rewards are not used. With fewer
    distinct rows than ``landmarks``, the remaining columns are 0, which changes no estimate.

    The landmarks are rows of the data and are saved with the model.
    """

    landmarks: int = parameter(200, "number of landmarks (L): distinct rows of the first batch", COUNT)
    bandwidth_factor: float = parameter(0.7, "bandwidth (h) per median distance between rows", POSITIVE)
    clip: float = parameter(4.0, "largest standardised value", POSITIVE)

    state_type: ClassVar[type[MapState]] = NystroemState

    def columns(self, dim: int) -> int:
        """Return ``dim`` + ``landmarks``."""
        return dim + self.landmarks

    def fixed(self, state: NystroemState) -> bool:
        """Return whether the first batch was seen."""
        return state.landmarks is not None

    def check_state(self, state: NystroemState, dim: int) -> None:
        """Refuse a map of other columns or of more landmarks."""
        super().check_state(state, dim)
        arrays = (state.origin, state.mean, state.scale, state.landmarks, state.projection)
        shapes = [array.shape for array in arrays if array is not None]
        if not shapes:
            return  # not fixed yet
        k = 0 if state.landmarks is None else len(state.landmarks)
        if shapes != [(dim,), (dim,), (dim,), (k, dim), (k, k)] or not 1 <= k <= self.landmarks:
            rule = f"this map has {dim} columns and at most {self.landmarks} landmarks"
            raise ParameterError("feature map", f"arrays of shapes {shapes}", rule, "call fit to start anew")
        require_finite(
            origin=state.origin,
            mean=state.mean,
            scale=state.scale,
            landmarks=state.landmarks,
            projection=state.projection,
        )

    def fix(
        self, state: NystroemState, contexts: Floats, actions: Codes, rewards: Floats, weights: Floats | None
    ) -> NystroemState:
        """Choose scales, landmarks and bandwidth from the first batch; rows of weight 0 count for nothing."""
        if self.fixed(state):
            return state
        table = np.ascontiguousarray(contexts, dtype=np.float64)
        check_finite(table, table)
        rows, mass = distinct_contexts(table, weights)
        if not len(rows):
            return state
        # Relative to one row, so that columns far from 0 (times, ids) lose no digits.
        origin, share = rows[0], mass / mass.sum()
        centred = rows - origin
        mean = share @ centred
        spread = np.sqrt(share @ np.square(centred - mean))
        scale = np.where(spread > CONSTANT * np.abs(rows).max(axis=0), spread, 1.0)
        z = np.clip((centred - mean) / scale, -self.clip, self.clip)
        length = float(share @ np.square(z).sum(axis=1))
        distances = pdist(z[:DISTANCE_ROWS])
        apart = distances[distances > 0.0]
        bandwidth = self.bandwidth_factor * float(np.median(apart)) if len(apart) else 1.0
        landmarks = np.ascontiguousarray(z[: self.landmarks])
        values, vectors = np.linalg.eigh(gaussian(landmarks, landmarks, bandwidth))
        return NystroemState(
            origin=origin.copy(),
            mean=mean,
            scale=scale,
            landmarks=landmarks,
            projection=vectors / np.sqrt(np.maximum(values, LEAST_EIGENVALUE * values[-1])),
            linear_scale=length**-0.5 if length > 0 else 1.0,
            bandwidth=bandwidth,
        )

    def write(self, state: NystroemState, contexts: Floats, out: Floats) -> None:
        """Fill the linear block, then the kernel block; all 0 before the map is fixed."""
        out[:] = 0.0
        if state.origin is None or state.mean is None or state.scale is None:
            return
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused by the policy
            z = np.clip((contexts - state.origin - state.mean) / state.scale, -self.clip, self.clip)
        dim = z.shape[1]
        out[:, :dim] = state.linear_scale * z
        if state.landmarks is not None and state.projection is not None:
            kernel = gaussian(z, state.landmarks, state.bandwidth)
            np.matmul(kernel, state.projection, out=out[:, dim : dim + len(state.landmarks)])

    def labels(self, state: Any, input_names: Sequence[str]) -> list[str]:
        """Return the input names, then one name per landmark."""
        return [*input_names, *(f"landmark_{i}" for i in range(self.landmarks))]

    def joint(self, dim: int) -> slice:
        """Return the kernel block."""
        return slice(dim, dim + self.landmarks)


def gaussian(rows: Floats, landmarks: Floats, bandwidth: float) -> Floats:
    """Return exp(−‖x − l‖²/2h²) for all rows (n, d) and landmarks (k, d), as (n, k)."""
    squares = rows @ (-2.0 * landmarks.T)
    squares += np.square(rows).sum(axis=1)[:, None]
    squares += np.square(landmarks).sum(axis=1)
    np.maximum(squares, 0.0, out=squares)
    squares *= -0.5 / bandwidth**2
    return np.exp(squares, out=squares)
