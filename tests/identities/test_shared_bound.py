"""Identity 4: one matrix below every action's, and the decisions that it spares work for without changing one."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from spuir import make_policy
from spuir.base.streams import generator
from spuir.core import screening
from spuir.core.screening import Acting, Bound
from spuir.core.solving import solve
from spuir.core.ties import Winners
from spuir.policies.learner import Readout, RidgeState
from spuir.policies.optimistic import Optimistic
from tests.core.screening import WAYS, check_winners, force
from tests.identities.episodes import make_batch

DIM = 5


def optimistic(**parameters: Any) -> Optimistic:
    made = make_policy("puir", **parameters)
    assert isinstance(made, Optimistic)
    return made


def psi(policy: Optimistic, state: RidgeState) -> np.ndarray:
    """Return Ψ_j (M, p, p) from the state's sums."""
    rates, out = policy.rates(state), state.observed.gram + policy.ridge * np.eye(state.observed.gram.shape[1])
    return out if state.imputed is None else out + rates[:, None, None] * state.imputed.gram


def check_order(policy: Optimistic, state: RidgeState) -> Readout:
    """Assert that every Ψ_j that the bound covers is at least its P, in the order of quadratic forms."""
    readout = policy.readout(state)
    assert readout.bound is not None
    root = readout.bound.inflation * readout.bound.shared.roots[0]
    P = np.linalg.inv(root @ root.T)
    for j, matrix in enumerate(psi(policy, state)):
        if j not in readout.bound.uncovered:
            assert np.linalg.eigvalsh(matrix - P).min() >= -1e-9 * np.trace(matrix), f"action {j}"
        else:
            assert readout.rates[j] == 0
    return readout


def learn(policy: Optimistic, state: RidgeState, n: int, rows: int = 40, **feedback: Any) -> RidgeState:
    batch = make_batch(generator(11, "bound", n), rows, state.dim, state.n_actions, **feedback)
    return policy.learn(state, batch, generator(12, "learn", n))[0]


SITUATIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "constant": ({"imputation_rate": 0.1, "discount": 0.9}, {}),
    "full rate, no discount": ({"imputation_rate": 1.0, "discount": 1.0}, {}),
    "no memory": ({"imputation_rate": 0.5, "discount": 0.0}, {}),
    "large ridge": ({"imputation_rate": 0.1, "ridge": 100.0}, {}),
    "small ridge": ({"imputation_rate": 0.1, "ridge": 1e-4}, {}),
    "schedule": ({"imputation_rate": "paper-schedule", "episodes": 5, "discount": 0.3}, {}),
    "a rate per action": ({"imputation_rate": "balanced", "discount": 0.5}, {}),
    "a rate per action, some without": ({"imputation_rate": "balanced"}, {"actions": [0, 2]}),
    "an action never tried": ({"imputation_rate": 0.4}, {"actions": [0, 1]}),
    "forgetting faster than the discount": ({"imputation_rate": 0.7, "forgetting": 0.3, "discount": 0.9}, {}),
    "forgetting slower than the discount": ({"imputation_rate": 0.7, "forgetting": 0.9, "discount": 0.3}, {}),
    "forgetting everything": ({"imputation_rate": 0.7, "forgetting": 0.0}, {}),
    "weights": ({"imputation_rate": 0.4}, {"weights": True}),
    "revealed rewards": ({"imputation_rate": 0.4}, {"revealed": 0.5}),
    "everything revealed": ({"imputation_rate": 0.4}, {"revealed": 1.1}),
    "weights and revealed rewards": ({"imputation_rate": "balanced"}, {"weights": True, "revealed": 0.3}),
    "nonlinear": ({"imputation_rate": 0.4, "link": "exp", "imputed_cap": 1.0}, {}),
    "intercept": ({"imputation_rate": 0.4, "intercept": True}, {}),
    "random features": ({"imputation_rate": 0.4, "features": "fourier", "n_features": 9, "bandwidth": 1.0}, {}),
}
HASHED: dict[str, Any] = {"sketch": "sjlt", "sketch_size": 12}


@pytest.mark.parametrize(
    "sketch", [{}, HASHED, HASHED | {"sketch_blocks": 4}, HASHED | {"sketch": "gaussian"}], ids=str
)
@pytest.mark.parametrize("situation", SITUATIONS.values(), ids=SITUATIONS)
def test_the_shared_matrix_lies_below_every_action(
    situation: tuple[dict[str, Any], dict[str, Any]], sketch: dict[str, Any]
) -> None:
    parameters, feedback = situation
    policy = optimistic(**parameters, **sketch)
    state = policy.init(4, DIM, generator(10, "init"))
    for n in range(4):
        # A short episode among them is taken whole even where the others are sketched.
        state = learn(policy, state, n, rows=10 if n == 2 else 40, **feedback)
        check_order(policy, state)


@pytest.mark.parametrize("sketch", [{}, HASHED], ids=str)
@pytest.mark.parametrize("like", [None, 1])
@pytest.mark.parametrize("rate", [0.5, "balanced"])
def test_an_added_action_restarts_the_bound(like: int | None, rate: Any, sketch: dict[str, Any]) -> None:
    policy = optimistic(imputation_rate=rate, discount=0.8, **sketch)
    state = policy.init(3, DIM, generator(10, "init"))
    for n in range(3):
        state = learn(policy, state, n)
    assert state.shared is not None
    grown = policy.grow(state, like)
    # With what was known before, the cold action's matrix would lie below the bound.
    stale = replace(grown, shared=state.shared)
    if like is None and rate == 0.5:
        with pytest.raises(AssertionError, match="action 3"):
            check_order(policy, stale)
    check_order(policy, grown)
    for n in range(3, 6):
        grown = learn(policy, grown, n)
        check_order(policy, grown)


def test_imputation_switched_off_and_on_again_keeps_the_order() -> None:
    on = optimistic(imputation_rate=0.9, discount=1.0, forgetting=0.5)
    off = replace(on, imputation_rate=0.0)
    state = on.init(3, DIM, generator(10, "init"))
    for n in range(3):
        state = learn(on, state, n)
    for n in range(3, 9):
        state = learn(off, state, n)
        assert off.readout(state).bound is None
    check_order(on, state)
    check_order(on, learn(on, state, 9))


def test_there_is_no_bound_without_imputation() -> None:
    policy = optimistic(imputation_rate=0.0)
    state = learn(policy, policy.init(3, DIM, generator(10, "init")), 0)
    assert policy.readout(state).bound is None
    cold = optimistic(imputation_rate=0.5)
    assert cold.readout(cold.init(3, DIM, generator(10, "init"))).bound is None


@pytest.mark.parametrize("ridge", [1e-9, 1e-11, 1e-13, 1e-15, 1e-20])
def test_rounding_never_lifts_the_bound_above_a_computed_width(ridge: float) -> None:
    policy = optimistic(imputation_rate=0.5, ridge=ridge)
    state = policy.init(3, DIM, generator(10, "init"))
    for n in range(3):
        batch = make_batch(generator(11, "bound", n), 40, DIM, 3)
        batch.contexts[:, 4] = batch.contexts[:, 0]  # one direction has nothing but the ridge
        state, _ = policy.learn(state, batch, generator(12, "learn", n))
    readout = policy.readout(state)
    if readout.bound is not None:
        contexts = generator(13, "probe").normal(size=(500, DIM))
        reach = readout.bound.inflation * np.sqrt(screening.squared_widths(readout.bound.shared, contexts)[0])
        assert np.all(
            np.sqrt(screening.squared_widths(readout.solved, contexts)) <= reach * (1 + screening.ROUNDING_MARGIN)
        )
    assert (readout.bound is None) == (ridge < 1e-10)


@pytest.mark.parametrize("p", [1, 7, 120])
@pytest.mark.parametrize("condition", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("scale", [1e-40, 1e-22, 1e-18, 1e-3, 1.0, 1e15, 1e30])
def test_the_reach_is_never_below_the_norm_it_stands_for(p: int, condition: float, scale: float) -> None:
    rng = generator(15, "reach", p)
    turn, _ = np.linalg.qr(rng.normal(size=(p, p)))
    P = (turn * np.geomspace(1.0, condition, p)) @ turn.T
    bound = Bound.of((P + P.T) / 2, 0.0, solve(2.0 * P[None], np.zeros((1, p))), np.empty(0, np.intp))
    assert bound is not None
    contexts = rng.normal(size=(200, p))
    contexts[:100] = contexts[:100] @ P / condition  # along the long axes, where digits are lost
    norms = np.sqrt(np.einsum("np,pq,nq->n", contexts, np.linalg.inv(P), contexts)) * scale
    reach = bound.largest_bonus(scale * contexts, 1.0)
    assert np.all(reach >= norms)
    again = replace(bound, inflation=3.0).largest_bonus(scale * contexts, 0.5)
    np.testing.assert_allclose(again, 1.5 * reach / bound.inflation, rtol=1e-6)
    # Nor far above it, but for what single precision cannot tell from nought.
    assert np.all(reach <= norms * 1.05 + 2 * screening.UNDERFLOW_LOSS)


# ---- the screened path ----------------------------------------------------------------------------------------


@cache
def random_case(seed: int) -> tuple[Optimistic, RidgeState, np.ndarray, np.ndarray | None]:
    """Return a policy, a state with ties and near-ties in it, contexts and who is eligible, as the seed has it."""
    rng = generator(seed, "case")
    m, dim = int(rng.choice([1, 2, 3, 6, 13, 25])), int(rng.integers(1, 8))
    sketch: dict[str, Any] = HASHED if rng.random() < 0.3 else {}
    policy = optimistic(
        imputation_rate=rng.choice([0.05, 0.5, 1.0]) if rng.random() < 0.7 else "balanced",
        discount=float(rng.choice([0.1, 0.9])),
        forgetting=float(rng.choice([1.0, 0.8])),
        ridge=float(rng.choice([1e-8, 1e-6, 0.1, 1.0, 5.0])),
        alpha=float(rng.choice([0.0, 1e-12, 1e-6, 0.01, 0.2, 1.0, 30.0, 1e6])),
        floor=float(rng.choice([0.0, 0.02])),
        **sketch,
    )
    state = policy.init(m, dim, rng)
    truth = rng.normal(size=(m, dim))
    tried = rng.permutation(m)[: int(rng.integers(1, m + 1))]
    noise, copied = float(rng.choice([0.0, 0.3])), rng.random() < 0.5
    for n in range(int(rng.integers(1, 5))):
        batch = make_batch(rng, int(rng.choice([3, 30, 200])), dim, m, actions=tried, truth=truth, noise=noise)
        if copied:  # one direction has nothing but the ridge
            batch.contexts[:, -1] = batch.contexts[:, 0]
        state, _ = policy.learn(state, batch, generator(seed, "learn", n))
    kept = state.shared
    for _ in range(int(rng.integers(0, 3))):
        state = policy.grow(state, int(rng.integers(state.n_actions)))
        observed = state.observed.copied()
        observed.moment[-1] *= 1.0 + float(rng.choice([0.0, 1e-14, 1e-13, 1e-11, 1e-9, 1e-7, 1e-5, 1e-3]))
        # A copy's matrix is its model's, so that the bound from before still holds.
        state = replace(state, observed=observed, shared=kept)
    n = 1 if rng.random() < 0.1 else 60
    contexts = float(rng.choice([0.1, 1.0, 50.0])) * (0.3 + rng.normal(size=(n, dim)))
    contexts[3::7] = 0.0
    eligible = None
    if rng.random() < 0.4:
        eligible = rng.random((n, state.n_actions)) < float(rng.choice([0.1, 0.5]))
        eligible[np.arange(n), rng.integers(state.n_actions, size=n)] = True
    return policy, state, contexts, eligible


def run(policy: Optimistic, readout: Readout, contexts: np.ndarray, eligible: np.ndarray | None, bound: Any) -> Winners:
    allowed = None if eligible is None else np.ascontiguousarray(eligible.T)
    rule = Acting(solved=readout.solved, alpha=policy.alpha, bound=bound)
    return screening.winners(
        len(contexts), lambda rows: contexts[rows], lambda rows: policy.learner.means(readout, rows), rule, allowed
    )


def spy(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the numbers of (action, context) pairs that widths are computed for after the shared bound."""
    pairs: list[int] = []
    honest = screening._winners_by_width

    def counting(score: Any, play: Any, *rest: Any) -> Any:
        pairs.append(int(play.sum()))
        return honest(score, play, *rest)

    monkeypatch.setattr(screening, "_winners_by_width", counting)
    return pairs


@pytest.mark.parametrize("way", WAYS)
def test_screening_changes_no_winner_and_no_tie(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    bounded = tied = wild = free = every_pair = 0
    readouts = {seed: random_case(seed)[0].readout(random_case(seed)[1]) for seed in range(120)}
    bounds = {seed: readout.bound for seed, readout in readouts.items()}
    force(monkeypatch, way)
    pairs = spy(monkeypatch)
    for seed, readout in readouts.items():
        policy, _, contexts, eligible = random_case(seed)
        means = policy.learner.means(readout, contexts)
        means = means if eligible is None else np.where(eligible.T, means, -np.inf)
        for bound in {None, bounds[seed]}:
            found = run(policy, readout, contexts, eligible, bound)
            ties = check_winners(found, means, readout.solved, policy.alpha, contexts)
        tied, bounded, every_pair = tied + ties, bounded + (bounds[seed] is not None), every_pair + means.size
        wild += readout.solved.single.error >= 0.01
        free += bool(np.any(readout.rates == 0)) and bounds[seed] is not None
    # The cases are worth something: most have a bound, some do not cover all, some are badly conditioned, many tie.
    assert bounded > 90 and tied > 500 and wild > 10 and free > 5
    # Every case went without the bound once; with it, there was less to do.
    assert sum(pairs) < 1.8 * every_pair


@pytest.mark.parametrize("seeds", [range(100, 150), range(150, 200)], ids=str)
def test_decisions_have_the_probabilities_of_the_full_table(seeds: range) -> None:
    for seed in seeds:
        policy, state, contexts, eligible = random_case(seed)
        decision = policy.decide(state, contexts, generator(seed, "decide"), eligible)
        mask = np.ones((len(contexts), state.n_actions), np.bool_) if eligible is None else eligible
        table = policy.table(state, contexts, mask).probabilities
        chosen = table[np.arange(len(contexts)), decision.actions]
        np.testing.assert_allclose(decision.propensities, chosen, rtol=1e-9, err_msg=f"case {seed}")


def test_an_action_that_the_bound_does_not_cover_stays_in_play() -> None:
    policy = optimistic(imputation_rate="balanced", balance=1.0, alpha=6.0)
    state = policy.init(4, DIM, generator(10, "init"))
    truth = np.linspace(1, 2, 4)[:, None] * np.ones(DIM)
    for n in range(4):
        state = learn(policy, state, n, rows=300, actions=[0, 1, 2], truth=truth)
    readout = policy.readout(state)
    assert readout.bound is not None and readout.bound.uncovered.tolist() == [3]
    contexts = np.full((50, DIM), 0.3)
    dense = run(policy, readout, contexts, None, None)
    assert np.all(dense.winner == 3)  # optimism about the untried action wins everywhere
    np.testing.assert_array_equal(run(policy, readout, contexts, None, readout.bound).winner, dense.winner)
    covered = replace(readout.bound, uncovered=np.empty(0, np.intp))
    assert not np.array_equal(run(policy, readout, contexts, None, covered).winner, dense.winner)


def test_most_contexts_of_a_learnt_problem_need_no_exact_width(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = optimistic(imputation_rate=0.1, discount=0.9, alpha=0.2)
    state = policy.init(10, DIM, generator(10, "init"))
    truth = generator(14, "truth").normal(size=(10, DIM))
    for n in range(10):
        state = learn(policy, state, n, rows=400, truth=truth, noise=0.1)
    contexts = make_batch(generator(13, "probe"), 1000, DIM, 1).contexts
    pairs = spy(monkeypatch)
    found = run(policy, policy.readout(state), contexts, None, policy.readout(state).bound)
    assert 0 < sum(pairs) < 0.1 * 10 * len(found.winner)
