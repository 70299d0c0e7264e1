"""Bandits with a catalogue for the laws of the contract."""

import pytest

import spuir
from spuir.base import streams
from spuir.testing import deciding, learning, living, refusing, sharding, trial


@pytest.fixture
def described(monkeypatch):
    """Let the laws make bandits with a catalogue."""
    rng = streams.generator(0, "described")
    rows = {name: rng.standard_normal(3) for name in (*range(4), "red", "blue", "green", "black", "a")}

    def fresh(policy, seed=7, actions=trial.N_ACTIONS):
        labels = range(actions) if isinstance(actions, int) else actions
        catalogue = {one: dict(zip("uvw", rows[one], strict=True)) for one in labels}
        return spuir.Bandit(policy, catalogue, random_state=seed)

    for module in (trial, deciding, learning, living, refusing, sharding):
        if hasattr(module, "fresh"):
            monkeypatch.setattr(module, "fresh", fresh)
    trial._TRAINED.clear()
    yield
    trial._TRAINED.clear()
