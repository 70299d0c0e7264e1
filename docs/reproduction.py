"""The page of reproduced results: ``python docs/reproduction.py [FOLDER]`` after a full ``spuir reproduce``.

FOLDER is what ``spuir reproduce`` wrote; its results and main figures are stored beside the page. Without it, the page
is written anew from what is stored. tests/reproduction/test_report.py fails while page and stored results differ.
"""

import json
import re
import sys
from pathlib import Path

from spuir.reproduction.page import page
from spuir.storage.atomic import finite, write_json, write_text

HERE = Path(__file__).parent
STORED, PAGE = HERE / "reproduction" / "results.json", HERE / "reproduction.md"
FIGURES = "figures/reproduction"
DIGITS = 7


def store(folder: Path) -> None:
    """Take the results of a run, and the main figure of each experiment, into the documentation."""
    data = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    for section in data["experiments"]:
        section["figures"] = [figure for figure in section["figures"] if not figure["name"]]
        for figure in section["figures"]:
            drawn = (folder / figure["file"]).read_text(encoding="utf-8")
            write_text(HERE / FIGURES / Path(figure["file"]).name, lighter(drawn))
    write_json(STORED, finite(data, DIGITS))


def lighter(drawn: str) -> str:
    """Return an SVG whose paths have two decimals, which no eye misses at this size."""

    def shorten(path: re.Match[str]) -> str:
        return re.sub(r"(\.\d\d)\d+", r"\1", path[0])

    return re.sub(r'(?<= )d="[^"]*"', shorten, drawn)


def write() -> None:
    """Write the page from what is stored."""
    write_text(PAGE, page(json.loads(STORED.read_text(encoding="utf-8")), FIGURES))


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        store(Path(argument))
    write()
