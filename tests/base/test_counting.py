"""Numbers with their nouns."""

import re
from pathlib import Path

import pytest

from spuir.base.counting import counted

SOURCES = Path(__file__).parents[2] / "src" / "spuir"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 rows left"), (1, "1 row left"), (2, "2 rows left"), (1_200, "1,200 rows left")]
)
def test_one_is_singular(count: int, text: str) -> None:
    assert counted(count, "row", "left") == text


@pytest.mark.parametrize("path", sorted((SOURCES / "cli").glob("*.py")), ids=lambda path: path.stem)
def test_commands_count_with_it(path: Path) -> None:
    plural = r"\{[^{}]*\} (rows|episodes|actions|features|decisions|candidates|finalists|seeds)\b"
    assert not re.findall(plural, path.read_text(encoding="utf-8"))
