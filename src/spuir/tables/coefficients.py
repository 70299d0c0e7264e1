"""What a model estimated: every coefficient with its action, the name of its feature and its standard error."""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from spuir.errors import NotFittedError, ParameterError
from spuir.policies import Policy
from spuir.tables.model import Model


class Coefficient(NamedTuple):
    """One row of the coefficient table."""

    action: Hashable
    feature: str
    coefficient: float
    standard_error: float


def fitted_state(model: Model) -> Any:
    """Return the state of a model that knows its contexts; refuse another."""
    if model.state is None:
        rule, remedy = "this is known after the first episode", "call partial_fit"
        raise NotFittedError("bandit", "no contexts yet", rule, remedy)
    return model.state


def estimating(policy: Any, model: Model) -> tuple[Any, Any]:
    """Return policy and state, if the policy estimates rewards by ridge regression."""
    if "ridge" not in policy.traits:
        rule = f"policy {policy.name!r} has no reward model"
        raise ParameterError("coefficients", "no estimates", rule, "use a policy with the trait 'ridge'")
    return policy, fitted_state(model)


def coefficient_rows(policy: Policy, model: Model) -> list[Coefficient]:
    """Return the coefficients of all actions, feature by feature."""
    ridge, state = estimating(policy, model)
    features = ridge.feature_names(state, model.input_names)
    theta = np.column_stack([ridge.coefficients(state), ridge.intercepts(state)])
    errors = ridge.standard_errors(state)
    return [
        Coefficient(label, feature, float(theta[code, column]), float(errors[code, column]))
        for code, label in enumerate(model.labels.names)
        for column, feature in enumerate(features)
    ]


def strongest(rows: Sequence[Coefficient], count: int) -> list[Coefficient]:
    """Return the coefficients that are furthest from 0 in standard errors, the intercepts aside; strongest first.

    Where no standard error is known, sizes count. A coefficient of 0 is none.
    """

    def strength(row: Coefficient) -> float:
        return abs(row.coefficient) / row.standard_error if row.standard_error > 0 else abs(row.coefficient)

    given = [row for row in rows if row.coefficient and row.feature != "intercept"]
    return sorted(given, key=strength, reverse=True)[:count]


def strongest_contrasts(rows: Sequence[Coefficient], actions: int, count: int) -> list[tuple[Hashable, Coefficient]]:
    """Return the largest differences of two actions' coefficients, in standard errors, each after the other action.

    ``rows`` are the coefficients of this many actions, feature by feature; intercepts are left out. Fits of two actions
    share no rows, so that their variances add up. Where there are many actions, some differences are large by chance.
    """
    rows = [row for row in rows if row.feature != "intercept"]
    width = len(rows) // actions if actions else 0
    theta = np.array([row.coefficient for row in rows]).reshape(actions, width)
    errors = np.array([row.standard_error for row in rows]).reshape(actions, width)
    found: list[tuple[Hashable, Coefficient]] = []
    for one in range(actions):
        gaps, spread = theta[one] - theta[one + 1 :], np.hypot(errors[one], errors[one + 1 :])
        sizes = np.divide(np.abs(gaps), spread, out=np.zeros_like(gaps), where=spread > 0)
        for place in np.argsort(-sizes, axis=None, kind="stable")[:count]:
            other, column = divmod(int(place), width)
            own, its = rows[one * width + column], rows[(one + 1 + other) * width + column]
            if sizes.flat[place]:
                made = Coefficient(own.action, own.feature, float(gaps[other, column]), float(spread[other, column]))
                found.append((its.action, made))
    return sorted(found, key=lambda pair: -abs(pair[1].coefficient) / pair[1].standard_error)[:count]
