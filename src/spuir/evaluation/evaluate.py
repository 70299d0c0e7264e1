"""Off-policy evaluation: what policies would have earned on the decisions of a log that another one wrote."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from spuir.base.parameters import COUNT, INSIDE, check_value
from spuir.errors import InputError, ParameterError, did_you_mean
from spuir.evaluation.block_sums import Blocks
from spuir.evaluation.estimators import Chosen, ValueEstimator, make_estimators
from spuir.evaluation.evaluation_report import ALWAYS, EvaluationReport
from spuir.evaluation.learned_rows import LearnedRows
from spuir.evaluation.logged_rows import EvaluationLog
from spuir.evaluation.passes import EstimatePass, FitPass, Watch, needs_propensity_model
from spuir.evaluation.propensity_model import PropensityModel
from spuir.evaluation.report_builder import ReportBuilder, ReportSettings
from spuir.evaluation.reward_models import ContextFeatures, make_reward_model
from spuir.evaluation.split_training import train_on_earlier, untrained
from spuir.evaluation.targets import (
    LOGGED,
    UNIFORM,
    BanditTarget,
    FixedTarget,
    Target,
    make_target,
    make_targets,
    named_policies,
)
from spuir.logs import Log, cut_episodes, open_log
from spuir.logs.columns import renaming
from spuir.logs.span import log_after
from spuir.tables.arrow import arrow
from spuir.tables.encoder import LEARNING_ROWS
from spuir.training.propensities import with_column

ESTIMATORS = ("dm", "ips", "clipped-ips", "snips", "dr", "sndr", "switch-dr", "dros")
AGAINST = (LOGGED, UNIFORM, ALWAYS + "*")
PROPENSITIES = ("logged", UNIFORM, "estimate")
MOST_FIXED = 10
"""Single actions that are evaluated in full: the best ones by a first estimate."""


def evaluate(
    source: Any,
    policies: Any = (),
    *,
    against: Sequence[str] = AGAINST,
    estimators: Sequence[Any] = ESTIMATORS,
    estimator: str | None = None,
    propensity: str | None = None,
    reward_model: Any = "linear",
    folds: int = 5,
    interval: str = "normal",
    level: float = 0.95,
    group_by: str | None = None,
    actions: Sequence[Hashable] | None = None,
    batch_size: int | None = None,
    every: Any = None,
    after: Any = None,
    holdout: float = 0.3,
    segment: str | None = None,
    on_training_rows: bool = False,
    seed: int = 0,
    watch: Watch | None = None,
    **opening: Any,
) -> EvaluationReport:
    """Estimate what policies would have earned on the decisions of a log, with intervals and a verdict on support.

    Parameters
    ----------
    source, **opening
        A log, a path, a DataFrame, or whatever else :func:`spuir.logs.open_log` takes, with its options.
    policies
        What to evaluate, one or a list or a dict by name: a :class:`Bandit`, the path of a saved model, "uniform",
        "always:LABEL", a table of probabilities (n, M), obp's ``action_dist`` (n, M, 1), or a function of a DataFrame
        of contexts that returns labels or probabilities. A policy that has not learned, such as "auto" or
        ``make_policy("puir")``, is trained on the earlier part of the log, and all are evaluated on the rest.
    against
        Baselines: "logged", "uniform", "always:LABEL", and ``always:*`` for every single action.
    estimators, estimator
        Names or objects of estimators to report, and the one that decides; None = "dr", "snips" without a reward
        model.
    propensity
        Where propensities come from: "logged" (the column ``propensity``), "uniform" (every eligible action was
        equally likely), "estimate" (a model of them), or the name of another column. None = logged.
    reward_model, folds
        "linear" or "nystroem" ridge regression, a scikit-learn regressor, or None; and how many folds it is
        cross-fitted in. Where the log has a catalogue, actions share a ridge regression through their features if that
        predicts held-out rewards better.
    interval, level
        "normal", "bootstrap", "empirical-bernstein" or "sequence", and its level.
    group_by
        What is independent of each other: "row", "unit" or "episode". None = "unit" if the log has ``unit_id``.
    actions
        Labels in the order of the columns of tables of probabilities; None = the log's labels, sorted.
    batch_size, every
        How episodes are cut, as in training; a column ``episode`` takes precedence.
    after
        Use the rows at and after this time only.
    holdout
        Share of the log, the latest part, to evaluate on if a policy has to be trained first.
    segment
        Context column by which action shares are shown; None = the first text column.
    on_training_rows
        Evaluate a model even on rows that it learned from; its value is then too high.
    seed
        Seed of the bootstrap.
    watch
        Called with (stage, rows done, rows in total).
    """
    check_value("level", level, INSIDE, "choose a level such as 0.95")
    check_value("folds", folds, COUNT, "choose a number of folds such as 5")
    log = _open(source, propensity, opening)
    policies = named_policies(policies)
    if names := untrained(policies):
        if after is not None:
            rule = f"{names[0]} is trained on the earlier part of the log, and holdout says which is the rest"
            raise ParameterError("after", repr(after), rule, "leave it out, or evaluate a saved model")
        how = {"batch_size": batch_size, "every": every, "propensity": propensity, "watch": watch}
        policies, log = train_on_earlier(log, policies, holdout, **how)
    log = log if after is None else log_after(log, after)
    targets = make_targets(policies, actions)
    chosen = _estimators(estimators, estimator, reward_model, propensity)
    job = Evaluation(
        log=EvaluationLog(
            log=log,
            cut=None if batch_size is None and every is None else cut_episodes(log, batch_size, every),
            actions=_first_labels(targets, actions),
            context=context_columns(log),
            mask_order=actions if actions is not None else _mask_order(targets),
            ignored=("propensity",) if _kind(propensity) != "logged" else (),
            offered=_offered(targets, log),
        ),
        propensity=_kind(propensity),
        estimators=chosen,
        watch=watch or _ignore,
    )
    for target in targets:
        if isinstance(target, BanditTarget):
            target.columns(job.log.context)
            job.learned.append(LearnedRows(target, job.log))
    segment = _segment(log, segment)
    with threadpool_limits(limits=1):
        fit = job.fit(reward_model, folds)
        job.check_learned(on_training_rows)
        baselines, candidates = make_baselines(against, fit, targets)
        notices = [notice for target in (*targets, *baselines) for notice in target.prepare(fit.log)]
        blocks = Blocks.of(_grouping(group_by, job.log), fit.rows)
        second = EstimatePass(fit, [*targets, *baselines], chosen, blocks, segment)
        second.run(job.watch)
    second.check_groups()
    settings = ReportSettings(_headline(estimator, chosen), interval, level, seed, len(targets) + candidates)
    return ReportBuilder(second, targets, baselines, settings, [*job.notices, *notices]).report()


def _ignore(*_: object) -> None:
    """Ignore progress."""


def _open(source: Any, propensity: str | None, opening: Mapping[str, Any]) -> Log:
    """Open the log; another column than ``propensity`` takes its name."""
    column = None if propensity in PROPENSITIES else propensity
    if column is not None and isinstance(source, Log):
        rule = f"of an open log it is one of {', '.join(PROPENSITIES)}"
        raise ParameterError("propensity", repr(column), rule, "rename the column when the log is opened")
    log = source if isinstance(source, Log) else open_log(source, **with_column(opening, column))
    if _kind(propensity) == "logged" and "propensity" not in log.schema.names:
        rule = "off-policy evaluation weights rows by it"
        remedy = (
            f"rename a column, {renaming('…', 'propensity')}, or say --propensity uniform if actions were drawn "
            "evenly, or --propensity estimate to model it"
        )
        raise InputError("log", "no column 'propensity'", rule, remedy)
    return log


def _kind(propensity: str | None) -> str:
    return propensity if propensity in PROPENSITIES and propensity is not None else "logged"


def context_columns(log: Log) -> tuple[str, ...]:
    """Return the context columns of a log; a position counts as context."""
    extra = ("position",) if "position" in log.schema.names else ()
    return tuple(dict.fromkeys((*log.context, *extra)))


def _estimators(
    names: Sequence[Any], headline: str | None, reward_model: Any, propensity: str | None
) -> list[ValueEstimator | Chosen]:
    """Return the estimators: those with a reward model only where there is one, balanced ones where it is needed."""
    every = [*names, *([headline] if headline and headline not in names else [])]
    if propensity == "estimate" and names is ESTIMATORS:
        every.append("balanced-ips")
    made = make_estimators(every)
    if reward_model is None:
        made = [one for one in made if not _needs_model(one)]
    if not made:
        raise ParameterError("estimators", "none", "an evaluation needs at least one", "name one, such as dr")
    return made


def _needs_model(one: ValueEstimator | Chosen) -> bool:
    return one.needs_model if isinstance(one, ValueEstimator) else one.candidates[0].needs_model


def _headline(asked: str | None, chosen: Sequence[ValueEstimator | Chosen]) -> str:
    names = [one.name for one in chosen]
    return next(name for name in (asked, "dr", "snips", *names) if name in names)


def _first_labels(targets: Sequence[Target], actions: Sequence[Hashable] | None) -> list[Hashable]:
    """Return the labels that are known before the log is read."""
    known = [list(one.own_labels()) for one in targets if isinstance(one, BanditTarget)]
    return list(dict.fromkeys([*(actions or ()), *(label for labels in known for label in labels)]))


def _offered(targets: Sequence[Target], log: Log) -> tuple[str, ...]:
    """Return the columns with features of actions that the evaluated bandits read."""
    bandits = [one for one in targets if isinstance(one, BanditTarget)]
    return tuple(dict.fromkeys(name for one in bandits for name in one.feature_columns(log)))


def _mask_order(targets: Sequence[Target]) -> Sequence[Hashable] | None:
    return next((one.own_labels() for one in targets if isinstance(one, BanditTarget)), None)


def _grouping(asked: str | None, log: EvaluationLog) -> str:
    units = "unit_id" in log.log.schema.names
    if asked is None:
        return "unit" if units else "row"
    if asked == "unit" and not units:
        rule, remedy = "grouping by unit needs it", f"rename one, {renaming('…', 'unit_id')}"
        raise InputError("log", "no column 'unit_id'", rule, remedy)
    if asked == "episode" and log.cut is None:
        rule = "grouping by episode needs it, or a way to cut the log"
        raise InputError("log", "no column 'episode'", rule, "say how episodes are cut (--batch-size, --every)")
    return asked


def _segment(log: Log, given: str | None) -> str | None:
    """Return the given context column, or the first one of text or booleans."""
    types = arrow().types
    kinds = {name: log.schema.field(name).type for name in log.context}
    if given is not None:
        if given not in kinds:
            raise InputError(
                "segment", repr(given), "a segment is a context column", did_you_mean(given, kinds, "columns")
            )
        if types.is_nested(kinds[given]):
            rule = "a segment has one value per row"
            raise InputError("segment", f"{given!r} of type {kinds[given]}", rule, "name a column of text or numbers")
        return given
    return next((n for n, kind in kinds.items() if types.is_string(kind) or types.is_boolean(kind)), None)


class Evaluation:
    """An evaluation in progress: the log, where propensities come from, and what was noticed."""

    def __init__(self, log: EvaluationLog, propensity: str, estimators: Sequence[Any], watch: Watch) -> None:
        self.log, self.propensity, self.estimators, self.watch = log, propensity, estimators, watch
        self.notices = list(log.log.notices)
        self.learned: list[LearnedRows] = []

    def fit(self, reward_model: Any, folds: int) -> FitPass:
        """Read the log once and fit the models; by smaller pieces if all rows are in one fold."""
        features = self._features(reward_model)
        for by in self._fold_keys():
            fit = FitPass(
                log=self.log,
                features=features,
                propensity=self.propensity,
                reward_model=make_reward_model(reward_model, folds, self.log.action_columns),
                propensity_model=PropensityModel(folds)
                if self.propensity == "estimate" or needs_propensity_model(self.estimators)
                else None,
                fold_by=by,
                folds=folds,
                learned=[one for one in self.learned if one.useful and not self.log.complete],
            )
            fit.run(self.watch)
            if len(fit.seen_folds) > 1 or folds == 1:
                break
        fit.finish()
        self._notice(fit)
        return fit

    def check_learned(self, allowed: bool) -> None:
        """Refuse models that learned from this log, or note it."""
        for one in self.learned:
            if not allowed:
                one.refuse()
            elif one.found() is not None:
                self.notices.append(f"{one.target.name} learned from rows of this log: its value is too high.")

    def _fold_keys(self) -> list[str]:
        names = self.log.log.schema.names
        return [*(["unit"] if "unit_id" in names else ["episode"] if self.log.cut else []), "blocks", "row"]

    def _features(self, reward_model: Any) -> ContextFeatures:
        nystroem = reward_model == "nystroem" if isinstance(reward_model, str) else False
        if not self.log.context:
            return ContextFeatures(None)
        first = self.log.log.head(LEARNING_ROWS, list(self.log.context))
        if not first.num_rows:
            raise InputError("log", "no rows", "evaluation needs decisions", "check the path, and --after")
        return ContextFeatures(first, nystroem)

    def _notice(self, fit: FitPass) -> None:
        if self.log.silent:
            self.notices.append(f"{self.log.silent:,} rows without a reward were left out.")
        if self.log.faults.count:
            self.notices.append(f"{self.log.faults.count:,} broken rows were left out.")
        if self.propensity == "estimate":
            self.notices.append(
                "Propensities are estimated: values are right only if the context columns hold everything that the "
                "logging policy looked at."
            )
        if self.propensity == UNIFORM:
            self.notices.append("Propensities are taken as uniform over the eligible actions.")
        if self.log.cut is not None and len(self.log.episode_names) == 1:
            self.notices.append(
                "The log has one episode only: models are cross-fitted by blocks of rows, and nothing shows how "
                "rewards change between episodes."
            )
        calibration = fit.calibration
        if self.propensity == "logged" and not calibration.trusted:
            names = ", ".join(str(label) for label in calibration.wrong[:5])
            self.notices.append(
                f"The logged propensities of {names} do not agree with how often they were chosen: the mean of "
                "1[action]/propensity is clearly above 1. Values may be wrong; spuir doctor shows more."
            )


def make_baselines(against: Sequence[str], fit: FitPass, targets: Sequence[Target]) -> tuple[list[Target], int]:
    """Return the baselines, and how many candidates they stand for; of many single actions the best are kept."""
    if isinstance(against, str):
        raise ParameterError("against", repr(against), "it is a list of names", f"write [{against!r}]")
    taken = {target.name for target in targets}
    made: list[Target] = []
    candidates = 0
    for name in against:
        if name == ALWAYS + "*":
            ranked = fit.ranked()
            labels = [fit.log.actions[code] for code in ranked[:MOST_FIXED]]
            made += [FixedTarget(f"{ALWAYS}{label}", label) for label in labels if f"{ALWAYS}{label}" not in taken]
            candidates += len(ranked)
        elif name in (LOGGED, UNIFORM) or name.startswith(ALWAYS):
            candidates += 1
            made += [make_target(name, name, None)] if name not in taken else []
        else:
            rule = "a baseline is logged, uniform, always:LABEL or always:*"
            raise ParameterError("against", repr(name), rule, "pass other policies with the evaluated ones")
    return made, candidates


def action_dist(policy: Any, source: Any, actions: Sequence[Hashable] | None = None, **opening: Any) -> Any:
    """Return the probabilities of a policy on the rows of a log as obp's ``action_dist`` (n, M, 1).

    Actions are in the order of ``actions``; None = the labels of the log and of the policy, sorted.
    """
    log = source if isinstance(source, Log) else open_log(source, **opening)
    (target,) = make_targets([policy], actions)
    first = {"actions": _first_labels([target], actions), "offered": _offered([target], log)}
    rows = EvaluationLog(log=log, context=context_columns(log), **first)
    for _ in rows:
        pass
    target.prepare(rows)
    labels = list(actions) if actions is not None else sorted(rows.actions, key=lambda one: (str(type(one)), one))
    order = np.array([rows.code(label) for label in labels], np.intp)
    chances = np.concatenate([target.probabilities(block) for block in rows])
    return chances[:, order, None]
