"""Numbers, tables and sentences as text, the same in HTML and in Markdown."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ERROR = " ±"
UNKNOWN = "–"
MINUS = "−"
NUMBER = re.compile(rf"[+{MINUS}]?[\d.,]+(e[+-]?\d+)?( ?%)?( ± \S+)?( \[[^]]*\])?")


@dataclass(frozen=True)
class Sheet:
    """A table as text: column heads, rows of cells, and which columns hold numbers."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Sequence[bool]


def lay_out(rows: Sequence[Mapping[str, Any]], formats: Mapping[str, str]) -> Sheet:
    """Return records as text, columns in the order of first appearance.

    A column ``x ±`` is shown together with ``x`` as "mean ± error". A column is numeric if all its known values are
    numbers, with or without an error or an interval.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    heads = [name for name in names if not (name.endswith(ERROR) and name.removesuffix(ERROR) in names)]
    cells = [[_cell(row, name, formats.get(name)) for name in heads] for row in rows]
    numeric = [all(NUMBER.fullmatch(row[i]) for row in cells if row[i] != UNKNOWN) for i in range(len(heads))]
    return Sheet(heads, cells, numeric)


def _cell(row: Mapping[str, Any], name: str, spec: str | None) -> str:
    shown, error = number(row.get(name), spec), number(row.get(name + ERROR), spec)
    return shown if error == UNKNOWN else f"{shown} ± {error.removeprefix('+')}"


def latex(sheet: Sheet, title: str) -> str:
    """Return a table for LaTeX, with the rules of the package booktabs."""
    columns = "".join("r" if right else "l" for right in sheet.numeric)
    lines = [" & ".join(map(_escaped, row)) + r" \\" for row in (sheet.heads, *sheet.rows)]
    body = "\n".join([lines[0], r"\midrule", *lines[1:]])
    return (
        f"\\begin{{table}}\n\\caption{{{_escaped(title)}}}\n\\begin{{tabular}}{{{columns}}}\n\\toprule\n{body}\n"
        "\\bottomrule\n\\end{tabular}\n\\end{table}\n"
    )


def _escaped(text: str) -> str:
    """Return text with the signs that LaTeX reads as commands written out."""
    escaped = re.sub(r"([&%$#_{}])", r"\\\1", text)
    return escaped.replace("^", r"\textasciicircum{}").replace("~", r"\textasciitilde{}").replace("\u202f", r"\,")


def number(value: Any, spec: str | None = None) -> str:
    """Return a value as text: numbers by ``spec`` or with about four digits, and a dash for None."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, (int, float)):
        return typeset(str(value))
    if spec is not None:
        text = format(int(value) if spec.endswith("d") else value, spec)
    elif float(value).is_integer() and abs(value) < 1e12:
        text = f"{value:,.0f}"
    else:
        text = f"{value:,.4g}" if 1e-4 <= abs(value) < 1e4 else f"{value:.3e}"
        text = f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else text
    return typeset(text)


def typeset(text: str) -> str:
    """Return text with real minus signs before numbers, no sign before a zero, and a narrow space before "%"."""
    signed = re.sub(r"(?<![\w.\-])-(?=[\d.]|inf\b)", MINUS, text)
    signed = re.sub(r"\binf\b", "∞", signed)
    unsigned = re.sub(rf"(?<![\w.])[{MINUS}+](0(?:\.0+)?)(?![\d.])", r"\1", signed)
    return re.sub(r"(?<=\d) ?%", "\u202f%", unsigned)
