"""Shards of one episode: what collect returns, adds up and absorb takes, with a mark of where it belongs."""

import json
from dataclasses import dataclass, replace
from typing import Any

from spuir.base.hashing import Content, digest
from spuir.base.packing import pack
from spuir.base.parameters import parameters_of
from spuir.errors import ShardError
from spuir.policies import Policy


@dataclass(frozen=True, kw_only=True, eq=False)
class Shard:
    """What some rows of one episode contribute; shards of the same episode and policy add up.

    ``episode`` is the number of episodes learnt before, ``fingerprint`` stands for the policy, its seed,
    actions and, where the sums depend on it, the acting state. ``names`` are the columns of a DataFrame.
    """

    episode: int
    fingerprint: str
    dim: int
    sums: Any
    names: tuple[str, ...] | None = None

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
        return replace(self, sums=self.sums + other.sums, names=self.names or other.names)

    def __radd__(self, other: object) -> "Shard":
        """Return itself when ``sum`` starts from 0."""
        if other == 0:
            return self
        raise ShardError("shards", repr(other), "only shards add up", "pass what collect returned")


def fingerprint(policy: Policy, state: Any, owner: object) -> str:
    """Return a mark that two bandits share when their shards may be added and absorbed.

    It stands for the policy, for ``owner`` (seed and labels) and, where sums depend on it, the acting state.
    """
    settings = json.dumps(parameters_of(policy), sort_keys=True)
    parts: list[Content] = [type(policy).__name__, settings, repr(owner), str(state.dim)]
    basis = policy.basis(state)
    if basis is not None:
        meta, arrays = pack(basis)
        parts += [json.dumps(meta, sort_keys=True), *(arrays[name] for name in sorted(arrays))]
    return digest(*parts)
