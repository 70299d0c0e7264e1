"""Policies that have not learned yet: they are trained on the earlier part of a log and evaluated on the rest."""

from collections.abc import Callable, Mapping
from os.path import exists
from typing import Any

import numpy as np

from spuir.errors import ParameterError
from spuir.evaluation.targets import UNIFORM
from spuir.logs import Log, split_log
from spuir.policies import Policy, list_policies
from spuir.training import train


def untrained(policies: Mapping[str, Any]) -> list[str]:
    """Return the names of those that have to learn first: a policy, or a registered name that no file has."""
    registered = set(list_policies()) - {UNIFORM}
    return [
        name
        for name, one in policies.items()
        if isinstance(one, Policy) or (isinstance(one, str) and one in registered and not exists(one))
    ]


def train_on_earlier(
    log: Log,
    policies: Mapping[str, Any],
    holdout: float,
    *,
    batch_size: int | None,
    every: Any,
    propensity: str | None,
    watch: Callable[[str, int, int], object] | None,
) -> tuple[dict[str, Any], Log]:
    """Return the policies, those without training trained on the earlier part of the log, and the rest of the log."""
    names = untrained(policies)
    for name, one in policies.items():
        if isinstance(one, np.ndarray) or hasattr(one, "columns"):
            rule = f"the log is split to train {names[0]}, and a table has a row for each row of the whole log"
            raise ParameterError("policies", f"a table of probabilities for {name}", rule, "pass a function instead")
    earlier, rest = split_log(log, holdout)
    known = "uniform" if propensity == "uniform" and "propensity" not in log.schema.names else None
    how: dict[str, Any] = {"batch_size": batch_size, "every": every, "propensity": known, "watch": watch}
    return {**policies, **{name: train(earlier, policies[name], **how).bandit for name in names}}, rest
