"""The contract of a policy, to be run on any policy: ours in our tests, yours in yours.

:func:`check_policy` tries every law that the policy's traits call for. :func:`laws_for` gives the same laws one by
one, for parametrised tests. A policy has to be registered, because a snapshot knows its policy by name.
"""

from spuir.errors import ParameterError, SpuirError
from spuir.policies import POLICIES, Policy
from spuir.testing import deciding, learning, living, refusing, sharding
from spuir.testing.trial import Law

__all__ = ["LAWS", "Law", "check_policy", "laws_for"]

LAWS: tuple[Law, ...] = (*deciding.LAWS, *learning.LAWS, *sharding.LAWS, *living.LAWS, *refusing.LAWS)
"""Every law, whatever it needs."""


def laws_for(policy: Policy) -> list[Law]:
    """Return the laws that a policy with these traits has to keep."""
    return [law for law in LAWS if law.applies(policy.traits)]


def check_policy(policy: Policy) -> list[str]:
    """Try every law on ``policy`` and return their names; raise an AssertionError that lists those it breaks.

    Parameters
    ----------
    policy
        A registered policy with parameters of your choice. It is tried on small batches of 4 actions and 5
        context columns; seeds are fixed, so that the outcome is the same in every run. The statistical laws
        reject a correct policy with a probability below 1e-6.
    """
    if policy.name not in POLICIES:
        rule, remedy = "the contract saves and loads by registered name", "register it with POLICIES.register"
        raise ParameterError("policy", repr(policy.name), rule, remedy)
    laws = laws_for(policy)
    broken: list[str] = []
    for law in laws:
        try:
            law.check(policy)
        except (AssertionError, SpuirError, ArithmeticError, LookupError, TypeError, ValueError, Warning) as error:
            broken.append(f"{law.name}: {type(error).__name__}: {error}")
    if broken:
        raise AssertionError(f"policy {policy.name!r} breaks {len(broken)} laws:\n" + "\n".join(broken))
    return [law.name for law in laws]
