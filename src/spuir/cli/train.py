"""``spuir train``: learn a policy from a log and save the model."""

import fnmatch
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from spuir.cli import options
from spuir.errors import MissingExtraError, ParameterError

if TYPE_CHECKING:
    from spuir.bandit import Bandit
    from spuir.policies import Policy
    from spuir.training import Training

STRONGEST = 8
"""Coefficients in the summary."""
STARTS = {"episodes": ("csv", "episode,key,rows,"), "tuning": ("json", '{\n  "winner": {')}
"""How the files begin that are written beside a model: the episode table of a training, the results of a tuning."""
FIGURES = {"episodes": "policy", "tuning": "tuning"}
"""What the figure of a run is called: that of a training shows the policy, not its episodes."""
MOVES_START = "episode,key,action,"
UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


@click.command("train")
@click.argument("log", nargs=-1, required=True)
@options.config
@click.option(
    "--from",
    "start",
    type=click.Path(path_type=Path),
    metavar="MODEL",
    help="Model to continue: its policy, actions and columns are used.  [default: a new model]",
)
@click.option("--allow-repeat", is_flag=True, help="With --from, learn episodes that the model has learned before.")
@click.option("-p", "--policy", default="auto", show_default=True, help="Policy to train.")
@options.PRESET
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
    help="File for the model.  [default: that of --from, or model.spuir]",
)
@options.joining
@options.opening
@click.option(
    "--propensity",
    metavar="uniform|own|COLUMN|NUMBER",
    help="Probability of the logged actions: as likely as each other, as the policy itself would act, a column, or a "
    "number.  [default: the log's column propensity]",
)
@options.catalogue
@click.option("--scale", is_flag=True, help="Standardise numeric columns, with --preset authors-code.")
@click.option("--intercept", is_flag=True, help="Append a constant column, with --preset authors-code.")
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
@click.option(
    "--scratch",
    type=click.Path(path_type=Path),
    help="Folder for temporary files; workers on other machines must see it.  [default: the folder of --out, and the "
    "system's for --rewards]",
)
@click.option("--memory", help="Memory limit, e.g. 4g.  [default: 80 % of free memory]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random draws.")
@options.WORKERS
@options.JSON
@options.QUIET
def train(*, out: Path | None, start: Path | None, as_json: bool, quiet: bool, **given: Any) -> None:
    """Learn a policy from LOG, and save it as a model. LOG is files or folders of decisions with their rewards.

    Run the same command again to resume an interrupted training. With --from, a saved model learns the episodes of
    LOG on top of what it knows.
    """
    from spuir import load
    from spuir.cli.model_tables import print_drift, print_learned
    from spuir.cli.terminal import print_episodes
    from spuir.training import make_engine
    from spuir.training import train as learn
    from spuir.training.sharing import check_scratch

    continued = None if start is None else load(start)
    out = out or start or Path("model.spuir")
    trained_policy = _new_policy(given) if continued is None else _continued_policy(continued, given)
    encoding = {name: given[name] for name in ("scale", "intercept") if given[name]}
    encoding |= {name: given[name] for name in ("hashing", "max_levels") if given[name] is not None}
    keep_apart(out, [*given["log"], *given["rewards"]])
    propensity = None if given["propensity"] is None else options.parse(given["propensity"])
    note = _ignore if quiet else print_note
    with make_engine(given["engine"], **_engine_options(given)) as engine, interruptible(out):
        if given["rewards"]:
            check_scratch(engine, given["scratch"])
        log, notices = options.open_with_rewards(given, propensity, given["scratch"])
        for notice in notices:
            note(notice)
        with _bar(hidden=quiet) as watch:
            trained = learn(
                log,
                trained_policy,
                batch_size=given["batch_size"],
                every=given["every"],
                actions=options.labels_in(given),
                encoding=encoding,
                engine=engine,
                out=out,
                seed=given["seed"],
                memory_limit=None if given["memory"] is None else _bytes(given["memory"]),
                propensity=propensity,
                scratch=given["scratch"],
                start=continued,
                allow_repeat=given["allow_repeat"],
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
        print_learned(summary["learned"], summary["coefficients"])
        print_drift(summary["drift"])
    if not quiet:
        click.echo(f"wrote {', '.join(summary['written'])}", err=True)


FIXED = ("policy", "preset", "settings", "context", "actions", "scale", "intercept", "hashing", "max_levels", "seed")
"""Options that a model to continue has decided already; ``actions`` where it gives labels."""


def _new_policy(given: dict[str, Any]) -> "Policy":
    """Return the policy that the options describe."""
    from spuir.training import policy_for_logs

    if given["allow_repeat"]:
        raise ParameterError("--allow-repeat", True, "it belongs to --from", "add --from, or leave it out")
    return policy_for_logs(given["policy"], preset=options.preset_of(given["preset"]), **_settings(given))


def _settings(given: dict[str, Any]) -> dict[str, Any]:
    """Return the policy's parameters that were set."""
    pairs = options.pairs_in(given["settings"], "--set", "alpha=0.3")
    return {name: options.parse(text) for name, text in pairs.items()}


def _continued_policy(bandit: "Bandit", given: dict[str, Any]) -> "Policy":
    """Return the policy of a model to continue; refuse options that would change it, and a file of other ones."""
    from spuir.base.parameters import parameters_of

    context, decided = click.get_current_context(), "the model of --from has decided it"
    for one in context.command.params:
        source, value = context.get_parameter_source(str(one.name)), context.params.get(str(one.name))
        if one.name == "actions" and options.labels_in(given) is None:
            continue  # a catalogue, whose new actions join the model
        if one.name in FIXED and source is click.core.ParameterSource.COMMANDLINE:
            remedy = "leave it out, or train a new model without --from"
            got = ",".join(map(str, cast("Sequence[Any]", value))) if isinstance(value, tuple) else value
            raise ParameterError(f"--{options.option_name(one)}", got, decided, remedy)
    policy, wanted = bandit.policy_, _settings(given)  # what is wanted now can only be from the file of --config
    own = {"policy": policy.name, **parameters_of(policy)}
    if context.get_parameter_source("policy") is click.core.ParameterSource.DEFAULT_MAP:
        wanted = {"policy": given["policy"], **wanted}
    for name, value in wanted.items():
        if name not in own or own[name] != value:
            rule = f"{decided}: {own[name]!r}" if name in own else f"the {policy.name} of --from has no such parameter"
            remedy = "correct the file, or train a new model without --from"
            raise ParameterError(f"{name} of --config", repr(value), rule, remedy)
    return policy


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
    beside_it = (f"{beside(out, name)}.{ending}" for name in (what, FIGURES[what]) for ending in endings)
    _check_replaced(out, what)
    check_apart((out, drift_file(out), *beside_it), sources, "the model and the files beside it")


def check_apart(written: Sequence[Path | str], sources: Sequence[str], what: str = "the file") -> None:
    """Refuse to overwrite a source, or to write into a folder that is one; ``written`` begins with --out."""
    paths = [Path(os.path.realpath(path)) for path in written]
    for source in sources:
        read, folder = Path(os.path.realpath(source)), _fixed_folder(source)
        # A name with brackets is a pattern that does not match itself, so both tests are needed.
        if any(path == read or _matches(path, read) or _within(path, folder) for path in paths):
            rule = f"{what} would overwrite {source!r} or be written into it"
            raise ParameterError("--out", written[0], rule, "name another file, elsewhere")


def _within(path: Path, folder: Path | None) -> bool:
    return folder is not None and folder.is_dir() and path.is_relative_to(folder)


def _fixed_folder(source: str) -> Path | None:
    """Return the folder that a source reads: itself, or what a pattern has before its first wildcard, if anything."""
    names = Path(source).parts
    fixed = [name for at, name in enumerate(names) if not any(mark in "/".join(names[: at + 1]) for mark in "*?[")]
    return Path(os.path.realpath(Path(*fixed))) if fixed else None


def _matches(path: Path, pattern: Path) -> bool:
    """Return whether a path matches a pattern, in which ``**`` stands for any number of folders."""
    if not pattern.parts or not path.parts:
        return not pattern.parts and not path.parts
    if pattern.parts[0] == "**":
        rest = Path(*pattern.parts[1:])
        return any(_matches(Path(*path.parts[at:]), rest) for at in range(len(path.parts) + 1))
    same = fnmatch.fnmatchcase(path.parts[0], pattern.parts[0])
    return same and _matches(Path(*path.parts[1:]), Path(*pattern.parts[1:]))


def _check_replaced(out: Path, what: str) -> None:
    """Refuse to replace a file that no earlier run wrote: the first line of its table tells."""
    from spuir.training.drift import drift_file

    stem, figure, (ending, start) = beside(out, what), beside(out, FIGURES[what]), STARTS[what]
    table, moves = Path(f"{stem}.{ending}"), drift_file(out)
    drawn = (Path(f"{figure}.png"), Path(f"{figure}.svg"))
    groups = {table: (start, (table, *drawn)), moves: (MOVES_START, (moves,))}
    for first, (line, files) in groups.items():
        ours = False
        with suppress(OSError, UnicodeDecodeError), first.open(encoding="utf-8") as text:
            ours = text.read(len(line)) == line
        taken = [path for path in files if os.path.exists(path)]
        if taken and not ours:
            rule = f"the files beside the model would replace {os.fspath(taken[0])!r}, which spuir did not write"
            raise ParameterError("--out", out, rule, "save the model elsewhere, or move that file")


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
    from spuir.storage.atomic import write_csv
    from spuir.training.drift import drift_file, drift_rows

    stem, figure = beside(out), beside(out, FIGURES["episodes"])
    written = [out, write_csv(Path(f"{stem}.csv"), [line.to_dict() for line in trained.episodes])]
    if moves := list(drift_rows(trained.bandit, trained.episodes)):
        written.append(write_csv(drift_file(out), moves))
    drawn = [Path(f"{figure}.{kind}") for kind in ("png", "svg")]
    try:
        trained.bandit.plot(path=drawn[0])
        written += drawn
    except MissingExtraError as missing:
        return written, [f"no figure was drawn: {missing}"]
    except OSError as failure:
        for path in drawn:
            path.unlink(missing_ok=True)  # half of it may have been written
        return written, [f"no figure was drawn: {failure.strerror or failure}"]
    return written, []


def _describe(
    trained: "Training", policy: "Policy", engine: str, notices: Sequence[str], written: Sequence[Path]
) -> dict[str, Any]:
    """Return the summary of a training as JSON-ready data."""
    from spuir.base.parameters import parameters_of
    from spuir.cli.show import learned_actions, learned_coefficients

    encoder = trained.bandit.encoder
    return {
        "policy": {"name": policy.name, "parameters": parameters_of(policy)},
        "engine": engine,
        "rows": trained.rows,
        "actions": [str(label) for label in trained.bandit.actions_],
        "features": encoder.width if encoder else trained.bandit.n_features_in_,
        "episodes": [line.to_dict() for line in trained.episodes],
        "learned": learned_actions(trained.bandit),
        "coefficients": learned_coefficients(trained.bandit, STRONGEST),
        "drift": None if trained.drift is None else trained.drift.to_dict(),
        "resumed": trained.resumed,
        "seconds": trained.seconds,
        "rows_per_second": trained.rows / trained.seconds,
        "memory": trained.needed.total,
        "notices": list(notices),
        "written": [str(path) for path in written],
    }
