"""Where a training starts: with a new policy, or with a model that is continued."""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

from spuir.bandit import Bandit
from spuir.base.parameters import parameter_names
from spuir.errors import InputError, UnknownNameError
from spuir.logs.columns import listed
from spuir.policies import Policy, as_policy, make_policy


def policy_for_logs(name: str, *, preset: str | None = None, **parameters: Any) -> Policy:
    """Build the policy called ``name`` for columns as they come: with an intercept, and contexts scaled.

    ``preset`` and ``parameters`` are those of :func:`spuir.make_policy`. The preset "paper" is taken as it is.
    """
    made = make_policy(name, preset=preset, **parameters)
    known = parameter_names(made)
    scale = "scale_contexts" if "scale_contexts" in known else "scale"
    wanted = {flag: True for flag in ("intercept", scale) if flag in known and flag not in parameters}
    return made if preset == "paper" else replace(made, **wanted)


def policy_to_train(policy: Policy | str, start: Bandit | None) -> Policy:
    """Return the policy to train: that of the model to continue, or the one that is given."""
    if start is None:
        return policy_for_logs(policy) if isinstance(policy, str) else as_policy(policy)
    if start.encoder is None:
        rule, remedy = "a log has raw rows, which its encoder reads", "continue a model that spuir train made"
        raise InputError("start", "a model without an encoder", rule, remedy)
    return start.policy_


def actions_to_train(
    logged: Sequence[Hashable], given: Sequence[Hashable] | None, start: Bandit | None
) -> list[Hashable]:
    """Return the action labels in order: those of the model to continue, those given, or those in the log."""
    if start is None:
        return list(logged if given is None else given)
    labels = start.actions_.tolist()
    for label in logged:
        if label not in labels:
            rule = f"the model knows {listed([str(one) for one in labels])}"
            raise UnknownNameError("action", repr(label), rule, "add it to the model first, with add_action")
    return labels
