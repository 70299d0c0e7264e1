"""The skeleton of the how-to keeps the contract, and policies with the faults of others do not."""

import os
import subprocess
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from docs.howto.skeleton_policy import SOFTMAX, Softmax
from spuir import make_policy
from spuir.base import streams
from spuir.base.records import Decision
from spuir.errors import ParameterError
from spuir.policies import POLICIES
from spuir.policies.base import Recipe
from spuir.policies.exact import ExactSums
from spuir.policies.learner import RidgeLearner
from spuir.policies.optimistic import Optimism
from spuir.policies.ridge import Ridge
from spuir.testing import LAWS, check_policy, laws_for

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "defaults": {},
    "ridge and floor": {"ridge": 4.0, "floor": 0.1, "temperature": 1.0},
    "sketched": {"sketch": "sjlt", "sketch_size": 24, "ridge": 0.1},
}


@pytest.fixture
def registered(monkeypatch):
    """Register names for one test only."""

    def register(name, target):
        monkeypatch.setitem(POLICIES._table, name, target)

    return register


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
@pytest.mark.parametrize("parameters", SETTINGS.values(), ids=SETTINGS)
def test_the_skeleton_keeps_every_law_that_applies(registered, parameters, law):
    registered("softmax", "docs.howto.skeleton_policy:SOFTMAX")
    policy = make_policy("softmax", **parameters)
    if law.applies(policy.traits):
        law.check(policy)
    else:
        assert not (law.needs <= policy.traits and policy.traits.isdisjoint(law.unless))


def test_the_page_names_every_trait():
    page = (ROOT / "docs" / "howto" / "adding-a-policy.md").read_text(encoding="utf-8")
    for trait in {trait for law in LAWS for trait in law.needs | law.unless} | {"weighting"}:
        assert f"`{trait}`" in page, trait


def test_the_skeleton_runs_as_it_stands():
    """As the how-to says: on its own, with no test around it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OPENBLAS_NUM_THREADS": "1"}
    skeleton = ROOT / "docs" / "howto" / "skeleton_policy.py"
    done = subprocess.run([sys.executable, skeleton], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    laws = laws_for(SOFTMAX.make("softmax", None, {}))
    assert done.stdout.startswith(f"softmax keeps {len(laws)} laws")
    assert not done.stderr


def test_a_policy_that_is_not_registered_is_told_so():
    with pytest.raises(ParameterError, match=r"got 'nameless'.*register it"):
        check_policy(Softmax(name="nameless"))


# Policies with one fault each. The docstring says which.


class DoubledRidge(RidgeLearner):
    """λ enters a second time where an action is cold."""

    def solve(self, state):
        readout = super().solve(state)
        cold = state.observed.weight == 0
        upper = readout.solved.upper.copy()
        upper[cold] *= np.sqrt(self.ridge)
        return replace(readout, solved=replace(readout.solved, upper=upper))


@dataclass(frozen=True, kw_only=True)
class RidgeTwice(Softmax):
    """λ enters a second time where an action is cold: right for λ = 1 only."""

    def make_learner(self):
        right = super().make_learner()
        return DoubledRidge(**{item.name: getattr(right, item.name) for item in fields(right)})


@dataclass(frozen=True, kw_only=True)
class Boastful(Softmax):
    """Propensities are those of the best action, whatever was drawn."""

    def decide(self, state, contexts, rng, eligible=None):
        made = super().decide(state, contexts, rng, eligible)
        return Decision(made.actions, made.probabilities.max(axis=1), lambda: made._table)


@dataclass(frozen=True, kw_only=True)
class Biased(Softmax):
    """Draws are pulled towards the first actions, though propensities look right."""

    def decide(self, state, contexts, rng: Any, eligible=None):
        made = super().decide(state, contexts, rng, eligible)
        chances = made.probabilities
        first = (chances > 0.2).argmax(axis=1)
        pulled = np.where((rng.normals(9, 1)[:, 0] < -1.6) & (chances.max(axis=1) > 0.2), first, made.actions)
        return Decision(pulled, chances[np.arange(len(contexts)), pulled], lambda: made._table)


@dataclass(frozen=True, kw_only=True)
class Restless(Softmax):
    """Looking at contexts moves the state."""

    def table(self, state, contexts, eligible):
        state.observed.moment[:] += 1e-9
        return super().table(state, contexts, eligible)


@dataclass(frozen=True, kw_only=True)
class Forgetful(Softmax):
    """Weights are dropped when rows are summed."""

    def collect(self, state, batch, rng):
        return super().collect(state, replace(batch, weights=None), rng)


@dataclass(frozen=True, kw_only=True)
class Impatient(Softmax):
    """An empty batch counts as an episode."""

    def learn(self, state, batch, rng):
        if not len(batch):
            return self.absorb(state, self.collect(state, batch, rng))
        return super().learn(state, batch, rng)


@dataclass(frozen=True, kw_only=True)
class Redrawn(Softmax):
    """Random features are drawn again at every call."""

    def estimates(self, state, contexts):
        fresh = self.feature_map.init(state.dim, streams.generator(len(contexts), "again"))
        return super().estimates(replace(state, features=replace(fresh, bandwidth=1.0)), contexts)


@dataclass(frozen=True, kw_only=True)
class Trusting(Softmax):
    """NaN is taken for 0."""

    def table(self, state, contexts, eligible):
        return super().table(state, np.nan_to_num(contexts, posinf=0.0, neginf=0.0), eligible)

    def decide(self, state, contexts, rng, eligible=None):
        return super().decide(state, np.nan_to_num(contexts, posinf=0.0, neginf=0.0), rng, eligible)


@dataclass(frozen=True, kw_only=True)
class Partial(Softmax):
    """The first action counts more than the others, so that names matter."""

    def absorb(self, state, sums):
        after, info = super().absorb(state, sums)
        observed = after.observed.copied()
        observed.moment[0] *= 1.01
        return replace(after, observed=observed), info


@dataclass(frozen=True, kw_only=True)
class Orderly(Softmax):
    """The first row of a batch counts twice."""

    def collect(self, state, batch, rng):
        weights = np.ones(len(batch)) if batch.weights is None else batch.weights.copy()
        weights[:1] *= 2
        return super().collect(state, replace(batch, weights=weights), rng)


@dataclass(frozen=True, kw_only=True)
class Hoarding(Softmax):
    """The state grows with every episode."""

    def absorb(self, state, sums):
        after, info = super().absorb(replace(state, shared=None), sums)
        return replace(after, shared=np.zeros(after.episode)), info

    def check_state(self, state):
        return None


@dataclass(frozen=True, kw_only=True)
class Scribbling(Softmax):
    """Rewards are centred in the caller's own array."""

    def weighted(self, state, batch, rng):
        batch.rewards[...] -= batch.rewards.mean()
        return batch


@dataclass(frozen=True, kw_only=True)
class Indulgent(Softmax):
    """Ineligible actions keep a small chance."""

    def table(self, state, contexts, eligible):
        made = super().table(state, contexts, eligible)
        return replace(made, probabilities=0.999 * made.probabilities + 0.001 / state.n_actions)


class UnitRidge(RidgeLearner):
    """Coefficients are solved with λ = 1."""

    def solve(self, state):
        readout = super().solve(state)
        theta = replace(self, ridge=1.0).readout(state).solved.theta if self.ridge != 1 else readout.solved.theta
        return replace(readout, solved=replace(readout.solved, theta=theta))


@dataclass(frozen=True, kw_only=True)
class RidgeForgotten(Softmax):
    """Widths have λ, coefficients have 1 in its place: right for λ = 1 only."""

    def make_learner(self):
        right = super().make_learner()
        return UnitRidge(**{item.name: getattr(right, item.name) for item in fields(right)})


class LossySums(ExactSums):
    """Sums that keep the weight of the first shard only."""

    def __add__(self, other):
        both = super().__add__(other)
        both.observed.weight[:] = self.observed.weight
        return LossySums(**vars(both))


@dataclass(frozen=True, kw_only=True)
class Lossy(Softmax):
    """The weights of all shards but the first are lost, which moves no estimate."""

    def collect(self, state, batch, rng):
        return LossySums(**vars(super().collect(state, batch, rng)))


@dataclass(frozen=True, kw_only=True)
class Guessing(Softmax):
    """Propensities are called estimates, and are the same for every action."""

    def decide(self, state, contexts, rng, eligible=None):
        made = super().decide(state, contexts, rng, eligible)
        return Decision(made.actions, np.full(len(contexts), 0.5), lambda: made._table, exact=False)


@dataclass(frozen=True, kw_only=True)
class Blank(Softmax):
    """Rewards are imputed as 0, whatever was learned before."""

    def absorb(self, state, sums):
        after, info = super().absorb(state, sums)
        after.imputed.moment[:] = 0.0
        return replace(after), info


@dataclass(frozen=True, kw_only=True)
class Fading(Softmax):
    """What was observed is discounted like what was imputed."""

    def make_learner(self):
        return replace(super().make_learner(), forgetting=self.discount)


@dataclass(frozen=True, kw_only=True)
class ForgetfulSketch(Forgetful):
    """Weights are dropped, in batches that are sketched and in others."""


@dataclass(frozen=True, kw_only=True)
class HeavySketch(Softmax):
    """A sketch scales rows by their weight, not by its root."""

    def collect(self, state, batch, rng):
        if len(batch) > self.sketch_size:
            batch = replace(batch, weights=batch.given_weights**2)
        return super().collect(state, batch, rng)


@dataclass(frozen=True, kw_only=True)
class Hasty(Ridge, Optimism):
    """The bound on all widths is kept when an action is added, for which it does not hold."""

    def grow(self, state, like):
        return replace(super().grow(state, like), shared=state.shared)


FOURIER = {"features": "fourier", "n_features": 8, "bandwidth": 1.0}
SKETCH = {"sketch": "sjlt", "sketch_size": 24}
MUTANTS = {
    RidgeTwice: ({}, "a never tried action has no estimate"),
    Boastful: ({}, "probabilities sum to one"),
    Biased: ({}, "draws match the probabilities"),
    Restless: ({}, "predicting changes nothing"),
    Forgetful: ({}, "a weight counts as copies"),
    Impatient: ({}, "an empty batch is no episode"),
    Redrawn: (FOURIER, "contexts do not affect each other"),
    Trusting: ({}, "wrong values are refused and change nothing"),
    Partial: ({}, "names of actions do not matter"),
    Orderly: ({}, "the order of rows does not matter"),
    Hoarding: ({}, "the state keeps its size"),
    Scribbling: ({}, "inputs are never written"),
    Indulgent: ({}, "probabilities sum to one"),
    RidgeForgotten: ({}, "first estimates solve the ridge equation"),
    Lossy: ({}, "shards add up"),
    Guessing: ({}, "draws match the probabilities"),
    Blank: ({}, "later estimates solve the ridge equation"),
    Fading: ({}, "later estimates solve the ridge equation"),
    ForgetfulSketch: (SKETCH, "a weight counts as copies"),
    Hasty: ({"alpha": 1.0}, "actions can be added"),
    HeavySketch: (SKETCH, "a sketch weighs rows by scaling them"),
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda cls: cls.__name__)
def test_a_fault_is_found(registered, monkeypatch, mutant):
    parameters, broken = MUTANTS[mutant]
    recipe = Recipe(target=mutant, defaults=SOFTMAX.defaults, paper={}, summary="")
    monkeypatch.setattr("docs.howto.skeleton_policy.MUTANT", recipe, raising=False)
    registered("mutant", "docs.howto.skeleton_policy:MUTANT")
    policy = make_policy("mutant", **parameters)
    law = next(law for law in laws_for(policy) if law.name == broken)
    with pytest.raises((AssertionError, ValueError)):
        law.check(policy)


def test_all_broken_laws_are_listed(registered, monkeypatch):
    recipe = Recipe(target=Indulgent, defaults={}, paper={}, summary="")
    monkeypatch.setattr("docs.howto.skeleton_policy.MUTANT", recipe, raising=False)
    registered("mutant", "docs.howto.skeleton_policy:MUTANT")
    with pytest.raises(AssertionError, match=r"policy 'mutant' breaks \d laws:\n") as caught:
        check_policy(make_policy("mutant"))
    listed = str(caught.value).splitlines()[1:]
    assert any(line.startswith("probabilities sum to one: AssertionError: ") for line in listed)
    assert any(line.startswith("retired actions are never chosen: ") for line in listed)


@dataclass(frozen=True, kw_only=True)
class Unfinished(Softmax):
    """Something is missing, so that predicting raises an error of Python's own."""

    def predict(self, state, contexts, eligible=None):
        return self.choices(state, contexts)  # type: ignore[attr-defined]


def test_whatever_a_policy_raises_breaks_a_law(registered, monkeypatch):
    monkeypatch.setattr("docs.howto.skeleton_policy.MUTANT", replace(SOFTMAX, target=Unfinished), raising=False)
    registered("mutant", "docs.howto.skeleton_policy:MUTANT")
    with pytest.raises(AssertionError, match=r"predicting changes nothing: AttributeError: .*no attribute 'choices'"):
        check_policy(make_policy("mutant"))
