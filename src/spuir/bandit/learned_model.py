"""What a bandit has learned: labels, columns, coefficients, rewards, notes, a figure of them, and a file of it all."""

import json
from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import replace
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spuir.bandit import explanations
from spuir.bandit.live_actions import LiveActions
from spuir.bandit.policy_figure import LINES, Bar, draw_policy
from spuir.base.data_frame import data_frame
from spuir.base.hashing import digest
from spuir.base.records import Floats, Mask, State
from spuir.errors import NotFittedError, SnapshotError
from spuir.results import figures
from spuir.storage import model_file, snapshot
from spuir.tables.coefficients import Coefficient, coefficient_rows, estimating, fitted_state, strongest
from spuir.tables.lineage import LoggedReward


class LearnedModel(LiveActions):
    """A model with its policy, and access to everything that was learned, which can be saved."""

    @abstractmethod
    def predict_proba(self, X: Any, eligible: Any = None, action_features: Any = None) -> Floats:
        """Return the probability of each action (n, M)."""

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
        dim = fitted_state(self._model).dim - len(self._model.varying)
        return dim if encoder is None else len(encoder.columns)

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
        """Coefficients (M, d) per unit of the context columns, in the order of :attr:`actions_`.

        With an encoder, the columns are its features. One that scales, as that of :func:`spuir.tune` does, has numbers
        and days in standard deviations.
        Maps without a unit, such as random Fourier features, have one coefficient per feature column instead.
        """
        policy, state = estimating(self.policy_, self._model)
        return policy.coefficients(state).copy()

    @property
    def intercept_(self) -> Floats:
        """The constant of each action (M,), in the order of :attr:`actions_`; 0 without an intercept."""
        policy, state = estimating(self.policy_, self._model)
        return policy.intercepts(state).copy()

    @property
    def shared_coefficients_(self) -> Floats:
        """Θ (k + 1, d + 1), what the features of actions say: coefficients of products of a feature and a column.

        One row per feature of the catalogue and one for the constant, one column per context column and one for the
        constant, per unit of both. The features of an action and 1, times this table, are the coefficients and the
        intercept that they suggest; kernel columns have no unit and are left out. So are products of features: where
        ``diagnosis()["curved"]`` says that these act, :attr:`coefficients_` have them, this table does not.
        """
        return self._shared()[0].copy()

    def shared_coefficients_frame(self) -> Any:
        """Return :attr:`shared_coefficients_` with names and standard errors, as a pandas DataFrame."""
        theta, errors = self._shared()
        known = self._model.catalogue
        rows = [*([] if known is None else known.names), "constant"]
        columns = [*self._model.input_names, "constant"]
        pairs = [(row, column) for row in rows for column in columns]
        table = {"action_feature": [row for row, _ in pairs], "feature": [column for _, column in pairs]}
        return data_frame(
            table | {"coefficient": theta.ravel(), "standard_error": errors.ravel()}, "shared_coefficients_frame"
        )

    def _shared(self) -> tuple[Floats, Floats]:
        """Return the shared coefficients and their standard errors."""
        policy: Any = self.policy_
        state, known = fitted_state(self._model), self._model.catalogue
        if not policy.takes_features or known is None or known.encoder is None:
            rule = "the actions of this bandit have no features"
            raise NotFittedError("shared_coefficients_", "no catalogue", rule, "make the bandit with a catalogue")
        return policy.shared_coefficients(state)

    def coefficient_table(self) -> list[Coefficient]:
        """Return every coefficient with its feature's name and standard error.

        Errors come from the observed rows alone: an imputed row repeats an estimate and adds no information. Where
        products of features act in a ``hierarchical`` with ``products="auto"``, errors are of the model without them.
        """
        return coefficient_rows(self.policy_, self._model)

    def coefficients_frame(self) -> Any:
        """Return :meth:`coefficient_table` as a pandas DataFrame.

        >>> bandit = spuir.Bandit("puir", ["mail", "call"]).partial_fit([[1.0], [2.0]], ["mail", "mail"], [1.0, 0.0])
        >>> list(bandit.coefficients_frame().columns)
        ['action', 'feature', 'coefficient', 'standard_error']
        """
        return data_frame(self.coefficient_table(), "coefficients_frame")

    def contrast(self, first: Hashable, second: Hashable) -> Any:
        """Return coefficients of ``first`` minus those of ``second``, with standard errors, as a DataFrame."""
        return explanations.contrast(self.policy_, self._model, first, second)

    def action_weights(self) -> Any:
        """Return the weight of each action's observed rows and the imputed share of its fit, as a DataFrame."""
        return explanations.action_weights(self.policy_, self._model)

    def diagnosis(self) -> dict[str, Any]:
        """Return what the policy estimated about itself: for ``auto`` its noise, ridges and choice of model.

        >>> bandit = spuir.Bandit(actions=2, random_state=0)
        >>> bandit.diagnosis()
        {}
        """
        state = self._model.state
        return {} if state is None or not state.episode else self.policy_.diagnosis(state)

    def logged_rewards(self) -> list[LoggedReward]:
        """Return the mean reward of each action, with its standard error, in all that was learned."""
        return self._model.lineage.rewards(self._model.labels.names)

    def plot(self, X: Any = None, path: str | PathLike[str] | None = None) -> Any:
        """Draw what was learned: rewards per action, the strongest coefficients and, for contexts X, the action mix.

        Parameters
        ----------
        X
            Contexts as in :meth:`decide` for the action mix; None = as the training noted it, if one did.
        path
            Where to save the figure, as PNG and SVG; None does not save it. The matplotlib figure is returned.
        """
        rows = coefficient_rows(self.policy_, self._model) if "ridge" in self.policy_.traits else []
        estimates = [
            Bar(f"{row.action}: {row.feature}", row.coefficient / row.standard_error, 1.0)
            for row in strongest(rows, LINES)
            if row.standard_error > 0
        ]
        if X is None:
            mix = self._notes.training.get("mix", [])
        else:
            mix = zip(self.actions_, self.predict_proba(X).mean(axis=0), strict=True)
        rewards = [Bar(str(row.action), *row[2:]) for row in self.logged_rewards() if row.rows]
        figure = draw_policy(rewards, [Bar(str(label), share) for label, share in mix], estimates)
        if path is not None:
            figures.save(figure, fspath(path))
        return figure

    @property
    def metadata_(self) -> dict[str, Any]:
        """The user's notes that were saved with the model."""
        return dict(self._notes.metadata)

    @property
    def created_(self) -> str | None:
        """When the model was last saved, in UTC; None if it never was."""
        return self._notes.created

    @property
    def version_(self) -> str:
        """The number of episodes and a fingerprint of all data they had: equal for models that learned the same."""
        data = self._model.lineage.data
        return f"{self.n_episodes_}-{data[:8]}" if data else str(self.n_episodes_)

    # ---- saving ---------------------------------------------------------------------------------------------

    def save(
        self,
        path: str | PathLike[str],
        metadata: dict[str, Any] | None = None,
        training: dict[str, Any] | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write everything needed to resume to exactly that path, atomically.

        Parameters
        ----------
        path
            Any name; ``.spuir`` is customary.
        metadata, training
            Notes as JSON data: the user's, which are :attr:`metadata_` afterwards, and how the model was trained. None
            keeps those of the last save or load.
        overwrite
            Whether to replace a file that is not a saved model. A saved model is replaced in any case.
        """
        if not overwrite and not snapshot.is_replaceable(path):
            rule = "that file exists and is not a saved model"
            raise SnapshotError("path", repr(fspath(path)), rule, "choose another path, or pass overwrite=True")
        with self._lock:
            header, arrays = model_file.describe(self.policy_, self._model, self._seed, self._rows.used)
            given = {"created": model_file.now(), "metadata": metadata, "training": training}
            notes = replace(self._notes, **{name: note for name, note in given.items() if note is not None})
            header, arrays = model_file.annotated(header, arrays, notes, self.last_info_)
        snapshot.write(path, header, arrays)
        self._notes = notes

    def to_bytes(self) -> bytes:
        """Return a model file as bytes, without notes, times and row numbers: equal for equal models."""
        with self._lock:
            return snapshot.to_bytes(*model_file.describe(self.policy_, self._model, self._seed, {}))

    def digest(self) -> str:
        """Return a digest of everything that was learned, equal for equal models whatever version saved them."""
        with self._lock:
            header, arrays = model_file.describe(self.policy_, self._model, self._seed, {})
        del header["spuir"]
        content = [item for name, array in sorted(arrays.items()) for item in (name, str(array.dtype), array)]
        return digest(json.dumps(header, sort_keys=True), *content)
