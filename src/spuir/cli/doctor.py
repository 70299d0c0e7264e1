"""``spuir doctor``: check a log before training on it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from spuir.base.counting import counted
from spuir.cli import log_options, options
from spuir.cli.output import print_result

if TYPE_CHECKING:
    from spuir.logs.doctor import Diagnosis
    from spuir.logs.doctor.findings import Finding

MARKS = {"error": ("✗", "red"), "warning": ("!", "yellow"), "note": ("·", "cyan")}
SHOWN_ACTIONS = 8
SHOWN_COLUMNS = 4


@click.command("doctor")
@click.argument("log", nargs=-1, required=True)
@log_options.reading
@log_options.details
@log_options.encoding
@options.JSON
@options.QUIET
def doctor(*, as_json: bool, quiet: bool, **given: Any) -> None:
    """Check LOG before training on it. LOG is files or folders of decisions with their rewards.

    Shows what the log contains, what is wrong, in which rows, what follows, and how to fix it. The exit code is 0 if
    nothing is wrong, 1 if there are warnings, 2 if there are errors.
    """
    from spuir.cli.terminal import progress_bar
    from spuir.logs.doctor import examine

    log_options.refuse_labels(given)
    opened, joined = log_options.open_joined(given)
    how = {"batch_size": given["batch_size"], "every": given["every"], "joined": joined[0] if joined else None}
    with progress_bar(opened.rows or 0, hidden=quiet or not opened.rows, what="rows") as watch:
        diagnosis = examine(opened, **how, encoding=log_options.encoding_in(given), watch=watch)
    advice = advise(diagnosis)
    found = {**diagnosis.to_dict(), "plan": advice}
    print_result(found, lambda: print_diagnosis(diagnosis, advice), as_json, quiet)
    click.get_current_context().exit(diagnosis.severity)


def advise(diagnosis: "Diagnosis") -> Mapping[str, Any] | None:
    """Return the plan for a log of this size, or None if its size is not known."""
    from spuir.planning import plan

    if not diagnosis.features or not diagnosis.actions:
        return None
    advice = plan(diagnosis.rows, diagnosis.features, len(diagnosis.actions))
    return {"batch_size": advice.batch_size, "episodes": advice.episodes, "reasons": list(advice.reasons)}


def print_diagnosis(diagnosis: "Diagnosis", advice: Mapping[str, Any] | None) -> None:
    """Print what the log contains, then what is wrong with it, worst first."""
    from rich.markup import escape

    from spuir.cli.terminal import console, quantity

    out = console()
    sources = diagnosis.sources[0] if len(diagnosis.sources) == 1 else f"{len(diagnosis.sources)} sources"
    features = "no features" if diagnosis.features is None else counted(diagnosis.features, "feature")
    rows, size = counted(diagnosis.rows, "row"), f"{quantity(diagnosis.bytes)}B"
    contents = f"{diagnosis.format}, {rows}, {size}, {counted(len(diagnosis.actions), 'action')}, {features}"
    out.print(f"[bold]{escape(sources)}[/bold]: {contents}", soft_wrap=True)
    print_columns(diagnosis)
    actions = [f"{label} {count:,}" for label, count in list(diagnosis.actions.items())[:SHOWN_ACTIONS]]
    rest = len(diagnosis.actions) - len(actions)
    out.print(escape(f"actions: {', '.join(actions)}" + (f" and {rest:,} more" if rest else "")), soft_wrap=True)
    if diagnosis.catalogue is not None:
        out.print(escape(catalogue_line(diagnosis.catalogue)), soft_wrap=True)
    if diagnosis.episodes is not None:
        sizes = f"{diagnosis.episodes['smallest']:,} to {counted(diagnosis.episodes['largest'], 'row')}"
        out.print(
            f"episodes by {diagnosis.episodes['by']}: {diagnosis.episodes['count']:,}, of {sizes}", soft_wrap=True
        )
    if advice is not None:
        recommended = f"--batch-size {advice['batch_size']}, which gives {counted(advice['episodes'], 'episode')}"
        out.print(f"recommended: {recommended}", soft_wrap=True)
    for finding in diagnosis.findings:
        print_finding(out, finding)
    counts = [(sum(one.severity == name for one in diagnosis.findings), name) for name in MARKS]
    summary = ", ".join(counted(count, name) for count, name in counts if count)
    rows_named = any(one.rows for one in diagnosis.findings)
    numbered = " (rows are numbered from 0; a header does not count)" if rows_named else ""
    out.print(f"\n[bold]{summary or 'nothing wrong was found'}[/bold]{numbered}")


def catalogue_line(catalogue: Mapping[str, Any]) -> str:
    """Return a sentence about the features of the actions."""
    fixed, own = (shortened(", ".join(catalogue[name])) for name in ("features", "per_decision"))
    line = f"catalogue: {counted(catalogue['actions'], 'action')}, {counted(len(catalogue['features']), 'feature')}"
    line += f" ({fixed})" if fixed else ""
    return line + (f"; per decision: {own}" if own else "")


def print_columns(diagnosis: "Diagnosis") -> None:
    """Print the columns: their roles, and what an encoder makes of them."""
    from spuir.cli.terminal import print_table

    rows: list[list[str]] = []
    for line in diagnosis.columns:
        cells = [line["name"], line["type"]]
        if line["role"] == "context":
            n_features = len(line["features"])
            several = f", {counted(n_features, 'feature')}" if n_features > 1 else ""
            role = f"context, {line['kind'] or 'not encoded'}{several}"
            rows.append([*cells, role, f"{line['missing']:,}" if line["missing"] else ""])
        else:
            rows.append([*cells, line["meaning"], ""])
    headings = ("column", "type", "what it is", "missing")
    print_table(headings, rows, text=headings[:-1], whole=True, box=None, pad_edge=False)


def print_finding(out: Any, finding: "Finding") -> None:
    """Print one finding: the problem, the rows, what follows, the remedy."""
    from rich.markup import escape

    mark, colour = MARKS[finding.severity]
    about = f"{shortened(finding.column)}: " if finding.column else ""
    out.print(f"\n[{colour}]{mark} {finding.severity}[/{colour}]  {escape(about + finding.problem)}", soft_wrap=True)
    if finding.rows:
        shown = [f"{row.row}" + (f" ({row.value})" if row.value else "") for row in finding.rows]
        sources = list(dict.fromkeys(row.source for row in finding.rows))
        rest = finding.count - len(shown)
        rows = f"{'row' if finding.count == 1 else 'rows'} {', '.join(shown)}"
        places = rows + (f" and {rest:,} more" if rest else "") + f" of {', '.join(sources)}"
        out.print(f"  {escape(places)}", soft_wrap=True)
    elif finding.count:
        out.print(f"  {counted(finding.count, 'row')}", soft_wrap=True)
    out.print(f"  {escape(finding.effect)}", soft_wrap=True)
    out.print(f"  → {escape(finding.remedy)}", soft_wrap=True)


def shortened(columns: str) -> str:
    """Return the names of columns, the first few of many."""
    names = columns.split(", ")
    rest = len(names) - SHOWN_COLUMNS
    return ", ".join(names[:SHOWN_COLUMNS]) + (f" and {rest:,} more" if rest > 0 else "")
