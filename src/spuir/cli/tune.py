"""``spuir tune``: choose a policy and its parameters on a log, say what it gains, and train it."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spuir.cli import options
from spuir.cli.train import beside, interruptible, keep_apart, print_note
from spuir.errors import MissingExtraError

if TYPE_CHECKING:
    from spuir.evaluation.tuning_result import Tuning

SHOWN = 8
"""Candidates and settings in the printed tables."""


@click.command("tune")
@click.argument("log", nargs=-1, required=True)
@click.option(
    "-p",
    "--policies",
    multiple=True,
    help="Policies to choose from, separated by commas; sbucb is always tried.  [default: sbucb,puir,spuir,auto]",
)
@click.option(
    "--budget",
    type=click.IntRange(min=1),
    default=40,
    show_default=True,
    help="Number of candidates: policies with their features, λ, γ, η and c.",
)
@click.option("-b", "--batch-size", type=int, help="Rows per episode (B).  [default: the log's column episode]")
@click.option("--every", help="Duration of an episode: hour, day, 15m, 6h.  [default: the log's column episode]")
@click.option(
    "--batch-sizes", multiple=True, help="Batch sizes to choose from, separated by commas.  [default: the log's]"
)
@click.option(
    "--learning",
    type=click.Choice(["auto", "replay", "simulation"]),
    default="auto",
    show_default=True,
    help="How to compare α, floors and batch sizes; auto is a replay if the log is large enough.",
)
@click.option(
    "--floor-cost",
    type=click.FloatRange(0, 1),
    default=0.01,
    show_default=True,
    help="Share of the reward that a floor may cost; the largest floor within it is chosen.",
)
@click.option(
    "--propensity",
    metavar="uniform|COLUMN",
    help="Probability of the logged actions: equally likely, or a column.  [default: propensity]",
)
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    default=200_000,
    show_default=True,
    help="Number of rows to tune on, the latest; the winner learns from all.",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    default=Path("model.spuir"),
    show_default=True,
    help="File for the model of the winner.",
)
@options.catalogue
@options.joining
@options.opening
@options.encoding
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random draws.")
@options.WORKERS
@options.JSON
@options.QUIET
def tune(*, out: Path, as_json: bool, quiet: bool, **given: Any) -> None:
    """Choose a policy and its parameters on LOG, and train it.

    The command reports what the policy gains over today's decisions.

    LOG is files or folders of decisions with rewards and propensities. Candidates learn from the first 60 % of the
    rows and are compared on the next 20 %. The gain is measured on the last 20 %, on which nothing was chosen. Run
    the same command again to resume an interrupted tuning.
    """
    from spuir.cli.terminal import row_bar
    from spuir.evaluation.encoded_rows import ENCODING
    from spuir.evaluation.tune import POLICIES
    from spuir.evaluation.tune import tune as search

    keep_apart(out, [*given["log"], *given["rewards"]], "tuning")
    options.refuse_labels(given)
    log, notices = options.open_with_rewards(given, given["propensity"])
    note = _ignore if quiet else print_note
    for notice in notices:
        note(notice)
    encoding = {name: given[name] for name in ("hashing", "max_levels") if given[name] is not None}
    with interruptible(out), row_bar(hidden=quiet, unit="tasks") as watch:
        found = search(
            log,
            policies=options.names_in(given["policies"], "--policies") or POLICIES,
            budget=given["budget"],
            batch_size=given["batch_size"],
            every=given["every"],
            batch_sizes=_sizes(given["batch_sizes"]),
            learning=given["learning"],
            floor_cost=given["floor_cost"],
            propensity="uniform" if given["propensity"] == "uniform" else None,
            encoding={**ENCODING, **encoding},
            most_rows=given["rows"],
            out=out,
            seed=given["seed"],
            workers=given["workers"],
            watch=watch,
            tell=note,
        )
    written = _write(found, out, note)
    if as_json:
        summary = found.to_dict() | {"written": [str(path) for path in written]}
        summary["notices"] = [*notices, *summary["notices"]]
        click.echo(json.dumps(summary, indent=2, ensure_ascii=False))
    elif not quiet:
        _print(found)
    if not quiet:
        click.echo(f"wrote {', '.join(map(str, written))}", err=True)


def _ignore(_: str) -> None:
    """Print nothing."""


def _sizes(entries: Sequence[str]) -> list[Any] | None:
    """Read batch sizes; the library refuses what is not a size."""
    return [options.parse(text) for text in options.names_in(entries, "--batch-sizes")] or None


def _write(found: "Tuning", out: Path, note: Callable[[str], object]) -> list[Path]:
    """Write all results, the figure and the drift of the coefficients beside the model; return the files."""
    from spuir.evaluation.tuning_figure import draw_tuning
    from spuir.results import figures
    from spuir.storage.atomic import write_csv, write_json
    from spuir.training.drift import drift_file, drift_rows

    stem = beside(out, "tuning")
    written = [out, write_json(Path(f"{stem}.json"), found.to_dict())]
    if moves := list(drift_rows(found.bandit, found.training.episodes)):
        written.append(write_csv(drift_file(out), moves))
    try:
        written += figures.save(draw_tuning(found), stem)
    except MissingExtraError as missing:
        note(f"no figure was drawn: {missing}")
    return written


def _print(found: "Tuning") -> None:
    """Print the best candidates, the settings while learning, and the answer in sentences."""
    from rich.table import Table
    from rich.text import Text

    from spuir.cli.terminal import console
    from spuir.evaluation.halving import finalists

    learn, compare, final = found.rows
    out = console()
    last = finalists(found.scores)
    table = Table(
        title=f"{len(last)} finalists of {len({one.candidate for one in found.scores})} candidates: learned from "
        f"{learn:,} rows, compared on {compare:,}",
        title_justify="left",
    )
    for heading in ("candidate", "value", "± standard error"):
        table.add_column(heading, justify="left" if heading == "candidate" else "right")
    for one in last[:SHOWN]:
        table.add_row(Text(str(one.candidate)), f"{one.value:.4g}", f"{one.standard_error:.2g}")
    out.print(table)
    exploring = Table(title=f"reward while learning, by {found.how}", title_justify="left")
    for heading in ("alpha", "floor", "batch size", "reward", "behind the best", "± standard error", "seeds"):
        exploring.add_column(heading, justify="right")
    for one in [one for one in found.explored if one.seeds == found.explored[0].seeds][:SHOWN]:
        setting = one.setting
        cells = [
            "–" if setting.alpha is None else f"{setting.alpha:g}",
            f"{setting.floor:.3g}",
            f"{setting.batch_size:,}",
        ]
        exploring.add_row(*cells, f"{one.value:.4g}", f"{one.behind:.2g}", f"{one.standard_error:.2g}", f"{one.seeds}")
    out.print(exploring)
    if found.comparisons:
        out.print(_comparisons(found, final))
    for sentence in found.sentences:
        out.print(Text(sentence, style="bold"), soft_wrap=True)


def _comparisons(found: "Tuning", rows: int) -> Any:
    """Return the table of the winner beside the alternatives."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"the last {rows:,} rows, on which nothing was chosen; 95 % intervals", title_justify="left")
    for heading in ("policy", "value", "low", "high", "gain of the winner"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    table.add_row("winner", f"{found.value:.4g}", f"{found.low:.4g}", f"{found.high:.4g}", "–")
    for one in found.comparisons:
        table.add_row(Text(one.name), f"{one.value:.4g}", f"{one.low:.4g}", f"{one.high:.4g}", one.in_words())
    return table
