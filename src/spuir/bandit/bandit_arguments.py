"""The base of a bandit: its arguments, with scikit-learn's methods for them, and what every call reads of the model."""

import threading
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np

from spuir.base import streams
from spuir.base.column_drift import Drift
from spuir.base.parameters import check_names, parameters_of
from spuir.base.records import Floats, Info
from spuir.errors import DriftWarning, InputError, ParameterError
from spuir.policies import POLICIES, Policy, as_policy, make_policy
from spuir.tables.action_catalogue import Catalogue, labels_and_features, read_catalogue
from spuir.tables.encoder import Encoder
from spuir.tables.labels import Labels
from spuir.tables.lineage import Notes
from spuir.tables.model import Model

ARGUMENTS = ("policy", "actions", "random_state", "encoder")
"""What a bandit is made from, besides the parameters of its policy."""
SHOWN_ACTIONS = 50
"""Most labels that a bandit shows of itself."""


class BanditArguments:
    """The arguments of a bandit, checked when they are given, and the policy that they describe."""

    _current: Model
    _drift: Drift | None = None
    _warned: frozenset[str] = frozenset()
    """Columns that a warning has said to have drifted."""
    _advises = True
    """Whether to warn: of columns that have drifted, and of a policy that cannot learn from the first batch. ``run``
    compares policies as they are, and a service counts drift."""

    def __init__(
        self,
        policy: Policy | str = "auto",
        actions: Any = None,
        random_state: streams.Seed = None,
        encoder: Encoder | None = None,
        **policy_parameters: Any,
    ) -> None:
        made = _with_parameters(policy, policy_parameters)
        self._named_actions = (actions, *_check_arguments(made, actions, encoder))
        self.policy, self.policy_parameters = policy, policy_parameters
        self.actions = actions
        self.random_state = random_state
        self.encoder = encoder
        self._made = (policy, policy_parameters, made)
        self._notes = Notes()
        self._lock = threading.RLock()

    @property
    def policy_(self) -> Policy:
        """The policy as an object."""
        policy, parameters, made = self._made
        if policy is not self.policy or parameters is not self.policy_parameters:
            made = _with_parameters(self.policy, self.policy_parameters)
            self._made = (self.policy, self.policy_parameters, made)
        return made

    @property
    def _model(self) -> Model:
        if getattr(self, "_current", None) is None:
            with self._lock:
                if "_current" not in self.__dict__:
                    self._reset()
        return self._current

    def _reset(self) -> None:
        self._seed = streams.as_seed(self.random_state)
        self._rows = streams.RowNumbers()
        if self._named_actions[0] is not self.actions:  # set as an attribute
            self._named_actions = (self.actions, *_check_arguments(self.policy_, self.actions, self.encoder))
        _, labels, catalogue = self._named_actions
        self._current = Model(labels=labels, encoder=self.encoder, catalogue=catalogue)
        self._checked: Policy | None = None
        self.last_info_: Info | None = None
        self._drift, self._warned = None, frozenset()

    @property
    def drift_(self) -> Drift | None:
        """How many values of raw columns were unlike the sample of the encoder, in all rows decided or learned.

        Counted since the bandit was made, loaded or fitted again, and not saved. None before the first row,
        and without an encoder.
        """
        return self._drift

    def _count(self, drift: Drift | None) -> None:
        """Add to the counted values."""
        if drift is not None:
            with self._lock:
                self._drift = drift if self._drift is None else self._drift + drift

    def _warn(self, drift: Drift | None) -> None:
        """Warn of columns that have drifted, once for each."""
        found = dict(drift.notable()) if drift is not None and self._advises else {}
        if found.keys() - self._warned:
            with self._lock:
                fresh = {column: how for column, how in found.items() if column not in self._warned}
                self._warned |= fresh.keys()
            for column, how in fresh.items():
                said = f"column {column!r} has drifted: {how}"
                warnings.warn(f"{said}; check where it comes from, or train on newer rows.", DriftWarning, stacklevel=3)

    def _resume(self, model: Model, rows: dict[int, int]) -> None:
        """Take over a model, and how many rows were decided in its episode."""
        self._reset()
        self._current = model
        self._rows = streams.RowNumbers(rows)

    def _start(self, model: Model, dim: int) -> Any:
        """Return the model's state, or a fresh one for contexts of ``dim`` columns; refuse another number of them.

        Features per decision count as columns.
        """
        policy, varying = self.policy_, len(model.varying)
        if model.state is not None and model.state.dim != dim:
            dim, rule = dim - varying, f"this bandit knows {model.state.dim - varying}"
            raise InputError("X", f"{dim} columns", rule, "pass the same columns as before")
        if model.state is None:
            m = len(model.labels.names)
            state: Any = policy.init(m, dim, streams.generator(self._seed, "init"))
            if model.catalogue is None and not policy.takes_features:
                return state
            features = None if model.catalogue is None else model.catalogue.features
            state = policy.with_catalogue(state, np.zeros((m, 0)) if features is None else features, varying)
            for code in np.flatnonzero(~np.array(model.labels.active)):
                state = policy.retire(state, int(code))
            return state
        if self._checked is not policy:
            # The parameters may have changed since the state was made.
            policy.check_state(model.state)
            self._checked = policy
        return model.state

    def _named(self, model: Model, action_features: Any) -> Model:
        """Return the model with the names of the features per decision, if its policy has a use for them."""
        if action_features is not None and not self.policy_.takes_features:
            rule = f"policy {self.policy_.name!r} has no use for features of actions"
            raise InputError("action_features", "features per decision", rule, "use policy='hierarchical'")
        return model.naming(action_features)

    def _prepared(
        self, model: Model, X: Any, eligible: Any, action_features: Any, own: bool
    ) -> tuple[Model, Floats, Any, Any]:
        """Return the model with its columns named, contexts as float64 (a copy if ``own``), the state, and eligibility.

        Eligibility is (n, M) or pairs of rows and actions; None for all.
        """
        model = self._named(model, action_features)
        contexts = model.contexts(X, own)
        state = self._start(model, contexts.shape[1] + len(model.varying))
        return model, contexts, state, model.eligible(eligible, len(contexts), action_features)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments, and all parameters of the policy as ``policy__name``.

        >>> spuir.Bandit("puir", 2, alpha=0.5).get_params(deep=False)["alpha"]
        0.5
        """
        params: dict[str, Any] = {name: getattr(self, name) for name in ARGUMENTS} | self.policy_parameters
        if deep:
            params |= {f"policy__{name}": value for name, value in parameters_of(self.policy_).items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set constructor arguments, and policy parameters as ``name`` or ``policy__name``.

        What was learned keeps the encoder that it was learned with; another one takes effect in ``fit``. Another policy
        starts from its own parameters, and from those set with it. What is refused leaves everything as it was.
        """
        own = {name: params.pop(name) for name in ARGUMENTS if name in params}
        given = {name.removeprefix("policy__"): value for name, value in params.items()}
        policy = own.get("policy", self.policy)
        parameters = given if "policy" in own else self.policy_parameters | given
        made = _with_parameters(policy, parameters)
        actions = own.get("actions", self.actions)
        self._named_actions = (actions, *_check_arguments(made, actions, own.get("encoder", self.encoder)))
        for name, value in own.items():
            setattr(self, name, value)
        self.policy_parameters, self._made = parameters, (policy, parameters, made)
        if "encoder" in own and "_current" in self.__dict__ and self._current.state is None:
            self._current = self._current._replace(encoder=self.encoder)
        return self

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what kind of estimator this is, so that pipelines take it as their last step."""
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=True), input_tags=InputTags(sparse=True))

    def __repr__(self) -> str:
        """Show the constructor's arguments, with the actions that may be chosen now."""
        given = self._named_actions[1]
        labels = self._current.labels if "_current" in self.__dict__ else given
        live = [name for name, on in zip(labels.names, labels.active, strict=True) if on]
        shown: dict[str, Any] = {"random_state": self.random_state, "encoder": self.encoder, **self.policy_parameters}
        if self.encoder is None:
            del shown["encoder"]
        plain = isinstance(self.actions, (int, list, tuple))
        actions = repr(self.actions if plain and live == list(given.names) else live)
        if len(live) > SHOWN_ACTIONS and not actions.isdigit():
            actions = f"[{', '.join(map(repr, live[:3]))}, … {len(live):,} in all]"
        rest = "".join(f", {name}={value!r}" for name, value in shown.items())
        return f"{type(self).__name__}({self.policy!r}, {actions}{rest})"

    def __getstate__(self) -> dict[str, Any]:
        """Leave the lock behind when copied."""
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make a new lock, since locks are not pickled."""
        self.__dict__.update(state)
        self._lock = threading.RLock()


def _with_parameters(policy: Policy | str, parameters: Mapping[str, Any]) -> Policy:
    """Return a policy, given as an object or by name, with some of its parameters set."""
    if isinstance(policy, (list, tuple, int)):
        rule = "the first argument is a policy: a registered name, or an object made by make_policy"
        raise ParameterError("policy", repr(policy), rule, "pass labels, or their number, as actions=…")
    made = None if isinstance(policy, str) else as_policy(policy)
    name = policy if isinstance(policy, str) else policy.name
    known = [*POLICIES.get(policy).parameters(), "preset"] if isinstance(policy, str) else parameters_of(policy)
    unknown = [one for one in parameters if one not in known]
    check_names(unknown, [*known, *ARGUMENTS], "policy", name)
    if made is None:
        return make_policy(name, **parameters)
    return replace(made, **parameters) if parameters else made


def _check_arguments(policy: Policy, actions: Any, encoder: Any) -> tuple[Labels, Catalogue | None]:
    """Return the labels and the catalogue in what a constructor was given; refuse wrong arguments."""
    if actions is None:
        rule = "a bandit needs to know what it chooses among"
        raise ParameterError("actions", None, rule, "pass a list of labels, or their number M")
    given, raw = labels_and_features(actions)
    labels = Labels.parse(given)
    if raw is not None and not policy.takes_features:
        rule = "it has no use for features of actions"
        raise ParameterError("actions", f"features for policy {policy.name!r}", rule, "use policy='hierarchical'")
    if not isinstance(encoder, Encoder | None):
        rule = "an encoder is learned from raw rows"
        raise ParameterError("encoder", type(encoder).__name__, rule, "pass what Encoder.fit returns")
    return labels, read_catalogue(raw, labels.names)
