"""``spuir list``: everything that can be chosen by name."""

from importlib import import_module

import click

from spuir.cli import options
from spuir.cli.output import print_result

KINDS = ("policies", "environments", "sketches", "features", "experiments")


@click.command("list")
@click.argument("kind", required=False, type=click.Choice(KINDS))
@options.JSON
def list_command(kind: str | None, as_json: bool) -> None:
    """List what can be chosen by name: everything, or one kind of it."""
    from spuir.cli.terminal import print_catalogue

    families = {name: catalogue(name) for name in KINDS if kind in (None, name)}
    print_result(families, lambda: print_catalogue(families), as_json)


def catalogue(kind: str) -> dict[str, str]:
    """Return the members of a family with one line on each: its summary, or the first line of its docstring."""
    room = "reproduction" if kind == "experiments" else kind
    registry = getattr(import_module(f"spuir.{room}"), kind.upper())
    members = {name: registry.get(name) for name in registry.names()}
    return {
        name: getattr(member, "summary", None) or (member.__doc__ or "").split("\n")[0]
        for name, member in members.items()
    }
