"""The report as one HTML page that needs nothing but itself."""

from collections.abc import Mapping, Sequence
from html import escape as escaped
from pathlib import Path
from typing import Any

from spuir.reproduction.base import AUTHORS_ONLY, FAILS, HOLDS, OPEN
from spuir.reproduction.markup import lay_out, number, typeset

KINDS = {HOLDS: "holds", AUTHORS_ONLY: "authors", FAILS: "fails", OPEN: "open"}
"""Outcomes, in the order in which they are counted, and how they are coloured."""

PAPER = (
    "Xiao Zhang, Ninglu Shao, Zihua Si, Jun Xu, Wenhan Wang, Hanjing Su and Ji-Rong Wen: Reward Imputation with "
    "Sketching for Contextual Batched Bandits, NeurIPS 2023"
)
BEYOND = "beyond the paper"
RULE = (
    "Every verdict follows from numbers by one rule. A claim holds if the 95 % interval of the paired difference over "
    "seeds lies wholly on the claimed side, at the authors' settings and against the rival at its own best setting. It "
    "holds only against the authors' settings if it does so there alone. Otherwise it does not hold here. With fewer "
    "than three seeds nothing is decided."
)
STYLE = Path(__file__).with_name("report.css")
PIXELS_PER_INCH = 135
"""Figures are drawn for print, and shown larger on a screen."""

Section = Mapping[str, Any]


def escape(text: str) -> str:
    """Return text as a page shows it."""
    return escaped(typeset(text))


def heading(section: Section) -> str:
    """Return where the paper has it, and its title."""
    return f"{section['source'][:1].upper()}{section['source'][1:]}: {section['title']}"


def place(section: Section) -> str:
    """Return a short name of a section: the paper's where it has one, or else ours."""
    return section["name"] if section["source"].startswith(BEYOND) else section["source"]


def page(data: Mapping[str, Any], pictures: Mapping[str, str], manifest: Mapping[str, Any]) -> str:
    """Return the whole page.

    Parameters
    ----------
    data
        What ``results.json`` holds.
    pictures
        The address of each figure, by its file.
    manifest
        What ``manifest.json`` holds.
    """
    sections: Sequence[Section] = data["experiments"]
    parts = [
        _header(data),
        _contents(sections),
        _verdict_summary(sections),
        _overview(data["overview"]),
        *(_section(section, pictures) for section in sections),
        _origin(data, manifest),
    ]
    style = STYLE.read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(data['title'])}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body>\n</html>\n"
    )


def _header(data: Mapping[str, Any]) -> str:
    seeds = f"{len(data['seeds'])} repetition{'s' if len(data['seeds']) != 1 else ''} of each cell"
    facts = [seeds, f"spuir {data['versions'].get('spuir', '')}", *(["quick form"] if data["quick"] else [])]
    notes: list[str] = []
    if data["generated"]:
        notes.append(
            "Criteo's log was not given: the rows behind the Criteo experiments are generated in its schema, and go "
            "the same way through parsing, fitting and simulation. No result here is one on Criteo's data."
        )
    if data["quick"]:
        notes.append(
            "The quick form is a subset of the full grid, made to see that everything runs; it decides nothing."
        )
    lines = [f"<header>\n<h1>{escape(data['title'])}</h1>", f'<p class="lead">{escape(PAPER)}.</p>']
    lines += [f'<p class="facts">{escape(" · ".join(facts))}</p>']
    lines += [f'<p class="note">{escape(note)}</p>' for note in notes]
    lines += [_failures(data["failures"]), "</header>"]
    return "\n".join(line for line in lines if line)


def _failures(failures: Sequence[Mapping[str, str]]) -> str:
    if not failures:
        return ""
    items = "".join(f"<li><code>{escape(one['task'])}</code>: {escape(one['error'])}</li>" for one in failures)
    return f'<div class="alarm">{len(failures)} tasks failed; the same command tries them again.<ul>{items}</ul></div>'


def _contents(sections: Sequence[Section]) -> str:
    links = [("verdicts", "Verdicts"), ("overview", "What one learns in all")]
    links += [(one["name"], heading(one)) for one in sections] + [("origin", "Where the numbers come from")]
    items = "\n".join(f'<li><a href="#{name}">{escape(title)}</a></li>' for name, title in links)
    return f'<nav aria-label="Contents">\n<ol>\n{items}\n</ol>\n</nav>'


def badge(outcome: str) -> str:
    """Return an outcome as a coloured word."""
    return f'<span class="badge {KINDS[outcome]}">{escape(outcome)}</span>'


def _verdict_summary(sections: Sequence[Section]) -> str:
    verdicts = [(section, verdict) for section in sections for verdict in section["verdicts"]]
    counts = {outcome: sum(verdict["outcome"] == outcome for _, verdict in verdicts) for outcome in KINDS}
    tally = "".join(f"<li>{badge(outcome)} {count}</li>" for outcome, count in counts.items() if count)
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("where", "claim, unfolding to its evidence", "outcome"))
    rows = "".join(_verdict_rows(section) for section in sections)
    return (
        f'<section id="verdicts">\n<h2>Verdicts</h2>\n<p>{escape(RULE)}</p>\n<ul class="counts">{tally}</ul>\n'
        f'<table class="verdicts">\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody></table>\n</section>'
    )


def _verdict_rows(section: Section) -> str:
    """Return a row for each verdict, the first with a link to the section."""
    count = len(section["verdicts"])
    link = f'<th scope="rowgroup" rowspan="{count}"><a href="#{section["name"]}">{escape(place(section))}</a></th>'
    cells = [
        f"<td><details><summary>{escape(verdict['claim'])}</summary>{_evidence(verdict)}</details></td>"
        f"<td>{badge(verdict['outcome'])}</td>"
        for verdict in section["verdicts"]
    ]
    return "".join(f"<tr>{link if not i else ''}{cell}</tr>\n" for i, cell in enumerate(cells))


def _evidence(verdict: Mapping[str, str]) -> str:
    return f'<span class="evidence">{escape(verdict["evidence"])}</span>'


def _judged(verdict: Mapping[str, str]) -> str:
    claim = f'<span class="claim">{escape(verdict["claim"])}</span>'
    return badge(verdict["outcome"]) + claim + _evidence(verdict)


def _overview(parts: Sequence[Mapping[str, Any]]) -> str:
    if not parts:
        return ""
    lines = ['<section id="overview">', "<h2>What one learns in all</h2>"]
    for part in parts:
        lines += [f"<h3>{escape(part['title'])}</h3>", *(f"<p>{escape(text)}</p>" for text in part["paragraphs"])]
    return "\n".join([*lines, "</section>"])


def _section(section: Section, pictures: Mapping[str, str]) -> str:
    main = [table_of(table) for table in section["tables"] if not table["name"]]
    further = [table_of(table) for table in section["tables"] if table["name"]]
    seconds = number(section["core_seconds"], ",.0f")
    lines = [
        f'<section id="{section["name"]}">',
        f"<h2>{escape(heading(section))}</h2>",
        f'<p class="source"><code>spuir reproduce --only {section["name"]}</code> · {section["tasks"]:,} tasks, '
        f"{seconds} core seconds</p>",
        _trouble(section),
        f"<h3>What the paper shows</h3>\n<p>{escape(section['shown'])}</p>",
        f"<h3>What is run here</h3>\n<p>{escape(section['setting'])}</p>",
        *(_figure(figure, section, pictures) for figure in section["figures"]),
        *main,
    ]
    if section["verdicts"]:
        items = "\n".join(f"<li>{_judged(verdict)}</li>" for verdict in section["verdicts"])
        lines.append(f'<h3>Verdicts</h3>\n<ul class="judged">\n{items}\n</ul>')
    if section["lesson"]:
        lines.append(f"<h3>What one learns</h3>\n<p>{escape(section['lesson'])}</p>")
    return "\n".join(line for line in [*lines, *further, "</section>"] if line)


def _trouble(section: Section) -> str:
    said: list[str] = []
    if section["failure"]:
        said.append(f"<p>This section could not be written: {escape(section['failure'])}</p>")
    if section["missing_count"]:
        items = "".join(f"<li><code>{escape(label)}</code></li>" for label in section["missing"])
        rest = section["missing_count"] - len(section["missing"])
        items += f"<li>and {rest:,} more</li>" if rest else ""
        said.append(f"<p>{section['missing_count']:,} of {section['tasks']:,} tasks are missing:</p><ul>{items}</ul>")
    return f'<div class="alarm">{"".join(said)}</div>' if said else ""


def _figure(figure: Mapping[str, Any], section: Section, pictures: Mapping[str, str]) -> str:
    name = section["title"] + (f" ({figure['name']})" if figure["name"] else "")
    stem = figure["file"].removesuffix(".svg")
    width = round(figure["inches"] * PIXELS_PER_INCH)
    links = f'<a href="{stem}.svg">SVG</a>, <a href="{stem}.png">PNG</a>'
    return (
        f'<figure style="max-width: {width}px">\n<img src="{pictures[figure["file"]]}" alt="{escape(figure["alt"])}">\n'
        f"<figcaption>{escape(name)}. {links}</figcaption>\n</figure>"
    )


def table_of(table: Mapping[str, Any]) -> str:
    """Return a table with its title and a link to its file."""
    sheet = lay_out(table["rows"], table["formats"])
    kinds = [' class="number"' if numeric else "" for numeric in sheet.numeric]
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(sheet.heads, kinds, strict=True))
    body = "\n".join(
        "<tr>" + "".join(f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in sheet.rows
    )
    link = f'<a href="{table["file"]}">CSV</a>'
    return (
        f'<div class="wide"><table>\n<caption>{escape(table["title"])} ({link})</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _origin(data: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    sittings: Sequence[Mapping[str, Any]] = manifest.get("sittings", [])
    machine = data["machine"]
    facts = {
        "versions": ", ".join(f"{name} {value}" for name, value in data["versions"].items()),
        "linear algebra": data["blas"],
        "machine": f"{machine.get('processor')}, {machine.get('cores')} cores, {machine.get('memory_gb')} GB, "
        f"{machine.get('system')}",
        "seeds": f"{data['seeds'][0]} to {data['seeds'][-1]}" if data["seeds"] else "none",
        "results": f"{manifest.get('results', 0):,} finished tasks",
    }
    items = "".join(f"<dt>{name}</dt><dd>{escape(str(value))}</dd>" for name, value in facts.items())
    rows = [
        {name: sitting.get(name) for name in ("started", "finished", "workers", "tasks", "commit")}
        for sitting in sittings
    ]
    for row, sitting in zip(rows, sittings, strict=True):
        row |= {name: str(row[name] or "").partition("+")[0].replace("T", " ") for name in ("started", "finished")}
        row["commit"] = (row["commit"] or "")[:12] + (" and changes" if sitting.get("dirty") else "")
    table = table_of({"title": "Sessions of work, times in UTC", "file": "manifest.json", "formats": {}, "rows": rows})
    return (
        '<section id="origin">\n<h2>Where the numbers come from</h2>\n'
        "<p>All of this page was written by one command; the same command again does nothing that is done.</p>\n"
        f"<pre>{escape(data['command'])}</pre>\n<dl>{items}</dl>\n{table.replace('>CSV<', '>manifest<')}\n</section>"
    )
