"""The command line: a few lines a command over the library; the longer ones are in :mod:`spuir.cli`.

Heavy modules are imported inside the commands, so that ``--help`` answers at once.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spuir.base.registry import Registry
from spuir.cli import options
from spuir.cli.options import parse
from spuir.errors import MissingExtraError, ParameterError, SpuirError

if TYPE_CHECKING:
    from spuir.reproduction.runner import Run
    from spuir.results.history import History

PAPER_POLICIES = ("sbucb", "puir", "spuir", "puir-rs", "spuir-rs", "bexp3", "bexp3-ipw", "blts-b", "dfm-s")
KINDS = ("policies", "environments", "sketches", "features", "experiments")
FIGURE = "average_reward"
SIZE = click.IntRange(max=2**40)

LATER = Registry(
    "command",
    {
        "reproduce": "spuir.cli.reproduce:reproduce",
        "train": "spuir.cli.train:train",
        "doctor": "spuir.cli.doctor:doctor",
    },
)
"""Commands with a file of their own, imported when they are called."""


class Refusal(click.ClickException):
    """A spuir error as one sentence on the error stream and exit code 2."""

    exit_code = 2


class Commands(click.Group):
    """The group of commands, in which every refusal of the library ends the same way."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [*self.commands, *LATER.names()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, imported if it has a file of its own."""
        return LATER.get(cmd_name) if cmd_name in LATER else super().get_command(ctx, cmd_name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read what stands before the command."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as wrong:
            raise _in_one_sentence(wrong, ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except click.UsageError as wrong:
            raise _in_one_sentence(wrong, ctx) from None
        except SpuirError as refusal:
            raise Refusal(str(refusal)) from None
        except MemoryError as beyond:
            why = str(beyond) or "there is no more of it"
            raise click.ClickException(f"memory: {why}; make batches or tables smaller.") from None
        except KeyboardInterrupt:
            click.echo("stopped", err=True)
            ctx.exit(options.INTERRUPTED)


def _in_one_sentence(wrong: click.UsageError, ctx: click.Context) -> click.ClickException:
    """Return a misuse of the command line as a refusal; the help that stands for no arguments stays as it is."""
    if isinstance(wrong, click.exceptions.NoArgsIsHelpError):
        return wrong
    command = (wrong.ctx or ctx).command_path
    said = " ".join(wrong.format_message().split()).rstrip(".")
    return Refusal(f"{said}; see {command} --help.")


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from spuir import __version__

        click.echo(f"spuir {__version__}")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and stop.",
)
def main() -> None:
    """Contextual batched bandits: act through an episode, then learn once from its batch."""


@main.command("run")
@click.option(
    "-p", "--policy", "policies", multiple=True, help="A policy; repeat, or separate by commas.  [default: the paper's]"
)
@click.option("-e", "--environment", default="synthetic", show_default=True, help="An environment.")
@click.option("-n", "--episodes", type=SIZE, default=90, show_default=True, help="Episodes (N).")
@click.option("-b", "--batch-size", type=SIZE, default=1400, show_default=True, help="Decisions in an episode (B).")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The first seed.")
@click.option("--seeds", type=click.IntRange(min=1), default=5, show_default=True, help="How many seeds, counting up.")
@click.option(
    "--preset",
    type=click.Choice(["paper", "default"]),
    default="paper",
    show_default=True,
    help="The authors' values, or ours.",
)
@click.option(
    "-s",
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter of every chosen policy that has it; puir.NAME=VALUE sets one policy's, "
    "environment.NAME=VALUE the environment's.",
)
@options.WORKERS
@options.out("results")
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
    """Run policies against an environment; write a table, a figure and the raw numbers."""
    from spuir.cli.terminal import print_summary, progress_bar
    from spuir.environments import ENVIRONMENTS, make_environment, parameters_of
    from spuir.policies import POLICIES, make_policy
    from spuir.reproduction.runner import Run, run_all
    from spuir.storage.atomic import check_folder, write_csv, write_json

    names = options.names_in(policies or PAPER_POLICIES, "--policy")
    given = assign(
        settings,
        {name: POLICIES.get(name).parameters() for name in names},
        parameters_of(ENVIRONMENTS.get(environment)),
    )
    acting = [make_policy(name, preset="paper" if preset == "paper" else None, **given[name]) for name in names]
    numbers = range(seed, seed + seeds)
    worlds = {one: make_environment(environment, **{"seed": one} | given["environment"]) for one in numbers}
    tasks = [
        Run(policy=policy, environment=worlds[one], episodes=episodes, batch_size=batch_size, seed=one)
        for one in numbers
        for policy in acting
    ]
    check_folder(out)
    with progress_bar(len(tasks) * episodes, hidden=quiet) as watch:
        histories = run_all(tasks, workers, watch)
    results = describe(tasks, histories, preset)
    rows = (row for history in histories for row in history.rows())
    written = [write_csv(out / "results.csv", rows), write_json(out / "results.json", results)]
    notes = draw(histories, out, written)
    if as_json:
        click.echo(json.dumps(results, indent=2, ensure_ascii=False))
    elif not quiet:
        print_summary(results)
    if not quiet:
        for note in [f"wrote {', '.join(str(path) for path in written)}", *notes]:
            click.echo(note, err=True)


def assign(
    settings: Iterable[str], policies: Mapping[str, Sequence[str]], environment: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Share out ``name=value`` settings: what each policy, and the environment under that word, is given.

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
        owners = [one for one in candidates if name in known[one]]
        if not owners:
            raise _unknown(
                setting,
                name,
                [one for each in candidates for one in known[each]],
                f"{' or '.join(candidates)} has no such parameter",
            )
        for one in owners:
            given[one][name] = parse(text.strip())
    return given


def _unknown(setting: str, got: str, names: Iterable[str], rule: str) -> ParameterError:
    """Return the refusal of a setting with an unknown name, with the nearest one."""
    choices = list(dict.fromkeys(names))
    near = get_close_matches(got, choices, n=1, cutoff=0.5)
    return ParameterError(
        f"--set {setting}",
        repr(got),
        rule,
        f"did you mean {near[0]!r}" if near else f"the names are {', '.join(choices)}",
    )


def describe(tasks: "Sequence[Run]", histories: "Sequence[History]", preset: str) -> dict[str, Any]:
    """Return everything that a reader of the results needs: settings, versions, and the summary of each policy."""
    from spuir.reproduction.manifest import versions
    from spuir.reproduction.runner import summarise
    from spuir.results.history import plain_parameters

    first = tasks[0]
    settings = plain_parameters(first.environment)
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


def draw(histories: "Sequence[History]", out: Path, written: list[Path]) -> list[str]:
    """Draw the figure and add its files to ``written``; without the means to draw, return a note that says so."""
    from spuir.results import figures

    try:
        written += figures.save(figures.average_reward(histories), out / FIGURE)
    except MissingExtraError as missing:
        return [f"no figure was drawn: {missing}"]
    return []


@main.command("list")
@click.argument("kind", required=False, type=click.Choice(KINDS))
@options.JSON
def list_command(kind: str | None, as_json: bool) -> None:
    """List what can be chosen, all of it or one KIND, with a line on each."""
    found = {one: catalogue(one) for one in KINDS if kind in (None, one)}
    if as_json:
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    from spuir.cli.terminal import print_catalogue

    print_catalogue(found)


def catalogue(kind: str) -> dict[str, str]:
    """Return the members of a family with one line on each: a summary of its own, or the first of a docstring."""
    from spuir.environments import ENVIRONMENTS
    from spuir.features import FEATURES
    from spuir.policies import POLICIES
    from spuir.reproduction import EXPERIMENTS
    from spuir.sketches import SKETCHES

    families = {
        "policies": POLICIES,
        "environments": ENVIRONMENTS,
        "sketches": SKETCHES,
        "features": FEATURES,
        "experiments": EXPERIMENTS,
    }
    registry = families[kind]
    members = {name: registry.get(name) for name in registry.names()}
    return {
        name: getattr(member, "summary", None) or (member.__doc__ or "").split("\n")[0]
        for name, member in members.items()
    }


@main.command("plan")
@click.option("-t", "--steps", type=int, required=True, help="Decisions in all (T).")
@click.option("-d", "--dim", type=int, required=True, help="Context columns (d).")
@click.option("-m", "--actions", type=int, required=True, help="Actions (M).")
@click.option("--blocks", type=int, default=1, show_default=True, help="Blocks of the sketch (D).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def plan_command(steps: int, dim: int, actions: int, blocks: int, as_json: bool) -> None:
    """Recommend batch size, episodes and sketch size, and say what each choice costs."""
    from spuir.cli.terminal import print_plan
    from spuir.planning import plan

    made = plan(steps, dim, actions, sketch_blocks=blocks)
    if as_json:
        click.echo(json.dumps(made.to_dict(), indent=2, ensure_ascii=False))
    else:
        print_plan(made)


if __name__ == "__main__":
    main()
