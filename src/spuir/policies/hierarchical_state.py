"""What the hierarchical model keeps, sums and reads out."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from spuir.base.records import Codes, Floats
from spuir.core import hierarchy
from spuir.core.hierarchy import Folded, HierarchicalFit
from spuir.core.statistics import Statistics
from spuir.features.standardised import ActionMapState
from spuir.policies.auto import AutoSums
from spuir.policies.learner import RidgeState


@dataclass(frozen=True, kw_only=True, eq=False)
class HierarchicalState(RidgeState):
    """Sums of the live actions, the catalogue of their features, and what was estimated.

    ``live`` (S,) are the codes that ``observed`` and ``catalogue`` (S, k) belong to, in increasing order; ``catalogue``
    is None without features. ``retired`` (R,) and ``retired_features`` (R, k) are the latest retired actions, and
    ``folded`` is what all of them left; ``leaving`` are retired while their rows wait, and folded with these.
    ``varying`` is how many of the last columns are features per decision. ``shared_ridges`` and ``own_ridges`` are λ
    and ρ; the rest as in the state of ``auto``.
    """

    live: Codes
    varying: int = 0
    catalogue: Floats | None = None
    action_map: ActionMapState = field(default_factory=ActionMapState)
    retired: Codes
    leaving: tuple[int, ...] = ()
    retired_features: Floats | None = None
    folded: Folded | None = None
    origin: float | None = None
    shared_ridges: Floats | None = None
    own_ridges: Floats | None = None
    updated: int = 0
    variance: float = 0.0


@dataclass(frozen=True, eq=False)
class CodedSums(AutoSums):
    """Sums of a shard's rows: ``observed`` of the actions ``codes`` alone, in increasing order."""

    codes: Codes

    def __add__(self, other: AutoSums) -> "CodedSums":
        """Return the sums of both shards."""
        assert isinstance(other, CodedSums)
        every = np.union1d(self.codes, other.codes)
        total = Statistics.zero(len(every), self.observed.width)
        total.table[np.searchsorted(every, self.codes)] += self.observed.table
        total.table[np.searchsorted(every, other.codes)] += other.relative_to(self.origin).table
        return CodedSums(self.rows + other.rows, self.origin, total, every)


@dataclass(frozen=True, eq=False)
class HierarchicalReadout:
    """What acting needs: the fit, the place of each action in it (M,), −1 where retired, and the mean reward."""

    fit: HierarchicalFit
    place: Codes
    mean: float
    noise: float

    @cached_property
    def forms(self) -> Floats:
        """The posteriors C_a, packed (S, t)."""
        return hierarchy.packed_forms(self.fit.covariance)

    def of(self, codes: Codes) -> tuple[Codes, Floats]:
        """Return the places of some codes, and their coefficients (n, D); 0 for a retired action."""
        at = self.place[codes]
        theta = self.fit.theta[at]
        theta[at < 0] = 0.0
        return at, theta
