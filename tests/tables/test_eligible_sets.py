"""Lists of eligible labels in all forms, for every policy, and what is refused."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.sparse import csr_array

import spuir
from spuir.base import streams
from spuir.errors import InputError, ParameterError, SpuirError, UnknownNameError
from spuir.testing import trial
from tests.catalogues import DIM, items, taught

LABELS = ["mail", "call", "visit", "wait"]


def rows(n: int = 40) -> tuple[Any, Any, list[list[str]]]:
    """Return contexts, a mask and the same as lists."""
    rng = streams.generator(0, "lists", n)
    mask = rng.random((n, 4)) < 0.5
    mask[np.arange(n), rng.integers(4, size=n)] = True
    return rng.standard_normal((n, 3)), mask, [[LABELS[at] for at in np.flatnonzero(row)] for row in mask]


def learned(name: str) -> spuir.Bandit:
    rng = streams.generator(1, "lists")
    X = rng.standard_normal((300, 3))
    labels = np.array(LABELS)[rng.integers(4, size=300)]
    given: dict[str, Any] = {"intercept": True} if name in ("puir", "sbucb", "spuir", "greedy") else {}
    given["random_state"] = 5
    bandit = spuir.Bandit(name, LABELS, **given)
    columns: dict[str, Any] = {"row_ids": np.arange(300)} if "sketched" in bandit.policy_.traits else {}
    return bandit.partial_fit(X, labels, X[:, 0] + rng.standard_normal(300), propensities=np.full(300, 0.25), **columns)


@pytest.mark.parametrize(
    "name", ["auto", "hierarchical", "puir", "sbucb", "greedy", "uniform", "bexp3", "linear-thompson"]
)
def test_lists_and_masks_are_the_same(name):
    bandit = learned(name)
    X, mask, lists = rows()
    ids = np.arange(len(X))
    for given in (lists, [list(reversed(one)) for one in lists], [set(one) for one in lists], csr_array(mask)):
        np.testing.assert_allclose(
            bandit.predict_proba(X, eligible=given), bandit.predict_proba(X, eligible=mask), atol=1e-9
        )
        np.testing.assert_array_equal(bandit.predict(X, eligible=given), bandit.predict(X, eligible=mask))
        decided = bandit.decide(X, eligible=given, ids=ids)
        place = np.array([LABELS.index(action) for action in decided.actions])
        assert mask[np.arange(len(X)), place].all()
        if decided.exact:
            expected = bandit.predict_proba(X, eligible=mask)[np.arange(len(X)), place]
            np.testing.assert_allclose(decided.propensities, expected, atol=1e-9)
        bandit.partial_fit(decided, np.zeros(len(X)), allow_repeat=True)


def test_columns_of_lists():
    bandit = learned("hierarchical")
    X, mask, lists = rows()
    expected = bandit.predict_proba(X, eligible=mask)
    column = np.empty(len(lists), dtype=object)
    column[:] = lists
    typed = pa.array(lists, pa.list_(pa.dictionary(pa.int32(), pa.string())))
    of_arrow = pd.Series(lists, dtype=pd.ArrowDtype(pa.list_(pa.string())))
    indexes = [pd.Index(one) for one in lists]
    chunks = pa.chunked_array([lists[:9], lists[9:]])
    for given in (pd.Series(lists), column, pa.array(lists), chunks, typed, of_arrow, indexes):
        np.testing.assert_allclose(bandit.predict_proba(X, eligible=given), expected, atol=1e-12)
    for_all = bandit.predict_proba(X, eligible=[True, False, False, True])
    two = ["mail", "wait"]
    of_arrow = pd.Series(two, dtype=pd.ArrowDtype(pa.string()))
    masks = pa.array([True, False, False, True]), pa.chunked_array([[True, False], [False, True]])
    for given in (two, pd.Index(two), pd.Series(two), of_arrow, pa.array(two), pa.chunked_array([two]), *masks):
        np.testing.assert_allclose(bandit.predict_proba(X, eligible=given), for_all, atol=1e-12)


def test_arrays_of_text():
    """As many labels in each row, as a draw of NumPy gives them; or one list for all rows."""
    bandit = learned("auto")
    X = rows(2)[0]
    table = np.array([["mail", "call"], ["wait", "visit"]])
    np.testing.assert_array_equal(
        bandit.predict_proba(X, eligible=table), bandit.predict_proba(X, eligible=table.tolist())
    )
    assert (bandit.predict_proba(X, eligible=table[0])[:, 2:] == 0).all()


def test_lists_of_numbers():
    """A list of all labels is a list, though a mask has as many entries; 0 and 1 alone are a mask."""
    bandit = spuir.Bandit("uniform", 3, random_state=0)
    X = np.ones((2, 1))
    every = bandit.predict_proba(X, eligible=[[2, 0, 1], [0, 1, 2]])
    np.testing.assert_allclose(every, np.full((2, 3), 1 / 3))
    np.testing.assert_allclose(bandit.predict_proba(X, eligible=[[1, 0, 1]] * 2), [[0.5, 0, 0.5]] * 2)
    np.testing.assert_allclose(bandit.predict_proba(X, eligible=[[2], [0, 1]]), [[0, 0, 1], [0.5, 0.5, 0]])


def test_retired_labels_may_be_listed():
    bandit = learned("hierarchical").remove_action("call")
    table = bandit.predict_proba(np.ones((1, 3)), eligible=[["mail", "call", "wait"]])
    assert table[0, 1] == 0
    assert table[0, [0, 3]].sum() == pytest.approx(1.0)
    with pytest.raises(InputError, match="no action that is active at row 0"):
        bandit.decide(np.ones((1, 3)), eligible=[["call"]])


def test_what_was_executed_must_be_listed():
    bandit = learned("hierarchical")
    X = np.ones((2, 3))
    bandit.partial_fit(X, ["mail", "call"], [0.0, 1.0], eligible=[["mail"], ["call", "wait"]])
    with pytest.raises(InputError, match="'call' executed but not eligible at row 1"):
        bandit.partial_fit(X, ["mail", "call"], [0.0, 1.0], eligible=[["mail"], ["wait"]])


GOOD = {"age": 0.1, "price": 0.2, "length": 0.3, "topic": "art"}
X1, X2 = np.ones((1, DIM)), np.ones((2, DIM))
REFUSED: dict[str, tuple[Any, str]] = {
    "an unknown label": (lambda b: b.decide(X2, eligible=[["n1"], ["n2", "n99"]]), r"'n99' at row 1, .* did you mean"),
    "an unknown label to learn": (
        lambda b: b.partial_fit(X1, ["n1"], [0.0], eligible=[["n1", "x"]]),
        "eligible: got 'x' at row 0",
    ),
    "a missing label": (lambda b: b.decide(X1, eligible=[["n1", None]]), "eligible: got None at row 0"),
    "an empty list": (lambda b: b.decide(X2, eligible=[["n1"], []]), "no action at row 1, but every row needs one"),
    "a label twice": (lambda b: b.decide(X1, eligible=[["n1", "n2", "n1"]]), "'n1' twice at row 0"),
    "too few lists": (lambda b: b.decide(X2, eligible=[["n1"]]), "length 1, but there are 2 rows"),
    "no list in a row": (lambda b: b.decide(X2, eligible=[["n1"], None]), "None at row 1, but every row has a list"),
    "no features": (lambda b: b.add_action("new"), "none for action 'new', .*'age', 'price', 'length', 'topic'"),
    "a missing column": (
        lambda b: b.add_action("new", features={"age": 1}),
        "no 'price', but action 'new' needs every",
    ),
    "a column of another type": (
        lambda b: b.add_action("new", features={**GOOD, "price": "cheap"}),
        "'cheap' for action 'new', but the encoder learned this column as numbers",
    ),
    "an infinite feature": (lambda b: b.add_action("new", features={**GOOD, "price": np.inf}), "finite"),
    "a list of features": (lambda b: b.add_action("new", features=[1, 2]), "features of an action go by name"),
    "features in the place of an action": (
        lambda b: b.add_action("new", GOOD),
        "label of another action; pass features=",
    ),
    "a label of NumPy": (lambda b: b.add_action(b.actions_[1], features=GOOD), "got 'n1', but a label is never reused"),
    "an unknown label of NumPy": (lambda b: b.decide(X1, eligible=[np.array(["n99"])]), "got 'n99' at row 0"),
    "a label in use": (lambda b: b.add_action("n1", features=GOOD), "a label is never reused"),
    "an update of nothing": (lambda b: b.update_action("n1", features=None), "none for action 'n1'"),
    "an update of a stranger": (lambda b: b.update_action("n99", features=GOOD), "'n99'"),
    "features per decision too late": (
        lambda b: b.decide(X1, action_features=np.ones((1, 12, 2))),
        "this bandit started without features per decision",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_and_changes_nothing(name):
    bandit, _ = taught()
    call, message = REFUSED[name]
    before = trial.frozen(bandit)
    with pytest.raises(SpuirError, match=message) as refusal:
        call(bandit)
    assert refusal.value.remedy
    assert "\n" not in str(refusal.value)
    assert trial.frozen(bandit) == before


def test_an_update_of_a_retired_action_is_refused():
    bandit, _ = taught()
    bandit.remove_action("n3")
    with pytest.raises(InputError, match="'n3', but it was removed"):
        bandit.update_action("n3", features=GOOD)


Y = np.ones((2, 12, 2))
AT_ROW_1 = Y.copy()
AT_ROW_1[1, 4, 1] = np.nan
LONG = pd.DataFrame({"row": [0, 1, 1], "action": ["n1", "n1", "n2"], "y0": 1.0, "y1": [1.0, 2.0, 3.0]})
VARYING: dict[str, tuple[Any, str]] = {
    "none": (lambda b: b.decide(X2), "has the features per decision 'y0', 'y1'; pass them"),
    "another shape": (
        lambda b: b.decide(X2, action_features=Y[:, :5]),
        r"shape \(2, 5, 2\), but it must be \(2, 12, 2\)",
    ),
    "NaN": (lambda b: b.decide(X2, action_features=np.where(Y == 1, np.nan, Y)), "nan in 'y0' at row 0"),
    "NaN in a later row": (lambda b: b.decide(X2, action_features=AT_ROW_1), "nan in 'y1' at row 1"),
    "NaN to learn": (
        lambda b: b.partial_fit(X2, ["n1", "n2"], [0, 1], action_features=[[1, np.nan], [1, 1]]),
        "nan in 'y1' at row 0",
    ),
    "text": (lambda b: b.decide(X2, action_features=LONG.assign(y1="cheap")), "features per decision are numbers"),
    "a missing column": (lambda b: b.decide(X2, action_features=LONG.drop(columns="y1")), "no column 'y1'"),
    "a row too many": (lambda b: b.decide(X1, action_features=LONG), "row 1, but the column 'row' has row numbers"),
    "a negative row": (lambda b: b.decide(X2, action_features=LONG.assign(row=[0, -1, 1])), "row -1, but the column"),
    "no column of labels": (lambda b: b.decide(X2, action_features=LONG.drop(columns="action")), "without 'action'"),
    "an unknown label": (
        lambda b: b.decide(X2, action_features=LONG.assign(action="x")),
        "action_features: got 'x' at row 0",
    ),
    "both": (lambda b: b.decide(X2, eligible=[["n1"]] * 2, action_features=LONG), "says who is eligible"),
    "a row without actions": (lambda b: b.decide(X2, action_features=LONG.iloc[:1]), "no action at row 1"),
    "no actions": (lambda b: b.decide(X2, action_features={name: [] for name in LONG}), "no action at row 0"),
    "not of the executed": (
        lambda b: b.partial_fit(X2, ["n1", "n7"], [0.0, 1.0], action_features=LONG),
        "no features of 'n7' at row 1",
    ),
    "too few rows": (
        lambda b: b.partial_fit(X2, ["n1", "n7"], [0, 1], action_features=[[1.0, 1.0]]),
        r"shape \(1, 2\)",
    ),
}


@pytest.mark.parametrize("name", VARYING)
def test_bad_features_per_decision_are_refused(name):
    bandit = spuir.Bandit("hierarchical", items(), random_state=0)
    bandit.partial_fit(np.ones((300, DIM)), ["n1"] * 300, np.arange(300.0), action_features=np.ones((300, 2)))
    call, message = VARYING[name]
    before = trial.frozen(bandit)
    with pytest.raises(SpuirError, match=message):
        call(bandit)
    assert trial.frozen(bandit) == before


def test_bad_catalogues_are_refused():
    table = items()
    twice = table.rename(index={"n1": "n0"})
    with pytest.raises(ParameterError, match="'n0' twice, but labels are unique"):
        spuir.Bandit("hierarchical", twice)
    with pytest.raises(ParameterError, match="nan, but a label equals itself"):
        spuir.Bandit("hierarchical", table.rename(index={"n1": np.nan}))
    with pytest.raises(ParameterError, match="1 for 'b', but a catalogue as a dict has a dict of features"):
        spuir.Bandit("hierarchical", {"a": {"u": 1}, "b": 1})
    with pytest.raises(ParameterError, match=r"2\.5 for 'a', but a catalogue as a dict has a dict of features"):
        spuir.Bandit("hierarchical", {"a": 2.5, "b": 3.0})  # labels alone are a list
    with pytest.raises(ParameterError, match=r"\[1, 2\] for 'a', but a catalogue as a dict has a dict of features"):
        spuir.Bandit("hierarchical", {"a": [1, 2], "b": [3, 4]})
    with pytest.raises(ParameterError, match="labels in the column 'action'"):
        spuir.Bandit("hierarchical", pa.table({"item": ["a"], "u": [1.0]}))
    with pytest.raises(ParameterError, match=r"features for policy 'auto', .* use policy='hierarchical'"):
        spuir.Bandit("auto", table)
    mixed = table.assign(price=[1.0, "two", *[3.0] * 10])
    with pytest.raises(InputError, match=r"'two' for action 'n1', .*; correct it, or pass None where it is unknown"):
        spuir.Bandit("hierarchical", mixed)
    with pytest.raises(InputError, match="column 'price': got inf for action 'n0'"):
        spuir.Bandit("hierarchical", table.assign(price=[np.inf, *[3.0] * 11]))
    with pytest.raises(InputError, match="actions: got column 'price' twice"):
        spuir.Bandit("hierarchical", pd.concat([table, table[["price"]]], axis=1))


def test_labels_are_in_the_column_action_however_the_rows_are_numbered():
    """Rows of a file that were selected, sorted or joined keep numbers that are no labels."""
    table = items().rename_axis("action").reset_index()
    for rows in (
        table,
        table[::2],
        table.sort_values("price"),
        pd.concat([table[:6], table[6:].reset_index(drop=True)]),
    ):
        bandit = spuir.Bandit("hierarchical", rows)
        assert bandit.actions_.tolist() == rows["action"].tolist()
    with pytest.raises(ParameterError, match="'n0' twice"):
        spuir.Bandit("hierarchical", pd.concat([table, table[:1]]))
    one: Any = table[:1]
    with pytest.raises(InputError, match="got a DataFrame, but features of an action go by name"):
        spuir.Bandit("hierarchical", items()).add_action("new", features=one)


def test_features_whose_squares_overflow_are_refused():
    """Before, a first episode was learned into a state that could not decide."""
    table = items()
    with pytest.raises(InputError, match=r"column 'price': got 1e\+308 for action 'n0', .* finite and its square too"):
        spuir.Bandit("hierarchical", table.assign(price=[1e308, -1e308, *[3.0] * 10]))
    bandit = spuir.Bandit("hierarchical", table)
    before, row = bandit.digest(), dict(table.iloc[0])
    with pytest.raises(InputError, match=r"column 'price': got 1e\+200 for action 'new'"):
        bandit.add_action("new", features=row | {"price": 1e200})
    with pytest.raises(InputError, match=r"column 'price': got -1e\+200 for action 'n0'"):
        bandit.update_action("n0", row | {"price": -1e200})
    assert bandit.digest() == before


def test_features_need_a_policy_that_uses_them():
    bandit = spuir.Bandit("auto", 3)
    for call in (
        lambda: bandit.decide(X1, action_features=np.ones((1, 3, 1))),
        lambda: bandit.partial_fit(X1, [0], [1.0], action_features=[[1.0]]),
    ):
        with pytest.raises(InputError, match="policy 'auto' has no use for features of actions"):
            call()
    with pytest.raises(InputError, match="the actions of this bandit have no features"):
        bandit.add_action("new", features={"u": 1})
    with pytest.raises(UnknownNameError):
        bandit.update_action("n1", features={"u": 1})
