"""What the hierarchical model keeps and sums."""

from dataclasses import dataclass, field, replace

import numpy as np

from spuir.base.records import Codes, Floats
from spuir.core.curvature import Left
from spuir.core.hierarchy import Folded
from spuir.core.statistics import Statistics
from spuir.features.standardised import ActionMapState
from spuir.policies.auto import VARIANCE_WEIGHT, AutoSums
from spuir.policies.learner import RidgeState


@dataclass(frozen=True, kw_only=True, eq=False)
class CurvedState:
    """Of the model with curved columns of actions: their map, what retired actions left, and what was estimated.

    ``shared_ridges`` and ``own_ridges`` are its λ and ρ when it was last solved. At the last update, ``expected`` is
    what it was expected to add to the log evidence, ``gain`` what it added, None where it was not solved, and
    ``weighty`` says whether its curved columns matter as much as the features; ``acts``, whether it estimates.
    """

    map: ActionMapState
    left: Left
    shared_ridges: Floats | None = None
    own_ridges: Floats | None = None
    expected: float = 0.0
    gain: float | None = None
    weighty: bool = False
    acts: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class HierarchicalState(RidgeState):
    """Sums of the live actions, the catalogue of their features, and what was estimated.

    ``live`` (S,) are the codes that ``observed`` and ``catalogue`` (S, k) belong to, in increasing order; ``catalogue``
    is None without features. ``retired`` (R,) and ``retired_features`` (R, k) are the latest retired actions, and
    ``folded`` is what all of them left; ``leaving`` are retired while their rows wait, and folded with these.
    ``varying`` is how many of the last columns are features per decision. ``shared_ridges`` and ``own_ridges`` are λ
    and ρ; the rest as in the state of ``auto``.

    Where actions deviate by a constant alone, ``constants`` (S, D + 1) has Σwφ and Σwr of each, ``folded`` the sums of
    the rows of all actions, and ``observed`` no row. Otherwise ``constants`` is None.

    ``curved`` is the larger model, None where it is not considered.
    """

    live: Codes
    constants: Floats | None = None
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
    curved: CurvedState | None = None
    updated: int = 0
    variance: float = 0.0


@dataclass(frozen=True, eq=False)
class CodedSums(AutoSums):
    """Sums of a shard's rows: ``observed`` of the actions ``codes`` alone, in increasing order."""

    codes: Codes

    @property
    def weights(self) -> Floats:
        """The weight of the rows of each of the actions."""
        return self.observed.weight

    def __add__(self, other: AutoSums) -> "CodedSums":
        """Return the sums of both shards."""
        assert isinstance(other, CodedSums)
        every = np.union1d(self.codes, other.codes)
        total = Statistics.zero(len(every), self.observed.width)
        total.table[np.searchsorted(every, self.codes)] += self.observed.table
        total.table[np.searchsorted(every, other.codes)] += other.relative_to(self.origin).table
        return CodedSums(self.rows + other.rows, self.origin, total, every)


@dataclass(frozen=True, eq=False)
class ConstantSums:
    """Sums of a shard's rows where actions deviate by a constant alone, of rewards relative to ``origin``.

    ``table`` (m, D + 1) has Σwφ and Σwr of the actions ``codes``, in increasing order, ``shared`` the sums of all rows.
    """

    rows: int
    origin: float
    table: Floats
    shared: Folded
    codes: Codes

    @property
    def weights(self) -> Floats:
        """The weight of the rows of each of the actions."""
        return self.table[:, -2]

    def __add__(self, other: "ConstantSums") -> "ConstantSums":
        """Return the sums of both shards."""
        table, shared = other.relative_to(self.origin)
        every = np.union1d(self.codes, other.codes)
        total = np.zeros((len(every), table.shape[1]))
        total[np.searchsorted(every, self.codes)] += self.table
        total[np.searchsorted(every, other.codes)] += table
        return ConstantSums(self.rows + other.rows, self.origin, total, self.shared.combined(1.0, shared), every)

    def relative_to(self, origin: float) -> tuple[Floats, Folded]:
        """Return the sums of rewards relative to another origin."""
        shift, shared = self.origin - origin, self.shared
        if shift == 0.0:
            return self.table, shared
        table = self.table.copy()
        table[:, -1] += shift * table[:, -2]
        moved = shared.total + shift * shared.weight
        return table, replace(
            shared,
            vector=shared.vector + (shift * shared.matrix[:, -1] if shared.vector.size else 0.0),
            total=moved,
            slope=moved,
            energy=shared.energy + 2.0 * shift * shared.total + shift**2 * shared.weight,
        )

    @property
    def variance(self) -> float:
        """The variance of the rewards; 0 where there are too few."""
        return variance_of(self.shared) if self.shared.weight >= VARIANCE_WEIGHT else 0.0


def variance_of(sums: Folded) -> float:
    """Return the variance of the rewards in sums over rows."""
    if sums.weight <= 0:
        return 0.0
    return max(sums.energy / sums.weight - (sums.total / sums.weight) ** 2, 0.0)
