"""The library's sums, coefficients, widths and decisions against the paper's equations written out."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from benchmarks import naive
from spuir.base.records import Batch
from spuir.base.streams import generator
from spuir.core import statistics, ties
from tests.identities.episodes import Pair, close, make_batch

SHAPES = {
    "plain": (40, 5, 3),
    "one row": (1, 3, 2),
    "one action": (30, 4, 1),
    "one column": (30, 1, 4),
    "more columns than rows": (6, 20, 4),
    "last by product": (60, 4, 8),
    "first by prefix sums": (60, 4, 9),
    "sixty actions": (90, 3, 60),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "sbucb": {"imputation_rate": 0.0, "ridge": 4.0},
    "constant": {"imputation_rate": 0.3, "ridge": 0.1, "discount": 0.7},
    "full rate": {"imputation_rate": 1.0, "discount": 1.0, "ridge": 4.0},
    "no memory of imputed rows": {"imputation_rate": 0.5, "discount": 0.0},
    "schedule": {"imputation_rate": "paper-schedule", "episodes": 3, "discount": 0.4, "ridge": 2.0},
    "balanced": {"imputation_rate": "balanced", "balance": 0.6, "discount": 0.8},
    "forgetting": {"imputation_rate": 0.2, "forgetting": 0.5, "discount": 0.9},
    "exp": {"imputation_rate": 0.2, "link": "exp", "ridge": 20.0},
    "exp capped": {"imputation_rate": 0.2, "link": "exp", "imputed_cap": 0.05},
    "poly": {"imputation_rate": 0.2, "link": "poly", "ridge": 2.0},
}
FEEDBACK: dict[str, dict[str, Any]] = {
    "executed only": {},
    "weights": {"weights": True},
    "revealed": {"revealed": 0.4},
    "both": {"weights": True, "revealed": 0.4},
}


def learn_some(pair: Pair, shape: tuple[int, int, int], episodes: int = 3, **feedback: Any) -> None:
    rows, dim, n_actions = shape
    for n in range(episodes):
        rng = generator(5, "episode", n)
        # The last action is never executed, the one before it not in every episode.
        some = np.arange(max(1, n_actions - 1 - n % 2))
        pair.learn(make_batch(rng, rows, dim, n_actions, actions=some, **feedback))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_exact_policies_follow_equations_2_to_4(setting: dict[str, Any], shape: tuple[int, int, int]) -> None:
    pair = Pair.start(shape[2], shape[1], name="puir", **setting)
    learn_some(pair, shape, episodes=2 if shape[2] == 60 else 3)
    pair.compare(make_batch(generator(6, "probe"), 5, shape[1], 1).contexts)


@pytest.mark.parametrize("feedback", list(FEEDBACK)[1:])
@pytest.mark.parametrize("setting", ["sbucb", "constant", "balanced", "forgetting", "exp capped"])
@pytest.mark.parametrize("shape", ["plain", "first by prefix sums"])
def test_weights_and_revealed_rewards_follow_equations_2_to_4(setting: str, feedback: str, shape: str) -> None:
    pair = Pair.start(SHAPES[shape][2], SHAPES[shape][1], name="puir", **SETTINGS[setting])
    learn_some(pair, SHAPES[shape], **FEEDBACK[feedback])
    pair.compare(make_batch(generator(6, "probe"), 5, SHAPES[shape][1], 1).contexts)


@pytest.mark.parametrize("moments", ["sketched", "exact", "corrected", "anchored"])
@pytest.mark.parametrize("sketch", [("sjlt", 12, 1), ("sjlt", 12, 3), ("gaussian", 10, 1)], ids=str)
@pytest.mark.parametrize("shape", [(40, 5, 3), (60, 4, 9), (30, 4, 1), (40, 25, 4)], ids=str)
def test_sketched_policies_follow_equations_6_to_8(
    moments: str, sketch: tuple[str, int, int], shape: tuple[int, int, int]
) -> None:
    kind, size, blocks = sketch
    setting = {"imputation_rate": 0.3, "discount": 0.7, "ridge": 0.5}
    given = {"sketch": kind, "sketch_size": size, "sketch_blocks": blocks, "moments": moments}
    pair = Pair.start(shape[2], shape[1], name="spuir", **setting, **given)
    learn_some(pair, shape)
    pair.compare(make_batch(generator(6, "probe"), 4, shape[1], 1).contexts)


@pytest.mark.parametrize("moments", ["sketched", "exact", "corrected", "anchored"])
@pytest.mark.parametrize("feedback", ["executed only", "both"])
@pytest.mark.parametrize("setting", ["sbucb", "balanced", "forgetting", "schedule", "exp", "exp capped", "poly"])
def test_every_setting_can_be_sketched(setting: str, feedback: str, moments: str) -> None:
    pair = Pair.start(3, 5, name="spuir", sketch_size=12, moments=moments, **SETTINGS[setting])
    learn_some(pair, SHAPES["plain"], **FEEDBACK[feedback])
    pair.compare(make_batch(generator(6, "probe"), 4, 5, 1).contexts)


def test_a_batch_no_larger_than_the_sketch_is_taken_whole() -> None:
    pair = Pair.start(3, 5, name="spuir", sketch_size=40)
    plain = Pair.start(3, 5, name="puir", alpha=0.2, imputation_rate=0.1, discount=0.9)
    for one in (pair, plain):
        learn_some(one, SHAPES["plain"])
    np.testing.assert_array_equal(pair.state.observed.gram, plain.state.observed.gram)
    np.testing.assert_array_equal(pair.state.observed.moment, plain.state.observed.moment)
    pair.compare(make_batch(generator(6, "probe"), 4, 5, 1).contexts)


@pytest.mark.parametrize("feedback", FEEDBACK)
@pytest.mark.parametrize("piece", [1, 3, 7])
@pytest.mark.parametrize("setting", ["constant", "exp capped"])
@pytest.mark.parametrize("name", ["puir", "spuir"])
def test_pieces_of_any_size_give_the_same_sums(
    monkeypatch: pytest.MonkeyPatch, name: str, setting: str, piece: int, feedback: str
) -> None:
    shape = (40, 5, 4)
    sketch: dict[str, Any] = {"sketch_size": 12} if name == "spuir" else {}
    pair = Pair.start(4, 5, name=name, **SETTINGS[setting], **sketch)
    monkeypatch.setattr(statistics, "GATHER_BYTES", piece * 8 * 5)
    monkeypatch.setattr(ties, "BLOCK_BYTES", piece * 8 * 5)
    assert next(statistics.blocks(15, 8 * 5)) == slice(0, piece)
    learn_some(pair, shape, episodes=2, **FEEDBACK[feedback])
    pair.compare(make_batch(generator(6, "probe"), 9, 5, 1).contexts)


def read_only(x: np.ndarray) -> np.ndarray:
    out = x.copy()
    out.flags.writeable = False
    return out


FORMS = {
    "float32": lambda x: x.astype(np.float32),
    "Fortran order": np.asfortranarray,
    "every second row of a larger array": lambda x: np.repeat(x, 2, axis=0)[::2],
    "read-only": read_only,
    "CSR array": sparse.csr_array,
    "CSR matrix": sparse.csr_matrix,
    "CSR of float32": lambda x: sparse.csr_array(x.astype(np.float32)),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("feedback", ["executed only", "both"])
@pytest.mark.parametrize("name", ["puir", "spuir"])
def test_contexts_in_any_form_are_summed_as_float64(name: str, feedback: str, form: Any) -> None:
    sketch: dict[str, Any] = {"sketch_size": 12} if name == "spuir" else {}
    pair = Pair.start(4, 5, name=name, ridge=0.5, imputation_rate=0.3, **sketch)
    for n in range(2):
        batch = make_batch(generator(5, "episode", n), 30, 5, 4, **FEEDBACK[feedback])
        # Values that float32 holds exactly, so that the conversion itself loses nothing.
        batch = replace(
            batch, contexts=np.where(batch.contexts > 0.2, batch.contexts, 0).astype(np.float32).astype(float)
        )
        pair.learn(batch, given=replace(batch, contexts=form(batch.contexts)))
    pair.compare(make_batch(generator(6, "probe"), 4, 5, 1).contexts)


@pytest.mark.parametrize("setting", ["sbucb", "constant", "balanced", "exp"])
@pytest.mark.parametrize("name", ["puir", "spuir"])
def test_an_integer_weight_is_that_many_copies(name: str, setting: str) -> None:
    # A sketch at least as large as the batch with its copies, since copies hash apart.
    sketch: dict[str, Any] = {"sketch_size": 400} if name == "spuir" else {}
    weighted = Pair.start(3, 4, name=name, **SETTINGS[setting], **sketch)
    copied = Pair.start(3, 4, name=name, **SETTINGS[setting], **sketch)
    for n in range(2):
        rng = generator(7, "copies", n)
        batch = make_batch(rng, 50, 4, 3, revealed=0.3)
        times = rng.integers(0, 4, size=50)
        assert batch.revealed is not None and batch.revealed_rewards is not None
        weighted.learn(replace(batch, weights=times.astype(float)))
        repeated = Batch(
            contexts=np.repeat(batch.contexts, times, axis=0),
            actions=np.repeat(batch.actions, times),
            rewards=np.repeat(batch.rewards, times),
            revealed=np.repeat(batch.revealed, times, axis=0),
            revealed_rewards=np.repeat(batch.revealed_rewards, times, axis=0),
        )
        copied.learn(repeated)
    first, second = weighted.policy.readout(weighted.state), copied.policy.readout(copied.state)
    close("theta", first.solved.theta, second.solved.theta, 1e-10)
    close("rates", first.rates, second.rates, 1e-10)
    close("weight", weighted.state.observed.weight, copied.state.observed.weight, 1e-10)


@pytest.mark.parametrize("n_actions", [1, 3, 20])
@pytest.mark.parametrize("floor", [0.0, 0.04])
@pytest.mark.parametrize("setting", ["sbucb", "constant", "balanced", "exp capped"])
def test_probabilities_are_those_of_the_written_out_rule(setting: str, floor: float, n_actions: int) -> None:
    pair = Pair.start(n_actions, 5, name="puir", floor=floor, alpha=0.7, **SETTINGS[setting])
    learn_some(pair, (60, 5, n_actions))
    rng = generator(8, "probe", n_actions)
    contexts = rng.normal(size=(40, 5))
    eligible = rng.random((40, n_actions)) < 0.6
    eligible[np.arange(40), rng.integers(n_actions, size=40)] = True
    expected = naive.choose(pair.naive.tables(contexts)[2], eligible, floor)
    table = pair.policy.table(pair.state, contexts, eligible)
    np.testing.assert_allclose(table.probabilities, expected, atol=1e-12)
    decision = pair.policy.decide(pair.state, contexts, generator(9, "draw"), eligible)
    np.testing.assert_allclose(decision.propensities, expected[np.arange(40), decision.actions], atol=1e-12)


def test_episodes_that_add_an_action_follow_the_equations() -> None:
    pair = Pair.start(3, 4, name="puir", imputation_rate=0.3, discount=0.6, ridge=2.0)
    learn_some(pair, (30, 4, 3), episodes=2)
    pair.state = pair.policy.grow(pair.state, None)
    pair.naive.add(None)
    for n in range(2):
        pair.learn(make_batch(generator(5, "after", n), 30, 4, 4))
        pair.compare(make_batch(generator(6, "probe"), 4, 4, 1).contexts)
