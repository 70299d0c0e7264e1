"""The first pass over a log: counts, the calibration of the propensities, and fitted models."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spuir.base.counting import counted
from spuir.base.records import Codes, Floats
from spuir.errors import InputError
from spuir.evaluation.learned_rows import LearnedRows
from spuir.evaluation.logged_rows import EvaluationLog, LoggedRows, refuse_without_exploration
from spuir.evaluation.propensity_model import PropensityModel
from spuir.evaluation.reward_models import ContextFeatures, RewardModel, make_reward_model
from spuir.evaluation.support import Calibration, calibrate
from spuir.evaluation.targets import UNIFORM
from spuir.tables.encoder import LEARNING_ROWS
from spuir.training.notices import of_ids
from spuir.training.scan import SAMPLE_LEAST, Watcher


def fit_models(
    log: EvaluationLog,
    reward_model: Any,
    folds: int,
    *,
    propensity: str,
    estimated: bool,
    learned: Sequence[LearnedRows],
    watch: Watcher,
) -> "FitPass":
    """Read the log once and fit the models; by smaller pieces if all rows are in one fold.

    ``propensity`` is "logged", "uniform" or "estimate", and ``estimated`` says whether a model of it is needed.
    ``learned`` compare the rows with those that evaluated models learned from.
    """
    features = _features(log, reward_model)
    whole = ["unit"] if "unit_id" in log.log.schema.names else ["episode"] if log.cut else []
    for by in (*whole, "blocks", "row"):
        fit = FitPass(
            log=log,
            features=features,
            propensity=propensity,
            reward_model=make_reward_model(reward_model, folds, log.action_columns),
            propensity_model=PropensityModel(folds) if estimated else None,
            fold_by=by,
            folds=folds,
            learned=[one for one in learned if one.useful and not log.complete],
        )
        fit.run(watch)
        if len(fit.seen_folds) > 1 or folds == 1:
            break
    fit.finish()
    return fit


def _features(log: EvaluationLog, reward_model: Any) -> ContextFeatures:
    """Return the columns that the models regress on, learned from the first rows."""
    if not log.context:
        return ContextFeatures(None)
    first = log.log.head(LEARNING_ROWS, list(log.context))
    if not first.num_rows:
        raise InputError("log", "no rows", "evaluation needs decisions", "check the path, and --after")
    return ContextFeatures(first, isinstance(reward_model, str) and reward_model == "nystroem")


@dataclass(eq=False)
class FitPass:
    """The first pass: counts, the calibration of the propensities, and the fitted models.

    ``fold_by`` says what keeps rows together in one fold; ``propensity`` is "logged", "uniform" or "estimate".
    """

    log: EvaluationLog
    features: ContextFeatures
    propensity: str
    reward_model: RewardModel | None
    propensity_model: PropensityModel | None
    fold_by: str
    folds: int
    learned: Sequence[LearnedRows] = ()
    rows: int = 0
    weight: float = 0.0
    spread: float = 0.0
    reward: float = 0.0
    unit_weights: bool = True
    reward_range: tuple[float, float] = (np.inf, -np.inf)
    propensity_range: tuple[float, float] = (np.inf, -np.inf)
    by_action: Floats = field(default_factory=lambda: np.zeros((4, 0)))
    """Counts, Σω/p, Σ(ω/p)² and Σωr/p of each action (4, M); M grows while the log is read for the first time."""
    seen_folds: set[int] = field(default_factory=set[int])

    def run(self, watch: Watcher) -> None:
        """Read the log once."""
        for rows in self.log.ahead():
            self._add(rows)
            watch("fit", self.rows, self.log.log.rows or self.rows)
        if not self.rows:
            rule = "evaluation needs decisions with rewards"
            raise InputError("log", "no row with a reward", rule, "join the rewards first (--rewards)")
        least, most = self.propensity_range
        if self.propensity == "logged":
            refuse_without_exploration(most, least, self.log.actions)

    def finish(self) -> None:
        """Fit the models."""
        for model in (self.reward_model, self.propensity_model):
            if model is not None:
                model.finish(len(self.log.actions))

    def notices(self) -> list[str]:
        """Return what the reader of a report should know about the log."""
        log, found = self.log, list(self.log.log.notices)
        if log.log.context and (self.reward_model is not None or self.propensity_model is not None):
            found += of_ids(log.log.head(SAMPLE_LEAST, log.log.context))
        if log.silent:
            found.append(f"Left out: {counted(log.silent, 'row', 'without a reward')}.")
        if log.faults.count:
            found.append(f"Left out: {counted(log.faults.count, 'broken row')}.")
        if self.propensity == "estimate":
            found.append(
                "Propensities are estimated: values are right only if the context columns hold everything that the "
                "logging policy looked at."
            )
        if self.propensity == UNIFORM:
            found.append("Propensities are taken as uniform over the eligible actions.")
        if log.cut is not None and len(log.episode_names) == 1:
            found.append(
                "The log has one episode only: models are cross-fitted by blocks of rows, and nothing shows how "
                "rewards change between episodes."
            )
        if self.propensity == "logged" and not self.calibration.trusted:
            names = ", ".join(str(label) for label in self.calibration.wrong[:5])
            found.append(
                f"The logged propensities of {names} do not agree with how often they were chosen: the mean of "
                "1[action]/propensity is clearly above 1. Values may be wrong; spuir doctor shows more."
            )
        return found

    def _add(self, rows: LoggedRows) -> None:
        n_actions = len(self.log.actions)
        self.rows += len(rows)
        self.weight += float(rows.weights.sum())
        self.spread += float(rows.weights @ rows.weights)
        self.reward += float(rows.weights @ rows.rewards)
        self.unit_weights = self.unit_weights and bool((rows.weights == 1).all())
        self.reward_range = _wider(self.reward_range, rows.rewards)
        scaled = rows.weights if rows.propensities is None else rows.weights / rows.propensities
        if rows.propensities is not None:
            self.propensity_range = _wider(self.propensity_range, rows.propensities)
        added = (None, scaled, np.square(scaled), scaled * rows.rewards)
        sums = np.array([np.bincount(rows.actions, values, n_actions) for values in added], np.float64)
        sums[:, : self.by_action.shape[1]] += self.by_action
        self.by_action = sums
        for one in self.learned:
            one.add(rows)
        folds = rows.folds(self.fold_by, self.folds)
        self.seen_folds.update(np.flatnonzero(np.bincount(folds)).tolist())
        if self.reward_model is not None or self.propensity_model is not None:
            features = self.features(rows.table)
            if self.reward_model is not None:
                self.reward_model.collect(features, rows.actions, rows.rewards, rows.weights, folds)
            if self.propensity_model is not None:
                self.propensity_model.collect(features, rows, folds)

    @property
    def counts(self) -> Floats:
        """How often each action was logged (M,)."""
        return self.by_action[0]

    @property
    def calibration(self) -> Calibration:
        """Whether the logged propensities agree with the shares of the actions."""
        counts, inverse, squares, _ = self.by_action
        return calibrate(self.log.actions, counts, inverse, squares, self.weight, self.spread)

    def ranked(self) -> Codes:
        """Return the logged actions, that with the largest self-normalised estimate first."""
        counts, inverse, _, earned = self.by_action
        values = np.where(inverse > 0, earned / np.where(inverse > 0, inverse, 1.0), -np.inf)
        order = np.argsort(-values, kind="stable")
        return order[counts[order] > 0]

    def propensities(self, rows: LoggedRows, estimated: Floats | None) -> Floats:
        """Return the propensities (n,) to weight by."""
        if self.propensity == "estimate" and estimated is not None:
            return estimated
        if rows.propensities is not None and self.propensity == "logged":
            return rows.propensities
        if rows.eligible is None:
            return np.full(len(rows), 1 / len(self.log.logged))
        return 1 / rows.eligible.sum(axis=1)


def _wider(ends: tuple[float, float], values: Floats) -> tuple[float, float]:
    return min(ends[0], float(values.min())), max(ends[1], float(values.max()))
