"""The hierarchical model with curved columns of actions, and when the policy acts on it.

Curved columns are products of two features, and kernel columns where features are few. The sums of actions do not
depend on them. The model with them is therefore solved from the same sums, whenever ridges are estimated and it is
expected to be clearly better. Its estimates are used while its evidence is clearly higher and curved columns matter as
much as the features; where they matter less, using them loses more than it gains (measured).
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from spuir.base.records import Floats, require_finite
from spuir.core import hierarchy
from spuir.core.curvature import Left, expected
from spuir.core.hierarchy import Columns, HierarchicalFit, Ridges
from spuir.errors import ParameterError
from spuir.features.standardised import ActionMap, ActionMapState
from spuir.policies.hierarchical_state import CurvedState, HierarchicalState

MOST_COLUMNS = 1500
"""Most columns x ⊗ φ of the larger model; it is not considered where not even the products of two features fit."""
SOLVING = 12
"""Memory while a model is solved, relative to that of its sums (measured)."""
CLEARLY = 2.0
"""How much higher the log evidence of the larger model must be: odds of 7 to 1."""
SETTLING = 2
"""Episodes after which ridges must have been updated before the larger model is considered."""
STEPS = 3
"""Most fixed-point steps of its ridges at an update."""
FEW_FEATURES, LANDMARKS = 2, 24
"""Kernel columns join the products where there are at most so many features: more need too many landmarks."""


class Choice(NamedTuple):
    """What an update estimated, and the fit of the larger model if its estimates are used."""

    curved: CurvedState
    fit: HierarchicalFit | None


def _matter(ridges: Floats, small: Columns) -> float:
    """Return how much columns x matter: the prior variances of their coefficients, summed over the columns of φ.

    ``ridges`` are those of the blocks of φ, of one kind of columns x or of more, of which the largest sum counts.
    """
    sizes = np.array([block.stop - block.start for block in small.own])
    return float((sizes / ridges.reshape(-1, len(sizes))).sum(axis=1).max())


@dataclass(frozen=True)
class CurvedModel:
    """The larger model of a smaller one, whose columns of actions are those of ``base``; at most ``memory`` GiB."""

    base: ActionMap
    memory: float

    def columns_map(self, k: int, width: int) -> ActionMap | None:
        """Return the map of the curved columns of ``k`` features, of as many directions as fit; None where none do."""
        room = MOST_COLUMNS // width - self.base.width(k)
        kernel = LANDMARKS if k <= FEW_FEATURES and not self.base.kernel else 0
        most = self.base.reduced(k)
        fitting = [c for c in range(min(most, 2), most + 1) if c * (c + 1) // 2 + kernel <= room]
        return ActionMap(components=fitting[-1], kernel=kernel, products=True) if fitting else None

    def start(self, catalogue: Floats, width: int) -> CurvedState | None:
        """Return the larger model with its map fixed on a catalogue, before anything was learned."""
        columns_map = self.columns_map(catalogue.shape[1], width)
        if columns_map is None or not self.fits(len(catalogue), catalogue.shape[1], width):
            return None
        fixed = columns_map.fix(ActionMapState(), catalogue)
        assert isinstance(fixed, ActionMapState)
        return CurvedState(map=fixed, left=Left.nothing(self.width(catalogue.shape[1], width), width))

    def width(self, k: int, width: int) -> int:
        """Return how many columns x the larger model has, or the smaller one where there is no larger."""
        columns_map = self.columns_map(k, width)
        further = 0 if columns_map is None else columns_map.width(k) - columns_map.reduced(k) - 1
        return self.base.width(k) + further

    def fits(self, n_actions: int, k: int, width: int) -> bool:
        """Return whether the larger model of some actions fits into memory while it is solved."""
        numbers = n_actions * (width * width + width + 2) + (self.width(k, width) * width) ** 2
        return 8.0 * SOLVING * numbers <= self.memory * 2**30

    def columns(self, small: Columns, k: int) -> Columns:
        """Return the blocks of columns: those of the smaller model, then the kernel and the products."""
        count, columns_map = self.width(k, small.width), self.columns_map(k, small.width)
        assert columns_map is not None
        shift = small.feature_width - 1 - columns_map.reduced(k)
        blocks = [slice(one.start + shift, one.stop + shift) for one in columns_map.curved(k)]
        return small._replace(features=(slice(count - 1, count), *small.features[1:], *blocks))

    def features(self, curved: CurvedState, x: Floats, raw: Floats, width: int) -> Floats:
        """Return the columns of the larger model, of those of the smaller one (m, L) and the features (m, k)."""
        k = raw.shape[1]
        columns_map = self.columns_map(k, width)
        assert columns_map is not None
        further = columns_map.apply(curved.map, raw)[:, columns_map.reduced(k) : -1]
        return np.concatenate([x[:, :-1], further, x[:, -1:]], axis=1)

    def ridges(self, curved: CurvedState) -> Ridges:
        """Return the ridges with which it was last solved."""
        assert curved.shared_ridges is not None
        assert curved.own_ridges is not None
        return Ridges(curved.shared_ridges, curved.own_ridges)

    def chosen(
        self, state: HierarchicalState, small: Columns, made: HierarchicalFit, features: Floats, variance: float
    ) -> Choice:
        """Return whether the larger model estimates, of the columns x ``features`` of the live actions.

        ``made`` is the new fit of the smaller model. With no more actions than columns, these could tell all apart. In
        the first episodes its ridges are still far from their best values, and the comparison would not be fair.
        """
        curved, folded = state.curved, state.folded
        assert curved is not None
        assert folded is not None
        curved = replace(curved, left=curved.left.settled(), expected=0.0, gain=None, weighty=False, acts=False)
        if len(features) <= features.shape[1] or state.updated < SETTLING:
            return Choice(curved, None)
        linear = slice(len(small.own) - 1, 2 * len(small.own) - 1)  # after the ridges of the constant of x
        hoped = expected(state.observed, features, made, small, curved.left, made.ridges.shared[linear])
        curved = replace(curved, expected=hoped.gain)
        if hoped.gain <= CLEARLY:
            return Choice(replace(curved, shared_ridges=None, own_ridges=None), None)
        assert state.catalogue is not None
        columns = self.columns(small, state.catalogue.shape[1])
        if curved.shared_ridges is None:
            further = np.tile(hoped.ridges, len(columns.features) - len(small.features))
            start = Ridges(np.concatenate([made.ridges.shared, further]), made.ridges.own)
        else:
            start = self.ridges(curved)
        whole = curved.left.folded(folded)
        large = hierarchy.improve(state.observed, features, columns, start, whole, variance, STEPS)
        (shared, own), gain = large.ridges, large.evidence - made.evidence
        weighty = _matter(shared[len(made.ridges.shared) :], small) >= _matter(shared[linear], small)
        acts = gain > CLEARLY and weighty
        found = replace(curved, shared_ridges=shared, own_ridges=own, gain=gain, weighty=weighty, acts=acts)
        return Choice(found, large if acts else None)

    def check(self, curved: CurvedState, small: Columns, k: int) -> None:
        """Refuse a larger model of other columns, or with estimates that no episode leaves."""
        columns_map = self.columns_map(k, small.width)
        if columns_map is None:
            rule = f"a model of {MOST_COLUMNS:,} columns or fewer has none"
            raise ParameterError("policy", "curved columns", rule, "call fit to start again with changed features")
        columns_map.check_state(curved.map, k)
        needed = Left.nothing(self.width(k, small.width), small.width)
        found = [getattr(curved.left, name).shape for name in vars(needed)]
        m = len(curved.left.features)
        expect = [getattr(needed, name).shape for name in ("matrix", "vector")]
        expect += [(m, getattr(needed, name).shape[1]) for name in ("features", "inner", "pulled")]
        if found != expect:
            got, rule = f"folded sums {found}", f"this policy needs {expect}"
            raise ParameterError("policy", got, rule, "call fit to start again with changed features")
        columns = self.columns(small, k)
        sizes = {"shared_ridges": len(columns.shared), "own_ridges": len(columns.deviating)}
        for name, count in sizes.items():
            ridges = getattr(curved, name)
            if (ridges is None and curved.acts) or (
                ridges is not None and (ridges.shape != (count,) or not (ridges > 0).all())
            ):
                raise ParameterError(name, str(ridges), f"there are {count} numbers > 0", "load a copy")
        numbers = np.array([curved.expected, curved.gain or 0.0])
        parts = {name: getattr(curved, name) for name in sizes}
        require_finite(**vars(curved.left), **parts, numbers=numbers)
