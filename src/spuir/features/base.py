"""What every feature map is: frozen parameters with ``init``, ``fix``, ``apply``.

A map writes ``columns`` (how many it makes), ``write`` (what is in them) and ``labels`` (what they are called);
this class adds the optional scaling before it, and the optional constant column, last, so that no other column moves.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from spuir.base.parameters import COUNT, FLAG, check, check_value, parameter
from spuir.base.records import Codes, Floats
from spuir.core.statistics import MappedRows, dense_rows
from spuir.core.ties import check_finite
from spuir.errors import ParameterError
from spuir.features.canonical import distinct_contexts
from spuir.features.scaling import Scaling

SAMPLE_ROWS = 256
"""Rows, by weight, that a scaling is fixed on at least: fewer say too little about means and deviations."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MapState:
    """What a map drew and chose: arrays, numbers or None, saved with the policy. A map without any uses this.

    ``scaling`` is None until a sample has fixed it, and where contexts are not scaled.
    """

    scaling: Scaling | None = None


def enough_rows(n: int, weights: Floats | None) -> bool:
    """Return whether n rows are enough, by weight, to fix a scaling on."""
    # A weight of w is w copies; rows of less than one copy count as rows, so that they cannot pile up without end.
    return (n if weights is None else max(float(weights.sum()), int(np.count_nonzero(weights)))) >= SAMPLE_ROWS


@dataclass(frozen=True, kw_only=True)
class FeatureMap(ABC):
    """Frozen parameters of a map from contexts (n, d) to columns (n, width)."""

    intercept: bool = parameter(False, "append a constant column of ones, after all others", FLAG)
    scale: bool = parameter(False, "standardise the contexts first, by a sample of them", FLAG)

    state_type: ClassVar[type[MapState]] = MapState

    def __post_init__(self) -> None:
        check(self, "feature map", type(self).__name__.lower())

    @abstractmethod
    def columns(self, dim: int) -> int:
        """Return how many columns the map makes of ``dim``, without the intercept."""

    @abstractmethod
    def write(self, state: Any, contexts: Floats, out: Floats) -> None:
        """Fill ``out`` (n, columns) from contexts (n, d)."""

    @abstractmethod
    def labels(self, state: Any, input_names: Sequence[str]) -> list[str]:
        """Return the names of the columns, without the intercept."""

    def width(self, dim: int) -> int:
        """Return how many columns come out of ``dim`` context columns."""
        check_value("dim", dim, COUNT, "count the context columns")
        return self.columns(dim) + bool(self.intercept)

    def init(self, dim: int, rng: Generator) -> MapState:
        """Return the state for contexts of ``dim`` columns; everything random is drawn here, once."""
        check_value("dim", dim, COUNT, "count the context columns")
        return self.state_type()

    def check_state(self, state: Any, dim: int) -> None:
        """Refuse a state that this map could not have made for contexts of ``dim`` columns."""
        if type(state) is not self.state_type:
            got, rule = type(state).__name__, f"this feature map needs {self.state_type.__name__}"
            raise ParameterError("feature map", got, rule, "call fit to start again with another map")
        if state.scaling is not None:
            state.scaling.check(dim)

    @property
    def unchanged(self) -> bool:
        """Whether the columns are the contexts themselves."""
        return False

    def linear(self, dim: int) -> slice:
        """Return the columns that are linear in the (scaled) context; empty if there are none."""
        return slice(0, 0)

    def linear_factor(self, state: Any) -> float:
        """Return what the scaled context is multiplied by in those columns."""
        return 1.0

    def linear_rows(self, state: Any, contexts: Any) -> Floats:
        """Return the linear columns and a constant 1 (n, d + 1), without the cost of the other columns."""
        out = np.empty((contexts.shape[0], contexts.shape[1] + 1))
        if state.scaling is None:
            np.multiply(dense_rows(contexts, slice(None)), self.linear_factor(state), out=out[:, :-1])
        else:
            state.scaling.write(contexts, self.linear_factor(state), out)
        out[:, -1] = 1.0
        return out

    def linear_in_user_units(self, state: Any, theta: Floats, constant: Floats) -> tuple[Floats, Floats]:
        """Return coefficients (M, d) of the linear columns per unit of the context, and the constant (M,) beside."""
        raw = self.linear_factor(state) * theta
        if state.scaling is None:
            return raw, constant
        raw = raw / state.scaling.scale
        return raw, constant - raw @ state.scaling.centre

    def fixed(self, state: Any) -> bool:
        """Return whether the map is final; if not, a sample of rows goes to :meth:`fix`."""
        return not self.scale or state.scaling is not None

    def fix(
        self,
        state: Any,
        contexts: Any,
        actions: Codes | None = None,
        rewards: Floats | None = None,
        weights: Floats | None = None,
    ) -> MapState:
        """Return the state with everything chosen that a sample of rows decides; a fixed one is returned as it is.

        A map that chooses by rewards stays open where there are none. Rows of weight 0 count for nothing.
        """
        if self.fixed(state):
            return state
        if self.scale and state.scaling is None:
            scaling = _scaling(contexts, weights)
            if scaling is None:
                return state
            state = replace(state, scaling=scaling)
        return self.choose(state, contexts, actions, rewards, weights)

    def choose(
        self, state: Any, contexts: Any, actions: Codes | None, rewards: Floats | None, weights: Floats | None
    ) -> MapState:
        """Choose what the map needs besides a scaling; the contexts are as the caller gave them, not scaled."""
        return state

    def scaled(self, state: Any, contexts: Any) -> Floats:
        """Return contexts (n, d) as the map reads them: dense and, if asked for, standardised."""
        if state.scaling is not None:
            return state.scaling.apply(contexts)
        return np.ascontiguousarray(dense_rows(contexts, slice(None)), dtype=np.float64)

    def apply(self, state: Any, contexts: Floats) -> Floats:
        """Return the columns (n, width) of contexts (n, d): pure, and the same for a row in any block."""
        table = self.scaled(state, contexts)
        n, dim = table.shape
        out = np.empty((n, self.width(dim)))
        self.write(state, table, out[:, : self.columns(dim)])
        if self.intercept:
            out[:, -1] = 1.0
        return out

    def in_user_units(self, state: Any, theta: Floats) -> tuple[Floats, Floats]:
        """Return coefficients (M, k) as a reader wants them, and the constant (M,).

        Coefficients of scaled contexts are given per unit of the context. Other columns have no unit of their own.
        """
        constant = theta[:, -1] if self.intercept else np.zeros(len(theta))
        return theta[:, : theta.shape[1] - bool(self.intercept)], constant

    def names(self, state: Any, input_names: Sequence[str]) -> list[str]:
        """Return one name for every column that :meth:`apply` makes."""
        return self.labels(state, input_names) + ["intercept"] * bool(self.intercept)

    def joint(self, dim: int) -> slice:
        """Return the columns of ``dim`` context columns that mean something only together: a kernel."""
        return slice(0, 0)

    def sources(self, state: Any, input_names: Sequence[str]) -> list[str]:
        """Return the names of what an estimate is explained by: every column, joint ones as one "kernel" at the end."""
        names, joint = self.names(state, input_names), self.joint(len(input_names))
        return names[: joint.start] + names[joint.stop :] + ["kernel"] * (joint.stop > joint.start)

    def by_source(self, parts: Floats, dim: int) -> Floats:
        """Return one number per column (n, p) summed to one per source (n, G)."""
        joint = self.joint(dim)
        apart = [parts[:, : joint.start], parts[:, joint.stop :]]
        return np.hstack([*apart, parts[:, joint].sum(axis=1, keepdims=True)] if joint.stop > joint.start else apart)


def _scaling(contexts: Any, weights: Floats | None) -> Scaling | None:
    """Return the scaling of a sample, None without rows of positive weight."""
    if not isinstance(contexts, np.ndarray):
        return Scaling.of_sparse(contexts, weights) if contexts.shape[0] else None
    table = np.ascontiguousarray(contexts, dtype=np.float64)
    check_finite(table, table)
    rows, mass = distinct_contexts(table, weights)
    if not len(rows):
        return None
    scaling = Scaling.of(rows, mass)
    check_finite(np.append(scaling.mean, scaling.scale), table)  # sums and squares of finite values may overflow
    return scaling


@dataclass(frozen=True, eq=False)
class FeatureRows(MappedRows):
    """Feature rows of a batch, computed block by block, so that a large batch is never mapped at once."""

    feature_map: FeatureMap
    state: MapState
    contexts: Any

    @property
    def shape(self) -> tuple[int, int]:
        """(B, p)."""
        return int(self.contexts.shape[0]), self.feature_map.width(int(self.contexts.shape[1]))

    @property
    def ndim(self) -> int:
        """Two, as a table."""
        return 2

    def __getitem__(self, rows: Any) -> "FeatureRows":
        """Return the chosen rows, still unmapped."""
        return FeatureRows(self.feature_map, self.state, self.contexts[rows])

    def toarray(self) -> Floats:
        """Return the feature rows (n, p)."""
        return self.feature_map.apply(self.state, dense_rows(self.contexts, slice(None)))
