"""Contexts on a common scale: z = (x − mean)/standard deviation, clipped, fixed by a sample of contexts."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from spuir.base.records import Floats, all_finite, require_finite
from spuir.core.quiet import quietly
from spuir.core.statistics import dense_rows
from spuir.errors import ParameterError

CLIP = 4.0
"""Largest standardised value: one outlier must not outweigh all other rows."""
CONSTANT = 1e-15
"""A column is constant if its standard deviation is at most this share of its largest value."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Scaling:
    """What standardises contexts: z = clip((x − ``origin`` − ``mean``)/``scale``), each (d,).

    The mean is relative to ``origin``, one of the rows, so that columns far from 0 (times, ids) lose no digits. Sparse
    contexts are divided by their root mean square and never centred: origin and mean are 0.
    """

    origin: Floats
    mean: Floats
    scale: Floats

    @classmethod
    def of(cls, rows: Floats, mass: Floats) -> "Scaling":
        """Return the scaling of rows (n, d) of weights ``mass`` (n,); a constant column keeps its unit."""
        origin, share = rows[0].copy(), mass / mass.sum()
        centred = rows - origin
        mean = share @ centred
        spread = np.sqrt(share @ np.square(centred - mean))
        return cls(origin=origin, mean=mean, scale=_divisor(spread, np.abs(rows).max(axis=0)))

    @classmethod
    def of_sparse(cls, contexts: Any, weights: Floats | None) -> "Scaling":
        """Return the scaling of a CSR matrix (n, d); rows of weight 0 count for nothing."""
        n, dim = (int(size) for size in contexts.shape)
        mass = np.ones(n) if weights is None else weights
        size = np.sqrt(np.asarray(contexts.multiply(contexts).T @ mass).ravel() / max(float(mass.sum()), 1.0))
        return cls(origin=np.zeros(dim), mean=np.zeros(dim), scale=_divisor(size, size))

    @cached_property
    def centre(self) -> Floats:
        """The mean of the contexts (d,)."""
        return self.origin + self.mean

    def apply(self, contexts: Any) -> Floats:
        """Return z (n, d); what is not finite becomes NaN, for the policy to refuse."""
        z = np.empty(contexts.shape)
        self.write(contexts, 1.0, z)
        return z

    @quietly
    def write(self, contexts: Any, factor: float, out: Floats) -> None:
        """Write ``factor`` × z into ``out`` (n, d)."""
        table = dense_rows(contexts, slice(None))
        np.subtract(table, self.centre, out=out)
        out *= factor / self.scale
        np.clip(out, -CLIP * factor, CLIP * factor, out=out)
        if not all_finite(table):
            out[~np.isfinite(table)] = np.nan  # clipping would hide an infinite value

    def check(self, dim: int) -> None:
        """Refuse a scaling of other than ``dim`` columns, or one that could divide by 0."""
        shapes = {array.shape for array in (self.origin, self.mean, self.scale)}
        if shapes != {(dim,)} or not (self.scale > 0).all():
            got, rule = f"a scaling of shapes {sorted(shapes)}", f"there are {dim} columns, each with a scale > 0"
            raise ParameterError("feature map", got, rule, "call fit to start anew")
        require_finite(origin=self.origin, mean=self.mean, scale=self.scale)


def _divisor(spread: Floats, largest: Floats) -> Floats:
    return np.where(spread > CONSTANT * largest, spread, 1.0)
