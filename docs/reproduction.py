"""The pages of reproduced results: ``python docs/reproduction.py [FOLDER]``.

The text of the pages is written by hand in ``docs/reproduction/text/*.md.j2``; numbers, figures and tables are filled
in by the ids of claims and the names of experiments. FOLDER is the folder that a full ``spuir reproduce`` wrote: its
verdicts, samples, tables and main figures are stored beside the pages first. Without it, the pages are written again
from what is stored. tests/docs/test_reproduction.py fails while pages and stored results differ, and computes every
verdict again from the stored samples.
"""

import argparse
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spuir.reproduction.pages import PAPER, counts
from spuir.reproduction.table_text import lay_out, typeset
from spuir.storage.atomic import finite, write_json, write_text

HERE = Path(__file__).parent
FOLDER = HERE / "reproduction"
STORED, TEXTS, SAMPLES = FOLDER / "results.json", FOLDER / "text", FOLDER / "samples"
FIGURES = HERE / "figures" / "reproduction"
NOTICE = "<!-- Written by docs/reproduction.py: edit docs/reproduction/text/{} instead. -->\n\n"
DIGITS = 7
SETTINGS = {"code": "authors-code", "tuned": "tuned"}


def store(folder: Path) -> None:
    """Copy what a run found into the documentation: verdicts and tables, samples, and figures as SVG."""
    data = read(folder / "results.json")
    for section in data["experiments"]:
        for figure in section["figures"]:
            drawn = (folder / figure["file"]).read_text(encoding="utf-8")
            write_text(FIGURES / Path(figure["file"]).name, lighter(drawn))
    for path in sorted((folder / "samples").glob("*.csv")):
        write_text(SAMPLES / path.name, path.read_text(encoding="utf-8"))
    for section in data["experiments"]:
        # Verdicts keep all their digits: a test computes them again.
        section["tables"] = finite(section["tables"], DIGITS)
    write_json(STORED, data)


def read(path: Path) -> dict[str, Any]:
    """Return what a ``results.json`` holds."""
    return json.loads(path.read_text(encoding="utf-8"))


def lighter(drawn: str) -> str:
    """Return an SVG whose paths have two decimals, enough for its size."""

    def shorten(path: re.Match[str]) -> str:
        return re.sub(r"(\.\d\d)\d+", r"\1", path[0])

    return re.sub(r'(?<= )d="[^"]*"', shorten, drawn)


class Filled:
    """What a text may ask for, by the id of a claim or the name of an experiment."""

    def __init__(self, data: Mapping[str, Any], depth: int) -> None:
        self.data = data
        self._up = "../" * depth
        self._sections = {section["name"]: section for section in data["experiments"]}
        self._verdicts = {one["id"]: one for section in data["experiments"] for one in section["verdicts"]}

    def outcome(self, id: str) -> str:
        """Return the outcome of a claim."""
        return f"**{self._verdicts[id]['outcome']}**"

    def estimates(self, id: str, settings: str = "code") -> list[Mapping[str, Any]]:
        """Return the estimates of a claim at one kind of settings ("code" or "tuned")."""
        found = [one for one in self._verdicts[id]["estimates"] if one["settings"] == SETTINGS[settings]]
        assert found, f"{id} has no estimates at {settings}"
        return found

    def worst(self, id: str, settings: str = "code") -> Mapping[str, Any]:
        """Return the estimate that speaks most against a claim."""
        sign = {"more": 1, "less": -1}.get(self._verdicts[id]["kind"])
        known = [one for one in self.estimates(id, settings) if one["estimate"] is not None]
        return min(known, key=lambda one: -abs(one["estimate"]) if sign is None else sign * one["estimate"])

    def number(self, id: str, settings: str = "code", spec: str = "+.2f", *, name: str = "", exp: bool = False) -> str:
        """Return an estimate with its interval: the least favourable, or the first whose name contains ``name``."""
        found = self.worst(id, settings)
        if name:
            found = next(one for one in self.estimates(id, settings) if name in one["name"])
        values = [found[part] for part in ("estimate", "low", "high")]
        values = [None if value is None else math.exp(value) if exp else value for value in values]
        shown = ["∞" if value is None else f"{value:{spec}}" for value in values]
        return f"{shown[0]} [{shown[1]}, {shown[2]}]"

    def value(self, id: str, settings: str = "code", spec: str = "+.1f", *, name: str = "", exp: bool = False) -> str:
        """Return one estimate without its interval."""
        return self.number(id, settings, spec, name=name, exp=exp).split(" [")[0]

    def seeds(self, id: str) -> int:
        """Return the number of seeds behind a claim."""
        return self._verdicts[id]["estimates"][0]["n"]

    def figure(self, name: str, which: str = "") -> str:
        """Return a figure with its caption."""
        found = next(one for one in self._sections[name]["figures"] if one["name"] == which)
        file = f"{self._up}figures/reproduction/{found['file'].rpartition('/')[2]}"
        return f"![{found['alt']}]({file})\n\n*{found['caption']}*"

    def table(self, name: str, which: str = "") -> str:
        """Return a table as Markdown."""
        found = next(one for one in self._sections[name]["tables"] if one["name"] == which)
        sheet = lay_out(found["rows"], found["formats"])
        lines = [_line(sheet.heads), _line(["---:" if right else "---" for right in sheet.numeric])]
        return "\n".join(lines + [_line(row) for row in sheet.rows])

    def claims(self, name: str) -> str:
        """Return the claims of an experiment with their least favourable estimates, as Markdown."""
        heads = ["claim", "place", "code's settings", "tuned", "outcome"]
        lines = [_line(heads), _line(["---", "---", "---:", "---:", "---"])]
        for one in self._sections[name]["verdicts"]:
            logs = one["unit"] == "log ratio"
            spec, unit = (".3g", "times") if logs else ("+.2f" if one["unit"] == "%" else "+.3g", one["unit"])
            cells: list[str] = []
            for settings, key in SETTINGS.items():
                known = any(found["settings"] == key and found["estimate"] is not None for found in one["estimates"])
                cells.append(f"{self.number(one['id'], settings, spec, exp=logs)} {unit}" if known else "–")
            source = "" if one["source"] == "paper" else f" ({one['source']})"
            lines.append(_line([one["wording"] + source, one["place"], *cells, self.outcome(one["id"])]))
        return "\n".join(lines)

    def untested(self) -> list[Mapping[str, Any]]:
        """Return the claims that are not tested here, with the reasons."""
        return [one for one in self._verdicts.values() if one["untested"]]

    def tally(self, *, paper: bool) -> str:
        """Return how often each outcome occurs among the paper's claims, or among all others."""
        some = [one for one in self._verdicts.values() if (one["source"] == "paper") == paper]
        found = ", ".join(f"{outcome}: {count}" for outcome, count in counts(some).items())
        return f"{len(some)} claims ({found})"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def pages() -> dict[Path, str]:
    """Return the text of every page, from the stored results."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    data = read(STORED)
    made = Environment(loader=FileSystemLoader(TEXTS), undefined=StrictUndefined, keep_trailing_newline=True)
    written: dict[Path, str] = {}
    stored = {"index", "method", *(section["name"] for section in data["experiments"])}
    for path in sorted(TEXTS.glob("*.md.j2")):
        name = path.name.removesuffix(".j2")
        if name.removesuffix(".md") not in stored:
            continue  # its experiment was not stored yet
        page = HERE / "reproduction.md" if name == "index.md" else FOLDER / name
        filled = Filled(data, len(page.relative_to(HERE).parts) - 1)
        text = made.get_template(path.name).render(r=filled, data=data, paper=PAPER)
        written[page] = NOTICE.format(path.name) + typeset(text)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the pages of the reproduction from stored results.")
    parser.add_argument("folder", nargs="?", type=Path, help="folder of a full spuir reproduce, to store first")
    given = parser.parse_args()
    if given.folder:
        store(given.folder)
    for page, text in pages().items():
        write_text(page, text)


if __name__ == "__main__":
    main()
