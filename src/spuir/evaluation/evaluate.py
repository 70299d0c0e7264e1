"""Off-policy evaluation: what policies would have earned on the decisions of a log that another one wrote."""

from collections.abc import Hashable, Mapping, Sequence
from os.path import exists
from typing import Any

import numpy as np

from spuir.base.counting import counted
from spuir.base.parameters import COUNT, INSIDE, check_value
from spuir.base.process_settings import one_blas_thread
from spuir.errors import InputError, ParameterError, did_you_mean
from spuir.evaluation.block_sums import Blocks
from spuir.evaluation.estimate_pass import EstimatePass
from spuir.evaluation.estimators import BalancedInversePropensity, Chosen, ValueEstimator, make_estimators
from spuir.evaluation.evaluation_report import ALWAYS, EvaluationReport
from spuir.evaluation.fit_pass import FitPass, fit_models
from spuir.evaluation.intervals import check_kind
from spuir.evaluation.learned_rows import LearnedRows, check_learned
from spuir.evaluation.logged_rows import EvaluationLog
from spuir.evaluation.support import LEAST_PIECES, advice
from spuir.evaluation.targets import (
    LOGGED,
    UNIFORM,
    BanditTarget,
    FixedTarget,
    Target,
    make_target,
    named_policies,
)
from spuir.logs import Log, cut_episodes, open_log, split_log
from spuir.logs.columns import renaming
from spuir.logs.span import log_after
from spuir.policies import Policy, list_policies
from spuir.tables.arrow import pa
from spuir.training import train
from spuir.training.scan import Watcher, ignore
from spuir.training.start import episodes_to_learn, with_column

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
    watch: Watcher | None = None,
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
    check_kind(interval)
    log = _open(source, propensity, opening)
    policies, notices = named_policies(policies), list[str]()
    if names := _untrained(policies):
        if after is not None:
            rule = f"{names[0]} is trained on the earlier part of the log, and holdout says which is the rest"
            raise ParameterError("after", repr(after), rule, "leave it out, or evaluate a saved model")
        how = {"batch_size": batch_size, "every": every, "propensity": propensity, "watch": watch}
        policies, log, notices = _train_on_earlier(log, policies, holdout, **how)
    log = log if after is None else log_after(log, after)
    targets = [make_target(name, one, actions) for name, one in policies.items()]
    chosen = _estimators(estimators, estimator, reward_model, propensity)
    kind = _kind(propensity)
    bandits = [one for one in targets if isinstance(one, BanditTarget)]
    rows = EvaluationLog(
        log=log,
        cut=None if batch_size is None and every is None else cut_episodes(log, batch_size, every),
        actions=_first_labels(bandits, actions),
        context=context_columns(log),
        mask_order=actions if actions is not None or not bandits else bandits[0].own_labels(),
        ignored=("propensity",) if kind != "logged" else (),
        offered=_offered(bandits, log),
    )
    for target in bandits:
        target.columns(rows.context)
    learned, segment, watch = [LearnedRows(one, rows) for one in bandits], _segment(log, segment), watch or ignore
    with one_blas_thread:
        estimated = kind == "estimate" or any(isinstance(one, BalancedInversePropensity) for one in chosen)
        how = {"propensity": kind, "estimated": estimated, "learned": learned, "watch": watch}
        fit = fit_models(rows, reward_model, folds, **how)
        notices += fit.notices() + check_learned(learned, on_training_rows)
        baselines, candidates = make_baselines(against, fit, targets)
        notices += [notice for target in (*targets, *baselines) for notice in target.prepare(rows)]
        blocks = Blocks.of(_grouping(group_by, rows), fit.rows)
        second = EstimatePass(fit, [*targets, *baselines], chosen, blocks, segment)
        second.run(watch)
    second.check_groups()
    settings = {"interval": interval, "level": level, "seed": seed, "candidates": max(len(targets) + candidates, 1)}
    return _report(second, targets, baselines, _headline(estimator, chosen), settings, notices)


def _report(
    second: EstimatePass,
    targets: Sequence[Target],
    baselines: Sequence[Target],
    headline: str,
    settings: Mapping[str, Any],
    notices: Sequence[str],
) -> EvaluationReport:
    """Return what the sums of the second pass say."""
    every = [*targets, *baselines]
    supports = {one.name: found for one in every if (found := second.support(one)) is not None}
    estimates = {(one.name, form.name): second.estimate(one, form) for one in every for form in second.estimators}
    written = [one.name for one in targets if one.name in supports and supports[one.name].same_policy]
    own = [
        f"The log was written by {name} itself: every weight is 1, and its value is the mean reward."
        for name in written
    ]
    return EvaluationReport(
        evaluated=tuple(one.name for one in targets),
        baselines=tuple(one.name for one in baselines),
        estimator=headline,
        **settings,
        sums={key: estimate for key, (estimate, _) in estimates.items()},
        settings={key: setting for key, (_, setting) in estimates.items()},
        supports=supports,
        help_wanted=advice(len(second.fit.log.actions)),
        facts=second.facts(),
        notices=tuple(dict.fromkeys([*notices, *own])),
        pictures=second.pictures(),
    )


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
        made = [one for one in made if not one.needs_model]
    if not made:
        raise ParameterError("estimators", "none", "an evaluation needs at least one", "name one, such as dr")
    return made


def _headline(asked: str | None, chosen: Sequence[ValueEstimator | Chosen]) -> str:
    names = [one.name for one in chosen]
    return next(name for name in (asked, "dr", "snips", *names) if name in names)


def _first_labels(bandits: Sequence[BanditTarget], actions: Sequence[Hashable] | None) -> list[Hashable]:
    """Return the labels that are known before the log is read."""
    return list(dict.fromkeys([*(actions or ()), *(label for one in bandits for label in one.own_labels())]))


def _offered(bandits: Sequence[BanditTarget], log: Log) -> tuple[str, ...]:
    """Return the columns with features of actions that the evaluated bandits read."""
    return tuple(dict.fromkeys(name for one in bandits for name in one.feature_columns(log)))


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
    types = pa.types
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


def _untrained(policies: Mapping[str, Any]) -> list[str]:
    """Return the names of those that have to learn first: a policy, or a registered name that no file has."""
    registered = set(list_policies()) - {UNIFORM}
    return [
        name
        for name, one in policies.items()
        if isinstance(one, Policy) or (isinstance(one, str) and one in registered and not exists(one))
    ]


def _train_on_earlier(
    log: Log,
    policies: Mapping[str, Any],
    holdout: float,
    *,
    batch_size: int | None,
    every: Any,
    propensity: str | None,
    watch: Watcher | None,
) -> tuple[dict[str, Any], Log, list[str]]:
    """Return the policies, untrained ones trained on the earlier part of the log, the rest of the log, and notices."""
    names = _untrained(policies)
    for name, one in policies.items():
        if isinstance(one, np.ndarray) or hasattr(one, "columns"):
            rule = f"the log is split to train {names[0]}, and a table has a row for each row of the whole log"
            raise ParameterError("policies", f"a table of probabilities for {name}", rule, "pass a function instead")
    check_value("holdout", holdout, INSIDE, "choose a share such as 0.3")  # both parts need rows
    earlier, rest = split_log(log, holdout)
    known = "uniform" if propensity == "uniform" and "propensity" not in log.schema.names else None
    cut = episodes_to_learn(earlier, batch_size, every)
    how: dict[str, Any] = {"batch_size": cut.batch_size, "every": every, "propensity": known, "watch": watch}
    trained = {name: train(earlier, policies[name], **how) for name in names}
    for name, one in trained.items():
        if one.rows < LEAST_PIECES:
            rule, remedy = f"{name} is trained on at least {LEAST_PIECES} rows", "pass a longer log, or a saved model"
            raise InputError("earlier part of the log", counted(one.rows, "row"), rule, remedy)
    return {**policies, **{name: one.bandit for name, one in trained.items()}}, rest, [cut.notice] if cut.notice else []


def action_dist(policy: Any, source: Any, actions: Sequence[Hashable] | None = None, **opening: Any) -> Any:
    """Return the probabilities of a policy on the rows of a log as obp's ``action_dist`` (n, M, 1).

    Actions are in the order of ``actions``; None = the labels of the log and of the policy, sorted.
    """
    log = source if isinstance(source, Log) else open_log(source, **opening)
    ((name, one),) = named_policies([policy]).items()
    target = make_target(name, one, actions)
    bandits = [target] if isinstance(target, BanditTarget) else []
    first = {"actions": _first_labels(bandits, actions), "offered": _offered(bandits, log)}
    rows = EvaluationLog(log=log, context=context_columns(log), **first)
    for _ in rows:
        pass
    target.prepare(rows)
    labels = list(actions) if actions is not None else sorted(rows.actions, key=lambda one: (str(type(one)), one))
    order = np.array([rows.code(label) for label in labels], np.intp)
    chances = np.concatenate([target.probabilities(block) for block in rows])
    return chances[:, order, None]
