"""``spuir reproduce``: run the paper's evaluation."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spuir.base.processors import cores
from spuir.cli import options
from spuir.cli.output import print_result
from spuir.errors import ParameterError

if TYPE_CHECKING:
    from spuir.reproduction.base import Experiment, Scope

REPEATS = 20
FAILURES_SHOWN = 20


@click.command("reproduce")
@click.option("--only", multiple=True, help="Experiments to run, separated by commas; repeatable.  [default: all]")
@click.option("--quick", is_flag=True, help="Run a small subset of the grid on three seeds.")
@click.option(
    "--repeats",
    type=click.IntRange(min=1, max=10_000),
    default=REPEATS,
    show_default=True,
    help="Number of seeds per cell of the grid.",
)
@click.option(
    "--first-seed",
    type=click.IntRange(min=0, max=90_000),
    default=0,
    show_default=True,
    help="First seed of each cell.",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="MODULE:NAME",
    help="Policy to compare with the others: your own Recipe or subclass of Policy, or a registered name; repeatable.",
)
@click.option("--data", type=click.Path(path_type=Path), help="Folder with your own data files.  [default: none]")
@options.WORKERS
@options.out("Folder for the results.", "results/reproduction")
@options.JSON
@options.QUIET
def reproduce(
    *,
    only: Sequence[str],
    quick: bool,
    repeats: int,
    first_seed: int,
    policies: Sequence[str],
    data: Path | None,
    workers: int | None,
    out: Path,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run the evaluation of the paper.

    Runs its figures, tables and theorems, and experiments of our own, and writes a report with a verdict on each claim.
    With --policy, a policy of your own joins the comparisons of methods (figure3a, figure3b, figure3c, real, overview).
    Finished results stay in the folder. Run the same command again to resume after an interruption, and to retry what
    failed.
    """
    from spuir.cli.terminal import print_verdicts
    from spuir.reproduction import EXPERIMENTS
    from spuir.reproduction.base import Scope
    from spuir.reproduction.pages import templates
    from spuir.reproduction.policy_runs import own_recipe
    from spuir.results import figures

    chosen = [EXPERIMENTS.get(name) for name in options.names_in(only, "--only")] or [
        EXPERIMENTS.get(name) for name in EXPERIMENTS.names()
    ]
    if data is not None and not data.is_dir():
        raise ParameterError("--data", data, "it has to be a folder", "name the folder that holds your files")
    figures.new_figure(1)  # The report needs matplotlib and Jinja2, so a missing one is refused before any work.
    templates()
    for path in policies:
        own_recipe(path)  # refused before any work if it is none
    scope = Scope(repeats=repeats, first_seed=first_seed, quick=quick, data=data, policies=tuple(policies))
    results = _carry_out(chosen, scope, out, workers or cores(), command_of(only, scope), quiet)
    print_result(results, lambda: print_verdicts(results["experiments"]), as_json, quiet)
    if not quiet:
        click.echo(f"wrote {out / 'report.html'} and the files beside it", err=True)
    failures = failures_in(results)
    if failures:
        title = f"Error: {len(failures)} failed; run the same command again to retry:"
        for line in [title, *failures[:FAILURES_SHOWN]]:
            click.echo(line, err=True)
        click.get_current_context().exit(1)


def command_of(only: Sequence[str], scope: "Scope") -> str:
    """Return the command that gives these results, without options that do not change them or paths of this machine."""
    names = options.names_in(only, "--only")
    parts = ["spuir", "reproduce", *(["--only", ",".join(names)] if names else [])]
    parts += ["--quick"] if scope.quick else []
    parts += ["--repeats", str(scope.repeats)] if scope.repeats != REPEATS else []
    parts += ["--first-seed", str(scope.first_seed)] if scope.first_seed else []
    parts += [word for path in scope.policies for word in ("--policy", path)]
    parts += ["--data", scope.data.resolve().name] if scope.data is not None else []
    return shlex.join(parts)


def _carry_out(
    chosen: "Sequence[Experiment]", scope: "Scope", out: Path, workers: int, command: str, quiet: bool
) -> dict[str, Any]:
    """Run what is missing, write the report, and return what ``results.json`` holds."""
    from spuir.cli.terminal import progress_bar, task_bar
    from spuir.reproduction.report import write_report
    from spuir.reproduction.schedule import carry_out
    from spuir.reproduction.store import open_store

    with open_store(out) as store:
        try:
            with task_bar(hidden=quiet) as follow:
                asked, failures = carry_out(chosen, scope, store, workers, follow, command=command)
            with progress_bar(len(asked), hidden=quiet, what="sections") as watch:
                return write_report(asked, failures, scope, store, workers=workers, command=command, follow=watch)
        except KeyboardInterrupt:
            click.echo(f"stopped with {len(store)} results; run the same command again to resume", err=True)
            click.get_current_context().exit(options.INTERRUPTED)


def failures_in(results: dict[str, Any]) -> list[str]:
    """Return one line per failure: tasks, and sections of the report that could not be written."""
    tasks = [f"{task['task']}: {task['error']}" for task in results["failures"]]
    return tasks + [f"{part['name']}: {part['failure']}" for part in results["experiments"] if part["failure"]]
