"""Contexts on a common scale: z = (x − mean)/standard deviation, clipped, fixed by a sample of contexts."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from spuir.base.records import Floats, all_finite, require_finite
from spuir.core.quiet import quietly
from spuir.core.statistics import blocks, dense_rows
from spuir.errors import ParameterError

CLIP = 4.0
"""Largest standardised value: one outlier must not outweigh all other rows."""
CONSTANT = 1e-15
"""A column is constant if its standard deviation is at most this share of its largest value."""
BLOCK_NUMBERS = 2**16
"""Numbers that are scaled at once."""


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
    @quietly
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
        """Write ``factor`` × z into the first d columns of the contiguous ``out``; the others are overwritten too."""
        table = dense_rows(contexts, slice(None))
        dim, most = table.shape[1], CLIP * factor
        centres, factors = _repeated(self, factor, out.shape[1])
        out[:, :dim] = table
        # Whole blocks at once, by numbers repeated for each row: with short rows, broadcasting takes twice as long.
        for rows in blocks(len(out), 1, len(centres)):
            block = out[rows]
            block -= centres[: len(block)]
            block *= factors[: len(block)]
            block.clip(-most, most, out=block)
        if not all_finite(table):
            out[:, :dim][~np.isfinite(table)] = np.nan  # clipping would hide an infinite value

    def check(self, dim: int) -> None:
        """Refuse a scaling of other than ``dim`` columns, or one that could divide by 0."""
        shapes = {array.shape for array in (self.origin, self.mean, self.scale)}
        if shapes != {(dim,)} or not (self.scale > 0).all():
            got, rule = f"a scaling of shapes {sorted(shapes)}", f"there are {dim} columns, each with a scale > 0"
            raise ParameterError("feature map", got, rule, "call fit to start again")
        require_finite(origin=self.origin, mean=self.mean, scale=self.scale)


@lru_cache(maxsize=8)
def _repeated(scaling: Scaling, factor: float, width: int) -> tuple[Floats, Floats]:
    """Return what each of ``width`` columns is reduced and multiplied by, for as many rows as are scaled at once."""
    rows, further = max(1, BLOCK_NUMBERS // width), width - len(scaling.scale)
    centre = np.append(scaling.centre, np.zeros(further))
    factors = np.append(factor / scaling.scale, np.ones(further))
    return np.tile(centre, (rows, 1)), np.tile(factors, (rows, 1))


def _divisor(spread: Floats, largest: Floats) -> Floats:
    return np.where(spread > CONSTANT * largest, spread, 1.0)
