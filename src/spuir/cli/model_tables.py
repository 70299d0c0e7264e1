"""What ``spuir show``, ``train`` and ``decide`` print of a model: what it is, and what it learned."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from spuir.cli.terminal import SHOWN_ACTIONS, console, spread

DRIFT_SHOWN = 0.01
"""The smallest share of drifted values of a column that is shown."""


def print_model(model: Mapping[str, Any]) -> None:
    """Print what a model is, how it was made, and what it learned."""
    out, training = console(), dict(model["training"])
    for hidden in ("mix", "mix rows"):  # the mix is in the table of actions
        training.pop(hidden, None)
    training["log"] = ", ".join(training.get("log", [])) or None
    parameters = model["policy"]["parameters"]
    rows = {
        "policy": model["policy"]["name"],
        "parameters": ", ".join(f"{name}={value}" for name, value in parameters.items()),
        "version": f"{model['version']} ({model['episodes']:,} episodes)",
        "saved": model["created"] or "not known (an older version of spuir)",
        "columns": ", ".join(model["columns"]) or "not named",
        **_about_catalogue(model["catalogue"]),
        **{f"training: {name}": str(value) for name, value in training.items() if value is not None},
        **{f"metadata: {name}": str(value) for name, value in model["metadata"].items()},
        **{f"learned: {name}": _shown(value) for name, value in model["diagnosis"].items() if value is not None},
    }
    about = Table(box=None, show_header=False, pad_edge=False)
    about.add_column(style="bold", no_wrap=True)
    about.add_column()
    for name, value in rows.items():
        about.add_row(name, Text(value))
    out.print(about)
    print_learned(model["actions"], model["coefficients"])
    _print_shared(model["shared"])
    _print_contrasts(model["contrasts"])
    _print_drift(model["drift"])


def _about_catalogue(catalogue: Mapping[str, Any] | None) -> dict[str, str]:
    """Return what describes the actions, by heading."""
    if catalogue is None:
        return {}
    found = {"catalogue": f"{catalogue['actions']:,} actions by {', '.join(catalogue['columns']) or 'no features'}"}
    return found | ({"per decision": ", ".join(catalogue["per_decision"])} if catalogue["per_decision"] else {})


def _print_shared(shared: Sequence[Mapping[str, Any]]) -> None:
    """Print what the features of actions say about the reward."""
    if not shared:
        return
    caption = "reward per unit of the action's feature times the context's; 'constant' is 1 for every one"
    table = Table(title="shared coefficients", title_justify="left", caption=caption, caption_justify="left")
    for heading in ("feature of the action", "feature of the context", "coefficient"):
        table.add_column(heading, justify="right" if heading == "coefficient" else "left")
    for line in shared:
        value = _estimate(line["coefficient"], line["standard_error"])
        table.add_row(line["action_feature"], line["feature"], value)
    console().print(table)


def _shown(value: Any) -> str:
    """Return an estimate with three digits, a record of them as name=value."""
    if isinstance(value, dict):
        return ", ".join(f"{name}={_shown(one)}" for name, one in value.items())
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _estimate(value: float, error: float | None) -> str:
    """Return "value ± standard error" with significant digits: a coefficient per euro may be 1e-6."""
    return f"{value:.3g}" + ("" if error is None else f" ± {error:.2g}")


def _print_contrasts(contrasts: Sequence[Mapping[str, Any]]) -> None:
    """Print where two actions differ most."""
    if not contrasts:
        return
    table = Table(title="largest contrasts of two actions", title_justify="left")
    for heading in ("action", "against", "feature", "difference"):
        table.add_column(heading, justify="right" if heading == "difference" else "left")
    for line in contrasts:
        value = _estimate(line["difference"], line["standard_error"])
        table.add_row(Text(line["action"]), Text(line["against"]), Text(line["feature"]), value)
    console().print(table)


def _print_drift(moves: Sequence[Mapping[str, Any]]) -> None:
    """Print how far coefficients moved in the second half of the training."""
    if not moves:
        return
    table = Table(
        title="changes of coefficients from the middle to the end of the training",
        title_justify="left",
        caption="move in standard errors; above 3, the effect probably changes",
        caption_justify="left",
    )
    for heading in ("action", "feature", "middle", "end", "move"):
        table.add_column(heading, justify="left" if heading in ("action", "feature") else "right")
    for line in moves:
        move = "–" if line["move"] is None else f"{line['move']:.1f}"
        cells = [f"{line['from']:.3g}", f"{line['to']:.3g}", move]
        table.add_row(Text(line["action"]), Text(line["feature"]), *cells)
    console().print(table)


def print_learned(actions: Sequence[Mapping[str, Any]], coefficients: Sequence[Mapping[str, Any]]) -> None:
    """Print the rewards and the share of each action, then coefficients, strongest first."""
    total = sum(line["rows"] for line in actions) or 1
    table = Table(
        title="actions",
        title_justify="left",
        caption="mean ± standard error in the log; share of the policy on rows of the log",
        caption_justify="left",
    )
    headings = ["action", "rows", "reward in the log", "share in the log", "share of the policy"]
    imputed = any(line.get("imputed_share") for line in actions)
    for heading in headings + ["imputed share"] * imputed:
        table.add_column(heading, justify="left" if heading == "action" else "right")
    shown = actions
    if len(actions) > SHOWN_ACTIONS:
        shown = sorted(actions, key=lambda line: -line["rows"])[:SHOWN_ACTIONS]
        table.title = f"{SHOWN_ACTIONS} of {len(actions):,} actions, those with most rows"
    for line in shown:
        state = "" if line["active"] else " (retired)"
        state = " (ramping up)" if line["ramping"] else state
        share = "–" if line["share"] is None else f"{line['share']:.1%}"
        reward = spread({"mean": line["mean_reward"], "standard_error": line["standard_error"]}, 1, 4)
        cells = [line["action"] + state, f"{line['rows']:,.0f}", reward, f"{line['rows'] / total:.1%}", share]
        table.add_row(*cells, *([f"{line['imputed_share']:.1%}"] if imputed else []))
    console().print(table)
    if not coefficients:
        return
    table = Table(title="strongest coefficients", title_justify="left")
    for heading in ("action", "feature", "coefficient"):
        table.add_column(heading, justify="right" if heading == "coefficient" else "left")
    for line in coefficients:
        value = _estimate(line["coefficient"], line["standard_error"])
        table.add_row(line["action"], line["feature"], value)
    console().print(table)


def print_drift(drift: Mapping[str, Any] | None) -> None:
    """Print the columns with values that are unlike the sample of the encoder, most of them first."""
    columns = {} if drift is None else drift["columns"]
    lines = [(name, line) for name, line in columns.items() if line["drifted"] >= DRIFT_SHOWN]
    if drift is None or not lines:
        return
    table = Table(title="drift", title_justify="left", caption_justify="left")
    table.caption = f"rows unlike those that the encoder was learned on, of {drift['rows']:,}"
    for heading in ("column", "missing", "without a feature", "out of range", "drifted"):
        table.add_column(heading, justify="left" if heading == "column" else "right")
    for name, line in sorted(lines, key=lambda line: -line[1]["drifted"]):
        cells = [f"{line[kind]:,}" for kind in ("missing", "unseen", "outside")]
        table.add_row(name, *cells, f"{line['drifted']:.2%}")
    console().print(table)
