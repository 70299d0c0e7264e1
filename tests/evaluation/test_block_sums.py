"""Sums per block: consecutive rows, rows in any order and some of the rows, against sums row by row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.worlds import ACTIONS, World, soft, threshold
from spuir.evaluation import evaluate
from spuir.evaluation.block_sums import BlockAdder
from spuir.evaluation.reward_models import ContextFeatures


def row_by_row(blocks: list[int], values: np.ndarray, weights: np.ndarray | None, count: int) -> np.ndarray:
    found = np.zeros(count)
    for place, block in enumerate(blocks):
        found[block] += values[place] * (1.0 if weights is None else weights[place])
    return found


@given(
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=8),
    cut=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    weighted=st.booleans(),
    consecutive=st.booleans(),
    seed=st.integers(0, 99),
)
def test_sums_per_block_are_those_of_a_loop(
    lengths: list[int], cut: tuple[int, int], weighted: bool, consecutive: bool, seed: int
) -> None:
    edges = np.concatenate([[0], np.cumsum([max(length, consecutive) for length in lengths])])
    blocks = np.repeat(np.arange(len(lengths)), np.diff(edges))
    start, stop = sorted(min(one, len(blocks)) for one in cut)
    if start == stop:
        return
    rng, own = np.random.default_rng(seed), blocks[start:stop]
    values, weights = rng.normal(size=len(own)), rng.random(len(own)) if weighted else None
    own = own if consecutive else rng.permutation(own)
    adder = BlockAdder(own, len(lengths), weights)
    places = np.flatnonzero(rng.random(len(own)) < 0.5)
    for some, part in ((np.arange(len(own)), adder), (places, adder.at(places))):
        total, rows = np.zeros(len(lengths)), np.zeros(len(lengths), np.int64)
        part(total, values[some])
        part.add_rows(rows)
        chosen = None if weights is None else weights[some]
        np.testing.assert_allclose(total, row_by_row(own[some].tolist(), values[some], chosen, len(lengths)))
        np.testing.assert_array_equal(rows, np.bincount(own[some], minlength=len(lengths)))


def test_an_array_is_reduced_once_and_its_successor_in_memory_again() -> None:
    adder, totals = BlockAdder(np.array([0, 0, 1]), 2, None), np.zeros((3, 2))
    values = np.array([1.0, 2.0, 4.0])
    adder(totals[0], values)
    adder(totals[1], values)
    np.testing.assert_array_equal(totals[:2], [[3, 4], [3, 4]])
    for number in range(50):  # most of these arrays have the address of the one before
        del values
        values = np.full(3, float(number))
        total = np.zeros(2)
        adder(total, values)
        np.testing.assert_array_equal(total, [2 * number, number])


@pytest.mark.parametrize("group_by", ["row", "unit", "episode"])
def test_an_evaluation_does_not_depend_on_how_many_rows_are_read_at_a_time(
    group_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, contexts = World().draw(3000, np.random.default_rng(5))
    frame = frame.assign(unit_id=np.arange(3000) % 700, episode=np.arange(3000) // 100)
    frame.loc[::7, "reward"] = np.nan
    policies = {"rule": threshold, "soft": soft(contexts)}
    whole = evaluate(frame, policies, actions=ACTIONS, group_by=group_by, segment="x")
    monkeypatch.setattr("spuir.evaluation.logged_rows.BLOCK_ROWS", (1, 251))
    parts = evaluate(frame, policies, actions=ACTIONS, group_by=group_by, segment="x")
    for one, two in zip(whole.values, parts.values, strict=True):
        assert (one.policy, one.estimator, one.setting) == (two.policy, two.estimator, two.setting)
        assert [two.value, two.low, two.high] == pytest.approx([one.value, one.low, one.high], rel=1e-9)
    for name, one in whole.supports.items():
        assert parts.supports[name].effective_rows == pytest.approx(one.effective_rows)
        assert parts.supports[name].histogram == one.histogram
    np.testing.assert_allclose(whole.pictures["reward_over_log"], parts.pictures["reward_over_log"])


def test_features_of_the_next_rows_take_the_same_memory() -> None:
    frame, _ = World().draw(50, np.random.default_rng(1))
    import pyarrow as pa

    table = pa.Table.from_pandas(frame[["x", "y"]])
    features = ContextFeatures(table)
    first = features(table.slice(0, 30)).copy()
    second = features(table.slice(30, 20))
    scaled = (frame[["x", "y"]] - frame[["x", "y"]].mean()) / frame[["x", "y"]].std(ddof=0)
    np.testing.assert_allclose(np.vstack([first, second]), np.column_stack([scaled, np.ones(50)]), rtol=1e-9)
