"""Propensities of a log that has none: never invented, but said by the user."""

from collections.abc import Mapping
from typing import Any

from spuir.base.parameters import POSITIVE
from spuir.errors import InputError, ParameterError
from spuir.logs import Log
from spuir.logs.columns import renaming
from spuir.policies import Policy

KEYWORDS = ("uniform", "own")
"""What ``propensity`` may say instead of a column or a number: all actions equally likely, or as the policy acts."""
REMEDY = (
    "say --propensity uniform (all actions were equally likely), a COLUMN of the log, a NUMBER in (0, 1], or own "
    "(the log's decisions are this policy's own)"
)


def with_column(opening: Mapping[str, Any], propensity: Any) -> dict[str, Any]:
    """Return how to open a log, with the column that ``propensity`` names renamed to what a log calls it."""
    given = dict(opening)
    if isinstance(propensity, str) and propensity not in (*KEYWORDS, "propensity"):
        given["rename"] = {**(given.get("rename") or {}), propensity: "propensity"}
    return given


def check_propensity(log: Log, policy: Policy, given: Any) -> None:
    """Raise if a policy that weighs rows by propensities has none, or if ``given`` contradicts the log."""
    names = log.schema.names
    if given is None or (isinstance(given, str) and given not in KEYWORDS):
        if "weighting" in policy.traits and "propensity" not in names:
            rule = f"{policy.name} weighs each row by the probability with which its action was chosen"
            raise InputError("log", "no column 'propensity'", rule, REMEDY)
    elif "propensity" in names:
        remedy = f"leave it out, or drop the column: {renaming('propensity', None)}"
        raise ParameterError("propensity", repr(given), "the log has a column 'propensity'", remedy)
    elif given == "uniform" and "eligible" in names:
        rule = "the log has a column 'eligible', so not all actions were equally likely in every row"
        raise ParameterError("propensity", repr(given), rule, "add a column 'propensity' to the log")
    elif given not in KEYWORDS and not (POSITIVE.test(given) and given <= 1):
        raise ParameterError("propensity", repr(given), "a propensity lies in (0, 1]", REMEDY)


def propensity_of_rows(given: Any, actions: int) -> float | None:
    """Return the propensity of every row where the log has none; None = the log's column, or the policy's own."""
    if given == "uniform":
        return 1.0 / actions
    return None if given is None or isinstance(given, str) else float(given)
