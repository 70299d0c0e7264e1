"""What ``spuir show``, ``train`` and ``decide`` print of a model: what it is, and what it learned."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from spuir.base.counting import counted
from spuir.cli.terminal import PAIRS, SHOWN_ACTIONS, mean_and_error, print_table

DRIFT_SHOWN = 0.01
"""The smallest share of drifted values of a column that is shown."""


def print_model(model: Mapping[str, Any]) -> None:
    """Print what a model is, how it was made, and what it learned."""
    training = dict(model["training"])
    for hidden in ("mix", "mix rows"):  # the mix is in the table of actions
        training.pop(hidden, None)
    training["log"] = ", ".join(training.get("log", [])) or None
    parameters = model["policy"]["parameters"]
    rows = {
        "policy": model["policy"]["name"],
        "parameters": ", ".join(f"{name}={value}" for name, value in parameters.items()),
        "version": f"{model['version']} ({counted(model['episodes'], 'episode')})",
        "saved": model["created"] or "not known (an older version of spuir)",
        "columns": ", ".join(model["columns"]) or "not named",
        **_about_catalogue(model["catalogue"]),
        **{f"training: {name}": str(value) for name, value in training.items() if value is not None},
        **{f"metadata: {name}": str(value) for name, value in model["metadata"].items()},
        **{f"learned: {name}": _shown(value) for name, value in model["diagnosis"].items() if value is not None},
    }
    print_table(("", ""), [(Text(name, style="bold"), value) for name, value in rows.items()], **PAIRS)
    print_learned(model["actions"], model["coefficients"], model["units"])
    shared = [
        f"reward per unit of the action's feature times the context's, which is {model['units']}",
        "'constant' is 1 for every one",
        *([model["products"]] if model["products"] else []),
    ]
    _print_estimates(
        {"feature of the action": "action_feature", "feature of the context": "feature", "coefficient": "coefficient"},
        model["shared"],
        title="shared coefficients",
        caption="; ".join(shared),
    )
    names = {name: name for name in ("action", "against", "feature", "difference")}
    _print_estimates(names, model["contrasts"], title="largest contrasts of two actions", caption=model["units"])
    _print_moves(model["moves"])


def _about_catalogue(catalogue: Mapping[str, Any] | None) -> dict[str, str]:
    """Return what describes the actions, by heading."""
    if catalogue is None:
        return {}
    features = ", ".join(catalogue["columns"]) or "no features"
    found = {"catalogue": counted(catalogue["actions"], "action", f"by {features}")}
    return found | ({"per decision": ", ".join(catalogue["per_decision"])} if catalogue["per_decision"] else {})


def _shown(value: Any) -> str:
    """Return an estimate with three digits, a record of them as name=value."""
    if isinstance(value, dict):
        return ", ".join(f"{name}={_shown(one)}" for name, one in value.items())
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _print_estimates(columns: Mapping[str, str], lines: Sequence[Mapping[str, Any]], **look: Any) -> None:
    """Print records, if there are any, under these headings; the last column is an estimate with its error.

    It has significant digits, since a coefficient per euro may be 1e-6.
    """
    *names, estimate = columns.values()
    rows = [
        [
            *(line[name] for name in names),
            f"{line[estimate]:.3g}" + ("" if line["standard_error"] is None else f" ± {line['standard_error']:.2g}"),
        ]
        for line in lines
    ]
    if rows:
        print_table(list(columns), rows, text=list(columns)[:-1], **look)


def _print_moves(moves: Sequence[Mapping[str, Any]]) -> None:
    """Print how far coefficients moved in the second half of the training."""
    rows = [
        [
            *(line["action"], line["feature"]),
            *(f"{line[place]:.3g}" for place in ("from", "to")),
            "–" if line["move"] is None else f"{line['move']:.1f}",
        ]
        for line in moves
    ]
    if rows:
        print_table(
            ("action", "feature", "middle", "end", "move"),
            rows,
            text=("action", "feature"),
            title="changes of coefficients from the middle to the end of the training",
            caption="move in standard errors; above 3, the effect probably changes",
        )


def print_learned(actions: Sequence[Mapping[str, Any]], coefficients: Sequence[Mapping[str, Any]], units: str) -> None:
    """Print the rewards and the share of each action, then coefficients, strongest first, and their ``units``."""
    total = sum(line["rows"] for line in actions) or 1
    headings = ["action", "rows", "reward in the log", "share in the log", "share of the policy"]
    imputed = any(line.get("imputed_share") for line in actions)
    shown, title = actions, "actions"
    if len(actions) > SHOWN_ACTIONS:
        shown = sorted(actions, key=lambda line: -line["rows"])[:SHOWN_ACTIONS]
        title = f"{SHOWN_ACTIONS} of {counted(len(actions), 'action')}, those with most rows"
    rows: list[list[str]] = []
    for line in shown:
        state = "" if line["active"] else " (retired)"
        state = " (ramping up)" if line["ramping"] else state
        share = "–" if line["share"] is None else f"{line['share']:.1%}"
        reward = mean_and_error({"mean": line["mean_reward"], "standard_error": line["standard_error"]}, 1, 4)
        cells = [line["action"] + state, f"{line['rows']:,.0f}", reward, f"{line['rows'] / total:.1%}", share]
        rows.append(cells + ([f"{line['imputed_share']:.1%}"] if imputed else []))
    caption = "mean ± standard error in the log; share of the policy on rows of the log"
    print_table(headings + ["imputed share"] * imputed, rows, text=("action",), title=title, caption=caption)
    names = {name: name for name in ("action", "feature", "coefficient")}
    _print_estimates(names, coefficients, title="strongest coefficients", caption=units)


def print_drift(drift: Mapping[str, Any] | None) -> None:
    """Print the columns with values that are unlike the sample of the encoder, most of them first."""
    columns = {} if drift is None else drift["columns"]
    lines = [(name, line) for name, line in columns.items() if line["drifted"] >= DRIFT_SHOWN]
    if drift is None or not lines:
        return
    print_table(
        ("column", "missing", "without a feature", "out of range", "drifted"),
        [
            [name, *(f"{line[kind]:,}" for kind in ("missing", "unseen", "outside")), f"{line['drifted']:.2%}"]
            for name, line in sorted(lines, key=lambda line: -line[1]["drifted"])
        ],
        text=("column",),
        title="drift",
        caption=f"rows unlike those that the encoder was learned on, of {drift['rows']:,}",
    )
