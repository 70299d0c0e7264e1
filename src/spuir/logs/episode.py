"""The episode as an object: record decisions, add rewards when they arrive, and close it to get the batch."""

import threading
from collections.abc import Hashable
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spuir.bandit import Bandit
from spuir.base.records import Batch, Decision, Floats
from spuir.errors import InputError, NotFittedError, SnapshotError
from spuir.logs.columns import ACTION_PREFIX, COLUMNS
from spuir.logs.decision_rows import DecisionRows, as_list, check_values, context_columns, joined, make_rows
from spuir.logs.episode_file import SAVE_AGAIN, labels_in, pack_rows, read_episode, unpack_rows, write_episode
from spuir.logs.frames import to_table
from spuir.logs.rewards import Report, RewardRules, Settled, settle
from spuir.logs.times import UNKNOWN, Instants, instants
from spuir.tables.arrow import pa
from spuir.tables.contexts import as_table
from spuir.tables.labels import Labels


class _Closed(NamedTuple):
    """What closing leaves: the rows whose reward is known, and their rewards."""

    settled: Settled
    kept: NDArray[np.intp]
    ids: list[Hashable]
    rows: DecisionRows


class Episode:
    """One episode, open for decisions and rewards until it is closed.

    Parameters
    ----------
    default
        The reward of a decision for which none arrives; None leaves such decisions out of the batch.
    aggregation
        How to combine several rewards of one decision: "earliest", "sum", "average", "median", "min" or "max".
    window
        How long after its decision a reward is in time: seconds, or a text like "15m", "6h", "1d". None = always.
    late
        What a reward after the window is: "drop" leaves it out, "accept" takes it, "refuse" raises at closing.

    Examples
    --------
    >>> episode = spuir.Episode(default=0.0)
    >>> episode.record([[1.0, 0.3], [1.0, 0.8]], ids=["ann", "bob"], actions=["mail", "call"])
    2
    >>> episode.reward("bob", 1.0)
    >>> episode.close().silent
    1
    >>> spuir.Bandit("puir", ["mail", "call"]).partial_fit(**episode.columns()).n_episodes_
    1

    Notes
    -----
    Any number of threads may record and reward. A reward may come before its decision was recorded; a reward without a
    decision when the episode closes is an orphan. A refused call changes nothing.
    """

    def __init__(
        self, default: float | None = 0.0, aggregation: str = "earliest", window: Any = None, late: str = "drop"
    ) -> None:
        self.rules = RewardRules(default=default, aggregation=aggregation, window=window, late=late)
        self._lock = threading.Lock()
        self._positions: dict[Hashable, int] = {}
        self._origins: dict[Hashable, int] = {}
        self._rows: list[DecisionRows] = []
        self._duplicates = 0
        self._ids: list[Hashable] = []
        self._values: list[Floats] = []
        self._times: list[Instants] = []
        self._closed: _Closed | None = None
        self._as_of: int | None = None

    # ---- while it is open -----------------------------------------------------------------------------------

    def record(
        self,
        contexts: Any,
        decision: Decision | None = None,
        *,
        ids: Any = None,
        actions: Any = None,
        propensities: ArrayLike | None = None,
        time: Any = None,
        eligible: Any = None,
        weights: ArrayLike | None = None,
        action_features: ArrayLike | None = None,
    ) -> int:
        """Record decisions, one or many, and return how many were new; an id that is known already is counted only.

        Parameters
        ----------
        contexts
            (n, d) array, list, DataFrame or CSR matrix; (d,) for a single decision. A copy is kept.
        decision
            What ``bandit.decide(contexts, ids=…)`` returned; it brings ids, actions and propensities.
        ids
            (n,) hashable ids, or one.
        actions
            (n,) executed actions as labels, or one; also where another than the decision's was executed.
        propensities
            (n,) probabilities of the executed actions, or one; None = unknown.
        time
            When: epoch seconds, datetimes or ISO texts, one for each row or one for all. A window needs it.
        eligible
            What could be chosen: (n, M) or (M,) mask, or one list of labels per row.
        weights
            (n,) weights ≥ 0, or one.
        action_features
            (n, y) features per decision of the executed actions, in the order of the bandit.
        """
        if decision is not None:
            ids, actions, propensities = _from_decision(decision, ids, actions, propensities)
            eligible = decision.eligible if eligible is None else eligible
            if action_features is None and decision.action_features is not None:
                if actions is not decision.actions:
                    rule = "the decision's features are those of its own actions"
                    raise InputError("actions", "other actions than the decision's", rule, "pass action_features too")
                action_features = decision.action_features
        names = as_list("ids", ids)
        rows = make_rows(contexts, actions, self._when(time, names), propensities, weights, eligible, action_features)
        with self._lock:
            self._check_open("decisions")
            self._check_alike(rows)
            if decision is not None:
                self._origins |= dict.fromkeys(names, decision.episode)
            return self._add(names, rows)

    def _add(self, names: list[Hashable], rows: DecisionRows) -> int:
        new: list[int] = []
        for at, name in enumerate(names):
            if name not in self._positions:
                self._positions[name] = len(self._positions)
                new.append(at)
        self._duplicates += len(names) - len(new)
        if new:
            self._rows.append(rows if len(new) == len(names) else rows.take(np.array(new, np.intp)))
        return len(new)

    def reward(self, ids: Any, rewards: ArrayLike, time: Any = None) -> None:
        """Take rewards by the ids of their decisions, one or many.

        Parameters
        ----------
        ids
            (n,) ids, or one.
        rewards
            (n,) finite values, or one.
        time
            When they came, as in :meth:`record`. A window needs it; without one, the order of arrival counts.
        """
        names = as_list("ids", ids)
        values, when = check_values("rewards", rewards, len(names)).copy(), self._when(time, names)
        with self._lock:
            self._check_open("rewards")
            self._ids += names
            self._values.append(values)
            self._times.append(when)

    def _when(self, time: Any, names: list[Hashable]) -> Instants:
        found = instants(time, len(names), "time")
        unknown = found == UNKNOWN
        if self.rules.window is not None and unknown.any():
            got = f"none for {names[int(np.argmax(unknown))]!r}"
            raise InputError("time", got, "a window needs the time of every row", "pass time=, or no window")
        return found

    def _check_open(self, what: str) -> None:
        if self._closed is not None:
            raise InputError("episode", f"{what} after closing", "a closed episode takes nothing more", "open another")

    def _check_alike(self, rows: DecisionRows) -> None:
        """Refuse decisions that cannot stand in one table with those before."""
        if not self._rows:
            return
        before, now = self._rows[0].shape(), rows.shape()
        for what, had in before.items():
            if now[what] != had:
                rule = f"this episode has {had} so far"
                raise InputError(what, now[what], rule, "give every decision the same columns")

    def __len__(self) -> int:
        """Return how many decisions were recorded, each id once."""
        return len(self._positions)

    @property
    def is_closed(self) -> bool:
        """Whether the episode was closed."""
        return self._closed is not None

    # ---- closing --------------------------------------------------------------------------------------------

    def close(self, as_of: Any = None) -> Report:
        """Settle every decision's reward and return what was counted; closing again changes nothing.

        Parameters
        ----------
        as_of
            The time until which rewards are complete, as in :meth:`record`. Decisions whose window ends later are left
            out of the batch; None leaves out none.
        """
        end = None if as_of is None else int(instants(as_of, 1, "as_of")[0])
        with self._lock:
            if self._closed is None:
                self._closed, self._as_of = self._settle(end), end
            return self._closed.settled.report

    def _settle(self, as_of: int | None) -> _Closed:
        rows = joined(self._rows)
        owners = np.array([self._positions.get(name, -1) for name in self._ids], np.intp)
        values = np.concatenate([np.empty(0), *self._values])
        times = np.concatenate([np.empty(0, np.int64), *self._times])
        settled = settle(self.rules, rows.times, owners, values, times, self._ids, as_of)
        report = settled.report + Report(duplicates=self._duplicates)
        kept = np.flatnonzero(~np.isnan(settled.rewards))
        return _Closed(settled._replace(report=report), kept, list(self._positions), rows)

    def _result(self) -> _Closed:
        if self._closed is None:
            rule, remedy = "rewards are settled when it closes", "call close()"
            raise NotFittedError("episode", "an open episode", rule, remedy)
        return self._closed

    @property
    def report(self) -> Report:
        """What was counted; known once the episode is closed."""
        return self._result().settled.report

    @property
    def ids(self) -> list[Hashable]:
        """Ids of the rows that are learned from, in their order."""
        closed = self._result()
        return [closed.ids[at] for at in closed.kept]

    def columns(self) -> dict[str, Any]:
        """Return the rows as the arguments of ``partial_fit``: ``bandit.partial_fit(**episode.columns())``."""
        closed = self._result()
        rows = closed.rows.take(closed.kept)
        if not rows.actions:
            rule = "there is nothing to learn without a decision and its reward"
            raise InputError("episode", f"{len(self)} decisions, 0 with a reward", rule, "skip this episode")
        return {
            "X": rows.contexts,
            "actions": rows.actions,
            "rewards": closed.settled.rewards[closed.kept],
            "propensities": rows.propensities,
            "sample_weight": rows.weights,
            "eligible": rows.eligible if rows.eligible is None or rows.eligible.ndim > 1 else rows.eligible.tolist(),
            **({} if rows.features is None else {"action_features": rows.features}),
            # Ids may return in later episodes, such as those of customers: the model that decided tells them apart.
            "ids": [f"{self._origins[one]}:{one}" if one in self._origins else one for one in self.ids],
        }

    def batch(self, bandit: Bandit | None = None) -> Batch:
        """Return the rows as a batch; labels are encoded as ``bandit`` does, and have to be codes without one."""
        found = self.columns()
        actions = found["actions"]
        codes = np.asarray(actions) if bandit is None else Labels.of(bandit.actions_.tolist()).encode(actions)
        return Batch(
            contexts=as_table(found["X"], None),
            actions=codes,
            rewards=found["rewards"],
            propensities=found["propensities"],
            weights=found["sample_weight"],
            eligible=found["eligible"],
        )

    def table(self) -> "pa.Table":
        """Return all decisions as a canonical log, unknown rewards missing, to be written with ``write_log``."""
        closed = self._result()
        rows, settled = closed.rows, closed.settled
        unknown = np.isnan(settled.rewards)
        made: dict[str, Any] = {
            "decision_id": closed.ids,
            "time": pa.array(rows.times, pa.timestamp("us", "UTC"), mask=rows.times == UNKNOWN),
            "action": rows.actions,
            "reward": pa.array(settled.rewards, mask=unknown),
            "propensity": rows.propensities,
            "eligible": None if rows.eligible is None else rows.eligible.tolist(),
            "reward_time": pa.array(settled.times, pa.timestamp("us", "UTC"), mask=settled.times == UNKNOWN),
            "weight": rows.weights,
        }
        made = {name: values for name, values in made.items() if values is not None}
        if rows.features is not None:
            made |= {f"{ACTION_PREFIX}y{at}": column for at, column in enumerate(rows.features.T)}
        for name, values in context_columns(rows.contexts).items():
            if name in COLUMNS:
                rule = "the log uses that name itself"
                raise InputError("contexts", f"column {name!r}", rule, "record it under another name")
            made[name] = values
        return to_table(made)

    # ---- saving ---------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write the episode, open or closed, to exactly that path, atomically; :meth:`load` continues it."""
        with self._lock:
            rows, rules = joined(self._rows), self.rules
            header = {
                "rules": {name: getattr(rules, name) for name in ("default", "aggregation", "window", "late")},
                "duplicates": self._duplicates,
                "closed": self._closed is not None,
                "as_of": self._as_of,
            }
            origins = [self._origins.get(name, -1) for name in self._positions]
            arrays = pack_rows(rows) | {
                "rewards": np.concatenate([np.empty(0), *self._values]),
                "reward_times": np.concatenate([np.empty(0, np.int64), *self._times]),
                "origins": np.array(origins, np.int64),
            }
            lists = {"ids": list(self._positions), "reward_ids": self._ids, **labels_in(rows)}
        write_episode(path, header, lists, arrays)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Episode":
        """Return an episode that :meth:`save` wrote; one that was open can be recorded into and rewarded."""
        header, lists, arrays = read_episode(path)
        try:
            made = cls(**header["rules"])
            ids, rewarded = lists["ids"], lists["reward_ids"]
            values, times, origins = (arrays[name] for name in ("rewards", "reward_times", "origins"))
            made._duplicates = int(header["duplicates"])
            alike = len({len(rewarded), len(values), len(times)}) == 1 and len(set(ids)) == len(ids) == len(origins)
        except (KeyError, TypeError, ValueError) as broken:
            rule = "an episode has rules, decisions and rewards"
            raise SnapshotError(str(path), repr(broken)[:80], rule, SAVE_AGAIN) from None
        rows = unpack_rows(str(path), lists, arrays)
        if not alike or len(ids) != len(rows.actions):
            raise SnapshotError(str(path), "columns of different lengths", "each decision has one id", SAVE_AGAIN)
        made._positions = {name: at for at, name in enumerate(ids)}
        made._origins = {name: int(one) for name, one in zip(ids, origins, strict=True) if one >= 0}
        made._rows = [rows] if ids else []
        made._ids, made._values, made._times = rewarded, [values], [times]
        if header.get("closed"):
            made._as_of = header.get("as_of")
            made._closed = made._settle(made._as_of)
        return made

    def __getstate__(self) -> dict[str, Any]:
        """Leave the lock behind when copied."""
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make a new lock, since locks are not pickled."""
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        """Show whether it is open, and what it holds."""
        return f"Episode({'closed' if self.is_closed else 'open'}, {len(self)} decisions, {len(self._ids)} rewards)"


def _from_decision(decision: Decision, ids: Any, actions: Any, propensities: Any) -> tuple[Any, Any, Any]:
    """Return ids, actions and propensities of a decision, as far as the caller did not give others."""
    if ids is None and decision.ids is None:
        rule = "rewards find their decision by its id"
        raise InputError("decision", "no ids", rule, "call decide(X, ids=…), or pass ids here")
    if actions is not None and propensities is None:
        rule = "the decision's propensities are those of its own actions"
        raise InputError("actions", "other actions than the decision's", rule, "pass their propensities too")
    return (
        decision.ids if ids is None else ids,
        decision.actions if actions is None else actions,
        decision.propensities if propensities is None else propensities,
    )
