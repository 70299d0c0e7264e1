"""Write the reference pages from the code: run ``python docs/generate.py`` after changing parameters or options.

The only sources are the registries, the metadata of the parameters and the commands. tests/docs/test_reference.py
fails while a page and the code differ.
"""

import json
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
    """Return the values that differ between the preset "authors-code" and the defaults of the name."""
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
        "[Which policy to use when](../explanation/which-policy.md) helps to choose one.",
        table(
            ("policy", "what it is", "traits"),
            ([f"`{name}`", first_line(one), ", ".join(traits[name])] for name, one in recipes.items()),
        ),
        "## Traits",
        "A policy declares what it is. The table above shows the traits at the default parameters; some parameters "
        "change them. `policy.traits` has the traits of a given policy.",
        table(("trait", "meaning"), ([f"`{name}`", meaning] for name, meaning in TRAITS.items())),
        "## Values by name and preset",
        'A name is a class with some default values. `preset="authors-code"` gives the values of the authors\' code; '
        "the table shows only those that differ. Arguments of the call override both.",
        table(
            ("policy", "the name sets", "authors-code changes"),
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
        "Contexts and noise have their own random streams, so all policies see the same ones."
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
            parts += subcommand_parts(command, click.Context(command, parent=top, info_name=name))
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


def subcommand_parts(command: click.Command, context: click.Context) -> list[str]:
    """Return what the commands of a command do, and those of these."""
    parts: list[str] = []
    for name, one in command.commands.items() if isinstance(command, click.Group) else ():
        inner = click.Context(one, parent=context, info_name=name)
        if not isinstance(one, click.Group):
            parts += [f"### {inner.command_path}", *command_parts(one, inner)]
        parts += subcommand_parts(one, inner)
    return parts


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


def service_api() -> str:
    """Return the page of the HTTP interface of the service."""
    from spuir.service.api.app import OPERATIONS
    from spuir.service.api.openapi import describe
    from spuir.service.api.refusals import ALL_CODES
    from spuir.service.config import ServerConfig

    description = describe(OPERATIONS, ServerConfig())
    roles = {None: "–", "any": "any key"}
    parts = [
        NOTICE,
        "# HTTP interface of the service",
        "All addresses of `spuir serve`, made from its code. A running service has the same as an OpenAPI 3.1 document "
        "at `/openapi.json`. [Serve decisions over HTTP](../howto/serve.md) shows how to use them.",
        table(
            ("method", "address", "role of the key", "what it does"),
            ([one.method, f"`{one.path}`", roles.get(one.role, f"`{one.role}`"), one.summary] for one in OPERATIONS),
        ),
        "## Errors",
        'Every error has the shape `{"error": {"code", "message", "remedy", "where"}}`. The codes do not change; the '
        "message is one sentence for people, and `where` is the place in the request or null. A request with an error "
        "status changed nothing, with two exceptions: a reward with `unknown_decision` is recorded, and the error of "
        "an import of more than 10,000 rows says how many of them are recorded.",
        table(
            ("status", "code", "meaning"),
            ([str(status), f"`{name}`", meaning] for name, (status, meaning) in sorted_codes(ALL_CODES)),
        ),
        "## Operations",
    ]
    for one in OPERATIONS:
        about = description["paths"][one.path][one.method.lower()]
        parts += [f"### {one.method} {one.path}", operation_text(one.summary, one.doc)]
        rows = [[f"`{item['name']}`", item["in"], item["description"]] for item in about.get("parameters", [])]
        if rows:
            parts.append(table(("parameter", "in", "meaning"), rows))
        answers = about["responses"].items()
        if "requestBody" in about:
            parts.append("Body: " + shapes_in(about["requestBody"]["content"]) + ".")
        good = [f"{status} {shapes_in(answer['content'])}" for status, answer in answers if status < "400"]
        bad = [status for status, _ in answers if status >= "400"]
        parts.append(f"Answers: {', '.join(good)}." + (f" Errors: {', '.join(bad)}." if bad else ""))
    parts.append("## Shapes")
    for name, schema in sorted(description["components"]["schemas"].items()):
        parts += [f"### {name}", plain(schema.get("description", ""))]
        required = schema.get("required", [])
        rows = [
            [f"`{field}`", type_of(item), "yes" if field in required else "no", default_of(item)]
            for field, item in schema.get("properties", {}).items()
        ]
        parts.append(table(("field", "type", "required", "default"), rows))
    return "\n\n".join(part for part in parts if part) + "\n"


def sorted_codes(codes: Mapping[str, tuple[int, str]]) -> list[tuple[str, tuple[int, str]]]:
    """Return codes by status."""
    return sorted(codes.items(), key=lambda item: item[1][0])


def operation_text(summary: str, doc: str) -> str:
    """Return what an operation does, in sentences."""
    return f"{summary}. {doc}".strip()


def plain(description: str) -> str:
    """Return the text of a docstring as Markdown: without the head of its parameters, code in single marks."""
    text = re.sub(r"\nParameters\n-+\n", "\n", description).replace("``", "`")
    text = re.sub(r":\w+:`~?([\w.]+)`", r"`\1`", text)
    return re.sub(r"^(\w+(?:, \w+)*)\n {4}(.*(?:\n {4}.*)*)", named, text, flags=re.MULTILINE)


def named(found: "re.Match[str]") -> str:
    """Return a parameter of a docstring as an item of a list."""
    names = ", ".join(f"`{name}`" for name in found[1].split(", "))
    return f"- {names}: {' '.join(found[2].split())}"


def type_of(schema: Mapping[str, Any]) -> str:
    """Return the type of a field in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(type_of(one) for one in schema["anyOf"])
    if "const" in schema or "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if kind == "array":
        return f"array of {type_of(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"object of {type_of(schema['additionalProperties'])}"
    return str(kind or "anything")


def default_of(schema: Mapping[str, Any]) -> str:
    """Return the default of a field as JSON."""
    return f"`{json.dumps(schema['default'])}`" if "default" in schema else "–"


def shapes_in(content: Mapping[str, Any]) -> str:
    """Return the types of a body or an answer."""
    kinds = {kind: type_of(one["schema"]) for kind, one in content.items()}
    return " or ".join(shape if kind == "application/json" else f"`{kind}`" for kind, shape in kinds.items())


PAGES: Mapping[str, Callable[[], str]] = {
    "policies.md": policies,
    "environments.md": environments,
    "maps.md": maps,
    "cli.md": commands,
    "service-api.md": service_api,
}
"""The functions that write the pages, by file name."""


def write() -> None:
    """Write every page."""
    REFERENCE.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (REFERENCE / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    write()
