"""Options of the commands that read a log: its columns, its episodes, its rewards and its catalogue."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spuir.cli.options import names_in, pairs_in, parse, together
from spuir.errors import ParameterError

if TYPE_CHECKING:
    from spuir.logs import ActionTable, Log
    from spuir.logs.rewards import Report


class _NumberOrNone(click.ParamType):
    """A number, or none."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | None:
        """Return the number, None for the word."""
        if isinstance(value, str) and value.lower() == "none":
            return None
        try:
            return float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number, or none", param, ctx)


_FORMAT = click.option("--format", help="Format of the log, e.g. csv, jsonl or dsjson.  [default: detected]")

ROLES = {
    "action": "executed action",
    "reward": "reward",
    "propensity": "probability of the executed action",
    "time": "time of the decision",
    "episode": "episode",
    "weight": "weight of the row",
}
"""Columns of a log that have their own option, besides the id."""

_ROLE_COLUMNS = tuple(
    click.option(f"--{role}-column", metavar="NAME", help=f"Column of the {meaning}.  [default: {role}]")
    for role, meaning in ROLES.items()
)

_OTHER_COLUMNS = (
    click.option("--id-column", metavar="NAME", help="Column of the id.  [default: decision_id]"),
    click.option(
        "--context",
        multiple=True,
        help="Context columns, separated by commas.  [default: every column without another role]",
    ),
    click.option(
        "--rename", multiple=True, metavar="OLD=NEW", help="Rename column OLD to NEW; OLD= drops it; repeatable."
    ),
)

_UNCUT = "[default: the log's column episode, else a recommended size]"
_EPISODES = (
    click.option("--every", help=f"Duration of an episode, by the column time: hour, day, 15m, 6h.  {_UNCUT}"),
    click.option("-b", "--batch-size", type=int, help=f"Rows per episode (B), in the order of the log.  {_UNCUT}"),
)

_REWARDS = (
    click.option("--rewards", multiple=True, help="Table of rewards, joined to the log by decision_id; repeatable."),
    click.option("--window", help="Time after a decision within which rewards count, e.g. 6h.  [default: no limit]"),
    click.option(
        "--default-reward",
        type=_NumberOrNone(),
        default=0.0,
        show_default=True,
        help="Reward assumed when --rewards has none; none leaves such decisions out.",
    ),
    click.option(
        "--aggregation",
        default="earliest",
        show_default=True,
        help="How to combine several rewards of one decision: earliest, sum, average, median, min or max.",
    ),
)

_REWARD_DETAILS = (
    click.option(
        "--as-of",
        metavar="TIME",
        help="Time until which --rewards is complete; decisions whose --window ends later are left out.  "
        "[default: the time of the last reward]",
    ),
    click.option("--reward-id-column", metavar="NAME", help="Column of the id in --rewards.  [default: decision_id]"),
    click.option("--reward-time-column", metavar="NAME", help="Column of the time in --rewards.  [default: time]"),
    click.option("--rename-rewards", multiple=True, metavar="OLD=NEW", help="Same as --rename, for --rewards."),
    click.option("--type-rewards", multiple=True, metavar="NAME=TYPE", help="Same as --type, for --rewards."),
)

_ACTIONS = click.option(
    "--actions",
    multiple=True,
    help="Catalogue of the actions: a file with a column action and one column per feature, e.g. items.parquet; or "
    "labels, separated by commas.  [default: those in the log]",
)

CATALOGUE_ENDINGS = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".arrow", ".feather")
"""Endings of a catalogue's file, those of a packing left out."""

_CATALOGUE_DETAILS = click.option(
    "--rename-actions", multiple=True, metavar="OLD=NEW", help="Same as --rename, for the catalogue."
)

_VALUES = (
    click.option(
        "--type",
        "types",
        multiple=True,
        metavar="NAME=TYPE",
        help="Read column NAME as TYPE, e.g. string or float64; repeatable.",
    ),
    click.option(
        "--time-unit",
        default="s",
        show_default=True,
        help="Unit of numeric timestamps, which count from 1970: s, ms, us or ns.",
    ),
)

reading_contexts = together(*_OTHER_COLUMNS, _FORMAT, *_VALUES)
"""The options that say how to read a table of contexts."""

reading = together(_FORMAT, *_ROLE_COLUMNS, *_OTHER_COLUMNS, *_EPISODES, *_REWARDS, _ACTIONS)
"""What most readers of a log have to say: what it is, its columns, its episodes, and what belongs to it."""

details = together(*_REWARD_DETAILS, _CATALOGUE_DETAILS, *_VALUES)
"""The rarer options of all commands that read a log."""

encoding = together(
    click.option("--hashing", type=int, metavar="H", help="Hash text columns into H features.  [default: no hashing]"),
    click.option(
        "--max-levels",
        type=int,
        help="Most frequent values of a text column that get their own feature.  [default: 32]",
    ),
)
"""The options that say how text columns become features."""


def how_to_open(given: Mapping[str, Any], roles: Iterable[str] = ("id", *ROLES)) -> dict[str, Any]:
    """Return these options as the arguments of ``open_log``; ``roles`` are those whose column may be named."""
    from spuir.logs.columns import COLUMN_OPTIONS

    how = columns_in(given["rename"], given["types"])
    named = role_columns(given, roles)
    for old, new in (how["rename"] or {}).items():
        if named.get(old, new) != new:
            got, rule = f"{old}={new or ''}", f"{COLUMN_OPTIONS['log'][named[old]]} names this column too"
            raise ParameterError("--rename", got, rule, "leave out one of the two")
    return {
        "format": given["format"],
        "context": names_in(given["context"], "--context") or None,
        "time_unit": given["time_unit"],
        **how,
        "rename": (how["rename"] or {}) | named or None,
    }


def role_columns(given: Mapping[str, Any], roles: Iterable[str]) -> dict[str, str]:
    """Return the canonical names of the columns that options such as --action-column name, by these."""
    named = {role: given.get(f"{role}_column") for role in roles}
    return {old: "decision_id" if role == "id" else role for role, old in named.items() if old is not None}


def encoding_in(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the encoder that were given."""
    return {name: given[name] for name in ("hashing", "max_levels") if given[name] is not None}


def columns_in(rename: Iterable[str], types: Iterable[str], suffix: str = "") -> dict[str, Any]:
    """Return names and types of columns as ``open_log`` takes them; ``suffix`` ends the names of the options."""
    names = pairs_in(rename, f"--rename{suffix}", "clicked=reward")
    return {
        "rename": {old: new or None for old, new in names.items()} or None,
        "types": pairs_in(types, f"--type{suffix}", "zip=string") or None,
    }


def catalogue_in(given: Mapping[str, Any]) -> "ActionTable | None":
    """Return the catalogue that --actions names; None without one."""
    from spuir.logs import action_table

    entries, renamed = given["actions"], pairs_in(given["rename_actions"], "--rename-actions", "item=action")
    if _is_catalogue(entries):
        return action_table(entries[0], {old: new or None for old, new in renamed.items()} or None)
    if renamed:
        rule, remedy = "it belongs to a catalogue", "pass a file with --actions, or leave it out"
        raise ParameterError("--rename-actions", given["rename_actions"][0], rule, remedy)
    return None


def refuse_labels(given: Mapping[str, Any]) -> None:
    """Refuse labels in --actions, for a command that reads a catalogue alone."""
    if labels := labels_in(given):
        rule, remedy = "here it names the file of a catalogue", "leave it out: labels are those of the log"
        raise ParameterError("--actions", ",".join(labels), rule, remedy)


def labels_in(given: Mapping[str, Any], log: "Log | None" = None) -> list[Any] | None:
    """Return the labels that --actions gives; None for a catalogue, which comes with the log, and for those in it.

    They have the type that labels have in ``log``: of a column of texts, ``none`` and ``10`` are texts too.
    """
    from spuir.tables.arrow import arrow

    entries = [] if _is_catalogue(given["actions"]) else given["actions"]
    names: list[Any] = names_in(entries, "--actions")
    if names and log is not None:
        types, kind = arrow().types, log.schema.field("action").type
        if types.is_integer(kind) or types.is_floating(kind):
            return [parse(name) for name in names]
    return names or None


def _is_catalogue(entries: Sequence[str]) -> bool:
    """Return whether --actions names the file of a catalogue."""
    from spuir.logs.formats.base import ending

    return len(entries) == 1 and ending(entries[0]) in CATALOGUE_ENDINGS


def open_joined(
    given: Mapping[str, Any], propensity: str | None = None, folder: Path | None = None
) -> "tuple[Log, list[Report]]":
    """Open the log with its catalogue, joined with its rewards if they are in another table.

    Returns the log and what the join counted, if there was one. ``propensity`` names a column of the log, and
    ``folder`` is where the join keeps its files.
    """
    from spuir.logs import join_logs, open_log
    from spuir.training.start import with_column

    actions, reports = catalogue_in(given), list["Report"]()
    # With a table of rewards, the column of the rewards is in that table.
    roles = [role for role in ("id", *ROLES) if role != "reward" or not given["rewards"]]
    how = with_column(how_to_open(given, roles), propensity)
    source: Any = list(given["log"]) if len(given["log"]) > 1 else given["log"][0]
    if not given["rewards"]:
        _refuse_without_rewards()
        log = open_log(source, **how)
    else:
        columns = columns_in(given["rename_rewards"], given["type_rewards"], "-rewards")
        named = {"id": given["reward_id_column"], "time": given["reward_time_column"], "reward": given["reward_column"]}
        renamed = role_columns({f"{role}_column": name for role, name in named.items()}, named)
        columns["rename"] = (columns["rename"] or {}) | renamed or None
        log, report = join_logs(
            open_log(source, **how, kind="decisions"),
            open_log(list(given["rewards"]), **columns, time_unit=given["time_unit"], kind="rewards"),
            default=given["default_reward"],
            aggregation=given["aggregation"],
            window=given["window"],
            as_of=time_in(given["as_of"]),
            folder=folder,
        )
        reports.append(report)
    return log if actions is None else log.with_catalogue(actions), reports


def time_in(text: str | None) -> str | float | None:
    """Read a time: epoch seconds, or a date that the library reads itself, 20240330 included."""
    value = None if text is None else parse(text)
    return value if isinstance(value, int | float) and abs(value) >= 1e8 else text


JOIN_OPTIONS = ("default_reward", "aggregation", "window", "as_of", "reward_id_column", "reward_time_column")
"""Options that say something about --rewards alone, besides its names and types of columns."""


def _refuse_without_rewards() -> None:
    """Refuse the options of the join if there is no table of rewards."""
    context = click.get_current_context()
    for name in (*JOIN_OPTIONS, "rename_rewards", "type_rewards"):
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = f"--{name.replace('_', '-')}"
            rule, remedy = "it belongs to --rewards", "add --rewards, or leave it out"
            raise ParameterError(option, context.params[name], rule, remedy)
