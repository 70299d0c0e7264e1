"""Options that several commands share, so that they read and behave alike."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from spuir.errors import ParameterError

INTERRUPTED = 130
"""Exit code of a command that was interrupted."""

WORKERS = click.option(
    "-w",
    "--workers",
    type=click.IntRange(min=1),
    help="Processes; the numbers do not depend on it.  [default: one a core]",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
QUIET = click.option(
    "-q", "--quiet", is_flag=True, help="No progress, table or notes; only errors, and JSON if asked for."
)


_OPENING = (
    click.option("--format", help="The log's format.  [default: told by the files]"),
    click.option("--rename", multiple=True, metavar="OLD=NEW", help="Read OLD as NEW; OLD= leaves it out; repeat."),
    click.option(
        "--type", "types", multiple=True, metavar="NAME=TYPE", help="Read NAME as string, float64, …; repeat."
    ),
    click.option("--time-unit", default="s", show_default=True, help="What times count: s, ms, us or ns since 1970."),
    click.option("--context", multiple=True, help="Context columns, separated by commas.  [default: all others]"),
)


def opening(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say how a log is opened."""
    for option in reversed(_OPENING):
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


def columns_in(rename: Iterable[str], types: Iterable[str], table: str = "") -> dict[str, Any]:
    """Return the names and types of columns as ``open_log`` takes them; ``table`` ends the names of the options."""
    names = pairs_in(rename, f"--rename{table}", "clicked=reward")
    return {
        "rename": {old: new or None for old, new in names.items()} or None,
        "types": pairs_in(types, f"--type{table}", "zip=string") or None,
    }


def out(default: str) -> Callable[[Any], Any]:
    """Return the option that names the folder of the results."""
    return click.option(
        "-o",
        "--out",
        type=click.Path(path_type=Path),
        default=Path(default),
        show_default=True,
        help="Folder to write to.",
    )


def names_in(entries: Sequence[str], option: str) -> list[str]:
    """Return the names of an option that may be repeated or hold several, separated by commas; each once."""
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
    """Return what an option of the form name=value was given, by name."""
    found: dict[str, str] = {}
    for entry in entries:
        name, equals, value = (part.strip() for part in entry.partition("="))
        if not equals or not name:
            raise ParameterError(option, repr(entry), "it reads name=value", f"write {option} {example}, for example")
        found[name] = value
    return found
