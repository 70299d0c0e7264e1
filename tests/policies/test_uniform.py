"""The uniform policy: equal shares, exact counts."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from spuir.base.packing import pack, unpack
from spuir.base.records import Batch
from spuir.base.streams import generator
from spuir.errors import InputError
from spuir.policies import make_policy
from spuir.policies.uniform import UniformState

make: Any = make_policy  # states are told apart by what they hold, not by type


def batch_of(actions, contexts=None, **more):
    contexts = np.zeros((len(actions), 2)) if contexts is None else contexts
    return Batch(contexts=contexts, actions=np.asarray(actions), rewards=np.ones(len(actions)), **more)


@pytest.fixture
def policy():
    return make("uniform")


@pytest.fixture
def state(policy):
    return policy.init(3, 2, generator(0, "init"))


def test_equal_shares_among_the_eligible(policy, state):
    eligible = np.array([[True, True, True], [True, False, True], [False, True, False]])
    table = policy.table(state, np.zeros((3, 2)), eligible)
    assert_array_equal(table.probabilities, [[1 / 3, 1 / 3, 1 / 3], [0.5, 0, 0.5], [0, 1, 0]])
    assert not table.means.any() and not table.widths.any() and not table.scores.any()


def test_frequencies_of_draws(policy, state):
    n = 100_000
    decision = policy.decide(state, np.zeros((n, 2)), generator(1, "draws"), np.array([True, False, True]))
    assert_array_equal(decision.propensities, np.full(n, 0.5))
    assert set(decision.actions) == {0, 2}
    # A two-sided binomial at 5 standard errors: fails once in 10⁶ seeds.
    assert abs(np.mean(decision.actions == 0) - 0.5) < 5 * 0.5 / np.sqrt(n)


def test_a_floor_changes_nothing_until_it_is_impossible(state):
    table = make("uniform", floor=0.3).table(state, np.zeros((1, 2)), np.ones((1, 3), bool))
    assert_allclose(table.probabilities, np.full((1, 3), 1 / 3), rtol=1e-15)
    with pytest.raises(InputError, match="floor"):
        make("uniform", floor=0.4).table(state, np.zeros((1, 2)), np.ones((1, 3), bool))


def test_counts_are_weights_of_executed_rows(policy, state):
    after, info = policy.learn(state, batch_of([0, 2, 2]), generator(0, "learn"))
    assert_array_equal(after.counts, [1, 0, 2])
    after, info = policy.learn(after, batch_of([1, 1], weights=[0.5, 2.0]), generator(0, "learn"))
    assert_array_equal(after.counts, [1, 2.5, 2])
    assert_array_equal(info.counts, [0, 2.5, 0])
    assert (after.episode, info.rows) == (2, 2)
    assert_array_equal(state.counts, np.zeros(3))


def test_an_empty_batch_is_no_episode(policy, state):
    after, info = policy.learn(state, batch_of([], contexts=np.zeros((0, 2))), generator(0, "learn"))
    assert after.episode == 0 and info.rows == 0


def test_shards_add_up(policy, state):
    rng = generator(2, "shards")
    left, right = (policy.collect(state, batch_of(part), rng) for part in ([0, 1], [1, 2, 2]))
    after, _ = policy.absorb(state, left + right)
    whole, _ = policy.learn(state, batch_of([0, 1, 1, 2, 2]), rng)
    assert_array_equal(after.counts, whole.counts)
    assert (after.episode, (left + right).rows) == (1, 5)
    assert policy.traits == {"additive", "foldable"}


@pytest.mark.parametrize("like", [None, 0])
def test_a_new_action_has_no_counts_of_its_own_yet(policy, state, like):
    after, _ = policy.learn(state, batch_of([0, 0]), generator(0, "learn"))
    grown = policy.grow(after, like)
    assert_array_equal(grown.counts, [2, 0, 0, 0])
    assert (grown.n_actions, grown.episode) == (4, 1)
    assert_array_equal(
        policy.table(grown, np.zeros((1, 2)), np.ones((1, 4), bool)).probabilities, np.full((1, 4), 0.25)
    )


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (batch_of([3]), "code 3"),
        (batch_of([0, 0], contexts=[[0.0, 0.0], [0.0, np.nan]]), "row 1, column 1"),
        (batch_of([0], contexts=[[np.inf, 0.0]]), "inf"),
    ],
)
def test_unusable_rows_are_refused(policy, state, batch, words):
    with pytest.raises(InputError, match=words):
        policy.learn(state, batch, generator(0, "learn"))


def test_unusable_contexts_are_refused_when_deciding(policy, state):
    with pytest.raises(InputError, match="row 1, column 0"):
        policy.table(state, np.array([[0.0, 0.0], [np.nan, 0.0]]), np.ones((2, 3), bool))


def test_its_state_is_saved_whole(policy, state):
    after, _ = policy.learn(state, batch_of([0, 2]), generator(0, "learn"))
    back = unpack(UniformState, *pack(after))
    assert_array_equal(back.counts, after.counts)
    assert (back.n_actions, back.dim, back.episode) == (3, 2, 1)
