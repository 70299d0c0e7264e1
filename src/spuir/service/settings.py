"""The settings of an experiment: what may be set, the rules, and what may change later.

Settings are records of the log: they hold from their position on, and no change discards what was learned.
"""

import re
from collections.abc import Iterator
from math import isfinite
from typing import Annotated, Any

import msgspec

from spuir.errors import ServiceError, SpuirError
from spuir.logs.rewards import AGGREGATIONS
from spuir.logs.times import microseconds
from spuir.policies import Policy, make_policy

Label = str | int
"""What a client calls an action."""
LARGEST_NUMBER = 1e100
Number = Annotated[float, msgspec.Meta(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]
"""A number that can be learned from: one that is too large to be squared would keep its whole episode from it."""
Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Features = dict[str, str | Whole | Number | bool | None]
"""Features of an action by name, which an encoder turns into numbers."""

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
"""Names of experiments: they stand in addresses, file names and metrics."""
LONGEST_ID, MOST_ACTIONS, MOST_COLUMNS, MOST_ROWS = 256, 10_000, 10_000, 10**9
KINDS = ("number", "flag", "category", "hash", "time")
"""Kinds of raw columns whose values are single texts, numbers or flags."""
MADE = "~"
"""Ids that the service makes begin with this, and ids that clients give do not."""


class NumberContext(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="numbers", tag_field="kind"):
    """Contexts that are lists of ``dimension`` numbers."""

    dimension: int


class ColumnContext(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="columns", tag_field="kind"):
    """Contexts that are objects of raw columns, which an encoder turns into numbers.

    ``names`` are the columns to use, None = those of the first episode. The others are arguments of
    :meth:`spuir.Encoder.fit`, which learns levels and scales from the first episode and is then frozen.
    """

    names: list[str] | None = None
    kinds: dict[str, str] = {}
    scale: bool = False
    intercept: bool = False
    max_levels: int = 32
    hashing: int | None = None


class ExperimentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of an experiment, given at its creation.

    Parameters
    ----------
    actions
        Labels, their number M for the labels 0…M−1, or a catalogue: the features of each action by its label, where
        actions are in the order of their labels.
    policy, parameters
        A registered policy and its parameters.
    batch_size
        An episode closes when so many decisions have settled; None = never by their number.
    period
        An episode closes so long after the one before, e.g. "1h"; None = never by time.
    window
        How long after its decision a reward is in time, e.g. "10m"; None = until the episode is closed.
    early
        How long before its decision a reward may come and still be joined; None = never.
    default_reward
        The reward of a decision for which none arrives; None leaves such decisions out of learning.
    aggregation
        How several rewards of one decision are combined.
    floor
        Least probability of each eligible action; None = as the policy has it.
    context
        The form of contexts; None = as in the first decision.
    shadow
        Whether to answer with the baseline always and only record what the policy would do.
    baseline
        The action of shadow mode; None = the first one.
    publish
        Whether a version is published as soon as it is learned.
    least_value
        A version whose estimated value on its own batch is below this is not published; None = no such guard.
    seed
        All random numbers follow from it; None = one is drawn at creation, and recorded.
    retention
        How long contexts and rewards are kept after they were learned, e.g. "90d"; None = always.
    """

    actions: int | list[Label] | dict[str, Features]
    policy: str = "auto"
    parameters: dict[str, Any] = {}
    batch_size: int | None = None
    period: str | float | None = None
    window: str | float | None = "10m"
    early: str | float | None = "10m"
    default_reward: Number | None = 0.0
    aggregation: str = "earliest"
    floor: float | None = None
    context: NumberContext | ColumnContext | None = None
    shadow: bool = False
    baseline: Label | None = None
    publish: bool = True
    least_value: float | None = None
    seed: int | None = None
    retention: str | float | None = None

    @property
    def labels(self) -> list[Label]:
        """The labels of the actions at creation; those of a catalogue in their own order, since objects have none."""
        if isinstance(self.actions, dict):
            return sorted(self.actions)
        return list(range(self.actions)) if isinstance(self.actions, int) else self.actions

    @property
    def catalogue(self) -> dict[str, Features] | None:
        """The features of the actions at creation, by label and name; None without features."""
        if not isinstance(self.actions, dict):
            return None
        return {label: dict(sorted(self.actions[label].items())) for label in sorted(self.actions)}

    def span(self, name: str) -> int | None:
        """Return a duration among the settings in microseconds; None if there is none."""
        value = getattr(self, name)
        return None if value is None else microseconds(value, name)

    def make_policy(self) -> Policy:
        """Return the policy that the settings describe."""
        given = self.parameters if self.floor is None else {**self.parameters, "floor": self.floor}
        return make_policy(self.policy, **given)


CHANGEABLE = frozenset(ExperimentSettings.__struct_fields__) - {"actions", "context", "seed"}
"""Settings that can change while an experiment runs; actions have commands of their own."""


def refuse(subject: str, got: object, rule: str, remedy: str, where: str | None = None) -> ServiceError:
    """Return the error for a request that breaks a rule."""
    return ServiceError("invalid", subject, got, rule, remedy, where)


def as_refusal(wrong: SpuirError, where: str | None = None) -> ServiceError:
    """Return what the library refused as the error for a request that breaks a rule."""
    return refuse(wrong.subject, wrong.got, wrong.rule, wrong.remedy, where)


def check_settings(settings: ExperimentSettings) -> None:
    """Refuse settings that break a rule."""
    where = "policy"
    try:
        settings.make_policy()
        for where in ("period", "window", "early", "retention"):
            settings.span(where)
    except SpuirError as wrong:
        raise as_refusal(wrong, where) from None
    for error in (*_wrong_actions(settings), *_wrong_numbers(settings), *_wrong_context(settings.context)):
        raise error


def check_floor(settings: ExperimentSettings, actions: int) -> None:
    """Refuse a floor that so many active actions cannot all have: no decision could be taken."""
    floor = settings.make_policy().floor
    if floor is not None and floor * actions > 1:
        rule = f"{actions} active actions × floor must be ≤ 1"
        raise refuse("floor", floor, rule, f"use at most {1 / actions:.3g}", "floor")


def check_baseline(settings: ExperimentSettings, labels: list[Label]) -> None:
    """Refuse a baseline that is not an action."""
    if settings.baseline is not None and settings.baseline not in labels:
        rule = "the baseline is one of the actions"
        raise refuse("baseline", repr(settings.baseline), rule, "name one of the actions", "baseline")


def _wrong_actions(settings: ExperimentSettings) -> Iterator[ServiceError]:
    """Yield what is wrong with the actions."""
    labels = settings.actions if isinstance(settings.actions, int) else len(settings.actions)
    if not 1 <= labels <= MOST_ACTIONS:
        yield refuse("actions", f"{labels} of them", f"there are 1 to {MOST_ACTIONS:,}", "give their labels", "actions")
    elif not isinstance(settings.actions, int):
        texts = [str(label) for label in settings.actions]
        if len(set(texts)) < labels:
            twice = next(text for at, text in enumerate(texts) if text in texts[:at])
            yield refuse("actions", f"{twice!r} twice", "labels differ as texts", "drop or rename one", "actions")
        for label in settings.actions:
            yield from wrong_label(label)
    if isinstance(settings.actions, dict):
        yield from wrong_features(settings, "actions")


def wrong_features(settings: ExperimentSettings, where: str) -> Iterator[ServiceError]:
    """Yield the refusal of features of actions where the policy does not read them."""
    if not settings.make_policy().takes_features:
        rule, remedy = "this policy does not read features of actions", "leave them out, or use policy 'hierarchical'"
        yield ServiceError("unsupported", "features", f"policy {settings.policy!r}", rule, remedy, where)


def _wrong_numbers(settings: ExperimentSettings) -> Iterator[ServiceError]:
    """Yield what is wrong with the other settings."""
    if settings.batch_size is not None and not 1 <= settings.batch_size <= MOST_ROWS:
        rule = f"it is from 1 to {MOST_ROWS:,}"
        yield refuse("batch_size", settings.batch_size, rule, "choose another", "batch_size")
    if settings.batch_size is not None and settings.window is None:
        rule = "without a window nothing says when a decision has settled"
        yield refuse("batch_size", settings.batch_size, rule, "give a window, or a period, or close episodes yourself")
    if settings.aggregation not in AGGREGATIONS:
        rule = f"it is one of {', '.join(AGGREGATIONS)}"
        yield refuse("aggregation", repr(settings.aggregation), rule, "choose one of these", "aggregation")
    if settings.seed is not None and not 0 <= settings.seed < 2**63:
        yield refuse("seed", settings.seed, "a seed is from 0 to 2**63 − 1", "choose another", "seed")
    for name in ("default_reward", "least_value"):
        value = getattr(settings, name)
        if value is not None and not isfinite(value):
            yield refuse(name, value, "it is a finite number", "choose another", name)


def wrong_label(label: Label) -> Iterator[ServiceError]:
    """Yield what is wrong with the label of an action."""
    if isinstance(label, int):
        if not -(2**63) <= label < 2**63:
            yield refuse("actions", label, "a label that is a number has 64 bits", "write it as text", "actions")
    elif not 1 <= len(label) <= LONGEST_ID or not label.isprintable():
        rule = f"a label has 1 to {LONGEST_ID} printable characters"
        yield refuse("actions", repr(label[:40]), rule, "choose such a label", "actions")


def _wrong_context(context: NumberContext | ColumnContext | None) -> Iterator[ServiceError]:
    """Yield what is wrong with the form of contexts."""
    if isinstance(context, NumberContext) and not 1 <= context.dimension <= MOST_COLUMNS:
        rule = f"a context has 1 to {MOST_COLUMNS:,} numbers"
        yield refuse("dimension", context.dimension, rule, "choose another", "context.dimension")
    if isinstance(context, ColumnContext):
        yield from _wrong_columns(context)


def _wrong_columns(context: ColumnContext) -> Iterator[ServiceError]:
    """Yield what is wrong with the form of raw columns, which would keep the first episode from being learned."""
    names = context.names
    if names is not None:
        if len(set(names)) < len(names):
            yield refuse("context.names", "a name twice", "every column is named once", "drop one", "context.names")
        if not 1 <= len(names) <= MOST_COLUMNS or not all(1 <= len(name) <= LONGEST_ID for name in names):
            rule = f"there are 1 to {MOST_COLUMNS:,} names of 1 to {LONGEST_ID} characters"
            yield refuse("context.names", "others", rule, "leave names out for all columns", "context.names")
    for name, kind in context.kinds.items():
        where = f"context.kinds.{name[:80]}"
        if kind not in KINDS:
            yield refuse(where, repr(kind[:80]), f"the kinds are {', '.join(KINDS)}", "choose one of these", where)
        if kind == "hash" and context.hashing is None:
            yield refuse(where, "'hash'", "hashed columns need a number of features", "give hashing, such as 64", where)
        if names is not None and name not in names:
            yield refuse(where, "a column of this name", "it is not among the names", "add it there", where)
    for option in ("max_levels", "hashing"):
        size = getattr(context, option)
        if size is not None and not 1 <= size <= MOST_COLUMNS:
            where = f"context.{option}"
            yield refuse(where, size, f"it is from 1 to {MOST_COLUMNS:,}", "choose another", where)


def check_name(name: str) -> None:
    """Refuse the name of an experiment that cannot stand in an address."""
    if not NAME.fullmatch(name):
        rule = "a name has 1 to 63 lower-case letters, digits, - and _, and begins with a letter or digit"
        raise refuse("name", repr(name[:80]), rule, "choose such a name", "name")


def check_id(subject: str, given: str, where: str | None = None, made: bool = False) -> None:
    """Refuse an id of a client; ``made`` lets those of the service pass too."""
    if not 1 <= len(given) <= LONGEST_ID or not given.isprintable():
        rule = f"an id has 1 to {LONGEST_ID} printable characters"
        raise refuse(subject, repr(given[:40]), rule, "choose such an id", where)
    if not made and given.startswith(MADE):
        rule = f"ids that begin with {MADE} are made by the service"
        raise refuse(subject, repr(given), rule, "choose another id, or send none", where)
