"""The records that pass between the modules: frozen, with their array shapes in the docstrings.

Letters: B rows (decisions) of a batch, n rows of any call, M actions, d context columns. At this level
actions are integer codes 0…M−1; :class:`spuir.Bandit` translates labels.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spuir.base.checked_arrays import (
    FINITE_REWARDS,
    FLOAT,
    OPTIONAL_COLUMNS,
    OPTIONAL_TABLES,
    Codes,
    Floats,
    Mask,
    all_finite,
    as_array,
    as_ids,
    as_mask,
    check_codes,
    check_column,
    check_contexts,
    check_one_each,
    check_revealed,
    check_table_of_actions,
    only_numbers,
    require_finite,
)
from spuir.base.column_drift import Drift
from spuir.base.data_frame import data_frame
from spuir.base.pairs import Pairs
from spuir.errors import InputError

__all__ = ["FLOAT", "Codes", "Floats", "Mask", "all_finite", "as_array", "as_ids", "as_mask", "only_numbers"]
__all__ += ["Batch", "Decision", "Derived", "Feedback", "Info", "Rounds", "Scores", "State", "require_finite"]

Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """The rows of one episode, in which the policy acted unchanged.

    Parameters
    ----------
    contexts
        (B, d) array of any layout and float dtype, or a SciPy CSR matrix. Read, never written. Its
        entries are checked for finiteness where they are summed.
    actions
        (B,) executed actions as codes 0…M−1.
    rewards
        (B,) rewards of the executed actions.
    propensities
        (B,) probabilities with which the executed actions were chosen; None = the learning policy's own.
    weights
        (B,) row weights ≥ 0; weight w means w copies of the row. None = 1.
    eligible
        (B, M) mask of the actions that could be chosen, or their pairs with the rows; None = all.
    revealed, revealed_rewards
        (B, M) mask of further actions whose true reward became known, and those rewards.
    click, conversion, elapsed
        (B,) outcome columns of environments with delays; read by delayed-feedback policies only.
    row_ids
        (B,) integers unique within the episode; rows are hashed by them. None = 0…B−1.
    caps
        (M,) largest probabilities of the actions that ramped up in this episode, infinite for the others; None = no
        action did. They bear on the learning policy's own probabilities.
    """

    contexts: Any
    actions: Codes
    rewards: Floats
    propensities: Floats | None = None
    weights: Floats | None = None
    eligible: Mask | Pairs | None = None
    revealed: Mask | None = None
    revealed_rewards: Floats | None = None
    click: Floats | None = None
    conversion: Floats | None = None
    elapsed: Floats | None = None
    row_ids: NDArray[np.int64] | None = None
    caps: Floats | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "contexts", check_contexts(self.contexts))
        length = int(self.contexts.shape[0])
        put(self, "actions", check_codes(self.actions, length))
        put(self, "rewards", check_column("rewards", self.rewards, length, FINITE_REWARDS))
        given = self.__dict__
        for name, rule, good in OPTIONAL_COLUMNS:
            if given[name] is not None:
                put(self, name, check_column(name, given[name], length, rule, good))
        for name, dtype in OPTIONAL_TABLES:
            if given[name] is not None and not isinstance(given[name], Pairs):
                put(self, name, check_table_of_actions(name, given[name], length, dtype))
        check_revealed(self.revealed, self.revealed_rewards)
        if self.row_ids is not None:
            put(self, "row_ids", as_ids(self.row_ids))
            if len(self.row_ids) != length:
                rule = f"one id per context row is needed, {length} here"
                raise InputError("row_ids", f"shape {self.row_ids.shape}", rule, "match the lengths")

    @classmethod
    def encoded(cls, contexts: Any, codes: Codes, rewards: ArrayLike) -> Self:
        """Return a batch of a numeric table, valid codes and rewards; only the rewards are checked again."""
        length = int(contexts.shape[0])
        check_one_each(codes, length)
        made = object.__new__(cls)
        # Columns that are not given are None by the class.
        put = object.__setattr__
        put(made, "contexts", contexts)
        put(made, "actions", codes)
        put(made, "rewards", check_column("rewards", rewards, length, FINITE_REWARDS))
        return made

    @property
    def given_weights(self) -> Floats:
        """The weight of each row (B,), 1 where none is given."""
        return np.ones(len(self)) if self.weights is None else self.weights

    def at(self, rows: Codes) -> "Batch":
        """Return the chosen rows, which keep the ids that they have here."""
        columns: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "caps"}
        columns["row_ids"] = np.arange(len(self)) if self.row_ids is None else self.row_ids
        chosen = {name: column[rows] for name, column in columns.items() if column is not None}
        return Batch(**chosen, caps=self.caps)

    def __len__(self) -> int:
        """Return B, the number of rows."""
        return len(self.actions)


@dataclass(frozen=True, kw_only=True, eq=False)
class Scores:
    """A policy's view of n contexts × M actions, each array (n, M)."""

    means: Floats
    widths: Floats
    scores: Floats
    probabilities: Floats


class Decision:
    """The actions drawn for n contexts, with the probability of each; made by :meth:`spuir.Bandit.decide`.

    ``actions`` (n,) and ``propensities`` (n,) are computed at once; ``probabilities``, ``scores``,
    ``means`` and ``widths`` (n, M) on first access. ``exact`` is False where the propensities are
    Monte-Carlo estimates. ``ids`` are the caller's, if given; ``episode`` is the number of episodes learned before,
    and ``keys`` (n,) what each draw was keyed by: the ids, or else the rows' numbers within the episode.
    ``contexts`` (n, d) and ``eligible``, a mask (n, M), pairs or None for all, are what was decided about, as numbers,
    and ``action_features`` (n, y) the features per decision of the drawn actions, None without any. ``drift`` counts
    the values that are unlike the sample of the encoder; None without one.

    Examples
    --------
    >>> bandit = spuir.Bandit("puir", ["mail", "call"], random_state=0)
    >>> day = bandit.decide([[1.0, 0.3], [1.0, 0.8]], ids=["ann", "bob"])
    >>> day.to_frame()
      decision_id action  propensity  episode
    0         ann   call         0.5        0
    1         bob   call         0.5        0
    >>> bandit = bandit.partial_fit(day, [0.0, 1.0])
    """

    contexts: Floats | None = None
    eligible: Mask | Pairs | None = None
    action_features: Floats | None = None
    drift: Drift | None = None

    def __init__(
        self,
        actions: NDArray[Any],
        propensities: Floats,
        table: Callable[[], Scores],
        *,
        exact: bool = True,
        ids: Any = None,
        episode: int = 0,
        first: int | None = None,
        probabilities: Callable[[], Floats] | None = None,
    ) -> None:
        self.actions, self.propensities, self.exact, self.ids = actions, propensities, exact, ids
        self.episode, self._first = episode, first
        self._make, self._make_probabilities = table, probabilities

    @property
    def keys(self) -> Any:
        """What the draw of each row was keyed by (n,), within its episode; None for a decision without a bandit."""
        if self.ids is not None or self._first is None:
            return self.ids
        return np.arange(self._first, self._first + len(self))

    @cached_property
    def _table(self) -> Scores:
        return self._make()

    @cached_property
    def _probabilities(self) -> Floats:
        # Where what was drawn from is at hand, it costs no scores.
        return self._table.probabilities if self._make_probabilities is None else self._make_probabilities()

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: the tables themselves, as what computes them is a policy with its state."""
        kept = ("actions", "propensities", "exact", "ids", "episode", "_first", "contexts", "eligible")
        kept += ("action_features", "drift")
        return {name: getattr(self, name) for name in kept} | {
            "_table": self._table,
            "_probabilities": self._probabilities,
        }

    def relabel(
        self,
        labels: NDArray[Any],
        ids: Any,
        episode: int,
        first: int | None,
        contexts: Floats,
        eligible: Mask | Pairs | None,
    ) -> "Decision":
        """Put labels (M,) in place of codes, and say what was decided about and drawn by; return the decision."""
        if isinstance(eligible, Pairs) and eligible.features is not None:
            self.action_features = eligible.features[eligible.find(self.actions)]
        self.actions, self.ids, self.episode, self._first = labels[self.actions], ids, episode, first
        self.contexts, self.eligible = contexts, eligible
        return self

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per decision, its columns named as in a log.

        ``decision_id`` (if there are ids), ``action``, ``propensity`` and ``episode``.
        """
        columns: dict[str, Any] = {"action": self.actions, "propensity": self.propensities, "episode": self.episode}
        if self.ids is not None:
            columns = {"decision_id": list(self.ids), **columns}
        return data_frame(columns, "to_frame", index=range(len(self)))

    @property
    def probabilities(self) -> Floats:
        """Probability of every action (n, M); 0 where ineligible."""
        return self._probabilities

    @property
    def scores(self) -> Floats:
        """What the rule compares (n, M), mean + α·width for optimistic rules."""
        return self._table.scores

    @property
    def means(self) -> Floats:
        """Estimated reward (n, M)."""
        return self._table.means

    @property
    def widths(self) -> Floats:
        """Uncertainty ‖s‖ in the inverse of each action's matrix (n, M)."""
        return self._table.widths

    def __len__(self) -> int:
        """Return n."""
        return len(self.actions)

    def __repr__(self) -> str:
        """Show the size and the kind."""
        return f"Decision(n={len(self)}, exact={self.exact})"


@dataclass(frozen=True, kw_only=True, eq=False)
class Rounds:
    """Contexts (n, d) drawn from an environment, with a payload that only the environment reads."""

    contexts: Floats
    payload: Any = None

    def __len__(self) -> int:
        """Return n."""
        return len(self.contexts)


@dataclass(frozen=True, kw_only=True, eq=False)
class Feedback:
    """What an environment returns for executed actions, each (n,).

    ``all_rewards`` (n, M) holds the rewards that the other actions would have had, for learning under
    full information; a policy under bandit feedback never sees it.
    """

    rewards: Floats
    click: Floats | None = None
    conversion: Floats | None = None
    elapsed: Floats | None = None
    all_rewards: Floats | None = None


class Derived:
    """A slot for what can be computed from a state: kept beside it, never saved, never compared."""

    _held: tuple[object, Any] | None = None

    def get(self, owner: object, make: Callable[[Any], Made], state: Any) -> Made:
        """Return the value held for ``owner`` (a policy), made of its ``state`` on first use."""
        held = self._held
        if held is None or (held[0] is not owner and held[0] != owner):
            held = self._held = (owner, make(state))
        return held[1]


@dataclass(frozen=True, kw_only=True, eq=False)
class State:
    """What the next step needs: sums, drawn maps, counts. Subclasses add fields that hold arrays or records."""

    n_actions: int
    dim: int
    episode: int = 0
    # New for every state: ``replace`` must not copy what was computed from other sums.
    derived: Derived = field(init=False, repr=False, default_factory=Derived, metadata={"saved": False})


@dataclass(frozen=True, eq=False)
class Info:
    """Diagnostics of one learning step; nothing depends on them.

    ``rows`` learned from, ``counts`` (M,) the weight of the observed rows, ``rate`` (M,) imputation rates in force,
    ``code`` the worst result code of the solve (0 fine, 1 jitter added, 2 rank fallback), ``drift`` the values that are
    unlike the sample of the encoder (None without one).
    """

    rows: int
    counts: Floats
    rate: Floats | None = None
    code: int = 0
    drift: Drift | None = None
