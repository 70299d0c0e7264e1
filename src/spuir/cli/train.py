"""``spuir train``: learn a policy from a log and save the model."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spuir.cli import options
from spuir.errors import MissingExtraError, ParameterError

if TYPE_CHECKING:
    from spuir.policies import Policy
    from spuir.training import Training

UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


@click.command("train")
@click.argument("log", nargs=-1, required=True)
@click.option("-p", "--policy", default="puir", show_default=True, help="Policy to train.")
@options.preset("default")
@click.option(
    "-s", "--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a parameter of the policy; repeatable."
)
@click.option(
    "-b",
    "--batch-size",
    type=int,
    help="Rows per episode (B), in the order of the log.  [default: the log's column episode]",
)
@click.option("--every", help="Duration of an episode: hour, day, 15m, 6h.  [default: the log's column episode]")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    default=Path("model.spuir"),
    show_default=True,
    help="File for the model.",
)
@options.joining
@options.opening
@click.option("--actions", multiple=True, help="Action labels, separated by commas.  [default: those in the log]")
@click.option("--scale", is_flag=True, help="Standardise numeric columns by their values in the first episode.")
@click.option("--intercept", is_flag=True, help="Append a constant column.")
@options.encoding
@click.option("--engine", default="local", show_default=True, help="Where workers run: local, dask or spark.")
@click.option(
    "--address",
    help="Address of the Dask scheduler, e.g. tcp://host:8786, with --engine dask.  [default: a new local cluster]",
)
@click.option(
    "--master",
    help="Address of the Spark master, e.g. spark://host:7077, with --engine spark.  [default: this machine]",
)
@click.option("--memory", help="Memory limit, e.g. 4g.  [default: 80 % of free memory]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random draws.")
@options.WORKERS
@options.JSON
@options.QUIET
def train(
    *, policy: str, preset: str, settings: Sequence[str], out: Path, as_json: bool, quiet: bool, **given: Any
) -> None:
    """Learn a policy from LOG, and save it as a model. LOG is files or folders of decisions with their rewards.

    Run the same command again to resume an interrupted training.
    """
    from spuir.cli.terminal import print_episodes
    from spuir.policies import make_policy
    from spuir.training import make_engine
    from spuir.training import train as learn

    values = {name: options.parse(text) for name, text in options.pairs_in(settings, "--set", "alpha=0.3").items()}
    trained_policy = make_policy(policy, preset="paper" if preset == "paper" else None, **values)
    encoding = {name: given[name] for name in ("scale", "intercept") if given[name]}
    encoding |= {name: given[name] for name in ("hashing", "max_levels") if given[name] is not None}
    keep_apart(out, [*given["log"], *given["rewards"]])
    log, notices = options.open_with_rewards(given)
    engine = make_engine(given["engine"], **_engine_options(given))
    note = _ignore if quiet else print_note
    for notice in notices:
        note(notice)
    with engine, interruptible(out), _bar(hidden=quiet) as watch:
        trained = learn(
            log,
            trained_policy,
            batch_size=given["batch_size"],
            every=given["every"],
            actions=[options.parse(name) for name in options.names_in(given["actions"], "--actions")] or None,
            encoding=encoding,
            engine=engine,
            out=out,
            seed=given["seed"],
            memory_limit=None if given["memory"] is None else _bytes(given["memory"]),
            watch=watch,
            tell=note,
        )
    written, undrawn = _write(trained, out)
    for notice in undrawn:
        note(notice)
    summary = _describe(trained, trained_policy, given["engine"], [*notices, *trained.notices, *undrawn], written)
    if as_json:
        click.echo(json.dumps(summary, indent=2, ensure_ascii=False))
    elif not quiet:
        print_episodes(summary)
    if not quiet:
        click.echo(f"wrote {', '.join(summary['written'])}", err=True)


def print_note(note: str) -> None:
    """Print a note on the error stream, as soon as it is known."""
    click.echo(f"· {note}", err=True)


def _ignore(_: str) -> None:
    """Print nothing."""


def _engine_options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the engine; refuse one that belongs to another engine."""
    for name, owner in (("address", "dask"), ("master", "spark")):
        if given[name] is not None and given["engine"] != owner:
            raise ParameterError(f"--{name}", given[name], f"it belongs to --engine {owner}", f"add --engine {owner}")
    return {name: given[name] for name in ("workers", "address", "master") if given[name] is not None}


def _bytes(text: str) -> int:
    """Read an amount of memory: 500m, 4g, or bytes."""
    digits, unit = text.strip().lower().removesuffix("b").removesuffix("i"), ""
    if digits[-1:] in UNITS and digits[-1:]:
        digits, unit = digits[:-1], digits[-1]
    try:
        amount = float(digits) * UNITS[unit]
    except ValueError:
        amount = 0.0
    if not 1 <= amount < 2**63:
        raise ParameterError("--memory", repr(text), "it is a number of bytes > 0", "write 500m or 4g")
    return int(amount)


def beside(out: Path, what: str = "episodes") -> Path:
    """Return the path of a table and its figure beside a model, without the extension."""
    stem = out.with_suffix("") if out.suffix else out
    return stem.with_name(f"{stem.name}.{what}")


def keep_apart(out: Path, sources: Sequence[str], what: str = "episodes") -> None:
    """Refuse to overwrite the log, or to write into a folder of it."""
    from spuir.training.drift import drift_file

    if not out.name:
        raise ParameterError("--out", out, "a model is one file", "name a file, such as model.spuir")
    endings = ("csv", "json", "png", "svg")
    names = (out, drift_file(out), *(f"{beside(out, what)}.{ending}" for ending in endings))
    written = [Path(os.path.realpath(path)) for path in names]
    for source in sources:
        read = Path(os.path.realpath(source))
        # A name with brackets is a pattern that does not match itself, so both tests are needed.
        if any(path == read or path.match(str(read)) or _within(path, read) for path in written):
            rule = f"the model and the files beside it would overwrite {source!r} or be written into it"
            raise ParameterError("--out", out, rule, "save the model elsewhere")


def _within(path: Path, folder: Path) -> bool:
    return folder.is_dir() and path.is_relative_to(folder)


@contextmanager
def interruptible(out: Path) -> Iterator[None]:
    """Report, after an interrupt, whether the work can be resumed."""
    try:
        yield
    except KeyboardInterrupt:
        kept = any(out.with_name(out.name + ".progress").glob("*.json"))
        after = "run the same command again to resume" if kept else "nothing was learned yet"
        click.echo(f"stopped; {after}", err=True)
        click.get_current_context().exit(options.INTERRUPTED)


@contextmanager
def _bar(*, hidden: bool) -> Iterator[Callable[[str, int, int], object] | None]:
    """Show a progress bar of rows, with rows per second and the time left."""
    from spuir.cli.terminal import row_bar

    with row_bar(hidden=hidden) as follow:
        yield follow


def _write(trained: "Training", out: Path) -> tuple[list[Path], list[str]]:
    """Write the episode table and its figure beside the model; return the files and notes about a missing one."""
    import numpy as np

    from spuir.results import figures
    from spuir.storage.atomic import write_csv
    from spuir.training.drift import drift_file, drift_rows

    stem = beside(out)
    written = [out, write_csv(Path(f"{stem}.csv"), [line.to_dict() for line in trained.episodes])]
    if moves := list(drift_rows(trained.bandit, trained.episodes)):
        written.append(write_csv(drift_file(out), moves))
    known = [(line.episode + 1.0, line.mean_reward) for line in trained.episodes if line.mean_reward is not None]
    numbers, rewards = np.array(known).T
    try:
        curve = figures.Curve("logged", rewards, np.zeros(len(rewards)), 1, numbers)
        figure = figures.running([curve], ylabel="mean logged reward")
        written += figures.save(figure, stem)
    except MissingExtraError as missing:
        return written, [f"no figure was drawn: {missing}"]
    return written, []


def _describe(
    trained: "Training", policy: "Policy", engine: str, notices: Sequence[str], written: Sequence[Path]
) -> dict[str, Any]:
    """Return the summary of a training as JSON-ready data."""
    from spuir.base.parameters import parameters_of

    encoder = trained.bandit.encoder
    return {
        "policy": {"name": policy.name, "parameters": parameters_of(policy)},
        "engine": engine,
        "rows": trained.rows,
        "actions": [str(label) for label in trained.bandit.actions_],
        "features": encoder.width if encoder else trained.bandit.n_features_in_,
        "episodes": [line.to_dict() for line in trained.episodes],
        "resumed": trained.resumed,
        "seconds": trained.seconds,
        "rows_per_second": trained.rows / trained.seconds,
        "memory": trained.needed.total,
        "notices": list(notices),
        "written": [str(path) for path in written],
    }
