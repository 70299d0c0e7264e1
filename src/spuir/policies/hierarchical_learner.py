"""Learns the hierarchical model: rows → sums per action → shared coefficients and deviations."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.random import Generator

from spuir.base.pairs import Pairs
from spuir.base.records import Batch, Codes, Floats, Info, require_finite
from spuir.core import hierarchy
from spuir.core.hierarchy import Columns, Folded, HierarchicalFit, Ridges
from spuir.core.quiet import quietly
from spuir.core.statistics import Statistics, blocks, count_codes, summarise
from spuir.core.ties import check_finite
from spuir.errors import InputError, ParameterError
from spuir.features.standardised import ActionMap, ActionMapState, Standardised
from spuir.policies.auto import EvidenceLearner
from spuir.policies.exact import observed_entries
from spuir.policies.hierarchical_state import CodedSums, HierarchicalReadout, HierarchicalState
from spuir.policies.learner import widened

START_SHARED, START_OWN = 1.0, 10.0
"""Ridges before the first update; without features the own ones start at 1."""
MAX_STEPS = 12
"""Most fixed-point steps of the ridges at an update."""
REMEMBERED = 1000
"""Retired actions whose features are kept, for rows that arrive late."""
PAIR_COST = 4.0
"""Cost of the width of one pair by itself, relative to one of a product over all rows and actions (measured)."""
PAIR_BYTES = 2**20
"""Working memory of one piece of pairs."""


@dataclass(frozen=True, kw_only=True)
class HierarchicalLearner(EvidenceLearner):
    """Ridge regression per action around what the features of actions say, with estimated ridges."""

    feature_map: Standardised
    action_map: ActionMap
    deviations: str = "all"

    # ---- state ----------------------------------------------------------------------------------------------

    def init(self, n_actions: int, dim: int, rng: Generator) -> Any:
        """Return zero sums."""
        return HierarchicalState(
            n_actions=n_actions,
            dim=dim,
            features=self.feature_map.init(dim, rng),
            observed=Statistics.zero(n_actions, dim + 1),
            live=np.arange(n_actions),
            retired=np.empty(0, np.int64),
        )

    def columns(self, state: HierarchicalState) -> Columns:
        """Return the blocks of columns of contexts and of actions."""
        d, width = state.dim - state.varying, state.dim + 1
        own = [slice(width - 1, width), slice(0, d), *[slice(d, width - 1)] * bool(state.varying)]
        if state.catalogue is None:
            return Columns(tuple(own), ())
        k = state.catalogue.shape[1]
        linear, kernel, count = self.action_map.linear(k), self.action_map.joint(k), self.action_map.width(k)
        features = [slice(count - 1, count), linear, *[kernel] * (kernel.stop > kernel.start)]
        without = {"all": (), "constant": tuple(range(1, len(own))), "none": tuple(range(len(own)))}[self.deviations]
        return Columns(tuple(own), tuple(features), without)

    def _described(self, state: HierarchicalState, features: Floats | None) -> Floats:
        """Return the columns x (S, K) of actions with these features; none without a catalogue."""
        if features is None:
            return np.zeros((len(state.live), 0))
        return self.action_map.apply(state.action_map, features)

    def ridges(self, state: HierarchicalState) -> Ridges:
        """Return the ridges of the last update, or those to start from."""
        columns = self.columns(state)
        own = np.full(len(columns.own), START_OWN if columns.feature_width else 1.0)
        own[list(columns.without)] = hierarchy.LARGEST_RIDGE
        return Ridges(
            np.full(len(columns.shared), START_SHARED) if state.shared_ridges is None else state.shared_ridges,
            own if state.own_ridges is None else state.own_ridges,
        )

    def grow(self, state: Any, like: int | None) -> Any:
        """Return the state with one action more, with the features of ``like``, or 0."""
        catalogue, source = state.catalogue, None
        if like is not None:
            source = self._slot(state, like)
        if catalogue is not None:
            extra = np.zeros((1, catalogue.shape[1])) if source is None else catalogue[source : source + 1]
            catalogue = np.concatenate([catalogue, extra])
        return replace(
            state,
            n_actions=state.n_actions + 1,
            observed=state.observed.grown(source),
            live=np.append(state.live, state.n_actions),
            catalogue=catalogue,
            waiting=tuple(widened(batch) for batch in state.waiting),
        )

    @staticmethod
    def _slot(state: HierarchicalState, code: int) -> int:
        """Return where an action is among the live ones; a retired one is refused."""
        slot = int(np.searchsorted(state.live, code))
        if slot == len(state.live) or state.live[slot] != code:
            rule = "it was retired and folded into the shared model"
            raise InputError("action", f"code {code}", rule, "choose an active action")
        return slot

    def describe(self, state: HierarchicalState, code: int, features: Floats) -> HierarchicalState:
        """Return the state with the features (k,) of one action changed."""
        if state.catalogue is None:
            raise InputError("features", "features of an action", "there is no catalogue", "make the bandit with one")
        catalogue = state.catalogue.copy()
        catalogue[self._slot(state, code)] = features
        return replace(state, catalogue=catalogue)

    def retire(self, state: HierarchicalState, code: int) -> HierarchicalState:
        """Return the state with an action folded and its sums dropped; before the map is fixed, its rows still wait."""
        if state.waiting:
            return replace(state, leaving=(*state.leaving, code))
        slot = self._slot(state, code)
        chosen = np.array([slot])
        folded = state.folded
        if folded is not None:
            folded = folded.combined(
                1.0, self._fold(state, Statistics(state.observed.width, state.observed.table[chosen]), chosen)
            )
        features = None if state.catalogue is None else state.catalogue[chosen]
        kept = state.retired_features
        if features is not None:
            kept = (features if kept is None else np.concatenate([kept, features]))[-REMEMBERED:]
        return replace(
            state,
            live=np.delete(state.live, slot),
            observed=Statistics(state.observed.width, np.delete(state.observed.table, slot, axis=0)),
            catalogue=None if state.catalogue is None else np.delete(state.catalogue, slot, axis=0),
            retired=np.append(state.retired, code)[-REMEMBERED:],
            retired_features=kept,
            folded=folded,
        )

    def _fold(self, state: HierarchicalState, sums: Statistics, slots: Codes) -> Folded:
        x = self._described(state, state.catalogue)[slots]
        return hierarchy.fold(sums, x, self.columns(state), self.ridges(state))

    def check_state(self, state: Any) -> None:
        """Refuse sums of another width, and what no episode leaves."""
        width, s = state.dim + 1, len(state.live)
        needed = (s, width * width + width + 2)
        if state.observed.width != width or state.observed.table.shape != needed:
            got, rule = f"sums of shape {state.observed.table.shape}", f"this policy needs {needed}"
            raise ParameterError("policy", got, rule, "call fit to start again with changed features")
        codes = np.concatenate([state.live, state.retired])
        ordered = (np.diff(state.live) > 0).all() and len(np.unique(codes)) == len(codes)
        if not (ordered and s and ((codes >= 0) & (codes < state.n_actions)).all()):
            raise ParameterError("policy", "codes out of order", "each action is live or retired, once", "load a copy")
        k = None if state.catalogue is None else state.catalogue.shape[1]
        tables = [state.catalogue] + [state.retired_features] * (len(state.retired) > 0)
        sizes = [s, len(state.retired)]
        for table, size in zip(tables, sizes, strict=False):
            if (None if table is None else table.shape) != (None if k is None else (size, k)):
                raise ParameterError("catalogue", "another number of rows", "each action has one row", "load a copy")
        columns = self.columns(state)
        p, every = columns.feature_width * columns.width, self.ridges(state)
        for name, found, count in zip(("λ", "ρ"), every, (len(columns.shared), len(columns.own)), strict=True):
            if found.shape != (count,) or not (found > 0).all():
                raise ParameterError(name, found.tolist(), f"there are {count} numbers > 0", "load a copy")
        parts: dict[str, Any] = {"catalogue": state.catalogue, "retired_features": state.retired_features}
        if state.folded is not None:
            if state.folded.matrix.shape != (p, p) or state.folded.vector.shape != (p,):
                got, rule = f"folded sums {state.folded.matrix.shape}", f"this policy needs {(p, p)}"
                raise ParameterError("policy", got, rule, "call fit to start again with changed features")
            folded: Folded = state.folded
            parts |= {name: np.atleast_1d(value) for name, value in vars(folded).items()}
        numbers = np.array([state.variance, state.origin or 0.0])
        require_finite(observed=state.observed.table, shared=every.shared, own=every.own, variance=numbers, **parts)
        self.feature_map.check_state(state.features, state.dim)
        if k is not None:
            self.action_map.check_state(state.action_map, k)

    # ---- the maps -------------------------------------------------------------------------------------------

    def fix(self, state: Any, batches: Sequence[Batch]) -> Any:
        """Return the state with its maps fixed on the rows of some batches, if they are enough."""
        ready = super().fix(state, batches)
        if not self.fixed(ready) or self.fixed(state):
            return ready
        contexts = np.concatenate([_dense(batch.contexts) for batch in batches]) if state.varying else None
        weights = np.concatenate([batch.given_weights for batch in batches])
        return self._settled(ready, contexts, weights)

    def fixed_on(self, state: HierarchicalState, contexts: Any, weights: Floats | None) -> HierarchicalState:
        """Return the state with its maps fixed on a sample of contexts."""
        if self.fixed(state):
            return state
        ready = replace(state, features=self.feature_map.fix(state.features, contexts, weights=weights))
        return self._settled(ready, contexts, weights) if self.fixed(ready) else ready

    def _settled(self, state: HierarchicalState, contexts: Any, weights: Floats | None) -> HierarchicalState:
        """Return a state with fixed contexts and the map of actions fixed on the catalogue."""
        features, action_map = state.features, state.action_map
        if state.varying:
            features = self.feature_map.with_varying(features, contexts, weights, state.varying)
        if state.catalogue is not None:
            action_map = cast("ActionMapState", self.action_map.fix(action_map, state.catalogue))
        return replace(state, features=features, action_map=action_map, folded=Folded.nothing(self.columns(state)))

    # ---- learning -------------------------------------------------------------------------------------------

    @quietly
    def collect(self, state: Any, batch: Batch, rng: Generator) -> CodedSums:
        """Return a shard's sums of the actions it has, of rewards relative to their median."""
        if state.varying and batch.revealed is not None:
            rule = "the features of the other actions are not known"
            raise InputError("revealed", "rewards of actions not executed", rule, "leave them out")
        mapped = self.mapped(state, batch)
        rows, codes, rewards, weights = observed_entries(mapped)
        count_codes(codes, state.n_actions)
        own, member = np.unique(codes, return_inverse=True)
        counted = rewards if weights is None else rewards[weights > 0]
        origin = float(np.median(counted)) if len(counted) else 0.0
        if not len(own):
            return CodedSums(len(batch), origin, Statistics.zero(0, state.dim + 1), own)
        observed = summarise(mapped.contexts, member, rewards - origin, weights, len(own), rows)
        return CodedSums(len(batch), origin, observed, own)

    @quietly
    def absorb(self, state: Any, sums: Any) -> tuple[Any, Info]:
        """Add an episode's sums; late rows of retired actions are folded. Estimate the ridges when it is time."""
        origin = sums.origin if state.origin is None else state.origin
        fresh: Statistics = sums.relative_to(origin)
        codes: Codes = sums.codes
        live: Codes = state.live
        counts = np.zeros(int(state.n_actions))
        counts[codes] = fresh.weight
        total = state.observed.decayed(self.forgetting)
        slot = np.minimum(np.searchsorted(live, codes), len(live) - 1)
        known = live[slot] == codes
        total.table[slot[known]] += fresh.table[known]
        folded: Folded = state.folded
        late = Folded.nothing(self.columns(state))
        if not known.all():
            late = self._late(state, Statistics(fresh.width, fresh.table[~known]), codes[~known])
        after = replace(
            state,
            episode=state.episode + 1,
            origin=origin,
            observed=total,
            folded=folded.combined(self.forgetting, late),
            variance=max(self.forgetting * state.variance, sums.variance),
        )
        after = self._updated(after)
        for code in state.leaving:
            after = self.retire(replace(after, leaving=()), code)
        return after, Info(sums.rows, counts, None, self.fitted(after).fit.worst)

    def _late(self, state: HierarchicalState, sums: Statistics, codes: Codes) -> Folded:
        """Return what late rows of retired actions leave; one whose features are forgotten counts as average."""
        columns = self.columns(state)
        x = np.zeros((len(codes), columns.feature_width))
        if columns.feature_width and state.retired_features is not None:
            x[:, -1] = 1.0
            place = {int(code): at for at, code in enumerate(state.retired)}
            found = np.array([place.get(int(code), -1) for code in codes])
            some = found >= 0
            x[some] = self.action_map.apply(state.action_map, state.retired_features[found[some]])
        return hierarchy.fold(sums, x, columns, self.ridges(state))

    def _updated(self, state: Any) -> Any:
        """Return the state with new ridges, if it is time for them."""
        variance = self.scale(state)
        if not self._steps(state, variance):
            return state
        made = hierarchy.improve(*self.problem(state), variance, MAX_STEPS)
        shared, own = made.ridges
        after: HierarchicalState = replace(state, shared_ridges=shared, own_ridges=own, updated=state.episode)
        chosen = self._acts(after, made)
        after.derived.get(self, lambda _: chosen, after)  # solved already: kept for acting
        return after

    def problem(self, state: HierarchicalState) -> tuple[Statistics, Floats, Columns, Ridges, Folded]:
        """Return what the fit of a state starts from."""
        columns = self.columns(state)
        folded = Folded.nothing(columns) if state.folded is None else state.folded
        return state.observed, self._described(state, state.catalogue), columns, self.ridges(state), folded

    @staticmethod
    def scale(state: HierarchicalState) -> float:
        """Return the variance that ridges are measured by: within episodes, or of all rewards where these are small."""
        if state.variance:
            return state.variance
        sums = state.observed
        weight = float(sums.weight.sum())
        if weight <= 0:
            return 0.0
        mean = float(sums.moment[:, -1].sum()) / weight
        return max(float(sums.energy.sum()) / weight - mean**2, 0.0)

    # ---- what was learned -----------------------------------------------------------------------------------

    def solve(self, state: Any) -> Any:
        """Return the fit with the ridges of the last update."""
        return self._acts(state, hierarchy.fit(*self.problem(state), self.scale(state)))

    @staticmethod
    def _acts(state: HierarchicalState, made: HierarchicalFit) -> HierarchicalReadout:
        place = np.full(state.n_actions, -1)
        place[state.live] = np.arange(len(state.live))
        return HierarchicalReadout(made, place, made.mean + (state.origin or 0.0), float(np.sqrt(made.noise)))

    def fitted(self, state: Any) -> HierarchicalReadout:
        """Return the fit of a state, computed once."""
        return cast("HierarchicalReadout", cast("object", self.readout(state)))

    def rows(self, state: Any, contexts: Any) -> Floats:
        """Return the columns φ (n, D) of contexts with all their columns."""
        return self.feature_map.apply(state.features, contexts)

    @quietly
    def pair_estimates(self, state: Any, contexts: Floats, pairs: Pairs) -> tuple[Floats, Floats]:
        """Return ⟨θ_a,φ⟩ and ‖φ‖ in C_a of each pair (k,)."""
        if not self.fixed(state):
            check_finite(contexts, contexts)
            return np.zeros(len(pairs.codes)), np.ones(len(pairs.codes))
        readout = self.fitted(state)
        at = readout.place[pairs.codes]
        d = state.dim - state.varying
        if state.varying:
            base, own = self.feature_map.part(state.features, contexts, slice(0, d)), pairs.features
            assert own is not None
            varying = self.feature_map.part(state.features, own, slice(d, state.dim))
            check_finite(varying, own)
            means, squares = self._by_pair(readout, base, varying, pairs.rows, at)
        elif PAIR_COST * len(at) >= len(pairs) * len(state.live):
            rows = self.rows(state, contexts)
            table = rows @ readout.fit.theta.T, hierarchy.quadratic_forms(rows, readout.forms)
            whole = len(at) == table[0].size
            means, squares = (one.ravel() if whole else one[pairs.rows, at] for one in table)
        else:
            means, squares = self._by_row(readout, self.rows(state, contexts), pairs.starts, at)
        if len(means):
            check_finite(means + squares, contexts)
        return means, np.sqrt(np.maximum(squares, 0.0, out=squares))

    @staticmethod
    def _by_row(readout: HierarchicalReadout, rows: Floats, starts: Codes, at: Codes) -> tuple[Floats, Floats]:
        """Return means and squared widths of pairs (k,), the actions of one row at a time."""
        means, squares = np.empty(len(at)), np.empty(len(at))
        theta, forms, packed = readout.fit.theta, readout.forms, hierarchy.packed_products(rows)
        bounds: list[int] = starts.tolist()
        for row, products, start, stop in zip(rows, packed, bounds, bounds[1:], strict=False):
            own = at[start:stop]
            np.dot(theta.take(own, axis=0), row, out=means[start:stop])
            np.dot(forms.take(own, axis=0), products, out=squares[start:stop])
        return means, squares

    @staticmethod
    def _by_pair(
        readout: HierarchicalReadout, base: Floats, varying: Floats, rows: Codes, at: Codes
    ) -> tuple[Floats, Floats]:
        """Return means and squared widths of pairs (k,) with columns of their own, a piece at a time."""
        means, squares = np.empty(len(at)), np.empty(len(at))
        theta, forms = readout.fit.theta, readout.forms
        for piece in blocks(len(at), 8 * forms.shape[1], PAIR_BYTES):
            phi = np.column_stack([base[rows[piece]], varying[piece], np.ones(len(at[piece]))])
            means[piece] = np.vecdot(phi, theta[at[piece]])
            squares[piece] = np.vecdot(hierarchy.packed_products(phi), forms[at[piece]])
        return means, squares

    def estimates(self, state: Any, contexts: Floats) -> tuple[Floats, Floats]:
        """Return estimates and widths of all actions (n, M), 0 for retired ones."""
        n, m = len(contexts), state.n_actions
        if not self.fixed(state):
            check_finite(contexts, contexts)
            return np.zeros((n, m)), np.ones((n, m))
        pairs = Pairs.every(n, state.live, m)
        means, widths = self.pair_estimates(state, contexts, pairs)
        return pairs.table(means, 0.0), pairs.table(widths, 0.0)

    def contributions(self, state: Any, contexts: Floats, codes: Codes) -> Floats:
        """Return what each column and the constant add to the estimate of the action ``codes`` (n,), (n, D)."""
        return self.fitted(state).of(codes)[1] * self.rows(state, contexts)

    def mean_errors(self, state: Any, contexts: Floats) -> Floats:
        """Return the posterior standard deviation of each context's estimate (n, M)."""
        return self.noise(state) * self.estimates(state, contexts)[1]

    def observed_weights(self, state: Any) -> Floats:
        """Return the weight of the rows of each action (M,); those of retired actions are folded."""
        weights = np.zeros(state.n_actions)
        weights[state.live] = state.observed.weight
        return weights

    def coefficients(self, state: Any) -> tuple[Floats, Floats]:
        """Return the coefficients per unit of the context (M, d), and the constants (M,)."""
        readout = self.fitted(state)
        theta: Floats = readout.of(np.arange(int(state.n_actions)))[1]
        per_unit, constant = self.feature_map.in_user_units(state.features, theta)
        return per_unit, constant + readout.mean

    def standard_errors(self, state: Any) -> Floats:
        """Return the posterior standard deviation of the coefficients, then of the constant (M, d + 1)."""
        readout = self.fitted(state)
        per_unit, constant = self.feature_map.in_user_units(state.features, np.eye(state.dim + 1))
        changed = np.column_stack([per_unit, constant])
        spread = np.einsum("ic,mij,jc->mc", changed, readout.fit.covariance, changed, optimize=True)
        out = np.zeros((state.n_actions, state.dim + 1))
        out[state.live] = readout.noise * np.sqrt(np.maximum(spread, 0.0))
        return out


def _dense(contexts: Any) -> Floats:
    return np.asarray(contexts.toarray() if hasattr(contexts, "toarray") else contexts, np.float64)
