"""Every law on every registered policy, with both presets and the parameters that change what it does."""

import os
import subprocess
import sys
from pathlib import Path

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


REPEATED = """
import hashlib
from spuir import Bandit, list_policies
from spuir.testing.trial import contexts, episode
digest = hashlib.sha256()
for name in list_policies():
    bandit = Bandit(name, ["red", "blue", "green", "black"], random_state=1)
    for number, size in enumerate((60, 200)):
        rows = episode(bandit.policy_, number, size)
        bandit.partial_fit(**{**rows.columns(), "actions": bandit.actions_[rows.actions]})
        decided = bandit.decide(contexts(100))
        digest.update("".join(decided.actions).encode() + decided.propensities.tobytes())
print(digest.hexdigest())
"""


def test_other_processes_decide_alike():
    """Nothing depends on the order of sets or on the hashes of texts, which differ between processes."""
    outputs = set()
    for number in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": number, "OPENBLAS_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = str(Path(__file__).parents[2] / "src")
        command = [sys.executable, "-c", REPEATED]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        outputs.add(done.stdout)
    assert len(outputs) == 1
