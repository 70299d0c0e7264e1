"""What tuning chooses from: policies with the parameters that bear on what they learn.

Parameters that only matter while a policy learns (α, the floor, the batch size) are not among them: on a log that does
not change, exploring always looks like a loss.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, product, zip_longest
from typing import Any

from spuir.base.streams import generator
from spuir.errors import ParameterError
from spuir.policies import POLICIES, Policy, make_policy

BASELINE = "sbucb"
"""The policy that every tuning reports beside the winner."""

Choice = Mapping[str, Any]
AXES: Mapping[str, tuple[Choice, ...]] = {
    "features": ({}, {"features": "fourier", "raw": True}),
    "ridge": tuple({"ridge": value} for value in (1.0, 0.1, 10.0, 100.0)),
    "imputation_rate": tuple({"imputation_rate": value} for value in (0.1, 0.03, 0.3, 1.0)),
    "discount": tuple({"discount": value} for value in (0.9, 0.1, 0.5)),
    "sketch_size": tuple({"sketch_size": value} for value in (150, 50, 500)),
}
"""The parameters that are chosen, and their values: feature map, λ, γ, η and c."""
NEEDS = {"imputation_rate": "imputing", "discount": "imputing", "sketch_size": "sketched"}
"""Traits without which a parameter changes nothing."""


@dataclass(frozen=True)
class Candidate:
    """A policy by name, and the parameters that differ from its defaults."""

    policy: str
    parameters: tuple[tuple[str, Any], ...] = ()

    def make(self, **further: Any) -> Policy:
        """Return the policy, with further parameters."""
        return make_policy(self.policy, **{**dict(self.parameters), **further})

    def __str__(self) -> str:
        """Return the candidate as a table shows it."""
        shown = ", ".join(f"{name}={value}" for name, value in self.parameters)
        return f"{self.policy} ({shown})" if shown else self.policy


def candidates(policies: Sequence[str], budget: int, seed: int) -> list[Candidate]:
    """Return up to ``budget`` candidates: the defaults of each policy first, then drawn ones, policies in turn."""
    if not policies:
        raise ParameterError("policies", "none", "tuning chooses among at least one", "name one")
    in_turn = chain.from_iterable(zip_longest(*(_drawn(name, seed) for name in policies)))
    return list(islice((one for one in in_turn if one is not None), budget))


def _drawn(name: str, seed: int) -> Iterator[Candidate]:
    """Yield the candidates of one policy: its defaults, then all others in random order."""
    policy = make_policy(name)
    if "ridge" not in policy.traits:
        rule = "tuning compares policies by the rewards that they estimate"
        raise ParameterError("policies", repr(name), rule, "name policies with the trait 'ridge', such as puir")
    known = POLICIES.get(name).parameters()
    used = [axis for axis in AXES if axis in known and NEEDS.get(axis, "ridge") in policy.traits]
    if getattr(policy, "features", "identity") != "identity":
        used = [axis for axis in used if axis != "features"]
    every = [Candidate(name, tuple(pair for choice in combination for pair in choice.items())) for combination in
             product(*(AXES[axis] for axis in used))]  # fmt: skip
    yield Candidate(name)
    default = Candidate(name).make()
    for at in generator(seed, "evaluation", "candidates", name).permutation(len(every)):
        if every[at].make() != default:
            yield every[at]
