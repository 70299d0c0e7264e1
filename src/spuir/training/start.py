"""Where a training starts: a new policy or a model that is continued, its episodes, actions and propensities."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from spuir.bandit import Bandit
from spuir.base.counting import counted
from spuir.base.parameters import POSITIVE, parameter_names
from spuir.errors import InputError, ParameterError, UnknownNameError, listed, quoted
from spuir.logs import ActionTable, Cut, Log, action_table, cut_episodes
from spuir.logs.action_columns import columns_to_read, number_columns
from spuir.logs.columns import renaming
from spuir.logs.span import count_rows
from spuir.planning import balanced_batch
from spuir.policies import Policy, as_policy, make_policy
from spuir.tables.encoder import LEARNING_ROWS, Encoder
from spuir.training.scan import refuse_empty

PROPENSITIES = ("uniform", "own")
"""What ``propensity`` may say instead of a column or a number: all actions equally likely, or as the policy acts."""
SAY_PROPENSITY = (
    "say --propensity uniform (all actions were equally likely), a COLUMN of the log, a NUMBER in (0, 1], or own "
    "(the log's decisions are this policy's own)"
)


def policy_for_logs(name: str, *, preset: str | None = None, **parameters: Any) -> Policy:
    """Build the policy called ``name`` for columns as they come: with an intercept, and contexts scaled.

    ``preset`` and ``parameters`` are those of :func:`spuir.make_policy`. The preset "authors-code" is taken as it is.
    """
    made = make_policy(name, preset=preset, **parameters)
    known = parameter_names(made)
    scale = "scale_contexts" if "scale_contexts" in known else "scale"
    wanted = {flag: True for flag in ("intercept", scale) if flag in known and flag not in parameters}
    return made if preset is not None else replace(made, **wanted)


def policy_to_train(policy: Policy | str, start: Bandit | None) -> Policy:
    """Return the policy to train: the policy of the model to continue, or the given one."""
    if start is None:
        return policy_for_logs(policy) if isinstance(policy, str) else as_policy(policy)
    if start.encoder is None:
        rule, remedy = "a log has raw rows, which its encoder reads", "continue a model that spuir train made"
        raise InputError("start", "a model without an encoder", rule, remedy)
    return start.policy_


def episodes_to_learn(log: Log, batch_size: int | None, every: Any) -> Cut:
    """Return how a log is cut into episodes: as the caller or the log says, else by the recommended size."""
    if not log.context:
        remedy = (
            "add one to the log, a constant 1 if nothing is known about a decision, and to --context if that is given"
        )
        raise InputError("log", "no context columns", "a policy learns from at least one", remedy)
    if batch_size is not None or every is not None or "episode" in log.schema.names:
        return cut_episodes(log, batch_size, every)
    rows = sum(map(count_rows, log.parts))
    refuse_empty(rows)
    head = log.head(LEARNING_ROWS, log.context)
    try:
        width = Encoder.fit(head).width
    except InputError:  # training refuses the column, and names its file and row
        width = len(log.context)
    size = min(rows, balanced_batch(rows, max(width, 1)))
    by_time = ", and --every day cuts by time" if "time" in log.schema.names else ""
    known = f"each has {counted(size, 'row')}, the recommended size"
    notice = f"Nothing says where an episode ends, so {known}; --batch-size chooses another{by_time}."
    return replace(cut_episodes(log, size), notice=notice)


@dataclass(frozen=True)
class TrainedActions:
    """The actions that a training knows: their labels, their catalogue, and the features that come with each decision.

    ``catalogue`` is None for a policy without a use for features, and for a model that is continued, which has its own.
    """

    labels: list[Hashable]
    catalogue: ActionTable | None = None
    varying: tuple[str, ...] = ()

    @property
    def for_bandit(self) -> Any:
        """What the constructor of a bandit takes."""
        return self.labels if self.catalogue is None else self.catalogue.to_frame()


def with_catalogue(log: Log, actions: Any) -> tuple[Log, Sequence[Hashable] | None]:
    """Return the log with the catalogue that ``actions`` is, if it is one, and the labels that it is otherwise."""
    if actions is None:
        return log, None
    if isinstance(actions, (list, tuple, np.ndarray)):
        return log, list[Hashable](actions)
    return log.with_catalogue(action_table(actions)), None


def actions_to_train(
    logged: Sequence[Hashable], given: Sequence[Hashable] | None, log: Log, policy: Policy, start: Bandit | None
) -> TrainedActions:
    """Return the actions: of the model to continue, of the catalogue, as given, or as they occur in the log."""
    if start is not None:
        labels = start.actions_.tolist()
        for label in logged:
            if label not in start._model.labels.codes:
                rule = f"the model knows {quoted(labels)}"
                remedy = "add it to the model first, with add_action"
                if policy.takes_features:
                    remedy += ", or pass a catalogue that has it (--actions)"
                raise UnknownNameError("action", repr(label), rule, remedy)
        varying = start._model.varying
        columns_to_read(varying, log, "the model")
        return TrainedActions(labels, None, varying)
    if not policy.takes_features or (log.catalogue is None and given is not None):
        own = None if log.catalogue is None or policy.takes_features or not log.catalogue.given else log.catalogue
        if own is not None:
            own.check_labels(logged)
        return TrainedActions(list(given if given is not None else logged if own is None else own.labels))
    varying = tuple(number_columns(log)[0])
    check_described(log, policy)
    if log.catalogue is None:
        return TrainedActions(list(logged), None, varying)
    catalogue = log.catalogue.check()
    catalogue.check_labels(logged)
    return TrainedActions(catalogue.labels, catalogue, varying)


def check_described(log: Log, policy: Policy) -> None:
    """Refuse a log that says nothing about its actions, for a policy that learns from their features."""
    if policy.takes_features and log.catalogue is None and not number_columns(log)[0]:
        rule = f"policy {policy.name!r} learns from the features of actions"
        remedy = "pass their catalogue (--actions items.parquet), or the labels alone if they have none"
        raise InputError("log", "nothing that describes its actions", rule, remedy)


def notices_of_actions(log: Log, policy: Policy, actions: TrainedActions) -> Iterator[str]:
    """Yield what a user would not expect about the use of the features of actions."""
    if not policy.takes_features:
        if log.catalogue is not None and log.catalogue.given and log.catalogue.features:
            yield f"{policy.name} has no use for features of actions; only the labels of the catalogue are used."
        return
    if log.catalogue is not None:
        yield from log.catalogue.notices()
    texts = number_columns(log)[1]
    if texts:
        yield f"Features per decision are numbers; texts are left out: {listed(texts)}."


def grown(start: Bandit, log: Log) -> tuple[Bandit, list[str]]:
    """Return a model to continue with the actions of a log's catalogue, and what was added or changed, in sentences.

    New labels are added with their features, and features that have changed are updated. ``start`` stays as it is.
    """
    model = start._model
    known = None if model.catalogue is None else model.catalogue.encoder
    if log.catalogue is None or known is None or start.encoder is None:
        return start, []
    catalogue = log.catalogue.check()
    missing = [name for name in known.columns if name not in catalogue.features]
    if missing:
        rule = "the catalogue of the model has it"
        raise InputError(catalogue.source, f"no column {missing[0]!r}", rule, "add the column")
    lines = {line.pop("action"): line for line in catalogue.table.select(["action", *known.columns]).to_pylist()}
    made = start.without_encoder().with_encoder(start.encoder)
    new = [label for label in lines if label not in model.labels.codes]
    changed = _changed(start, catalogue)
    for label in new:
        made.add_action(label, features=lines[label])
    for label in changed:
        made.update_action(label, lines[label])
    told = [f"New to the model: {counted(len(new), 'action')} of the catalogue: {listed(new)}."] if new else []
    if changed:
        told.append(f"Updated: the changed features of {counted(len(changed), 'action')}: {listed(changed)}.")
    return made, told


def _changed(start: Bandit, catalogue: ActionTable) -> list[Hashable]:
    """Return the labels whose features are others than those that the model has."""
    model = start._model
    state: Any = model.state
    assert model.catalogue is not None
    assert model.catalogue.encoder is not None
    codes = {int(code): at for at, code in enumerate(state.live)}
    here = [label for label in catalogue.labels if codes.get(model.labels.codes.get(label, -1)) is not None]
    places = {label: at for at, label in enumerate(catalogue.labels)}
    encoded = model.catalogue.encode_table(
        catalogue.labels, catalogue.table.select(list(model.catalogue.encoder.columns))
    )
    return [
        label
        for label in here
        if not np.array_equal(encoded[places[label]], state.catalogue[codes[model.labels.codes[label]]])
    ]


def column_of(propensity: Any) -> str | None:
    """Return the column that ``propensity`` of a training names, None where it says something else."""
    return propensity if isinstance(propensity, str) and propensity not in PROPENSITIES else None


def with_column(opening: Mapping[str, Any], column: str | None) -> dict[str, Any]:
    """Return how to open a log, with the column of propensities renamed to what a log calls it."""
    given = dict(opening)
    if column not in (None, "propensity"):
        given["rename"] = {**(given.get("rename") or {}), column: "propensity"}
    return given


def check_propensity(log: Log, policy: Policy, given: Any) -> None:
    """Raise if a policy that weighs rows by propensities has none, or if ``given`` contradicts the log."""
    names = log.schema.names
    if given is None or (isinstance(given, str) and given not in PROPENSITIES):
        if "weighting" in policy.traits and "propensity" not in names:
            rule = f"{policy.name} weighs each row by the probability with which its action was chosen"
            raise InputError("log", "no column 'propensity'", rule, SAY_PROPENSITY)
    elif "propensity" in names:
        remedy = f"leave it out, or drop the column: {renaming('propensity', None)}"
        raise ParameterError("propensity", repr(given), "the log has a column 'propensity'", remedy)
    elif given == "uniform" and "eligible" in names:
        rule = "the log has a column 'eligible', so not all actions were equally likely in every row"
        raise ParameterError("propensity", repr(given), rule, "add a column 'propensity' to the log")
    elif given not in PROPENSITIES and not (POSITIVE.test(given) and given <= 1):
        raise ParameterError("propensity", repr(given), "a propensity lies in (0, 1]", SAY_PROPENSITY)


def propensity_of_rows(given: Any, actions: int) -> float | None:
    """Return the propensity of every row where the log has none; None = the log's column, or the policy's own."""
    if given == "uniform":
        return 1.0 / actions
    return None if given is None or isinstance(given, str) else float(given)
