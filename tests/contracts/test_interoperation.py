"""DataFrames, scikit-learn and labels of several kinds, on every registered policy."""

import copy
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from spuir import Bandit, list_policies, load, make_policy
from spuir.errors import InputError, NotFittedError, ShardError, SpuirError
from spuir.testing.trial import contexts, episode, frozen, require_alike, require_close

NAMES = list("abcde")
SHUFFLED = list("dbeac")


@pytest.fixture(params=list_policies())
def policy(request):
    return make_policy(request.param)


def frame(X, columns=NAMES):
    return pd.DataFrame(X, columns=NAMES)[columns]


def test_columns_are_matched_by_name(policy, tmp_path):
    plain, named = Bandit(policy, 4, random_state=1), Bandit(policy, 4, random_state=1)
    X = contexts(30)
    for number, order in enumerate((NAMES, SHUFFLED, NAMES)):
        rows = episode(policy, number, 160)
        plain.partial_fit(**rows.columns())
        named.partial_fit(**{**rows.columns(), "X": frame(rows.X, order), "actions": pd.Series(rows.actions)})
    assert list(named.feature_names_in_) == NAMES
    require_alike(named, plain, "a frame with columns in another order")
    np.testing.assert_array_equal(named.predict(frame(X, SHUFFLED)), plain.predict(X))
    first, second = named.decide(frame(X, SHUFFLED)), plain.decide(X)
    np.testing.assert_array_equal(first.actions, second.actions)
    named.save(tmp_path / "named")
    assert list(load(tmp_path / "named").feature_names_in_) == NAMES
    with pytest.raises(NotFittedError, match="feature_names_in_"):
        _ = plain.feature_names_in_


@pytest.mark.parametrize(("change", "shown"), [({"a": "z"}, "without 'a'.*'b', 'c'"), ({"a": "b"}, "'b' twice")])
def test_other_columns_are_refused(policy, change, shown):
    bandit, rows = Bandit(policy, 4, random_state=1), episode(policy, 0, 50)
    given = {**rows.columns(), "X": frame(rows.X)}
    bandit.partial_fit(**given)
    before = frozen(bandit)
    wrong: Any = frame(rows.X).set_axis([change.get(name, name) for name in NAMES], axis=1)
    for call in (bandit.decide, bandit.predict, lambda X: bandit.partial_fit(**{**given, "X": X})):
        with pytest.raises(InputError, match=shown):
            call(wrong)
    with pytest.raises(InputError, match="columns"):
        bandit.decide(frame(rows.X).drop(columns="c"))
    assert frozen(bandit) == before


def test_shards_of_frames_keep_their_columns(policy):
    if policy.name.endswith("kernel"):
        policy = replace(policy, bandwidth=1.0)  # else the first episode would have to come whole
    rows = episode(policy, 0, 60)
    halves = [{**half.columns(), "X": frame(half.X)} for half in (rows.take(slice(0, 30)), rows.take(slice(30, 60)))]
    bandit, whole = (Bandit(policy, 4, random_state=1).fix(contexts(300)) for _ in range(2))
    if "additive" not in policy.traits:
        with pytest.raises(ShardError, match="not additive"):
            bandit.collect(**halves[0])
        return
    first, second = (bandit.collect(**half) for half in halves)
    moved = bandit.collect(**{**halves[1], "X": halves[1]["X"][SHUFFLED]})
    with pytest.raises(ShardError, match="columns"):
        _ = first + moved
    bandit.absorb(first + second)
    assert list(bandit.feature_names_in_) == NAMES
    require_alike(bandit, whole.partial_fit(**rows.columns()), "frames in shards")


def test_clone_forgets_and_keeps_the_parameters(policy):
    bandit = Bandit(policy, ["x", "y"], random_state=5)
    rows = episode(policy, 0, 50, actions=2)
    bandit.partial_fit(**{**rows.columns(), "actions": np.array(["x", "y"])[rows.actions]})
    twin: Any = clone(bandit)
    assert twin.n_episodes_ == 0
    assert twin.get_params() == bandit.get_params()
    assert repr(twin) == repr(bandit)
    named: Any = clone(Bandit(policy.name, 3))
    assert named.policy == policy.name and named.policy_ == policy


def test_fit_starts_anew(policy):
    rows, other = episode(policy, 0, 160), episode(policy, 1, 160)
    once = Bandit(policy, 4, random_state=1).fit(**other.columns())
    twice = Bandit(policy, 4, random_state=1).fit(**rows.columns()).fit(**other.columns())
    assert frozen(once) == frozen(twice)
    wide = episode(policy, 0, 40, dim=7)
    assert twice.fit(**wide.columns()).n_features_in_ == 7
    with pytest.raises(SpuirError):
        twice.fit(**{**other.columns(), "rewards": np.full(160, np.nan)})
    assert twice.n_features_in_ == 7


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_copies_live_on_their_own(policy, copied):
    """For process pools and model selection; our own files never use pickle."""
    bandit = Bandit(policy, 4, random_state=1).partial_fit(**episode(policy, 0, 60).columns())
    twin = copied(bandit)
    before = frozen(bandit)
    for one in (twin, bandit):
        one.partial_fit(**episode(policy, 1, 60).columns()).decide(contexts(9))
    assert frozen(twin) == frozen(bandit) != before


LABELS = {
    "text": ["red", "blue", "green"],
    "numbers": [30, 10, 20],
    "mixed": [None, "blue", 2],
    "fractions": [0.5, 1.5, 2.5],
    "flags": [True, False, "other"],
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_labels_of_any_kind(labels, tmp_path):
    policy = make_policy("puir")
    bandit, plain = Bandit(policy, labels, random_state=1), Bandit(policy, 3, random_state=1)
    rows = episode(policy, 0, 80, actions=3)
    plain.partial_fit(**rows.columns())
    bandit.partial_fit(**{**rows.columns(), "actions": [labels[code] for code in rows.actions]})
    X = contexts(20)
    require_close(bandit.predict_proba(X), plain.predict_proba(X), "labels")
    assert [labels.index(action) for action in bandit.predict(X).tolist()] == plain.predict(X).tolist()
    assert set(bandit.decide(X).actions.tolist()) <= set(labels)
    bandit.save(tmp_path / "labels")
    again = load(tmp_path / "labels")
    assert again.actions_.tolist() == bandit.actions_.tolist() == labels
    assert frozen(again) == frozen(bandit)
