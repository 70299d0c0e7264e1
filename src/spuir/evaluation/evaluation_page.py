"""The report of an evaluation as one HTML page that needs no other file."""

from base64 import b64encode
from io import BytesIO
from typing import TYPE_CHECKING, Any

from spuir import __version__
from spuir.errors import MissingExtraError
from spuir.evaluation.evaluation_figures import FIGURES
from spuir.evaluation.evaluation_report import BETTER, OPEN, REFUSED, WORSE, number
from spuir.evaluation.support import GOOD, NONE, WEAK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from spuir.evaluation.evaluation_report import EvaluationReport

BADGES = {GOOD: "holds", WEAK: "authors", NONE: "fails"}
BADGES |= {BETTER: "holds", WORSE: "fails", OPEN: "open", REFUSED: "open"}
"""Verdicts, and the CSS classes of the style sheet that the reports share."""
PIXELS_PER_INCH = 105


def html_report(report: "EvaluationReport") -> str:
    """Return the page."""
    try:
        from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingExtraError("report", "no Jinja2", "it needs Jinja2", 'run pip install "spuir[plot]"') from None
    # The style sheet is that of the reproduction's report.
    loaders = ChoiceLoader([PackageLoader("spuir.evaluation"), PackageLoader("spuir.reproduction")])
    made = Environment(loader=loaders, autoescape=True, undefined=StrictUndefined)
    made.filters["number"] = number
    data = report.to_dict()
    values: dict[str, Any] = data | {
        "lines": report.lines(),
        "figures": list(_pictures(report)),
        "badges": BADGES,
        "version": __version__,
        "digits": report.digits,
        "refused": report.refused,
        "help_wanted": report.help_wanted,
    }
    return made.get_template("evaluation.html.j2").render(values)


def _pictures(report: "EvaluationReport") -> Any:
    """Yield the figures that the report has data for, as data addresses."""
    for name, (caption, draw) in FIGURES.items():
        figure = draw(report)
        if figure is not None:
            pixels = round(figure.get_figwidth() * PIXELS_PER_INCH)
            yield {"name": name, "caption": caption, "address": _address(figure), "width": pixels}


def _address(figure: "Figure") -> str:
    import matplotlib

    out = BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "spuir", "svg.fonttype": "path"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + b64encode(out.getvalue()).decode()
