"""The default policy beside tuned rivals: how a rival chooses, what is judged, and that other libraries play fair."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from spuir.environments import make_environment
from spuir.loop import run
from spuir.policies import make_policy
from spuir.reproduction import plots
from spuir.reproduction.base import FAILS, HOLDS, OPEN, Scope
from spuir.reproduction.experiments import default
from spuir.reproduction.other_libraries import play_library
from spuir.reproduction.policy_runs import Setup
from spuir.reproduction.rivals import AUTO, FLOORED, OTHERS, SUM_BASED, WORLDS, Rival, WorldResult, expected
from spuir.reproduction.tasks import Result
from spuir.reproduction.tuning import TUNING_SEEDS
from spuir.reproduction.verdicts import Interval

FULL = Scope(repeats=3)
SETUP = Setup(environment="linear", episodes=3, batch_size=40)


def place(name="somewhere", auto=1.0, floored=0.99, seeds=4, **rivals):
    """Return a world in which every seed has about the same rewards."""
    means = {AUTO: auto, FLOORED: floored, "SBUCB": 1.0, "PUIR": 0.9} | rivals
    wobble = 1 + 0.001 * (np.arange(seeds) - (seeds - 1) / 2)
    rewards = {label: dict(enumerate((mean * wobble).tolist())) for label, mean in means.items()}
    rewards[AUTO] = {seed: value * (1 + 0.0001 * (seed % 2)) for seed, value in rewards[AUTO].items()}
    return WorldResult(name=name, actions=5, columns=4, oracle={}, rewards=rewards, chosen={})


def outcome(*aside, seeds=4):
    """Return the main verdict on good worlds and those ``aside``."""
    rest = [place(f"good-{number}", seeds=seeds) for number in range(len(WORLDS) - len(aside))]
    return default.within([*rest, *aside])


def test_thirteen_worlds_have_to_be_within_one_per_cent():
    bad = [place(f"bad-{number}", auto=0.98) for number in range(3)]
    assert outcome().outcome == HOLDS
    assert outcome(*bad[:2]).outcome == HOLDS
    assert "bad-1: -2.0" in outcome(*bad[:2]).evidence
    assert outcome(*bad).outcome == FAILS
    assert outcome(seeds=2).outcome == OPEN, "two seeds decide nothing"
    assert default.within([place() for _ in range(12)]).outcome == OPEN, "worlds that are missing may still hold"


def test_the_rival_of_a_world_is_the_one_that_did_best_there():
    rivals: dict[str, Any] = {"Fourier SBUCB": 1.2, "linear Thompson": 9.0}
    ahead = place(**rivals)
    assert ahead.best == "Fourier SBUCB", "linear Thompson sampling is no sum-based rival of the claim"
    assert ahead.gain(ahead.best).estimate == pytest.approx(100 * (1 / 1.2 - 1), abs=0.02)
    assert default.within([ahead, *(place(str(i)) for i in range(14))]).outcome == HOLDS
    assert default.other_rows([ahead])[0]["linear Thompson"].startswith("-88.8")
    assert default.main_rows([ahead])[0]["best"] == "Fourier SBUCB"


def test_a_rival_tunes_first_and_takes_the_lowest_regret_of_the_tuning_seeds():
    rival = Rival(policy="sbucb", settings=[{"alpha": alpha} for alpha in (0.0, 0.1, 1.0)])
    first = rival.tasks(FULL, SETUP, {})
    assert len(first) == 6
    assert {task.arguments["seed"] for task in first} == set(TUNING_SEEDS[:2])
    assert rival.chosen(FULL, SETUP, {}) is None
    regret = {0.0: 0.3, 0.1: 0.1, 1.0: 0.2}
    known = {
        task.key: Result(task, [{"regret_per_step": regret[task.arguments["parameters"]["alpha"]]}], 0.0)
        for task in first
    }
    assert rival.chosen(FULL, SETUP, known) == {"alpha": 0.1}
    reported = rival.reported(FULL, SETUP, known)
    assert [task.arguments["seed"] for task in reported] == [0, 1, 2]
    assert all(task.arguments["parameters"] == {"alpha": 0.1} for task in reported)
    assert len(replace(rival, seeds=1).reported(FULL, SETUP, known)) == 1
    del known[first[-1].key]
    assert rival.chosen(FULL, SETUP, known) is None


@pytest.mark.parametrize("label", [*SUM_BASED, "linear Thompson"])
def test_all_settings_of_a_rival_are_different_policies(label):
    rival = {**SUM_BASED, **OTHERS}[label]
    policies = [make_policy(rival.policy, **setting) for setting in rival.settings]
    assert all(policies.count(policy) == 1 for policy in policies)


def test_missing_files_and_libraries_are_left_out_with_the_reason(monkeypatch):
    monkeypatch.setattr(default, "installed", lambda library: False)
    assert set(default.rivals(FULL, "poly")) == {*SUM_BASED, "linear Thompson"}
    reasons = {row["left out"]: row["reason"] for row in default.skipped_rows(FULL)}
    assert reasons["covertype"] == "skipped: no --data"
    assert reasons["Vowpal Wabbit"] == "skipped: not installed"
    assert set(default.played(FULL)) == {*WORLDS} - {"covertype", "uci-coupon"}


def test_rewards_are_what_the_best_actions_earn_minus_the_regret():
    # Counted by hand: the expected reward of the executed actions.
    (task,) = default.floored(SETUP, range(1), 0.0, 5)
    (levels,) = SETUP.levels(range(1))
    oracle = {0: levels.run()[-1]["oracle"]}
    (reward,) = expected([Result(task, task.run(), 0.0)], oracle).values()
    history = run(make_policy("auto", floor=0.0), make_environment("linear", noise=0.0, seed=0), 3, 40, 0)
    noisy = run(make_policy("auto", floor=0.0), make_environment("linear", seed=0), 3, 40, 0)
    assert reward == pytest.approx(oracle[0] - noisy.regret[-1] / 120)
    assert history.rewards.mean() == pytest.approx(oracle[0] - history.regret[-1] / 120), "without noise they are equal"


def test_the_shop_is_judged_by_the_mean_and_a_uniform_episode_counts_once():
    assert default.sold(True, [1.0, 1.0, 0.9]).outcome == HOLDS
    assert default.sold(True, [1.0, 1.0, 0.8]).outcome == FAILS
    assert default.sold(False, [1.0, 1.0]).outcome == OPEN
    assert default.with_first({0: 1.0}, {0: 0.0}, 4) == {0: 0.8}


def library_reward(library, episodes=4, **parameters):
    given = {"environment": "linear", "world": {"noise": 0.1}, "batch_size": 300, "seed": 0}
    (row,) = play_library(library=library, parameters=parameters, episodes=episodes, **given)
    return row


def test_vowpal_wabbit_learns():
    # A uniform choice earns about 0; one seed, so that the limit is far below the 0.9 that it earns.
    pytest.importorskip("vowpalwabbit")
    assert library_reward("vowpalwabbit", options="--squarecb --gamma_scale 1000")["average_reward"] > 0.5


def test_linucb_of_contextualbandits_chooses_what_sbucb_does():
    pytest.importorskip("contextualbandits", reason="it comes with the extra `bench`")
    row = library_reward("contextualbandits", alpha=0.1, ridge=1.0)
    policy = make_policy("sbucb", alpha=0.1, ridge=1.0, scale=True, intercept=True)
    ours = run(policy, make_environment("linear", noise=0.1, seed=0), 4, 300, 0)
    # The two draw another first episode, and theirs does not shrink the intercept; untrained, it is about 1.2.
    assert row["regret_per_step"] < 0.02
    assert ours.regret[-1] / 1200 < 0.02


def test_a_forest_marks_what_reaches_below_the_margin():
    pytest.importorskip("matplotlib")
    gains = {"good": Interval(0.5, 0.1, 0.9), "bad": Interval(-0.9, -1.2, -0.6)}
    figure = plots.forest({"one": gains, "other": gains}, xlabel="gain", margin=-1.0)
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["good", "bad"]
    for ax in figure.axes:
        faces = [line.get_markerfacecolor() for line in ax.lines if line.get_marker() == "o"]
        assert [face == "white" for face in faces] == [False, True]
