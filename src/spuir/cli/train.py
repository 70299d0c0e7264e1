"""``spuir train``: learn a policy from a log and save the model."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from spuir.cli import log_options, options
from spuir.cli.output import FIGURES, beside, check_out, draw, interruptible, note_unless, print_result, print_written
from spuir.errors import ParameterError

if TYPE_CHECKING:
    from spuir.bandit import Bandit
    from spuir.policies import Policy
    from spuir.training import Training

STRONGEST = 8
"""Coefficients in the summary."""
UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


@click.command("train")
@click.argument("log", nargs=-1, required=True)
@click.option("-p", "--policy", default="auto", show_default=True, help="Policy to train.")
@options.out("File for the model.  [default: that of --from, or model.spuir]")
@log_options.reading
@click.option(
    "--propensity",
    metavar="uniform|own|COLUMN|NUMBER",
    help="Probability of the logged actions: as likely as each other, as the policy itself would act, a column, or a "
    "number.  [default: the log's column propensity]",
)
@click.option(
    "--from",
    "start",
    type=click.Path(path_type=Path),
    metavar="MODEL",
    help="Model to continue: its policy, actions and columns are used.  [default: a new model]",
)
@click.option("--allow-repeat", is_flag=True, help="With --from, learn episodes that the model has learned before.")
@options.PRESET
@click.option(
    "-s", "--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a parameter of the policy; repeatable."
)
@options.config
@click.option("--memory", help="Memory limit, e.g. 4g.  [default: 80 % of free memory]")
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
@click.option("--scale", is_flag=True, help="Standardise numeric columns, with --preset authors-code.")
@click.option("--intercept", is_flag=True, help="Append a constant column, with --preset authors-code.")
@log_options.details
@log_options.encoding
@options.SEED
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
    from spuir.cli.terminal import print_episodes, row_bar
    from spuir.training import make_engine
    from spuir.training import train as learn
    from spuir.training.sharing import check_scratch
    from spuir.training.start import column_of

    continued = None if start is None else load(start)
    out = out or start or Path("model.spuir")
    trained_policy = _new_policy(given) if continued is None else _continued_policy(continued, given)
    encoding = {name: given[name] for name in ("scale", "intercept") if given[name]}
    encoding |= log_options.encoding_in(given)
    check_out(out, [*given["log"], *given["rewards"]])
    propensity = None if given["propensity"] is None else options.parse(given["propensity"])
    note = note_unless(quiet)
    with make_engine(given["engine"], **_engine_options(given)) as engine, interruptible(out):
        if given["rewards"]:
            check_scratch(engine, given["scratch"])
        log, joined = log_options.open_joined(given, column_of(propensity), given["scratch"])
        notices = [str(report) for report in joined]
        for notice in notices:
            note(notice)
        with row_bar(hidden=quiet) as watch:
            trained = learn(
                log,
                trained_policy,
                actions=log_options.labels_in(given, log),
                encoding=encoding,
                engine=engine,
                out=out,
                memory_limit=None if given["memory"] is None else _bytes(given["memory"]),
                propensity=propensity,
                start=continued,
                watch=watch,
                tell=note,
                **{name: given[name] for name in PASSED},
            )
    written, undrawn = _write(trained, out)
    for notice in undrawn:
        note(notice)
    summary = _describe(trained, trained_policy, given["engine"], [*notices, *trained.notices, *undrawn], written)

    def show() -> None:
        print_episodes(summary)
        print_learned(summary["learned"], summary["coefficients"], summary["units"])
        print_drift(summary["drift"])

    print_result(summary, show, as_json, quiet)
    print_written(written, quiet)


PASSED = ("batch_size", "every", "seed", "scratch", "allow_repeat")
"""Options that go to the training as they are."""
FIXED = ("policy", "preset", "settings", "context", "actions", "scale", "intercept", "hashing", "max_levels", "seed")
"""Options that a model to continue has decided already; ``actions`` where it gives labels."""


def _new_policy(given: dict[str, Any]) -> "Policy":
    """Return the policy that the options describe."""
    if given["allow_repeat"]:
        raise ParameterError("--allow-repeat", True, "it belongs to --from", "add --from, or leave it out")
    return options.policy_in(given["policy"], given)


def _continued_policy(bandit: "Bandit", given: dict[str, Any]) -> "Policy":
    """Return the policy of a model to continue; refuse options that would change it, and a file of other ones."""
    from spuir.base.parameters import parameters_of

    context, decided = click.get_current_context(), "the model of --from has decided it"
    for one in context.command.params:
        source, value = context.get_parameter_source(str(one.name)), context.params.get(str(one.name))
        if one.name == "actions" and log_options.labels_in(given) is None:
            continue  # a catalogue, whose new actions join the model
        if one.name in FIXED and source is click.core.ParameterSource.COMMANDLINE:
            remedy = "leave it out, or train a new model without --from"
            got = ",".join(map(str, cast("Sequence[Any]", value))) if isinstance(value, tuple) else value
            raise ParameterError(f"--{options.option_name(one)}", got, decided, remedy)
    policy, wanted = bandit.policy_, options.settings_in(given)  # what is left can only be from the file of --config
    own = {"policy": policy.name, **parameters_of(policy)}
    if context.get_parameter_source("policy") is click.core.ParameterSource.DEFAULT_MAP:
        wanted = {"policy": given["policy"], **wanted}
    for name, value in wanted.items():
        if name not in own or own[name] != value:
            rule = f"{decided}: {own[name]!r}" if name in own else f"the {policy.name} of --from has no such parameter"
            remedy = "correct the file, or train a new model without --from"
            raise ParameterError(f"{name} of --config", repr(value), rule, remedy)
    return policy


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


def _write(trained: "Training", out: Path) -> tuple[list[Path], list[str]]:
    """Write the episode table and its figure beside the model; return the files and notes about a missing one."""
    from spuir.storage.atomic import write_csv
    from spuir.training.coefficient_moves import move_rows, moves_file

    stem, figure = beside(out), beside(out, FIGURES["episodes"])
    written = [out, write_csv(Path(f"{stem}.csv"), [line.to_dict() for line in trained.episodes])]
    if moves := list(move_rows(trained.bandit, trained.episodes)):
        written.append(write_csv(moves_file(out), moves))
    drawn, notes = draw(trained.bandit.plot, figure)
    return [*written, *drawn], notes


def _describe(
    trained: "Training", policy: "Policy", engine: str, notices: Sequence[str], written: Sequence[Path]
) -> dict[str, Any]:
    """Return the summary of a training as JSON-ready data."""
    from spuir.base.parameters import parameters_of
    from spuir.cli.show import learned_actions, learned_coefficients, units

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
        "units": units(trained.bandit),
        "drift": None if trained.drift is None else trained.drift.to_dict(),
        "resumed": trained.resumed,
        "seconds": trained.seconds,
        "rows_per_second": trained.rows / trained.seconds,
        "memory": trained.needed.total,
        "notices": list(notices),
        "written": [str(path) for path in written],
    }
