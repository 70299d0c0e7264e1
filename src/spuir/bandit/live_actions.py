"""Actions of a bandit that come and go while it learns."""

from collections.abc import Hashable, Mapping
from typing import Any, Self

from spuir.bandit.bandit_arguments import BanditArguments
from spuir.base.parameters import SEED, SHARE, check_value, optional
from spuir.errors import InputError, ParameterError
from spuir.tables.action_catalogue import Catalogue
from spuir.tables.labels import shown


class LiveActions(BanditArguments):
    """A model whose actions can be added, described anew and removed."""

    def add_action(
        self,
        label: Hashable,
        like: Hashable | None = None,
        ramp: float | None = 0.1,
        ramp_episodes: int = 5,
        features: Mapping[str, Any] | None = None,
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
        features
            Its features by name, where actions have a catalogue: it starts from what they say. None = those of
            ``like``.
        """
        if isinstance(like, Mapping):
            raise ParameterError("like", repr(like), "it is the label of another action", "pass features={...} by name")
        check_value("ramp", ramp, optional(SHARE), "the default is 0.1")
        check_value("ramp_episodes", ramp_episodes, SEED, "the default is 5")
        with self._lock:
            model = self._model
            learned = 0 if model.state is None else model.state.episode
            source, known = None if like is None else model.labels.code(like), model.catalogue
            if source is not None and self.policy_.takes_features and not model.labels.active[source]:
                rule = "it was removed, and what was known of it is part of the shared model"
                raise InputError("like", shown(like), rule, "choose an active action")
            labels = model.labels.added(label, ramp if learned else None, learned + ramp_episodes)
            row = None
            if features is not None or (known is not None and known.encoder is not None and source is None):
                row = (known or Catalogue()).encode(label, features)
            state: Any = model.state
            if state is not None:
                state = self.policy_.grow(state, source)
                state = state if row is None else self.policy_.describe(state, len(labels.names) - 1, row)
            elif known is not None and known.features is not None:
                known = known.added(known.features[source] if row is None and source is not None else row)
            self._current = model._replace(labels=labels, state=state, catalogue=known)
        return self

    def update_action(self, label: Hashable, features: Mapping[str, Any]) -> Self:
        """Change the features of an action.

        What was learned of it stays and now belongs to the new features. If it has become something else, remove it and
        add it under another label: it then starts from what its features say.
        """
        with self._lock:
            model = self._model
            code, known = model.labels.code(label), model.catalogue or Catalogue()
            if not model.labels.active[code]:
                raise InputError("label", shown(label), "it was removed", "update an active action")
            row = known.encode(label, features)
            state = None if model.state is None else self.policy_.describe(model.state, code, row)
            self._current = model._replace(state=state, catalogue=known.changed(code, row))
        return self

    def remove_action(self, label: Hashable) -> Self:
        """Retire an action: it is never chosen again, late rows of it are still learned.

        A policy with a catalogue folds what it learned of the action into what the features say, and drops its sums.
        """
        with self._lock:
            model = self._model
            labels, state = model.labels.retired(label), model.state
            if state is not None and model.labels.active[model.labels.code(label)]:
                state = self.policy_.retire(state, model.labels.code(label))
            self._current = model._replace(labels=labels, state=state)
        return self
