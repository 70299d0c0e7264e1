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
    """The contexts unchanged, or standardised; without an intercept and scaling the array itself, not a copy."""

    @property
    def unchanged(self) -> bool:
        """Whether nothing is scaled and no constant column is appended."""
        return not (self.intercept or self.scale)

    def linear(self, dim: int) -> slice:
        """Return all of them."""
        return slice(0, dim)

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
        return np.ascontiguousarray(contexts, dtype=np.float64) if self.unchanged else super().apply(state, contexts)

    def in_user_units(self, state: Any, theta: Floats) -> tuple[Floats, Floats]:
        """Return the coefficients per unit of each context column (M, d), and the constant (M,)."""
        return self.linear_in_user_units(state, *super().in_user_units(state, theta))


@dataclass(frozen=True, kw_only=True)
class Intercept(Identity):
    """The contexts and a constant 1 in the last column, so that the raw columns keep their positions."""

    intercept: bool = parameter(True, "always: this map is the intercept", Rule("True", lambda v: v is True))
