"""The canonical columns of a log: names, what they may hold, what they mean.

A column called ``action.…`` describes actions at a decision; every other column is context.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from spuir.errors import InputError, ParameterError, did_you_mean, listed, nearest
from spuir.logs.column_kinds import COLUMN_KINDS, ColumnKind


@dataclass(frozen=True)
class LogColumn:
    """One canonical column.

    Parameters
    ----------
    name
        What it is called in every log, after renaming.
    holds
        The name of its kind in :data:`spuir.logs.column_kinds.COLUMN_KINDS`.
    meaning
        What it means, for the documentation and the doctor.
    needed_in
        The kinds of table that must have it.
    """

    name: str
    holds: str
    meaning: str
    needed_in: tuple[str, ...] = ()

    @property
    def kind(self) -> ColumnKind:
        """Which types it takes, and what they become."""
        return COLUMN_KINDS[self.holds]


TABLES = {
    "log": "decisions with their rewards",
    "decisions": "decisions, whose rewards are in another table",
    "rewards": "rewards by the id of their decision",
    "contexts": "rows to decide about",
    "actions": "actions with their features",
}
"""The kinds of table that can be opened."""

COLUMNS: dict[str, LogColumn] = {
    column.name: column
    for column in (
        LogColumn(
            "decision_id", "label", "names the decision; rewards are joined by it", ("decisions", "rewards", "contexts")
        ),
        LogColumn("time", "time", "when the decision was taken, in UTC where no zone is given"),
        LogColumn("episode", "episode", "the episode of the decision; takes precedence over cutting by size or time"),
        LogColumn("action", "label", "the executed action", ("log", "decisions", "actions")),
        LogColumn("reward", "number", "the reward of the executed action; missing = not known yet", ("log", "rewards")),
        LogColumn("propensity", "number", "the probability with which the executed action was chosen, in (0, 1]"),
        LogColumn("probabilities", "numbers", "of every action, in the order of `eligible` if that lists labels"),
        LogColumn(
            "eligible", "choices", "what could be chosen: a mask in the order of the actions, or a list of labels"
        ),
        LogColumn("reward_time", "time", "when the reward became known"),
        LogColumn("policy_version", "text", "the version of the policy that decided"),
        LogColumn("weight", "number", "weight w ≥ 0 counts the row w times"),
        LogColumn("position", "whole", "the slot of a list in which the action was shown"),
        LogColumn("unit_id", "label", "the user, device or other unit that was decided about"),
    )
}
"""The canonical columns by name, in the order in which a log has them."""


ACTION_PREFIX = "action."
"""Prefix of the columns with features of actions that differ from decision to decision."""
ACTION_FEATURE = LogColumn(
    f"{ACTION_PREFIX}…", "action feature", "a feature of the executed action, or of each action that `eligible` lists"
)
"""What every such column holds."""


def is_action_column(name: str) -> bool:
    """Return whether a column has a feature of actions."""
    return name.startswith(ACTION_PREFIX) and name != ACTION_PREFIX


def check_table(table: str) -> None:
    """Refuse a kind of table that does not exist."""
    if table not in TABLES:
        rule = f"it must be one of {', '.join(TABLES)}"
        raise ParameterError("kind", repr(table), rule, "a log has decisions and rewards in one table")


def canonical_names(names: list[str], rename: Mapping[str, str | None] | None, source: str) -> dict[str, str]:
    """Return the canonical or context name of each column, by its name in the source; columns left out are missing.

    Parameters
    ----------
    names
        The columns of the source.
    rename
        New names by old ones; None leaves a column out. An old name may be one that another entry gives, because the
        messages about a log call its columns by their new names.
    source
        What refusals call the source.
    """
    rename = rename or {}
    for old in rename:
        if old not in names and old not in rename.values():
            rule = f"the columns are {listed(names)}"
            remedy = did_you_mean(old, names) if nearest(old, names) else "name one of these"
            raise InputError("columns", f"{old!r}, which is no column of {source}", rule, remedy)
    named: dict[str, str] = {}
    for name in names:
        new = rename.get(name, name)
        if new is not None and new not in names:
            new = rename.get(new, new)
        if new is None:
            continue
        if new in named.values():
            first = next(old for old, taken in named.items() if taken == new)
            got = f"columns {first!r} and {name!r} both as {new!r}"
            other = name if name == new else first  # what has the name by itself is in the way of what was renamed
            remedy = f"rename one, or leave it out: {renaming(other, None)}"
            raise InputError(source, got, "every name is used once", remedy)
        named[name] = new
    return named


COLUMN_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "log": {"decision_id": "--id-column"}
    | {name: f"--{name}-column" for name in ("action", "reward", "propensity", "time", "episode", "weight")},
    "contexts": {"decision_id": "--id-column"},
    "rewards": {
        "decision_id": "--reward-id-column",
        "reward": "--reward-column",
        "time": "--reward-time-column",
    },
    "actions": {},
}
"""Options of the command line that name a column, by the kind of table."""


def check_needed(names: list[str], table: str, source: str) -> None:
    """Refuse a table without a column that it needs."""
    for column in COLUMNS.values():
        if table in column.needed_in and column.name not in names:
            rule = f"{TABLES[table]} need a column {column.name!r}"
            remedy = f"say which one it is: {renaming(nearest(column.name, names) or '…', column.name, table)}"
            if column.name == "reward" and table == "log":
                remedy += ", or, if rewards are in another table, join that: join_logs (--rewards FILE)"
            raise InputError(source, f"columns {listed(names)}", rule, remedy)


def renaming(old: str, new: str | None, table: str = "log") -> str:
    """Return for a remedy how a column is renamed or, with None, left out: in Python and on the command line."""
    named = "None" if new is None else f'"{new}"'
    named_by = COLUMN_OPTIONS.get(table, COLUMN_OPTIONS["log"]).get(new or "")
    if named_by is not None:
        option = f"{named_by} {_shell(old)}"
    else:
        option = f"--rename{f'-{table}' if table in ('rewards', 'actions') else ''} {_shell(f'{old}={new or str()}')}"
    return f'rename={{"{old}": {named}}} ({option})'


def declaring(name: str, kind: str, table: str = "log") -> str:
    """Return for a remedy how the type of a column is declared: in Python and on the command line."""
    option = "--type-rewards" if table == "rewards" else "--type"
    return f'types={{"{name}": "{kind}"}} ({option} {_shell(f"{name}={kind}")})'


def _shell(text: str) -> str:
    """Return an argument as a shell takes it; … stands for a name that the reader fills in."""
    return text if "…" in text else shlex.quote(text)
