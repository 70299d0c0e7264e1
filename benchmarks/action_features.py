"""Actions with features: an episode beside Vowpal Wabbit's, all widths beside one product, lists beside all actions."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

import spuir
from benchmarks.speed import Effort
from benchmarks.timing import Clock, Task, ratio
from spuir.base.records import Floats
from spuir.core import packed_matrices

ACTIONS, COLUMNS, ROWS = 1_000, 20, 1_000
MANY, HUGE, LISTED = 10_000, 100_000, 50
WABBIT_ROWS = 40
"""Rows of one turn of Vowpal Wabbit, whose time is scaled up."""


def catalogue(actions: int) -> Floats:
    """Return features of actions."""
    return np.random.default_rng(0).standard_normal((actions, COLUMNS))


def episode(actions: int, seed: int) -> tuple[Floats, np.ndarray[Any, Any], Floats]:
    """Return contexts, executed actions and rewards of one episode."""
    rng = np.random.default_rng(seed)
    contexts, codes = rng.standard_normal((ROWS, COLUMNS)), rng.integers(actions, size=ROWS)
    signal = np.einsum("nd,nd->n", contexts, catalogue(actions)[codes]) / COLUMNS
    return contexts, codes, signal + rng.standard_normal(ROWS)


def taught(actions: int, **given: Any) -> spuir.Bandit:
    """Return a bandit after five episodes, when ridges are estimated now and then only."""
    features = catalogue(actions)
    rows = {code: {f"f{at}": float(value) for at, value in enumerate(row)} for code, row in enumerate(features)}
    bandit = spuir.Bandit("hierarchical", rows, random_state=0, components=COLUMNS, **given)
    for seed in range(5):
        bandit.partial_fit(*episode(actions, seed))
    return bandit


def own_episode(bandit: spuir.Bandit, actions: int) -> Task:
    """Return the task of learning and then deciding one batch, ridges included."""
    batches = [episode(actions, 10 + seed) for seed in range(4)]
    turn = iter(range(10**9))

    def task() -> None:
        contexts, codes, rewards = batches[next(turn) % len(batches)]
        bandit.partial_fit(contexts, codes, rewards, allow_repeat=True)
        bandit.decide(contexts)

    return task


def _text(row: Floats) -> str:
    return " ".join(f"{at}:{value:.4g}" for at, value in enumerate(row.tolist()))


def wabbit_episode(actions: int) -> Task:
    """Return the same for Vowpal Wabbit's ``--cb_explore_adf``; its text is written before the clock starts."""
    library: Any = import_module("vowpalwabbit")
    model = library.Workspace("--cb_explore_adf --squarecb --gamma_scale 1000 --cb_type mtr -q sa --quiet")
    lines = [f"|a {_text(row)}" for row in catalogue(actions)]
    contexts, codes, rewards = episode(actions, 10)
    decided = [[f"shared |s {_text(row)}", *lines] for row in contexts[:WABBIT_ROWS]]
    learned = [list(example) for example in decided]
    for example, code, reward in zip(learned, codes.tolist(), rewards.tolist(), strict=False):
        example[code + 1] = f"0:{-reward:.4g}:{1 / actions} {example[code + 1]}"

    def task() -> None:
        for example in learned:
            model.learn(example)
        for example in decided:
            model.predict(example)

    return task


def measure(effort: Effort, say: Callable[[str], None]) -> tuple[dict[str, dict[str, Clock]], dict[str, float]]:
    """Return the clocks of each race and the ratios."""
    tables: dict[str, dict[str, Clock]] = {}
    found: dict[str, float] = {}
    bandit = taught(ACTIONS)
    title = f"actions with features, {ACTIONS:,} actions: learn and decide one batch"
    say(title)
    others = {"Vowpal Wabbit": (wabbit_episode(ACTIONS), ROWS / WABBIT_ROWS)} if find_spec("vowpalwabbit") else {}
    tables[title] = effort.race({"spuir": own_episode(bandit, ACTIONS)}, others)
    if others:
        found["catalogue/episode/Vowpal Wabbit"] = ratio(tables[title]["Vowpal Wabbit"], tables[title]["spuir"])
    title = "actions with features: all widths"
    say(title)
    learner: Any = bandit.policy_.learner  # type: ignore[attr-defined]
    rows, forms = learner.rows(bandit.state_, episode(ACTIONS, 1)[0]), learner.fitted(bandit.state_).forms
    packed = packed_matrices.packed_products(rows)
    widths = {"widths": lambda: packed_matrices.quadratic_forms(rows, forms), "product": lambda: packed @ forms.T}
    tables[title] = effort.race(widths)
    found["catalogue/widths/one product"] = ratio(tables[title]["widths"], tables[title]["product"])
    title = f"actions with features, {MANY:,} actions: decide one batch"
    say(title)
    many, few, contexts = taught(MANY), taught(LISTED), episode(MANY, 1)[0]
    rng = np.random.default_rng(2)
    lists = rng.random((ROWS, MANY)).argpartition(LISTED, axis=1)[:, :LISTED].tolist()
    deciding: dict[str, Task] = {
        f"lists of {LISTED}": lambda: many.decide(contexts, eligible=lists),
        "all of them": lambda: many.decide(contexts),
        f"a catalogue of {LISTED}": lambda: few.decide(contexts),
    }
    tables[title] = effort.race(deciding)
    listed, every, small = tables[title].values()
    found["catalogue/lists/all of them"] = ratio(every, listed)
    found["catalogue/listed/a catalogue of 50"] = ratio(listed, small)
    title = f"actions with features, {HUGE:,} actions that deviate by a constant: decide one batch"
    say(title)
    alone = {size: taught(size, deviations="constant") for size in (HUGE, ACTIONS)}
    spread = {size: rng.integers(size, size=(ROWS, 1)) + np.arange(LISTED) * (size // LISTED) for size in alone}
    chosen = {size: np.sort(one % size, axis=1).tolist() for size, one in spread.items()}
    deciding = {
        f"lists of {LISTED} of {size:,}": partial(one.decide, contexts, eligible=chosen[size])
        for size, one in alone.items()
    }
    tables[title] = effort.race(deciding)
    huge, usual = tables[title].values()
    found["catalogue/huge/1,000"] = ratio(huge, usual)
    return tables, found
