"""The records that pass between the modules: frozen, with their array shapes in the docstrings.

Letters: B rows (decisions) of a batch, n rows of any call, M actions, d context columns. At this level
actions are integer codes 0…M−1; :class:`spuir.Bandit` translates labels.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spuir.base.data_frame import data_frame
from spuir.errors import InputError, NumericalError

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]
Mask = NDArray[np.bool_]
Made = TypeVar("Made")


FLOAT = np.dtype(np.float64)


def all_finite(values: Floats) -> bool:
    """Return whether no value is infinite or NaN."""
    # A finite sum of squares settles it in one fast pass. It may overflow, and only then is each value looked at.
    return math.isfinite(np.vdot(values, values)) or bool(np.isfinite(values).all())


def require_finite(**parts: Floats | None) -> None:
    """Refuse named parts of a state that are not finite, which no episode can leave behind."""
    for name, part in parts.items():
        if part is not None and not all_finite(part):
            rule = "what a policy has learned is finite"
            raise NumericalError(f"{name} of the state", "a non-finite value", rule, "load a copy, or learn again")


def as_array(name: str, values: Any) -> NDArray[Any]:
    """Return ``values`` as an array of NumPy's own class; rows of different lengths and masked values are refused."""
    if type(values) is np.ndarray:
        return values
    if np.ma.is_masked(values):
        rule = "a masked value has nothing in its place"
        raise InputError(name, "masked values", rule, "fill them or drop their rows")
    try:
        return np.asarray(values)
    except ValueError:
        rule = "every row has as many columns"
        raise InputError(name, "rows of different lengths", rule, "fill the short rows") from None


def _contexts(values: Any) -> Any:
    """Return ``values`` as a table of numbers (B, d), dense or CSR, not copied where it is one."""
    if hasattr(values, "tocsr"):
        values = values.tocsr()
    elif not hasattr(values, "toarray"):
        values = as_array("contexts", values)
        if values.dtype.kind not in "fiub":
            rule = "contexts must be numbers"
            raise InputError("contexts", f"dtype {values.dtype}", rule, "encode other columns first")
    if values.ndim != 2:
        rule = "contexts are a table (rows, columns)"
        raise InputError("contexts", f"shape {values.shape}", rule, "reshape to two dimensions")
    return values


def _one_each(actions: NDArray[Any], length: int) -> None:
    """Refuse a column that does not have one action per row."""
    if actions.shape != (length,):
        rule = f"one action per context row is needed, {length} here"
        raise InputError("actions", f"shape {actions.shape}", rule, "match the lengths")


def _codes(values: Any, length: int) -> Codes:
    """Return executed actions as codes (B,)."""
    actions = as_array("actions", values)
    _one_each(actions, length)
    if actions.dtype.kind not in "iu" and length:
        rule = "a Batch holds integer action codes"
        raise InputError("actions", f"dtype {actions.dtype}", rule, "use Bandit for labels")
    codes = actions.astype(np.intp, copy=False)
    row = int(codes.argmin()) if length else 0
    if length and codes[row] < 0:
        raise InputError("actions", f"{codes[row]} at row {row}", "codes are 0…M−1", "correct or drop that row")
    return codes


def types_in(values: NDArray[Any]) -> set[type]:
    """Return the types of the values in an array of objects."""
    return set(map(type, values.ravel().tolist()))


NO_NUMBERS = (str, bytes, complex, np.complexfloating)
"""Types that Python or NumPy would convert to real numbers although they are none."""


def only_numbers(values: NDArray[Any]) -> Floats:
    """Return an array of objects as float64; raise TypeError or ValueError if some are not real numbers."""
    if values.dtype.kind != "O" or any(issubclass(kind, NO_NUMBERS) for kind in types_in(values)):
        raise TypeError
    return values.astype(np.float64)


def _is_number(value: Any) -> bool:
    """Return whether a value belongs in a column of numbers; text that looks like a number does not."""
    if isinstance(value, NO_NUMBERS):
        return False
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _numbers(name: str, values: NDArray[Any], rule: str) -> Floats:
    """Return an array as float64; text, dates and complex numbers are no numbers, objects are where they all are."""
    if values.dtype == FLOAT:
        return values
    if values.dtype.kind in "fiub":
        with np.errstate(over="ignore"):  # a wider kind of number may become infinite, which is refused as such
            return values.astype(np.float64)
    try:
        return only_numbers(values)
    except (TypeError, ValueError, OverflowError):
        # Python may convert dates to numbers; then the first value is reported.
        wrong = next((at for at, value in enumerate(values.flat) if not _is_number(value)), 0)
        got = f"{str(values.flat[wrong])[:40]!r} at row {wrong // max(1, values[:1].size)}"
        raise InputError(name, got, rule, "pass numbers") from None


def _column(name: str, values: ArrayLike, length: int, rule: str, ok: Callable[[Floats], Any] | None = None) -> Floats:
    """Return ``values`` as a float column (B,), finite and, if given, valid by ``ok``."""
    column = _numbers(name, as_array(name, values), rule)
    if column.shape != (length,):
        needed = f"one value per context row is needed, {length} here"
        raise InputError(name, f"shape {column.shape}", needed, "match the lengths")
    if not all_finite(column) or (ok is not None and not ok(column).all()):
        good = np.isfinite(column) if ok is None else np.isfinite(column) & ok(column)
        row = int(np.argmin(good))
        raise InputError(name, f"{column[row]} at row {row}", rule, "correct or drop that row")
    return column


def _table(name: str, values: ArrayLike, length: int, dtype: Any) -> NDArray[Any]:
    """Return ``values`` as a (B, M) array."""
    rule = f"it must be ({length}, number of actions)"
    table = as_array(name, values)
    table = as_mask(name, table) if dtype is np.bool_ else _numbers(name, table, "rewards are numbers")
    if table.ndim != 2 or len(table) != length:
        raise InputError(name, f"shape {table.shape}", rule, "give one row per context")
    return table


def _check_revealed(mask: Mask | None, rewards: Floats | None) -> None:
    """Refuse a mask without its rewards (B, M), or the reverse."""
    if mask is None or rewards is None:
        if mask is not rewards:
            rule = "revealed and revealed_rewards come together"
            raise InputError("revealed", "one of the pair", rule, "pass both or neither")
        return
    if mask.shape != rewards.shape:
        rule = f"it must have the shape of revealed_rewards, {rewards.shape}"
        raise InputError("revealed", f"shape {mask.shape}", rule, "give one column per action")
    bad = mask & ~np.isfinite(rewards)
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        got, rule = f"{rewards[row, column]} at row {row}, column {column}", "every revealed reward must be finite"
        raise InputError("revealed_rewards", got, rule, "clear its mask entry")


def as_mask(name: str, values: NDArray[Any]) -> Mask:
    """Return an array of True and False, or of 1 and 0, as a mask; any other value is refused."""
    if values.dtype == np.bool_:
        return values
    if values.dtype.kind == "O" and types_in(values) <= {bool, np.bool_}:
        return values.astype(np.bool_)
    if values.dtype.kind not in "iuf":
        raise InputError(name, f"dtype {values.dtype}", "it is True or False", "pass a boolean mask")
    other = (values != 0) & (values != 1)
    if other.any():
        place = tuple(int(i) for i in np.argwhere(other)[0])
        raise InputError(name, f"{values[place]} at row {place[0]}", "it is True or False", "pass a boolean mask")
    return values.astype(np.bool_)


def as_ids(values: Any) -> NDArray[np.int64]:
    """Return row ids (B,)."""
    ids = as_array("row_ids", values)
    if ids.ndim != 1 or (ids.dtype.kind not in "iu" and ids.size):
        rule = "row ids are one integer per row"
        raise InputError("row_ids", f"{ids.dtype} of shape {ids.shape}", rule, "number the rows of the episode")
    return ids.astype(np.int64, copy=False)


FINITE_REWARDS = "every reward must be finite"
_COLUMNS: tuple[tuple[str, str, Callable[[Floats], Any] | None], ...] = (
    ("propensities", "a propensity lies in (0, 1]", lambda p: (p > 0) & (p <= 1 + 1e-9)),
    ("weights", "a weight is finite and ≥ 0", lambda w: w >= 0),
    ("click", "clicks must be finite", None),
    ("conversion", "conversions must be finite", None),
    ("elapsed", "elapsed times must be finite", None),
)
_TABLES: tuple[tuple[str, type], ...] = (
    ("eligible", np.bool_),
    ("revealed", np.bool_),
    ("revealed_rewards", np.float64),
)


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
        (B, M) mask of the actions that could be chosen; None = all.
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
    eligible: Mask | None = None
    revealed: Mask | None = None
    revealed_rewards: Floats | None = None
    click: Floats | None = None
    conversion: Floats | None = None
    elapsed: Floats | None = None
    row_ids: NDArray[np.int64] | None = None
    caps: Floats | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "contexts", _contexts(self.contexts))
        length = int(self.contexts.shape[0])
        put(self, "actions", _codes(self.actions, length))
        put(self, "rewards", _column("rewards", self.rewards, length, FINITE_REWARDS))
        given = self.__dict__
        for name, rule, good in _COLUMNS:
            if given[name] is not None:
                put(self, name, _column(name, given[name], length, rule, good))
        for name, dtype in _TABLES:
            if given[name] is not None:
                put(self, name, _table(name, given[name], length, dtype))
        _check_revealed(self.revealed, self.revealed_rewards)
        if self.row_ids is not None:
            put(self, "row_ids", as_ids(self.row_ids))
            if len(self.row_ids) != length:
                rule = f"one id per context row is needed, {length} here"
                raise InputError("row_ids", f"shape {self.row_ids.shape}", rule, "match the lengths")

    @classmethod
    def encoded(cls, contexts: Any, codes: Codes, rewards: ArrayLike) -> Self:
        """Return a batch of a numeric table, valid codes and rewards; only the rewards are checked again."""
        length = int(contexts.shape[0])
        _one_each(codes, length)
        made = object.__new__(cls)
        # Columns that are not given are None by the class.
        put = object.__setattr__
        put(made, "contexts", contexts)
        put(made, "actions", codes)
        put(made, "rewards", _column("rewards", rewards, length, FINITE_REWARDS))
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
    ``contexts`` (n, d) and ``eligible``, (n, M) or None for all, are what was decided about, as numbers.

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
    eligible: Mask | None = None

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
    ) -> None:
        self.actions, self.propensities, self.exact, self.ids = actions, propensities, exact, ids
        self.episode, self._first = episode, first
        self._make = table

    @property
    def keys(self) -> Any:
        """What the draw of each row was keyed by (n,), within its episode; None for a decision without a bandit."""
        if self.ids is not None or self._first is None:
            return self.ids
        return np.arange(self._first, self._first + len(self))

    @cached_property
    def _table(self) -> Scores:
        return self._make()

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: the tables themselves, as what computes them is a policy with its state."""
        kept = ("actions", "propensities", "exact", "ids", "episode", "_first", "contexts", "eligible")
        return {name: getattr(self, name) for name in kept} | {"_table": self._table}

    def relabel(
        self, labels: NDArray[Any], ids: Any, episode: int, first: int | None, contexts: Floats, eligible: Mask | None
    ) -> "Decision":
        """Put labels (M,) in place of codes, and say what was decided about and drawn by; return the decision."""
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
        return self._table.probabilities

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
    ``code`` the worst result code of the solve (0 fine, 1 jitter added, 2 rank fallback).
    """

    rows: int
    counts: Floats
    rate: Floats | None = None
    code: int = 0
