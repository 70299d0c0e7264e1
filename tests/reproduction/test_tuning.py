"""The shared grid of settings: what is offered, how one is chosen, and that choosing comes before reporting."""

from dataclasses import replace
from typing import Any

import pytest

from spuir.policies import make_policy
from spuir.reproduction.base import Scope
from spuir.reproduction.policy_runs import Setup
from spuir.reproduction.tasks import Result
from spuir.reproduction.tuning import (
    ALPHAS,
    METHODS,
    RIDGES,
    SETTINGS,
    TUNING_SEEDS,
    at_alpha,
    best,
    both,
    labelled,
    setting_tasks,
    settings_of,
    tuning_tasks,
    words,
)

PLAN, QUICK = Scope(repeats=3), Scope(repeats=3, quick=True)
SYNTHETIC = Setup(environment="synthetic", episodes=2, batch_size=10)
COUPON = replace(SYNTHETIC, environment="coupon")
CRITEO = replace(SYNTHETIC, environment="criteo-all")
OPTIMISTIC = ("sbucb", "puir", "spuir", "puir-rs", "spuir-rs")


def answered(tasks, reward):
    """Return results of tasks made by hand: ``reward`` of a task's parameters and seed."""
    return [
        Result(task, [{"average_reward": reward(task.arguments["parameters"], task.arguments["seed"])}], 0.0)
        for task in tasks
    ]


def asked(plan, results, methods=("sbucb", "puir")):
    return both(plan, results, methods, SYNTHETIC)


@pytest.mark.parametrize("method", SETTINGS)
def test_each_method_has_at_most_twelve_different_settings_the_authors_first(method):
    settings = SETTINGS[method]
    assert settings[0] == {}
    assert 4 <= len(settings) <= 12
    # A wrong name or value would be refused here; equal policies would be one setting counted twice.
    policies = [make_policy(method, preset="paper", **setting) for setting in settings]
    assert all(policies.count(policy) == 1 for policy in policies)


def test_all_nine_methods_are_offered_settings_and_optimistic_ones_the_same():
    assert set(METHODS) <= set(SETTINGS)
    pairs = {(alpha, ridge) for alpha in ALPHAS for ridge in RIDGES}
    for method in OPTIMISTIC:
        policies: list[Any] = [make_policy(method, preset="paper", **setting) for setting in SETTINGS[method]]
        assert {(policy.alpha, policy.ridge) for policy in policies} == pairs
        kept = {(policy.imputation_rate, policy.discount, policy.moments) for policy in policies}
        assert len(kept) == 1, "tuning changes α and λ, nothing that makes the method what it is"


@pytest.mark.parametrize("method", OPTIMISTIC)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_setting_at_an_alpha_is_of_the_grid_and_has_it(method, alpha):
    setting = at_alpha(method, alpha)
    assert setting in SETTINGS[method]
    policy: Any = make_policy(method, preset="paper", **setting)
    assert (policy.alpha, policy.ridge) == (alpha, 1.0)


def test_a_grid_asks_for_tuning_first_and_then_for_what_was_chosen():
    first = asked(PLAN, [])
    keys = {task.key for task in first}
    assert len(keys) == len(first) == 2 * (3 + 12 * len(TUNING_SEEDS))
    chosen = {"sbucb": SETTINGS["sbucb"][4], "puir": SETTINGS["puir"][11]}
    results = [
        result
        for method, setting in chosen.items()
        for result in answered(
            [task for task in first if task.arguments["policy"] == method],
            lambda parameters, _, wanted=setting: float(parameters == wanted),
        )
    ]
    second = asked(PLAN, results)
    new = [task for task in second if task.key not in keys]
    wanted = [task for method in chosen for task in setting_tasks(range(3), method, chosen[method], SYNTHETIC)]
    assert [task.key for task in new] == [task.key for task in wanted]
    assert keys < {task.key for task in second}
    done = results + answered(new, lambda *_: 0.0)
    assert [task.key for task in asked(PLAN, done)] == [task.key for task in second], "what was chosen stays chosen"


def test_seeds_that_tune_are_not_those_that_are_reported():
    results = answered(asked(PLAN, []), lambda parameters, _: float(parameters == {"alpha": 0.0, "ridge": 10.0}))
    known = {result.task.key for result in results}
    results += answered([task for task in asked(PLAN, results) if task.key not in known], lambda *_: 0.5)
    groups = labelled(PLAN, results, ("sbucb", "puir"), SYNTHETIC)
    assert list(groups) == ["sbucb", "sbucb (tuned)", "puir", "puir (tuned)"]
    for label, group in groups.items():
        assert [result.arguments["seed"] for result in group] == [0, 1, 2]
        wanted = {"alpha": 0.0, "ridge": 10.0} if "tuned" in label else {}
        assert all(result.arguments["parameters"] == wanted for result in group)
        assert all(result.arguments["policy"] == label.partition(" ")[0] for result in group)


def test_the_best_is_a_mean_over_the_tuning_seeds():
    tasks = tuning_tasks(PLAN, "bexp3", SYNTHETIC)
    steady, lucky = SETTINGS["bexp3"][2], SETTINGS["bexp3"][3]

    def reward(parameters, seed):
        if parameters == lucky:
            return 1.0 if seed == TUNING_SEEDS[0] else 0.0
        return 0.3 if parameters == steady else 0.1

    results = answered(tasks, reward)
    assert best(PLAN, results, "bexp3", SYNTHETIC) == steady
    # Runs on reported seeds, in other places and of other methods change nothing.
    others = [
        *setting_tasks(range(3), "bexp3", lucky, SYNTHETIC),
        *setting_tasks(TUNING_SEEDS, "bexp3", lucky, replace(SYNTHETIC, environment="heterogeneous")),
        *setting_tasks(TUNING_SEEDS, "bexp3", lucky, replace(SYNTHETIC, world={"dim": 3})),
        *setting_tasks(TUNING_SEEDS, "bexp3-ipw", lucky, SYNTHETIC),
    ]
    more = results + answered(others, lambda *_: 9.0)
    assert best(PLAN, more, "bexp3", SYNTHETIC) == steady


def test_of_equal_settings_the_first_is_taken_so_that_the_authors_setting_wins_a_tie():
    tasks = tuning_tasks(PLAN, "dfm-s", COUPON)
    assert best(PLAN, answered(tasks, lambda *_: 0.5), "dfm-s", COUPON) == {}
    late = SETTINGS["dfm-s"][2:]
    results = answered(tasks, lambda parameters, _: float(parameters in late))
    assert best(PLAN, results, "dfm-s", COUPON) == late[0]


def test_where_the_authors_setting_is_best_nothing_more_is_run_and_both_labels_show_it():
    results = answered(asked(PLAN, [], ("dfm-s",)), lambda *_: 0.5)
    assert {task.key for task in asked(PLAN, results, ("dfm-s",))} == {result.task.key for result in results}
    groups = labelled(PLAN, results, ("dfm-s",), SYNTHETIC)
    assert groups["dfm-s"] == groups["dfm-s (tuned)"]


@pytest.mark.parametrize("missing", [0, 30, -1])
def test_nothing_is_chosen_while_a_tuning_run_is_missing(missing):
    results = answered(tuning_tasks(PLAN, "puir", SYNTHETIC), lambda *_: 0.5)
    del results[missing]
    assert best(PLAN, results, "puir", SYNTHETIC) is None
    assert words(best(PLAN, results, "puir", SYNTHETIC)) == "not chosen yet"
    assert "puir (tuned)" not in labelled(PLAN, results, ("puir",), SYNTHETIC)
    done = answered(setting_tasks(PLAN.seeds, "puir", {}, SYNTHETIC), lambda *_: 0.5)
    assert list(labelled(PLAN, results + done, ("puir",), SYNTHETIC)) == ["puir"]


@pytest.mark.parametrize("method", METHODS)
def test_quick_tuning_is_part_of_the_full_one(method):
    quick, full = (asked(plan, [], (method,)) for plan in (QUICK, PLAN))
    assert {task.key for task in quick} < {task.key for task in full}
    results = answered(quick, lambda parameters, _: float(parameters != {}))
    assert best(QUICK, results, method, SYNTHETIC) in SETTINGS[method]
    # The two settings of a quick plan are too few for a full one, which goes on from them.
    assert best(PLAN, results, method, SYNTHETIC) is None


@pytest.mark.parametrize("method", METHODS)
def test_where_runs_take_long_fewer_settings_are_offered_the_authors_always(method):
    few, many = (settings_of(PLAN, method, environment) for environment in ("criteo-all", "synthetic"))
    assert few[0] == {}
    assert 2 <= len(few) < len(many)
    assert all(setting in many and setting.get("ridge", 1.0) == 1.0 for setting in few)
    tasks = tuning_tasks(PLAN, method, CRITEO)
    assert len(tasks) == len(few) * len(TUNING_SEEDS)
    assert best(PLAN, answered(tasks, lambda *_: 0.5), method, CRITEO) == {}


def test_settings_are_told_in_words():
    assert words({}) == "the authors'"
    assert words({"alpha": 0.03, "ridge": 10.0}) == "alpha = 0.03, ridge = 10.0"
