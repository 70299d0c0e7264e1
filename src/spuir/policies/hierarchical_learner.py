"""Learns the hierarchical model: rows → sums → shared coefficients and deviations."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.random import Generator

from spuir.base.pairs import Pairs
from spuir.base.records import Batch, Codes, Floats, Info, require_finite
from spuir.core.hierarchy import Columns, Folded, HierarchicalFit, SharedFit
from spuir.core.quiet import quietly
from spuir.core.ties import check_finite
from spuir.errors import InputError, ParameterError
from spuir.features.standardised import ActionMapState
from spuir.policies.hierarchical_acting import HierarchicalReadout
from spuir.policies.hierarchical_forms import ALL_COLUMNS, CONSTANT_ALONE, Entries, Form, form_of
from spuir.policies.hierarchical_model import HierarchicalModel
from spuir.policies.hierarchical_state import HierarchicalState
from spuir.policies.learner import widened

MAX_STEPS = 12
"""Most fixed-point steps of the ridges at an update."""
REMEMBERED = 1000
"""Retired actions whose features are kept, for rows that arrive late."""


@dataclass(frozen=True, kw_only=True)
class HierarchicalLearner(HierarchicalModel):
    """Ridge regression per action around what the features of actions say, with estimated ridges."""

    # ---- state ----------------------------------------------------------------------------------------------

    def init(self, n_actions: int, dim: int, rng: Generator, form: Form = ALL_COLUMNS) -> Any:
        """Return zero sums."""
        return HierarchicalState(
            n_actions=n_actions,
            dim=dim,
            features=self.feature_map.init(dim, rng),
            live=np.arange(n_actions),
            retired=np.empty(0, np.int64),
            **form.start(n_actions, dim + 1),
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
            live=np.append(state.live, state.n_actions),
            catalogue=catalogue,
            waiting=tuple(widened(batch) for batch in state.waiting),
            **form_of(state).grow(state, source, self.problem(state)),
        )

    def constant_alone(self, state: HierarchicalState) -> HierarchicalState:
        """Return the state with the sums of actions that deviate by a constant alone."""
        if state.constants is not None:
            return state
        if state.folded is None:  # nothing was learned yet
            return replace(state, **CONSTANT_ALONE.start(len(state.live), state.dim + 1))
        return replace(state, **CONSTANT_ALONE.of_full(state, self.problem(state).features))

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
        slot, changes = self._slot(state, code), dict[str, Any]()
        if state.constants is not None and not np.array_equal(state.catalogue[slot], features):
            changes = CONSTANT_ALONE.restarted(state, slot, self.problem(state))
        catalogue = state.catalogue.copy()
        catalogue[slot] = features
        return replace(state, catalogue=catalogue, **changes)

    def retire(self, state: HierarchicalState, code: int) -> HierarchicalState:
        """Return the state with an action folded and its sums dropped; before the map is fixed, its rows still wait."""
        if state.waiting:
            return replace(state, leaving=(*state.leaving, code))
        slot, form, kept = self._slot(state, code), form_of(state), state.retired_features
        if state.catalogue is not None:
            features = state.catalogue[slot : slot + 1]
            kept = (features if kept is None else np.concatenate([kept, features]))[-REMEMBERED:]
        return replace(
            state,
            live=np.delete(state.live, slot),
            catalogue=None if state.catalogue is None else np.delete(state.catalogue, slot, axis=0),
            retired=np.append(state.retired, code)[-REMEMBERED:],
            retired_features=kept,
            **form.without(state, slot) | form.fold(state, slot, self.folding(state)),
        )

    def check_state(self, state: Any) -> None:
        """Refuse sums of another width, and what no episode leaves."""
        self._check_sums(state)
        s = len(state.live)
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
        for name, found, count in zip(("λ", "ρ"), every, (len(columns.shared), len(columns.deviating)), strict=True):
            if found.shape != (count,) or not (found > 0).all():
                raise ParameterError(name, found.tolist(), f"there are {count} numbers > 0", "load a copy")
        names = ("catalogue", "retired_features", "constants")
        parts: dict[str, Any] = {name: getattr(state, name) for name in names}
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
        self._check_curved(state, columns)

    def _check_curved(self, state: HierarchicalState, columns: Columns) -> None:
        """Refuse a larger model that this policy does not have."""
        if state.curved is None:
            return
        if self.curved is None or state.catalogue is None or state.constants is not None:
            rule, remedy = "this policy has none", "call fit to start again with changed features"
            raise ParameterError("policy", "curved columns of actions", rule, remedy)
        self.curved.check(state.curved, columns, state.catalogue.shape[1])

    @staticmethod
    def _check_sums(state: HierarchicalState) -> None:
        """Refuse sums of another width, or that no rows have."""
        form = form_of(state)
        found, needed = form.shape(state)
        if state.observed.width != state.dim + 1 or found != needed:
            got, rule = f"sums of shape {found}", f"this policy needs {needed}"
            raise ParameterError("policy", got, rule, "call fit to start again with changed features")
        if (form.weights(state) < 0).any():
            raise ParameterError("policy", "a weight below 0", "sums over rows have none", "load a copy")

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
        features, action_map, curved = state.features, state.action_map, None
        if state.varying:
            features = self.feature_map.with_varying(features, contexts, weights, state.varying)
        if state.catalogue is not None:
            action_map = cast("ActionMapState", self.action_map.fix(action_map, state.catalogue))
            if self.curved is not None and state.constants is None:
                curved = self.curved.start(state.catalogue, state.dim + 1)
        folded = Folded.nothing(self.columns(state))
        return replace(state, features=features, action_map=action_map, folded=folded, curved=curved)

    # ---- learning -------------------------------------------------------------------------------------------

    @quietly
    def collect(self, state: Any, batch: Batch, rng: Generator) -> Any:
        """Return a shard's sums of the actions it has, of rewards relative to their median."""
        if state.varying and batch.revealed is not None:
            rule = "the features of the other actions are not known"
            raise InputError("revealed", "rewards of actions not executed", rule, "leave them out")
        entries = Entries.of(self.mapped(state, batch), state.n_actions)
        return form_of(state).collect(entries, self.problem(state))

    @quietly
    def absorb(self, state: Any, sums: Any) -> tuple[Any, Info]:
        """Add an episode's sums; late rows of retired actions are folded. Estimate the ridges when it is time."""
        origin = sums.origin if state.origin is None else state.origin
        counts = np.zeros(int(state.n_actions))
        counts[sums.codes] = sums.weights
        changes = form_of(state).absorb(state, sums, origin, self.forgetting, self.folding(state))
        after = replace(
            state,
            episode=state.episode + 1,
            origin=origin,
            variance=max(self.forgetting * state.variance, sums.variance),
            **changes,
        )
        after = self._updated(after)
        for code in state.leaving:
            after = self.retire(replace(after, leaving=()), code)
        return after, Info(sums.rows, counts, None, self.fitted(after).fit.worst)

    def _updated(self, state: Any) -> Any:
        """Return the state with new ridges, and a new choice between the models, if it is time for them."""
        variance = self.scale(state)
        if not self._steps(state, variance):
            return state
        problem, curved = self.problem(state), state.curved
        made = form_of(state).fit(state, problem, variance, MAX_STEPS)
        shared, own = made.ridges
        if curved is not None and self.curved is not None:
            assert isinstance(made, HierarchicalFit)
            curved, larger = self.curved.chosen(state, problem.columns, made, self.curved_features(state), variance)
            made = made if larger is None else made.estimating(larger)
        after: HierarchicalState = replace(
            state, shared_ridges=shared, own_ridges=own, curved=curved, updated=state.episode
        )
        chosen = self._acts(after, made)
        after.derived.get(self, lambda _: chosen, after)  # solved already: kept for acting
        return after

    @staticmethod
    def scale(state: HierarchicalState) -> float:
        """Return the variance that ridges are measured by: within episodes, or of all rewards where these are small."""
        return state.variance or form_of(state).variance(state)

    # ---- what was learned -----------------------------------------------------------------------------------

    def solve(self, state: Any) -> Any:
        """Return the fit with the ridges of the last update."""
        form, scale, larger = form_of(state), self.scale(state), self.larger(state)
        made = form.fit(state, self.problem(state), scale, 0)
        return self._acts(state, made if larger is None else made.estimating(form.fit(state, larger, scale, 0)))

    @staticmethod
    def _acts(state: HierarchicalState, made: SharedFit) -> HierarchicalReadout:
        place = np.full(state.n_actions, -1)
        place[state.live] = np.arange(len(state.live))
        mean, noise = made.mean + (state.origin or 0.0), float(np.sqrt(made.noise))
        return form_of(state).readout(made, place, mean, noise)

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
        readout, d = self.fitted(state), state.dim - state.varying
        if state.varying:
            base, own = self.feature_map.part(state.features, contexts, slice(0, d)), pairs.features
            assert own is not None
            varying = self.feature_map.part(state.features, own, slice(d, state.dim))
            check_finite(varying, own)
            means, squares = readout.by_pair(base, varying, pairs)
        else:
            means, squares = readout.by_row(self.rows(state, contexts), pairs)
        if len(means):
            check_finite(means + squares, contexts)
        return means, np.sqrt(np.maximum(squares, 0.0, out=squares))

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
        weights[state.live] = form_of(state).weights(state)
        return weights

    def rows_of(self, state: HierarchicalState, codes: Codes) -> Floats:
        """Return the weight of the rows (k,) of the live actions ``codes``; 0 before the maps are fixed."""
        return form_of(state).weights(state)[self.fitted(state).place[codes]] if self.fixed(state) else np.zeros(1)

    def coefficients(self, state: Any) -> tuple[Floats, Floats]:
        """Return the coefficients per unit of the context (M, d), and the constants (M,)."""
        readout = self.fitted(state)
        theta: Floats = readout.of(np.arange(int(state.n_actions)))[1]
        per_unit, constant = self.feature_map.in_user_units(state.features, theta)
        return per_unit, constant + readout.mean

    def _units(self, state: Any) -> Floats:
        """Return the combinations of θ (D, d + 1) that are coefficients per unit of the context, then the constant."""
        return np.column_stack(self.feature_map.in_user_units(state.features, np.eye(state.dim + 1)))

    def difference_errors(
        self, state: Any, contexts: Floats, codes: Codes, other_contexts: Floats, others: Codes
    ) -> Floats:
        """Return the posterior standard deviation of each difference of two actions' estimates (n,)."""
        readout, rows = self.fitted(state), (self.rows(state, contexts), self.rows(state, other_contexts))
        return readout.noise * np.sqrt(readout.difference_variances(rows[0], codes, rows[1], others))

    def contrast_errors(self, state: Any, first: int, second: int) -> Floats:
        """Return that of the differences of two actions' coefficients, then of their constants (d + 1,)."""
        readout, rows = self.fitted(state), self._units(state).T
        codes, others = (np.full(len(rows), code) for code in (first, second))
        return readout.noise * np.sqrt(readout.difference_variances(rows, codes, rows, others))

    def standard_errors(self, state: Any) -> Floats:
        """Return the posterior standard deviation of the coefficients, then of the constant (M, d + 1)."""
        readout = self.fitted(state)
        spread = readout.variances(self._units(state))
        out = np.zeros((state.n_actions, state.dim + 1))
        out[state.live] = readout.noise * np.sqrt(np.maximum(spread, 0.0))
        return out


def _dense(contexts: Any) -> Floats:
    return np.asarray(contexts.toarray() if hasattr(contexts, "toarray") else contexts, np.float64)
