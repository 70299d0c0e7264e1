"""A bandit given Arrow tables, labels of every kind, masked arrays and no rows at all."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import spuir
from spuir.errors import InputError, ParameterError, UnknownNameError
from tests.bandits import ACTIONS, REWARDS, M, X, taught


@pytest.mark.parametrize("which", [0, 1, 2])
def test_masked_values_are_refused(which: int) -> None:
    given: list[Any] = [X, ACTIONS, REWARDS]
    bandit, names = taught("sbucb"), ("X", "actions", "rewards")
    given[which] = np.ma.masked_array(given[which], mask=np.zeros_like(given[which], dtype=bool))
    assert bandit.partial_fit(*given, allow_repeat=True).n_episodes_ == 2  # a mask that hides nothing
    plain = taught("sbucb").partial_fit(X, ACTIONS, REWARDS, allow_repeat=True)
    np.testing.assert_array_equal(bandit.coefficients_, plain.coefficients_)
    given[which].mask.flat[7] = True
    with pytest.raises(InputError, match=f"^{names[which]}: got masked values"):
        bandit.partial_fit(*given)
    assert bandit.n_episodes_ == 2


class TestArrow:
    def test_levels_that_no_row_has_do_not_matter(self) -> None:
        bandit = spuir.Bandit("puir", ["x", "y"], random_state=0)
        levels = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array(["x", "y", "unused"]))
        bandit.partial_fit(X[:3], levels, [1.0, 2.0, 3.0])
        plain = spuir.Bandit("puir", ["x", "y"], random_state=0).partial_fit(X[:3], ["x", "y", "x"], [1.0, 2.0, 3.0])
        np.testing.assert_array_equal(bandit.coefficients_, plain.coefficients_)
        with pytest.raises(UnknownNameError, match="got 'w' at row 2"):
            bandit.partial_fit(X[:3], pa.array(["x", "x", "w"]).dictionary_encode(), [1.0, 2.0, 3.0])
        with pytest.raises(UnknownNameError, match="got None at row 1"):
            bandit.partial_fit(X[:3], pa.array(["x", None, "y"]).dictionary_encode(), [1.0, 2.0, 3.0])

    def test_columns_of_a_table_are_matched_by_name(self) -> None:
        names = ["a", "b", "c"]
        bandit = spuir.Bandit("puir", M, random_state=0)
        bandit.partial_fit(pa.table(dict(zip(names, X.T, strict=True))), ACTIONS, REWARDS)
        assert list(bandit.feature_names_in_) == names
        turned = pa.table({name: X[:, names.index(name)] for name in reversed(names)})
        frame = pd.DataFrame(X, columns=names)
        for given in (turned, turned.to_batches()[0], frame[["b", "c", "a"]]):
            np.testing.assert_array_equal(bandit.predict_proba(given), taught().predict_proba(X))
        with pytest.raises(InputError, match="columns without 'a'"):
            bandit.decide(turned.drop_columns(["a"]))

    def test_batches_with_booleans_and_missing_values(self) -> None:
        bandit = spuir.Bandit("puir", M, random_state=0)
        rows = pa.record_batch({"a": [True, False, True], "b": [1.0, 2.0, 3.0]})
        assert bandit.partial_fit(rows, [0, 1, 2], [1.0, 2.0, 3.0]).n_features_in_ == 2
        with pytest.raises(InputError, match="nan at row 1, column 1"):
            bandit.decide(pa.record_batch({"a": [True, False], "b": [1.0, None]}))
        with pytest.raises(InputError, match="no columns"):
            spuir.Bandit("puir", M).decide(pa.table({}))

    def test_as_many_levels_as_the_indices_count(self) -> None:
        names = [f"n{at}" for at in range(128)]
        levels = pa.DictionaryArray.from_arrays(pa.array(range(128), pa.int8()), pa.array(names))
        bandit = spuir.Bandit("uniform", names, random_state=0).partial_fit(np.ones((128, 1)), levels, np.ones(128))
        assert bandit.last_info_ is not None and bandit.last_info_.counts.tolist() == [1.0] * 128


def test_a_column_called_column_names() -> None:
    frame = pd.DataFrame(X, columns=["column_names", "columns", "schema"])
    bandit = spuir.Bandit("puir", M, random_state=0).partial_fit(frame, ACTIONS, REWARDS)
    assert list(bandit.feature_names_in_) == ["column_names", "columns", "schema"]


@pytest.mark.parametrize("labels", [[-1, 2**63], ["a", "a\0"], [2**70, 1, 0]])
def test_labels_come_back_as_they_were_given(labels: list[Any]) -> None:
    bandit = spuir.Bandit("uniform", labels, random_state=0)
    chosen = bandit.decide(np.ones((50, 1))).actions.tolist()
    assert set(chosen) == set(labels)
    assert bandit.partial_fit(np.ones((50, 1)), chosen, np.ones(50)).n_episodes_ == 1


def test_deciding_on_no_rows_settles_no_columns() -> None:
    bandit = spuir.Bandit("puir", 2, random_state=0)
    assert len(bandit.decide(np.empty((0, 9)))) == 0
    bandit.partial_fit(np.ones((2, 4)), [0, 1], [1.0, 2.0])


def test_a_number_of_actions_is_no_array() -> None:
    with pytest.raises(ParameterError, match="a number M or a list of labels"):
        spuir.Bandit("puir", np.array(5)).decide(X)


def test_no_rows_at_all_are_not_taken_for_one() -> None:
    with pytest.raises(InputError, match="pass an array or a DataFrame"):
        taught().decide([])
