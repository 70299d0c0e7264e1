"""Policies for raw columns of a log."""

from dataclasses import replace
from typing import Any

from spuir.base.parameters import parameter_names
from spuir.policies import Policy, make_policy


def policy_for_logs(name: str, *, preset: str | None = None, **parameters: Any) -> Policy:
    """Build the policy called ``name`` for columns as they come: with an intercept, and contexts scaled.

    ``preset`` and ``parameters`` are those of :func:`spuir.make_policy`. The preset "paper" is taken as it is.
    """
    made = make_policy(name, preset=preset, **parameters)
    known = parameter_names(made)
    scale = "scale_contexts" if "scale_contexts" in known else "scale"
    wanted = {flag: True for flag in ("intercept", scale) if flag in known and flag not in parameters}
    return made if preset == "paper" else replace(made, **wanted)
