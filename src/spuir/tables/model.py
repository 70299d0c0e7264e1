"""A bandit's state, labels, columns and encoder in one record, which also reads users' columns."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from spuir.base.checked_arrays import check_one_each
from spuir.base.column_drift import Drift
from spuir.base.pairs import Pairs
from spuir.base.records import FLOAT, Batch, Codes, Decision, Floats, Mask, State
from spuir.core.statistics import dense_rows
from spuir.core.ties import eligible_mask
from spuir.errors import InputError, ParameterError
from spuir.tables import eligible_sets
from spuir.tables.action_catalogue import Catalogue
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

    ``lineage`` says what the state was learned from. ``catalogue`` describes the actions, if they have features.
    """

    labels: Labels
    names: tuple[str, ...] | None = None
    state: State | None = None
    encoder: Encoder | None = None
    lineage: Lineage = Lineage()
    catalogue: Catalogue | None = None

    def holding(self, state: State | None, **changes: Any) -> "Model":
        """Return the model with another state, which keeps the features of actions from now on."""
        catalogue = self.catalogue
        if catalogue is not None and catalogue.features is not None and state is not None:
            catalogue = replace(catalogue, features=None)
        return self._replace(state=state, catalogue=catalogue, **changes)

    @property
    def varying(self) -> tuple[str, ...]:
        """Names of the features of actions that come with each decision."""
        return () if self.catalogue is None else self.catalogue.varying

    def naming(self, action_features: Any) -> "Model":
        """Return the model with the names of the features per decision, which the first call that has some settles."""
        if action_features is None:
            if self.varying:
                rule = f"this bandit has the features per decision {', '.join(map(repr, self.varying))}"
                raise InputError("action_features", None, rule, "pass them")
            return self
        if self.varying:
            return self
        if self.state is not None:
            rule = "this bandit started without features per decision"
            raise InputError("action_features", "features per decision", rule, "call fit to start again with them")
        catalogue = Catalogue() if self.catalogue is None else self.catalogue
        return self._replace(catalogue=replace(catalogue, varying=eligible_sets.varying_names(action_features)))

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
        dim = 0 if self.state is None else self.state.dim - len(self.varying)
        return [*(named or [f"x{i}" for i in range(dim)]), *self.varying]

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

    def eligible(self, given: Any, n: int, action_features: Any = None) -> Mask | Pairs | None:
        """Return which active actions may be chosen in n rows, as a mask (n, M) or as pairs; None for all."""
        if action_features is not None:
            return eligible_sets.read_varying(self.labels, action_features, given, n, self.varying)
        return eligible_sets.read_eligible(self.labels, given, n)

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
                missing = "actions" if given["actions"] is None else "rewards"
                got, rule = f"X without {missing}", "an episode has contexts, actions and rewards"
                raise InputError("partial_fit", got, rule, "pass all three, or a decision and its rewards")
            return given
        if X.contexts is None:
            rule = "it does not know its contexts"
            raise InputError("decision", "one of a policy", rule, "pass what Bandit.decide returned")
        actions, rewards = given["actions"], given["rewards"]
        if rewards is None:  # partial_fit(decision, rewards)
            actions, rewards = None, actions
        others = [name for name in ("propensities", "eligible", "action_features") if given[name] is not None]
        if actions is not None or others or rewards is None:
            got = "no rewards" if rewards is None else f"{'actions' if actions is not None else others[0]} as well"
            rule = "it carries contexts, actions, propensities and eligibility"
            raise InputError("decision", got, rule, "call partial_fit(decision, rewards), or pass every column")
        eligible = X.eligible
        more = 0 if eligible is None else len(self.labels.names) - eligible.shape[1]  # actions were added since
        if isinstance(eligible, np.ndarray) and more:
            eligible = np.pad(eligible, ((0, 0), (0, more)))
        decided = {"actions": X.actions, "rewards": rewards, "propensities": X.propensities, "eligible": eligible}
        return decided | {"action_features": X.action_features}

    def batch(
        self,
        X: Any,
        actions: Any,
        rewards: ArrayLike,
        propensities: ArrayLike | None,
        sample_weight: ArrayLike | None,
        eligible: Any,
        columns: dict[str, Any],
        action_features: Any = None,
    ) -> Batch:
        """Return an episode's columns as a batch of codes; features per decision are the last columns of contexts."""
        contexts = self._table(X)
        codes = self.labels.encode(actions)
        if action_features is not None:
            own = eligible_sets.read_executed(self.labels, action_features, codes, self.varying)
            check_one_each(codes, int(contexts.shape[0]))
            contexts = np.column_stack([dense_rows(contexts, slice(None)), own])
            if eligible is None and eligible_sets.is_long(action_features):
                eligible = eligible_sets.long_pairs(self.labels, action_features, len(codes))
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
        # Rows of weight 0 do not count, and without rows there is no episode.
        return made if made.weights is None or made.weights.all() else made.at(np.flatnonzero(made.weights))

    def _could_be_executed(self, eligible: Any, codes: Codes) -> Mask | Pairs:
        """Return which actions could be chosen (B, M): the active ones, and in each row the one that was."""
        pairs = None if eligible is None else eligible_sets.as_pairs(self.labels, eligible, len(codes))
        if pairs is not None:
            return eligible_sets.with_executed(self.labels, pairs, codes)
        given, every = self.labels.table("eligible", eligible), np.arange(len(codes))
        mask = eligible_mask(given, len(codes), len(self.labels.names))
        allowed = mask[every, codes]
        if not allowed.all():
            row = int(np.argmin(allowed))
            got = f"{self.labels.names[codes[row]]!r} executed but not eligible at row {row}"
            raise InputError("eligible", got, "an executed action was eligible", "correct the mask")
        # The policy's own propensities leave out retired actions, except in late rows that executed one.
        mask = mask & np.array(self.labels.active)
        mask[every, codes] = True
        return mask
