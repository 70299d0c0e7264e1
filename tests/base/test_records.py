import copy
import pickle
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from spuir.base.records import Batch, Decision, Derived, Feedback, Rounds, Scores, State, all_finite
from spuir.errors import InputError

B, D, M = 4, 3, 2


def batch(**changes: Any) -> Batch:
    given: dict[str, Any] = {"contexts": np.ones((B, D)), "actions": [0, 1, 0, 1], "rewards": [0.0, 1.0, 2.0, 3.0]}
    return Batch(**(given | changes))


def test_lists_become_arrays_of_the_right_kind() -> None:
    rows = batch(
        contexts=[[1, 2, 3]] * B,
        propensities=[1, 0.5, 0.5, 1],
        weights=[0, 1, 2, 3],
        eligible=[[1, 0]] * B,
        row_ids=[4, 5, 6, 7],
        click=[0, 1, 1, 0],
    )
    assert len(rows) == B
    assert rows.actions.dtype == np.intp
    assert rows.rewards.dtype == np.float64
    assert rows.propensities is not None and rows.propensities.dtype == np.float64
    assert isinstance(rows.eligible, np.ndarray) and rows.eligible.dtype == np.bool_
    assert rows.row_ids is not None and rows.row_ids.dtype == np.int64
    assert rows.conversion is None


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8, np.bool_])
@pytest.mark.parametrize("order", ["C", "F"])
def test_contexts_of_any_number_dtype_and_layout_are_kept_as_they_are(dtype, order) -> None:
    contexts = np.ones((B, D), dtype, order=order)
    contexts.flags.writeable = False
    assert np.shares_memory(batch(contexts=contexts).contexts, contexts)


def test_sparse_contexts_stay_sparse() -> None:
    contexts = sparse.csr_array(np.eye(B, D))
    rows = batch(contexts=contexts)
    assert sparse.issparse(rows.contexts)
    assert len(rows) == B


def test_an_empty_batch_is_one() -> None:
    assert len(batch(contexts=np.ones((0, D)), actions=[], rewards=[])) == 0


@pytest.mark.parametrize(
    ("changes", "subject", "got"),
    [
        ({"contexts": np.ones(B)}, "contexts", "shape (4,)"),
        ({"contexts": np.ones((B, D, 1))}, "contexts", "shape (4, 3, 1)"),
        ({"contexts": [["a", "b", "c"]] * B}, "contexts", "dtype"),
        ({"contexts": np.full((B, D), None)}, "contexts", "dtype object"),
        ({"contexts": [[1.0, 2.0], [1.0]]}, "contexts", ""),
        ({"actions": [0, 1, 0]}, "actions", "shape (3,)"),
        ({"actions": [[0], [1], [0], [1]]}, "actions", "shape (4, 1)"),
        ({"actions": [0.0, 1.0, 0.0, 1.0]}, "actions", "dtype float64"),
        ({"actions": ["a", "b", "a", "b"]}, "actions", "dtype"),
        ({"actions": [0, 1, -1, 0]}, "actions", "-1 at row 2"),
        ({"rewards": [0.0, 1.0, np.nan, 3.0]}, "rewards", "nan at row 2"),
        ({"rewards": [0.0, np.inf, 0.0, 3.0]}, "rewards", "inf at row 1"),
        ({"rewards": [1.0]}, "rewards", "shape (1,)"),
        ({"rewards": ["a", "b", "c", "d"]}, "rewards", "'a' at row 0"),
        ({"rewards": None}, "rewards", ""),
        ({"propensities": [0.5, 0.0, 0.5, 0.5]}, "propensities", "0.0 at row 1"),
        ({"propensities": [0.5, 0.5, 0.5, 1.5]}, "propensities", "1.5 at row 3"),
        ({"propensities": [0.5, 0.5, 0.5, np.nan]}, "propensities", "nan at row 3"),
        ({"weights": [1.0, -2.0, 1.0, 1.0]}, "weight", "-2.0 at row 1"),
        ({"weights": [1.0, 1.0, np.inf, 1.0]}, "weight", "inf at row 2"),
        ({"eligible": np.ones((B - 1, M))}, "eligible", "shape (3, 2)"),
        ({"eligible": np.ones(B)}, "eligible", "shape (4,)"),
        ({"revealed": np.ones((B, M))}, "revealed", "one of the pair"),
        ({"revealed_rewards": np.ones((B, M))}, "revealed", "one of the pair"),
        ({"revealed": np.ones((B, M)), "revealed_rewards": np.ones((B, M + 1))}, "revealed", ""),
        (
            {"revealed": np.ones((B, M)), "revealed_rewards": np.full((B, M), np.nan)},
            "revealed_rewards",
            "nan at row 0, column 0",
        ),
        ({"click": [0.0, 1.0, np.nan, 1.0]}, "click", "nan at row 2"),
        ({"row_ids": [0.5, 1.0, 2.0, 3.0]}, "row_ids", "float64"),
        ({"row_ids": [1, 2]}, "row_ids", "shape (2,)"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_value(changes: dict[str, Any], subject: str, got: str) -> None:
    with pytest.raises(InputError) as caught:
        batch(**changes)
    assert subject in caught.value.subject
    assert got in caught.value.got
    assert caught.value.rule
    assert caught.value.remedy


def test_a_hidden_reward_may_be_anything() -> None:
    mask = np.zeros((B, M), bool)
    mask[0, 1] = True
    rewards = np.full((B, M), np.nan)
    rewards[0, 1] = 2.0
    rows = batch(revealed=mask, revealed_rewards=rewards)
    assert rows.revealed_rewards is not None and rows.revealed_rewards[0, 1] == 2.0


def test_a_propensity_may_exceed_one_by_rounding() -> None:
    assert batch(propensities=[1 + 1e-12] * B).propensities is not None


def test_an_encoded_batch_is_the_checked_one() -> None:
    given = {"contexts": np.eye(B, D), "rewards": np.arange(4.0)}
    codes = np.array([0, 1, 1, 0], np.intp)
    made, checked = Batch.encoded(**given, codes=codes), Batch(**given, actions=codes)
    for field in fields(Batch):
        one, other = getattr(made, field.name), getattr(checked, field.name)
        assert (one is None) == (other is None), field.name
        np.testing.assert_array_equal(one, other, err_msg=field.name)
    for again in (replace(made, weights=np.ones(B)), pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        np.testing.assert_array_equal(again.actions, codes)
        assert again.eligible is None and len(again) == B
    with pytest.raises(FrozenInstanceError):
        made.rewards = np.zeros(B)  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("rows", "actions", "rewards", "words"),
    [
        (B, 3, np.zeros(B), "actions: got shape (3,)"),
        (B, B, np.zeros(3), "rewards: got shape (3,)"),
        (B, B, np.array([0.0, np.nan, 0.0, 0.0]), "rewards: got nan at row 1"),
        (B, B, ["a"] * B, "rewards: got 'a' at row 0, but every reward must be finite; pass numbers."),
        (B, B, [0.5, "no", 1.0, 0.0], "rewards: got 'no' at row 1, but every reward must be finite; pass numbers."),
        (B, B, "yes", "rewards: got 'yes', but every reward must be finite; pass numbers."),
    ],
)
def test_an_encoded_batch_refuses_lengths_and_rewards_that_are_wrong(rows, actions, rewards, words) -> None:
    with pytest.raises(InputError) as caught:
        Batch.encoded(np.ones((rows, D)), np.zeros(actions, np.intp), rewards)
    assert str(caught.value).startswith(words)


def test_records_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        batch().rewards = np.zeros(B)  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(FrozenInstanceError):
        State(n_actions=1, dim=1).episode = 3  # pyright: ignore[reportAttributeAccessIssue]


def test_arguments_are_never_written() -> None:
    given = {"contexts": np.ones((B, D)), "actions": np.array([0, 1, 0, 1]), "rewards": np.arange(4.0)}
    for array in given.values():
        array.flags.writeable = False
    batch(**given, weights=np.ones(B))


def test_a_decision_makes_its_table_once_and_only_when_asked() -> None:
    calls: list[int] = []

    def table() -> Scores:
        calls.append(1)
        return Scores(
            **{name: np.full((B, M), i) for i, name in enumerate(["means", "widths", "scores", "probabilities"])}
        )

    decision = Decision(np.zeros(B, np.intp), np.ones(B), table, ids=["a", "b", "c", "d"])
    assert (len(decision), decision.exact, calls) == (B, True, [])
    assert decision.ids == ["a", "b", "c", "d"]
    shown = [decision.means[0, 0], decision.widths[0, 0], decision.scores[0, 0], decision.probabilities[0, 0]]
    assert shown == [0, 1, 2, 3]
    assert calls == [1]
    assert repr(decision) == "Decision(n=4, exact=True)"


def test_a_derived_value_is_made_once_for_each_owner() -> None:
    slot = Derived()
    made: list[str] = []

    def make(name: str) -> str:
        made.append(name)
        return name

    assert [slot.get("a", make, "a"), slot.get("a", make, "again")] == ["a", "a"]
    assert slot.get("b", make, "b") == "b"
    assert made == ["a", "b"]


def test_each_state_has_a_slot_of_its_own() -> None:
    assert State(n_actions=1, dim=1).derived is not State(n_actions=1, dim=1).derived


def test_rounds_and_feedback_hold_what_they_are_given() -> None:
    rounds = Rounds(contexts=np.ones((B, D)), payload="private")
    assert (len(rounds), rounds.payload) == (B, "private")
    assert Feedback(rewards=np.ones(B)).all_rewards is None


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 4), (0, 5), (2, 3, 4)])
def test_finite_values_are_finite_however_large(shape: tuple[int, ...]) -> None:
    for scale in (0.0, 1.0, 1e200, np.finfo(np.float64).max):
        assert all_finite(np.full(shape, scale))
        assert all_finite(np.full(shape, -scale).T)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e200])
def test_one_value_that_is_not_finite_is_seen_among_all(bad: float, scale: float) -> None:
    for place in np.ndindex(3, 4):
        table = np.full((3, 4), scale)
        table[place] = bad
        assert not all_finite(table) and not all_finite(table.T) and not all_finite(table[:, place[1]])
