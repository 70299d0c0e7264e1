"""Random Fourier features: a linear model on them acts like a Gaussian kernel (Rahimi & Recht 2007)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from spuir.base.parameters import COUNT, FLAG, NON_NEGATIVE, POSITIVE, check_value, either, one_of, parameter
from spuir.base.records import Codes, Floats, require_finite
from spuir.core.ties import check_finite
from spuir.errors import InputError, ParameterError
from spuir.features.bandwidth import choose, kernel_width
from spuir.features.base import FeatureMap, MapState
from spuir.features.canonical import canonical_rows, distinct_contexts


@dataclass(frozen=True, kw_only=True, eq=False)
class FourierState(MapState):
    """The drawn map.

    ``frequencies`` (d, n_features) standard normal, ``phases`` (n_features,) uniform on [0, 2π),
    ``bandwidth`` None until the first batch has chosen it.
    """

    frequencies: Floats
    phases: Floats
    bandwidth: float | None


@dataclass(frozen=True, kw_only=True)
class Fourier(FeatureMap):
    """The columns √(2/n_features)·cos(sᵀΩ/bandwidth + phase), then the raw context if asked for.

    The product of two rows estimates exp(−‖x − y‖²/(2·bandwidth²)) without bias, with a standard error of at
    most 1/√n_features. Ω and the phases are drawn once and kept. A bandwidth far above the distances between
    contexts makes the columns an intercept plus a linear part.

    With ``bandwidth="auto"`` the first batch decides (:mod:`spuir.features.bandwidth`); until then the map uses 1,
    so that a policy that has learned nothing, whose actions all tie, can decide. With ``"median"`` it is
    :data:`~spuir.features.bandwidth.MEDIAN_FACTOR` times the median distance, which needs no rewards. Contexts should
    be on comparable scales (``scale=True``), and not further from the origin than about 1,000 bandwidths: the cosine
    of a large number has few exact digits.
    """

    n_features: int = parameter(100, "number of cosine columns", COUNT)
    bandwidth: float | str = parameter(
        "auto", "width of the Gaussian kernel, in units of the context", either(POSITIVE, one_of("auto", "median"))
    )
    raw: bool = parameter(False, "append the raw context after the cosine columns", FLAG)
    ridge: float = parameter(1.0, "ridge (λ) of the fits that choose the bandwidth: the policy's own", NON_NEGATIVE)

    state_type: ClassVar[type[MapState]] = FourierState

    def columns(self, dim: int) -> int:
        """Return ``n_features``, and ``dim`` more if the raw context is appended."""
        return self.n_features + dim * bool(self.raw)

    def init(self, dim: int, rng: Generator) -> FourierState:
        """Draw frequencies and phases for contexts of ``dim`` columns."""
        check_value("dim", dim, COUNT, "count the context columns")
        frequencies = rng.standard_normal((dim, self.n_features))
        phases = rng.uniform(0.0, 2.0 * np.pi, self.n_features)
        bandwidth = None if isinstance(self.bandwidth, str) else float(self.bandwidth)
        return FourierState(frequencies=frequencies, phases=phases, bandwidth=bandwidth)

    def check_state(self, state: FourierState, dim: int) -> None:
        """Refuse a map drawn for other columns or another number of features."""
        super().check_state(state, dim)
        shape = (dim, self.n_features)
        if state.frequencies.shape != shape or state.phases.shape != shape[1:]:
            got, rule = f"frequencies of shape {state.frequencies.shape}", f"this map needs {shape}"
            raise ParameterError("feature map", got, rule, "call fit to start again with another map")
        require_finite(frequencies=state.frequencies, phases=state.phases)

    def linear(self, dim: int) -> slice:
        """Return the raw context's columns, if they are appended."""
        return slice(self.n_features, self.columns(dim))

    def fixed(self, state: FourierState) -> bool:
        """Return whether the scaling and the bandwidth are known."""
        return super().fixed(state) and state.bandwidth is not None

    def choose(
        self, state: FourierState, contexts: Any, actions: Codes | None, rewards: Floats | None, weights: Floats | None
    ) -> FourierState:
        """Choose the bandwidth from the first batch; rows of weight 0 decide nothing."""
        if state.bandwidth is not None:
            return state
        table = _matching(state, self.scaled(state, contexts))
        check_finite(table, table)
        if self.bandwidth == "median":
            z, _ = distinct_contexts(table, weights)
            return replace(state, bandwidth=kernel_width(z)) if len(z) else state
        if actions is None or rewards is None:
            return state
        rows = canonical_rows(table, np.asarray(actions), np.asarray(rewards, dtype=np.float64), weights)
        if not len(rows.weights):
            return state
        projected = rows.contexts @ state.frequencies
        beside = rows.contexts if self.raw else rows.contexts[:, :0]
        if self.intercept:
            beside = np.column_stack([beside, np.ones(len(beside))])

        def features(bandwidth: float) -> Floats:
            return np.hstack([self._cosines(projected / bandwidth, state.phases), beside])

        return replace(state, bandwidth=choose(rows, features, self.ridge))

    def write(self, state: FourierState, contexts: Floats, out: Floats) -> None:
        """Fill the cosine columns, in place after one matrix product, and the raw ones."""
        bandwidth = 1.0 if state.bandwidth is None else state.bandwidth
        cosines = out[:, : self.n_features]
        with np.errstate(over="ignore", invalid="ignore"):  # NaN for what is not finite; the policy refuses it
            np.matmul(_matching(state, contexts), state.frequencies / bandwidth, out=cosines)
            self._cosines(cosines, state.phases)
        if self.raw:
            out[:, self.n_features :] = contexts

    def labels(self, state: Any, input_names: Sequence[str]) -> list[str]:
        """Return fourier_0, fourier_1, … and the input names if the raw context is appended."""
        return [f"fourier_{i}" for i in range(self.n_features)] + list(input_names) * bool(self.raw)

    def joint(self, dim: int) -> slice:
        """Return the cosine columns."""
        return slice(0, self.n_features)

    def _cosines(self, projected: Floats, phases: Floats) -> Floats:
        """Turn scaled projections (n, n_features) into the columns, in place."""
        projected += phases
        np.cos(projected, out=projected)
        projected *= np.sqrt(2.0 / self.n_features)
        return projected


def _matching(state: FourierState, contexts: Floats) -> Floats:
    """Return the contexts if they have the columns that the map was drawn for."""
    dim = len(state.frequencies)
    if contexts.ndim != 2 or contexts.shape[1] != dim:
        rule = f"the map was drawn for {dim} columns"
        raise InputError("contexts", f"shape {contexts.shape}", rule, f"pass (n, {dim})")
    return contexts
