"""Identity 3: one hash a batch gives every action an SJLT of its own rows and one of all other rows."""

from typing import Any

import numpy as np
import pytest

from benchmarks.naive import NaivePolicy, sketch_matrix
from spuir.base.records import Batch
from spuir.base.streams import generator
from spuir.sketches import make_sketch
from tests.identities.episodes import Pair, make_batch

C, B, D, M = 24, 70, 5, 4
SKETCHES = [("sjlt", 1), ("sjlt", 3), ("sjlt", 8), ("gaussian", 1)]


def matrix_of(sketch: Any, ids: Any, key: int) -> np.ndarray:
    """Return the sketch of these ids as a dense matrix (c, N)."""
    made = sketch_matrix(sketch, ids, key)
    return made if isinstance(made, np.ndarray) else made.toarray()


@pytest.mark.parametrize(("kind", "blocks"), SKETCHES)
def test_sketches_of_the_other_actions_add_up_to_the_imputed_sketch(kind: str, blocks: int) -> None:
    batch = make_batch(generator(1, "hash"), B, D, M, weights=True)
    sketch, naive = make_sketch(kind, size=C, blocks=blocks), NaivePolicy(M, D)
    assert batch.weights is not None
    scaled = batch.contexts * np.sqrt(batch.weights)[:, None]
    Gamma = sketch.sums(scaled, batch.actions, M, np.arange(B), 77)
    for j in range(M):
        seen, hidden = naive.observed(batch, j), naive.imputed(batch, j, np.zeros(D))
        C_j, C_hat = matrix_of(sketch, seen.ids, 77), matrix_of(sketch, hidden.ids, 77)
        np.testing.assert_allclose(Gamma[j], C_j @ seen.S, atol=1e-12)
        np.testing.assert_allclose(sum(Gamma[k] for k in range(M) if k != j), C_hat @ hidden.S, atol=1e-12)


@pytest.mark.parametrize("blocks", [1, 3, 8])
def test_each_action_has_a_block_sjlt_of_its_rows_and_one_of_the_others(blocks: int) -> None:
    batch = make_batch(generator(1, "columns"), B, D, M)
    sketch, naive = make_sketch("sjlt", size=C, blocks=blocks), NaivePolicy(M, D)
    for j in range(M):
        for ids in (naive.observed(batch, j).ids, naive.imputed(batch, j, np.zeros(D)).ids):
            columns = matrix_of(sketch, ids, 5).T.reshape(len(ids), blocks, C // blocks)
            # One entry ±1/√D in each block of each column.
            assert np.all((columns != 0).sum(axis=2) == 1)
            np.testing.assert_allclose(np.abs(columns.sum(axis=2)), 1 / np.sqrt(blocks), rtol=1e-15)


@pytest.mark.parametrize(("kind", "blocks"), SKETCHES)
def test_a_column_depends_on_id_and_key_alone(kind: str, blocks: int) -> None:
    sketch = make_sketch(kind, size=C, blocks=blocks)
    ids = [3, 10**12, 7, 0, 2**62]
    whole = matrix_of(sketch, ids, 9)
    np.testing.assert_array_equal(matrix_of(sketch, ids[::-1], 9), whole[:, ::-1])
    np.testing.assert_array_equal(matrix_of(sketch, ids[2:3], 9), whole[:, 2:3])
    assert not np.array_equal(matrix_of(sketch, ids, 10), whole)


@pytest.mark.parametrize(("kind", "blocks"), SKETCHES)
def test_what_merges_is_the_sketch_not_its_gram(kind: str, blocks: int) -> None:
    rng = generator(2, "merge")
    values, ids = rng.normal(size=(B, D)), np.arange(B)
    sketch, none = make_sketch(kind, size=C, blocks=blocks), np.zeros(B, np.intp)
    whole = sketch.sums(values, none, 1, ids, 3)[0]
    first, second = (sketch.sums(values[s], none[s], 1, ids[s], 3)[0] for s in (slice(30), slice(30, B)))
    np.testing.assert_allclose(first + second, whole, atol=1e-12)
    assert np.abs(first.T @ first + second.T @ second - whole.T @ whole).max() > 1.0


@pytest.mark.parametrize(("kind", "blocks"), SKETCHES)
def test_a_sketch_keeps_squared_lengths_on_average(kind: str, blocks: int) -> None:
    rng = generator(3, "lengths")
    x, sketch, draws = rng.normal(size=(40, 1)), make_sketch(kind, size=C, blocks=blocks), 800
    x /= np.linalg.norm(x)
    none, ids = np.zeros(40, np.intp), np.arange(40)
    lengths = [float(np.sum(sketch.sums(x, none, 1, ids, key)[0] ** 2)) for key in range(draws)]
    # ‖Cx‖² has mean 1 and variance at most 2/c; five standard errors: wrong once in 1.7 million.
    assert np.mean(lengths) == pytest.approx(1.0, abs=5 * np.sqrt(2 / C / draws))
    assert np.std(lengths) < 1.3 * np.sqrt(2 / C)


def test_every_episode_draws_its_hash_afresh() -> None:
    batch = make_batch(generator(4, "fresh"), B, D, M)
    pair = Pair.start(M, D, name="spuir", sketch_size=C, moments="sketched", discount=0.0, forgetting=0.0)
    grams = []
    for _ in range(3):
        pair.learn(batch)
        grams.append(pair.state.observed.gram)
    assert not np.allclose(grams[0], grams[1]) and not np.allclose(grams[1], grams[2])


def test_rows_are_hashed_by_their_ids() -> None:
    rng = generator(5, "ids")
    batch = make_batch(rng, B, D, M)
    order = rng.permutation(B)
    numbered = Batch(contexts=batch.contexts, actions=batch.actions, rewards=batch.rewards, row_ids=np.arange(B) + 500)
    shuffled = Batch(
        contexts=batch.contexts[order], actions=batch.actions[order], rewards=batch.rewards[order], row_ids=order + 500
    )
    states = []
    for given in (numbered, shuffled):
        pair = Pair.start(M, D, name="spuir", sketch_size=C)
        pair.learn(given)
        pair.compare(batch.contexts[:3])
        states.append(pair.state)
    np.testing.assert_allclose(states[0].observed.gram, states[1].observed.gram, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(states[0].observed.moment, states[1].observed.moment, rtol=1e-11, atol=1e-12)
