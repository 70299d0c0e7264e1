"""``spuir doctor``: a look through a log before training."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from spuir.cli import options

if TYPE_CHECKING:
    from spuir.logs.doctor import Diagnosis
    from spuir.logs.findings import Finding

MARKS = {"error": ("✗", "red"), "warning": ("!", "yellow"), "note": ("·", "cyan")}
SHOWN_ACTIONS = 8


@click.command("doctor")
@click.argument("log", nargs=-1, required=True)
@click.option("-b", "--batch-size", type=int, help="Tell how many episodes of so many rows (B) there are.")
@click.option("--every", help="Or how many that last so long: hour, day, 15m, 6h.")
@options.opening
@click.option("--hashing", type=int, metavar="H", help="Look at text columns as hashed into H features.")
@click.option("--max-levels", type=int, help="Levels of a text column with a feature of their own.")
@options.JSON
@options.QUIET
def doctor(*, log: Sequence[str], as_json: bool, quiet: bool, **given: Any) -> None:
    """Look through LOG, files or folders of decisions with their rewards, before training on it.

    Says what is there, what is wrong, in which rows, and what to do about it. The exit code is 0 where training can
    begin, 1 where there are warnings, 2 where there are errors.
    """
    from spuir.cli.terminal import progress_bar
    from spuir.logs import open_log
    from spuir.logs.doctor import examine

    opened = open_log(list(log) if len(log) > 1 else log[0], **options.how_to_open(given))
    encoding = {name: given[name] for name in ("hashing", "max_levels") if given[name] is not None}
    with progress_bar(opened.rows or 0, hidden=quiet or not opened.rows, what="rows") as watch:
        found = examine(opened, batch_size=given["batch_size"], every=given["every"], encoding=encoding, watch=watch)
    advice = advise(found)
    if as_json:
        click.echo(json.dumps({**found.to_dict(), "plan": advice}, indent=2, ensure_ascii=False))
    elif not quiet:
        print_diagnosis(found, advice)
    click.get_current_context().exit(found.severity)


def advise(found: "Diagnosis") -> Mapping[str, Any] | None:
    """Return the plan for a log of this size, None where its size is not known."""
    from spuir.planning import plan

    if not found.features or not found.actions:
        return None
    made = plan(found.rows, found.features, len(found.actions))
    return {"batch_size": made.batch_size, "episodes": made.episodes, "reasons": list(made.reasons)}


def print_diagnosis(found: "Diagnosis", advice: Mapping[str, Any] | None) -> None:
    """Print what is there, then what is wrong with it, the worst first."""
    from rich.markup import escape

    from spuir.cli.terminal import console, quantity

    out = console()
    sources = found.sources[0] if len(found.sources) == 1 else f"{len(found.sources)} sources"
    features = "no features" if found.features is None else f"{found.features:,} features"
    out.print(
        f"[bold]{escape(sources)}[/bold]: {found.format}, {found.rows:,} rows, {quantity(found.bytes)}B, "
        f"{len(found.actions):,} actions, {features}",
        soft_wrap=True,
    )
    out.print(column_table(found))
    actions = [f"{label} {count:,}" for label, count in list(found.actions.items())[:SHOWN_ACTIONS]]
    rest = len(found.actions) - len(actions)
    out.print(escape(f"actions: {', '.join(actions)}" + (f" and {rest:,} more" if rest else "")), soft_wrap=True)
    if found.episodes is not None:
        sizes = f"{found.episodes['smallest']:,} to {found.episodes['largest']:,} rows"
        out.print(f"episodes by {found.episodes['by']}: {found.episodes['count']:,}, of {sizes}", soft_wrap=True)
    if advice is not None:
        out.print(
            f"recommended: B = {advice['batch_size']:,}, which gives {advice['episodes']:,} episodes", soft_wrap=True
        )
    for finding in found.findings:
        print_finding(out, finding)
    counts = [(sum(one.severity == name for one in found.findings), name) for name in MARKS]
    told = ", ".join(f"{count} {name}{'s' if count > 1 else ''}" for count, name in counts if count)
    out.print(f"\n[bold]{told or 'nothing wrong was found'}[/bold]")


def column_table(found: "Diagnosis") -> Any:
    """Return a table of the columns: what they are, and what an encoder makes of them."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("column", "type", "what it is", "missing"):
        table.add_column(heading, no_wrap=heading == "column", justify="right" if heading == "missing" else "left")
    for line in found.columns:
        name, kind = escape(line["name"]), escape(line["type"])
        if line["role"] == "context":
            made = len(line["features"])
            told = f"context, {line['kind'] or 'not encoded'}" + (f", {made} features" if made > 1 else "")
            table.add_row(name, kind, told, f"{line['missing']:,}" if line["missing"] else "")
        else:
            table.add_row(name, kind, line["meaning"], "")
    return table


def print_finding(out: Any, finding: "Finding") -> None:
    """Print one finding: the problem, the rows, the remedy."""
    from rich.markup import escape

    mark, colour = MARKS[finding.severity]
    about = f"{finding.column}: " if finding.column else ""
    out.print(f"\n[{colour}]{mark} {finding.severity}[/{colour}]  {escape(about + finding.problem)}", soft_wrap=True)
    if finding.rows:
        shown = [f"{row.row}" + (f" ({row.value})" if row.value else "") for row in finding.rows]
        sources = list(dict.fromkeys(row.source for row in finding.rows))
        rest = finding.count - len(shown)
        told = f"row {', '.join(shown)}" + (f" and {rest:,} more" if rest else "") + f" of {', '.join(sources)}"
        out.print(f"  {escape(told)}", soft_wrap=True)
    elif finding.count:
        out.print(f"  {finding.count:,} rows", soft_wrap=True)
    out.print(f"  → {escape(finding.remedy)}", soft_wrap=True)
