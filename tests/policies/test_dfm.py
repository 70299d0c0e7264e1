"""DFM-S: what it reads of a batch, what it remembers, and that it learns who converts in the end."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit

from spuir import Bandit, load, run
from spuir.base.packing import pack
from spuir.base.records import Batch
from spuir.base.streams import generator
from spuir.core.delays import Clicks, fit, loss_and_slope
from spuir.environments import make_environment
from spuir.errors import InputError, NumericalError, ParameterError, ShardError
from spuir.policies import make_policy

make: Any = make_policy  # states are told apart by what they hold, not by type
MEMORIES = ("laplace", "window", "all")
COLUMNS = ("contexts", "actions", "rewards", "weights", "click", "conversion", "elapsed", "row_ids")


def rows_of(n=60, dim=3, actions=3, seed=0, **change) -> Any:
    rng = generator(seed, "rows")
    columns = {
        "contexts": rng.standard_normal((n, dim)),
        "actions": rng.integers(actions, size=n),
        "rewards": np.zeros(n),
        "click": (rng.random(n) < 0.6).astype(float),
        "conversion": (rng.random(n) < 0.5).astype(float),
        "elapsed": rng.exponential(0.8, n),
    }
    return Batch(**{**columns, **change})


def taken(batch, order):
    chosen = {name: getattr(batch, name) for name in COLUMNS if getattr(batch, name) is not None}
    return Batch(**{name: column[order] for name, column in chosen.items()})


def learnt(policy, *batches, actions=3, dim=3):
    state = policy.init(actions, dim, generator(0, "init"))
    for batch in batches:
        state, _ = policy.learn(state, batch, generator(0, "learn"))
    return state


def arrays_of(state):
    return {name: array.tobytes() for name, array in pack(state)[1].items()}


@pytest.mark.parametrize("memory", MEMORIES)
def test_the_first_fit_is_that_of_the_clicked_rows_as_seen_by_the_horizon(memory):
    policy, batch = make("dfm-s", memory=memory, ridge=0.7), rows_of()
    state = learnt(policy, batch)
    left = 1.4 * (1 - np.arange(60) / 60)
    for action in range(3):
        own = (batch.actions == action) & (batch.click == 1)
        seen = (batch.conversion == 1) & (batch.elapsed <= left)
        clicks = Clicks.of(batch.contexts[own], seen[own], np.minimum(batch.elapsed, left)[own])
        expected = fit(clicks, np.zeros((2, 3)), ridge=0.7).weights
        assert_allclose(state.weights[action], expected, atol=1e-8)
    table = policy.table(state, batch.contexts, np.ones((60, 3), bool))
    assert_allclose(table.scores, batch.contexts @ state.weights[:, 0].T)
    assert_allclose(table.means, expit(table.scores))
    assert not table.widths.any()
    assert_array_equal(table.probabilities, table.scores == table.scores.max(axis=1, keepdims=True))


@pytest.mark.parametrize("memory", MEMORIES)
def test_rows_without_a_click_teach_nothing(memory):
    policy, batch = make("dfm-s", memory=memory), rows_of()
    clicked = batch.click == 1
    rng = generator(1, "other")
    other = replace(
        batch,
        contexts=np.where(clicked[:, None], batch.contexts, rng.standard_normal((60, 3))),
        conversion=np.where(clicked, batch.conversion, 1 - batch.conversion),
        elapsed=np.where(clicked, batch.elapsed, 9.0),
        rewards=rng.standard_normal(60),
    )
    assert arrays_of(learnt(policy, batch)) == arrays_of(learnt(policy, other))
    assert arrays_of(learnt(policy, batch)) != arrays_of(learnt(policy, replace(batch, conversion=np.ones(60))))


@pytest.mark.parametrize("memory", MEMORIES)
def test_an_action_without_clicked_rows_keeps_its_weights(memory):
    policy = make("dfm-s", memory=memory, window=40)
    state = learnt(policy, rows_of())
    # Forty rows of action 0 push the others out of the window; action 2 is executed and never clicked.
    codes = np.repeat([0, 2], [80, 40])
    later = rows_of(120, seed=2, actions=1, click=np.where(codes == 0, 1.0, 0.0))
    after, info = policy.learn(state, replace(later, actions=codes), generator(0, "learn"))
    if memory != "all":  # with all rows at hand, a fit cut short goes on
        assert_array_equal(after.weights[1:], state.weights[1:])
        assert state.weights[1:].any()
    assert np.abs(after.weights[0] - state.weights[0]).max() > 0.01
    assert_array_equal(info.counts, [80, 0, 40])
    silent = rows_of(30, click=np.zeros(30))
    cold = learnt(policy, silent)
    assert not cold.weights.any() and cold.episode == 1


def test_a_conversion_beyond_the_horizon_is_one_not_seen():
    """At rows 0…3 of 4 there are 1.4, 1.05, 0.7 and 0.35 left."""
    policy = make("dfm-s", memory="all")
    given: dict[str, Any] = {"contexts": np.ones((4, 1)), "actions": np.zeros(4, int), "rewards": np.zeros(4)}
    batch = Batch(**given, click=np.ones(4), conversion=np.array([1.0, 1, 1, 0]), elapsed=np.array([1.4, 1.06, 0.2, 9]))
    kept = learnt(policy, batch, actions=1, dim=1).kept
    assert_array_equal(kept.converted, [True, False, True, False])
    assert_allclose(kept.elapsed, [1.4, 1.05, 0.2, 0.35])
    # What was watched for a shorter time than that stays so.
    shorter = learnt(policy, replace(batch, conversion=np.zeros(4), elapsed=np.full(4, 0.5)), actions=1, dim=1).kept
    assert_allclose(shorter.elapsed, [0.5, 0.5, 0.5, 0.35])
    given_as_is = learnt(make("dfm-s", memory="all", horizon=None), batch, actions=1, dim=1).kept
    assert_array_equal(given_as_is.converted, batch.conversion == 1)
    assert_array_equal(given_as_is.elapsed, batch.elapsed)


@pytest.mark.parametrize("memory", MEMORIES)
def test_censored_by_the_environment_or_by_the_policy_is_the_same(memory):
    policy = make("dfm-s", memory=memory)
    states = []
    for censored in (False, True):
        world = make_environment("synthetic", dim=4, seed=1, censored=censored)
        rounds = world.draw(300, generator(0, "contexts"))
        actions = generator(0, "actions").integers(5, size=300)
        seen = world.feedback(rounds, actions, generator(0, "noise"))
        columns: dict[str, Any] = {"click": seen.click, "conversion": seen.conversion, "elapsed": seen.elapsed}
        batch = Batch(contexts=rounds.contexts, actions=actions, rewards=seen.rewards, **columns)
        states.append((learnt(policy, batch, actions=5, dim=4), batch))
    assert states[0][1].conversion.sum() > 1.2 * states[1][1].conversion.sum()
    assert arrays_of(states[0][0]) == arrays_of(states[1][0])


@pytest.mark.parametrize("memory", MEMORIES)
def test_ids_tell_the_order_of_execution(memory):
    policy, batch = make("dfm-s", memory=memory, window=20), rows_of()
    order = generator(0, "order").permutation(60)
    numbered = replace(batch, row_ids=1000 + 7 * np.arange(60))
    expected = arrays_of(learnt(policy, batch))
    assert arrays_of(learnt(policy, numbered)) == expected
    assert arrays_of(learnt(policy, taken(numbered, order))) == expected
    assert arrays_of(learnt(policy, taken(batch, order))) != expected


def test_missing_columns_have_a_reading():
    """No click: all clicked. No elapsed: nothing delayed. None of the three: a reward above 0 is a conversion."""
    policy, batch = make("dfm-s", iterations=100), rows_of()
    bare = replace(batch, click=None, conversion=None, elapsed=None, rewards=np.where(batch.conversion, 0.3, -1.0))
    told = replace(batch, click=np.ones(60), elapsed=None)
    state = learnt(policy, bare)
    assert arrays_of(state) == arrays_of(learnt(policy, told))
    assert_array_equal(state.weights[:, 1], 0)
    for action in range(3):
        own = batch.actions == action
        clicks = Clicks.of(batch.contexts[own], batch.conversion[own], np.full(own.sum(), np.inf))
        slope = loss_and_slope(state.weights[action], clicks)[1] + state.weights[action]
        assert_allclose(slope, 0, atol=1e-3)
    assert arrays_of(learnt(policy, replace(batch, click=None))) == arrays_of(
        learnt(policy, replace(batch, click=np.ones(60)))
    )


WRONG = {
    "click alone": ({"conversion": None}, "conversion: got click or elapsed without it.*pass conversion"),
    "half a click": ({"click": np.full(60, 0.5)}, "click: got 0.5 at row 0.*0 or 1"),
    "two conversions": ({"conversion": np.arange(60.0) // 30 * 2}, "conversion: got 2.0 at row 30"),
    "a negative time": ({"elapsed": np.where(np.arange(60) == 7, -0.1, 1.0)}, "elapsed: got -0.1 at row 7"),
    "not a number": ({"contexts": np.full((60, 3), np.nan)}, "nan at row 0"),
}


@pytest.mark.parametrize(("change", "words"), WRONG.values(), ids=WRONG)
def test_unusable_rows_are_refused_and_change_nothing(change, words):
    policy = make("dfm-s")
    state = learnt(policy, rows_of())
    before = arrays_of(state)
    with pytest.raises(InputError, match=words):
        policy.learn(state, rows_of(**change), generator(0, "learn"))
    assert arrays_of(state) == before


@pytest.mark.parametrize("memory", MEMORIES)
def test_what_overflows_is_refused_and_changes_nothing(memory):
    bandit = Bandit(make("dfm-s", memory=memory, horizon=None), 1, random_state=0)
    columns: dict[str, Any] = {"click": np.ones(2), "conversion": np.ones(2)}
    bandit.partial_fit(np.ones((2, 1)), [0, 0], [0, 0], **columns, elapsed=np.ones(2))
    state = bandit.state_
    before = arrays_of(state)
    with pytest.raises(NumericalError, match="non-finite"):
        bandit.partial_fit(np.ones((2, 1)), [0, 0], [0, 0], **columns, elapsed=np.full(2, 1.7e308))
    assert bandit.state_ is state and arrays_of(state) == before


def test_memory_holds_what_it_says():
    batches = [rows_of(seed=seed, n=50) for seed in range(4)]
    clicked = [int(np.sum(batch.click)) for batch in batches]
    everything = learnt(make("dfm-s", memory="all"), *batches).kept
    assert everything.used == len(everything.codes) == sum(clicked)
    window = learnt(make("dfm-s", memory="window", window=70), *batches).kept
    assert window.used == len(window.codes) == 70
    for name in ("codes", "contexts", "converted", "elapsed", "weights"):
        assert_array_equal(getattr(window, name), getattr(everything, name)[-70:])
    young = learnt(make("dfm-s", memory="window", window=70), batches[0]).kept
    assert young.used == clicked[0] and len(young.codes) == 70 and not young.contexts[clicked[0] :].any()
    narrow = learnt(make("dfm-s", memory="window", window=5), *batches).kept
    assert_array_equal(narrow.contexts, everything.contexts[-5:])
    assert learnt(make("dfm-s"), *batches).kept is None


def test_a_window_that_holds_everything_is_all_there_is():
    batches = [rows_of(seed=seed) for seed in range(3)]
    wide = learnt(make("dfm-s", memory="window", window=1000), *batches)
    assert_array_equal(wide.weights, learnt(make("dfm-s", memory="all"), *batches).weights)


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_new_action_starts_cold_or_like_another(memory):
    policy = make("dfm-s", memory=memory)
    state = learnt(policy, rows_of())
    cold, warm = policy.grow(state, None), policy.grow(state, 1)
    assert_array_equal(cold.weights[:3], state.weights)
    assert not cold.weights[3].any()
    assert_array_equal(warm.weights[3], state.weights[1])
    for grown in (cold, warm):
        policy.check_state(grown)
        after, _ = policy.learn(grown, rows_of(seed=3, actions=4), generator(0, "learn"))
        assert (after.weights[3] != grown.weights[3]).all()
        assert after.counts[3] == np.sum(rows_of(seed=3, actions=4).actions == 3)


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_snapshot_goes_on_as_the_original(memory, tmp_path):
    bandit = Bandit(make("dfm-s", memory=memory, window=50), 3, random_state=0)
    for seed in range(3):
        batch = rows_of(seed=seed)
        columns = {name: getattr(batch, name) for name in ("click", "conversion", "elapsed")}
        if seed == 2:
            bandit.save(tmp_path / "bandit")
            restored = load(tmp_path / "bandit")
            assert arrays_of(restored.state_) == arrays_of(bandit.state_)
            restored.partial_fit(batch.contexts, batch.actions, batch.rewards, **columns)
        bandit.partial_fit(batch.contexts, batch.actions, batch.rewards, **columns)
    assert arrays_of(restored.state_) == arrays_of(bandit.state_)


@pytest.mark.parametrize(("old", "new"), [("laplace", "all"), ("all", "laplace"), ("window", "laplace")])
def test_another_memory_needs_a_new_start(old, new):
    bandit = Bandit(make("dfm-s", memory=old), 3, random_state=0)
    batch = rows_of()
    bandit.partial_fit(batch.contexts, batch.actions, batch.rewards)
    bandit.set_params(policy__memory=new)
    with pytest.raises(ParameterError, match=f"memory='{new}' needs"):
        bandit.partial_fit(batch.contexts, batch.actions, batch.rewards)


def test_shards_do_not_add_up():
    policy = make("dfm-s")
    shard = policy.collect(policy.init(3, 3, generator(0, "init")), rows_of(), generator(0, "learn"))
    with pytest.raises(ShardError, match=r"not additive.*partial_fit"):
        _ = shard + shard
    assert policy.traits == frozenset()


def test_presets():
    ours, paper = make("dfm-s"), make("dfm-s", preset="paper")
    assert (ours.horizon, ours.ridge, ours.iterations, ours.memory) == (1.4, 1.0, 10, "laplace")
    assert (paper.horizon, paper.ridge, paper.iterations, paper.memory, paper.window) == (
        1.4,
        1.0,
        10,
        "window",
        10_000,
    )


@pytest.mark.parametrize("memory", MEMORIES)
def test_it_learns_on_synthetic(memory):
    """On each of three worlds at least 1.8 times the reward of uniform choice, where the best action has 2.3 times."""
    for seed in range(3):
        runs = [run(policy, "synthetic", 8, 700, seed) for policy in (make("dfm-s", memory=memory), make("uniform"))]
        learned, even = (float(one.rewards[2:].mean()) for one in runs)
        assert learned > 1.8 * even


def test_heeding_delays_pays_where_the_best_action_is_slow():
    """Action 0 converts most often and late, action 1 at once: who counts what is seen takes action 1."""
    rng, n = generator(0, "slow"), 20_000
    X = np.abs(rng.normal(1.0, 0.1, (n, 1)))
    actions = rng.integers(2, size=n)
    ever = rng.random(n) < np.where(actions == 0, 0.8, 0.5)
    delay = rng.exponential(np.where(actions == 0, 1.0, 0.05))
    left = 1.4 * (1 - np.arange(n) / n)
    seen = ever & (delay <= left)
    given: dict[str, Any] = {"contexts": X, "actions": actions, "rewards": seen.astype(float), "conversion": seen}
    policy = make("dfm-s", iterations=50)
    aware = learnt(policy, Batch(**given, elapsed=np.where(seen, delay, left)), actions=2, dim=1)
    naive = learnt(policy, Batch(**given), actions=2, dim=1)
    # Log odds of 0.8 have a standard error of 0.2 here: 5 of them, a false alarm in 1e-6. The others have below 0.06.
    assert abs(aware.weights[0, 0, 0] - np.log(4)) < 1.0 and aware.weights[0, 0, 0] > aware.weights[1, 0, 0] + 0.3
    assert naive.weights[0, 0, 0] < naive.weights[1, 0, 0] - 0.3
    assert_allclose([aware.weights[1, 0, 0], *aware.weights[:, 1, 0]], [0, 0, np.log(20)], atol=0.35)
