"""How the documentation is built: offline, from Markdown, with a warning counting as an error."""

import sys
from pathlib import Path

from spuir import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "spuir"
author = "The spuir contributors"
copyright = author
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["dollarmath", "deflist", "fieldlist", "colon_fence"]
myst_heading_anchors = 3

# The toctrees of index.md are patterns, so that a page joins by being there.
suppress_warnings = ["toc.empty_glob"]

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
