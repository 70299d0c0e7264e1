"""``spuir train``: from a log to a saved policy."""

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
@click.option("-p", "--policy", default="puir", show_default=True, help="A policy.")
@click.option("--preset", type=click.Choice(["paper", "default"]), default="default", show_default=True)
@click.option("-s", "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of the policy; repeat.")
@click.option("-b", "--batch-size", type=int, help="Rows of an episode (B), in the order of the log.")
@click.option("--every", help="Or how long an episode lasts: hour, day, 15m, 6h.")
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("model.spuir"), show_default=True)
@click.option("--rewards", multiple=True, help="A second table with the rewards, joined by decision_id; repeat.")
@click.option("--default-reward", type=float, default=0.0, show_default=True, help="With --rewards: for silence.")
@click.option("--aggregation", default="earliest", show_default=True, help="With --rewards: which of several counts.")
@click.option("--window", help="With --rewards: how long after its decision a reward counts, as 6h.")
@click.option("--rename-rewards", multiple=True, metavar="OLD=NEW", help="As --rename, in the table of --rewards.")
@click.option("--type-rewards", multiple=True, metavar="NAME=TYPE", help="As --type, in the table of --rewards.")
@options.opening
@click.option("--actions", multiple=True, help="Action labels, separated by commas.  [default: those in the log]")
@click.option("--scale", is_flag=True, help="Standardise numeric columns by the first episode.")
@click.option("--intercept", is_flag=True, help="Append a constant column.")
@click.option("--hashing", type=int, metavar="H", help="Hash text columns into H features.")
@click.option("--max-levels", type=int, help="Levels of a text column with a feature of their own.")
@click.option("--engine", default="local", show_default=True, help="local, dask or spark.")
@click.option("--address", help="With dask: the scheduler, as tcp://host:8786.  [default: a cluster of its own]")
@click.option("--master", help="With spark: the master, as spark://host:7077.  [default: this machine]")
@click.option("--memory", help="The most to use, as 4g; more is refused beforehand.  [default: 80 % of the free]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@options.WORKERS
@options.JSON
@options.QUIET
def train(
    *, policy: str, preset: str, settings: Sequence[str], out: Path, as_json: bool, quiet: bool, **given: Any
) -> None:
    """Learn a policy from LOG, files or folders of decisions with their rewards, and save it.

    A run that was killed goes on where it was when the same command is given again.
    """
    from spuir.cli.terminal import print_episodes
    from spuir.policies import make_policy
    from spuir.training import make_engine
    from spuir.training import train as learn

    values = {name: options.parse(text) for name, text in options.pairs_in(settings, "--set", "alpha=0.3").items()}
    acting = make_policy(policy, preset="paper" if preset == "paper" else None, **values)
    encoding = {name: given[name] for name in ("scale", "intercept") if given[name]}
    encoding |= {name: given[name] for name in ("hashing", "max_levels") if given[name] is not None}
    _keep_apart(out, [*given["log"], *given["rewards"]])
    log, notices = _open(given)
    engine = make_engine(given["engine"], **_where(given))
    tell = _silent if quiet else _tell
    for note in notices:
        tell(note)
    with engine, _interruptible(out), _bar(hidden=quiet) as watch:
        trained = learn(
            log,
            acting,
            batch_size=given["batch_size"],
            every=given["every"],
            actions=[options.parse(name) for name in options.names_in(given["actions"], "--actions")] or None,
            encoding=encoding,
            engine=engine,
            out=out,
            seed=given["seed"],
            memory_limit=None if given["memory"] is None else _bytes(given["memory"]),
            watch=watch,
            tell=tell,
        )
    written, undrawn = _write(trained, out)
    for note in undrawn:
        tell(note)
    told = _describe(trained, acting, given["engine"], [*notices, *trained.notices, *undrawn], written)
    if as_json:
        click.echo(json.dumps(told, indent=2, ensure_ascii=False))
    elif not quiet:
        print_episodes(told)
    if not quiet:
        click.echo(f"wrote {', '.join(told['written'])}", err=True)


def _tell(note: str) -> None:
    """Say something beside the results, as soon as it is known."""
    click.echo(f"· {note}", err=True)


def _silent(_: str) -> None:
    """Say nothing."""


def _open(given: dict[str, Any]) -> tuple[Any, list[str]]:
    """Open the log, joined with its rewards where these are apart; return it and what there is to say of the join."""
    from spuir.logs import join_logs, open_log

    how = options.how_to_open(given)
    source: Any = list(given["log"]) if len(given["log"]) > 1 else given["log"][0]
    there = options.columns_in(given["rename_rewards"], given["type_rewards"], "-rewards")
    if not given["rewards"]:
        _refuse_without_rewards()
        return open_log(source, **how), []
    joined = join_logs(
        open_log(source, **how, kind="decisions"),
        open_log(list(given["rewards"]), **there, time_unit=given["time_unit"], kind="rewards"),
        default=given["default_reward"],
        aggregation=given["aggregation"],
        window=given["window"],
    )
    return joined.log, [str(joined.report)]


def _refuse_without_rewards() -> None:
    """Refuse options that say how rewards are joined where there is no table of them."""
    context = click.get_current_context()
    for name in ("default_reward", "aggregation", "window", "rename_rewards", "type_rewards"):
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = f"--{name.replace('_', '-')}"
            rule, remedy = "it belongs to --rewards", "add --rewards, or leave it out"
            raise ParameterError(option, context.params[name], rule, remedy)


def _where(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the engine; one that belongs to another engine is refused."""
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
        raise ParameterError("--memory", repr(text), "it is a number of bytes, above 0", "write 500m or 4g")
    return int(amount)


def _beside(out: Path) -> Path:
    """Return where the table of the episodes and its figure go, without their endings."""
    stem = out.with_suffix("") if out.suffix else out
    return stem.with_name(stem.name + ".episodes")


def _keep_apart(out: Path, sources: Sequence[str]) -> None:
    """Refuse to write over what is read, or into a folder that is read."""
    if not out.name:
        raise ParameterError("--out", out, "a model is one file", "name a file, such as model.spuir")
    beside = _beside(out)
    written = [Path(os.path.realpath(path)) for path in (out, f"{beside}.csv", f"{beside}.png", f"{beside}.svg")]
    for source in sources:
        place = Path(os.path.realpath(source))
        # A name with brackets is a pattern that does not match itself.
        if any(path == place or path.match(str(place)) or _within(path, place) for path in written):
            rule = f"the model and the files beside it would lie in or on {source!r}, which is read"
            raise ParameterError("--out", out, rule, "save the model elsewhere")


def _within(path: Path, folder: Path) -> bool:
    return folder.is_dir() and path.is_relative_to(folder)


@contextmanager
def _interruptible(out: Path) -> Iterator[None]:
    """Say what an interrupt leaves."""
    try:
        yield
    except KeyboardInterrupt:
        kept = (out.with_name(out.name + ".progress") / "progress.json").is_file()
        after = "what was learnt is kept, and the same command goes on from there" if kept else "nothing was learnt yet"
        click.echo(f"stopped; {after}", err=True)
        click.get_current_context().exit(options.INTERRUPTED)


@contextmanager
def _bar(*, hidden: bool) -> Iterator[Callable[[str, int, int], object] | None]:
    """Show a bar of rows, with rows per second and the time left."""
    from spuir.cli.terminal import row_bar

    with row_bar(hidden=hidden) as follow:
        yield follow


def _write(trained: "Training", out: Path) -> tuple[list[Path], list[str]]:
    """Write the table of the episodes and its figure beside the model; return the files, and why one is missing."""
    import numpy as np

    from spuir.results import figures
    from spuir.storage.atomic import write_csv

    beside = _beside(out)
    written = [out, write_csv(Path(f"{beside}.csv"), [line.to_dict() for line in trained.episodes])]
    known = [(line.episode + 1.0, line.mean_reward) for line in trained.episodes if line.mean_reward is not None]
    places, rewards = np.array(known).T
    try:
        curve = figures.Curve("logged", rewards, np.zeros(len(rewards)), 1, places)
        figure = figures.running([curve], ylabel="logged reward, mean of the episode")
        written += figures.save(figure, beside)
    except MissingExtraError as missing:
        return written, [f"no figure was drawn: {missing}"]
    return written, []


def _describe(
    trained: "Training", policy: "Policy", engine: str, notices: Sequence[str], written: Sequence[Path]
) -> dict[str, Any]:
    """Return what is told of a training as JSON-ready data."""
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
