"""Every code name in docs/notation.md exists: the page cannot drift from the code."""

import inspect
import re
import tokenize
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import spuir

PAGE = Path(__file__).parents[2] / "docs" / "notation.md"
COLUMNS = ["symbol", "code name", "shape", "equation", "meaning"]
NAME = re.compile(r"([\w.]+)(?:\((\w+)\))?")


class Line(NamedTuple):
    """One row of a table of the page."""

    symbol: str
    names: tuple[str, ...]
    equation: str


def rows(text: str) -> list[list[str]]:
    """Return the cells of every table row in a Markdown text; \\| is no separator."""
    tables = (line.strip() for line in text.splitlines() if line.lstrip().startswith("|"))
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in tables]


def notation(text: str) -> list[Line]:
    """Return the lines of all tables, which have the five columns."""
    lines: list[Line] = []
    for cells in rows(text):
        if [cell.lower() for cell in cells] == COLUMNS or set("".join(cells)) <= set("-: "):
            continue
        assert len(cells) == len(COLUMNS), f"a row of {len(cells)} cells: {cells}"
        lines.append(Line(cells[0], tuple(re.findall(r"`([^`]+)`", cells[1])), cells[3]))
    return lines


def member(owner: Any, name: str) -> Any:
    """Return what ``owner`` calls ``name``: a module, an attribute, or a field known by its annotation."""
    if inspect.ismodule(owner) and not hasattr(owner, name):
        return import_module(f"{owner.__name__}.{name}")
    if not hasattr(owner, name) and name in getattr(owner, "__dataclass_fields__", {}):
        return owner.__dataclass_fields__[name]
    return getattr(owner, name)


def resolve(text: str) -> Any:
    """Return what a dotted path under spuir names; ``function(argument)`` names an argument."""
    matched = NAME.fullmatch(text)
    assert matched, f"{text!r} is no dotted path"
    path, argument = matched.groups()
    named: Any = import_module("spuir")
    for name in path.removeprefix("spuir.").split("."):
        named = member(named, name)
    return inspect.signature(named).parameters[argument] if argument else named


@pytest.mark.parametrize(
    "name",
    [
        "spuir.base.records.Batch.contexts",
        "base.records.State.episode",
        "base.records.Decision.widths",
        "base.streams.generator(seed)",
        "storage.snapshot.FORMAT_VERSION",
        "core.statistics",
    ],
)
def test_names_that_exist_are_found(name: str) -> None:
    assert resolve(name) is not None


@pytest.mark.parametrize(
    "name",
    ["base.records.Batch.context", "records.Nothing", "nowhere.at.all", "streams.generator(sed)", "a b", "2 + 2"],
)
def test_names_that_do_not_exist_are_noticed(name: str) -> None:
    with pytest.raises((AttributeError, ImportError, KeyError, AssertionError)):
        resolve(name)


def test_tables_are_read_as_they_are_rendered() -> None:
    head = "| Symbol | Code name | Shape | Equation | Meaning |\n|---|:--|---|---|---|\n"
    text = head + "| $a \\| b$ | `x.y`, `z` | | (3) | m |\n"
    assert notation(text) == [Line(r"$a \| b$", ("x.y", "z"), "(3)")]


@pytest.fixture(scope="module")
def page() -> list[Line]:
    return notation(PAGE.read_text(encoding="utf-8"))


def test_every_code_name_exists(page: list[Line]) -> None:
    assert page
    for line in page:
        assert line.names, f"{line.symbol} has no code name"
        for name in line.names:
            resolve(name)


def test_every_equation_of_the_paper_has_a_place(page: list[Line]) -> None:
    numbers = {int(number) for line in page for number in re.findall(r"\((\d+)\)", line.equation)}
    assert numbers >= set(range(1, 11))


def prose(path: Path) -> Iterator[str]:
    """Yield the comments and the texts of a module."""
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING):
                yield token.string


def test_every_equation_of_the_paper_stands_in_the_code() -> None:
    house = Path(spuir.__file__).parent
    places = [*house.glob("core/*.py"), *house.glob("policies/*.py"), house / "planning.py"]
    numbers = {
        int(number) for path in places for text in prose(path) for number in re.findall(r"(?<!\w)\((\d+)\)", text)
    }
    assert numbers >= set(range(1, 11)), f"missing: {sorted(set(range(1, 11)) - numbers)}"


def test_protocol_algorithm_and_theorems_stand_in_the_code() -> None:
    everything = " ".join(text for path in Path(spuir.__file__).parent.rglob("*.py") for text in prose(path))
    for name in ("Protocol 1", "Algorithm 1", "Theorem 1", "Theorem 2", "Theorem 3", "Theorem 4"):
        assert name in everything, name
