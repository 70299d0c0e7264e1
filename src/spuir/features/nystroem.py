"""Nyström features: the standardised context beside a Gaussian kernel to rows of the first batch (landmarks).

A linear model on these columns is a linear model plus a kernel machine that is exact on the span of the landmarks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from spuir.base.parameters import COUNT, POSITIVE, Rule, parameter
from spuir.base.records import Codes, Floats, require_finite
from spuir.core.statistics import dense_rows
from spuir.errors import ParameterError
from spuir.features.bandwidth import MEDIAN_FACTOR, kernel_width
from spuir.features.base import FeatureMap, MapState
from spuir.features.canonical import distinct_contexts

LEAST_EIGENVALUE = 1e-6
"""Eigenvalues of the kernel matrix are raised to this share of the largest."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NystroemState(MapState):
    """What the sample fixed; None before it.

    ``linear_scale`` is ℓ, the factor of the linear block. ``landmarks`` (k, d) are standardised rows of the sample,
    k ≤ L of them, ``projection`` (k, k) turns kernel values into features, and ``bandwidth`` is h.
    """

    landmarks: Floats | None = None
    projection: Floats | None = None
    linear_scale: float = 1.0
    bandwidth: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Nystroem(FeatureMap):
    """The columns ℓz, then k(z, landmarks)·V·E^−½, with z the standardised and clipped context.

    ℓ = (mean ‖z‖²)^−½ and k = exp(−‖·‖²/2h²), h being ``bandwidth_factor`` times the median distance between rows. V
    and E are the eigenvectors and eigenvalues of the kernel matrix of the landmarks. Everything is fixed by the
    contexts of the sample, whatever their order; rewards are not used. With fewer distinct rows than ``landmarks``,
    the remaining columns are 0, which changes no estimate.

    The landmarks are rows of the data and are saved with the model.
    """

    landmarks: int = parameter(200, "number of landmarks (L): distinct rows of the sample", COUNT)
    bandwidth_factor: float = parameter(MEDIAN_FACTOR, "bandwidth (h) per median distance between rows", POSITIVE)
    scale: bool = parameter(True, "always: a kernel compares columns", Rule("True", lambda v: v is True))

    state_type: ClassVar[type[MapState]] = NystroemState

    def columns(self, dim: int) -> int:
        """Return ``dim`` + ``landmarks``."""
        return dim + self.landmarks

    def linear(self, dim: int) -> slice:
        """Return the first ``dim`` columns."""
        return slice(0, dim)

    def fixed(self, state: NystroemState) -> bool:
        """Return whether the sample was seen."""
        return state.landmarks is not None

    def check_state(self, state: NystroemState, dim: int) -> None:
        """Refuse a map of other columns or of more landmarks."""
        super().check_state(state, dim)
        if state.landmarks is None or state.projection is None or state.scaling is None:
            return  # not fixed yet
        k = len(state.landmarks)
        shapes = state.landmarks.shape, state.projection.shape
        if shapes != ((k, dim), (k, k)) or not 1 <= k <= self.landmarks:
            rule = f"this map has {dim} columns and at most {self.landmarks} landmarks"
            raise ParameterError("feature map", f"arrays of shapes {shapes}", rule, "call fit to start again")
        require_finite(landmarks=state.landmarks, projection=state.projection)

    def choose(
        self, state: NystroemState, contexts: Any, actions: Codes | None, rewards: Floats | None, weights: Floats | None
    ) -> NystroemState:
        """Choose landmarks and bandwidth from the sample; rows of weight 0 count for nothing."""
        # By the content of the raw rows, so that neither their order nor their number of copies matters.
        rows, mass = distinct_contexts(dense_rows(contexts, slice(None)), weights)
        z = self.scaled(state, rows)
        length = float(mass @ np.square(z).sum(axis=1)) / float(mass.sum())
        bandwidth = kernel_width(z, self.bandwidth_factor)
        landmarks = np.ascontiguousarray(z[: self.landmarks])
        return replace(
            state,
            landmarks=landmarks,
            projection=kernel_projection(landmarks, bandwidth),
            linear_scale=length**-0.5 if length > 0 else 1.0,
            bandwidth=bandwidth,
        )

    def write(self, state: NystroemState, contexts: Floats, out: Floats) -> None:
        """Fill the linear block, then the kernel block; all 0 before the map is fixed."""
        out[:] = 0.0
        if state.landmarks is None or state.projection is None:
            return
        dim = contexts.shape[1]
        np.multiply(contexts, state.linear_scale, out=out[:, :dim])
        kernel = gaussian(contexts, state.landmarks, state.bandwidth)
        np.matmul(kernel, state.projection, out=out[:, dim : dim + len(state.landmarks)])

    def linear_factor(self, state: NystroemState) -> float:
        """Return ℓ."""
        return state.linear_scale

    def in_user_units(self, state: NystroemState, theta: Floats) -> tuple[Floats, Floats]:
        """Return the coefficients of the linear block per unit of each context column (M, d), and the constant (M,)."""
        coefficients, constant = super().in_user_units(state, theta)
        return self.linear_in_user_units(state, coefficients[:, : coefficients.shape[1] - self.landmarks], constant)

    def labels(self, state: Any, input_names: Sequence[str]) -> list[str]:
        """Return the input names, then one name per landmark."""
        return [*input_names, *(f"landmark_{i}" for i in range(self.landmarks))]

    def joint(self, dim: int) -> slice:
        """Return the kernel block."""
        return slice(dim, dim + self.landmarks)


def kernel_projection(landmarks: Floats, bandwidth: float) -> Floats:
    """Return V·E^−½ (k, k) of the kernel matrix V E Vᵀ of landmarks (k, d): kernel values times it are features."""
    values, vectors = np.linalg.eigh(gaussian(landmarks, landmarks, bandwidth))
    return vectors / np.sqrt(np.maximum(values, LEAST_EIGENVALUE * values[-1]))


def gaussian(rows: Floats, landmarks: Floats, bandwidth: float) -> Floats:
    """Return exp(−‖x − l‖²/2h²) for all rows (n, d) and landmarks (k, d), as (n, k)."""
    squares = rows @ (-2.0 * landmarks.T)
    squares += np.square(rows).sum(axis=1)[:, None]
    squares += np.square(landmarks).sum(axis=1)
    np.maximum(squares, 0.0, out=squares)
    squares *= -0.5 / bandwidth**2
    return np.exp(squares, out=squares)
