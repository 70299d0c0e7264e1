"""Laws of long use: saving and loading, adding and removing actions, constant memory, threads."""

import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from spuir.bandit import Bandit, load
from spuir.base import packing
from spuir.errors import ParameterError
from spuir.policies import Policy
from spuir.testing.deciding import require_decisions
from spuir.testing.trial import (
    N_ACTIONS,
    SIZES,
    contexts,
    enriched,
    episode,
    fresh,
    frozen,
    law,
    require,
    require_close,
    require_probabilities,
    require_same,
    table,
    trained,
)

CALLS = 300
"""Number of decisions made while another thread learns."""


def a_loaded_bandit_continues_bit_for_bit(policy: Policy) -> None:
    """Check that a saved and loaded bandit, trained or not, decides and learns exactly as the original does."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bandit.spuir"
        for sizes in ((), SIZES[:2]):
            original = trained(policy, sizes)
            original.decide(contexts(33))
            if sizes:
                original.add_action("late").remove_action(1)
            original.save(path)
            restored = load(path)
            require(frozen(restored) == frozen(original), "the loaded state differs")
            _go_on_alike(original, restored)


def _go_on_alike(original: Bandit, restored: Bandit) -> None:
    X, policy = contexts(120), original.policy_
    for number in range(3):
        decided = [bandit.decide(X) for bandit in (original, restored)]
        require_same(decided[1].actions, decided[0].actions, "actions")
        require_same(decided[1].propensities, decided[0].propensities, "propensities")
        rows = episode(policy, number + 9, 160)
        for bandit in (original, restored):
            bandit.partial_fit(**rows.columns())
        require(frozen(restored) == frozen(original), "states")
        expected, found = table(original, X), table(restored, X)
        for name, values in expected.items():
            require_same(found[name], values, name)


def a_new_seed_draws_otherwise(policy: Policy) -> None:
    """Check that bandits loaded with different seeds have the same estimates and different draws."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bandit.spuir"
        cold, warm = fresh(policy), trained(policy)
        for bandit in (cold, warm):
            bandit.decide(contexts(2))
            bandit.save(path)
            other = load(path, random_state=99)
            same = load(path, random_state=99)
            X = contexts(300)
            require_same(other.decision_function(X), bandit.decision_function(X), "what is known")
            drawn = other.decide(X).actions
            require_same(same.decide(X).actions, drawn, "the new streams")
            if bandit is cold:
                require(not np.array_equal(drawn, bandit.decide(X).actions), "a new seed draws the same")


def the_state_keeps_its_size(policy: Policy) -> None:
    """Check that the state after 12 episodes is as large as after 2."""
    bandit = fresh(policy)
    kept: list[int] = []
    for number in range(12):
        bandit.partial_fit(**episode(policy, number, 40 if number % 2 else SIZES[0]).columns())
        if number in (1, 11):
            _, arrays = packing.pack(bandit.state_)
            kept.append(sum(array.nbytes for array in arrays.values()))
    require(kept[0] == kept[1], f"the state grew from {kept[0]} to {kept[1]} bytes")


def retired_actions_are_never_chosen(policy: Policy) -> None:
    """Check that removed actions keep their code and learn from late rows, and that labels are never reused."""
    bandit = trained(policy).remove_action(1)
    allowed = np.broadcast_to(np.arange(N_ACTIONS) != 1, (300, N_ACTIONS))
    X, before = contexts(300), frozen(bandit)
    require_probabilities(bandit.predict_proba(X), allowed, policy.floor, "after retirement")
    require(not (bandit.decide(X).actions == 1).any(), "a retired action was chosen")
    late = replace(episode(policy, 4, 50), actions=np.ones(50, np.intp))
    bandit.partial_fit(**late.columns())
    require(frozen(bandit)[1] != before[1] and bandit.n_episodes_ == 4, "late rows were not learned")
    require_probabilities(bandit.predict_proba(X), allowed, policy.floor, "after late rows")
    require_same(bandit.actions_, np.arange(N_ACTIONS), "labels")
    for call in (lambda: bandit.add_action(1), lambda: fresh(policy, actions=["a"]).remove_action("a")):
        try:
            call()
        except ParameterError:
            continue
        raise AssertionError("a label was used again, or the last action was retired")


def actions_can_be_added(policy: Policy) -> None:
    """Check that a new action starts with empty sums or a copy of another's, and learns like any other."""
    X = contexts(50)
    for like in (None, 2):
        bandit = trained(policy)
        known = bandit.decision_function(X)
        bandit.add_action("new", like=like)
        scores = bandit.decision_function(X)
        if like is not None:
            require_close(scores[:, -1], scores[:, like], "scores of a copy", 1e-12)
        if "ridge" in policy.traits:
            if like is None or "self-tuning" not in policy.traits:  # a copy's rows count in what is estimated together
                require_close(scores[:, :-1], known, "scores of the others")
            expected = np.zeros_like(bandit.coefficients_[0]) if like is None else bandit.coefficients_[like]
            require_close(bandit.coefficients_[-1], expected, "coefficients of a new action", 1e-12)
        rows = episode(policy, 4, 180, actions=N_ACTIONS + 1)
        labels = np.array([0, 1, 2, 3, "new"], dtype=object)
        bandit.partial_fit(**replace(enriched(rows, N_ACTIONS + 1), actions=labels[rows.actions]).columns())
        allowed = np.ones((50, N_ACTIONS + 1), np.bool_)
        require_probabilities(bandit.predict_proba(X), allowed, policy.floor, "with a new action")
        require(list(bandit.actions_) == [0, 1, 2, 3, "new"], "labels")
    cold = fresh(policy).add_action("new")
    require_close(cold.predict_proba(X), np.full((50, 5), 0.2), "an action added before anything was seen", 1e-12)
    # What a policy keeps to decide faster may not hold for a new action.
    grown = trained(policy).add_action(N_ACTIONS, ramp=None)
    require_decisions(grown, contexts(600), None, "with an action just added")


def deciding_and_learning_at_once(policy: Policy) -> None:
    """Check that every decision made while another thread learns comes from one complete state."""
    bandit, X = trained(policy, SIZES[:1]), contexts(6)
    rows = [episode(policy, number, 30) for number in range(1, 13)]
    published = [bandit.state_]
    taken: list[Any] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def keep_deciding() -> None:
        try:
            while len(taken) < CALLS and not (done.is_set() and len(taken) > 20):
                decided = bandit.decide(X)
                bandit.predict(X)
                taken.append(decided)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=keep_deciding)
    thread.start()
    for batch in rows:
        bandit.partial_fit(**batch.columns())
        published.append(bandit.state_)
    done.set()
    thread.join()
    require(not failures, f"deciding failed: {failures[:1]}")
    everything = np.ones((len(X), N_ACTIONS), np.bool_)
    tables = [policy.table(state, X, everything) for state in published]
    known = {(one.scores.tobytes(), one.probabilities.tobytes()) for one in tables}
    for decided in taken:
        require((decided.scores.tobytes(), decided.probabilities.tobytes()) in known, "a decision of no known state")
        executed = decided.probabilities[np.arange(len(X)), decided.actions]
        require((executed > 0).all(), "an action of another state than its probabilities")
        if decided.exact:
            require_close(decided.propensities, executed, "propensities", 1e-9)


LAWS = (
    law(a_loaded_bandit_continues_bit_for_bit),
    law(a_new_seed_draws_otherwise),
    law(the_state_keeps_its_size),
    law(retired_actions_are_never_chosen),
    law(actions_can_be_added),
    law(deciding_and_learning_at_once),
)
