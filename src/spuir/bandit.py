"""The object that users hold: a policy with its state, labels for actions, and scikit-learn's verbs."""

import threading
from collections.abc import Hashable, Iterable
from copy import deepcopy
from dataclasses import replace
from os import PathLike
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from spuir.base import streams
from spuir.base.parameters import SEED, check_names, parameters_of
from spuir.base.records import Decision, Floats, Info, Mask, Scores, State, as_ids
from spuir.core import ties
from spuir.errors import InputError, NotFittedError, ParameterError, ShardError
from spuir.policies import Policy, as_policy, make_policy
from spuir.storage import model_file, snapshot
from spuir.storage.shards import Shard, fingerprint
from spuir.tables import explanations
from spuir.tables.encoder import Encoder
from spuir.tables.labels import Labels
from spuir.tables.model import Model

_UNTOUCHED = np.random.default_rng(0)
"""Stands in for a generator where none is drawn from, since making one costs as much as a tenth of an update."""


PARAMETERS = ("policy", "actions", "random_state", "encoder")
"""What a bandit is made from."""


class Coefficient(NamedTuple):
    """One row of the coefficient table."""

    action: Hashable
    feature: str
    coefficient: float
    standard_error: float


class Bandit:
    """A contextual batched bandit.

    Parameters
    ----------
    policy
        A policy object, or a registered name.
    actions
        Their number M (labels 0…M−1), or a list of labels.
    random_state
        None, a seed ≥ 0 or a numpy Generator.
    encoder
        None where contexts are numbers; an :class:`Encoder` lets every method take rows of raw columns instead.

    Notes
    -----
    ``decide`` may run in any number of threads while one ``partial_fit`` at a time learns: learning builds a new
    state and swaps it once.
    """

    def __init__(
        self,
        policy: Policy | str,
        actions: int | Iterable[Hashable],
        random_state: streams.Seed = None,
        encoder: Encoder | None = None,
    ) -> None:
        self.policy = policy
        self.actions = actions
        self.random_state = random_state
        self.encoder = encoder
        self._lock = threading.RLock()

    # ---- what is fitted -------------------------------------------------------------------------------------

    @property
    def policy_(self) -> Policy:
        """The policy as an object."""
        if not isinstance(self.policy, str):
            return self.policy
        made = self.__dict__.get("_made")
        if made is None or made[0] != self.policy:
            made = self._made = (self.policy, make_policy(self.policy))
        return made[1]

    @property
    def _model(self) -> Model:
        if getattr(self, "_current", None) is None:
            with self._lock:
                if "_current" not in self.__dict__:
                    self._reset()
        return self._current

    def _reset(self) -> None:
        labels = Labels.parse(self.actions)
        as_policy(self.policy)
        self._seed = streams.as_seed(self.random_state)
        self._rows: dict[int, int] = {}
        if not isinstance(self.encoder, Encoder | None):
            got, rule = type(self.encoder).__name__, "an encoder is learnt from raw rows"
            raise ParameterError("encoder", got, rule, "pass what Encoder.learn returns")
        self._current = Model(labels=labels, encoder=self.encoder)
        self._checked: Policy | None = None
        self.last_info_: Info | None = None

    def _resume(self, model: Model, rows: dict[int, int]) -> None:
        """Take over a model, and how many rows were decided in its episode."""
        self._reset()
        self._current = model
        self._rows = dict(rows)

    def _start(self, model: Model, dim: int) -> Any:
        """Return the model's state, or a fresh one for contexts of ``dim`` columns; refuse another number of them."""
        policy = self.policy_
        if model.state is not None and model.state.dim != dim:
            rule = f"this bandit knows {model.state.dim}"
            raise InputError("X", f"{dim} columns", rule, "pass the same columns as before")
        if model.state is None:
            return policy.init(len(model.labels.names), dim, streams.generator(self._seed, "init"))
        if self._checked is not policy:
            # The parameters may have changed since the state was made.
            policy.check_state(model.state)
            self._checked = policy
        return model.state

    @property
    def actions_(self) -> NDArray[Any]:
        """All labels in code order (M,), retired ones included."""
        return self._model.labels.array.copy()

    @property
    def active_(self) -> Mask:
        """Which of :attr:`actions_` may be chosen (M,)."""
        return np.array(self._model.labels.active)

    @property
    def n_episodes_(self) -> int:
        """How many episodes were learnt."""
        state = self._model.state
        return 0 if state is None else state.episode

    @property
    def n_features_in_(self) -> int:
        """How many context columns the bandit knows, raw ones where it has an encoder."""
        encoder = self._model.encoder
        return self._fitted().dim if encoder is None else len(encoder.columns)

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the context columns, where they came with a DataFrame or an encoder."""
        names = self._model.names
        if names is None:
            raise NotFittedError("feature_names_in_", "no column names", "they come with a DataFrame", "learn from one")
        return np.array(names, dtype=object)

    @property
    def state_(self) -> State:
        """The policy's state."""
        return self._fitted()

    @property
    def coefficients_(self) -> Floats:
        """Coefficients θ (M, p) of the feature columns, in the order of :attr:`actions_`."""
        policy, state = self._estimating()
        return policy.coefficients(state).copy()

    def _fitted(self) -> Any:
        state = self._model.state
        if state is None:
            raise NotFittedError(
                "bandit", "no contexts yet", "this is known after the first episode", "call partial_fit"
            )
        return state

    def _estimating(self) -> tuple[Any, Any]:
        """Return policy and state, if the policy estimates rewards by ridge regression."""
        policy = self.policy_
        if "ridge" not in policy.traits:
            rule = f"policy {policy.name!r} has no reward model"
            raise ParameterError("coefficients", "no estimates", rule, "use a policy with the trait 'ridge'")
        return policy, self._fitted()

    def coefficient_table(self) -> list[Coefficient]:
        """Return every coefficient with its feature's name and standard error; ``pandas.DataFrame`` takes the list.

        Errors come from the observed rows alone: an imputed row repeats an estimate and adds no information.
        """
        policy, state = self._estimating()
        model = self._model
        features = policy.feature_names(state, model.input_names)
        theta, errors = policy.coefficients(state), policy.standard_errors(state)
        return [
            Coefficient(label, feature, float(theta[code, column]), float(errors[code, column]))
            for code, label in enumerate(model.labels.names)
            for column, feature in enumerate(features)
        ]

    def explain(self, X: Any, actions: Any = None, eligible: ArrayLike | None = None) -> Any:
        """Return why each row's action is preferred, as a DataFrame with one row per row of contexts.

        Parameters
        ----------
        X, eligible
            As in :meth:`decide`.
        actions
            (n,) labels to explain, such as executed ones; None = the most probable actions.

        Notes
        -----
        ``competitor`` is the most probable of the other eligible actions, by score among equals. ``difference`` is how
        much larger the estimated reward of ``action`` is, ``standard_error`` the standard error of that difference,
        and the columns ``difference:…`` are its parts by feature, which add up to it; ``because`` names the largest
        three. With a nonlinear link they are parts of ⟨θ,s⟩. Errors come from the observed rows alone.
        """
        policy, _ = self._estimating()
        model = self._model
        contexts, _, mask = self._prepared(model, X, eligible, own=False)
        codes = None if actions is None else model.labels.encode(actions)
        return explanations.explain(policy, model, contexts, mask, codes)

    def contrast(self, first: Hashable, second: Hashable) -> Any:
        """Return coefficients of ``first`` minus those of ``second``, with standard errors, as a DataFrame."""
        return explanations.contrast(self._estimating()[0], self._model, first, second)

    def action_weights(self) -> Any:
        """Return the weight of each action's observed rows and the imputed share of its fit, as a DataFrame."""
        return explanations.action_weights(self._estimating()[0], self._model)

    # ---- deciding -------------------------------------------------------------------------------------------

    def decide(self, X: Any, eligible: ArrayLike | None = None, ids: Any = None) -> Decision:
        """Draw one action for each row of contexts, with its exact probability.

        Parameters
        ----------
        X
            (n, d) array, list, DataFrame (columns matched by name) or CSR matrix. With an encoder, raw rows: a
            DataFrame, an Arrow table, a dict of columns, a list of dict rows, or the dict of one row.
        eligible
            (n, M) or (M,) mask of the actions that may be chosen; None = all active.
        ids
            One id per row. The draw of a row is a hash of (seed, episode, id), so that deciding again with the same id
            repeats the decision. Without ids the row's number within the episode takes their place.
        """
        model = self._model
        contexts, state, mask = self._prepared(model, X, eligible, own=True)
        n = len(contexts)
        if ids is not None and hasattr(ids, "__len__") and len(ids) != n:
            raise InputError("ids", f"{len(ids)} of them", f"there are {n} rows", "give one id per row")
        first = self._number_rows(state.episode, n) if ids is None else None
        try:
            decided = self.policy_.decide(state, contexts, self._draws(state.episode, first, n, ids), mask)
        except BaseException:
            self._return_rows(state.episode, first, n)
            raise
        if model.state is None and n:  # after deciding, so that refused contexts settle no columns
            with self._lock:
                if self._current is model:  # no other thread has settled them, or added an action
                    self._current = model._replace(state=state, names=model.names_after(X))
        return decided.relabel(model.labels.array, ids, state.episode, first)

    def _draws(self, episode: int, first: int | None, n: int, ids: Any) -> streams.Draws:
        """Return the draws of n rows, keyed by their ids or by their numbers from ``first`` on."""
        if first is None:
            return streams.Draws.identified(self._seed, episode, ids)
        return streams.Draws.numbered(self._seed, episode, first, n)

    def _number_rows(self, episode: int, n: int) -> int:
        """Return the number of the first of n rows to decide in an episode; the next call starts behind them."""
        with self._lock:
            first = self._rows.get(episode, 0)
            if first == 0:
                # A decision that began before the last update may still need the numbers of its episode.
                self._rows = {number: used for number, used in self._rows.items() if number >= episode - 1}
            self._rows[episode] = first + n
        return first

    def _return_rows(self, episode: int, first: int | None, n: int) -> None:
        """Give back the numbers of rows that were refused, unless later ones are in use."""
        with self._lock:
            if first is not None and self._rows.get(episode) == first + n:
                self._rows[episode] = first
                self._rows = {number: used for number, used in self._rows.items() if used}

    def predict(self, X: Any, eligible: ArrayLike | None = None) -> NDArray[Any]:
        """Return the most probable action of each row, the first of equals; changes nothing."""
        model = self._model
        contexts, state, mask = self._prepared(model, X, eligible, own=False)
        return model.labels.array[self.policy_.predict(state, contexts, mask)]

    def predict_proba(self, X: Any, eligible: ArrayLike | None = None) -> Floats:
        """Return the probabilities (n, M) that :meth:`decide` draws from; changes nothing."""
        return self._table(X, eligible).probabilities

    def decision_function(self, X: Any, eligible: ArrayLike | None = None) -> Floats:
        """Return what the rule compares (n, M): mean + α·width, the mean, or the logit; changes nothing."""
        return self._table(X, eligible).scores

    def _table(self, X: Any, eligible: ArrayLike | None) -> Scores:
        model = self._model
        contexts, state, mask = self._prepared(model, X, eligible, own=False)
        return self.policy_.table(state, contexts, ties.eligible_mask(mask, len(contexts), state.n_actions))

    def _prepared(self, model: Model, X: Any, eligible: ArrayLike | None, own: bool) -> tuple[Floats, Any, Mask | None]:
        """Return contexts as float64 (a copy if ``own``), the state, and eligibility (n, M) or None for all."""
        contexts = model.contexts(X, own)
        return contexts, self._start(model, contexts.shape[1]), model.eligible(eligible, len(contexts))

    # ---- learning -------------------------------------------------------------------------------------------

    def partial_fit(
        self,
        X: Any,
        actions: Any,
        rewards: ArrayLike,
        propensities: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        eligible: ArrayLike | None = None,
        **columns: Any,
    ) -> Self:
        """Learn from one episode: its contexts, executed actions (labels) and their rewards.

        Parameters
        ----------
        X, actions, rewards
            (B, d) contexts, (B,) labels, (B,) rewards. An empty batch is not an episode.
        propensities
            (B,) probabilities of the executed actions; None = this policy's own at its current state.
        sample_weight
            (B,) weights; w counts as w copies of the row.
        eligible
            (B, M) or (M,) mask of what could have been chosen; it bears on propensities, not on imputation.
        **columns
            Further columns of :class:`spuir.Batch`: ``revealed``, ``revealed_rewards``, ``click``, ``conversion``,
            ``elapsed``, ``row_ids``.
        """
        with self._lock:
            model = self._model
            batch = model.batch(X, actions, rewards, propensities, sample_weight, eligible, columns)
            if not len(batch):
                return self
            policy, state = self.policy_, self._start(model, int(batch.contexts.shape[1]))
            state, info = policy.learn(state, batch, self._episode_rng(policy, state.episode))
            names = model.names_after(X)
            self._current = Model(model.labels, names, state, model.encoder)
            self.last_info_ = info
        return self

    def fit(self, X: Any, actions: Any, rewards: ArrayLike, *args: Any, **kwargs: Any) -> Self:
        """Reset, then learn one episode; arguments as in :meth:`partial_fit`.

        What was learnt is forgotten, and the actions are those of the constructor again: ones added or removed since
        are not kept.
        """
        fresh = Bandit(self.policy, self.actions, self.random_state, self.encoder)
        fresh.partial_fit(X, actions, rewards, *args, **kwargs)
        with self._lock:
            self._seed, self._rows, self._checked = fresh._seed, fresh._rows, fresh._checked
            self._current, self.last_info_ = fresh._model, fresh.last_info_
        return self

    def collect(
        self,
        X: Any,
        actions: Any,
        rewards: ArrayLike,
        row_ids: ArrayLike | None = None,
        episode: int | None = None,
        **columns: Any,
    ) -> Shard:
        """Return what these rows, one shard of the coming episode, contribute; changes nothing.

        ``row_ids`` are integers unique within the episode; sketched policies hash rows by them and need them.
        ``episode`` is the number of episodes that will be learnt before this one, None for as many as now; a later one
        can be collected ahead by policies with the trait "foldable", whose sums do not depend on what acts.
        """
        model, policy = self._model, self.policy_
        if "additive" not in policy.traits:
            raise ShardError("collect", f"policy {policy.name!r}", "its learning is not additive", "use partial_fit")
        if row_ids is None and "sketched" in policy.traits:
            raise ShardError("row_ids", None, "a sketched policy hashes rows by id", "number the rows of the episode")
        ids = None if row_ids is None else as_ids(row_ids)
        if ids is not None and len(np.unique(ids)) != ids.size:
            raise ShardError("row_ids", "a repeated id", "ids are unique within the episode", "number the rows")
        known = {name: columns.pop(name, None) for name in ("propensities", "sample_weight", "eligible")}
        batch = model.batch(X, actions, rewards, **known, columns={**columns, "row_ids": ids})
        state = self._start(model, int(batch.contexts.shape[1]))
        number = state.episode if episode is None else episode
        if not SEED.test(number) or number < state.episode:
            rule = f"it is the number of a coming episode, {state.episode} or later"
            raise ShardError("episode", repr(episode), rule, "leave it out for the next one")
        if number != state.episode and "foldable" not in policy.traits:
            rule = f"the sums of {policy.name!r} depend on the state that acts in their episode"
            raise ShardError("episode", number, rule, f"collect episode {state.episode}, then absorb it")
        sums = policy.collect(state, batch, self._episode_rng(policy, number))
        mark = self._fingerprint(model, state)
        return Shard(episode=int(number), fingerprint=mark, dim=state.dim, names=model.names_after(X), sums=sums)

    def absorb(self, shard: Shard) -> Self:
        """Learn one episode from the sum of its shards."""
        if not isinstance(shard, Shard):
            raise ShardError("shard", type(shard).__name__, "absorb takes what collect returned", "add the shards up")
        with self._lock:
            model = self._model
            if not shard.sums.rows:
                return self
            state = self._start(model, shard.dim)
            if (shard.episode, shard.fingerprint) != (state.episode, self._fingerprint(model, state)):
                got = f"episode {shard.episode}" if shard.episode != state.episode else "another policy or state"
                rule = f"this bandit awaits episode {state.episode} of its own policy and state"
                raise ShardError("shard", got, rule, "collect with a copy of this bandit as it is now")
            # A copy: absorbing may overwrite the sums, and a shard can be absorbed by several bandits.
            state, self.last_info_ = self.policy_.absorb(state, deepcopy(shard.sums))
            self._current = model._replace(state=state, names=model.names or shard.names)
        return self

    def _episode_rng(self, policy: Policy, episode: int) -> Generator:
        return streams.generator(self._seed, "learn", episode) if policy.draws_to_learn else _UNTOUCHED

    def _fingerprint(self, model: Model, state: Any) -> str:
        owner = (self._seed, model.labels.names)
        return fingerprint(self.policy_, state, owner if model.encoder is None else (*owner, model.encoder.fingerprint))

    def with_encoder(self, encoder: Encoder) -> "Bandit":
        """Return a bandit that knows the same and takes raw rows: this one learnt from rows that ``encoder`` made."""
        model = self._model
        if model.encoder is not None or (model.state is not None and encoder.width != model.state.dim):
            got = "an encoder beside another" if model.encoder is not None else f"{encoder.width} features"
            known = "another encoder" if model.state is None else f"{model.state.dim} encoded columns and one encoder"
            rule = f"this bandit has {known}"
            raise ParameterError("encoder", got, rule, "pass the encoder that made the rows")
        made = Bandit(self.policy, self.actions, self.random_state, encoder)
        made._resume(model._replace(names=encoder.columns, encoder=encoder), self._rows)
        made._seed = self._seed
        return made

    # ---- live actions ---------------------------------------------------------------------------------------

    def add_action(self, label: Hashable, like: Hashable | None = None) -> Self:
        """Add an action: never tried, or starting from a copy of what is known of ``like``."""
        with self._lock:
            model = self._model
            source = None if like is None else model.labels.code(like)
            state = None if model.state is None else self.policy_.grow(model.state, source)
            self._current = model._replace(labels=model.labels.added(label), state=state)
        return self

    def remove_action(self, label: Hashable) -> Self:
        """Retire an action: it is never chosen again, late rows of it are still learnt."""
        with self._lock:
            model = self._model
            self._current = model._replace(labels=model.labels.retired(label))
        return self

    # ---- saving ---------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything needed to go on, to exactly that path, atomically."""
        with self._lock:
            header, arrays = model_file.describe(self.policy_, self._model, self._seed, self._rows)
        snapshot.write(path, header, arrays)

    # ---- scikit-learn's verbs -------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments, and the policy's parameters as ``policy__name``."""
        params: dict[str, Any] = {name: getattr(self, name) for name in PARAMETERS}
        if deep:
            params |= {f"policy__{name}": value for name, value in parameters_of(self.policy_).items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set constructor arguments, and policy parameters as ``policy__name``.

        What was learnt keeps the encoder that it was learnt with; another one takes effect in ``fit``.
        """
        inner = {
            name.removeprefix("policy__"): params.pop(name) for name in list(params) if name.startswith("policy__")
        }
        for name in params:
            if name not in PARAMETERS:
                rule = f"the parameters are {', '.join(PARAMETERS)} and policy__…"
                raise ParameterError("set_params", repr(name), rule, "use one of these")
        if inner:
            # On the policy given beside them, if one is; what is refused leaves everything as it was.
            policy = as_policy(params.get("policy", self.policy))
            check_names(inner, parameters_of(policy), "policy", policy.name)
            params["policy"] = replace(policy, **inner)
        elif "policy" in params:
            as_policy(params["policy"])
        for name, value in params.items():
            setattr(self, name, value)
        if "encoder" in params and "_current" in self.__dict__ and self._current.state is None:
            self._current = self._current._replace(encoder=self.encoder)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        """Tell scikit-learn whether an episode was learnt."""
        return self.n_episodes_ > 0

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what kind of estimator this is, so that pipelines take it as their last step."""
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=True), input_tags=InputTags(sparse=True))

    def __repr__(self) -> str:
        """Show the constructor's arguments."""
        encoder = "" if self.encoder is None else f", encoder={self.encoder!r}"
        return f"Bandit({self.policy!r}, {self.actions!r}, random_state={self.random_state!r}{encoder})"

    def __getstate__(self) -> dict[str, Any]:
        """Leave the lock behind when copied."""
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a lock of one's own."""
        self.__dict__.update(state)
        self._lock = threading.RLock()


def load(path: str | PathLike[str], random_state: streams.Seed = None) -> Bandit:
    """Return a saved bandit.

    Parameters
    ----------
    path
        What :meth:`Bandit.save` wrote.
    random_state
        None resumes the streams where they were; a seed or Generator starts new ones, so that replicas of one
        file explore apart.
    """
    policy, model, seed, rows = model_file.restore(str(path), *snapshot.read(path))
    bandit = Bandit(policy, list(model.labels.names), seed if random_state is None else random_state, model.encoder)
    bandit._resume(model, rows if random_state is None else {})
    return bandit
