"""Options that several commands share, so that they read and behave alike."""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spuir.errors import ParameterError, UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from spuir.policies import Policy

INTERRUPTED = 130
"""Exit code of a command that was interrupted."""

SEED = click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random draws."
)

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

QUIET = click.option("-q", "--quiet", is_flag=True, help="Print errors only, and the JSON if --json is given.")

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def together(*added: Decorator) -> Decorator:
    """Return what gives a command all of these options, in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(added):
            command = option(command)
        return command

    return decorate


def from_fields(owner: Any, prefix: str | None = None) -> Decorator:
    """Give a command one option per parameter of a dataclass; ``prefix`` begins their environment variables."""
    return together(*(_field_option(item, prefix) for item in fields(owner)))


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


def out(help: str, default: str | None = None) -> Callable[[Any], Any]:
    """Return the option that names the file or folder of the results; without a default, ``help`` says what None is."""
    return click.option(
        "-o",
        "--out",
        type=click.Path(path_type=Path),
        default=None if default is None else Path(default),
        show_default=default is not None,
        help=help,
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


def settings_in(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the policy's parameters that --set gives."""
    pairs = pairs_in(given["settings"], "--set", "alpha=0.3")
    return {name: parse(text) for name, text in pairs.items()}


def policy_in(name: str, given: Mapping[str, Any]) -> "Policy":
    """Return the policy of that name with the parameters of --preset and --set."""
    from spuir.training import policy_for_logs

    preset = None if given["preset"] == "default" else given["preset"]
    return policy_for_logs(name, preset=preset, **settings_in(given))
