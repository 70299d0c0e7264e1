"""The object that users work with: a policy with its state, labels for actions, and scikit-learn's methods."""

import warnings
from copy import deepcopy
from dataclasses import replace
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from spuir.bandit import explanations
from spuir.bandit.learned_model import LearnedModel
from spuir.base import streams
from spuir.base.pairs import Pairs
from spuir.base.records import Decision, Floats, Scores, as_ids
from spuir.core import ties
from spuir.errors import InputError, InterceptWarning, ParameterError, ShardError
from spuir.policies import Policy
from spuir.storage import model_file, snapshot
from spuir.storage.shards import Shard, check_shards, coming_episode, fingerprint
from spuir.tables import eligible_sets
from spuir.tables.coefficients import estimating
from spuir.tables.encoder import Encoder
from spuir.tables.lineage import contents_of
from spuir.tables.model import Model

_UNTOUCHED = np.random.default_rng(0)
"""Stands in for a generator where none is drawn from, since making one costs as much as a tenth of an update."""


class Bandit(LearnedModel):
    """A contextual batched bandit.

    Parameters
    ----------
    policy
        A policy object, or a registered name; the default needs no tuning.
    actions
        Their number M (labels 0…M−1), a list of labels or, with features, a catalogue: a pandas DataFrame whose index
        has the labels, a table (pandas, Arrow or Polars) with the column ``action``, or a dict of label → dict of
        features. Raw columns are encoded. Of the registered policies, ``hierarchical`` uses features.
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

    # ---- deciding -------------------------------------------------------------------------------------------

    def decide(self, X: Any, eligible: Any = None, ids: Any = None, action_features: Any = None) -> Decision:
        """Draw one action for each row of contexts, with its exact probability.

        Parameters
        ----------
        X
            (n, d) array, list, DataFrame (columns matched by name) or CSR matrix. With an encoder, raw rows: a
            DataFrame, an Arrow table, a dict of columns, a list of dict rows, or the dict of one row.
        eligible
            The actions that may be chosen: one list of labels per row (a column of lists), a mask (n, M) or (M,), or a
            sparse mask; None = all active. With lists, a row costs only the actions it lists. Where the labels are 0
            and 1, lists of two are read as a mask.
        ids
            One id per row. The draw of a row is a hash of (seed, episode, id), so that deciding again with the same id
            repeats the decision. Without ids the row's number within the episode takes their place.
        action_features
            Features of actions that differ from decision to decision, such as a price: an array (n, M, y), or a table
            with the columns ``row``, ``action`` and one per feature, which also says who is eligible.
        """
        rows, drift = self._model.encoded(X)
        model, contexts, state, mask = self._prepared(self._model, rows, eligible, action_features, own=True)
        n = len(contexts)
        ids = ids if ids is None or hasattr(ids, "__len__") else list(ids)
        if ids is not None and len(ids) != n:
            raise InputError("ids", f"{len(ids)} of them", f"there are {n} rows", "give one id per row")
        self._warn(drift)
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
                if self._current.state is None and self._current.labels is model.labels:  # as no other thread has
                    self._current = model.holding(state, names=model.names_after(X))
        self._count(drift)
        decided.drift = drift
        return decided.relabel(model.labels.array, ids, episode, first, contexts, mask)

    def predict(self, X: Any, eligible: Any = None, action_features: Any = None) -> NDArray[Any]:
        """Return the most probable action of each row, the first of equals; changes nothing."""
        if self._model.caps is not None:
            labels = self._model.labels.array
            return labels[self._table(X, eligible, action_features).probabilities.argmax(axis=1)]
        model, contexts, state, mask = self._prepared(self._model, X, eligible, action_features, own=False)
        return model.labels.array[self.policy_.predict(state, contexts, mask)]

    def predict_proba(self, X: Any, eligible: Any = None, action_features: Any = None) -> Floats:
        """Return the probabilities (n, M) that :meth:`decide` draws from; changes nothing."""
        return self._table(X, eligible, action_features).probabilities

    def decision_function(self, X: Any, eligible: Any = None, action_features: Any = None) -> Floats:
        """Return what the rule compares (n, M): mean + α·width, the mean, or the logit; changes nothing.

        With lists of eligible actions or features per decision, it may be NaN where an action is not eligible.
        """
        return self._table(X, eligible, action_features).scores

    def _table(self, X: Any, eligible: Any, action_features: Any) -> Scores:
        model, contexts, state, mask = self._prepared(self._model, X, eligible, action_features, own=False)
        every = mask if isinstance(mask, Pairs) else ties.eligible_mask(mask, len(contexts), state.n_actions)
        return self.policy_.acting(state, contexts, every, model.caps)

    def explain(self, X: Any, actions: Any = None, eligible: Any = None, action_features: Any = None) -> Any:
        """Return why each row's action is preferred, as a DataFrame with one row per row of contexts.

        Parameters
        ----------
        X, eligible, action_features
            As in :meth:`decide`.
        actions
            (n,) labels to explain, such as executed ones; None = the most probable actions.

        Notes
        -----
        ``competitor`` is the most probable of the other eligible actions, by score among equals. ``difference`` is how
        much larger the estimated reward of ``action`` is, ``standard_error`` the standard error of that difference,
        and the columns ``difference:…`` are its parts by feature, which add up to it; ``because`` names the largest
        three. With a nonlinear link they are parts of ⟨θ,s⟩. Errors come from the observed rows alone. Where products
        of features act in a ``hierarchical`` with ``products="auto"`` (see ``diagnosis()["curved"]``), means and
        differences have them, and widths and errors are those of the model without them.
        """
        policy, _ = estimating(self.policy_, self._model)
        model, contexts, _, mask = self._prepared(self._model, X, eligible, action_features, own=False)
        codes = None if actions is None else model.labels.encode(actions)
        return explanations.explain(policy, model, contexts, mask, codes)

    # ---- learning -------------------------------------------------------------------------------------------

    def fix(self, X: Any, sample_weight: ArrayLike | None = None, action_features: Any = None) -> Self:
        """Fix the scales and landmarks of the feature map on a sample of contexts, before the first episode.

        Without this call the first episodes are the sample. The sample is not learned from. ``action_features`` (n, y)
        has the features per decision of some action in each row, if there are any.
        """
        with self._lock:
            model, policy = self._named(self._model, action_features), self.policy_
            contexts = model.contexts(X, own=False)
            if action_features is not None:
                given = eligible_sets.read_sample(action_features, len(contexts), model.varying)
                contexts = np.column_stack([contexts, given])
            state = self._start(model, contexts.shape[1])
            if state.episode:
                rule = "the feature map is fixed by the first episode at the latest"
                raise InputError("fix", f"{state.episode} episodes learned", rule, "call it before partial_fit")
            weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
            state = policy.fix(state, contexts, weights)
            self._current = model.holding(state, names=model.names_after(X))
        return self

    def partial_fit(
        self,
        X: Any,
        actions: Any = None,
        rewards: ArrayLike | None = None,
        propensities: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        eligible: Any = None,
        ids: Any = None,
        allow_repeat: bool = False,
        action_features: Any = None,
        **columns: Any,
    ) -> Self:
        """Learn from one episode: its contexts, executed actions (labels) and their rewards.

        ``partial_fit(decision, rewards)`` does the same with what :meth:`decide` returned: a decision carries its
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
            What could have been chosen, as in :meth:`decide`; it affects propensities, not imputation.
        ids
            (B,) ids of the decisions, by which an episode that was learned before is recognised; None = those of the
            decision, or else what the rows hold.
        allow_repeat
            Whether to learn one of the last 100 episodes again. The default raises
            :class:`spuir.errors.RepeatedEpisodeError`, since it is usually a job that ran twice.
        action_features
            (B, y) features per decision of the executed actions, or of all actions as in :meth:`decide`.
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
            executed = self._model.executed(X, given | {"action_features": action_features})
            model, (rows, drift) = self._named(self._model, executed["action_features"]), self._model.encoded(X)
            batch = model.batch(rows, **executed, sample_weight=sample_weight, columns=columns)
            if not len(batch):
                return self
            self._warn(drift)
            policy, state = self.policy_, self._start(model, int(batch.contexts.shape[1]))
            contents = contents_of(batch, state.n_actions, model.decision_ids(X) if ids is None else ids)
            if not allow_repeat:
                model.lineage.check(contents)
            if not state.episode and self._advises and (advice := policy.advice(batch)):
                warnings.warn(advice, InterceptWarning, stacklevel=2)
            state, info = policy.learn(state, batch, self._episode_rng(policy, state.episode))
            lineage = model.lineage.after(contents)
            self._current = model.holding(state, names=model.names_after(X), lineage=lineage)
            self.last_info_ = info if drift is None else replace(info, drift=drift)
            if not isinstance(X, Decision):  # whose rows were counted when they were decided
                self._count(drift)
        return self

    def fit(self, X: Any, actions: Any = None, rewards: ArrayLike | None = None, *args: Any, **kwargs: Any) -> Self:
        """Reset, then learn one episode; arguments as in :meth:`partial_fit`.

        What was learned is forgotten, and the actions are those of the constructor again: ones added or removed since
        are not kept.
        """
        fresh = Bandit(self.policy_, self.actions, self.random_state, self.encoder)
        known = self._model.catalogue
        if known is not None and known.encoder is not None and fresh._model.catalogue is None:
            rule = "a model file has the features of live actions only, in numbers"
            raise InputError("fit", "a loaded model with a catalogue", rule, "make a new bandit with the catalogue")
        fresh.partial_fit(X, actions, rewards, *args, **kwargs)
        with self._lock:
            self._seed, self._rows, self._checked = fresh._seed, fresh._rows, fresh._checked
            self._current, self.last_info_ = fresh._model, fresh.last_info_
            self._drift, self._warned = fresh._drift, fresh._warned
        return self

    def collect(
        self,
        X: Any,
        actions: Any,
        rewards: ArrayLike,
        row_ids: ArrayLike | None = None,
        episode: int | None = None,
        ids: Any = None,
        first_row: int = 0,
        action_features: Any = None,
        **columns: Any,
    ) -> Shard:
        """Return what these rows, one shard of the coming episode, contribute; changes nothing.

        ``row_ids`` are integers unique within the episode; sketched policies hash rows by them and need them.
        ``episode`` is the number of episodes that will be learned before this one, None for as many as now; a later one
        can be collected ahead by policies with the trait "foldable", whose sums do not depend on what acts.
        ``ids`` and ``action_features`` are as in :meth:`partial_fit`, and ``first_row`` is the number of the first of
        these rows within its episode, where there are no ``row_ids``.
        """
        model, policy = self._named(self._model, action_features), self.policy_
        numbers = None if row_ids is None else as_ids(row_ids)
        check_shards(policy, numbers)
        known = {name: columns.pop(name, None) for name in ("propensities", "sample_weight", "eligible")}
        known["action_features"] = action_features
        rows, drift = model.encoded(X)
        batch = model.batch(rows, actions, rewards, **known, columns={**columns, "row_ids": numbers})
        state = self._start(model, int(batch.contexts.shape[1]))
        number = coming_episode(policy, state.episode, episode)
        sums = policy.collect(state, batch, self._episode_rng(policy, number))
        mark, names = self._fingerprint(model, state), model.names_after(X)
        about = {"names": names, "contents": contents_of(batch, state.n_actions, ids, first_row), "drift": drift}
        return Shard(episode=number, fingerprint=mark, dim=state.dim, sums=sums, **about)

    def absorb(self, shard: Shard, allow_repeat: bool = False) -> Self:
        """Learn one episode from the sum of its shards; ``allow_repeat`` as in :meth:`partial_fit`."""
        if not isinstance(shard, Shard):
            raise ShardError("shard", type(shard).__name__, "absorb takes what collect returned", "add the shards up")
        with self._lock:
            model = self._model
            if not shard.sums.rows:
                return self
            state = self._start(model, shard.dim)
            shard.check(state.episode, self._fingerprint(model, state))
            lineage = model.lineage
            if shard.contents is not None:
                if not allow_repeat:
                    lineage.check(shard.contents)
                lineage = lineage.after(shard.contents)
            # A copy: absorbing may overwrite the sums, and a shard can be absorbed by several bandits.
            state, info = self.policy_.absorb(state, deepcopy(shard.sums))
            self.last_info_ = info if shard.drift is None else replace(info, drift=shard.drift)
            self._count(shard.drift)
            self._current = model.holding(state, names=model.names or shard.names, lineage=lineage)
        return self

    def _episode_rng(self, policy: Policy, episode: int) -> Generator:
        return streams.generator(self._seed, "learn", episode) if policy.draws_to_learn else _UNTOUCHED

    def _fingerprint(self, model: Model, state: Any) -> str:
        owner = (self._seed, model.labels.names)
        return fingerprint(self.policy_, state, owner if model.encoder is None else (*owner, model.encoder.fingerprint))

    def with_encoder(self, encoder: Encoder) -> "Bandit":
        """Return a bandit that knows the same and takes raw rows: this one learned from rows that ``encoder`` made."""
        model = self._model
        dim = None if model.state is None else model.state.dim - len(model.varying)
        if model.encoder is not None or dim not in (None, encoder.width):
            got = "a second encoder" if model.encoder is not None else f"{encoder.width} features"
            known = "another encoder" if dim is None else f"{dim} encoded columns and one encoder"
            rule = f"this bandit has {known}"
            raise ParameterError("encoder", got, rule, "pass the encoder that made the rows")
        made = Bandit(self.policy, self.actions, self.random_state, encoder, **self.policy_parameters)
        made._resume(model._replace(names=encoder.columns, encoder=encoder), self._rows.used)
        made._seed, made._notes, made.last_info_ = self._seed, self._notes, self.last_info_
        return made

    def without_encoder(self) -> "Bandit":
        """Return a bandit that knows the same and takes rows that the encoder made: :meth:`with_encoder` undone."""
        model = self._model
        made = Bandit(self.policy_, list(model.labels.names), self.random_state)
        made._resume(model._replace(names=None, encoder=None), self._rows.used)
        made._seed, made._notes, made.last_info_ = self._seed, self._notes, self.last_info_
        return made


def load(path: str | PathLike[str], random_state: streams.Seed = None) -> Bandit:
    """Return a saved bandit.

    Parameters
    ----------
    path
        What :meth:`Bandit.save` wrote.
    random_state
        None resumes the streams where they were; a seed or Generator starts new ones, so that replicas of one
        file draw different actions.
    """
    return _restored(str(path), *snapshot.read(path), random_state)


def from_bytes(content: bytes, source: str) -> Bandit:
    """Return the bandit of a model file that is in memory; ``source`` is what refusals call it."""
    return _restored(source, *snapshot.from_bytes(content, source), None)


def _restored(source: str, header: dict[str, Any], arrays: Any, random_state: streams.Seed) -> Bandit:
    policy, model, seed, rows = model_file.restore(source, header, arrays)
    bandit = Bandit(policy, list(model.labels.names), seed if random_state is None else random_state, model.encoder)
    bandit._resume(model, rows if random_state is None else {})
    bandit._notes, bandit.last_info_ = model_file.notes_of(source, header, arrays)
    return bandit
