"""What every feature map is: frozen parameters with ``init``, ``fix``, ``apply``.

A map writes ``columns`` (how many it makes), ``write`` (what is in them) and ``labels`` (what they are called);
this class adds the optional constant column, last, so that no other column moves.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from spuir.base.parameters import COUNT, FLAG, check, check_value, parameter
from spuir.base.records import Codes, Floats
from spuir.core.statistics import MappedRows, dense_rows
from spuir.errors import ParameterError


@dataclass(frozen=True, kw_only=True, eq=False)
class MapState:
    """What a map drew and chose: arrays, numbers or None, saved with the policy. A map without any uses this."""


@dataclass(frozen=True, kw_only=True)
class FeatureMap(ABC):
    """Frozen parameters of a map from contexts (n, d) to columns (n, width)."""

    intercept: bool = parameter(False, "append a constant column of ones, after all others", FLAG)

    state_type: ClassVar[type[MapState]] = MapState

    def __post_init__(self) -> None:
        check(self, "feature map", type(self).__name__.lower())

    @abstractmethod
    def columns(self, dim: int) -> int:
        """Return how many columns the map makes of ``dim``, the intercept aside."""

    @abstractmethod
    def write(self, state: Any, contexts: Floats, out: Floats) -> None:
        """Fill ``out`` (n, columns) from contexts (n, d)."""

    @abstractmethod
    def labels(self, state: Any, input_names: Sequence[str]) -> list[str]:
        """Return the names of the columns, the intercept aside."""

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
            got, rule = type(state).__name__, f"this feature map keeps a {self.state_type.__name__}"
            raise ParameterError("feature map", got, rule, "call fit to start anew with another map")

    @property
    def unchanged(self) -> bool:
        """Whether the columns are the contexts themselves."""
        return False

    def fixed(self, state: Any) -> bool:
        """Return whether the map is final; if not, the first batch goes to :meth:`fix`."""
        return True

    def fix(self, state: Any, contexts: Floats, actions: Codes, rewards: Floats, weights: Floats | None) -> MapState:
        """Return the state with everything chosen that the first batch decides; a fixed one is returned as it is."""
        return state

    def apply(self, state: Any, contexts: Floats) -> Floats:
        """Return the columns (n, width) of contexts (n, d): pure, and the same for a row in any block."""
        table = np.ascontiguousarray(contexts, dtype=np.float64)
        n, dim = table.shape
        out = np.empty((n, self.width(dim)))
        self.write(state, table, out[:, : self.columns(dim)])
        if self.intercept:
            out[:, -1] = 1.0
        return out

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
