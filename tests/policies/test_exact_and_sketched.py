"""Shards of an episode, exact and sketched: what they hold, how they add up, when rows become a hash."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from spuir.base.records import Batch
from spuir.base.streams import generator
from spuir.core import statistics
from spuir.core.imputing import LINKS
from spuir.errors import ShardError
from spuir.policies import sketched
from spuir.policies.exact import ExactSums, ImputedRewards, exact_sums, hidden_mask, observed_entries
from spuir.policies.sketched import MOMENTS, Hashing, SketchedSums, hash_rows, residual_moments, row_ids, sketched_sums
from spuir.sketches import make_sketch
from tests.identities.episodes import batch_of, make_batch

M, D, B = 3, 4, 30
THETA = generator(0, "theta").normal(size=(M, D))


def tiny() -> Batch:
    revealed = [[True, False, True], [False, False, False], [True, True, True]]
    return batch_of(
        contexts=np.eye(3),
        actions=[0, 1, 2],
        rewards=[1.0, 2.0, 3.0],
        weights=[1.0, 2.0, 3.0],
        revealed=revealed,
        revealed_rewards=10.0 * np.arange(9).reshape(3, 3),
    )


def part(batch: Batch, rows: Any) -> Batch:
    """Return some rows of a batch, hashed by the ids they have in the whole."""
    names = ("contexts", "actions", "rewards", "weights", "revealed", "revealed_rewards")
    some = {name: getattr(batch, name)[rows] for name in names if getattr(batch, name) is not None}
    return batch_of(**some, row_ids=np.arange(len(batch))[rows])


class TestEntries:
    def test_executed_rows_come_first_then_what_was_revealed_of_others(self) -> None:
        rows, codes, rewards, weights = observed_entries(tiny())
        assert rows is not None and weights is not None
        assert rows.tolist() == [0, 1, 2, 0, 2, 2]
        assert codes.tolist() == [0, 1, 2, 2, 0, 1]
        assert rewards.tolist() == [1.0, 2.0, 3.0, 20.0, 60.0, 70.0]
        assert weights.tolist() == [1.0, 2.0, 3.0, 1.0, 3.0, 3.0]

    def test_without_revealed_rewards_entries_are_the_rows(self) -> None:
        batch = replace(tiny(), revealed=None, revealed_rewards=None)
        rows, codes, rewards, weights = observed_entries(batch)
        assert rows is None
        assert codes is batch.actions and rewards is batch.rewards and weights is batch.weights

    def test_what_is_neither_executed_nor_revealed_is_hidden(self) -> None:
        mask = hidden_mask(tiny())
        assert mask.tolist() == [[False, True, False], [True, False, True], [False, False, False]]
        plain = replace(tiny(), revealed=None, revealed_rewards=None)
        assert hidden_mask(plain) is plain.actions

    def test_the_batch_is_not_written_to(self) -> None:
        batch = tiny()
        assert batch.revealed is not None
        before = batch.revealed.copy()
        observed_entries(batch)
        hidden_mask(batch)
        np.testing.assert_array_equal(batch.revealed, before)

    @pytest.mark.parametrize("feedback", [{}, {"revealed": 0.5}, {"weights": True, "revealed": 0.5}], ids=str)
    def test_observed_and_hidden_rows_of_an_action_are_all_rows(self, feedback: dict[str, Any]) -> None:
        batch = make_batch(generator(1, "rows"), B, D, M, **feedback)
        sums = exact_sums(batch, THETA, ImputedRewards(LINKS["linear"], None, True))
        imputed = sums.imputed()
        heavy = np.ones(B) if batch.weights is None else batch.weights
        total = batch.contexts.T @ (heavy[:, None] * batch.contexts)
        for j in range(M):
            np.testing.assert_allclose(sums.observed.gram[j] + imputed.gram[j], total, rtol=1e-12)
        np.testing.assert_allclose(sums.observed.weight + imputed.weight, heavy.sum())


def same_exact(first: ExactSums, second: ExactSums) -> None:
    assert first.rows == second.rows
    pairs = [(getattr(first.observed, n), getattr(second.observed, n)) for n in ("gram", "moment", "weight", "energy")]
    pairs += [(getattr(first.imputed(), n), getattr(second.imputed(), n)) for n in ("gram", "weight")]
    assert (first.gap is None) == (second.gap is None)
    if first.gap is not None and second.gap is not None:
        pairs.append((first.gap, second.gap))
    for one, two in pairs:
        np.testing.assert_allclose(one, two, rtol=1e-10, atol=1e-11)


FEEDBACK: list[dict[str, Any]] = [{}, {"weights": True}, {"revealed": 0.4}, {"weights": True, "revealed": 0.4}]


@pytest.mark.parametrize("feedback", FEEDBACK, ids=str)
@pytest.mark.parametrize("link", ["linear", "poly"])
def test_exact_shards_add_up(feedback: dict[str, Any], link: str) -> None:
    batch = make_batch(generator(2, "rows"), B, D, M, **feedback)
    cuts = [part(batch, slice(0, 1)), part(batch, slice(1, 17)), part(batch, slice(17, B))]
    shards = [exact_sums(cut, THETA, ImputedRewards(LINKS[link], 0.5, True)) for cut in cuts]
    whole = exact_sums(batch, THETA, ImputedRewards(LINKS[link], 0.5, True))
    same_exact(shards[0] + shards[1] + shards[2], whole)
    same_exact(shards[2] + (shards[0] + shards[1]), whole)


def mixed() -> tuple[Batch, Batch, Batch]:
    """A batch of which only the second half reveals anything, whole and in halves; the first half keeps no mask."""
    batch = make_batch(generator(3, "rows"), B, D, M, revealed=0.5)
    assert batch.revealed is not None
    batch.revealed[:15] = False
    plain = part(batch, slice(0, 15))
    return batch, replace(plain, revealed=None, revealed_rewards=None), part(batch, slice(15, B))


def test_a_shard_without_revealed_rewards_adds_to_one_with_them() -> None:
    whole, first, second = mixed()
    shards = [exact_sums(cut, THETA, ImputedRewards(LINKS["exp"], 1.0, True)) for cut in (first, second)]
    same_exact(shards[0] + shards[1], exact_sums(whole, THETA, ImputedRewards(LINKS["exp"], 1.0, True)))
    same_exact(shards[1] + shards[0], exact_sums(whole, THETA, ImputedRewards(LINKS["exp"], 1.0, True)))


# ---- sketched -------------------------------------------------------------------------------------------------


def hashing(size: int = 10, link: str = "linear", sketched_moments: bool = False, key: int = 5) -> Hashing:
    return Hashing(
        sketch=make_sketch("sjlt", size=size),
        key=key,
        imputed=ImputedRewards(LINKS[link], 0.5, True),
        theta=THETA,
        reference=THETA,
        moments=MOMENTS["sketched" if sketched_moments else "exact"],
    )


def same_hashed(first: SketchedSums, second: SketchedSums) -> None:
    one, two = first.hashed(), second.hashed()
    assert first.rows == second.rows
    for name in ("contexts", "rewards", "weight", "energy", "residual", "gap", "gap_sketch"):
        a, b = getattr(one, name), getattr(two, name)
        assert (a is None) == (b is None), name
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11, err_msg=name)
    for a, b in zip(one.imputed(), two.imputed(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("feedback", FEEDBACK, ids=str)
@pytest.mark.parametrize(("link", "sketched_moments"), [("linear", False), ("poly", False), ("poly", True)])
def test_sketched_shards_add_up(feedback: dict[str, Any], link: str, sketched_moments: bool) -> None:
    batch, how = make_batch(generator(4, "rows"), B, D, M, **feedback), hashing(10, link, sketched_moments)
    # The first shard still holds its rows, the second is hashed at once.
    shards = [sketched_sums(part(batch, cut), how) for cut in (slice(0, 6), slice(6, B))]
    assert shards[0].held is not None and shards[1].parts is not None
    whole = sketched_sums(batch, how)
    same_hashed(shards[0] + shards[1], whole)
    same_hashed(shards[1] + shards[0], whole)


@pytest.mark.parametrize("feedback", FEEDBACK, ids=str)
def test_rows_are_held_while_they_fit_the_sketch(feedback: dict[str, Any]) -> None:
    batch, how = make_batch(generator(4, "rows"), B, D, M, **feedback), hashing(B)
    shards = [sketched_sums(part(batch, cut), how) for cut in (slice(0, 6), slice(6, 20), slice(20, B))]
    whole = shards[0] + shards[1] + shards[2]
    assert whole.held is not None and whole.rows == B
    exact = whole.exact(True)
    assert exact is not None
    same_exact(exact, exact_sums(batch, THETA, ImputedRewards(LINKS["linear"], 0.5, True)))
    one_more = batch_of(contexts=np.ones((1, D)), actions=[0], rewards=[1.0], row_ids=[B])
    beyond = whole + sketched_sums(one_more, how)
    assert beyond.held is None and beyond.parts is not None and beyond.exact(True) is None


def test_held_and_hashed_shards_may_differ_in_what_they_reveal_and_weigh() -> None:
    batch, first, second = mixed()
    for size in (10, B):
        shards = [sketched_sums(cut, hashing(size)) for cut in (first, replace(second, weights=np.full(15, 2.0)))]
        given = replace(batch, weights=np.repeat([1.0, 2.0], 15))
        same_hashed(shards[0] + shards[1], sketched_sums(given, hashing(size)))


def test_shards_of_two_hashes_do_not_add_up() -> None:
    batch = make_batch(generator(4, "rows"), B, D, M)
    with pytest.raises(ShardError, match="key"):
        _ = sketched_sums(batch, hashing(key=5)) + sketched_sums(batch, hashing(key=6))


def test_rows_without_ids_are_numbered() -> None:
    batch = make_batch(generator(4, "rows"), 4, D, M)
    assert row_ids(batch).tolist() == [0, 1, 2, 3]
    assert row_ids(replace(batch, row_ids=np.array([9, 7, 5, 3]))).tolist() == [9, 7, 5, 3]


@pytest.mark.parametrize("m", [2, 9])
@pytest.mark.parametrize("feedback", FEEDBACK, ids=str)
@pytest.mark.parametrize("piece", [1, 4, 1000])
def test_residual_moments_in_pieces(
    monkeypatch: pytest.MonkeyPatch, m: int, feedback: dict[str, Any], piece: int
) -> None:
    rng = generator(6, "rows", m)
    batch, reference = make_batch(rng, B, D, m, **feedback), rng.normal(size=(m, D))
    monkeypatch.setattr(sketched, "TWICE_BYTES", piece * 16 * D)
    rows, codes, rewards, weights = observed_entries(batch)
    moment = residual_moments(batch, reference, rows, codes, rewards, weights)
    expected = np.zeros((m, D))
    for entry, (code, reward) in enumerate(zip(codes, rewards, strict=True)):
        s = batch.contexts[entry if rows is None else rows[entry]]
        expected[code] += (1.0 if weights is None else weights[entry]) * (reward - reference[code] @ s) * s
    np.testing.assert_allclose(moment, expected, rtol=1e-10, atol=1e-11)


def test_hashing_in_pieces_is_hashing_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = make_batch(generator(7, "rows"), B, D, M, weights=True, revealed=0.3)
    whole = SketchedSums(
        rows=B,
        how=hashing(link="exp", sketched_moments=True),
        parts=hash_rows(batch, hashing(link="exp", sketched_moments=True)),
    )
    monkeypatch.setattr(sketched, "HASH_BYTES", 3 * 8 * D)
    monkeypatch.setattr(statistics, "GATHER_BYTES", 3 * 8 * D)
    cut = SketchedSums(rows=B, how=whole.how, parts=hash_rows(batch, whole.how))
    same_hashed(whole, cut)


def test_a_shard_that_holds_nothing_is_refused() -> None:
    with pytest.raises(ShardError, match="neither"):
        SketchedSums(rows=3, how=hashing()).hashed()
