"""The glossary stays short: at most thirty terms in use, in alphabetical order, with one to three sentences each."""

import re
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "glossary.md"
ENTRY = re.compile(r"^(?P<term>[a-z][^\n]*)\n: (?P<meaning>.*?)(?=\n\n|\n*\Z)", re.MULTILINE | re.DOTALL)
MOST_TERMS = 30
LONGEST = 260


def entries() -> dict[str, str]:
    """Return the meaning of each term, without the letters in brackets behind it."""
    pairs = [
        (re.sub(r" \(.*\)$", "", entry["term"]), entry["meaning"])
        for entry in ENTRY.finditer(PAGE.read_text(encoding="utf-8"))
    ]
    assert len(dict(pairs)) == len(pairs), "a term is listed twice"
    return dict(pairs)


def test_there_are_at_most_thirty_terms_in_alphabetical_order() -> None:
    terms = list(entries())
    assert len(terms) > 20
    assert len(terms) <= MOST_TERMS
    assert terms == sorted(terms)


def test_every_line_of_the_page_belongs_to_a_term_or_the_introduction() -> None:
    paragraphs = PAGE.read_text(encoding="utf-8").strip().split("\n\n")
    assert len(paragraphs) == 2 + len(entries())


def test_an_entry_is_short_and_a_sentence() -> None:
    for term, meaning in entries().items():
        assert meaning.endswith(".") and len(meaning) <= LONGEST, term


def test_every_term_is_a_word_of_the_code_and_of_the_pages() -> None:
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page != PAGE and page.parent.name != "reference"]
    for files in (pages, list((ROOT / "src").rglob("*.py"))):
        texts = [file.read_text(encoding="utf-8").lower() for file in files]
        for word in ", ".join(entries()).split(", "):
            pattern = r"\b" + word.replace(" ", r"\s+")
            used = len(list(islice((text for text in texts if re.search(pattern, text)), 2)))
            assert used == 2, f"{word!r} is in {used} of {len(files)} files"
