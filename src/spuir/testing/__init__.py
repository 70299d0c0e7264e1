"""The contract of a policy, as a suite of laws that can be checked for any policy.

:func:`check_policy` checks every law that the policy's traits require. :func:`laws_for` returns the same laws one by
one, for parametrised tests. A policy has to be registered, because a model file stores its name.
"""

from spuir.errors import ParameterError
from spuir.policies import POLICIES, Policy
from spuir.testing import deciding, learning, living, refusing, sharding
from spuir.testing.trial import Law

__all__ = ["LAWS", "Law", "check_policy", "laws_for"]

LAWS: tuple[Law, ...] = (*deciding.LAWS, *learning.LAWS, *sharding.LAWS, *living.LAWS, *refusing.LAWS)
"""All laws."""


def laws_for(policy: Policy) -> list[Law]:
    """Return the laws that a policy with these traits has to satisfy."""
    return [law for law in LAWS if law.applies(policy.traits)]


def check_policy(policy: Policy) -> list[str]:
    """Check every law on ``policy`` and return their names; raise an AssertionError that lists the broken ones.

    Parameters
    ----------
    policy
        A registered policy with any parameters. It is checked on small batches of 4 actions and 5 context columns.
        Seeds are fixed, so the outcome is the same in every run. The statistical laws reject a correct policy with
        a probability below 1e-6.
    """
    if policy.name not in POLICIES:
        rule, remedy = "the contract saves and loads by registered name", "register it with POLICIES.register"
        raise ParameterError("policy", repr(policy.name), rule, remedy)
    laws = laws_for(policy)
    broken: list[str] = []
    for law in laws:
        try:
            law.check(policy)
        except Exception as error:  # whatever a policy raises, the other laws are checked too
            broken.append(f"{law.name}: {type(error).__name__}: {error}")
    if broken:
        raise AssertionError(f"policy {policy.name!r} breaks {len(broken)} laws:\n" + "\n".join(broken))
    return [law.name for law in laws]
