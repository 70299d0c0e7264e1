"""The page of reproduced results: ``python docs/reproduction.py [FOLDER] [--compare OLD]``.

FOLDER is the folder that a full ``spuir reproduce`` wrote; its results and main figures are stored beside the page.
Without it, the page is written again from the stored results. ``--compare`` prints the verdicts of OLD, an earlier
``results.json``, next to those that are stored now, and lists what changed. OLD may be the stored file itself: it is
read before FOLDER replaces it. tests/reproduction/test_report.py fails while page and stored results differ.
"""

import argparse
import json
import re
from pathlib import Path

from spuir.reproduction.pages import markdown_page
from spuir.reproduction.verdict_changes import change_lines, compare_verdicts
from spuir.storage.atomic import finite, write_json, write_text

HERE = Path(__file__).parent
STORED, PAGE = HERE / "reproduction" / "results.json", HERE / "reproduction.md"
FIGURES = "figures/reproduction"
DIGITS = 7


def store(folder: Path) -> None:
    """Copy the results of a run, and the main figure of each experiment, into the documentation."""
    data = read(folder / "results.json")
    for section in data["experiments"]:
        section["figures"] = [figure for figure in section["figures"] if not figure["name"]]
        for figure in section["figures"]:
            drawn = (folder / figure["file"]).read_text(encoding="utf-8")
            write_text(HERE / FIGURES / Path(figure["file"]).name, lighter(drawn))
    write_json(STORED, finite(data, DIGITS))


def read(path: Path) -> dict:
    """Return what a ``results.json`` holds."""
    return json.loads(path.read_text(encoding="utf-8"))


def lighter(drawn: str) -> str:
    """Return an SVG whose paths have two decimals, enough for its size."""

    def shorten(path: re.Match[str]) -> str:
        return re.sub(r"(\.\d\d)\d+", r"\1", path[0])

    return re.sub(r'(?<= )d="[^"]*"', shorten, drawn)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write docs/reproduction.md from the stored results.")
    parser.add_argument("folder", nargs="?", type=Path, help="folder of a full spuir reproduce, to store first")
    parser.add_argument("--compare", metavar="OLD", type=Path, help="an earlier results.json to compare with")
    given = parser.parse_args()
    old = read(given.compare) if given.compare else None
    if given.folder:
        store(given.folder)
    write_text(PAGE, markdown_page(read(STORED), FIGURES))
    if old is not None:
        print("\n".join(change_lines(compare_verdicts(old, read(STORED)))))


if __name__ == "__main__":
    main()
