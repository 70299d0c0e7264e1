"""``spuir show``: what a saved model is, how it was made, and what it learned."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spuir.cli import options

if TYPE_CHECKING:
    from spuir.bandit import Bandit


@click.command("show")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "-n",
    "--coefficients",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Number of coefficients to show, strongest first.",
)
@options.JSON
def show(*, model: Path, coefficients: int, as_json: bool) -> None:
    """Show what MODEL is, how it was made, its rewards per action, its action mix and its strongest coefficients."""
    from spuir import load
    from spuir.cli.terminal import print_model

    described = describe(load(model), coefficients)
    if as_json:
        click.echo(json.dumps(described, indent=2, ensure_ascii=False))
    else:
        print_model(described)


def describe(bandit: "Bandit", coefficients: int) -> dict[str, Any]:
    """Return what a model is as JSON-ready data, with this many coefficients."""
    from spuir.base.parameters import parameters_of

    policy, encoder, notes = bandit.policy_, bandit.encoder, bandit._notes
    return {
        "policy": {"name": policy.name, "parameters": parameters_of(policy)},
        "version": bandit.version_,
        "created": notes.created,
        "episodes": bandit.n_episodes_,
        "columns": [] if bandit._model.names is None else list(bandit._model.names),
        "features": encoder.width if encoder else None,
        "metadata": dict(notes.metadata),
        "training": dict(notes.training),
        "actions": learned_actions(bandit),
        "coefficients": learned_coefficients(bandit, coefficients),
    }


def learned_actions(bandit: "Bandit") -> list[dict[str, Any]]:
    """Return for each action its rewards in the log, and its share under the policy if a training noted it."""
    mix = dict(bandit._notes.training.get("mix", []))
    ramping = bandit._model.caps
    return [
        {
            "action": str(row.action),
            "rows": row.rows,
            "mean_reward": _known(row.mean),
            "standard_error": _known(row.standard_error),
            "share": mix.get(str(row.action)),
            "active": bool(active),
            "ramping": ramping is not None and math.isfinite(ramping[code]),
        }
        for code, (row, active) in enumerate(zip(bandit.logged_rewards(), bandit.active_, strict=True))
    ]


def learned_coefficients(bandit: "Bandit", count: int) -> list[dict[str, Any]]:
    """Return the strongest coefficients, none of a policy without a reward model."""
    from spuir.tables.coefficients import strongest

    if "ridge" not in bandit.policy_.traits or bandit._model.state is None:
        return []
    return [
        {
            "action": str(row.action),
            "feature": row.feature,
            "coefficient": row.coefficient,
            "standard_error": _known(row.standard_error),
        }
        for row in strongest(bandit.coefficient_table(), count)
    ]


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
