"""The report as one HTML page that needs no other file, and as a Markdown page of the documentation.

Both are Jinja templates over what ``results.json`` holds.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spuir.errors import MissingExtraError
from spuir.reproduction.base import AUTHORS_ONLY, FAILS, HOLDS, OPEN
from spuir.reproduction.table_text import lay_out, number, typeset

if TYPE_CHECKING:
    from jinja2 import Environment as Templates

OUTCOME_CLASSES = {HOLDS: "holds", AUTHORS_ONLY: "authors", FAILS: "fails", OPEN: "open"}
"""Outcomes in the order of their counts → their CSS classes."""

PAPER = (
    "Xiao Zhang, Ninglu Shao, Zihua Si, Jun Xu, Wenhan Wang, Hanjing Su and Ji-Rong Wen: Reward Imputation with "
    "Sketching for Contextual Batched Bandits, NeurIPS 2023"
)
BEYOND = "beyond the paper"
RULE = (
    "Every verdict follows from the numbers by one rule. A claim holds if the 95 % interval of the paired difference "
    "over seeds lies entirely on the claimed side, both at the authors' settings and against the rival at its own best "
    "setting. It holds only against the authors' settings if the second condition fails. Otherwise it does not hold "
    "here. With fewer than three seeds nothing is decided."
)
PIXELS_PER_INCH = 135
"""Figures are drawn for print, and shown larger on a screen."""

LONGEST_TABLE = 24
"""The Markdown page leaves longer tables to the report, except the main table of an experiment."""


def templates() -> "Templates":
    """Return the Jinja environment of the two pages. Values in HTML are typeset and escaped."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingExtraError("report", "no Jinja2", "it needs Jinja2", 'run pip install "spuir[plot]"') from None
    made = Environment(
        loader=PackageLoader("spuir.reproduction"),
        autoescape=lambda name: name is not None and ".html" in name,
        finalize=lambda value: typeset(value) if type(value) is str else value,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "cell": lambda text: text.replace("|", "\\|"),
        "number": number,
        "sheet": lambda table: lay_out(table["rows"], table["formats"]),
    }
    made.globals |= {"paper": PAPER, "rule": RULE, "outcome_classes": OUTCOME_CLASSES}
    return made


def html_page(data: Mapping[str, Any], pictures: Mapping[str, str], manifest: Mapping[str, Any]) -> str:
    """Return the whole report as HTML.

    Parameters
    ----------
    data
        What ``results.json`` holds.
    pictures
        File of each figure → its data address.
    manifest
        What ``manifest.json`` holds.
    """
    from markupsafe import Markup

    # A data address is safe as it is, and must not be typeset.
    safe = {file: Markup(address) for file, address in pictures.items()}
    values = _values(data) | {
        "pictures": safe,
        "pixels_per_inch": PIXELS_PER_INCH,
        "sittings": [_sitting_row(sitting) for sitting in manifest.get("sittings", [])],
    }
    values["origin"]["results"] = f"{manifest.get('results', 0):,} finished tasks"
    return templates().get_template("report.html.j2").render(values)


def markdown_page(data: Mapping[str, Any], figure_folder: str) -> str:
    """Return the page of the documentation; ``figure_folder`` is the folder of the figures as seen from the page."""
    values = _values(data) | {"figure_folder": figure_folder, "longest_table": LONGEST_TABLE}
    return typeset(templates().get_template("page.md.j2").render(values))


def _values(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what both templates read: the results, with headings, counts and the origin of the numbers."""
    sections: Sequence[Mapping[str, Any]] = data["experiments"]
    count = Counter(verdict["outcome"] for section in sections for verdict in section["verdicts"])
    machine, seeds = data["machine"], data["seeds"]
    origin = {
        "versions": ", ".join(f"{name} {value}" for name, value in data["versions"].items()),
        "linear algebra": str(data["blas"]),
        "machine": f"{machine.get('processor')}, {machine.get('cores')} cores, {machine.get('memory_gb')} GB, "
        f"{machine.get('system')}",
        "seeds": f"{seeds[0]} to {seeds[-1]}" if seeds else "none",
    }
    experiments = [
        dict(section)
        | {
            "heading": f"{section['source'][:1].upper()}{section['source'][1:]}: {section['title']}",
            "place": section["name"] if section["source"].startswith(BEYOND) else section["source"],
        }
        for section in sections
    ]
    counts = {outcome: count[outcome] for outcome in OUTCOME_CLASSES if count[outcome]}
    versions, known = {"spuir": "", **data["versions"]}, dict.fromkeys(("processor", "cores")) | machine
    return {**data, "versions": versions, "machine": known, "experiments": experiments} | {
        "counts": counts,
        "origin": origin,
    }


def _sitting_row(sitting: Mapping[str, Any]) -> dict[str, Any]:
    """Return one run of the command as a row of the table of runs."""
    row = {name: str(sitting.get(name) or "").partition("+")[0].replace("T", " ") for name in ("started", "finished")}
    commit = (sitting.get("commit") or "")[:12] + (" and changes" if sitting.get("dirty") else "")
    return row | {"workers": sitting.get("workers"), "tasks": sitting.get("tasks"), "commit": commit}
