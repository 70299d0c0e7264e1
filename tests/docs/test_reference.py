"""The reference pages say what the code says, and links between pages lead somewhere."""

import re
from pathlib import Path

import pytest
from docutils import nodes

import spuir
from docs import generate
from docs._ext import mathml
from spuir.policies import POLICIES, make_policy

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)#\s]+)(?:#[\w-]*)?\)|\bsrc=\"([^\"]+)\"")


@pytest.mark.parametrize("name", generate.PAGES)
def test_generated_pages_are_up_to_date(name: str) -> None:
    page = generate.REFERENCE / name
    assert page.read_text(encoding="utf-8") == generate.PAGES[name](), "run python docs/generate.py"


def test_every_policy_and_parameter_has_a_row() -> None:
    page = generate.policies()
    for name in POLICIES.names():
        assert f"| `{name}` |" in page
        for parameter in POLICIES.get(name).parameters():
            assert f"| `{parameter}` |" in page


def test_every_trait_is_explained() -> None:
    used = {trait for name in POLICIES.names() for trait in make_policy(name).traits}
    assert used <= set(generate.TRAITS)


def test_the_paper_column_shows_what_changes_and_nothing_else() -> None:
    for name in POLICIES.names():
        usual, paper = make_policy(name), make_policy(name, preset="paper")
        for parameter, value in generate.changed(POLICIES.get(name)).items():
            assert getattr(usual, parameter) != value == getattr(paper, parameter)


def test_every_public_name_is_in_the_python_reference() -> None:
    page = (generate.REFERENCE / "api.md").read_text(encoding="utf-8")
    for name in set(spuir.__all__) - {"__version__"}:
        assert re.search(rf":: spuir\.{name}$", page, re.MULTILINE), f"spuir.{name} is missing in docs/reference/api.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in (one or other for one, other in LINK.findall(text)):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{target} is not there"


@pytest.mark.parametrize("text", [r"\hat S_j", r"\hat\Phi_j", r"\widehat{S}_j", r"\bar{\theta}_j"])
def test_the_index_of_an_accented_letter_stands_beside_it(text: str) -> None:
    made = mathml._convert(nodes.math("", text), block=False)
    assert "<msub>" in made
    assert "munder" not in made
