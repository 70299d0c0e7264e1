"""Logs in memory: obp's dict, MABWiser's and contextualbandits' arrays, there and back."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from spuir.base.streams import generator
from spuir.errors import InputError
from spuir.logs import open_log
from spuir.logs.formats import FORMATS


def feedback(n: int = 6, positions: int = 1, seed: int = 0) -> dict[str, Any]:
    """Return a bandit_feedback of n rounds with three actions, as obp's synthetic data have it."""
    rng = generator(seed, "feedback")
    choices = rng.dirichlet(np.ones(3), (n, positions)).transpose(0, 2, 1)
    action, position = rng.integers(3, size=n), rng.integers(positions, size=n)
    return {
        "n_rounds": n,
        "n_actions": 3,
        "context": rng.normal(size=(n, 2)),
        "action_context": np.eye(3),
        "action": action,
        "position": position if positions > 1 else None,
        "reward": rng.normal(size=n),
        "expected_reward": rng.normal(size=(n, 3)),
        "pi_b": choices,
        "pscore": choices[np.arange(n), action, position],
    }


class TestObp:
    def test_a_feedback_is_a_log(self) -> None:
        source = feedback()
        log = open_log(source)
        assert (log.format, log.context) == ("obp", ("context_0", "context_1"))
        table = log.table()
        assert np.array_equal(table["action"], source["action"])
        assert np.array_equal(table["reward"], source["reward"])
        assert np.array_equal(table["propensity"], source["pscore"])
        assert np.array_equal(np.array(table["probabilities"].to_pylist()), source["pi_b"][:, :, 0])

    @pytest.mark.parametrize("n", [0, 1, 20])
    def test_there_and_back(self, n: int) -> None:
        source = feedback(n)
        back = FORMATS.get("obp").export(open_log(source).table(), {"actions": [0, 1, 2]})
        assert back.keys() == source.keys() - {"expected_reward"}
        for name, values in back.items():
            assert values is source[name] is None or np.array_equal(values, source[name]), name

    def test_probabilities_are_those_of_the_position(self) -> None:
        source = feedback(positions=3)
        table = open_log(source).table()
        rows = np.array(table["probabilities"].to_pylist())
        assert np.array_equal(rows[np.arange(6), source["action"]], source["pscore"])
        assert np.array_equal(table["position"], source["position"])

    def test_labels_go_both_ways(self) -> None:
        source, labels = feedback(), ["x", "y", "z"]
        table = open_log(source, actions=labels).table()
        assert table["action"].to_pylist() == [labels[code] for code in source["action"]]
        back = FORMATS.get("obp").export(table, {"actions": labels})
        assert np.array_equal(back["action"], source["action"])
        assert np.array_equal(back["pi_b"], source["pi_b"])

    def test_actions_that_were_not_eligible_have_probability_zero(self) -> None:
        table = pa.table(
            {
                "action": ["b", "a"],
                "reward": [1.0, 0.0],
                "eligible": [["b", "c"], ["a"]],
                "probabilities": [[0.3, 0.7], [1]],
            }
        )
        back = FORMATS.get("obp").export(table, {"actions": ["a", "b", "c"]})
        assert back["pi_b"][:, :, 0].tolist() == [[0, 0.3, 0.7], [1, 0, 0]]
        assert back["pscore"] is back["position"] is None

    @pytest.mark.parametrize(
        ("changes", "options", "message"),
        [
            ({"reward": np.zeros(5)}, {}, r"\['reward'\].*5 rows.*n_rounds is 6"),
            ({"pi_b": np.ones((6, 2, 1))}, {}, r"shape \(6, 2, 1\)"),
            ({"context": np.zeros(6)}, {}, r"shape \(6,\)"),
            ({}, {"actions": ["x", "y"]}, "codes from 0 to 1"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, changes: Any, options: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            open_log(feedback() | changes, **options)

    def test_another_dict_is_no_feedback(self) -> None:
        with pytest.raises(InputError, match="has the keys n_rounds, n_actions, action, reward"):
            open_log({"action": [1]}, format="obp")


class TestMabwiser:
    def test_there_and_back(self) -> None:
        source = {"decisions": ["a", "b", "a"], "rewards": [1, 0, 2.5], "contexts": [[1, 2], [3, 4], [5, 6]]}
        for given_source in (source, tuple(source.values())):
            log = open_log(given_source, format="mabwiser")
            back = FORMATS.get("mabwiser").export(log.table(), {})
            # The order is that of MAB.fit.
            assert list(back) == ["decisions", "rewards", "contexts"]
            assert {name: values.tolist() for name, values in back.items()} == source

    def test_a_frame_keeps_its_names(self) -> None:
        frame = pd.DataFrame({"age": [1.0, 2.0], "paid": [True, False]})
        log = open_log({"decisions": pd.Series([1, 2]), "rewards": pd.Series([0.0, 1.0]), "contexts": frame})
        assert (log.format, log.context) == ("mabwiser", ("age", "paid"))
        assert FORMATS.get("mabwiser").export(log.table(), {})["contexts"].tolist() == [[1, 1], [2, 0]]

    def test_contexts_may_be_missing(self) -> None:
        log = open_log({"decisions": [1, 2], "rewards": [0, 1]})
        assert log.context == ()
        assert FORMATS.get("mabwiser").export(log.table(), {})["contexts"] is None

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"city": ["x", "y"]}, "column 'city': got type string, but contexts are numbers there"),
            ({"reward": [1.0, None]}, "column 'reward': got 1 missing values"),
        ],
    )
    def test_what_it_does_not_take_is_refused(self, columns: dict[str, Any], message: str) -> None:
        table = pa.table({"action": ["a", "b"], "reward": [1.0, 0.0]} | columns)
        with pytest.raises(InputError, match=message):
            FORMATS.get("mabwiser").export(table, {})

    def test_other_objects_are_refused(self) -> None:
        with pytest.raises(InputError, match="decisions, rewards and contexts"):
            open_log({"a": [1]}, format="mabwiser")

    def test_mabwiser_learns_from_it(self) -> None:
        mab = pytest.importorskip("mabwiser.mab", reason="MABWiser comes with the extra `bench`")
        log = open_log({"action": ["a", "b"] * 10, "reward": [1.0, 0.0] * 10, "x": np.arange(20.0)})
        bandit = mab.MAB(["a", "b"], mab.LearningPolicy.LinGreedy(epsilon=0))
        bandit.fit(**FORMATS.get("mabwiser").export(log.table(), {}))
        assert bandit.predict([[3.0]]) == "a"


class TestContextualbandits:
    @given(
        st.lists(st.tuples(st.integers(0, 4), st.floats(0, 1), st.floats(1e-3, 1), st.floats(-9, 9)), min_size=1),
        st.booleans(),
    )
    def test_there_and_back(self, drawn: list[Any], logged: bool) -> None:
        a, r, p, x = (np.array(column) for column in zip(*drawn, strict=True))
        source = {"X": np.column_stack([x, 2 * x]), "a": a, "r": r} | ({"p": p} if logged else {})
        for given_source in (source, tuple(source.values())):
            log = open_log(given_source, format="contextualbandits")
            back = FORMATS.get("contextualbandits").export(log.table(), {})
            assert list(back) == list(source)
            assert all(np.array_equal(back[name], source[name]) for name in source)

    def test_a_sparse_table_becomes_columns(self) -> None:
        log = open_log({"X": sparse.csr_matrix(np.eye(2)), "a": [0, 1], "r": [0, 1]})
        assert (log.format, log.table()["context_1"].to_pylist()) == ("contextualbandits", [0.0, 1.0])

    def test_labels_are_numbered_in_the_given_order(self) -> None:
        table = pa.table({"action": ["b", "a"], "reward": [1, 0], "x": [1, 2]})
        assert FORMATS.get("contextualbandits").export(table, {})["a"].tolist() == [1, 0]
        assert FORMATS.get("contextualbandits").export(table, {"actions": ["b", "c", "a"]})["a"].tolist() == [0, 2]
        with pytest.raises(InputError, match=r"'a' at row 1.*the actions are 'b'"):
            FORMATS.get("contextualbandits").export(table, {"actions": ["b"]})

    def test_rewards_beyond_probabilities_are_refused(self) -> None:
        with pytest.raises(InputError, match=r"1\.5 at row 1.*rewards in \[0, 1\]"):
            FORMATS.get("contextualbandits").export(pa.table({"action": [0, 1], "reward": [0.5, 1.5]}), {})

    def test_other_objects_are_refused(self) -> None:
        with pytest.raises(InputError, match="X, a and r"):
            open_log({"X": [[1]]}, format="contextualbandits")
        with pytest.raises(InputError, match="rows of different lengths"):
            open_log({"X": [[1], [1, 2]], "a": [0, 1], "r": [0, 1]})

    def test_contextualbandits_learns_from_it(self) -> None:
        online = pytest.importorskip("contextualbandits.online", reason="it comes with the extra `bench`")
        log = open_log({"action": [0, 1] * 10, "reward": [1.0, 0.0] * 10, "x": np.arange(20.0)})
        policy = online.LinUCB(nchoices=2, alpha=0.1)
        policy.fit(**FORMATS.get("contextualbandits").export(log.table(), {}))
        assert policy.predict(np.array([[3.0]]), exploit=True).tolist() == [0]


@pytest.mark.parametrize("wrong", [{"n_rounds": None}, {"action": 5}, {"position": [0, 5]}])
def test_a_feedback_of_another_shape_is_refused(wrong: dict[str, Any]) -> None:
    given = {
        "n_rounds": 2,
        "n_actions": 2,
        "action": np.array([0, 1]),
        "reward": np.array([1.0, 0.0]),
        "pscore": np.array([0.5, 0.5]),
        "position": [0, 1],
        "context": np.ones((2, 2)),
        "pi_b": np.full((2, 2, 2), 0.5),
        "action_context": np.eye(2),
        "expected_reward": None,
    }
    with pytest.raises(InputError, match="pass what obp returned"):
        open_log(given | wrong, "obp")
