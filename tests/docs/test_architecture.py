"""The map of the house is true: its rooms are those in src/spuir, its layers those of the import contract."""

import re
import tomllib
from pathlib import Path

import spuir

ROOT = Path(__file__).parents[2]
HOUSE = Path(spuir.__file__).parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """Return the text under a heading of the page."""
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def table(title: str) -> list[list[str]]:
    """Return the rows of the table under a heading, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def entries() -> set[str]:
    """Return the modules and folders at the top of the package, as the page writes them."""
    names = {path.name + "/" if path.is_dir() else path.name for path in HOUSE.iterdir()}
    return {name for name in names if not name.startswith("__") and name != "py.typed"}


def test_every_room_has_a_paragraph() -> None:
    rooms = re.findall(r"^\*\*`([\w./]+)`\*\*", section("Rooms"), re.MULTILINE)
    assert len(rooms) == len(set(rooms))
    assert set(rooms) == entries()


def test_the_layers_are_those_of_the_import_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract["name"] == "layers")
    built = [
        sorted(room for room in re.split(r" [|:] ", layer) if not room.startswith(("(", "__"))) for layer in layers
    ]
    assert [sorted(re.findall(r"`(\w+)`", row[1])) for row in table("Layers")] == [layer for layer in built if layer]


def test_ten_questions_are_answered_by_one_file_each() -> None:
    rows = table("Ten questions of a newcomer")
    assert len(rows) == 10
    for question, answer in rows:
        assert question.endswith("?")
        (path,) = re.findall(r"^`([\w./]+)`$", answer)
        assert (ROOT / path).is_file(), f"{question} {path} is not there"
    assert len({answer for _, answer in rows}) == len(rows)
