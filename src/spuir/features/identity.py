"""The contexts as they are, alone or with a constant column."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spuir.base.parameters import Rule, parameter
from spuir.base.records import Floats
from spuir.features.base import FeatureMap


@dataclass(frozen=True, kw_only=True)
class Identity(FeatureMap):
    """The contexts unchanged; without an intercept the array itself, not a copy."""

    @property
    def unchanged(self) -> bool:
        """Whether no constant column is appended."""
        return not self.intercept

    def columns(self, dim: int) -> int:
        """Return ``dim``."""
        return dim

    def write(self, state: Any, contexts: Floats, out: Floats) -> None:
        """Copy the contexts."""
        out[:] = contexts

    def labels(self, state: Any, input_names: Sequence[str]) -> list[str]:
        """Return the names as they came."""
        return list(input_names)

    def apply(self, state: Any, contexts: Floats) -> Floats:
        """Return the contexts (n, d), with a column of ones after them if ``intercept``."""
        if self.intercept:
            return super().apply(state, contexts)
        return np.ascontiguousarray(contexts, dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class Intercept(Identity):
    """The contexts and a constant 1 in the last column, so that the raw columns keep their positions."""

    intercept: bool = parameter(True, "always: this map is the intercept", Rule("True", lambda v: v is True))
