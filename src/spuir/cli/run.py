"""``spuir run``: compare policies on an environment."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spuir.cli import options
from spuir.cli.output import draw, print_result, print_written
from spuir.errors import ParameterError, did_you_mean

if TYPE_CHECKING:
    from spuir.reproduction.runner import Run
    from spuir.results.history import History

COMPARED = ("auto", "sbucb", "puir", "spuir", "puir-rs", "spuir-rs", "bexp3", "bexp3-ipw", "blts-b", "dfm-s")
"""The policies that are compared by default: the default policy and those of the paper."""
FIGURE = "average_reward"


class _Size(click.IntRange):
    """A whole number below a bound that is not shown: it only keeps arrays from overflowing."""

    def _describe_range(self) -> str:
        return ""


SIZE = _Size(max=2**40)


@click.command("run")
@click.option(
    "-p",
    "--policy",
    "policies",
    multiple=True,
    help="Policies to compare, separated by commas; repeatable.  [default: auto and the paper's]",
)
@click.option("-e", "--environment", default="synthetic", show_default=True, help="Environment to act in.")
@click.option("-n", "--episodes", type=SIZE, default=90, show_default=True, help="Number of episodes (N).")
@click.option("-b", "--batch-size", type=SIZE, default=1400, show_default=True, help="Decisions per episode (B).")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="First seed.")
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Number of seeds: --seed and those that follow it.",
)
@options.PRESET
@click.option(
    "-s",
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a parameter of every chosen policy that has it; puir.NAME=VALUE sets it for one policy, "
    "environment.NAME=VALUE for the environment; repeatable.",
)
@options.WORKERS
@options.out("Folder for the results.", "results")
@options.JSON
@options.QUIET
def run_command(
    *,
    policies: Sequence[str],
    environment: str,
    episodes: int,
    batch_size: int,
    seed: int,
    seeds: int,
    preset: str,
    settings: Sequence[str],
    workers: int | None,
    out: Path,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compare policies on an environment.

    All policies see the same contexts and the same noise. The command prints a table, and writes a figure and the raw
    numbers.
    """
    from spuir.base.parameters import parameter_names
    from spuir.cli.terminal import print_summary, progress_bar
    from spuir.environments import ENVIRONMENTS, make_environment
    from spuir.policies import POLICIES, make_policy
    from spuir.reproduction.runner import Run, run_all
    from spuir.results import figures
    from spuir.storage.atomic import make_folder, write_csv, write_json

    names = options.names_in(policies or COMPARED, "--policy")
    given = assign(
        settings,
        {name: POLICIES.get(name).parameters() for name in names},
        parameter_names(ENVIRONMENTS.get(environment)),
    )
    compared = [make_policy(name, preset=None if preset == "default" else preset, **given[name]) for name in names]
    numbers = range(seed, seed + seeds)
    worlds = {number: make_environment(environment, **{"seed": number} | given["environment"]) for number in numbers}
    tasks = [
        Run(policy=policy, environment=worlds[number], episodes=episodes, batch_size=batch_size, seed=number)
        for number in numbers
        for policy in compared
    ]
    make_folder(out)
    with progress_bar(len(tasks) * episodes, hidden=quiet) as watch:
        histories = run_all(tasks, workers, watch)
    results = describe(tasks, histories, preset)
    rows = (row for history in histories for row in history.rows())
    written = [write_csv(out / "results.csv", rows), write_json(out / "results.json", results)]
    drawn, notes = draw(lambda path: figures.save(figures.average_reward(histories), path), out / FIGURE)
    print_result(results, lambda: print_summary(results), as_json, quiet)
    print_written([*written, *drawn], quiet)
    for note in [] if quiet else notes:
        click.echo(note, err=True)


def assign(
    settings: Iterable[str], policies: Mapping[str, Sequence[str]], environment: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return the parameters that ``name=value`` settings give each policy and, under "environment", the environment.

    Parameters
    ----------
    settings
        Texts as the command line takes them.
    policies, environment
        The parameter names of each chosen policy, and of the environment. A name that none of them has is
        refused with the nearest one.
    """
    known = {**policies, "environment": environment}
    given: dict[str, dict[str, Any]] = {owner: {} for owner in known}
    for setting in settings:
        target, equals, text = setting.partition("=")
        owner, dot, name = target.strip().rpartition(".")
        if not equals or not name:
            raise ParameterError(
                "--set", repr(setting), "a setting reads name=value", "write --set alpha=0.3, for example"
            )
        if dot and owner not in known:
            raise _unknown(setting, owner, known, "that is neither a chosen policy nor the word environment")
        candidates = [owner] if dot else list(policies)
        owners = [candidate for candidate in candidates if name in known[candidate]]
        if not owners:
            raise _unknown(
                setting,
                name,
                [parameter for candidate in candidates for parameter in known[candidate]],
                f"none of {', '.join(candidates)} has such a parameter"
                if len(candidates) > 1
                else f"{candidates[0]} has no such parameter",
            )
        for owner in owners:
            given[owner][name] = options.parse(text.strip())
    return given


def _unknown(setting: str, got: str, names: Iterable[str], rule: str) -> ParameterError:
    """Return the refusal of a setting with an unknown name, with the nearest one."""
    choices = list(dict.fromkeys(names))
    return ParameterError(f"--set {setting}", repr(got), rule, did_you_mean(got, choices))


def describe(tasks: "Sequence[Run]", histories: "Sequence[History]", preset: str) -> dict[str, Any]:
    """Return what ``results.json`` holds: settings, versions, and the summary of each policy."""
    from spuir.reproduction.manifest import versions
    from spuir.reproduction.runner import summarise
    from spuir.results.history import json_parameters

    first = tasks[0]
    settings = json_parameters(first.environment)
    settings["seed"] = sorted({task.environment.seed for task in tasks})
    return {
        "environment": {"name": first.environment.name, "parameters": settings},
        "episodes": first.episodes,
        "batch_size": first.batch_size,
        "seeds": sorted({task.seed for task in tasks}),
        "preset": preset,
        "policies": {history.policy: dict(history.parameters) for history in histories},
        "versions": versions(),
        "summary": summarise(histories),
    }
