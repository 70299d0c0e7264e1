"""What the command line shows: progress bars and tables."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from spuir.planning import Plan

if TYPE_CHECKING:
    from spuir.evaluation import EvaluationReport

TABLE_WIDTH = 120
ENDS_SHOWN = 8
SHOWN_ACTIONS = 30
"""Actions in a table; of more, those with most rows are shown."""


@contextmanager
def progress_bar(total: int, *, hidden: bool, what: str = "episodes") -> Iterator[Callable[[int], object] | None]:
    """Show a progress bar on the error stream; call what it yields with the number of finished episodes (``what``)."""
    if hidden:
        yield None
        return
    with _progress(TimeRemainingColumn(), TextColumn("left")) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def task_bar(*, hidden: bool) -> Iterator[Callable[[int, int, float], object] | None]:
    """Show a progress bar on the error stream; call what it yields with tasks done, tasks known and seconds left."""
    if hidden:
        yield None
        return
    with _progress(TextColumn("{task.fields[left]}")) as progress:
        task = progress.add_task("tasks", total=None, left="")
        yield lambda done, total, seconds: progress.update(
            task, completed=done, total=total, left=f"about {duration(seconds)} left"
        )


@contextmanager
def row_bar(*, hidden: bool, unit: str = "rows") -> Iterator[Callable[[str, int, int], object] | None]:
    """Show a progress bar with rows per second; call what it yields with the stage, rows done and rows in total."""
    if hidden:
        yield None
        return
    with _progress(TextColumn("{task.fields[speed]}"), TimeRemainingColumn(), TextColumn("left")) as progress:
        task = progress.add_task("rows", total=None, speed="")

        def follow(stage: str, done: int, total: int) -> None:
            speed = progress.tasks[0].speed
            text = f"{quantity(speed)}{unit}/s" if speed else ""
            progress.update(task, description=stage, completed=done, total=total, speed=text)

        yield follow


def print_episodes(summary: Mapping[str, Any]) -> None:
    """Print one line per episode of a training; of many episodes, the first and the last."""
    episodes: list[dict[str, Any]] = summary["episodes"]
    table = Table(
        title=f"{summary['policy']['name']}: {summary['rows']:,} rows, {len(episodes):,} episodes, "
        f"{len(summary['actions'])} actions, {summary['features']} features, "
        f"{quantity(summary['rows_per_second'])}rows/s",
        title_justify="left",
    )
    for heading in ("episode", "key", "rows", "without reward", "logged reward", "learning ms"):
        table.add_column(heading, justify="right")
    shown = episodes if len(episodes) <= 2 * ENDS_SHOWN else [*episodes[:ENDS_SHOWN], {}, *episodes[-ENDS_SHOWN:]]
    for line in shown:
        if not line:
            table.add_row(*["…"] * 6)
            continue
        reward = "–" if line["mean_reward"] is None else f"{line['mean_reward']:.4f}"
        cells = [f"{line['episode'] + 1:,}", str(line["key"]), f"{line['rows']:,}", f"{line['silent']:,}"]
        table.add_row(*cells, reward, f"{1e3 * line['seconds']:.1f}")
    console().print(table)


def print_shares(title: str, actions: Mapping[str, Mapping[str, float]]) -> None:
    """Print how often each action was chosen."""
    console().print(title)
    table = Table()
    for heading in ("action", "rows", "share"):
        table.add_column(heading, justify="left" if heading == "action" else "right")
    shown = sorted(actions, key=lambda label: -actions[label]["rows"])[:SHOWN_ACTIONS]
    for label in actions if len(actions) <= SHOWN_ACTIONS else shown:
        table.add_row(label, f"{actions[label]['rows']:,}", f"{actions[label]['share']:.1%}")
    if len(actions) > SHOWN_ACTIONS:
        table.add_row(f"and {len(actions) - SHOWN_ACTIONS:,} more", "", "")
    console().print(table)


def _progress(*ending: ProgressColumn) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), *ending)
    screen = Console(stderr=True)
    # Elsewhere than on a terminal a bar would leave an empty line behind, before the sentence of an error.
    return Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal)


def duration(seconds: float) -> str:
    """Return a time as a clock shows it: 0:05, 1:02:03."""
    minutes, rest = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def console() -> Console:
    """Return a console that never wraps tables when its output goes to a file."""
    plain = Console(highlight=False)
    return plain if plain.is_terminal else Console(highlight=False, width=max(plain.width, TABLE_WIDTH))


def print_summary(results: Mapping[str, Any]) -> None:
    """Print one line per policy, mean ± standard error over seeds, best first."""
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
    """Return "mean ± standard error" as text, or a dash if it is not known."""
    mean, error = number["mean"], number["standard_error"]
    if mean is None:
        return "–"
    return f"{mean * scale:.{digits}f}" + ("" if error is None else f" ± {error * scale:.{digits}f}")


def print_catalogue(families: Mapping[str, Mapping[str, str]]) -> None:
    """Print the members of each family with one line on each."""
    for family, members in families.items():
        table = Table(
            title=family, title_justify="left", box=None, show_header=False, title_style="bold", pad_edge=False
        )
        table.add_column(no_wrap=True)
        table.add_column()
        for name, summary in members.items():
            table.add_row(f"  {name}", summary)
        console().print(table)


def print_verdicts(sections: Sequence[Mapping[str, Any]]) -> None:
    """Print one line per claim: its id, its outcome, and its least favourable estimate with the interval."""
    colours = {"holds": "green", "contradicted": "red", "undecided": "dim", "not a test": "dim"}
    table = Table(title="verdicts", title_justify="left", box=None, pad_edge=False, title_style="bold")
    for heading in ("claim", "outcome", "least favourable estimate", "unit"):
        table.add_column(heading, no_wrap=heading == "claim")
    for verdict in (one for section in sections for one in section["verdicts"]):
        outcome = verdict["outcome"]
        shown = Text(outcome, style=colours.get(outcome, "yellow"))
        table.add_row(verdict["id"], shown, least_favourable(verdict), verdict["unit"])
    console().print(table)


def least_favourable(verdict: Mapping[str, Any]) -> str:
    """Return the estimate of a verdict that speaks most against its claim, as "estimate [low, high]"."""
    known = [one for one in verdict["estimates"] if one["estimate"] is not None]
    fair = [one for one in known if one["settings"] == "tuned"] or known
    if not fair:
        return "–"
    against = {
        "more": lambda one: one["estimate"],
        "less": lambda one: -one["estimate"],
        "alike": lambda one: -abs(one["estimate"]),
    }
    worst = min(fair, key=against[verdict["kind"]])
    numbers = ["∞" if worst[name] is None else f"{worst[name]:.3g}" for name in ("estimate", "low", "high")]
    return f"{numbers[0]} [{numbers[1]}, {numbers[2]}]"


def print_evaluation(report: "EvaluationReport") -> None:
    """Print the values, the differences, and what they mean."""
    from spuir.evaluation.evaluation_report import number

    out, digits = console(), report.digits
    facts = report.facts
    values = Table(
        title=f"{facts['rows']:,} decisions, {len(facts['actions'])} actions, estimator {report.estimator}",
        title_justify="left",
    )
    for heading in ("policy", "value", "low", "high", "effective rows", "support"):
        values.add_column(heading, justify="left" if heading in ("policy", "support") else "right")
    for line in report.lines():
        cells = [number(line[name], digits) for name in ("value", "low", "high")]
        values.add_row(Text(line["policy"]), *cells, number(line["effective_rows"], 0), line["support"])
    out.print(values)
    if report.differences_found:
        title = f"differences, paired on the same decisions; verdicts are corrected for {report.candidates} candidates"
        differences = Table(title=title, title_justify="left")
        for heading in ("policy", "against", "difference", "low", "high", "verdict"):
            text = heading in ("policy", "against", "verdict")
            differences.add_column(heading, justify="left" if text else "right")
        for pair in report.differences_found:
            cells = [number(value, digits) for value in (pair.difference, pair.low, pair.high)]
            differences.add_row(Text(pair.policy), Text(pair.against), *cells, pair.verdict)
        out.print(differences)
    for notice in report.notices:
        out.print(Text(f"· {notice}"), soft_wrap=True)
    for sentence in report.sentences:
        out.print(Text(sentence, style="bold"), soft_wrap=True)


def print_plan(plan: Plan) -> None:
    """Print a plan: the recommendation, its reasons and the table of costs."""
    out = console()
    sketch = f"c = {plan.sketch_advised:,}" if plan.sketch_advised else "no sketch"
    out.print(f"[bold]B = {plan.batch_size:,}   N = {plan.episodes:,}   {sketch}[/bold]")
    for reason in plan.reasons:
        out.print(f"· {reason}", soft_wrap=True)
    table = Table(
        title="cost of one episode",
        title_justify="left",
        caption="decide flops: least if the shared bound settles all contexts, most if it settles none",
    )
    for heading in ("choice", "learn flops", "decide flops", "state", "working memory", "what it is"):
        table.add_column(heading, justify="left" if heading in ("choice", "what it is") else "right")
    for cost in plan.costs:
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
