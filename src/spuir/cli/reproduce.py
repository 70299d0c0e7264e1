"""``spuir reproduce``: the paper's evaluation in one command."""

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spuir.cli import options
from spuir.errors import ParameterError

if TYPE_CHECKING:
    from spuir.reproduction.base import Experiment, Scope

REPEATS = 20
FAILURES_SHOWN = 20


@click.command("reproduce")
@click.option("--only", multiple=True, help="An experiment; repeat, or separate by commas.  [default: all]")
@click.option("--quick", is_flag=True, help="A small subset of the same grid, to see that everything runs.")
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=REPEATS,
    show_default=True,
    help="Seeds of each cell, counting from 0.",
)
@click.option("--data", type=click.Path(path_type=Path), help="Folder with files that you bring.  [default: none]")
@options.WORKERS
@options.out("results/reproduction")
@options.JSON
@options.QUIET
def reproduce(
    *,
    only: Sequence[str],
    quick: bool,
    repeats: int,
    data: Path | None,
    workers: int | None,
    out: Path,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run the paper's figures and tables, and ours beyond; write a report with a verdict on each claim.

    What is finished is kept in the folder. The same command goes on from there, after a kill too, and tries again what
    failed.
    """
    from spuir.cli.terminal import print_verdicts
    from spuir.reproduction import EXPERIMENTS
    from spuir.reproduction.base import Scope
    from spuir.reproduction.pages import templates
    from spuir.results import figures

    chosen = [EXPERIMENTS.get(name) for name in options.names_in(only, "--only")] or [
        EXPERIMENTS.get(name) for name in EXPERIMENTS.names()
    ]
    if data is not None and not data.is_dir():
        raise ParameterError("--data", data, "it has to be a folder", "name the folder that holds your files")
    figures.new_figure(1)  # before anything is run: without the means to draw there is no report
    templates()
    scope = Scope(repeats=repeats, quick=quick, data=data)
    found = _carry_out(chosen, scope, out, workers or os.cpu_count() or 1, command_of(only, scope), quiet)
    if as_json:
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
    elif not quiet:
        print_verdicts(found["experiments"])
    if not quiet:
        click.echo(f"wrote {out / 'report.html'} and the files beside it", err=True)
    troubles = troubles_of(found)
    if troubles:
        for line in [f"Error: {len(troubles)} failed; the same command tries again:", *troubles[:FAILURES_SHOWN]]:
            click.echo(line, err=True)
        click.get_current_context().exit(1)


def command_of(only: Sequence[str], scope: "Scope") -> str:
    """Return the command that gives these results, without what they do not depend on, and no path of this machine."""
    names = options.names_in(only, "--only")
    parts = ["spuir", "reproduce", *(["--only", ",".join(names)] if names else [])]
    parts += ["--quick"] if scope.quick else []
    parts += ["--repeats", str(scope.repeats)] if scope.repeats != REPEATS else []
    parts += ["--data", scope.data.resolve().name] if scope.data is not None else []
    return shlex.join(parts)


def _carry_out(
    chosen: "Sequence[Experiment]", scope: "Scope", out: Path, workers: int, command: str, quiet: bool
) -> dict[str, Any]:
    """Run what is not done, write the report, and return what ``results.json`` holds."""
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
            click.echo(f"stopped; {len(store)} results are kept, and the same command goes on from there", err=True)
            click.get_current_context().exit(options.INTERRUPTED)


def troubles_of(found: dict[str, Any]) -> list[str]:
    """Return what failed, a line each: tasks, and sections that could not be written."""
    tasks = [f"{one['task']}: {one['error']}" for one in found["failures"]]
    return tasks + [f"{one['name']}: {one['failure']}" for one in found["experiments"] if one["failure"]]
