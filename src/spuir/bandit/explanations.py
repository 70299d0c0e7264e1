"""Why a policy prefers an action: the estimates behind a decision, contrasts of actions, and what is imputed.

A policy is explained if it answers ``acting``, ``coefficients``, ``standard_errors``, ``mean_errors``,
``contributions``, ``source_names`` and ``imputed_shares``, as every policy with the trait "ridge" does. Where it has
one regression per action, estimates of two actions share no row, so that their variances add up. A policy whose actions
share what they learned answers ``difference_errors`` and ``contrast_errors`` too.
"""

import math
from collections.abc import Hashable
from typing import Any

import numpy as np

from spuir.base.data_frame import data_frame
from spuir.base.pairs import Pairs
from spuir.base.records import Codes, Floats, Mask, Scores
from spuir.core.ties import eligible_mask
from spuir.errors import InputError
from spuir.tables.coefficients import coefficient_rows, estimating
from spuir.tables.model import Model

REASONS = 3
"""Sources that the column ``because`` names."""


def explain(policy: Any, model: Model, contexts: Floats, mask: Mask | Pairs | None, codes: Codes | None) -> Any:
    """Return one row per context: the action, its nearest competitor, and what made the difference.

    Parameters
    ----------
    policy, model
        A policy with the trait "ridge", and its model with a state.
    contexts, mask
        (n, d) contexts, and which actions are eligible, (n, M) or pairs, None for all.
    codes
        (n,) actions to explain; None = the most probable ones.
    """
    state: Any = model.state
    allowed = eligible_mask(mask, len(contexts), state.n_actions)
    varying = mask if isinstance(mask, Pairs) and mask.features is not None else None
    table = policy.acting(state, contexts, allowed if varying is None else varying, model.caps)
    chosen = table.probabilities.argmax(axis=1) if codes is None else codes
    every = np.arange(len(contexts))
    if len(chosen) != len(every):
        got, rule = f"{len(chosen)} of them", f"one action per row is needed, {len(every)} here"
        raise InputError("actions", got, rule, "match the lengths")
    if not allowed[every, chosen].all():
        row = int(np.argmin(allowed[every, chosen]))
        got = f"{model.labels.names[chosen[row]]!r} at row {row}"
        raise InputError("actions", got, "it is not eligible there", "explain an eligible action")
    rival = competitors(table, allowed, chosen)
    alone = rival < 0  # the only eligible action has no competitor
    second = np.where(alone, chosen, rival)
    own, its = (_with_features(contexts, varying, code) for code in (chosen, second))
    parts = policy.contributions(state, own, chosen) - policy.contributions(state, its, second)
    if hasattr(policy, "difference_errors"):
        spread = policy.difference_errors(state, own, chosen, its, second)
    else:
        errors = policy.mean_errors(state, contexts)
        spread = np.hypot(errors[every, chosen], errors[every, second])
    sources = policy.source_names(state, model.input_names)
    labels = model.labels.array
    columns: dict[str, Any] = {"action": labels[chosen]}
    columns |= {name: part[every, chosen] for name, part in _estimates(table)}
    columns["competitor"] = [None if single else label for single, label in zip(alone, labels[second], strict=True)]
    columns |= {f"competitor_{name}": _without(part[every, second], alone) for name, part in _estimates(table)}
    columns["difference"] = _without(parts.sum(axis=1), alone)
    columns["standard_error"] = _without(spread, alone)
    columns["because"] = [_because(sources, row) for row in parts]
    columns |= {f"difference:{name}": _without(parts[:, at], alone) for at, name in enumerate(sources)}
    return data_frame(columns, "explain")


def _with_features(contexts: Floats, varying: Pairs | None, codes: Codes) -> Floats:
    """Return contexts with the features per decision of one action per row (n,), if there are any."""
    if varying is None or varying.features is None:
        return contexts
    return np.column_stack([contexts, varying.features[varying.find(codes)]])


def _estimates(table: Scores) -> list[tuple[str, Floats]]:
    """Return the columns that both actions of a row have."""
    return [
        ("mean", table.means),
        ("width", table.widths),
        ("score", table.scores),
        ("probability", table.probabilities),
    ]


def _without(values: Floats, alone: Mask) -> Floats:
    return np.where(alone, np.nan, values)


def competitors(table: Scores, allowed: Mask, chosen: Codes) -> Codes:
    """Return the most probable of the other eligible actions (n,), by score among equals; −1 where there is none."""
    others = allowed.copy()
    others[np.arange(len(chosen)), chosen] = False
    chance = np.where(others, table.probabilities, -1.0)
    near = others & (chance == chance.max(axis=1, keepdims=True))
    best = np.where(near, table.scores, -np.inf).argmax(axis=1)
    return np.where(others.any(axis=1), best, -1)


def _because(names: list[str], parts: Floats) -> str:
    """Return the sources with the largest parts of a difference, largest first."""
    order = np.argsort(-np.abs(parts), kind="stable")[:REASONS]
    return ", ".join(f"{names[at]} {parts[at]:+.3g}" for at in order if parts[at])


def contrast(policy: Any, model: Model, first: Hashable, second: Hashable) -> Any:
    """Return the difference of two actions' coefficients, with its standard error, one row per feature."""
    rows = coefficient_rows(policy, model)
    width, codes = len(rows) // len(model.labels.names), [model.labels.code(label) for label in (first, second)]
    one, other = (rows[width * code : width * (code + 1)] for code in codes)
    pairs = list(zip(one, other, strict=True))
    if hasattr(policy, "contrast_errors"):
        errors = policy.contrast_errors(model.state, *codes).tolist()
    else:
        errors = [math.hypot(own.standard_error, its.standard_error) for own, its in pairs]
    columns = {
        "feature": [own.feature for own, _ in pairs],
        "difference": [own.coefficient - its.coefficient for own, its in pairs],
        "standard_error": errors,
    }
    return data_frame(columns, "contrast")


def action_weights(policy: Any, model: Model) -> Any:
    """Return the weight of the observed rows of each action, and the share of imputed rows in its fit."""
    policy, state = estimating(policy, model)
    columns = {
        "action": model.labels.array,
        "observed_weight": policy.observed_weights(state),
        "imputed_share": policy.imputed_shares(state),
    }
    return data_frame(columns, "action_weights")
