"""The report as one HTML page that needs no other file: a Jinja template over what ``results.json`` holds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spuir.errors import MissingExtraError
from spuir.reproduction.claims import CODE_ONLY, CONTRADICTED, HOLDS, NOT_TESTED, UNDECIDED
from spuir.reproduction.table_text import lay_out, number, typeset

if TYPE_CHECKING:
    from jinja2 import Environment as Templates

OUTCOME_CLASSES = {
    HOLDS: "holds",
    CODE_ONLY: "code",
    UNDECIDED: "undecided",
    CONTRADICTED: "contradicted",
    NOT_TESTED: "untested",
}
"""Outcomes in the order of their counts → their CSS classes."""
PAPER = (
    "Xiao Zhang, Ninglu Shao, Zihua Si, Jun Xu, Wenhan Wang, Hanjing Su and Ji-Rong Wen: Reward Imputation with "
    "Sketching for Contextual Batched Bandits, NeurIPS 2023"
)
PIXELS_PER_INCH = 135
"""Figures are drawn for print, and shown larger on a screen."""


def templates() -> "Templates":
    """Return the Jinja environment of the pages. Values in HTML are typeset and escaped."""
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
        "number": number,
        "sheet": lambda table: lay_out(table["rows"], table["formats"]),
        "estimate": estimate_text,
    }
    made.globals |= {"paper": PAPER, "outcome_classes": OUTCOME_CLASSES}
    return made


def estimate_text(one: Mapping[str, Any]) -> str:
    """Return "name: estimate [low, high], n" of one estimate of a verdict."""
    numbers = ["–" if one[name] is None else f"{one[name]:.3g}" for name in ("estimate", "low", "high")]
    return f"{one['name']}: {numbers[0]} [{numbers[1]}, {numbers[2]}], n = {one['n']}"


def counts(verdicts: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return how often each outcome occurs, in the order of the outcomes."""
    found = Counter(verdict["outcome"] for verdict in verdicts)
    return {outcome: found[outcome] for outcome in OUTCOME_CLASSES if found[outcome]}


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

    verdicts = [verdict for section in data["experiments"] for verdict in section["verdicts"]]
    machine = data["machine"]
    origin = {
        "versions": ", ".join(f"{name} {value}" for name, value in data["versions"].items()),
        "linear algebra": str(data["blas"]),
        "machine": ", ".join(f"{name} {value}" for name, value in machine.items()),
        "results": f"{manifest.get('results', 0):,} finished tasks",
    }
    values = {
        **data,
        "counts": {
            "The paper's claims": counts([one for one in verdicts if one["source"] == "paper"]),
            "Claims of the authors' code and of ours": counts([one for one in verdicts if one["source"] != "paper"]),
        },
        # A data address is safe as it is, and must not be typeset.
        "pictures": {file: Markup(address) for file, address in pictures.items()},
        "pixels_per_inch": PIXELS_PER_INCH,
        "sittings": [_sitting_row(sitting) for sitting in manifest.get("sittings", [])],
        "origin": origin,
    }
    return templates().get_template("report.html.j2").render(values)


def _sitting_row(sitting: Mapping[str, Any]) -> dict[str, Any]:
    """Return one run of the command as a row of the table of runs."""
    row = {name: str(sitting.get(name) or "").partition("+")[0].replace("T", " ") for name in ("started", "finished")}
    commit = (sitting.get("commit") or "")[:12] + (" and changes" if sitting.get("dirty") else "")
    return row | {"workers": sitting.get("workers"), "tasks": sitting.get("tasks"), "commit": commit}
