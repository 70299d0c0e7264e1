"""Names that older versions saved, and what they are called now.

A saved model names its policy, the parameters and the fields of its state. To rename one of these, add a line to
:data:`RENAMED`: files of the older versions then load as before.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

Names = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Renames:
    """New names by old ones: of policies, of their parameters, and of fields of records at any depth."""

    policies: Names = field(default_factory=dict[str, str])
    parameters: Names = field(default_factory=dict[str, str])
    fields: Names = field(default_factory=dict[str, str])


RENAMED: dict[tuple[int, int], Renames] = {}
"""By the last version (major, minor) that saved the old names, oldest first."""


def migrate(
    header: dict[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> tuple[dict[str, Any], Mapping[str, NDArray[Any]]]:
    """Return the header and the arrays of a saved model with today's names."""
    for last, names in RENAMED.items():
        if _version(header["spuir"]) <= last:
            header, arrays = _renamed(header, arrays, names)
    return header, arrays


def _version(text: str) -> tuple[int, int]:
    major, minor, *_ = text.split(".")
    return int(major), int(minor)


def _renamed(
    header: dict[str, Any], arrays: Mapping[str, NDArray[Any]], names: Renames
) -> tuple[dict[str, Any], Mapping[str, NDArray[Any]]]:
    """Apply the renames of one version."""

    def path_of(old: str) -> str:
        return ".".join(names.fields.get(name, name) for name in old.split("."))

    def tree_of(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {names.fields.get(name, name): tree_of(item) for name, item in tree.items()}
        if isinstance(tree, list):
            return [tree_of(item) for item in tree]
        return path_of(tree) if isinstance(tree, str) and tree in arrays else tree

    policy = header["policy"]
    parameters = {names.parameters.get(name, name): value for name, value in policy["parameters"].items()}
    policy = policy | {"name": names.policies.get(policy["name"], policy["name"]), "parameters": parameters}
    new = header | {"policy": policy, "state": tree_of(header["state"])}
    return new, {path_of(path): array for path, array in arrays.items()}
