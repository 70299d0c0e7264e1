"""What a bandit has learned and what it calls things, and users' columns read by it."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from spuir.base.column_drift import Drift
from spuir.base.records import FLOAT, Batch, Codes, Decision, Floats, Mask, State
from spuir.core.statistics import dense_rows
from spuir.core.ties import eligible_mask
from spuir.errors import InputError, ParameterError
from spuir.tables.contexts import as_table, column_names
from spuir.tables.encoder import Encoder
from spuir.tables.labels import Labels
from spuir.tables.lineage import Lineage

FURTHER = ("revealed", "revealed_rewards", "click", "conversion", "elapsed", "row_ids")
"""Columns of a batch that a bandit hands on as they are."""


class _Features(NamedTuple):
    """The features (n, d) of raw rows, which take the place of these rows."""

    features: Floats


class Model(NamedTuple):
    """Everything that a decision reads, swapped as one: labels, columns, the policy's state, the encoder.

    ``lineage`` says what the state was learned from.
    """

    labels: Labels
    names: tuple[str, ...] | None = None
    state: State | None = None
    encoder: Encoder | None = None
    lineage: Lineage = Lineage()

    def names_after(self, X: Any) -> tuple[str, ...] | None:
        """Return the names of the context columns, which the first table that has names settles."""
        if self.names is not None:
            return self.names
        names = column_names(X) if self.encoder is None else self.encoder.columns
        return None if names is None else tuple(names)

    @property
    def input_names(self) -> list[str]:
        """Names of the encoded context columns; x0, x1, … where they have none."""
        named = self.names if self.encoder is None else self.encoder.names
        dim = 0 if self.state is None else self.state.dim
        return list(named) if named else [f"x{i}" for i in range(dim)]

    def _table(self, X: Any) -> Any:
        """Return contexts as a numeric table (n, d) or a CSR matrix, encoded where there is an encoder."""
        if isinstance(X, Decision):
            return X.contexts
        if isinstance(X, _Features):
            return X.features
        given = X if self.encoder is None else self.encoder.transform(X)
        return as_table(given, self.names)

    def encoded(self, X: Any) -> tuple[Any, Drift | None]:
        """Return what stands for X in :meth:`contexts` and :meth:`batch`, encoded, and how its values have drifted."""
        if isinstance(X, Decision):
            return X, X.drift
        if self.encoder is None:
            return X, None
        features, drift = self.encoder.transform_and_count(X)
        return _Features(features), drift

    def contexts(self, X: Any, own: bool) -> Floats:
        """Return contexts as float64 (n, d), in memory of their own if ``own``."""
        if self.encoder is None and type(X) is np.ndarray and X.dtype == FLOAT and X.ndim == 2 and X.shape[1]:
            return X.copy() if own else np.ascontiguousarray(X)  # what a service passes for each request
        table = self._table(X)
        contexts = dense_rows(table, slice(None))
        shared = own and self.encoder is None and isinstance(table, np.ndarray)
        return contexts.copy() if shared and np.may_share_memory(contexts, table) else contexts

    def eligible(self, given: ArrayLike | None, n: int) -> Mask | None:
        """Return which active actions may be chosen in n rows (n, M); None for all."""
        if given is None and self.labels.all_active:
            return None
        m = len(self.labels.names)
        mask = eligible_mask(self.labels.table("eligible", given), n, m)
        return eligible_mask(mask & np.array(self.labels.active), n, m)

    @property
    def caps(self) -> Floats | None:
        """The largest probabilities (M,) of actions that ramp up now; None if none does."""
        return self.labels.caps(0 if self.state is None else self.state.episode) if self.labels.ramps else None

    @staticmethod
    def decision_ids(X: Any) -> Any:
        """Return the ids of a decision, each with the number of its episode; None if X is not one with ids."""
        if not isinstance(X, Decision) or X.ids is None:
            return None
        return [f"{X.episode}:{one}" for one in X.ids]

    def executed(self, X: Any, given: dict[str, Any]) -> dict[str, Any]:
        """Return actions, rewards, propensities and eligibility as ``given``, or of the decision that X is."""
        if not isinstance(X, Decision):
            if given["actions"] is None or given["rewards"] is None:
                got, rule = f"X of type {type(X).__name__} alone", "an episode has contexts, actions and rewards"
                raise InputError("partial_fit", got, rule, "pass all three, or a decision and its rewards")
            return given
        if X.contexts is None:
            rule = "it does not know its contexts"
            raise InputError("decision", "one of a policy", rule, "pass what Bandit.decide returned")
        actions, rewards = given["actions"], given["rewards"]
        if rewards is None:  # partial_fit(decision, rewards)
            actions, rewards = None, actions
        others = [name for name in ("propensities", "eligible") if given[name] is not None]
        if actions is not None or others or rewards is None:
            got = "no rewards" if rewards is None else f"{'actions' if actions is not None else others[0]} beside it"
            rule = "it stands for contexts, actions, propensities and eligibility"
            raise InputError("decision", got, rule, "call partial_fit(decision, rewards), or pass every column")
        eligible = X.eligible
        if eligible is not None and eligible.shape[1] < len(self.labels.names):  # actions were added since
            more = len(self.labels.names) - eligible.shape[1]
            eligible = np.pad(eligible, ((0, 0), (0, more)))
        return {"actions": X.actions, "rewards": rewards, "propensities": X.propensities, "eligible": eligible}

    def batch(
        self,
        X: Any,
        actions: Any,
        rewards: ArrayLike,
        propensities: ArrayLike | None,
        sample_weight: ArrayLike | None,
        eligible: ArrayLike | None,
        columns: dict[str, Any],
    ) -> Batch:
        """Return an episode's columns as a batch of codes."""
        contexts = self._table(X)
        codes = self.labels.encode(actions)
        caps = self.caps
        bare = propensities is None and sample_weight is None and eligible is None and not columns
        if bare and self.labels.all_active and caps is None:
            return Batch.encoded(contexts, codes, rewards)
        n, m = len(codes), len(self.labels.names)
        for name, column in columns.items():
            if name not in FURTHER:
                raise ParameterError("argument", repr(name), f"the further columns are {', '.join(FURTHER)}", "drop it")
            if name.startswith("revealed") and column is not None:
                columns[name] = self.labels.table(name, column)
                if np.shape(column) != (n, m):
                    rule = f"it must be ({n}, {m})"
                    raise InputError(name, f"shape {np.shape(column)}", rule, "one column per action")
        given: dict[str, Any] = {"rewards": rewards, "propensities": propensities, "weights": sample_weight}
        if eligible is not None or not self.labels.all_active:
            given["eligible"] = self._could_be_executed(eligible, codes)
        made = Batch(contexts=contexts, actions=codes, **given, **columns, caps=caps)
        # Rows of weight 0 are no rows, and an episode without rows is none.
        return made if made.weights is None or made.weights.all() else made.at(np.flatnonzero(made.weights))

    def _could_be_executed(self, eligible: ArrayLike | None, codes: Codes) -> Mask:
        """Return which actions could be chosen (B, M): the active ones, and in each row the one that was."""
        given, every = self.labels.table("eligible", eligible), np.arange(len(codes))
        mask = eligible_mask(given, len(codes), len(self.labels.names))
        allowed = mask[every, codes]
        if not allowed.all():
            row = int(np.argmin(allowed))
            got = f"{self.labels.names[codes[row]]!r} executed but not eligible at row {row}"
            raise InputError("eligible", got, "an executed action was eligible", "correct the mask")
        # The policy's own propensities are those of a rule without retired actions, late rows of them aside.
        mask = mask & np.array(self.labels.active)
        mask[every, codes] = True
        return mask
