"""Many actions, many rows, many episodes: what is large stays within bounds."""

import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest

from spuir import Bandit, list_policies, make_policy
from spuir.base import streams
from spuir.errors import InputError
from spuir.testing.trial import contexts, episode
from tests.contracts.cases import CASES

MANY = 10_000
ROWS = 1_000_000


def small(name):
    """The policy with parameters that keep ten thousand actions in memory: small features and sketches."""
    known = make_policy(name).__dataclass_fields__
    small: dict[str, Any] = {key: 4 for key in ("n_features", "sketch_size") if key in known}
    return make_policy(name, **small)


def narrow(name, width):
    """The policy, with few features where it has any of its own."""
    few: dict[str, Any] = {"n_features": width} if name.endswith("kernel") else {}
    return make_policy(name, **few)


@pytest.mark.parametrize("name", list_policies())
def test_ten_thousand_actions(name):
    policy = small(name)
    bandit = Bandit(policy, MANY, random_state=0)
    rows = episode(policy, 0, 80, actions=MANY, dim=2)
    assert np.ptp(bandit.predict_proba(rows.X[:2])) < 1e-12
    for _ in range(2):
        bandit.partial_fit(**rows.columns(), allow_repeat=True)
    X = rows.X[:8]
    chances = bandit.predict_proba(X)
    decided = bandit.decide(X)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-9)
    assert np.isfinite(bandit.decision_function(X)).all()
    # Monte-Carlo propensities err by at most one half over the root of the number of draws, five times over.
    tolerance = 1e-9 if decided.exact else 0.25
    np.testing.assert_allclose(decided.propensities, chances[np.arange(8), decided.actions], atol=tolerance)


LARGE = {name: (ROWS, 25e6) for name in ("puir", "spuir", "puir-kernel", "bexp3-ipw", "epsilon-greedy")}
LARGE["blts-b"] = 100_000, 90e6
"""Rows, and bytes that do not depend on them; where propensities are integrals, fewer rows and larger blocks."""


def peak_of(work):
    """Bytes allocated at the worst moment of ``work``, beyond what was there."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", LARGE)
def test_a_million_rows_need_bounded_memory(name):
    """A row of 4 columns takes 32 bytes, one of a table for 20 actions 160, one of their features 640."""
    rows, fixed = LARGE[name]
    rng = streams.generator(0, "large")
    X = rng.standard_normal((rows, 4))
    actions, rewards = rng.integers(20, size=rows), rng.standard_normal(rows)
    bandit = Bandit(narrow(name, 8), 20, random_state=0)
    for work in (lambda: bandit.partial_fit(X, actions, rewards), lambda: bandit.decide(X)):
        peak = peak_of(work)
        assert peak < 100 * rows + fixed, f"{peak / 1e6:.0f} MB for {rows} rows"


@pytest.mark.parametrize("name", ["puir", "spuir-kernel", "blts-b", "bexp3-ipw", "uniform", "epsilon-greedy"])
def test_a_wrong_value_far_behind_is_named_by_its_row(name):
    """Work goes in blocks; a refusal counts rows from the first of the batch."""
    n, wrong = 250_000, 240_001
    rng = streams.generator(0, "late")
    X = rng.standard_normal((n, 2))
    actions, rewards = rng.integers(3, size=n), rng.standard_normal(n)
    bandit = Bandit(narrow(name, 4), 3, random_state=0)
    bandit.partial_fit(X[:400], actions[:400], rewards[:400])
    X[wrong, 1] = np.inf
    for call in (bandit.decide, bandit.predict_proba, lambda X: bandit.partial_fit(X, actions, rewards)):
        with pytest.raises(InputError, match=rf"got inf at row {wrong}, column 1\b"):
            call(X)


@pytest.mark.parametrize("case", [name for name in CASES if " " not in name])
def test_memory_does_not_grow_with_episodes(case):
    """Nothing is kept beside the state either: thirty episodes leave no more behind than four."""
    policy = CASES[case]
    bandit = Bandit(policy, 4, random_state=0).fix(contexts(300))
    batches = [episode(policy, number, 30).columns() for number in range(3)]
    held = []
    gc.freeze()  # what is there already need not be searched for garbage again and again
    for number in range(31):
        bandit.partial_fit(**batches[number % 3], allow_repeat=True)
        bandit.decide(batches[0]["X"])
        if number == 3:
            tracemalloc.start()
        if number in (4, 30):
            gc.collect()
            # Small arrays that SciPy's wrappers let go are stored for reuse, a few hundred of them at most, and a
            # workspace is made once, when it is first needed.
            left_out = [tracemalloc.Filter(False, name) for name in ("*/scipy/_lib/*", "*/core/scratch.py")]
            traces = tracemalloc.take_snapshot().filter_traces(left_out)
            held.append(sum(trace.size for trace in traces.traces))
    tracemalloc.stop()
    gc.unfreeze()
    # One batch alone has 1,200 bytes; the rest is for what the interpreter keeps of the measurement itself, and for
    # whether a model of 200 landmarks was solved with new ridges. The marks by which repeated episodes are recognised
    # and the roots of the random streams take about 400 bytes per episode, for the last 100 and 256 of them.
    assert held[1] - held[0] < 10_000 + 26 * 500 + held[0] // 400
