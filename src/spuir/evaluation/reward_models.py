"""Reward models: predicted rewards of every action, cross-fitted, so that no row is predicted by a model that saw it.

The ridge models sum rows per action and fold while the log is read. The model of a fold is solved from the sums of the
other folds, added up: nothing is subtracted, and no row is read twice. Where the log has a catalogue, actions may share
a model through their features.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from spuir.base.records import Codes, Floats
from spuir.base.streams import generator
from spuir.core import hierarchy
from spuir.core.hierarchy import Columns, Folded, Ridges
from spuir.core.solving import solve
from spuir.core.statistics import Statistics, summarise
from spuir.errors import InputError, ParameterError
from spuir.features import FeatureMap, MapState
from spuir.features.nystroem import Nystroem
from spuir.features.standardised import ActionMap
from spuir.tables.encoder import Encoder

MOST_NUMBERS = 1 << 27
"""Numbers in the sums of a reward model; more are refused."""
RIDGES = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5)
"""Values of λ to choose from."""
LANDMARKS = 100
"""Landmarks of the Nyström features of a reward model."""
FIRST_ROWS = 20_000
"""Rows that fix the Nyström features."""
MOST_COMPONENTS, MOST_SHARED = 16, 1_500
"""Columns of the features of actions beside each context column, and in all."""
STEPS = 6
"""Steps of the ridges of a model that actions share."""

Described = Callable[[], Floats | None]
"""Returns the features (M, k) of all actions by code, once the log was read; None where some have none."""


class ContextFeatures:
    """The columns (n, p) that the models of this room regress on; the last one is constant.

    The next call writes to the same memory: copy columns that you keep for longer.

    Parameters
    ----------
    table
        First rows of the log's context columns; None = a log without contexts.
    nystroem
        Whether Nyström features follow the standardised columns.
    """

    def __init__(self, table: Any, nystroem: bool = False) -> None:
        self._encoder = None if table is None else Encoder.fit(table, scale=True, intercept=not nystroem)
        self._map: FeatureMap | None = None
        self._state: MapState | None = None
        self._room = np.empty((0, 0))
        if nystroem and self._encoder is not None and table is not None:
            first = self._encoder.transform(table.slice(0, FIRST_ROWS))
            self._map = Nystroem(landmarks=LANDMARKS, intercept=True)
            state: Any = self._map.init(first.shape[1], generator(0, "evaluation", "features"))
            none = np.zeros(len(first))
            self._state = self._map.fix(state, first, none.astype(np.intp), none, None)

    @property
    def width(self) -> int:
        """How many columns there are."""
        if self._encoder is None:
            return 1
        return self._encoder.width if self._map is None else self._map.width(self._encoder.width)

    def __call__(self, table: Any) -> Floats:
        """Return the columns of rows."""
        if self._encoder is None:
            return np.ones((table.num_rows, 1))
        if len(self._room) < table.num_rows:
            self._room = np.empty((table.num_rows, self._encoder.width))
        encoded = self._encoder.transform(table, self._room[: table.num_rows])
        return encoded if self._map is None else self._map.apply(self._state, encoded)


class RewardModel(ABC):
    """A cross-fitted model of the reward: collect all rows, finish, then predict."""

    def __init__(self, folds: int) -> None:
        self.folds = folds

    @abstractmethod
    def collect(self, features: Floats, actions: Codes, rewards: Floats, weights: Floats, folds: Codes) -> None:
        """Take rows: features (n, p), and codes, rewards, weights and folds (n,)."""

    @abstractmethod
    def finish(self, n_actions: int) -> None:
        """Fit the model of every fold on the rows of the others."""

    @abstractmethod
    def predict(self, features: Floats, folds: Codes) -> Floats:
        """Return the predicted reward (n, M) of every action, each row by the model of its fold."""


class RidgeRewards(RewardModel):
    """One ridge regression per action and fold, shrunk towards the mean reward.

    ``ridge`` is λ; None chooses it by the squared error on the held-out folds, which their sums give. An action that
    the other folds never have is predicted by their mean reward.

    ``described`` returns the features (M, k) of the actions, or None. With them a model that actions share through
    their features, with ridges of its own, takes part in the choice; ``ridge`` stays None where it is chosen.
    """

    def __init__(self, folds: int, ridge: float | None = None, described: Described | None = None) -> None:
        super().__init__(folds)
        self.ridge = ridge
        self._described = described
        self._sums: Statistics | None = None

    def collect(self, features: Floats, actions: Codes, rewards: Floats, weights: Floats, folds: Codes) -> None:
        """Add the sums of the rows, those of action j and fold k to entry j·K + k."""
        width = features.shape[1]
        sums = self._sums or Statistics.zero(0, width)
        count = max(len(sums.table) // self.folds, int(actions.max()) + 1) * self.folds
        if count * (width * width + width) > MOST_NUMBERS:
            got = f"{count // self.folds} actions with {width} features each"
            rule = f"the reward model keeps at most {MOST_NUMBERS:,} numbers"
            raise InputError("reward_model", got, rule, "choose fewer context columns (--context), or none")
        new = summarise(features, actions * self.folds + folds, rewards, weights, count)
        new.table[: len(sums.table)] += sums.table
        self._sums = new

    def finish(self, n_actions: int) -> None:
        """Solve the regressions of every fold from the sums of the others."""
        if self._sums is None:
            raise InputError("log", "no rows", "a reward model is fitted on rewards", "check the log")
        width, table = self._sums.width, self._sums.table
        grown = np.zeros((n_actions * self.folds, table.shape[1]))
        grown[: len(table)] = table
        by_fold = grown.reshape(n_actions, self.folds, -1).transpose(1, 0, 2)
        every = range(self.folds)
        others = [
            Statistics(width, np.sum([by_fold[other] for other in every if other != fold or self.folds == 1], axis=0))
            for fold in every
        ]
        held_out = [Statistics(width, by_fold[fold]) for fold in every]
        grid = RIDGES if self.ridge is None else (self.ridge,)
        fits = [[_ridge_fit(sums, ridge) for sums in others] for ridge in grid]
        features = None if self._described is None or self.ridge is not None else self._described()
        if features is not None:
            fits.append([_shared_fit(sums, features) for sums in others])
        errors = [sum(map(_squared_error, held_out, fit)) for fit in fits]
        best = int(np.argmin(errors))
        self.ridge = (*grid, None)[best]
        self._theta = np.stack([theta for theta, _ in fits[best]])
        self._mean = np.array([mean for _, mean in fits[best]])

    def predict(self, features: Floats, folds: Codes) -> Floats:
        """Return mean + ⟨θ_j, s⟩ of the row's fold."""
        found = np.empty((len(features), self._theta.shape[1]))
        for fold in range(self.folds):
            rows = np.flatnonzero(folds == fold)
            if len(rows):
                found[rows] = features.take(rows, axis=0) @ self._theta[fold].T + self._mean[fold]
        return found


def _ridge_fit(sums: Statistics, ridge: float) -> tuple[Floats, float]:
    """Return θ (M, p) of a regression on rewards minus their mean, and that mean."""
    rows = sums.weight.sum()
    # The last column is constant: its moment is the sum of rewards, its Gram column the sum of features.
    mean = float(sums.moment[:, -1].sum() / rows) if rows else 0.0
    return solve(sums.gram.copy(), sums.moment - mean * sums.gram[:, :, -1], ridge).theta, mean


def _shared_fit(sums: Statistics, features: Floats) -> tuple[Floats, float]:
    """Return θ (M, p) of a regression that actions share through their features (M, k), and the mean reward."""
    width = sums.width
    actions = ActionMap(components=max(1, min(MOST_COMPONENTS, MOST_SHARED // width)))
    state = actions.fix(actions.init(features.shape[1], generator(0, "evaluation", "actions")), features)
    x = actions.apply(state, features)
    own = (slice(width - 1, width), *[slice(0, width - 1)] * (width > 1))
    columns = Columns(own, (slice(x.shape[1] - 1, x.shape[1]), slice(0, x.shape[1] - 1)))
    rows = float(sums.weight.sum())
    mean = float(sums.moment[:, -1].sum()) / rows if rows else 0.0
    variance = float(sums.energy.sum()) / rows - mean**2 if rows else 0.0
    if variance <= 0:
        return np.zeros((len(features), width)), mean
    start = Ridges(np.ones(len(columns.shared)), np.full(len(own), 10.0))
    made = hierarchy.improve(sums, x, columns, start, Folded.nothing(columns), variance, STEPS)
    return made.theta, made.mean


def _squared_error(sums: Statistics, fit: tuple[Floats, float]) -> float:
    """Return the squared error of a fit on the rows that these sums are of."""
    theta, mean = fit
    # mean + ⟨θ, s⟩ is linear in the features, because the last one is constant.
    whole = theta.copy()
    whole[:, -1] += mean
    fitted = np.matvec(sums.gram, whole)
    return float(sums.energy.sum() - 2 * (whole * sums.moment).sum() + (whole * fitted).sum())


class RegressorRewards(RewardModel):
    """Any scikit-learn regressor on the context columns and indicators of the actions; keeps all rows in memory."""

    def __init__(self, folds: int, regressor: Any) -> None:
        super().__init__(folds)
        self._regressor = regressor
        self._kept: list[tuple[Any, ...]] = []

    def collect(self, features: Floats, actions: Codes, rewards: Floats, weights: Floats, folds: Codes) -> None:
        """Keep the rows."""
        self._kept.append((features.copy(), actions, rewards, weights, folds))

    def finish(self, n_actions: int) -> None:
        """Fit a copy of the regressor for every fold."""
        from sklearn.base import clone

        features, actions, rewards, weights, folds = (np.concatenate(some) for some in zip(*self._kept, strict=True))
        self._kept, self._n_actions, self._fitted = [], n_actions, list[Any]()
        weighted = {} if (weights == 1).all() else {"sample_weight": weights}
        table = self._table(features, actions)
        for fold in range(self.folds):
            rows = folds != fold if self.folds > 1 else np.ones(len(folds), np.bool_)
            given = {name: values[rows] for name, values in weighted.items()}
            copy: Any = clone(self._regressor)
            self._fitted.append(copy.fit(table[rows], rewards[rows], **given))

    def _table(self, features: Floats, actions: Codes) -> Floats:
        return np.hstack([features[:, :-1], np.eye(self._n_actions)[actions]])

    def predict(self, features: Floats, folds: Codes) -> Floats:
        """Return predictions action by action."""
        found = np.empty((len(features), self._n_actions))
        for fold in np.unique(folds):
            rows = np.flatnonzero(folds == fold)
            for action in range(self._n_actions):
                table = self._table(features[rows], np.full(len(rows), action))
                found[rows, action] = self._fitted[fold].predict(table)
        return found


MODELS = ("linear", "nystroem")
"""The reward models by name: ridge regression on standardised columns, and on Nyström features beside them."""


def make_reward_model(given: Any, folds: int, described: Described | None = None) -> RewardModel | None:
    """Return a reward model from a name or a scikit-learn regressor; None for none.

    ``described`` returns the features of actions, for the models by name.
    """
    if given is None or isinstance(given, RewardModel):
        return given
    if given in MODELS if isinstance(given, str) else False:
        return RidgeRewards(folds, described=described)
    if hasattr(given, "fit") and hasattr(given, "predict"):
        return RegressorRewards(folds, given)
    rule = f"it is one of {', '.join(MODELS)}, a scikit-learn regressor, or None"
    raise ParameterError("reward_model", repr(given), rule, "choose one of these")
