"""DFM-S: the delayed-feedback model of Chapelle (2014), fitted in sequence; acts on final conversions.

For every action two weight vectors are fitted on its clicked rows alone: w_c for whether a click converts and w_d for
how fast. A row that has not converted yet then counts less than a refusal, and the slower its action, the less.
"""

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import expit

from spuir.base.parameters import COUNT, POSITIVE, one_of, optional, parameter
from spuir.base.records import Batch, Codes, Floats, Info, Mask, Scores, State, require_finite
from spuir.core import delays, ties
from spuir.core.delays import Clicks
from spuir.core.statistics import by_action, dense_rows, grow
from spuir.errors import InputError, ParameterError, ShardError
from spuir.policies.base import Policy, Recipe
from spuir.policies.uniform import executed_weight


@dataclass(frozen=True, kw_only=True, eq=False)
class Kept:
    """Clicked rows kept from earlier episodes, the oldest first; those from ``used`` on are room for more.

    ``codes`` (k,) are their actions; ``contexts`` (k, d), ``converted``, ``elapsed`` and ``weights`` (k,) as in Clicks.
    """

    used: int
    codes: NDArray[np.int64]
    contexts: Floats
    converted: Mask
    elapsed: Floats
    weights: Floats

    @classmethod
    def room(cls, rows: int, dim: int) -> "Kept":
        """Return room for this many rows."""
        return cls(
            used=0,
            codes=np.zeros(rows, np.int64),
            contexts=np.zeros((rows, dim)),
            converted=np.zeros(rows, np.bool_),
            elapsed=np.zeros(rows),
            weights=np.zeros(rows),
        )

    def then(self, codes: Codes, clicks: Clicks, window: int | None) -> "Kept":
        """Return these rows with later ones behind them; of more than ``window`` the oldest are dropped."""
        total = self.used + len(clicks)
        size = total if window is None else window
        first = max(0, total - size)

        def joined(old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
            rows = np.concatenate([old[: self.used], new])[first:]
            room = np.zeros((size, *rows.shape[1:]), rows.dtype)
            room[: len(rows)] = rows
            return room

        return Kept(
            used=total - first,
            codes=joined(self.codes, codes.astype(np.int64, copy=False)),
            contexts=joined(self.contexts, clicks.contexts),
            converted=joined(self.converted, clicks.converted),
            elapsed=joined(self.elapsed, clicks.elapsed),
            weights=joined(self.weights, clicks.weights),
        )

    def rows(self) -> tuple[Codes, Clicks]:
        """Return the actions of the rows kept, and the rows."""
        full = Clicks(contexts=self.contexts, converted=self.converted, elapsed=self.elapsed, weights=self.weights)
        return self.codes[: self.used].astype(np.intp, copy=False), full.take(slice(0, self.used))


@dataclass(frozen=True, kw_only=True, eq=False)
class DelayedState(State):
    """Fitted weights, and what is remembered of the rows.

    ``weights`` (M, 2, d) holds w_c and w_d of each action; ``counts`` (M,) the weight of its executed rows.
    ``information`` (M, 2d, 2d) is kept with ``memory="laplace"``, ``kept`` with the others.
    """

    weights: Floats
    counts: Floats
    information: Floats | None = None
    kept: Kept | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class DelayedRows:
    """The clicked rows of an episode in the order of their execution, ``codes`` (k,) their actions."""

    rows: int
    counts: Floats
    codes: Codes
    clicks: Clicks

    def __add__(self, other: "DelayedRows") -> "DelayedRows":
        """Refuse: the time left to a row depends on its place in the whole episode."""
        raise ShardError("collect", "delayed rows", "their learning is not additive", "use partial_fit")


@final
@dataclass(frozen=True, kw_only=True)
class DelayedFeedback(Policy):
    """DFM-S: greedy in ⟨w_c,s⟩, the log odds that a click converts in the end.

    It reads the columns ``click``, ``conversion`` and ``elapsed`` of a batch in place of rewards. ``elapsed`` is the
    delay where there is a conversion, otherwise the time waited so far. An episode lasts ``horizon``: row b of B,
    counted from 0, is watched for horizon·(1 − b/B), and a conversion that took longer counts as not seen, whether or
    not the batch counts it. ``row_ids`` give the order of execution; without them it is the order of the rows. With
    ``horizon=None`` the columns are taken as they are: what was known when the batch was made.

    Columns may be missing. Without ``click`` every row counts as clicked; without ``elapsed`` nothing is delayed, and
    the model becomes a logistic regression; without all three, rows with a reward above 0 are the converted ones.

    The fit takes at most ``iterations`` steps from the last weights, on the rows that ``memory`` selects.
    ``"laplace"``: the rows of the episode, with a normal prior in place of all earlier ones, in constant memory.
    ``"window"``: the last ``window`` clicked rows of all actions; a row takes one place, whatever its weight.
    ``"all"``: every clicked row so far, so that the state grows. An action without such rows keeps its weights.
    Revealed rewards are not read.
    """

    horizon: float | None = parameter(
        1.4, "length of an episode in the units of elapsed; None = conversions as given", optional(POSITIVE)
    )
    ridge: float = parameter(1.0, "regularisation of both weight vectors", POSITIVE)
    iterations: int = parameter(10, "steps of a fit at most", COUNT)
    memory: str = parameter(
        "laplace",
        'rows to fit on: "laplace" (the last episode, with a prior for the others), "window" or "all"',
        one_of("laplace", "window", "all"),
    )
    window: int = parameter(10_000, 'clicked rows kept with memory="window"', COUNT)

    state_type = DelayedState

    @property
    def traits(self) -> frozenset[str]:
        """Return none: a row's place in the episode matters, so that shards do not add up."""
        return frozenset()

    @property
    def draws_to_learn(self) -> bool:
        """Return False: a fit draws nothing."""
        return False

    @property
    def room(self) -> int | None:
        """How many clicked rows are kept at most; None = no limit."""
        return self.window if self.memory == "window" else None

    def init(self, n_actions: int, dim: int, rng: Generator) -> DelayedState:
        """Return weights of 0, at which all actions tie."""
        laplace = self.memory == "laplace"
        return DelayedState(
            n_actions=n_actions,
            dim=dim,
            weights=np.zeros((n_actions, 2, dim)),
            counts=np.zeros(n_actions),
            information=np.zeros((n_actions, 2 * dim, 2 * dim)) if laplace else None,
            kept=None if laplace else Kept.room(self.room or 0, dim),
        )

    def check_state(self, state: DelayedState) -> None:
        """Refuse a state of another kind or shape, or one made with another memory."""
        super().check_state(state)
        m, d = state.n_actions, state.dim
        kept = None if state.kept is None else state.kept.contexts.shape
        shapes = (state.weights.shape, None if state.information is None else state.information.shape, kept)
        rows = {"laplace": None, "window": (self.window, d), "all": (state.kept.used if state.kept else 0, d)}
        expected = ((m, 2, d), (m, 2 * d, 2 * d) if self.memory == "laplace" else None, rows[self.memory])
        if shapes != expected:
            rule = f"memory={self.memory!r} needs {expected}"
            raise ParameterError("policy", f"arrays of shapes {shapes}", rule, "call fit to start again")
        contexts = None if state.kept is None else state.kept.contexts
        require_finite(weights=state.weights, counts=state.counts, information=state.information, contexts=contexts)

    def table(self, state: DelayedState, contexts: Floats, eligible: Mask) -> Scores:
        """Return, each (n, M), σ(⟨w_c,s⟩) as means, zero widths, ⟨w_c,s⟩ as scores, and probabilities.

        The mean is the chance that a click converts. It is the expected reward where the reward is the
        conversion of a clicked row, and proportional to it where all actions are clicked equally often.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            scores = contexts @ state.weights[:, 0].T
        ties.check_finite(scores, contexts)
        best = ties.argmax_probabilities(scores, eligible)
        return Scores(
            means=expit(scores),
            widths=np.zeros_like(scores),
            scores=scores,
            probabilities=ties.with_floor(best, eligible, self.floor),
        )

    def collect(self, state: DelayedState, batch: Batch, rng: Generator) -> DelayedRows:
        """Return the clicked rows of a whole episode, with what was seen of them by the horizon."""
        counts = executed_weight(state, batch)
        click, converted, elapsed = _outcomes(batch)
        rank = _ranks(batch)
        if self.horizon is not None and batch.elapsed is not None:
            left = self.horizon * (1.0 - rank / len(batch))
            converted = converted & (elapsed <= left)
            elapsed = np.minimum(elapsed, left)
        weights = np.ones(len(batch)) if batch.weights is None else batch.weights
        chosen = np.flatnonzero(click & (weights > 0))
        chosen = chosen[np.argsort(rank[chosen], kind="stable")]
        clicks = Clicks(
            contexts=dense_rows(batch.contexts, chosen).copy(),  # which lends its workspace
            converted=converted[chosen],
            elapsed=elapsed[chosen],
            weights=weights[chosen],
        )
        return DelayedRows(rows=len(batch), counts=counts, codes=batch.actions[chosen], clicks=clicks)

    def absorb(self, state: DelayedState, sums: DelayedRows) -> tuple[DelayedState, Info]:
        """Fit the actions that have clicked rows."""
        kept, codes, clicks = state.kept, sums.codes, sums.clicks
        if kept is not None:
            kept = kept.then(codes, clicks, self.room)
            codes, clicks = kept.rows()
        weights = state.weights.copy()
        information = None if state.information is None else state.information.copy()
        order = by_action(codes, state.n_actions)
        found, starts = np.unique(codes[order], return_index=True)
        for action, rows in zip(found, np.split(order, starts[1:]), strict=False):
            own = clicks.take(rows)
            prior = None if information is None else information[action]
            fitted = delays.fit(own, weights[action], ridge=self.ridge, information=prior, iterations=self.iterations)
            weights[action] = fitted.weights
            if information is not None:
                information[action] = delays.informed(information[action], self.ridge, fitted.weights, own)
        after = replace(
            state,
            episode=state.episode + 1,
            weights=weights,
            counts=state.counts + sums.counts,
            information=information,
            kept=kept,
        )
        return after, Info(rows=sums.rows, counts=sums.counts)

    def grow(self, state: DelayedState, like: int | None) -> DelayedState:
        """Return the state with one more action; it may start at the weights of ``like``, without its rows."""
        return replace(
            state,
            n_actions=state.n_actions + 1,
            weights=grow(state.weights, like),
            counts=grow(state.counts, None),
            information=None if state.information is None else grow(state.information, like),
        )


def _outcomes(batch: Batch) -> tuple[Mask, Mask, Floats]:
    """Return clicks, conversions and times (B,), with defaults for the columns that are missing."""
    n = len(batch)
    if batch.conversion is None and not (batch.click is None and batch.elapsed is None):
        got = "click or elapsed without it"
        raise InputError("conversion", got, "all three describe delayed conversions", "pass conversion as well")
    click = np.ones(n, np.bool_) if batch.click is None else _flags("click", batch.click)
    converted = batch.rewards > 0 if batch.conversion is None else _flags("conversion", batch.conversion)
    if batch.elapsed is None:
        return click, converted, np.full(n, np.inf)
    if n and batch.elapsed.min() < 0:
        row = int(np.argmin(batch.elapsed))
        got = f"{batch.elapsed[row]} at row {row}"
        raise InputError("elapsed", got, "a time is ≥ 0", "count it from the row's execution")
    return click, converted, batch.elapsed


def _flags(name: str, column: Floats) -> Mask:
    good = (column == 0) | (column == 1)
    if not good.all():
        row = int(np.argmin(good))
        raise InputError(name, f"{column[row]} at row {row}", "it is 0 or 1", "correct or drop that row")
    return column == 1


def _ranks(batch: Batch) -> Codes:
    """Return the place (B,) of each row in the order of execution."""
    if batch.row_ids is None:
        return np.arange(len(batch))
    rank = np.empty(len(batch), np.intp)
    rank[np.argsort(batch.row_ids, kind="stable")] = np.arange(len(batch))
    return rank


DFM_S = Recipe(
    target=DelayedFeedback,
    defaults={},
    paper={"horizon": 1.4, "ridge": 1.0, "iterations": 10, "memory": "window", "window": 10_000},
    summary="greedy by a model of delayed conversions (Chapelle 2014), fitted in sequence",
)
