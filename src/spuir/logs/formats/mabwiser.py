"""MABWiser's training arrays: decisions, rewards, contexts, in this order."""

from collections.abc import Mapping
from typing import Any

from spuir.logs.formats.arrays import column, has_keys, keyed, matrix, table_of
from spuir.logs.formats.base import Format
from spuir.tables.arrow import pa


def convert(source: Any, options: Mapping[str, Any]) -> "pa.Table":
    """Return ``{"decisions": …, "rewards": …, "contexts": …}``, or a tuple of these in this order, as a table."""
    given = keyed(
        source, ("decisions", "rewards", "contexts"), 2, "MABWiser learns from decisions, rewards and contexts"
    )
    return table_of({"action": given["decisions"], "reward": given["rewards"]}, given.get("contexts"))


def export(table: "pa.Table", options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a canonical table as the arguments of ``MAB.fit``: both ``fit(**found)`` and ``fit(*found.values())``."""
    contexts = matrix(table)
    found = {"decisions": column(table, "action", needed=True), "rewards": column(table, "reward", needed=True)}
    return found | {"contexts": contexts if contexts.shape[1] else None}


FORMAT = Format(
    name="mabwiser",
    summary="the decisions, rewards and contexts that MABWiser learns from (in memory)",
    claims=lambda source: has_keys(source, ("decisions", "rewards")),
    convert=convert,
    export=export,
)
