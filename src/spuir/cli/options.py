"""Options that several commands share, so that they read and behave alike."""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spuir.errors import ParameterError, UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from spuir.logs import ActionTable, Log
    from spuir.logs.rewards import Report

INTERRUPTED = 130
"""Exit code of a command that was interrupted."""

WORKERS = click.option(
    "-w",
    "--workers",
    type=click.IntRange(min=1),
    help="Number of workers; the results do not depend on it.  [default: one per core]",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
PRESET = click.option(
    "--preset",
    type=click.Choice(["default", "authors-code", "paper"]),
    default="default",
    show_default=True,
    help="Parameter values: those of this library (default) or those of the authors' code (paper is another name).",
)


def preset_of(name: str) -> str | None:
    """Return the preset of :func:`spuir.make_policy` that a value of ``--preset`` stands for."""
    return None if name == "default" else name


QUIET = click.option("-q", "--quiet", is_flag=True, help="Print errors only, and the JSON if --json is given.")

_OPENING = (
    click.option("--format", help="Format of the log.  [default: detected]"),
    click.option(
        "--rename", multiple=True, metavar="OLD=NEW", help="Rename column OLD to NEW; OLD= drops it; repeatable."
    ),
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
    click.option(
        "--context",
        multiple=True,
        help="Context columns, separated by commas.  [default: every column without another role]",
    ),
)

ROLES = {
    "action": "executed action",
    "reward": "reward",
    "propensity": "probability of the executed action",
    "time": "time of the decision",
    "episode": "episode",
    "weight": "weight of the row",
}
"""Columns of a log that have their own option, besides the id."""

_ID_COLUMN = click.option("--id-column", metavar="NAME", help="Column of the id.  [default: decision_id]")
_ROLE_COLUMNS = tuple(
    click.option(f"--{role}-column", metavar="NAME", help=f"Column of the {meaning}.  [default: {role}]")
    for role, meaning in ROLES.items()
)

_JOINING = (
    click.option("--rewards", multiple=True, help="Table of rewards, joined to the log by decision_id; repeatable."),
    click.option(
        "--default-reward", type=float, default=0.0, show_default=True, help="Reward assumed when --rewards has none."
    ),
    click.option(
        "--aggregation",
        default="earliest",
        show_default=True,
        help="How to combine several rewards of one decision: earliest, sum, average, median, min or max.",
    ),
    click.option("--window", help="Time after a decision within which rewards count, e.g. 6h.  [default: no limit]"),
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

_CATALOGUE = (
    click.option(
        "--actions",
        multiple=True,
        help="Catalogue of the actions: a file with a column action and one column per feature, e.g. items.parquet; or "
        "labels, separated by commas.  [default: those in the log]",
    ),
    click.option("--rename-actions", multiple=True, metavar="OLD=NEW", help="Same as --rename, for the catalogue."),
)
CATALOGUE_ENDINGS = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".arrow", ".feather")
"""Endings of a catalogue's file, those of a packing left out."""

_ENCODING = (
    click.option("--hashing", type=int, metavar="H", help="Hash text columns into H features.  [default: no hashing]"),
    click.option(
        "--max-levels",
        type=int,
        help="Most frequent values of a text column that get their own feature.  [default: 32]",
    ),
)


def opening(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say how to open a log."""
    return _with(command, (_ID_COLUMN, *_ROLE_COLUMNS, *_OPENING))


def opening_contexts(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say how to open a table of contexts."""
    return _with(command, (_ID_COLUMN, *_OPENING))


def joining(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options for rewards in another table."""
    return _with(command, _JOINING)


def catalogue(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options for the catalogue of actions."""
    return _with(command, _CATALOGUE)


def encoding(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say how text columns become features."""
    return _with(command, _ENCODING)


def _with(command: Callable[..., Any], added: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    for option in reversed(added):
        command = option(command)
    return command


def from_fields(owner: Any, prefix: str | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command one option per parameter of a dataclass; ``prefix`` begins their environment variables."""
    return lambda command: _with(command, [_field_option(item, prefix) for item in fields(owner)])


def _field_option(item: Field[Any], prefix: str | None) -> Callable[..., Any]:
    """Return the option of a parameter: its type and default are those of the field."""
    kinds = {"int": int, "float": float, "str": str, "bool": bool}
    kind = kinds[str(getattr(item.type, "__name__", item.type)).partition(" ")[0]]
    return click.option(
        f"--{item.name.replace('_', '-')}",
        item.name,
        type=kind,
        is_flag=kind is bool,
        default=item.default,
        show_default=item.default is not None and kind is not bool,
        envvar=None if prefix is None else f"{prefix}_{item.name.upper()}",
        help=item.metadata["doc"] + ("  [default: none]" if item.default is None else ""),
    )


def how_to_open(given: Mapping[str, Any], roles: Iterable[str] = ("id", *ROLES)) -> dict[str, Any]:
    """Return these options as the arguments of ``open_log``; ``roles`` are those whose column may be named."""
    how = columns_in(given["rename"], given["types"])
    return {
        "format": given["format"],
        "context": names_in(given["context"], "--context") or None,
        "time_unit": given["time_unit"],
        **how,
        "rename": (how["rename"] or {}) | role_columns(given, roles) or None,
    }


def role_columns(given: Mapping[str, Any], roles: Iterable[str]) -> dict[str, str]:
    """Return the canonical names of the columns that options such as --action-column name, by these."""
    named = {role: given.get(f"{role}_column") for role in roles}
    return {old: "decision_id" if role == "id" else role for role, old in named.items() if old is not None}


def config(command: Callable[..., Any], envvar: str | None = None) -> Callable[..., Any]:
    """Give a command the option that reads all others from a TOML file; the command line takes precedence.

    ``envvar`` is the environment variable that can name the file.
    """
    return click.option(
        "--config",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        is_eager=True,
        expose_value=False,
        callback=_read_config,
        envvar=envvar,
        help="TOML file with options by name; the command line takes precedence.  [default: none]",
    )(command)


def _read_config(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Make the options in a file the defaults of the command."""
    if path is None:
        return
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
        raise ParameterError("--config", path, f"it is a TOML file ({wrong})", "correct that line") from None
    known = {option_name(one): one for one in context.command.params if one.name and one.expose_value}
    found: dict[str, Any] = {}
    for name, value in content.items():
        option = known.get(name.replace("_", "-"))
        if option is None:
            rule = f"no option of {context.command_path} has that name"
            raise UnknownNameError(f"--config {path}", repr(name), rule, did_you_mean(name, known, "options"))
        pairs = [f"{one}={each}" for one, each in value.items()] if isinstance(value, dict) else value
        several = option.nargs == -1 or getattr(option, "multiple", False)
        found[str(option.name)] = [pairs] if several and not isinstance(pairs, list) else pairs
    context.default_map = {**(context.default_map or {}), **found}


def option_name(option: click.Parameter) -> str:
    """Return the name of an option as users write it, without hyphens before it."""
    longest = max(option.opts, key=len)
    return longest.lstrip("-")


def columns_in(rename: Iterable[str], types: Iterable[str], suffix: str = "") -> dict[str, Any]:
    """Return names and types of columns as ``open_log`` takes them; ``suffix`` ends the names of the options."""
    names = pairs_in(rename, f"--rename{suffix}", "clicked=reward")
    return {
        "rename": {old: new or None for old, new in names.items()} or None,
        "types": pairs_in(types, f"--type{suffix}", "zip=string") or None,
    }


def out(default: str) -> Callable[[Any], Any]:
    """Return the option that names the folder of the results."""
    return click.option(
        "-o",
        "--out",
        type=click.Path(path_type=Path),
        default=Path(default),
        show_default=True,
        help="Folder for the results.",
    )


def names_in(entries: Sequence[str], option: str) -> list[str]:
    """Return the names given to an option that takes several, separated by commas or repeated; each name once."""
    names = list(dict.fromkeys(name.strip() for entry in entries for name in entry.split(",") if name.strip()))
    if entries and not names:
        raise ParameterError(option, repr(",".join(entries)), "it names at least one", "name one, or leave it out")
    return names


def parse(text: str) -> Any:
    """Read a value: true, false or none, a whole number, a number, or else the text itself."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def pairs_in(entries: Iterable[str], option: str, example: str) -> dict[str, str]:
    """Return the values given to an option of the form name=value, by name."""
    pairs: dict[str, str] = {}
    for entry in entries:
        name, equals, value = (part.strip() for part in entry.partition("="))
        if not equals or not name:
            raise ParameterError(option, repr(entry), "it reads name=value", f"write {option} {example}, for example")
        pairs[name] = value
    return pairs


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
        raise ParameterError("--actions", ",".join(map(str, labels)), rule, remedy)


def labels_in(given: Mapping[str, Any]) -> list[Any] | None:
    """Return the labels that --actions gives; None for a catalogue, which comes with the log, and for those in it."""
    entries = [] if _is_catalogue(given["actions"]) else given["actions"]
    return [parse(name) for name in names_in(entries, "--actions")] or None


def _is_catalogue(entries: Sequence[str]) -> bool:
    """Return whether --actions names the file of a catalogue."""
    from spuir.logs.formats.base import ending

    return len(entries) == 1 and ending(entries[0]) in CATALOGUE_ENDINGS


def open_joined(
    given: Mapping[str, Any], propensity: Any = None, folder: Path | None = None
) -> "tuple[Log, Report | None]":
    """Open the log, joined with its rewards if they are in another table; return it with what the join counted.

    ``propensity`` may name a column of the log, and ``folder`` is where the join keeps its files. The catalogue of
    --actions, if the command has that option, comes with the log.
    """
    actions = catalogue_in(given) if "actions" in given else None
    log, report = _open_joined(given, propensity, folder)
    return log if actions is None else log.with_catalogue(actions), report


def _open_joined(given: Mapping[str, Any], propensity: Any, folder: Path | None) -> "tuple[Log, Report | None]":
    """Open the log, joined with its rewards."""
    from spuir.logs import join_logs, open_log
    from spuir.training.propensities import with_column

    # With a table of rewards, the column of the rewards is in that table.
    roles = [role for role in ("id", *ROLES) if role != "reward" or not given["rewards"]]
    how = with_column(how_to_open(given, roles), propensity)
    source: Any = list(given["log"]) if len(given["log"]) > 1 else given["log"][0]
    if not given["rewards"]:
        _refuse_without_rewards()
        return open_log(source, **how), None
    columns = columns_in(given["rename_rewards"], given["type_rewards"], "-rewards")
    named = {"id": given["reward_id_column"], "time": given["reward_time_column"], "reward": given["reward_column"]}
    renamed = role_columns({f"{role}_column": name for role, name in named.items()}, named)
    columns["rename"] = (columns["rename"] or {}) | renamed or None
    joined = join_logs(
        open_log(source, **how, kind="decisions"),
        open_log(list(given["rewards"]), **columns, time_unit=given["time_unit"], kind="rewards"),
        default=given["default_reward"],
        aggregation=given["aggregation"],
        window=given["window"],
        as_of=time_in(given["as_of"]),
        folder=folder,
    )
    return joined.log, joined.report


def open_with_rewards(
    given: Mapping[str, Any], propensity: Any = None, folder: Path | None = None
) -> "tuple[Log, list[str]]":
    """Open the log as :func:`open_joined` does; return it with notes about the join."""
    log, report = open_joined(given, propensity, folder)
    return log, [] if report is None else [str(report)]


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
