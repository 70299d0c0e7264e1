"""The pages of reproduced results: ``python docs/reproduction.py [FOLDER]``.

The text of the pages is written by hand in ``docs/reproduction/text/*.md.j2``; numbers, figures and tables are filled
in by the ids of claims and the names of experiments. FOLDER is the folder that a ``spuir reproduce`` wrote: verdicts,
samples, tables and main figures of its experiments are stored beside the pages first, and replace what is stored of
the same experiments; all others stay. Without it, the pages are written again from what is stored. A text whose
experiment is not stored makes no page. tests/docs/test_reproduction.py fails while pages and stored results differ,
and computes every verdict again from the stored samples.
"""

import argparse
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spuir.reproduction import list_experiments
from spuir.reproduction.pages import PAPER, counts
from spuir.reproduction.table_text import lay_out, typeset
from spuir.storage.atomic import finite, write_json, write_text

HERE = Path(__file__).parent
FOLDER = HERE / "reproduction"
STORED, TEXTS, SAMPLES = FOLDER / "results.json", FOLDER / "text", FOLDER / "samples"
FIGURES = HERE / "figures" / "reproduction"
NOTICE = "<!-- Written by docs/reproduction.py: edit docs/reproduction/text/{} instead. -->\n\n"
DIGITS = 7
INTERVAL = re.compile(r" \[([^][ ]+), ([^][ ]+)\]( (?=%))?")
SETTINGS = {"code": "authors-code", "tuned": "tuned"}


def store(folder: Path) -> None:
    """Copy what a run found into the documentation: verdicts and tables, samples, and figures as SVG."""
    data = read(folder / "results.json")
    sections = data.pop("experiments")
    for section in sections:
        for figure in section["figures"]:
            drawn = (folder / figure["file"]).read_text(encoding="utf-8")
            write_text(FIGURES / Path(figure["file"]).name, lighter(drawn))
        for path in sorted((folder / "samples").glob(f"{section['name']}-*.csv")):
            write_text(SAMPLES / path.name, path.read_text(encoding="utf-8"))
        # Verdicts keep all their digits: a test computes them again.
        section["tables"] = finite(section["tables"], DIGITS)
    write_json(STORED, merged(read(STORED), data, sections))


def merged(stored: Mapping[str, Any], run: Mapping[str, Any], sections: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the stored results with the sections of a run in place of earlier ones.

    ``runs`` says which command, seeds, versions and machine the results of each experiment come from.
    """
    new = {section["name"]: section for section in sections}
    known = {section["name"]: section for section in stored["experiments"]} | new
    runs = [one | {"experiments": [name for name in one["experiments"] if name not in new]} for one in stored["runs"]]
    order = [name for name in list_experiments() if name in known]
    return {
        "runs": [*(one for one in runs if one["experiments"]), {**run, "experiments": list(new)}],
        "experiments": [known[name] for name in order],
    }


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

    @property
    def generated(self) -> bool:
        """Whether any Criteo rows are generated."""
        return any(run["generated"] for run in self.data["runs"])

    def pages(self, *, beyond: bool = False) -> list[Mapping[str, Any]]:
        """Return the experiments that have a page; with ``beyond``, only those that are no part of the paper."""
        some = [one for one in self.data["experiments"] if (TEXTS / f"{one['name']}.md.j2").exists()]
        return [one for one in some if one["source"] == "beyond the paper"] if beyond else some

    def outcome(self, id: str) -> str:
        """Return the outcome of a claim."""
        return f"**{self._verdicts[id]['outcome']}**"

    def estimates(self, id: str, settings: str = "code") -> list[Mapping[str, Any]]:
        """Return the estimates of a claim at one kind of settings ("code" or "tuned")."""
        found = [one for one in self._verdicts[id]["estimates"] if one["settings"] == SETTINGS[settings]]
        assert found, f"{id} has no estimates at {settings}"
        return found

    def worst(self, id: str, settings: str = "code") -> Mapping[str, Any]:
        """Return the estimate that speaks most against a claim: one that contradicts it, if there is one.

        That is the interval whose favourable end is the worst or, if that end favours the claim, whose other end is.
        """
        verdict = self._verdicts[id]
        margin = verdict["margin"]

        def ends(one: Mapping[str, Any]) -> tuple[float, float]:
            low, high = (
                -math.inf if one["low"] is None else one["low"],
                math.inf if one["high"] is None else one["high"],
            )
            if verdict["kind"] == "more":
                return low - margin, high - margin
            if verdict["kind"] == "less":
                return margin - high, margin - low
            return margin - max(abs(low), abs(high)), margin - max(low, -high, 0.0)

        known = [one for one in self.estimates(id, settings) if one["estimate"] is not None]
        refuting = [one for one in known if ends(one)[1] <= 0]
        return min(refuting or known, key=lambda one: ends(one)[1 if refuting else 0])

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

    def verdicts(self, name: str, ending: str = "") -> list[Mapping[str, Any]]:
        """Return the verdicts of an experiment whose ids end in a certain way."""
        return [one for one in self._sections[name]["verdicts"] if one["id"].endswith(ending)]

    def figure(self, name: str, which: str = "", *, caption: bool = True) -> str:
        """Return a figure, with its caption unless the page has shown the same one before."""
        found = next(one for one in self._sections[name]["figures"] if one["name"] == which)
        file = f"{self._up}figures/reproduction/{found['file'].rpartition('/')[2]}"
        return f"![{found['alt']}]({file})" + (f"\n\n*{found['caption']}*" if caption else "")

    def rows(self, name: str, which: str = "") -> Sequence[Mapping[str, Any]]:
        """Return the rows of a table."""
        return next(one["rows"] for one in self._sections[name]["tables"] if one["name"] == which)

    def table(self, name: str, which: str = "", columns: Sequence[str] = ()) -> str:
        """Return a table, or some of its columns, as Markdown."""
        found = next(one for one in self._sections[name]["tables"] if one["name"] == which)
        rows = [{key: row.get(key) for key in columns or row} for row in found["rows"]]
        sheet = lay_out(rows, found["formats"])
        lines = [_line(sheet.heads), _line(["---:" if right else "---" for right in sheet.numeric])]
        return "\n".join(lines + [_line(row) for row in sheet.rows])

    def claims(self, name: str) -> str:
        """Return the claims of an experiment with their least favourable estimates, as Markdown."""
        verdicts = self._sections[name]["verdicts"]
        tuned = any(found["settings"] == "tuned" for one in verdicts for found in one["estimates"])
        shown = {"code's settings": "code", "tuned": "tuned"} if tuned else {"estimate": "code"}
        lines = [_line(["claim", "place", *shown, "outcome"]), _line(["---", "---", *["---:"] * len(shown), "---"])]
        for one in verdicts:
            logs = one["unit"] == "log ratio"
            spec, unit = (".3g", "times") if logs else ("+.2f" if one["unit"] == "%" else "+.3g", one["unit"])
            cells: list[str] = []
            for settings in shown.values():
                some = [found for found in one["estimates"] if found["settings"] == SETTINGS[settings]]
                known = any(found["estimate"] is not None for found in some)
                cells.append(f"{self.number(one['id'], settings, spec, exp=logs)} {unit}" if known else "–")
            source = "" if one["source"] == "paper" else f" ({one['source']})"
            wording = one["wording"].replace("`", "")  # the pages do not break lines in a first cell with code
            lines.append(_line([wording + source, one["place"], *cells, self.outcome(one["id"])]))
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


def unbroken(text: str) -> str:
    """Return text with spaces at which no line is broken between an estimate, its error or interval, and a "%"."""
    kept = INTERVAL.sub(lambda found: f"\u00a0[{found[1]},\u00a0{found[2]}]" + "\u00a0" * bool(found[3]), text)
    return re.sub(r"(?<=\d) ± (?=\d)", "\u00a0±\u00a0", kept)


def pages() -> dict[Path, str]:
    """Return the text of every page, from the stored results."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    data = read(STORED)
    made = Environment(loader=FileSystemLoader(TEXTS), undefined=StrictUndefined, keep_trailing_newline=True)
    written: dict[Path, str] = {}
    named = [one["name"] for one in Filled(data, 0).pages()]
    for name in ("index", "method", *named):
        page = HERE / "reproduction.md" if name == "index" else FOLDER / f"{name}.md"
        filled = Filled(data, len(page.relative_to(HERE).parts) - 1)
        text = made.get_template(f"{name}.md.j2").render(r=filled, paper=PAPER)
        written[page] = NOTICE.format(f"{name}.md.j2") + unbroken(typeset(text))
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the pages of the reproduction from stored results.")
    parser.add_argument("folder", nargs="?", type=Path, help="folder of a spuir reproduce, to store first")
    given = parser.parse_args()
    if given.folder:
        store(given.folder)
    for page, text in pages().items():
        write_text(page, text)


if __name__ == "__main__":
    main()
