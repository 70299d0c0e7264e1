"""Options that several commands share, so that they read and behave alike."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from spuir.errors import ParameterError

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


def names_in(entries: Iterable[str]) -> list[str]:
    """Return the names of an option that may be repeated or hold several, separated by commas; each once."""
    return list(dict.fromkeys(name.strip() for entry in entries for name in entry.split(",") if name.strip()))


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
