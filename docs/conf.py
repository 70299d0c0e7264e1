"""How the documentation is built: offline, from Markdown, with a warning counting as an error."""

import re
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from spuir import __version__

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "spuir"
author = "The spuir contributors"
copyright = author
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["dollarmath", "deflist", "fieldlist", "colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_param = False
napoleon_attr_annotations = False

html_theme = "furo"
html_title = f"spuir {version}"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["house.css"]
html_copy_source = False
html_show_sphinx = False


def keep_matching(_: Sphinx, docname: str, source: list[str]) -> None:
    """Drop the patterns of the index that match no page beyond those it names: a page joins by being there."""
    if docname == "index":
        lines = source[0].splitlines()
        source[0] = "\n".join(line for line in lines if not line.endswith("*") or set(_pages(line)) - set(lines))


def _pages(pattern: str) -> list[str]:
    return [page.relative_to(HERE).with_suffix("").as_posix() for page in HERE.glob(f"{pattern}.md")]


ARRAY_LIKE = re.compile(r"~numpy\._typing\._array_like\._Buffer \|.*?_NestedSequence\[complex \| bytes \| str\]")
NDARRAY = re.compile(r"~numpy\.ndarray\[tuple\[~typing\.Any, \.\.\.\], ~numpy\.dtype\[([^]]+)\]\]")


def shorten(text: str | None) -> str | None:
    """Return a signature with the names that NumPy has for its array types, which autodoc spells out."""
    return text and NDARRAY.sub(r"~numpy.typing.NDArray[\1]", ARRAY_LIKE.sub("~numpy.typing.ArrayLike", text))


def short_signature(*event: Any) -> tuple[str | None, str | None]:
    """Shorten the types of a signature."""
    *_, signature, returned = event
    return shorten(signature), shorten(returned)


def plain_property(_: Sphinx, what: str, *event: Any) -> None:
    """Keep napoleon from reading the first line of a property, up to a colon, as its type.

    It looks at the first line that is not empty, which is an empty comment now.
    """
    lines = event[-1]
    if what in ("property", "attribute") and lines:
        lines[:0] = ["..", ""]


def setup(app: Sphinx) -> None:
    """Connect the above."""
    app.connect("autodoc-process-signature", short_signature)
    app.connect("autodoc-process-docstring", plain_property, priority=400)
    app.connect("source-read", keep_matching)
