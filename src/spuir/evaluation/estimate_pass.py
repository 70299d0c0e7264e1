"""The two passes over a log: the first fits the models, the second sums up the estimators' terms."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from spuir.base.records import Codes, Floats
from spuir.errors import InputError, ParameterError
from spuir.evaluation.block_sums import BlockAdder, Blocks, Estimate, ModelSums, TermSums, least_error, span_of
from spuir.evaluation.estimators import FAMILY, BalancedInversePropensity, Chosen, TargetRows, Terms, ValueEstimator
from spuir.evaluation.learned_rows import LearnedRows
from spuir.evaluation.logged_rows import EvaluationLog, LoggedRows, refuse_without_exploration
from spuir.evaluation.propensity_model import PropensityModel
from spuir.evaluation.reward_models import ContextFeatures, RewardModel
from spuir.evaluation.support import Calibration, Support, WeightSums, calibrate, judge
from spuir.evaluation.targets import LoggedTarget, Target, TargetView
from spuir.tables.arrow import arrow

Watch = Callable[[str, int, int], object]
OBSERVED = "observed"
"""Key of the sums of the log's own rewards."""
MOSTLY = 0.7
"""Rows that a policy might have had are picked out where they are a smaller share than this."""
MOST_LEVELS = 8
"""Segments that a report shows."""
MOST_STRETCHES = 60
"""Episodes, or groups of them, whose mean reward a report shows."""


class ActionSums:
    """Sums per action (M,), whose number grows while the log is read for the first time."""

    def __init__(self) -> None:
        self._sums: dict[str, Floats] = {}

    def add(self, name: str, actions: Codes, values: Floats | None, n_actions: int) -> None:
        """Add values (n,), None for ones, to the sums of their actions."""
        more = np.bincount(actions, values, n_actions).astype(np.float64)
        before = self._sums.get(name, np.zeros(0))
        more[: len(before)] += before
        self._sums[name] = more

    def get(self, name: str, n_actions: int) -> Floats:
        """Return the sums, 0 for actions that came later."""
        found = self._sums.get(name, np.zeros(0))
        return np.concatenate([found, np.zeros(n_actions - len(found))])


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
    sums: ActionSums = field(default_factory=ActionSums)
    seen_folds: set[int] = field(default_factory=set[int])

    def run(self, watch: Watch) -> None:
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
        """FitPass the models."""
        for model in (self.reward_model, self.propensity_model):
            if model is not None:
                model.finish(len(self.log.actions))

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
        self.sums.add("counts", rows.actions, None, n_actions)
        self.sums.add("inverse", rows.actions, scaled, n_actions)
        self.sums.add("squares", rows.actions, np.square(scaled), n_actions)
        self.sums.add("earned", rows.actions, scaled * rows.rewards, n_actions)
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
        return self.sums.get("counts", len(self.log.actions))

    @property
    def calibration(self) -> Calibration:
        """Whether the logged propensities agree with the shares of the actions."""
        n = len(self.log.actions)
        inverse, squares = self.sums.get("inverse", n), self.sums.get("squares", n)
        return calibrate(self.log.actions, self.counts, inverse, squares, self.weight, self.spread)

    def ranked(self) -> Codes:
        """Return the logged actions, that with the largest self-normalised estimate first."""
        n = len(self.log.actions)
        inverse = self.sums.get("inverse", n)
        values = np.where(inverse > 0, self.sums.get("earned", n) / np.where(inverse > 0, inverse, 1.0), -np.inf)
        order = np.argsort(-values, kind="stable")
        return order[self.counts[order] > 0]

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


@dataclass(eq=False)
class TargetSums:
    """What the second pass keeps of one policy."""

    model: ModelSums
    terms: dict[str, TermSums] = field(default_factory=dict[str, TermSums])
    weights: WeightSums = field(default_factory=WeightSums)
    mass: Floats = field(default_factory=lambda: np.zeros(0))
    segments: Floats = field(default_factory=lambda: np.zeros((0, 0)))


class LoggedColumns(NamedTuple):
    """Columns of logged rows (n,) that do not depend on the policy; ``weights`` is None where all are 1."""

    rewards: Floats
    propensities: Floats
    predicted: Floats
    estimated: Floats | None
    weights: Floats | None

    def of(self, view: TargetView) -> tuple[TargetRows, Floats | None, Codes | None]:
        """Return the rows that a policy might have had, their weights, and their places; None for all rows."""
        target, places = view.target, view.places
        if places is None and not target.min() > 0 and np.count_nonzero(target) < MOSTLY * len(target):
            places = np.flatnonzero(target)
            target = target[places]
        rewards, propensities, predicted, estimated, weights = self if places is None else self._at(places)
        return TargetRows(rewards, target, propensities, predicted, estimated), weights, places

    def _at(self, places: Codes) -> "LoggedColumns":
        estimated = None if self.estimated is None else self.estimated[places]
        weights = None if self.weights is None else self.weights[places]
        return LoggedColumns(
            self.rewards[places], self.propensities[places], self.predicted[places], estimated, weights
        )


@dataclass(eq=False)
class EstimatePass:
    """The second pass: the sums of every policy's terms per block, and its support."""

    fit: FitPass
    targets: Sequence[Target]
    estimators: Sequence[ValueEstimator | Chosen]
    blocks: Blocks
    segment: str | None = None

    def __post_init__(self) -> None:
        n_actions = len(self.fit.log.actions)
        self.weight, self.rows = np.zeros(self.blocks.count), np.zeros(self.blocks.count, np.int64)
        self.levels: dict[Any, int] = {}
        self.sums = {one.name: TargetSums(ModelSums(self.blocks.count)) for one in self.targets}
        for sums in self.sums.values():
            sums.mass, sums.segments = np.zeros(n_actions), np.zeros((MOST_LEVELS + 1, n_actions))
        self.by_time = np.zeros((3, min(MOST_STRETCHES, len(self.fit.log.episode_names) or 20, self.fit.rows)))
        self._forms = {form: form_key(form) for form in _forms(self.estimators)}

    def run(self, watch: Watch) -> None:
        """Read the log once."""
        done = 0
        for rows in self.fit.log.ahead():
            self._add(rows, done)
            done += len(rows)
            watch("estimate", done, self.fit.rows)

    def _add(self, rows: LoggedRows, done: int) -> None:
        fit, weights = self.fit, None if self.fit.unit_weights else rows.weights
        adder = self.blocks.adder(rows, done, weights)
        adder(self.weight, rows.weights if weights is None else np.ones(len(rows)))
        adder.add_rows(self.rows)
        predicted, estimated = self._predict(rows)
        known = np.zeros(len(rows)) if predicted is None else rows.executed(predicted)
        logged = LoggedColumns(rows.rewards, fit.propensities(rows, estimated), known, estimated, weights)
        spans = span_of(rows.rewards), span_of(rows.rewards - known)
        levels = self._levels(rows)
        self._add_time(rows, done, weights)
        for target in self.targets:
            sums = self.sums[target.name]
            if isinstance(target, LoggedTarget):
                observed = sums.terms.setdefault(OBSERVED, TermSums.zero(self.blocks.count, Terms(rows.rewards)))
                observed.add(adder, Terms(rows.rewards), spans[0])
                self._add_choices(sums, rows.actions, levels)
                continue
            view = target.view(rows, predicted)
            if view.expected is not None:
                sums.model.add(adder, view.expected)
            part, carried, places = logged.of(view)
            sums.weights.add(part, len(rows), carried, weights)
            self._add_terms(sums, adder if places is None else adder.at(places), part, spans)
            self._add_mass(sums, len(rows), view.probabilities, levels)

    def _predict(self, rows: LoggedRows) -> tuple[Floats | None, Floats | None]:
        """Return predicted rewards (n, M) and estimated propensities (n,), None where no model is fitted."""
        fit = self.fit
        if fit.reward_model is None and fit.propensity_model is None:
            return None, None
        features, folds = fit.features(rows.table), rows.folds(fit.fold_by, fit.folds)
        predicted = None if fit.reward_model is None else fit.reward_model.predict(features, folds)
        chances = None if fit.propensity_model is None else fit.propensity_model.predict(features, rows, folds)
        return predicted, chances

    def _add_terms(self, sums: TargetSums, adder: BlockAdder, part: TargetRows, spans: tuple[float, float]) -> None:
        """Add the terms of every form, given the spans of the rewards and of their distances to q̂."""
        for form, key in self._forms.items():
            terms = form.terms(part)
            if key not in sums.terms:
                sums.terms[key] = TermSums.zero(self.blocks.count, terms, sums.model if form.needs_model else None)
            # Estimated propensities have ratios of their own.
            own = isinstance(form, BalancedInversePropensity)
            sums.terms[key].add(adder, terms, None if own else form.reach(part.largest) * spans[form.needs_model])

    def _add_choices(self, sums: TargetSums, codes: Codes, levels: Codes | None) -> None:
        """Add what was executed (n,) to the shares of the actions."""
        count = sums.segments.shape[1]
        sums.mass += np.bincount(codes, minlength=count)
        if levels is not None:
            cells = np.bincount(levels * count + codes, minlength=sums.segments.size)
            sums.segments += cells.reshape(sums.segments.shape)

    def _add_mass(self, sums: TargetSums, rows: int, chances: Floats, levels: Codes | None) -> None:
        """Add the probabilities (n, M), or (M,) for all rows, to the shares of the actions."""
        if chances.ndim == 1:
            sums.mass += rows * chances
            if levels is not None:
                sums.segments += np.bincount(levels, minlength=len(sums.segments))[:, None] * chances
            return
        sums.mass += np.ones(rows) @ chances
        if levels is not None:
            for level in np.unique(levels):
                sums.segments[level] += chances[levels == level].sum(axis=0)

    def _levels(self, rows: LoggedRows) -> Codes | None:
        """Return the segment (n,) of each row; what comes after the first eight levels is "other"."""
        if self.segment is None:
            return None
        encoded = rows.table.column(self.segment).cast(arrow().string()).fill_null("missing").dictionary_encode()
        names = encoded.dictionary.to_pylist()
        for name in names:
            if name not in self.levels and len(self.levels) < MOST_LEVELS:
                self.levels[name] = len(self.levels)
        codes = np.array([self.levels.get(name, MOST_LEVELS) for name in names], np.intp)
        return codes[encoded.indices.to_numpy(zero_copy_only=False)]

    def _add_time(self, rows: LoggedRows, done: int, weights: Floats | None) -> None:
        """Add rewards to stretches of the log, for the picture of rewards over time."""
        stretches, episodes = self.by_time.shape[1], len(self.fit.log.episode_names)
        if rows.episodes is not None:
            adder = BlockAdder(rows.episodes * stretches // episodes, stretches, weights)
        else:
            edges = -(-np.arange(stretches + 1) * self.fit.rows // stretches)
            adder = BlockAdder.consecutive(edges, done, len(rows), weights)
        adder(self.by_time[0], np.ones(len(rows)))
        adder(self.by_time[1], rows.rewards)
        adder(self.by_time[2], np.square(rows.rewards))

    # ---- what the sums say ----------------------------------------------------------------------------------

    def estimate(self, target: Target, estimator: ValueEstimator | Chosen) -> tuple[Estimate, float | None]:
        """Return an estimate of a policy's value, and the setting that it has or that the data chose."""
        if isinstance(estimator, Chosen):
            options = (*estimator.candidates, estimator.reference)
            some = [self._estimate(target, one) for one in options]
            estimator = options[least_error(some, some[-1])]
        made = self._estimate(target, estimator)
        if estimator.error_of is not None:
            made = replace(made, error_parts=self._estimate(target, FAMILY[estimator.error_of]()).parts)
        # The logged policy has no weights: its rewards are all there.
        one_more = self.sums[target.name].weights.one_more(self.fit.reward_range, made.standard_error)
        return replace(made, one_more=one_more), estimator.setting

    def _estimate(self, target: Target, form: ValueEstimator) -> Estimate:
        key = OBSERVED if isinstance(target, LoggedTarget) else form_key(form)
        sums = self.sums[target.name].terms[key]
        return Estimate(parts=((1.0, sums),), weight=self.weight, rows=self.rows, by=self.blocks.by)

    def support(self, target: Target) -> Support | None:
        """Return the support of a policy; None for the logged one, which needs none."""
        if isinstance(target, LoggedTarget):
            return None
        sums, fit = self.sums[target.name], self.fit
        trusted = fit.propensity != "logged" or fit.calibration.trusted
        return judge(sums.weights, sums.mass / fit.rows, fit.counts, fit.log.actions, trusted)

    def shares(self, target: Target, levels: Sequence[int]) -> Floats:
        """Return how often a policy chooses each action (k, M) in each of these segments; (1, M) without segments."""
        sums = self.sums[target.name]
        return sums.segments[list(levels)] if levels else sums.mass[None, :]

    def check_groups(self) -> None:
        """Refuse intervals from fewer than two blocks."""
        used = int((self.rows > 0).sum())
        if used < 2:
            rule = f"an interval by {self.blocks.by} needs at least two"
            raise ParameterError("group_by", f"one {self.blocks.by} only", rule, "group by row, or use a longer log")


def form_key(form: ValueEstimator) -> str:
    """Return the key of an estimator with its setting."""
    return form.name if form.setting is None else f"{form.name} {form.setting:g}"


def _forms(estimators: Sequence[ValueEstimator | Chosen]) -> dict[ValueEstimator, None]:
    """Return every estimator whose terms are summed, candidates and references included, each once."""
    found: dict[ValueEstimator, None] = {}
    for one in estimators:
        for form in (one,) if isinstance(one, ValueEstimator) else (*one.candidates, one.reference):
            found[form] = None
            if form.error_of is not None:
                found[FAMILY[form.error_of]()] = None
    return found


def needs_propensity_model(estimators: Sequence[ValueEstimator | Chosen]) -> bool:
    """Return whether one of the estimators weights by estimated propensities."""
    return any(isinstance(one, BalancedInversePropensity) for one in estimators)
