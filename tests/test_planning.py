"""Recommended sizes and their costs."""

import json
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spuir.errors import ParameterError
from spuir.planning import costs, plan, sketch_gain

SIZES = st.integers(1, 10**9), st.integers(1, 500), st.integers(1, 200), st.integers(1, 8)


def test_the_papers_setting_gives_the_papers_sizes():
    made = plan(126_000, 40, 5)
    assert (made.batch_size, made.episodes) == (1403, 90)
    assert made.sketch_size == 148
    assert made.sketch_advised is None


@given(*SIZES)
def test_rules(steps, dim, actions, blocks):
    made = plan(steps, dim, actions, sketch_blocks=blocks)
    assert 1 <= made.batch_size <= steps
    assert (made.episodes - 1) * made.batch_size < steps <= made.episodes * made.batch_size
    assert made.sketch_size % blocks == 0
    assert made.sketch_size >= max(dim + 1, dim * log(dim), 0.1 * made.batch_size)
    assert max(dim + 1, dim * log(dim)) <= made.least_sketch_size <= made.sketch_size
    assert made.least_sketch_size < max(dim + 1, dim * log(dim)) + 1 + blocks
    assert made.sketch_advised in (None, made.sketch_size, made.least_sketch_size)
    assert made.sketch_advised is None or made.sketch_advised < made.batch_size


@given(*SIZES)
def test_costs_are_ordered_as_the_identities_say(steps, dim, actions, blocks):
    made = plan(steps, dim, actions, sketch_blocks=blocks)
    plain, naive, exact, *sketched = made.costs
    assert [cost.choice.split(",")[0] for cost in made.costs[:4]] == ["sbucb", "puir", "puir", "spuir"]
    assert plain.learn_flops <= exact.learn_flops
    assert plain.learn_flops <= naive.learn_flops
    if made.batch_size > 8 * actions > 8:
        assert exact.learn_flops < naive.learn_flops
    for cost in made.costs:
        assert 0 < cost.least_decide_flops <= cost.decide_flops
        assert cost.state_bytes >= 8 * actions * dim * dim
    assert {cost.decide_flops for cost in sketched} == {plain.decide_flops}


def test_leading_terms_at_the_papers_shape():
    by_name = {cost.choice: cost for cost in costs(1400, 40, 5, (150,))}
    assert by_name["sbucb"].learn_flops == pytest.approx(1400 * 40**2, rel=0.15)
    assert by_name["puir, row by row"].learn_flops == pytest.approx(5 * 1400 * 40**2, rel=0.15)
    assert by_name["puir"].learn_flops < 1.1 * by_name["sbucb"].learn_flops
    assert by_name["sbucb"].state_bytes == 8 * 5 * (40 * 40 + 40)


def test_sketching_pays_for_deep_batches_only():
    assert sketch_gain(1400, 40, 5, 150) < 1
    assert sketch_gain(100_000, 200, 5, 1000) > 1.25
    assert sketch_gain(100, 40, 5, 150) == 1
    deep = plan(3_200_000_000, 200, 5)
    assert deep.sketch_advised == deep.least_sketch_size < deep.sketch_size
    assert "Sketch only at" in deep.reasons[-1]
    assert "nothing would be sketched" in plan(100, 40, 5).reasons[-1]
    assert "puir, which is exact" in plan(126_000, 40, 5).reasons[-1]


def test_a_batch_no_larger_than_its_sketch_costs_what_the_exact_one_does():
    *_, exact, whole = costs(100, 40, 5, (150,))
    assert whole.learn_flops == exact.learn_flops
    assert whole.meaning.startswith("c ≥ B")


def test_plans_are_json():
    made = plan(10_000, 10, 3, sketch_blocks=4)
    assert json.loads(json.dumps(made.to_dict()))["costs"][0]["choice"] == "sbucb"
    assert "multiple of D = 4" in made.reasons[1]


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"dim": -3}, {"actions": 2.5}, {"sketch_blocks": 0}])
def test_wrong_sizes_are_refused(wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        plan(**{"steps": 100, "dim": 4, "actions": 2} | wrong)
