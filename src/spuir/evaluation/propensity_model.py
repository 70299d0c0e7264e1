"""A model of the propensities, for logs that have none: multinomial logistic regression, cross-fitted, balanced.

Estimated propensities are right only if everything that the logging policy looked at is among the context columns.
Reports say so wherever they are used.
"""

import numpy as np
from scipy.special import logsumexp

from spuir.base.hashing import splitmix64
from spuir.base.records import Codes, Floats, Mask
from spuir.evaluation.logged_rows import LoggedRows

SAMPLE_ROWS = 20_000
"""Rows that the model is fitted on, spread over the log."""
LEAST = 1e-3
"""Estimated propensities are at least this: the log cannot show that an action is rarer in some contexts."""
RIDGE = 1.0


class PropensityModel:
    """P(action | context), fitted on a sample of the log for each fold without the rows of that fold."""

    def __init__(self, folds: int) -> None:
        self.folds = folds
        self._sample: list[tuple[Floats, Codes, Codes, np.ndarray]] = []
        self._share = 1.0

    def collect(self, features: Floats, rows: LoggedRows, folds: Codes) -> None:
        """Keep a share of the rows; which ones depends on their place in the log alone."""
        keys = splitmix64(rows.numbers.astype(np.uint64)) * 2.0**-64
        kept = keys <= self._share
        self._sample.append((features[kept], rows.actions[kept], folds[kept], keys[kept]))
        if sum(len(sample[1]) for sample in self._sample) > 4 * SAMPLE_ROWS:
            self._thin()

    def _thin(self) -> None:
        features, actions, folds, keys = (np.concatenate(some) for some in zip(*self._sample, strict=True))
        if len(keys) > SAMPLE_ROWS:
            self._share = min(self._share, float(np.partition(keys, SAMPLE_ROWS)[SAMPLE_ROWS]))
        kept = keys <= self._share
        self._sample = [(features[kept], actions[kept], folds[kept], keys[kept])]

    def finish(self, n_actions: int) -> None:
        """Fit the model of every fold, then balance: Σ 1[a]/p̂ over all rows equals their number for each action."""
        self._thin()
        features, actions, folds, _ = self._sample[0]
        self._theta = np.zeros((self.folds, features.shape[1], n_actions))
        for fold in range(self.folds):
            rows = folds != fold if self.folds > 1 else np.ones(len(folds), np.bool_)
            self._theta[fold] = _logistic(features[rows], actions[rows], n_actions)
        self.balance = np.ones(n_actions)
        fitted = self._chances(features, folds)[np.arange(len(actions)), actions]
        sums = np.bincount(actions, 1 / np.maximum(fitted, LEAST), n_actions)
        self.balance = np.where(sums > 0, sums / len(actions), 1.0)

    def _chances(self, features: Floats, folds: Codes) -> Floats:
        found = np.empty((len(features), self._theta.shape[2]))
        for fold in range(self.folds):
            rows = np.flatnonzero(folds == fold)
            scores = features[rows] @ self._theta[fold]
            found[rows] = np.exp(scores - logsumexp(scores, axis=1, keepdims=True))
        return found

    def predict(self, features: Floats, rows: LoggedRows, folds: Codes) -> Floats:
        """Return the estimated propensity (n,) of each executed action."""
        chances = self._chances(features, folds)
        if rows.eligible is not None:
            chances = _among(chances, rows.eligible)
        return np.clip(rows.executed(chances) * self.balance[rows.actions], LEAST, 1.0)


def _among(chances: Floats, eligible: Mask) -> Floats:
    """Return probabilities (n, M) among the eligible actions."""
    masked = np.where(eligible, np.maximum(chances, LEAST), 0.0)
    return masked / masked.sum(axis=1, keepdims=True)


def _logistic(features: Floats, actions: Codes, n_actions: int) -> Floats:
    """Return the coefficients (p, M) of a multinomial logistic regression with a small ridge."""
    from scipy.optimize import minimize  # slow to import, and only logs without propensities need it

    n, width = features.shape
    chosen = np.zeros((n, n_actions))
    chosen[np.arange(n), actions] = 1.0

    def loss(flat: Floats) -> tuple[float, Floats]:
        theta = flat.reshape(width, n_actions)
        scores = features @ theta
        norms = logsumexp(scores, axis=1)
        value = norms.sum() - scores[np.arange(n), actions].sum() + 0.5 * RIDGE * np.square(theta).sum()
        slope = features.T @ (np.exp(scores - norms[:, None]) - chosen) + RIDGE * theta
        return float(value) / n, slope.ravel() / n

    start = np.zeros((width, n_actions))
    start[-1] = np.log((chosen.sum(axis=0) + 1) / (n + n_actions))
    found = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 200})
    return np.asarray(found.x).reshape(width, n_actions)
