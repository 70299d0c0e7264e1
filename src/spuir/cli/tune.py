"""``spuir tune``: choose a policy and its parameters on a log, say what it gains, and train it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spuir.base.counting import counted
from spuir.cli import log_options, options
from spuir.cli.output import beside, check_out, draw, interruptible, note_unless, print_result, print_written

if TYPE_CHECKING:
    from spuir.evaluation.exploration import Explored
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
@options.out("File for the model of the winner.", "model.spuir")
@log_options.reading
@click.option(
    "--propensity",
    metavar="uniform|COLUMN",
    help="Probability of the logged actions: equally likely, or a column.  [default: propensity]",
)
@click.option(
    "--budget",
    type=click.IntRange(min=1),
    default=40,
    show_default=True,
    help="Number of candidates: policies with their features, λ, γ, η and c.",
)
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
    "--rows",
    type=click.IntRange(min=1),
    default=200_000,
    show_default=True,
    help="Number of rows to tune on, the latest; the winner learns from all.",
)
@log_options.details
@log_options.encoding
@options.SEED
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

    check_out(out, [*given["log"], *given["rewards"]], "tuning")
    log_options.refuse_labels(given)
    log, joined = log_options.open_joined(given, None if given["propensity"] == "uniform" else given["propensity"])
    note = note_unless(quiet)
    notices = [str(report) for report in joined]
    for notice in notices:
        note(notice)
    with interruptible(out), row_bar(hidden=quiet, unit="tasks") as watch:
        found = search(
            log,
            policies=options.names_in(given["policies"], "--policies") or POLICIES,
            batch_sizes=[options.parse(text) for text in options.names_in(given["batch_sizes"], "--batch-sizes")]
            or None,
            propensity="uniform" if given["propensity"] == "uniform" else None,
            encoding={**ENCODING, **log_options.encoding_in(given)},
            most_rows=given["rows"],
            out=out,
            watch=watch,
            tell=note,
            **{name: given[name] for name in PASSED},
        )
    written, undrawn = _write(found, out)
    for notice in undrawn:
        note(notice)
    summary = found.to_dict() | {"written": [str(path) for path in written]}
    summary["notices"] = [*notices, *summary["notices"]]
    print_result(summary, lambda: _print(found), as_json, quiet)
    print_written(written, quiet)


PASSED = ("budget", "batch_size", "every", "learning", "floor_cost", "seed", "workers")
"""Options that go to the tuning as they are."""


def _write(found: "Tuning", out: Path) -> tuple[list[Path], list[str]]:
    """Write all results beside the model; return the files, and a note if the figure is missing."""
    from spuir.storage.atomic import write_csv, write_json
    from spuir.training.coefficient_moves import move_rows, moves_file

    stem = beside(out, "tuning")
    written = [out, write_json(Path(f"{stem}.json"), found.to_dict())]
    if moves := list(move_rows(found.bandit, found.training.episodes)):
        written.append(write_csv(moves_file(out), moves))
    drawn, notes = draw(found.plot, stem)
    return [*written, *drawn], notes


def _print(found: "Tuning") -> None:
    """Print the best candidates, the settings while learning, and the answer in sentences."""
    from rich.text import Text

    from spuir.cli.terminal import console, print_table
    from spuir.evaluation.candidates import finalists

    learn, compare, final = found.rows
    last = finalists(found.scores)
    tried = len({one.candidate for one in found.scores})
    print_table(
        ("candidate", "value", "± standard error"),
        [[str(one.candidate), f"{one.value:.4g}", f"{one.standard_error:.2g}"] for one in last[:SHOWN]],
        text=("candidate",),
        title=f"{counted(len(last), 'finalist')} of {counted(tried, 'candidate')}: "
        f"learned from {counted(learn, 'row')}, compared on {compare:,}",
    )
    print_table(
        ("alpha", "floor", "batch size", "reward", "behind the best", "± standard error", "seeds"),
        [_cells(one) for one in found.explored if one.seeds == found.explored[0].seeds][:SHOWN],
        title=f"reward while learning, by {found.how}",
    )
    if found.comparisons:
        winner = ["winner", *map(_number, (found.value, found.low, found.high)), "–", found.support.verdict, "–"]
        others = [
            [one.name, *map(_number, (one.value, one.low, one.high)), one.in_words(), one.support, one.verdict]
            for one in found.comparisons
        ]
        print_table(
            ("policy", "value", "low", "high", "gain of the winner", "support", "verdict on the winner"),
            [winner, *others],
            text=("policy", "support", "verdict on the winner"),
            title=f"the last {counted(final, 'row')}, on which nothing was chosen; 95 % intervals",
        )
    for sentence in found.sentences:
        console().print(Text(sentence, style="bold"), soft_wrap=True)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _cells(one: "Explored") -> list[str]:
    """Return one setting as the cells of its line."""
    alpha, floor, size = one.setting
    cells = ["–" if alpha is None else f"{alpha:g}", f"{floor:.3g}", f"{size:,}", f"{one.value:.4g}"]
    return [*cells, f"{one.behind:.2g}", f"{one.standard_error:.2g}", f"{one.seeds}"]
