"""Options that several commands share, so that they read and behave alike."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spuir.errors import ParameterError

if TYPE_CHECKING:
    from spuir.logs import Log
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
    click.option("--rename-rewards", multiple=True, metavar="OLD=NEW", help="Same as --rename, for --rewards."),
    click.option("--type-rewards", multiple=True, metavar="NAME=TYPE", help="Same as --type, for --rewards."),
)

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
    return _with(command, _OPENING)


def joining(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options for rewards in another table."""
    return _with(command, _JOINING)


def encoding(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say how text columns become features."""
    return _with(command, _ENCODING)


def _with(command: Callable[..., Any], added: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    for option in reversed(added):
        command = option(command)
    return command


def how_to_open(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return these options as the arguments of ``open_log``."""
    return {
        "format": given["format"],
        "context": names_in(given["context"], "--context") or None,
        "time_unit": given["time_unit"],
        **columns_in(given["rename"], given["types"]),
    }


def open_joined(given: Mapping[str, Any]) -> "tuple[Log, Report | None]":
    """Open the log, joined with its rewards if they are in another table; return it with what the join counted."""
    from spuir.logs import join_logs, open_log

    opening = how_to_open(given)
    source: Any = list(given["log"]) if len(given["log"]) > 1 else given["log"][0]
    if not given["rewards"]:
        _refuse_without_rewards()
        return open_log(source, **opening), None
    columns = columns_in(given["rename_rewards"], given["type_rewards"], "-rewards")
    joined = join_logs(
        open_log(source, **opening, kind="decisions"),
        open_log(list(given["rewards"]), **columns, time_unit=given["time_unit"], kind="rewards"),
        default=given["default_reward"],
        aggregation=given["aggregation"],
        window=given["window"],
        as_of=_time(given["as_of"]),
    )
    return joined.log, joined.report


def _time(text: str | None) -> str | float | None:
    """Read a time: epoch seconds, or a date that the library reads itself, 20240330 included."""
    value = None if text is None else parse(text)
    return value if isinstance(value, int | float) and abs(value) >= 1e8 else text


def _refuse_without_rewards() -> None:
    """Refuse the options of the join if there is no table of rewards."""
    context = click.get_current_context()
    for name in ("default_reward", "aggregation", "window", "as_of", "rename_rewards", "type_rewards"):
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = f"--{name.replace('_', '-')}"
            rule, remedy = "it belongs to --rewards", "add --rewards, or leave it out"
            raise ParameterError(option, context.params[name], rule, remedy)


def columns_in(rename: Iterable[str], types: Iterable[str], suffix: str = "") -> dict[str, Any]:
    """Return names and types of columns as ``open_log`` takes them; ``suffix`` ends the names of the options."""
    names = pairs_in(rename, f"--rename{suffix}", "clicked=reward")
    return {
        "rename": {old: new or None for old, new in names.items()} or None,
        "types": pairs_in(types, f"--type{suffix}", "zip=string") or None,
    }


def preset(default: str) -> Callable[[Any], Any]:
    """Return the option that chooses the values of the policies' parameters."""
    return click.option(
        "--preset",
        type=click.Choice(["paper", "default"]),
        default=default,
        show_default=True,
        help="Parameter values: those of the authors' code (paper) or those of this library (default).",
    )


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


def open_with_rewards(
    given: Mapping[str, Any], propensity: Any = None, folder: Path | None = None
) -> tuple[Any, list[str]]:
    """Open the log, joined with its rewards if they are in another table; return it with notes about the join.

    ``propensity`` may name a column of the log, and ``folder`` is where the join keeps its files.
    """
    from spuir.logs import join_logs, open_log
    from spuir.training.propensities import with_column

    how = with_column(how_to_open(given), propensity)
    source: Any = list(given["log"]) if len(given["log"]) > 1 else given["log"][0]
    reward_columns = columns_in(given["rename_rewards"], given["type_rewards"], "-rewards")
    if not given["rewards"]:
        _refuse_without_rewards()
        return open_log(source, **how), []
    joined = join_logs(
        open_log(source, **how, kind="decisions"),
        open_log(list(given["rewards"]), **reward_columns, time_unit=given["time_unit"], kind="rewards"),
        default=given["default_reward"],
        aggregation=given["aggregation"],
        window=given["window"],
        as_of=time_in(given["as_of"]),
        folder=folder,
    )
    return joined.log, [str(joined.report)]


def time_in(text: str | None) -> str | float | None:
    """Read a time: epoch seconds, or a date that the library reads itself, 20240330 included."""
    value = None if text is None else parse(text)
    return value if isinstance(value, int | float) and abs(value) >= 1e8 else text


def _refuse_without_rewards() -> None:
    """Refuse the options of the join if there is no table of rewards."""
    context = click.get_current_context()
    for name in ("default_reward", "aggregation", "window", "as_of", "rename_rewards", "type_rewards"):
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = f"--{name.replace('_', '-')}"
            rule, remedy = "it belongs to --rewards", "add --rewards, or leave it out"
            raise ParameterError(option, context.params[name], rule, remedy)
