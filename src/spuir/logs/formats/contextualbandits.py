"""The arrays of contextualbandits: X, a, r and, for learning from logs, p, in this order."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from spuir.errors import InputError
from spuir.logs.formats.arrays import codes_of, column, has_keys, keyed, labelled, matrix, table_of
from spuir.logs.formats.base import Format
from spuir.tables.arrow import pa

_ORDER = ("X", "a", "r", "p")


def convert(source: Any, options: Mapping[str, Any]) -> "pa.Table":
    """Return ``{"X": …, "a": …, "r": …, "p": …}``, or a tuple of these in this order, as a table; p may be missing."""
    given = keyed(source, _ORDER, 3, "contextualbandits learns from X, a and r")
    executed = labelled(given["a"], options.get("actions"))
    return table_of({"action": executed, "reward": given["r"], "propensity": given.get("p")}, given["X"])


def export(table: "pa.Table", options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a canonical table as the arguments of ``fit``: X, a, r and, if the log has propensities, p.

    Actions become codes from 0 in the order of ``actions``; without it, whole numbers stay and labels are sorted.
    Rewards outside [0, 1] are refused, since that library takes them for probabilities.
    """
    codes, _ = codes_of(table, options.get("actions"))
    rewards = np.asarray(column(table, "reward", needed=True), dtype=np.float64)
    outside = (rewards < 0) | (rewards > 1)
    if outside.any():
        row = int(np.argmax(outside))
        rule = "contextualbandits learns from rewards in [0, 1]"
        raise InputError("reward", f"{rewards[row]:g} at row {row}", rule, "scale the rewards to that range")
    found = {"X": matrix(table), "a": codes, "r": rewards}
    logged = column(table, "propensity")
    return found if logged is None else found | {"p": logged}


FORMAT = Format(
    name="contextualbandits",
    summary="the arrays X, a, r and p of contextualbandits (in memory)",
    claims=lambda source: has_keys(source, _ORDER[:3]),
    convert=convert,
    export=export,
    options=("actions",),
)
