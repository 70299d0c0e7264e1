"""The page on the identities names code and tests that exist."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "explanation" / "identities.md").read_text(encoding="utf-8")
CODE = sorted(set(re.findall(r"`(spuir(?:\.\w+)+)`", TEXT)))
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", TEXT)))


def test_every_section_points_to_code_and_to_tests() -> None:
    sections = TEXT.split("\n## ")[1:]
    assert len(sections) == 6
    for section in sections:
        assert "- Computed by `spuir." in section and "- Tested by `tests/" in section, section.splitlines()[0]


@pytest.mark.parametrize("name", CODE)
def test_code_that_is_named_exists(name: str) -> None:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return
    raise AssertionError(name)


@pytest.mark.parametrize("name", TESTS)
def test_tests_that_are_named_exist(name: str) -> None:
    path, _, function = name.partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert not function or function in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
