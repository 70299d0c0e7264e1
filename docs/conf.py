"""How the documentation is built: offline, from Markdown, with a warning counting as an error."""

import sys
from pathlib import Path

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
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring = False
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"spuir {version}"
html_math_renderer = "mathml"
html_static_path: list[str] = []
html_copy_source = False
html_show_sphinx = False


def keep_matching(_: Sphinx, docname: str, source: list[str]) -> None:
    """Drop the patterns of the index that match no page, so that a page joins by being there."""
    if docname == "index":
        lines = source[0].splitlines()
        source[0] = "\n".join(line for line in lines if not line.endswith("*") or any(HERE.glob(f"{line}.md")))


def setup(app: Sphinx) -> None:
    """Connect the above."""
    app.connect("source-read", keep_matching)
