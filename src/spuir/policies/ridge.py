"""Learning by ridge regression per action, with imputed rewards: the half that SBUCB, PUIR and SPUIR share.

Exact or sketched, linear or not, plain or scheduled: one class, given a sketch, a link, a feature map and a
rate. How it acts is for its subclasses to say.
"""

from abc import ABC
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.random import Generator

from spuir.base.parameters import (
    COUNT,
    FLAG,
    POSITIVE,
    UNIT,
    either,
    one_of,
    optional,
    parameter,
)
from spuir.base.records import Batch, Floats, Info, State, require_finite
from spuir.core.imputing import LINKS, balanced_rates, scheduled_rate
from spuir.core.quiet import quietly
from spuir.core.screening import Bound, squared_widths
from spuir.core.solving import Solved, solve
from spuir.core.statistics import Statistics, add_scaled, dense_rows
from spuir.core.ties import check_finite, row_blocks
from spuir.errors import InputError, ParameterError, ShardError
from spuir.features import FeatureMap, FeatureRows, MapState, make_features
from spuir.policies.base import Policy
from spuir.policies.episodes import batch_solution, exact_episode, sketched_episode
from spuir.policies.sketched import Hashing, SketchedSums, residual_moments, sketched_sums
from spuir.policies.sums import ExactSums, exact_sums, observed_entries
from spuir.sketches import Sketch, list_sketches, make_sketch

MOMENTS = ("sketched", "exact", "corrected", "anchored")


@dataclass(frozen=True, kw_only=True, eq=False)
class RidgeState(State):
    """Sums of a ridge policy over feature rows of p columns.

    ``features`` the drawn feature map; ``observed`` Φ, b of (3) or G, p of (7); ``imputed`` Φ̂, b̂ of (4) or
    Ĝ, p̂ of (8), None before the first imputation; ``shared`` (p, p) the discounted Gram of all rows, T.
    """

    features: MapState
    observed: Statistics
    imputed: Statistics | None = None
    shared: Floats | None = None


@dataclass(frozen=True, eq=False)
class Readout:
    """What acting needs of a state: rates γ (M,), the factored matrices and coefficients, the shared bound."""

    rates: Floats
    solved: Solved
    ridge: float
    shared: Floats | None

    @cached_property
    def bound(self) -> Bound | None:
        """The bound of identity 4: P = λI + γT ⪯ Ψ_j, with the smallest positive rate; None where there is none."""
        positive = self.rates[self.rates > 0]
        if self.shared is None or not len(positive):
            return None
        return Bound.of(positive.min() * self.shared, self.ridge, self.solved, np.flatnonzero(self.rates == 0))


@dataclass(frozen=True, kw_only=True)
class Ridge(Policy, ABC):
    """Parameters of the learning half; words with the paper's letters in brackets."""

    ridge: float = parameter(1.0, "regularisation (λ)", POSITIVE)
    imputation_rate: float | str = parameter(
        0.0,
        'imputation rate (γ): a number, "paper-schedule" (⌈10 n/N⌉/10) or "balanced"',
        either(UNIT, one_of("paper-schedule", "balanced")),
    )
    discount: float = parameter(0.9, "discount of imputed sums per episode (η)", UNIT)
    balance: float = parameter(1.0, 'with "balanced": imputed weight per observed weight (κ)', POSITIVE)
    forgetting: float = parameter(1.0, "discount of observed sums per episode; 1 keeps everything", UNIT)
    link: str = parameter("linear", "expected reward as a function of ⟨θ,s⟩", one_of(*LINKS))
    imputed_cap: float | None = parameter(None, "largest imputed reward of a nonlinear link", optional(POSITIVE))
    features: str = parameter("identity", "feature map of the contexts", one_of("identity", "fourier"))
    n_features: int = parameter(100, "number of random Fourier features", COUNT)
    bandwidth: float | str = parameter(
        "auto", "kernel bandwidth, or chosen on the first batch", either(POSITIVE, one_of("auto"))
    )
    raw: bool = parameter(False, "append the raw context to the random features", FLAG)
    intercept: bool = parameter(False, "append a constant 1 to the features", FLAG)
    sketch: str = parameter("identity", "row map of each batch", one_of(*list_sketches()))
    sketch_size: int = parameter(150, "rows of the sketch (c)", COUNT)
    sketch_blocks: int = parameter(1, "blocks of the sketch (D), a divisor of c", COUNT)
    moments: str = parameter("anchored", "how the sketch keeps moments", one_of(*MOMENTS))
    episodes: int | None = parameter(None, "horizon of the schedule (N); 90 if None", optional(COUNT))
    batch_size: int | None = parameter(
        None, "steps of an episode (B), for rules that need the horizon", optional(COUNT)
    )

    state_type = RidgeState

    def __post_init__(self) -> None:
        super().__post_init__()
        make_sketch(self.sketch, size=self.sketch_size, blocks=self.sketch_blocks)
        _ = self.feature_map  # made at once: its module has the record that a saved state is read into

    @property
    def imputing(self) -> bool:
        """Whether rewards of actions not executed are imputed."""
        return self.imputation_rate != 0

    @property
    def traits(self) -> frozenset[str]:
        """Return the capabilities that follow from the parameters."""
        traits = {"ridge"}
        sketched = self.sketch != "identity"
        if self.imputing:
            traits.add("imputing")
        if sketched:
            traits.add("sketched")
        if not (sketched and self.moments == "corrected"):
            traits.add("additive")
            linear = LINKS[self.link].linear or not self.imputing
            if linear and not (sketched and self.moments == "anchored"):
                traits.add("foldable")
        return frozenset(traits)

    @property
    def draws_to_learn(self) -> bool:
        """Whether a sketch is drawn."""
        return self.sketch != "identity"

    @cached_property
    def feature_map(self) -> FeatureMap:
        """The map from contexts to feature rows."""
        given: dict[str, Any] = {"intercept": self.intercept}
        if self.features == "fourier":
            given |= {"n_features": self.n_features, "bandwidth": self.bandwidth, "raw": self.raw, "ridge": self.ridge}
        return make_features(self.features, **given)

    def width(self, dim: int) -> int:
        """Return the number of feature columns p."""
        return self.feature_map.width(dim)

    def fixed(self, state: RidgeState) -> bool:
        """Return whether the feature map is fixed."""
        return self.feature_map.fixed(state.features)

    @cached_property
    def row_map(self) -> Sketch:
        """The sketch of each batch."""
        return make_sketch(self.sketch, size=self.sketch_size, blocks=self.sketch_blocks)

    def init(self, n_actions: int, dim: int, rng: Generator) -> RidgeState:
        """Return zero sums and the drawn feature map."""
        zero = Statistics.zero(n_actions, self.feature_map.width(dim))
        return RidgeState(n_actions=n_actions, dim=dim, features=self.feature_map.init(dim, rng), observed=zero)

    def grow(self, state: RidgeState, like: int | None) -> RidgeState:
        """Return the state with one action more; the shared bound restarts, for it knows nothing of it."""
        imputed = None if state.imputed is None else state.imputed.grown(like)
        shared = None if state.shared is None else np.zeros_like(state.shared)
        return replace(
            state,
            n_actions=state.n_actions + 1,
            observed=state.observed.grown(like),
            imputed=imputed,
            shared=shared,
        )

    def basis(self, state: RidgeState) -> Any:
        """Return what collected sums depend on: the feature map, and the acting state unless histories fold."""
        return state.features if "foldable" in self.traits else state

    def check_state(self, state: Any) -> None:
        """Refuse sums of another width: the feature map or its parameters were changed."""
        super().check_state(state)
        m, p = state.n_actions, self.feature_map.width(state.dim)
        size = (m, p * p + p + 2)
        tables = [(part.width, part.table.shape) for part in (state.observed, state.imputed) if part is not None]
        shared = None if state.shared is None else state.shared.shape
        if any(table != (p, size) for table in tables) or shared not in (None, (p, p)):
            got, rule = f"sums of shape {tables[0][1]}", f"this policy needs {size} for {p} features"
            raise ParameterError("policy", got, rule, "call fit to start anew with changed features")
        imputed = None if state.imputed is None else state.imputed.table
        require_finite(observed=state.observed.table, imputed=imputed, shared=state.shared)
        self.feature_map.check_state(state.features, state.dim)

    def standard_errors(self, state: RidgeState) -> Floats:
        """Return the standard error (M, p) of each coefficient of the ridge fit on the observed rows alone.

        What a sketch adds to the error of the fit is in the energy of its sums.
        """
        observed = state.observed
        solved = solve(observed.gram.copy(), observed.moment, self.ridge)
        # Φ_j = VEVᵀ: in its eigenvectors the variances (λI+Φ_j)⁻¹Φ_j(λI+Φ_j)⁻¹ are sums of squares, never below 0.
        spectrum, vectors = np.linalg.eigh(observed.gram)
        noise = spectrum.shape[1] * np.finfo(np.float64).eps * spectrum[:, -1:]
        spectrum = np.where(spectrum > noise, spectrum, 0.0)
        spread = np.matmul(np.square(vectors), (spectrum / np.square(self.ridge + spectrum))[:, :, None])[:, :, 0]
        fitted = np.einsum("mi,mij,mj->m", solved.theta, observed.gram, solved.theta)
        residual = np.maximum(observed.energy - 2 * np.einsum("mi,mi->m", solved.theta, observed.moment) + fitted, 0.0)
        freedom = observed.weight - (spectrum / (self.ridge + spectrum)).sum(axis=1)
        variance = np.where(freedom > 0, residual / np.where(freedom > 0, freedom, 1.0), np.nan)
        return np.sqrt(variance[:, None] * spread)

    def rates(self, state: RidgeState) -> Floats:
        """Return the imputation rate γ_j in force (M,)."""
        rate = self.imputation_rate
        if not isinstance(rate, str):
            return _filled(state.n_actions, float(rate))
        if rate == "paper-schedule":
            return _filled(state.n_actions, scheduled_rate(state.episode, self.episodes))
        if state.imputed is None:
            return np.zeros(state.n_actions)
        return balanced_rates(state.observed.weight, state.imputed.weight, self.balance)

    def readout(self, state: RidgeState) -> Readout:
        """Return rates, factors and coefficients of a state, computed once."""
        return state.derived.get(self, self._solve, state)

    def _solve(self, state: RidgeState) -> Readout:
        rates = self.rates(state)
        # λI + Φ_j + γΦ̂_j and b_j + γb̂_j of (2), or of (6), side by side as in the sums.
        total = state.observed.copied()
        if state.imputed is not None and self.imputing:
            if self.imputation_rate == "balanced":
                total.table[:] += rates[:, None] * state.imputed.table
            else:
                add_scaled(total.table, float(rates[0]), state.imputed.table)
        solved = solve(total.gram, total.moment, self.ridge)  # (2), (6)
        return Readout(rates, solved, self.ridge, state.shared)

    def prepare(self, state: RidgeState, batch: Batch) -> RidgeState:
        """Fix what the feature map chooses on the first batch."""
        if self.feature_map.fixed(state.features):
            return state
        contexts = dense_rows(batch.contexts, slice(None))
        fixed = self.feature_map.fix(state.features, contexts, batch.actions, batch.rewards, batch.weights)
        return replace(state, features=fixed)

    def weighted(self, state: RidgeState, batch: Batch, rng: Generator) -> Batch:
        """Return the batch with the weights that observed rows carry in learning; a hook for balancing."""
        return batch

    def mapped(self, state: RidgeState, batch: Batch) -> Batch:
        """Return the batch with feature rows in place of contexts."""
        if batch.contexts.shape[1] != state.dim:
            raise wrong_width(batch.contexts.shape[1], state.dim)
        if batch.revealed is not None and batch.revealed.shape[1] != state.n_actions:
            rule = f"it must be ({len(batch)}, {state.n_actions})"
            raise InputError("revealed", f"shape {batch.revealed.shape}", rule, "give one column per action")
        if self.features == "identity" and not self.intercept:
            return batch
        return replace(batch, contexts=FeatureRows(self.feature_map, state.features, batch.contexts))

    def context_blocks(self, state: RidgeState, batch: Batch) -> Iterator[tuple[slice, Floats]]:
        """Yield the batch's contexts as dense blocks of rows, in bounded memory."""
        if batch.contexts.shape[1] != state.dim:
            raise wrong_width(batch.contexts.shape[1], state.dim)
        for rows in row_blocks(len(batch), state.dim + state.n_actions):
            yield rows, dense_rows(batch.contexts, rows)

    def estimates(self, state: RidgeState, contexts: Floats) -> tuple[Floats, Floats]:
        """Return T(θ_j,s) and ‖s‖ in the inverse of Ψ_j, each (n, M); before a map is fixed, 0 and 1."""
        if not self.feature_map.fixed(state.features):
            check_finite(contexts, contexts)
            return np.zeros((len(contexts), state.n_actions)), np.ones((len(contexts), state.n_actions))
        readout = self.readout(state)
        rows = self.feature_map.apply(state.features, contexts)
        means = self.means(readout, rows)
        check_finite(means, contexts)
        widths = np.sqrt(squared_widths(readout.solved, rows))
        return np.ascontiguousarray(means.T), np.ascontiguousarray(widths.T)

    @quietly
    def means(self, readout: Readout, rows: Floats) -> Floats:
        """Return T(θ_j,s) (M, n), the same linearised reward that is imputed; ⟨θ_j,s⟩ for the linear link."""
        z = readout.solved.theta @ rows.T
        link = LINKS[self.link]
        return z if link.linear else link.reward(z, None)

    @quietly
    def collect(self, state: RidgeState, batch: Batch, rng: Generator) -> ExactSums | SketchedSums:
        """Return a shard's sums; a second pass over the rows cannot be sharded."""
        if not self.feature_map.fixed(state.features):
            raise ShardError(
                "collect",
                "a feature map not fixed yet",
                "its bandwidth comes from the first episode",
                "learn one episode whole, or give a bandwidth",
            )
        if "additive" not in self.traits:
            raise ShardError(
                "collect",
                f"moments={self.moments!r}",
                "it passes over the whole episode twice",
                'use moments="anchored"',
            )
        rows = self.mapped(state, self.weighted(state, batch, rng))
        sums = self._collect(rows, self.readout(state).solved.theta, rng)
        # A shard outlives the call: rows that it holds are its own.
        return sums if isinstance(sums, ExactSums) else sums.owned()

    def _collect(self, rows: Batch, theta: Floats, rng: Generator) -> ExactSums | SketchedSums:
        if self.sketch == "identity":
            return exact_sums(rows, theta, self.link, self.imputed_cap, self.imputing)
        how = Hashing(
            sketch=self.row_map,
            key=int(rng.integers(2**63)),
            link=self.link,
            cap=self.imputed_cap,
            theta=theta,
            reference=theta if self.moments == "anchored" else np.zeros_like(theta),
            sketched_moments=self.moments == "sketched",
        )
        return sketched_sums(rows, how)

    @quietly
    def learn(self, state: RidgeState, batch: Batch, rng: Generator) -> tuple[RidgeState, Info]:
        """Return the state after one episode; an empty batch is not an episode."""
        if not len(batch):
            return state, Info(rows=0, counts=np.zeros(state.n_actions))
        ready = self.prepare(state, batch)
        rows = self.mapped(ready, self.weighted(ready, batch, rng))
        theta = self.readout(ready).solved.theta
        sums = self._collect(rows, theta, rng)
        if isinstance(sums, SketchedSums) and sums.parts is not None and self.moments == "corrected":
            # The second pass: moments about the sketched solution of this batch alone, θ′.
            centre = batch_solution(sums.parts, self.ridge)
            residual = residual_moments(rows, centre, *observed_entries(rows))
            how = replace(sums.how, reference=centre)
            sums = replace(sums, how=how, parts=replace(sums.parts, residual=residual))
        return self._absorb(ready, sums, theta)

    @quietly
    def absorb(self, state: RidgeState, sums: ExactSums | SketchedSums) -> tuple[RidgeState, Info]:
        """Fold an episode's sums into the state and solve: (2) to (4), or (6) to (8)."""
        if isinstance(sums, ExactSums):
            hidden = None if sums.hidden is None else sums.hidden.copied()
            sums = replace(sums, observed=sums.observed.copied(), hidden=hidden)
        return self._absorb(state, sums, self.readout(state).solved.theta)

    def _absorb(self, state: RidgeState, sums: ExactSums | SketchedSums, theta: Floats) -> tuple[RidgeState, Info]:
        """Fold an episode's sums into the state, in their own arrays; ``theta`` (M, p) acted in it."""
        if isinstance(sums, ExactSums):
            episode = exact_episode(sums, theta, self.imputing)
        else:
            episode = sketched_episode(sums, theta, self.imputing, self.moments, self.ridge)
        imputed, shared, seen = state.imputed, state.shared, episode.seen
        if episode.hidden is not None and episode.total is not None:
            imputed = episode.hidden if imputed is None else imputed.then(self.discount, episode.hidden)  # (4), (8)
            kept = min(self.discount, self.forgetting)
            if shared is not None:
                add_scaled(episode.total, kept, shared)
            shared = episode.total
        elif shared is not None:
            shared = self.forgetting * shared  # imputation was switched off: what is observed still fades
        counts = seen.weight.copy()
        after = RidgeState(
            n_actions=state.n_actions,
            dim=state.dim,
            episode=state.episode + 1,
            features=state.features,
            observed=state.observed.then(self.forgetting, seen),  # (3), (7)
            imputed=imputed,
            shared=shared,
        )
        readout = self.readout(after)
        return after, Info(sums.rows, counts, readout.rates, readout.solved.worst)


def _filled(n_actions: int, rate: float) -> Floats:
    """Return one rate for all actions (M,)."""
    return np.full(n_actions, rate)


def wrong_width(got: int, expected: int) -> InputError:
    """Return the refusal of contexts with another number of columns than the policy knows."""
    return InputError("contexts", f"{got} columns", f"this policy knows {expected}", "pass the same columns as before")
