"""``spuir list``: everything that can be chosen by name."""

import json

import click

from spuir.cli import options

KINDS = ("policies", "environments", "sketches", "features", "experiments")


@click.command("list")
@click.argument("kind", required=False, type=click.Choice(KINDS))
@options.JSON
def list_command(kind: str | None, as_json: bool) -> None:
    """List what can be chosen by name: everything, or one kind of it."""
    families = {name: catalogue(name) for name in KINDS if kind in (None, name)}
    if as_json:
        click.echo(json.dumps(families, indent=2, ensure_ascii=False))
        return
    from spuir.cli.terminal import print_catalogue

    print_catalogue(families)


def catalogue(kind: str) -> dict[str, str]:
    """Return the members of a family with one line on each: its summary, or the first line of its docstring."""
    from spuir.environments import ENVIRONMENTS
    from spuir.features import FEATURES
    from spuir.policies import POLICIES
    from spuir.reproduction import EXPERIMENTS
    from spuir.sketches import SKETCHES

    registries = {
        "policies": POLICIES,
        "environments": ENVIRONMENTS,
        "sketches": SKETCHES,
        "features": FEATURES,
        "experiments": EXPERIMENTS,
    }
    registry = registries[kind]
    members = {name: registry.get(name) for name in registry.names()}
    return {
        name: getattr(member, "summary", None) or (member.__doc__ or "").split("\n")[0]
        for name, member in members.items()
    }
