"""Formulas as MathML, written into the page by docutils' own converter: no script, no font, no network.

A command that the converter does not know is a warning, and so stops the build.
"""

import re
from html import escape

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)

# Of an accented letter alone the converter makes one symbol, and sets the index that follows right below it.
ACCENTED = re.compile(r"\\(?:hat|widehat|tilde|widetilde|bar)\s*(?:\{[^{}]*\}|\\[A-Za-z]+|[A-Za-z])")


def _convert(node: nodes.Element, *, block: bool) -> str:
    text = node.astext()
    try:
        return tex2mathml(ACCENTED.sub(r"{{}\g<0>}", text), as_block=block)
    except MathError as error:
        logger.warning("formula %r: %s", text, error, location=node)
        return f"<code>{escape(text)}</code>"


def _inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(_convert(node, block=False))
    raise nodes.SkipNode


def _display(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="math"))
    if node.get("number"):
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})</span>')
    self.body.append(_convert(node, block=True) + "</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
