"""The second pass over a log: sums of the estimators' terms, and what they say of each policy."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from spuir.base.records import Codes, Floats
from spuir.errors import ParameterError
from spuir.evaluation.block_sums import BlockAdder, Blocks, Estimate, ModelSums, TermSums, least_error, span_of
from spuir.evaluation.estimators import FAMILY, BalancedInversePropensity, Chosen, TargetRows, Terms, ValueEstimator
from spuir.evaluation.fit_pass import FitPass
from spuir.evaluation.logged_rows import LoggedRows
from spuir.evaluation.support import Support, WeightSums, judge
from spuir.evaluation.targets import LoggedTarget, Target, TargetView
from spuir.tables.arrow import pa
from spuir.training.scan import Watcher

OBSERVED = "observed"
"""Key of the sums of the log's own rewards."""
SPARSE = 0.7
"""Rows that a policy might have had are picked out where they are a smaller share than this."""
MOST_LEVELS = 8
"""Segments that a report shows."""
MOST_STRETCHES = 60
"""Episodes, or groups of them, whose mean reward a report shows."""


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
        if places is None and not target.min() > 0 and np.count_nonzero(target) < SPARSE * len(target):
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

    def run(self, watch: Watcher) -> None:
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
        encoded = rows.table.column(self.segment).cast(pa.string()).fill_null("missing").dictionary_encode()
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
            adder = BlockAdder(np.arange(done, done + len(rows)) * stretches // self.fit.rows, stretches, weights)
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

    def facts(self) -> dict[str, Any]:
        """Return what a report says of the log."""
        fit, log = self.fit, self.fit.log
        return {
            "rows": fit.rows,
            "weight": fit.weight,
            "mean_reward": fit.reward / fit.weight,
            "actions": [str(label) for label in log.actions],
            "counts": fit.counts.tolist(),
            "propensity": fit.propensity,
            "folds": {"count": fit.folds, "by": fit.fold_by},
            "group_by": self.blocks.by,
            "episodes": len(log.episode_names),
            "reward_model": type(fit.reward_model).__name__ if fit.reward_model is not None else None,
        }

    def pictures(self) -> dict[str, Any]:
        """Return the data of the figures."""
        levels = {name: self.levels[name] for name in sorted(self.levels)}
        if len(levels) == MOST_LEVELS:
            levels["other"] = MOST_LEVELS
        return {
            "calibration": [list(line) for line in self.fit.calibration.rows]
            if self.fit.propensity == "logged"
            else [],
            "reward_over_log": self.by_time,
            "over": _over(len(self.fit.log.episode_names), self.by_time.shape[1]),
            "segment": self.segment,
            "levels": list(levels),
            "shares": {one.name: self.shares(one, list(levels.values())) for one in self.targets},
        }

    def check_groups(self) -> None:
        """Refuse intervals from fewer than two blocks."""
        used = int((self.rows > 0).sum())
        if used < 2:
            rule = f"an interval by {self.blocks.by} needs at least two"
            remedy = "use a longer log, or more of it (--holdout, --after)"
            remedy = remedy if self.blocks.by == "row" else f"group by row, or {remedy}"
            raise ParameterError("group_by", f"one {self.blocks.by} only", rule, remedy)


def _over(episodes: int, stretches: int) -> str:
    """Return what the figure of rewards is drawn over."""
    if not episodes:
        return f"log, in {stretches} stretches of equal length"
    return "episode" if episodes == stretches else f"{episodes:,} episodes, in {stretches} groups"


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
