"""Every law on every registered policy, with both presets and the parameters that change what it does."""

import pytest

from spuir.errors import ParameterError, UnknownNameError
from spuir.policies import list_policies, make_policy
from spuir.testing import LAWS, laws_for
from tests.contracts.cases import CASES

TRIALS = [
    pytest.param(policy, law, id=f"{case}-{law.name}") for case, policy in CASES.items() for law in laws_for(policy)
]


def test_the_set_tested_is_the_set_registered():
    assert {policy.name for policy in CASES.values()} == set(list_policies())


def test_every_law_is_tried():
    assert {law.name for policy in CASES.values() for law in laws_for(policy)} == {law.name for law in LAWS}


@pytest.mark.parametrize("name", list_policies())
def test_a_typo_is_answered_with_the_nearest_name(name):
    with pytest.raises(UnknownNameError, match=f"did you mean '{name}'"):
        make_policy(f"{name}x")
    with pytest.raises(ParameterError, match="did you mean 'floor'"):
        make_policy(name, flor=0.1)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match=r"got 'author'.*\"paper\""):
        make_policy(name, preset="author")


@pytest.mark.parametrize(("policy", "law"), TRIALS)
def test_law(policy, law):
    law.check(policy)
