"""Shards: the sums of some rows of one episode, which collect returns and absorb takes."""

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spuir.base.column_drift import Drift
from spuir.base.hashing import Content, digest
from spuir.base.packing import pack
from spuir.base.parameters import SEED, parameters_of
from spuir.errors import ShardError
from spuir.policies import Policy
from spuir.tables.lineage import Contents


@dataclass(frozen=True, kw_only=True, eq=False)
class Shard:
    """The sums of some rows of one episode; shards of the same episode and policy can be added.

    ``episode`` is the number of episodes learned before, ``fingerprint`` a digest of the policy, its seed, its actions
    and, if the sums depend on it, the acting state. ``names`` are the columns of a DataFrame, ``contents`` what the
    rows are recognised by, and ``drift`` the values of raw columns that are unlike the sample of the encoder.
    """

    episode: int
    fingerprint: str
    dim: int
    sums: Any
    names: tuple[str, ...] | None = None
    contents: Contents | None = None
    drift: Drift | None = None

    def __add__(self, other: "Shard") -> "Shard":
        """Return the shard of both sets of rows."""
        if not isinstance(other, Shard):
            raise ShardError("shards", repr(other), "only shards add up", "pass what collect returned")
        if (self.episode, self.fingerprint) != (other.episode, other.fingerprint):
            got = f"episodes {self.episode} and {other.episode}" if self.episode != other.episode else "two policies"
            raise ShardError("shards", got, "shards of one episode of one policy add up", "collect them from one state")
        if None not in (self.names, other.names) and self.names != other.names:
            rule = "before the first episode columns are matched by position"
            raise ShardError("shards", f"columns {other.names} after {self.names}", rule, "give both one order")
        both = None if self.contents is None or other.contents is None else self.contents + other.contents
        drift = other.drift if self.drift is None else self.drift + other.drift
        return replace(self, sums=self.sums + other.sums, names=self.names or other.names, contents=both, drift=drift)

    def check(self, episode: int, mark: str) -> None:
        """Refuse to be absorbed by a bandit that awaits another ``episode`` or has another fingerprint, ``mark``."""
        if (self.episode, self.fingerprint) != (episode, mark):
            got = f"episode {self.episode}" if self.episode != episode else "another policy or state"
            rule = f"this bandit awaits episode {episode} of its own policy and state"
            raise ShardError("shard", got, rule, "collect with a copy of this bandit as it is now")

    def __radd__(self, other: object) -> "Shard":
        """Return itself when ``sum`` starts from 0."""
        if other == 0:
            return self
        raise ShardError("shards", repr(other), "only shards add up", "pass what collect returned")


def check_shards(policy: Policy, row_ids: NDArray[np.int64] | None) -> None:
    """Refuse a policy whose episodes cannot be cut into shards, and row ids that it cannot hash rows by."""
    if "additive" not in policy.traits:
        raise ShardError("collect", f"policy {policy.name!r}", "its learning is not additive", "use partial_fit")
    if row_ids is None and "sketched" in policy.traits:
        raise ShardError("row_ids", None, "a sketched policy hashes rows by id", "number the rows of the episode")
    if row_ids is not None and len(np.unique(row_ids)) != row_ids.size:
        raise ShardError("row_ids", "a repeated id", "ids are unique within the episode", "number the rows")


def coming_episode(policy: Policy, next_one: int, given: int | None) -> int:
    """Return the number of the episode to collect: the next one, or a later one where histories fold."""
    number = next_one if given is None else given
    if not SEED.test(number) or number < next_one:
        rule = f"it is the number of a coming episode, {next_one} or later"
        raise ShardError("episode", repr(given), rule, "leave it out for the next one")
    if number != next_one and "foldable" not in policy.traits:
        rule = f"the sums of {policy.name!r} depend on the state that acts in their episode"
        raise ShardError("episode", number, rule, f"collect episode {next_one}, then absorb it")
    return int(number)


def fingerprint(policy: Policy, state: Any, owner: object) -> str:
    """Return a digest that is equal for bandits whose shards can be added and absorbed.

    It covers the policy, ``owner`` (seed and labels) and, if sums depend on it, the acting state.
    """
    settings = json.dumps(parameters_of(policy), sort_keys=True)
    parts: list[Content] = [type(policy).__name__, settings, repr(owner), str(state.dim)]
    basis = policy.basis(state)
    if basis is not None:
        meta, arrays = pack(basis)
        parts += [json.dumps(meta, sort_keys=True), *(arrays[name] for name in sorted(arrays))]
    return digest(*parts)
