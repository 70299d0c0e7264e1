"""What a fit of the hierarchical model starts from: columns of contexts and actions, ridges, folded sums."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from spuir.base.records import Codes, Floats
from spuir.core import hierarchy
from spuir.core.hierarchy import Columns, Folded, Ridges
from spuir.features.standardised import ActionMap, Standardised
from spuir.policies.auto import EvidenceLearner
from spuir.policies.hierarchical_curved import CurvedModel
from spuir.policies.hierarchical_forms import FitInputs, form_of, known
from spuir.policies.hierarchical_state import HierarchicalState

START_SHARED, START_OWN = 1.0, 10.0
"""Ridges before the first update; without features the own ones start at 1."""


@dataclass(frozen=True, kw_only=True)
class HierarchicalModel(EvidenceLearner):
    """The columns and ridges of a hierarchical model; ``curved`` is the larger one, None where it is not considered."""

    feature_map: Standardised
    action_map: ActionMap
    deviations: str = "auto"
    curved: CurvedModel | None = None

    def columns(self, state: HierarchicalState) -> Columns:
        """Return the blocks of columns of contexts and of actions."""
        d, width = state.dim - state.varying, state.dim + 1
        own = [slice(width - 1, width), slice(0, d), *[slice(d, width - 1)] * bool(state.varying)]
        if state.catalogue is None:
            return Columns(tuple(own), ())
        k = state.catalogue.shape[1]
        count = self.action_map.width(k)
        features = [slice(count - 1, count), self.action_map.linear(k), *self.action_map.curved(k)]
        fixed = state.constants is not None and self.deviations == "none"
        return Columns(tuple(own), tuple(features), "none" if fixed else form_of(state).deviations)

    def _features(self, state: HierarchicalState, raw: Floats) -> Floats:
        """Return the columns x (m, K) of features (m, k)."""
        return self.action_map.apply(state.action_map, raw)

    def _curved_features(self, state: HierarchicalState, raw: Floats) -> Floats:
        """Return the columns x of the larger model, of features (m, k)."""
        assert self.curved is not None
        assert state.curved is not None
        return self.curved.features(state.curved, self._features(state, raw), raw, state.dim + 1)

    def curved_features(self, state: HierarchicalState) -> Floats:
        """Return the columns x of the larger model, of the live actions."""
        assert state.catalogue is not None
        return self._curved_features(state, state.catalogue)

    def _live_features(self, state: HierarchicalState) -> Floats:
        """Return the columns x (S, K) of the live actions; none without a catalogue."""
        return np.zeros((len(state.live), 0)) if state.catalogue is None else self._features(state, state.catalogue)

    def _described(self, state: HierarchicalState, columns: Callable[[Floats], Floats], codes: Codes) -> Floats:
        """Return the columns x (m, K) of some actions; a retired one whose features are forgotten counts as average."""
        if state.catalogue is None:
            return np.zeros((len(codes), 0))
        slot, live = known(state, codes)
        own = columns(state.catalogue[slot[live]])
        x = np.zeros((len(codes), own.shape[1]))
        x[:, -1] = 1.0
        x[live] = own
        if not live.all() and state.retired_features is not None:
            place = {int(code): at for at, code in enumerate(state.retired)}
            found = np.array([place.get(int(code), -1) for code in codes])
            some = ~live & (found >= 0)
            x[some] = columns(state.retired_features[found[some]])
        return x

    def ridges(self, state: HierarchicalState) -> Ridges:
        """Return the ridges of the last update, or those to start from."""
        columns = self.columns(state)
        start = START_OWN if columns.feature_width else 1.0
        own = np.full(len(columns.deviating), hierarchy.LARGEST_RIDGE if columns.deviations == "none" else start)
        return Ridges(
            np.full(len(columns.shared), START_SHARED) if state.shared_ridges is None else state.shared_ridges,
            own if state.own_ridges is None else state.own_ridges,
        )

    def problem(self, state: HierarchicalState) -> FitInputs:
        """Return what a fit starts from, beside its sums."""
        columns = self.columns(state)
        return FitInputs(
            columns=columns,
            ridges=self.ridges(state),
            folded=Folded.nothing(columns) if state.folded is None else state.folded,
            live=lambda: self._live_features(state),
            described=partial(self._described, state, partial(self._features, state)),
            curved=partial(self._described, state, partial(self._curved_features, state)),
        )

    def larger(self, state: HierarchicalState) -> FitInputs | None:
        """Return what the fit with curved columns starts from, if the policy acts on it."""
        small, curved = self.problem(state), state.curved
        if curved is None or not curved.acts or self.curved is None or state.catalogue is None:
            return None
        return replace(
            small,
            columns=self.curved.columns(small.columns, state.catalogue.shape[1]),
            ridges=self.curved.ridges(curved),
            folded=curved.left.folded(small.folded),
            live=lambda: self.curved_features(state),
            described=small.curved,
        )

    def folding(self, state: HierarchicalState) -> FitInputs:
        """Return what actions are folded with: the deviations are those of the model that estimates."""
        small, curved = self.problem(state), state.curved
        if curved is None or not curved.acts or curved.own_ridges is None:
            return small
        return replace(small, ridges=small.ridges._replace(own=curved.own_ridges))
