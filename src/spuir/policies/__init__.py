"""Policies by name. To add one: its file, and one line here; or an entry point ``spuir.policies`` of your package."""

from typing import Any

from spuir.base.registry import Registry
from spuir.errors import ParameterError
from spuir.policies.base import Policy, Recipe

POLICIES = Registry(
    "policy",
    {
        "auto": "spuir.policies.auto:AUTO",
        "hierarchical": "spuir.policies.hierarchical:HIERARCHICAL",
        "uniform": "spuir.policies.uniform:UNIFORM",
        "greedy": "spuir.policies.greedy:GREEDY",
        "epsilon-greedy": "spuir.policies.greedy:EPSILON_GREEDY",
        "linear-thompson": "spuir.policies.thompson:LINEAR_THOMPSON",
        "sbucb": "spuir.policies.optimistic:SBUCB",
        "puir": "spuir.policies.optimistic:PUIR",
        "spuir": "spuir.policies.optimistic:SPUIR",
        "puir-rs": "spuir.policies.optimistic:PUIR_RS",
        "spuir-rs": "spuir.policies.optimistic:SPUIR_RS",
        "puir-exp": "spuir.policies.optimistic:PUIR_EXP",
        "puir-poly": "spuir.policies.optimistic:PUIR_POLY",
        "puir-kernel": "spuir.policies.optimistic:PUIR_KERNEL",
        "spuir-exp": "spuir.policies.optimistic:SPUIR_EXP",
        "spuir-poly": "spuir.policies.optimistic:SPUIR_POLY",
        "spuir-kernel": "spuir.policies.optimistic:SPUIR_KERNEL",
        "bexp3": "spuir.policies.bexp3:BEXP3",
        "bexp3-ipw": "spuir.policies.bexp3:BEXP3_IPW",
        "blts-b": "spuir.policies.thompson:BLTS_B",
        "dfm-s": "spuir.policies.dfm:DFM_S",
    },
    group="spuir.policies",
)

AUTHORS_PRESETS = ("authors-code", "paper")
"""Two names of one preset: the values in the authors' code."""


def list_policies() -> list[str]:
    """Return the names of the registered policies."""
    return POLICIES.names()


def make_policy(name: str, *, preset: str | None = None, **parameters: Any) -> Policy:
    """Build the policy called ``name``.

    Parameters
    ----------
    name
        A registered name; the error for an unknown name suggests the nearest one.
    preset
        None for our defaults, ``"authors-code"`` for the values in the authors' public code; ``"paper"`` is another
        name for these, although the paper itself states only c = 150, C_B ≈ 25 and 20 repeats.
    **parameters
        Hyper-parameters by name; they override the preset.
    """
    recipe: Recipe = POLICIES.get(name)
    if preset not in (None, *AUTHORS_PRESETS):
        rule = 'the presets are None and "authors-code", which is also called "paper"'
        raise ParameterError("preset", repr(preset), rule, "use one of these")
    return recipe.make(name, preset, parameters)


def as_policy(policy: Policy | str) -> Policy:
    """Return a policy that is given as an object or by name; anything else is refused."""
    if isinstance(policy, str):
        return make_policy(policy)
    if isinstance(policy, type) or not hasattr(policy, "learn"):
        rule = "a policy is a registered name or an object made by make_policy"
        raise ParameterError("policy", repr(policy), rule, "pass one of these")
    return policy
