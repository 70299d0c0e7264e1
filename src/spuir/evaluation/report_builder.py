"""From the sums of the second pass to the records of a report."""

from collections.abc import Sequence
from typing import Any

from spuir.evaluation.block_sums import Estimate
from spuir.evaluation.evaluation_report import (
    BETTER,
    OPEN,
    REFUSED,
    WORSE,
    EvaluationReport,
    PolicyDifference,
    PolicyValue,
)
from spuir.evaluation.intervals import interval
from spuir.evaluation.passes import MOST_LEVELS, EstimatePass
from spuir.evaluation.support import NONE, WEAK, advice
from spuir.evaluation.targets import Target


class ReportSettings:
    """How values are reported: the estimator that decides, intervals and the number of candidates."""

    def __init__(self, headline: str, interval: str, level: float, seed: int, candidates: int) -> None:
        self.headline, self.interval, self.level, self.seed = headline, interval, level, seed
        self.candidates = max(candidates, 1)

    @property
    def corrected(self) -> float:
        """The level of one interval, so that those of all candidates hold together."""
        return 1 - (1 - self.level) / self.candidates


class ReportBuilder:
    """From the sums of the second pass to the records of the report."""

    def __init__(
        self,
        second: EstimatePass,
        targets: Sequence[Target],
        baselines: Sequence[Target],
        settings: ReportSettings,
        notices: list[str],
    ) -> None:
        self.second, self.targets, self.baselines = second, targets, baselines
        self.settings, self.notices = settings, notices
        every = [*targets, *baselines]
        self.supports = {one.name: found for one in every if (found := second.support(one)) is not None}
        self.estimates: dict[tuple[str, str], tuple[Estimate, float | None]] = {
            (target.name, form.name): second.estimate(target, form) for target in every for form in second.estimators
        }

    def report(self) -> EvaluationReport:
        """Return the report."""
        settings, fit = self.settings, self.second.fit
        for name in (target.name for target in self.targets):
            if name in self.supports and self.supports[name].same_policy:
                self.notices.append(
                    f"The log was written by {name} itself: every weight is 1, and its value is the mean reward."
                )
        return EvaluationReport(
            evaluated=tuple(target.name for target in self.targets),
            baselines=tuple(target.name for target in self.baselines),
            estimator=settings.headline,
            interval=settings.interval,
            level=settings.level,
            seed=settings.seed,
            candidates=settings.candidates,
            values=tuple(self._value(*key, settings.level) for key in self.estimates),
            differences_found=tuple(self._differences()),
            supports=self.supports,
            winner=self._winner(),
            help_wanted=advice(len(fit.log.actions)),
            facts=self._facts(),
            notices=tuple(dict.fromkeys(self.notices)),
            pictures=self._pictures(),
            sums={key: estimate for key, (estimate, _) in self.estimates.items()},
        )

    def _refuses(self, policy: str) -> bool:
        found = self.supports.get(policy)
        return found is not None and found.verdict == NONE

    def _value(self, policy: str, form: str, level: float) -> PolicyValue:
        estimate, setting = self.estimates[policy, form]
        if self._refuses(policy):
            blank = {"value": None, "low": None, "high": None, "standard_error": None}
            return PolicyValue(policy=policy, estimator=form, setting=setting, **blank)
        low, high = interval(estimate, level, self.settings.interval, self.settings.seed)
        return PolicyValue(
            policy=policy,
            estimator=form,
            setting=setting,
            value=estimate.value,
            low=low,
            high=high,
            standard_error=estimate.standard_error,
        )

    def _differences(self) -> list[PolicyDifference]:
        """Return the difference of every evaluated policy to every other one."""
        every = [*self.targets, *self.baselines]
        return [self._difference(one.name, two.name) for one in self.targets for two in every if one is not two]

    def _difference(self, policy: str, against: str) -> PolicyDifference:
        blank = {"difference": None, "low": None, "high": None, "relative": None}
        if self._refuses(policy) or self._refuses(against):
            return PolicyDifference(policy=policy, against=against, **blank, verdict=REFUSED)
        settings = self.settings
        other = self.estimates[against, settings.headline][0]
        paired = self.estimates[policy, settings.headline][0].minus(other)
        low, high = interval(paired, settings.level, settings.interval, settings.seed)
        return PolicyDifference(
            policy=policy,
            against=against,
            difference=paired.value,
            low=low,
            high=high,
            relative=paired.value / other.value if other.value > 0 else None,
            verdict=self._verdict(paired, policy, against),
        )

    def _verdict(self, paired: Estimate, policy: str, against: str) -> str:
        """Return who is better; with weak support an empirical Bernstein interval has to agree."""
        weak = any(self.supports[name].verdict == WEAK for name in (policy, against) if name in self.supports)
        kinds = (self.settings.interval, *(["empirical-bernstein"] if weak else []))
        ends = [interval(paired, self.settings.corrected, kind, self.settings.seed) for kind in kinds]
        if all(low > 0 for low, _ in ends):
            return BETTER
        return WORSE if all(high < 0 for _, high in ends) else OPEN

    def _winner(self) -> PolicyValue | None:
        """Return the best policy that the log supports well, or else weakly, with a corrected interval."""
        names = [one.name for one in (*self.targets, *self.baselines) if not self._refuses(one.name)]
        weak = {name for name in names if name in self.supports and self.supports[name].verdict == WEAK}
        able = [name for name in names if name not in weak] or names
        best = max(able, key=lambda name: self.estimates[name, self.settings.headline][0].value, default=None)
        return None if best is None else self._value(best, self.settings.headline, self.settings.corrected)

    def _facts(self) -> dict[str, Any]:
        fit, log = self.second.fit, self.second.fit.log
        return {
            "rows": fit.rows,
            "weight": fit.weight,
            "mean_reward": fit.reward / fit.weight,
            "actions": [str(label) for label in log.actions],
            "counts": fit.counts.tolist(),
            "propensity": fit.propensity,
            "folds": {"count": fit.folds, "by": fit.fold_by},
            "group_by": self.second.blocks.by,
            "episodes": len(log.episode_names),
            "reward_model": type(fit.reward_model).__name__ if fit.reward_model is not None else None,
        }

    def _pictures(self) -> dict[str, Any]:
        """Return the data of the figures."""
        second, fit = self.second, self.second.fit
        known = sorted(second.levels)
        levels = [*known, *(["other"] if len(known) == MOST_LEVELS else [])]
        order = [*(second.levels[level] for level in known), *([MOST_LEVELS] if len(known) == MOST_LEVELS else [])]
        every = [*self.targets, *self.baselines]
        return {
            "calibration": [list(line) for line in fit.calibration.rows] if fit.propensity == "logged" else [],
            "reward_over_log": second.by_time,
            "over": _over(len(fit.log.episode_names), second.by_time.shape[1]),
            "segment": second.segment,
            "levels": levels,
            "shares": {one.name: second.shares(one, order) for one in every},
        }


def _over(episodes: int, stretches: int) -> str:
    """Return what the figure of rewards is drawn over."""
    if not episodes:
        return f"log, in {stretches} stretches of equal length"
    return "episode" if episodes == stretches else f"{episodes:,} episodes, in {stretches} groups"
