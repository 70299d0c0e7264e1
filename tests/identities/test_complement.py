"""Identities 1 and 2: imputed sums of all actions from the observed Gram matrices alone."""

import numpy as np
import pytest

from benchmarks.naive import NaivePolicy
from spuir.base.records import Batch
from spuir.base.streams import generator
from spuir.core.imputing import complement, linear_moments
from spuir.core.statistics import summarise
from tests.identities.episodes import Pair, make_batch


@pytest.mark.parametrize("n_actions", [1, 2, 8, 9, 60])
@pytest.mark.parametrize("weights", [False, True])
def test_identity_1_imputed_grams_are_the_other_actions_grams(n_actions: int, weights: bool) -> None:
    batch = make_batch(generator(1, "complement", n_actions), 50, 4, n_actions, weights=weights)
    observed = summarise(batch.contexts, batch.actions, batch.rewards, batch.weights, n_actions)
    naive = NaivePolicy(n_actions, 4)
    for j, (gram, weight) in enumerate(zip(complement(observed.gram), complement(observed.weight), strict=True)):
        hidden = naive.imputed(batch, j, np.zeros(4))
        np.testing.assert_allclose(gram, hidden.S.T @ hidden.S, rtol=1e-12, atol=1e-12)
        assert weight == pytest.approx(hidden.weight)
    room = np.full_like(observed.gram, np.nan)
    assert np.shares_memory(complement(observed.gram, room), room)
    np.testing.assert_array_equal(room, complement(observed.gram))


def test_identity_1_holds_whoever_was_eligible() -> None:
    batch = make_batch(generator(1, "eligible"), 50, 4, 3)
    eligible = np.zeros((50, 3), np.bool_)
    eligible[np.arange(50), batch.actions] = True
    eligible[:, 0] = True
    restricted = Batch(contexts=batch.contexts, actions=batch.actions, rewards=batch.rewards, eligible=eligible)
    first, second = (Pair.start(3, 4, imputation_rate=0.5) for _ in range(2))
    for pair, given in ((first, batch), (second, restricted)):
        pair.learn(batch, given=given)
        pair.learn(batch, given=given)
        pair.compare(batch.contexts[:3])
    assert first.state.imputed is not None and second.state.imputed is not None
    np.testing.assert_array_equal(first.state.imputed.gram, second.state.imputed.gram)


@pytest.mark.parametrize("n_actions", [2, 9])
def test_identity_2_linear_imputed_moments_need_no_rows(n_actions: int) -> None:
    rng = generator(2, "moments", n_actions)
    batch, theta = make_batch(rng, 50, 4, n_actions, weights=True), rng.normal(size=(n_actions, 4))
    observed = summarise(batch.contexts, batch.actions, batch.rewards, batch.weights, n_actions)
    naive = NaivePolicy(n_actions, 4)
    for j, moment in enumerate(linear_moments(complement(observed.gram), theta)):
        hidden = naive.imputed(batch, j, theta[j])
        np.testing.assert_allclose(moment, hidden.S.T @ hidden.R, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sketch", ["identity", "sjlt"])
def test_actions_never_tried_are_alike_to_the_last_bit_however_the_contexts_are_scaled(sketch: str) -> None:
    rng = generator(3, "idle")
    pair = Pair.start(12, 6, imputation_rate=0.3, discount=0.8, sketch=sketch, sketch_size=40, alpha=0.5)
    scales = 10.0 ** np.arange(-3, 3)
    for _ in range(3):
        batch = make_batch(rng, 60, 6, 12, actions=[0, 2, 3, 5, 6, 8, 9])
        pair.learn(Batch(contexts=batch.contexts * scales, actions=batch.actions, rewards=batch.rewards))
    solved, idle = pair.policy.readout(pair.state).solved, [1, 4, 7, 10, 11]
    for rows in (solved.upper[idle], solved.theta[idle]):
        np.testing.assert_array_equal(rows, np.broadcast_to(rows[0], rows.shape))
    # So their scores tie, and the one uniform splits them evenly, wherever no tried action is ahead.
    contexts = -scales * make_batch(rng, 300, 6, 1).contexts
    decision = pair.policy.decide(pair.state, contexts, generator(4, "draw"), np.isin(np.arange(12), idle))
    np.testing.assert_allclose(decision.propensities, 0.2, rtol=1e-12)
