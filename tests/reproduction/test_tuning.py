"""The same search for every method on every set."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from spuir.policies import make_policy
from spuir.reproduction.base import Scope
from spuir.reproduction.comparison import MethodComparison
from spuir.reproduction.policy_runs import REGRET, Setup, own_recipe, policy_of
from spuir.reproduction.rivals import OTHERS, SUM_BASED
from spuir.reproduction.tasks import Result
from spuir.reproduction.tuning import FULL, METHODS, SMALL, Amount, Option, Search, Share, drawn, own_method, varied
from spuir.results.figures import TUNED

SETUP = Setup(environment="synthetic", episodes=2, batch_size=60)
SCOPE = Scope(repeats=2)


def answered(method, setup, regret, scope=SCOPE, budget=FULL):
    """Search with made-up regrets; return the chosen setting and all tasks."""
    known: dict[str, Result] = {}
    while True:
        search = Search(scope, method, setup, known, budget)
        missing = {task.key: task for task in search.tasks if task.key not in known}
        if not missing:
            return search.chosen, {task.key: task for task in search.tasks}
        known |= {key: Result(task, [{REGRET: regret(task.arguments)}], 0.0) for key, task in missing.items()}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_the_same_budget(name):
    method = METHODS[name]
    first = drawn(method, SETUP, FULL.drawn)
    assert len(first) == FULL.drawn
    assert len({str(one) for one in first}) == FULL.drawn
    assert first[0] == {}
    near = varied(method, SETUP, first[: FULL.parents], FULL.varied)
    assert len(first) + len(near) == FULL.settings == 40
    for setting in (*first, *near):
        policy_of(method.policy, method.preset, {**method.parameters, **setting})  # every setting is allowed
    assert drawn(method, replace(SETUP, environment="coupon"), FULL.drawn) == first


@pytest.mark.parametrize("name", ["sbucb", "puir", "spuir", "dfm-s"])
def test_the_lowest_regret_is_found_and_the_seeds_are_those_for_tuning(name):
    method = METHODS[name]

    def regret(arguments):
        return abs(np.log(arguments["parameters"].get("ridge", 1.0) / 5.0))

    chosen, tasks = answered(method, SETUP, regret)
    assert chosen is not None
    assert regret({"parameters": chosen}) < 0.5
    seeds = {task.arguments["seed"] for task in tasks.values()}
    assert seeds == set(SCOPE.tuning_seeds)
    assert not seeds & set(Scope(first_seed=90_000, repeats=10_000).seeds)


def test_the_best_may_lie_beyond_the_ranges():
    """A regret that falls with λ without end: the search leaves its range."""
    chosen, _ = answered(METHODS["sbucb"], SETUP, lambda given: -np.log(given["parameters"].get("ridge", 1.0)))
    assert chosen is not None
    assert chosen["ridge"] > 1000


def test_a_setting_that_fails_now_and_then_does_not_win_by_luck():
    """The best setting of the first seeds fails on later ones: the last round sees it."""

    def regret(arguments):
        lucky = not arguments["parameters"]
        return (5.0 if arguments["seed"] > 100_010 else 0.0) if lucky else 1.0

    chosen, _ = answered(METHODS["sbucb"], SETUP, regret)
    assert chosen


def test_a_sketch_has_at_most_half_the_rows_of_a_batch():
    for setting in drawn(METHODS["spuir"], SETUP, FULL.drawn)[1:]:
        assert setting["sketch_size"] <= 30


def test_while_runs_are_missing_nothing_is_chosen():
    search = Search(SCOPE, METHODS["puir"], SETUP, {})
    assert search.chosen is None
    assert len(search.tasks) == FULL.drawn * FULL.rounds[0][1]


@pytest.mark.parametrize("label", [*SUM_BASED, *OTHERS])
def test_the_rivals_of_the_default_policy_have_one_budget_too(label):
    method = {**SUM_BASED, **OTHERS}[label]
    first = drawn(method, SETUP, SMALL.drawn)
    assert len(first) + len(varied(method, SETUP, first[: SMALL.parents], SMALL.varied)) == SMALL.settings == 20


@pytest.mark.parametrize("one", [Amount(0.01, 10.0, zero=True), Amount(50, 400, whole=True), Share(), Share(0.01)])
def test_ranges(one: Any):
    rng = np.random.default_rng(0)
    values = np.array([one.draw(rng) for _ in range(400)])
    low, high = (one.low, one.high) if isinstance(one, Amount) else (one.low, 1.0)
    assert ((values >= low * 0.99) & (values <= high * 1.01) | (values == 0) * getattr(one, "zero", True)).all()
    near = [one.vary(float(values.max()), rng) for _ in range(50)]
    assert len(set(near)) > 10
    assert all(0 <= value <= (1.0 if isinstance(one, Share) else np.inf) for value in near)
    assert {Option((1, 2)).draw(rng) for _ in range(20)} == {1, 2}


def test_a_policy_of_ones_own_joins_with_a_search_of_its_own():
    path = "spuir.policies.optimistic:Optimistic"
    assert set(own_method(path).tuned) == {"alpha", "ridge"}
    assert set(own_method("spuir").tuned) == set(METHODS["spuir"].tuned)
    assert set(own_method("spuir.policies.thompson:BLTS_B").tuned) == {"ridge", "scale"}
    comparison = MethodComparison(name="synthetic", setup=lambda scope: SETUP)
    cast = comparison.cast(Scope(policies=(path,)))
    assert list(cast)[-1] == "Optimistic"
    cells, searching = comparison.cells(Scope(repeats=2, quick=True, policies=(path,)), {})
    assert {"Optimistic", "puir"} <= set(cells)
    assert "Optimistic" + TUNED not in cells
    assert any(task.arguments["policy"] == path for task in searching)
    policy: Any = policy_of(path, None, {"alpha": 0.7})
    assert (policy.alpha, policy.name) == (0.7, "Optimistic")
    assert own_recipe("spuir.policies.optimistic:SBUCB").make("mine", None, {}).name == "mine"
    assert make_policy("sbucb") == own_recipe("spuir.policies.optimistic:SBUCB").make("sbucb", None, {})
