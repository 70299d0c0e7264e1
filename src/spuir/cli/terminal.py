"""What the command line shows: progress bars and tables."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

from spuir.base.counting import counted
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


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    text: Sequence[str] = (),
    whole: bool = False,
    **look: Any,
) -> None:
    """Print a table; the columns in ``text`` are flush left, and the first one is never broken if ``whole``."""
    flush: dict[str, Any] = {"title_justify": "left", "caption_justify": "left"}
    made = Table(**flush | look)
    for at, heading in enumerate(headings):
        made.add_column(heading, justify="left" if heading in text else "right", no_wrap=whole and at == 0)
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    console().print(made)


def print_episodes(summary: Mapping[str, Any]) -> None:
    """Print one line per episode of a training; of many episodes, the first and the last."""
    episodes: list[dict[str, Any]] = summary["episodes"]
    shown = episodes if len(episodes) <= 2 * ENDS_SHOWN else [*episodes[:ENDS_SHOWN], {}, *episodes[-ENDS_SHOWN:]]
    print_table(
        ("episode", "key", "rows", "without reward", "logged reward", "learning ms"),
        [_episode_cells(line) if line else ["…"] * 6 for line in shown],
        title=f"{summary['policy']['name']}: {counted(summary['rows'], 'row')}, {counted(len(episodes), 'episode')}, "
        f"{counted(len(summary['actions']), 'action')}, {counted(summary['features'], 'feature')}, "
        f"{quantity(summary['rows_per_second'])}rows/s",
    )


def _episode_cells(line: Mapping[str, Any]) -> list[str]:
    reward = "–" if line["mean_reward"] is None else f"{line['mean_reward']:.4f}"
    cells = [f"{line['episode'] + 1:,}", str(line["key"]), f"{line['rows']:,}", f"{line['silent']:,}"]
    return [*cells, reward, f"{1e3 * line['seconds']:.1f}"]


def print_shares(title: str, actions: Mapping[str, Mapping[str, float]]) -> None:
    """Print how often each action was chosen."""
    console().print(title)
    shown = list(actions)
    if len(actions) > SHOWN_ACTIONS:
        shown = sorted(actions, key=lambda label: -actions[label]["rows"])[:SHOWN_ACTIONS]
    rows = [[label, f"{actions[label]['rows']:,}", f"{actions[label]['share']:.1%}"] for label in shown]
    if len(actions) > SHOWN_ACTIONS:
        rows.append([f"and {len(actions) - SHOWN_ACTIONS:,} more", "", ""])
    print_table(("action", "rows", "share"), rows, text=("action",))


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


MEASURES = {
    "average_reward": ("reward", 1, 4),
    "regret_per_step": ("regret per step", 1, 5),
    "cvr": ("CVR", 1, 4),
    "ctcvr": ("CTCVR", 1, 4),
    "decide_seconds": ("decide ms", 1e3, 2),
    "learn_seconds": ("learn ms", 1e3, 2),
}
"""Columns of the summary of runs: heading, factor and decimals."""


def print_summary(results: Mapping[str, Any]) -> None:
    """Print one line per policy, mean ± standard error over seeds, best first."""
    summary: list[dict[str, Any]] = results["summary"]
    shown = {name: how for name, how in MEASURES.items() if name in summary[0]}
    rows = [
        [record["policy"], *(mean_and_error(record[name], scale, digits) for name, (_, scale, digits) in shown.items())]
        for record in summary
    ]
    seeds = len(results["seeds"])
    print_table(
        ["policy", *(heading for heading, _, _ in shown.values())],
        rows,
        text=("policy",),
        whole=True,
        title=f"{results['environment']['name']}: {counted(results['episodes'], 'episode')} of "
        f"{counted(results['batch_size'], 'decision')}, {counted(seeds, 'seed')}, {results['preset']} preset",
        caption="mean ± standard error over seeds; times per episode",
    )


def mean_and_error(number: Mapping[str, float | None], scale: float, digits: int) -> str:
    """Return "mean ± standard error" as text, or a dash if it is not known."""
    mean, error = number["mean"], number["standard_error"]
    if mean is None:
        return "–"
    return f"{mean * scale:.{digits}f}" + ("" if error is None else f" ± {error * scale:.{digits}f}")


PAIRS: Mapping[str, Any] = {"text": ("", ""), "whole": True, "box": None, "show_header": False, "pad_edge": False}
"""How a table looks that has names, with what belongs to each, and no headings."""


def print_catalogue(families: Mapping[str, Mapping[str, str]]) -> None:
    """Print the members of each family with one line on each."""
    for family, members in families.items():
        rows = [(f"  {name}", summary) for name, summary in members.items()]
        print_table(("", ""), rows, title=family, title_style="bold", **PAIRS)


def print_verdicts(sections: Sequence[Mapping[str, Any]]) -> None:
    """Print one line per claim: its id, its outcome, and its least favourable estimate with the interval."""
    colours = {"holds": "green", "contradicted": "red", "undecided": "dim", "not a test": "dim"}
    headings = ("claim", "outcome", "least favourable estimate", "unit")
    rows = [
        [
            one["id"],
            Text(one["outcome"], style=colours.get(one["outcome"], "yellow")),
            least_favourable(one),
            one["unit"],
        ]
        for section in sections
        for one in section["verdicts"]
    ]
    look: dict[str, Any] = {"title": "verdicts", "title_style": "bold", "box": None, "pad_edge": False}
    print_table(headings, rows, text=headings, whole=True, **look)


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

    out, digits, facts = console(), report.digits, report.facts
    rows = [
        [
            line["policy"],
            *(number(line[name], digits) for name in ("value", "low", "high")),
            number(line["effective_rows"], 0),
            line["support"],
        ]
        for line in report.lines()
    ]
    counts = f"{counted(facts['rows'], 'decision')}, {counted(len(facts['actions']), 'action')}"
    headings = ("policy", "value", "low", "high", "effective rows", "support")
    print_table(headings, rows, text=("policy", "support"), title=f"{counts}, estimator {report.estimator}")
    if report.differences_found:
        title = f"differences, paired on the same decisions; {report.verdict_rule}"
        rows = [
            [
                one.policy,
                one.against,
                *(number(value, digits) for value in (one.difference, one.low, one.high)),
                one.verdict,
            ]
            for one in report.differences_found
        ]
        headings = ("policy", "against", "difference", "low", "high", "verdict")
        print_table(headings, rows, text=("policy", "against", "verdict"), title=title)
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
    rows: list[list[str]] = []
    for cost in plan.costs:
        least, most = quantity(cost.least_decide_flops), quantity(cost.decide_flops)
        deciding = most if least == most else f"{least} … {most}"
        memory = [quantity(size) + "B" for size in (cost.state_bytes, cost.work_bytes)]
        rows.append([cost.choice, quantity(cost.learn_flops), deciding, *memory, cost.meaning])
    caption = "decide flops: least if the shared bound settles all contexts, most if it settles none"
    headings = ("choice", "learn flops", "decide flops", "state", "working memory", "what it is")
    look: dict[str, Any] = {"title": "cost of one episode", "caption": caption, "caption_justify": "center"}
    print_table(headings, rows, text=("choice", "what it is"), **look)


def quantity(value: float) -> str:
    """Return a number with three digits and a decimal prefix: 2.24 M."""
    for power, prefix in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:.3g} {prefix}"
    return f"{value:.3g} "
