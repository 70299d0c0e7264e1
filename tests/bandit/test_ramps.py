"""New actions ramp up: a cap on their probability, in one step after every rule, with exact propensities."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spuir
from spuir.core.ties import with_caps
from spuir.errors import ParameterError, SnapshotError
from spuir.storage import snapshot
from tests.bandits import ACTIONS, REWARDS, M, X, taught

POLICIES: dict[str, dict[str, Any]] = {
    "puir": {},
    "spuir": {"floor": 0.05},
    "epsilon-greedy": {},
    "linear-thompson": {},
    "blts-b": {"preset": "paper"},
    "bexp3": {},
    "bexp3-ipw": {},
    "uniform": {},
}
RNG = np.random.default_rng(4)
ROWS = RNG.normal(size=(400, X.shape[1]))


def ramping(name: str, **given: Any) -> spuir.Bandit:
    """Return a bandit that has learned an episode, with a new action."""
    return taught(spuir.make_policy(name, **POLICIES[name])).add_action("new", **given)


def naive(table: Any, established: Any, caps: Any) -> Any:
    """Return capped rows, written row by row: the excess goes to the others as the rule among them says."""
    rows = []
    for p, q in zip(table, established, strict=True):
        excess = sum(max(one - cap, 0) for one, cap in zip(p, caps, strict=True))
        rows.append([min(one, cap) + excess * other for one, cap, other in zip(p, caps, q, strict=True)])
    return np.array(rows)


@pytest.mark.parametrize("name", POLICIES)
def test_a_new_action_is_held_to_its_share(name: str) -> None:
    bandit, free = ramping(name), ramping(name, ramp=None)
    capped, raw = bandit.predict_proba(ROWS), free.predict_proba(ROWS)
    others = free.predict_proba(ROWS, eligible=[True, True, True, False])
    np.testing.assert_allclose(capped, naive(raw, others, [np.inf] * M + [0.1]), atol=1e-12)
    np.testing.assert_allclose(capped.sum(axis=1), 1, rtol=1e-12)
    assert (capped[:, -1] <= 0.1).all() and raw[:, -1].max() > 0.1
    floor = POLICIES[name].get("floor", 0.0)
    assert (capped[:, :M] >= floor - 1e-12).all()  # the excess only adds to the established ones


@pytest.mark.parametrize("name", POLICIES)
def test_draws_follow_the_probabilities_that_are_logged(name: str) -> None:
    bandit = ramping(name)
    day = bandit.decide(ROWS)
    probabilities = bandit.predict_proba(ROWS)
    codes = [bandit.actions_.tolist().index(action) for action in day.actions]
    np.testing.assert_allclose(day.propensities, probabilities[np.arange(400), codes], rtol=1e-12)
    np.testing.assert_allclose(day.probabilities, probabilities, rtol=1e-12)
    np.testing.assert_array_equal(bandit.predict(ROWS), bandit.actions_[probabilities.argmax(axis=1)])
    assert day.exact
    # The expected count is at most 40 and its standard deviation at most 6: five of them are passed once in 3 million.
    assert abs((day.actions == "new").sum() - probabilities[:, -1].sum()) < 30


def test_several_new_actions_share_the_ramp() -> None:
    bandit = ramping("uniform").add_action("newer", ramp=0.2)
    np.testing.assert_allclose(bandit.predict_proba(ROWS)[0], [0.85 / 3] * 3 + [0.05, 0.1])
    bandit.remove_action("newer")
    np.testing.assert_allclose(bandit.predict_proba(ROWS)[0], [0.3] * 3 + [0.1, 0.0])


def test_it_ends_after_some_episodes() -> None:
    bandit = ramping("uniform", ramp_episodes=2)
    for share in (0.1, 0.1, 0.25):
        np.testing.assert_allclose(bandit.predict_proba(X)[:, -1], share)
        bandit.partial_fit(X, ACTIONS, REWARDS + bandit.n_episodes_)


def test_no_cap_without_an_established_action_or_an_episode() -> None:
    only_new = np.tile([False, False, False, True], (400, 1))
    only_new[0] = True
    proba = ramping("uniform").predict_proba(ROWS, eligible=only_new)
    np.testing.assert_allclose(proba[:, -1], [0.1] + [1.0] * 399)
    cold = spuir.Bandit("puir", 2).add_action("new")
    np.testing.assert_allclose(cold.predict_proba(ROWS), 1 / 3)


@pytest.mark.parametrize("name", ["blts-b", "bexp3-ipw"])
def test_missing_propensities_are_those_of_the_ramp(name: str) -> None:
    own, given = ramping(name), ramping(name)
    day = own.decide(ROWS)
    rewards = RNG.normal(size=400)
    own.partial_fit(ROWS, day.actions, rewards)
    given.partial_fit(ROWS, day.actions, rewards, propensities=day.propensities)
    np.testing.assert_allclose(own.predict_proba(X), given.predict_proba(X), rtol=1e-9)


def test_the_expected_sums_of_bexp3_are_those_of_the_ramp() -> None:
    bandit = ramping("bexp3")
    chance, before = bandit.predict_proba(ROWS), bandit.state_
    policy = bandit.policy_
    batch = bandit._model.batch(ROWS, np.zeros(400, int), np.zeros(400), None, None, None, {})
    gram = policy.fitted(before, batch).gram  # type: ignore[attr-defined]
    np.testing.assert_allclose(gram[-1], (ROWS * chance[:, -1:]).T @ ROWS, rtol=1e-9)


def test_a_saved_bandit_goes_on_ramping(tmp_path: Path) -> None:
    bandit = ramping("puir")
    bandit.save(tmp_path / "m")
    loaded = spuir.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_proba(ROWS), bandit.predict_proba(ROWS))
    header, arrays = snapshot.read(tmp_path / "m")
    for wrong in ([9, 0.1, 3], [3, 0.0, 3], [3, "x", 3], [3, 0.1]):
        snapshot.write(tmp_path / "forged", {**header, "ramps": [wrong]}, arrays)
        with pytest.raises(SnapshotError):
            spuir.load(tmp_path / "forged")


@pytest.mark.parametrize("wrong", [{"ramp": 0.0}, {"ramp": 1.5}, {"ramp": "x"}, {"ramp_episodes": -1}])
def test_a_share_lies_between_0_and_1(wrong: dict[str, Any]) -> None:
    bandit = taught()
    with pytest.raises(ParameterError, match=r"ramp.*the default is"):
        bandit.add_action("new", **wrong)
    assert len(bandit.actions_) == M


def test_caps_by_hand() -> None:
    p = np.array([[0.0, 0.0, 1.0], [0.5, 0.3, 0.2], [0.6, 0.35, 0.05]])
    best = np.array([[0.0, 1.0, 0.0]])
    capped = with_caps(
        p, np.ones((3, 3), bool), np.array([np.inf, np.inf, 0.2]), lambda rows, mask: np.repeat(best, len(rows), 0)
    )
    np.testing.assert_allclose(capped, [[0.0, 0.8, 0.2], *p[1:].tolist()])
