"""The results as a page of the documentation, in Markdown, from what ``results.json`` holds."""

from collections.abc import Mapping, Sequence
from typing import Any

from spuir.reproduction.html import KINDS, PAPER, RULE, heading, place
from spuir.reproduction.markup import lay_out, number, typeset

MADE = "<!-- Written by docs/reproduction.py from docs/reproduction/results.json. Do not change it by hand. -->"

LONG = 24
"""Rows from which a table beside the main one is left to the report."""


def page(data: Mapping[str, Any], figures: str) -> str:
    """Return the whole page.

    Parameters
    ----------
    data
        What ``results.json`` holds.
    figures
        Folder of the figures, as seen from the page.
    """
    sections: Sequence[Mapping[str, Any]] = data["experiments"]
    parts = [MADE, "# The paper, reproduced" + (", on generated Criteo rows" if data["generated"] else "")]
    parts += _opening(data)
    if data["overview"]:
        parts.append("## What one learns in all")
        for part in data["overview"]:
            parts += [f"### {part['title']}", *part["paragraphs"]]
    parts += ["## Verdicts", RULE, _verdicts(sections)]
    for section in sections:
        parts += _section(section, figures)
    return typeset("\n\n".join(part for part in parts if part)) + "\n"


def _opening(data: Mapping[str, Any]) -> list[str]:
    machine, versions = data["machine"], data["versions"]
    made = ", ".join(f"{name} {value}" for name, value in versions.items())
    minutes = number(data["core_seconds"] / 60, ",.0f")
    parts = [
        f"The evaluation of *{PAPER}*, run again with {len(data['seeds'])} repetitions of each cell. Every number on "
        "this page comes from one command; none is typed in by hand.",
        f"```sh\n{data['command']}\n```",
        f"It took {minutes} core minutes on {machine.get('processor')}, {machine.get('cores')} cores, with {made}. "
        "The report that it writes has more: every figure as SVG and PNG, every table as CSV, and "
        "the rows behind them. [How to run it](howto/reproduce.md) is a page of its own.",
    ]
    if data["generated"]:
        parts.append(
            "**The Criteo rows are generated.** Criteo's log was not at hand: rows in its schema were generated and "
            "went the same way, through parsing, fitting and simulation. No result here is one on Criteo's data."
        )
    return parts


def _verdicts(sections: Sequence[Mapping[str, Any]]) -> str:
    counts = {
        outcome: sum(verdict["outcome"] == outcome for one in sections for verdict in one["verdicts"])
        for outcome in KINDS
    }
    tally = ", ".join(f"{outcome}: {count}" for outcome, count in counts.items() if count)
    rows = [
        [f"[{place(one)}](#{one['name']})", verdict["claim"], f"**{verdict['outcome']}**"]
        for one in sections
        for verdict in one["verdicts"]
    ]
    return f"{tally}.\n\n" + markdown(("where", "claim", "outcome"), rows, (False, False, False))


def _section(section: Mapping[str, Any], figures: str) -> list[str]:
    name = section["name"]
    parts = [
        f"({name})=",
        f"## {heading(section)}",
        f"*What the paper shows.* {section['shown']}",
        f"*What is run here.* {section['setting']}",
        *(f"![{figure['alt']}]({figures}/{figure['file'].rpartition('/')[2]})" for figure in section["figures"]),
        section["lesson"],
    ]
    parts.append("\n".join(f"- {one['claim']} **{one['outcome']}**. {one['evidence']}" for one in section["verdicts"]))
    for table in section["tables"]:
        if table["name"] and len(table["rows"]) > LONG:
            continue
        sheet = lay_out(table["rows"], table["formats"])
        parts += [f"**{table['title']}**", markdown(sheet.heads, sheet.rows, sheet.numeric)]
    return parts


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> str:
    """Return a table in Markdown."""
    rule = ["---:" if right else "---" for right in numeric]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in [heads, rule, *rows])
