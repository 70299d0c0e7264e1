"""The object that users hold: a policy with its state, labels for actions, and scikit-learn's verbs."""

from collections.abc import Hashable
from copy import deepcopy
from os import PathLike, fspath
from typing import Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from spuir.base import streams
from spuir.base.data_frame import data_frame
from spuir.base.parameters import SEED, SHARE, check_value, optional
from spuir.base.records import Decision, Floats, Info, Mask, Scores, State, as_ids
from spuir.core import ties
from spuir.errors import InputError, NotFittedError, ParameterError, ShardError
from spuir.policies import Policy
from spuir.results.figures import save as save_figure
from spuir.results.policy_figure import LINES, Bar, draw_policy
from spuir.storage import model_file, snapshot
from spuir.storage.shards import Shard, check_shards, coming_episode, fingerprint
from spuir.tables import explanations
from spuir.tables.coefficients import Coefficient, coefficient_rows, estimating, fitted_state, strongest
from spuir.tables.encoder import Encoder
from spuir.tables.estimator import Estimator
from spuir.tables.labels import Labels
from spuir.tables.model import Model

_UNTOUCHED = np.random.default_rng(0)
"""Stands in for a generator where none is drawn from, since making one costs as much as a tenth of an update."""


class Bandit(Estimator):
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
    **policy_parameters
        Parameters of the policy, as in :func:`spuir.make_policy`.

    Notes
    -----
    ``decide`` may run in any number of threads while one ``partial_fit`` at a time learns: learning builds a new
    state and swaps it once.

    Examples
    --------
    >>> bandit = spuir.Bandit("puir", ["mail", "call"], random_state=0, alpha=0.5)
    >>> day = bandit.decide([[1.0, 0.3], [1.0, 0.8]])
    >>> bandit.partial_fit(day, rewards=[0.0, 1.0]).n_episodes_
    1
    """

    # ---- what is fitted -------------------------------------------------------------------------------------

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
        self._current = Model(labels=Labels.parse(self.actions), encoder=self.encoder)
        self._checked: Policy | None = None
        self.last_info_: Info | None = None

    def _resume(self, model: Model, rows: dict[int, int]) -> None:
        """Take over a model, and how many rows were decided in its episode."""
        self._reset()
        self._current = model
        self._rows = streams.RowNumbers(rows)

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
        """How many episodes were learned."""
        state = self._model.state
        return 0 if state is None else state.episode

    def __sklearn_is_fitted__(self) -> bool:
        """Tell scikit-learn whether an episode was learned."""
        return self.n_episodes_ > 0

    @property
    def n_features_in_(self) -> int:
        """How many context columns the bandit knows, raw ones where it has an encoder."""
        encoder = self._model.encoder
        return fitted_state(self._model).dim if encoder is None else len(encoder.columns)

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
        return fitted_state(self._model)

    @property
    def coefficients_(self) -> Floats:
        """Coefficients θ (M, p) of the feature columns, in the order of :attr:`actions_`."""
        policy, state = estimating(self.policy_, self._model)
        return policy.coefficients(state).copy()

    def coefficient_table(self) -> list[Coefficient]:
        """Return every coefficient with its feature's name and standard error.

        Errors come from the observed rows alone: an imputed row repeats an estimate and adds no information.
        """
        return coefficient_rows(self.policy_, self._model)

    def coefficients_frame(self) -> Any:
        """Return :meth:`coefficient_table` as a pandas DataFrame."""
        return data_frame(self.coefficient_table(), "coefficients_frame")

    def plot(self, X: Any = None, path: str | PathLike[str] | None = None) -> Any:
        """Draw what was learned: the strongest coefficients and, for contexts X, how often each action is chosen.

        Parameters
        ----------
        X
            Contexts as in :meth:`decide`; None leaves the action mix out.
        path
            Where to save the figure, as PNG and SVG; None does not save it. The matplotlib figure is returned.
        """
        rows = coefficient_rows(self.policy_, self._model) if "ridge" in self.policy_.traits else []
        estimates = [Bar(f"{row.action}: {row.feature}", *row[2:]) for row in strongest(rows, LINES)]
        mix = [] if X is None else zip(self.actions_, self.predict_proba(X).mean(axis=0), strict=True)
        figure = draw_policy([], [Bar(str(label), share) for label, share in mix], estimates)
        if path is not None:
            save_figure(figure, fspath(path))
        return figure

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
        model = self._model
        policy, _ = estimating(self.policy_, model)
        contexts, _, mask = self._prepared(model, X, eligible, own=False)
        codes = None if actions is None else model.labels.encode(actions)
        return explanations.explain(policy, model, contexts, mask, codes)

    def contrast(self, first: Hashable, second: Hashable) -> Any:
        """Return coefficients of ``first`` minus those of ``second``, with standard errors, as a DataFrame."""
        return explanations.contrast(self.policy_, self._model, first, second)

    def action_weights(self) -> Any:
        """Return the weight of each action's observed rows and the imputed share of its fit, as a DataFrame."""
        return explanations.action_weights(self.policy_, self._model)

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
        episode, first = state.episode, None
        if ids is None:
            with self._lock:
                first = self._rows.take(episode, n)
            draws = streams.Draws.numbered(self._seed, episode, first, n)
        else:
            draws = streams.Draws.identified(self._seed, episode, ids)
        try:
            caps, policy = model.caps, self.policy_
            if caps is None:
                decided = policy.decide(state, contexts, draws, mask)
            else:
                decided = policy.decide_by_table(state, contexts, draws, mask, caps)
        except BaseException:
            if first is not None:
                with self._lock:
                    self._rows.give_back(episode, first, n)
            raise
        if model.state is None and n:  # after deciding, so that refused contexts settle no columns
            with self._lock:
                if self._current is model:  # no other thread has settled them, or added an action
                    self._current = model._replace(state=state, names=model.names_after(X))
        return decided.relabel(model.labels.array, ids, episode, first, contexts, mask)

    def predict(self, X: Any, eligible: ArrayLike | None = None) -> NDArray[Any]:
        """Return the most probable action of each row, the first of equals; changes nothing."""
        model = self._model
        if model.caps is not None:
            return model.labels.array[self._table(X, eligible).probabilities.argmax(axis=1)]
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
        every = ties.eligible_mask(mask, len(contexts), state.n_actions)
        return self.policy_.acting(state, contexts, every, model.caps)

    def _prepared(self, model: Model, X: Any, eligible: ArrayLike | None, own: bool) -> tuple[Floats, Any, Mask | None]:
        """Return contexts as float64 (a copy if ``own``), the state, and eligibility (n, M) or None for all."""
        contexts = model.contexts(X, own)
        return contexts, self._start(model, contexts.shape[1]), model.eligible(eligible, len(contexts))

    # ---- learning -------------------------------------------------------------------------------------------

    def partial_fit(
        self,
        X: Any,
        actions: Any = None,
        rewards: ArrayLike | None = None,
        propensities: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        eligible: ArrayLike | None = None,
        **columns: Any,
    ) -> Self:
        """Learn from one episode: its contexts, executed actions (labels) and their rewards.

        ``partial_fit(decision, rewards)`` does the same with what :meth:`decide` returned: a decision stands for
        contexts, actions, propensities and eligibility.

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

        Examples
        --------
        >>> bandit = spuir.Bandit("puir", ["mail", "call"])
        >>> bandit.partial_fit([[1.0, 0.3], [1.0, 0.8]], ["mail", "call"], [0.0, 1.0]).n_episodes_
        1
        """
        given = {"actions": actions, "rewards": rewards, "propensities": propensities, "eligible": eligible}
        with self._lock:
            model = self._model
            batch = model.batch(X, **model.executed(X, given), sample_weight=sample_weight, columns=columns)
            if not len(batch):
                return self
            policy, state = self.policy_, self._start(model, int(batch.contexts.shape[1]))
            state, info = policy.learn(state, batch, self._episode_rng(policy, state.episode))
            self._current = model._replace(names=model.names_after(X), state=state)
            self.last_info_ = info
        return self

    def fit(self, X: Any, actions: Any = None, rewards: ArrayLike | None = None, *args: Any, **kwargs: Any) -> Self:
        """Reset, then learn one episode; arguments as in :meth:`partial_fit`.

        What was learned is forgotten, and the actions are those of the constructor again: ones added or removed since
        are not kept.
        """
        fresh = Bandit(self.policy_, self.actions, self.random_state, self.encoder)
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
        ``episode`` is the number of episodes that will be learned before this one, None for as many as now; a later one
        can be collected ahead by policies with the trait "foldable", whose sums do not depend on what acts.
        """
        model, policy = self._model, self.policy_
        ids = None if row_ids is None else as_ids(row_ids)
        check_shards(policy, ids)
        known = {name: columns.pop(name, None) for name in ("propensities", "sample_weight", "eligible")}
        batch = model.batch(X, actions, rewards, **known, columns={**columns, "row_ids": ids})
        state = self._start(model, int(batch.contexts.shape[1]))
        number = coming_episode(policy, state.episode, episode)
        sums = policy.collect(state, batch, self._episode_rng(policy, number))
        mark = self._fingerprint(model, state)
        return Shard(episode=number, fingerprint=mark, dim=state.dim, names=model.names_after(X), sums=sums)

    def absorb(self, shard: Shard) -> Self:
        """Learn one episode from the sum of its shards."""
        if not isinstance(shard, Shard):
            raise ShardError("shard", type(shard).__name__, "absorb takes what collect returned", "add the shards up")
        with self._lock:
            model = self._model
            if not shard.sums.rows:
                return self
            state = self._start(model, shard.dim)
            shard.check(state.episode, self._fingerprint(model, state))
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
        """Return a bandit that knows the same and takes raw rows: this one learned from rows that ``encoder`` made."""
        model = self._model
        if model.encoder is not None or (model.state is not None and encoder.width != model.state.dim):
            got = "an encoder beside another" if model.encoder is not None else f"{encoder.width} features"
            known = "another encoder" if model.state is None else f"{model.state.dim} encoded columns and one encoder"
            rule = f"this bandit has {known}"
            raise ParameterError("encoder", got, rule, "pass the encoder that made the rows")
        made = Bandit(self.policy, self.actions, self.random_state, encoder, **self.policy_parameters)
        made._resume(model._replace(names=encoder.columns, encoder=encoder), self._rows.used)
        made._seed = self._seed
        return made

    # ---- live actions ---------------------------------------------------------------------------------------

    def add_action(
        self, label: Hashable, like: Hashable | None = None, ramp: float | None = 0.1, ramp_episodes: int = 5
    ) -> Self:
        """Add an action: never tried, or starting from a copy of what is known of ``like``.

        Parameters
        ----------
        label, like
            Its label, never used before, and the action whose estimates it starts from; None = none.
        ramp
            Largest probability of all new actions together in a decision, so that a new action is not tried on
            everyone: each of k new actions has at most ramp/k. Established actions share what is above, as the policy
            chooses among them. None = no limit. It does not apply before the first episode, or where no established
            action is eligible.
        ramp_episodes
            How many episodes the limit lasts.
        """
        check_value("ramp", ramp, optional(SHARE), "the default is 0.1")
        check_value("ramp_episodes", ramp_episodes, SEED, "the default is 5")
        with self._lock:
            model, learned = self._model, self.n_episodes_
            source = None if like is None else model.labels.code(like)
            state = None if model.state is None else self.policy_.grow(model.state, source)
            labels = model.labels.added(label, ramp if learned else None, learned + ramp_episodes)
            self._current = model._replace(labels=labels, state=state)
        return self

    def remove_action(self, label: Hashable) -> Self:
        """Retire an action: it is never chosen again, late rows of it are still learned."""
        with self._lock:
            model = self._model
            self._current = model._replace(labels=model.labels.retired(label))
        return self

    # ---- saving ---------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything needed to go on, to exactly that path, atomically."""
        with self._lock:
            header, arrays = model_file.describe(self.policy_, self._model, self._seed, self._rows.used)
        snapshot.write(path, header, arrays)


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
