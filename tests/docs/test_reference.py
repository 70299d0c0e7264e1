"""The reference pages say what the code says, and links between pages lead somewhere."""

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest
from docutils import nodes

import spuir
import spuir.training
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


FOR_ESTIMATORS = {"ValueEstimator", "TargetRows", "Estimate", "interval"}
"""What an estimator of one's own is made of."""


def test_everything_that_the_pages_import_is_in_the_python_reference() -> None:
    page = (generate.REFERENCE / "api.md").read_text(encoding="utf-8")
    sources = [
        *(ROOT / "docs" / "howto").glob("*.md"),
        ROOT / "docs" / "tutorial.md",
        *(ROOT / "examples").glob("*.py"),
    ]
    for source in sources:
        for module, names in re.findall(
            r"^from (spuir\S*) import (.+)$", source.read_text(encoding="utf-8"), re.MULTILINE
        ):
            for name in names.split(", "):
                shown = rf":: {re.escape(module)}(\.{name}$|\.{name}\.)|automodule:: {re.escape(module)}$"
                assert re.search(shown, page, re.MULTILINE), (
                    f"{source.name} imports {name}, docs/reference/api.md has it not"
                )


def test_every_entry_of_the_python_reference_has_an_example() -> None:
    page = (generate.REFERENCE / "api.md").read_text(encoding="utf-8")
    code = "".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    for name in re.findall(r"^\.\. auto(?:class|function):: (\S+)$", page, re.MULTILINE):
        if name.rpartition(".")[2] not in FOR_ESTIMATORS and not name.startswith("spuir.testing"):
            assert re.search(rf"\b{name.rpartition('.')[2]}\b", code), f"{name} has no example in docs/reference/api.md"


@pytest.mark.parametrize(
    "module",
    [
        "spuir.bandit.contextual_bandit",
        "spuir.base.records",
        "spuir.errors",
        "spuir.logs.episode",
        "spuir.bandit.learned_model",
        "spuir.bandit.bandit_arguments",
        "spuir.tables.encoder",
        "spuir.training.pipeline",
    ],
)
def test_examples_in_docstrings_give_what_they_show(module: str) -> None:
    found = doctest.testmod(import_module(module), extraglobs={"spuir": spuir, "train": spuir.training.train})
    assert found.attempted and not found.failed


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
