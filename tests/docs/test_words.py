"""Plain English: outdated words do not appear in the pages, the help texts, the docstrings and the messages."""

import io
import re
import tokenize
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
    "belongs? into": "belong in",
    "for ever": "always",
    "contestants?": "competitor, or the name of what is compared",
    "(?:take|takes|taking) turns": "alternate",
    "whoever": "anyone who, or who does what",
    "one's own": "your own",
    "the way of the": "how",
    "so-maniest": "k-th",
    "arms?": "action",
}
"""Words to avoid, as patterns, and what to write instead."""
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = [source for folder in ("src", "benchmarks", "examples") for source in sorted((ROOT / folder).rglob("*.py"))]


def archaic(text: str) -> dict[str, str]:
    """Return the words of a text to avoid, with what to write instead."""
    return {word: plain for word, plain in PLAIN.items() if re.search(rf"\b{word}\b", text, re.IGNORECASE)}


def prose(source: str) -> str:
    """Return the docstrings, messages and comments of a module, without its names."""
    kinds = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    return "\n".join(
        token.string for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type in kinds
    )


def test_a_word_to_avoid_is_found() -> None:
    assert archaic("What was learnt stays.") == {"learnt": "learned"}
    assert not archaic("The bandit keeps what it has learned.")
    assert archaic(prose('dear = "shall"  # told')) == {"shall": "will", "told": "reported, shown or detected"}


def test_sources_are_in_plain_english() -> None:
    odd = {source.relative_to(ROOT): archaic(prose(source.read_text(encoding="utf-8"))) for source in SOURCES}
    assert len(odd) > 100
    assert not {source: words for source, words in odd.items() if words}


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
