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
DRIFT_SHOWN = 0.01
"""The smallest share of drifted values of a column that is shown."""


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
    for label, found in actions.items():
        table.add_row(label, f"{found['rows']:,}", f"{found['share']:.1%}")
    console().print(table)


def print_model(model: Mapping[str, Any]) -> None:
    """Print what a model is, how it was made, and what it learned."""
    out, training = console(), dict(model["training"])
    for hidden in ("mix", "mix rows"):  # the mix is in the table of actions
        training.pop(hidden, None)
    training["log"] = ", ".join(training.get("log", [])) or None
    parameters = model["policy"]["parameters"]
    rows = {
        "policy": model["policy"]["name"],
        "parameters": ", ".join(f"{name}={value}" for name, value in parameters.items()),
        "version": f"{model['version']} ({model['episodes']:,} episodes)",
        "saved": model["created"] or "not known (an older version of spuir)",
        "columns": ", ".join(model["columns"]) or "not named",
        **{f"training: {name}": str(value) for name, value in training.items() if value is not None},
        **{f"metadata: {name}": str(value) for name, value in model["metadata"].items()},
        **{f"learned: {name}": _shown(value) for name, value in model["diagnosis"].items() if value is not None},
    }
    about = Table(box=None, show_header=False, pad_edge=False)
    about.add_column(style="bold", no_wrap=True)
    about.add_column()
    for name, value in rows.items():
        about.add_row(name, Text(value))
    out.print(about)
    print_learned(model["actions"], model["coefficients"])
    _print_contrasts(model["contrasts"])
    _print_drift(model["drift"])


def _shown(value: Any) -> str:
    """Return an estimate with three digits, a record of them as name=value."""
    if isinstance(value, dict):
        return ", ".join(f"{name}={_shown(one)}" for name, one in value.items())
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _estimate(value: float, error: float | None) -> str:
    """Return "value ± standard error" with significant digits: a coefficient per euro may be 1e-6."""
    return f"{value:.3g}" + ("" if error is None else f" ± {error:.2g}")


def _print_contrasts(contrasts: Sequence[Mapping[str, Any]]) -> None:
    """Print where two actions differ most."""
    if not contrasts:
        return
    table = Table(title="largest contrasts of two actions", title_justify="left")
    for heading in ("action", "against", "feature", "difference"):
        table.add_column(heading, justify="right" if heading == "difference" else "left")
    for line in contrasts:
        value = _estimate(line["difference"], line["standard_error"])
        table.add_row(Text(line["action"]), Text(line["against"]), Text(line["feature"]), value)
    console().print(table)


def _print_drift(moves: Sequence[Mapping[str, Any]]) -> None:
    """Print how far coefficients moved in the second half of the training."""
    if not moves:
        return
    table = Table(
        title="drift: coefficients from the middle to the end of the training",
        title_justify="left",
        caption="move in standard errors; above 3, the effect probably changes",
        caption_justify="left",
    )
    for heading in ("action", "feature", "middle", "end", "move"):
        table.add_column(heading, justify="left" if heading in ("action", "feature") else "right")
    for line in moves:
        move = "–" if line["move"] is None else f"{line['move']:.1f}"
        cells = [f"{line['from']:.3g}", f"{line['to']:.3g}", move]
        table.add_row(Text(line["action"]), Text(line["feature"]), *cells)
    console().print(table)


def print_learned(actions: Sequence[Mapping[str, Any]], coefficients: Sequence[Mapping[str, Any]]) -> None:
    """Print the rewards and the share of each action, then coefficients, strongest first."""
    total = sum(line["rows"] for line in actions) or 1
    table = Table(
        title="actions",
        title_justify="left",
        caption="mean ± standard error in the log; share of the policy on rows of the log",
        caption_justify="left",
    )
    headings = ["action", "rows", "reward in the log", "share in the log", "share of the policy"]
    imputed = any(line.get("imputed_share") for line in actions)
    for heading in headings + ["imputed share"] * imputed:
        table.add_column(heading, justify="left" if heading == "action" else "right")
    for line in actions:
        state = "" if line["active"] else " (retired)"
        state = " (ramping up)" if line["ramping"] else state
        share = "–" if line["share"] is None else f"{line['share']:.1%}"
        reward = spread({"mean": line["mean_reward"], "standard_error": line["standard_error"]}, 1, 4)
        cells = [line["action"] + state, f"{line['rows']:,.0f}", reward, f"{line['rows'] / total:.1%}", share]
        table.add_row(*cells, *([f"{line['imputed_share']:.1%}"] if imputed else []))
    console().print(table)
    if not coefficients:
        return
    table = Table(title="strongest coefficients", title_justify="left")
    for heading in ("action", "feature", "coefficient"):
        table.add_column(heading, justify="right" if heading == "coefficient" else "left")
    for line in coefficients:
        value = _estimate(line["coefficient"], line["standard_error"])
        table.add_row(line["action"], line["feature"], value)
    console().print(table)


def print_drift(drift: Mapping[str, Any] | None) -> None:
    """Print the columns with values that are unlike the sample of the encoder, most of them first."""
    columns = {} if drift is None else drift["columns"]
    lines = [(name, line) for name, line in columns.items() if line["drifted"] >= DRIFT_SHOWN]
    if drift is None or not lines:
        return
    table = Table(title="drift", title_justify="left", caption_justify="left")
    table.caption = f"rows unlike those that the encoder was learned on, of {drift['rows']:,}"
    for heading in ("column", "missing", "without a feature", "out of range", "drifted"):
        table.add_column(heading, justify="left" if heading == "column" else "right")
    for name, line in sorted(lines, key=lambda line: -line[1]["drifted"]):
        cells = [f"{line[kind]:,}" for kind in ("missing", "unseen", "outside")]
        table.add_row(name, *cells, f"{line['drifted']:.2%}")
    console().print(table)


def _progress(*ending: ProgressColumn) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), *ending)
    return Progress(*columns, console=Console(stderr=True), transient=True)


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
    """Print one line per claim with its outcome, by experiment."""
    colours = {"holds": "green", "does not hold here": "red", "not decided": "dim"}
    table = Table(title="verdicts", title_justify="left", box=None, pad_edge=False, title_style="bold")
    for heading in ("experiment", "outcome", "claim"):
        table.add_column(heading, no_wrap=heading == "experiment")
    for section in sections:
        for verdict in section["verdicts"]:
            outcome = verdict["outcome"]
            table.add_row(section["name"], Text(outcome, style=colours.get(outcome, "yellow")), verdict["claim"])
    console().print(table)


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
        differences = Table(title="differences, paired on the same decisions", title_justify="left")
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
