"""Replay: what a policy would have earned while it learned, from a log that others acted in.

Rows of the log are read in order. A row is accepted with probability m·π(a|x)/p: the executed action a had probability
p in the log and has π(a|x) under the policy that learns. Whatever the context, a row is then accepted with probability
m, and its action has the distribution π, so that accepted rows are what the policy itself would have logged. After B
accepted rows the policy learns, as it would in production.

m is the 1 % quantile of the log's propensities, not the least one, so that a few odd rows do not reject all others.
Rows for which m·π/p exceeds 1 are accepted, and count m·π/p times, in learning and in the mean.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from spuir.bandit import Bandit
from spuir.base.parameters import COUNT, SEED, check_value
from spuir.base.records import Floats
from spuir.base.streams import generator
from spuir.errors import InputError
from spuir.evaluation.encoded_rows import EncodedRows
from spuir.loop import with_horizon
from spuir.policies import Policy, as_policy

QUANTILE = 0.01
"""Share of the rows whose propensities may lie below m."""
PIECE = 4
"""Rows are looked at in pieces of this many times the rows that are expected to fill the episode."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Replay:
    """A policy that learned along a log: its exploration and its batch size are part of what is evaluated.

    Parameters
    ----------
    rewards, weights
        (N,) mean reward and total weight of the accepted rows of each episode. The first one, which the cold policy
        decides at random, counts too: batch sizes could not be compared without it.
    accepted, rows
        How many rows were accepted, and how many the log has.
    standard_error
        Of :attr:`value`, given the policies that acted.
    batch_size, seed, policy
        What was replayed: B, the seed, and the name of the policy.
    """

    rewards: Floats
    weights: Floats
    accepted: int
    rows: int
    standard_error: float
    batch_size: int
    seed: int
    policy: str

    what = "policy, exploration and batch size together, replayed by rejection sampling"

    @property
    def value(self) -> float:
        """Mean reward per decision while learning."""
        return float(self.rewards @ self.weights / self.weights.sum())


def least_propensity(rows: EncodedRows) -> float:
    """Return m, the share of the rows that a replay accepts."""
    return float(np.quantile(rows.propensities, QUANTILE, method="lower"))


def replay(rows: EncodedRows, policy: Policy | str, *, batch_size: int, seed: int = 0) -> Replay:
    """Let a policy learn along logged rows, accepting those that it might have logged itself.

    Parameters
    ----------
    rows
        Logged rows with their propensities, in order.
    policy
        An object, or a registered name; it starts cold.
    batch_size
        Accepted rows after which the policy learns (B).
    seed
        Seed of the policy and of what is accepted. The same rows are compared with the same random numbers whatever
        the policy is.

    Raises
    ------
    InputError
        Fewer rows were accepted than one full episode and the beginning of another.
    """
    check_value("batch_size", batch_size, COUNT, "choose another value")
    check_value("seed", seed, SEED, "choose another value")
    least = least_propensity(rows)
    horizon = max(1, int(least * len(rows) / batch_size))
    chosen = with_horizon(as_policy(policy), horizon, batch_size)
    bandit = rows.bandit(chosen, seed)
    uniforms = generator(seed, "evaluation", "replay").random(len(rows))
    counted, accepted, start = list[tuple[Floats, Floats]](), 0, 0
    while start < len(rows):
        taken, chances, copies, start = _episode(rows, bandit, uniforms, least, start, batch_size)
        accepted += len(taken)
        weights = copies * rows.weights[taken]
        if len(taken):
            counted.append((rows.rewards[taken], weights))
        if len(taken) < batch_size:
            break
        _learn(bandit, rows, taken, chances, weights)
    if len(counted) < 2:
        rule = f"a replay needs more than one episode of {batch_size:,} accepted rows"
        remedy = "use smaller batches, a longer log, or a simulation"
        raise InputError("replay", f"{accepted:,} accepted rows of {len(rows):,}", rule, remedy)
    return _summary(counted, accepted, rows, batch_size, seed, chosen.name)


def _episode(
    rows: EncodedRows, bandit: Bandit, uniforms: Floats, least: float, start: int, batch_size: int
) -> tuple[Any, Floats, Floats, int]:
    """Return the next accepted rows, π of their actions, how often each counts, and where to continue."""
    found, have = list[tuple[Any, Floats, Floats]](), 0
    while have < batch_size and start < len(rows):
        stop = min(len(rows), start + max(256, int(PIECE * (batch_size - have))))
        piece = slice(start, stop)
        table = bandit.predict_proba(rows.contexts[piece], **_eligible(rows, bandit, piece))
        chances = table[np.arange(stop - start), rows.actions[piece]]
        ratio = least * chances / rows.propensities[piece]
        at = np.flatnonzero(uniforms[piece] < ratio)[: batch_size - have]
        found.append((start + at, chances[at], np.maximum(ratio[at], 1.0)))
        have += len(at)
        start = start + int(at[-1]) + 1 if have == batch_size else stop
    taken, chances, copies = (np.concatenate([part[k] for part in found]) for k in range(3))
    return taken, chances, copies, start


def _eligible(rows: EncodedRows, bandit: Bandit, piece: slice) -> dict[str, Any]:
    """Return what could be chosen in some rows, with its features if the policy reads them."""
    if bandit.policy_.takes_features and rows.offered is not None:
        return {"action_features": rows.offered_features(piece)}
    return {"eligible": None if rows.eligible is None else rows.eligible[piece]}


def _learn(bandit: Bandit, rows: EncodedRows, taken: Any, chances: Floats, weights: Floats) -> None:
    given: dict[str, Any] = rows.learnable(taken) | {"propensities": np.minimum(chances, 1.0)}
    given["sample_weight"] = None if (weights == 1.0).all() else weights
    if bandit.policy_.takes_features and rows.offered is not None:
        given["action_features"] = rows.executed_features(taken)
    bandit.partial_fit(**given)


def _summary(
    counted: list[tuple[Floats, Floats]], accepted: int, rows: EncodedRows, batch_size: int, seed: int, name: str
) -> Replay:
    totals = np.array([weights.sum() for _, weights in counted])
    means = np.array([rewards @ weights for rewards, weights in counted]) / totals
    every, weights = (np.concatenate([part[k] for part in counted]) for k in range(2))
    centred = weights * (every - every @ weights / weights.sum())
    return Replay(
        rewards=means,
        weights=totals,
        accepted=accepted,
        rows=len(rows),
        standard_error=float(np.sqrt(centred @ centred) / weights.sum()),
        batch_size=batch_size,
        seed=seed,
        policy=name,
    )
