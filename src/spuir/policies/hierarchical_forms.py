"""The two forms in which sums of a hierarchical model are kept: per action over all columns, or a constant for each.

A form changes and reads a state. What it changes comes back as fields of the state.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from spuir.base.records import Batch, Codes, Floats
from spuir.core import constant_deviations, hierarchy
from spuir.core.hierarchy import Columns, Folded, Ridges, SharedFit
from spuir.core.statistics import Statistics, count_codes, summarise
from spuir.policies.exact import observed_entries
from spuir.policies.hierarchical_acting import ConstantReadout, FullReadout, HierarchicalReadout
from spuir.policies.hierarchical_state import CodedSums, ConstantSums, HierarchicalState, variance_of

Changes = dict[str, Any]
Described = Callable[[Codes], Floats]
"""Returns the columns x (m, K) of the actions with some codes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Entries:
    """What a shard observed: rows of contexts φ, codes and the action of each entry among them, rewards, weights."""

    contexts: Any
    rows: Codes | None
    codes: Codes
    member: Codes
    rewards: Floats
    weights: Floats | None
    origin: float
    count: int

    @classmethod
    def of(cls, mapped: Batch, n_actions: int) -> "Entries":
        """Return the entries of a batch; rewards are relative to their median, so that offsets lose no digits."""
        rows, codes, rewards, weights = observed_entries(mapped)
        count_codes(codes, n_actions)
        own, member = np.unique(codes, return_inverse=True)
        counted = rewards if weights is None else rewards[weights > 0]
        origin = float(np.median(counted)) if len(counted) else 0.0
        return cls(
            contexts=mapped.contexts,
            rows=rows,
            codes=own,
            member=member,
            rewards=rewards - origin,
            weights=weights,
            origin=origin,
            count=len(mapped),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class FitInputs:
    """What a fit starts from, beside the sums: blocks of columns, ridges, folded sums, and the columns x of actions.

    ``live`` returns those of all live actions (S, K), ``described`` those of some codes (m, K). ``curved`` returns the
    columns x of the larger model, of some codes.
    """

    columns: Columns
    ridges: Ridges
    folded: Folded
    live: Callable[[], Floats]
    described: Described
    curved: Described

    @cached_property
    def features(self) -> Floats:
        """The columns x (S, K) of the live actions."""
        return self.live()


class Form(ABC):
    """How the sums of a state are kept."""

    deviations: ClassVar[str]

    @abstractmethod
    def start(self, n_actions: int, width: int) -> Changes:
        """Return zero sums."""

    @abstractmethod
    def shape(self, state: HierarchicalState) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shape of the sums of actions, and the one that they need."""

    @abstractmethod
    def weights(self, state: HierarchicalState) -> Floats:
        """Return the weight of the rows of each live action (S,)."""

    @abstractmethod
    def variance(self, state: HierarchicalState) -> float:
        """Return the variance of all rewards."""

    @abstractmethod
    def collect(self, entries: Entries, made: FitInputs) -> Any:
        """Return the sums of a shard."""

    @abstractmethod
    def absorb(self, state: HierarchicalState, sums: Any, origin: float, forgetting: float, made: FitInputs) -> Changes:
        """Return the sums of a state after an episode; late rows of retired actions are folded."""

    @abstractmethod
    def grow(self, state: HierarchicalState, source: int | None, made: FitInputs) -> Changes:
        """Return the sums with one action more: empty, or a copy of the live action at ``source``."""

    @abstractmethod
    def fold(self, state: HierarchicalState, slot: int, made: FitInputs) -> Changes:
        """Return the folded sums with those of the live action at ``slot``."""

    @abstractmethod
    def without(self, state: HierarchicalState, slot: int) -> Changes:
        """Return the sums without the live action at ``slot``."""

    @abstractmethod
    def fit(self, state: HierarchicalState, made: FitInputs, variance: float, steps: int) -> SharedFit:
        """Return the fit after at most ``steps`` steps of its ridges."""

    @abstractmethod
    def readout(self, made: Any, place: Codes, mean: float, noise: float) -> HierarchicalReadout:
        """Return what acting needs of a fit."""


def known(state: HierarchicalState, codes: Codes) -> tuple[Codes, Any]:
    """Return the places (m,) of codes among the live actions, and which of them are live."""
    slot = np.minimum(np.searchsorted(state.live, codes), len(state.live) - 1)
    return slot, state.live[slot] == codes


class AllColumns(Form):
    """Actions deviate in all columns: each has sums of its own."""

    deviations = "all"

    def start(self, n_actions: int, width: int) -> Changes:
        """Return zero sums."""
        return {"observed": Statistics.zero(n_actions, width), "constants": None}

    def shape(self, state: HierarchicalState) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shape of the sums of actions, and the one that they need."""
        width = state.dim + 1
        return state.observed.table.shape, (len(state.live), width * width + width + 2)

    def weights(self, state: HierarchicalState) -> Floats:
        """Return the weight of the rows of each live action (S,)."""
        return state.observed.weight

    def variance(self, state: HierarchicalState) -> float:
        """Return the variance of the rewards of live actions."""
        sums = state.observed
        weight = float(sums.weight.sum())
        if weight <= 0:
            return 0.0
        mean = float(sums.moment[:, -1].sum()) / weight
        return max(float(sums.energy.sum()) / weight - mean**2, 0.0)

    def collect(self, entries: Entries, made: FitInputs) -> CodedSums:
        """Return the sums of a shard, which need not know any features."""
        own, width = entries.codes, int(entries.contexts.shape[1])
        if not len(own):
            return CodedSums(entries.count, entries.origin, Statistics.zero(0, width), own)
        observed = summarise(entries.contexts, entries.member, entries.rewards, entries.weights, len(own), entries.rows)
        return CodedSums(entries.count, entries.origin, observed, own)

    def absorb(self, state: HierarchicalState, sums: Any, origin: float, forgetting: float, made: FitInputs) -> Changes:
        """Return the sums of a state after an episode; late rows of retired actions are folded."""
        fresh: Statistics = sums.relative_to(origin)
        slot, live = known(state, sums.codes)
        total = state.observed.decayed(forgetting)
        total.table[slot[live]] += fresh.table[live]
        assert state.folded is not None
        curved = state.curved
        if curved is not None:
            curved = replace(curved, left=curved.left.settled(forgetting))
        decayed = replace(state, folded=state.folded.combined(forgetting, Folded.nothing(made.columns)), curved=curved)
        some = Statistics(fresh.width, fresh.table[~live])
        return {"observed": total, **self._folded(decayed, some, sums.codes[~live], made)}

    @staticmethod
    def _folded(state: HierarchicalState, own: Statistics, codes: Codes, made: FitInputs) -> Changes:
        """Return the folded sums of both models with those of some more actions."""
        folded, curved = state.folded, state.curved
        if folded is not None and len(codes):
            late = hierarchy.fold(own, made.described(codes), made.columns, made.ridges)
            folded = folded.combined(1.0, late)
        if curved is not None and len(codes):
            left = curved.left.joined(own, made.curved(codes), made.columns, made.ridges)
            curved = replace(curved, left=left)
        return {"folded": folded, "curved": curved}

    def grow(self, state: HierarchicalState, source: int | None, made: FitInputs) -> Changes:
        """Return the sums with one action more: empty, or a copy of the live action at ``source``."""
        return {"observed": state.observed.grown(source)}

    def fold(self, state: HierarchicalState, slot: int, made: FitInputs) -> Changes:
        """Return the folded sums with those of the live action at ``slot``."""
        own = Statistics(state.observed.width, state.observed.table[slot : slot + 1])
        return self._folded(state, own, state.live[slot : slot + 1], made)

    def without(self, state: HierarchicalState, slot: int) -> Changes:
        """Return the sums without the live action at ``slot``."""
        return {"observed": Statistics(state.observed.width, np.delete(state.observed.table, slot, axis=0))}

    def fit(self, state: HierarchicalState, made: FitInputs, variance: float, steps: int) -> SharedFit:
        """Return the fit after at most ``steps`` steps of its ridges."""
        return hierarchy.improve(state.observed, made.features, made.columns, made.ridges, made.folded, variance, steps)

    def readout(self, made: Any, place: Codes, mean: float, noise: float) -> HierarchicalReadout:
        """Return what acting needs of a fit."""
        return FullReadout(made, place, mean, noise)


class ConstantAlone(Form):
    """Actions deviate by a constant alone: rows are summed together, and an action has one row of sums."""

    deviations = "constant"

    def start(self, n_actions: int, width: int) -> Changes:
        """Return zero sums."""
        return {"observed": Statistics.zero(0, width), "constants": np.zeros((n_actions, width + 1))}

    def shape(self, state: HierarchicalState) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shape of the sums of actions, and the one that they need."""
        return self._table(state).shape, (len(state.live), state.dim + 2)

    @staticmethod
    def _table(state: HierarchicalState) -> Floats:
        assert state.constants is not None
        return state.constants

    def weights(self, state: HierarchicalState) -> Floats:
        """Return the weight of the rows of each live action (S,)."""
        return self._table(state)[:, -2]

    def variance(self, state: HierarchicalState) -> float:
        """Return the variance of all rewards."""
        return 0.0 if state.folded is None else variance_of(state.folded)

    def collect(self, entries: Entries, made: FitInputs) -> ConstantSums:
        """Return the sums of a shard, over the features that its actions have now."""
        table, shared = constant_deviations.sum_rows(
            entries.contexts,
            made.described(entries.codes),
            entries.member,
            entries.rewards,
            entries.weights,
            entries.rows,
        )
        return ConstantSums(entries.count, entries.origin, table, shared, entries.codes)

    def absorb(self, state: HierarchicalState, sums: Any, origin: float, forgetting: float, made: FitInputs) -> Changes:
        """Return the sums of a state after an episode; late rows of retired actions are folded."""
        if isinstance(sums, CodedSums):  # collected before there were too many actions for sums of their own
            fresh, shared = constant_deviations.of_sums(sums.relative_to(origin), made.described(sums.codes))
        else:
            fresh, shared = sums.relative_to(origin)
        slot, live = known(state, sums.codes)
        table = forgetting * self._table(state)
        table[slot[live]] += fresh[live]
        assert state.folded is not None
        folded = state.folded.combined(forgetting, shared)
        if not live.all():
            ridge = float(made.ridges.own[0])
            folded = constant_deviations.integrated(folded, fresh[~live], made.described(sums.codes[~live]), ridge)
        return {"constants": table, "folded": folded}

    def grow(self, state: HierarchicalState, source: int | None, made: FitInputs) -> Changes:
        """Return the sums with one action more: empty, or as if another's mean row had been its own."""
        table = self._table(state)
        row = np.zeros((1, table.shape[1])) if source is None else table[source : source + 1]
        folded = state.folded
        if source is not None and folded is not None:
            x = made.described(state.live[source : source + 1])[0]
            folded = folded.combined(1.0, constant_deviations.copied(row[0], x))
        return {"constants": np.concatenate([table, row]), "folded": folded}

    def fold(self, state: HierarchicalState, slot: int, made: FitInputs) -> Changes:
        """Return the sums of all rows with the deviation of the live action at ``slot`` integrated out."""
        if state.folded is None:
            return {}
        own, ridge = self._table(state)[slot : slot + 1], float(made.ridges.own[0])
        x = made.described(state.live[slot : slot + 1])
        return {"folded": constant_deviations.integrated(state.folded, own, x, ridge)}

    def without(self, state: HierarchicalState, slot: int) -> Changes:
        """Return the sums without the live action at ``slot``."""
        return {"constants": np.delete(self._table(state), slot, axis=0)}

    def restarted(self, state: HierarchicalState, slot: int, made: FitInputs) -> Changes:
        """Return the sums in which the rows of an action so far are folded, and the action starts again."""
        table = self._table(state).copy()
        table[slot] = 0.0
        return {"constants": table, **self.fold(state, slot, made)}

    def fit(self, state: HierarchicalState, made: FitInputs, variance: float, steps: int) -> SharedFit:
        """Return the fit after at most ``steps`` steps of its ridges."""
        return constant_deviations.improve(
            self._table(state), made.features, made.columns, made.ridges, made.folded, variance, steps
        )

    def readout(self, made: Any, place: Codes, mean: float, noise: float) -> HierarchicalReadout:
        """Return what acting needs of a fit."""
        return ConstantReadout(made, place, mean, noise)

    def of_full(self, state: HierarchicalState, features: Floats) -> Changes:
        """Return the sums of a state in which actions deviated in all columns until now."""
        table, shared = constant_deviations.of_sums(state.observed, features)
        return {
            "observed": Statistics.zero(0, state.observed.width),
            "constants": table,
            "folded": None if state.folded is None else shared.combined(1.0, state.folded),
            "own_ridges": None if state.own_ridges is None else state.own_ridges[:1],
            "curved": None,
        }


ALL_COLUMNS, CONSTANT_ALONE = AllColumns(), ConstantAlone()


def form_of(state: HierarchicalState) -> Form:
    """Return the form in which a state keeps its sums."""
    return ALL_COLUMNS if state.constants is None else CONSTANT_ALONE
