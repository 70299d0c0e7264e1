"""``spuir evaluate``: estimate what policies would have earned on the decisions of a log."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spuir.cli import log_options, options
from spuir.cli.output import check_apart, note_unless, print_result, print_written
from spuir.errors import MissingExtraError, ParameterError

if TYPE_CHECKING:
    from spuir.evaluation import EvaluationReport

NOT_BETTER = 1
"""Exit code if a policy is not better than the one named by --fail-unless-better-than."""


@click.command("evaluate")
@click.argument("log", nargs=-1, required=True)
@click.option("-m", "--model", "models", multiple=True, help="Saved model to evaluate; repeatable.")
@click.option(
    "-p",
    "--policy",
    help="Policy to train on the earlier part of the log and to evaluate on the rest.  [default: none]",
)
@options.out("HTML page to write, with figures.  [default: no page]")
@log_options.reading
@click.option(
    "--propensity",
    help="Where propensities come from: uniform, estimate, or the name of a column.  [default: propensity]",
)
@click.option(
    "--against",
    multiple=True,
    help="Baselines, separated by commas: logged, uniform, always:LABEL, always:*.  [default: logged,uniform,always:*]",
)
@click.option("--after", help="Use the decisions at and after this time only, e.g. 2026-05-01.  [default: all]")
@click.option(
    "--holdout",
    type=float,
    default=0.3,
    show_default=True,
    help="Share of the log, the latest part, to evaluate --policy on.",
)
@click.option(
    "--fail-unless-better-than",
    "gate",
    metavar="NAME",
    help="Exit with code 1 unless every evaluated policy is better than NAME, e.g. logged.  [default: exit with 0]",
)
@click.option(
    "--on-training-rows",
    is_flag=True,
    help="Evaluate a model even on rows that it learned from: the value is too high.",
)
@options.PRESET
@click.option(
    "-s", "--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a parameter of --policy; repeatable."
)
@options.config
@click.option("--estimator", help="Estimator for the verdicts, e.g. dr or snips.  [default: dr]")
@click.option(
    "--reward-model",
    default="linear",
    show_default=True,
    help="Model of the rewards: linear, nystroem or none.",
)
@click.option(
    "--interval",
    default="normal",
    show_default=True,
    help="Kind of intervals: normal, bootstrap, empirical-bernstein or sequence.",
)
@click.option("--level", type=float, default=0.95, show_default=True, help="Level of the intervals.")
@click.option(
    "--group-by", help="What is independent: row, unit or episode.  [default: unit if the log has unit_id, else row]"
)
@click.option("--segment", help="Context column to show action shares by.  [default: the first text column]")
@log_options.details
@options.JSON
@options.QUIET
def evaluate(*, models: Sequence[str], policy: str | None, as_json: bool, quiet: bool, **given: Any) -> None:
    """Estimate what policies would have earned on LOG.

    LOG is files or folders of decisions with rewards and propensities. Every evaluated policy is compared with today's
    decisions, with choosing at random, and with always choosing the same action. The report says whether LOG can tell.
    """
    from spuir.cli.terminal import row_bar
    from spuir.evaluation import evaluate as judge

    if policy is None and given["settings"]:
        raise ParameterError("--set", given["settings"][0], "it belongs to --policy", "add --policy, or leave it out")
    if policy is not None and Path(policy).is_file():
        rule, remedy = "it names a policy to train", "evaluate a saved model with --model"
        raise ParameterError("--policy", f"the file {policy!r}", rule, remedy)
    if given["out"] is not None:
        if given["out"].suffix.lower() not in (".html", ".htm"):
            raise ParameterError("--out", given["out"], "the page is HTML", "name a file that ends in .html")
        check_apart([given["out"]], [*given["log"], *given["rewards"], *models])
    log_options.refuse_labels(given)
    chosen = given["propensity"] if given["propensity"] in ("uniform", "estimate") else None
    log, joined = log_options.open_joined(given, given["propensity"] if chosen is None else None)
    note = note_unless(quiet)
    notices = [str(report) for report in joined]
    for notice in notices:
        note(notice)
    policies: dict[str, Any] = {name: Path(name) for name in models}
    with row_bar(hidden=quiet) as watch:
        if policy is not None:
            policies[policy] = options.policy_in(policy, given)
        report = judge(
            log,
            policies,
            watch=watch,
            propensity=chosen,
            reward_model=None if given["reward_model"] == "none" else given["reward_model"],
            **({"against": names} if (names := options.names_in(given["against"], "--against")) else {}),
            **{name: given[name] for name in PASSED},
        )
    _show(report, notices, given["out"], as_json, quiet)
    if given["gate"] is not None:
        _check_gate(report, given["gate"], quiet)


PASSED = (
    "after",
    "holdout",
    "estimator",
    "interval",
    "level",
    "group_by",
    "segment",
    "batch_size",
    "every",
    "on_training_rows",
)
"""Options that go to the evaluation as they are."""


def _show(report: "EvaluationReport", notices: list[str], out: Path | None, as_json: bool, quiet: bool) -> None:
    """Print the report and write the page."""
    from spuir.cli.terminal import print_evaluation

    if out is not None:
        try:
            report.to_html(out)
        except MissingExtraError as missing:
            raise ParameterError("--out", out, f"the page cannot be drawn ({missing})", "leave it out") from None
    found = report.to_dict()
    found["notices"] = [*notices, *found["notices"]]
    print_result(found, lambda: print_evaluation(report), as_json, quiet)
    if out is not None:
        print_written([out], quiet)


def _check_gate(report: "EvaluationReport", gate: str, quiet: bool) -> None:
    """End with a code if an evaluated policy is not better than the gate."""
    behind = [name for name in report.evaluated if not report.is_better(name, gate)]
    if behind or not report.evaluated:
        if not quiet:
            click.echo(f"not better than {gate}: {', '.join(behind) or 'nothing was evaluated'}", err=True)
        click.get_current_context().exit(NOT_BETTER)
