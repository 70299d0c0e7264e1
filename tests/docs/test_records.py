"""Design records hold today: each has its number in its title, and none is superseded."""

import re
from pathlib import Path

import pytest

RECORDS = sorted((Path(__file__).parents[2] / "docs" / "adr").glob("*.md"))


def test_every_number_is_used_once() -> None:
    numbers = [record.name[:4] for record in RECORDS]
    assert len(numbers) > 20
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_a_record_has_its_number_and_holds(record: Path) -> None:
    title, *body = record.read_text(encoding="utf-8").splitlines()
    assert re.match(r"# (\d+)\. [A-Z]", title)
    assert int(record.name[:4]) == int(title[2:].split(".")[0])
    assert not re.search(r"superseded by|supersedes|deprecated", "\n".join(body), re.IGNORECASE)
