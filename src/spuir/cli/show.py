"""``spuir show``: what a saved model is, how it was made, and what it learned."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spuir.cli import options
from spuir.cli.output import print_result

if TYPE_CHECKING:
    from spuir.bandit import Bandit
    from spuir.tables.coefficients import Coefficient


@click.command("show")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "-n",
    "--coefficients",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Number of coefficients, shared coefficients, contrasts and moves to show, strongest first.",
)
@options.JSON
def show(*, model: Path, coefficients: int, as_json: bool) -> None:
    """Show what MODEL is, how it was made, and what it learned.

    That is: rewards and shares of actions, the strongest coefficients, where two actions differ most, and which
    coefficients moved during the training. Of a model with a catalogue: its features, and what they say about the
    reward.
    """
    from spuir import load
    from spuir.cli.model_tables import print_model

    described = describe(load(model), coefficients, model)
    print_result(described, lambda: print_model(described), as_json)


def describe(bandit: "Bandit", coefficients: int, path: Path) -> dict[str, Any]:
    """Return what a model is as JSON-ready data, with this many coefficients; ``path`` is its file."""
    from spuir.base.parameters import parameters_of
    from spuir.storage.atomic import finite
    from spuir.training.coefficient_moves import read_moves

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
        "diagnosis": bandit.diagnosis(),
        "actions": learned_actions(bandit),
        "coefficients": learned_coefficients(bandit, coefficients),
        "units": units(bandit),
        "catalogue": catalogue(bandit),
        "shared": shared_coefficients(bandit, coefficients),
        "products": products(bandit),
        "contrasts": contrasts(bandit, coefficients),
        "moves": finite(read_moves(path)[:coefficients]),
    }


def learned_actions(bandit: "Bandit") -> list[dict[str, Any]]:
    """Return for each action its rewards in the log, and its share under the policy if a training noted it."""
    mix = dict(bandit._notes.training.get("mix", []))
    ramping, imputed = bandit._model.caps, imputed_shares(bandit)
    return [
        {
            "action": str(row.action),
            "rows": row.rows,
            "mean_reward": _known(row.mean),
            "standard_error": _known(row.standard_error),
            "share": mix.get(str(row.action)),
            "imputed_share": imputed[code],
            "active": bool(active),
            "ramping": ramping is not None and math.isfinite(ramping[code]),
        }
        for code, (row, active) in enumerate(zip(bandit.logged_rewards(), bandit.active_, strict=True))
    ]


def learned_coefficients(bandit: "Bandit", count: int) -> list[dict[str, Any]]:
    """Return the strongest coefficients, none of a policy without a reward model."""
    from spuir.tables.coefficients import strongest

    rows = bandit.coefficient_table() if _estimates(bandit) else []
    return [_line(row) for row in strongest(rows, count)]


def units(bandit: "Bandit") -> str:
    """Return what coefficients are per: an encoder that scales has made features of standard deviations."""
    known = "per unit of the column"
    if bandit.encoder is not None and bandit.encoder.scaled:
        known = "per standard deviation of a number or date, which the encoder scales, and per unit of any other column"
    fourier = getattr(bandit.policy_, "features", None) == "fourier"
    return f"{known}; the random features fourier_0, fourier_1, … have no unit" if fourier else known


def _line(row: "Coefficient", named: str = "coefficient") -> dict[str, Any]:
    """Return a coefficient, or what ``named`` says that it is, as JSON-ready data."""
    known = {"action": str(row.action), "feature": row.feature, named: row.coefficient}
    return known | {"standard_error": _known(row.standard_error)}


def catalogue(bandit: "Bandit") -> dict[str, Any] | None:
    """Return which features describe the actions of a model, and which come with each decision; None without any."""
    known = bandit._model.catalogue
    if known is None:
        return None
    columns = [] if known.encoder is None else list(known.encoder.columns)
    live = int(bandit.active_.sum())
    return {"actions": live, "columns": columns, "features": list(known.names), "per_decision": list(known.varying)}


def shared_coefficients(bandit: "Bandit", count: int) -> list[dict[str, Any]]:
    """Return what the features of actions say, the strongest first; nothing of a model without a catalogue."""
    from spuir.tables.coefficients import Coefficient, strongest

    known = bandit._model.catalogue
    if known is None or known.encoder is None or not bandit.n_episodes_:
        return []
    frame = bandit.shared_coefficients_frame()
    rows = [Coefficient(*row) for row in frame.itertuples(index=False) if tuple(row)[:2] != ("constant", "constant")]
    lines = [_line(row) for row in strongest(rows, count)]
    return [{"action_feature": line.pop("action"), **line} for line in lines]


def products(bandit: "Bandit") -> str | None:
    """Return what the shared coefficients leave out where products of features of actions act; None elsewhere."""
    if not bandit.diagnosis().get("curved", {}).get("acts"):
        return None
    left = "the model also has products of features, which shared coefficients leave out"
    policy: Any = bandit.policy_
    return left if policy.products is True else f"{left}, as do the ridges and all standard errors"


def contrasts(bandit: "Bandit", count: int) -> list[dict[str, Any]]:
    """Return where two actions differ most, in standard errors.

    Nothing of a policy without a reward model, nor of one whose actions share what they learned, so that the errors of
    two actions are not independent.
    """
    from spuir.tables.coefficients import strongest_contrasts

    if not _estimates(bandit) or bandit._model.catalogue is not None:
        return []
    found = strongest_contrasts(bandit.coefficient_table(), len(bandit.actions_), count)
    return [{"action": str(row.action), "against": str(other)} | _line(row, "difference") for other, row in found]


def imputed_shares(bandit: "Bandit") -> list[float]:
    """Return the share of imputed rows in the fit of each action, 0 of a policy without a reward model."""
    policy: Any = bandit.policy_
    if not _estimates(bandit):
        return [0.0] * len(bandit.actions_)
    return policy.imputed_shares(bandit.state_).tolist()


def _estimates(bandit: "Bandit") -> bool:
    """Return whether a model has learned coefficients."""
    return "ridge" in bandit.policy_.traits and bandit._model.state is not None


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
