"""Optimistic acting: mean + α·width, the authors' settings, kernels before their first batch, floors."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from spuir import Bandit, make_policy
from spuir.base.streams import Draws, generator
from spuir.errors import InputError
from spuir.policies.learner import RidgeState
from spuir.policies.optimistic import Optimistic
from tests.identities.episodes import batch_of, make_batch

M, D, N = 4, 5, 50


def optimistic(name: str = "puir", **parameters: Any) -> Optimistic:
    made = make_policy(name, **parameters)
    assert isinstance(made, Optimistic)
    return made


def learnt(policy: Optimistic, episodes: int = 3) -> RidgeState:
    state = policy.init(M, D, generator(0, "init"))
    for n in range(episodes):
        state, _ = policy.learn(state, make_batch(generator(1, "rows", n), 60, D, M), generator(2, "learn", n))
    return state


CONTEXTS = make_batch(generator(3, "probe"), N, D, 1).contexts
ALL = np.ones((N, M), np.bool_)


@pytest.mark.parametrize("alpha", [0.0, 0.2, 5.0])
def test_scores_are_means_and_weighted_widths(alpha: float) -> None:
    policy = optimistic(alpha=alpha)
    state = learnt(policy)
    table = policy.table(state, CONTEXTS, ALL)
    np.testing.assert_allclose(table.scores, table.means + alpha * table.widths, rtol=1e-14)
    decision = policy.decide(state, CONTEXTS, generator(4, "draw"))
    np.testing.assert_array_equal(decision.actions, table.scores.argmax(axis=1))
    assert np.all(decision.propensities == 1.0) and decision.exact
    for name in ("means", "widths", "scores", "probabilities"):
        np.testing.assert_array_equal(getattr(decision, name), getattr(table, name))


def test_without_optimism_it_is_greedy() -> None:
    eager, greedy = optimistic(alpha=0.0, imputation_rate=0.0), make_policy("greedy")
    state = learnt(eager)
    np.testing.assert_array_equal(
        eager.decide(state, CONTEXTS, generator(4, "draw")).actions,
        greedy.decide(state, CONTEXTS, generator(4, "x")).actions,
    )


@pytest.mark.parametrize(("link", "reward"), [("exp", lambda z: z * np.exp(z)), ("poly", lambda z: 2 * z * z)])
def test_a_nonlinear_policy_scores_by_what_it_imputes_without_the_cap(link: str, reward: Any) -> None:
    policy = optimistic(f"puir-{link}", preset="paper")
    assert policy.imputed_cap == 1.0
    state = learnt(policy)
    z = CONTEXTS @ policy.readout(state).solved.theta.T
    means = policy.table(state, 9 * CONTEXTS, ALL).means
    np.testing.assert_allclose(means, reward(9 * z), rtol=1e-12)
    assert means.max() > 1.0


class TestFloor:
    def test_probabilities_mix_it_in(self) -> None:
        policy, plain = optimistic(floor=0.1), optimistic()
        state = learnt(plain)
        rule = plain.table(state, CONTEXTS, ALL).probabilities
        np.testing.assert_allclose(policy.table(state, CONTEXTS, ALL).probabilities, 0.1 + 0.6 * rule, rtol=1e-14)

    def test_too_high_a_floor_is_refused_for_the_row_that_has_too_many_options(self) -> None:
        policy = optimistic(floor=0.3)
        state = learnt(policy)
        with pytest.raises(InputError, match="floor"):
            policy.decide(state, CONTEXTS, generator(4, "draw"))
        three = np.ones((N, M), np.bool_)
        three[:, 0] = False
        decision = policy.decide(state, CONTEXTS, generator(4, "draw"), three)
        assert set(np.round(decision.propensities, 12)) <= {0.3, 0.4}
        assert 0 not in decision.actions


@pytest.mark.parametrize(
    "eligible", [np.array([0, 1, 1, 0]), np.arange(N)[:, None] % M == np.arange(M)], ids=["M", "n,M"]
)
def test_only_eligible_actions_are_chosen(eligible: np.ndarray) -> None:
    policy = optimistic(alpha=1.0)
    state = learnt(policy)
    mask = np.broadcast_to(eligible.astype(bool), (N, M))
    decision = policy.decide(state, CONTEXTS, generator(4, "draw"), eligible)
    assert mask[np.arange(N), decision.actions].all()
    expected = np.where(mask, policy.table(state, CONTEXTS, ALL).scores, -np.inf).argmax(axis=1)
    np.testing.assert_array_equal(decision.actions, expected)


def test_no_contexts_give_no_decisions() -> None:
    for policy in (optimistic(), optimistic("puir-kernel")):
        decision = policy.decide(policy.init(M, D, generator(0, "init")), np.ones((0, D)), generator(4, "draw"))
        assert len(decision) == 0 and decision.probabilities.shape == (0, M)


@pytest.mark.parametrize("name", ["puir", "puir-kernel"])
def test_a_decision_takes_one_uniform_a_row(name: str) -> None:
    policy = optimistic(name)
    rng, twin = generator(4, "draw"), generator(4, "draw")
    policy.decide(policy.init(M, D, generator(0, "init")), CONTEXTS, rng)
    twin.random(N)
    assert rng.random() == twin.random()


def test_contexts_that_are_not_finite_are_named() -> None:
    policy = optimistic()
    bad = CONTEXTS.copy()
    bad[7, 2] = np.inf
    with pytest.raises(InputError, match="row 7, column 2"):
        policy.decide(learnt(policy), bad, generator(4, "draw"))


AUTHORS: dict[str, dict[str, Any]] = {
    "sbucb": {"alpha": 1.0, "imputation_rate": 0.0},
    "puir": {"alpha": 0.1, "discount": 0.1, "imputation_rate": 0.1},
    "spuir": {"alpha": 0.2, "discount": 0.9, "imputation_rate": 0.1, "sketch_size": 150, "sketch_blocks": 1},
    "puir-rs": {"alpha": 0.1, "discount": 0.1, "imputation_rate": "paper-schedule"},
    "spuir-rs": {"alpha": 0.1, "discount": 0.1, "imputation_rate": "paper-schedule", "sketch_size": 150},
    "puir-exp": {"link": "exp", "imputed_cap": 1.0},
    "puir-poly": {"link": "poly", "imputed_cap": 1.0},
    "spuir-exp": {"link": "exp", "imputed_cap": 1.0, "sketch": "sjlt"},
    "spuir-poly": {"link": "poly", "imputed_cap": 1.0, "sketch": "sjlt"},
    "puir-kernel": {"features": "fourier", "n_features": 100, "imputed_cap": None},
    "spuir-kernel": {"features": "fourier", "n_features": 100, "sketch": "sjlt", "imputed_cap": None},
}


@pytest.mark.parametrize(("name", "values"), AUTHORS.items(), ids=AUTHORS)
def test_the_paper_preset_holds_the_authors_values(name: str, values: dict[str, Any]) -> None:
    policy = optimistic(name, preset="paper")
    assert {key: getattr(policy, key) for key in values} == values
    assert policy.ridge == 1.0 and policy.intercept is False
    if policy.sketch == "sjlt":
        assert policy.moments == "sketched"
    # A parameter that is given wins over the preset, and nothing else changes.
    other = optimistic(name, preset="paper", ridge=4.0)
    assert {f.name for f in fields(policy) if getattr(policy, f.name) != getattr(other, f.name)} == {"ridge"}


def test_without_imputation_nothing_is_kept_for_it() -> None:
    state = learnt(optimistic("sbucb"))
    assert state.imputed is None and state.shared is None


def test_imputation_with_a_sketch_as_large_as_the_batch_is_exact() -> None:
    exact, sketched = optimistic(), optimistic(sketch="sjlt", sketch_size=60)
    first, second = exact.readout(learnt(exact)).solved.theta, sketched.readout(learnt(sketched)).solved.theta
    np.testing.assert_array_equal(first, second)


def test_ten_thousand_actions_most_never_tried() -> None:
    policy = replace(optimistic(alpha=0.5), imputation_rate=0.1)
    state = policy.init(10_000, 2, generator(0, "init"))
    rng = generator(1, "many")
    batch = batch_of(
        contexts=1 + 0.1 * rng.normal(size=(200, 2)), actions=rng.integers(10, size=200), rewards=-np.ones(200)
    )
    state, _ = policy.learn(state, batch, generator(2, "learn"))
    decision = policy.decide(state, np.array([[1.0, 0.3]] * 50), generator(4, "draw"))
    assert decision.actions.min() >= 10 and len(set(decision.actions.tolist())) > 40
    np.testing.assert_allclose(decision.propensities, 1 / 9990, rtol=1e-12)


@pytest.mark.parametrize("name", ["sbucb", "puir", "puir-exp", "puir-kernel"])
@pytest.mark.parametrize("change", [{}, {"alpha": 0.0}, {"alpha": 5.0}, {"floor": 0.1}], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_one_row_is_decided_as_in_a_batch(name: str, change: dict[str, float], masked: bool) -> None:
    policy = optimistic(name, **change)
    state = learnt(policy)
    mask = generator(5, "mask").random((N, M)) < 0.6 if masked else None
    if mask is not None:
        mask[~mask.any(axis=1), 0] = True
    whole = policy.decide(state, CONTEXTS, Draws.numbered(1, 0, 0, N), mask)
    assert list(policy.predict(state, CONTEXTS, mask)) == list(whole.probabilities.argmax(axis=1))
    for row in range(N):
        own = None if mask is None else mask[row : row + 1]
        alone = policy.decide(state, CONTEXTS[row : row + 1], Draws.numbered(1, 0, row, 1), own)
        assert (alone.actions[0], alone.propensities[0]) == (whole.actions[row], whole.propensities[row])
        assert policy.predict(state, CONTEXTS[row : row + 1], own)[0] == whole.probabilities[row].argmax()


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e308])
def test_one_row_that_has_no_finite_score_is_refused(value: float) -> None:
    policy = optimistic()
    contexts = CONTEXTS[:1].copy()
    contexts[0, 2] = value
    with pytest.raises(InputError, match=r"at row 0, column 2|overflow"):
        policy.decide(learnt(policy), contexts, generator(4, "draw"))


@pytest.mark.parametrize(
    ("policy", "floor"), [("sbucb", 0.0), ("puir", 0.01), ("spuir", 0.0), ("auto", None), ("auto", 0.0)]
)
@pytest.mark.parametrize("masked", [False, True])
def test_the_probabilities_of_a_decision_are_those_of_the_whole_table(
    policy: str, floor: float | None, masked: bool
) -> None:
    """They come from the winners that were drawn from; contexts of few values make ties."""
    rng = np.random.default_rng(3)
    bandit = Bandit(policy, 4, random_state=3, floor=floor)
    for rows in (300, 1, 40):
        X = rng.integers(-1, 2, size=(rows, 3)).astype(float)
        eligible = rng.random((rows, 4)) < 0.6
        eligible[:, 0] |= ~eligible.any(axis=1)
        decided = bandit.decide(X, eligible if masked else None)
        assert np.array_equal(decided.probabilities, bandit.predict_proba(X, eligible if masked else None))
        assert np.array_equal(decided.propensities, decided.probabilities[np.arange(rows), decided.actions])
        bandit.partial_fit(decided, rng.normal(size=rows))
