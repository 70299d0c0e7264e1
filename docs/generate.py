"""The reference pages that the code itself writes: ``python docs/generate.py`` after a change of parameters or options.

Registries, the parameters' metadata and the commands are the only source; tests/docs/test_reference.py fails
while a page and the code differ.
"""

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
MADE = "<!-- Written by docs/generate.py. Change the code, not this page. -->"

TRAITS = {
    "ridge": "one ridge regression per action; has `coefficients_` and `coefficient_table()`",
    "imputing": "rewards are imputed for the actions that were not executed",
    "sketched": "learns from a sketch of the batch; `collect` needs `row_ids`",
    "sampling": "chooses at random also where no scores tie, so that propensities lie between 0 and 1",
    "additive": "the shards of an episode merge by addition: `collect`, `+`, `absorb`",
    "foldable": "its sums do not depend on the state that acted, so that a history can be summed in parallel",
}
"""What the words in a policy's traits mean."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def code(value: object) -> str:
    """Return a value as it is written in code."""
    return f"`{value!r}`"


def listed(values: Mapping[str, Any]) -> str:
    """Return parameters with their values, or a dash."""
    return ", ".join(f"`{name}={value!r}`" for name, value in values.items()) or "–"


def first_line(member: Any) -> str:
    """Return what a member is for, in one line."""
    return str(getattr(member, "summary", None) or (member.__doc__ or "").split("\n")[0])


def parameter_rows(items: Iterable[Field[Any]]) -> list[list[str]]:
    """Return a row for each field that a caller may give: name, meaning, what is allowed, default."""
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
    found: dict[type, list[Field[Any]]] = {}
    for target in targets:
        known: set[str] = {"name"}
        for owner in reversed(target.__mro__):
            items = fields(owner) if is_dataclass(owner) else ()
            added = [item for item in items if item.name not in known]
            known |= {item.name for item in items}
            if added:
                found.setdefault(owner, added)
    return found


def changed(recipe: Recipe) -> dict[str, Any]:
    """Return the values that the paper preset sets otherwise than the name does."""
    usual = {item.name: item.default for item in fields(recipe.target)} | dict(recipe.defaults)
    return {name: value for name, value in recipe.paper.items() if value != usual[name]}


def policies() -> str:
    """Return the page of policies."""
    recipes: dict[str, Recipe] = {name: POLICIES.get(name) for name in POLICIES.names()}
    traits = {name: sorted(make_policy(name).traits) for name in recipes}
    parts = [
        MADE,
        "# Policies",
        "Every policy that `spuir.make_policy(name, preset=None, **parameters)` builds, and all that can be set. "
        "[Which policy to take when](../explanation/which-policy.md) is a page of its own.",
        table(
            ("policy", "what it is", "traits"),
            ([f"`{name}`", first_line(one), ", ".join(traits[name])] for name, one in recipes.items()),
        ),
        "## Traits",
        "What a policy says of itself, at its defaults; some parameters change it. "
        "`policy.traits` has the traits of the policy at hand.",
        table(("trait", "meaning"), ([f"`{name}`", meaning] for name, meaning in TRAITS.items())),
        "## Values by name and preset",
        'A name stands for a class with some values of its own. `preset="paper"` gives the values in the '
        "authors' code; "
        "only those that differ are shown. What is given in the call comes last and wins.",
        table(
            ("policy", "the name sets", "the paper preset changes"),
            ([f"`{name}`", listed(one.defaults), listed(changed(one))] for name, one in recipes.items()),
        ),
        "## Parameters",
        "The paper's letters stand in brackets. A value outside its range is refused with the value, the rule and a "
        "remedy.",
    ]
    added = owners(recipe.target for recipe in recipes.values())
    for owner, items in added.items():
        users = [name for name, recipe in recipes.items() if issubclass(recipe.target, owner)]
        whose = "every policy" if len(users) == len(recipes) else ", ".join(f"`{name}`" for name in users)
        parts += [f"### {owner.__name__}", f"Of {whose}.", table(PARAMETER_HEAD, parameter_rows(items))]
    return "\n\n".join(parts) + "\n"


def family(registry: Registry, title: str, opening: str) -> str:
    """Return the page of a family whose members each have their own parameters."""
    parts = [MADE, f"# {title}", opening]
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
        "Sources of contexts and rewards for trying policies: `spuir.make_environment(name, **parameters)`. Contexts "
        "and noise come from streams apart from the policy's, so that all policies meet the same ones."
    )
    return family(ENVIRONMENTS, "Environments", opening)


def maps() -> str:
    """Return the page of sketches and feature maps."""
    rows = {
        "Sketches": ("Row maps that shrink a batch, chosen by `sketch=` of a ridge policy.", SKETCHES),
        "Feature maps": ("Maps of the context columns, chosen by `features=` of a ridge policy.", FEATURES),
    }
    parts = [MADE, "# Sketches and feature maps"]
    for title, (opening, registry) in rows.items():
        members = {name: registry.get(name) for name in registry.names()}
        parts += [f"## {title}", opening]
        parts.append(table(("name", "what it is"), ([f"`{name}`", first_line(one)] for name, one in members.items())))
    return "\n\n".join(parts) + "\n"


def commands() -> str:
    """Return the page of the command line."""
    parts = [
        MADE,
        "# Command line",
        f"{command_line.help} Results go to the standard output, progress and notes to the error stream. A refusal is "
        "one sentence there, and the exit code is 2; it is 1 where work failed (no memory left, tasks that failed, "
        "warnings of `doctor`), 130 after an interrupt, and 0 where all went well.",
    ]
    with click.Context(command_line, info_name="spuir", **command_line.context_settings) as top:
        for name in command_line.list_commands(top):
            command = command_line.get_command(top, name)
            assert command is not None
            parts += [f"## spuir {name}", *command_parts(command, click.Context(command, parent=top, info_name=name))]
    return "\n\n".join(parts) + "\n"


def command_parts(command: click.Command, context: click.Context) -> list[str]:
    """Return what one command does, how it is called, and its options."""
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    rows: list[list[str]] = []
    for item in command.get_params(context):
        if isinstance(item, click.Option):
            meaning, default = told(item)
            rows.append([", ".join(f"`{name}`" for name in item.opts), kind_of(item), meaning, default])
        else:
            rows.append([f"`{item.human_readable_name.upper()}`", kind_of(item), "", "–"])
    return [
        cleandoc(command.help or ""),
        f"```text\n{usage}\n```",
        table(("option", "value", "meaning", "default"), rows),
    ]


def kind_of(item: click.Parameter) -> str:
    """Return what a parameter of a command takes."""
    if isinstance(item, click.Option) and item.is_flag:
        return "–"
    if isinstance(item.type, click.Choice):
        return ", ".join(f"`{choice}`" for choice in item.type.choices)
    if item.metavar:
        return f"`{item.metavar}`"
    names = {"integer": "a whole number", "integer range": "a whole number", "float": "a number", "path": "a path"}
    return names.get(item.type.name, item.type.name) + (", repeatable" if item.multiple else "")


def told(item: click.Option) -> tuple[str, str]:
    """Return an option's meaning and its default, which may stand in brackets at the end of its help."""
    meaning, _, default = (item.help or "").partition("  [default: ")
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
"""What is written, by the name of its page."""


def write() -> None:
    """Write every page."""
    REFERENCE.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (REFERENCE / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    write()
