"""Stored results → tables on the terminal and one Markdown page."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.peers import PEERS
from benchmarks.requirements import HORIZONS, Requirement, grid

Results = dict[str, Any]
REQUIREMENTS = "Requirements"

INTRODUCTION = """\
The command below measures every number on this page: one process, one BLAS thread, the same rows for all methods, which
alternate in short rounds.

- **Ratios count.** A ratio is the median over rounds of two methods that ran next to each other. The floors are ratios;
  milliseconds depend on the machine.
- **Times are processor time**, which on one thread is the elapsed time of an idle machine.
- **The same work.** Learning includes the solve. Deciding includes exact propensities, which the LinUCB peers do not
  return. Before each race the program checks that every peer computes mean + α·width for every action, and that the
  paper's own form gives our coefficients.
- **The fastest peer** is the best LinUCB of MABWiser and contextualbandits on the same batches, the latter with its
  faster method in its faster precision. Both libraries with their default settings are reported too.
- **Precision.** All methods receive double precision. spuir sums and solves in it, and its decisions
  are those of double precision, although single precision settles most rows. contextualbandits in single precision
  converts the rows itself; its time on rows converted before the clock starts is reported beside the floors.
- **Own comparisons.** Text labels are compared with integer labels in the same call, and `predict` with `decide`.
- **Bare NumPy** has the arithmetic and nothing else, no checks, labels or records. An update has the same products,
  complements and Cholesky solves; one row has θs, widths from precomputed roots, argmax and one uniform number."""


@dataclass(frozen=True)
class Sheet:
    """One table: a title, a sentence, the column heads and the rows."""

    title: str
    caption: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


def number(value: float) -> str:
    """Show a value with about three figures."""
    if value == 0 or not np.isfinite(value):
        return f"{value:g}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def requirement_rows(measured: dict[str, float], seeds: int) -> list[tuple[Requirement, float | None]]:
    """Return every requirement with its value, None where it was not measured."""
    return [(item, measured.get(item.key)) for item in grid(seeds)]


def requirements_sheet(results: Results) -> Sheet:
    """Return the table of floors, values and verdicts."""
    rows = []
    for item, value in requirement_rows(results["measured"], results["seeds"]):
        sign = "≤" if item.sense == "at most" else "≥"
        floor = "–" if item.floor is None else f"{sign}\N{NO-BREAK SPACE}{number(item.floor)}"
        rows.append((item.text, floor, "–" if value is None else number(value), item.verdict(value)))
    return Sheet(
        REQUIREMENTS, "Rows without a floor are only reported.", ("what", "floor", "measured", "verdict"), rows
    )


def clock_sheets(results: Results) -> list[Sheet]:
    """Return one table of milliseconds per race, fastest first."""
    columns = ("method", "median ms", "best ms", "runs")
    sheets = []
    for title, clocks in {**results.get("speed", {}), **results.get("catalogue", {})}.items():
        ranked = sorted(clocks.items(), key=lambda item: item[1]["median_ms"])
        rows = [
            (
                name + (" (scaled)" if row["scale"] != 1 else ""),
                number(row["median_ms"]),
                number(row["best_ms"]),
                str(row["runs"]),
            )
            for name, row in ranked
        ]
        sheets.append(Sheet(title[0].upper() + title[1:], "", columns, rows))
    return sheets


def curve_sheet(results: Results) -> Sheet:
    """Return the times along each axis, with the fitted exponents."""
    rows = []
    for name, curve in results["scaling"].items():
        what, _, axis = name.partition(", ")
        points = ", ".join(f"{number(s)}: {number(t)}" for s, t in zip(curve["size"], curve["median_ms"], strict=True))
        rows.append((what, axis, points, f"{results['measured'][f'scaling/{what}/{axis}']:.2f}"))
    return Sheet(
        "Growth around large",
        "Size: median milliseconds, one axis varied at a time.",
        ("task", "axis", "points", "exponent"),
        rows,
    )


def memory_sheet(results: Results) -> Sheet:
    """Return the working memory at a million rows."""
    columns = ("task", "working memory, MiB", "contexts, MiB")
    rows = [
        (task, *(number(row[key] / 2**20) for key in ("working_bytes", "context_bytes")))
        for task, row in results["memory"].items()
    ]
    return Sheet("Memory", "Peak resident memory beyond what was resident before the call.", columns, rows)


def training_sheet(results: Results) -> Sheet:
    """Return the time of each training from a log."""
    columns = ("log", "seconds", "rows per second")
    rows = [
        (task, number(row["seconds"]), number(row["rows"] / row["seconds"]))
        for task, row in results["training"].items()
    ]
    return Sheet("Training from a log", "Elapsed time, the faster of two runs.", columns, rows)


def dsjson_sheet(results: Results) -> Sheet:
    """Return the speed of reading decision-service JSON by shape."""
    columns = ("shape", "spuir, MB/s", "bare decoding, MB/s", "share")
    rows = [
        (shape, *(number(row[name]) for name in ("spuir", "bare", "share"))) for shape, row in results["dsjson"].items()
    ]
    return Sheet("Decision-service JSON", "Processor time of one process.", columns, rows)


def quality_sheet(results: Results) -> Sheet:
    """Return mean regret ± standard error by world and policy after the last horizon."""
    names = list(next(iter(results["quality"].values())))
    rows = []
    for world, regrets in results["quality"].items():
        last = [horizons[-1] for horizons in regrets.values()]
        cells = [f"{number(np.mean(v))} ± {number(np.std(v, ddof=1) / np.sqrt(len(v)))}" for v in last]
        rows.append((world, *cells, f"{results['measured'][f'quality/loss/{world}']:.1f}"))
    caption = (
        f"Cumulative regret against the best action for each context after {HORIZONS[-1]} episodes of 1,400 rows, "
        f"c = 150, {results['seeds']} seeds, mean ± standard error; t is the paired statistic of the first column "
        f"minus the second, the largest after {', '.join(map(str, HORIZONS))} episodes."
    )
    return Sheet("Quality of the sketch", caption, ("environment", *names, "t"), rows)


def service_sheet(results: Results) -> Sheet:
    """Return the rates and latencies of the service."""
    table = results["service"]
    rows = [(name, number(rate), "–") for name, rate in table["rates"].items()]
    found = table["p99 ms"]
    share = "share of the time with an update"
    rows += [(f"at 200 per second, {name}", "–", number(found[name])) for name in found if name != share]
    caption = (
        "Measured by `python -m benchmarks --only service --add` with wrk on loopback: 20 actions, contexts of 50 "
        "numbers, one server process, 128 connections, 16 for batches. The rows of batches are nothing but contexts, "
        "which share a record; rows with ids have a record each. Rates are decisions per second, medians of "
        f"{table['rounds']} alternating rounds of 2 seconds. For latencies, another process sends 200 "
        f"decisions per second, without and with updates of 10,000 rows beside them ({number(100 * found[share])} % "
        "of the time)."
    )
    return Sheet("Decision service", caption, ("server", "decisions per second", "p99, ms"), rows)


def sheets(results: Results) -> list[Sheet]:
    """Return every table for which there are results."""
    made = [requirements_sheet(results)]
    made += clock_sheets(results)
    makers = {
        "scaling": curve_sheet, "memory": memory_sheet, "training": training_sheet,
        "dsjson": dsjson_sheet, "quality": quality_sheet, "service": service_sheet,
    }  # fmt: skip
    for part, make in makers.items():
        if results.get(part):
            made.append(make(results))
    return made


def show(results: Results, console: Console) -> None:
    """Print the tables."""
    colours = {"pass": "green", "fail": "bold red"}
    for sheet in sheets(results):
        table = Table(*sheet.columns, title=sheet.title, caption=sheet.caption or None, title_justify="left")
        for row in sheet.rows:
            table.add_row(*row, style=colours.get(row[-1]))
        console.print(table)


SUMMARY = (
    ("one update of `puir`, which imputes", "speed/learn-peer"),
    ("one batch of decisions by `sbucb`", "speed/dense-peer"),
    ("one batch of decisions by `puir`", "speed/bound-peer"),
    ("an update and a batch of decisions of `puir`", "speed/episode-peer"),
)
"""Rows of the short table in the README, with the requirement that each shows at two shapes."""
MARKS = ("<!-- benchmark-table -->\n", "<!-- /benchmark-table -->")


def summary(results: Results) -> str:
    """Return the short table: how many times faster than the fastest peer."""
    lines = [
        "Speed-up over the fastest LinUCB of contextualbandits and MABWiser, which do not impute. Same rows, double",
        "precision, one thread; contextualbandits with its faster method in its faster precision:",
        "",
        "| | paper (1,400 × 40, 5 actions) | wide (1,400 × 40, 50 actions) |",
        "|---|---|---|",
    ]
    for text, key in SUMMARY:
        cells = [results["measured"].get(f"{key}/{shape}") for shape in ("paper", "wide")]
        lines.append(f"| {text} | " + " | ".join("–" if cell is None else f"{cell:.1f}" for cell in cells) + " |")
    lines += ["", "Measured by `make bench`; [all results, floors and misses](docs/benchmarks.md)."]
    return "\n".join(lines) + "\n"


def with_summary(page: str, results: Results) -> str:
    """Return the README with the short table between its marks."""
    before, begin, rest = page.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    return before + begin + summary(results) + end + after if begin and end else page


def missed_floors(results: Results) -> list[str]:
    """Return a list of the floors that are missed, each with what limits it; nothing if there is none."""
    lines = dict[tuple[str, str], list[str]]()
    for item, value in requirement_rows(results["measured"], results["seeds"]):
        if value is not None and item.verdict(value) == "fail":
            what, _, name = item.text.rpartition(": ")
            asked = f"{what} ({number(item.floor or 0.0)} asked)"
            lines.setdefault((asked, item.limit or ""), []).append(f"{name} {number(value)}")
    listed = [f"- {what}: {', '.join(names)}. {limit}".strip() for (what, limit), names in lines.items()]
    return ["**Missed**, and what limits it:", "\n".join(listed)] if listed else []


def markdown(results: Results) -> str:
    """Return the page."""
    about = [f"- {name}: {value}" for name, value in results["about"].items()]
    notes = [f"- {peer.name}: {peer.note}." for peer in PEERS]
    parts = ["# Benchmarks", INTRODUCTION, f"```\n{results['command']}\n```", "\n".join(about)]
    if results["quick"]:
        parts.append("**A quick run: fewer rounds and seeds than the requirements ask for.**")
    for sheet in sheets(results):
        parts.append(f"## {sheet.title}")
        parts += [sheet.caption] if sheet.caption else []
        if sheet.title == REQUIREMENTS:
            parts += missed_floors(results)
        lines = [sheet.columns, tuple("---" for _ in sheet.columns), *sheet.rows]
        parts.append("\n".join("| " + " | ".join(cells) + " |" for cells in lines))
    parts += ["## How the peers were run", "\n".join(notes)]
    return "\n\n".join(parts) + "\n"
