"""The ``bandit_feedback`` of the Open Bandit Pipeline: a dict of arrays, contexts and all."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spuir.errors import InputError, quoted
from spuir.logs.formats.arrays import codes_of, column, has_keys, labelled, matrix, table_of
from spuir.logs.formats.base import Format
from spuir.tables.arrow import pa

_KEYS = ("n_rounds", "n_actions", "action", "reward")


def convert(source: Any, options: Mapping[str, Any]) -> "pa.Table":
    """Return a ``bandit_feedback`` as a table.

    ``pi_b`` (n, K, L) becomes ``probabilities``, at each row's position where L > 1. What only simulated data have
    (``expected_reward``) and what belongs to the actions (``action_context``) is left out.
    """
    if not has_keys(source, _KEYS):
        rule = f"a bandit_feedback has the keys {', '.join(_KEYS)}"
        raise InputError("bandit_feedback", ", ".join(map(str, source))[:80], rule, "pass what obp returned")
    position, actions = source.get("position"), options.get("actions")
    if not isinstance(source["n_rounds"], (int, np.integer)) or not hasattr(source["action"], "__len__"):
        got = f"n_rounds = {source['n_rounds']!r}, action of type {type(source['action']).__name__}"
        rule = "n_rounds counts the rows, and action has one for each"
        raise InputError("bandit_feedback", got, rule, "pass what obp returned")
    rounds = int(source["n_rounds"])
    for name in ("action", "reward", "pscore", "position", "context"):
        values = source.get(name)
        if values is not None and len(values) != rounds:
            rule = f"n_rounds is {rounds}"
            raise InputError(f"bandit_feedback[{name!r}]", f"{len(values)} rows", rule, "match the lengths")
    columns = {"action": labelled(source["action"], actions), "reward": source["reward"]}
    columns |= {"propensity": source.get("pscore"), "probabilities": None, "position": position}
    if source.get("pi_b") is not None:
        rows = _rows(np.asarray(source["pi_b"], dtype=np.float64), position, int(source["n_actions"]))
        columns["probabilities"] = rows
        if actions is not None:
            columns["eligible"] = [list(actions)] * rounds
    return table_of(columns, source.get("context"))


def _rows(choices: NDArray[np.float64], position: Any, n_actions: int) -> NDArray[np.float64]:
    """Return the probabilities (n, K) at each row's position."""
    if choices.ndim != 3 or choices.shape[1] != n_actions:
        rule = f"it has the shape (rounds, {n_actions} actions, positions)"
        raise InputError("pi_b", f"shape {choices.shape}", rule, "pass what obp returned")
    if choices.shape[2] == 1 or position is None:
        return choices[:, :, 0]
    places = np.asarray(position)
    if not np.all((places >= 0) & (places < choices.shape[2])):
        rule = f"pi_b has {choices.shape[2]} positions, counted from 0"
        raise InputError("position", f"up to {places.max()}", rule, "pass what obp returned")
    return choices[np.arange(len(choices)), :, places]


def export(table: "pa.Table", options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a canonical table as a ``bandit_feedback``.

    Actions become codes from 0 in the order of ``actions``; without it, whole numbers stay and labels are sorted.
    ``pi_b`` is there if the log has the probabilities of all actions, ``action_context`` is the identity.
    """
    codes, labels = codes_of(table, options.get("actions"))
    found: dict[str, Any] = {
        "n_rounds": table.num_rows,
        "n_actions": len(labels),
        "context": matrix(table),
        "action_context": np.eye(len(labels)),
        "action": codes,
        "position": column(table, "position"),
        "reward": column(table, "reward", needed=True),
        "pscore": column(table, "propensity"),
    }
    if "probabilities" in table.column_names and not table["probabilities"].null_count:
        found["pi_b"] = _choices(table, labels)[:, :, None]
    return found


def _choices(table: "pa.Table", labels: list[Any]) -> NDArray[np.float64]:
    """Return the probabilities (n, K) of all actions, 0 where one was not eligible."""
    places = {label: at for at, label in enumerate(labels)}
    found = np.zeros((table.num_rows, len(labels)))
    rows = table["probabilities"].to_pylist()
    offered = table["eligible"].to_pylist() if "eligible" in table.column_names else [None] * len(rows)
    for row, (values, names) in enumerate(zip(rows, offered, strict=True)):
        named = names if names and len(names) == len(values) and not isinstance(names[0], bool) else labels
        here = [places.get(name, -1) for name in named]
        if -1 in here or len(values) != len(here):
            rule = f"the actions are {quoted(labels)}"
            raise InputError("probabilities", f"those of {names or len(values)} at row {row}", rule, "pass actions=[…]")
        found[row, here] = values
    return found


FORMAT = Format(
    name="obp",
    summary="the bandit_feedback dict of the Open Bandit Pipeline (in memory)",
    claims=lambda source: has_keys(source, _KEYS),
    convert=convert,
    export=export,
    options=("actions",),
)
