"""Write the reference pages from the code: run ``python docs/generate.py`` after changing parameters or options.

The only sources are the registries, the metadata of the parameters and the commands. tests/docs/test_reference.py
fails while a page and the code differ.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from inspect import cleandoc
from pathlib import Path
from typing import Any

import click

from spuir.base import parameters
from spuir.base.registry import Registry
from spuir.cli.app import main as command_line
from spuir.environments import ENVIRONMENTS
from spuir.features import FEATURES
from spuir.policies import POLICIES, make_policy
from spuir.policies.base import Recipe
from spuir.sketches import SKETCHES

REFERENCE = Path(__file__).parent / "reference"
NOTICE = "<!-- Written by docs/generate.py. Change the code, not this page. -->"

TRAITS = {
    "ridge": "one ridge regression per action; has `coefficients_` and `coefficient_table()`",
    "imputing": "imputes rewards for the actions that were not executed",
    "sketched": "learns from a sketch of the batch; `collect` needs `row_ids`",
    "sampling": "chooses at random even if no scores tie, so that propensities lie between 0 and 1",
    "additive": "the shards of an episode merge by addition: `collect`, `+`, `absorb`",
    "foldable": "its sums do not depend on the acting state, so that training can be parallelised across episodes",
    "self-tuning": "estimates its ridges and its noise from the data, and rewards relative to their mean",
    "weighting": "weighs rows by their propensities in learning, so that `spuir train` needs these",
}
"""The meaning of each trait."""


EXIT_CODES = {
    0: "success",
    1: "failed work: memory ran out, tasks failed, or `doctor` has warnings",
    2: "an error in the arguments or the data, or `doctor` has errors",
    130: "interrupted",
}
"""The meaning of each exit code."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def code(value: object) -> str:
    """Return a value as code."""
    return f"`{value!r}`"


def listed(values: Mapping[str, Any]) -> str:
    """Return parameters with their values, or a dash."""
    return ", ".join(f"`{name}={value!r}`" for name, value in values.items()) or "–"


def first_line(member: Any) -> str:
    """Return what a member is, in one line."""
    return str(getattr(member, "summary", None) or (member.__doc__ or "").split("\n")[0])


def parameter_rows(items: Iterable[Field[Any]]) -> list[list[str]]:
    """Return one row per parameter: name, meaning, allowed values, default."""
    rows: list[list[str]] = []
    for item in items:
        rule: parameters.Rule | None = item.metadata.get("rule")
        if item.init and item.name != "name" and rule is not None:
            default = "–" if item.default is MISSING else code(item.default)
            rows.append([f"`{item.name}`", item.metadata["doc"], rule.clause, default])
    return rows


PARAMETER_HEAD = ("parameter", "meaning", "allowed", "default")


def owners(targets: Iterable[type]) -> dict[type, list[Field[Any]]]:
    """Return the fields that each class adds to its bases, for all classes of the targets, bases first."""
    added_by: dict[type, list[Field[Any]]] = {}
    for target in targets:
        known: set[str] = {"name"}
        for owner in reversed(target.__mro__):
            items = fields(owner) if is_dataclass(owner) else ()
            added = [item for item in items if item.name not in known]
            known |= {item.name for item in items}
            if added:
                added_by.setdefault(owner, added)
    return added_by


def changed(recipe: Recipe) -> dict[str, Any]:
    """Return the values that differ between the paper preset and the defaults of the name."""
    usual = {item.name: item.default for item in fields(recipe.target)} | dict(recipe.defaults)
    return {name: value for name, value in recipe.paper.items() if value != usual[name]}


def policies() -> str:
    """Return the page of policies."""
    recipes: dict[str, Recipe] = {name: POLICIES.get(name) for name in POLICIES.names()}
    traits = {name: sorted(make_policy(name).traits) for name in recipes}
    parts = [
        NOTICE,
        "# Policies",
        "All policies that `spuir.make_policy(name, preset=None, **parameters)` builds, and all their parameters. "
        "[Which policy to take when](../explanation/which-policy.md) helps to choose one.",
        table(
            ("policy", "what it is", "traits"),
            ([f"`{name}`", first_line(one), ", ".join(traits[name])] for name, one in recipes.items()),
        ),
        "## Traits",
        "A policy declares what it is. The table above shows the traits at the default parameters; some parameters "
        "change them. `policy.traits` has the traits of a given policy.",
        table(("trait", "meaning"), ([f"`{name}`", meaning] for name, meaning in TRAITS.items())),
        "## Values by name and preset",
        'A name stands for a class and some default values. `preset="paper"` gives the values of the authors\' code; '
        "the table shows only those that differ. Arguments of the call override both.",
        table(
            ("policy", "the name sets", "the paper preset changes"),
            ([f"`{name}`", listed(one.defaults), listed(changed(one))] for name, one in recipes.items()),
        ),
        "## Parameters",
        "The paper's letters are in brackets. A value outside its range is refused, with the value, the rule and a "
        "remedy.",
    ]
    added = owners(recipe.target for recipe in recipes.values())
    for owner, items in added.items():
        users = [name for name, recipe in recipes.items() if issubclass(recipe.target, owner)]
        whose = "every policy" if len(users) == len(recipes) else ", ".join(f"`{name}`" for name in users)
        parts += [f"### {owner.__name__}", f"Used by {whose}.", table(PARAMETER_HEAD, parameter_rows(items))]
    return "\n\n".join(parts) + "\n"


def family(registry: Registry, title: str, opening: str) -> str:
    """Return the page of a family in which each member has its own parameters."""
    parts = [NOTICE, f"# {title}", opening]
    for name in registry.names():
        member = registry.get(name)
        parts += [f"## {name}", first_line(member)]
        rows = parameter_rows(fields(member))
        if rows:
            parts.append(table(PARAMETER_HEAD, rows))
    return "\n\n".join(parts) + "\n"


def environments() -> str:
    """Return the page of environments."""
    opening = (
        "Sources of contexts and rewards to compare policies on: `spuir.make_environment(name, **parameters)`. "
        "Contexts and noise have their own random streams, so all policies meet the same ones."
    )
    return family(ENVIRONMENTS, "Environments", opening)


def maps() -> str:
    """Return the page of sketches and feature maps."""
    rows = {
        "Sketches": ("Row maps that shrink a batch, chosen by the parameter `sketch` of a ridge policy.", SKETCHES),
        "Feature maps": (
            "Maps of the context columns, chosen by the parameter `features` of a ridge policy.",
            FEATURES,
        ),
    }
    parts = [NOTICE, "# Sketches and feature maps"]
    for title, (opening, registry) in rows.items():
        members = {name: registry.get(name) for name in registry.names()}
        parts += [f"## {title}", opening]
        parts.append(table(("name", "what it is"), ([f"`{name}`", first_line(one)] for name, one in members.items())))
    return "\n\n".join(parts) + "\n"


def commands() -> str:
    """Return the page of the command line."""
    parts = [
        NOTICE,
        "# Command line",
        f"{command_line.help} Results go to the standard output, progress and notes to the error stream. An error is "
        "one sentence on the error stream.",
        table(("exit code", "meaning"), ([f"`{number}`", meaning] for number, meaning in EXIT_CODES.items())),
    ]
    with click.Context(command_line, info_name="spuir", **command_line.context_settings) as top:
        for name in command_line.list_commands(top):
            command = command_line.get_command(top, name)
            assert command is not None
            parts += [f"## spuir {name}", *command_parts(command, click.Context(command, parent=top, info_name=name))]
    return "\n\n".join(parts) + "\n"


def command_parts(command: click.Command, context: click.Context) -> list[str]:
    """Return what one command does, its usage line and its options."""
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    rows: list[list[str]] = []
    for item in command.get_params(context):
        if isinstance(item, click.Option):  # arguments are explained by the text of the command
            meaning, default = meaning_and_default(item)
            rows.append([", ".join(f"`{name}`" for name in item.opts), kind_of(item), meaning, default])
    return [
        cleandoc(command.help or ""),
        f"```text\n{usage}\n```",
        table(("option", "value", "meaning", "default"), rows),
    ]


def kind_of(item: click.Option) -> str:
    """Return the kind of value that an option takes."""
    if item.is_flag:
        return "–"
    if isinstance(item.type, click.Choice):
        return ", ".join(f"`{choice}`" for choice in item.type.choices)
    if item.metavar:
        return f"`{item.metavar}`"
    names = {"integer range": "integer", "float": "number", "float range": "number"}
    return names.get(item.type.name, item.type.name)


def meaning_and_default(item: click.Option) -> tuple[str, str]:
    """Return an option's meaning and its default, which may be in brackets at the end of its help text."""
    text, _, default = (item.help or "").partition("  [default: ")
    # Without the marks of code, Sphinx would set two hyphens as a dash.
    meaning = re.sub(r"--[a-z][a-z-]*|[\w.]*NAME=VALUE|\w+://[\w:]+", r"`\g<0>`", text)
    if default:
        return meaning, default.removesuffix("]")
    if item.required:
        return meaning, "required"
    return meaning, f"`{item.default}`" if item.show_default and not item.is_flag else "–"


PAGES: Mapping[str, Callable[[], str]] = {
    "policies.md": policies,
    "environments.md": environments,
    "maps.md": maps,
    "cli.md": commands,
}
"""The functions that write the pages, by file name."""


def write() -> None:
    """Write every page."""
    REFERENCE.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (REFERENCE / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    write()
