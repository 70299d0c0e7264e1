"""Standardised columns of unit mean length; those of actions may be reduced, joined by a kernel and by products."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from spuir.base.parameters import FLAG, SEED, Rule, parameter
from spuir.base.records import Codes, Floats, require_finite
from spuir.core.packed_matrices import packed_products
from spuir.core.statistics import dense_rows
from spuir.errors import ParameterError
from spuir.features.bandwidth import kernel_width
from spuir.features.base import FeatureMap, MapState
from spuir.features.canonical import distinct_contexts
from spuir.features.nystroem import gaussian, kernel_projection

ALWAYS = Rule("True", lambda v: v is True)


@dataclass(frozen=True, kw_only=True, eq=False)
class StandardisedState(MapState):
    """What the sample fixed: ``factors`` (d,), what each standardised column is multiplied by."""

    factors: Floats | None = None


@dataclass(frozen=True, kw_only=True)
class Standardised(FeatureMap):
    """The columns ℓz and a constant 1, z being the standardised and clipped context and ℓ = (mean ‖z‖²)^−½."""

    intercept: bool = parameter(True, "always", ALWAYS)
    scale: bool = parameter(True, "always: ridges compare columns", ALWAYS)

    state_type: ClassVar[type[MapState]] = StandardisedState

    def columns(self, dim: int) -> int:
        """Return ``dim``."""
        return dim

    def linear(self, dim: int) -> slice:
        """Return all of them."""
        return slice(0, dim)

    def fixed(self, state: Any) -> bool:
        """Return whether the sample was seen."""
        return state.factors is not None

    def check_state(self, state: Any, dim: int) -> None:
        """Refuse a map of other columns."""
        super().check_state(state, dim)
        if state.factors is not None:
            if state.factors.shape != (dim,):
                rule = f"this map has {dim} columns"
                raise ParameterError("feature map", f"factors {state.factors.shape}", rule, "call fit to start again")
            require_finite(factors=state.factors)

    def choose(
        self, state: Any, contexts: Any, actions: Codes | None, rewards: Floats | None, weights: Floats | None
    ) -> Any:
        """Choose ℓ from the sample; rows of weight 0 count for nothing."""
        rows, mass = distinct_contexts(dense_rows(contexts, slice(None)), weights)
        factor = unit_factor(self.scaled(state, rows), mass)
        return replace(state, factors=np.full(rows.shape[1], factor))

    def with_varying(self, state: Any, contexts: Any, weights: Floats | None, varying: int) -> Any:
        """Return a fixed state in which the last ``varying`` columns, features per decision, have an ℓ of their own."""
        rows, mass = distinct_contexts(dense_rows(contexts, slice(None)), weights)
        z, split = self.scaled(state, rows), rows.shape[1] - varying
        factors = np.full(rows.shape[1], unit_factor(z[:, :split], mass))
        factors[split:] = unit_factor(z[:, split:], mass)
        return replace(state, factors=factors)

    def write(self, state: Any, contexts: Floats, out: Floats) -> None:
        """Fill ``out``; all 0 before the map is fixed."""
        np.multiply(contexts, 0.0 if state.factors is None else state.factors, out=out)

    def part(self, state: Any, contexts: Floats, columns: slice) -> Floats:
        """Return some of the columns, of contexts (n, k) that hold these alone; without the constant."""
        scaling = state.scaling
        own = replace(scaling, origin=scaling.origin[columns], mean=scaling.mean[columns], scale=scaling.scale[columns])
        return own.apply(contexts) * state.factors[columns]

    def in_user_units(self, state: Any, theta: Floats) -> tuple[Floats, Floats]:
        """Return the coefficients per unit of each column (M, d), and the constant (M,)."""
        coefficients, constant = super().in_user_units(state, theta)
        if state.scaling is None or state.factors is None:
            return coefficients, constant
        raw = coefficients * (state.factors / state.scaling.scale)
        return raw, constant - raw @ state.scaling.centre

    def labels(self, state: Any, input_names: Sequence[str]) -> list[str]:
        """Return the names as they came."""
        return list(input_names)


def unit_factor(z: Floats, mass: Floats) -> float:
    """Return ℓ = (mean ‖z‖²)^−½ over rows (n, d) of weights ``mass`` (n,); 1 where all are 0."""
    length = float(mass @ np.square(z).sum(axis=1)) / float(mass.sum()) if z.size else 0.0
    return length**-0.5 if length > 0 else 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class ActionMapState(StandardisedState):
    """What the catalogue fixed.

    ``directions`` (k, c) are the principal directions that standardised columns are reduced to, None without
    reduction. ``marks`` (L, c) are the landmarks of the kernel block, ``projection`` (L, L) and ``bandwidth`` as in
    the Nyström map. ``product_means`` (c(c + 1)/2,) are the means of the products of two columns, and
    ``product_factor`` what these are multiplied by.
    """

    directions: Floats | None = None
    marks: Floats | None = None
    projection: Floats | None = None
    bandwidth: float = 1.0
    product_means: Floats | None = None
    product_factor: float = 1.0


@dataclass(frozen=True, kw_only=True)
class ActionMap(Standardised):
    """The columns of actions: ℓz, of at most ``components`` principal directions, a kernel block, products, then 1."""

    components: int = parameter(16, "columns beyond this number are reduced to their principal directions", SEED)
    kernel: int = parameter(0, "number of kernel columns, for rewards that are curved in the features", SEED)
    products: bool = parameter(False, "whether products of two columns follow, squares among them", FLAG)

    state_type: ClassVar[type[MapState]] = ActionMapState

    def reduced(self, dim: int) -> int:
        """Return how many linear columns come out of ``dim``."""
        return min(dim, self.components)

    def columns(self, dim: int) -> int:
        """Return the number of linear and kernel columns and of products."""
        width = self.reduced(dim)
        return width + self.kernel + (width * (width + 1) // 2 if self.products else 0)

    def linear(self, dim: int) -> slice:
        """Return the linear block."""
        return slice(0, self.reduced(dim))

    def curved(self, dim: int) -> list[slice]:
        """Return the kernel block and the block of products, if there are any."""
        first, last = self.reduced(dim), self.columns(dim)
        split = first + self.kernel
        return [one for one in (slice(first, split), slice(split, last)) if one.stop > one.start]

    def choose(
        self, state: Any, contexts: Any, actions: Codes | None, rewards: Floats | None, weights: Floats | None
    ) -> ActionMapState:
        """Choose directions, ℓ and landmarks from the catalogue, whatever the order of its rows."""
        rows, mass = distinct_contexts(dense_rows(contexts, slice(None)), weights)
        z: Floats = self.scaled(state, rows)
        directions, marks, projection, bandwidth = None, None, None, 1.0
        if z.shape[1] > self.components:
            directions = _principal(z, mass, self.components)
            z = z @ directions
        if self.kernel:
            marks, bandwidth = np.ascontiguousarray(z[: self.kernel]), kernel_width(z)
            projection = kernel_projection(marks, bandwidth)
        product_means, product_factor = None, 1.0
        if self.products:
            squared = packed_products(z)
            product_means = mass @ squared / mass.sum()
            product_factor = unit_factor(squared - product_means, mass)
        return ActionMapState(
            scaling=state.scaling,
            factors=np.full(int(z.shape[1]), unit_factor(z, mass)),
            directions=directions,
            marks=marks,
            projection=projection,
            bandwidth=bandwidth,
            product_means=product_means,
            product_factor=product_factor,
        )

    def check_state(self, state: ActionMapState, dim: int) -> None:
        """Refuse a map of other columns, or of more landmarks."""
        FeatureMap.check_state(self, state, dim)
        if state.factors is None:
            return
        width, marks = self.reduced(dim), 0 if state.marks is None else len(state.marks)
        found = (
            state.factors.shape,
            None if state.directions is None else state.directions.shape,
            None if state.marks is None else state.marks.shape,
            None if state.projection is None else state.projection.shape,
            None if state.product_means is None else state.product_means.shape,
        )
        kernel = ((marks, width), (marks, marks)) if self.kernel else (None, None)
        products = (width * (width + 1) // 2,) if self.products else None
        needed = ((width,), (dim, width) if dim > width else None, *kernel, products)
        if found != needed or marks > self.kernel:
            rule = f"this map has {dim} columns, {width} directions and at most {self.kernel} landmarks"
            raise ParameterError("action map", f"arrays of shapes {found}", rule, "call fit to start again")
        names = ("factors", "directions", "marks", "projection", "product_means")
        parts = {name: getattr(state, name) for name in names}
        require_finite(**parts, bandwidth=np.array([state.bandwidth, state.product_factor]))

    def write(self, state: ActionMapState, contexts: Floats, out: Floats) -> None:
        """Fill the linear block, the kernel block and the products; all 0 before the map is fixed."""
        out[:] = 0.0
        if state.factors is None:
            return
        z = contexts if state.directions is None else contexts @ state.directions
        width = z.shape[1]
        np.multiply(z, state.factors, out=out[:, :width])
        if state.marks is not None and state.projection is not None:
            kernel = gaussian(z, state.marks, state.bandwidth)
            np.matmul(kernel, state.projection, out=out[:, width : width + len(state.marks)])
        if state.product_means is not None:
            count, start = len(state.product_means), width + self.kernel
            squared = packed_products(z) - state.product_means
            np.multiply(squared, state.product_factor, out=out[:, start : start + count])

    def in_user_units(self, state: ActionMapState, theta: Floats) -> tuple[Floats, Floats]:
        """Return the coefficients of the linear block per unit of each column (M, k), and the constant (M,)."""
        if state.scaling is None or state.factors is None:
            return theta[:, :-1], theta[:, -1]
        raw = theta[:, : len(state.factors)] * state.factors
        if state.directions is not None:
            raw = raw @ state.directions.T
        raw = raw / state.scaling.scale
        return raw, theta[:, -1] - raw @ state.scaling.centre


def _principal(z: Floats, mass: Floats, count: int) -> Floats:
    """Return the first principal directions (k, ``count``) of rows (n, k), each with its largest entry positive."""
    _, vectors = np.linalg.eigh(z.T @ (mass[:, None] * z))
    chosen = vectors[:, ::-1][:, :count]
    signs = np.sign(chosen[np.abs(chosen).argmax(axis=0), np.arange(count)])
    return np.ascontiguousarray(chosen * signs)
