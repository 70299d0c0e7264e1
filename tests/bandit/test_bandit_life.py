"""A bandit in use: fitting, adding actions, shards, copies and decisions that are kept."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import spuir
from spuir.bandit import from_bytes
from spuir.errors import InputError, ParameterError, SnapshotError
from tests.bandits import ACTIONS, REWARDS, B, M, X, taught


@pytest.mark.parametrize("policy", ["puir", "spuir", "bexp3", "linear-thompson", "uniform"])
@pytest.mark.parametrize("verb", ["predict", "predict_proba", "decision_function", "decide"])
def test_fit_alone_is_enough(policy: str, verb: str) -> None:
    getattr(spuir.Bandit(policy, M, random_state=0).fit(X, ACTIONS, REWARDS), verb)(X)
    bandit = spuir.Bandit(policy, M, random_state=0).fit(X, ACTIONS, REWARDS).partial_fit(X, ACTIONS, -REWARDS)
    assert bandit.n_episodes_ == 2


def test_an_action_added_while_the_first_decision_is_made_is_kept_whole(monkeypatch, tmp_path: Path) -> None:
    bandit = spuir.Bandit("puir", M, random_state=0)
    decide = type(bandit.policy_).decide

    def meanwhile(*args: Any) -> Any:
        bandit.add_action(M)
        return decide(*args)

    with monkeypatch.context() as patch:
        patch.setattr(type(bandit.policy_), "decide", meanwhile)
        assert bandit.decide(X).probabilities.shape == (B, M)
    assert bandit.predict_proba(X).shape == (B, M + 1)
    bandit.partial_fit(X[:4], [0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0]).save(tmp_path / "m.spuir")
    assert spuir.load(tmp_path / "m.spuir").state_.n_actions == M + 1


@pytest.mark.parametrize("policy", ["spuir", "spuir-exp", "puir", "sbucb"])
@pytest.mark.parametrize("sparsely", [False, True])
def test_a_shard_keeps_nothing_of_the_callers_arrays(policy: str, sparsely: bool) -> None:
    bandit = taught(policy)
    given = [sparse.csr_array(X) if sparsely else X.copy(), ACTIONS.copy(), -REWARDS]
    weights = np.ones(B)
    shard = bandit.collect(*given, row_ids=np.arange(B), sample_weight=weights)
    expected = copy.deepcopy(bandit).absorb(copy.deepcopy(shard)).coefficients_
    for array in (given[0].data if sparsely else given[0], *given[1:], weights):
        array[:] = 1
    np.testing.assert_array_equal(bandit.absorb(shard).coefficients_, expected)


@pytest.mark.parametrize("policy", ["puir", "spuir", "bexp3", "uniform", "blts-b"])
def test_rows_of_no_weight_are_no_episode(policy: str) -> None:
    bandit = taught(policy)
    before = bandit.predict_proba(X)
    bandit.partial_fit(X, ACTIONS, REWARDS, sample_weight=np.zeros(B))
    assert bandit.n_episodes_ == 1
    np.testing.assert_array_equal(bandit.predict_proba(X), before)
    with pytest.raises(InputError, match="finite"):
        bandit.partial_fit(X, ACTIONS, np.full(B, np.nan), sample_weight=np.zeros(B))


def test_a_bandit_with_an_encoder_draws_on_its_own() -> None:
    frame = pd.DataFrame({"age": [1.0, 2.0, 3.0]})
    encoder = spuir.Encoder.learn(frame)
    plain = spuir.Bandit("uniform", M, random_state=0).partial_fit(encoder.encode(frame), [0, 1, 2], [1.0, 2.0, 3.0])
    twin = plain.with_encoder(encoder)
    first = plain.decide(np.ones((20, 1))).actions
    np.testing.assert_array_equal(twin.decide(pd.DataFrame({"age": np.ones(20)})).actions, first)
    with pytest.raises(ParameterError, match="has another encoder"):
        spuir.Bandit("uniform", M, encoder=encoder).with_encoder(encoder)


def test_fit_resets_the_actions_too() -> None:
    bandit = spuir.Bandit("puir", ["a", "b"], random_state=0).add_action("c").remove_action("a")
    bandit.fit(X[:2], ["a", "b"], [1.0, 2.0])
    fresh = spuir.Bandit("puir", ["a", "b"], random_state=0).fit(X[:2], ["a", "b"], [1.0, 2.0])
    assert bandit.actions_.tolist() == ["a", "b"] and bandit.active_.all()
    np.testing.assert_array_equal(bandit.coefficients_, fresh.coefficients_)


def test_decisions_can_be_kept_for_later() -> None:
    decision = taught().decide(X, ids=list(range(len(X))))
    again = pickle.loads(pickle.dumps(decision))
    for name in ("actions", "propensities", "ids", "exact", "probabilities", "scores", "means", "widths"):
        np.testing.assert_array_equal(getattr(again, name), getattr(decision, name))


def test_a_model_as_bytes_is_a_model_file(tmp_path):
    rng = np.random.default_rng(0)
    bandit = spuir.Bandit("spuir", ["a", "b"], random_state=1)
    bandit.partial_fit(rng.normal(size=(20, 3)), ["a", "b"] * 10, rng.random(20))
    content = bandit.to_bytes()
    (tmp_path / "model.spuir").write_bytes(content)
    again, loaded = from_bytes(content, "bytes"), spuir.load(tmp_path / "model.spuir")
    assert again.to_bytes() == loaded.to_bytes() == content
    assert again.digest() == bandit.digest()
    bandit.decide(rng.normal(size=(5, 3)))  # what was decided is not part of what was learned
    assert bandit.to_bytes() == content
    bandit.partial_fit(rng.normal(size=(20, 3)), ["a", "b"] * 10, rng.random(20))
    assert bandit.digest() != again.digest()
    for broken in (b"", content[:-1], content[:100] + b"?" + content[101:], content + b"?"):
        with pytest.raises(SnapshotError, match="bytes"):
            from_bytes(broken, "bytes")
