"""``spuir train``: learn a policy from a log and save the model."""

import fnmatch
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spuir.cli import options
from spuir.errors import MissingExtraError, ParameterError

if TYPE_CHECKING:
    from spuir.bandit import Bandit
    from spuir.policies import Policy
    from spuir.training import Training
    from spuir.training.engines.base import Engine

STRONGEST = 8
"""Coefficients in the summary."""
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
    help="File for the model.  [default: that of --from, or model.spuir]",
)
@click.option("--rewards", multiple=True, help="Table of rewards, joined to the log by decision_id; repeatable.")
@click.option(
    "--default-reward", type=float, default=0.0, show_default=True, help="Reward assumed when --rewards has none."
)
@click.option(
    "--aggregation",
    default="earliest",
    show_default=True,
    help="How to combine several rewards of one decision: earliest, sum, average, median, min or max.",
)
@click.option("--window", help="Time after a decision within which rewards count, e.g. 6h.  [default: no limit]")
@click.option(
    "--as-of",
    metavar="TIME",
    help="Time until which --rewards is complete; decisions whose --window ends later are left out.  "
    "[default: the time of the last reward]",
)
@click.option("--reward-id-column", metavar="NAME", help="Column of the id in --rewards.  [default: decision_id]")
@click.option("--reward-time-column", metavar="NAME", help="Column of the time in --rewards.  [default: time]")
@click.option("--rename-rewards", multiple=True, metavar="OLD=NEW", help="Same as --rename, for --rewards.")
@click.option("--type-rewards", multiple=True, metavar="NAME=TYPE", help="Same as --type, for --rewards.")
@options.opening
@click.option(
    "--propensity",
    metavar="uniform|own|COLUMN|NUMBER",
    help="Probability of the logged actions: as likely as each other, as the policy itself would act, a column, or a "
    "number.  [default: the log's column propensity]",
)
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
    from spuir.cli.terminal import print_episodes, print_learned
    from spuir.training import make_engine
    from spuir.training import train as learn

    continued = None if start is None else load(start)
    out = out or start or Path("model.spuir")
    trained_policy = _new_policy(given) if continued is None else _continued_policy(continued)
    encoding = {name: given[name] for name in ("scale", "intercept") if given[name]}
    encoding |= {name: given[name] for name in ("hashing", "max_levels") if given[name] is not None}
    _keep_apart(out, [*given["log"], *given["rewards"]])
    propensity = None if given["propensity"] is None else options.parse(given["propensity"])
    note = _ignore if quiet else _print_note
    with make_engine(given["engine"], **_engine_options(given)) as engine, _interruptible(out):
        log, notices = _open(given, engine, propensity)
        for notice in notices:
            note(notice)
        with _bar(hidden=quiet) as watch:
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
    if not quiet:
        click.echo(f"wrote {', '.join(summary['written'])}", err=True)


REWARD_COLUMNS = ("reward_id_column", "reward_time_column", "rename_rewards", "type_rewards")
"""Options about the columns of --rewards alone."""
FIXED = ("policy", "preset", "settings", "context", "actions", "scale", "intercept", "hashing", "max_levels", "seed")
"""Options that a model to continue has decided already."""


def _new_policy(given: dict[str, Any]) -> "Policy":
    """Return the policy that the options describe."""
    from spuir.training import policy_for_logs

    if given["allow_repeat"]:
        raise ParameterError("--allow-repeat", True, "it belongs to --from", "add --from, or leave it out")
    pairs = options.pairs_in(given["settings"], "--set", "alpha=0.3")
    values = {name: options.parse(text) for name, text in pairs.items()}
    return policy_for_logs(given["policy"], preset="paper" if given["preset"] == "paper" else None, **values)


def _continued_policy(bandit: "Bandit") -> "Policy":
    """Return the policy of a model to continue; refuse options that would change it."""
    context = click.get_current_context()
    for one in context.command.params:
        source = context.get_parameter_source(str(one.name))
        if one.name in FIXED and source is click.core.ParameterSource.COMMANDLINE:
            rule, remedy = "the model of --from has decided it", "leave it out, or train a new model without --from"
            raise ParameterError(f"--{options.option_name(one)}", context.params[str(one.name)], rule, remedy)
    return bandit.policy_


def _print_note(note: str) -> None:
    """Print a note on the error stream, as soon as it is known."""
    click.echo(f"· {note}", err=True)


def _ignore(_: str) -> None:
    """Print nothing."""


def _open(given: dict[str, Any], engine: "Engine", propensity: Any) -> tuple[Any, list[str]]:
    """Open the log, joined with its rewards if they are in another table; return it with notes about the join."""
    from spuir.logs import join_logs, open_log
    from spuir.training.propensities import with_column
    from spuir.training.sharing import check_scratch

    roles = [role for role in ("id", *options.ROLES) if role != "reward" or not given["rewards"]]
    how = with_column(options.how_to_open(given, roles), propensity)
    source: Any = list(given["log"]) if len(given["log"]) > 1 else given["log"][0]
    reward_columns = options.columns_in(given["rename_rewards"], given["type_rewards"], "-rewards")
    named = {"id": given["reward_id_column"], "time": given["reward_time_column"], "reward": given["reward_column"]}
    renamed = options.role_columns({f"{role}_column": name for role, name in named.items()}, named)
    reward_columns["rename"] = (reward_columns["rename"] or {}) | renamed or None
    if not given["rewards"]:
        _refuse_without_rewards()
        return open_log(source, **how), []
    check_scratch(engine, given["scratch"])
    joined = join_logs(
        open_log(source, **how, kind="decisions"),
        open_log(list(given["rewards"]), **reward_columns, time_unit=given["time_unit"], kind="rewards"),
        default=given["default_reward"],
        aggregation=given["aggregation"],
        window=given["window"],
        as_of=_time(given["as_of"]),
        folder=given["scratch"],
    )
    return joined.log, [str(joined.report)]


def _time(text: str | None) -> str | float | None:
    """Read a time: epoch seconds, or a date that the library reads itself, 20240330 included."""
    value = None if text is None else options.parse(text)
    return value if isinstance(value, int | float) and abs(value) >= 1e8 else text


def _refuse_without_rewards() -> None:
    """Refuse the options of the join if there is no table of rewards."""
    context = click.get_current_context()
    for name in ("default_reward", "aggregation", "window", "as_of", *REWARD_COLUMNS):
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = f"--{name.replace('_', '-')}"
            rule, remedy = "it belongs to --rewards", "add --rewards, or leave it out"
            raise ParameterError(option, context.params[name], rule, remedy)


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


def _beside(out: Path) -> tuple[Path, Path, Path]:
    """Return the paths of the episode table and of the figure of the policy."""
    stem = out.with_suffix("") if out.suffix else out
    table, png, svg = (stem.with_name(stem.name + end) for end in (".episodes.csv", ".policy.png", ".policy.svg"))
    return table, png, svg


def _keep_apart(out: Path, sources: Sequence[str]) -> None:
    """Refuse to overwrite the log, or to write into a folder of it."""
    if not out.name:
        raise ParameterError("--out", out, "a model is one file", "name a file, such as model.spuir")
    beside = _beside(out)
    written = [Path(os.path.realpath(path)) for path in (out, *beside)]
    _check_replaced(out, beside)
    for source in sources:
        read, folder = Path(os.path.realpath(source)), _fixed_folder(source)
        # A name with brackets is a pattern that does not match itself, so both tests are needed.
        if any(path == read or _matches(path, read) or _within(path, folder) for path in written):
            rule = f"the model and the files beside it would overwrite {source!r} or be written into it"
            raise ParameterError("--out", out, rule, "save the model elsewhere")


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


def _check_replaced(out: Path, beside: tuple[Path, Path, Path]) -> None:
    """Refuse to replace a file that an earlier training did not write: the episode table tells."""
    table, ours = beside[0], False
    with suppress(OSError, UnicodeDecodeError), table.open(encoding="utf-8") as lines:
        ours = lines.readline().startswith("episode,key,rows,")
    taken = [path for path in beside if os.path.exists(path)]
    if taken and not ours:
        rule = f"the episode table and its figure would replace {os.fspath(taken[0])!r}, which no training wrote"
        raise ParameterError("--out", out, rule, "save the model elsewhere, or move that file")


@contextmanager
def _interruptible(out: Path) -> Iterator[None]:
    """Report, after an interrupt, whether the training can be resumed."""
    try:
        yield
    except KeyboardInterrupt:
        kept = (out.with_name(out.name + ".progress") / "progress.json").is_file()
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

    table, *drawn = _beside(out)
    written = [out, write_csv(table, [line.to_dict() for line in trained.episodes])]
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
        "resumed": trained.resumed,
        "seconds": trained.seconds,
        "rows_per_second": trained.rows / trained.seconds,
        "memory": trained.needed.total,
        "notices": list(notices),
        "written": [str(path) for path in written],
    }
