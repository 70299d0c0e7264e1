"""What the command line shows: a progress bar and tables."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from spuir.planning import Plan
from spuir.runner import Watcher

TABLE_WIDTH = 120


@contextmanager
def progress_bar(total: int, *, hidden: bool) -> Iterator[Watcher | None]:
    """Show a bar on the error stream, moved by calls with the number of finished episodes."""
    if hidden:
        yield None
        return
    left = TextColumn("left")
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        left,
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("episodes", total=total)
        yield lambda done: progress.update(task, completed=done)


def console() -> Console:
    """Return a console that never folds a table when its output goes to a file."""
    plain = Console(highlight=False)
    return plain if plain.is_terminal else Console(highlight=False, width=max(plain.width, TABLE_WIDTH))


def print_summary(results: Mapping[str, Any]) -> None:
    """Print a line per policy, mean ± standard error over seeds, best first."""
    summary: list[dict[str, Any]] = results["summary"]
    columns = {
        "average_reward": ("reward", 1, 4),
        "regret_per_step": ("regret per step", 1, 5),
        "cvr": ("CVR", 1, 4),
        "ctcvr": ("CTCVR", 1, 4),
    }
    columns |= {"decide_seconds": ("decide ms", 1e3, 2), "learn_seconds": ("learn ms", 1e3, 2)}
    shown = {name: how for name, how in columns.items() if name in summary[0]}
    title = (
        f"{results['environment']['name']}: {results['episodes']} episodes of {results['batch_size']} decisions, "
        f"{len(results['seeds'])} seed{'s' if len(results['seeds']) > 1 else ''}, {results['preset']} preset"
    )
    table = Table(
        title=title,
        title_justify="left",
        caption="mean ± standard error over seeds; times per episode",
        caption_justify="left",
    )
    table.add_column("policy", no_wrap=True)
    for heading, _, _ in shown.values():
        table.add_column(heading, justify="right")
    for record in summary:
        table.add_row(
            record["policy"], *(spread(record[name], scale, digits) for name, (_, scale, digits) in shown.items())
        )
    console().print(table)


def spread(number: Mapping[str, float | None], scale: float, digits: int) -> str:
    """Return "mean ± standard error" as text; a dash for what is not known."""
    mean, error = number["mean"], number["standard_error"]
    if mean is None:
        return "–"
    return f"{mean * scale:.{digits}f}" + ("" if error is None else f" ± {error * scale:.{digits}f}")


def print_catalogue(families: Mapping[str, Mapping[str, str]]) -> None:
    """Print the members of each family with a line on each."""
    for family, members in families.items():
        table = Table(
            title=family, title_justify="left", box=None, show_header=False, title_style="bold", pad_edge=False
        )
        table.add_column(no_wrap=True)
        table.add_column()
        for name, summary in members.items():
            table.add_row(f"  {name}", summary)
        console().print(table)


def print_plan(made: Plan) -> None:
    """Print a plan: the recommendation, its reasons, the table of costs."""
    out = console()
    sketch = f"c = {made.sketch_advised:,}" if made.sketch_advised else "no sketch"
    out.print(f"[bold]B = {made.batch_size:,}   N = {made.episodes:,}   {sketch}[/bold]")
    for reason in made.reasons:
        out.print(f"· {reason}", soft_wrap=True)
    table = Table(
        title="cost of one episode",
        title_justify="left",
        caption="decide: from all contexts settled by the shared bound to none",
    )
    for heading in ("choice", "learn flops", "decide flops", "state", "working memory", "what it is"):
        table.add_column(heading, justify="left" if heading in ("choice", "what it is") else "right")
    for cost in made.costs:
        least, most = quantity(cost.least_decide_flops), quantity(cost.decide_flops)
        table.add_row(
            cost.choice,
            quantity(cost.learn_flops),
            most if least == most else f"{least} … {most}",
            quantity(cost.state_bytes) + "B",
            quantity(cost.work_bytes) + "B",
            cost.meaning,
        )
    out.print(table)


def quantity(value: float) -> str:
    """Return a number with three digits and a decimal prefix: 2.24 M."""
    for power, prefix in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:.3g} {prefix}"
    return f"{value:.3g} "
