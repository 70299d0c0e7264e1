"""Plain English: words that nobody uses in a modern manual do not appear in the pages and the help texts."""

import re
from pathlib import Path

import click
import pytest

from spuir.cli import main

ROOT = Path(__file__).parents[2]
PLAIN = {
    "nought": "0",
    "dear": "expensive",
    "learnt": "learned",
    "shall": "will",
    "wholly": "completely",
    "foretold": "predicted",
    "told": "reported, shown or detected",
    "goes on": "continues or resumes",
    "go on": "continue or resume",
    "belong into": "belong in",
    "for ever": "always",
}
"""Words to avoid, and what to write instead."""
RECORDS = ROOT / "docs" / "adr"
"""Design records keep the words of their day."""
PAGES = [
    page
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
    if not page.is_relative_to(RECORDS)
]


def archaic(text: str) -> dict[str, str]:
    """Return the words of a text to avoid, with what to write instead."""
    return {word: plain for word, plain in PLAIN.items() if re.search(rf"\b{word}\b", text, re.IGNORECASE)}


def test_a_word_to_avoid_is_found() -> None:
    assert archaic("What was learnt stays.") == {"learnt": "learned"}
    assert not archaic("The bandit keeps what it has learned.")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_in_plain_english(page: Path) -> None:
    assert not archaic(page.read_text(encoding="utf-8"))


def test_help_texts_are_in_plain_english() -> None:
    with click.Context(main, info_name="spuir", **main.context_settings) as top:
        for name in main.list_commands(top):
            command = main.get_command(top, name)
            assert command is not None
            text = command.get_help(click.Context(command, parent=top, info_name=name))
            assert not archaic(text), f"spuir {name}"
